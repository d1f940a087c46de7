"""docs/proofs/random-looped.md: random looped hosts below M, in the page's own definitions."""

import itertools
import math

import numpy as np
import pytest
from naive import words
from scipy.optimize import least_squares

from utfproof.certificates.linear_test import test_columns as kept_columns
from utfproof.constructions import build_host
from utfproof.matching import r_all
from utfproof.shapes import Shape, linear_test_dimension, matching_dimension, paper_looped_dimension


def drawn(rng, H, m, d, b):
    """A tied host R_Q, R_K [H, m, d], R_V [H, m, m], U [m, b], scaled so that words of any length stay of order one."""
    bound = math.sqrt(3 / m)
    return [rng.uniform(-bound, bound, shape) for shape in ((H, m, d), (H, m, d), (H, m, m), (m, b))]


def attend(x, queries, keys):
    logits = (x @ queries) @ (x @ keys).T
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def wide_embedding(host, forms, values, eps):
    """E of section 1, keys found by iterating kappa_h = A^hT (P P^T)^-1 P."""
    R_Q, R_K, R_V, U = host
    b, d = U.shape[1], R_Q.shape[2]
    rest = np.hstack([*R_K, *(R_V @ U)])
    inverse = np.linalg.pinv(rest)  # a left inverse: rest has independent columns
    null = np.eye(len(rest)) - rest @ inverse
    E_0 = np.random.default_rng(9).normal(size=(b, len(rest))) @ null
    kappa = np.zeros((len(forms), b, d))
    for _ in range(60):
        E = E_0 + eps * np.hstack([*(eps * kappa), *values]) @ inverse
        P = E @ R_Q
        kappa = np.array([A.T @ np.linalg.solve(p @ p.T, p) for A, p in zip(forms, P, strict=True)])
    return E / eps


@pytest.mark.parametrize(("H", "d", "b"), [(3, 1, 1), (4, 1, 1), (3, 2, 2), (7, 3, 2)])
def test_random_one_layer_serves(H, d, b):
    """At m-bar-loop < M, all targets: forms of one sign, of both, and zero; outputs under softmax agree."""
    rng = np.random.default_rng(H)
    shape = Shape(H, 1, d, b)
    assert H * (d + b) + b <= paper_looped_dimension(shape) < matching_dimension(shape)
    for kind in range(4):
        host = drawn(rng, H, paper_looped_dimension(shape), d, b)
        forms, values = rng.normal(size=(2, H, b, b))
        forms = [forms, np.abs(forms), -np.abs(forms), 0 * forms][kind]
        E = wide_embedding(host, forms, values, eps=2.0**-10)
        R_Q, R_K, R_V, U = host
        x = rng.uniform(-1, 1, (5, b))
        own = sum(attend(x, A, np.eye(b)) @ x @ M for A, M in zip(forms, values, strict=True))
        z = x @ E
        found = sum(attend(z, q, k) @ z @ v @ U for q, k, v in zip(R_Q, R_K, R_V, strict=True))
        # keys are differences of numbers 1/eps times as large as they, and queries are 1/eps: u/eps^2, times a condition number
        assert np.abs(found - own).max() < 1e4 * 2.0**-52 * 2.0**20


def test_strata_are_small():
    """Section 3: M_{L-t} + c_t <= m-bar-loop for 1 <= t < L, wherever m-bar-loop < M."""
    seen = 0
    for H, L, d, b in itertools.product(range(2, 6), range(2, 7), range(1, 9), range(1, 9)):
        m = paper_looped_dimension(Shape(H, L, d, b)) if d <= b else 0
        if d > b or m >= 2 * d * sum(H**t for t in range(1, L + 1)) + b * H**L:
            continue
        for t in range(1, L):
            readers = 2 * d * sum(H**s for s in range(1, L - t + 1)) + b * H ** (L - t)
            assert readers + b * sum(H**s for s in range(t + 1)) - 1 < m
            seen += 1
        assert b < 2 * d * H
    assert seen > 1000


