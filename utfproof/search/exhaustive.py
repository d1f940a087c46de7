"""All {0,1} hosts of a few dimensions in the shared-attention model, d_in = 1, up to renaming coordinates (and heads).

| free | host serves almost all targets exactly if | decided by |
|---|---|---|
| E (U among the 0/1 vectors) | the columns R_w U satisfy no linear relation that the M_w do not | a rank |
| E and U | E R_w U = M_w is solvable over the closure of the field of the weights | the R_w's relations, then a Gröbner basis |

Ranks are taken over the rationals. With E and U free
"solvable" means for almost all complex targets; a host whose E and U come out as rational functions serves almost all real
ones as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, permutations, product
from math import comb, factorial, inf, log2
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.search.problem import Problem
from utfproof.util.resources import require_memory

KINDS = ("injections", "maps", "all")
"""Partial injections (at most one 1 in a row and in a column), partial maps (in a row), all {0,1} matrices."""
MOST_HOSTS = 80_000_000
MOST_WORDS = 4096
ENTRIES = 1 << 19
"""Of the products R_w of the hosts that are looked at together: well below a second."""


class OutOfTime(Exception):
    """The search ends here, undecided."""


@dataclass(frozen=True)
class Budget:
    """deadline: of time.monotonic(); memory: bytes that the process may hold, None for 80 % of RAM."""

    deadline: float = inf
    memory: int | None = None

    def look(self) -> None:
        """Raise OutOfTime when the time is over."""
        if time.monotonic() > self.deadline:
            raise OutOfTime


UNLIMITED = Budget()


@dataclass(frozen=True)
class Words:
    """The head words of length L and the exponents of their products M_w, d_in = 1. Where `tied`, the layers share weights, so
    words of equal counts have equal exponents."""

    heads: int
    layers: int
    tied: bool = False

    def __post_init__(self) -> None:
        if self.layers * log2(self.heads) > log2(MOST_WORDS):
            raise ResourceLimit(f"{self.heads}^{self.layers} words; this search takes at most {MOST_WORDS}")

    def words(self) -> list[tuple[int, ...]]:
        """All words of length L in lexicographic order."""
        return list(product(range(self.heads), repeat=self.layers))

    def exponent(self, word: Sequence[int]) -> tuple[int, ...]:
        """Exponents of M_w: one entry for each head, of each layer where untied."""
        total = [0] * (self.heads * (1 if self.tied else self.layers))
        for layer, head in enumerate(word):
            total[head if self.tied else layer * self.heads + head] += 1
        return tuple(total)

    def points(self) -> list[tuple[int, ...]]:
        """The different exponents, sorted."""
        return sorted({self.exponent(word) for word in self.words()})


# --- the hosts ---------------------------------------------------------------------------------------------


def matrices(m: int, kind: str, budget: Budget = UNLIMITED) -> np.ndarray:
    """All matrices of a kind [count, m, m], int64. Raises MalformedInput, and ResourceLimit from 2^22 on."""
    if kind not in KINDS:
        raise MalformedInput(f"kind {kind!r} is unknown; choose {', '.join(KINDS)}")
    if kind == "all":
        if m * m > 22:
            raise ResourceLimit(f"2^{m * m} matrices of {m}x{m}; choose injections or maps")
        codes = np.arange(1 << (m * m))
        return ((codes[:, None] >> np.arange(m * m)) & 1).reshape(-1, m, m)
    if m > 22 or (m + 1) ** m > 1 << 22:
        raise ResourceLimit(f"{m + 1}^{m} partial maps of {m} coordinates are too many; choose a smaller m")
    count = sum(comb(m, k) ** 2 * factorial(k) for k in range(m + 1)) if kind == "injections" else (m + 1) ** m
    require_memory(10 * count * m * m, f"{count} matrices of kind {kind}", budget.memory)
    rows = []
    for images in product(range(m + 1), repeat=m):
        budget.look()
        used = [i for i in images if i < m]
        if kind == "maps" or len(set(used)) == len(used):
            rows.append(images)
    table = np.array(rows)
    return (table[:, :, None] == np.arange(m)).astype(np.int64)


def _require_few(count: int, at_least: bool = False) -> None:
    """ResourceLimit for more hosts than are listed; their number may have thousands of digits."""
    if count > MOST_HOSTS:
        said = f"2^{round(log2(count))}" if count.bit_length() > 64 else str(count)
        more = " or more" if at_least else ""
        raise ResourceLimit(
            f"about {said}{more} hosts after symmetries, the limit is {MOST_HOSTS}; choose a smaller kind or m"
        )


def tied_hosts(
    heads: int, m: int, kind: str, *, transposes: bool = False, budget: Budget = UNLIMITED
) -> tuple[np.ndarray, np.ndarray, int]:
    """(matrices, tuples [count, H] of their numbers, number of all tuples).

    One tuple from each class under renaming coordinates and heads, and under transposing all matrices where asked for (words
    reversed, E and U exchanged: with both free and tied targets it is the same question).
    """
    table = matrices(m, kind, budget)
    count = len(table)
    total = count**heads
    _require_few(total)
    forms = [table]
    if transposes and kind != "maps":  # the transpose of a map need not be one
        forms.append(table.transpose(0, 2, 1))
    require_memory((32 + 24 * heads) * total + 8 * count * factorial(m) * len(forms), f"{total} hosts", budget.memory)
    moves = [move for form in forms for move in _renamings(table, form, m, budget, both=False)]
    keys = np.arange(total)
    digits = np.stack([keys // count ** (heads - 1 - h) % count for h in range(heads)])
    smallest = np.ones(total, dtype=bool)
    for move in moves:
        budget.look()
        # of all orders of the heads the sorted one has the least key
        key = np.zeros(total, dtype=np.int64)
        for digit in np.sort(np.array(move)[digits], axis=0):
            key = key * count + digit
        smallest &= keys <= key
    return table, digits[:, smallest].T, total


def _renamings(table: np.ndarray, form: np.ndarray, m: int, budget: Budget, *, both: bool) -> Iterator[list[int]]:
    """Numbers of the matrices after each renaming of coordinates; `both`: of rows and of columns by themselves."""
    order = {matrix.tobytes(): i for i, matrix in enumerate(table)}
    for p in permutations(range(m)):
        for q in permutations(range(m)) if both else (p,):
            budget.look()
            moved = np.ascontiguousarray(form[:, p][:, :, q])
            yield [order[matrix.tobytes()] for matrix in moved]


def untied_hosts(
    heads: int, layers: int, m: int, kind: str, *, budget: Budget = UNLIMITED
) -> tuple[np.ndarray, np.ndarray, int]:
    """(matrices, tuples [count, L·H], number of all tuples) for untied hosts: renaming heads in a layer and coordinates
    before each layer are used by sorting a layer's heads and, for the first layer, taking one of each class under renaming
    its rows and columns."""
    table = matrices(m, kind, budget)
    count, moves = len(table), factorial(m) ** 2
    layer = comb(count + heads - 1, heads)
    later = layer ** (layers - 1)
    # a class of first layers has at most `moves` members, so there are at least so many
    _require_few(-(-layer // moves) * later, at_least=True)
    require_memory(8 * count * moves, f"{moves} renamings of {count} matrices", budget.memory)
    if layers > 1:
        require_memory(200 * layer, f"{layer} layers", budget.memory)
    first = _first_layers(table, heads, m, budget)
    hosts = len(first) * later
    _require_few(hosts)
    require_memory(8 * (2 + heads) * layers * hosts, f"{hosts} hosts", budget.memory)
    blocks = [np.array(first)]
    if layers > 1:
        blocks += [np.array(list(combinations_with_replacement(range(count), heads)))] * (layers - 1)
    choice = np.indices([len(b) for b in blocks]).reshape(layers, -1)
    chosen = np.concatenate([b[c] for b, c in zip(blocks, choice, strict=True)], axis=1)
    return table, chosen, count ** (heads * layers)


def _first_layers(table: np.ndarray, heads: int, m: int, budget: Budget) -> list[tuple[int, ...]]:
    """The sorted heads of a first layer, one of each class under renaming rows and columns."""
    moves = list(_renamings(table, table, m, budget, both=True))
    kept = []
    for t in combinations_with_replacement(range(len(table)), heads):
        budget.look()
        if all(t <= tuple(sorted(move[i] for i in t)) for move in moves):
            kept.append(t)
    return kept


# --- exact ranks ------------------------------------------------------------------------------


def ranks(stack: np.ndarray) -> np.ndarray:
    """Ranks over the rationals of integer matrices [count, r, c], by FLINT."""
    from flint import fmpz_mat

    shape = stack.shape[1:]
    return np.array([fmpz_mat(*shape, flat).rank() for flat in stack.reshape(len(stack), -1).tolist()], dtype=np.int64)


# --- what a host must satisfy -------------------------------------------------------------------------------


def word_products(table: np.ndarray, chosen: np.ndarray, grid: Words, tied: bool) -> np.ndarray:
    """R_w [count, H^L, m, m] for rows of matrix numbers."""
    m = table.shape[1]
    products = np.broadcast_to(np.eye(m, dtype=np.int64), (len(chosen), 1, m, m))
    for layer in range(grid.layers):
        first = 0 if tied else layer * grid.heads
        values = table[chosen[:, first : first + grid.heads]]  # [count, H, m, m]
        products = (products[:, :, None] @ values[:, None]).reshape(len(chosen), -1, m, m)
    return products


def target_span(grid: Words) -> np.ndarray:
    """Vectors over the words [dimension, H^L] that the targets' (M_w)_w span: words of equal exponents agree."""
    points = grid.points()
    exponents = [grid.exponent(word) for word in grid.words()]
    return np.array([[int(e == p) for e in exponents] for p in points], dtype=np.int64)


