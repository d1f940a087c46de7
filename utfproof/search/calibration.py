"""Calibration: what a numerical search must find again from random starts, and where it must fail because a proof says so. And
the open problems that it was then set.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utfproof.frontier.questions import ALMOST_ALL, ANY, TIED, UNTIED, Question
from utfproof.frontier.table import frontier
from utfproof.ground.notions import Notion
from utfproof.search.levenberg import REFERENCE, SearchEngine
from utfproof.search.log import EXACT_FIND, machine, outcome_of, read_problem, run_document
from utfproof.search.problem import Problem
from utfproof.search.restarts import (
    APPROXIMATE,
    CANDIDATE,
    NOT_FOUND,
    OUTCOMES,
    PARTIAL,
    SearchRun,
    SearchSetting,
    search,
)
from utfproof.search.rounding import verify_run
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape


@dataclass(frozen=True)
class CalibrationCase:
    """A problem whose answer is known. expected: "found" (with exact verification), "candidate" or "partial" (numerically;
    better is as good) or "not found" (none of these; approximations are allowed); restarts, quick: start points of the full
    and of the quick calibration, 0 to leave it out; iterations at each ridge."""

    problem: Problem
    expected: str
    restarts: int
    quick: int
    why: str
    iterations: int = 200


def _problem(H: int, L: int, m: int, d_in: int = 1, d: int | None = None, **options: Any) -> Problem:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)  # what larger heads can do is what is asked
        shape = Shape(H, L, d_in if d is None else d, d_in)
    return Problem(shape, m, **options)


def _case(
    H: int, L: int, m: int, expected: str, restarts: int, quick: int, why: str, **options: Any
) -> CalibrationCase:
    iterations = options.pop("iterations", 200)
    return CalibrationCase(_problem(H, L, m, **options), expected, restarts, quick, why, iterations)


_TIED: dict[str, Any] = {"tied_targets": True, "tied_host": True}
_ATTENTION: dict[str, Any] = {"free": "E", "notion": Notion.ATTENTION_MATCHING}
_LEAST = "the least m is d_in (S + H^L)"
CASES: tuple[CalibrationCase, ...] = (
    _case(2, 2, 2, EXACT_FIND, 16, 4, "two-sided"),
    _case(3, 2, 3, EXACT_FIND, 16, 6, "two-sided"),
    _case(2, 3, 4, CANDIDATE, 8, 0, "path in the middle layer"),
    _case(3, 3, 6, PARTIAL, 3, 0, "path in the middle layer"),
    _case(2, 1, 2, EXACT_FIND, 16, 4, "counting", free="E", **_TIED),
    _case(2, 2, 3, EXACT_FIND, 16, 4, "counting", free="E", **_TIED),
    _case(2, 2, 3, EXACT_FIND, 16, 4, "counting, mirrored", free="U", **_TIED),
    _case(2, 3, 4, EXACT_FIND, 16, 0, "counting", free="E", **_TIED),
    _case(2, 3, 4, EXACT_FIND, 16, 0, "counting, mirrored", free="U", **_TIED),
    _case(2, 2, 4, CANDIDATE, 8, 0, "two-sided, d_in = 2", d_in=2),
    _case(2, 3, 3, NOT_FOUND, 16, 0, "three dimensions do not suffice"),
    _case(2, 2, 2, NOT_FOUND, 32, 8, "two dimensions do not suffice", **_TIED),
    _case(2, 2, 3, NOT_FOUND, 16, 4, "m >= H^L with U fixed", free="E"),
    _case(2, 1, 4, CANDIDATE, 8, 4, "shared-query", iterations=60, **_ATTENTION),
    _case(2, 1, 3, NOT_FOUND, 8, 4, _LEAST, iterations=60, **_ATTENTION),
    _case(1, 2, 3, CANDIDATE, 8, 0, "shared-query", iterations=60, **_ATTENTION),
    _case(1, 2, 2, NOT_FOUND, 8, 4, _LEAST, iterations=60, **_ATTENTION),
    # 60 iterations and 4 restarts miss m = 6: convergence is slow there
    _case(1, 2, 6, PARTIAL, 16, 0, "shared-query", d_in=2, **_ATTENTION),
    _case(1, 2, 5, NOT_FOUND, 16, 0, _LEAST, d_in=2, **_ATTENTION),
    _case(2, 2, 10, CANDIDATE, 3, 0, "shared-query", iterations=60, **_ATTENTION),
    _case(2, 2, 10, CANDIDATE, 3, 0, "shared-query, larger heads", d=2, iterations=60, **_ATTENTION),
    _case(2, 2, 9, NOT_FOUND, 8, 0, _LEAST, iterations=60, **_ATTENTION),
    _case(2, 2, 9, NOT_FOUND, 4, 0, _LEAST, iterations=60, tied_host=True, **_ATTENTION),
)
"""docs/search.md says where each answer comes from."""


@dataclass(frozen=True)
class Open:
    """A problem whose answer is not known, with budgets."""

    problem: Problem
    setting: SearchSetting


def known(problem: Problem) -> str:
    """The interval of the least m for almost all targets of the class, as the frontier's certificates have it."""
    shared = problem.notion == Notion.SHARED_ATTENTION
    question = Question(
        problem.notion,
        {"U": "E"}.get(problem.free, problem.free) if shared else None,  # U free: transposed, the layers in reverse
        TIED if problem.tied_targets else UNTIED,
        ALMOST_ALL,
        TIED if problem.tied_host else ANY,
    )
    entry = frontier([problem.shape], notions=[problem.notion]).at(problem.shape, question)
    if entry.exact:
        return str(entry.proved.value)
    return f"{entry.proved.value} to {entry.reached.value}" if entry.reached else f"{entry.proved.value} or more"


