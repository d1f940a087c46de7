"""How far outputs are from a model's own, sequence by sequence, and on which inputs that was seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.util.arrays import one_line

AGREEMENT = 1e-8
"""Largest relative difference of outputs under which two models are called the same."""
ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Of a size: what the numbers that are compared may lose by being written down."""
SMALL_ROW = 1e-3
"""Rows whose outputs are smaller than this part of the sequence's median row are measured as if they were so large."""


@one_line
@dataclass(frozen=True)
class Agreement:
    """How far outputs are from the model's: the largest |Z - Y| over how far that output moves, or over the size of the row's
    outputs; NaN where an output of the host is beyond float64, so that nothing is known. first: where the first output is
    that is further off than AGREEMENT, for people."""

    relative_difference: float
    sequence: int
    sequences: int
    positions: int
    first: str | None = None

    def within(self, tolerance: float) -> bool:
        """Whether it is at most the tolerance (a NaN is not)."""
        return self.relative_difference <= tolerance

    def decided(self, tolerance: float) -> bool | None:
        """The same, None where nothing is known."""
        return None if np.isnan(self.relative_difference) else self.within(tolerance)


class Comparison:
    """Compares outputs sequence by sequence; running maxima are all that is kept. constant [d_out]: what no row moves.

    An output is measured by half of how far it moves over all rows, no less than the median output does: a large constant, such
    as -1e9 on tokens that are never to be said, hides nothing. Each row is also measured by its own outputs, so that one huge
    row hides no difference in another. No measure is less than what the last digits of float64 show.
    """

    def __init__(self, constant: np.ndarray) -> None:
        self.constant = constant
        self.count = self.rows = self.sequence = 0
        self.high, self.low = np.full(len(constant), -np.inf), np.full(len(constant), np.inf)
        self.off = np.zeros(len(constant))
        self.by_row = 0.0
        self.undecided = False
        self.first: str | None = None

    def add(self, tokens: np.ndarray, found: np.ndarray, expected: np.ndarray) -> None:
        """Outputs [n, d_out] for tokens [n]. MalformedInput where the model's own are not finite."""
        if not np.isfinite(expected).all():
            raise MalformedInput("outputs are not finite: weights are too large for float64, nothing can be compared")
        self.count, self.rows = self.count + 1, self.rows + len(expected)
        self.high = np.maximum(self.high, expected.max(axis=0))
        self.low = np.minimum(self.low, expected.min(axis=0))
        if not np.isfinite(found).all():
            self.undecided, self.sequence = True, self.count - 1
            return
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.abs(found - expected)
            rows = np.abs(expected - self.constant).max(axis=1)
            rows = np.maximum(rows, SMALL_ROW * np.median(rows))[:, None]
            sizes = np.maximum(rows, ROUNDING / AGREEMENT * np.abs(expected))
            by_row = apart / np.where(sizes > 0, sizes, np.inf)
        self.off = np.maximum(self.off, apart.max(axis=0))
        if by_row.max() > self.by_row:
            self.by_row, self.sequence = float(by_row.max()), self.count - 1
        if self.first is None:
            worst = np.maximum(by_row, apart / self._scales()) > AGREEMENT
            if worst.any():
                row, column = (int(i) for i in np.argwhere(worst)[0])
                shown = ", ".join(map(str, tokens[:12])) + (", ..." if len(tokens) > 12 else "")
                values = f"the reading gives {found[row, column]:.9g}, the module {expected[row, column]:.9g}"
                self.first = f"{len(tokens)} tokens [{shown}], position {row}, output {column}: {values}"

    def _scales(self) -> np.ndarray:
        """[d_out]: half of how far each output moves, no less than the median one does; those that do not move by their
        size."""
        size = np.maximum(np.abs(self.high), np.abs(self.low))
        moves = self.high / 2 - self.low / 2  # halved first: the difference may overflow
        moves = np.maximum(moves, np.median(moves))
        shown = np.where(moves > ROUNDING * size, moves, size.max(initial=0.0) or 1.0)
        return np.asarray(np.maximum(shown, ROUNDING / AGREEMENT * size))

    def result(self) -> Agreement:
        """All sequences together. MalformedInput where nothing was compared."""
        if not self.count:
            raise MalformedInput("at least one sequence is needed to compare")
        with np.errstate(over="ignore"):
            worst = max(self.by_row, float((self.off / self._scales()).max()))
        relative = float("nan") if self.undecided else worst
        return Agreement(relative, self.sequence, self.count, self.rows, self.first)


@dataclass(frozen=True, eq=False)
class Coverage:
    """sequences: how many; lengths: theirs, sorted; tokens [V]: whether each one stands in some sequence; batch: most sequences
    that were asked at once."""

    sequences: int
    lengths: tuple[int, ...]
    tokens: np.ndarray
    batch: int

    def words(self) -> str:
        """For people."""
        all_of_them, seen = len(self.tokens), int(self.tokens.sum())
        tokens = f"all {seen} token ids" if seen == all_of_them else f"{seen} of the {all_of_them} token ids"
        count = f"{self.sequences} sequence{'s' * (self.sequences != 1)}"
        first, last = self.lengths[0], self.lengths[-1]
        all_between = len(self.lengths) == last - first + 1
        lengths = f"lengths {first} to {last}" if all_between else f"{len(self.lengths)} lengths from {first} to {last}"
        return f"{count} of {lengths}, with {tokens}, in batches of at most {self.batch}"
