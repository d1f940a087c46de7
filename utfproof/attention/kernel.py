"""softmax(q k^T) with its parts. The registry of parts stands here; each part has a file of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utfproof.attention.alibi import ALiBi
from utfproof.attention.arithmetic import masked, softmax
from utfproof.attention.causal import Causal
from utfproof.attention.part import Part, Rounding
from utfproof.attention.rope import RoPE
from utfproof.attention.scale import Scale
from utfproof.attention.window import Window
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array, is_exact, transpose

PARTS: tuple[type[Part], ...] = (Scale, Causal, Window, ALiBi, RoPE)
"""Every part, in the order in which names are written and logits are changed."""


@dataclass(frozen=True)
class SoftmaxAttention:
    """softmax(scale * q k^T + bias + mask), optionally with rotated queries and keys: one keyword for each of PARTS.

    scale: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim). causal: keys at earlier positions and the own one.
    window: only |i - j| < window. alibi_heads: number of heads H for ALiBi's bias -2^{-8(h+1)/H} |i - j| (the geometric
    slopes, for every H). rope_base: rotary positions with this base; the head dimension must be even.
    """

    scale: float | str = 1.0
    causal: bool = False
    window: int | None = None
    alibi_heads: int | None = None
    rope_base: float | None = None

    def __post_init__(self) -> None:
        _ = self.parts

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are there, in the registry's order. MalformedInput for a value that cannot be."""
        values = [(part, getattr(self, part.option)) for part in PARTS]
        return tuple(part(value) for part, value in values if value != part.absent)

    @property
    def logits_only(self) -> bool:
        """Whether attention sees q k^T only."""
        return all(part.logits_only for part in self.parts)

    def unfit(self, head_dim: int) -> str | None:
        """Why heads of this dimension cannot have this attention."""
        return next((reason for part in self.parts if (reason := part.unfit(head_dim))), None)

    def written(self) -> str:
        """The name that `parse_kernel` reads."""
        return "+".join(part.written() for part in self.parts) or "softmax"

    def rounding(self) -> Rounding:
        """Units of roundoff of all parts together."""
        return Rounding(
            *(sum(units) for units in zip(Rounding(), *(part.rounding for part in self.parts), strict=True))
        )

    def factor(self, head_dim: int) -> float:
        """The scale as a number."""
        return math.prod(part.factor(head_dim) for part in self.parts)

    def rotated(self, queries: Array, keys: Array, positions: np.ndarray) -> tuple[Array, Array]:
        """Queries and keys as the logits see them: turned by their positions where a part does so."""
        if is_exact(queries):
            raise MalformedInput(
                "softmax has no exact values; pass floats, or RationalAttention or GivenAttention for exact arithmetic"
            )
        for part in self.parts:
            queries, keys = part.turned(queries, positions), part.turned(keys, positions)
        return queries, keys

    def mask(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Boolean [rows, columns]: which key each query may see, by their positions; None when all are."""
        distance = rows[:, None] - columns[None, :]
        masks = [mask for part in self.parts if (mask := part.visible(distance)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def scores(self, queries: Array, keys: Array, rows: np.ndarray, columns: np.ndarray, *, head: int) -> Array:
        """Logits [rows, columns] of rotated queries at positions `rows` and keys at positions `columns`, none hidden."""
        logits = queries @ transpose(keys)
        for part in self.parts:
            logits = part.logits(
                logits, lambda: rows[:, None] - columns[None, :], head_dim=queries.shape[-1], head=head
            )
        return logits

    def logits(self, queries: Array, keys: Array, rows: np.ndarray, columns: np.ndarray, *, head: int) -> Array:
        """The same, minus infinity where a key is not visible."""
        return masked(self.scores(queries, keys, rows, columns, head=head), self.mask(rows, columns))

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that any query of start ... stop - 1 may see, where positions are 0 ... n - 1."""
        spans = [(0, n), *(part.span(start, stop, n) for part in self.parts)]
        return max(first for first, _ in spans), min(last for _, last in spans)

    def clear(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that all of these queries see; equal where no such stretch is known."""
        spans = [(0, n), *(part.clear(start, stop, n) for part in self.parts)]
        first, last = max(first for first, _ in spans), min(last for _, last in spans)
        return first, max(first, last)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        positions = np.asarray(positions)
        queries, keys = self.rotated(queries, keys, positions)
        return softmax(self.logits(queries, keys, positions, positions, head=head))


def visible(rows: np.ndarray, columns: np.ndarray, *, causal: bool, window: int | None) -> np.ndarray | None:
    """Boolean [rows, columns]: which key each query may see, by their positions; None when all are. A window of w sees
    |i - j| < w."""
    return SoftmaxAttention(causal=causal, window=window).mask(rows, columns)
