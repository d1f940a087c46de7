"""The finite steps of docs/proofs/sharper-frontier.md, exactly: hosts, Jacobians and spans modulo a prime."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from residue_hosts import (
    PRIME,
    drawn,
    product,
    rank,
)

# --- the bounds ------------------------------------------------------------------------------------------


# --- hosts -----------------------------------------------------------------------------------------------


B_SHAPES = [
    (2, 1, 1, 2),
    (5, 1, 1, 3),
    (2, 2, 1, 1),
    (2, 2, 1, 2),
    (1, 2, 1, 2),
    (2, 2, 1, 3),
    (1, 3, 1, 2),
    (2, 2, 2, 3),
]
B_SHAPES += [(3, 2, 1, 2), (2, 2, 2, 5), (2, 3, 1, 2), (4, 2, 1, 2), (3, 2, 1, 4), (2, 3, 1, 3)]


JACOBIANS = [
    ("B", 2, 1, 1, 2),
    ("B", 2, 2, 1, 1),
    ("B", 2, 2, 1, 2),
    ("B", 1, 2, 1, 2),
    ("B", 2, 2, 1, 3),
    ("C", 1, 2, 1, 1),
    ("C", 2, 1, 1, 2),
]
JACOBIANS += [
    ("C", 1, 2, 1, 3),
    ("B", 2, 2, 2, 5),
    ("B", 2, 3, 1, 2),
    ("B", 3, 2, 1, 4),
    ("B", 2, 3, 1, 3),
    ("B", 3, 2, 1, 2),
    ("C", 2, 2, 1, 2),
    ("C", 1, 2, 2, 3),
]


# --- steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "d", "b"), [(2, 1, 2), (1, 1, 3), (3, 1, 2), (2, 2, 3)])
def test_base_cases_span(H, d, b):
    rng = np.random.default_rng(1)
    for rho in {b, max(d, min(H * d, b))}:
        plain, stream = [], []
        for _ in range((H + 1) * b * b + 2):
            M = [product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H)]
            front, G = drawn(rng, rho, b), drawn(rng, b, b)
            plain.append(np.concatenate([product(front, m) for m in M]).ravel())
            stream.append(np.concatenate([G, *(product(G, m) for m in M)]).ravel())
        assert rank(np.array(plain)) == H * rho * b
        assert rank(np.array(stream)) == (H + 1) * b * b
        fixed = [np.concatenate([np.eye(b, dtype=np.int64).ravel(), row[b * b :]]) for row in stream]
        assert rank(np.array(fixed)) == H * b * b + 1  # without a matrix in front M_{0...0} = I does not vary


@pytest.mark.parametrize(("H", "rho", "d", "n"), [(2, 3, 2, 2), (2, 4, 2, 1), (3, 3, 1, 2), (1, 4, 3, 2), (2, 2, 2, 2)])
def test_room_of_random_spaces(H, rho, d, n):
    """dim pi >= (rho/d) dim P_B for random B and random spaces; equality for spaces that are products over the rows."""
    rng = np.random.default_rng(2)
    size = H * rho * n
    for dimension in range(0, size + 1, max(1, size // 6)):
        space = drawn(rng, dimension, size)
        assert rho * room(rng, space, H, rho, d, n) <= d * rank(space)
    # {(row-wise copies of a fixed subspace of R^(H x n))}
    kept = drawn(rng, max(1, H * n // 2), H, n)
    rows = []
    for r, part in itertools.product(range(rho), kept):
        element = np.zeros((H, rho, n), dtype=np.int64)
        element[:, r] = part
        rows.append(element.ravel())
    space = np.array(rows)
    eye = [np.eye(rho, d, dtype=np.int64)] * H
    found = room(rng, space, H, rho, d, n, eye)
    assert rho * found == d * rank(space)
    assert (rho + 1) * found > d * rank(space)  # a larger factor would be false


@pytest.mark.parametrize(("H", "d", "b", "n"), [(1, 1, 3, 2), (2, 1, 4, 1), (1, 2, 5, 1), (1, 1, 2, 2)])
def test_room_of_random_spaces_with_a_stream(H, d, b, n):
    """dim pi_0 >= b/(b - H d) dim P_C for random spaces; equality for products that live in block 0, and no larger factor."""
    rng, lam = np.random.default_rng(4), H + 1
    parts = [drawn(rng, b, b), *(product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H))]
    size = lam * b * n
    for dimension in range(0, size + 1, max(1, size // 6)):
        space = drawn(rng, dimension, size)
        assert b * stream_room(space, parts, n) <= (b - H * d) * rank(space)
    rows = [np.eye(1, size, r * n + c, dtype=np.int64)[0] for r in range(b) for c in range(n)]
    at = [range(b - H * d), *(range(b - (H - i) * d, b - (H - i - 1) * d) for i in range(H))]
    chosen = [np.diag([int(r in part) for r in range(b)]) for part in at]
    found = stream_room(np.array(rows), chosen, n)
    assert b * found == (b - H * d) * len(rows)
    assert stream_room(np.array(rows), parts, n) <= found


def stream_room(space, parts, n):
    """dim {p : C p in the span of the rows of space}, C = parts stacked."""
    C, b = np.concatenate(parts), len(parts[0])
    images = np.array([(C @ np.eye(1, b * n, j, dtype=np.int64).reshape(b, n) % PRIME).ravel() for j in range(b * n)])
    return b * n + rank(space) - rank(np.concatenate([images, space]))


def room(rng, space, H, rho, d, n, blocks=None):
    """dim {p : B p in the span of the rows of space}."""
    B = np.zeros((H * rho, H * d), dtype=np.int64)
    for i in range(H):
        B[i * rho : i * rho + rho, i * d : i * d + d] = drawn(rng, rho, d) if blocks is None else blocks[i]
    images = []
    for j in range(H * d * n):
        p = np.zeros((H * d, n), dtype=np.int64)
        p.ravel()[j] = 1
        images.append((B @ p % PRIME).ravel())
    return len(images) + rank(space) - rank(np.concatenate([np.array(images), space]))


@pytest.mark.parametrize(
    ("H", "d", "b"), [(1, 1, 2), (1, 1, 3), (2, 1, 3), (2, 1, 4), (1, 2, 3), (1, 2, 5), (3, 2, 8), (3, 2, 9)]
)
def test_side_by_side_with_a_stream(H, d, b):
    rng, lam = np.random.default_rng(3), H + 1
    tall = [
        np.concatenate([drawn(rng, b, b), *(product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H))])
        for _ in range(lam)
    ]
    assert (rank(np.concatenate(tall, axis=1)) == lam * b) == (lam * d >= b)
    if lam * d >= b:
        D = [np.diag([int(a // d == s) for a in range(b)]) for s in range(lam)]
        whole = np.block([[D[(i + k) % lam] for k in range(lam)] for i in range(lam)])
        assert (whole.sum(axis=0) == 1).all()
        assert (whole.sum(axis=1) == 1).all()


def no_scales(l0, k0, l1, k1, gamma, p):
    """No s, t != 0 solve (5) for either permutation; l, k the coefficients of queries and keys."""
    for s, t in itertools.product(range(1, p), repeat=2):
        s_, t_ = pow(s, -1, p), pow(t, -1, p)
        same = (l0 * s + l1 * t) % p == 0 and (k0 * s_ + gamma * k1 * t_) % p == 0
        other = (l0 * t + l1 * s) % p == 0 and (gamma * k0 * t_ + k1 * s_) % p == 0
        if same or other:
            return False
    return True


def test_one_layer_no_scales():
    """Theorem D (i), last case, modulo 31: every gamma but the two named ones works; the named ones do not."""
    p = 31
    for l0, k0, l1, k1 in [(1, 1, 1, 1), (1, 2, 3, 4), (5, 7, 11, 13), (2, 3, 30, 17), (1, 1, 1, 30)]:
        named = {l0 * k0 * pow(l1 * k1, -1, p) % p, l1 * k1 * pow(l0 * k0, -1, p) % p}
        assert {gamma for gamma in range(1, p) if not no_scales(l0, k0, l1, k1, gamma, p)} == named
    # one coefficient zero: no gamma fails
    assert all(no_scales(1, 2, 0, 3, gamma, p) for gamma in range(1, p))


def test_the_quartic():
    """P(t_0) <= 0 exactly, and at a solution of (6) with y != 0 t = y^2 is a root."""
    rng = np.random.default_rng(3)

    def quartic(t, a, b, c):
        return 4 * t * t * (t + a) * (t + c) - (t * t + (2 * b + a + c) * t - b * b) ** 2

    for _ in range(300):
        x, y, z = (Fraction(int(n), 7) for n in rng.integers(-20, 21, 3))
        a, b, c = x * (x - 2 * y), y * (x + y + z), z * (z + 2 * y)
        t = max(Fraction(0), -a, -c)
        assert quartic(t, a, b, c) <= 0 <= quartic(10**6, a, b, c)
        assert quartic(y * y, a, b, c) == 0
        assert y * y >= t  # no root is lost below t_0
        assert quartic(y * y, a, b + 1, c) != 0 or y == 0 or b + 1 == b
