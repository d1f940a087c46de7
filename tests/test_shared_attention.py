"""Shared attention: register, two-sided, counting, and the commuting trie.

Hosts are held against definitions written out here from docs/certificate-format.md; emulation is an equality of rationals.
"""

import itertools

import numpy as np
import pytest
from cases import integers, random_target, stochastic
from naive import dense, words
from naive import r_all as naive_r_all
from naive import w_all as naive_w_all

from utfproof.attention import GivenAttention, RationalAttention
from utfproof.certificates.lower_bounds import span_dimension
from utfproof.constructions import build_host, construction
from utfproof.constructions.counting import (
    commuting_dimension,
    commuting_trie_host,
    count_tuples,
    counting_dimension,
    counting_host,
    embed_commuting_trie,
)
from utfproof.constructions.shared_attention import two_sided_host
from utfproof.errors import MalformedInput, NotDefined, OutsideClass, ResourceLimit
from utfproof.exact import rational
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal
from utfproof.util.selection import SelectionMatrix

SERVED = [
    ("register", (2, 3, 1, 1)),
    ("register", (3, 2, 2, 2)),
    ("register", (1, 3, 1, 2)),
    ("register", (2, 1, 3, 2)),
    ("two-sided", (2, 4, 1, 1)),
    ("two-sided", (3, 2, 1, 2)),
    ("two-sided", (2, 2, 2, 3)),
    ("two-sided", (1, 4, 2, 2)),
    ("two-sided", (2, 6, 1, 1)),
    ("two-sided", (2, 3, 1, 1)),
    ("two-sided", (3, 3, 1, 2)),
    ("two-sided", (2, 1, 2, 2)),
    ("counting", (2, 6, 1, 1)),
    ("counting", (3, 3, 2, 1)),
    ("counting", (1, 4, 1, 1)),
    ("counting", (4, 2, 1, 1)),
]
COMMUTING = [(2, 3, 1, 1), (3, 2, 2, 1), (1, 4, 1, 1), (2, 1, 3, 1), (2, 4, 1, 1)]


def same_function(host, E, U, target, rng, near=None, n=3):
    """Equality of outputs on random rational attention and integer inputs: exact, or to this relative error."""
    shape = host.shape
    attention = stochastic(rng, shape.layers, shape.heads, n)
    x = integers(rng, n, shape.d_in)
    ours, theirs = host.forward(x, E, U, attention), target.forward(x, GivenAttention(attention))
    return (
        np.array_equal(ours, theirs) if near is None else np.allclose(*(a.astype(float) for a in (ours, theirs)), near)
    )


def dense_host(host, U=None):
    """R_V as dense object matrices {(layer from 1, head)}, and U."""
    heads, layers = range(host.shape.heads), range(1, host.shape.layers + 1)
    return {
        (layer, h): dense(host.value(layer - 1, h)) for layer in layers for h in heads
    }, None if U is None else dense(U)


def naive_shared_attention(name, shape, m):
    """Section 9 of the format, word by word: R_V {(layer, head)} and the fixed U (None where it is free)."""
    H, L, b = shape.heads, shape.layers, shape.d_in
    values = {(layer, h): np.zeros((m, m), dtype=object) for layer in range(1, L + 1) for h in range(H)}
    U = np.zeros((m, b), dtype=object)

    def block(value, row, column):
        for i in range(b):
            value[row * b + i, column * b + i] += 1

    if name == "counting":
        tuples = [c for c in itertools.product(range(L + 1), repeat=H - 1) if sum(c) <= L]
        assert tuples == count_tuples(H - 1, L)
        number = {c: i for i, c in enumerate(tuples)}
        for (_, h), value in values.items():
            for c in tuples:
                if h == 0:
                    value[number[c], number[c]] = 1
                elif sum(c) < L:
                    up = tuple(k + (i == h - 1) for i, k in enumerate(c))
                    value[number[up], number[c]] = 1
        U[number[(0,) * (H - 1)], 0] = 1
        return values, U
    length = L if name == "register" else (L + 1) // 2
    number = {w: i for i, w in enumerate(words(H, length))}
    for (layer, h), value in values.items():
        if name == "register":
            for w in number:
                block(value, number[(h, *w[:-1])], number[w])
            continue
        shorter = words(H, length - 1 if layer <= length else L - length - 1)
        for s in shorter:
            if layer <= length:
                block(value, number[(h, *s)], number[(*s, 0)])
            else:  # words of the second half: numbers as they are, in a register that may be shorter
                value_of = {w: i for i, w in enumerate(words(H, L - length))}
                block(value, value_of[(0, *s)], value_of[(*s, h)])
    if name == "two-sided":
        return values, None
    for i in range(b):
        U[i, i] = 1
    return values, U


