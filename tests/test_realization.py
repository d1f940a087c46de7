"""One target's smallest host: ranks against the full Hankel matrices, hosts against the definitions, bounds against what is
seen, and certificates against mutations."""

from __future__ import annotations

import dataclasses
import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from naive import words

from utfproof.attention import GivenAttention, RationalAttention, SoftmaxAttention, softmax
from utfproof.constructions import random_target
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact import rational
from utfproof.matching import r_all, w_all
from utfproof.models.realization import certificate as certificates
from utfproof.models.realization import linear
from utfproof.models.realization.besteffort import best_effort, observed_error, output_bound
from utfproof.models.realization.hankel import forms, least_dimension
from utfproof.models.realization.host import least_host, matches
from utfproof.models.realization.numerical import numerical_host, truncated_host
from utfproof.models.realization.report import minimize, minimize_report
from utfproof.models.realization.simplify import same_logits, with_short_logits, without_dead_heads
from utfproof.models.realization.tied import tied_host
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import AugmentedTarget, LoopedTarget, Target
from utfproof.weights import read_target

pytestmark = pytest.mark.numerical


def drawn(rng, shape, D, *, inner=None, density=1.0, looped=False):
    """A target with entries -2 ... 2, zero but for a part of them."""
    H, L, d = shape.heads, shape.layers, shape.head_dim
    lead = (H,) if looped else (L, H)

    def entries(*size):
        return rng.integers(-2, 3, size=size) * (rng.random(size) < density)

    kind = LoopedTarget if looped else Target if inner is None else AugmentedTarget
    k = inner or d
    return kind(
        shape,
        entries(*lead, D, d),
        entries(*lead, D, d),
        entries(*lead, D, k),
        entries(*lead, k, D),
        entries(shape.d_in, D),
        entries(D, shape.d_out),
    )


def real(rng, shape, D, scale=0.3):
    """The same in float64, normal."""
    target = drawn(rng, shape, D)
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    return dataclasses.replace(target, **{n: scale * rng.standard_normal(getattr(target, n).shape) for n in names})


# --- the definition, slowly ----------------------------------------------------------------------------------


def letters_of(shape):
    return shape.heads + shape.residual


def full_rows(target, length):
    """W_E M_w for all words, as a list of (word, matrix)."""
    shape = target.shape
    out = []
    for word in words(letters_of(shape), length):
        x = target.embedding().astype(object)
        for layer, letter in enumerate(word):
            if letter >= shape.residual:
                x = x @ target.value_form(layer, letter - shape.residual).astype(object)
        out.append((word, x))
    return out


def full_columns(target, boundary):
    """Everything that reads the stream from a boundary on, side by side."""
    shape = target.shape
    parts = []
    for last in range(boundary, shape.layers + 1):
        for word in words(letters_of(shape), last - boundary):
            if last == shape.layers:
                readers = [target.unembedding()]
            else:
                readers = [x for h in range(shape.heads) for x in target.parameters(last, h)[:2]]
            for reader in readers:
                x = reader.astype(object)
                for layer, letter in reversed(list(enumerate(word, start=boundary))):
                    if letter >= shape.residual:
                        x = target.value_form(layer, letter - shape.residual).astype(object) @ x
                parts.append(x)
    return np.concatenate(parts, axis=1)


def slow_least(target, rank=rational.rank):
    """The formula on the full Hankel matrices."""
    L = target.shape.layers
    rows = [np.concatenate([x for _, x in full_rows(target, length)]) for length in range(L + 1)]
    columns = [full_columns(target, at) for at in range(L + 1)]
    ranks = [rank(rows[at] @ columns[at]) for at in range(L + 1)]
    if not target.shape.residual:
        return max(1, *ranks), ranks
    overlaps = [rank(rows[at - 1] @ columns[at]) for at in range(1, L + 1)]
    return max(1, ranks[0] + sum(ranks[1:]) - sum(overlaps)), ranks


