"""Bilinear maps for the middle layer of a host of odd depth: how small, and onto which weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import rank_of_matrix
from utfproof.constructions.middle import Bilinear, path_bilinear, polynomial_bilinear, two_stars_bilinear


def _differential(bilinear: Bilinear, p: Sequence[Any], u: Sequence[Any]) -> list[list[Any]]:
    """Rows: the derivatives of B(p, u) by each p_i and each u_j."""
    rows = []
    for i in range(len(p)):
        rows.append([sum(int(matrix[i, j]) * u[j] for j in range(len(u))) for matrix in bilinear.matrices])
    for j in range(len(u)):
        rows.append([sum(int(matrix[i, j]) * p[i] for i in range(len(p))) for matrix in bilinear.matrices])
    return rows


@check("new:bilinear/least")
def bilinear_least(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the differential for the path, and the vector in its kernel."""
    for heads in range(1, 13):
        bilinear = path_bilinear(heads)
        s, t = bilinear.matrices.shape[1:]
        p, u = [i + 2 for i in range(s)], [j * j + 3 for j in range(t)]
        rows = _differential(bilinear, p, u)
        found = rank_of_matrix(rows)
        euler = plain.multiply([[*p, *(-v for v in u)]], rows) == [[0] * heads]
        q = bilinear.size
        holds = found.value == heads and euler and s + t - 1 == heads and 2 * q - 1 >= heads > 2 * (q - 1) - 1
        yield Instance(f"H = {heads}", holds, f"rank {found.value}, q = {q}", routes=found.routes)
        if heads in (3, 12):
            yield Figure(f"q at H = {heads}", q)


@check("new:bilinear/onto")
def bilinear_onto(run: Run) -> Iterator[Instance | Figure]:
    """Factorisations of integer polynomials, with zeros at either end, multiplied back."""
    for heads in (2, 4, 5, 6, 8, 9):
        bilinear = polynomial_bilinear(heads)
        s, t = bilinear.matrices.shape[1:]
        worst = 0.0
        for seed in range(4):
            c = [float((7 * i * i + 3 * seed * i + seed) % 11 - 5) for i in range(heads)]
            c = [0.0, *c[1:]] if seed == 2 else [*c[:-1], 0.0] if seed == 3 else c
            assert bilinear.solve is not None
            p, u = bilinear.solve(c)
            worst = np.max([worst, *(abs(a - b) for a, b in zip(bilinear(p, u), c, strict=True))])
        even_degree = (s - 1) % 2 == 0 or (t - 1) % 2 == 0
        holds = worst < 1e-8 and even_degree and bilinear.size == (heads + 2) // 2
        yield Instance(f"H = {heads}", holds, f"error {worst:.0e}, q = {bilinear.size}")
        if heads in (4, 5, 9):
            yield Figure(f"q at H = {heads}", bilinear.size)


@check("new:bilinear/three")
def bilinear_three(run: Run) -> Iterator[Instance | Figure]:
    """For each small Z a Y among small matrices for which the quadratic det(Y + tZ) has no real zero."""
    small = [tuple(v - 2 for v in word) for word in plain.words(5, 4)]
    trials = sorted(small, key=lambda y: sum(map(abs, y)))
    kernels = [z for z in small if any(z)]
    missed = sum(any(_no_real_zero(y, z) for y in trials) for z in kernels)
    yield Instance("kernels", missed == len(kernels), f"{missed} of {len(kernels)} maps miss a vector")
    yield Figure("kernels examined", len(kernels))
    yield Figure("size of two stars at H = 3", two_stars_bilinear(3).size)


def _no_real_zero(y: tuple[int, ...], z: tuple[int, ...]) -> bool:
    """Whether det(Y + tZ), a polynomial in t, has no real zero."""
    a = z[0] * z[3] - z[1] * z[2]
    b = y[0] * z[3] + z[0] * y[3] - y[1] * z[2] - z[1] * y[2]
    c = y[0] * y[3] - y[1] * y[2]
    if a == 0:
        return b == 0 and c != 0
    return b * b - 4 * a * c < 0


def corrected_product(i: int) -> tuple[np.ndarray, list[list[int]]]:
    """(4e, [the points of l, those of l']): the form of degree 4i, leading coefficient first, that corrects products of forms
    of degree 2i, and the points at which u and p are evaluated."""
    e = np.array([4, -4 * i, -(2 * i + 1)], dtype=object)  # (2x + 1)(2x - 2i - 1)
    for k in range(1, 2 * i):
        e = np.convolve(e, np.array([1, 0, k * k], dtype=object))
    return e, [list(range(i + 1)), list(range(i + 1, 2 * i + 2))]


def corrected_matrices(heads: int) -> np.ndarray:
    """B_h [H, q, q], H = 4i + 3, q = 2i + 2, of ((p, s), (u, t)) -> (4 p u + s t e, s l(u), t l'(p)), e as above."""
    i, q = (heads - 3) // 4, (heads + 1) // 2
    e, points = corrected_product(i)
    found = np.zeros((heads, q, q), dtype=object)
    for a in range(q - 1):
        for b in range(q - 1):
            found[a + b, a, b] = 4
        found[heads - 2, q - 1, a] = sum(x ** (q - 2 - a) for x in points[0])
        found[heads - 1, a, q - 1] = sum(x ** (q - 2 - a) for x in points[1])
    found[: heads - 2, q - 1, q - 1] = e
    return found


@check("new:bilinear/three-mod-four")
def bilinear_three_mod_four(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the differential at an integer point, and the signs that the proof starts from."""
    for heads in (7, 11, 15, 19):
        i, matrices = (heads - 3) // 4, corrected_matrices(heads)
        q = matrices.shape[1]
        bilinear = Bilinear("corrected products", matrices)
        found = rank_of_matrix(_differential(bilinear, [k + 2 for k in range(q)], [k * k + 3 for k in range(q)]))
        e, (low, high) = corrected_product(i)
        values = [sum(int(c) * x ** (4 * i - k) for k, c in enumerate(e)) for x in (*low, *high)]
        signs = all(v < 0 for v in values[: i + 1]) and all(v > 0 for v in values[i + 1 :])
        apart = len({*low, *high}) == 2 * i + 2
        holds = found.value == heads == 2 * q - 1 and signs and apart and q == path_bilinear(heads).size
        yield Instance(f"H = {heads}", holds, f"rank {found.value}, q = {q}", routes=found.routes)
        if heads == 7:
            yield Figure("q at H = 7", q)
