"""The registry: complete, each claim decided as recorded, and broken by a fault planted in the code it speaks about."""

import concurrent.futures
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fault_injection
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_labels import LABELS
from tiers import full_where

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.prover import certify
from utfproof.claims import claim as claims
from utfproof.claims import runner
from utfproof.claims.claim import Category, Claim, Evidence, Figure, Instance, RoutesDiffer, Verdict, agree
from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.claims.registry import all_claims, select
from utfproof.claims.verdicts import computed_verdict
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import Shape
from utfproof.util.notions import Notion, Scope

ROOT = Path(__file__).parents[1]
CLAIMS = all_claims()
FAULTS = fault_injection.tables()
WHOLE, SMALL = Grid.parse(), Grid.parse("H=1..2,L=1..2,d=1,d_in=1..2")


# --- the registry ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
def test_every_statement_of_the_paper_has_a_claim(label):
    assert any(entry.label == label for entry in CLAIMS.values()), f"no claim about {label}"


def test_the_registry_is_filled_in():
    for entry in CLAIMS.values():
        assert re.fullmatch(r"[A-Za-z0-9_:./<>=-]+", entry.id), entry.id
        for text in (entry.place, entry.statement, entry.scope, entry.sentence):
            assert len(text) > 3, entry.id
            assert text == text.strip(), entry.id
        about_universality = re.search(r"universal|serves|matches|carries", entry.statement)
        if entry.category is Category.THEOREM and about_universality:
            assert entry.notion is not None, f"{entry.id} names no notion of universality"
        if entry.proof is not None:
            page = ROOT / entry.proof
            assert f"`{entry.id}`" in page.read_text(encoding="utf-8"), f"{entry.proof} does not name {entry.id}"
        assert (entry.cause is not None) == (entry.verdict is Verdict.FAILS), entry.id


ENTRY = {
    "id": "new:test",
    "place": "here",
    "statement": "a statement",
    "scope": "everywhere",
    "notion": "matching",
    "targets": "all untied",
    "verdict": "holds",
    "evidence": ["arithmetic"],
    "sentence": "because",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": "everything"}, "not understood"),
        ({"free": "E"}, "free"),
        ({"hosts": "some"}, "hosts 'some'"),
        ({"proof": "biases"}, "belong together"),
        ({"evidence": ["machine"]}, "comes from `theorems`"),
        ({"id": "app:test"}, "no category"),
        ({"quotation": "words"}, "needs a quotation"),
        ({"senctence": "x"}, "unknown keys senctence"),
        ({"verdict": "true"}, "'true' is not a valid Verdict"),
    ],
)
def test_records_that_are_refused(changes, message):
    assert claims.read(ENTRY, "New", lambda run: iter(())).id == "new:test"
    with pytest.raises(ValueError, match=message):
        claims.read(ENTRY | changes, "New", lambda run: iter(()))


def test_ids_are_found_by_label_and_prefix():
    assert {entry.id for entry in select(["intro:sparse"])} == {"intro:sparse/heads", "intro:sparse/single-head"}
    assert {entry.id for entry in select(["intro:*"])} == {name for name in CLAIMS if name.startswith("intro:")}
    with pytest.raises(MalformedInput, match="no claim is called 'thm:nonsense'"):
        select(["thm:nonsense"])


# --- faults ----------------------------------------------------------------------------------------------------


def test_every_claim_has_a_fault():
    broken = {name for fault in FAULTS.values() for name in fault.breaks}
    assert sorted(set(CLAIMS) - broken) == [], "claims that no planted fault breaks"
    assert sorted(broken - set(CLAIMS)) == [], "faults that name claims which do not exist"


def test_the_text_of_every_fault_is_found_once():
    for fault in FAULTS.values():
        found = Path(importlib.import_module(fault.module).__file__).read_text().count(fault.old)
        assert found == 1, f"{fault.name}: the text is found {found} times in {fault.module}"