def generic_least(shape, D, inner):
    """The formula for generic weights with value forms of this rank: rows and columns counted."""
    d, H, L, r = shape.head_dim, shape.heads, shape.layers, shape.residual
    rows, columns = [min(D, shape.d_in)], [min(D, shape.d_out)]
    for _ in range(L):
        rows.append(min(D, rows[-1] * r + H * min(inner, rows[-1])))
        columns.append(min(D, 2 * d * H + columns[-1] * r + H * min(inner, columns[-1])))
    columns.reverse()
    ranks = [min(a, b) for a, b in zip(rows, columns, strict=True)]
    if not r:
        return max(ranks)
    return ranks[0] + sum(ranks[at] - min(rows[at - 1], columns[at]) for at in range(1, L + 1))


GRID = [(H, L, res) for H in (1, 2, 3) for L in (1, 2, 3) for res in (False, True)]


@pytest.mark.parametrize(("H", "L", "residual"), GRID)
def test_least_dimension_is_that_of_the_full_hankel_matrices(H, L, residual):
    rng = np.random.default_rng(100 * H + 10 * L + residual)
    for density, D, d_in, d_out in ((1.0, 5, 2, 2), (0.35, 6, 3, 1), (0.25, 7, 2, 3), (0.5, 4, 4, 2)):
        target = drawn(rng, Shape(H, L, 1 + (H == 1), d_in, d_out, residual=residual), D, density=density)
        m, ranks = slow_least(target)
        least = least_dimension(target)
        assert (least.m, list(least.ranks)) == (m, ranks)
        assert least.m <= D
        host, E, _ = least_host(target)
        assert host.m == m
        assert (E @ r_all(host) == w_all(target)).all()


def test_the_grid_has_states_that_come_late_and_overlaps():
    # the staircase formula differs from the largest rank somewhere: else the sum is never tested
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        target = drawn(rng, Shape(2, 2, 1, 1, 1, residual=True), 6, density=0.3)
        least = least_dimension(target)
        assert least.m == slow_least(target)[0]
        seen.add(least.m - max(least.ranks))
    assert max(seen) > 0


@pytest.mark.parametrize(("H", "L", "residual"), GRID)
def test_generic_targets_have_the_counted_dimension(H, L, residual):
    rng = np.random.default_rng(H + L)
    for D, d, d_in, d_out in ((30, 1, 4, 2), (24, 2, 5, 3), (9, 2, 6, 4)):
        shape = Shape(H, L, d, d_in, d_out, residual=residual)
        assert least_dimension(drawn(rng, shape, D)).m == generic_least(shape, D, d)


# --- planted sizes -------------------------------------------------------------------------------------------


def columns_through(shape, layer, head):
    """Columns of R_all whose word has this head at this layer (from 0), and those that it reads there alone."""
    letter = head + shape.residual
    passing = reading = 0
    for last in range(1, shape.layers + 1):
        for word in words(letters_of(shape), last):
            if word[layer : layer + 1] == (letter,):
                if last == shape.layers:
                    passing += shape.d_out
                if word[-1] >= shape.residual:
                    passing += 2 * shape.head_dim
                    reading += shape.head_dim * (last == layer + 1)
    return passing, reading


PLANTED = [(1, 1, 2), (2, 1, 2), (3, 1, 1), (1, 2, 2), (2, 2, 1), (1, 3, 1), (2, 3, 1)]


