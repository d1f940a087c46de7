"""Attention in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from utfproof.attention.arithmetic import blocked_product, like
from utfproof.attention.kernel import SoftmaxAttention
from utfproof.ground.arrays import Array, is_torch, namespace, one_line

LOGITS = 1 << 19
"""Logits held at a time unless said otherwise: about what a cache holds."""


@one_line
@dataclass(frozen=True)
class ChunkedAttention:
    """The same attention in bounded memory: `rows` queries at a time, sums over keys in blocks of KEY_BLOCK.

    Keys that a causal mask or a window hides from a whole chunk are never looked at. Summing in blocks also keeps the
    rounding error of n terms at that of KEY_BLOCK + n / KEY_BLOCK (docs/emulation.md). `rows` None: about LOGITS logits.
    """

    kernel: Any
    rows: int | None = None

    @property
    def logits_only(self) -> bool:
        """As the kernel's."""
        return bool(self.kernel.logits_only)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.kernel(queries, keys, positions, layer=layer, head=head)

    def attended(self, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int) -> Array:
        """A x [..., n, width], never more than `rows` rows of A at a time."""
        positions = np.asarray(positions)
        if not isinstance(self.kernel, SoftmaxAttention):
            return blocked_product(self.kernel(queries, keys, positions, layer=layer, head=head), x)
        n = x.shape[-2]
        rows = self.rows or max(16, LOGITS // n)
        counting = np.array_equal(positions, np.arange(n))
        queries, keys = self.kernel.rotated(queries, keys, positions)
        parts = []
        for start in range(0, n, rows):
            stop = min(start + rows, n)
            first, last = self.kernel.span(start, stop, n) if counting else (0, n)
            logits = self.kernel.scores(
                queries[..., start:stop, :],
                keys[..., first:last, :],
                positions[start:stop],
                positions[first:last],
                head=head,
            )
            # only what lies outside of the stretch that all these queries see has a mask
            left, right = self.kernel.clear(start, stop, n) if counting else (n, n)
            for low, high in (
                ((first, min(left, last)), (max(right, first), last)) if left < right else ((first, last),)
            ):
                if low >= high:
                    continue
                if counting:
                    hidden = _hidden(self.kernel, stop - start, low - start, high - low)
                else:
                    hidden = _not(self.kernel.mask(positions[start:stop], positions[low:high]))
                _hide(logits[..., low - first : high - first], hidden)
            weights, total = _weights(logits)
            parts.append(blocked_product(weights, x[..., first:last, :]))
            parts[-1] /= total
        return parts[0] if len(parts) == 1 else namespace(x).concatenate(parts, axis=-2)


@lru_cache(maxsize=16)
def _hidden(kernel: SoftmaxAttention, rows: int, offset: int, columns: int) -> np.ndarray | None:
    """Boolean [rows, columns]: what the queries 0, 1, ... do not see of the keys offset, offset + 1, ...; only distances count,
    so one mask serves many chunks and all heads."""
    return _not(kernel.mask(np.arange(rows), np.arange(offset, offset + columns)))


def _not(mask: np.ndarray | None) -> np.ndarray | None:
    return None if mask is None else ~mask


def _hide(logits: Array, hidden: np.ndarray | None) -> None:
    """Minus infinity in place where `hidden` is True."""
    if hidden is None:
        return
    if is_torch(logits):
        logits.masked_fill_(like(logits, hidden), -math.inf)
    else:
        np.copyto(logits, -math.inf, where=hidden)


def _weights(logits: Array) -> tuple[Array, Array]:
    """As `softmax_weights`, in the memory of the logits."""
    xp = namespace(logits)
    logits -= xp.amax(logits, axis=-1, keepdims=True)
    weights = xp.exp(logits, out=logits)
    return weights, weights.sum(axis=-1, keepdims=True)
