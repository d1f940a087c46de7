"""Calibration: what a numerical search must find again from random starts, and where it must fail because a proof says so. And
the open problems that it was then set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utfproof.search.log import EXACT_FIND, machine, outcome_of, run_document
from utfproof.search.problem import Problem
from utfproof.search.restarts import APPROXIMATE, CANDIDATE, NOT_FOUND, OUTCOMES, PARTIAL, Run, Setting, search
from utfproof.search.rounding import verify_run
from utfproof.shapes import Shape


@dataclass(frozen=True)
class Case:
    """A problem whose answer is known. expected: "found" (with exact verification), "candidate" or "partial" (numerically;
    better is as good) or "not found" (none of these; approximations are allowed); restarts, quick: start points of the full
    and of the quick calibration, 0 to leave it out."""

    problem: Problem
    expected: str
    restarts: int
    quick: int
    why: str


def _case(H: int, L: int, m: int, expected: str, restarts: int, quick: int, why: str, **options: Any) -> Case:
    d = options.pop("d", 1)
    return Case(Problem(Shape(H, L, d, d), m, **options), expected, restarts, quick, why)


_LOOPED: dict[str, Any] = {"looped_targets": True, "tied_host": True}
CASES: tuple[Case, ...] = (
    _case(2, 2, 2, EXACT_FIND, 16, 4, "two-sided"),
    _case(3, 2, 3, EXACT_FIND, 16, 6, "two-sided"),
    _case(2, 3, 4, CANDIDATE, 8, 0, "path in the middle layer"),
    _case(3, 3, 6, PARTIAL, 3, 0, "path in the middle layer"),
    _case(2, 1, 2, EXACT_FIND, 16, 4, "counting", free="E", **_LOOPED),
    _case(2, 2, 3, EXACT_FIND, 16, 4, "counting", free="E", **_LOOPED),
    _case(2, 2, 3, EXACT_FIND, 16, 4, "counting, mirrored", free="U", **_LOOPED),
    _case(2, 3, 4, EXACT_FIND, 16, 0, "counting", free="E", **_LOOPED),
    _case(2, 3, 4, EXACT_FIND, 16, 0, "counting, mirrored", free="U", **_LOOPED),
    _case(2, 2, 4, CANDIDATE, 8, 0, "two-sided, d_in = 2", d=2),
    _case(2, 3, 3, NOT_FOUND, 16, 0, "three dimensions do not suffice"),
    _case(2, 2, 2, NOT_FOUND, 32, 8, "two dimensions do not suffice", **_LOOPED),
    _case(2, 2, 3, NOT_FOUND, 16, 4, "m >= H^L with U fixed", free="E"),
)
"""docs/search.md says where each answer comes from."""


@dataclass(frozen=True)
class Open:
    """A problem whose answer is not known, with budgets. known: the interval of the least m."""

    problem: Problem
    setting: Setting
    known: str


def _open(H: int, L: int, m: int, known: str, restarts: int, options: dict[str, Any], **setting: Any) -> Open:
    d = setting.pop("d", 1)
    return Open(Problem(Shape(H, L, d, d), m, **options), Setting(restarts, **setting), known)


_TIED_TARGETS: dict[str, Any] = {"looped_targets": True}
OPEN: tuple[Open, ...] = (
    _open(2, 3, 3, "3 to 4", 24, _LOOPED),
    _open(2, 3, 3, "3 to 4", 8, _LOOPED, positive=True),
    _open(2, 4, 3, "3 to 5", 16, _LOOPED),
    _open(2, 4, 4, "3 to 5", 16, _LOOPED),
    _open(2, 4, 4, "3 to 5", 8, _LOOPED, positive=True),
    _open(2, 5, 3, "3 to 6", 8, _LOOPED),
    _open(2, 5, 4, "3 to 6", 8, _LOOPED),
    _open(2, 5, 5, "3 to 6", 8, _LOOPED),
    _open(2, 5, 5, "3 to 6", 4, _LOOPED, positive=True),
    _open(2, 5, 6, "6 to 8", 2, {}),
    _open(2, 3, 6, "5 to 8", 4, {}, d=2),
    _open(2, 3, 5, "5 to 8", 4, {}, d=2),
    _open(2, 1, 3, "3 to 4", 8, {}, d=2),
    _open(2, 1, 4, "4 to 6", 8, {}, d=3),
)
"""Shared attention, E and U free: looped hosts and targets, H = 2; untied ones at (2,5); d_in = 2 at (2,3)."""


def survey(
    *, workers: int = 0, max_memory: int | None = None, progress: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """The open problems: the documents of their runs, with the interval known before and the seconds taken."""
    out = []
    for task in OPEN:
        begun = time.perf_counter()
        run = search(task.problem, task.setting, workers=workers, max_memory=max_memory)
        verification, notes = verify_run(run, workers=workers)
        document = run_document(run, verification, notes)
        out.append({**document, "least m known": task.known, "seconds": time.perf_counter() - begun})
        progress()
    return out


@dataclass(frozen=True)
class Calibrated:
    """A case and what came out of it."""

    case: Case
    run: Run
    outcome: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the outcome is the expected one."""
        order = (EXACT_FIND, *OUTCOMES)
        if self.case.expected == NOT_FOUND:
            return order.index(self.outcome) > order.index(PARTIAL)
        return order.index(self.outcome) <= order.index(self.case.expected)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        best = self.run.best
        return {
            "problem": self.case.problem.document(),
            "why": self.case.why,
            "expected": self.case.expected,
            "outcome": self.outcome,
            "passed": self.passed,
            "restarts": len(self.run.restarts),
            "candidates": self.run.count(CANDIDATE),
            "partial": self.run.count(PARTIAL),
            "approximate only": self.run.count(APPROXIMATE),
            "targets": self.run.targets,
            "seed": self.run.setting.seed,
            "iterations": self.run.setting.iterations,
            "best residual": best.residual,
            "largest weight": best.largest,
            "fresh residuals": None if best.fresh is None else [best.fresh[0], best.fresh[-1]],
            "seconds": self.seconds,
        }


def calibrate(
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int = 0,
    max_memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> list[Calibrated]:
    """Run every case; quick: the small ones, with fewer restarts. progress is called after each case."""
    out = []
    for case in CASES:
        restarts = case.quick if quick else case.restarts
        if not restarts:
            continue
        begun = time.perf_counter()
        run = search(case.problem, Setting(restarts=restarts, seed=seed), workers=workers, max_memory=max_memory)
        verification = verify_run(run, workers=workers)[0] if case.expected == EXACT_FIND else None
        out.append(Calibrated(case, run, outcome_of(run, verification), time.perf_counter() - begun))
        progress()
    return out


def calibration_document(found: list[Calibrated]) -> dict[str, Any]:
    """For JSON."""
    return {
        "search": "calibration",
        "machine": machine(),
        "passed": all(entry.passed for entry in found),
        "seconds": sum(entry.seconds for entry in found),
        "cases": [entry.document() for entry in found],
    }
