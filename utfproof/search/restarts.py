"""A numerical search: random starts, the ridge lowered in steps, fresh targets, and a cautious word for what came out.

| outcome | when |
|---|---|
| candidate | residual zero to rounding, also on fresh targets, and the weights stay where they are as the ridge goes to 0 |
| approximate only | the residual falls with the ridge, but slowly and while weights grow: a limit of hosts, not a host |
| overfitted | the residual vanishes on the search's targets, and not on fresh ones |
| not found | the residual stays |

No outcome is a result: a candidate waits for exact verification (rounding.py), and "not found" is no impossibility.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from utfproof.search.levenberg import levenberg_marquardt
from utfproof.search.numerical import FRESH, FRESH_START, TARGET, Equations, State, draw, draw_targets, start
from utfproof.search.problem import Problem
from utfproof.shapes import positive_integer
from utfproof.util.laws import check_seed
from utfproof.util.resources import require_memory

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
FALL = 0.25
"""Factor by which the residual falls from ridge 1e-4 to 1e-8 where an approximation gets better and better."""
FRESH_STARTS, FRESH_ATTEMPTS = 6, 8
"""Start points for each fresh target, and times that they are drawn for those that are not solved yet."""
CHUNK = 8
"""Restarts in one batch."""
CANDIDATE, APPROXIMATE, OVERFITTED, NOT_FOUND = OUTCOMES = ("candidate", "approximate only", "overfitted", "not found")
"""Best first."""


@dataclass(frozen=True)
class SearchSetting:
    """Budgets of a run. restarts: start points; iterations: at most at each ridge; fresh: targets that a candidate must
    serve."""

    restarts: int = 20
    iterations: int = 200
    seed: int = 0
    fresh: int = 12

    def __post_init__(self) -> None:
        for name in ("restarts", "iterations", "fresh"):
            positive_integer(name, getattr(self, name))
        check_seed(self.seed)


@dataclass(frozen=True)
class Restart:
    """One start point: number; (ridge, residual, largest weight) after each step; fresh: residuals on fresh targets, sorted,
    None where the search's own residual already decides; outcome."""

    number: int
    path: tuple[tuple[float, float, float], ...]
    fresh: tuple[float, ...] | None
    outcome: str


@dataclass(frozen=True)
class SearchRun:
    """All restarts of one problem, and the states of the candidates by number (one restart each)."""

    problem: Problem
    setting: SearchSetting
    targets: int
    restarts: tuple[Restart, ...]
    candidates: dict[int, State]

    @property
    def best(self) -> Restart:
        """The restart with the best outcome, of these the one with the least residual."""
        return min(self.restarts, key=lambda restart: (OUTCOMES.index(restart.outcome), restart.path[-1][1]))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        outcomes = [restart.outcome for restart in self.restarts]
        candidate = self.candidates.get(self.best.number)
        return {
            "problem": self.problem.document(),
            "setting": {**asdict(self.setting), "targets": self.targets, "ridges": list(RIDGES)},
            "counts": {name: outcomes.count(name) for name in OUTCOMES},
            "restarts": [asdict(restart) for restart in self.restarts],
            "candidate": None if candidate is None else {"restart": self.best.number, "R_V": candidate.R[0].tolist()},
        }


def enough_targets(problem: Problem) -> int:
    """Targets whose equations outnumber the host's parameters, up to changes of coordinates, three times: with half as many
    some hosts fit the targets of the search and no others."""
    found = Equations(problem, draw_targets(problem, 0, TARGET, 1))
    coordinates = problem.m**2 * (1 if problem.tied_host else problem.shape.layers + 1)
    parameters = max(1, found.global_size - coordinates)
    left = max(1, found.rows - found.local_size + problem.shape.d_in**2)
    return 6 + ceil(3 * parameters / left)


def memory(problem: Problem, targets: int, restarts: int = CHUNK) -> int:
    """Bytes of one batch: the Jacobian with its copies, and the normal equations."""
    found = Equations(problem, draw_targets(problem, 0, TARGET, 1))
    P = found.global_size + found.local_size
    return restarts * 8 * (4 * targets * found.rows * P + 4 * P * P)


