"""Sparse untied hosts: the prefix tree of thm:sparse_universal_transformer, repaired (universal by matching, m = M).

The printed routing maps move blocks that later readers look for elsewhere; here R_V either projects (`sparse`) or moves
the chosen subtree to the front (`sparse-front`, what the paper's figure suggests). With a residual stream `sparse` is the
tree over the letters 0 ... H: the stream keeps every block, E R_w reads block w and, for every zero of w, the blocks with any
other letter in that place, so R_all is unimodular. Coordinates: docs/certificate-format.md sections 4.1 and 4.2.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from utfproof.constructions.layout import Layout
from utfproof.constructions.record import Construction, index_map_bytes
from utfproof.shapes import Shape, geometric, matching_dimension
from utfproof.systems import Universal
from utfproof.util.notions import Notion
from utfproof.util.selection import Partition, SelectionMatrix, over_equal_cells, pieces, uniform

PrefixTree = tuple[Partition, list[int]]


def prefix_tree(shape: Shape, m: int) -> PrefixTree:
    """Cells of the tree, and the first cell of each depth 0 ... L.

    An internal block is 2H cells of width d (Q_0 ... Q_{H-1}, K_0 ... K_{H-1}), a leaf is one cell of width d_out; a last cell
    holds the padding.
    """
    L, per_block = shape.layers, 2 * shape.heads
    starts = [0]
    for depth in range(L):
        starts.append(starts[-1] + per_block * shape.words_at(depth))
    widths = np.full(starts[-1] + shape.words_at(L), shape.head_dim, dtype=np.int64)
    widths[starts[-1] :] = shape.d_out
    padding = m - int(widths.sum())
    return Partition.of_widths(np.append(widths, padding) if padding else widths), starts


def block_cells(shape: Shape, starts: list[int], depth: int, words: np.ndarray) -> np.ndarray:
    """All cells of the blocks of these words (indices in lexicographic order) of length `depth`."""
    per_block = 1 if depth == shape.layers else (starts[depth + 1] - starts[depth]) // shape.words_at(depth)
    return (starts[depth] + words[:, None] * per_block + np.arange(per_block)).reshape(-1)


def _readers(
    shape: Shape, tree: PrefixTree
) -> tuple[list[tuple[SelectionMatrix, ...]], list[tuple[SelectionMatrix, ...]], SelectionMatrix]:
    """R_Q and R_K [L][H] (sub-block h of every block of depth l-1) and U (every leaf)."""
    cells, starts = tree
    H, per_block = shape.heads, starts[1]
    reader = Partition.of_widths([shape.head_dim])

    def select(rows: np.ndarray, columns: Partition) -> SelectionMatrix:
        return SelectionMatrix(cells, columns, rows, np.zeros(len(rows), dtype=np.int64))

    def sub_blocks(depth: int, position: int) -> SelectionMatrix:
        return select(starts[depth] + np.arange(shape.words_at(depth)) * per_block + position, reader)

    queries = [tuple(sub_blocks(depth, h) for h in range(H)) for depth in range(shape.layers)]
    keys = [tuple(sub_blocks(depth, H + h) for h in range(H)) for depth in range(shape.layers)]
    leaves = starts[-1] + np.arange(shape.words_at(shape.layers))
    return queries, keys, select(leaves, Partition.of_widths([shape.d_out]))


def prefix_tree_host(shape: Shape, m: int) -> Universal:
    """`sparse`: R_V^{l,h} projects onto the blocks whose word has letter h at position l (h + 1 with a residual stream)."""
    tree = prefix_tree(shape, m)
    cells, starts = tree
    queries, keys, unembed = _readers(shape, tree)

    def projection(layer: int, head: int) -> SelectionMatrix:
        kept = []
        for depth in range(layer, shape.layers + 1):
            words = np.arange(shape.words_at(depth))
            letter = words // shape.words_at(depth - layer) % shape.letters
            kept.append(block_cells(shape, starts, depth, words[letter == head + shape.residual]))
        diagonal = np.concatenate(kept)
        return SelectionMatrix(cells, cells, diagonal, diagonal)

    values = [tuple(projection(layer, h) for h in range(shape.heads)) for layer in range(1, shape.layers + 1)]
    return Universal(shape, m, queries, keys, values, unembed, "sparse")


def printed_tree_host(shape: Shape, m: int, *, transposed: bool) -> Universal:
    """`printed-tree-row` and `printed-tree-column`: thm:designed-R's formal R_V, literally.

    R_V^{l,h} copies the block of each word p of length l-1 into the block of (p,h), cut or padded at the leaves, and
    sends everything else to zero; read as acting on rows (x R) or, transposed, on columns.
    """
    tree = prefix_tree(shape, m)
    cells, starts = tree
    queries, keys, unembed = _readers(shape, tree)
    unit = gcd(shape.head_dim, shape.d_out, m)
    fine = uniform(m, unit)

    def copy(layer: int, head: int) -> SelectionMatrix:
        parents = np.arange(shape.heads ** (layer - 1))
        children = parents * shape.heads + head
        inner = 2 * shape.heads * shape.head_dim
        width = min(inner, shape.d_out) if layer == shape.layers else inner
        per_child = 1 if layer == shape.layers else 2 * shape.heads
        source = cells.offsets[starts[layer - 1] + parents * 2 * shape.heads]
        target = cells.offsets[starts[layer] + children * per_child]
        move = pieces(fine, fine, source, target, width, unit)
        return move.transposed() if transposed else move

    values = [tuple(copy(layer, h) for h in range(shape.heads)) for layer in range(1, shape.layers + 1)]
    name = "printed-tree-column" if transposed else "printed-tree-row"

    def refined(grid: list[tuple[SelectionMatrix, ...]]) -> list[tuple[SelectionMatrix, ...]]:
        return [tuple(over_equal_cells(matrix, fine, unit) for matrix in row) for row in grid]

    return Universal(shape, m, refined(queries), refined(keys), values, over_equal_cells(unembed, fine, unit), name)


def front_host(shape: Shape, m: int) -> Universal:
    """`sparse-front`: depth-first tree; R_V^{l,h} moves the chosen subtree to the front, where every reader stands."""
    H, d, layout = shape.heads, shape.head_dim, Layout(shape, m)
    sizes = [shape.d_out]  # of the subtrees at depth L, L-1, ..., 0
    for _ in range(shape.layers):
        sizes.append(2 * H * d + H * sizes[-1])
    queries, keys = (tuple(layout.read([(first + h) * d], d, d) for h in range(H)) for first in (0, H))

    def to_front(size: int, head: int) -> SelectionMatrix:
        return layout.moved((np.array([2 * H * d + head * size]), np.array([0]), size))

    values = [tuple(to_front(size, head) for head in range(H)) for size in sizes[-2::-1]]
    U = layout.read([0], shape.d_out, shape.d_out)
    return Universal(shape, m, [queries] * shape.layers, [keys] * shape.layers, values, U, "sparse-front")


def _tree_bytes(shape: Shape, m: int) -> int:
    words, leaves = geometric(shape.letters, 0, shape.layers - 1), shape.letters**shape.layers
    copies = min(shape.heads * shape.layers, 2 * shape.layers)
    if shape.residual:  # R_all: each zero of a word reads every letter
        copies += (2 * shape.heads + 1) ** shape.layers // leaves
    return index_map_bytes(shape, 2 * shape.heads * words + leaves, copies)


SPARSE = Construction(
    "sparse",
    "prefix-tree projection (thm:sparse_universal_transformer, repaired)",
    False,
    Notion.MATCHING,
    matching_dimension,
    prefix_tree_host,
    streams=True,
    memory=_tree_bytes,
    permutation=True,
    rebuilt=True,
)

SPARSE_FRONT = Construction(
    "sparse-front",
    "prefix tree in depth-first order, chosen subtree moved to the front",
    False,
    Notion.MATCHING,
    matching_dimension,
    front_host,
    memory=lambda shape, m: index_map_bytes(shape, m, 1),
    permutation=True,
    rebuilt=True,
)

TREE_ROW = Construction(
    "printed-tree-row",
    "thm:designed-R's formal R_V as printed, acting on rows",
    False,
    None,
    matching_dimension,
    lambda shape, m: printed_tree_host(shape, m, transposed=False),
    rebuilt=True,
)

TREE_COLUMN = Construction(
    "printed-tree-column",
    "thm:designed-R's formal R_V as printed, acting on columns",
    False,
    None,
    matching_dimension,
    lambda shape, m: printed_tree_host(shape, m, transposed=True),
    rebuilt=True,
)
