"""Scaled logits: times a number, or over sqrt(d)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from utfproof.attention.part import Part, ball
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array

BY_HEAD_DIM = "1/sqrt(d)"


@dataclass(frozen=True)
class Scale(Part):
    """value: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim)."""

    name = "scaled"
    example = "scaled"
    option = "scale"
    absent = 1.0
    certified_words = "scale 1/sqrt(d)"
    torch_text = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            if self.value != BY_HEAD_DIM:
                raise MalformedInput(f"attention scale must be a number or '{BY_HEAD_DIM}', got {self.value!r}")
        elif not math.isfinite(self.value):
            raise MalformedInput(f"attention scale must be finite, got {self.value!r}")

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        return cls(BY_HEAD_DIM) if text == cls.name else None

    def certified(self, heads: int) -> bool:
        return bool(self.value == BY_HEAD_DIM)

    def factor(self, head_dim: int) -> float:
        return 1 / math.sqrt(head_dim) if isinstance(self.value, str) else float(self.value)

    def logits(self, logits: Array, distance: Callable[[], np.ndarray], *, head_dim: int, head: int) -> Array:
        return logits * self.factor(head_dim)

    def ball_factor(self, head_dim: int) -> Any:
        from flint import arb

        return 1 / arb(head_dim).sqrt() if isinstance(self.value, str) else ball(Fraction(self.value))
