"""Solving E R_all = W_all as exactly as float64 can hold E: the residual in twice the working precision.

Columns are scaled by powers of two, which is exact. The residual is a sum of float64 matrix products that are exact
themselves: both factors are cut into slices of few bits, so that BLAS never rounds, and the products are added with a
second float for what each addition loses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.errors import CannotCarry, MalformedInput
from utfproof.ground.resources import require_memory

_MOST_SLICES = 6
_ENOUGH = 0.9
"""A step that leaves more than this share of the residual is the last one."""


def slice_bits(inner: int) -> int:
    """Bits of a slice such that `inner` products of two slices add up exactly in float64."""
    return (53 - (inner - 1).bit_length()) // 2


def _exponents(matrix: np.ndarray, axis: int) -> np.ndarray:
    """e with |entries| < 2^e along this axis (0 where all are zero)."""
    return np.frexp(np.max(np.abs(matrix), axis=axis, keepdims=True, initial=0.0))[1]


def _slices(unit: np.ndarray, bits: int) -> list[np.ndarray]:
    """Entries in (-1, 1) as a sum of slices: multiples of 2^-bits, of 2^-2bits, ..., until nothing is left."""
    parts, rest = [], unit
    for k in range(1, _MOST_SLICES + 1):
        part = np.ldexp(np.rint(np.ldexp(rest, bits * k)), -bits * k)
        parts.append(part)
        rest = rest - part
        if not rest.any():
            break
    return parts


class ExactProducts:
    """W - E R [d_in, M] in about twice the precision of float64, for one matrix R [m, M] and any E [d_in, m], W."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.bits = slice_bits(matrix.shape[0])
        self.exponents = _exponents(matrix, 0)
        self.parts = _slices(np.ldexp(matrix, -self.exponents), self.bits)

    def residual(self, right: np.ndarray, E: np.ndarray) -> np.ndarray:
        """W - E R, rounded to float64 at the end only.

        Exact up to 2^-100 of the largest term where each row of E and each column of R spans at most 2^60 between its
        largest and its last bit; smaller bits than these are left out.
        """
        rows = _exponents(E, 1)
        parts = _slices(np.ldexp(E, -rows), self.bits)
        high = np.ldexp(right, -rows - self.exponents)
        low = np.zeros_like(high)
        pairs = [(i, j) for i in range(len(parts)) for j in range(len(self.parts))]
        for i, j in sorted(pairs, key=sum):
            product = parts[i] @ self.parts[j]
            total = high - product
            # what the subtraction lost, exactly (Knuth's two-sum)
            back = total - high
            low += (high - (total - back)) - (product + back)
            high = total
        return np.ldexp(high + low, rows + self.exponents)


def column_scale(matrix: np.ndarray) -> np.ndarray:
    """Powers of two [M] that bring each nonzero column to a length between 1/2 and 1: scaling by them is exact."""
    scale: np.ndarray = np.ldexp(1.0, -np.frexp(np.linalg.norm(matrix, axis=0))[1])
    return scale


def relative_residual(difference: np.ndarray, right: np.ndarray, scale: np.ndarray) -> float:
    """Frobenius norm of a residual over that of the right-hand side, columns scaled."""
    size, error = float(np.linalg.norm(right * scale)), float(np.linalg.norm(difference * scale))
    return error / size if size else error


class Factors:
    """QR factors of R [m, M], m >= M, with columns scaled by `column_scale`.

    `solve` gives the E of least norm. Raises CannotCarry when the columns are dependent in float64.
    """

    def __init__(self, matrix: np.ndarray) -> None:
        import scipy.linalg

        m, M = matrix.shape
        if not np.isfinite(matrix).all():
            raise MalformedInput("R_all is not finite: weights hold NaN or infinity, or products overflow")
        self.scale = column_scale(matrix)
        scaled = matrix * self.scale
        self.orthogonal = self.triangle = np.empty((0, 0))
        if m >= M:
            self.orthogonal, self.triangle = scipy.linalg.qr(scaled, mode="economic")
        diagonal = np.abs(np.diag(self.triangle))
        if m < M or not np.all(diagonal > m * np.finfo(np.float64).eps * np.max(diagonal)):
            rank = int(np.linalg.matrix_rank(scaled))
            raise CannotCarry(
                f"R_all [{m}, {M}] has numerical rank {rank} of M = {M}: there is no embedding to refine",
                rank=rank,
                columns=M,
                misfit=float("inf"),
            )

    def solve(self, right: np.ndarray) -> np.ndarray:
        """E [d_in, m] of least norm with E R = right [d_in, M], as float64 gives it at once."""
        import scipy.linalg

        solution = scipy.linalg.solve_triangular(self.triangle, (right * self.scale).T, trans="T")
        E: np.ndarray = (self.orthogonal @ solution).T
        return E

    def condition(self) -> float:
        """2-norm condition number of R with columns scaled to length one."""
        values = np.linalg.svd(self.triangle / np.linalg.norm(self.triangle, axis=0), compute_uv=False)
        return float(values[0] / values[-1])


def refine_embedding(
    matrix: np.ndarray,
    right: np.ndarray,
    E: np.ndarray,
    *,
    factors: Factors | None = None,
    steps: int = 8,
    max_memory: int | None = None,
) -> tuple[np.ndarray, float]:
    """(E, residual): iterative refinement of E R_all = W_all until rounding E to float64 stops it.

    matrix R_all [m, M], right W_all [d_in, M], E [d_in, m], float64; `factors` of the same matrix are used where given.
    residual: ||W_all - E R_all|| / ||W_all||, columns scaled, computed in twice the working precision. What remains is
    of the size of unit roundoff times ||E|| ||R_all||: no float64 E near this one does much better.
    Raises MalformedInput for sizes that don't fit or numbers that are not finite, CannotCarry where rank R_all < M,
    ResourceLimit before allocating.
    """
    arrays: dict[str, Any] = {"R_all": matrix, "W_all": right, "E": E}
    for name, array in arrays.items():
        if array.dtype != np.float64 or array.ndim != 2:
            raise MalformedInput(f"{name} must be a float64 matrix, got {array.dtype} {list(array.shape)}")
    m, M = matrix.shape
    if right.shape[1] != M or E.shape != (right.shape[0], m):
        raise MalformedInput(
            f"sizes differ: R_all {[m, M]}, W_all {list(right.shape)}, E {list(E.shape)}; expected [m, M], [d_in, M], [d_in, m]"
        )
    if not (np.isfinite(right).all() and np.isfinite(E).all()):
        raise MalformedInput("W_all or E is not finite: weights hold NaN or infinity, or products overflow")
    require_memory(8 * m * M * (_MOST_SLICES + 4), f"refinement at m = {m}, M = {M},", max_memory)
    solver = Factors(matrix) if factors is None else factors
    products = ExactProducts(matrix)
    difference = products.residual(right, E)
    residual = relative_residual(difference, right, solver.scale)
    for _ in range(steps):
        candidate = E + solver.solve(difference)
        remaining = products.residual(right, candidate)
        reached = relative_residual(remaining, right, solver.scale)
        if not reached < residual:
            break
        done = reached > _ENOUGH * residual
        E, difference, residual = candidate, remaining, reached
        if done:
            break
    return E, residual
