"""What fewer dimensions cost one target: m against the error of outputs, by balanced truncation.

A state of the target that is reached weakly, or read weakly, has a small singular value at its boundary; leaving out the
states below a tolerance gives a host of fewer dimensions, with the E of least squares; for given inputs the target's stream is
projected (`projected`). Two errors are proven
(docs/minimal-hosts.md): a bound for all contexts of one-hot inputs, which soon says nothing, and the error on given inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, SoftmaxAttention
from utfproof.models.realization.besteffort import least_squares, output_bound, relative_residual, rounded_up
from utfproof.models.realization.given import GivenInputs
from utfproof.models.realization.numerical import numerical_host
from utfproof.models.realization.projected import Projections
from utfproof.systems import Target, Universal

STEPS = 41
"""Tolerances that are tried, from 1e-10 to 1."""


@dataclass(frozen=True)
class CurvePoint:
    """A host of m dimensions: the relative residual of E R_all = W_all; a proven bound of the absolute error of any output, and
    whether it says no more than that outputs are bounded; the error on given inputs, proven, over their largest output; what
    was observed. None where nothing was run."""

    m: int
    residual: float
    bound: float
    vacuous: bool
    given: float | None
    observed: float | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def truncated_hosts(target: Target, max_memory: int | None = None) -> dict[int, Universal]:
    """Hosts by their m, from the largest to the smallest: of every m that balanced truncation gives, the first."""
    hosts: dict[int, Universal] = {}
    for tolerance in np.logspace(-10, 0, STEPS):
        found = numerical_host(target, tolerance=float(tolerance), max_memory=max_memory).host
        hosts.setdefault(found.m, found)
    return {m: hosts[m] for m in sorted(hosts, reverse=True)}


def _proven(given: GivenInputs, host: Universal, E: np.ndarray) -> float:
    """The proven error on given inputs over their largest output, rounded upwards."""
    return rounded_up(given.error(host, E) / given.scale)


def error_curve(
    target: Target,
    *,
    most: int = 12,
    kernel: SoftmaxAttention | GivenAttention | None = None,
    groups: Sequence[int] | None = None,
    given: GivenInputs | None = None,
    observe: Callable[[Universal, np.ndarray], float] | None = None,
    max_memory: int | None = None,
) -> list[CurvePoint]:
    """Points of the curve, from the largest m to the smallest, at most `most` of them, spread evenly over those that balanced
    truncation gives. given: inputs on which the error is proven, and to which the host is fitted where that is better (the
    bound is its bound then); observe: (host, E) -> an error that a caller measures. kernel, groups: as for `output_bound`."""
    hosts = truncated_hosts(target, max_memory)
    fitted = None if given is None else given.projections()
    sizes = sorted({*hosts, *(range(1, min(fitted.rank, max(hosts))) if fitted is not None else ())}, reverse=True)
    if len(sizes) > most:
        sizes = [sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most)]
    points = []
    for m in sizes:
        found = _candidates(target, m, hosts, fitted, max_memory)
        proven = [None if given is None else _proven(given, *candidate) for candidate in found]
        best = min(range(len(found)), key=lambda i: proven[i] or 0.0)
        host, E = found[best]
        residual = relative_residual(host, target, E)
        bound = output_bound(host, target, E, kernel=kernel, groups=groups, max_memory=max_memory)
        observed = None if observe is None else observe(host, E)
        points.append(CurvePoint(m, residual, float(bound.error), bound.vacuous, proven[best], observed))
    return points


def _candidates(
    target: Target, m: int, hosts: dict[int, Universal], fitted: Projections | None, max_memory: int | None
) -> list[tuple[Universal, np.ndarray]]:
    """Hosts of m dimensions with their E: truncated with the E of least squares, and fitted to given inputs."""
    found = [(hosts[m], least_squares(hosts[m], target, max_memory)[0])] if m in hosts else []
    return found + ([fitted.host(m)] if fitted is not None and m <= fitted.rank else [])


def least_within(
    target: Target, given: GivenInputs, within: float, max_memory: int | None = None
) -> tuple[Universal, np.ndarray, float] | None:
    """The host of fewest dimensions among those of the curve, its E, and its proven error on the given inputs, at most
    `within` of their largest output; None where none is so close. Smaller hosts that do as well are not excluded."""
    hosts, fitted = truncated_hosts(target, max_memory), given.projections()
    for m in sorted({*hosts, *range(1, fitted.rank + 1)}):
        for host, E in _candidates(target, m, hosts, fitted, max_memory):
            error = _proven(given, host, E)
            if error <= within:
                return host, E, error
    return None
