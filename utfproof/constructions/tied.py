"""The tied ("looped") host: a trie for queries and keys, a shift register for outputs; universal by matching, m = M.

With a residual stream `tied` serves tied targets instead (residual.py). It repairs thm:designed-R-looped, whose printed
dimension is below M. R_V^h e_w = e_{(h,w)} on trie blocks, and on register blocks e_(w_1..w_L) goes to
e_(h,w_1..w_{L-1}). Coordinates: docs/certificate-format.md section 4.3.
"""

from __future__ import annotations

import numpy as np

from utfproof.ground.selection import Partition, SelectionMatrix
from utfproof.shapes import Shape
from utfproof.systems import TiedUniversal


def trie_pairs(shape: Shape, head: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """(block of (h,w), block of w) for words w of length first ... last-1, blocks numbered by length from `first`,
    then lexicographically."""
    H = shape.heads
    rows, columns = [], []
    start = 0
    for length in range(first, last):
        words = np.arange(H**length)
        columns.append(start + words)
        start += H**length
        rows.append(start + head * H**length + words)
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate(rows or [empty]), np.concatenate(columns or [empty])


def register_pairs(shape: Shape, head: int) -> tuple[np.ndarray, np.ndarray]:
    """(block (h,w_1..w_{L-1}), block (w_1..w_L)) for all words of length L, in lexicographic order."""
    words = np.arange(shape.leaves)
    return head * (shape.leaves // shape.heads) + words // shape.heads, words


def tied_host(shape: Shape, m: int) -> TiedUniversal:
    """`tied`: cells are the Q and K halves of the trie blocks (d each), then the register blocks (d_out each)."""
    blocks = shape.word_count
    widths = [shape.head_dim] * (2 * blocks) + [shape.d_out] * shape.leaves
    padding = m - sum(widths)
    cells = Partition.of_widths([*widths, padding] if padding else widths)
    register = 2 * blocks
    reader, output = Partition.of_widths([shape.head_dim]), Partition.of_widths([shape.d_out])

    def read(cell: int, columns: Partition) -> SelectionMatrix:
        return SelectionMatrix(cells, columns, np.array([cell]), np.array([0]))

    def route(head: int) -> SelectionMatrix:
        rows, columns = trie_pairs(shape, head, 1, shape.layers)
        shift_rows, shift_columns = register_pairs(shape, head)
        return SelectionMatrix(
            cells,
            cells,
            np.concatenate([2 * rows, 2 * rows + 1, register + shift_rows]),
            np.concatenate([2 * columns, 2 * columns + 1, register + shift_columns]),
        )

    heads = range(shape.heads)
    return TiedUniversal(
        shape,
        m,
        tuple(read(2 * h, reader) for h in heads),
        tuple(read(2 * h + 1, reader) for h in heads),
        tuple(route(h) for h in heads),
        read(register, output),
        "tied",
    )
