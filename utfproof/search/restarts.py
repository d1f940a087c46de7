"""A numerical search: random starts, the ridge lowered in steps, fresh targets, and a cautious word for what came out.

| outcome | when |
|---|---|
| candidate | residual zero to rounding, also on fresh targets, and the weights stay where they are as the ridge goes to 0 |
| partial | the same, but some fresh targets are missed: an open set of targets, say, in place of almost all |
| approximate only | the residual falls with the ridge, but slowly and while weights grow: a limit of hosts, not a host |
| overfitted | the residual vanishes on the search's targets, and not on fresh ones |
| not found | the residual stays |

No outcome is a result: a candidate waits for exact verification (rounding.py), and "not found" is no impossibility.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import ceil
from multiprocessing import get_context
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.generator import check_seed
from utfproof.processes import threads_capped
from utfproof.resources import require_memory
from utfproof.search.numerical import (
    FRESH,
    FRESH_START,
    TARGET,
    Equations,
    State,
    draw,
    draw_targets,
    levenberg_marquardt,
    start,
)
from utfproof.search.problem import Problem
from utfproof.shapes import positive_integer

RIDGES = (2e-1, 1e-1, 5e-2, 2e-2, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
"""The steps of the ridge; a last one without ridge follows where the residual says that it is worth it."""
FIRST = (2e-1, 1e-1, 5e-2)
"""Restart k starts at ridge FIRST[k mod 3]: a large one finds more, but may crush all weights to zero."""
POLISH = 1e-5
"""Residual at the last ridge below which the ridge is dropped."""
EXACT = 1e-9
"""Residual, on the search's targets and the median of fresh ones, that a candidate has to reach."""
GROWTH = 1.5
"""Factor by which a candidate's largest weight may grow while the ridge falls from 1e-4 to 0."""
STRANGE = 1e-3
"""Residual of the median fresh target beyond which a host that fits the search's targets has only learnt these."""
FALL = 0.25
"""Factor by which the residual falls from ridge 1e-4 to 1e-8 where an approximation gets better and better."""
FRESH_ATTEMPTS = 8
"""Times that start points are drawn for fresh targets that are not solved yet."""
CHUNK = 8
"""Restarts in one batch, whatever the number of processes, so that a run repeats bit for bit."""
CANDIDATE, PARTIAL, APPROXIMATE, OVERFITTED, NOT_FOUND = (
    "candidate",
    "partial",
    "approximate only",
    "overfitted",
    "not found",
)
OUTCOMES = (CANDIDATE, PARTIAL, APPROXIMATE, OVERFITTED, NOT_FOUND)
"""Best first."""


@dataclass(frozen=True)
class Setting:
    """Budgets of a run. restarts start points; iterations at most at each ridge; targets in the search (None: enough to
    determine the host); fresh targets and start points for each; positive: targets with positive weights only (d_in = 1)."""

    restarts: int = 20
    iterations: int = 200
    seed: int = 0
    targets: int | None = None
    fresh: int = 12
    fresh_starts: int = 6
    positive: bool = False

    def __post_init__(self) -> None:
        for name in ("restarts", "iterations", "fresh", "fresh_starts"):
            positive_integer(name, getattr(self, name))
        check_seed(self.seed)
        if self.targets is not None:
            positive_integer("targets", self.targets)


@dataclass(frozen=True)
class Restart:
    """One start point: number; (ridge, residual, largest weight) after each step; fresh: residuals on fresh targets, sorted,
    None where the search's own residual already decides; outcome."""

    number: int
    path: tuple[tuple[float, float, float], ...]
    fresh: tuple[float, ...] | None
    outcome: str

    @property
    def residual(self) -> float:
        """After the last step."""
        return self.path[-1][1]

    @property
    def largest(self) -> float:
        """Largest weight after the last step."""
        return self.path[-1][2]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "path": [list(step) for step in self.path], "fresh": self.fresh and list(self.fresh)}


@dataclass(frozen=True)
class Run:
    """All restarts of one problem, and the states of the candidates by number (one restart each)."""

    problem: Problem
    setting: Setting
    targets: int
    restarts: tuple[Restart, ...]
    candidates: dict[int, State]

    @property
    def outcome(self) -> str:
        """The best of the restarts' outcomes."""
        outcomes = {restart.outcome for restart in self.restarts}
        return next(name for name in OUTCOMES if name in outcomes)

    def count(self, outcome: str) -> int:
        """Restarts with this outcome."""
        return sum(restart.outcome == outcome for restart in self.restarts)

    @property
    def best(self) -> Restart:
        """The restart with the least residual."""
        return min(self.restarts, key=lambda restart: (OUTCOMES.index(restart.outcome), restart.residual))


def enough_targets(problem: Problem) -> int:
    """Targets whose equations outnumber the host's parameters, up to changes of coordinates, three times: with half as many
    some hosts fit the targets of the search and no others."""
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    equations = Equations(problem, np.zeros((1, shape.leaves, d, d)))
    coordinates = m * m * (1 if problem.tied_host else shape.layers + 1)
    parameters = max(1, equations.global_size - coordinates)
    left = max(1, min(equations.rows, d * d * shape.leaves) - equations.local_size + d * d)
    return 6 + ceil(3 * parameters / left)


def memory(problem: Problem, targets: int) -> int:
    """Bytes of one batch: the Jacobian with its copies, and the normal equations."""
    equations = Equations(problem, np.zeros((1, problem.shape.leaves, problem.shape.d_in, problem.shape.d_in)))
    P = equations.global_size + equations.local_size
    return CHUNK * 8 * (4 * targets * equations.rows * P + 4 * P * P)


