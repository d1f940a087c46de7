"""Lower-bound formulas as the proofs in docs/proofs state them, and exact dimensions of target families to hold them against."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, comb, isqrt

import numpy as np

from utfproof.claims.decisions import dense, rank_of_matrix
from utfproof.claims.record import Agreed, agree
from utfproof.constructions.random import integer_target
from utfproof.shapes import Shape, head_words
from utfproof.systems import Target, prefix_products


def square_root_bound(count: int) -> int:
    """The least m with m^2 >= count."""
    return isqrt(count - 1) + 1


def fibre_bound(shape: Shape) -> int:
    """L = 1, d <= d_in, functional: the least m with d_in m >= H (d_in^2 + 2 d d_in - d^2)."""
    d, a = shape.head_dim, shape.d_in
    return ceil(Fraction(shape.heads * (a * a + 2 * d * a - d * d), a))


def form_dimensions(shape: Shape) -> int:
    """Dimension of the logit forms of all layers and heads over fixed generic values: with d' = min(d, d_in) and
    r = min(H d', d_in), H (2 d' d_in - d'^2) + (L-1) H (2 d' r - d'^2)."""
    narrow = min(shape.head_dim, shape.d_in)
    later = min(shape.heads * narrow, shape.d_in)
    first = 2 * narrow * shape.d_in - narrow**2
    return shape.heads * (first + (shape.layers - 1) * (2 * narrow * later - narrow**2))


def side_by_side_bound(shape: Shape) -> int:
    """The least m with d_in m >= d_in^2 H^L + S (2 d d_in - d^2): d <= d_in, and H d >= d_in unless L = 1."""
    d, b = shape.head_dim, shape.d_in
    return -(-(b * b * shape.leaves + shape.word_count * (2 * d * b - d * d)) // b)


def attention_matching_bound(shape: Shape) -> int:
    """The least m with d_in (m - d_in H^L) >= the dimension of the logit forms: a bound by attention-matching, every L."""
    return shape.d_in * shape.leaves + ceil(Fraction(form_dimensions(shape), shape.d_in))


def word_family_dimension(shape: Shape) -> int:
    """Dimension of the family (M_w)_w, |w| = L, at head dimension >= d_in: d_in^2 (LH - L + 1)."""
    return shape.d_in**2 * (shape.layers * shape.heads - shape.layers + 1)


def parameter_bound(shape: Shape) -> int:
    """E and U free, d >= d_in: the least m with 2 d_in m - 1 >= the dimension of the family of the M_w."""
    return ceil(Fraction(word_family_dimension(shape) + 1, 2 * shape.d_in))


def count_dimension(shape: Shape) -> int:
    """C(L+H-1, H-1): ways to distribute L letters over H heads."""
    return comb(shape.layers + shape.heads - 1, shape.heads - 1)


# --- exact dimensions at one integer target --------------------------------------------------------------------


def _unit(rows: int, columns: int, i: int, j: int) -> np.ndarray:
    out = np.zeros((rows, columns), dtype=object)
    out[i, j] = 1
    return out


def form_rank(target: Target) -> Agreed:
    """Rank of the differential of (W_Q, W_K) -> (M_w A^{l,h} M_v^T), |w| = |v| = l-1, summed over layers and heads
    (they are independent). FLINT and plain integers."""
    shape = target.shape
    totals: dict[str, int] = {}
    for layer in range(shape.layers):
        stacked = prefix_products(target, layer).reshape(-1, shape.d_in)
        for head in range(shape.heads):
            w_q, w_k, _, _ = target.parameters(layer, head)
            rows = []
            for i in range(shape.d_in):
                for j in range(shape.head_dim):
                    step = _unit(shape.d_in, shape.head_dim, i, j)
                    rows.append((stacked @ (step @ w_k.T) @ stacked.T).reshape(-1))
                    rows.append((stacked @ (w_q @ step.T) @ stacked.T).reshape(-1))
            found = rank_of_matrix(np.array(rows, dtype=object))
            for route in found.routes:
                totals[route] = totals.get(route, 0) + found.value
    return agree(totals)


def generic_form_rank(shape: Shape) -> Agreed:
    """The largest `form_rank` among four integer targets: the generic rank is at least that, and at most the formula's."""
    return max(
        (form_rank(integer_target(shape, seed, bound=3)) for seed in range(4)), key=lambda found: int(found.value)
    )


def word_family_rank(target: Target) -> Agreed:
    """Rank of the differential of (M^{l,h}) -> (M_w)_w, |w| = L, at a target's forms. FLINT and plain integers."""
    shape = target.shape
    forms = [[dense(target.value_form(t, h)) for h in range(shape.heads)] for t in range(shape.layers)]
    rows = []
    for layer in range(shape.layers):
        for head in range(shape.heads):
            for i in range(shape.d_in):
                for j in range(shape.d_in):
                    parts = []
                    for word in head_words(shape.heads, shape.layers):
                        product = np.eye(shape.d_in, dtype=int).astype(object)
                        for t, h in enumerate(word):
                            product = product @ (_unit(shape.d_in, shape.d_in, i, j) if t == layer else forms[t][h])
                        parts.append(product * int(word[layer] == head))
                    rows.append(np.concatenate(parts).reshape(-1))
    return rank_of_matrix(np.array(rows, dtype=object))
