"""Linear algebra modulo p by python-flint's nmod_mat, which shares no code with the engine of the package."""

import numpy as np
from flint import nmod_mat

from utfproof.util.arrays import to_numpy


def to_flint(matrix, p):
    rows, columns = matrix.shape
    return nmod_mat(rows, columns, np.mod(to_numpy(matrix), p).astype(np.int64).reshape(-1).tolist(), p)


def from_flint(matrix, p):
    entries = np.array([int(x) for x in matrix.entries()], dtype=np.int64).reshape(matrix.nrows(), matrix.ncols())
    return np.where(entries > p // 2, entries - p, entries).astype(np.float64)


def rank(matrix, p):
    return int(to_flint(matrix, p).rank())


def determinant(matrix, p):
    return int(to_flint(matrix, p).det())


def inverse(matrix, p):
    table = to_flint(matrix, p)
    return None if table.rank() < table.nrows() else from_flint(table.inv(), p)


def echelon(matrix, p):
    """Reduced row echelon form without its zero rows, and its pivot columns."""
    reduced, count = to_flint(matrix, p).rref()
    table = from_flint(reduced, p)[:count]
    return table, [int(np.flatnonzero(row)[0]) for row in table]


def rank_profile(matrix, p):
    return echelon(matrix.T, p)[1], echelon(matrix, p)[1]


def nullspace(matrix, p):
    table, pivots = echelon(matrix, p)
    free = np.setdiff1d(np.arange(matrix.shape[1]), pivots)
    basis = np.zeros((matrix.shape[1], len(free)))
    basis[free, np.arange(len(free))] = 1
    basis[pivots] = -table[:, free]
    return basis
