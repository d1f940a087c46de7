"""Grouped and multi-query heads: H heads of queries, G of keys and values, each shared by H/G consecutive heads.

The key columns W_E M_w W_K^{l,h} are then equal for the heads of a group, so a host for such targets needs them once:

    M_G(H, L, d, d_out, G) = d (H + G) sum_{t<L} a^t + d_out a^L,   a = H, or H + 1 with a residual stream.

Shared values save nothing: W_V^g W_O^h differs from head to head through W_O^h. M_G is also the least m of a
host that matches every such target (docs/proofs/biases.md): without a residual stream the isolating targets of every other
column have shared keys and values anyway, and a key column's may be taken together with its copies.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.residual import moebius
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.arrays import Array, hstack, namespace, zeros
from utfproof.ground.selection import Partition, SelectionMatrix
from utfproof.shapes import Shape, geometric, positive_integer
from utfproof.systems import Target, Universal, prefix_products


def _groups(shape: Shape, kv_heads: int) -> int:
    """G, checked: it divides H."""
    if shape.heads % positive_integer("kv_heads", kv_heads):
        raise MalformedInput(f"{kv_heads} heads of keys do not divide the {shape.heads} heads of queries")
    return int(kv_heads)


def grouped_matching_dimension(shape: Shape, kv_heads: int) -> int:
    """M_G: M (M_res with a residual stream) with every shared key column counted once per group; M at G = H."""
    prefixes = geometric(shape.letters, 0, shape.layers - 1)
    readers = shape.heads + _groups(shape, kv_heads)
    return shape.head_dim * readers * prefixes + shape.d_out * shape.words_at(shape.layers)


def grouped_tree_host(shape: Shape, kv_heads: int, m: int | None = None) -> Universal:
    """The prefix tree (`sparse`) with one key block per group, m = M_G: blocks of H + G cells of width d per word shorter than
    L (Q_0 ... Q_{H-1}, K_0 ... K_{G-1}), one of width d_out per word of length L. NotDefined for m below M_G."""
    G, H, L = _groups(shape, kv_heads), shape.heads, shape.layers
    least = grouped_matching_dimension(shape, G)
    m = least if m is None else positive_integer("m", m)
    if m < least:
        raise NotDefined(f"the grouped prefix tree at {shape} with {G} heads of keys needs m >= {least}, got {m}")
    starts = [0]
    for depth in range(L):
        starts.append(starts[-1] + (H + G) * shape.words_at(depth))
    widths = np.full(starts[-1] + shape.words_at(L), shape.head_dim, dtype=np.int64)
    widths[starts[-1] :] = shape.d_out
    cells = Partition.of_widths(np.append(widths, m - least) if m > least else widths)

    def select(rows: np.ndarray, width: int) -> SelectionMatrix:
        return SelectionMatrix(cells, Partition.of_widths([width]), rows, np.zeros(len(rows), dtype=np.int64))

    def read(depth: int, position: int) -> SelectionMatrix:
        return select(starts[depth] + np.arange(shape.words_at(depth)) * (H + G) + position, shape.head_dim)

    def route(layer: int, head: int) -> SelectionMatrix:
        kept = []
        for depth in range(layer, L + 1):
            words = np.arange(shape.words_at(depth))
            chosen = words[words // shape.words_at(depth - layer) % shape.letters == head + shape.residual]
            size = 1 if depth == L else H + G
            kept.append((starts[depth] + chosen[:, None] * size + np.arange(size)).reshape(-1))
        diagonal = np.concatenate(kept)
        return SelectionMatrix(cells, cells, diagonal, diagonal)

    heads = range(H)
    return Universal(
        shape,
        m,
        [tuple(read(layer, h) for h in heads) for layer in range(L)],
        [tuple(read(layer, H + h * G // H) for h in heads) for layer in range(L)],
        [tuple(route(layer, h) for h in heads) for layer in range(1, L + 1)],
        select(starts[-1] + np.arange(shape.words_at(L)), shape.d_out),
    )


def embed_grouped(target: Target, kv_heads: int, m: int | None = None) -> Array:
    """E [d_in, m] of `grouped_tree_host`: E R_all = W_all, in the target's arithmetic; by inclusion and exclusion over the zero
    letters with a residual stream. MalformedInput where the heads of a group have different keys."""
    shape = target.shape
    G = _groups(shape, kv_heads)
    least = grouped_matching_dimension(shape, G)
    m = least if m is None else positive_integer("m", m)
    if m < least:
        raise NotDefined(f"the grouped prefix tree at {shape} with {G} heads of keys needs m >= {least}, got {m}")
    parts = []
    for depth in range(shape.layers + 1):
        if depth == shape.layers:
            readers = target.unembedding()
        else:
            pairs = [target.parameters(depth, head)[:2] for head in range(shape.heads)]
            for head, (_, key) in enumerate(pairs):
                if bool((key != pairs[head * G // shape.heads * shape.heads // G][1]).any()):
                    raise MalformedInput(f"head {head} of layer {depth} has keys of its own: not {G} shared ones")
            readers = hstack([*(q for q, _ in pairs), *(pairs[g * shape.heads // G][1] for g in range(G))])
        blocks = prefix_products(target, depth) @ readers
        if shape.residual:
            blocks = moebius(blocks, shape.letters, depth)
        parts.append(namespace(blocks).moveaxis(blocks, 1, 0).reshape(shape.d_in, -1))
    return hstack([*parts, zeros(parts[-1], shape.d_in, m - least)])
