"""2-norms whose squares neither overflow nor underflow: arrays are scaled by powers of two first, which rounds nothing."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np

from utfproof.util.arrays import to_numpy
from utfproof.util.selection import SelectionMatrix

_EXACT_NORM = 1024
_UNIT = 2.0**-52


def exponents(sizes: np.ndarray) -> np.ndarray:
    """e with sizes < 2^e <= 2 sizes; 0 for zero and for what is not finite."""
    found: np.ndarray = np.where(np.isfinite(sizes), np.frexp(sizes)[1], 0)
    return found


def length(array: Any, axis: int | None = None) -> Any:
    """The 2-norm along an axis (of all entries: None), each scaled by itself."""
    array = np.asarray(array, dtype=np.float64)
    scale = exponents(np.abs(array).max(axis=axis, keepdims=True, initial=0.0))
    squares = np.square(np.ldexp(array, -scale)).sum(axis=axis)
    return np.ldexp(np.sqrt(squares), scale.reshape(np.shape(squares)))


def longest(array: Any, axis: int) -> float:
    """The largest 2-norm along an axis."""
    return float(length(array, axis).max(initial=0.0))


def raised(base: float, power: int) -> float:
    """base^power, infinite where float64 has no such number."""
    try:
        return float(base) ** power
    except OverflowError:
        return inf


def spectral_norm(matrix: Any) -> float:
    """Upper bound of the 2-norm of a matrix R [a, b].

    Where a side is at most 1024: from the eigenvalues of the Gram matrix, LAPACK's errors taken for at most 1e-9 of it. Beyond
    that |G^2|_F^(1/4) with G = R^T R or R R^T and its rounding, at most the rank's 8th root times the norm.
    """
    if isinstance(matrix, SelectionMatrix):
        rows, columns = matrix.coordinates()
        most = [int(np.bincount(side).max(initial=0)) for side in (rows, columns)]
        return sqrt(most[0] * most[1])
    dense = np.asarray(to_numpy(matrix), dtype=np.float64)
    scale = int(exponents(np.abs(dense).max(initial=0.0)))
    return float(np.ldexp(_spectral_norm(np.ldexp(dense, -scale)), scale))


def _spectral_norm(dense: np.ndarray) -> float:
    """Of a matrix whose largest entry is between 1/2 and 1."""
    if min(dense.shape) <= _EXACT_NORM:
        return float(block_norms(dense[None])[0])
    gram = dense.T @ dense if dense.shape[0] >= dense.shape[1] else dense @ dense.T
    square = float(length(gram @ gram)) + len(gram) * _UNIT * float(length(gram)) ** 2
    return sqrt(sqrt(square) + max(dense.shape) * _UNIT * float(length(dense)) ** 2)


def block_norms(blocks: np.ndarray) -> np.ndarray:
    """2-norms of matrices [count, rows, width], [count], each scaled by itself; infinite where one is not finite."""
    scale = exponents(np.abs(blocks).max(axis=(1, 2), initial=0.0))
    scaled = np.ldexp(np.asarray(blocks, dtype=np.float64), -scale[:, None, None])
    if scaled.shape[1] < scaled.shape[2]:
        scaled = scaled.transpose(0, 2, 1)
    with np.errstate(invalid="ignore"):
        grams = scaled.transpose(0, 2, 1) @ scaled
    finite = np.isfinite(grams).all(axis=(1, 2))
    norms = np.full(len(grams), np.inf)
    if finite.any() and grams.size:
        norms[finite] = np.sqrt(np.maximum(np.linalg.eigvalsh(grams[finite])[:, -1], 0) * (1 + 1e-9))
    return np.asarray(np.ldexp(norms, scale)) if grams.size else np.zeros(len(blocks))
