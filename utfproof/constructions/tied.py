"""The tied ("looped") host: a trie for queries and keys, a shift register for outputs; universal by matching, m = M.

With a residual stream `tied` serves tied targets instead (residual.py): the stream keeps a word as it is, so words over the H
heads are all there is, and the outputs of those of every length stand in a trie too. It repairs thm:designed-R-looped, whose
printed dimension is below M. R_V^h e_w = e_{(h,w)} on trie blocks, and on register blocks e_(w_1..w_L) goes to
e_(h,w_1..w_{L-1}). Coordinates: docs/certificate-format.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from utfproof.shapes import Shape
from utfproof.systems import TiedUniversal
from utfproof.util.selection import Partition, SelectionMatrix

Pairs = tuple[np.ndarray, np.ndarray]
"""Cells or blocks (rows, columns) that R_V joins."""


def trie_pairs(shape: Shape, head: int, first: int, last: int) -> Pairs:
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


def register_pairs(shape: Shape, head: int) -> Pairs:
    """(block (h,w_1..w_{L-1}), block (w_1..w_L)) for all words of length L, in lexicographic order."""
    words = np.arange(shape.leaves)
    return head * (shape.leaves // shape.heads) + words // shape.heads, words


def tied_host(shape: Shape, m: int) -> TiedUniversal:
    """`tied`: cells are the Q and K halves of the trie blocks (d each), then the outputs (d_out each): the register's blocks,
    or with a residual stream those of the words of length 0 ... L."""
    plain = shape.without_residual()
    halves = 2 * plain.word_count
    outputs = 1 + plain.word_count if shape.residual else shape.leaves

    def route(head: int) -> Pairs:
        rows, columns = trie_pairs(plain, head, 1, shape.layers)
        outs = trie_pairs(plain, head, 0, shape.layers) if shape.residual else register_pairs(shape, head)
        return (
            np.concatenate([2 * rows, 2 * rows + 1, halves + outs[0]]),
            np.concatenate([2 * columns, 2 * columns + 1, halves + outs[1]]),
        )

    cells = padded([shape.head_dim] * halves + [shape.d_out] * outputs, m)
    return host_of_halves(shape, cells, halves, route, "tied")


def host_of_halves(
    shape: Shape, cells: Partition, outputs: int, route: Callable[[int], Pairs], name: str
) -> TiedUniversal:
    """The tied host on these cells: head h reads its query from cell 2h and its key from cell 2h + 1, U the first of the output
    cells, and R_V^h joins the pairs of `route`."""

    def read(cell: int, width: int) -> SelectionMatrix:
        return SelectionMatrix(cells, Partition.of_widths([width]), np.array([cell]), np.array([0]))

    heads = range(shape.heads)
    return TiedUniversal(
        shape,
        cells.size,
        tuple(read(2 * h, shape.head_dim) for h in heads),
        tuple(read(2 * h + 1, shape.head_dim) for h in heads),
        tuple(SelectionMatrix(cells, cells, *route(h)) for h in heads),
        read(outputs, shape.d_out),
        name,
    )


def padded(widths: list[int], m: int) -> Partition:
    """Cells of these widths, and one more for the coordinates that are zero in every matrix."""
    padding = m - sum(widths)
    return Partition.of_widths([*widths, padding] if padding else widths)
