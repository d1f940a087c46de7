"""Rotary positions: queries and keys turned pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Self

import numpy as np

from utfproof.attention.arithmetic import like
from utfproof.attention.part import Part, Rounding, ball
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array, namespace

BASE = 10000.0


@dataclass(frozen=True)
class RoPE(Part):
    """value: the base. The head dimension must be even."""

    name = "rope"
    example = "rope"
    option = "rope_base"
    logits_only = False  # it mixes the coordinates of q and k with positions
    rounding = Rounding(product=9)  # rounded cosines and sines, two products and a sum, for queries and for keys
    certified_words = "RoPE with base 10000"

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, Real) or not 0 < float(self.value) < np.inf:
            raise MalformedInput(f"the base of rotary positions must be a positive number, got {self.value!r}")

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        return cls(BASE) if text == cls.name else None

    def unfit(self, head_dim: int) -> str | None:
        return f"RoPE needs an even head dimension, got {head_dim}" if head_dim % 2 else None

    def certified(self, heads: int) -> bool:
        return bool(self.value == BASE)

    def turned(self, x: Array, positions: np.ndarray) -> Array:
        return rotate(x, positions, self.value)

    def turned_balls(self, x: Array, positions: Array) -> Array:
        n, d = x.shape
        out: Array = np.empty((n, d), dtype=object)
        for t in range(0, d, 2):
            frequency = ball(Fraction(self.value)) ** ball(Fraction(-t, d))
            for i in range(n):
                sin, cos = (frequency * int(positions[i])).sin_cos()
                out[i, t] = x[i, t] * cos - x[i, t + 1] * sin
                out[i, t + 1] = x[i, t] * sin + x[i, t + 1] * cos
        return out


def rotate(x: Array, positions: np.ndarray, base: float) -> Array:
    """Rotary position embedding of x [n, d]: the pair (2i, 2i+1) turns by position * base^(-2i/d).

    Raises MalformedInput for an odd d: there is no pair for the last coordinate.
    """
    d = x.shape[-1]
    if reason := RoPE(base).unfit(d):
        raise MalformedInput(reason)
    angles = np.asarray(positions, dtype=np.float64)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = like(x, np.cos(angles)), like(x, np.sin(angles))
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = namespace(x).stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return pairs.reshape(x.shape)
