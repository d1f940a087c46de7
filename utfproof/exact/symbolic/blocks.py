"""Block-diagonality of a {0,1} R_all: the row permutation that makes it a diagonal of identity blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.exact.symbolic.words import RoutesDisagree
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

    The first obstacle is named, column by column, otherwise.
    """
    table = np.asarray(matrix, dtype=object)
    rows, columns = table.shape
    if rows < columns:
        return BlockDiagonal(False, None, f"{rows} rows are fewer than {columns} columns")
    used: dict[int, int] = {}
    for column in range(columns):
        where = np.flatnonzero(table[:, column] != 0).tolist()
        if len(where) != 1:
            return BlockDiagonal(False, None, f"column {column} has {len(where)} nonzero entries, expected one")
        (row,) = where
        if table[row, column] != 1:
            return BlockDiagonal(False, None, f"entry ({row}, {column}) is {table[row, column]}, expected 1")
        if row in used:
            return BlockDiagonal(False, None, f"columns {used[row]} and {column} both have their entry in row {row}")
        used[row] = column
    permutation = (*used, *(row for row in range(rows) if row not in used))
    moved = [table.tolist()[row] for row in permutation]
    if moved != [[int(i == j) for j in range(columns)] for i in range(rows)]:
        raise RoutesDisagree("the row permutation found by NumPy does not give the identity in plain integers")
    return BlockDiagonal(True, permutation, "")
