"""Certificates of hosts with gated MLPs: the checker follows the host that is built, and finds changed weights and claims."""

import collections
import functools

import numpy as np
import pytest
import second_checker
from corpus import FIELDS, changed, seed
from hypothesis import given
from hypothesis import strategies as st
from judges import confirmed

from utfproof.certificates import checker
from utfproof.certificates.prover import certify
from utfproof.certificates.scope import scope_of
from utfproof.constructions import build_host, construction
from utfproof.shapes import Shape
from utfproof.util.notions import Notion, Scope

NAMES = ("gated", "gated-tied")
DIMS = [
    (1, 1, 1, 1, 1),
    (1, 4, 2, 2, 1),
    (2, 1, 1, 2, 2),
    (2, 2, 1, 2, 3),
    (2, 4, 1, 2, 2),
    (2, 3, 2, 1, 1),
    (3, 3, 1, 2, 2),
]


def rebuilt(name, dims, m=1):
    return checker.GatedHost(checker.Shape(*dims, m), name == "gated-tied")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_the_checker_follows_the_host_that_is_built(name, dims):
    host, found = build_host(name, Shape(*dims)), rebuilt(name, dims)
    H, _, d, *_ = dims
    assert host.m == found.end == checker.GatedHost.least(found.s, found.tied)
    gate, factor, out = (np.asarray(host.mlp.part(part, 0)) for part in ("W_gate", "W_in", "W_out"))
    units = collections.Counter()
    for first in range(0, gate.shape[1], 2):
        places = [np.flatnonzero(part) for part in (gate[:, first], factor[:, first], out[first])]
        if not places[0].size:
            continue  # no hidden unit
        assert [place.size for place in places] == [1, 1, 1]
        (a,), (b,), (c,) = places
        assert (gate[:, first + 1] == -gate[:, first]).all()
        assert (factor[:, first + 1] == factor[:, first]).all()
        assert (out[first + 1] == -out[first]).all()
        units[int(a), int(b), int(c), int(gate[a, first] * factor[b, first] * out[first, c])] += 1
    assert units == collections.Counter(found.products())
    at = {name: list(places) for (name, _), places in found.at.items()}
    for h in range(H):
        maps, own = host.maps(0, h), slice(h * d, (h + 1) * d)
        for matrix, name in ((maps.query, "q"), (maps.key, "k")):
            assert np.argwhere(matrix.to_dense(int)).tolist() == [[i, j] for j, i in enumerate(at[name][own])]
        moved = np.argwhere(maps.value[0].to_dense(int)).tolist()
        assert moved == [[v, o] for v, o in zip(at["v"][own], at["o"][own], strict=True)]
    assert np.argwhere(host.U.to_dense(int)).tolist() == [[i, j] for j, i in enumerate(at["out"])]


@given(st.sampled_from(NAMES), st.tuples(*[st.integers(1, 3)] * 5), st.integers(0, 3))
def test_all_shapes_are_certified_and_judged_alike(name, dims, more):
    least = construction(name).least_m(Shape(*dims))
    found = certify(name, Shape(*dims), least + more).document
    raw = checker.json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    checker.check_document(checker.parse_canonical(raw), "", checker.Options(), {})
    assert second_checker.judge(raw) == 0
    smaller = changed(found, "shape", "m", least - 1)
    with pytest.raises(checker.Malformed):
        checker.check_document(smaller, "", checker.Options(), {})


@functools.cache
def broken(name, dims):
    """Products without which a check fails."""
    products, missed = rebuilt(name, dims).products(), []
    for at in range(len(products)):
        host = rebuilt(name, dims)
        host.products = lambda at=at: products[:at] + products[at + 1 :]
        try:
            checker.require_tables(host)
        except checker.Stop:
            missed.append(products[at])
    return missed


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_that_is_left_out_is_found(name):
    """But for those of slots that are read behind the last layer only."""
    dims = (2, 4, 1, 2, 2)
    host, missed = rebuilt(name, dims), broken(name, dims)
    names = {c: place for place, places in host.at.items() for c in places}
    unseen = {names[to] for *_, to, _ in set(host.products()) - set(missed)}
    # the last slots and what is made of them: nothing is left of them when they could be read
    assert unseen <= {
        ("Q", 1),
        ("Q", 2),
        ("Q", 3),
        ("Y", 1),
        ("Y", 2),
        ("Z", 1),
        ("Z", 2),
        ("p", 1),
        ("p", 2),
        ("K", 1),
        ("V", 1),
    }
    read = [(a, b, c, s) for a, b, c, s in host.products() if names[c][0] in checker.READ]
    assert set(read) <= set(missed)


def test_a_product_without_a_constant_is_found():
    """At one row it could not be told from one with a constant."""
    host = rebuilt("gated-tied", (1, 2, 1, 1, 1))
    products, (q,), (k,) = host.products(), host.at["q", 1], host.at["k", 1]
    host.products = lambda: [*products, (q, k, q, 1), (q, k, q, -1)]
    with pytest.raises(checker.Stop, match="no constant"):
        checker.require_tables(host)


@pytest.mark.parametrize("change", [
    ("claim", "inputs", ...), ("claim", "inputs", "all"), ("claim", "inputs", True), ("claim", "targets", "all tied"),
    ("claim", "notion", "functional"), ("claim", "notion", "matching"), ("claim", "host", {"construction": "gated-tied"}),
    ("claim", "host", {"construction": "sparse"}), ("claim", "free", "E"), ("claim", "rank", 20), ("evidence", {"prime": 7}),
    ("shape", "residual", True), ("shape", "layers", 5), ("shape", "head_dim", 2), ("kind", "identity"),
])  # fmt: skip
def test_forged_claims_are_malformed(change, tmp_path):
    found = changed(certify("gated", Shape(2, 4, 1, 2)).document, *change)
    assert confirmed(found, tmp_path).code == checker.MALFORMED


def test_the_claim_says_nothing_of_other_inputs():
    found = certify("gated", Shape(2, 3, 1, 2))
    assert not scope_of(found.document).implies(Scope.of(Notion.ATTENTION_MATCHING, "all untied"))


@pytest.mark.parametrize(("dims", "m"), [((1, 2**20, 1, 1, 1), 2**40), ((200, 3, 1, 1, 1), 2**40)])
def test_large_hosts_are_over_a_limit(dims, m, tmp_path):
    found = changed(
        seed("gated-identity", host={"construction": "gated"}), "shape", dict(zip(FIELDS, (*dims, m), strict=True))
    )
    assert confirmed(found, tmp_path).code == checker.LIMIT