def gauge_residual(host, H, L, rng, starts):
    """d = b = 1: the least |W_all(theta gamma) Z| over the gauges found from some starts, Z the kernel of R_all."""
    R_Q, R_K, R_V, U = host
    routed = {(): np.eye(len(U))}
    for length in range(1, L + 1):
        for w in words(H, length):
            routed[w] = routed[w[:-1]] @ R_V[w[-1]]
    readers = [(w, h) for length in range(L) for w in words(H, length) for h in range(H)]
    R_all = np.hstack([*(routed[w] @ R_Q[h] for w, h in readers), *(routed[w] @ R_K[h] for w, h in readers),
                       *(routed[w] @ U for w in words(H, L))])  # fmt: skip
    kernel = np.linalg.svd(R_all)[2][len(U) :].T
    M = rng.normal(size=(L, H))
    forms = rng.normal(size=L * H)
    product = {w: math.prod(M[t, h] for t, h in enumerate(w)) for length in range(L + 1) for w in words(H, length)}
    carried, which = np.array([product[w] for w, _ in readers])[:, None], [len(w) * H + h for w, h in readers]
    queries, keys, rest = np.split(kernel, [len(readers), 2 * len(readers)])
    by_head = np.eye(L * H)[which].T
    from_queries, from_keys = by_head @ (carried * queries), forms[:, None] * (by_head @ (carried * keys))
    fixed = np.array([product[w] for w in words(H, L)]) @ rest
    sizes = rng.choice([-1, 1], (starts, L * H)) * 10 ** rng.uniform(-0.5, 1.5, (starts, L * H))
    found = [
        least_squares(
            lambda gauge: gauge @ from_queries + (1 / gauge) @ from_keys + fixed,
            start,
            jac=lambda gauge: (from_queries - from_keys / gauge[:, None] ** 2).T,
            xtol=1e-15, ftol=1e-15, gtol=1e-15,
        ).fun
        for start in sizes
    ]  # fmt: skip
    return min(np.abs(fun).max() for fun in found)


@pytest.mark.full
@pytest.mark.parametrize(("H", "L", "served"), [(2, 2, True), (3, 2, False), (2, 4, False)])
def test_gauges_run_out(H, L, served):
    shape = Shape(H, L, 1, 1)
    m = paper_looped_dimension(shape)
    assert (matching_dimension(shape) - m <= L * H) == served
    rng = np.random.default_rng(5)
    least = min(gauge_residual(drawn(rng, H, m, 1, 1), H, L, rng, starts=8) for _ in range(2))
    assert (least < 1e-10) if served else (least > 1e-4)


@pytest.mark.parametrize("entry", [(1, 1, 2, 1), (2, 1, 3, 2), (2, 2, 2, 1), (3, 2, 3, 2), (2, 3, 2, 2)])
def test_shorter_query_halves(entry):
    """Section 4: without the coordinates that the left out query columns alone read, the trie is a tied host of as many
    dimensions as the test has columns, and these are different unit vectors."""
    shape = Shape(*entry)
    host = build_host("tied", shape)
    matrix, kept = np.array(r_all(host).to_dense(np.int64)), kept_columns(shape)
    left_out = np.setdiff1d(np.arange(matrix.shape[1]), kept)
    stay = np.flatnonzero(matrix[:, left_out].sum(axis=1) == 0)
    assert len(stay) == len(kept) == linear_test_dimension(shape)
    R_Q, R_K, R_V = (
        [np.array(part.to_dense(np.int64))[stay] for part in grid] for grid in (host.R_Q, host.R_K, host.R_V)
    )
    R_V, U = [part[:, stay] for part in R_V], np.array(host.U.to_dense(np.int64))[stay]
    columns = []
    for length in range(1, shape.layers + 1):
        for word in words(shape.heads, length):
            moved = np.eye(len(stay), dtype=np.int64)
            for head in word[:-1]:
                moved = moved @ R_V[head]
            columns += [*(moved @ R_Q[word[-1]])[:, : shape.d_in].T, *(moved @ R_K[word[-1]]).T]
            if length == shape.layers:
                columns += [*(moved @ R_V[word[-1]] @ U).T]
    found = np.array(columns)
    assert found.shape == (len(stay), len(stay))
    assert (found.sum(axis=0) == 1).all()
    assert (found.sum(axis=1) == 1).all()
    assert set(found.flat) == {0, 1}
