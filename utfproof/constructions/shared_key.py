"""Shared-key tries for d >= d_in: universal by attention-matching for all targets at m = d_in (1 + 2S), tied.

Queries hold X A and keys hold X itself, so all heads share one key block. Not universal by matching (m < M, unless H = 1
and d = d_in), and only for attention that depends on q k^T alone. Coordinates: docs/certificate-format.md section 4.4.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, padded_columns, side_by_side, widened
from utfproof.constructions.record import Construction, Domain, Forms, Identity
from utfproof.constructions.tied import trie_pairs
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape, geometric, shared_key_dimension
from utfproof.systems import Target, TiedUniversal, prefix_stacks
from utfproof.util.arrays import Array, eye
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix


def _key_start(shape: Shape) -> int:
    return shape.d_in * shape.word_count


def _inner_width(shape: Shape) -> int:
    return max(shape.d_in, shape.d_out)


def _leaf_start(shape: Shape) -> int:
    return _key_start(shape) + _inner_width(shape) * geometric(shape.heads, 0, shape.layers - 1)


def shared_key_host(shape: Shape, m: int) -> TiedUniversal:
    """`shared-key`: query trie of words 1 ... L (width d_in), key trie of words 0 ... L."""
    a, b, d, L = shape.d_in, _inner_width(shape), shape.head_dim, shape.layers
    layout, keys, leaves = Layout(shape, m, a), _key_start(shape), _leaf_start(shape)
    parents = np.arange(shape.heads ** (L - 1))
    last_inner = keys + b * geometric(shape.heads, 0, L - 2)

    def value(head: int) -> SelectionMatrix:
        q_rows, q_columns = trie_pairs(shape, head, 1, L)
        k_rows, k_columns = trie_pairs(shape, head, 0, L - 1)
        children = leaves + (head * len(parents) + parents) * shape.d_out
        return layout.moved(
            (q_rows * a, q_columns * a, a),
            (keys + k_rows * b, keys + k_columns * b, b),
            (children, last_inner + parents * b, shape.d_out),
        )

    return layout.tied(
        "shared-key", lambda head: layout.read([head * a], a, d), lambda _: layout.read([keys], a, d), value, keys
    )


def embed_shared_key(shape: Shape, m: int, target: Target) -> tuple[Array, None]:
    """E [d_in, m] for any target of width D <= d_in (nothing is inverted on the way, so no condition number).

    Query block (w,h) = W_E M_w A^{l,h}, key block w = W_E M_w, leaf w = W_E M_w W_U. Raises OutsideClass when D > d_in.
    """
    D, a = target.width, shape.d_in
    if a < D:
        raise OutsideClass(
            f"shared-key at {shape} serves targets of width at most d_in = {a} by attention-matching, "
            f"this one has width {D}; use a host that is universal by matching (sparse, tied, random)"
        )
    queries, keys = key_forms(shape, target)
    *stacks, last = prefix_stacks(target)
    own = widened(keys[0][0], _inner_width(shape))
    parts = [
        side_by_side(stack, [widened(form, a) for form in row]) for stack, row in zip(stacks, queries, strict=True)
    ]
    parts += [side_by_side(stack, [own]) for stack in stacks]
    return padded_columns([*parts, side_by_side(last, [target.unembedding()])], m), None


def key_forms(shape: Shape, target: Target) -> Forms:
    """What the host's queries and keys are of the target's stream: A and I, [D, D]."""
    identity, heads = eye(target.width, target.W_Q), range(shape.heads)
    return (
        [[target.attention_form(layer, head) for head in heads] for layer in range(shape.layers)],
        [[identity for _ in heads] for _ in range(shape.layers)],
    )


SHARED_KEY = Construction(
    "shared-key",
    "two tries, one key block for all heads; d >= d_in",
    True,
    Notion.ATTENTION_MATCHING,
    shared_key_dimension,
    shared_key_host,
    Domain("head_dim >= d_in (keys carry whole rows)", lambda shape: shape.head_dim >= shape.d_in),
    embed=embed_shared_key,
    forms=key_forms,
    rebuilt=True,
    identity=Identity(),
)