def relations_allowed(columns: np.ndarray, span: np.ndarray) -> np.ndarray:
    """[count] whether every linear relation among the columns [count, k, H^L] holds for the targets: their span lies in
    the rows'."""
    if columns.shape[1] < len(span):  # whose dimension that is
        return np.zeros(len(columns), dtype=bool)
    both = np.concatenate([columns, np.broadcast_to(span, (len(columns), *span.shape))], axis=1)
    return ranks(columns) == ranks(both)


@dataclass(frozen=True)
class _Watched:
    """Graded reverse lexicographic order, which a Gröbner basis asks for at every step, with an eye on the budget. Equal for
    equal budgets: SymPy keeps a ring for every order that it sees."""

    budget: Budget

    def __call__(self, monomial: tuple[int, ...]) -> Any:
        self.budget.look()
        return sum(monomial), tuple(-exponent for exponent in reversed(monomial))


def solvable(products: Sequence[Any], grid: Words, budget: Budget = UNLIMITED) -> tuple[bool, bool]:
    """(solvable, rational) for E R_w U = M_w with E, U unknown, over the algebraic closure of Q(weights), by Gröbner bases.

    products: R_w as integer matrices, in the words' order. The first nonzero coordinate of E is 1 (E and U may be scaled
    against each other). `rational`: some case has a basis that is linear in each unknown once the free ones are given
    integers, so that E and U are rational functions of the weights. Raises OutOfTime.
    """
    import sympy as sp

    m, order = len(products[0]), _Watched(budget)
    weights, values = _generic_values(grid)
    domain = sp.QQ.frac_field(*weights) if weights else sp.QQ
    answer = False
    for lead in range(m):
        e = sp.symbols(f"e{lead + 1}:{m}") if lead + 1 < m else ()
        u = sp.symbols(f"u0:{m}")
        E = [0] * lead + [1, *e]
        equations = set()
        for R, value in zip(products, values, strict=True):
            total = sum(E[i] * int(R[i][j]) * u[j] for i in range(m) for j in range(m) if R[i][j])
            equations.add(sp.expand(total - value))
        if any(eq.is_number or not eq.free_symbols & {*e, *u} for eq in equations):
            continue
        basis = sp.groebner(list(equations), *e, *u, order=order, domain=domain)
        if basis.exprs == [1]:
            continue
        answer = True
        if _rational_point(basis, (*e, *u), domain, order):
            return True, True
    return answer, False


