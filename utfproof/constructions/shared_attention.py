"""Hosts for the shared-attention model: attention matrices come from outside, and E R_w U = M_w for every word of length L.

| host | serves | E, U | least m |
|---|---|---|---|
| register | all untied targets | E free, U fixed | d_in H^L, which no host undercuts |
| two-sided | all untied targets | both free | d_in H^ceil(L/2); even L: thm:lower_bound_utf's bound at d_in = 1 |

For tied targets with d_in = 1 there is `counting` (counting.py). Coordinates: docs/certificate-format.md section 9.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, register
from utfproof.constructions.record import Construction, Domain, SharedAttention
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, prefix_products
from utfproof.util.arrays import Array, hstack, namespace, transpose, zeros
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

EQUAL = Domain("d_in = d_out", lambda shape: shape.d_in == shape.d_out)


def _side_by_side(blocks: Array, m: int) -> Array:
    """Blocks [words, rows, k] as columns [rows, words * k], and zeros up to m of them."""
    flat = namespace(blocks).moveaxis(blocks, 0, 1).reshape(blocks.shape[1], -1)
    return hstack([flat, zeros(flat, len(flat), m - flat.shape[1])])


# --- register ----------------------------------------------------------------------------------------------


def register_dimension(shape: Shape) -> int:
    """d_in H^L: least m of `register`, and the least of any host with U fixed."""
    return shape.d_in * shape.leaves


def register_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`register` (tied): R_V^h has an identity between block (h, w_1 ... w_{L-1}) and block (w_1 ... w_L)."""
    layout = Layout(shape, REGISTER.dimension(shape, m))
    values = tuple(layout.moved(register(shape, head, 0, shape.d_in)) for head in range(shape.heads))
    return SharedAttentionUniversal(shape, m, values)


def embed_register(shape: Shape, m: int, target: Target) -> tuple[Array, SelectionMatrix]:
    """E [d_in, m] with block w = W_E M_w W_U for a target of any width, and the host's own U, which reads block (0, ..., 0)."""
    U = Layout(shape, REGISTER.dimension(shape, m)).read([0], shape.d_out, shape.d_out)
    return _side_by_side(prefix_products(target, shape.layers) @ target.unembedding(), m), U


# --- two-sided ---------------------------------------------------------------------------------------------


def two_sided_dimension(shape: Shape) -> int:
    """d_in H^ceil(L/2): least m of `two-sided`."""
    return shape.d_in * shape.heads ** _half(shape)


def _half(shape: Shape) -> int:
    return (shape.layers + 1) // 2


def two_sided_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`two-sided` (untied): the first ceil(L/2) letters pick a block of E, the others a block of U. R_V joins (h,s) and (s,0)
    in the first half of the layers, (0,s) and (s,h) in the second; blocks are numbered as words of that half's length."""
    half, b, H, layout = _half(shape), shape.d_in, shape.heads, Layout(shape, TWO_SIDED.dimension(shape, m))

    def value(layer: int, head: int) -> SelectionMatrix:
        suffixes = np.arange(H ** ((half if layer < half else shape.layers - half) - 1))
        first, second = (head, 0) if layer < half else (0, head)
        return layout.moved((b * (first * len(suffixes) + suffixes), b * (suffixes * H + second), b))

    values = tuple(tuple(value(layer, head) for head in range(H)) for layer in range(shape.layers))
    return SharedAttentionUniversal(shape, m, values)


def embed_two_sided(shape: Shape, m: int, target: Target) -> tuple[Array, Array]:
    """Block w of E [d_in, m]: W_E M_w over the first half of the layers; block v of U [m, d_out]: M_v W_U over the second
    half. OutsideClass for targets wider than d_in."""
    m, half, b, D = TWO_SIDED.dimension(shape, m), _half(shape), shape.d_in, target.width
    if b < D:
        raise OutsideClass(f"this host at {shape} serves targets of width at most {b}, this one has {D}")

    def blocks(products: Array) -> Array:
        return _side_by_side(hstack([products, zeros(products, *products.shape[:-1], b - D)]), m)

    behind = target.unembedding()[None]
    for layer in reversed(range(half, shape.layers)):
        forms = [target.value_form(layer, head) @ behind for head in range(shape.heads)]
        behind = namespace(behind).concatenate(forms)
    return blocks(prefix_products(target, half)), transpose(blocks(transpose(behind)))


REGISTER = Construction(
    "register",
    "shift register of the whole word; E free, U fixed",
    True,
    Notion.SHARED_ATTENTION,
    register_dimension,
    domain=EQUAL,
    identity="register",
    shared=SharedAttention("E", register_host, embed_register),
)

TWO_SIDED = Construction(
    "two-sided",
    "half of the word in E, half in U",
    False,
    Notion.SHARED_ATTENTION,
    two_sided_dimension,
    domain=EQUAL,
    identity="two-sided",
    shared=SharedAttention("E and U", two_sided_host, embed_two_sided, length=_half),
)
