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
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import to_numpy
from utfproof.ground.laws import check_seed
from utfproof.ground.notions import Notion
from utfproof.ground.processes import worker_pool
from utfproof.ground.resources import require_memory
from utfproof.search import attention, numerical
from utfproof.search.levenberg import REFERENCE, TORCH, SearchEngine, levenberg_marquardt, put
from utfproof.search.numerical import FRESH, FRESH_START, TARGET, draw
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
class SearchSetting:
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
class SearchRun:
    """All restarts of one problem, and the states of the candidates by number (one restart each)."""

    problem: Problem
    setting: SearchSetting
    targets: int
    restarts: tuple[Restart, ...]
    candidates: dict[int, Any]
    engine: SearchEngine = REFERENCE

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


def model(problem: Problem) -> Any:
    """The module with the notion's targets, start points and equations."""
    return numerical if problem.notion == Notion.SHARED_ATTENTION else attention


def equations(problem: Problem, wanted: Any, *, frozen_host: bool = False) -> Any:
    """The notion's equations for these right-hand sides."""
    if problem.notion == Notion.SHARED_ATTENTION:
        return numerical.Equations(problem, wanted, frozen_host=frozen_host)
    return attention.AttentionEquations(problem, wanted, frozen_host=frozen_host)


def _example(problem: Problem) -> Any:
    return equations(problem, model(problem).draw_targets(problem, 0, TARGET, 1))


def enough_targets(problem: Problem) -> int:
    """Targets whose equations outnumber the host's parameters, up to changes of coordinates, three times: with half as many
    some hosts fit the targets of the search and no others."""
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    found = _example(problem)
    if problem.notion == Notion.SHARED_ATTENTION:
        coordinates = m * m * (1 if problem.tied_host else shape.layers + 1)
    else:
        layers = 1 if problem.tied_host else shape.layers
        coordinates = layers * (m * m + shape.heads * shape.head_dim**2)
    parameters = max(1, found.global_size - coordinates)
    left = max(1, found.rows - found.local_size + d * d)
    return 6 + ceil(3 * parameters / left)


def memory(problem: Problem, targets: int, restarts: int = CHUNK) -> int:
    """Bytes of one batch: the Jacobian with its copies, and the normal equations."""
    found = _example(problem)
    P = found.global_size + found.local_size
    return restarts * 8 * (4 * targets * found.rows * P + 4 * P * P)


