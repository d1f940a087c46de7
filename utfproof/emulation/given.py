"""Does an embedding that was not solved for here satisfy the equations? Entry by entry, to the rounding of its own making."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.emulation.bound import ESTIMATE, OUTPUT, Reading
from utfproof.emulation.predict import Prediction

_SOLVER = 4.0  # a least-squares solution with one refinement step, against one product with R_all


@dataclass(frozen=True)
class Gap:
    """The entry of E R_all - W_all that exceeds what rounding explains the most: its size, what rounding explains there, its
    row, and which reading it belongs to (the host's queries or keys of a layer and head, or the output)."""

    size: float
    allowed: float
    row: int
    reading: Reading

    @property
    def known(self) -> bool:
        """Whether float64 holds both numbers."""
        return bool(np.isfinite(self.size) and np.isfinite(self.allowed))

    @property
    def explained(self) -> bool:
        """Whether rounding explains it."""
        return self.size <= self.allowed

    def __str__(self) -> str:
        kind, layer, head = self.reading
        what = (
            "the output"
            if self.reading == OUTPUT
            else f"the {('queries', 'keys')[kind]} of layer {layer + 1}, head {head}"
        )
        return f"row {self.row} of E R_all - W_all is off by {self.size:.3g} in {what}; rounding explains {self.allowed:.3g}"


def equation_gap(prediction: Prediction) -> Gap:
    """The worst entry of E R_all - W_all in float64, one that is not known before all others (for attention-matching hosts: of
    the equations of their own formulas)."""
    goal, held = prediction.goal_rounding(ESTIMATE), prediction.evaluation(ESTIMATE)
    worst = Gap(0.0, 0.0, 0, OUTPUT)
    for key, block in prediction.difference.items():
        sizes = np.abs(block).max(axis=(1, 2))
        evaluated = held[key].max(axis=1) if held[key].ndim else held[key]
        allowed = np.broadcast_to(goal[key] + _SOLVER * evaluated, sizes.shape)
        excess = sizes - allowed
        row = int(np.argmax(np.where(np.isfinite(excess), excess, np.inf)))
        found = Gap(float(sizes[row]), float(allowed[row]), row, key)
        if not found.known:
            return found
        if worst.size == 0 or not found.size - found.allowed <= worst.size - worst.allowed:
            worst = found
    return worst
