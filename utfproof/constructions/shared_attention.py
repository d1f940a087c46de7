"""Hosts for the shared-attention model: attention matrices come from outside, and E R_w U = M_w for every word of length L.

| host | serves | E, U | least m |
|---|---|---|---|
| register | all untied targets | E free, U fixed | d_in H^L, which no host undercuts |
| two-sided | all untied targets | both free | d_in H^ceil(L/2); even L: thm:lower_bound_utf's bound at d_in = 1 |
| counting | all tied targets, d_in = 1 | E free, U fixed | C(L+H-1, H-1), which no host undercuts |

Counting refutes thm:lower_bound_utf for looped targets: at H = 2 it has m = L + 1, below 2^(L/2) from L = 6 on.
Coordinates: docs/certificate-format.md section 9.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from utfproof.constructions.layout import padded_columns, side_by_side
from utfproof.constructions.record import (
    EQUAL,
    SCALAR,
    Construction,
    Identity,
    SharedAttention,
)
from utfproof.constructions.tied import padded, register_pairs
from utfproof.constructions.words import Blocks, embedded, powers, require_tied_scalar, values
from utfproof.shapes import Shape, head_words
from utfproof.systems import SharedAttentionUniversal, Target, prefix_products
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion
from utfproof.util.selection import Partition, SelectionMatrix

Counts = tuple[int, ...]
"""How often each of some letters occurs in a word."""


# --- dimensions ----------------------------------------------------------------------------------------------


def register_dimension(shape: Shape) -> int:
    """d_in H^L: least m of `register`, and the least of any host with U fixed."""
    return shape.d_in * shape.leaves


def two_sided_dimension(shape: Shape) -> int:
    """d_in H^ceil(L/2): least m of `two-sided`."""
    return shape.d_in * shape.heads ** ((shape.layers + 1) // 2)


def counting_dimension(shape: Shape) -> int:
    """C(L+H-1, H-1), the number of ways to count H letters in a word of length L: least m of `counting`."""
    return comb(shape.layers + shape.heads - 1, shape.heads - 1)


# --- register ----------------------------------------------------------------------------------------------


def register_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`register` (tied): R_V^h has an identity between block (h, w_1 ... w_{L-1}) and block (w_1 ... w_L)."""
    cells = padded([shape.d_in] * shape.leaves, m)
    values = tuple(SelectionMatrix(cells, cells, *register_pairs(shape, h)) for h in range(shape.heads))
    return SharedAttentionUniversal(shape, m, values, tied=True)


def _first_cell(widths: list[int], shape: Shape, m: int) -> SelectionMatrix:
    """U [m, d_out] that reads the first cell."""
    first = np.array([0])
    return SelectionMatrix(padded(widths, m), Partition.of_widths([shape.d_out]), first, first)


def embed_register(shape: Shape, m: int, target: Target) -> tuple[Array, SelectionMatrix]:
    """E [d_in, m] with block w = W_E M_w W_U for a target of any width, and the host's own U, which reads block (0, ..., 0)."""
    outputs = side_by_side(prefix_products(target, shape.layers), [target.unembedding()])
    return padded_columns([outputs], m), _first_cell([shape.d_in] * shape.leaves, shape, m)


# --- two-sided ---------------------------------------------------------------------------------------------


def two_sided_pairs(shape: Shape, length: int, head: int, *, first_half: bool) -> tuple[np.ndarray, np.ndarray]:
    """Blocks (rows, columns) that R_V joins, numbered as words of this length: (h,s) and (s,0) in the first half of the
    layers, (0,s) and (s,h) in the second."""
    suffixes = np.arange(shape.heads ** (length - 1))
    if first_half:
        return head * len(suffixes) + suffixes, suffixes * shape.heads
    return suffixes, suffixes * shape.heads + head


