"""Exact linear algebra over the rationals, on object arrays of ints and Fractions, done by FLINT."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput


def to_flint(matrix: np.ndarray) -> Any:
    """An exact array [rows, columns] as a FLINT matrix."""
    from flint import fmpq, fmpq_mat

    rows, columns = matrix.shape
    values = (Fraction(x) for x in matrix.reshape(-1))
    entries = [fmpq(int(x.numerator), int(x.denominator)) for x in values]
    return fmpq_mat(rows, columns, entries)


def from_flint(matrix: Any) -> np.ndarray:
    """A FLINT matrix as an object array of Fractions."""
    out = np.empty((matrix.nrows(), matrix.ncols()), dtype=object)
    out.reshape(-1)[:] = [Fraction(int(x.p), int(x.q)) for x in matrix.entries()]
    return out


def rank(matrix: np.ndarray) -> int:
    """Rank over the rationals of an exact matrix [rows, columns]."""
    if 0 in matrix.shape:
        return 0
    return int(to_flint(matrix).rref()[1])


def inverse(matrix: np.ndarray) -> np.ndarray | None:
    """Exact inverse of a square matrix; None if it is singular."""
    try:
        return from_flint(to_flint(matrix).inv())
    except ZeroDivisionError:
        return None


def kernel_vector(matrix: np.ndarray) -> list[int] | None:
    """A primitive integer vector z != 0 with matrix @ z = 0; None when the columns are independent.

    The first dependent column is written through the pivot columns before it.
    """
    rows, columns = matrix.shape
    if columns == 0:
        return None
    if rows == 0:
        return [1] + [0] * (columns - 1)
    reduced, found = to_flint(matrix).rref()
    if found == columns:
        return None
    pivots: list[int] = []
    for column in range(columns):
        row = len(pivots)
        if row < found and reduced[row, column] != 0:  # the first nonzero entry of the next row
            pivots.append(column)
            continue
        z = [Fraction(0)] * columns
        z[column] = Fraction(1)
        for i, pivot in enumerate(pivots):
            z[pivot] = -Fraction(int(reduced[i, column].p), int(reduced[i, column].q))
        return primitive(z)
    raise AssertionError("a deficient matrix has a dependent column")


def primitive(vector: list[Fraction]) -> list[int]:
    """The shortest integer vector on the ray of a nonzero rational vector."""
    scale = lcm(*(x.denominator for x in vector))
    integers = [int(x * scale) for x in vector]
    divisor = gcd(*integers)
    return [v // divisor for v in integers]


def solve_left(right_factor: np.ndarray, product: np.ndarray) -> np.ndarray | None:
    """An exact X [k, rows] with X @ right_factor = product; None if there is none.

    right_factor [rows, columns], product [k, columns]. Coordinates outside a row basis of right_factor stay zero.
    """
    rows, columns = right_factor.shape
    count = product.shape[0]
    if product.shape[1] != columns:
        raise MalformedInput(f"product has {product.shape[1]} columns, expected {columns}")
    system = np.concatenate([right_factor.T, product.T], axis=1)  # [columns, rows + count]
    if columns == 0:
        return np.zeros((count, rows), dtype=object)
    reduced, found = to_flint(system).rref()
    out = np.zeros((count, rows), dtype=object)
    for i in range(int(found)):
        pivot = next(j for j in range(rows + count) if reduced[i, j] != 0)
        if pivot >= rows:
            return None
        for k in range(count):
            entry = reduced[i, rows + k]
            out[k, pivot] = Fraction(int(entry.p), int(entry.q))
    return out
