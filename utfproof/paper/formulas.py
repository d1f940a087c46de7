"""Formulas and readings of Sections 2 and 3 and Appendix A as the paper has them, beside the package's own (`shapes`)."""

from __future__ import annotations

from fractions import Fraction

from utfproof.shapes import Shape


def m_bar(shape: Shape) -> int:
    """Section 3.1: (L+1) max{2d, d_in} for one head, 2H (H^L - 1)/(H - 1) d + H^L d_in for more."""
    H, L, d, d_in = shape.heads, shape.layers, shape.head_dim, shape.d_in
    if H == 1:
        return (L + 1) * max(2 * d, d_in)
    whole = Fraction(2 * H * (H**L - 1), H - 1) * d + H**L * d_in
    assert whole.denominator == 1
    return int(whole)


def m_bar_loop(shape: Shape) -> int:
    """Section 3.1: (L+1) max{2d, d_in} for one head, (H^(L+1) - 1)/(H - 1) max{2d, d_in} for more."""
    H, L, wide = shape.heads, shape.layers, max(2 * shape.head_dim, shape.d_in)
    if H == 1:
        return (L + 1) * wide
    whole = Fraction(H ** (L + 1) - 1, H - 1) * wide
    assert whole.denominator == 1
    return int(whole)


def designed_dimension(shape: Shape) -> int:
    """thm:designed-R: sum over t < L of H^t (2Hd), plus H^L d_in."""
    H, L = shape.heads, shape.layers
    return sum(H**t * 2 * H * shape.head_dim for t in range(L)) + H**L * shape.d_in


def theta_dimension(shape: Shape, constant: int) -> int:
    """The end of Section 3.2: a constant times H^L max{d, d_in}."""
    return constant * shape.heads**shape.layers * max(shape.head_dim, shape.d_in)


ENOUGH = 5
"""A constant that does for H >= 2: M = 2dS + d_in H^L, and S < 2 H^L."""
ENOUGH_A_LAYER = 3
"""The same for each layer when H = 1: M = 2dL + d_in."""
MATRICES_LOOPED = "3 H + 1"
"""How many parameter matrices a looped host has, written out; the paper says O(H)."""
MATRICES = "3 H L + 1"
"""The same of an untied host; the paper says O(HL)."""


def evaluate(formula: str, shape: Shape) -> int:
    """A sum of products of numbers, H and L, as above."""
    values = {"H": shape.heads, "L": shape.layers}
    total = 0
    for summand in formula.split("+"):
        product = 1
        for factor in summand.split():
            product *= values[factor] if factor in values else int(factor)
        total += product
    return total
