"""What a run shows on the way: sizes of queries, keys and streams, and logits of some tokens, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utfproof.attention import attend
from utfproof.emulation.norms import length
from utfproof.ground.arrays import Array, is_torch, to_numpy, transpose

SAMPLED_TOKENS = 128
GROWTH = 8.0


class Observer:
    """An attention kernel that also notes what it is given: logits among at most SAMPLED_TOKENS tokens, and (with `sizes`)
    largest norms of queries and keys, and the streams themselves at each layer, for the sizes of docs/emulation.md."""

    def __init__(self, kernel: Any, *, sizes: bool = False) -> None:
        self.kernel = kernel
        self.logits_only = kernel.logits_only
        self.sizes = sizes
        self.logits: dict[tuple[int, int], np.ndarray] = {}
        self.queries: dict[tuple[int, int], np.ndarray] = {}
        self.keys: dict[tuple[int, int], np.ndarray] = {}
        self.streams: dict[int, np.ndarray] = {}

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.kernel(queries, keys, positions, layer=layer, head=head)

    def attended(self, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int) -> Array:
        """A x, after noting what goes in."""
        tokens = np.unique(np.linspace(0, queries.shape[-2] - 1, SAMPLED_TOKENS).astype(np.int64))
        self.logits[(layer, head)] = _float(queries[..., tokens, :]) @ transpose(_float(keys[..., tokens, :]))
        if self.sizes:
            self.queries[(layer, head)] = _largest_row(_float(queries))
            self.keys[(layer, head)] = _largest_row(_float(keys))
            if head == 0:
                self.streams[layer] = _float(x)
        return attend(self.kernel, queries, keys, x, positions, layer=layer, head=head)


def _float(array: Array) -> np.ndarray:
    return to_numpy(array.double() if is_torch(array) else array).astype(np.float64, copy=False)


def _largest_row(array: np.ndarray) -> np.ndarray:
    return np.asarray(length(array, -1).max(axis=-1))


def layer_errors(ours: Observer, theirs: Observer, index: int | None) -> tuple[float, ...]:
    """Relative error of the sampled logits of each layer, over its heads; of one target of a batch where `index` is given."""
    out: dict[int, list[tuple[float, float]]] = {}
    for (layer, head), logits in theirs.logits.items():
        mine = ours.logits[(layer, head)]
        if index is not None:
            logits, mine = logits[index], mine[index]
        scale, error = float(np.abs(logits).max()), float(np.abs(mine - logits).max())
        out.setdefault(layer, []).append((error, scale))
    found = []
    for layer in sorted(out):
        error, scale = np.max(out[layer], axis=0).tolist()
        found.append(error / scale if scale else error)
    return tuple(found)


def first_growth(errors: Sequence[float]) -> int | None:
    """The first layer, from 1, whose error is GROWTH times that of every layer before (a float64 roundoff at least)."""
    largest = 2.0**-53
    for layer, error in enumerate(errors, 1):
        if not error <= GROWTH * largest:
            return layer
        largest = max(largest, error)
    return None
