"""The lower bounds by dimension arguments, as the checker has them (docs/certificate-format.md section 10.1), with the least m
that each allows. Written proofs stand behind them; the checker compares the two sides."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from utfproof.certificates import checker
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, require_words

ALL_UNTIED, ALL_TIED = checker.TARGETS[:2]
GENERIC_UNTIED, GENERIC_TIED = checker.GENERIC
"""Generic: all but a set of measure zero. What is refuted for these serves almost none of the class."""


@dataclass(frozen=True)
class DimensionRow:
    """One bound: no host of dimension m serves these targets if a < b for (a, b) = sides(shape, m).

    every: "tied host" where the bound is proved for tied hosts only. page: its proof in docs/proofs. residual: speaks of
    shapes with a residual stream, and of no others.
    """

    line: checker.Inequality
    name: str
    notion: Notion
    targets: str
    free: str | None
    every: str
    page: str
    residual: bool

    @classmethod
    def of(cls, line: checker.Inequality) -> DimensionRow:
        """A line of the checker's table."""
        notion, targets, free = line.asked
        page = line.page.rpartition("by docs/proofs/")[2].split(",")[0]
        return cls(line, line.name, Notion(notion), targets, free or None, line.every, page, line.residual)

    def applies(self, shape: Shape) -> bool:
        """Whether it speaks of a shape."""
        return self.line.fits(at(shape))

    def sides(self, shape: Shape, m: int) -> tuple[int, int]:
        """The two numbers that are compared."""
        return self.line.sides(at(shape, m))

    def least(self, shape: Shape) -> int:
        """The least m that the row allows at a shape to which it applies."""
        require_words(shape)
        high = 1
        while self._refuted(shape, high):
            high *= 2
        low = high // 2  # refuted, or 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._refuted(shape, middle) else (low, middle)
        return high

    def _refuted(self, shape: Shape, m: int) -> bool:
        have, needed = self.sides(shape, m)
        return have < needed


def at(shape: Shape, m: int = 1) -> checker.Shape:
    """The checker's shape."""
    sizes = (shape.heads, shape.layers, shape.head_dim, shape.d_in, shape.d_out, m)
    return checker.Shape(*sizes, residual=shape.residual)


def least_square_root(count: int) -> int:
    """The least m with m^2 >= count >= 1."""
    return isqrt(count - 1) + 1


def logit_form_dimension(shape: Shape) -> int:
    """Dimension of the logit forms of all layers and heads over fixed generic values (attention-matching-bound.md)."""
    return checker.logit_forms(at(shape))


def word_family_dimension(shape: Shape) -> int:
    """Dimension of the family (M_w)_w, |w| = L, at head dimension >= d_in: d_in^2 (LH - L + 1)."""
    return checker.family(at(shape))


EVERY_M = "equal columns, whatever m"
"""The inequality that no m meets."""
DIMENSION_ROWS = tuple(DimensionRow.of(line) for line in checker.INEQUALITIES if line.name != EVERY_M)
"""Every other one."""


def no_tied_host(shape: Shape, targets: str) -> bool:
    """Whether no tied host of any dimension matches all, or almost all, untied targets: with a residual stream from L = 2 on,
    where it has equal columns for the words (0, ..., 0, h) and (h, 0, ..., 0) and the targets have not."""
    lines = (line for line in checker.INEQUALITIES if line.name == EVERY_M)
    return any(line.asked[1] == targets and line.fits(at(shape)) for line in lines)
