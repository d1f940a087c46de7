"""Certificates about residual streams: the prover and both checkers agree, and no stream is forgotten or made up."""

import json

import numpy as np
import pytest
from corpus import canonical
from judges import OPTIONS, confirmed
from test_residual import streaming

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS, dimension_certificate
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.certificates.lower_bounds import null_vector_certificate, span_certificate, span_dimension
from utfproof.certificates.prover import certify
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, NotDefined, Undecided
from utfproof.matching import isolating_target
from utfproof.shapes import (
    linear_test_dimension,
    matching_dimension,
    tied_targets_dimension,
)
from utfproof.util.notions import Notion

SHAPES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2), (1, 3, 1, 2), (3, 2, 1, 1), (2, 1, 1, 2, 3)]


def claim_of(found):
    return found.document["claim"]


# --- every kind, by the prover and both checkers ------------------------------------------------------------------


@pytest.mark.parametrize("dims", SHAPES)
def test_prover_and_both_checkers_agree(dims, tmp_path):
    shape = streaming(*dims)
    untied = shape.layers == 1
    expected = {
        "sparse": ("rank-permutation", "all untied", True, matching_dimension(shape)),
        "tied": ("rank-permutation", "all untied" if untied else "all tied", True, tied_targets_dimension(shape)),
        "random": ("rank-modular", "all untied", True, matching_dimension(shape)),
        "random-tied": (
            "rank-modular" if untied else "rank-deficient",
            "all untied",
            untied,
            matching_dimension(shape),
        ),
    }
    for name, (kind, targets, universal, rank) in expected.items():
        found = certify(name, shape)
        assert (found.kind, claim_of(found)["targets"], found.universal) == (kind, targets, universal)
        assert claim_of(found).get("rank", rank) == rank
        assert found.document["shape"]["residual"] is True
        assert confirmed(found, tmp_path).code == 0
        plain = json.loads(found.to_bytes())
        del plain["shape"]["residual"]
        path = tmp_path / "plain.json"
        path.write_bytes(canonical(plain))
        assert checker.check_file(path, OPTIONS).code in (1, 2)
    below = certify("random", shape, matching_dimension(shape) - 1)
    assert below.document["evidence"] == {"method": "dimension"}
    assert confirmed(below, tmp_path).code == 0


def test_witnesses(tmp_path):
    for dims, m, options in [((2, 1, 1, 2), None, {}), ((1, 2, 1, 2), 14, {"law": "signs", "seed": 4}),
                             ((2, 2, 1, 1), 27, {"dtype": "bfloat16"})]:  # fmt: skip
        found = certify("random", streaming(*dims), m, witness=True, **options)
        assert found.document["evidence"]["method"] == "witness"
        assert confirmed(found, tmp_path).code == 0
    with pytest.raises(MalformedInput, match="witness"):
        certify("sparse", streaming(2, 1, 1, 2), witness=True)


@pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
def test_linear_test(tmp_path):
    for dims in [(1, 2, 2, 1), (2, 1, 3, 2)]:
        shape = streaming(*dims)
        found = certify("random", shape, linear_test_dimension(shape), notion="attention-matching")
        assert (found.kind, claim_of(found)["rank"]) == ("linear-test", linear_test_dimension(shape))
        assert linear_test_dimension(shape) < matching_dimension(shape)
        assert confirmed(found, tmp_path).code == 0
    with pytest.raises(Undecided, match="no full column rank"):  # repeated columns
        certify("random-tied", streaming(1, 2, 2, 1), 14, notion="attention-matching")


def test_large_constructions_are_quick(tmp_path):
    found = certify("sparse", streaming(3, 4, 2, 3))
    assert found.sidecars == {}
    found.write(tmp_path / "a.json")
    assert checker.check_file(tmp_path / "a.json", OPTIONS).code == 0
    found = certify("tied", streaming(4, 6, 2, 3))
    found.write(tmp_path / "a.json")
    assert checker.check_file(tmp_path / "a.json", OPTIONS).code == 0


def test_what_knows_no_stream_refuses_it():
    shape = streaming(2, 3, 2, 2)
    small = streaming(1, 1, 1, 1)
    for name, entry in CONSTRUCTIONS.items():
        if not entry.streams:
            with pytest.raises(NotDefined, match="without a residual stream only"):
                certify(name, shape)
    streams = {name for name, entry in CONSTRUCTIONS.items() if entry.streams}
    for name in set(IDENTITIES) - streams:
        with pytest.raises(NotDefined, match="without a residual stream only"):
            identity_certificate(name, small)
    assert {"residual-key"} <= streams & set(IDENTITIES)
    for notion in ("attention-matching", "functional", "shared attention"):
        for targets in ("all untied", "all tied", "generic untied", "generic tied"):
            for free in (None, "E", "E and U"):
                if free is None and targets == "generic untied" and notion != "shared attention":
                    continue  # the logit forms
                with pytest.raises(MalformedInput, match="no dimension bound"):
                    dimension_certificate(small, 1, notion=Notion(notion), targets=targets, free=free)
    with pytest.raises(NotDefined):
        null_vector_certificate([[np.eye(1, dtype=int)]], small, tied=False)
    with pytest.raises(NotDefined):
        span_certificate(small, 1, tied=True, notion=Notion.SHARED_ATTENTION, free="E", generic=True)
    with pytest.raises(Undecided, match="attention-matching"):
        certify("tied", shape, notion="attention-matching")


# --- the pieces -------------------------------------------------------------------------------------------------


def test_bounds(tmp_path):
    shape = streaming(2, 2, 2, 2)
    for targets, every, most in [("all untied", "host", 56), ("generic untied", "host", 56), ("all tied", "host", 37),
                                 ("generic tied", "tied host", 37)]:  # fmt: skip
        bound = matching_dimension(shape) if targets.endswith("untied") else tied_targets_dimension(shape)
        found = dimension_certificate(shape, bound - 1, targets=targets, every=every)
        assert bound - 1 <= most
        assert confirmed(found, tmp_path).code == 0
        with pytest.raises(Undecided):
            dimension_certificate(shape, bound, targets=targets, every=every)
    for targets in ("all untied", "generic untied"):
        assert confirmed(dimension_certificate(shape, 10**30, targets=targets, every="tied host"), tmp_path).code == 0
    with pytest.raises(Undecided):
        dimension_certificate(streaming(2, 1, 2, 2), 100, every="tied host")
    for row in DIMENSION_ROWS:  # no row of plain shapes applies here, and the other way round
        assert not (row.applies(shape) and row.applies(shape.without_residual()))
        assert row.residual or not row.applies(shape)
    small = streaming(1, 2, 1, 2)
    assert confirmed(span_certificate(small, matching_dimension(small) - 1, tied=False), tmp_path).code == 0
    assert (
        confirmed(span_certificate(small, span_dimension(small, tied=True) - 1, tied=True, generic=True), tmp_path).code
        == 0
    )
    for dims in [(1, 2, 1, 1), (2, 2, 1, 1), (2, 1, 2, 2)]:
        least = streaming(*dims)
        given = [isolating_target(least, column) for column in range(matching_dimension(least))]
        found = span_certificate(least, matching_dimension(least) - 1, given, tied=False, generic=True)
        assert confirmed(found, tmp_path).code == 0
        with pytest.raises(Undecided):  # all of them are needed
            span_certificate(least, matching_dimension(least) - 1, given[: len(given) // 2], tied=False)
