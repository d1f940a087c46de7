"""Attention without softmax: matrices that come from outside, and a kernel that is exact over the rationals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from utfproof.attention.softmax import like, visible
from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, is_exact, is_torch, one_line, to_numpy, transpose
from utfproof.util.generator import raw_numpy, stream_key


@one_line
@dataclass(frozen=True)
class GivenAttention:
    """Attention matrices from outside, [L, H, n, n]: the shared-attention model of the paper's lower bound.

    >>> import numpy as np
    >>> from utfproof import GivenAttention, Shape, random_target
    >>> uniform = GivenAttention(np.full((1, 2, 3, 3), 1 / 3))  # 1 layer, 2 heads, 3 tokens
    >>> random_target(Shape(2, 1, 2, 3)).forward(np.eye(3), uniform).shape
    (3, 3)
    """

    matrices: Array

    logits_only = True

    @cached_property
    def row_stochastic(self) -> bool:
        """Whether no entry is negative and rows sum to 1: exactly, or up to rounding for floats."""
        matrices = np.asarray(self.matrices if is_exact(self.matrices) else to_numpy(self.matrices))
        slack = 0 if is_exact(matrices) else 1e-9 if matrices.itemsize == 8 else 1e-6
        return bool((matrices >= 0).all() and (abs(matrices.sum(axis=-1) - 1) <= slack).all())

    def unfit(self, head_dim: int) -> None:
        """Nothing: queries and keys play no part."""

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        matrix = self.matrices[layer][head]
        if matrix.shape[-1] != queries.shape[-2]:
            raise MalformedInput(
                f"attention matrices are for {matrix.shape[-1]} tokens, the input has {queries.shape[-2]}"
            )
        return matrix if is_exact(matrix) or is_torch(matrix) else like(queries, np.asarray(matrix))


@one_line
@dataclass(frozen=True)
class SeededAttention(GivenAttention):
    """Matrices from outside for any context length, drawn from a seed: row i of layer l and head h holds the generator's
    numbers 1 ... 16 over their sum, the same for host and target whatever they compute. Needs n^2 numbers at a time."""

    matrices: Array = None
    seed: int = 0

    row_stochastic = True

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        weights = self._weights(queries.shape[-2], layer, head).astype(np.float64)
        return like(queries, weights / weights.sum(axis=1, keepdims=True))

    @staticmethod
    def memory(context: int) -> int:
        """Bytes while a matrix is drawn: 64-bit numbers and what they are turned into."""
        return 4 * 8 * context**2

    def _weights(self, context: int, layer: int, head: int) -> np.ndarray:
        """Integers 1 ... 16 [n, n]."""
        numbers = raw_numpy(stream_key(self.seed, "X", layer, head), context * context)
        return (numbers >> np.uint64(60)).astype(np.int64).reshape(context, context) + 1


@dataclass(frozen=True)
class RationalAttention:
    """Rows proportional to 1 + s + s^2, s = q k^T, over the visible keys: depends on the logits and their signs, and is exact
    over the rationals.

    With it the emulation lemma can be tested as an equality of rational numbers.

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from utfproof import RationalAttention, Shape, Target
    >>> W, X = np.full((1, 1, 1, 1), Fraction(1)), np.array([[Fraction(1)], [Fraction(2)]])
    >>> Target(Shape(1, 1, 1, 1), W, W, W, W).forward(X, RationalAttention())[:, 0]
    array([Fraction(17, 10), Fraction(7, 4)], dtype=object)
    """

    causal: bool = False
    window: int | None = None

    logits_only = row_stochastic = True

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        logits = queries @ transpose(keys)
        weights = 1 + logits + logits * logits
        places = np.asarray(positions)
        mask = visible(places, places, causal=self.causal, window=self.window)
        if mask is not None:
            weights = weights * like(weights, mask.astype(np.int64))
        total = weights.sum(axis=-1, keepdims=True)
        if is_exact(weights):
            return weights.astype(object) * np.vectorize(lambda t: Fraction(1) / t, otypes=[object])(total)
        return weights / total
