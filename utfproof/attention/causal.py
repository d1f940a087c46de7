"""A causal mask: keys at earlier positions and the own one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.attention.part import Part


@dataclass(frozen=True)
class Causal(Part):
    """j is visible only if j <= i."""

    name = "causal"
    example = "causal"
    option = "causal"
    absent = False
    torch_text = ""

    def visible(self, distance: np.ndarray) -> np.ndarray | None:
        return distance >= 0

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return 0, stop

    def clear(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return 0, start + 1
