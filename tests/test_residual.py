"""Residual streams: dimension, unimodular R_all, Moebius embedding, tied tries, and what tied hosts cannot do."""

from dataclasses import replace

import numpy as np
import pytest
from cases import integers, random_target, stochastic
from naive import dense, words

from utfproof.attention import GivenAttention, RationalAttention
from utfproof.constructions import build_host, construction
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.exact import gfp, rational
from utfproof.exact.symbolic.determinant import determinant_degree
from utfproof.matching import embed, isolating_target, r_all, refuting_column, w_all
from utfproof.shapes import (
    Column,
    Shape,
    column_index,
    matching_dimension,
    tied_targets_dimension,
)
from utfproof.systems import Universal
from utfproof.util.arrays import exact

pytestmark = pytest.mark.numerical

SHAPES = [(2, 1, 1, 2), (2, 2, 1, 2), (1, 3, 1, 2), (3, 2, 1, 1), (2, 2, 2, 3), (1, 1, 2, 2), (2, 3, 1, 1)]
UNEQUAL = [(2, 2, 1, 2, 3), (1, 2, 2, 3, 1)]


def streaming(*dims):
    return Shape(*dims, residual=True)


SMALL = [s for s in SHAPES if matching_dimension(streaming(*s)) <= 70]


def integer_host(shape, m, seed, *, tied=False):
    """Random integer weights, untied or tied."""
    rng = np.random.default_rng(seed)
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    arrays = [integers(rng, *lead, m, width) for width in (shape.head_dim, shape.head_dim, m)]
    return Universal(shape, m, *arrays, integers(rng, m, shape.d_out))


def naive_words_matrix(shape, start, step, read, output):
    """R_all or W_all with a residual stream, word by word; letter 0 is the identity."""
    H, L = shape.heads, shape.layers

    def routed(word):
        out = start
        for layer, a in enumerate(word, 1):
            out = out if a == 0 else out @ step(layer, a - 1)
        return out

    blocks = []
    for which in (0, 1):
        for layer in range(1, L + 1):
            for word in words(H + 1, layer - 1):
                blocks += [routed(word) @ read(which, layer, head) for head in range(H)]
    blocks += [routed(word) @ output for word in words(H + 1, L)]
    return np.concatenate(blocks, axis=1)


def naive_r_all(host):
    identity = np.zeros((host.m, host.m), dtype=object)
    for i in range(host.m):
        identity[i, i] = 1
    return naive_words_matrix(
        host.shape,
        identity,
        lambda layer, h: dense(host.maps(layer - 1, h).value[0]),
        lambda which, layer, h: dense(host.maps(layer - 1, h)[which]),
        dense(host.U),
    )


def naive_w_all(target):
    def step(layer, h):
        _, _, w_v, w_o = target.parameters(layer - 1, h)
        return w_v @ w_o

    return naive_words_matrix(
        target.shape,
        target.embedding(),
        step,
        lambda which, layer, h: target.parameters(layer - 1, h)[which],
        target.unembedding(),
    )


def naive_forward(target, x, attention):
    """X^l = X^{l-1} + sum_h A X M, attention given."""
    x = x @ target.embedding()
    for layer in range(target.shape.layers):
        x = x + sum(
            attention[layer][h] @ x @ target.parameters(layer, h)[2] @ target.parameters(layer, h)[3]
            for h in range(target.shape.heads)
        )
    return x @ target.unembedding()


def determinant(matrix):
    from flint import fmpz_mat

    return int(fmpz_mat([[int(x) for x in row] for row in matrix]).det())


@pytest.mark.parametrize("name", ["sparse-front", "shared-key", "shared-query", "printed-looped", "printed-tree-row"])
def test_constructions_without_a_residual_variant_say_so(name):
    with pytest.raises(NotDefined, match="without a residual stream only"):
        build_host(name, streaming(2, 2, 2, 2))


