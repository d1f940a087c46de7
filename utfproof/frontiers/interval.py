"""What is known of the least m for one question, by the bounds' values alone: no certificate is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from utfproof.frontiers.bounds import BOUNDS, LOWER, UPPER, Bound
from utfproof.frontiers.questions import UNTIED, Question, bounded_by, implies
from utfproof.frontiers.streams import RESIDUAL_BOUNDS
from utfproof.shapes import Shape

QUICK = 10**6
"""Bounds whose value takes more work than this to compute are left out, in the measure of a bound's size."""


@dataclass(frozen=True)
class Interval:
    """lower <= least m <= upper, and the bounds that say so. upper is None where no host is known; below is None where nothing
    but m >= 1 is proved."""

    lower: int
    below: Bound | None
    upper: int | None
    above: Bound | None

    @property
    def closed(self) -> bool:
        """Whether the least m is known."""
        return self.lower == self.upper

    def __str__(self) -> str:
        return f"{self.lower} ≤ m" + ("" if self.upper is None else f" ≤ {self.upper}")


@lru_cache(maxsize=4096)
def interval(shape: Shape, question: Question, *, certified: bool = False) -> Interval:
    """The best of every bound that applies. certified: bounds without a certificate do not count."""
    lower: tuple[int, Bound | None] = (1, None)
    upper: tuple[int, Bound] | None = None
    for bound in (*BOUNDS, *RESIDUAL_BOUNDS):
        if bound.residual != shape.residual or not bound.applies(shape) or (certified and bound.certificate is None):
            continue
        if bound.side == LOWER and bounded_by(question, bound.question, shape.layers):
            if bound.name == "span" and (question.targets == UNTIED or bound.size(shape) > QUICK):
                continue  # what tied targets span is no more than what untied ones do, which has a formula
            lower = max(lower, (bound.value(shape), bound), key=lambda side: side[0])
        if bound.side == UPPER and implies(bound.question, question, shape.layers):
            reached = (bound.value(shape), bound)
            upper = reached if upper is None else min(upper, reached, key=lambda side: side[0])
    return Interval(*lower, *((None, None) if upper is None else upper))
