"""Attention matrices that come from outside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utfproof.attention.arithmetic import like
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array, is_exact, is_torch, one_line, to_numpy
from utfproof.ground.generator import raw_numpy, stream_key

_SLACK = 1e-6
"""How far from 1 the sum of a row of floats may be."""


@one_line
@dataclass(frozen=True)
class GivenAttention:
    """Attention matrices from outside, [L, H, n, n]: the shared-attention model of the paper's lower bound."""

    matrices: Array

    logits_only = True

    @cached_property
    def row_stochastic(self) -> bool:
        """Whether no entry is negative and rows sum to 1, up to rounding (of float32 too)."""
        matrices = to_numpy(self.matrices).astype(np.float64)
        return bool((matrices >= 0).all() and (np.abs(matrices.sum(axis=-1) - 1) <= _SLACK).all())

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
