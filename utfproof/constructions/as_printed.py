"""The paper's constructions as printed. Each fails the matching equations it was made for; they are kept so that the
failure is computed, not remembered. (`printed-tree-*` share the prefix tree of `sparse` and are in its file.)

Coordinates: docs/certificate-format.md section 4.6.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, trie
from utfproof.constructions.record import Construction, Domain
from utfproof.shapes import Shape, paper_looped_dimension
from utfproof.systems import Universal


def block_width(shape: Shape) -> int:
    """max{2d, d_out}: every block of the printed single-head and looped constructions."""
    return max(2 * shape.head_dim, shape.d_out)


def single_head_host(shape: Shape, m: int) -> Universal:
    """`printed-single-head` (lem:single_head): readers at block B_l *and* a left shift by one block per layer."""
    b, d, L = block_width(shape), shape.head_dim, shape.layers
    layout, blocks = Layout(shape, m, b), np.arange(L)
    shift = layout.moved(((blocks + 1) * b, blocks * b, b))
    queries, keys = ([(layout.read([layer * b + own], d, d),) for layer in range(L)] for own in (0, d))
    U = layout.read([L * b], shape.d_out, shape.d_out)
    return Universal(shape, m, queries, keys, [(shift,)] * L, U, "printed-single-head")


def looped_host(shape: Shape, m: int) -> Universal:
    """`printed-looped` (thm:designed-R-looped): one trie of equal blocks for words of length 0 ... L, R_Q^h = R_V^h U_Q,
    R_K^h = R_V^h U_K, U = root. The blocks of length-L words are asked to hold both [Q K] and M_w."""
    b, d = block_width(shape), shape.head_dim
    layout = Layout(shape, m, b)
    return layout.tied(
        "printed-looped",
        lambda head: layout.read([(1 + head) * b], d, d),
        lambda head: layout.read([(1 + head) * b + d], d, d),
        lambda head: layout.moved(trie(shape, head, 0, shape.layers, 0, b)),
        0,
    )


def single_head_dimension(shape: Shape) -> int:
    """(L+1) max{2d, d_out}: m of `printed-single-head`."""
    return (shape.layers + 1) * block_width(shape)


SINGLE_HEAD = Construction(
    "printed-single-head",
    "lem:single_head as printed; H = 1",
    False,
    None,
    single_head_dimension,
    single_head_host,
    Domain("H = 1", lambda shape: shape.heads == 1),
    rebuilt=True,
)

LOOPED = Construction(
    "printed-looped",
    "thm:designed-R-looped as printed, m = (1+S) max{2d, d_in}",
    True,
    None,
    paper_looped_dimension,
    looped_host,
    rebuilt=True,
)
