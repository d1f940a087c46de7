"""Rounding a candidate to an exact host: entries are set one by one to 0, then to 1, -1 or a small rational number, and the
rest, gauge included, gives way by Levenberg-Marquardt. What comes out is verified exactly (exact_host.py) or stays a candidate.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from utfproof.errors import Undecided
from utfproof.search.exact_host import ExactHost, Verification, exact_array, verify
from utfproof.search.levenberg import levenberg_marquardt
from utfproof.search.numerical import TARGET, Equations, State, draw_targets
from utfproof.search.problem import Problem
from utfproof.search.restarts import EXACT, SearchRun

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


def round_host(problem: Problem, state: State, *, seed: int) -> tuple[ExactHost | None, int]:
    """An exact host near (up to changes of coordinates) a candidate of one restart, and the number of entries that no value
    here fits. Deterministic; proves nothing yet."""
    targets = state.E.shape[1]
    kept = min(targets, 10 + targets // 3)  # a part of the search's targets is enough here
    equations = Equations(problem, draw_targets(problem, seed, TARGET, kept))
    current = State(state.R, state.E[:, :kept], state.U[:, :kept])
    values: dict[int, Fraction] = {}

    def attempt(entries: dict[int, Fraction]) -> bool:
        """Set these entries too, where the others can give way."""
        nonlocal current
        fixed = {**values, **entries}
        now = equations.global_vector(current)[0]
        mask, moved = np.ones(len(now)), np.zeros((1, len(now)))
        for entry, value in fixed.items():
            mask[entry], moved[0, entry] = 0, float(value) - now[entry]
        local = np.zeros((1, equations.targets, equations.local_size))
        placed = equations.moved(current, moved, local)
        fit = levenberg_marquardt(equations, placed, ridge=0.0, iterations=STEPS, goal=1e-12, mask=mask, stall=0.3)
        good = bool(fit.residual[0] <= EXACT and fit.largest[0] <= LARGEST)
        if good:
            current = fit.state
            values.update(entries)
        return good

    refused: set[int] = set()
    before = -1
    while True:  # zeros, the smallest entry first; what was refused is tried again as long as others were set since
        now = equations.global_vector(current)[0]
        open_entries = [int(k) for k in np.argsort(np.abs(now), kind="stable") if k not in values and k not in refused]
        if not open_entries:
            if len(values) == before:
                break
            before = len(values)
            refused.clear()
            continue
        tiny = [k for k in open_entries if abs(now[k]) < EXACT] or open_entries[:1]
        if not attempt(dict.fromkeys(tiny, Fraction(0))):
            refused.update(tiny)
    left = 0
    while refused - values.keys():  # the others, the one closest to 1 or -1 first
        now = equations.global_vector(current)[0]
        entry = min(refused - values.keys(), key=lambda k: (min(abs(now[k] - 1), abs(now[k] + 1)), k))
        order = sorted(VALUES, key=lambda v: (float(v) * now[entry] < 0, abs(float(v) - now[entry])))
        if not any(attempt({entry: value}) for value in order[:TRIES]):
            left += 1
            refused.discard(entry)
    return (None if left else _host(problem, equations, values)), left


def _host(problem: Problem, equations: Equations, values: dict[int, Fraction]) -> ExactHost:
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    flat = exact_array([values[k] for k in range(equations.global_size)])
    R = flat[: equations.R_size].reshape(problem.host_layers, shape.heads, m, m)
    return ExactHost(problem, R, None if equations.U_free else flat[equations.R_size :].reshape(m, d))


def verify_candidates(run: SearchRun, *, most: int = 3) -> tuple[Verification | None, list[str]]:
    """Round candidates until one is verified exactly; and what became of the others, a line each."""
    notes: list[str] = []
    if run.candidates and run.problem.shape.d_in > 1 and run.problem.free == "E and U":
        return None, ["not rounded: no exact method here is for d_in > 1 with E and U free"]
    if run.candidates and run.problem.m > LARGEST_ROUNDED:
        return None, [f"not rounded: m = {run.problem.m} is beyond {LARGEST_ROUNDED}"]
    for number in sorted(run.candidates)[:most]:
        host, left = round_host(run.problem, run.candidates[number], seed=run.setting.seed)
        if host is None:
            notes.append(f"restart {number}: {left} entries fit no small rational number")
            continue
        try:
            return verify(host), notes
        except Undecided as reason:
            notes.append(f"restart {number}: rounded, but {reason}")
    return None, notes