def search(
    problem: Problem,
    setting: Setting,
    *,
    workers: int = 0,
    max_memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Run:
    """Run all restarts, in batches of CHUNK; progress is called after each batch.

    workers: processes with one BLAS thread each; 0 runs in this process, with the threads it has. Restart k depends on the
    seed, k and the budgets only. Raises ResourceLimit before allocating, MalformedInput for positive targets with d_in > 1.
    """
    if setting.positive and problem.shape.d_in > 1:
        raise MalformedInput("positive targets are made for d_in = 1")
    targets = enough_targets(problem) if setting.targets is None else setting.targets
    require_memory(max(1, workers) * memory(problem, targets), f"a search at {problem}", max_memory)
    jobs = [
        (problem, setting, targets, tuple(range(first, min(first + CHUNK, setting.restarts))))
        for first in range(0, setting.restarts, CHUNK)
    ]
    found: list[Restart] = []
    candidates: dict[int, State] = {}
    for restarts, states in _results(jobs, workers):
        found += restarts
        candidates.update(states)
        progress()
    return Run(problem, setting, targets, tuple(found), candidates)


Job = tuple[Problem, Setting, int, tuple[int, ...]]


def _results(jobs: list[Job], workers: int) -> Iterator[tuple[list[Restart], dict[int, State]]]:
    if not workers:
        yield from map(batch, jobs)
        return
    with threads_capped(1), ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(batch, jobs)


def batch(job: Job) -> tuple[list[Restart], dict[int, State]]:
    """Some restarts side by side, and the states of the candidates among them."""
    problem, setting, targets, numbers = job
    wanted = draw_targets(problem, setting.seed, TARGET, targets, positive=setting.positive)
    equations = Equations(problem, wanted)
    state = start(problem, setting.seed, numbers, targets)
    paths: list[list[tuple[float, float, float]]] = [[] for _ in numbers]
    first = np.array([FIRST[number % len(FIRST)] for number in numbers])
    for step in RIDGES:
        ridge = np.minimum(step, first)
        fit = levenberg_marquardt(equations, state, ridge=ridge, iterations=setting.iterations)
        state = fit.state
        for path, mu, residual, largest in zip(paths, ridge, fit.residual, fit.largest, strict=True):
            if not path or path[-1][0] != mu:
                path.append((float(mu), float(residual), float(largest)))
            else:
                path[-1] = (float(mu), float(residual), float(largest))
    worth = np.flatnonzero([path[-1][1] < POLISH for path in paths])
    if len(worth):
        fit = levenberg_marquardt(equations, state.pick(worth), ridge=0.0, iterations=setting.iterations)
        for place, residual, largest, *arrays in zip(
            worth, fit.residual, fit.largest, fit.state.R, fit.state.E, fit.state.U, strict=True
        ):
            paths[place].append((0.0, float(residual), float(largest)))
            for whole, piece in zip((state.R, state.E, state.U), arrays, strict=True):
                whole[place] = piece
    restarts, candidates = [], {}
    for place, (number, path) in enumerate(zip(numbers, paths, strict=True)):
        alone = state.pick(np.array([place]))
        fresh = fresh_residuals(problem, alone, setting) if path[-1][1] < POLISH else None
        outcome = outcome_of(path, fresh)
        restarts.append(Restart(number, tuple(path), fresh, outcome))
        if outcome in (CANDIDATE, PARTIAL):
            candidates[number] = alone
    return restarts, candidates


def outcome_of(path: list[tuple[float, float, float]], fresh: tuple[float, ...] | None) -> str:
    """The outcome of a restart from its residuals and largest weights along the ridges, and its fresh residuals."""
    steps = {ridge: (residual, largest) for ridge, residual, largest in path}
    residual, largest = path[-1][1:]
    before = steps[1e-4]
    settled = residual <= EXACT and largest <= GROWTH * before[1]
    if settled and fresh is not None and fresh[len(fresh) // 2] <= EXACT:
        return CANDIDATE if fresh[-1] <= POLISH else PARTIAL
    if fresh is not None and fresh[len(fresh) // 2] > STRANGE:
        return OVERFITTED
    if residual < FALL * before[0]:
        return APPROXIMATE
    return NOT_FOUND


def fresh_residuals(problem: Problem, state: State, setting: Setting) -> tuple[float, ...]:
    """For each fresh target the least residual of E and U for this host (one restart), over some start points; sorted."""
    m, d, K = problem.m, problem.shape.d_in, setting.fresh_starts
    wanted = draw_targets(problem, setting.seed, FRESH, setting.fresh, positive=setting.positive)
    least = np.full(setting.fresh, np.inf)
    for attempt in range(FRESH_ATTEMPTS):
        left = np.flatnonzero(least > EXACT)
        if not len(left):
            break
        size = K * len(left)  # every target with every start is a problem of its own
        alone = State(
            np.repeat(state.R, size, axis=0),
            draw(setting.seed, FRESH_START, 2 * attempt, (size, 1, d, m))
            if "E" in problem.free
            else np.repeat(state.E, size, axis=0),
            draw(setting.seed, FRESH_START, 2 * attempt + 1, (size, 1, m, d))
            if "U" in problem.free
            else np.repeat(state.U, size, axis=0),
        )
        equations = Equations(problem, np.tile(wanted[left], (K, 1, 1, 1))[:, None], frozen_host=True)
        for ridge in (1e-2, 1e-4, 1e-7, 0.0):
            fit = levenberg_marquardt(equations, alone, ridge=ridge, iterations=setting.iterations)
            alone = fit.state
        least[left] = np.minimum(least[left], fit.residual.reshape(K, -1).min(axis=0))
    return tuple(sorted(float(value) for value in least))
