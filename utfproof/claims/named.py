"""Conditions on shapes and embedding dimensions by the names that the records use."""

from __future__ import annotations

from collections.abc import Callable

from utfproof.paper import formulas as printed
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import (
    Shape,
    matching_dimension,
    paper_dimension,
    paper_looped_dimension,
)

TABLES = tuple(PAPER_TABLE_SHAPES.values())
"""(H, L, d, d_in) of the paper's tables."""

CONDITIONS: dict[str, Callable[[Shape], bool]] = {
    "H = 1": lambda s: s.heads == 1,
    "H > 1": lambda s: s.heads > 1,
    "L = 1": lambda s: s.layers == 1,
    "L = 2": lambda s: s.layers == 2,
    "L > 1": lambda s: s.layers > 1,
    "L even": lambda s: s.layers % 2 == 0,
    "L odd": lambda s: s.layers % 2 == 1,
    "L > 1 or d_in > d": lambda s: s.layers > 1 or s.d_in > s.head_dim,
    "d = d_in": lambda s: s.head_dim == s.d_in,
    "d >= d_in": lambda s: s.head_dim >= s.d_in,
    "d > d_in": lambda s: s.head_dim > s.d_in,
    "d <= d_in": lambda s: s.head_dim <= s.d_in,
    "d_in = 1": lambda s: s.d_in == 1,
    "d_in > 1": lambda s: s.d_in > 1,
    "d_in >= L, d >= L": lambda s: min(s.head_dim, s.d_in) >= s.layers,
    "d_in >= d(H+1)": lambda s: s.d_in >= s.head_dim * (s.heads + 1),
    "H d >= d_in or L = 1": lambda s: s.heads * s.head_dim >= s.d_in or s.layers == 1,
    "H > 1 or d > 1": lambda s: s.heads > 1 or s.head_dim > 1,
    "no other shapes": lambda s: False,
    "m-bar-loop >= M": lambda s: paper_looped_dimension(s) >= matching_dimension(s),
    "m-bar-loop < M": lambda s: paper_looped_dimension(s) < matching_dimension(s),
}

DIMENSIONS: dict[str, Callable[[Shape], int]] = {
    "M": matching_dimension,
    "m-bar": paper_dimension,
    "m-bar-loop": paper_looped_dimension,
    "M_loop": printed.printed_looped_random_count,
    "m of thm:designed-R": printed.designed_dimension,
    "(L+1) max{2d, d_in}": lambda s: (s.layers + 1) * max(2 * s.head_dim, s.d_in),
    "H d": lambda s: s.heads * s.head_dim,
    "3 L d": lambda s: 3 * s.layers * s.head_dim,
    "3 L max{d, d_in}": lambda s: 3 * s.layers * max(s.head_dim, s.d_in),
    "5 H^L d": lambda s: 5 * s.leaves * s.head_dim,
    "5 H^L max{d, d_in}": lambda s: 5 * s.leaves * max(s.head_dim, s.d_in),
    "(4d + d_in) H^L": lambda s: (4 * s.head_dim + s.d_in) * s.leaves,
}
