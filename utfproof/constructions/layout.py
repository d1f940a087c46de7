"""Index-map hosts laid out in blocks: reads and moves of whole blocks of coordinates, tries and shift registers of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

import numpy as np

from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.util.selection import SelectionMatrix, pieces, uniform

Move = tuple[np.ndarray, np.ndarray, int]
"""First coordinates of blocks (rows), where R_V takes them from (columns), and their width."""


def trie(shape: Shape, head: int, first: int, last: int, start: int = 0, width: int = 1) -> Move:
    """Block of (h,w) and block of w for words w of length first ... last-1; blocks of this width are numbered by length from
    `first`, then lexicographically, from the coordinate `start` on."""
    H = shape.heads
    rows, columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    begin = 0
    for length in range(first, last):
        words = np.arange(H**length)
        columns.append(begin + words)
        begin += H**length
        rows.append(begin + head * H**length + words)
    return start + width * np.concatenate(rows), start + width * np.concatenate(columns), width


def register(shape: Shape, head: int, start: int = 0, width: int = 1) -> Move:
    """Block of (h,w_1..w_{L-1}) and block of (w_1..w_L) for all words of length L, in lexicographic order."""
    words = np.arange(shape.leaves)
    rows = head * (shape.leaves // shape.heads) + words // shape.heads
    return start + width * rows, start + width * words, width


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

    def halves(self) -> tuple[Callable[[int], SelectionMatrix], Callable[[int], SelectionMatrix]]:
        """By head h: the first and the last d coordinates of block h of width 2d, [m, d] each."""
        d = self.shape.head_dim
        return lambda head: self.read([2 * head * d], d, d), lambda head: self.read([(2 * head + 1) * d], d, d)

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
    ) -> Universal:
        """The tied host with these matrices by head; U reads the block that begins at `output`."""
        parts = [tuple(make(head) for head in range(self.shape.heads)) for make in (query, key, value)]
        U = self.read([output], self.shape.d_out, self.shape.d_out)
        return Universal(self.shape, self.m, parts[0], parts[1], parts[2], U, name)
