"""What a construction is: its host, its embedding, its least m, where it is defined, and what it serves.

Each construction's file has its record; the registry (`utfproof.constructions`) holds them all, and whoever needs some of them
asks it by property.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from utfproof.ground.arrays import Array
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

Forms = tuple[list[list[Array]], list[list[Array]]]
"""What queries and keys are of a target's stream: matrices [D, k <= d] by layer and head."""


def everywhere(shape: Shape) -> None:
    """Defined at every shape."""
    return None


@dataclass(frozen=True)
class Construction:
    """A recipe for hosts. `notion` is the one under which it serves its targets; None for the printed ones, which serve under
    none of those proved here. targets: which, as a certificate says it. `streams`: also defined with a residual stream.
    embed: E [d_in, m] and the largest condition number met (None where nothing is inverted), where E comes from a formula
    of its own. forms: what its queries and keys are of the target's stream, where they are that."""

    name: str
    summary: str
    paper_label: str
    tied: bool
    notion: Notion | None
    least_m: Callable[[Shape], int]
    index_map: Callable[[Shape, int], Universal] | None = None
    defined: Callable[[Shape], None] = everywhere
    default_m: Callable[[Shape], int] | None = None
    streams: bool = False
    targets: str = "all untied"
    embed: Callable[[Shape, int, Target], tuple[Array, float | None]] | None = None
    forms: Callable[[Shape, Target], Forms] | None = None

    def serves_untied(self, shape: Shape) -> bool:
        """Whether untied targets are within reach: not for hosts made for tied ones, nor, with a residual stream from L = 2 on,
        for tied hosts, where the words (0, h) and (h, 0) cannot be told apart."""
        return self.targets != "all tied" and not (self.tied and shape.residual and shape.layers > 1)

    @property
    def is_random(self) -> bool:
        """Drawn from a seed and a law rather than {0,1} by definition."""
        return self.index_map is None