def _rational_point(basis: Any, unknowns: Sequence[Any], domain: Any, order: _Watched) -> bool:
    """Whether setting unknowns to small integers, or reading them off linear equations, reaches a point over the field
    itself."""
    import sympy as sp

    expressions = list(basis.exprs)
    for symbol in unknowns:
        linear = None
        for expression in expressions:
            poly = sp.Poly(expression, symbol)
            if expression.free_symbols & set(unknowns) == {symbol} and poly.degree() == 1:
                linear = -poly.nth(0) / poly.nth(1)
        trials = [linear] if linear is not None else [sp.Integer(k) for k in (1, 0, -1, 2, 3)]
        for trial in trials:
            reduced = [sp.cancel(x.subs(symbol, trial)) for x in expressions]
            reduced = [x for x in reduced if x != 0]
            left = [s for s in unknowns if s != symbol and any(s in x.free_symbols for x in reduced)]
            if any(not x.free_symbols & set(left) for x in reduced):
                continue
            if not reduced:
                expressions = []
                break
            again = sp.groebner([sp.numer(sp.together(x)) for x in reduced], *left, order=order, domain=domain)
            if again.exprs == [1]:
                continue
            expressions = list(again.exprs)
            break
        else:
            return False
        if not expressions:
            return True
    return not expressions


def _generic_values(grid: Words) -> tuple[list[Any], list[Any]]:
    """(weights, M_w of every word): head 0 has weight 1 in every layer, the others are unknowns (E takes up the scale)."""
    import sympy as sp

    layers = 1 if grid.tied else grid.layers
    names = [[sp.Integer(1)] + [sp.Symbol(f"t{layer}_{h}") for h in range(1, grid.heads)] for layer in range(layers)]
    values = []
    for word in grid.words():
        value = sp.Integer(1)
        for layer, head in enumerate(word):
            value *= names[0 if grid.tied else layer][head]
        values.append(value)
    return [t for row in names for t in row[1:]], values


# --- the search --------------------------------------------------------------------------------------------


