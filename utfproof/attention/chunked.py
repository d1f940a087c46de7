"""Attention in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention.arithmetic import blocked_product, softmax_weights
from utfproof.attention.kernel import SoftmaxAttention
from utfproof.ground.arrays import Array, namespace, one_line


@one_line
@dataclass(frozen=True)
class ChunkedAttention:
    """The same attention in bounded memory: `rows` queries at a time, sums over keys in blocks of KEY_BLOCK.

    Keys that a causal mask or a window hides from a whole chunk are never looked at. Summing in blocks also keeps the
    rounding error of n terms at that of KEY_BLOCK + n / KEY_BLOCK (docs/emulation.md). `rows` None: about 2^22 logits.
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
        rows = self.rows or max(16, (1 << 22) // n)
        queries, keys = self.kernel.rotated(queries, keys, positions)
        parts = []
        for start in range(0, n, rows):
            stop = min(start + rows, n)
            first, last = self.kernel.span(positions, start, stop)
            logits = self.kernel.logits(
                queries[..., start:stop, :],
                keys[..., first:last, :],
                positions[start:stop],
                positions[first:last],
                head=head,
            )
            weights, total = softmax_weights(logits)
            parts.append(blocked_product(weights, x[..., first:last, :]) / total)
        return parts[0] if len(parts) == 1 else namespace(x).concatenate(parts, axis=-2)
