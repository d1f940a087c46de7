"""Formulas of Sections 2 and 3 and Appendix A as the paper prints them, beside the package's own (`shapes`)."""

from __future__ import annotations

from fractions import Fraction

from utfproof.shapes import Shape, geometric


def m_bar(shape: Shape) -> Fraction:
    """Section 3.1: (L+1) max{2d, d_in} for one head, 2H (H^L - 1)/(H - 1) d + H^L d_in for more."""
    H, L, d, d_in = shape.heads, shape.layers, shape.head_dim, shape.d_in
    if H == 1:
        return Fraction((L + 1) * max(2 * d, d_in))
    return Fraction(2 * H * (H**L - 1), H - 1) * d + H**L * d_in


def m_bar_loop(shape: Shape) -> Fraction:
    """Section 3.1: (L+1) max{2d, d_in} for one head, (H^(L+1) - 1)/(H - 1) max{2d, d_in} for more."""
    H, L, wide = shape.heads, shape.layers, max(2 * shape.head_dim, shape.d_in)
    return Fraction((L + 1) * wide) if H == 1 else Fraction(H ** (L + 1) - 1, H - 1) * wide


def designed_dimension(shape: Shape) -> int:
    """thm:designed-R: sum over t < L of H^t (2Hd), plus H^L d_in."""
    H, L = shape.heads, shape.layers
    return sum(H**t * 2 * H * shape.head_dim for t in range(L)) + H**L * shape.d_in


def printed_random_count(shape: Shape) -> int:
    """M as printed in the proof of thm:random-R: d S + d_out H^L (the factor 2 for Q and K is missing)."""
    return shape.head_dim * shape.word_count + shape.d_out * shape.leaves


def printed_looped_random_count(shape: Shape) -> int:
    """M_loop as printed in thm:looped_random-R: 2d (1 + H + ... + H^{L-1}) + d_out H^L (a factor H is missing)."""
    return 2 * shape.head_dim * geometric(shape.heads, 0, shape.layers - 1) + shape.d_out * shape.leaves
