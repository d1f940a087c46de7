"""Shared-key tries for d >= d_in: universal by attention-matching for all targets at m = d_in (1 + 2S), tied.

Queries hold X A and keys hold X itself, so all heads share one key block. Not universal by matching (m < M, unless H = 1
and d = d_in), and only for attention that depends on q k^T alone. Coordinates: docs/certificate-format.md section 4.4.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from utfproof.constructions.record import Construction, Forms, Identity
from utfproof.constructions.tied import trie_pairs
from utfproof.constructions.words import Blocks, attention_moves, by_length, values
from utfproof.errors import NotDefined, OutsideClass
from utfproof.ground.arrays import Array, eye, zeros
from utfproof.ground.notions import Notion
from utfproof.ground.selection import SelectionMatrix, pieces, uniform
from utfproof.shapes import Shape, geometric, shared_key_dimension
from utfproof.systems import Target, TiedUniversal, prefix_stacks


def require_wide_heads(shape: Shape) -> None:
    """NotDefined unless d >= d_in."""
    if shape.head_dim < shape.d_in:
        raise NotDefined(
            f"shared-key needs head_dim >= d_in (keys carry whole rows), got {shape.head_dim} < {shape.d_in}"
        )


def _key_start(shape: Shape) -> int:
    return shape.d_in * shape.word_count


def _inner_width(shape: Shape) -> int:
    return max(shape.d_in, shape.d_out)


def _leaf_start(shape: Shape) -> int:
    return _key_start(shape) + _inner_width(shape) * geometric(shape.heads, 0, shape.layers - 1)


def shared_key_host(shape: Shape, m: int) -> TiedUniversal:
    """`shared-key`: query trie of words 1 ... L (width d_in), key trie of words 0 ... L."""
    require_wide_heads(shape)
    a, b, L = shape.d_in, _inner_width(shape), shape.layers
    unit = gcd(shape.d_in, shape.d_out, shape.head_dim, m)
    cells, reader, output = uniform(m, unit), uniform(shape.head_dim, unit), uniform(shape.d_out, unit)
    keys, leaves = _key_start(shape), _leaf_start(shape)

    def route(head: int) -> SelectionMatrix:
        q_rows, q_columns = trie_pairs(shape, head, 1, L)
        k_rows, k_columns = trie_pairs(shape, head, 0, L - 1)
        parents = np.arange(shape.heads ** (L - 1))
        last_inner = keys + b * geometric(shape.heads, 0, L - 2)
        parts = [
            pieces(cells, cells, q_rows * a, q_columns * a, a, unit),
            pieces(cells, cells, keys + k_rows * b, keys + k_columns * b, b, unit),
            pieces(
                cells,
                cells,
                leaves + (head * len(parents) + parents) * shape.d_out,
                last_inner + parents * b,
                shape.d_out,
                unit,
            ),
        ]
        return SelectionMatrix(
            cells,
            cells,
            np.concatenate([part.row_cells for part in parts]),
            np.concatenate([part.column_cells for part in parts]),
        )

    def read(start: int) -> SelectionMatrix:
        return pieces(cells, reader, np.array([start]), np.array([0]), a, unit)

    heads = range(shape.heads)
    return TiedUniversal(
        shape,
        m,
        tuple(read(h * a) for h in heads),
        tuple(read(keys) for _ in heads),
        tuple(route(h) for h in heads),
        pieces(cells, output, np.array([keys]), np.array([0]), shape.d_out, unit),
        "shared-key",
    )


def embed_shared_key(shape: Shape, m: int, target: Target) -> tuple[Array, None]:
    """E [d_in, m] for any target of width D <= d_in (nothing is inverted on the way, so no condition number).

    Query block (w,h) = W_E M_w A^{l,h}, key block w = W_E M_w, leaf w = W_E M_w W_U. Raises OutsideClass when D > d_in.
    """
    D = target.width
    if shape.d_in < D:
        raise OutsideClass(
            f"shared-key at {shape} serves targets of width at most d_in = {shape.d_in} by attention-matching, "
            f"this one has width {D}; use a host that is universal by matching (sparse, tied, random)"
        )
    E = zeros(target.W_Q, shape.d_in, m)
    a, b = shape.d_in, _inner_width(shape)
    query, key = 0, _key_start(shape)
    *stacks, last = prefix_stacks(target)
    for length, prefixes in enumerate(stacks):
        for w in range(shape.heads**length):
            E[:, key : key + D] = prefixes[w]
            key += b
            for head in range(shape.heads):
                E[:, query : query + D] = prefixes[w] @ target.attention_form(length, head)
                query += a
    outputs = last @ target.unembedding()
    for w in range(shape.leaves):
        E[:, key : key + shape.d_out] = outputs[w]
        key += shape.d_out
    return E, None


def key_forms(shape: Shape, target: Target) -> Forms:
    """What the host's queries and keys are of the target's stream: A and I, [D, D]."""
    identity, heads = eye(target.width, target.W_Q), range(shape.heads)
    return (
        [[target.attention_form(layer, head) for head in heads] for layer in range(shape.layers)],
        [[identity for _ in heads] for _ in range(shape.layers)],
    )


def shared_key_words(shape: Shape) -> tuple[Blocks, None]:
    """Query block (w,h): M_w A^{l,h}; key block w: M_w."""
    words = [[*values(word[:-1]), f"A{len(word)}.{word[-1]}"] for word in by_length(shape, 1, shape.layers)]
    words += [values(word) for word in by_length(shape, 0, shape.layers)]
    return [(i * shape.d_in, word) for i, word in enumerate(words)], None


SHARED_KEY = Construction(
    "shared-key",
    "two tries, one key block for all heads; d >= d_in",
    True,
    Notion.ATTENTION_MATCHING,
    shared_key_dimension,
    shared_key_host,
    require_wide_heads,
    embed=embed_shared_key,
    forms=key_forms,
    rebuilt=True,
    identity=Identity(shared_key_words, moves=attention_moves),
)
