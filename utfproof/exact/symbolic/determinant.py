"""The determinant polynomial p of R_all at m = M: its degree, determinants of integer matrices, and Schwartz-Zippel bounds.

p is nonzero as soon as one assignment gives a nonzero determinant; then it vanishes with probability 0 for every
absolutely continuous law, and with probability at most degree / |S| when entries are drawn from a finite set S.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from utfproof.shapes import Shape, positive_integer, require_plain

# --- degree --------------------------------------------------------------------------------------------------------


def determinant_degree(shape: Shape) -> int:
    """Degree of p: 2 d sum_l l H^l + d_out H^L (L + 1). Exact, tied or not: columns are homogeneous and p is nonzero."""
    H, L = require_plain(shape, "the determinant's degree").heads, shape.layers
    readers = 2 * shape.head_dim * sum(layer * H**layer for layer in range(1, L + 1))
    return int(readers + shape.d_out * H**L * (L + 1))


def integer_determinant(matrix: Sequence[Sequence[int]]) -> int:
    """Determinant in plain integers, by fraction-free elimination (Bareiss)."""
    table = [list(row) for row in matrix]
    sign, previous = 1, 1
    for k in range(len(table) - 1):
        pivot = next((i for i in range(k, len(table)) if table[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            table[k], table[pivot], sign = table[pivot], table[k], -sign
        top = table[k]
        for row in table[k + 1 :]:
            head = row[k]
            for j in range(k + 1, len(table)):
                row[j] = (row[j] * top[k] - head * top[j]) // previous
        previous = top[k]
    return sign * table[-1][-1]


# --- probabilities -------------------------------------------------------------------------------------------------


def schwartz_zippel_bound(shape: Shape, size_of_set: int) -> Fraction:
    """P[rank R_all < M] <= degree / |S| for parameters drawn independently and uniformly from a set of this size, m >= M.

    S may lie in any field: p has integer coefficients and takes the value 1 or -1 at a {0,1} assignment.
    """
    return Fraction(determinant_degree(shape), positive_integer("size of the set", size_of_set))