@pytest.mark.full
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("H", "L", "d"), PLANTED)
def test_planted_savings_are_found(H, L, d, residual):
    rng = np.random.default_rng(7)
    plain = Shape(H, L, d, 1, 1, residual=residual)
    M = matching_dimension(plain)
    shape = Shape(H, L, d, M + 1, 1, residual=residual)
    D = M + 2
    base = drawn(rng, shape, D, inner=D)
    # column spaces of full-rank value forms differ, so nothing is saved
    assert least_dimension(base).m == M
    for layer, head in {(0, 0), (L - 1, H - 1)}:
        passing, reading = columns_through(shape, layer, head)
        dead = {name: getattr(base, name).copy() for name in ("W_Q", "W_K", "W_V")}
        for array in dead.values():
            array[layer, head] = 0
        found = least_dimension(dataclasses.replace(base, **dead))
        alone = H == 1 and not residual  # then nothing reads what comes before a dead head, so more is dead
        assert found.m == max(1, M - passing)
        assert (layer, head) in found.dead_heads
        assert alone or len(found.dead_heads) == 1
        # a head that writes nothing but still reads: its queries and keys are matched, or given up
        mute = dataclasses.replace(base, W_V=dead["W_V"])
        assert least_dimension(mute).m == M - passing + 2 * reading
        everything = [(at, 0) for at in range(L)]
        pruned, heads = without_dead_heads(forms(mute))
        expected = (1, everything) if alone else (M - passing, [(layer, head)])
        assert (least_dimension(pruned).m, heads) == expected
        if d > 1:
            query = base.W_Q.copy()
            query[layer, head] = np.outer(query[layer, head][:, 0], np.arange(1, d + 1))
            low = dataclasses.replace(base, W_Q=query)
            found = least_dimension(low)
            assert found.m == M - reading * (d - 1) // d
            report = found.heads[layer * H + head]
            assert (report.rank_query, report.rank_key, report.rank_logits) == (1, d, 1)
            short = with_short_logits(forms(low))
            assert same_logits(forms(low), short)
            assert least_dimension(short).m == M - 2 * reading * (d - 1) // d
    if H > 1:
        copies = {name: getattr(base, name).copy() for name in ("W_Q", "W_K", "W_V", "W_O")}
        for array in copies.values():
            array[0, 1] = array[0, 0]
        found = least_dimension(dataclasses.replace(base, **copies))
        assert found.m == M - columns_through(shape, 0, 1)[0]
        assert found.heads[1].repeats == 0


def test_simplified_targets_have_the_same_outputs_exactly():
    rng = np.random.default_rng(5)
    for residual in (False, True):
        shape = Shape(2, 2, 2, 3, 2, residual=residual)
        target = drawn(rng, shape, 9)
        W_V, W_Q = target.W_V.copy(), target.W_Q.copy()
        W_V[1, 0] = 0
        W_Q[1, 1] = np.outer(W_Q[1, 1][:, 0], [1, 2])
        target = dataclasses.replace(target, W_V=W_V, W_Q=W_Q)
        held = forms(target)
        X = np.eye(3, dtype=int).astype(object)[[0, 2, 1, 1]]
        wanted = target.forward(X, RationalAttention(causal=True))
        pruned, heads = without_dead_heads(held)
        assert heads == [(1, 0)]
        sizes = []
        for changed in (held, pruned, with_short_logits(pruned)):
            host, E, least = least_host(changed)
            sizes.append(least.m)
            assert (host.forward(X, E, RationalAttention(causal=True)) == wanted).all()
            assert matches(host, E, held) == (changed is held)
        assert sizes == sorted(sizes, reverse=True)


# --- no smaller host: every host over the field of two elements ----------------------------------------------


def rank_mod_2(matrix):
    if 0 in matrix.shape:
        return 0
    return int(linear_mod_2(np.array(matrix % 2, dtype=np.int64)))


def linear_mod_2(table):
    rank = 0
    for column in range(table.shape[1]):
        pivots = np.nonzero(table[rank:, column])[0]
        if len(pivots):
            table[[rank, rank + pivots[0]]] = table[[rank + pivots[0], rank]]
            others = np.nonzero(table[:, column])[0]
            table[others[others != rank]] ^= table[rank]
            rank += 1
        if rank == len(table):
            break
    return rank


def exists_mod_2(target, m):
    """Whether some host of dimension m over the two-element field matches, by trying them all (keys are zero; one head)."""
    shape = target.shape
    L, d_in, d_out = shape.layers, shape.d_in, shape.d_out
    sizes = [d_in * m, *[m] * L, *[m * m] * L, m * d_out]
    total = sum(sizes)
    codes = np.arange(2**total, dtype=np.int64)
    bits = ((codes[:, None] >> np.arange(total)) & 1).astype(np.uint8)
    parts = np.split(bits, np.cumsum(sizes)[:-1], axis=1)
    E = parts[0].reshape(-1, d_in, m)
    R_Q = [x.reshape(-1, m, 1) for x in parts[1 : 1 + L]]
    R_V = [x.reshape(-1, m, m) for x in parts[1 + L : 1 + 2 * L]]
    U = parts[-1].reshape(-1, m, d_out)
    good = np.ones(len(codes), dtype=bool)
    for last in range(L + 1):
        for word, wanted in full_rows(target, last):
            x = E
            for layer, letter in enumerate(word):
                if letter >= shape.residual:
                    x = (x @ R_V[layer]) % 2
            reader, goal = (
                (U, wanted @ target.unembedding()) if last == L else (R_Q[last], wanted @ target.W_Q[last][0])
            )
            good &= ((x @ reader) % 2 == np.array(goal % 2, dtype=np.uint8)).all(axis=(1, 2))
    return bool(good.any())


