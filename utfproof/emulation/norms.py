"""2-norms whose squares neither overflow nor underflow: everything is scaled by a power of two first, which rounds nothing.

Without this a matrix of entries below 10^-162 has norm 0, and one of entries above 10^154 has none.
"""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

import numpy as np

from utfproof.ground.arrays import to_numpy
from utfproof.ground.selection import SelectionMatrix

_EXACT_NORM = 512
_POWER_STEPS, _POWER_STARTS = 3, 16
_TAME = 300
"""Binary exponents between which squares, and sums of 2^400 of them, are normal numbers."""


def exponents(sizes: np.ndarray) -> np.ndarray:
    """e with sizes < 2^e <= 2 sizes; 0 for zero and for what is not finite."""
    found: np.ndarray = np.where(np.isfinite(sizes), np.frexp(sizes)[1], 0)
    return found


def length(array: Any, axis: int | None = None) -> Any:
    """The 2-norm along an axis (of all entries: None), each scaled by itself."""
    array = np.asarray(array, dtype=np.float64)
    most = np.abs(array).max(axis=axis, keepdims=True, initial=0.0)
    scale = exponents(most)
    squares = np.square(np.ldexp(array, -scale)).sum(axis=axis)
    return np.ldexp(np.sqrt(squares), scale.reshape(np.shape(squares)))


def longest(array: Any, axis: int) -> float:
    """The largest 2-norm along an axis."""
    return float(length(array, axis).max(initial=0.0))


def tamed(array: np.ndarray) -> tuple[np.ndarray, int]:
    """(a, e) with array = a 2^e, where a's largest entry can be squared; the array itself where that can be squared."""
    most = max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    exponent = int(exponents(np.asarray(most)))
    return (array, 0) if abs(exponent) <= _TAME else (np.ldexp(array, -exponent), exponent)


def raised(base: float, power: int) -> float:
    """base^power, infinite where float64 has no such number."""
    try:
        return float(base) ** power
    except OverflowError:
        return inf


def spectral_norm(matrix: Any) -> float:
    """Upper bound of the 2-norm of a matrix [a, b].

    Exact up to rounding where a side is at most 512. Beyond that |B x| for 16 Gaussian vectors x and B = R (R^T R)^3: with
    probability 1 - 10^-16 the norm of B, which is that of R to the power 7, is at most 10 sqrt(2/pi) times the largest of
    them (Halko, Martinsson and Tropp 2011, lemma 4.1).
    """
    if isinstance(matrix, SelectionMatrix):
        rows, columns = matrix.coordinates()
        most = [int(np.bincount(side).max(initial=0)) for side in (rows, columns)]
        return sqrt(most[0] * most[1])
    dense, exponent = tamed(np.asarray(to_numpy(matrix), dtype=np.float64))
    return float(np.ldexp(_spectral_norm(dense), exponent))


def _spectral_norm(dense: np.ndarray) -> float:
    """Of a matrix whose entries can be squared."""
    if min(dense.shape) <= _EXACT_NORM:
        gram = dense.T @ dense if dense.shape[0] >= dense.shape[1] else dense @ dense.T
        if not np.isfinite(gram).all():
            return inf
        return sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) * (1 + 1e-9)) if gram.size else 0.0
    scale = float(np.abs(dense).max())
    if not scale:
        return 0.0
    vectors = dense @ np.random.default_rng(0).standard_normal((dense.shape[1], _POWER_STARTS)) / scale
    for _ in range(_POWER_STEPS):
        vectors = dense @ (dense.T @ vectors / scale) / scale
    largest = float(np.linalg.norm(vectors, axis=0).max())
    return scale * float((10 * sqrt(2 / pi) * largest) ** (1 / (2 * _POWER_STEPS + 1)))


def block_norms(blocks: np.ndarray) -> np.ndarray:
    """2-norms of blocks [rows, count, width], [count], each scaled by itself; infinite where one is not finite."""
    stacked = np.ascontiguousarray(blocks.transpose(1, 0, 2))
    scale = exponents(np.abs(stacked).max(axis=(1, 2), initial=0.0))
    stacked = np.ldexp(stacked, -scale[:, None, None])
    grams = stacked.transpose(0, 2, 1) @ stacked
    finite = np.isfinite(grams).all(axis=(1, 2))
    norms = np.full(len(grams), np.inf)
    norms[finite] = np.sqrt(np.maximum(np.linalg.eigvalsh(grams[finite])[:, -1], 0) * (1 + 1e-9))
    return np.asarray(np.ldexp(norms, scale))
