"""One target's smallest host: ranks against the full Hankel matrices, hosts against the definitions, bounds against what is
seen, and certificates against mutations."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from naive import words

from utfproof.attention import SoftmaxAttention
from utfproof.errors import MalformedInput
from utfproof.exact import rational
from utfproof.matching import r_all, w_all
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, forms, least_dimension
from utfproof.models.realization.host import least_host, match
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import AugmentedTarget, Target

pytestmark = pytest.mark.numerical


def drawn(rng, shape, D, *, inner=None, density=1.0, looped=False):
    """A target with entries -2 ... 2, zero but for a part of them."""
    H, L, d = shape.heads, shape.layers, shape.head_dim
    lead = (H,) if looped else (L, H)

    def entries(*size):
        return rng.integers(-2, 3, size=size) * (rng.random(size) < density)

    kind = Target if inner is None else AugmentedTarget
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
        host, E = least_host(target)
        assert host.m == m
        assert (E @ r_all(host) == w_all(target)).all()


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
        zeros = {name: getattr(base, name).copy() for name in ("W_Q", "W_K", "W_V")}
        for array in zeros.values():
            array[layer, head] = 0
        found = least_dimension(dataclasses.replace(base, **zeros))
        alone = H == 1 and not residual  # then nothing reads what comes before a dead head, so more is dead
        assert found.m == max(1, M - passing)
        dead = found.structure()["dead heads"]
        assert f"{layer}.{head}" in dead
        assert alone or len(dead) == 1
        # a head that writes nothing but still reads: its queries and keys are matched, or given up
        mute = dataclasses.replace(base, W_V=zeros["W_V"])
        assert least_dimension(mute).m == M - passing + 2 * reading
        if d > 1:
            query = base.W_Q.copy()
            query[layer, head] = np.outer(query[layer, head][:, 0], np.arange(1, d + 1))
            low = dataclasses.replace(base, W_Q=query)
            found = least_dimension(low)
            assert found.m == M - reading * (d - 1) // d
            structure, said = found.structure(), [f"{layer}.{head} (1 of {d})"]
            assert [structure[f"low-rank {kind}"] for kind in ("queries", "keys", "logits")] == [said, [], said]
    if H > 1:
        copies = {name: getattr(base, name).copy() for name in ("W_Q", "W_K", "W_V", "W_O")}
        for array in copies.values():
            array[0, 1] = array[0, 0]
        found = least_dimension(dataclasses.replace(base, **copies))
        assert found.m == M - columns_through(shape, 0, 1)[0]
        assert found.structure()["repeated heads"] == ["0.1 is 0.0"]


# --- the exact test that a host matches ----------------------------------------------------------------------


def matches(host, E, target):
    def grid(array):
        return [[rational.to_flint(one) for one in heads] for heads in array]

    E, U = (rational.to_flint(array) for array in (E, host.U))
    return match(Forms(host.shape, E, grid(host.R_Q), grid(host.R_K), grid(host.R_V), U, host.m), forms(target))


@pytest.mark.parametrize("residual", [False, True])
def test_a_changed_host_or_embedding_does_not_match(residual):
    rng = np.random.default_rng(11)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=residual), 12)
    host, E = least_host(target)
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
    with pytest.raises(MalformedInput, match="differ"):
        matches(host, E, drawn(rng, Shape(2, 1, 1, 3, 2, residual=residual), 12))


def test_a_bad_first_prime_does_not_mislead():
    # rows that are dependent modulo the prime only, and a rank that the prime hides
    p = linear.PRIME
    matrix = rational.to_flint(np.array([[1, 0, 0], [1, p, 0], [0, 0, 0]], dtype=object))
    assert linear.independent_rows(matrix) == [0, 1]
    old, new = linear.extended_basis(linear.rows_of(matrix, [0, 1]), rational.to_flint(np.array([[0, 1, 0]])))
    assert (old, new) == ([0, 1], [])


def test_weights_that_are_not_finite_are_refused():
    target = real(np.random.default_rng(0), Shape(1, 1, 1, 2, 1), 3)
    target.W_Q[0, 0, 0, 0] = np.nan
    with pytest.raises(MalformedInput, match="not finite"):
        least_dimension(target)


def test_a_target_that_does_nothing():
    target = drawn(np.random.default_rng(0), Shape(2, 2, 1, 2, 2, residual=True), 3, density=0.0)
    host, E = least_host(target)
    assert (host.m, least_dimension(target).ranks) == (1, (0, 0, 0))
    assert matches(host, E, target)


def test_noise_counts():
    rng = np.random.default_rng(2)
    target = real(rng, Shape(1, 1, 2, 6, 1), 8)
    target.W_Q[0, 0] = np.outer(target.W_Q[0, 0][:, 0], [1.0, 2.0])
    exactly = least_dimension(target).m
    target.W_Q[0, 0] += 1e-14 * rng.standard_normal((8, 2))
    assert least_dimension(target).m == exactly + 1


def test_structure_is_named():
    shape = Shape(2, 2, 2, 4)
    rng = np.random.default_rng(3)
    target = drawn(rng, shape, 30)
    W_V, W_Q = target.W_V.copy(), target.W_Q.copy()
    W_V[1, 0] = 0
    W_Q[0, 0] = np.outer(W_Q[0, 0][:, 0], [1, 2])
    found = least_dimension(dataclasses.replace(target, W_V=W_V, W_Q=W_Q)).structure()
    assert found["dead heads"] == ["1.0"]
    assert found["low-rank queries"] == ["0.0 (1 of 2)"]


@pytest.mark.parametrize("residual", [False, True])
def test_the_error_on_given_inputs_is_proven_and_tight(residual):
    """At least the error that float64 shows, and no more than a little; the smallest host within it is found."""
    from utfproof.models.realization.proven import GivenInputs

    rng = np.random.default_rng(1)
    target = real(rng, Shape(1, 2, 2, 4, residual=residual), 7)
    target.W_E[:, 4:] *= 1e-4
    kernel = SoftmaxAttention(causal=True)
    inputs = [np.eye(4)[rng.integers(0, 4, n)] for n in (1, 3, 5)]
    given = GivenInputs(target, inputs, kernel)
    for m in (2, 4, given.rank):
        host, E = given.host(m)
        proven = given.error(host, E) * float(given.scale)
        pairs = [(host.forward(X, E, kernel), target.forward(X, kernel)) for X in inputs]
        observed = max(float(np.abs(a - b).max()) for a, b in pairs)
        assert observed - 1e-12 <= proven <= observed + 1e-12
    host, E, error = given.least_within(0.01)
    assert error <= 0.01
    assert host.m == 1 or given.error(*given.host(host.m - 1)) > 0.01
    assert given.least_within(1e-40) is None
