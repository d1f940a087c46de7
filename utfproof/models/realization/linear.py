"""Exact matrices over the rationals for the realization of a target, held by FLINT (fmpq_mat)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PRIME = 2**61 - 1
"""Modulus of the first look at a rank. A rank that it leaves open is settled over the rationals."""


def stacked(parts: Sequence[Any]) -> Any:
    """Matrices of equal width below one another."""
    from flint import fmpq_mat

    entries = [x for part in parts for x in part.entries()]
    return fmpq_mat(sum(part.nrows() for part in parts), parts[0].ncols(), entries)


def side_by_side(parts: Sequence[Any]) -> Any:
    """Matrices of equal height beside one another."""
    return stacked([part.transpose() for part in parts]).transpose()


def rows_of(matrix: Any, chosen: Sequence[int]) -> Any:
    """These rows, in this order."""
    from flint import fmpq_mat

    width, entries = matrix.ncols(), matrix.entries()
    return fmpq_mat(len(chosen), width, [x for i in chosen for x in entries[i * width : (i + 1) * width]])


def columns_of(matrix: Any, chosen: Sequence[int]) -> Any:
    """These columns, in this order."""
    return rows_of(matrix.transpose(), chosen).transpose()


def _pivots(reduced: Any, rank: int) -> list[int]:
    """Pivot columns of a reduced echelon form."""
    found: list[int] = []
    for column in range(reduced.ncols()):
        if len(found) < rank and int(reduced[len(found), column]) != 0:
            found.append(column)
    return found


def independent_columns(matrix: Any, at_most: int | None = None) -> list[int]:
    """Columns, early ones first, that are a basis of the span of all columns over the rationals (exactly so).

    Columns independent modulo PRIME are independent. That no more are is plain from their number, or from a bound `at_most` of
    the rank that the caller knows, or is settled over the integers.
    """
    from flint import nmod_mat

    rows, columns = matrix.nrows(), matrix.ncols()
    if 0 in (rows, columns):
        return []
    integers = matrix.numer_denom()[0]
    reduced, rank = nmod_mat(integers, PRIME).rref()
    most = min(rows, columns) if at_most is None else min(rows, columns, at_most)
    if rank < most and integers.rank() > rank:
        return _first_columns(integers)
    return _pivots(reduced, int(rank))


def _first_columns(integers: Any) -> list[int]:
    reduced, _, rank = integers.rref()
    return _pivots(reduced, int(rank))


def rank(matrix: Any, at_most: int | None = None) -> int:
    """The rank over the rationals; at_most: a bound of it that the caller knows."""
    return len(independent_columns(matrix, at_most))


def independent_rows(matrix: Any) -> list[int]:
    """The first rows, in their order, that span all rows over the rationals."""
    return independent_columns(matrix.transpose())


def extended_basis(known: Any, candidates: Any) -> tuple[list[int], list[int]]:
    """(a, b): the rows a of `known` are a basis of its row space, and with the rows b of `candidates` of that of both."""
    old = independent_rows(known) if known.nrows() else []
    both = stacked([rows_of(known, old), candidates])
    found = independent_rows(both)
    if found[: len(old)] != list(range(len(old))):
        found = _first_columns(both.transpose().numer_denom()[0])
    return old, [i - len(old) for i in found[len(old) :]]


def coefficients(basis: Any, products: Any) -> Any:
    """X with X basis = products, for a nonsingular basis [r, r] and products [k, r]."""
    from flint import fmpq_mat

    if basis.nrows() == 0 or products.nrows() == 0:
        return fmpq_mat(products.nrows(), basis.nrows())
    return basis.transpose().solve(products.transpose()).transpose()
