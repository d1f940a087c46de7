"""Certificates of lower bounds, and the linear test."""

import copy
from pathlib import Path

import numpy as np
import pytest
from naive import words
from test_identities import verdict

from utfproof.attention import RationalAttention
from utfproof.certificates.dimensions import DIMENSION_ROWS, dimension_bound, dimension_certificate
from utfproof.certificates.format import Certificate
from utfproof.certificates.linear_test import test_columns
from utfproof.certificates.lower_bounds import (
    null_vector_certificate,
    span_certificate,
    span_dimension,
    target_entries,
    target_rows,
)
from utfproof.certificates.prover import certify, certify_weights
from utfproof.constructions import build_host
from utfproof.constructions.counting import counting_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import register_host, two_sided_host
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.exact import gfp, rational
from utfproof.matching import isolating_target, r_all, w_all
from utfproof.shapes import Shape, column_at, linear_test_dimension, matching_dimension
from utfproof.systems import Target
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion
from utfproof.weights import write_host

LOWER = [
    ("matching", "all untied", None, (2, 2, 1, 2), 20),
    ("matching", "all tied", None, (2, 2, 2, 3), 36),
    ("shared attention", "all untied", "E", (2, 3, 1, 2), 16),
    ("shared attention", "all untied", "E and U", (2, 3, 1, 1), 3),
    ("shared attention", "all tied", "E", (2, 6, 1, 1), 7),
    ("shared attention", "all tied", "E and U", (3, 3, 1, 1), 4),
    ("functional", "all untied", None, (2, 1, 1, 2), 8),  # no room to share: M
    ("functional", "all untied", None, (3, 1, 1, 2), 11),
    ("functional", "all untied", None, (3, 1, 2, 2), 12),
]
"""notion, targets, free, shape, least m that is not below the bound."""


def edited(certificate, edit):
    document = copy.deepcopy(certificate.document)
    edit(document)
    return Certificate(document)


# --- lower bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dims", [(2, 3, 2, 2), (3, 2, 1, 3), (1, 4, 2, 2)])
def test_rows_of_targets_are_their_w_all(dims, residual, tied):
    """Word by word modulo p as in exact arithmetic, large entries included, in order; shared attention has the outputs."""
    shape, p = Shape(*dims, residual=residual), gfp.DEFAULT_PRIMES[0]
    targets = [integer_target(shape, seed, tied=tied, bound=2**40) for seed in range(3)]
    every = np.concatenate([gfp.residues(np.asarray(w_all(target), dtype=object), p) for target in targets])
    assert np.array_equal(target_rows(targets, p), every)
    longest = shape.words_at(shape.layers)
    outputs = every[:, -shape.d_out * longest :]
    assert np.array_equal(target_rows(targets, p, Notion.SHARED_ATTENTION, "E"), outputs)
    both = outputs.reshape(3, shape.d_in, longest, shape.d_out).transpose(0, 1, 3, 2).reshape(-1, longest)
    assert np.array_equal(target_rows(targets, p, Notion.SHARED_ATTENTION, "E and U"), both)


@pytest.mark.parametrize(("notion", "targets", "free", "dims", "least"), LOWER)
def test_dimension_bounds(notion, targets, free, dims, least, tmp_path):
    shape, kind = Shape(*dims), Notion(notion)
    for m in (1, least - 1):
        certificate = dimension_certificate(shape, m, notion=kind, targets=targets, free=free)
        assert (certificate.kind, certificate.universal) == ("lower-bound", False)
        found = verdict(certificate, tmp_path)
        assert found.code == 0, found.message
    with pytest.raises(Undecided, match="not below the bound"):
        dimension_certificate(shape, least, notion=kind, targets=targets, free=free)
    false = edited(certificate, lambda document: document["shape"].update(m=least))
    assert verdict(false, tmp_path).code == 1
    tied = dimension_certificate(shape, 1, notion=kind, targets=targets, free=free, every="tied host")
    assert verdict(tied, tmp_path).code == 0