@pytest.mark.parametrize(("L", "d_in", "residual"), [(1, 2, False), (1, 2, True), (2, 2, False), (2, 1, True)])
def test_every_smaller_host_fails_over_the_two_element_field(L, d_in, residual):
    rng = np.random.default_rng(L + d_in)
    seen = set()
    for _ in range(10):
        target = drawn(rng, Shape(1, L, 1, d_in, 1, residual=residual), 3, inner=3)
        bits = {n: rng.integers(0, 2, size=getattr(target, n).shape) for n in ("W_Q", "W_V", "W_O", "W_E", "W_U")}
        target = dataclasses.replace(target, **bits, W_K=0 * target.W_K)
        m = slow_least(target, rank_mod_2)[0]
        seen.add(m)
        for size in (1, 2):
            assert exists_mod_2(target, size) == (size >= m)
    assert len(seen) > 1


# --- the exact test that a host matches ----------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_a_changed_host_or_embedding_does_not_match(residual):
    rng = np.random.default_rng(11)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=residual), 12)
    host, E, _ = least_host(target)
    assert matches(host, E, target)
    for name in ("R_Q", "R_K", "U"):
        array = getattr(host, name).copy()
        index = next(iter(zip(*np.nonzero(array), strict=True)))
        array[index] += Fraction(1, 10**30)
        assert not matches(dataclasses.replace(host, **{name: array}), E, target)
    R_V = host.R_V.copy()
    R_V[0, 1, 0] = 0
    assert not matches(dataclasses.replace(host, R_V=R_V), E, target)
    changed = E.copy()
    changed[-1, -1] += 1
    changed[-1, 0] += 1
    assert not matches(host, changed, target)
    with pytest.raises(MalformedInput, match="E has shape"):
        matches(host, E[:, :-1], target)
    with pytest.raises(MalformedInput, match="differ"):
        matches(host, E, drawn(rng, Shape(2, 1, 1, 3, 2, residual=residual), 12))


def test_a_bad_first_prime_does_not_mislead():
    # rows that are dependent modulo the prime only, and a rank that the prime hides
    p = linear.PRIME
    matrix = linear.to_flint(np.array([[1, 0, 0], [1, p, 0], [0, 0, 0]], dtype=object))
    assert linear.independent_rows(matrix) == [0, 1]
    old, new = linear.extended_basis(linear.rows_of(matrix, [0, 1]), linear.to_flint(np.array([[0, 1, 0]])))
    assert (old, new) == ([0, 1], [])
    kernel = linear.left_kernel(matrix)
    assert linear.is_zero(kernel * matrix)
    assert kernel.nrows() == 1


def test_weights_that_are_not_finite_are_refused():
    target = real(np.random.default_rng(0), Shape(1, 1, 1, 2, 1), 3)
    target.W_Q[0, 0, 0, 0] = np.nan
    with pytest.raises(MalformedInput, match="not finite"):
        least_dimension(target)
    with pytest.raises(MalformedInput, match="NaN"):
        numerical_host(target)


def test_a_target_that_does_nothing():
    target = drawn(np.random.default_rng(0), Shape(2, 2, 1, 2, 2, residual=True), 3, density=0.0)
    host, E, least = least_host(target)
    assert (host.m, least.ranks) == (1, (0, 0, 0))
    certificates.require_valid(certificates.certificate(least, host, E))


