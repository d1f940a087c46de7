"""Exact numbers for normalised models: sums of square roots of rationals, and squares that fill a row up.

A `Surd` is a finite sum of c_r sqrt(r) with rational c_r and different squarefree integers r >= 1. These roots are
linearly independent over the rationals, so two of them are equal exactly when their coefficients are.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from utfproof.errors import NotDefined

Number = int | Fraction


def root_parts(value: Number) -> tuple[Fraction, int]:
    """(c, r) with sqrt(value) = c sqrt(r), r squarefree (1 for a square, c = 0 for zero). NotDefined below zero."""
    from flint import fmpz

    value = Fraction(value)
    if value < 0:
        raise NotDefined(f"{value} is negative and has no real square root")
    if not value:
        return Fraction(0), 1
    outside = inside = 1
    for prime, power in fmpz(value.numerator * value.denominator).factor():
        outside, inside = outside * int(prime) ** (power // 2), inside * int(prime) ** (power % 2)
    return Fraction(outside, value.denominator), inside


class Surd:
    """sum over r of terms[r] sqrt(r): exact, with +, -, * and comparison for equality; works as a NumPy object entry."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[int, Number]) -> None:
        self.terms = {r: Fraction(c) for r, c in sorted(terms.items()) if c}

    @staticmethod
    def of(value: Any) -> Surd:
        """A number as a Surd."""
        return value if isinstance(value, Surd) else Surd({1: Fraction(value)})

    def __add__(self, other: Any) -> Surd:
        terms = dict(self.terms)
        for r, c in Surd.of(other).terms.items():
            terms[r] = terms.get(r, Fraction(0)) + c
        return Surd(terms)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Surd:
        return self + -1 * Surd.of(other)

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

    def __repr__(self) -> str:
        return " + ".join(str(c) if r == 1 else f"{c}*sqrt({r})" for r, c in self.terms.items()) or "0"

    @property
    def rational(self) -> Fraction:
        """The value, where it is rational. NotDefined otherwise."""
        if set(self.terms) - {1}:
            raise NotDefined(f"{self} is not rational")
        return self.terms.get(1, Fraction(0))


def four_squares(value: Number) -> list[Fraction]:
    """Four rationals whose squares sum to value >= 0 (Lagrange). NotDefined below zero."""
    from sympy.solvers.diophantine.diophantine import sum_of_four_squares

    value = Fraction(value)
    if value < 0:
        raise NotDefined(f"{value} is negative and no sum of squares")
    return [Fraction(int(v), value.denominator) for v in sum_of_four_squares(value.numerator * value.denominator)]


def square_factor(gram: np.ndarray) -> np.ndarray:
    """C [k, 4k] of rationals with C C^T = gram [k, k], symmetric and positive definite. NotDefined otherwise.

    gram = L D L^T by elimination, and every entry of D is a sum of four squares.
    """
    left, columns = gram, []
    for p in range(len(gram)):
        if left[p, p] <= 0:
            raise NotDefined("the matrix is not positive definite")
        column = left[:, p] * (1 / Fraction(left[p, p]))
        columns += [square * column for square in four_squares(left[p, p])]
        left = left - np.outer(column, left[p])
    return np.array(columns, dtype=object).T