@pytest.mark.parametrize(
    ("dims", "notion", "targets", "free"),
    [
        ((2, 3, 2, 2), "matching", "all tied", None),
        ((2, 2, 1, 2), "functional", "all untied", None),
        ((2, 1, 3, 2), "functional", "all untied", None),
        ((2, 1, 1, 2), "functional", "all tied", None),
        ((2, 1, 2, 3), "attention-matching", "all untied", None),
        ((1, 2, 1, 2), "attention-matching", "all untied", None),
        ((2, 1, 1, 2), "shared attention", "all untied", None),
        ((2, 1, 1, 2), "matching", "all untied", "E"),
        ((2, 1, 1, 2), "matching", "some", None),
    ],
)
def test_no_bound_where_none_is_proved(dims, notion, targets, free):
    with pytest.raises(MalformedInput, match="no dimension bound is proved"):
        dimension_bound(Shape(*dims), notion=notion, targets=targets, free=free)


@pytest.mark.parametrize("row", DIMENSION_ROWS, ids=lambda row: f"{row.notion}, {row.targets}, {row.name}")
def test_what_is_cited_is_a_place_of_the_proof(row, tmp_path):
    """No program computes these bounds, and `check` says so."""
    sizes = [
        (2, 2, 1, 1),
        (2, 2, 1, 2),
        (2, 2, 3, 2),
        (3, 1, 1, 1),
        (2, 3, 1, 1),
        (2, 1, 1, 2),
        (2, 2, 2, 3),
        (1, 1, 1, 1),
    ]
    shapes = [Shape(*dims, residual=row.residual) for dims in sizes]
    shape = next(shape for shape in shapes if row.applies(shape) and row.least(shape) > 1)
    made = dimension_certificate(
        shape, row.least(shape) - 1, notion=row.notion, targets=row.targets, free=row.free, every=row.every
    )
    found = verdict(made, tmp_path)
    cited = found.facts["cited"]
    assert found.status == "cited"
    assert found.line.endswith(f"the bound is proved in {cited}")
    page, place = cited.split(", ")[:2]
    text = (Path(__file__).parents[1] / page).read_text()
    assert f"\n## {place.removeprefix('section ')}. " in text or place in text


def test_dimension_bound_misuse():
    with pytest.raises(MalformedInput, match="every is"):
        dimension_certificate(Shape(2, 2, 1, 1), 1, every="nobody")
    with pytest.raises(ResourceLimit):
        dimension_certificate(Shape(2, 10**7, 1, 1), 1)


SPANS = [
    ((2, 3, 1, 1), True, 28),
    ((2, 3, 1, 1), False, 36),
    ((2, 2, 1, 1), True, 15),
    ((2, 2, 2, 2), True, 32),
    ((2, 1, 1, 2), True, 8),
    ((1, 3, 1, 1), True, 7),
    ((2, 2, 1, 2), False, 20),
]
"""Shape, tied, dimension of the span of the rows W_all."""


@pytest.mark.parametrize(("dims", "tied", "dimension"), SPANS)
def test_spans(dims, tied, dimension, tmp_path):
    shape = Shape(*dims)
    assert span_dimension(shape, tied=tied) == dimension
    certificate = span_certificate(shape, dimension - 1, tied=tied)
    assert (certificate.kind, certificate.universal) == ("lower-bound", False)
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message
    with pytest.raises(Undecided):
        span_certificate(shape, dimension, tied=tied)
    for fault in (
        lambda document: document["shape"].update(m=dimension),
        lambda document: document["evidence"]["targets"].pop(),
        lambda document: document["evidence"].update(targets=document["evidence"]["targets"][:1] * dimension),
        lambda document: document["claim"].update(targets="all untied" if tied else "all tied"),
    ):
        assert verdict(edited(certificate, fault), tmp_path).code in (1, 2)