# --- float64 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("H", "L", "residual"), [(1, 1, True), (2, 2, False), (2, 2, True), (2, 3, True), (3, 2, False)]
)
def test_numerical_hosts_of_generic_weights(H, L, residual):
    rng = np.random.default_rng(L)
    target = real(rng, Shape(H, L, 2, 4, 3, residual=residual), 20)
    found = numerical_host(target)
    assert found.host.m == least_dimension(target).m
    assert found.residual < 1e-12
    X = np.eye(4)[[0, 3, 1, 2, 2]]
    kernel = SoftmaxAttention(scale="1/sqrt(d)", causal=True)
    assert np.allclose(found.host.forward(X, found.E, kernel), target.forward(X, kernel), rtol=1e-9, atol=1e-12)
    smaller = truncated_host(target, found.host.m - 1)
    assert smaller.host.m < found.host.m
    assert smaller.residual > 1e-6


def test_noise_counts_exactly_but_not_numerically():
    rng = np.random.default_rng(2)
    shape = Shape(1, 1, 2, 6, 1)
    target = real(rng, shape, 8)
    target.W_Q[0, 0] = np.outer(target.W_Q[0, 0][:, 0], [1.0, 2.0])
    exactly = least_dimension(target).m
    target.W_Q[0, 0] += 1e-14 * rng.standard_normal((8, 2))
    assert least_dimension(target).m == exactly + 1
    assert numerical_host(target).host.m == exactly


# --- best effort ---------------------------------------------------------------------------------------------

KERNELS = (
    SoftmaxAttention(),
    SoftmaxAttention(scale="1/sqrt(d)", causal=True),
    SoftmaxAttention(rope_base=100.0, causal=True),
    SoftmaxAttention(scale=3.0, window=2, alibi_heads=2),
)


@pytest.mark.parametrize("residual", [False, True])
def test_the_output_bound_holds(residual):
    rng = np.random.default_rng(8)
    informative = 0
    for scale in (0.1, 0.5):
        target = real(rng, Shape(2, 2, 2, 5, 3, residual=residual), 12, scale)
        least = numerical_host(target).host.m
        for m in (least - 1, least // 2, 1):
            host = truncated_host(target, m).host
            for kernel in KERNELS:
                found = best_effort(host, target, kernel=kernel)
                seen = observed_error(host, target, found.E, kernel)
                assert seen <= found.bound.error
                informative += not found.bound.vacuous
                if found.bound.vacuous:
                    assert found.bound.document()["vacuous"]
    assert informative


def test_the_output_bound_is_of_the_size_of_the_error():
    rng = np.random.default_rng(9)
    target = real(rng, Shape(1, 1, 2, 5, 3), 12, 0.2)
    host = truncated_host(target, 3).host
    kernel = SoftmaxAttention()
    found = best_effort(host, target, kernel=kernel)
    assert found.bound.error < 5 * observed_error(host, target, found.E, kernel)
    # an embedding that is further off is seen to be outside of that bound, and inside of its own
    worse = found.E + 0.5 * rng.standard_normal(found.E.shape)
    seen = observed_error(host, target, worse, kernel)
    assert seen > found.bound.error
    assert seen <= output_bound(host, target, worse, kernel=kernel).error


@pytest.mark.parametrize("name", ["R_Q", "R_K", "R_V", "U"])
def test_the_bound_covers_each_source_of_error_alone(name):
    rng = np.random.default_rng(24)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=True), 12, density=0.4)
    host, E, _ = least_host(target)
    kernel = SoftmaxAttention(scale=0.05)
    for factor in (Fraction(11, 10), Fraction(1, 2)):
        changed_host = dataclasses.replace(host, **{name: getattr(host, name) * factor})
        seen = observed_error(changed_host, target, E, kernel)
        assert 1e-6 < seen <= output_bound(changed_host, target, E, kernel=kernel).error


class Recording:
    """A kernel that keeps the attention matrices it gives."""

    logits_only = True

    def __init__(self, kernel):
        self.kernel, self.seen = kernel, {}

    def __call__(self, queries, keys, positions, *, layer, head):
        self.seen[layer, head] = self.kernel(queries, keys, positions, layer=layer, head=head)
        return self.seen[layer, head]


