"""Narrow heads, shared attention with E and U both free: m = d H^(floor(L/2) + 1), all targets of any width.

M^{l,h} = W_V^{l,h} W_O^{l,h} passes through d dimensions. So one layer is split: E holds the products of the layers before it
with its W_V in place of M, U its W_O before the products of the layers behind,

    block (w, h) of E: W_E M_w W_V^{s+1,h}, |w| = s;   block (h, v) of U: W_O^{s+1,h} M_v W_U, |v| = L - s - 1,

both of d coordinates, and the host moves one onto the other. The split layer's letter stands in both, so s = floor((L-1)/2)
gives words of at most floor(L/2) + 1 letters. Below `two-sided` and `middle-stars` for d much less than d_in; m = d at H = 1.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.record import Construction, SharedAttention
from utfproof.constructions.shared_attention import around_a_layer, joined, suffix_products
from utfproof.ground.arrays import Array, zeros
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, prefix_products

NAME = "split-layer"


def split_dimension(shape: Shape) -> int:
    """d H^(floor(L/2) + 1)."""
    return shape.head_dim * int(shape.heads ** (shape.layers // 2 + 1))


def split_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """Blocks of d coordinates for the words of floor(L/2) + 1 letters around the split layer, which moves block (h, 0, ..., 0)
    to block (0, ..., 0, h)."""
    require_memory(8 * shape.layers * shape.heads * m * m, f"{NAME} at {shape}, m = {m},")
    d, length = shape.head_dim, shape.layers // 2 + 1
    words = shape.heads ** (length - 1)
    moves = [joined(m, d, (np.array([head * words]), np.array([head]))) for head in range(shape.heads)]
    return around_a_layer(shape, m, d, length, moves)


def embed_split(shape: Shape, m: int, target: Target) -> tuple[Array, Array]:
    """(E [d_in, m], U [m, d_out]) for any target (any width), in its arithmetic."""
    split, d, H = (shape.layers - 1) // 2, shape.head_dim, shape.heads
    unused = H ** (shape.layers // 2 - split)  # words of E's blocks end in so many zeros, where L is even
    E, U = zeros(target.W_Q, shape.d_in, m), zeros(target.W_Q, m, shape.d_out)
    before, behind = prefix_products(target, split), suffix_products(target, split + 1)
    for head in range(H):
        _, _, W_V, W_O = target.parameters(split, head)
        for w, product in enumerate(before):
            start = (w * H + head) * unused * d
            E[:, start : start + d] = product @ W_V
        for v, product in enumerate(behind):
            start = (head * len(behind) + v) * d
            U[start : start + d] = W_O @ product
    return E, U


SPLIT_LAYER = Construction(
    NAME,
    "E and U free, narrow heads: one layer's W_V in E and its W_O in U",
    False,
    Notion.SHARED_ATTENTION,
    split_dimension,
    shared=SharedAttention("E and U", split_host, embed_split, length=lambda shape: shape.layers // 2 + 1),
)
