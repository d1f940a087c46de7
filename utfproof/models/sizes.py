"""How large the terms are that each output of each row is summed from: by that much rounding may move it, and with that a
difference of outputs is compared, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from utfproof.models.attention import Kernel

if TYPE_CHECKING:
    from utfproof.models.reading import Reading

AGREEMENT = 1e-8
"""Largest relative difference of outputs under which two models are called the same."""
ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Of a size: what the numbers that are compared may lose by being written down."""
_LARGEST = 1e140
"""Of squares: two of them, and their sums, are multiplied without overflow."""
_MATRICES = ("W_E", "W_pos", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O", "W_U")


class Sizes:
    """Sizes of a reading's outputs; the squares of its matrices are kept.

    The model's sums, each replaced by the root of the sum of its terms' squares, which is what it amounts to where signs are
    independent; large terms that cancel count in full. b_U is left out: a constant that no row moves is no measure.

    A float64 sum of k terms is off by at most k eps times the sum of their absolute values, so by k^1.5 eps times its size, and
    an error goes on through the same matrices as the row that it is in, so that it keeps its ratio to the row's size. For rows
    of a thousand coordinates that is 10^-11, usually far less (errors have signs too), below AGREEMENT with room for depth and
    for an ill-conditioned embedding. Attention passes on a row with its weight A, which is off by A (1 - A) times the error of
    its logit, ROUNDING times the logit's own size: that counts where it exceeds AGREEMENT. A row that another one does not
    attend to, however large it is, so adds nothing to that one's size, and hides no difference there.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.squares = {name: _capped(np.square(_small(reading.arrays[name]))) for name in _MATRICES}

    def __call__(self, given: np.ndarray, kernel: Kernel | None = None) -> np.ndarray:
        """[n, O] for tokens [n], or inputs [n, V + P]."""
        reading, stages = self.reading, self.reading.stages(given, kernel)
        (x, at), (stream, beside) = self._first(given, reading.arrays), self._first(given, self.squares)
        for layer in range(len(reading.factors)):
            stream_in = self._normed(stream, x, "first")
            inner = stages[f"input of layer {layer}"]
            added = self._added(inner, at, stream_in, beside, layer, kernel)
            attended = stages[f"attention of layer {layer}"]
            x, stream = (x + attended, stream + added) if reading.stream else (attended, added)
            stream = _capped(stream)
        return np.sqrt(_capped(self._normed(stream, x, "final") @ self.squares["W_U"]))

    def _first(self, given: np.ndarray, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The stream before the first layer [n, D], and what is added to it for queries and keys alone, [n, D] or [1, D]; the
        squares of both where `arrays` are squares."""
        reading, places = self.reading, np.arange(len(given))
        if given.ndim == 2:
            rows = np.square(given) if arrays is self.squares else given
            x, at = rows[:, : reading.vocabulary] @ arrays["W_E"], rows[:, reading.vocabulary :] @ arrays["W_pos"]
        else:
            x = arrays["W_E"][given * reading.pairs + places if reading.pairs else given]
            at = arrays["W_pos"][: len(given)] if len(arrays["W_pos"]) else np.zeros((1, x.shape[1]))
        return (x, at) if reading.shortformer else (x + at, np.zeros((1, x.shape[1])))

    def _normed(self, stream: np.ndarray, x: np.ndarray, place: str) -> np.ndarray:
        """The squares [n, D] after the norm that stands in this place, where there is one. x: the rows themselves."""
        norm = self.reading.norm
        if norm is None or not getattr(norm, place):
            return stream
        return np.asarray(stream / np.square(norm.size(x))[:, None])

    def _added(
        self,
        inner: np.ndarray,
        at: np.ndarray,
        stream: np.ndarray,
        beside: np.ndarray,
        layer: int,
        kernel: Kernel | None,
    ) -> np.ndarray:
        """The squares [n, D] of what a layer's attention adds. inner: the rows that it reads, stream: their squares."""
        a, s = self.reading.arrays, self.squares
        attention, factor = self.reading.attention if kernel is None else kernel, self.reading.factors[layer]
        added = np.tile(s["b_O"][layer], (len(inner), 1))
        heads, groups = len(a["W_Q"][layer]), len(a["W_K"][layer])
        for head in range(heads):
            group = head * groups // heads
            q = factor * ((inner + at) @ a["W_Q"][layer, head] + a["b_Q"][layer, head])
            k = (inner + at) @ a["W_K"][layer, group] + a["b_K"][layer, group]
            weights = attention(q, k, np.arange(len(inner)), layer=layer, head=head)
            queries = factor**2 * ((stream + beside) @ s["W_Q"][layer, head] + s["b_Q"][layer, head])
            keys = (stream + beside) @ s["W_K"][layer, group] + s["b_K"][layer, group]
            logits = np.sqrt(_capped(queries)) @ np.sqrt(_capped(keys)).T
            moved = weights * (1 - weights) * logits * (ROUNDING / AGREEMENT)
            values = stream @ s["W_V"][layer, group] + s["b_V"][layer, group]
            passed = _capped(_capped(np.square(weights) + np.square(moved)) @ _capped(values))
            added = added + passed @ s["W_O"][layer, head]
        return _capped(added)


def _small(array: np.ndarray) -> np.ndarray:
    """Entries whose squares do not overflow."""
    return np.clip(array, -(_LARGEST**0.5), _LARGEST**0.5)


def _capped(squares: np.ndarray) -> np.ndarray:
    """Squares [...], none too large to be multiplied by a weight of attention."""
    return np.minimum(squares, _LARGEST)
