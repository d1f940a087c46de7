"""The determinant polynomial p of R_all at m = M: its degree, its restriction to lines, and Schwartz-Zippel bounds.

p is nonzero as soon as one assignment gives a nonzero determinant; then it vanishes with probability 0 for every
absolutely continuous law, and with probability at most degree / |S| when entries are drawn from a finite set S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from math import isqrt
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, Refuted, ResourceLimit
from utfproof.exact.symbolic.generic import (
    Entry,
    GenericMatrix,
    Layout,
    evaluate,
    from_ring,
    generic_r_all,
    require_small,
    require_terms,
)
from utfproof.exact.symbolic.results import ROUTES, RoutesDisagree
from utfproof.ground.progress import Stage, stage
from utfproof.shapes import Shape, column_groups, matching_dimension, positive_integer, require_plain

# --- degree --------------------------------------------------------------------------------------------------------


def column_degrees(shape: Shape) -> list[int]:
    """Degree of each column of R_all in the parameters, canonical order: l for a Q or K column of layer l, L + 1 for OV."""
    out: list[int] = []
    for group in column_groups(require_plain(shape, "the degree of a column")):
        degree = group.length + 1 if group.kind == "OV" else group.length
        out.extend([degree] * (group.words * group.width))
    return out


def determinant_degree(shape: Shape) -> int:
    """Degree of p: 2 d sum_l l H^l + d_out H^L (L + 1). Exact, tied or not: columns are homogeneous and p is nonzero."""
    H, L = require_plain(shape, "the determinant's degree").heads, shape.layers
    readers = 2 * shape.head_dim * sum(layer * H**layer for layer in range(1, L + 1))
    return int(readers + shape.d_out * H**L * (L + 1))


def homogeneous_columns(generic: GenericMatrix) -> tuple[bool, str]:
    """Whether all entries of each column have all their terms of the degree that `column_degrees` names, and if not the
    first exception. SymPy's exponents and the monomials' lengths must agree on it."""
    for column, degree in enumerate(column_degrees(generic.layout.shape)):
        for row in range(generic.layout.m):
            counted = {len(monomial) for monomial in generic.entries[row][column]}
            if counted != {sum(exponents) for exponents in generic.ring_entries[row][column].monoms()}:
                raise RoutesDisagree(f"degrees of entry ({row}, {column}): SymPy and plain integers differ")
            if counted != {degree}:
                return False, f"entry ({row}, {column}) has terms of degree {sorted(counted)}, expected {degree}"
    return True, ""


# --- p in full -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeterminantPolynomial:
    """p = det R_all in full, at m = M. `polynomial` maps monomials (symbol numbers of `layout`) to coefficients."""

    layout: Layout
    polynomial: Entry
    routes: tuple[str, ...] = ROUTES

    @property
    def terms(self) -> int:
        """Monomials of p."""
        return len(self.polynomial)

    @property
    def degrees(self) -> tuple[int, ...]:
        """The total degrees that occur, ascending: one when p is homogeneous, none when p is zero."""
        return tuple(sorted({len(monomial) for monomial in self.polynomial}))

    def evaluate(self, values: Sequence[int]) -> int:
        """p at one integer per symbol (`GenericMatrix.values`)."""
        return evaluate(self.polynomial, values)


def determinant_polynomial(shape: Shape, *, tied: bool = False) -> DeterminantPolynomial:
    """p fully expanded at m = M. Routes: minors along the columns in SymPy's ring; the permutation sum, in plain Python.

    Raises ResourceLimit beyond the smallest shapes: M! times the terms of the columns. Use `line_polynomial` there.
    """
    require_small(shape)
    M = matching_dimension(shape)
    layout = Layout(shape, M, tied)
    expanded = 1
    for k, degree in enumerate(column_degrees(shape), start=1):
        expanded *= k * M ** (degree - 1)
        require_terms(
            expanded, layout.size, f"the list of partial products of det R_all at {shape}, over its first {k} columns,"
        )
    generic = generic_r_all(shape, tied=tied)
    found = from_ring(_by_minors(generic.ring_entries))
    if found != _by_permutations(generic.entries):
        raise RoutesDisagree(f"det R_all in symbols at {shape}: SymPy and plain integers differ")
    return DeterminantPolynomial(layout, found)


def _by_minors(entries: list[list[Any]]) -> Any:
    """Determinant from the minors of the first k columns, k = 1, 2, ...: every minor once."""
    size = len(entries)
    minors: dict[tuple[int, ...], Any] = {(row,): entries[row][0] for row in range(size)}
    for column in range(1, size):
        longer = {}
        for rows in combinations(range(size), column + 1):
            total = None
            for place, row in enumerate(rows):
                term = entries[row][column] * minors[rows[:place] + rows[place + 1 :]]
                term = term if (place + column) % 2 == 0 else -term
                total = term if total is None else total + term
            longer[rows] = total
        minors = longer
    return minors[tuple(range(size))]


def _by_permutations(entries: list[list[Entry]]) -> Entry:
    size = len(entries)
    out: Entry = {}
    for rows in permutations(range(size)):
        sign = 1 - 2 * (sum(rows[i] > rows[j] for i, j in combinations(range(size), 2)) % 2)
        terms: Entry = {(): sign}
        for column, row in enumerate(rows):
            terms = {a + b: x * y for a, x in terms.items() for b, y in entries[row][column].items()}
        for monomial, coefficient in terms.items():
            key = tuple(sorted(monomial))
            out[key] = out.get(key, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in out.items() if coefficient}


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

    @property
    def leading(self) -> int:
        """The coefficient of t^bound: the determinant at the direction itself when `bound` is the degree of p."""
        return self.coefficients[-1] if self.degree == self.bound else 0

    def __call__(self, t: int) -> int:
        value = 0
        for coefficient in reversed(self.coefficients):
            value = value * t + coefficient
        return value


def along_line(
    r_all: Callable[..., Any], start: Sequence[Any], direction: Sequence[Any]
) -> Callable[[int], list[list[int]]]:
    """t -> r_all(*(start + t direction)) for parameter arrays such as (R_Q, R_K, R_V, U), in exact integers.

    Parameters reach `r_all` as object arrays of Python ints. Raises MalformedInput where the two do not fit.
    """
    pairs = []
    for a, b in zip(start, direction, strict=True):
        first, second = (_object_array(x) for x in (a, b))
        if first.shape != second.shape:
            raise MalformedInput(f"start and direction differ in shape: {list(first.shape)} and {list(second.shape)}")
        pairs.append((first, second))
    return lambda t: _integers(r_all(*(a + t * b for a, b in pairs)))


def _object_array(array: Any) -> np.ndarray:
    source = np.asarray(array)
    out = np.empty(source.shape, dtype=object)
    flat = out.reshape(-1)
    for i, x in enumerate(source.reshape(-1)):
        flat[i] = _integer(x)
    return out


def _integer(x: Any) -> int:
    value = int(x)
    if value != x:
        raise MalformedInput(f"{x!r} is not an integer")
    return value


def _integers(matrix: Any) -> list[list[int]]:
    return [[_integer(x) for x in row] for row in matrix]


def line_polynomial(
    evaluate_at: Callable[[int], Any],
    degree_bound: int,
    *,
    fresh: int = 3,
    rows: Sequence[int] | None = None,
    seconds: float | None = None,
) -> LinePolynomial:
    """det evaluate_at(t) as an exact polynomial of degree at most `degree_bound` (see `determinant_degree`).

    evaluate_at(t) is a square integer matrix for every integer t, or has the named rows taken from it. Raises Refuted
    when a fresh point disagrees: then the determinant is no such polynomial. MalformedInput for anything not square.
    ResourceLimit past `seconds`.
    """
    if degree_bound < 0 or fresh < 1:
        raise MalformedInput(f"degree bound {degree_bound} and fresh points {fresh} must be at least 0 and 1")
    from flint import fmpz_mat

    def square(t: int) -> list[list[int]]:
        table = _integers(evaluate_at(t))
        table = table if rows is None else [table[row] for row in rows]
        if not table or any(len(row) != len(table) for row in table):
            raise MalformedInput(f"a determinant needs a square matrix, got rows of {[len(r) for r in table][:3]} ...")
        return table

    # 0, 1, -1, 2, -2, ...: small numbers first
    order = [(k + 1) // 2 * (1 if k % 2 else -1) for k in range(degree_bound + 1 + fresh)]
    points, checks = order[: degree_bound + 1], order[degree_bound + 1 :]
    atmost = "" if seconds is None else f", at most {seconds:g} s"
    with stage(f"determinants along a line{atmost}", len(order), unit="determinants") as doing:
        within = _within(seconds, doing)
        values = []
        for t in points:
            within()
            values.append(int(fmpz_mat(square(t)).det()))
            doing.advance()
        found = LinePolynomial(_interpolate(points, values, within), degree_bound, tuple(checks))
        _confirm(found, square, within, doing)
    return found


def _within(seconds: float | None, doing: Stage) -> Callable[[], None]:
    """What raises ResourceLimit once so many seconds have passed from now."""
    begun = time.monotonic()

    def check() -> None:
        if seconds is not None and time.monotonic() - begun > seconds:
            raise ResourceLimit(
                f"determinants along a line: {doing.done:.0f} of {doing.total:.0f} are known after the limit of {seconds:g} s; "
                "choose a smaller shape or raise --seconds"
            )

    return check


def _confirm(
    found: LinePolynomial, square: Callable[[int], list[list[int]]], within: Callable[[], None], doing: Stage
) -> None:
    """Refuted where a fresh point disagrees."""
    for t in found.fresh:
        expected = integer_determinant(square(t), within)
        doing.advance()
        if found(t) != expected:
            raise Refuted(
                f"the determinant along this line is no polynomial of degree at most {found.bound}: at t = {t} it is "
                f"{expected}, the interpolation gives {found(t)}"
            )


def _interpolate(points: Sequence[int], values: Sequence[int], within: Callable[[], None]) -> tuple[int, ...]:
    """Integer coefficients of the polynomial through these values (Newton's divided differences, over FLINT's rationals)."""
    from flint import fmpq, fmpq_poly

    table = [fmpq(value) for value in values]
    for width in range(1, len(points)):
        within()
        for i in reversed(range(width, len(points))):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - width])
    total = fmpq_poly([0])
    for point, coefficient in zip(reversed(points), reversed(table), strict=True):
        within()
        total = total * fmpq_poly([-point, 1]) + coefficient
    out = [Fraction(int(c.p), int(c.q)) for c in total.coeffs()]
    if any(c.denominator != 1 for c in out):
        raise Refuted(f"no polynomial of degree at most {len(points) - 1} with integer coefficients has these values")
    return tuple(int(c) for c in out)


def integer_determinant(matrix: Sequence[Sequence[int]], within: Callable[[], None] = lambda: None) -> int:
    """Determinant in plain integers, by fraction-free elimination (Bareiss). within: asked at every step, may raise."""
    table = [list(row) for row in matrix]
    sign, previous = 1, 1
    for k in range(len(table) - 1):
        within()
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


FORMATS: dict[str, tuple[int, int]] = {
    "float64": (53, -1022),
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
}
"""Significand bits (the hidden one included) and the exponent of the least normal number."""


@dataclass(frozen=True)
class GridBound:
    """P[rank R_all < M] <= bound = degree * atom, for entries uniform on (-1/sqrt m, 1/sqrt m) rounded to nearest in a
    floating-point format. `atom` bounds the probability of the likeliest float from above."""

    format: str
    m: int
    degree: int
    atom: Fraction

    @property
    def bound(self) -> Fraction:
        """degree * atom."""
        return self.degree * self.atom

    @property
    def vacuous(self) -> bool:
        """A bound of at least 1 says nothing."""
        return self.bound >= 1

    def __str__(self) -> str:
        return "vacuous" if self.vacuous else f"{float(self.bound):.2e}"


def largest_atom(m: int, fmt: str) -> Fraction:
    """An upper bound on the probability of any one float, for the uniform law on (-c, c), c = 1/sqrt m, rounded to nearest.

    No rounding interval inside (-c, c) is wider than the spacing of the topmost binade [2^e, 2^(e+1)) that meets it, so
    an atom is at most spacing / 2c. Attained when c >= 2^e + 1.5 spacings; exact when besides m is a square, else sqrt m
    is rounded up in the 64th binary digit after the point.
    """
    positive_integer("m", m)
    if fmt not in FORMATS:
        raise MalformedInput(f"format {fmt!r} is none of {', '.join(FORMATS)}")
    precision, least = FORMATS[fmt]
    exponent = 0
    while m >= 4**-exponent:  # 2^e < c exactly when m < 4^-e
        exponent -= 1
    spacing = Fraction(2) ** (max(exponent, least) - precision + 1)
    root = isqrt(m << 128)
    upper = Fraction(root if root * root == m << 128 else root + 1, 1 << 64)
    return min(Fraction(1), spacing * upper / 2)


def float_grid_bound(shape: Shape, fmt: str, m: int | None = None) -> GridBound:
    """Schwartz-Zippel for the paper's uniform law in a floating-point format, m >= M (default M).

    For independent entries whose likeliest value has probability q, a nonzero polynomial of this degree vanishes with
    probability at most degree * q. The law is the real uniform law, rounded; a sampler with fewer random bits has larger
    atoms.
    """
    M = matching_dimension(shape)
    size = M if m is None else positive_integer("m", m)
    if size < M:
        raise MalformedInput(f"m = {size} is below M = {M} at {shape}: the determinant needs m >= M")
    return GridBound(fmt, size, determinant_degree(shape), largest_atom(size, fmt))
