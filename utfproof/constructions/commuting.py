"""The commuting trie: tied scalar targets (d_in = 1) by matching, below M.

Scalars commute, so M_w depends on how often each head occurs in w, not on the order: one block for each such count and each
reading head. The tied targets' rows W_all span exactly as many dimensions as the host has (their columns are
distinct monomials in independent unknowns), so no host does with less. Coordinates: docs/certificate-format.md section 9.
"""

from __future__ import annotations

from math import comb

import numpy as np

from utfproof.constructions.record import SCALAR, Construction, Identity
from utfproof.constructions.shared_attention import (
    count_tuples,
    counting_dimension,
    counting_pairs,
    counting_words,
    raised,
)
from utfproof.constructions.tied import Pairs, host_of_halves, padded
from utfproof.constructions.words import Blocks, embedded, powers, require_tied_scalar
from utfproof.shapes import Shape
from utfproof.systems import Target, TiedUniversal
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion

NAME = "commuting-trie"


def commuting_dimension(shape: Shape) -> int:
    """2dH C(L-1+H, H) + C(L+H-1, H-1): least m of `commuting-trie`, and the dimension of the span of all rows W_all of
    tied targets with d_in = 1."""
    H, L = shape.heads, shape.layers
    return 2 * shape.head_dim * H * comb(L - 1 + H, H) + counting_dimension(shape)


def commuting_trie_host(shape: Shape, m: int) -> TiedUniversal:
    """`commuting-trie`: blocks (c, g) of width 2d for counts c of all H letters with sum below L and heads g, then the
    coordinates of `counting`."""
    H, d = shape.heads, shape.head_dim
    tuples = count_tuples(H, shape.layers - 1)
    number = {counts: i for i, counts in enumerate(tuples)}
    halves = 2 * H * len(tuples)  # cells of the trie: the Q and the K half of each block
    within = np.arange(2 * H)

    def route(head: int) -> Pairs:
        moved = [counts for counts in tuples if sum(counts) < shape.layers - 1]
        rows = np.array([number[raised(counts, head)] for counts in moved], dtype=np.int64)
        columns = np.array([number[counts] for counts in moved], dtype=np.int64)
        last_rows, last_columns = counting_pairs(shape, head)
        return (
            np.concatenate([(2 * H * rows[:, None] + within).reshape(-1), halves + last_rows]),
            np.concatenate([(2 * H * columns[:, None] + within).reshape(-1), halves + last_columns]),
        )

    return host_of_halves(shape, padded([d] * halves + [1] * counting_dimension(shape), m), halves, route, NAME)


def embed_commuting_trie(shape: Shape, m: int, target: Target) -> Array:
    """E [1, m] with E R_all = W_all for a tied target of width 1, in its arithmetic.

    Block (c, g) = W_E (product over heads of M_h^(c_h)) [W_Q^g, W_K^g]; the last coordinates as in `counting`.
    Raises OutsideClass for targets that are not tied, or wider than 1.
    """
    require_tied_scalar(NAME, shape, target)
    E = embedded(shape, m, target, commuting_trie_words)[0]
    E[:, commuting_dimension(shape) - counting_dimension(shape) :] *= target.unembedding()[0, 0]
    return E


def commuting_trie_words(shape: Shape) -> tuple[Blocks, None]:
    """Block (c,g): the product of the M.h, as often as c says, with Q.g and with K.g; then as `counting`."""
    blocks: Blocks = []
    start = 0
    for counts in count_tuples(shape.heads, shape.layers - 1):
        for head in range(shape.heads):
            for letter in "QK":
                blocks.append((start, [*powers(counts), f"{letter}.{head}"]))
                start += shape.head_dim
    return blocks + counting_words(shape, start)[0], None


COMMUTING_TRIE = Construction(
    NAME,
    "d_in = 1, tied targets: blocks by how often each head occurs in a word",
    True,
    Notion.MATCHING,
    commuting_dimension,
    commuting_trie_host,
    SCALAR,
    targets="all tied",
    embed=lambda shape, m, target: (embed_commuting_trie(shape, m, target), None),
    identity=Identity(),
    counted=True,
)