def _plant(names):
    command = [sys.executable, str(ROOT / "tests" / "fault_injection.py"), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def _few():
    """Of each table the fault that fewest claims rest on; all others are for the second tier."""
    tables = {}
    for fault in FAULTS.values():
        tables.setdefault(fault.table, []).append(fault)
    return {min(table, key=lambda fault: (len(fault.breaks), fault.name)).name for table in tables.values()}


@pytest.fixture(scope="session")
def planted(request):
    """What the faults break that the tests of this run ask for, each decided with its own claims and no others."""
    asked = {
        item.callspec.params["name"] for item in request.session.items if item.originalname == "test_fault_is_seen"
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(_plant, (sorted(asked)[::2], sorted(asked)[1::2]))
    return first | second


@pytest.mark.parametrize("name", full_where(lambda name: name not in _few(), sorted(FAULTS)))
def test_fault_is_seen(planted, name):
    found = planted[name]
    assert found["code"] == 1, found
    assert set(FAULTS[name].breaks) <= set(found["decided"])
    missed = sorted(set(FAULTS[name].breaks) - set(found["broken"]))
    assert not missed, f"{name} is not noticed by {missed}"


@pytest.mark.full
def test_faults_change_results_rather_than_crash(planted):
    """A fault that merely crashes the check would be caught by any check: few may be of that kind."""
    crashed = [
        name
        for name, found in planted.items()
        if all(any("the check failed" in line for line in lines) for lines in found.get("problems", {}).values())
    ]
    assert len(crashed) <= len(planted) // 10, crashed


# --- the whole -------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_verify_decides_every_claim_and_leaves_certificates_that_the_checker_accepts(tmp_path):
    (tmp_path / "certificates").mkdir()
    command = [sys.executable, "-m", "utfproof", "verify", "--workers", "2", "-o", str(tmp_path / "all.json")]
    done = subprocess.run(
        [*command, "--certificates", str(tmp_path / "certificates")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads((tmp_path / "all.json").read_text())
    assert (document["grid"], document["holds"]) == (DEFAULT_GRID, True)
    assert [entry["id"] for entry in document["claims"]] == list(CLAIMS)
    for entry in document["claims"]:
        assert entry["instances"], entry["id"]
        assert entry["smallest"] or entry["counterexample"] or entry["verdict"] == "open", entry["id"]
    files = {path.stem for path in (tmp_path / "certificates").glob("*.json")}
    assert files == set(document["certificates"])
    assert len(files) > 100
    command = [sys.executable, "-m", "utfproof.certificates.checker", str(tmp_path / "certificates")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:]


# --- grids: what is asked, what is examined ----------------------------------------------------------------------


def decided(name, grid):
    return runner.decide(CLAIMS[name], Grid.parse(grid)).document


@pytest.mark.parametrize(
    ("name", "verdict", "note"),
    [
        ("intro:sparse/heads", "holds", "0 of 1 shapes of this grid examined; the verdict is about the claim's own"),
        ("thm:sparse_universal_transformer/heads", "holds", "1 of 1 shapes of this grid examined"),
        ("thm:random_universal_transformer", "holds", "1 of 1 shapes of this grid examined"),
        ("thm:random-R/pseudoinverse", "holds", "0 of 1 shapes of this grid examined, 1 too large"),
        ("eq:m-bar/single-head", "holds", "0 of 1 shapes of this grid examined"),
        ("sec:experiments/guessing", "holds", "0 of 1 shapes of this grid examined"),
    ],
)
def test_a_grid_decides_the_shapes_that_are_asked(name, verdict, note):
    """Smallest instances and figures are recorded on the default grid, and compared on no other."""
    found = decided(name, "H=3,L=2,d=5,d_in=7")
    assert (found["problems"], found["verdict"]) == ([], verdict)
    assert found["grid_note"].startswith(note)


def test_a_statement_that_fails_elsewhere_may_hold_on_the_grid():
    found = decided("thm:designed-R-looped/untied", "H=2,L=1,d=1,d_in=4")
    assert (found["recorded"], found["verdict"], found["problems"]) == ("fails as printed", "holds", [])


# --- the runner: each way in which a claim can break -------------------------------------------------------------

HERE = Shape(2, 1, 1, 2)
ROUTES = ("one", "other")


def made(check, *, notion=None, targets="all untied", hosts="any", free=None, **changes):
    """A claim about this check, recorded as it comes out but for the changes."""
    fields = {
        "id": "new:test",
        "section": "New",
        "place": "here",
        "statement": "a statement",
        "category": Category.NEW,
        "about": notion and Scope.of(notion, targets, hosts, free),
        "targets": notion and targets,
        "scope": "everywhere",
        "verdict": Verdict.HOLDS,
        "evidence": (Evidence.ARITHMETIC,),
        "sentence": "because",
        "check": check,
    }
    entry = Claim(**fields)
    seen = runner.decide(entry, WHOLE).document
    computed = {name: seen[name] for name in ("figures", "smallest", "counterexample")}
    return dataclasses.replace(entry, **(computed | changes))


def listed(*found):
    return lambda run: iter(found)


def problems(entry, grid=WHOLE):
    return " | ".join(runner.decide(entry, grid).document["problems"])


TRUE, FALSE, OPEN = (Instance(HERE, holds, routes=ROUTES) for holds in (True, False, None))
MENDED, UNMENDED = (Instance(HERE, holds, routes=ROUTES, part="repair") for holds in (True, False))


@pytest.mark.parametrize(
    ("instances", "verdict"),
    [
        ([TRUE], Verdict.HOLDS),
        ([TRUE, OPEN], Verdict.OPEN),
        ([], Verdict.OPEN),
        ([TRUE, FALSE], Verdict.FAILS),
        ([FALSE, OPEN], Verdict.FAILS),
        ([FALSE, MENDED], Verdict.REPAIRED),
        ([FALSE, MENDED, UNMENDED], Verdict.FAILS),
        ([TRUE, MENDED], Verdict.HOLDS),
        ([TRUE, UNMENDED], Verdict.OPEN),
    ],
)
def test_verdicts(instances, verdict):
    assert computed_verdict(instances) is verdict


CERTIFICATE = certify("tied", HERE)
REFUTED = certify("printed-looped", HERE)
BELOW = dimension_certificate(HERE, 7)
BROKEN = dataclasses.replace(
    CERTIFICATE, document=CERTIFICATE.document | {"evidence": {"rows": [0, 1, 2, 3, 4, 5, 6, 6]}}
)
SERVED = Instance(HERE, True, certificate=CERTIFICATE, m=8)
EXACT = (Evidence.CERTIFICATE,)


def raising(error):
    def check(run):
        yield TRUE
        raise error

    return check


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (made(listed(TRUE)), ""),
        (made(listed()), "nothing was examined"),
        (made(listed(FALSE)), "the verdict is 'fails as printed', recorded is 'holds'"),
        (made(listed(TRUE), verdict=Verdict.FAILS), "the verdict is 'holds', recorded is 'fails as printed'"),
        (made(listed(TRUE, Figure("rank", 5)), figures={"rank": 4}), "figure 'rank' is 5, recorded is 4"),
        (made(listed(TRUE, Figure("rank", True)), figures={"rank": 1}), "figure 'rank' is True, recorded is 1"),
        (made(listed(TRUE, Figure("error", 1.1)), figures={"error": 1.0}), "figure 'error' is 1.1, recorded is 1.0"),
        (made(listed(TRUE), figures={"rank": 4}), "figure 'rank' was not computed"),
        (made(listed(TRUE, Figure("rank", 4)), figures={}), "figure 'rank' is 4 and not recorded"),
        (made(listed(TRUE), smallest="(1,1,1,1)"), r"the smallest instance is \(2,1,1,2\), recorded is \(1,1,1,1\)"),
        (made(listed(TRUE), counterexample="(1,1,1,1)"), "the counterexample is None"),
        (made(listed(Instance(HERE, True))), "rests on 'exact arithmetic by one route', which is not recorded"),
        (made(listed(TRUE), evidence=EXACT), "rests on 'exact arithmetic by two routes', which is not recorded"),
        (made(listed(SERVED), evidence=EXACT), ""),
        (made(listed(SERVED)), "rests on 'exact certificate', which is not recorded"),
        (made(listed(dataclasses.replace(SERVED, m=9)), evidence=EXACT), "its certificate is about m = 8"),
        (made(listed(dataclasses.replace(SERVED, at=Shape(1, 1, 1, 2))), evidence=EXACT), "its certificate is about"),
        (made(listed(dataclasses.replace(SERVED, certificate=BROKEN)), evidence=EXACT), "the checker does not accept"),
        (made(listed(Instance(HERE, True, certificate=BELOW, m=7)), evidence=EXACT), "inequality of a written proof"),
        (made(raising(RoutesDiffer("FLINT gives 3, plain integers gives 4"))), "two routes disagree: FLINT gives 3"),
        (made(raising(MalformedInput("no"))), "the check stopped: no"),
        (made(raising(ZeroDivisionError("division"))), "the check failed: ZeroDivisionError"),
    ],
)
def test_a_claim_that_breaks(claim, message):
    found = problems(claim)
    assert bool(found) == bool(message), found
    assert re.search(message, found), found


@pytest.mark.parametrize(
    ("found", "recorded", "breaks"),
    [
        ([FALSE], Verdict.HOLDS, True),
        ([FALSE], Verdict.OPEN, True),
        ([OPEN], Verdict.HOLDS, False),
        ([TRUE], Verdict.FAILS, False),
        ([TRUE], Verdict.OPEN, False),
        ([FALSE], Verdict.REPAIRED, False),
        ([FALSE, UNMENDED], Verdict.REPAIRED, True),
    ],
)
def test_on_another_grid_only_what_refutes_the_record_breaks_it(found, recorded, breaks):
    assert bool(problems(made(listed(*found), verdict=recorded, smallest="elsewhere"), SMALL)) is breaks


@pytest.mark.parametrize(
    ("asked", "certificate", "m", "fits"),
    [
        ({"notion": Notion.MATCHING}, CERTIFICATE, 8, True),
        ({"notion": Notion.FUNCTIONAL}, CERTIFICATE, 8, True),
        ({"notion": Notion.SHARED_ATTENTION, "free": "E"}, CERTIFICATE, 8, True),
        ({"notion": Notion.MATCHING, "targets": "all untied, with biases"}, CERTIFICATE, 8, False),
        ({"notion": Notion.MATCHING, "hosts": "examined"}, REFUTED, 6, True),
        ({"notion": Notion.MATCHING}, REFUTED, 6, False),
        ({"notion": Notion.FUNCTIONAL, "hosts": "examined"}, REFUTED, 6, False),
        ({"notion": Notion.MATCHING}, BELOW, 7, True),
        ({"notion": Notion.MATCHING, "targets": "almost all untied"}, BELOW, 7, False),
        ({"notion": Notion.FUNCTIONAL}, BELOW, 7, False),
    ],
)
def test_a_certificate_supports_what_its_scope_implies(asked, certificate, m, fits):
    entry = made(listed(Instance(HERE, True, certificate=certificate, m=m)), evidence=EXACT, **asked)
    assert ("does not support a claim about" in problems(entry)) != fits


def test_routes_must_agree():
    assert agree({"a": 3, "b": 3}).value == 3
    with pytest.raises(RoutesDiffer, match="a gives 3, b gives 4"):
        agree({"a": 3, "b": 4})
    with pytest.raises(RoutesDiffer, match="one route only"):
        agree({"a": 3})


# --- grids -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True), st.integers(1, 5), st.integers(0, 4))
def test_grids_parse(values, first, more):
    text = f"H={'+'.join(map(str, values))},L={first}..{first + more},d=1,d_in=2"
    grid = Grid.parse(text)
    assert grid.heads == tuple(sorted(values))
    assert grid.layers == tuple(range(first, first + more + 1))
    assert len(list(grid.shapes())) == len(values) * (more + 1)
    assert Grid.parse(grid.text) == grid


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", MalformedInput, "not understood"),
        ("H=1..2", MalformedInput, "lacks L, d, d_in"),
        ("H=2..1,L=1,d=1,d_in=1", MalformedInput, "smaller number first"),
        ("H=0,L=1,d=1,d_in=1", MalformedInput, "positive integers"),
        ("H=1,H=2,L=1,d=1,d_in=1", MalformedInput, "each of H, L, d, d_in once"),
        ("H=1,L=1,d=1,d_in=1,m=3", MalformedInput, "not understood at 'm=3'"),
        ("H=1..999999,L=1,d=1,d_in=1", ResourceLimit, "more than"),
        ("H=1..300,L=1..300,d=1..300,d_in=1", ResourceLimit, "27000000 shapes"),
    ],
)
def test_grids_that_are_not_understood(text, error, message):
    with pytest.raises(error, match=message):
        Grid.parse(text)
