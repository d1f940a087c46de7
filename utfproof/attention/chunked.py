"""Softmax attention in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from utfproof.attention.softmax import SoftmaxAttention, require_floats, softmax
from utfproof.util.arrays import Array, is_torch, namespace, one_line

KEY_BLOCK = 256
"""Keys summed at a time by ChunkedAttention."""
LOGITS = 1 << 19
"""Logits that it holds at a time unless said otherwise: about what a cache holds."""


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

    @property
    def row_stochastic(self) -> bool:
        """As the kernel's."""
        return getattr(self.kernel, "row_stochastic", False)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.kernel(queries, keys, positions, layer=layer, head=head)

    def attended(self, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int) -> Array:
        """A x [..., n, width], never more than `rows` rows of A at a time."""
        positions = np.asarray(positions)
        if not isinstance(self.kernel, SoftmaxAttention):
            return blocked_product(self.kernel(queries, keys, positions, layer=layer, head=head), x)
        require_floats(queries)
        n = x.shape[-2]
        rows = self.rows or max(16, LOGITS // n)
        counting = np.array_equal(positions, np.arange(n))
        queries, keys = self.kernel.turned(queries, positions), self.kernel.turned(keys, positions)
        parts = []
        for start in range(0, n, rows):
            chunk = slice(start, min(start + rows, n))
            seen = slice(*self.kernel.span(start, chunk.stop, n)) if counting else slice(0, n)
            here, there = positions[chunk], positions[seen]
            logits = self.kernel.logits(queries[..., chunk, :], keys[..., seen, :], here, there, head=head)
            if counting:  # only distances count: one mask serves many chunks and all heads
                mask = _mask(self.kernel, len(here), start - seen.start, len(there))
            else:
                mask = self.kernel.mask(here, there)
            parts.append(blocked_product(softmax(logits, mask), x[..., seen, :]))
        return parts[0] if len(parts) == 1 else namespace(x).concatenate(parts, axis=-2)


@lru_cache(maxsize=16)
def _mask(kernel: SoftmaxAttention, rows: int, first: int, columns: int) -> np.ndarray | None:
    """The kernel's mask [rows, columns] of the queries first, first + 1, ... and the keys 0, 1, ...."""
    return kernel.mask(np.arange(first, first + rows), np.arange(columns))


def blocked_product(weights: Array, x: Array, block: int = KEY_BLOCK) -> Array:
    """weights @ x, the sum over the inner index taken in blocks; on a GPU those of all whole blocks at once, where together
    they are no larger than the weights."""
    n, width = x.shape[-2:]
    whole = n // block
    if whole > 1 and width <= block and is_torch(x) and x.device.type != "cpu":
        return _all_blocks(weights, x, whole, block)
    total = weights[..., :block] @ x[..., :block, :]
    for start in range(block, n, block):
        total += weights[..., start : start + block] @ x[..., start : start + block, :]
    return total


def _all_blocks(weights: Array, x: Array, whole: int, block: int) -> Array:
    """The same for torch tensors in one product: a launch for each block would take longer than its sums."""
    cut = whole * block
    apart = weights[..., :cut].unflatten(-1, (whole, block)).transpose(-2, -3)
    total = (apart @ x[..., :cut, :].unflatten(-2, (whole, block))).sum(-3)
    return total if cut == x.shape[-2] else total + weights[..., cut:] @ x[..., cut:, :]
