"""ALiBi: a bias by distance, with geometric slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from utfproof.attention.arithmetic import like
from utfproof.attention.part import Part, Rounding, ball
from utfproof.ground.arrays import Array


@dataclass(frozen=True)
class ALiBi(Part):
    """2^{-8(h+1)/H} |i - j| is subtracted for head h; value: the number of heads H (the geometric slopes, for every H)."""

    name = "alibi"
    example = "alibi"
    option = "alibi_heads"
    rounding = Rounding(largest=7, mean=8)  # the slope, its product with the distance, and their sum
    certified_words = "ALiBi's slopes for the shape's {heads} heads"

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        return cls(heads) if text == cls.name else None

    def certified(self, heads: int) -> bool:
        return bool(self.value == heads)

    def logits(self, logits: Array, distance: Callable[[], np.ndarray], *, head_dim: int, head: int) -> Array:
        slope = 2.0 ** (-8.0 * (head + 1) / self.value)
        return logits - slope * like(logits, np.abs(distance()))

    def ball_logits(self, head_dim: int, head: int) -> Callable[[Any, int], Any] | None:
        from flint import arb

        slope = arb(2) ** ball(Fraction(-8 * (head + 1), self.value))
        return lambda logit, away: logit - slope * abs(away)
