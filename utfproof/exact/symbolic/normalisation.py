"""Exact numbers for normalised models: sums of square roots of rationals, squares that fill a row up, small polynomials.

A `Surd` is a finite sum of c_r sqrt(r) with rational c_r and different squarefree integers r >= 1. These roots are
linearly independent over the rationals, so two of them are equal exactly when their coefficients are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, isqrt
from typing import Any

from utfproof.errors import NotDefined

Number = int | Fraction
Polynomial = list[Fraction]
"""Coefficients from the constant upwards; no trailing zeros, so zero is []."""


# --- square roots --------------------------------------------------------------------------------------------


def root_parts(value: Number) -> tuple[Fraction, int]:
    """(c, r) with sqrt(value) = c sqrt(r), r squarefree (1 for a square, c = 0 for zero). NotDefined below zero."""
    value = Fraction(value)
    if value < 0:
        raise NotDefined(f"{value} is negative and has no real square root")
    outside, inside = 1, 1
    left = value.numerator * value.denominator
    if left == 0:
        return Fraction(0), 1
    p = 2
    while p * p * p <= left:  # a cofactor without prime factors up to its cube root is a prime, a square or two primes
        power = 0
        while left % p == 0:
            left, power = left // p, power + 1
        outside, inside = outside * p ** (power // 2), inside * p ** (power % 2)
        p += 1
    whole = isqrt(left)
    if whole * whole == left:
        outside *= whole
    else:
        inside *= left
    return Fraction(outside, value.denominator), inside


class Surd:
    """sum over r of terms[r] sqrt(r): exact, with +, -, * and comparison for equality; works as a NumPy object entry."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[int, Number]) -> None:
        self.terms = {r: Fraction(c) for r, c in sorted(terms.items()) if c}

    @staticmethod
    def root(value: Number) -> Surd:
        """sqrt(value)."""
        c, r = root_parts(value)
        return Surd({r: c})

    @staticmethod
    def of(value: Any) -> Surd:
        """A number as a Surd."""
        return value if isinstance(value, Surd) else Surd({1: Fraction(value)})

    def __add__(self, other: Any) -> Surd:
        if isinstance(other, int) and other == 0:
            return self
        terms = dict(self.terms)
        for r, c in Surd.of(other).terms.items():
            terms[r] = terms.get(r, Fraction(0)) + c
        return Surd(terms)

    __radd__ = __add__

    def __neg__(self) -> Surd:
        return Surd({r: -c for r, c in self.terms.items()})

    def __sub__(self, other: Any) -> Surd:
        return self + -Surd.of(other)

    def __rsub__(self, other: Any) -> Surd:
        return Surd.of(other) - self

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Surd) and not other:
            return 0  # most entries of the hosts' matrices are zeros
        terms: dict[int, Fraction] = {}
        for r, c in self.terms.items():
            for s, e in Surd.of(other).terms.items():
                common = gcd(r, s)
                inside = r * s // common**2
                terms[inside] = terms.get(inside, Fraction(0)) + c * e * common
        return Surd(terms)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Surd | int | Fraction) and self.terms == Surd.of(other).terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join(str(c) if r == 1 else f"{c}*sqrt({r})" for r, c in self.terms.items()) or "0"

    @property
    def rational(self) -> Fraction:
        """The value, where it is rational. NotDefined otherwise."""
        if set(self.terms) - {1}:
            raise NotDefined(f"{self} is not rational")
        return self.terms.get(1, Fraction(0))

    def enclosure(self, digits: int = 40) -> tuple[Fraction, Fraction]:
        """Rationals (low, high) around the value, from integer square roots with this many digits."""
        low = high = Fraction(0)
        scale = 10**digits
        for r, c in self.terms.items():
            below = Fraction(isqrt(r * scale * scale), scale)
            above = below if below * below == r else below + Fraction(1, scale)
            low, high = low + min(c * below, c * above), high + max(c * below, c * above)
        return low, high