def test_span_of_given_targets(tmp_path):
    """Isolating targets: one unit row each."""
    shape = Shape(2, 2, 1, 2)
    targets = [isolating_target(shape, column) for column in range(10)]
    certificate = span_certificate(shape, 9, targets, tied=False)
    assert verdict(certificate, tmp_path).code == 0
    assert all(len(entries) <= 5 for entries in certificate.document["evidence"]["targets"])
    with pytest.raises(Undecided, match="rank 10"):
        span_certificate(shape, 10, targets, tied=False)
    with pytest.raises(Undecided, match="rank 0"):
        span_certificate(shape, 1, [], tied=False)
    with pytest.raises(MalformedInput, match="class tied"):
        span_certificate(shape, 9, targets, tied=True)
    with pytest.raises(MalformedInput, match="not of the class untied"):
        span_certificate(Shape(2, 2, 1, 3), 9, targets, tied=False)
    with pytest.raises(MalformedInput, match="d_in = d_out"):
        span_certificate(Shape(2, 2, 1, 2, 3), 9, tied=False)
    half = Target(Shape(1, 1, 1, 1), *(exact(np.array([[[0.5]]])) for _ in range(4)))
    with pytest.raises(MalformedInput, match="integer targets"):
        target_entries(half)


def test_integer_targets_are_small_and_repeat():
    shape = Shape(2, 2, 1, 2)
    first, again, other = (integer_target(shape, seed, bound=16) for seed in (1, 1, 2))
    assert np.array_equal(first.W_V, again.W_V)
    assert not np.array_equal(first.W_V, other.W_V)
    assert max(abs(int(v)) for v in first.W_V.reshape(-1)) <= 16
    rows = np.concatenate([w_all(integer_target(shape, seed, bound=16)) for seed in range(12)])
    assert rational.rank(rows) == matching_dimension(shape)


@pytest.mark.parametrize(
    ("dims", "m", "tied"), [((2, 4, 1, 1), 3, False), ((2, 5, 1, 1), 5, True), ((3, 2, 1, 1), 2, False)]
)
def test_null_vectors(dims, m, tied, tmp_path):
    shape = Shape(*dims)
    rng = np.random.default_rng(m)
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    R_V = rng.integers(-3, 4, size=(*lead, m, m))
    certificate = null_vector_certificate(R_V, shape, tied=tied)
    assert (certificate.kind, certificate.universal) == ("lower-bound", False)
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message

    def nudge(document):
        document["claim"]["host"]["R_V"][0][0][0][0] += 1

    def scale(document):
        pair = document["evidence"]["y"][0]
        pair[1] = int(pair[1]) * 2 if abs(int(pair[1])) < 2**50 else str(int(pair[1]) * 2)

    for fault in (nudge, scale):
        assert verdict(edited(certificate, fault), tmp_path).code == 1


def test_null_vectors_of_constructions(tmp_path):
    """two-sided at m = H^(L/2) has independent word products, one that is tied or counts has not."""
    shape = Shape(2, 4, 1, 1)
    with pytest.raises(Undecided, match="linearly independent"):
        null_vector_certificate(two_sided_host(shape, 4).R_V, shape, tied=False)
    with pytest.raises(Undecided, match="linearly independent"):
        null_vector_certificate(register_host(shape, 16).R_V, shape, tied=True)
    assert verdict(null_vector_certificate(counting_host(shape, 5).R_V, shape, tied=True), tmp_path).code == 0


@pytest.mark.parametrize(
    ("R_V", "shape", "tied", "error", "message"),
    [
        (np.ones((2, 2, 2)), Shape(2, 3, 1, 1), True, MalformedInput, "must hold integer matrices"),
        (np.ones((3, 2, 2), dtype=int), Shape(2, 3, 1, 1), True, MalformedInput, r"got \[1, 3\]"),
        (np.ones((2, 2, 2, 2), dtype=int), Shape(2, 3, 1, 1), False, MalformedInput, r"got \[2, 2\]"),
        (np.ones((2, 2, 3), dtype=int), Shape(2, 3, 1, 1), True, MalformedInput, r"of \(2, 3\)"),
        (np.ones((2, 50, 50), dtype=int), Shape(2, 10, 1, 1), True, ResourceLimit, "null vector"),
    ],
)
def test_null_vector_refusals(R_V, shape, tied, error, message):
    with pytest.raises(error, match=message):
        null_vector_certificate(R_V, shape, tied=tied)


# --- the linear test ---------------------------------------------------------------------------------------


