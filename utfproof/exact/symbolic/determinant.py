"""The determinant polynomial p of R_all at m = M: its degree, its restriction to lines, and Schwartz-Zippel bounds.

p is nonzero as soon as one assignment gives a nonzero determinant; then it vanishes with probability 0 for every
absolutely continuous law, and with probability at most degree / |S| when entries are drawn from a finite set S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.errors import Refuted
from utfproof.ground.arrays import exact
from utfproof.ground.progress import stage
from utfproof.shapes import Shape, positive_integer, require_plain

# --- degree --------------------------------------------------------------------------------------------------------


def determinant_degree(shape: Shape) -> int:
    """Degree of p: 2 d sum_l l H^l + d_out H^L (L + 1). Exact, tied or not: columns are homogeneous and p is nonzero."""
    H, L = require_plain(shape, "the determinant's degree").heads, shape.layers
    readers = 2 * shape.head_dim * sum(layer * H**layer for layer in range(1, L + 1))
    return int(readers + shape.d_out * H**L * (L + 1))


# --- p on a line ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinePolynomial:
    """det R(t) as a polynomial in t with integer coefficients, ascending; no trailing zeros, () for zero.

    Interpolated exactly at `bound` + 1 integers (determinants by FLINT), then confirmed at the `fresh` points by
    fraction-free elimination in plain integers.
    """

    coefficients: tuple[int, ...]
    bound: int
    fresh: tuple[int, ...]
    routes: tuple[str, ...] = ("FLINT", "plain integers")

    @property
    def degree(self) -> int:
        """Its degree, -1 for zero."""
        return len(self.coefficients) - 1

    @property
    def constant(self) -> int:
        """The value at t = 0, where the line starts."""
        return self.coefficients[0] if self.coefficients else 0

    def __call__(self, t: int) -> int:
        value = 0
        for coefficient in reversed(self.coefficients):
            value = value * t + coefficient
        return value


def along_line(
    r_all: Callable[..., Any], start: Sequence[Any], direction: Sequence[Any]
) -> Callable[[int], list[list[int]]]:
    """t -> r_all(*(start + t direction)) for parameter arrays such as (R_Q, R_K, R_V, U), in exact integers."""
    pairs = [(exact(a), exact(b)) for a, b in zip(start, direction, strict=True)]
    return lambda t: np.asarray(r_all(*(a + t * b for a, b in pairs)), dtype=object).tolist()


def line_polynomial(evaluate_at: Callable[[int], Any], degree_bound: int, *, fresh: int = 3) -> LinePolynomial:
    """det evaluate_at(t) as an exact polynomial of degree at most `degree_bound` (see `determinant_degree`).

    evaluate_at(t) is a square integer matrix for every integer t. Raises Refuted when a fresh point disagrees: then the
    determinant is no such polynomial.
    """
    from flint import fmpz_mat

    # 0, 1, -1, 2, -2, ...: small numbers first
    order = [(k + 1) // 2 * (1 if k % 2 else -1) for k in range(degree_bound + 1 + fresh)]
    points, checks = order[: degree_bound + 1], order[degree_bound + 1 :]
    with stage("determinants along a line", len(order), unit="determinants") as doing:
        values = []
        for t in points:
            values.append(int(fmpz_mat(evaluate_at(t)).det()))
            doing.advance()
        found = LinePolynomial(_interpolate(points, values), degree_bound, tuple(checks))
        for t in checks:
            expected = integer_determinant(evaluate_at(t))
            doing.advance()
            if found(t) != expected:
                raise Refuted(
                    f"the determinant along this line is no polynomial of degree at most {degree_bound}: at t = {t} it is "
                    f"{expected}, the interpolation gives {found(t)}"
                )
    return found


def _interpolate(points: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    """Integer coefficients of the polynomial through these values (Newton's divided differences, over FLINT's rationals)."""
    from flint import fmpq, fmpq_poly

    table = [fmpq(value) for value in values]
    for width in range(1, len(points)):
        for i in reversed(range(width, len(points))):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - width])
    total = fmpq_poly([0])
    for point, coefficient in zip(reversed(points), reversed(table), strict=True):
        total = total * fmpq_poly([-point, 1]) + coefficient
    out = [Fraction(int(c.p), int(c.q)) for c in total.coeffs()]
    if any(c.denominator != 1 for c in out):
        raise Refuted(f"no polynomial of degree at most {len(points) - 1} with integer coefficients has these values")
    return tuple(int(c) for c in out)


def integer_determinant(matrix: Sequence[Sequence[int]]) -> int:
    """Determinant in plain integers, by fraction-free elimination (Bareiss)."""
    table = [list(row) for row in matrix]
    sign, previous = 1, 1
    for k in range(len(table) - 1):
        pivot = next((i for i in range(k, len(table)) if table[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            table[k], table[pivot], sign = table[pivot], table[k], -sign
        top = table[k]
        for row in table[k + 1 :]:
            head = row[k]
            for j in range(k + 1, len(table)):
                row[j] = (row[j] * top[k] - head * top[j]) // previous
        previous = top[k]
    return sign * table[-1][-1]


# --- probabilities -------------------------------------------------------------------------------------------------


def schwartz_zippel_bound(shape: Shape, size_of_set: int) -> Fraction:
    """P[rank R_all < M] <= degree / |S| for parameters drawn independently and uniformly from a set of this size, m >= M.

    S may lie in any field: p has integer coefficients and takes the value 1 or -1 at a {0,1} assignment.
    """
    return Fraction(determinant_degree(shape), positive_integer("size of the set", size_of_set))