@pytest.mark.parametrize(("name", "dims"), SERVED)
@pytest.mark.parametrize("padding", [0, 2])
def test_hosts_are_as_described_and_serve_their_targets(name, dims, padding):
    shape, entry = Shape(*dims), construction(name)
    m = entry.least_m(shape) + padding
    host = entry.shared.host(shape, m)
    assert host.m == m
    assert host.tied == entry.tied
    rng = np.random.default_rng(sum(dims) + padding)
    target = random_target(shape, rng, tied=entry.targets == "all tied")
    E, U = entry.shared.embed(shape, m, target)
    assert (U.shape, E.shape) == ((m, shape.d_out), (shape.d_in, m))
    found, found_U = dense_host(host, U)
    expected, expected_U = naive_shared_attention(name, shape, m)
    for place, value in expected.items():
        assert np.array_equal(found[place], value), place
    if expected_U is None:
        assert entry.shared.free == "E and U"
    else:
        assert isinstance(U, SelectionMatrix)
        assert np.array_equal(found_U, expected_U)
    assert same_function(host, E, U, target, rng)
    assert not E[:, m - padding :].any() if padding else True


def test_counting_undercuts_the_printed_bound_for_looped_targets():
    """thm:lower_bound_utf for looped hosts and targets: 7 < 8 at H = 2, L = 6, and not before."""
    for L in range(1, 9):
        shape = Shape(2, L, 1, 1)
        host = counting_host(shape, counting_dimension(shape))
        assert host.m == L + 1
        assert (host.m**2 < 2**L) == (L >= 6)
    shape = Shape(2, 6, 1, 1)
    assert (counting_dimension(shape), 2 ** (6 // 2)) == (7, 8)


def test_wider_and_embedded_targets():
    rng = np.random.default_rng(5)
    shape = Shape(2, 2, 2, 2)
    for name, width in (("register", 3), ("register", 1), ("two-sided", 1), ("two-sided", 2)):
        entry = construction(name)
        m = entry.least_m(shape) + 1
        target = random_target(shape, rng, width=width)
        E, U = entry.shared.embed(shape, m, target)
        assert same_function(entry.shared.host(shape, m), E, U, target, rng)
    entry = construction("two-sided")
    with pytest.raises(OutsideClass, match="width at most 2, this one has 3"):
        entry.shared.embed(shape, 4, random_target(shape, rng, width=3))
    scalar = Shape(3, 2, 2, 1)
    target = random_target(scalar, rng, tied=True, width=1)  # with W_E and W_U
    E, U = construction("counting").shared.embed(scalar, 6, target)
    assert same_function(counting_host(scalar, 6), E, U, target, rng)


def swapped_halves(shape, m):
    """two-sided with the two halves of the layers exchanged."""
    host = two_sided_host(shape, m)
    half = shape.layers // 2
    return SharedAttentionUniversal(shape, m, host.R_V[half:] + host.R_V[:half])


def transposed(host):
    grid = tuple(v.transposed() for v in host.R_V) if host.tied else None
    if grid is None:
        grid = tuple(tuple(v.transposed() for v in row) for row in host.R_V)
    return SharedAttentionUniversal(host.shape, host.m, grid)


def reversed_heads(host):
    grid = host.R_V[::-1] if host.tied else tuple(row[::-1] for row in host.R_V)
    return SharedAttentionUniversal(host.shape, host.m, grid)


@pytest.mark.parametrize("name", ["register", "two-sided", "counting"])
@pytest.mark.parametrize("plant", [transposed, reversed_heads])
def test_planted_faults_in_hosts_are_caught(name, plant):
    shape, entry = Shape(2, 4, 1, 1), construction(name)
    m = entry.least_m(shape)
    rng = np.random.default_rng(3)
    target = random_target(shape, rng, tied=entry.targets == "all tied")
    E, U = entry.shared.embed(shape, m, target)
    host = entry.shared.host(shape, m)
    assert same_function(host, E, U, target, rng)
    assert not same_function(plant(host), E, U, target, rng)


def test_swapped_halves_wrong_order_and_tied_flag_are_caught():
    rng = np.random.default_rng(8)
    shape = Shape(2, 4, 1, 1)
    target = random_target(shape, rng)
    E, U = construction("two-sided").shared.embed(shape, 4, target)
    host = two_sided_host(shape, 4)
    assert same_function(host, E, U, target, rng)
    assert not same_function(swapped_halves(shape, 4), E, U, target, rng)
    assert not same_function(host, np.roll(E, 1, axis=1), U, target, rng)
    assert not same_function(host, U.T, E.T, target, rng)
    # one set of matrices for both halves is no two-sided host
    assert not same_function(SharedAttentionUniversal(shape, 4, host.R_V[0]), E, U, target, rng)
    # words in reversed letter order in the register's embedding
    entry = construction("register")
    E, U = entry.shared.embed(shape, 16, target)
    backwards = [int("".join(map(str, w[::-1])), 2) for w in words(2, 4)]
    assert same_function(entry.shared.host(shape, 16), E, U, target, rng)
    assert not same_function(entry.shared.host(shape, 16), E[:, backwards], U, target, rng)
    # counting serves tied targets only
    untied = random_target(Shape(2, 4, 1, 1), rng)
    with pytest.raises(OutsideClass, match="serves tied targets"):
        construction("counting").shared.embed(shape, 5, untied)


def hosted(name, *dims, m):
    return construction(name).shared.host(Shape(*dims), m)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hosted("two-sided", 2, 2, 1, 1, m=1), NotDefined, "needs m >= 2, got 1"),
        (lambda: hosted("two-sided", 2, 2, 1, 2, 3, m=9), NotDefined, "d_in = d_out"),
        (lambda: hosted("counting", 2, 2, 1, 2, m=9), NotDefined, "d_in = d_out = 1"),
        (lambda: hosted("counting", 2, 2, 1, 1, m=True), MalformedInput, "positive integer"),
        (lambda: hosted("counting", 2, 10**9, 1, 1, m=3), ResourceLimit, "choose a smaller shape"),
        (lambda: hosted("register", 9, 99, 1, 1, m=3), ResourceLimit, "2\\^60"),
        (lambda: hosted("register", 2, 40, 1, 1, m=2**40), ResourceLimit, "needs about"),
        (lambda: build_host("commuting-trie", Shape(2, 2, 1, 2)), NotDefined, "d_in = d_out = 1"),
        (lambda: build_host("commuting-trie", Shape(2, 3, 1, 1), 27), NotDefined, "needs m >= 28, got 27"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- the commuting trie ------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("dims", COMMUTING)
@pytest.mark.parametrize("padding", [0, 3])
def test_commuting_trie_matches_tied_targets_exactly(dims, padding):
    shape = Shape(*dims)
    m = commuting_dimension(shape) + padding
    host = commuting_trie_host(shape, m)
    matrix = r_all(host).to_dense(object)
    assert np.array_equal(matrix, naive_r_all(host))
    assert rational.rank(matrix) == commuting_dimension(shape)
    rng = np.random.default_rng(padding)
    for _ in range(3):
        target = random_target(shape, rng, tied=True)
        E, _ = embed_commuting_trie(shape, m, target)
        assert np.array_equal(E @ matrix, naive_w_all(target))
    x = integers(rng, 3, 1)
    kernel = RationalAttention(causal=True)
    assert np.array_equal(host.forward(x, E, kernel), target.forward(x, kernel))


@pytest.mark.parametrize("dims", COMMUTING)
def test_commuting_trie_is_the_least_for_tied_scalar_targets(dims):
    """Its m is the dimension that the rows W_all of all tied targets span, found by exact rank."""
    shape = Shape(*dims)
    rng = np.random.default_rng(1)
    targets = [random_target(shape, rng, tied=True) for _ in range(commuting_dimension(shape) + 12)]
    rows = np.concatenate([w_all(target) for target in targets])
    assert rational.rank(rows) == commuting_dimension(shape)
    assert span_dimension(shape, tied=True) == commuting_dimension(shape)


def test_commuting_trie_refuses_and_faults_are_caught():
    rng = np.random.default_rng(6)
    shape = Shape(2, 3, 1, 1)
    untied = random_target(shape, rng)
    with pytest.raises(OutsideClass, match="serves tied targets"):
        embed_commuting_trie(shape, 28, untied)
    with pytest.raises(OutsideClass, match="width 1, this one has width 2"):
        embed_commuting_trie(shape, 28, random_target(shape, rng, tied=True, width=2))
    target = random_target(shape, rng, tied=True)
    E, _ = embed_commuting_trie(shape, 28, target)
    matrix = r_all(commuting_trie_host(shape, 28)).to_dense(object)
    wanted = naive_w_all(target)
    assert np.array_equal(E @ matrix, wanted)
    assert not np.array_equal(np.roll(E, 1, axis=1) @ matrix, wanted)
    # the untied target's own W_all is out of reach
    assert rational.solve_left(matrix, naive_w_all(untied)) is None