def test_columns_of_the_linear_test():
    for dims in ((2, 2, 3, 2), (1, 3, 2, 2), (3, 1, 4, 2), (2, 2, 2, 2)):
        shape = Shape(*dims)
        kept = test_columns(shape)
        assert len(kept) == linear_test_dimension(shape)
        named = [column_at(shape, int(c)) for c in kept]
        assert all(column.kind != "Q" or column.coordinate < shape.d_in for column in named)
        assert list(kept) == sorted(set(kept.tolist()))


@pytest.mark.parametrize("name", ["random", "random-tied"])
@pytest.mark.parametrize("dims", [(2, 2, 3, 2), (1, 3, 2, 2), (2, 1, 4, 1)])
def test_linear_test(name, dims, tmp_path):
    shape = Shape(*dims)
    columns = linear_test_dimension(shape)
    for m, law, dtype in ((columns, "uniform", "float64"), (columns + 2, "binomial", "float32")):
        certificate = certify(name, shape, m, notion="attention-matching", seed=5, law=law, dtype=dtype)
        assert (certificate.kind, certificate.universal) == ("linear-test", True)
        assert certificate.document["claim"]["rank"] == columns
        assert certificate.document["shape"]["m"] == m
        found = verdict(certificate, tmp_path)
        assert found.code == 0, found.message
    with pytest.raises(Undecided, match="fewer rows"):
        certify(name, shape, columns - 1, notion="attention-matching", seed=5)
    for fault in (
        lambda document: document["claim"].update(rank=columns - 1),
        lambda document: document["shape"].update(m=columns - 1),
        lambda document: document["claim"].update(notion="matching"),
        lambda document: document["evidence"].update(prime=15),
    ):
        assert verdict(edited(certificate, fault), tmp_path).code in (1, 2)


def test_linear_test_embedding_serves_every_logit():
    """Why the rank suffices: at m below M, the E it gives makes logits and outputs the target's, exactly."""
    shape = Shape(2, 2, 3, 2)
    m = linear_test_dimension(shape)
    assert m < matching_dimension(shape)
    rng = np.random.default_rng(0)
    host = build_host("random-tied", shape, m, seed=1, law="signs")
    matrix = exact(r_all(host))[:, test_columns(shape)]
    target = integer_target(shape, 3, tied=False)
    # right-hand sides: queries M_w A, keys M_w C, outputs M_w
    C = exact(np.eye(2, 3, dtype=int))
    forms = {(layer, h): target.attention_form(layer, h) for layer in range(2) for h in range(2)}
    product = {(): exact(np.eye(2, dtype=int))}
    for layer in (0, 1):
        for w in words(2, layer + 1):
            product[w] = product[w[:-1]] @ target.value_form(layer, w[-1])
    queries = [product[w[:-1]] @ forms[len(w) - 1, w[-1]] for n in (1, 2) for w in words(2, n)]
    keys = [product[w[:-1]] @ C for n in (1, 2) for w in words(2, n)]
    right = np.concatenate([*queries, *keys, *(product[w] for w in words(2, 2))], axis=1)
    E = rational.solve_left(matrix, right)
    assert E is not None
    x = exact(rng.integers(-2, 3, size=(3, 2)))
    for kernel in (RationalAttention(), RationalAttention(causal=True)):
        exact_host = type(host)(shape, m, *(exact(a) for a in (host.R_Q, host.R_K, host.R_V, host.U)))
        assert np.array_equal(exact_host.forward(x, E, kernel), target.forward(x, kernel))


def test_linear_test_refusals():
    for name, shape in (("sparse", Shape(2, 2, 3, 2)), ("random", Shape(2, 2, 1, 2)), ("random", Shape(2, 2, 3, 2, 3))):
        with pytest.raises(Undecided, match="no certificate kind decides"):
            certify(name, shape, notion="attention-matching")
    with pytest.raises(ResourceLimit):
        certify("random", Shape(2, 4, 30, 30), notion="attention-matching", max_memory=10**6)


def test_linear_test_of_weights(tmp_path):
    shape = Shape(2, 2, 3, 2)
    m = linear_test_dimension(shape)
    path = tmp_path / "host.safetensors"
    write_host(path, build_host("random", shape, m, seed=4))
    certificate = certify_weights(path, d_in=2, notion="attention-matching")
    assert certificate.document["claim"]["rank"] == m
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message
