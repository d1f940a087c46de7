"""R_all modulo a prime for dense hosts, in slabs of rows: one matrix of the host is met slab by slab, turned into residues,
multiplied and forgotten. Besides R_all itself only the stack behind the first layer is held, and slabs that fit a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from utfproof.exact.gfp import dtype_for
from utfproof.exact.gfp.kernels import NumpyKernels
from utfproof.matching.equations import blocks_before, canonical_order
from utfproof.shapes import Shape, matching_dimension
from utfproof.util.arrays import block_coordinates
from utfproof.util.progress import LARGE, staged

Rows = Callable[[str, int, int, slice], np.ndarray]
"""(tensor, layer, head, rows) -> these rows of that matrix as residues of type `gfp.dtype_for(p)`. Layers and heads count
from 0."""
_SLAB = 1 << 20
"""Entries of a slab of rows (8 MiB)."""
_ROWS = 256
"""Rows that a slab has at least: BLAS packs the other factor anew for each."""


def r_all_modulo(shape: Shape, m: int, p: int, rows: Rows, values: tuple[str, ...] = ("R_V",)) -> np.ndarray:
    """R_all [m, M] modulo p in canonical column order, centred residues of the type that fits p.

    values: the tensors whose product is R_V, R_V itself or its factors R_Vv, R_Vo (never multiplied with each other).
    """
    kernels, everything = NumpyKernels(p, dtype_for(p)), slice(0, m)
    kind, length, word = np.array([2]), np.array([0]), np.array([0])
    stack = rows("U", 0, 0, everything)
    large = 2.0 * m * m * matching_dimension(shape) > LARGE
    for layer in staged(f"R_all modulo {p}", reversed(range(shape.layers)), shape.layers, unit="layers", large=large):
        kind, length, word = blocks_before(shape, kind, length, word)
        widths = np.where(kind == 2, shape.d_out, shape.head_dim)
        place = None
        if layer == 0:  # the blocks go straight to where they belong
            order = canonical_order(kind, length, word)
            place = np.empty(int(widths.sum()), dtype=np.int64)
            place[block_coordinates(widths, order)] = np.arange(len(place))
        stack = _stack_before(shape, m, layer, stack, rows, values, kernels, place)
    return stack


def stacked_memory(shape: Shape, m: int, M: int) -> int:
    """Bytes that `r_all_modulo` holds at its peak: R_all, the stack behind the first layer, and slabs."""
    behind = (M - 2 * shape.heads * shape.head_dim) // shape.letters
    return 8 * (m * (M + behind) + min(3 * max(_SLAB, _ROWS * max(m, M)), 5 * m * max(m, M)))


def _stack_before(
    shape: Shape,
    m: int,
    layer: int,
    stack: np.ndarray,
    rows: Rows,
    values: tuple[str, ...],
    kernels: NumpyKernels,
    place: np.ndarray | None,
) -> np.ndarray:
    """[R_Q, R_K, (the stack itself with a residual stream), R_V^h stack, ...] of one layer, its columns put at `place`."""
    H, d, width = shape.heads, shape.head_dim, stack.shape[1]
    out = kernels.zeros(m, 2 * H * d + shape.letters * width)

    def put(part: slice, start: int, block: np.ndarray) -> None:
        columns = np.arange(start, start + block.shape[1]) if place is None else place[start : start + block.shape[1]]
        cuts = [0, *(np.flatnonzero(np.diff(columns) != 1) + 1), len(columns)]
        for first, last in pairwise(cuts):  # columns that stay together are copied together
            out[part, columns[first] : columns[last - 1] + 1] = block[:, first:last]

    for part in _slabs(m, m):
        for number, tensor in enumerate(("R_Q", "R_K")):
            for head in range(H):
                put(part, (number * H + head) * d, rows(tensor, layer, head, part))
        if shape.residual:
            put(part, 2 * H * d, stack[part])
    start = 2 * H * d + shape.residual * width
    for head in range(H):
        behind = stack
        for tensor in values[:0:-1]:  # the later factor first
            behind = _product(rows(tensor, layer, head, slice(None)), behind, kernels)
        for part in _slabs(m, max(m, width)):
            put(part, start + head * width, _product(rows(values[0], layer, head, part), behind, kernels))
    return out


def _product(left: np.ndarray, right: np.ndarray, kernels: NumpyKernels) -> np.ndarray:
    found = kernels.product(left, right)
    kernels.centre(found)
    return found


def _slabs(m: int, width: int) -> Iterator[slice]:
    step = max(_ROWS, _SLAB // max(1, width))
    return (slice(start, min(start + step, m)) for start in range(0, m, step))