def search(
    problem: Problem,
    setting: SearchSetting,
    *,
    workers: int = 0,
    engine: SearchEngine = REFERENCE,
    batch_size: int | None = None,
    max_memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> SearchRun:
    """Run all restarts, in batches; progress is called after each batch.

    workers: processes with one BLAS thread each; 0 runs in this process, with the threads it has. engine: NumPy, or torch on a
    device. batch_size: restarts in one batch, `batches` by default. Restart k depends on the seed, k and the budgets only, but
    for rounding. Raises ResourceLimit before allocating, MalformedInput for positive targets with d_in > 1 and for a float32
    engine, whose rounding lies above what a candidate has to reach.
    """
    if setting.positive and problem.shape.d_in > 1:
        raise MalformedInput("positive targets are made for d_in = 1")
    if engine.dtype != "float64":
        raise MalformedInput(f"a search needs float64: a candidate's residual is at most {EXACT:g}, got {engine.dtype}")
    targets = enough_targets(problem) if setting.targets is None else setting.targets
    size = batches(setting.restarts, engine) if batch_size is None else positive_integer("batch_size", batch_size)
    require_memory(
        max(1, workers) * memory(problem, targets, min(size, setting.restarts)), f"a search at {problem}", max_memory
    )
    jobs = [
        (problem, setting, targets, tuple(range(first, min(first + size, setting.restarts))), engine)
        for first in range(0, setting.restarts, size)
    ]
    found: list[Restart] = []
    candidates: dict[int, Any] = {}
    for restarts, states in _results(jobs, workers):
        found += restarts
        candidates.update(states)
        progress()
    return SearchRun(problem, setting, targets, tuple(found), candidates, engine)


def batches(restarts: int, engine: SearchEngine) -> int:
    """Restarts in one batch: CHUNK, whatever the number of processes, so that a run repeats bit for bit; all of them on a
    device other than the CPU, which would be idle in small batches."""
    return restarts if engine.name == TORCH and engine.device != "cpu" else min(CHUNK, restarts)


Job = tuple[Problem, SearchSetting, int, tuple[int, ...], SearchEngine]


def _results(jobs: list[Job], workers: int) -> Iterator[tuple[list[Restart], dict[int, Any]]]:
    if not workers:
        yield from map(batch, jobs)
        return
    with worker_pool(workers) as pool:
        yield from pool.map(batch, jobs)


def batch(job: Job) -> tuple[list[Restart], dict[int, Any]]:
    """Some restarts side by side, and the states of the candidates among them, as NumPy arrays."""
    problem, setting, targets, numbers, engine = job
    made = model(problem)
    wanted = made.draw_targets(problem, setting.seed, TARGET, targets, positive=setting.positive)
    asked = equations(problem, engine.array(wanted))
    state = made.start(problem, setting.seed, numbers, targets, engine=engine)
    paths: list[list[tuple[float, float, float]]] = [[] for _ in numbers]
    first = np.array([FIRST[number % len(FIRST)] for number in numbers])
    for step in RIDGES:
        ridge = np.minimum(step, first)
        fit = levenberg_marquardt(asked, state, ridge=ridge, iterations=setting.iterations)
        state = fit.state
        for path, mu, residual, largest in zip(paths, ridge, fit.residual, fit.largest, strict=True):
            if not path or path[-1][0] != mu:
                path.append((float(mu), float(residual), float(largest)))
            else:
                path[-1] = (float(mu), float(residual), float(largest))
    worth = np.array([place for place, path in enumerate(paths) if path[-1][1] < POLISH], dtype=np.intp)
    fresh: dict[int, tuple[float, ...]] = {}
    if len(worth):
        fit = levenberg_marquardt(asked, state.pick(worth), ridge=0.0, iterations=setting.iterations)
        for row, residual, largest in zip(worth, fit.residual, fit.largest, strict=True):
            paths[row].append((0.0, float(residual), float(largest)))
        for whole, piece in zip(state.arrays(), fit.state.arrays(), strict=True):
            put(whole, worth, piece)
        tested = np.array([row for row in worth if paths[row][-1][1] < POLISH], dtype=np.intp)
        if len(tested):
            found = fresh_residuals(problem, state.pick(tested), setting, engine=engine)
            fresh = dict(zip((int(row) for row in tested), found, strict=True))
    restarts, candidates = [], {}
    for place, (number, path) in enumerate(zip(numbers, paths, strict=True)):
        outcome = outcome_of(path, fresh.get(place))
        restarts.append(Restart(number, tuple(path), fresh.get(place), outcome))
        if outcome in (CANDIDATE, PARTIAL):
            alone = state.pick(np.array([place]))
            candidates[number] = type(alone)(*(to_numpy(array) for array in alone.arrays()))
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


def fresh_residuals(
    problem: Problem, state: Any, setting: SearchSetting, *, engine: SearchEngine = REFERENCE
) -> list[tuple[float, ...]]:
    """For each restart and each fresh target the least residual of E and U for this host, over some start points; sorted.

    Every restart, target and start point is a problem of its own; all of them are one batch.
    """
    m, d, K, F = problem.m, problem.shape.d_in, setting.fresh_starts, setting.fresh
    made = model(problem)
    wanted = made.draw_targets(problem, setting.seed, FRESH, F, positive=setting.positive)
    least = np.full((len(state.arrays()[-1]), F), np.inf)
    for attempt in range(FRESH_ATTEMPTS):
        hosts, targets = np.nonzero(least > EXACT)
        if not len(hosts):
            break
        E = draw(setting.seed, FRESH_START, 2 * attempt, (K, F, 1, d, m))[:, targets].reshape(-1, 1, d, m)
        U = draw(setting.seed, FRESH_START, 2 * attempt + 1, (K, F, 1, m, d))[:, targets].reshape(-1, 1, m, d)
        alone = made.fresh_start(problem, state, np.tile(hosts, K), engine.array(E), engine.array(U))
        asked = equations(problem, engine.array(wanted[np.tile(targets, K)][:, None]), frozen_host=True)
        for ridge in (1e-2, 1e-4, 1e-7, 0.0):
            fit = levenberg_marquardt(asked, alone, ridge=ridge, iterations=setting.iterations)
            alone = fit.state
        found = fit.residual.reshape(K, -1).min(axis=0)
        least[hosts, targets] = np.minimum(least[hosts, targets], found)
    return [tuple(sorted(float(value) for value in row)) for row in least]
