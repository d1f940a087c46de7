"""Rank, rank profiles, determinant, inverse, null space, solving and PLUQ over GF(p).

Matrices are float64 arrays or tensors of integers of size at most 2^52 - 2^31, taken modulo p; results are of the same kind, on
the same device, with centred residues. engine="blas" is the elimination here, engine="flint" the second opinion.
All raise MalformedInput for a modulus that is no odd prime below 2^27, for other dtypes and for entries out of range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.gfp import flint_engine
from utfproof.exact.gfp.elimination import Elimination
from utfproof.exact.gfp.field import LIMIT, centre, centred, check_prime
from utfproof.exact.gfp.kernels import kernels_for
from utfproof.ground.arrays import is_torch
from utfproof.ground.progress import LARGE, stage

ENGINES = ("blas", "flint")


class RankProfile(NamedTuple):
    """Lexicographically first sets of independent rows and of independent columns, ascending; both of size rank."""

    rows: list[int]
    columns: list[int]


class PLUQ(NamedTuple):
    """matrix[rows][:, columns] = L U modulo p.

    rows [m], columns [n]: permutations. L [m, r]: unit lower trapezoidal. U [r, n]: upper trapezoidal, nonzero diagonal.
    """

    rows: np.ndarray
    L: Any
    U: Any
    columns: np.ndarray

    @property
    def rank(self) -> int:
        """r."""
        return self.L.shape[1]


def _checked(matrix: Any, p: int, engine: str, *, square: bool = False) -> int:
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {' or '.join(ENGINES)}")
    p = check_prime(p)
    kernels_for(matrix, p)
    if square and matrix.shape[0] != matrix.shape[1]:
        raise MalformedInput(f"matrix must be square, got shape {tuple(matrix.shape)}")
    # NaN fails both comparisons
    if 0 not in matrix.shape and not (float(matrix.min()) >= -LIMIT and float(matrix.max()) <= LIMIT):
        raise MalformedInput("matrix holds entries that are not finite or beyond 2^52 - 2^31; reduce them first")
    return p


def _eliminate(
    matrix: Any, p: int, *, ordered: bool = False, factors: bool = True, overwrite: bool = False
) -> Elimination:
    kernels = kernels_for(matrix, p)
    if overwrite:
        kernels.reduce(matrix)
    return Elimination(matrix if overwrite else kernels.residues(matrix), p, ordered=ordered, factors=factors)


def _like(result: np.ndarray | None, matrix: Any) -> Any:
    """A FLINT result as an array of the matrix's kind."""
    return kernels_for(matrix, 3).device(result) if result is not None else None


def rank(matrix: Any, p: int, *, engine: str = "blas", overwrite: bool = False) -> int:
    """Rank of a matrix [m, n]; overwrite=True may destroy the matrix and saves a copy."""
    p = _checked(matrix, p, engine)
    if engine == "flint":
        return flint_engine.rank(matrix, p)
    # wide rather than tall: columns behind the last pivot are then never touched
    wide = matrix if overwrite or matrix.shape[0] <= matrix.shape[1] else matrix.T
    return _eliminate(wide, p, factors=False, overwrite=overwrite).rank


def rank_profile(matrix: Any, p: int, *, engine: str = "blas") -> RankProfile:
    """Row and column rank profile of a matrix [m, n]."""
    p = _checked(matrix, p, engine)
    if engine == "flint":
        return RankProfile(*flint_engine.rank_profile(matrix, p))
    found = _eliminate(matrix, p, ordered=True, factors=False)
    return RankProfile(sorted(found.rows[: found.rank].tolist()), found.columns)


def determinant(matrix: Any, p: int, *, engine: str = "blas") -> int:
    """Determinant of a square matrix, 0 ... p-1 (1 for 0 x 0)."""
    p = _checked(matrix, p, engine, square=True)
    if engine == "flint":
        return flint_engine.determinant(matrix, p)
    found = _eliminate(matrix, p, factors=False)
    return found.determinant if found.rank == matrix.shape[0] else 0


