"""What fewer dimensions cost one target: m against the error of outputs, by balanced truncation.

A state of the target that is reached weakly, or read weakly, has a small singular value at its boundary; leaving out the
states below a tolerance gives a host of fewer dimensions. Its E is that of least squares, and the bound of its output error
is rigorous (docs/minimal-hosts.md): it holds for all contexts of one-hot inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, SoftmaxAttention
from utfproof.models.realization.besteffort import best_effort
from utfproof.models.realization.numerical import numerical_host
from utfproof.systems import Target, Universal

STEPS = 41
"""Tolerances that are tried, from 1e-10 to 1."""


@dataclass(frozen=True)
class CurvePoint:
    """A host of m dimensions: the relative residual of E R_all = W_all; a proven bound of the absolute error of any output, and
    whether it says no more than that outputs are bounded; what was observed, None where nothing was run."""

    m: int
    residual: float
    bound: float
    vacuous: bool
    observed: float | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def error_curve(
    target: Target,
    *,
    most: int = 12,
    kernel: SoftmaxAttention | GivenAttention | None = None,
    groups: Sequence[int] | None = None,
    observe: Callable[[Universal, np.ndarray], float] | None = None,
    max_memory: int | None = None,
) -> list[CurvePoint]:
    """Points of the curve, from the largest m to the smallest, at most `most` of them, spread evenly over those that balanced
    truncation gives. observe: (host, E) -> an error that a caller measures. kernel and groups as for `output_bound`."""
    hosts: dict[int, Universal] = {}
    for tolerance in np.logspace(-10, 0, STEPS):
        found = numerical_host(target, tolerance=float(tolerance), max_memory=max_memory).host
        hosts.setdefault(found.m, found)
    sizes = sorted(hosts, reverse=True)
    if len(sizes) > most:
        sizes = [sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most)]
    points = []
    for m in sizes:
        effort = best_effort(hosts[m], target, kernel=kernel, groups=groups, max_memory=max_memory)
        observed = None if observe is None else observe(hosts[m], effort.E)
        points.append(CurvePoint(m, effort.residual, float(effort.bound.error), effort.bound.vacuous, observed))
    return points