@pytest.mark.parametrize(
    "call",
    [
        determinant_degree,
        lambda shape: construction("two-sided").shared.host(shape, 4),
    ],
)
def test_what_knows_nothing_of_the_stream_refuses_it(call):
    with pytest.raises(NotDefined, match="without a residual stream only"):
        call(streaming(1, 2, 1, 1))


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 2, 1, 2), (1, 3, 1, 2), (2, 1, 1, 2, 3), (2, 2, 1, 3, 2)])
def test_one_routed_target_refutes_each_null_vector(dims):
    """|W_all z| >= |z_c| > 0 for the target of `refuting_column`, whatever z; another column's target may miss nothing."""
    shape = streaming(*dims)
    M = matching_dimension(shape)
    rng = np.random.default_rng(sum(dims))
    for _ in range(60):
        z = exact(np.zeros(M, dtype=np.int64))
        z[rng.choice(M, size=rng.integers(1, min(M, 6) + 1), replace=False)] = int(rng.integers(1, 4))
        column = refuting_column(shape, list(z))
        missed = naive_w_all(isolating_target(shape, column)) @ z
        assert sum(v * v for v in missed) >= z[column] ** 2 > 0
    with pytest.raises(MalformedInput, match="z is zero"):
        refuting_column(shape, [0] * M)


@pytest.mark.parametrize("dims", [*SHAPES, *UNEQUAL])
@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_embed_takes_the_formula(name, dims):
    shape = streaming(*dims)
    host = build_host(name, shape)
    target = random_target(shape, np.random.default_rng(1), tied=name == "tied")
    found = embed(host, target)
    assert found.method == "inclusion and exclusion"
    assert found.relative_residual == 0
    assert found.rank == host.m
    assert np.array_equal(found.E @ r_all(host), naive_w_all(target))
    other = replaced(host, R_Q=host.R_K, R_K=host.R_Q, construction=name)
    with pytest.raises(MalformedInput, match="its matrices differ"):
        embed(other, target)


@pytest.mark.parametrize("dims", [*SMALL, *UNEQUAL])
def test_r_all_is_the_definition_and_unimodular(dims):
    shape = streaming(*dims)
    M = matching_dimension(shape)
    host = build_host("sparse", shape, M)
    matrix = dense(r_all(host))
    assert matrix.shape == (M, M)
    assert np.array_equal(matrix, naive_r_all(host))
    assert set(np.unique(matrix)) == {0, 1}
    assert determinant(matrix) in (1, -1)
    padded = dense(r_all(build_host("sparse", shape, M + 2)))
    assert np.array_equal(padded[:M], matrix)
    assert not padded[M:].any()


@pytest.mark.parametrize("dims", [*SHAPES, *UNEQUAL])
def test_moebius_embedding_matches_exactly(dims):
    shape = streaming(*dims)
    m = matching_dimension(shape) + 1
    host = build_host("sparse", shape, m)
    rng = np.random.default_rng(sum(dims))
    matrix = dense(r_all(host))
    for width, tied in ((None, False), (None, True), (4, False)):
        target = random_target(shape, rng, width=width, tied=tied)
        E = embed(host, target).E
        right = w_all(target)
        assert np.array_equal(right, naive_w_all(target))
        assert np.array_equal(E @ matrix, right)
        x = integers(rng, 3, shape.d_in)
        for kernel in (RationalAttention(), RationalAttention(causal=True)):
            ours = host.forward(x, E, kernel)
            assert np.array_equal(ours, target.forward(x, kernel))
        attention = stochastic(rng, shape.layers, shape.heads, 3)
        theirs = target.forward(x, GivenAttention(attention))
        assert np.array_equal(theirs, naive_forward(target, x, attention))


@pytest.mark.parametrize("dims", [s for s in SMALL if s[0] * s[1] < 6])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_hosts_have_full_rank(dims, seed):
    shape = streaming(*dims)
    M = matching_dimension(shape)
    host = integer_host(shape, M, seed)
    p = gfp.DEFAULT_PRIMES[0]
    assert gfp.rank(gfp.residues(dense(r_all(host)), p), p) == M


@pytest.mark.parametrize("dims", [*SHAPES, *UNEQUAL])
@pytest.mark.parametrize("padding", [0, 2])
def test_tied_tries_serve_tied_targets(dims, padding):
    shape = streaming(*dims)
    S, d = shape.without_residual().word_count, shape.head_dim
    m = tied_targets_dimension(shape) + padding
    assert m - padding == 2 * d * S + shape.d_out * (1 + S)
    host = build_host("tied", shape, m)
    rng = np.random.default_rng(sum(dims))
    matrix = dense(r_all(host))
    # every word without zeros has columns of its own, and the others repeat them
    assert rational.rank(matrix) == m - padding
    for width in (None, 4):
        target = random_target(shape, rng, tied=True, width=width)
        E = embed(host, target).E
        assert np.array_equal(E @ matrix, naive_w_all(target))
        x = integers(rng, 3, shape.d_in)
        kernel = RationalAttention(causal=True)
        assert np.array_equal(host.forward(x, E, kernel), target.forward(x, kernel))


