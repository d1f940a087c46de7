"""Matrices over GF(p) as float64 arrays of centred residues: products and rank on BLAS, without rounding.

Exactness: entries satisfy |x| <= (p-1)/2, so a sum of k products is at most k ((p-1)/2)^2. `block_length(p)` is the largest
k that keeps this at most 2^52, and every product below sums at most that many terms before it is reduced (256 for p just
below 2^23, the default). The factor 2 to spare up to 2^53 leaves room for one added residue and for the multiple of p that
the reduction subtracts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput

DEFAULT_PRIMES = (8388593, 8388587, 8388581)
"""The three largest primes below 2^23."""
_PANEL = 64


def block_length(p: int) -> int:
    """How many products of centred residues modulo p can be summed exactly in float64."""
    half = (p - 1) // 2
    return (2**52) // (half * half) if half else 2**52


def check_prime(p: int) -> int:
    """`p` if it is an odd prime small enough for this engine (at least one product exact); MalformedInput otherwise."""
    if isinstance(p, bool) or not isinstance(p, int | np.integer):
        raise MalformedInput(f"modulus must be an integer, got {p!r}")
    from flint import fmpz

    p = int(p)
    if p < 3 or not fmpz(p).is_prime():
        raise MalformedInput(f"modulus must be an odd prime, got {p}")
    if block_length(p) < 2:
        raise MalformedInput(f"modulus must be below 2^27 for exact float64 products, got {p}")
    return p


def centred(array: np.ndarray, p: int) -> np.ndarray:
    """Exact float64 integers, at most 2^52 + p in size, reduced to centred residues."""
    out = np.asarray(array, dtype=np.float64)
    # the rounded quotient may be off by one near a tie; one more pass over the rare strays repairs that
    out = out - np.rint(out / p) * p
    half = (p - 1) / 2
    np.subtract(out, p, out=out, where=out > half)
    np.add(out, p, out=out, where=out < -half)
    return out


def residues_of_integers(array: np.ndarray, p: int) -> np.ndarray:
    """Centred residues of an integer array (int64, or object)."""
    reduced = np.asarray(np.asarray(array) % p, dtype=np.float64)
    return np.where(reduced > (p - 1) // 2, reduced - p, reduced)


def residues_of_floats(array: np.ndarray, p: int) -> np.ndarray:
    """Centred residues of finite floats, exactly: significand times a power of two, which is invertible modulo p.

    Raises MalformedInput for NaN and infinities, naming the first index.
    """
    values = np.asarray(array, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise MalformedInput(f"entry {index} is {values[index]}; only finite weights have residues")
    significand, exponent = np.frexp(values)
    integer = np.ldexp(significand, 53).astype(np.int64) % p
    low = int(exponent.min(initial=0)) - 53
    powers = np.array([pow(2, e, p) for e in range(low, int(exponent.max(initial=0)) - 52)], dtype=np.int64)
    return residues_of_integers(integer * powers[exponent - 53 - low], p)


def multiply(a: np.ndarray, b: np.ndarray, p: int) -> np.ndarray:
    """a @ b modulo p, centred residues in and out."""
    step = block_length(p)
    inner = a.shape[1]
    if inner <= step:
        return centred(a @ b, p)
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, inner, step):
        total += centred(a[:, start : start + step] @ b[start : start + step], p)
        # sums of reduced blocks stay below 2^53 for any inner dimension that fits in memory
    return centred(total, p)


class ResidueMatrix:
    """A matrix over GF(p) drawn when it is first needed, for `matching.r_all`: supports @, hstack and materialise."""

    def __init__(self, shape: tuple[int, int], p: int, draw: Callable[[], np.ndarray]) -> None:
        self.shape = shape
        self.p = p
        self._draw = draw

    @classmethod
    def of(cls, array: np.ndarray, p: int) -> ResidueMatrix:
        """Wrap centred residues."""
        rows, columns = array.shape
        return cls((rows, columns), p, lambda: array)

    @property
    def array(self) -> np.ndarray:
        """Centred residues [rows, columns], drawn anew at each call unless materialised."""
        return self._draw()

    def materialise(self) -> ResidueMatrix:
        """The same matrix, held in memory."""
        return ResidueMatrix.of(self._draw(), self.p)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, ResidueMatrix):
            return NotImplemented
        return ResidueMatrix.of(multiply(self.array, other.array, self.p), self.p)

    def hstack_with(self, others: list[ResidueMatrix]) -> ResidueMatrix:
        """This matrix and others side by side."""
        return ResidueMatrix.of(np.concatenate([self.array, *(part.array for part in others)], axis=1), self.p)


def rank(matrix: np.ndarray, p: int, *, engine: str = "blas") -> int:
    """Rank over GF(p) of a matrix of centred residues; engine "blas" (here) or "flint" (the second opinion)."""
    p = check_prime(p)
    if 0 in matrix.shape:
        return 0
    if engine == "flint":
        from flint import nmod_mat

        rows, columns = matrix.shape
        entries = (matrix % p).astype(np.int64).reshape(-1).tolist()
        return int(nmod_mat(rows, columns, entries, p).rank())
    if engine != "blas":
        raise MalformedInput(f"engine {engine!r} is unknown; choose blas or flint")
    return _rank_blas(matrix, p)


def _rank_blas(matrix: np.ndarray, p: int) -> int:
    """Right-looking blocked elimination: panels of columns, then one matrix product for all columns behind them."""
    work = np.array(matrix, dtype=np.float64)
    if work.shape[0] < work.shape[1]:
        work = np.ascontiguousarray(work.T)
    panel = min(_PANEL, block_length(p))
    row = 0
    for start in range(0, work.shape[1], panel):
        if row == work.shape[0]:
            break
        stop = min(start + panel, work.shape[1])
        row += _eliminate_panel(work, row, start, stop, p)
    return row


def _eliminate_panel(work: np.ndarray, top: int, start: int, stop: int, p: int) -> int:
    """Eliminate columns start ... stop-1 in rows from `top` on, update the columns behind; returns the pivots found."""
    block = np.array(work[top:, start:stop])
    multipliers = np.zeros_like(block)  # unit lower triangular factor, column k for pivot k
    found = 0
    for column in range(stop - start):
        candidates = np.flatnonzero(block[found:, column])
        if not len(candidates):
            continue
        pivot = found + int(candidates[0])
        if pivot != found:
            for table in (block, multipliers):
                table[[found, pivot]] = table[[pivot, found]]
            work[[top + found, top + pivot], stop:] = work[[top + pivot, top + found], stop:]
        inverse = pow(int(block[found, column]) % p, -1, p)
        inverse = inverse - p if inverse > (p - 1) // 2 else inverse
        factor = centred(block[found + 1 :, column] * inverse, p)
        multipliers[found + 1 :, found] = factor
        block[found + 1 :, column:] = centred(block[found + 1 :, column:] - np.outer(factor, block[found, column:]), p)
        found += 1
        if top + found == work.shape[0]:
            break
    if found and stop < work.shape[1]:
        behind = work[top:, stop:]
        upper = np.array(behind[:found])
        for k in range(1, found):  # solve with the unit lower triangle, found x found
            upper[k] = centred(upper[k] - multipliers[k, :k] @ upper[:k], p)
        behind[found:] = centred(behind[found:] - multipliers[found:, :found] @ upper, p)
    return found
