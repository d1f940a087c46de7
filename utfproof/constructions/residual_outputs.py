"""Hosts with a residual stream whose readers use outputs: attention-matching, d_in (2 (H+1)^L - 1) at d = d_in.

The stream passes every layer by, so the output of a word that stops early is there already: E R_w U = M_w for every |w| <= L.
`residual-key` (d >= d_in, all targets) reads it as the key of every head; `residual-query` (d <= d_out, almost all targets)
as the query of the last head of each group (gauges.py). Theorem C of docs/proofs/sharper-frontier.md. Coordinates:
docs/certificate-format.md section 9.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from utfproof.constructions.gauges import (
    Gauge,
    condition_of,
    full_groups,
    gauged_forms,
    last_heads,
    require_gauged,
    solved,
    trivial,
)
from utfproof.constructions.layout import Layout, padded_columns, side_by_side
from utfproof.constructions.record import EQUAL, Construction, Domain, Forms, Identity, SharedAttention
from utfproof.constructions.shared_key import key_forms
from utfproof.errors import OutsideClass
from utfproof.ground.arrays import Array
from utfproof.ground.notions import Notion
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, Universal, prefix_products, prefix_stacks

KEY, QUERY, OUTPUTS = "residual-key", "residual-query", "residual-output-tree"
Blocks = Callable[[Shape], list[tuple[str, int]]]
"""What stands before each word w of length l - 1: ("Q" or "K", head), in order, d or d_in wide; then the outputs."""


def groups_of(shape: Shape) -> list[range]:
    """The full groups of g = ceil(d_out / d) heads."""
    return full_groups(shape.heads, -(-shape.d_out // shape.head_dim))


def _key_readers(shape: Shape) -> list[tuple[str, int]]:
    return [("Q", head) for head in range(shape.heads)]


def _query_readers(shape: Shape) -> list[tuple[str, int]]:
    last = last_heads(groups_of(shape))
    keys = [("K", head) for head in range(shape.heads)]
    return keys + [("Q", head) for head in range(shape.heads) if head not in last]


def _prefixes(shape: Shape) -> int:
    """Words of length 0 ... L-1 over the letters 0 ... H."""
    return (shape.words_at(shape.layers) - 1) // shape.heads


def key_dimension(shape: Shape) -> int:
    """d_in (2 (H+1)^L - 1): least m of `residual-key`."""
    return shape.d_out * shape.words_at(shape.layers) + shape.d_in * shape.heads * _prefixes(shape)


def query_dimension(shape: Shape) -> int:
    """d_out (H+1)^L + d (2 - floor(H/g)/H) ((H+1)^L - 1): least m of `residual-query`."""
    readers = 2 * shape.heads - len(groups_of(shape))
    return shape.d_out * shape.words_at(shape.layers) + shape.head_dim * readers * _prefixes(shape)


class _Tree(Layout):
    """Coordinates of the blocks: by layer, word of the layers before, and reader; then the outputs."""

    def __init__(self, shape: Shape, m: int, readers: list[tuple[str, int]], width: int) -> None:
        super().__init__(shape, m, width)
        self.readers, self.width = readers, width
        self.starts = [0]
        for layer in range(shape.layers):
            self.starts.append(self.starts[-1] + shape.words_at(layer) * len(readers) * width)

    def first(self, layer: int, part: str, head: int) -> int:
        """The reader's block of the word 0 ... 0 of this many letters."""
        return self.starts[layer] + self.readers.index((part, head)) * self.width

    @property
    def output(self) -> int:
        """The output block of the word 0 ... 0."""
        return self.starts[-1]

    def route(self, layer: int, head: int) -> SelectionMatrix:
        """Each block whose word has the letter head + 1 at this layer goes to the block of the word with 0 in its place."""
        shape, letter, moves = self.shape, head + 1, []
        for length in range(layer + 1, shape.layers + 1):
            size = shape.d_out if length == shape.layers else len(self.readers) * self.width
            words = np.arange(shape.words_at(length))
            rest = shape.words_at(length - layer - 1)
            zero = words[words // rest % shape.letters == 0]
            columns, rows = self.starts[length] + zero * size, self.starts[length] + (zero + letter * rest) * size
            moves.append((rows, columns, size))
        return self.moved(*moves)


def _host(tree: _Tree, readers: Callable[[int, int], tuple[SelectionMatrix, SelectionMatrix]], name: str) -> Universal:
    shape = tree.shape
    pairs = [[readers(layer, head) for head in range(shape.heads)] for layer in range(shape.layers)]
    queries, keys = ([tuple(pair[side] for pair in row) for row in pairs] for side in (0, 1))
    values = [tuple(tree.route(layer, head) for head in range(shape.heads)) for layer in range(shape.layers)]
    U = tree.read([tree.output], shape.d_out, shape.d_out)
    return Universal(shape, tree.m, queries, keys, values, U, name)


def key_host(shape: Shape, m: int) -> Universal:
    """`residual-key`: query blocks of width d_in, keys read the output block 0 ... 0."""
    b, d = shape.d_in, shape.head_dim
    tree = _Tree(shape, m, _key_readers(shape), b)

    def readers(layer: int, head: int) -> tuple[SelectionMatrix, SelectionMatrix]:
        return tree.read([tree.first(layer, "Q", head)], b, d), tree.read([tree.output], b, d)

    return _host(tree, readers, KEY)


def query_host(shape: Shape, m: int) -> Universal:
    """`residual-query`: key blocks, and query blocks but for the last heads of full groups, which read the output and them."""
    d = shape.head_dim
    tree = _Tree(shape, m, _query_readers(shape), d)
    groups = {group[-1]: group for group in groups_of(shape)}

    def readers(layer: int, head: int) -> tuple[SelectionMatrix, SelectionMatrix]:
        if head in groups:
            blocks = [tree.output, *(tree.first(layer, "Q", x) for x in groups[head] if x != head)]
        else:
            blocks = [tree.first(layer, "Q", head)]
        return tree.read(blocks, d, d), tree.read([tree.first(layer, "K", head)], d, d)

    return _host(tree, readers, QUERY)


# --- embeddings ----------------------------------------------------------------------------------------------


def embed_key(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [d_in, m] of `residual-key` for any untied or tied target of width d_in: M_w A, then M_w."""
    if target.W_E is not None or target.W_U is not None:
        raise OutsideClass(f"{KEY} at {shape} serves targets of width d_in = d_out, this one has W_E or W_U")
    queries, _ = key_forms(shape, target)
    return _embedded(shape, m, target, queries), None


def layer_gauges(shape: Shape, target: Target) -> list[dict[int, Gauge]]:
    """(G, G^-T) of every layer and head; SingularTarget where this target is one of the null set that is not served."""
    require_gauged(QUERY, shape, target)
    wanted = target.unembedding()[:, : shape.head_dim]
    found = []
    for layer in range(shape.layers):
        gauges = {head: trivial(target) for head in range(shape.heads)}
        for group in groups_of(shape):
            gauges |= solved(target, layer, group, wanted)
        found.append(gauges)
    return found


def query_forms(shape: Shape, target: Target) -> Forms:
    """What the queries and keys of `residual-query` are of the target's stream."""
    return gauged_forms(target, layer_gauges(shape, target))


def embed_query(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [d_in, m] of `residual-query`, and the largest condition number of the gauges: W_E M_w W_K G^-T and W_E M_w W_Q G, then
    W_E M_w W_U."""
    queries, keys = query_forms(shape, target)
    readers = [
        [(keys if part == "K" else queries)[layer][head] for part, head in _query_readers(shape)]
        for layer in range(shape.layers)
    ]
    return _embedded(shape, m, target, readers), condition_of(layer_gauges(shape, target))


def _embedded(shape: Shape, m: int, target: Target, readers: list[list[Array]]) -> Array:
    readers = [*readers, [target.unembedding()]]
    return padded_columns([side_by_side(*pair) for pair in zip(prefix_stacks(target), readers, strict=True)], m)


RESIDUAL_KEY = Construction(
    KEY,
    "with a residual stream: a tree of queries and outputs, keys read the output; d >= d_in",
    False,
    Notion.ATTENTION_MATCHING,
    key_dimension,
    key_host,
    Domain("d_in = d_out <= head_dim (keys are outputs)", lambda s: s.d_in == s.d_out <= s.head_dim, stream=True),
    streams=True,
    embed=embed_key,
    forms=key_forms,
    identity=Identity(),
)

RESIDUAL_QUERY = Construction(
    QUERY,
    "with a residual stream: a tree of keys and outputs, one head of each group reads these; d <= d_out, almost all targets",
    False,
    Notion.ATTENTION_MATCHING,
    query_dimension,
    query_host,
    Domain(f"head_dim <= d_out (else: {KEY})", lambda s: s.head_dim <= s.d_out, stream=True),
    streams=True,
    targets="generic untied",
    embed=embed_query,
    forms=query_forms,
    identity=Identity(),
)


# --- outputs alone: attention from outside -------------------------------------------------------------------


def output_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`residual-output-tree`: the tree without readers."""
    tree = _Tree(shape, m, [], shape.d_out)
    values = (tuple(tree.route(layer, head) for head in range(shape.heads)) for layer in range(shape.layers))
    return SharedAttentionUniversal(shape, m, tuple(values))


def embed_outputs(shape: Shape, m: int, target: Target) -> tuple[Array, SelectionMatrix]:
    """E [d_in, m] with block w = W_E M_w W_U, for any target (any width), and the host's own U."""
    tree = _Tree(shape, m, [], shape.d_out)
    outputs = side_by_side(prefix_products(target, shape.layers), [target.unembedding()])
    return padded_columns([outputs], m), tree.read([tree.output], shape.d_out, shape.d_out)


RESIDUAL_OUTPUT_TREE = Construction(
    OUTPUTS,
    "with a residual stream: a tree of outputs; E free, U fixed",
    False,
    Notion.SHARED_ATTENTION,
    lambda shape: shape.d_in * shape.words_at(shape.layers),
    domain=replace(EQUAL, stream=True),
    streams=True,
    shared=SharedAttention("E", output_host, embed_outputs),
)