def _open(H: int, L: int, m: int, restarts: int, options: dict[str, Any], **setting: Any) -> Open:
    given = {name: setting.pop(name) for name in ("d_in", "d") if name in setting}
    return Open(_problem(H, L, m, **given, **options), SearchSetting(restarts, **setting))


OPEN: tuple[Open, ...] = (
    _open(2, 3, 3, 24, _TIED),
    _open(2, 3, 3, 8, _TIED, positive=True),
    _open(2, 4, 3, 16, _TIED),
    _open(2, 4, 4, 16, _TIED),
    _open(2, 4, 4, 8, _TIED, positive=True),
    _open(2, 5, 3, 8, _TIED),
    _open(2, 5, 4, 8, _TIED),
    _open(2, 5, 5, 8, _TIED),
    _open(2, 5, 5, 4, _TIED, positive=True),
    _open(2, 5, 6, 2, {}),
    _open(2, 3, 6, 4, {}, d_in=2),
    _open(2, 3, 5, 4, {}, d_in=2),
    _open(2, 1, 3, 8, {}, d_in=2),
    _open(2, 1, 4, 8, {}, d_in=3),
    _open(2, 2, 9, 8, _ATTENTION, d=2, iterations=60),
    _open(2, 2, 8, 4, _ATTENTION, d=2, iterations=60),
    _open(2, 2, 9, 2, _ATTENTION, d=3, iterations=60),
    _open(2, 2, 9, 4, {"tied_host": True, **_ATTENTION}, d=2, iterations=60),
)
"""Shared attention, E and U free: tied hosts and targets, H = 2; untied ones at (2,5); d_in = 2 at (2,3).
Attention-matching below d_in (S + H^L), the head dimension above d_in: the proof that nothing is there stops at d_in."""


def survey(
    *,
    workers: int = 0,
    engine: SearchEngine = REFERENCE,
    max_memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """The open problems: the documents of their runs, with the seconds taken."""
    out = []
    for task in OPEN:
        begun = time.perf_counter()
        run = search(task.problem, task.setting, workers=workers, engine=engine, max_memory=max_memory)
        verification, notes = verify_run(run, workers=workers)
        document = run_document(run, verification, notes)
        out.append({**document, "seconds": time.perf_counter() - begun})
        progress()
    return out


@dataclass(frozen=True)
class Calibrated:
    """A case and what came out of it."""

    case: CalibrationCase
    run: SearchRun
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
    engine: SearchEngine = REFERENCE,
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
        setting = SearchSetting(restarts, case.iterations, seed)
        run = search(case.problem, setting, workers=workers, engine=engine, max_memory=max_memory)
        verification = verify_run(run, workers=workers)[0] if case.expected == EXACT_FIND else None
        out.append(Calibrated(case, run, outcome_of(run, verification), time.perf_counter() - begun))
        progress()
    return out


def problem_of(document: dict[str, Any]) -> Problem:
    """The problem of a run's document; a head dimension above d_in is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return read_problem(document)


def calibration_document(found: list[Calibrated]) -> dict[str, Any]:
    """For JSON."""
    return {
        "search": "calibration",
        "machine": machine(),
        "passed": all(entry.passed for entry in found),
        "seconds": sum(entry.seconds for entry in found),
        "cases": [entry.document() for entry in found],
    }
