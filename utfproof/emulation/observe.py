"""What the target's run shows on the way: sizes of queries, keys and streams, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.attention import attend
from utfproof.emulation.norms import longest
from utfproof.util.arrays import Array, is_torch, to_numpy


class Observer:
    """An attention kernel that also notes what it is given: largest norms of queries and keys, and the streams themselves at
    each layer, for the sizes of docs/emulation.md."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.logits_only = kernel.logits_only
        self.queries: dict[tuple[int, int], float] = {}
        self.keys: dict[tuple[int, int], float] = {}
        self.streams: dict[int, np.ndarray] = {}

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.kernel(queries, keys, positions, layer=layer, head=head)

    def attended(self, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int) -> Array:
        """A x, after noting what goes in."""
        self.queries[(layer, head)] = longest(_float(queries), 1)
        self.keys[(layer, head)] = longest(_float(keys), 1)
        if head == 0:
            self.streams[layer] = _float(x)
        return attend(self.kernel, queries, keys, x, positions, layer=layer, head=head)


def _float(array: Array) -> np.ndarray:
    return to_numpy(array.double() if is_torch(array) else array).astype(np.float64, copy=False)