@pytest.mark.parametrize("dims", [(2, 2, 1, 2), (1, 3, 1, 2), (3, 2, 1, 1)])
def test_tied_hosts_cannot_match_untied_targets(dims):
    """(0,h) and (h,0) give the same R_w in every tied host, and different M_w in an untied target: z = e_a - e_b
    annihilates R_all and not W_all."""
    shape = streaming(*dims)
    rng = np.random.default_rng(7)
    M = matching_dimension(shape)
    target = random_target(shape, rng)
    right = w_all(target)
    width, rest = shape.d_out, [0] * (shape.layers - 2)
    columns = [column_index(shape, Column("OV", (*word, *rest), 0)) for word in ((1, 0), (0, 1))]
    gap = np.subtract(*(right[:, start : start + width] for start in columns))
    assert gap.any()
    for m in (tied_targets_dimension(shape), M, M + 5):
        hosts = [
            integer_host(shape, m, m, tied=True),
            build_host("tied", shape, max(m, tied_targets_dimension(shape))),
        ]
        for host in hosts:
            matrix = dense(r_all(host))
            left, other = (matrix[:, k : k + width] for k in columns)
            assert np.array_equal(left, other)
            p = gfp.DEFAULT_PRIMES[0]
            assert gfp.rank(gfp.residues(matrix, p), p) < M
            assert gfp.rank(gfp.residues(np.concatenate([matrix, right]), p), p) > gfp.rank(gfp.residues(matrix, p), p)


def replaced(host, **changes):
    fields = {"R_Q": host.R_Q, "R_K": host.R_K, "R_V": host.R_V, "U": host.U, **changes}
    parts = (fields["R_Q"], fields["R_K"], fields["R_V"], fields["U"])
    return Universal(host.shape, host.m, *parts, construction=fields.get("construction", ""))


def test_planted_faults_are_caught():
    rng = np.random.default_rng(3)
    shape = streaming(2, 2, 1, 2)
    M = matching_dimension(shape)
    host, target = build_host("sparse", shape, M), random_target(shape, rng)
    E, right = embed(host, target).E, w_all(target)
    assert np.array_equal(E @ r_all(host), right)
    # layers or heads exchanged, Q for K, no Moebius transform, Moebius in one place only
    for fault in (
        replaced(host, R_V=host.R_V[::-1]),
        replaced(host, R_V=[row[::-1] for row in host.R_V]),
        replaced(host, R_Q=host.R_K, R_K=host.R_Q),
    ):
        assert not np.array_equal(E @ r_all(fault), right)
    raw = E.copy()
    leaves = 2 * shape.heads * shape.head_dim * (1 + 3)
    level = words(3, 2)
    for i, word in enumerate(level):
        product = np.array([[1, 0], [0, 1]], dtype=object)
        for layer, a in enumerate(word):
            product = product if a == 0 else product @ target.value_form(layer, a - 1)
        raw[:, leaves + 2 * i : leaves + 2 * i + 2] = product
    assert not np.array_equal(raw @ r_all(host), right)
    # the host without zero letters is not enough: its tree knows H letters only
    plain = replace(build_host("sparse", shape.without_residual(), M), shape=shape)
    assert rational.rank(r_all(plain).to_dense(object)) < M
    # the tied tries with words in the wrong order
    m = tied_targets_dimension(shape)
    tied, looped = build_host("tied", shape, m), random_target(shape, rng, tied=True)
    E, right = embed(tied, looped).E, w_all(looped)
    assert np.array_equal(E @ r_all(tied), right)
    assert not np.array_equal(E @ r_all(replaced(tied, R_V=tied.R_V[::-1])), right)
    backwards = tuple(v.transposed() for v in tied.R_V)
    assert not np.array_equal(E @ r_all(replaced(tied, R_V=backwards)), right)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: build_host("sparse", streaming(2, 2, 1, 2), 33), NotDefined),
        (lambda: build_host("tied", streaming(2, 2, 1, 2), 5), NotDefined),
        (lambda: build_host("sparse", streaming(2, 200, 1, 2), 5), ResourceLimit),
        (lambda: build_host("tied", streaming(2, 200, 1, 2), 5), ResourceLimit),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()
