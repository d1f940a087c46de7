"""{0,1} hosts with monomial E and U: routes for the words of a sumset, or sets and routes at once, and their exact
verification.

A host is a layered graph: coordinates before layer l are vertices, R_V^{l,h} has a one for each edge of head h. Every word
labels exactly one path, from a coordinate of E (exponent a) to one of U (exponent b), a + b = e(w). Along an edge of layer
l, head h the potential falls by the exponent of M^{l,h}; it starts as a and ends as -b.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from utfproof.errors import MalformedInput, install
from utfproof.ground.processes import interruptible
from utfproof.ground.progress import stage
from utfproof.ground.resources import require_memory
from utfproof.search.budget import UNLIMITED, Budget, OutOfBudget
from utfproof.search.monomial import FitOutcome, MonomialGrid, Vector, anneal, exhaust, least_sumset
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal

Edge = tuple[int, int, Vector]
"""(layer, head, potential before); layers and heads count from 0."""
MOST_PATHS = 5_000
"""Starts and words together, up to which CP-SAT is the engine of choice."""
ENGINES = ("auto", "cp-sat", "local")


@dataclass(frozen=True)
class MonomialHost:
    """R_V [L][H] with entries 0 and 1 as lists of m rows, E_i = x^{a_i} and U_j = x^{b_j}; None for a coordinate that is
    zero."""

    grid: MonomialGrid
    m: int
    R: tuple[tuple[list[list[int]], ...], ...]
    E: tuple[Vector | None, ...]
    U: tuple[Vector | None, ...]

    def system(self) -> SharedAttentionUniversal:
        """The host as a system of the shared-attention model (untied)."""
        import numpy as np

        values = tuple(tuple(np.array(matrix, dtype=np.int64) for matrix in layer) for layer in self.R)
        return SharedAttentionUniversal(Shape(self.grid.heads, self.grid.layers, 1, 1), self.m, values)

    def document(self) -> dict[str, Any]:
        """For JSON: ones of R_V as [row, column]."""
        ones = [
            [[[i, j] for i, row in enumerate(matrix) for j, value in enumerate(row) if value] for matrix in layer]
            for layer in self.R
        ]
        return {
            "heads": self.grid.heads,
            "layers": self.grid.layers,
            "looped_targets": self.grid.tied,
            "m": self.m,
            "ones_of_R_V": ones,
            "E": [None if v is None else list(v) for v in self.E],
            "U": [None if v is None else list(v) for v in self.U],
        }


def faults(host: MonomialHost, budget: Budget = UNLIMITED) -> list[str]:
    """Words w for which E R_w U is not M_w as a Laurent polynomial, and why; an empty list proves the identity for all nonzero
    weights (for all weights where no exponent is negative)."""
    m, H, L = host.m, host.grid.heads, host.grid.layers
    if len(host.R) != L or any(len(layer) != H for layer in host.R):
        raise MalformedInput(f"R_V has not {L} layers of {H} heads")
    if any(len(matrix) != m or any(len(row) != m for row in matrix) for layer in host.R for matrix in layer):
        raise MalformedInput(f"a matrix of R_V is not {m}x{m}")
    if len(host.E) != m or len(host.U) != m:
        raise MalformedInput(f"E and U have not {m} coordinates")
    edges = [[_edges(matrix) for matrix in layer] for layer in host.R]
    out = []
    for word in host.grid.words():
        budget.look()
        total: dict[Vector, int] = {}
        for i, a in enumerate(host.E):
            if a is None:
                continue
            row = {i: 1}
            for layer, head in enumerate(word):
                row = _times(row, edges[layer][head])
            for j, value in row.items():
                if (b := host.U[j]) is not None:
                    exponent = tuple(x + y for x, y in zip(a, b, strict=True))
                    total[exponent] = total.get(exponent, 0) + value
        total = {exponent: value for exponent, value in total.items() if value}
        if total != {host.grid.exponent(word): 1}:
            out.append(f"word {word}: {total}")
    return out


def _edges(matrix: list[list[int]]) -> dict[int, list[tuple[int, int]]]:
    """(column, entry) of the nonzero entries by row: the matrices of hosts have few."""
    found = {i: [(j, value) for j, value in enumerate(row) if value] for i, row in enumerate(matrix)}
    return {i: entries for i, entries in found.items() if entries}


def _times(row: dict[int, int], edges: dict[int, list[tuple[int, int]]]) -> dict[int, int]:
    """A sparse row times a matrix."""
    out: dict[int, int] = {}
    for k, factor in row.items():
        for j, value in edges.get(k, ()):
            out[j] = out.get(j, 0) + factor * value
    return out


def serves_all(host: MonomialHost) -> bool:
    """Whether no exponent is negative: then zero weights are served as well."""
    return all(v is None or min(v) >= 0 for v in (*host.E, *host.U))


def _path(grid: MonomialGrid, start: Vector, word: Sequence[int]) -> list[Vector]:
    """Potentials [L+1] along a word from this start."""
    out = [start]
    for layer, head in enumerate(word):
        out.append(tuple(x - y for x, y in zip(out[-1], grid.letter(layer, head), strict=True)))
    return out


def build(
    grid: MonomialGrid, m: int, starts: dict[tuple[int, ...], Vector], budget: Budget = UNLIMITED
) -> MonomialHost | None:
    """The host whose paths start at these potentials; None if that takes more than m coordinates somewhere, or if the edges
    make other paths as well."""
    L = grid.layers
    cuts: list[dict[Vector, int]] = [{} for _ in range(L + 1)]
    ones: list[list[set[tuple[int, int]]]] = [[set() for _ in range(grid.heads)] for _ in range(L)]
    for word, start in starts.items():
        path = _path(grid, start, word)
        numbers = [cut.setdefault(v, len(cut)) for cut, v in zip(cuts, path, strict=True)]
        for layer, head in enumerate(word):
            ones[layer][head].add((numbers[layer], numbers[layer + 1]))
    if max(len(cut) for cut in cuts) > m:
        return None
    require_memory(8 * L * grid.heads * m * m, f"R_V of a host of {m} dimensions", budget.memory)
    R = tuple(tuple([[int((i, j) in edges) for j in range(m)] for i in range(m)] for edges in layer) for layer in ones)
    E: list[Vector | None] = [None] * m
    U: list[Vector | None] = [None] * m
    for v, i in cuts[0].items():
        E[i] = v
    for v, i in cuts[L].items():
        U[i] = tuple(-x for x in v)
    host = MonomialHost(grid, m, R, *_lifted(grid, E, U, starts))
    return None if faults(host, budget) else host


def _lifted(
    grid: MonomialGrid, E: list[Vector | None], U: list[Vector | None], starts: dict[tuple[int, ...], Vector]
) -> tuple[tuple[Vector | None, ...], tuple[Vector | None, ...]]:
    """E and U moved against each other, part by part, so that E's least exponents are zero: then U's are not negative either,
    wherever that is possible."""
    joined = [(E.index(a), U.index(tuple(-x for x in _path(grid, a, word)[-1]))) for word, a in starts.items()]
    part_of_E = list(range(len(E)))
    part_of_U: dict[int, int] = {}
    for i, j in joined:
        old, new = part_of_E[i], part_of_U.get(j, part_of_E[i])
        part_of_E = [new if part == old else part for part in part_of_E]
        part_of_U = {k: new if part == old else part for k, part in part_of_U.items()} | {j: new}
    for part in set(part_of_U.values()):
        mine = [a for a, p in zip(E, part_of_E, strict=True) if a is not None and p == part]
        shift = [min(column) for column in zip(*mine, strict=True)]
        for i, p in enumerate(part_of_E):
            if (a := E[i]) is not None and p == part:
                E[i] = tuple(x - s for x, s in zip(a, shift, strict=True))
        for j, p in part_of_U.items():
            if (b := U[j]) is not None and p == part:
                U[j] = tuple(x + s for x, s in zip(b, shift, strict=True))
    return tuple(E), tuple(U)


def route(
    grid: MonomialGrid,
    m: int,
    A: Sequence[Vector],
    B: Sequence[Vector],
    *,
    most_steps: int = 100_000,
    budget: Budget = UNLIMITED,
) -> MonomialHost | None:
    """A host with E in A and U in B, by backtracking over the words' starts: no more than m potentials before each layer,
    and words through a common vertex may exchange their ends. None where there is none (or none within the steps)."""
    words, ends = grid.words(), {tuple(-x for x in b) for b in B}
    options = []
    for word in words:
        budget.look()
        fall = grid.exponent(word)
        options.append([a for a in A if tuple(x - y for x, y in zip(a, fall, strict=True)) in ends])
    routes = _Routes(grid, m)
    following, k, steps = [0] * len(words), 0, 0
    while k >= 0:
        if k == len(words):
            if (found := build(grid, m, routes.chosen, budget)) is not None:
                return found
        elif following[k] < len(options[k]):
            steps += 1
            if steps > most_steps:
                return None
            following[k] += 1
            k += routes.add(words[k], options[k][following[k] - 1], budget)
            continue
        else:
            following[k] = 0
        k -= 1
        if k >= 0:
            routes.remove(words[k])
    return None


class _Routes:
    """Starts of some words, and how many of their paths run through each potential before each layer."""

    def __init__(self, grid: MonomialGrid, m: int) -> None:
        self.grid, self.m = grid, m
        self.cuts: list[dict[Vector, int]] = [{} for _ in range(grid.layers + 1)]
        self.chosen: dict[tuple[int, ...], Vector] = {}

    def add(self, word: tuple[int, ...], start: Vector, budget: Budget) -> bool:
        """Whether this word may start here beside the others; then it does."""
        path = _path(self.grid, start, word)
        if any(v not in cut and len(cut) == self.m for cut, v in zip(self.cuts, path, strict=True)):
            return False
        if not self._fits(word, path, budget):
            return False
        for cut, v in zip(self.cuts, path, strict=True):
            cut[v] = cut.get(v, 0) + 1
        self.chosen[word] = start
        return True

    def _fits(self, word: tuple[int, ...], path: list[Vector], budget: Budget) -> bool:
        for other, start in self.chosen.items():
            budget.look()
            theirs = _path(self.grid, start, other)
            for cut in range(self.grid.layers + 1):
                if path[cut] == theirs[cut]:
                    for mixed, first in ((word[:cut] + other[cut:], path[0]), (other[:cut] + word[cut:], start)):
                        if mixed in self.chosen and self.chosen[mixed] != first:
                            return False
        return True

    def remove(self, word: tuple[int, ...]) -> None:
        """Take the word that was added last away."""
        for cut, v in zip(self.cuts, _path(self.grid, self.chosen.pop(word), word), strict=True):
            cut[v] -= 1
            if not cut[v]:
                del cut[v]


# --- sets and routes at once -------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostOutcome:
    """A host, verified, or none; `engine` says how it was looked for and `status` how that ended. None proves nothing,
    except within the box (differences of two exponents as starts) where CP-SAT says infeasible."""

    m: int
    host: MonomialHost | None
    engine: str
    status: str
    tries: int
    seconds: float


def has_solver() -> bool:
    """Whether OR-Tools is installed (optional extra `search`)."""
    return importlib.util.find_spec("ortools") is not None


def find_host(
    grid: MonomialGrid,
    m: int,
    *,
    engine: str = "auto",
    seed: int = 0,
    seconds: float = 60.0,
    tries: int = 200,
    max_memory: int | None = None,
) -> HostOutcome:
    """A {0,1} host with monomial E and U in m coordinates: by CP-SAT (sets and routes at once), or by local search for the
    sets and backtracking for the routes. Every host that is returned has passed `faults`."""
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    if engine == "cp-sat" and not has_solver():
        raise MalformedInput(f"engine cp-sat needs OR-Tools: {install('ortools')}; local needs nothing")
    began, budget = time.monotonic(), Budget.lasting(seconds, max_memory)
    solver = engine == "cp-sat" or (engine == "auto" and has_solver() and _is_small(grid))
    attempt = 0
    try:
        if solver:
            return _by_solver(grid, m, seed, budget)
        for attempt in range(1, tries + 1):
            found = anneal(grid, m, seed=seed + attempt - 1, steps=20_000, restarts=1, budget=budget)
            if found.sets is not None:
                host = route(grid, m, *found.sets, most_steps=5_000, budget=budget)
                if host is not None:
                    return HostOutcome(m, host, "local", "found", attempt, time.monotonic() - began)
            budget.look()
    except OutOfBudget as spent:
        status = "time spent" if budget.left == 0 else str(spent)
        return HostOutcome(m, None, "cp-sat" if solver else "local", status, max(1, attempt), time.monotonic() - began)
    return HostOutcome(m, None, "local", "tries spent", tries, time.monotonic() - began)


def _is_small(grid: MonomialGrid) -> bool:
    """Whether the starts and words are few enough for CP-SAT."""
    points, words = grid.points(), grid.heads**grid.layers
    # there are at least as many differences as points
    return len(points) * words <= MOST_PATHS and len(_differences(points)) * words <= MOST_PATHS


def _differences(points: Sequence[Vector]) -> list[Vector]:
    return sorted({tuple(x - y for x, y in zip(p, q, strict=True)) for p in points for q in points})


def _starts(grid: MonomialGrid, budget: Budget) -> list[Vector]:
    """The starts that CP-SAT may choose from, where a model with a path for each of them and each word fits into memory."""
    points, words = grid.points(), grid.heads**grid.layers
    for count in (len(points), None):  # there are at least as many differences as points
        found = [] if count else _differences(points)
        paths = (count or len(found)) * words
        require_memory(
            paths * (1000 + 300 * grid.layers), f"a model of {paths} paths or more for CP-SAT", budget.memory
        )
    return found


def _by_solver(grid: MonomialGrid, m: int, seed: int, budget: Budget) -> HostOutcome:
    """CP-SAT: a vertex and an edge are booleans, each word has exactly one path of chosen edges; two workers, fixed seed."""
    candidates = _starts(grid, budget)
    from ortools.sat.python import cp_model

    began = time.monotonic()
    model = cp_model.CpModel()
    words = grid.words()
    vertices: list[dict[Vector, Any]] = [{} for _ in range(grid.layers + 1)]
    edges: dict[Edge, Any] = {}
    paths: dict[tuple[Vector, tuple[int, ...]], Any] = {}

    def vertex(layer: int, v: Vector) -> Any:
        if v not in vertices[layer]:
            vertices[layer][v] = model.new_bool_var("")
        return vertices[layer][v]

    for start in candidates:
        budget.look()
        for word in words:
            path = _path(grid, start, word)
            used = []
            for layer, head in enumerate(word):
                key = (layer, head, path[layer])
                if key not in edges:
                    edges[key] = model.new_bool_var("")
                    model.add_implication(edges[key], vertex(layer, path[layer]))
                    model.add_implication(edges[key], vertex(layer + 1, path[layer + 1]))
                used.append(edges[key])
            alive = model.new_bool_var("")
            for edge in used:
                model.add_implication(alive, edge)
            model.add_bool_or([alive, *(edge.negated() for edge in used)])
            paths[start, word] = alive
    starts = list(vertices[0])
    for word in words:
        model.add_exactly_one(paths[start, word] for start in starts)
    for cut in vertices:
        model.add(sum(cut.values()) <= m)
    # one translation of all potentials is free: the first word starts at zero
    model.add(paths[(0,) * grid.width, words[0]] == 1)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_time_in_seconds = budget.left
    # with several workers only this makes the search repeatable
    solver.parameters.interleave_search = True
    # it would hand the signal to the system when it ends, and the next Ctrl-C kill this process without a word
    solver.parameters.catch_sigint_signal = False
    status = solver.status_name(interruptible(lambda: solver.solve(model), solver.stop_search)).lower()
    host = None
    if status in ("optimal", "feasible"):
        chosen = {word: start for (start, word), alive in paths.items() if solver.value(alive)}
        host = build(grid, m, chosen)  # found, whatever the time
        if host is None:
            raise AssertionError("the solver's host does not pass the exact check")
    return HostOutcome(m, host, "cp-sat", "found" if host else status, 1, time.monotonic() - began)


# --- both questions ----------------------------------------------------------------------------------------


def search_monomial(
    grid: MonomialGrid,
    m: int | None = None,
    *,
    engine: str = "auto",
    seconds: float = 120.0,
    host_seconds: float = 60.0,
    restarts: int = 20,
    steps: int = 50_000,
    seed: int = 0,
    local_seconds: float = inf,
    max_memory: int | None = None,
) -> dict[str, Any]:
    """Document of a search: exponents for m, or for rising m up to the first that has them, then a host there. Where
    branch and bound runs out of its budget, local search follows (for the one m; rising m stops), for so many restarts and
    steps, `local_seconds` at most.

    `outcome`: found (a host, verified), sets only, none (no exponents at this m), open. `least_m`: the least m of the
    sumset problem where every smaller one was excluded.
    """
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    least = None
    if m is None:
        least, outcomes = least_sumset(grid, seconds=seconds, max_memory=max_memory)
        m = outcomes[-1].m
    else:
        with stage(f"branch and bound, m = {m}", expected=lambda: seconds):
            outcomes = [exhaust(grid, m, seconds=seconds, max_memory=max_memory)]
    if outcomes[-1].verdict == "open":
        budget = Budget.lasting(local_seconds, max_memory)
        outcomes.append(anneal(grid, m, seed=seed, steps=steps, restarts=restarts, budget=budget))
    last = outcomes[-1]
    host = None
    if last.sets is not None:
        with stage(f"host, m = {m}", expected=lambda: host_seconds):
            host = find_host(grid, m, engine=engine, seed=seed, seconds=host_seconds, max_memory=max_memory)
    outcome = last.verdict
    if host is not None and host.host is None:
        outcome = "sets only"
    setting = {
        "engine": engine,
        "seconds": seconds,
        "host_seconds": host_seconds,
        "restarts": restarts,
        "steps": steps,
        "seed": seed,
    }
    return {
        "search": "monomial",
        "problem": {
            "heads": grid.heads,
            "layers": grid.layers,
            "d_in": 1,
            "free": "E and U",
            "targets": "all tied" if grid.tied else "all untied",
            "host": "untied",
        },
        "setting": setting,
        "exponents": len(grid.points()),
        "least_m": least,
        "sets": [_sets(found) for found in outcomes],
        "host": None if host is None else _told(host),
        "outcome": outcome,
    }


def _sets(found: FitOutcome) -> dict[str, Any]:
    """What one method said about exponents at one m."""
    return {
        "m": found.m,
        "method": found.method,
        "outcome": found.verdict,
        "nodes": found.nodes,
        "starts": found.starts,
        "seconds": round(found.seconds, 3),
        "note": found.note,
        "A": None if found.sets is None else [list(v) for v in found.sets[0]],
        "B": None if found.sets is None else [list(v) for v in found.sets[1]],
    }


def _told(found: HostOutcome) -> dict[str, Any]:
    """What the search for a host came to."""
    return {
        "engine": found.engine,
        "status": found.status,
        "tries": found.tries,
        "seconds": round(found.seconds, 3),
        "all_targets": found.host is not None and serves_all(found.host),
        "host": None if found.host is None else found.host.document(),
    }
