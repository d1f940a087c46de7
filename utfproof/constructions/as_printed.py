"""The paper's constructions as printed. Each fails the matching equations it was made for; they are kept so that the
failure is computed, not remembered. (`printed-tree-*` share the prefix tree of `sparse` and stand beside it.)

Coordinates: docs/certificate-format.md section 4.6.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from utfproof.constructions.record import Construction
from utfproof.constructions.tied import trie_pairs
from utfproof.errors import NotDefined
from utfproof.ground.selection import SelectionMatrix, pieces, uniform
from utfproof.shapes import Shape, paper_looped_dimension
from utfproof.systems import TiedUniversal, Universal


def block_width(shape: Shape) -> int:
    """max{2d, d_out}: every block of the printed single-head and looped constructions."""
    return max(2 * shape.head_dim, shape.d_out)


def require_single_head(shape: Shape) -> None:
    """NotDefined unless H = 1."""
    if shape.heads != 1:
        raise NotDefined(f"printed-single-head is the paper's H = 1 construction, got heads = {shape.heads}")


def single_head_host(shape: Shape, m: int) -> Universal:
    """`printed-single-head` (lem:single_head): readers at block B_l *and* a left shift by one block per layer."""
    require_single_head(shape)
    b, d, L = block_width(shape), shape.head_dim, shape.layers
    unit = gcd(b, d, shape.d_out, m)
    cells, reader, output = uniform(m, unit), uniform(d, unit), uniform(shape.d_out, unit)

    def read(start: int) -> SelectionMatrix:
        return pieces(cells, reader, np.array([start]), np.array([0]), d, unit)

    blocks = np.arange(L)
    shift = pieces(cells, cells, (blocks + 1) * b, blocks * b, b, unit)
    queries = [(read(layer * b),) for layer in range(L)]
    keys = [(read(layer * b + d),) for layer in range(L)]
    unembed = pieces(cells, output, np.array([L * b]), np.array([0]), shape.d_out, unit)
    return Universal(shape, m, queries, keys, [(shift,)] * L, unembed, "printed-single-head")


def looped_host(shape: Shape, m: int) -> TiedUniversal:
    """`printed-looped` (thm:designed-R-looped): one trie of equal blocks for words of length 0 ... L, R_Q^h = R_V^h U_Q,
    R_K^h = R_V^h U_K, U = root. The blocks of length-L words are asked to hold both [Q K] and M_w."""
    b, d = block_width(shape), shape.head_dim
    unit = gcd(b, d, shape.d_out, m)
    cells, reader, output = uniform(m, unit), uniform(d, unit), uniform(shape.d_out, unit)

    def route(head: int) -> SelectionMatrix:
        rows, columns = trie_pairs(shape, head, 0, shape.layers)
        return pieces(cells, cells, rows * b, columns * b, b, unit)

    def read(start: int) -> SelectionMatrix:
        return pieces(cells, reader, np.array([start]), np.array([0]), d, unit)

    heads = range(shape.heads)
    return TiedUniversal(
        shape,
        m,
        tuple(read((1 + h) * b) for h in heads),
        tuple(read((1 + h) * b + d) for h in heads),
        tuple(route(h) for h in heads),
        pieces(cells, output, np.array([0]), np.array([0]), shape.d_out, unit),
        "printed-looped",
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
    require_single_head,
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