@pytest.mark.parametrize("residual", [False, True])
def test_attention_differs_by_no_more_than_its_bound_in_every_layer(residual):
    # keys of the first layer alone are wrong: the second layer sees it through the stream only
    rng = np.random.default_rng(25)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=residual), 12)
    host, E, _ = least_host(target)
    R_K = host.R_K.copy()
    R_K[0] = R_K[0] * Fraction(3, 2)
    host = dataclasses.replace(host, R_K=R_K)
    kernel = SoftmaxAttention(scale=1e-4)
    bound = output_bound(host, target, E, kernel=kernel)
    ours, theirs = Recording(kernel), Recording(kernel)
    X = np.eye(3)[[0, 1, 2, 2, 0, 1]]
    floats = {name: getattr(host, name).astype(float) for name in ("R_Q", "R_K", "R_V", "U")}
    dataclasses.replace(host, **floats).forward(X, E.astype(float), ours)
    target.forward(X, theirs)
    worst = {at: np.abs(ours.seen[at] - theirs.seen[at]).sum(axis=1).max() for at in ours.seen}
    assert max(worst[1, head] for head in range(2)) > 1e-7
    assert all(worst[at] <= bound.attention[at] for at in worst)


def test_an_exact_host_has_the_bound_zero():
    rng = np.random.default_rng(10)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=True), 12)
    host, E, _ = least_host(target)
    bound = output_bound(host, target, E)
    assert bound.error < Fraction(1, 10**30)  # the radii of the balls
    assert not bound.vacuous


def test_bounds_with_positions_beside_tokens_and_attention_from_outside():
    rng = np.random.default_rng(12)
    target = real(rng, Shape(2, 2, 2, 7, 3, residual=True), 12, 0.3)
    host = truncated_host(target, 8).host
    kernel = SoftmaxAttention(causal=True)
    found = best_effort(host, target, kernel=kernel, groups=(4, 3))
    seen = observed_error(host, target, found.E, kernel, groups=(4, 3))
    assert seen <= found.bound.error
    with pytest.raises(MalformedInput, match="groups"):
        best_effort(host, target, groups=(4, 4))
    n = 4
    matrices = rng.random((2, 2, n, n))
    given = GivenAttention(matrices / matrices.sum(axis=-1, keepdims=True))
    outside = best_effort(host, target, kernel=given)
    assert set(outside.bound.attention.values()) == {0}
    assert observed_error(host, target, outside.E, given, contexts=(n,)) <= outside.bound.error
    with pytest.raises(MalformedInput, match="softmax"):
        output_bound(host, target, found.E, kernel=RationalAttention())


def test_one_group_is_not_enough_for_two_one_hots():
    # the planted fault: a bound for single one-hots does not cover sums of two
    shape = Shape(1, 1, 1, 4, 1)
    ones = np.ones((1, 1, 1, 1))
    target = Target(shape, 0 * ones, 0 * ones, ones, ones, np.ones((4, 1)), np.ones((1, 1)))
    host, _, _ = least_host(target)
    E = np.zeros((4, host.m))
    alone, pairs = (output_bound(host, target, E, groups=g).error for g in (None, (2, 2)))
    assert alone < observed_error(host, target, E, SoftmaxAttention(), groups=(2, 2)) <= pairs


def test_softmax_moves_by_at_most_twice_the_hyperbolic_tangent():
    rng = np.random.default_rng(14)
    closest = 0.0
    for _ in range(300):
        z = rng.standard_normal(4) * 3
        e = rng.random(4) * rng.choice([0.1, 1, 5])
        moved = np.abs(softmax(z + e) - softmax(z)).sum()
        bound = 2 * np.tanh((e.max() - e.min()) / 4)
        assert moved <= bound * (1 + 1e-12)
        closest = max(closest, moved / bound)
    assert closest > 0.9
    # reached by two entries
    e = 2.0
    moved = np.abs(softmax(np.array([-e / 2, 0.0]) + np.array([e, 0.0])) - softmax(np.array([-e / 2, 0.0]))).sum()
    assert moved == pytest.approx(2 * np.tanh(e / 4))


# --- limits --------------------------------------------------------------------------------------------------


