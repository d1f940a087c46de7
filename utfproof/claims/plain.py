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


# --- hosts and targets, read through their public parameters -------------------------------------------------


def product(matrices: Sequence[Any]) -> Rows:
    """The product of the matrices in order."""
    out = rows(matrices[0])
    for matrix in matrices[1:]:
        out = multiply(out, rows(matrix))
    return out


def routed(host: Any, word: Sequence[int]) -> Rows:
    """R_w [m, m] of a host."""
    out = identity(host.m)
    for layer, head in enumerate(word):
        out = multiply(out, product(host.maps(layer, head).value))
    return out


def form(target: Any, word: tuple[int, ...]) -> Rows:
    """M_w in plain integers."""
    out = identity(target.width)
    for layer, head in enumerate(word):
        _, _, w_v, w_o = target.parameters(layer, head)
        out = multiply(multiply(out, rows(w_v)), rows(w_o))
    return out


def r_all(host: Any) -> Rows:
    """R_all [m, M], word by word in canonical column order: all Q, all K, then OV."""
    H, L = host.shape.heads, host.shape.layers
    prefixes: dict[tuple[int, ...], Rows] = {(): identity(host.m)}
    for length in range(1, L + 1):
        for word in words(H, length):
            value = product(host.maps(length - 1, word[-1]).value)
            prefixes[word] = multiply(prefixes[word[:-1]], value)
    blocks = []
    for kind in (0, 1):
        for length in range(1, L + 1):
            for word in words(H, length):
                reader = host.maps(length - 1, word[-1])[kind]
                blocks.append(multiply(prefixes[word[:-1]], rows(reader)))
    blocks += [multiply(prefixes[word], rows(host.U)) for word in words(H, L)]
    return beside(blocks)


def w_all(target: Any) -> Rows:
    """W_all [d_in, M] of a target, word by word in canonical column order."""
    H, L = target.shape.heads, target.shape.layers

    def prefix(word: Sequence[int]) -> Rows:
        out = rows(target.embedding())
        for layer, head in enumerate(word):
            _, _, w_v, w_o = target.parameters(layer, head)
            out = multiply(multiply(out, rows(w_v)), rows(w_o))
        return out

    blocks = []
    for kind in (0, 1):
        for length in range(1, L + 1):
            for word in words(H, length):
                reader = target.parameters(length - 1, word[-1])[kind]
                blocks.append(multiply(prefix(word[:-1]), rows(reader)))
    blocks += [multiply(prefix(word), rows(target.unembedding())) for word in words(H, L)]
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


def run_target(target: Any, x: Rows, attention: Attention = rational_attention) -> Rows:
    """T(X) [n, d_out], from the definition."""
    state = multiply(x, rows(target.embedding()))
    for layer in range(target.shape.layers):
        total: Rows | None = None
        for head in range(target.shape.heads):
            w_q, w_k, w_v, w_o = (rows(part) for part in target.parameters(layer, head))
            mixed = multiply(attention(multiply(state, w_q), multiply(state, w_k), layer + 1, head), state)
            term = multiply(multiply(mixed, w_v), w_o)
            total = term if total is None else add(total, term)
        assert total is not None
        state = total
    return multiply(state, rows(target.unembedding()))


def run_host(host: Any, E: Any, x: Rows, attention: Attention = rational_attention) -> Rows:
    """UTF(X, E) [n, d_out], from the definition."""
    state = multiply(x, rows(E))
    for layer in range(host.shape.layers):
        total: Rows | None = None
        for head in range(host.shape.heads):
            maps = host.maps(layer, head)
            queries, keys = multiply(state, rows(maps.query)), multiply(state, rows(maps.key))
            term = multiply(attention(queries, keys, layer + 1, head), state)
            for value in maps.value:
                term = multiply(term, rows(value))
            total = term if total is None else add(total, term)
        assert total is not None
        state = total
    return multiply(state, rows(host.U))
