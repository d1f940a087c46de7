"""E R_all = W_all in float64: one factorisation of R_all, columns scaled to length one, and many right-hand sides.

A square R_all takes an LU factorisation with one step of iterative refinement, a taller one QR (the solution of least norm).
The condition number is computed where R_all is small. Elsewhere LAPACK estimates it in the 1-norm from the factors; where the
estimate is near what float64 can see, the singular values decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.errors import CannotCarry, MalformedInput, Undecided
from utfproof.shapes import Shape
from utfproof.util.arrays import Array, one_line
from utfproof.util.notions import Notion
from utfproof.util.progress import LARGE, stage

_ROUNDING = float(np.finfo(np.float64).eps)
EXACT_COLUMNS = 512
"""Up to so many columns all singular values are computed."""
CLOSE = 1e-8
"""Of an entry of W_all: what E R_all may miss of it, the part of outputs at which models are compared as well."""


@one_line
@dataclass(frozen=True, eq=False)
class Embedding:
    """An embedding E [d_in, m] for one target, and how good it is.

    notion: what E achieves. method: "closed form", "inclusion and exclusion" (residual streams), "formula",
    "least squares" or "rational solve". rank and columns: of R_all (None where a formula did not need them; numerical where
    E comes from least squares). condition: 2-norm condition number of R_all with columns scaled to length one (1 for a
    permutation; for formulas of the matrices that it inverts; None where not computed); condition_estimated: LAPACK's
    estimate of that in the 1-norm. relative_residual: ||E R_all - W_all|| / ||W_all||, 0 where exact.
    """

    E: Array
    notion: Notion
    method: str
    rank: int | None = None
    columns: int | None = None
    condition: float | None = None
    relative_residual: float | None = None
    condition_estimated: bool = False


def deficient(
    shape: Shape, rank: int, columns: int, relative_residual: float, kind: str = "numerical rank"
) -> CannotCarry:
    """The error for a target that a deficient R_all does not reach."""
    return CannotCarry(
        f"this host cannot carry this target by matching: {kind} R_all = {rank} of M = {columns} at {shape}, "
        f"relative residual of E R_all = W_all {relative_residual:.3g} (this does not decide functional universality)",
        rank=rank,
        columns=columns,
        relative_residual=relative_residual,
    )


def column_scale(matrix: np.ndarray) -> np.ndarray:
    """Factors that give each nonzero column length one."""
    norms = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
    scale: np.ndarray = 1 / np.where(norms > 0, norms, 1)
    return scale


def count_significant(values: np.ndarray, size: tuple[int, ...]) -> int:
    """Numerical rank: singular values (descending) above rounding, for a matrix of this size."""
    return int((values > max(size) * _ROUNDING * values[0]).sum()) if values[0] > 0 else 0


def relative(difference: np.ndarray, reference: np.ndarray) -> float:
    """||difference|| / ||reference||; ||difference|| where the reference is zero."""
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(difference)) / scale if scale else float(np.linalg.norm(difference))


def least_squares(matrix: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimum-norm E and the relative residual, for a matrix of any rank."""
    solution = np.linalg.lstsq(matrix.T, right.T, rcond=max(matrix.shape) * _ROUNDING)[0].T
    return solution, relative(solution @ matrix - right, right)


def require_finite(name: str, value: np.ndarray | float) -> None:
    """MalformedInput where entries, or a norm that is to be bounded, are not finite: no bound notices a NaN."""
    if not np.isfinite(value).all():
        raise MalformedInput(f"{name} is not finite: weights hold NaN or infinity, or products overflow")


class _LU:
    """A^T = P L U for a square A [n, n], which is overwritten."""

    def __init__(self, matrix: np.ndarray) -> None:
        from scipy.linalg import lapack

        self._size = float(np.abs(matrix).sum(axis=1).max())
        self._factors, self._pivots, _ = lapack.dgetrf(matrix.T, overwrite_a=True)

    def condition(self) -> float:
        """LAPACK's estimate in the 1-norm of A^T."""
        return _condition(self._factors, self._size)

    def left(self, right: np.ndarray) -> np.ndarray:
        """E with E A = right [k, n]."""
        from scipy.linalg import lapack

        return np.ascontiguousarray(lapack.dgetrs(self._factors, self._pivots, right.T)[0].T)


class _QR:
    """A = Q R for a tall A [m, n], which may be overwritten."""

    def __init__(self, matrix: np.ndarray) -> None:
        import scipy.linalg

        self._orthogonal, self.triangle = scipy.linalg.qr(matrix, mode="economic", overwrite_a=True)

    def condition(self) -> float:
        """LAPACK's estimate in the 1-norm of R."""
        return _condition(self.triangle, float(np.abs(self.triangle).sum(axis=0).max()))

    def left(self, right: np.ndarray) -> np.ndarray:
        """The E of least norm with E A = right [k, n]."""
        import scipy.linalg

        found = scipy.linalg.solve_triangular(self.triangle, right.T, trans="T")
        return np.ascontiguousarray((self._orthogonal @ found).T)


