"""Index-map hosts laid out in blocks: reads and moves of whole blocks of coordinates, and the embeddings that fill them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

import numpy as np

from utfproof.shapes import Shape
from utfproof.systems import TiedUniversal
from utfproof.util.arrays import Array, hstack, namespace, zeros
from utfproof.util.selection import SelectionMatrix, pieces, uniform

Move = tuple[np.ndarray, np.ndarray, int]
"""First coordinates of blocks (rows), where R_V takes them from (columns), and their width."""


class Layout:
    """m coordinates cut into cells of one size, the largest that fits head_dim, d_out, m and these widths of blocks."""

    def __init__(self, shape: Shape, m: int, *widths: int) -> None:
        self.shape, self.m = shape, m
        self.unit = gcd(shape.head_dim, shape.d_out, m, *widths)
        self.cells = uniform(m, self.unit)

    def read(self, begins: Sequence[int], width: int, columns: int) -> SelectionMatrix:
        """[m, columns]: the first `width` coordinates of each of these blocks, added up."""
        first = np.zeros(len(begins), dtype=np.int64)
        return pieces(self.cells, uniform(columns, self.unit), np.array(begins), first, width, self.unit)

    def moved(self, *moves: Move) -> SelectionMatrix:
        """[m, m]: an identity for every pair of blocks."""
        parts = [pieces(self.cells, self.cells, rows, columns, width, self.unit) for rows, columns, width in moves]
        rows, columns = (np.concatenate([getattr(p, side) for p in parts]) for side in ("row_cells", "column_cells"))
        return SelectionMatrix(self.cells, self.cells, rows, columns)

    def tied(
        self,
        name: str,
        query: Callable[[int], SelectionMatrix],
        key: Callable[[int], SelectionMatrix],
        value: Callable[[int], SelectionMatrix],
        output: int,
    ) -> TiedUniversal:
        """The tied host with these matrices by head; U reads the block that begins at `output`."""
        parts = [tuple(make(head) for head in range(self.shape.heads)) for make in (query, key, value)]
        U = self.read([output], self.shape.d_out, self.shape.d_out)
        return TiedUniversal(self.shape, self.m, parts[0], parts[1], parts[2], U, name)


# --- embeddings --------------------------------------------------------------------------------------------


def side_by_side(products: Array, readers: list[Array]) -> Array:
    """Products [words, d_in, D] times each reader [D, k], as columns [d_in, words * readers * k]: by word, then reader."""
    tables = namespace(products).stack([products @ reader for reader in readers], axis=1)
    return namespace(tables).moveaxis(tables, 2, 0).reshape(products.shape[1], -1)


def widened(matrix: Array, columns: int) -> Array:
    """The matrix with zero columns up to this many."""
    return hstack([matrix, zeros(matrix, matrix.shape[0], columns - matrix.shape[1])])


def padded_columns(parts: list[Array], m: int) -> Array:
    """Columns side by side, and zeros up to m of them."""
    return widened(hstack(parts), m)
