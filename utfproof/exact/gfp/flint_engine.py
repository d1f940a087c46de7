"""The second engine: python-flint's nmod_mat, which shares no code with the elimination here."""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.ground.arrays import to_numpy


def to_flint(matrix: Any, p: int) -> Any:
    """An nmod_mat with the residues of a float64 matrix."""
    from flint import nmod_mat

    rows, columns = matrix.shape
    entries = np.mod(to_numpy(matrix), p).astype(np.int64).reshape(-1).tolist()
    return nmod_mat(rows, columns, entries, p)


def from_flint(matrix: Any, p: int) -> np.ndarray:
    """Centred residues (float64) of an nmod_mat."""
    entries = np.array([int(x) for x in matrix.entries()], dtype=np.int64).reshape(matrix.nrows(), matrix.ncols())
    return np.where(entries > p // 2, entries - p, entries).astype(np.float64)


def rank(matrix: Any, p: int) -> int:
    """Rank."""
    return int(to_flint(matrix, p).rank())


def determinant(matrix: Any, p: int) -> int:
    """Determinant, 0 ... p-1."""
    return int(to_flint(matrix, p).det())


def inverse(matrix: Any, p: int) -> np.ndarray | None:
    """Inverse, None where singular."""
    table = to_flint(matrix, p)
    return None if table.rank() < table.nrows() else from_flint(table.inv(), p)


def _echelon(matrix: Any, p: int) -> tuple[np.ndarray, list[int]]:
    """Reduced row echelon form without its zero rows, and its pivot columns."""
    reduced, count = to_flint(matrix, p).rref()
    table = from_flint(reduced, p)[:count]
    return table, [int(np.flatnonzero(row)[0]) for row in table]


def rank_profile(matrix: Any, p: int) -> tuple[list[int], list[int]]:
    """Row and column rank profile."""
    array = to_numpy(matrix)
    return _echelon(array.T, p)[1], _echelon(array, p)[1]


def nullspace(matrix: Any, p: int) -> np.ndarray:
    """Basis [n, n - rank] of the right kernel with an identity in the rows of the free columns."""
    table, pivots = _echelon(matrix, p)
    columns = matrix.shape[1]
    free = np.setdiff1d(np.arange(columns), pivots)
    basis = np.zeros((columns, len(free)))
    basis[free, np.arange(len(free))] = 1
    basis[pivots] = -table[:, free]
    return basis


def solve(matrix: Any, right: Any, p: int) -> np.ndarray | None:
    """The solution [n, k] of matrix X = right with zeros at the free columns; None where there is none."""
    columns = matrix.shape[1]
    table, pivots = _echelon(np.concatenate([to_numpy(matrix), to_numpy(right)], axis=1), p)
    if pivots and pivots[-1] >= columns:
        return None
    solution = np.zeros((columns, right.shape[1]))
    solution[pivots] = table[:, columns:]
    return solution