def test_widths_out_of_reach_are_refused():
    wide = np.zeros((1, 1, 600, 1))
    target = Target(Shape(1, 1, 1, 2, 1), wide, wide, wide, wide.swapaxes(-1, -2), np.ones((2, 600)), np.ones((600, 1)))
    with pytest.raises(ResourceLimit, match="width 600"):
        least_dimension(target)
    assert numerical_host(target).host.m == 1


def test_numbers_too_long_for_a_certificate():
    held = drawn(np.random.default_rng(6), Shape(1, 1, 1, 2, 1), 2)
    for digits, fits in ((5000, True), (120_000, False)):
        target = held.W_E.astype(object)
        target[0, 0] = 10**digits
        host, E, least = least_host(dataclasses.replace(held, W_E=target))
        if fits:
            certificates.require_valid(certificates.certificate(least, host, E))
            continue
        with pytest.raises(ResourceLimit, match="digits"):
            certificates.certificate(least, host, E)


# --- tied hosts, the report ----------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_tied_hosts_of_tied_targets(residual):
    rng = np.random.default_rng(15)
    decided = set()
    for density in (1.0, 0.5, 0.3, 0.2):
        target = drawn(rng, Shape(2, 2, 1, 2, 2, residual=residual), 7, density=density, looped=True)
        found = tied_host(target)
        assert found.lower == slow_least(target)[0] <= found.upper <= 7
        assert (found.E @ r_all(found.host) == w_all(target)).all()
        decided.add(found.lower == found.upper)
    assert True in decided
    with pytest.raises(MalformedInput, match="untied"):
        tied_host(drawn(rng, Shape(1, 1, 1, 1), 1))


@pytest.mark.full
def test_report():
    rng = np.random.default_rng(16)
    target = real(rng, Shape(2, 2, 2, 30, 3, residual=True), 30)
    target.W_V[1, 1] = 0
    result = minimize(target, m=5, kernel=SoftmaxAttention(causal=True))
    document = json.loads(json.dumps(result.document))
    assert document == json.loads(json.dumps(minimize_report(target, m=5, kernel=SoftmaxAttention(causal=True))))
    assert document["least"]["dead_heads"] == [[1, 1]]
    assert document["without_dead_heads"]["m"] < document["least"]["m"] == result.host.m
    assert document["numerical"]["m"] == result.host.m
    assert document["best_effort"]["m"] <= 5
    certificates.require_valid(result.certificate)
    assert matches(result.host, result.E, target)


def test_report_of_a_trained_target():
    target = read_target(Path(__file__).parent / "data" / "parentheses.safetensors")
    document = minimize_report(target, m=1)
    assert document["least"]["m"] <= target.width
    assert document["host"]["m"] == document["least"]["m"]


def test_short_products_of_all_words_agree_with_the_staircase():
    # every word, not only those of the basis: E R_w read by everything
    target = drawn(np.random.default_rng(17), Shape(2, 2, 1, 2, 1, residual=True), 5, density=0.5)
    host, E, _ = least_host(target)
    for length, layer in itertools.product(range(2), range(2)):
        if length > layer:
            continue
        for word, wanted in full_rows(target, layer):
            x = E
            for at, letter in enumerate(word):
                if letter:
                    x = x @ host.R_V[at, letter - 1]
            for head in range(2):
                assert (x @ host.R_Q[layer, head] == wanted @ target.W_Q[layer, head]).all()


def test_structure_is_named():
    """A dead head, a repeated one and queries of rank one, planted and named; without them nothing is said."""
    shape = Shape(2, 2, 2, 5, residual=True)
    plain = random_target(shape, seed=3)
    said = minimize(plain, certify=False)
    assert said.certificate is None
    assert not any(said.document["structure"].values())
    W_Q, W_K, W_V, W_O = (np.array(getattr(plain, name)) for name in ("W_Q", "W_K", "W_V", "W_O"))
    W_O[1, 1] = 0
    W_Q[0, 1], W_K[0, 1], W_V[0, 1], W_O[0, 1] = W_Q[0, 0], W_K[0, 0], W_V[0, 0], W_O[0, 0]
    W_Q[1, 0, :, 1] = 0
    found = minimize(Target(shape, W_Q, W_K, W_V, W_O), certify=False).document["structure"]
    assert found["dead heads"] == ["1.1"]
    assert found["repeated heads"] == ["0.1 is 0.0"]
    assert found["low-rank queries"] == ["1.0 (1 of 2)"]


