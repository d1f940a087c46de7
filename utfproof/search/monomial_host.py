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
from typing import Any

from utfproof.errors import MalformedInput, install
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


def faults(host: MonomialHost) -> list[str]:
    """Words w for which E R_w U is not M_w as a Laurent polynomial, and why; an empty list proves the identity for all nonzero
    weights (for all weights where no exponent is negative)."""
    m, H, L = host.m, host.grid.heads, host.grid.layers
    if len(host.R) != L or any(len(layer) != H for layer in host.R):
        raise MalformedInput(f"R_V has not {L} layers of {H} heads")
    if any(len(matrix) != m or any(len(row) != m for row in matrix) for layer in host.R for matrix in layer):
        raise MalformedInput(f"a matrix of R_V is not {m}x{m}")
    if len(host.E) != m or len(host.U) != m:
        raise MalformedInput(f"E and U have not {m} coordinates")
    out = []
    for word in host.grid.words():
        total: dict[Vector, int] = {}
        for i, a in enumerate(host.E):
            if a is None:
                continue
            row = [int(k == i) for k in range(m)]
            for layer, head in enumerate(word):
                matrix = host.R[layer][head]
                row = [sum(row[k] * matrix[k][j] for k in range(m) if row[k]) for j in range(m)]
            for value, b in zip(row, host.U, strict=True):
                if value and b is not None:
                    exponent = tuple(x + y for x, y in zip(a, b, strict=True))
                    total[exponent] = total.get(exponent, 0) + value
        total = {exponent: value for exponent, value in total.items() if value}
        if total != {host.grid.exponent(word): 1}:
            out.append(f"word {word}: {total}")
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


def build(grid: MonomialGrid, m: int, starts: dict[tuple[int, ...], Vector]) -> MonomialHost | None:
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
    R = tuple(tuple([[int((i, j) in edges) for j in range(m)] for i in range(m)] for edges in layer) for layer in ones)
    E: list[Vector | None] = [None] * m
    U: list[Vector | None] = [None] * m
    for v, i in cuts[0].items():
        E[i] = v
    for v, i in cuts[L].items():
        U[i] = tuple(-x for x in v)
    host = MonomialHost(grid, m, R, *_lifted(grid, E, U, starts))
    return None if faults(host) else host


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
    grid: MonomialGrid, m: int, A: Sequence[Vector], B: Sequence[Vector], *, most_steps: int = 100_000
) -> MonomialHost | None:
    """A host with E in A and U in B, by backtracking over the words' starts: no more than m potentials before each layer,
    and words through a common vertex may exchange their ends. None where there is none (or none within the steps)."""
    words = grid.words()
    ends = {tuple(-x for x in b) for b in B}
    options = [[a for a in A if _path(grid, a, word)[-1] in ends] for word in words]
    cuts: list[dict[Vector, int]] = [{} for _ in range(grid.layers + 1)]
    chosen: dict[tuple[int, ...], Vector] = {}
    steps = 0

    def fits(word: tuple[int, ...], path: list[Vector]) -> bool:
        for other, start in chosen.items():
            theirs = _path(grid, start, other)
            for cut in range(grid.layers + 1):
                if path[cut] == theirs[cut]:
                    for mixed, first in ((word[:cut] + other[cut:], path[0]), (other[:cut] + word[cut:], start)):
                        if mixed in chosen and chosen[mixed] != first:
                            return False
        return True

    def run(k: int) -> MonomialHost | None:
        nonlocal steps
        if k == len(words):
            return build(grid, m, chosen)
        for start in options[k]:
            steps += 1
            if steps > most_steps:
                return None
            path = _path(grid, start, words[k])
            if any(v not in cut and len(cut) == m for cut, v in zip(cuts, path, strict=True)) or not fits(
                words[k], path
            ):
                continue
            for cut, v in zip(cuts, path, strict=True):
                cut[v] = cut.get(v, 0) + 1
            chosen[words[k]] = start
            found = run(k + 1)
            if found is not None:
                return found
            del chosen[words[k]]
            for cut, v in zip(cuts, path, strict=True):
                cut[v] -= 1
                if not cut[v]:
                    del cut[v]
        return None

    return run(0)


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
    grid: MonomialGrid, m: int, *, engine: str = "auto", seed: int = 0, seconds: float = 60.0, tries: int = 200
) -> HostOutcome:
    """A {0,1} host with monomial E and U in m coordinates: by CP-SAT (sets and routes at once), or by local search for the
    sets and backtracking for the routes. Every host that is returned has passed `faults`."""
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    if engine == "cp-sat" and not has_solver():
        raise MalformedInput(f"engine cp-sat needs OR-Tools: {install('ortools')}; local needs nothing")
    points = grid.points()
    paths = len(set(_differences(points))) * grid.heads**grid.layers if engine != "local" else 0
    if engine == "cp-sat" or (engine == "auto" and has_solver() and paths <= MOST_PATHS):
        return _by_solver(grid, m, seed, seconds)
    began = time.monotonic()
    for attempt in range(tries):
        found = anneal(grid, m, seed=seed + attempt, steps=20_000, restarts=1)
        if found.sets is not None and (host := route(grid, m, *found.sets, most_steps=5_000)) is not None:
            return HostOutcome(m, host, "local", "found", attempt + 1, time.monotonic() - began)
        if time.monotonic() - began > seconds:
            return HostOutcome(m, None, "local", "time spent", attempt + 1, time.monotonic() - began)
    return HostOutcome(m, None, "local", "tries spent", tries, time.monotonic() - began)


def _differences(points: Sequence[Vector]) -> list[Vector]:
    return sorted({tuple(x - y for x, y in zip(p, q, strict=True)) for p in points for q in points})


def _by_solver(grid: MonomialGrid, m: int, seed: int, seconds: float) -> HostOutcome:
    """CP-SAT: a vertex and an edge are booleans, each word has exactly one path of chosen edges; two workers, fixed seed."""
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

    for start in _differences(grid.points()):
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
    solver.parameters.max_time_in_seconds = seconds
    # with several workers only this makes the search repeatable
    solver.parameters.interleave_search = True
    status = solver.status_name(solver.solve(model)).lower()
    host = None
    if status in ("optimal", "feasible"):
        chosen = {word: start for (start, word), alive in paths.items() if solver.value(alive)}
        host = build(grid, m, chosen)
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
) -> dict[str, Any]:
    """Document of a search: exponents for m, or for rising m up to the first that has them, then a host there. Where
    branch and bound runs out of its budget, local search follows (for the one m; rising m stops).

    `outcome`: found (a host, verified), sets only, none (no exponents at this m), open. `least_m`: the least m of the
    sumset problem where every smaller one was excluded.
    """
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    least = None
    if m is None:
        least, outcomes = least_sumset(grid, seconds=seconds)
        m = outcomes[-1].m
        if not outcomes[-1].complete:
            outcomes.append(anneal(grid, m, seed=seed, steps=steps, restarts=restarts))
    else:
        outcomes = [exhaust(grid, m, seconds=seconds)]
        if outcomes[0].verdict == "open":
            outcomes.append(anneal(grid, m, seed=seed, steps=steps, restarts=restarts))
    last = outcomes[-1]
    host = None
    if last.sets is not None:
        host = find_host(grid, m, engine=engine, seed=seed, seconds=host_seconds)
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
