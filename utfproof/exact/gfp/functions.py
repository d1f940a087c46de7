"""Rank, rank profiles, inverse and null space over GF(p).

Matrices are float64 arrays or tensors of integers of size at most 2^52 - 2^31, taken modulo p, or for small primes float32
ones of integers of size at most 2^23 - 2^7. Results are of the same kind, on the same device, with centred residues.
All raise MalformedInput for a modulus that is no odd prime below 2^27, for other dtypes and for entries out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.gfp.elimination import Elimination
from utfproof.exact.gfp.field import LIMITS, SMALL_PRIMES, centred, check_prime
from utfproof.exact.gfp.kernels import kernels_for
from utfproof.util.arrays import is_torch
from utfproof.util.progress import LARGE, stage


class RankProfile(NamedTuple):
    """Lexicographically first sets of independent rows and of independent columns, ascending; both of size rank."""

    rows: list[int]
    columns: list[int]


def _eliminate(
    matrix: Any, p: int, *, square: bool = False, ordered: bool = False, factors: bool = True, overwrite: bool = False
) -> Elimination:
    """The matrix, checked, brought to residues unless it holds residues already, and eliminated."""
    p = check_prime(p)
    kernels = kernels_for(matrix, p)
    if square and matrix.shape[0] != matrix.shape[1]:
        raise MalformedInput(f"matrix must be square, got shape {tuple(matrix.shape)}")
    limit, bound = LIMITS["float32"], "2^23 - 2^7"
    if not str(matrix.dtype).endswith("float32"):
        limit, bound = LIMITS["float64"], "2^52 - 2^31"
    low, high = (float(matrix.min()), float(matrix.max())) if 0 not in matrix.shape else (0.0, 0.0)
    if not (low >= -limit and high <= limit):  # NaN fails both comparisons
        raise MalformedInput(f"matrix holds entries that are not finite or beyond {bound}; reduce them first")
    work = matrix if overwrite else kernels.copy(matrix)
    if max(-low, high) > p // 2:
        kernels.reduce(work)
    return Elimination(work, p, ordered=ordered, factors=factors)


def rank(matrix: Any, p: int, *, overwrite: bool = False) -> int:
    """Rank of a matrix [m, n]; overwrite=True may destroy the matrix and saves a copy."""
    # wide rather than tall: columns behind the last pivot are then never touched
    wide = matrix if overwrite or matrix.shape[0] <= matrix.shape[-1] else matrix.T
    return _eliminate(wide, p, factors=False, overwrite=overwrite).rank


def full_rank_prime(modulo: Callable[[int], Any]) -> int | None:
    """The first of `SMALL_PRIMES` modulo which a matrix has full rank, which proves that it has; None where none shows it.

    modulo: prime -> residues [m, n], which may be destroyed. A random matrix of full rank loses two from its rank modulo p
    with probability about p^-4, so a rank below full by two ends the search.
    """
    for p in SMALL_PRIMES:
        matrix = modulo(p)
        missing = min(matrix.shape) - rank(matrix, p, overwrite=True)
        if not missing:
            return p
        if missing > 1:
            break
    return None


def rank_profile(matrix: Any, p: int) -> RankProfile:
    """Row and column rank profile of a matrix [m, n]."""
    found = _eliminate(matrix, p, ordered=True, factors=False)
    return RankProfile(sorted(found.rows[: found.rank].tolist()), found.columns)


def inverse(matrix: Any, p: int, *, overwrite: bool = False) -> Any:
    """Inverse [n, n] of a square matrix; None where it is singular. overwrite=True may destroy the matrix and saves a copy."""
    found = _eliminate(matrix, p, square=True, overwrite=overwrite)
    n = matrix.shape[0]
    if found.rank < n:
        return None
    out = found.kernels.zeros(n, n)
    out[list(range(n)), found.rows.tolist()] = 1.0
    work = 2.0 * n**3
    with stage(f"inverse modulo {p}", large=work > LARGE):
        found.forward(out, 0, len(found.blocks))
        found.backward(out, 0, len(found.blocks), found.work)
    return centred(out, p, out=None if is_torch(out) else out)


def _pivot_columns(found: Elimination) -> Any:
    """U at the pivot columns [r, r]; below its block diagonal stands something else."""
    if found.columns == list(range(found.rank)):
        return found.work[: found.rank, : found.rank]
    return found.work[: found.rank][:, found.columns]


def _free(found: Elimination) -> np.ndarray:
    return np.setdiff1d(np.arange(found.work.shape[1]), found.columns)


def nullspace(matrix: Any, p: int) -> Any:
    """Basis [n, n - rank] of the right kernel: an identity in the rows of the columns outside the column rank profile."""
    found = _eliminate(matrix, p)
    free = _free(found).tolist()
    basis = found.kernels.zeros(matrix.shape[1], len(free))
    if free:
        # row k of U begins at its pivot column; what stands before belongs to L
        part = _upper(found)[:, free]
        found.backward(part, 0, len(found.blocks), _pivot_columns(found))
        basis[found.columns] = -part
        basis[free, list(range(len(free)))] = 1.0
    return centred(basis, p)


def _upper(found: Elimination) -> Any:
    """U [r, n] with zeros before each block's first pivot column."""
    upper = found.work[: found.rank] + 0.0
    for block in found.blocks:
        upper[block.start : block.stop, : found.columns[block.start]] = 0
    return upper