def inverse(matrix: Any, p: int, *, engine: str = "blas", overwrite: bool = False) -> Any:
    """Inverse [n, n] of a square matrix; None where it is singular. overwrite=True may destroy the matrix and saves a copy."""
    p = _checked(matrix, p, engine, square=True)
    if engine == "flint":
        return _like(flint_engine.inverse(matrix, p), matrix)
    found = _eliminate(matrix, p, overwrite=overwrite)
    n = matrix.shape[0]
    if found.rank < n:
        return None
    out = found.kernels.zeros(n, n)
    out[list(range(n)), found.rows.tolist()] = 1.0
    work = 2.0 * n**3
    with stage(f"inverse modulo {p}", large=work > LARGE):
        found.forward(out, 0, len(found.blocks))
        found.backward(out, 0, len(found.blocks), found.work)
    return centred(out, p, overwrite=True)


def _pivot_columns(found: Elimination) -> Any:
    """U at the pivot columns [r, r]; below its block diagonal stands something else."""
    if found.columns == list(range(found.rank)):
        return found.work[: found.rank, : found.rank]
    return found.work[: found.rank][:, found.columns]


def _free(found: Elimination) -> np.ndarray:
    return np.setdiff1d(np.arange(found.work.shape[1]), found.columns)


def nullspace(matrix: Any, p: int, *, engine: str = "blas") -> Any:
    """Basis [n, n - rank] of the right kernel: an identity in the rows of the columns outside the column rank profile."""
    p = _checked(matrix, p, engine)
    if engine == "flint":
        return _like(flint_engine.nullspace(matrix, p), matrix)
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


def solve(matrix: Any, right: Any, p: int, *, engine: str = "blas") -> Any:
    """X [n, k] with matrix X = right [m, k], zero outside the column rank profile; None where there is no solution."""
    p = _checked(matrix, p, engine)
    _checked(right, p, engine)
    if right.shape[0] != matrix.shape[0] or is_torch(right) != is_torch(matrix):
        raise MalformedInput(
            f"right-hand side must be of the matrix's kind with {matrix.shape[0]} rows, got shape {tuple(right.shape)}"
        )
    if engine == "flint":
        return _like(flint_engine.solve(matrix, right, p), matrix)
    found = _eliminate(matrix, p)
    kernels, r = found.kernels, found.rank
    image = kernels.residues(right)[found.rows.tolist()]
    found.forward(image, 0, len(found.blocks))
    top, rest = image[:r], image[r:]
    kernels.subtract_product(rest, found.work[r:, :r], top)
    if bool((rest != 0).any()):
        return None
    found.backward(top, 0, len(found.blocks), _pivot_columns(found))
    solution = kernels.zeros(matrix.shape[1], right.shape[1])
    solution[found.columns] = top
    return centred(solution, p)


def pluq(matrix: Any, p: int) -> PLUQ:
    """Rank-revealing factorisation of a matrix [m, n]; its pivots show both rank profiles (columns[:r], sorted rows[:r])."""
    p = _checked(matrix, p, "blas")
    found = _eliminate(matrix, p, ordered=True)
    kernels, r = found.kernels, found.rank
    columns = np.concatenate([np.array(found.columns, dtype=np.int64), _free(found)])
    upper = _upper(found)[:, columns.tolist()]
    lower = found.work[:, :r] + 0.0
    for block in found.blocks:
        # the blocks' squares are split too, so that L and U become triangular
        span = slice(block.start, block.stop)
        square = kernels.host(upper[span, span])
        unit, unit_inverse = _unit_lower(square, p)
        lower[: block.start, span] = 0
        lower[span, span] = kernels.device(unit)
        lower[block.stop :, span] = kernels.product(lower[block.stop :, span], kernels.device(unit))
        upper[span] = kernels.product(kernels.device(unit_inverse), upper[span])
    return PLUQ(found.rows, centred(lower, p), centred(upper, p), columns)


def _unit_lower(square: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The unit lower factor of a square [k, k] with nonzero leading minors, and its inverse."""
    size = len(square)
    table = centred(square, p)
    unit, unit_inverse = np.eye(size), np.eye(size)
    for k in range(size - 1):
        factor = centred(table[k + 1 :, k] * centre(pow(int(table[k, k]), -1, p), p), p)[:, None]
        unit[k + 1 :, k : k + 1] = factor
        table[k + 1 :] = centred(table[k + 1 :] - factor * table[k], p)
        unit_inverse[k + 1 :] = centred(unit_inverse[k + 1 :] - factor * unit_inverse[k], p)
    return unit, unit_inverse
