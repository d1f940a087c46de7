"""Residual streams: X^l = X^{l-1} + sum_h A^{l,h} X^{l-1} M^{l,h}, in hosts and targets, and hosts that match them.

Letter 0 is the identity head, letters 1 ... H are the heads: words are over H + 1 letters, R_V^{l,0} = I and M^{l,0} = I are
fixed. The matching equations are those without a residual stream over these words, so their columns number
M_res = 2dH sum_{t<L} (H+1)^t + d_out (H+1)^L, and a host is universal by matching for all untied targets iff R_all has
that rank. Letters 1 ... H index heads 0 ... H-1 of the arrays.

Column order: Q for l = 1 ... L, by prefix (l-1 letters, lexicographic), then reading head, then coordinate; K the same; then
OV by word of L letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from utfproof.arrays import Array, exact, hstack, zeros
from utfproof.attention import AttentionKernel
from utfproof.constructions.shared_attention import require_dimension, require_words
from utfproof.constructions.tied import trie_pairs
from utfproof.errors import NotDefined, OutsideClass
from utfproof.resources import require_memory
from utfproof.selection import Partition, SelectionMatrix
from utfproof.shapes import Shape, Word, geometric, head_words, word_index
from utfproof.systems import LoopedTarget, LoopedUniversal, Target, Universal, prefix_products

Dense = np.ndarray


# --- dimensions --------------------------------------------------------------------------------------------


def residual_matching_dimension(shape: Shape) -> int:
    """M_res = 2dH sum_{t<L} (H+1)^t + d_out (H+1)^L: columns of R_all, and the least m for untied targets."""
    letters = shape.heads + 1
    inner = geometric(letters, 0, shape.layers - 1)
    return 2 * shape.head_dim * shape.heads * inner + shape.d_out * letters**shape.layers


def residual_tied_dimension(shape: Shape) -> int:
    """2dS + d_out (1 + S): m of the tied tries that serve tied targets."""
    return 2 * shape.head_dim * shape.word_count + shape.d_out * (1 + shape.word_count)


# --- forward passes ----------------------------------------------------------------------------------------


def _residual_layers(x: Array, system: Target | Universal, kernel: AttentionKernel, positions: Array | None) -> Array:
    if positions is None:
        positions = np.arange(x.shape[-2])
    for layer in range(system.shape.layers):
        after = x
        for head in range(system.shape.heads):
            if isinstance(system, Target):
                query, key, *value = system.parameters(layer, head)
            else:
                query, key, value = system.maps(layer, head)  # type: ignore[assignment]
            term = kernel(x @ query, x @ key, positions, layer=layer, head=head) @ x
            for matrix in value:
                term = term @ matrix
            after = after + term
        x = after
    return x


def residual_target_forward(target: Target, x: Array, kernel: AttentionKernel, positions: Array | None = None) -> Array:
    """The target with a residual stream: x [..., n, d_in] -> [..., n, d_out]."""
    return _residual_layers(x @ target.embedding(), target, kernel, positions) @ target.unembedding()


def residual_host_forward(
    host: Universal, x: Array, E: Array, kernel: AttentionKernel, positions: Array | None = None
) -> Array:
    """The host with a residual stream: x [..., n, d_in], E [d_in, m] -> [..., n, d_out]."""
    return _residual_layers(x @ E, host, kernel, positions) @ host.U


# --- the matching equations --------------------------------------------------------------------------------


class ResidualColumns(NamedTuple):
    """Consecutive columns of one word: kind 'Q', 'K' or 'OV'; the prefix (letters 0 ... H); the reading head (from 0; -1 for
    OV); the first column."""

    kind: str
    prefix: Word
    head: int
    start: int


def residual_columns(shape: Shape) -> Iterator[ResidualColumns]:
    """Every block of columns of R_all, in order."""
    H, start = shape.heads, 0
    for kind in ("Q", "K"):
        for length in range(shape.layers):
            for prefix in head_words(H + 1, length):
                for head in range(H):
                    yield ResidualColumns(kind, prefix, head, start)
                    start += shape.head_dim
    for word in head_words(H + 1, shape.layers):
        yield ResidualColumns("OV", word, -1, start)
        start += shape.d_out


def _dense(matrix: Any) -> Array:
    """The matrix as exact numbers: Python integers where it holds integers, else Fractions."""
    if isinstance(matrix, SelectionMatrix):
        return matrix.to_dense(object)
    values = exact(matrix)
    if all(x == int(x) for x in values.reshape(-1)):
        values = exact(np.array([int(x) for x in values.reshape(-1)], dtype=object)).reshape(values.shape)
    return values


def _prefixes(start: Array, steps: list[list[Array]]) -> list[list[Array]]:
    """Products start . V_w by length of w (in lexicographic order), with V^{l,0} = I and V^{l,h} = steps[l-1][h-1]."""
    levels = [[start]]
    for step in steps:
        letters = range(len(step) + 1)
        levels.append([product if a == 0 else product @ step[a - 1] for product in levels[-1] for a in letters])
    return levels


def residual_r_all(host: Universal) -> Dense:
    """R_all [m, M_res] of a host with a residual stream, exact (floats as the rationals they are). Built from the last layer
    backwards, as `matching.r_all`. ResourceLimit before allocating."""
    shape, heads = host.shape, range(host.shape.heads)
    require_words("R_all with a residual stream", shape, shape.layers)
    M = residual_matching_dimension(shape)
    require_memory(72 * host.m * (2 * M + host.m * (shape.heads + 1)), f"R_all at {shape}, m = {host.m},")
    # blocks of columns by (kind, word without the layers above), to be put in order at the end
    blocks: dict[tuple[str, Word, int], Array] = {("OV", (), -1): _dense(host.U)}
    for layer in reversed(range(shape.layers)):
        longer: dict[tuple[str, Word, int], Array] = {}
        for (kind, word, reader), columns in blocks.items():
            longer[kind, (0, *word), reader] = columns
        for head in heads:
            entry = host.maps(layer, head)
            longer["Q", (), head], longer["K", (), head] = _dense(entry.query), _dense(entry.key)
            factors = [_dense(factor) for factor in reversed(entry.value)]
            for (kind, word, reader), columns in blocks.items():
                for factor in factors:
                    columns = factor @ columns
                longer[kind, (head + 1, *word), reader] = columns
        blocks = longer
    return hstack([blocks[column.kind, column.prefix, column.head] for column in residual_columns(shape)])


def residual_w_all(target: Target) -> Array:
    """W_all [d_in, M_res] of a target with a residual stream, in its arithmetic."""
    shape = target.shape
    levels = _prefixes(target.embedding(), _value_forms(target))
    words: dict[Word, Array] = {}
    for length, level in enumerate(levels):
        words.update(zip(head_words(shape.heads + 1, length), level, strict=True))
    parts = []
    for column in residual_columns(shape):
        if column.kind == "OV":
            reader = target.unembedding()
        else:
            reader = target.parameters(len(column.prefix), column.head)["QK".index(column.kind)]
        parts.append(words[column.prefix] @ reader)
    return hstack(parts)


def _value_forms(target: Target) -> list[list[Array]]:
    heads, layers = range(target.shape.heads), range(target.shape.layers)
    return [[target.value_form(layer, head) for head in heads] for layer in layers]


# --- untied: the prefix tree -------------------------------------------------------------------------------


def _tree_starts(shape: Shape) -> list[int]:
    """Coordinate of the first block of each depth 0 ... L, and the end."""
    inner = 2 * shape.heads * shape.head_dim
    starts = [0]
    for depth in range(shape.layers + 1):
        width = shape.d_out if depth == shape.layers else inner
        starts.append(starts[-1] + width * (shape.heads + 1) ** depth)
    return starts


def residual_tree_host(shape: Shape, m: int) -> Universal:
    """Prefix tree over words in H + 1 letters (untied), blocks by length, then lexicographically: internal ones
    Q_0 ... Q_{H-1}, K_0 ... K_{H-1} of width d each, leaves of width d_out. R_V^{l,h} is the diagonal projection onto the
    blocks whose word has the letter h + 1 at position l; the residual stream is the letter 0, so it keeps every block.

    R_all is unimodular at m = M_res. NotDefined below.
    """
    require_words("the residual prefix tree", shape, shape.layers)
    m = require_dimension("the residual prefix tree", shape, m, residual_matching_dimension(shape))
    H, d, L = shape.heads, shape.head_dim, shape.layers
    require_memory(64 * m * H * L, f"the residual prefix tree at {shape}, m = {m},")
    starts = _tree_starts(shape)
    cells = Partition(np.arange(m + 1, dtype=np.int64))
    inner = 2 * H * d

    def blocks(depth: int, words: np.ndarray, first: int, width: int) -> np.ndarray:
        """Coordinates first ... first+width-1 of the blocks of these words."""
        size = shape.d_out if depth == L else inner
        found: np.ndarray = (starts[depth] + words[:, None] * size + first + np.arange(width)).reshape(-1)
        return found

    def projection(layer: int, head: int) -> SelectionMatrix:
        kept = []
        for depth in range(layer, L + 1):
            words = np.arange((H + 1) ** depth)
            letter = words // (H + 1) ** (depth - layer) % (H + 1)
            kept.append(blocks(depth, words[letter == head + 1], 0, shape.d_out if depth == L else inner))
        diagonal = np.concatenate(kept)
        return SelectionMatrix(cells, cells, diagonal, diagonal)

    def read(depth: int, first: int, width: int) -> SelectionMatrix:
        words = np.arange((H + 1) ** depth)
        columns = Partition(np.arange(width + 1, dtype=np.int64))
        return SelectionMatrix(
            cells, columns, blocks(depth, words, first, width), np.tile(np.arange(width), len(words))
        )

    queries = [tuple(read(layer, h * d, d) for h in range(H)) for layer in range(L)]
    keys = [tuple(read(layer, (H + h) * d, d) for h in range(H)) for layer in range(L)]
    values = [tuple(projection(layer, h) for h in range(H)) for layer in range(1, L + 1)]
    return Universal(shape, m, queries, keys, values, read(L, 0, shape.d_out))


def moebius(table: list[Array], letters: int) -> list[Array]:
    """g with f(w) = sum of g(v) over all v that agree with w in its nonzero letters, for f given on all words of one length
    in lexicographic order: in each place g(a) = f(a) for a > 0, and g(0) = f(0) - f(1) - ... ."""
    values = list(table)
    stride = 1
    while stride < len(values):
        for i in range(len(values)):
            if i // stride % letters == 0:
                for a in range(1, letters):
                    values[i] = values[i] - values[i + a * stride]
        stride *= letters
    return values


def embed_residual_tree(shape: Shape, m: int, target: Target) -> Array:
    """E [d_in, m] with E R_all = W_all for any untied or tied target of any width, in its arithmetic."""
    require_words("the residual prefix tree", shape, shape.layers)
    m = require_dimension("the residual prefix tree", shape, m, residual_matching_dimension(shape))
    H, d, L = shape.heads, shape.head_dim, shape.layers
    levels = _prefixes(target.embedding(), _value_forms(target))
    E = zeros(target.W_Q, shape.d_in, m)
    starts = _tree_starts(shape)
    for depth, level in enumerate(levels):
        if depth == L:
            table = [product @ target.unembedding() for product in level]
        else:
            readers = [target.parameters(depth, head) for head in range(H)]
            both = hstack([*(r[0] for r in readers), *(r[1] for r in readers)])  # Q_0 ..., K_0 ...
            table = [product @ both for product in level]
        width = shape.d_out if depth == L else 2 * H * d
        for number, block in enumerate(moebius(table, H + 1)):
            begin = starts[depth] + number * width
            E[:, begin : begin + width] = block
    return E


# --- tied hosts --------------------------------------------------------------------------------------------


def residual_tied_host(shape: Shape, m: int) -> LoopedUniversal:
    """Tied tries for *tied* targets: Q and K blocks (2d) for words of length 1 ... L over the H heads, as in `tied`, then
    output blocks (d_out) for words of length 0 ... L; U reads the root. The residual stream keeps a word as it is, so
    words without the letter 0 are all there is."""
    require_words("the residual tries", shape, shape.layers)
    m = require_dimension("the residual tries", shape, m, residual_tied_dimension(shape))
    S = shape.word_count
    widths = [shape.head_dim] * (2 * S) + [shape.d_out] * (1 + S)
    padding = m - sum(widths)
    cells = Partition.of_widths([*widths, padding] if padding else widths)

    def read(cell: int, width: int) -> SelectionMatrix:
        return SelectionMatrix(cells, Partition.of_widths([width]), np.array([cell]), np.array([0]))

    def route(head: int) -> SelectionMatrix:
        rows, columns = trie_pairs(shape, head, 1, shape.layers)
        out_rows, out_columns = trie_pairs(shape, head, 0, shape.layers)
        return SelectionMatrix(
            cells,
            cells,
            np.concatenate([2 * rows, 2 * rows + 1, 2 * S + out_rows]),
            np.concatenate([2 * columns, 2 * columns + 1, 2 * S + out_columns]),
        )

    heads = range(shape.heads)
    return LoopedUniversal(
        shape,
        m,
        tuple(read(2 * h, shape.head_dim) for h in heads),
        tuple(read(2 * h + 1, shape.head_dim) for h in heads),
        tuple(route(h) for h in heads),
        read(2 * S, shape.d_out),
    )


def embed_residual_tied(shape: Shape, m: int, target: Target) -> Array:
    """E [d_in, m]: block (w, h) = W_E M_w [W_Q^h, W_K^h], output block w = W_E M_w W_U. OutsideClass for untied targets."""
    require_words("the residual tries", shape, shape.layers)
    m = require_dimension("the residual tries", shape, m, residual_tied_dimension(shape))
    if not isinstance(target, LoopedTarget):
        raise OutsideClass(f"the residual tries at {shape} serve tied targets; this one is untied")
    d, trie, out = shape.head_dim, 0, 2 * shape.head_dim * shape.word_count
    E = zeros(target.W_Q, shape.d_in, m)
    for length in range(shape.layers + 1):
        for product in prefix_products(target, length):
            E[:, out : out + shape.d_out] = product @ target.unembedding()
            out += shape.d_out
            if length == shape.layers:
                continue
            for head in range(shape.heads):
                w_q, w_k, _, _ = target.parameters(length, head)
                E[:, trie : trie + d] = product @ w_q
                E[:, trie + d : trie + 2 * d] = product @ w_k
                trie += 2 * d
    return E


class TiedObstruction(NamedTuple):
    """Why no tied host matches this untied target: `left` and `right` are the first columns of two blocks of R_all that
    are equal for every tied host, and `gap` is the difference of the target's two blocks [d_in, d_out], not zero."""

    left: int
    right: int
    gap: Array


def tied_obstruction(target: Target) -> TiedObstruction | None:
    """The words (0, ..., 0, h) and (h, 0, ..., 0) that a tied host cannot tell apart, for the first head and pair of layers
    where the target's output does; None where none of the words with a single head does.

    With a residual stream R_w of a tied host forgets where the zeros of w stand, so L >= 2 and untied targets never go
    together by matching. NotDefined at L = 1, where tied and untied are the same.
    """
    shape = target.shape
    if shape.layers < 2:
        raise NotDefined("at L = 1 tied and untied hosts are the same")
    letters, L = shape.heads + 1, shape.layers
    first = residual_matching_dimension(shape) - shape.d_out * letters**L
    for head in range(shape.heads):
        outputs = [target.embedding() @ target.value_form(layer, head) @ target.unembedding() for layer in range(L)]
        for layer in range(1, L):
            gap = outputs[0] - outputs[layer]
            if bool((gap != 0).any()):
                words = (tuple(head + 1 if place == at else 0 for place in range(L)) for at in (0, layer))
                left, right = (first + shape.d_out * word_index(word, letters) for word in words)
                return TiedObstruction(left, right, gap)
    return None
