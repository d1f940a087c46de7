"""Block-diagonality of a {0,1} R_all: the row permutation that makes it a diagonal of identity blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.symbolic.results import RoutesDisagree
from utfproof.shapes import Shape, column_groups


@dataclass(frozen=True)
class BlockDiagonal:
    """P R_all = [I_M; 0]: `permutation[j]` is the row of R_all that P puts in place j (the zero rows last, ascending).

    I_M is the diagonal of identity blocks that the paper names, one per head word. Where it fails: `reason`."""

    holds: bool
    permutation: tuple[int, ...] | None
    reason: str
    routes: tuple[str, ...] = ("NumPy", "plain integers")


def block_sizes(shape: Shape) -> list[tuple[str, int, int]]:
    """The diagonal's blocks in order, as (kind, how many, width): Q and K blocks I_d, then OV blocks of width d_out."""
    totals: dict[str, tuple[int, int]] = {}
    for group in column_groups(shape):
        count, _ = totals.get(group.kind, (0, 0))
        totals[group.kind] = (count + group.words, group.width)
    return [(kind, count, width) for kind, (count, width) in totals.items()]


def block_diagonal(matrix: Any) -> BlockDiagonal:
    """Whether some permutation P of the rows of `matrix` [m, M] gives the identity over m - M zero rows, and which.

    The first obstacle is named, column by column, otherwise. Raises MalformedInput for ragged or empty input.
    """
    table = [list(row) for row in matrix]
    if not table or not table[0] or len({len(row) for row in table}) != 1:
        raise MalformedInput("R_all must be a non-empty matrix with rows of one length")
    permutation, reason = _find(np.array(table, dtype=object))
    holds = permutation is not None and _is_identity(table, permutation)
    if permutation is not None and not holds:
        raise RoutesDisagree("the row permutation found by NumPy does not give the identity in plain integers")
    return BlockDiagonal(holds, permutation, reason)


def _find(matrix: np.ndarray) -> tuple[tuple[int, ...] | None, str]:
    rows, columns = matrix.shape
    if rows < columns:
        return None, f"{rows} rows are fewer than {columns} columns"
    nonzero = np.asarray(matrix != 0, dtype=bool)
    used: dict[int, int] = {}
    for column in range(columns):
        where = np.flatnonzero(nonzero[:, column])
        if len(where) != 1:
            return None, f"column {column} has {len(where)} nonzero entries, expected one"
        row = int(where[0])
        if matrix[row, column] != 1:
            return None, f"entry ({row}, {column}) is {matrix[row, column]}, expected 1"
        if row in used:
            return None, f"columns {used[row]} and {column} both have their entry in row {row}"
        used[row] = column
    return (*used, *(row for row in range(rows) if row not in used)), ""


def _is_identity(table: list[list[Any]], permutation: tuple[int, ...]) -> bool:
    if sorted(permutation) != list(range(len(table))):
        return False
    columns = len(table[0])
    for place, row in enumerate(permutation):
        expected = [0] * columns
        if place < columns:
            expected[place] = 1
        if table[row] != expected:
            return False
    return True