def _condition(factors: np.ndarray, size: float) -> float:
    """From L and U in one array, or from a triangle alone, and the 1-norm of what they are factors of; inf where singular."""
    from scipy.linalg import lapack

    reciprocal = float(lapack.dgecon(factors, size)[0])
    return 1 / reciprocal if reciprocal > 0 else float("inf")


class FloatSolver:
    """E R_all = W_all in float64 for one R_all [m, M] and many right-hand sides.

    rank is numerical; condition is the 2-norm condition number of R_all with columns of length one, infinite below rank M;
    estimated: it is LAPACK's estimate, see `Embedding`. Raises MalformedInput for entries that are not finite.
    """

    def __init__(self, matrix: np.ndarray, shape: Shape) -> None:
        require_finite("R_all", matrix)
        m, M = matrix.shape
        self.shape = shape
        self.matrix = matrix
        self.scale = column_scale(matrix)
        self.estimated = M > EXACT_COLUMNS and m >= M
        self._factors: _LU | _QR | None = None
        if self.estimated:
            with stage("factor R_all"):
                self._factors = (_LU if m == M else _QR)(self._scaled())
            self.rank, self.condition = M, self._factors.condition()
            # an estimate near what float64 sees decides nothing
            self.estimated = self.condition * max(m, M) * _ROUNDING < 0.5
        if not self.estimated:
            self._decompose()

    def _scaled(self) -> np.ndarray:
        """A copy of R_all, columns scaled to length one: whole only where something is factored."""
        return self.matrix * self.scale

    def _times(self, rows: np.ndarray) -> np.ndarray:
        """rows [k, m] times the scaled R_all."""
        return (rows @ self.matrix) * self.scale

    def _decompose(self) -> None:
        """Rank and condition from the singular values."""
        m, M = self.matrix.shape
        with stage("singular values of R_all", large=20.0 * m * M * min(m, M) > LARGE):
            if m < M:
                values = np.linalg.svd(self._scaled(), compute_uv=False)
            else:
                factors = _QR(self._scaled())
                values = np.linalg.svd(factors.triangle, compute_uv=False)
                self._factors = factors
        self.rank = count_significant(values, (m, M))
        self.condition = float(values[0] / values[-1]) if self.rank == M else float("inf")

    def _relative_residuals(self, E: np.ndarray, goal: np.ndarray) -> tuple[float, float]:
        """Of E R_all = goal [d_in, M], columns scaled: the largest residual of a row relative to that row of the goal, and of
        an entry relative to itself, or to the small entries of its row if those are larger.

        Each row is solved for by itself, backward stably: the residual of row k is a modest multiple of max(m, M) eps |goal_k|
        at most, and a larger one refutes. A smaller one shows nothing of entries that are below it: where one entry of a row
        is 10^14 times the others, the others may be missed altogether. So each entry has to be met for itself, and those that
        are zero, or nearly, by the tenth of the row's other entries that is smallest."""
        difference, sizes = np.abs(self._times(E) - goal), np.abs(goal)
        lengths = np.linalg.norm(sizes, axis=1)
        rows = np.linalg.norm(difference, axis=1) / np.where(lengths > 0, lengths, 1)
        small = np.array([np.quantile(row[row > 0], 0.1) if row.any() else 1.0 for row in sizes])
        return float(rows.max(initial=0.0)), float((difference / np.maximum(sizes, small[:, None])).max(initial=0.0))

    @np.errstate(over="ignore", invalid="ignore")
    def solve(self, right: np.ndarray) -> Embedding:
        """The E of least norm for W_all [d_in, M]; CannotCarry where a deficient R_all does not reach it,
        Undecided where rounding hides whether it does, MalformedInput for numbers beyond float64's range."""
        m, M = self.matrix.shape
        goal = right * self.scale
        require_finite("W_all", float(np.linalg.norm(goal)))
        if self.rank < M:
            E, relative_residual = least_squares(self._scaled(), goal)
            require_finite("E R_all", relative_residual)
            noise = 8 * max(m, M) * _ROUNDING
            rows, entries = self._relative_residuals(E, goal)
            if max(relative_residual, rows) > noise:
                raise deficient(self.shape, self.rank, M, max(relative_residual, rows))
            if entries > CLOSE:
                raise Undecided(
                    "float64 does not see whether this host carries this target: numerical rank R_all = "
                    f"{self.rank} of M = {M}, and entries of W_all are so far apart in size that what E R_all misses of the "
                    f"smaller ones, {entries:.3g} of them, may be rounding of the larger ones; scale the target's weights"
                )
            return Embedding(E, Notion.MATCHING, "least squares", self.rank, M, float("inf"), relative_residual)
        assert self._factors is not None
        work = 8.0 * len(goal) * m * M
        with stage("solve for E", large=work > LARGE):
            E = self._factors.left(goal)
            E += self._factors.left(goal - self._times(E))  # one refinement step
        relative_residual = relative(self._times(E) - goal, goal)
        require_finite("E R_all", relative_residual)
        return Embedding(
            E, Notion.MATCHING, "least squares", self.rank, M, self.condition, relative_residual, self.estimated
        )
