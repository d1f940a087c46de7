"""The definitions written out slowly in plain Python: lists of integers or Fractions, one head word at a time.

The second route of the claims. Nothing here calls the package's own R_all, W_all, forward pass or rank.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

Rows = list[list[Any]]
Attention = Callable[[Rows, Rows, int, int], Rows]
"""(queries [n, d], keys [n, d], layer, head), layer from 1 -> attention matrix [n, n]."""


def words(heads: int, length: int) -> Iterator[tuple[int, ...]]:
    """Head words in lexicographic order."""
    return itertools.product(range(heads), repeat=length)


def rows(matrix: Any) -> Rows:
    """A matrix of any kind (SelectionMatrix, NumPy array, lists) as lists of Python numbers; floats as exact Fractions."""
    if hasattr(matrix, "to_dense"):
        matrix = matrix.to_dense(object)
    listed = matrix.tolist() if hasattr(matrix, "tolist") else matrix
    return [[Fraction(v) if isinstance(v, float) else v for v in row] for row in listed]


def identity(size: int) -> Rows:
    """The identity matrix."""
    return [[int(i == j) for j in range(size)] for i in range(size)]


def multiply(a: Rows, b: Rows) -> Rows:
    """a b, by the entries that are not zero: hosts are mostly zeros."""
    width = len(b[0]) if b else 0
    if any(len(row) != width for row in b):
        raise ValueError("rows of different lengths")
    if any(matrix and matrix[0] and isinstance(matrix[0][0], Fraction) for matrix in (a, b)):
        return _over_denominators(a, b)
    sparse = [[(j, y) for j, y in enumerate(row) if y] for row in b]
    out = []
    for row in a:
        sums: list[Any] = [0] * width
        for x, entries in zip(row, sparse, strict=True):
            if x:
                for j, y in entries:
                    sums[j] += x * y
        out.append(sums)
    return out


def _over_denominators(a: Rows, b: Rows) -> Rows:
    """a b for fractions: in integers, over a common denominator of each row of a and each column of b."""
    left = [_integers(row) for row in a]
    right = [_integers(column) for column in transpose(b)]
    return [
        [Fraction(sum(map(operator.mul, row, column)), below * under) for column, under in right] for row, below in left
    ]


def add(a: Rows, b: Rows) -> Rows:
    """a + b."""
    return [[x + y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


def transpose(a: Rows) -> Rows:
    """The transpose."""
    return [list(column) for column in zip(*a, strict=True)]


def beside(blocks: Sequence[Rows]) -> Rows:
    """Matrices of equal height side by side."""
    return [[value for block in blocks for value in block[i]] for i in range(len(blocks[0]))]


def rank(matrix: Any) -> int:
    """Rank over the rationals by fraction-free elimination."""
    left = [_integers(row)[0] for row in rows(matrix)]
    width = len(left[0]) if left else 0
    found = 0
    for column in range(width):
        pivot = next((i for i in range(found, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        head = left[found]
        for i in range(found + 1, len(left)):
            factor = left[i][column]
            if factor:
                left[i] = _reduced([head[column] * x - factor * y for x, y in zip(left[i], head, strict=True)])
        found += 1
    return found


def _integers(row: list[Any]) -> tuple[list[int], int]:
    """Numerators over the common denominator, and that denominator."""
    scale = math.lcm(*(value.denominator for value in row))
    return [value.numerator * (scale // value.denominator) for value in row], scale


def _reduced(row: list[int]) -> list[int]:
    """The row divided by the gcd of its entries."""
    common = math.gcd(*row)
    return [value // common for value in row] if common > 1 else row


# --- hosts and targets, read through their public parameters: with a residual stream, letter 0 of a word is the stream ----


def factors(system: Any, layer: int, head: int) -> list[Rows]:
    """Query, key and the factors of the value: W_V and W_O of a target, R_V or its factors of a host."""
    if hasattr(system, "without_biases"):
        system = system.without_biases()
    if hasattr(system, "parameters"):
        return [rows(matrix) for matrix in system.parameters(layer, head)]
    found = system.maps(layer, head)
    return [rows(matrix) for matrix in (found.query, found.key, *found.value)]


def maps(system: Any, layer: int, head: int) -> tuple[Rows, Rows, Rows]:
    """(query, key, value) of a head, a target's or a host's."""
    query, key, *values = factors(system, layer, head)
    return query, key, product(values)


def ends(system: Any) -> tuple[Rows, Rows]:
    """What words start from and what reads them at the end: W_E and W_U of a target, I [m, m] and U of a host."""
    if hasattr(system, "without_biases"):
        system = system.without_biases()
    if hasattr(system, "parameters"):
        return rows(system.embedding()), rows(system.unembedding())
    return identity(system.m), rows(system.U)


def product(matrices: Sequence[Any]) -> Rows:
    """The product of the matrices in order."""
    out = rows(matrices[0])
    for matrix in matrices[1:]:
        out = multiply(out, rows(matrix))
    return out


def routed(system: Any, word: Sequence[int]) -> Rows:
    """R_w [m, m] of a host, W_E M_w of a target, along a word of heads."""
    out = ends(system)[0]
    for layer, head in enumerate(word):
        out = multiply(out, maps(system, layer, head)[2])
    return out


def columns(shape: Any) -> int:
    """M without a residual stream, by counting words one at a time."""
    reading = sum(1 for length in range(1, shape.layers + 1) for _ in words(shape.heads, length))
    return 2 * shape.head_dim * reading + shape.d_in * sum(1 for _ in words(shape.heads, shape.layers))


def equations(system: Any) -> Rows:
    """R_all of a host, W_all of a target, from the definition: Q and K by prefix and reading head, then OV by word."""
    H, L, stream = system.shape.heads, system.shape.layers, int(system.shape.residual)
    start, output = ends(system)
    heads = [[maps(system, layer, head) for head in range(H)] for layer in range(L)]
    prefixes = [[start]]  # by length, words in lexicographic order
    for layer in heads:
        moved = []
        for state in prefixes[-1]:
            moved += [state] if stream else []
            moved += [multiply(state, value) for _, _, value in layer]
        prefixes.append(moved)
    blocks = []
    for kind in (0, 1):
        for layer, states in zip(heads, prefixes[:-1], strict=True):
            blocks += [multiply(state, parts[kind]) for state in states for parts in layer]
    blocks += [multiply(state, output) for state in prefixes[-1]]
    return beside(blocks)


# --- forward passes, over the rationals ----------------------------------------------------------------------


def weight(score: Any) -> Any:
    """1 + s + s^2, positive for every logit s, and another for -s."""
    return 1 + score + score * score


def rational_attention(queries: Rows, keys: Rows, layer: int, head: int) -> Rows:
    """Rows proportional to 1 + s + s^2, s = q k^T: depends on the logits alone, signs too, and is exact over the rationals."""
    out = []
    for query in queries:
        weights = [weight(sum(a * b for a, b in zip(query, key, strict=True))) for key in keys]
        total = sum(weights)
        out.append([Fraction(weight) / total for weight in weights])
    return out


def separate_attention(queries: Rows, keys: Rows, layer: int, head: int) -> Rows:
    """Looks at queries and keys separately, as RoPE does: rows proportional to 1 + (q_i . q_j)^2 + s + 3 s^2,
    s = q_i . k_j."""
    out = []
    for query in queries:
        weights = []
        for other, key in zip(queries, keys, strict=True):
            own = sum(a * b for a, b in zip(query, other, strict=True))
            score = sum(a * b for a, b in zip(query, key, strict=True))
            weights.append(1 + own**2 + score + 3 * score**2)
        total = sum(weights)
        out.append([Fraction(weight) / total for weight in weights])
    return out


def given(grid: Any) -> Attention:
    """Attention matrices from outside, [L][H][n][n]."""
    return lambda queries, keys, layer, head: grid[layer - 1][head]


def forward(system: Any, x: Rows, E: Any = None, attention: Attention = rational_attention) -> Rows:
    """The outputs of a target, with biases or without, for X, and of a host for X and E."""

    def plus(matrix: Rows, name: str, *at: int) -> Rows:
        if not hasattr(system, "bias"):
            return matrix
        return [[v + b for v, b in zip(row, system.bias(name)[at], strict=True)] for row in matrix]

    start, output = ends(system)
    state = plus(multiply(rows(x), rows(start if E is None else E)), "b_E")
    for layer in range(system.shape.layers):
        after = state if system.shape.residual else [[0] * len(row) for row in state]
        for head in range(system.shape.heads):
            query, key, first, *others = map(rows, factors(system, layer, head))
            queries, keys = (
                plus(multiply(state, matrix), name, layer, head) for matrix, name in ((query, "b_Q"), (key, "b_K"))
            )
            values = plus(multiply(state, first), "b_V", layer, head)
            term = multiply(rows(attention(queries, keys, layer + 1, head)), values)
            for matrix in others:
                term = multiply(term, matrix)
            after = add(after, term)
        state = plus(after, "b_O", layer)
    return plus(multiply(state, rows(output)), "b_U")