@dataclass
class ExhaustiveFindings:
    """What an exhaustive run saw: hosts in all and their classes (0 where the time was over before they were listed), those
    that pass the linear test, those decided by Gröbner bases, and those that serve. `complete`: every class was decided, so
    that where `served` is zero no host of this kind serves."""

    problem: Problem
    kind: str
    hosts: int = 0
    classes: int = 0
    tried: int = 0
    linear: int = 0
    decided: int = 0
    served: int = 0
    rational: int = 0
    complete: bool = False
    first: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """found; complex (hosts serve almost all complex targets, and none was seen to serve almost all real ones); none (of
        this kind); or open."""
        if self.rational:
            return "found"
        return "open" if not self.complete else "complex" if self.served else "none"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        names = ("kind", "hosts", "classes", "linear", "decided", "served", "rational", "complete", "first", "notes")
        return {"problem": self.problem.document(), "outcome": self.verdict} | {n: getattr(self, n) for n in names}


def search_all(
    problem: Problem,
    kind: str = "all",
    *,
    seconds: float = 600.0,
    stop_at_first: bool = False,
    max_memory: int | None = None,
) -> ExhaustiveFindings:
    """Decide every {0,1} host of a kind for the problem, d_in = 1; with E free every 0/1 vector U as well.

    Raises MalformedInput for d_in > 1 and for tied hosts with untied targets; ResourceLimit where there are too many hosts.
    """
    shape = problem.shape
    if shape.d_in != 1:
        raise MalformedInput(f"exhaustive searches are made for d_in = 1, got {shape}")
    if problem.tied_host != problem.tied_targets:
        raise MalformedInput("exhaustive searches are made for untied hosts and targets, or for both tied")
    budget = Budget(time.monotonic() + seconds, max_memory)
    grid = Words(shape.heads, shape.layers, problem.tied_targets)
    found = ExhaustiveFindings(problem, kind)
    try:
        if problem.tied_host:
            transposes = problem.free == "E and U"
            hosts = tied_hosts(shape.heads, problem.m, kind, transposes=transposes, budget=budget)
        else:
            hosts = untied_hosts(shape.heads, shape.layers, problem.m, kind, budget=budget)
        found.complete = _search(found, grid, hosts, budget, stop_at_first)
    except OutOfTime:
        tried = f"after {found.tried} of {found.classes} classes" if found.classes else "while hosts were listed"
        found.notes.append(f"time spent {tried}")
    return found


def _search(
    found: ExhaustiveFindings,
    grid: Words,
    hosts: tuple[np.ndarray, np.ndarray, int],
    budget: Budget,
    stop_at_first: bool,
) -> bool:
    """Try every class; whether all were tried. Raises OutOfTime."""
    problem = found.problem
    table, chosen, found.hosts = hosts
    found.classes = len(chosen)
    span = target_span(grid)
    vectors = _zero_one_vectors(problem.m) if problem.free == "E" else None
    step = max(1, ENTRIES // (grid.heads**grid.layers * problem.m**2))
    for start in range(0, len(chosen), step):
        found.tried = start
        budget.look()
        products = word_products(table, chosen[start : start + step], grid, problem.tied_host)
        for number, U in _passing(products, span, vectors, budget):
            found.linear += 1
            found.tried = start + number
            budget.look()
            serves, rational = (True, True) if U is not None else solvable(products[number].tolist(), grid, budget)
            found.decided += 1
            found.served += serves
            found.rational += rational
            if serves and (found.first is None or (rational and not found.first["rational"])):
                host = chosen[start + number].reshape(-1, grid.heads)
                ones = [[np.argwhere(table[k]).tolist() for k in layer] for layer in host]
                found.first = {"ones_of_R_V": ones, "U": None if U is None else U.tolist(), "rational": rational}
            if rational and stop_at_first:
                found.notes.append("stopped at the first host")
                return False
    return True


def _zero_one_vectors(m: int) -> np.ndarray:
    """All nonzero 0/1 vectors [2^m - 1, m]."""
    return (np.arange(1, 1 << m)[:, None] >> np.arange(m)) & 1


def _passing(
    products: np.ndarray, span: np.ndarray, vectors: np.ndarray | None, budget: Budget
) -> Iterator[tuple[int, np.ndarray | None]]:
    """(host, U) whose columns R_w U satisfy no relation that targets do not, U None where it is free."""
    count, words = products.shape[:2]
    if vectors is None:
        columns = products.reshape(count, words, -1).transpose(0, 2, 1)
        for number in np.flatnonzero(relations_allowed(columns, span)):
            yield int(number), None
        return
    passed = []
    for k, U in enumerate(vectors):
        budget.look()
        columns = (products @ U).transpose(0, 2, 1)
        passed += [(int(number), k) for number in np.flatnonzero(relations_allowed(columns, span))]
    for host, place in sorted(passed):
        yield host, vectors[place]