def two_sided_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`two-sided` (untied): the first ceil(L/2) letters pick a block of E, the others a block of U."""
    half = (shape.layers + 1) // 2
    cells = padded([shape.d_in] * shape.heads**half, m)

    def value(layer: int, head: int) -> SelectionMatrix:
        first = layer < half
        length = half if first else shape.layers - half
        return SelectionMatrix(cells, cells, *two_sided_pairs(shape, length, head, first_half=first))

    values = tuple(tuple(value(layer, head) for head in range(shape.heads)) for layer in range(shape.layers))
    return SharedAttentionUniversal(shape, m, values)


def two_sided_words(shape: Shape) -> tuple[Blocks, Blocks]:
    """Block w of E: M_w over the first half of the layers; block v of U: M_v over the second half."""
    half, b = (shape.layers + 1) // 2, shape.d_in
    left, right = (head_words(shape.heads, length) for length in (half, shape.layers - half))
    return (
        [(i * b, values(word)) for i, word in enumerate(left)],
        [(i * b, values(word, half + 1)) for i, word in enumerate(right)],
    )


# --- counting ----------------------------------------------------------------------------------------------


def count_tuples(letters: int, most: int) -> list[Counts]:
    """All tuples of this many integers >= 0 with sum at most `most`, in lexicographic order."""
    # bars among most + letters places; the gaps before the bars are the counts
    tuples = []
    for bars in combinations(range(most + letters), letters):
        previous = -1
        counts = []
        for bar in bars:
            counts.append(bar - previous - 1)
            previous = bar
        tuples.append(tuple(counts))
    return tuples


def raised(counts: Counts, place: int) -> Counts:
    """The same counts with one of them raised by one."""
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


def counting_pairs(shape: Shape, head: int, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (rows, columns) of the ones of R_V^h: the identity for head 0, else c with c_h raised by one (rows)
    and c (columns), for every c with sum below `most`, L by default."""
    most = shape.layers if most is None else most
    tuples = count_tuples(shape.heads - 1, most)
    number = {counts: i for i, counts in enumerate(tuples)}
    if head == 0:
        everything = np.arange(len(tuples))
        return everything, everything
    columns = [counts for counts in tuples if sum(counts) < most]
    rows = [number[raised(counts, head - 1)] for counts in columns]
    return np.array(rows, dtype=np.int64), np.array([number[counts] for counts in columns], dtype=np.int64)


def counting_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`counting` (tied): coordinates are the counts of the letters 1 ... H-1 in a word of length at most L."""
    cells = padded([1] * counting_dimension(shape), m)
    values = tuple(SelectionMatrix(cells, cells, *counting_pairs(shape, h)) for h in range(shape.heads))
    return SharedAttentionUniversal(shape, m, values, tied=True)


def embed_counting(shape: Shape, m: int, target: Target) -> tuple[Array, SelectionMatrix]:
    """E [1, m] with coordinate c = W_E (product over heads of M_h^(c_h)) W_U, c_0 = L - sum c, and the host's own U.

    Raises OutsideClass for targets that are not tied, or wider than 1.
    """
    require_tied_scalar("counting", shape, target)
    E = embedded(shape, m, target, counting_words)[0] * target.unembedding()[0, 0]
    return E, _first_cell([1] * counting_dimension(shape), shape, m)


def counting_words(shape: Shape, start: int = 0) -> tuple[Blocks, None]:
    """Coordinate c: the product of the M.h, as often as c says, and M.0 for the rest of the L letters."""
    tuples = count_tuples(shape.heads - 1, shape.layers)
    return [(start + i, powers((shape.layers - sum(c), *c))) for i, c in enumerate(tuples)], None


# --- the records -------------------------------------------------------------------------------------------


REGISTER = Construction(
    "register",
    "shift register of the whole word; E free, U fixed",
    True,
    Notion.SHARED_ATTENTION,
    register_dimension,
    domain=EQUAL,
    identity=Identity(),
    shared=SharedAttention("E", register_host, embed_register),
)

TWO_SIDED = Construction(
    "two-sided",
    "half of the word in E, half in U",
    False,
    Notion.SHARED_ATTENTION,
    two_sided_dimension,
    domain=EQUAL,
    identity=Identity(),
    shared=SharedAttention(
        "E and U",
        two_sided_host,
        lambda shape, m, target: embedded(shape, m, target, two_sided_words),
        length=lambda shape: (shape.layers + 1) // 2,
    ),
)

COUNTING = Construction(
    "counting",
    "how often each head occurs; d_in = 1, tied targets; E free, U fixed",
    True,
    Notion.SHARED_ATTENTION,
    counting_dimension,
    domain=SCALAR,
    counted=True,
    targets="all tied",
    identity=Identity(),
    shared=SharedAttention("E", counting_host, embed_counting),
)
