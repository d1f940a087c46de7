"""Attention that is exact over the rationals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from utfproof.attention.arithmetic import like
from utfproof.attention.kernel import visible
from utfproof.ground.arrays import Array, is_exact, transpose


@dataclass(frozen=True)
class RationalAttention:
    """Rows proportional to 1 + s + s^2, s = q k^T, over the visible keys: depends on the logits and their signs, and is exact
    over the rationals.

    With it the emulation lemma can be tested as an equality of rational numbers.
    """

    causal: bool = False
    window: int | None = None

    logits_only = True

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