def two_squares(value: int) -> tuple[int, int] | None:
    """Integers with x^2 + y^2 = value, or None: by trying every x, so for small values."""
    for x in range(isqrt(value // 2) + 1):
        y = isqrt(value - x * x)
        if x * x + y * y == value:
            return x, y
    return None


def four_squares(value: Number) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Four rationals whose squares sum to value >= 0 (Lagrange). NotDefined below zero."""
    value = Fraction(value)
    if value < 0:
        raise NotDefined(f"{value} is negative and no sum of squares")
    whole, scale = value.numerator * value.denominator, 1
    while whole and whole % 4 == 0:
        whole, scale = whole // 4, scale * 2
    # the largest first square leaves a small remainder, and sums of two squares are dense enough below it
    for a in range(isqrt(whole), -1, -1):
        rest = whole - a * a
        b = isqrt(rest)
        for second in range(b, max(-1, b - 60), -1):
            pair = two_squares(rest - second * second)
            if pair is not None:
                found = (a, second, *pair)
                return tuple(Fraction(scale * x, value.denominator) for x in found)  # type: ignore[return-value]
    raise AssertionError("every integer is a sum of four squares")


def square_factor(gram: Sequence[Sequence[Number]]) -> list[list[Fraction]]:
    """C [k, 4k] of rationals with C C^T = gram [k, k], symmetric and positive semidefinite. NotDefined otherwise.

    gram = L D L^T by elimination, and every entry of D is a sum of four squares.
    """
    left = [[Fraction(v) for v in row] for row in gram]
    k = len(left)
    factor = [[Fraction(0)] * (4 * k) for _ in range(k)]
    for p in range(k):
        pivot = left[p][p]
        if pivot < 0 or (pivot == 0 and any(left[i][p] for i in range(p, k))):
            raise NotDefined("the matrix is not positive semidefinite, so it is no C C^T")
        if pivot == 0:
            continue
        column = [left[i][p] / pivot for i in range(k)]
        for place, square in enumerate(four_squares(pivot)):
            for i in range(p, k):
                factor[i][4 * p + place] = column[i] * square
        for i in range(p, k):
            for j in range(p, k):
                left[i][j] -= column[i] * pivot * column[j]
    return factor


# --- polynomials in one unknown ------------------------------------------------------------------------------


def trimmed(polynomial: Sequence[Number]) -> Polynomial:
    """Without trailing zeros."""
    out = [Fraction(c) for c in polynomial]
    while out and not out[-1]:
        out.pop()
    return out


def times(a: Sequence[Number], b: Sequence[Number]) -> Polynomial:
    """The product."""
    out = [Fraction(0)] * max(0, len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return trimmed(out)


def common_factor(a: Sequence[Number], b: Sequence[Number]) -> Polynomial:
    """The monic greatest common divisor, by Euclid's algorithm; [] for two zeros."""
    first, second = trimmed(a), trimmed(b)
    while second:
        while len(first) >= len(second):
            ratio, shift = first[-1] / second[-1], len(first) - len(second)
            for i, c in enumerate(second):
                first[shift + i] -= ratio * c
            first = trimmed(first[:-1])
        first, second = second, first
    return [c / first[-1] for c in first] if first else []


def derivative(a: Sequence[Number]) -> Polynomial:
    """The derivative."""
    return trimmed([i * Fraction(c) for i, c in enumerate(a)][1:])


def characteristic(matrix: Sequence[Sequence[Number]]) -> Polynomial:
    """det(x I - matrix) by Faddeev and LeVerrier."""
    k = len(matrix)
    entries = [[Fraction(v) for v in row] for row in matrix]
    out = [Fraction(0)] * k + [Fraction(1)]
    power = [[Fraction(int(i == j)) for j in range(k)] for i in range(k)]
    for step in range(1, k + 1):
        columns = list(zip(*power, strict=True))
        product = [[sum(x * y for x, y in zip(row, c, strict=True) if x and y) for c in columns] for row in entries]
        out[k - step] = -sum((product[i][i] for i in range(k)), Fraction(0)) / step
        power = [[product[i][j] + (out[k - step] if i == j else 0) for j in range(k)] for i in range(k)]
    return out