def test_a_curve_falls_with_m_and_its_bound_holds():
    """Keys that hardly matter: the curve has a point below the least m, whose proven bound says something, and holds."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.curve import error_curve

    shape = Shape(1, 1, 1, 3)
    target = random_target(shape, seed=1)
    W_V, W_O = np.array(target.W_V, dtype=float), np.array(target.W_O, dtype=float)
    W_Q, W_K = 0.1 * np.asarray(target.W_Q, dtype=float), 1e-5 * np.asarray(target.W_K, dtype=float)
    weak = Target(shape, W_Q, W_K, W_V, W_O)
    rng = np.random.default_rng(0)
    x = np.eye(3)[rng.integers(0, 3, 6)]

    def observe(host, E):
        return float(np.abs(host.forward(x, E, SoftmaxAttention()) - weak.forward(x, SoftmaxAttention())).max())

    points = error_curve(weak, observe=observe)
    assert [p.m for p in points] == sorted((p.m for p in points), reverse=True)
    assert len(points) > 1
    assert all(p.observed <= p.bound + 1e-12 for p in points)
    assert points[0].observed < 1e-12
    assert any(p.m < points[0].m and not p.vacuous for p in points)


def weak_model(residual=True, layers=2):
    """A target whose last two of six coordinates hardly matter, in floats, and one-hot inputs for it."""
    shape = Shape(2, layers, 2, 6, 3, residual=residual)
    rng = np.random.default_rng(3)
    small = np.array([1, 1, 1, 1, 1e-3, 1e-3])
    W_Q, W_K, W_V = (rng.normal(size=(layers, 2, 6, 2)) * small[:, None] for _ in range(3))
    W_O, W_U = 0.5 * rng.normal(size=(layers, 2, 2, 6)) * small, rng.normal(size=(6, 3)) * small[:, None]
    target = Target(shape, W_Q, W_K, W_V, W_O, W_E=np.eye(6), W_U=W_U)
    return target, [np.eye(6)[rng.integers(0, 6, n)] for n in (1, 4, 7)]


@pytest.mark.parametrize("residual", [True, False])
def test_the_error_on_given_inputs_is_proven_and_tight(residual):
    """It bounds the float outputs' difference, and is hardly larger; another host, or a change of E, is seen in it."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.given import GivenInputs

    target, inputs = weak_model(residual)
    kernel = SoftmaxAttention(causal=True)
    given = GivenInputs(target, inputs, kernel)
    fitted = given.projections()
    for m in (1, 3, 5, fitted.rank):
        host, E = fitted.host(m)
        seen = max(float(np.abs(host.forward(x, E, kernel) - target.forward(x, kernel)).max()) for x in inputs)
        proven = float(given.error(host, E))
        assert seen - 1e-12 <= proven <= seen * (1 + 1e-9) + 1e-12
    assert proven < 1e-12  # as many dimensions as the inputs reach: the target's own outputs
    E[2] += 1e-3
    assert float(given.error(host, E)) > 1e-5
    with pytest.raises(MalformedInput, match="host and target differ"):
        given.error(host, E[:, :-1])


def test_the_least_host_within_a_tolerance():
    """Fewer dimensions for a larger tolerance, each proven; none for one that rounding alone exceeds."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.curve import error_curve, least_within
    from utfproof.models.realization.given import GivenInputs

    target, inputs = weak_model()
    given = GivenInputs(target, inputs, SoftmaxAttention())
    sizes = []
    for within in (1e-9, 1e-2, 10.0):
        host, E, error = least_within(target, given, within)
        assert error <= within
        assert float(given.error(host, E) / given.scale) <= error
        sizes.append(host.m)
    assert sizes[0] >= 6 > sizes[1] > sizes[2] == 1
    assert least_within(target, given, 1e-30) is None
    points = error_curve(target, given=given)
    assert next(p.given for p in points if p.m == sizes[1]) <= 1e-2