def search(
    problem: Problem,
    setting: SearchSetting,
    *,
    max_memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> SearchRun:
    """Run all restarts, in batches of CHUNK; progress is called after each batch.

    Restart k depends on the seed, k and the budgets only, but for rounding. Raises ResourceLimit before allocating.
    """
    targets = enough_targets(problem)
    size = min(CHUNK, setting.restarts)
    require_memory(memory(problem, targets, size), f"a search at {problem}", max_memory)
    found: list[Restart] = []
    candidates: dict[int, State] = {}
    for first in range(0, setting.restarts, size):
        restarts, states = batch(problem, setting, targets, range(first, min(first + size, setting.restarts)))
        found += restarts
        candidates.update(states)
        progress()
    return SearchRun(problem, setting, targets, tuple(found), candidates)


def batch(
    problem: Problem, setting: SearchSetting, targets: int, numbers: range
) -> tuple[list[Restart], dict[int, State]]:
    """Some restarts side by side, and the states of the candidates among them."""
    asked = Equations(problem, draw_targets(problem, setting.seed, TARGET, targets))
    state = start(problem, setting.seed, numbers, targets)
    paths: list[dict[float, tuple[float, float, float]]] = [{} for _ in numbers]
    first = np.array([FIRST[number % len(FIRST)] for number in numbers])
    for step in RIDGES:
        ridge = np.minimum(step, first)
        fit = levenberg_marquardt(asked, state, ridge=ridge, iterations=setting.iterations)
        state = fit.state
        for path, mu, residual, largest in zip(paths, ridge, fit.residual, fit.largest, strict=True):
            path[mu] = (float(mu), float(residual), float(largest))
    worth = np.flatnonzero(fit.residual < POLISH)
    fresh: dict[int, tuple[float, ...]] = {}
    if len(worth):
        fit = levenberg_marquardt(asked, state.pick(worth), ridge=0.0, iterations=setting.iterations)
        for row, residual, largest in zip(worth, fit.residual, fit.largest, strict=True):
            paths[row][0.0] = (0.0, float(residual), float(largest))
        state.put(worth, fit.state)
        tested = worth[fit.residual < POLISH]
        if len(tested):
            found = fresh_residuals(problem, state.pick(tested), setting)
            fresh = dict(zip((int(row) for row in tested), found, strict=True))
    restarts, candidates = [], {}
    for place, (number, path) in enumerate(zip(numbers, paths, strict=True)):
        outcome = outcome_of([*path.values()], fresh.get(place))
        restarts.append(Restart(number, tuple(path.values()), fresh.get(place), outcome))
        if outcome == CANDIDATE:
            candidates[number] = state.pick(np.array([place]))
    return restarts, candidates


def outcome_of(path: list[tuple[float, float, float]], fresh: tuple[float, ...] | None) -> str:
    """The outcome of a restart from its residuals and largest weights along the ridges, and its fresh residuals."""
    steps = {ridge: (residual, largest) for ridge, residual, largest in path}
    residual, largest = path[-1][1:]
    before = steps[1e-4]
    if fresh is not None and fresh[-1] > POLISH:
        return OVERFITTED
    settled = residual <= EXACT and largest <= GROWTH * before[1]
    if settled and fresh is not None and fresh[len(fresh) // 2] <= EXACT:
        return CANDIDATE
    return APPROXIMATE if residual < FALL * before[0] else NOT_FOUND


def fresh_residuals(problem: Problem, state: State, setting: SearchSetting) -> list[tuple[float, ...]]:
    """For each restart and each fresh target the least residual of E and U for this host, over some start points; sorted.

    Every restart, target and start point is a problem of its own; all of them are one batch.
    """
    m, d, K, F = problem.m, problem.shape.d_in, FRESH_STARTS, setting.fresh
    wanted = draw_targets(problem, setting.seed, FRESH, F)
    least = np.full((len(state.R), F), np.inf)
    for attempt in range(FRESH_ATTEMPTS):
        hosts, targets = np.nonzero(least > EXACT)
        if not len(hosts):
            break
        E = draw(setting.seed, FRESH_START, 2 * attempt, (K, F, 1, d, m))[:, targets].reshape(-1, 1, d, m)
        U = draw(setting.seed, FRESH_START, 2 * attempt + 1, (K, F, 1, m, d))[:, targets].reshape(-1, 1, m, d)
        kept = state.pick(np.tile(hosts, K))
        alone = State(kept.R, E, U if problem.free == "E and U" else kept.U)
        asked = Equations(problem, wanted[np.tile(targets, K)][:, None], frozen_host=True)
        for ridge in (1e-2, 1e-4, 1e-7, 0.0):
            fit = levenberg_marquardt(asked, alone, ridge=ridge, iterations=setting.iterations)
            alone = fit.state
        found = fit.residual.reshape(K, -1).min(axis=0)
        least[hosts, targets] = np.minimum(least[hosts, targets], found)
    return [tuple(sorted(float(value) for value in row)) for row in least]
