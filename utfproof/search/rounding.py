"""Rounding a candidate to an exact host: entries are set one by one to 0, then to 1, -1 or a small rational number, and the
rest, gauge included, gives way by Levenberg-Marquardt. What comes out is verified exactly (exact_host.py) or stays a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from utfproof.errors import Undecided
from utfproof.ground.notions import Notion
from utfproof.ground.processes import worker_pool
from utfproof.search.exact_host import ExactHost, Verification, exact_array, verify
from utfproof.search.levenberg import levenberg_marquardt
from utfproof.search.numerical import TARGET, Equations, State, draw_targets
from utfproof.search.problem import Problem
from utfproof.search.restarts import EXACT, OUTCOMES, SearchRun

VALUES = tuple(
    Fraction(a, b) for a, b in ((1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2), (3, 1), (-3, 1), (1, 3), (-1, 3))
)
"""What an entry that cannot be 0 is tried at, by distance, the sign first."""
TRIES = 3
"""Values tried for one entry."""
LARGEST = 20.0
"""A rounding step that sends a weight beyond this has lost the host."""
LARGEST_ROUNDED = 5
"""Hosts with more dimensions have too many entries to set one by one in reasonable time."""
STEPS = 60
"""Iterations after an entry is fixed."""


@dataclass(frozen=True)
class Rounded:
    """The exact host, or None and the number of entries that no value here fits; state: its floats, with E and U for the
    search's targets; fixed: entries set; steps: attempts made."""

    host: ExactHost | None
    state: State
    fixed: int
    left: int
    steps: int


def round_host(problem: Problem, state: State, *, seed: int, targets: int, positive: bool = False) -> Rounded:
    """An exact host near (up to changes of coordinates) a candidate of one restart. Deterministic; proves nothing yet.

    targets: how many the state has E and U for; a part of them is enough here.
    """
    kept = min(targets, 10 + targets // 3)
    equations = Equations(problem, draw_targets(problem, seed, TARGET, kept, positive=positive))
    current = State(state.R, state.E[:, :kept], state.U[:, :kept])
    vector = equations.global_vector(state)[0]
    values: dict[int, Fraction] = {}
    steps = 0

    def attempt(entries: dict[int, Fraction]) -> State | None:
        nonlocal steps
        steps += 1
        fixed = {**values, **entries}
        mask = np.ones((1, len(vector)))
        mask[0, list(fixed)] = 0
        moved = np.zeros((1, len(vector)))
        now = equations.global_vector(current)[0]
        for entry, value in fixed.items():
            moved[0, entry] = float(value) - now[entry]
        local = np.zeros((1, equations.targets, equations.local_size))
        fit = levenberg_marquardt(
            equations,
            equations.moved(current, moved, local),
            ridge=0.0,
            iterations=STEPS,
            goal=1e-12,
            mask=mask,
            stall=0.3,
        )
        good = fit.residual[0] <= EXACT and fit.largest[0] <= LARGEST
        return fit.state if good else None

    refused: set[int] = set()
    before = -1
    while True:  # zeros, the smallest entry first; what was refused is tried again as long as others were set since
        now = equations.global_vector(current)[0]
        open_entries = [k for k in np.argsort(np.abs(now), kind="stable") if k not in values and k not in refused]
        if not open_entries:
            if len(values) == before:
                break
            before = len(values)
            refused.clear()
            continue
        tiny = [int(k) for k in open_entries if abs(now[k]) < EXACT] or [int(open_entries[0])]
        found = attempt(dict.fromkeys(tiny, Fraction(0)))
        if found is None:
            refused.update(tiny)
        else:
            current = found
            values.update(dict.fromkeys(tiny, Fraction(0)))
    left = 0
    while len(values) + left < len(vector):  # the others, the one closest to 1 or -1 first
        now = equations.global_vector(current)[0]
        rest = [k for k in range(len(vector)) if k not in values and k in refused]
        entry = min(rest, key=lambda k: min(abs(now[k] - 1), abs(now[k] + 1)))
        order = sorted(VALUES, key=lambda v: (float(v) * now[entry] < 0, abs(float(v) - now[entry])))
        for value in order[:TRIES]:
            found = attempt({entry: value})
            if found is not None:
                current, values[entry] = found, value
                break
        else:
            left += 1
            refused.discard(entry)
    if left:
        return Rounded(None, current, len(values), left, steps)
    return Rounded(_host(problem, equations, values), current, len(values), 0, steps)


def _host(problem: Problem, equations: Equations, values: dict[int, Fraction]) -> ExactHost:
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    flat = exact_array([values[k] for k in range(equations.global_size)])
    R = flat[: equations.R_size].reshape(problem.host_layers, shape.heads, m, m)
    at = equations.R_size
    fixed: dict[str, np.ndarray] = {}
    for name, size in (("E", (d, m)), ("U", (m, d))):
        if name not in problem.free:
            fixed[name] = flat[at : at + m * d].reshape(size)
            at += m * d
    return ExactHost(problem, R, fixed.get("E"), fixed.get("U"))


def verify_run(run: SearchRun, *, workers: int = 0) -> tuple[Verification | None, list[str]]:
    """`verify_candidates`, in a process with one BLAS thread unless workers is 0."""
    if not workers or not run.candidates:
        return verify_candidates(run)
    with worker_pool(1) as pool:
        return pool.submit(verify_candidates, run).result()


def verify_candidates(run: SearchRun, *, most: int = 3) -> tuple[Verification | None, list[str]]:
    """Round candidates, partial ones last, until one is verified exactly; and what became of the others, a line each."""
    notes: list[str] = []
    if run.candidates and run.problem.notion != Notion.SHARED_ATTENTION:
        return None, [f"not rounded: no exact method here is for {run.problem.notion}"]
    if run.candidates and run.problem.shape.d_in > 1 and run.problem.free == "E and U":
        return None, ["not rounded: no exact method here is for d_in > 1 with E and U free"]
    if run.candidates and run.problem.m > LARGEST_ROUNDED:
        return None, [f"not rounded: m = {run.problem.m} is beyond {LARGEST_ROUNDED}"]
    order = sorted((OUTCOMES.index(r.outcome), r.number) for r in run.restarts if r.number in run.candidates)
    for _, number in order[:most]:
        rounded = round_host(
            run.problem,
            run.candidates[number],
            seed=run.setting.seed,
            targets=run.targets,
            positive=run.setting.positive,
        )
        if rounded.host is None:
            notes.append(f"restart {number}: {rounded.left} entries fit no small rational number")
            continue
        try:
            return verify(rounded.host), notes
        except Undecided as reason:
            notes.append(f"restart {number}: rounded, but {reason}")
    return None, notes
