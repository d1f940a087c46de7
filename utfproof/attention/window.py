"""A sliding window: keys nearby."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Integral
from typing import Self

import numpy as np

from utfproof.attention.part import Part
from utfproof.errors import MalformedInput

LONGEST = 10**18
"""Windows of this size and more have no name in the certificate format."""


@dataclass(frozen=True)
class Window(Part):
    """j is visible only if |i - j| < value."""

    name = "window:W"
    example = "window:64"
    option = "window"
    torch_text = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, Integral) or self.value < 1:
            raise MalformedInput(f"attention window must be a positive integer, got {self.value!r}")

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        found = re.fullmatch(r"window:(\d+)", text)
        return cls(int(found.group(1))) if found else None

    def written(self) -> str:
        return f"window:{self.value}"

    def certified(self, heads: int) -> bool:
        return bool(self.value < LONGEST)

    def visible(self, distance: np.ndarray) -> np.ndarray | None:
        return np.abs(distance) < self.value

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return max(0, start - self.value + 1), min(n, stop + self.value - 1)

    def clear(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return max(0, stop - self.value), min(n, start + self.value)
