"""Grouped and multi-query heads: H heads of queries, G of keys and values, each shared by H/G consecutive heads.

The key columns W_E M_w W_K^{l,h} are then equal for the heads of a group, so a host for such targets needs them once:

    M_G(H, L, d, d_out, G) = d (H + G) sum_{t<L} a^t + d_out a^L,   a = H, or H + 1 with a residual stream.

Shared values save nothing: W_V^g W_O^h differs from head to head through W_O^h. M_G is also the least m of a
host that matches every such target (docs/proofs/biases.md): without a residual stream the isolating targets of every other
column have shared keys and values anyway, and a key column's may be taken together with its copies.
"""

from __future__ import annotations

from dataclasses import replace

from utfproof.constructions.residual import embed_residual_tree
from utfproof.constructions.sparse import prefix_tree_host
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.arrays import Array
from utfproof.shapes import Shape, geometric, positive_integer
from utfproof.systems import Target, Universal


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


def _width(shape: Shape, kv_heads: int, m: int | None) -> int:
    """m, or M_G; NotDefined below it."""
    least = grouped_matching_dimension(shape, kv_heads)
    m = least if m is None else positive_integer("m", m)
    if m < least:
        raise NotDefined(
            f"the grouped prefix tree at {shape} with {kv_heads} heads of keys needs m >= {least}, got {m}"
        )
    return int(m)


def grouped_tree_host(shape: Shape, kv_heads: int, m: int | None = None) -> Universal:
    """The prefix tree (`sparse`) with one key block per group, m = M_G. NotDefined for m below M_G."""
    return replace(prefix_tree_host(shape, _width(shape, kv_heads, m), kv_heads), construction="")


def embed_grouped(target: Target, kv_heads: int, m: int | None = None) -> Array:
    """E [d_in, m] of `grouped_tree_host`: E R_all = W_all, in the target's arithmetic. MalformedInput where the heads of a
    group have different keys."""
    shape = target.shape
    m, each = _width(shape, kv_heads, m), shape.heads // kv_heads
    for layer in range(shape.layers):
        for head in range(shape.heads):
            own, shared = (target.parameters(layer, h)[1] for h in (head, head // each * each))
            if bool((own != shared).any()):
                raise MalformedInput(f"head {head} of layer {layer} has keys of its own: not {kv_heads} shared ones")
    return embed_residual_tree(shape, m, target, kv_heads)
