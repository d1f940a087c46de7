"""Tied scalar targets (d_in = 1): scalars commute, so M_w depends on how often each head occurs in w, not on the order.

`counting` serves them with shared attention, E free and U fixed, at C(L+H-1, H-1) dimensions, which no host undercuts. It
refutes thm:lower_bound_utf for looped targets: at H = 2 it has m = L + 1, below 2^(L/2) from L = 6 on.

`commuting-trie` serves them by matching, below M: one block for each count of the letters and each reading head, then the
coordinates of `counting`. The tied targets' rows W_all span exactly as many dimensions (their columns are distinct monomials in
independent unknowns), so no host does with less. Coordinates: docs/certificate-format.md section 9.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, combinations, repeat
from math import comb
from operator import matmul

import numpy as np

from utfproof.constructions.layout import Layout
from utfproof.constructions.record import Construction, Domain, SharedAttention
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, Universal
from utfproof.util.arrays import Array, hstack, zeros
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

SCALAR = Domain("d_in = d_out = 1", lambda shape: shape.d_in == shape.d_out == 1)
Counts = tuple[int, ...]
"""How often each of some letters occurs in a word."""


def count_tuples(letters: int, most: int) -> list[Counts]:
    """All tuples of this many integers >= 0 with sum at most `most`, in lexicographic order."""
    # bars among most + letters places; the gaps before the bars are the counts
    bars = combinations(range(most + letters), letters)
    return [tuple(b - a - 1 for a, b in zip((-1, *places), places, strict=False)) for places in bars]


def raised(tuples: list[Counts], place: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (rows, columns) of tuples that have one more in this place, and of the tuples without."""
    number = {counts: i for i, counts in enumerate(tuples)}
    up = [number.get((*counts[:place], counts[place] + 1, *counts[place + 1 :]), -1) for counts in tuples]
    columns = np.flatnonzero(np.array(up) >= 0)
    return np.array(up, dtype=np.int64)[columns], columns


def counting_dimension(shape: Shape) -> int:
    """C(L+H-1, H-1), the number of ways to count H letters in a word of length L: least m of `counting`."""
    return comb(shape.layers + shape.heads - 1, shape.heads - 1)


def counting_pairs(shape: Shape, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (rows, columns) of the ones of R_V^h: the identity for head 0, else c with c_h raised by one and c. They are
    the counts of the letters 1 ... H-1 in a word of length at most L."""
    if head == 0:
        return (np.arange(counting_dimension(shape)),) * 2
    return raised(count_tuples(shape.heads - 1, shape.layers), head - 1)


def counting_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`counting` (tied)."""
    layout = Layout(shape, COUNTING.dimension(shape, m))
    values = tuple(layout.moved((*counting_pairs(shape, head), 1)) for head in range(shape.heads))
    return SharedAttentionUniversal(shape, m, values)


def commuting_dimension(shape: Shape) -> int:
    """2dH C(L-1+H, H) + C(L+H-1, H-1): least m of `commuting-trie`, and the dimension of the span of all rows W_all of
    tied targets with d_in = 1."""
    H, L = shape.heads, shape.layers
    return 2 * shape.head_dim * H * comb(L - 1 + H, H) + counting_dimension(shape)


def commuting_trie_host(shape: Shape, m: int) -> Universal:
    """`commuting-trie`: blocks of width 2d for counts c of all H letters with sum below L and heads g, then the coordinates of
    `counting`."""
    H, d, layout = shape.heads, shape.head_dim, Layout(shape, m)
    tuples, width, outputs = (
        count_tuples(H, shape.layers - 1),
        2 * d * H,
        commuting_dimension(shape) - counting_dimension(shape),
    )

    def value(head: int) -> SelectionMatrix:
        (rows, columns), (last_rows, last_columns) = raised(tuples, head), counting_pairs(shape, head)
        return layout.moved((width * rows, width * columns, width), (outputs + last_rows, outputs + last_columns, 1))

    return layout.tied("commuting-trie", *layout.halves(), value, outputs)


# --- embeddings --------------------------------------------------------------------------------------------


def _products(name: str, shape: Shape, target: Target, tuples: list[Counts]) -> list[Array]:
    """W_E times each head's value form as often as these counts say. OutsideClass unless the target is tied and of width 1:
    only then do its value forms commute and agree in all layers."""
    if not target.tied:
        raise OutsideClass(f"{name} at {shape} serves tied targets; this one is untied")
    if target.width != 1:
        raise OutsideClass(f"{name} at {shape} serves targets of width 1, this one has width {target.width}")
    one = zeros(target.W_Q, 1, 1) + 1
    forms = [target.value_form(0, head) for head in range(shape.heads)]
    powers = [list(accumulate(repeat(form, shape.layers), matmul, initial=one)) for form in forms]
    return [reduce(matmul, (powers[h][n] for h, n in enumerate(c)), target.embedding()) for c in tuples]


def _outputs(name: str, shape: Shape, target: Target) -> list[Array]:
    """Coordinates of `counting`: head 0 fills up to L letters."""
    counts = [(shape.layers - sum(c), *c) for c in count_tuples(shape.heads - 1, shape.layers)]
    return [product @ target.unembedding() for product in _products(name, shape, target, counts)]


def _padded(parts: list[Array], m: int) -> Array:
    return hstack([*parts, zeros(parts[0], 1, m - sum(part.shape[1] for part in parts))])


def embed_counting(shape: Shape, m: int, target: Target) -> tuple[Array, SelectionMatrix]:
    """E [1, m] with coordinate c = W_E (product over heads of M_h^(c_h)) W_U, c_0 = L - sum c, and the host's own U."""
    U = Layout(shape, COUNTING.dimension(shape, m)).read([0], 1, 1)
    return _padded(_outputs("counting", shape, target), m), U


def embed_commuting_trie(shape: Shape, m: int, target: Target) -> tuple[Array, None]:
    """E [1, m] with E R_all = W_all for a tied target of width 1, in its arithmetic: block (c, g) = W_E (product over heads of
    M_h^(c_h)) [W_Q^g, W_K^g]; the last coordinates as in `counting`."""
    name = "commuting-trie"
    products = _products(name, shape, target, count_tuples(shape.heads, shape.layers - 1))
    readers = hstack([part for head in range(shape.heads) for part in target.parameters(0, head)[:2]])
    return _padded([*(product @ readers for product in products), *_outputs(name, shape, target)], m), None


COUNTING = Construction(
    "counting",
    "how often each head occurs; d_in = 1, tied targets; E free, U fixed",
    True,
    Notion.SHARED_ATTENTION,
    counting_dimension,
    domain=SCALAR,
    counted=True,
    targets="all tied",
    identity="counting",
    shared=SharedAttention("E", counting_host, embed_counting),
)

COMMUTING_TRIE = Construction(
    "commuting-trie",
    "d_in = 1, tied targets: blocks by how often each head occurs in a word",
    True,
    Notion.MATCHING,
    commuting_dimension,
    commuting_trie_host,
    SCALAR,
    targets="all tied",
    embed=embed_commuting_trie,
    identity="commuting-trie",
    counted=True,
)
