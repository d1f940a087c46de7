"""The finite steps of docs/proofs/wide-heads.md, exactly: hosts, dimensions and ranks modulo a prime."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from residue_hosts import (
    PRIME,
    along,
    drawn,
    inverse,
    null_space,
    product,
    rank,
    words,
)

# --- Theorem B: hosts ------------------------------------------------------------------------------------


# --- Theorem A: the part of degree one -------------------------------------------------------------------


def part_of_degree_one(H, b, stream, rng, fixed=False):
    """Dimension of the affine (without a stream: linear) maps beta(M) with columns and rows in col D for all M = M^(1,.)."""
    n = (H + stream) * b
    coefficients = H * b * b + stream
    unknowns, rows, D = n * n * coefficients, [], None
    while len(rows) < 2 * unknowns:  # those of one D depend on each other
        if D is None or not fixed:
            D = drawn(rng, H * b, b)
        at = np.concatenate([np.ones(stream, dtype=np.int64), D.ravel()])
        N = null_space(np.concatenate([np.eye(b, dtype=np.int64)] * stream + [D]).T).T
        if not len(N):
            return unknowns
        for r, k in itertools.product(range(len(N)), range(n)):
            for side in range(2):
                row = np.zeros((n, n, coefficients), dtype=np.int64)
                for i in range(n):
                    row[(i, k) if side == 0 else (k, i)] = N[r, i] * at % PRIME
                rows.append(row.ravel())
    return unknowns - rank(np.array(rows))


@pytest.mark.parametrize(("H", "b", "stream"), [(2, 1, 0), (3, 1, 0), (2, 2, 0), (1, 1, 1), (2, 1, 1), (1, 2, 1)])
def test_degree_one_part(H, b, stream):
    """None but 0, with H = 1 for a stream too; without one H = 1 says nothing, and neither does a single D."""
    rng = np.random.default_rng(7)
    assert part_of_degree_one(H, b, stream, rng) == 0
    assert part_of_degree_one(H, b, stream, rng, fixed=True) > 0
    assert part_of_degree_one(1, b, 0, rng) == b**4


# --- Theorem C -------------------------------------------------------------------------------------------


def test_a_limit_of_smaller_hosts():
    """(1,2,2,1) with a stream: six coordinates, one below the bound, are off by delta A^1 / M^1 in layer 2 and nowhere else."""
    read = np.eye(6, dtype=int)  # 1, M^2, M^1, M^1 M^2, f, g
    moved = {1: np.zeros((6, 6), dtype=int), 2: np.zeros((6, 6), dtype=int)}
    for there, here in ((0, 2), (1, 3), (4, 5)):
        moved[1][here, there] = 1
    moved[2][1, 0] = 1
    for A1, A2, M1, M2 in ((3, -5, 7, 2), (1, 1, -2, 9)):
        for delta in (Fraction(1, 10), Fraction(1, 10**6)):
            wrong = delta * A1 / M1
            E = np.array([1, M2, M1, M1 * M2, A2 + wrong, A2 * M1], dtype=object)
            rows = [E, E @ moved[1]]
            outputs = [row @ step @ read[:, 0] for row in rows for step in (np.eye(6, dtype=int), moved[2])]
            assert outputs == [1, M2, M1, M1 * M2]
            assert (E[4] * E[2] - E[5] * E[0]) / delta == A1
            forms = [[row[4] * other[0] for other in rows] for row in rows]
            assert forms == [[A2 + wrong, (A2 + wrong) * M1], [A2 * M1, A2 * M1 * M1]]


def certified(H, b, rng):
    """A nonsingular sum of Delta_r (x) T_r, sizes H b: then no W has a small image, whatever the field."""
    total = np.zeros((H * b, H * b), dtype=np.int64)
    for _ in range(b):
        total = (total + np.kron(drawn(rng, H, b), drawn(rng, b, H))) % PRIME
    return rank(total) == H * b


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_semistable_representations(b):
    rng = np.random.default_rng(b)
    for H in range(1, b * b + 3):
        assert certified(H, b, rng) == (b * b >= H)


def spread(matrices, rng):
    """Certificate: sum_r Delta_r (x) T_r is nonsingular, row k of Delta_r being row r of the k-th matrix."""
    K, b = len(matrices), len(matrices[0])
    total = np.zeros((K * b, K * b), dtype=np.int64)
    for r in range(b):
        total = (total + np.kron(np.stack([N[r] for N in matrices]), drawn(rng, b, K))) % PRIME
    return rank(total) == K * b


def lemma_words(H, q, b):
    """The words of Lemma 1: both halves, read in base H, below b (q = 1: the first b^2 letters)."""
    if q == 1:
        return [(i,) for i in range(min(H, b * b))]
    half = (q + 1) // 2

    def number(part):
        return sum(letter * H**t for t, letter in enumerate(part))

    return [w for w in words(H, q) if number(w[:half]) < b and number(w[half:]) < b]


SPREAD = [(2, 2, 2), (2, 3, 3), (2, 3, 4), (2, 4, 4), (3, 2, 3), (2, 3, 2), (3, 2, 2), (5, 1, 2), (4, 2, 3), (3, 3, 2)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("H", "q", "b"), SPREAD)
def test_products_are_spread(H, q, b, stream):
    """H letters; with a stream the letter 0 has the value I."""
    rng = np.random.default_rng(H + q + b)
    M = [[drawn(rng, b, b) for _ in range(H)] for _ in range(q)]
    if stream:
        M = [[np.eye(b, dtype=np.int64), *layer[1:]] for layer in M]
    chosen = lemma_words(H, q, b)
    if q > 1:
        assert len(chosen) == min(b, H ** ((q + 1) // 2)) * min(b, H ** (q // 2))
    assert len(chosen) <= min(H**q, b * b)
    assert spread([along(M, w, b) for w in chosen], rng)
    assert spread([along(M, w, b) for w in words(H, q)], rng) == (H**q <= b * b)
    if q > 1:
        M[0][1] = M[0][0]
        assert not spread([along(M, w, b) for w in chosen], rng)


@pytest.mark.parametrize(("H", "b", "d"), [(2, 2, 4), (2, 2, 6), (3, 1, 4), (2, 1, 2), (2, 3, 4)])
def test_row_spaces(H, b, d):
    """X = [D x, X', 0], Y = [D y, 0, Y'] in any gauge: dim V_X + dim V_Y = d - b, and no more."""
    rng = np.random.default_rng(d)
    D, A = drawn(rng, H * b, b), drawn(rng, b, b)
    N = null_space(D.T).T
    room = len(N)
    for s in range(d - b + 1):
        t = d - b - s
        x, gauge = drawn(rng, b, b), drawn(rng, d, d)
        X = np.concatenate([product(D, x), drawn(rng, H * b, s), np.zeros((H * b, t), dtype=np.int64)], axis=1)
        Y = np.concatenate(
            [product(D, A.T, inverse(x).T), np.zeros((H * b, s), dtype=np.int64), drawn(rng, H * b, t)], axis=1
        )
        X, Y = product(X, gauge), product(Y, inverse(gauge).T)
        assert (product(X, Y.T) == product(D, A, D.T)).all()
        sizes = rank(product(N, X)), rank(product(N, Y))
        assert sizes == (min(s, room), min(t, room))
        assert (product(X, product(N, Y).T) == 0).all()
        # the derivative's lemma: Y p is in col D for p orthogonal to V_Y
        p = null_space(product(N, Y)) if sizes[1] else np.eye(d, dtype=np.int64)
        assert rank(np.concatenate([D, product(Y, p)], axis=1)) == b
