"""Shared-key tries for d >= d_in: universal by attention-matching for all targets at m = d_in (1 + 2S), tied.

Queries hold X A and keys hold X itself, so all heads share one key block. Not universal by matching (m < M, unless H = 1
and d = d_in), and only for attention that depends on q k^T alone. Coordinates: docs/certificate-format.md section 4.4.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, trie
from utfproof.constructions.record import Construction, Domain, Readers
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape, geometric, shared_key_dimension
from utfproof.systems import Target, Universal
from utfproof.util.arrays import eye
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix


def shared_key_host(shape: Shape, m: int) -> Universal:
    """`shared-key`: query trie of words 1 ... L (width d_in), key trie of words 0 ... L."""
    a, b, d, L = shape.d_in, max(shape.d_in, shape.d_out), shape.head_dim, shape.layers
    layout, keys, parents = Layout(shape, m, a), a * shape.word_count, np.arange(shape.heads ** (L - 1))
    last_inner = keys + b * geometric(shape.heads, 0, L - 2)
    leaves = last_inner + b * len(parents)

    def value(head: int) -> SelectionMatrix:
        children = leaves + (head * len(parents) + parents) * shape.d_out
        last = children, last_inner + parents * b, shape.d_out
        return layout.moved(trie(shape, head, 1, L, 0, a), trie(shape, head, 0, L - 1, keys, b), last)

    return layout.tied(
        "shared-key", lambda head: layout.read([head * a], a, d), lambda _: layout.read([keys], a, d), value, keys
    )


def key_readers(shape: Shape, target: Target) -> Readers:
    """A and I, [D, D]. OutsideClass when D > d_in."""
    if shape.d_in < target.width:
        raise OutsideClass(
            f"shared-key at {shape} serves targets of width at most d_in = {shape.d_in} by attention-matching, "
            f"this one has width {target.width}; use a host that is universal by matching (sparse, tied, random)"
        )
    identity, heads = eye(target.width, target.W_Q), range(shape.heads)
    return Readers(
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
    readers=key_readers,
    rebuilt=True,
    identity="shared-key",
)
