"""Named tables of shapes and expected outcomes, and drawn targets, shared by unit, property and command-line tests."""

import itertools
from fractions import Fraction

import numpy as np

from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target
from utfproof.util.arrays import exact

TABLE_SHAPES = dict(PAPER_TABLE_SHAPES)
PAPER_M_BAR = {"parentheses": 1024, "1-hop": 456, "2-hop": 1024, "4-hop": 2280}
"""m-bar as printed in the paper's tables."""

SMALL_SHAPES = [
    (2, 1, 1, 2),
    (2, 2, 1, 2),
    (2, 2, 2, 3),
    (3, 2, 1, 1),
    (1, 3, 2, 3),
    (1, 1, 1, 1),
    (2, 3, 2, 2),
    (3, 1, 2, 4),
]
WIDE_SHAPES = [(2, 2, 3, 2), (1, 2, 2, 2), (3, 2, 2, 1), (2, 3, 2, 2), (2, 1, 4, 3)]
"""d >= d_in: where shared-key and shared-query exist."""
UNEQUAL_SHAPES = [(2, 2, 3, 2, 3), (2, 2, 3, 3, 1), (1, 3, 4, 2, 4), (3, 1, 2, 2, 1)]
"""(H, L, d, d_in, d_out) with d_out != d_in, d >= both."""

MATCHING = ("sparse", "sparse-front", "tied")
SHARED = ("shared-key", "shared-query")
PRINTED = ("printed-single-head", "printed-tree-row", "printed-tree-column", "printed-looped")

PRINTED_TREE_RANKS = {
    (2, 1, 1, 2): (4, 8),
    (2, 2, 1, 2): (4, 20),
    (2, 2, 2, 3): (8, 36),
    (3, 2, 1, 1): (6, 33),
}
"""rank R_all and M of thm:designed-R's formal R_V, both readings."""


def grid(heads: int = 4, layers: int = 5, head_dim: int = 3, d_in: int = 5, largest: int = 3000) -> list[Shape]:
    """Every shape up to these bounds with M at most `largest`."""
    ranges = (range(1, bound + 1) for bound in (heads, layers, head_dim, d_in))
    shapes = (Shape(*values) for values in itertools.product(*ranges))
    return [shape for shape in shapes if matching_dimension(shape) <= largest]


def integers(rng, *shape):
    """Nonzero integers: a target with vanishing weights would be served by anything."""
    return exact(rng.integers(1, 6, size=shape) * rng.choice([-1, 1], size=shape))


def random_target(shape, rng, *, tied=False, width=None):
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    D, d = width or shape.d_in, shape.head_dim
    arrays = [integers(rng, *lead, D, d) for _ in range(3)] + [integers(rng, *lead, d, D)]
    ends = (integers(rng, shape.d_in, D), integers(rng, D, shape.d_out)) if width or shape.d_in != shape.d_out else ()
    return Target(shape, *arrays, *ends)


def stochastic(rng, L, H, n):
    """Random rational row-stochastic matrices [L, H, n, n]."""
    raw = rng.integers(1, 6, size=(L, H, n, n))
    out = np.empty(raw.shape, dtype=object)
    for index in np.ndindex(raw.shape):
        out[index] = Fraction(int(raw[index]), int(raw[index[:-1]].sum()))
    return out
