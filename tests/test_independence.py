"""What two routes share is read from the source: held against what is recorded, what runs, and planted faults."""

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest
from tiers import full_where

from utfproof.claims.computed import recorded_routes
from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.claims.independence import CodeSource, Names, apart, shared
from utfproof.claims.judging import judge
from utfproof.claims.record import Run
from utfproof.claims.registry import all_claims
from utfproof.claims.runner import decide, observe

CLAIMS = all_claims()
PAIRED = [name for name, claim in CLAIMS.items() if claim.computed.named_routes]
SAMPLE = ["new:decision-theorem/distance", "lem:eqatt", "new:fibre/bound"]
QUICK = ["new:fibre/bound", "new:local-test/at-M"]
"""To run with every call noted."""
ROOT = Path(__file__).parents[1] / "utfproof"
TABLES = ("certificates/dimensions.py", "constructions/tied.py", "shapes.py")
"""Whose functions are held by tables, and found there when they are needed."""
SMALL = Grid.parse("H=1..2,L=1,d=1,d_in=1")


@pytest.fixture(scope="module")
def source():
    return CodeSource()


def test_every_pair_of_routes_is_recorded_and_shares_nothing_but_the_object():
    assert list(recorded_routes()) == PAIRED, "python scripts/write_claims.py --computed"
    for found in recorded_routes().values():
        assert len(found.routes) >= 2
        assert apart(found.shared) == []


@pytest.mark.parametrize("name", full_where(lambda name: name not in SAMPLE, PAIRED))
def test_what_routes_share_is_as_recorded(source, name):
    claim = CLAIMS[name]
    assert shared(claim.check, claim.computed.named_routes, source) == claim.shared, "write_claims.py --computed"


@pytest.mark.parametrize(
    "name",
    full_where(lambda name: name not in QUICK, [*SAMPLE, "new:local-test/at-M", "new:normalisation/three-layers"]),
)
def test_what_runs_was_reached(source, name):
    """The oracle: every function of the package that a check runs is among those that reading its source has reached."""
    check = CLAIMS[name].check
    ran = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/"):
            ran.add((Path(frame.f_code.co_filename).resolve(), frame.f_code.co_qualname.split(".<locals>")[0]))

    list(check(Run(SMALL)))  # what is imported runs once
    sys.setprofile(watch)
    try:
        list(check(Run(SMALL)))
    finally:
        sys.setprofile(None)
    everything = source.reach(Names({"check": check}, {}, frozenset(), frozenset())).functions.values()
    reached = {(Path(sys.modules[f.__module__].__file__).resolve(), f.__qualname__) for f in everything}
    missed = {(path, f) for path, f in ran - reached if "<" not in f and not f.rpartition(".")[2].startswith("__")}
    assert {path for path, _ in missed} <= {ROOT / table for table in TABLES}, missed


FAULTS = {
    "plain integers by FLINT": (
        "new:normalisation/three-layers",
        "utfproof.claims.decisions",
        '"plain integers": plain.rank(listed)}',
        '"plain integers": rational.rank(np.array(rows, dtype=object))}',
    ),
    "FLINT by plain integers": (
        "new:normalisation/three-layers",
        "utfproof.claims.decisions",
        '"FLINT": rational.rank(np.array(listed, dtype=object))',
        '"FLINT": plain.rank(list(listed))',
    ),
    "the package's forward pass twice": (
        "def:transformer",
        "utfproof.claims.preliminaries",
        '"plain Fractions": plain.run_target(target, x)}',
        '"plain Fractions": plain.rows(target.forward(x, None)), "third": plain.run_target(target, x)}',
    ),
    "the own engine under FLINT's name": (
        "new:linear-test/parentheses",
        "utfproof.claims.new_matching",
        '"FLINT": flint_rank(columns, prime)}',
        '"FLINT": gfp.rank(columns, prime, engine="flint")}',
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_false_independence_is_seen(fault):
    name, module, old, new = FAULTS[fault]
    claim = CLAIMS[name]
    text = Path(importlib.import_module(module).__file__).read_text()
    assert text.count(old) == 1
    found = shared(claim.check, claim.computed.named_routes, CodeSource({module: text.replace(old, new)}))
    assert found != claim.shared
    if fault != "the package's forward pass twice":  # which is about the object: seen by what is recorded
        seen = observe(claim, Grid.parse(DEFAULT_GRID))
        lines = judge(dataclasses.replace(claim, shared=found), seen, whole=True)
        assert any("they are not two" in line for line in lines), lines


def test_one_expression_is_not_two_routes():
    module = "utfproof.claims.decisions"
    text = Path(importlib.import_module(module).__file__).read_text()
    old, new = '"FLINT": rational.rank(np.array(listed, dtype=object))', '"FLINT": plain.rank(listed)'
    with pytest.raises(ValueError, match="one expression"):
        shared(
            CLAIMS["new:normalisation/three-layers"].check,
            {"FLINT", "plain integers"},
            CodeSource({module: text.replace(old, new)}),
        )


def test_routes_that_nothing_computes_are_refused():
    with pytest.raises(ValueError, match="nothing is computed under the names"):
        shared(CLAIMS["def:transformer"].check, {"systems", "plain Fractions", "a third"})


def test_the_document_says_what_routes_share():
    found = decide(CLAIMS["new:local-test/seven"], SMALL).document["independence"]
    assert set(found) == {"routes", "given", "shared"}
    assert "flint" in found["routes"]["FLINT"]
    assert (
        found["routes"]["plain integers"] == ("claims.plain", "ground.selection")
        or "claims.plain" in found["routes"]["plain integers"]
    )
