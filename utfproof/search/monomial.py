"""Monomial hosts of the shared-attention model: E and U hold one monomial of the target's weights in each coordinate, d_in = 1.

With E_i = x^{a_i} and U_j = x^{b_j} (any integer exponents, constants apart), E R_w U is a combination of the x^{a_i +
b_j}, and different monomials are linearly independent: so every exponent e(w) of a word's product M_w is some a_i + b_j. Hence

    m >= the least max(|A|, |B|) of sets of integer vectors with A + B containing all e(w)      (the sumset problem),

whatever the matrices R_V. Real exponents gain nothing: in each connected part of the graph that joins a_i and b_j where
their sum is an e(w), one vector may be moved to zero, and then all are integers. Which pairs a host can pick for which
word is a second question (monomial_host.py): a {0,1} host is a layered graph in which every word labels exactly one path,
and along an edge of layer l, head h the potential falls by the exponent of M^{l,h}.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from math import exp, factorial, isqrt, log2

import numpy as np

from utfproof.errors import ResourceLimit
from utfproof.ground.progress import stage
from utfproof.ground.resources import require_memory
from utfproof.search.budget import UNLIMITED, Budget, OutOfBudget
from utfproof.shapes import positive_integer

Vector = tuple[int, ...]
"""An exponent vector: L·H entries for untied targets (layer by layer), H for tied ones."""
Word = tuple[int, ...]

BASE = 1 << 12
MOST_WORDS = 4096
MOST_EXPONENTS = 1 << 20
"""Entries of all words' exponent vectors together."""
MOST_ENTRIES = 1 << 23
"""Of a table of symmetries; (H!)^L L! of them are soon too many to list."""
NUMBER = 150
"""Bytes of an entry of a dict from packed vectors to counts, about."""


# --- the grid ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MonomialGrid:
    """The exponents e(w) of the words of a shape; `tied`: the layers share their weights, so that words of equal counts
    agree."""

    heads: int
    layers: int
    tied: bool = False

    def __post_init__(self) -> None:
        positive_integer("heads", self.heads)
        positive_integer("layers", self.layers)
        if self.layers > MOST_WORDS or self.layers * log2(self.heads) > log2(MOST_WORDS):
            raise ResourceLimit(f"{self.heads}^{self.layers} words; this search takes at most {MOST_WORDS}")
        if (entries := self.heads**self.layers * self.width) > MOST_EXPONENTS:
            raise ResourceLimit(f"{entries} exponents of all words; this search takes at most {MOST_EXPONENTS}")

    @property
    def width(self) -> int:
        """Entries of an exponent vector."""
        return self.heads * (1 if self.tied else self.layers)

    def letter(self, layer: int, head: int) -> Vector:
        """Exponent of M^{l,h}; layer and head count from 0."""
        place = head if self.tied else layer * self.heads + head
        return tuple(int(k == place) for k in range(self.width))

    def words(self) -> list[tuple[int, ...]]:
        """All words of length L in lexicographic order."""
        return list(product(range(self.heads), repeat=self.layers))

    def exponent(self, word: Sequence[int]) -> Vector:
        """Exponent of M_w of a word, or of its beginning."""
        total = [0] * self.width
        for layer, head in enumerate(word):
            total[head if self.tied else layer * self.heads + head] += 1
        return tuple(total)

    def points(self) -> list[Vector]:
        """The different exponents, sorted."""
        return sorted({self.exponent(word) for word in self.words()})

    def symmetries(self, budget: Budget = UNLIMITED) -> np.ndarray:
        """Permutations of the points [group, points] by renaming heads (layer by layer where untied) and exchanging layers.

        All of them where the table has at most MOST_ENTRIES, else those of the largest subgroup from `_subgroups` whose table
        has: any group leaves the search right, with a smaller one it only tries more starts.
        """
        points = self.points()
        power, moved = (1, 1) if self.tied else (self.layers, self.layers)
        kinds = [
            (heads**power * layers, h, k)
            for h, heads in enumerate(_orders(self.heads))
            for k, layers in enumerate(_orders(moved))
        ]
        size, h, k = max(kind for kind in kinds if kind[0] * len(points) <= MOST_ENTRIES)
        require_memory(3 * 8 * size * len(points), f"a table of {size} symmetries", budget.memory)
        rows = self._moved(_subgroup(self.heads, h), _subgroup(moved, k), points)
        table = np.empty((size, len(points)), dtype=np.int64)
        for place, row in enumerate(rows):
            budget.look()
            table[place] = row
        return table

    def _moved(
        self, renamings: list[Word], orders: list[Word], points: list[Vector]
    ) -> Iterator[Sequence[int] | np.ndarray]:
        """The points' numbers after each renaming and exchange."""
        number = {point: i for i, point in enumerate(points)}
        if self.tied:
            yield from ([number[tuple(p[h] for h in r)] for p in points] for r in renamings)
            return
        H, L = self.heads, self.layers
        letters = np.array([[p[layer * H : (layer + 1) * H].index(1) for layer in range(L)] for p in points])
        place = H ** np.arange(L - 1, -1, -1)
        by_place = np.empty(H**L, dtype=np.int64)
        by_place[letters @ place] = np.arange(len(points))
        for order in orders:
            moved = letters[:, order]
            for chosen in product(renamings, repeat=L):
                table = np.array(chosen)
                yield by_place[table[np.arange(L), moved] @ place]


def _orders(count: int) -> tuple[int, int, int]:
    """Of the groups of `_subgroup`."""
    return factorial(count), count, 1


def _subgroup(count: int, kind: int) -> list[Word]:
    """Permutations of 0 ... count - 1: all of them, the rotations, or none but the identity."""
    if kind == 0:
        return list(permutations(range(count)))
    return [tuple((i + k) % count for i in range(count)) for k in range(count if kind == 1 else 1)]


def pack(vector: Sequence[int]) -> int:
    """One integer for a vector; sums of vectors are sums of integers while entries stay below BASE/2."""
    total = 0
    for value in reversed(vector):
        total = total * BASE + value
    return total


def unpack(number: int, width: int) -> Vector:
    """The vector of a packed integer."""
    out = []
    for _ in range(width):
        digit = (number + BASE // 2) % BASE - BASE // 2
        out.append(digit)
        number = (number - digit) // BASE
    return tuple(out)


def is_sumset(grid: MonomialGrid, A: Iterable[Vector], B: Iterable[Vector]) -> bool:
    """Whether A + B contains every exponent of the grid: plain tuples, no packing."""
    few, many = sorted((set(A), set(B)), key=len)
    return all(any(tuple(x - y for x, y in zip(p, a, strict=True)) in many for a in few) for p in grid.points())


# --- exhaustive search -------------------------------------------------------------------------------------


@dataclass
class FitOutcome:
    """Of one size m: `sets` (A, B) found, or none; `complete`: then there are none at all, else the budget ran out."""

    m: int
    sets: tuple[list[Vector], list[Vector]] | None
    complete: bool
    nodes: int
    seconds: float
    method: str
    starts: int = 0
    note: str = ""

    @property
    def verdict(self) -> str:
        """found, none (proved) or open."""
        return "found" if self.sets is not None else "none" if self.complete else "open"


class _Found(Exception):
    pass


@dataclass
class _Search:
    """Branch and bound for |A|, |B| <= m, over vertices: the one that covers most new words is taken or forbidden.

    `cap` is the largest number of words that any single vertex covers, the first b (at zero) covering exactly as many; `far`
    is farther than any two vertices of one part are from each other.
    """

    points: list[int]
    m: int
    cap: int
    nodes: int
    most_nodes: int
    budget: Budget
    far: int
    component: int = 0
    found: tuple[list[int], list[int]] | None = None
    everything: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.everything = frozenset(self.points)

    def run(self, A: list[int], B: list[int], uncovered: frozenset[int], banned: frozenset[tuple[int, int]]) -> None:
        """Raise _Found with self.found set, or return when there is no solution that contains A, B and avoids `banned`."""
        while True:
            self.nodes += 1
            if self.nodes > self.most_nodes:
                raise OutOfBudget("budget spent")
            if not uncovered:
                self.found = (A, B)
                raise _Found
            more_a, more_b = self.m - len(A), self.m - len(B)
            gain_a = self._gains(B, uncovered, 0, banned) if more_a else {}
            gain_b = self._gains(A, uncovered, 1, banned) if more_b else {}
            # a new b gains what the present A gives it and at most one word with each new a; nobody exceeds the cap
            bound = sum(min(g + more_a, self.cap) for g in _largest(gain_b, more_b))
            bound += sum(min(g, self.cap) for g in _largest(gain_a, more_a))
            if bound < len(uncovered):
                return
            best = max([(g, 0, v) for v, g in gain_a.items()] + [(g, 1, v) for v, g in gain_b.items()], default=None)
            if best is None:
                if not (more_a and more_b) or more_a * more_b < len(uncovered):
                    return
                # no vertex that is left touches A or B in an uncovered word: a part of its own, moved far away
                self.component += 1
                far = self.component * self.far
                word = min(uncovered)
                self.run([*A, far], [*B, word - far], uncovered - {word}, banned)
                return
            _, side, vertex = best
            other = B if side == 0 else A
            covered = {vertex + v for v in other} & self.everything
            if len(covered) <= self.cap:
                remaining = uncovered - covered
                if side == 0:
                    self.run([*A, vertex], B, remaining, banned)
                else:
                    self.run(A, [*B, vertex], remaining, banned)
            banned = banned | {(side, vertex)}

    def _gains(
        self, others: list[int], uncovered: frozenset[int], side: int, banned: frozenset[tuple[int, int]]
    ) -> dict[int, int]:
        gains: dict[int, int] = {}
        if len(others) * len(uncovered) > 1 << 16:
            self.budget.weigh(NUMBER * len(others) * len(uncovered))
        for other in others:
            self.budget.look()
            for word in uncovered:
                vertex = word - other
                gains[vertex] = gains.get(vertex, 0) + 1
        for kind, vertex in banned:
            if kind == side:
                gains.pop(vertex, None)
        return gains


def _largest(gains: dict[int, int], count: int) -> list[int]:
    """The `count` largest gains, zeros where there are fewer."""
    values = sorted(gains.values(), reverse=True)[:count]
    return values + [0] * (count - len(values))


def _subsets(packed: list[int], group: np.ndarray, cap: int, m: int, budget: Budget) -> list[tuple[int, ...]]:
    """One `cap`-subset of the points from each orbit of the group [group, points], without those that are seen on the way to be
    too small a start."""
    bits = np.array([1 << i for i in range(len(packed))], dtype=object if len(packed) > 64 else np.uint64)
    images = bits[group]
    present: list[tuple[int, ...]] = [()]
    for _ in range(cap):
        seen: dict[int, tuple[int, ...]] = {}
        for subset in present:
            for point in range(len(packed)):
                if point in subset:
                    continue
                budget.look()
                candidate = (*subset, point)
                key = int(images[:, candidate].sum(axis=1).min())
                if key not in seen:
                    seen[key] = candidate
                    if len(seen) % 1024 == 0:
                        budget.weigh()
        present = [subset for subset in seen.values() if _may_extend(packed, subset, m, cap, budget)]
    return present


def _may_extend(packed: list[int], subset: tuple[int, ...], m: int, cap: int, budget: Budget) -> bool:
    """Whether translates of a set of m vectors that contains this one may still cover all points: each of the m - 1 further b
    gains at most the words that it has with `subset` and one for each vector to come, and never more than the cap."""
    gains: dict[int, int] = {}
    for i in subset:
        budget.look()
        for word in packed:
            gains[word - packed[i]] = gains.get(word - packed[i], 0) + 1
    gains.pop(0, None)
    missing = m - len(subset)
    return cap + sum(min(g + missing, cap) for g in _largest(gains, m - 1)) >= len(packed)


def exhaust(
    grid: MonomialGrid, m: int, *, most_nodes: int = 10**7, seconds: float = 600.0, max_memory: int | None = None
) -> FitOutcome:
    """Whether |A|, |B| <= m with A + B containing the grid exist: sets, a proof that there are none (complete), or open.

    The b with the most words (exchange A and B if it is an a) is moved to zero; A then contains exactly that many points of the
    grid, one set from each orbit of the grid's symmetries is tried, and branch and bound completes it.
    """
    m = positive_integer("m", m)
    began, budget = time.monotonic(), Budget.lasting(seconds, max_memory)
    points = grid.points()
    packed = [pack(p) for p in points]
    nodes = starts = 0

    def outcome(found: tuple[list[int], list[int]] | None, complete: bool, note: str = "") -> FitOutcome:
        sets = None if found is None else _readable(grid, *found)
        return FitOutcome(m, sets, complete, nodes, time.monotonic() - began, "branch and bound", starts, note)

    if m * m < len(points):
        return outcome(None, True, "m^2 is below the number of exponents")
    if m >= len(points):
        return outcome((packed, [0]), True)
    least = -(-len(points) // m)
    try:
        group = grid.symmetries(budget)
        for cap in range(m, least - 1, -1):
            for subset in _subsets(packed, group, cap, m, budget):
                starts += 1
                chosen = [packed[i] for i in subset]
                search = _Search(packed, m, cap, nodes, most_nodes, budget, _far(grid))
                banned = frozenset((0, p) for p in packed if p not in chosen)
                try:
                    search.run(chosen, [0], frozenset(packed) - set(chosen), banned)
                except _Found:
                    nodes = search.nodes
                    return outcome(search.found, True)
                finally:
                    nodes = search.nodes
    except OutOfBudget as spent:
        return outcome(None, False, str(spent))
    except RecursionError:  # one call for each vector of A and B: some hundreds of them
        return outcome(None, False, "too deep")
    return outcome(None, True)


def _far(grid: MonomialGrid) -> int:
    """A packed vector beyond all that vertices of one part have between them."""
    far: int = BASE ** max(40, grid.width + 2)
    return far


def _readable(grid: MonomialGrid, A: list[int], B: list[int]) -> tuple[list[Vector], list[Vector]]:
    """Vectors of packed sets; parts that were moved far away come back to a place of their own, and the sum is checked."""
    width, far = grid.width, _far(grid)

    def near(value: int) -> Vector:
        part = (value + far // 2) // far
        return unpack(value - part * far, width)

    left, right = [near(a) for a in A], [near(b) for b in B]
    if not is_sumset(grid, left, right):
        raise AssertionError("the sets that were found do not cover the grid")
    return left, right


def least_sumset(
    grid: MonomialGrid, *, most_nodes: int = 10**7, seconds: float = 600.0, max_memory: int | None = None
) -> tuple[int | None, list[FitOutcome]]:
    """(least m, outcomes for m = ceil(sqrt(points)), ...) in increasing m up to the first find, or, with None in place of the
    least m, up to the first that is open."""
    m = isqrt(len(grid.points()) - 1) + 1
    outcomes: list[FitOutcome] = []
    while not outcomes or outcomes[-1].verdict == "none":
        with stage(f"branch and bound, m = {m}", expected=lambda: seconds):
            outcomes.append(exhaust(grid, m, most_nodes=most_nodes, seconds=seconds, max_memory=max_memory))
        m += 1
    return (outcomes[-1].m if outcomes[-1].sets is not None else None), outcomes


# --- local search ------------------------------------------------------------------------------------------


def anneal(
    grid: MonomialGrid, m: int, *, seed: int = 0, steps: int = 100_000, restarts: int = 10, budget: Budget = UNLIMITED
) -> FitOutcome:
    """Sets found by moving one vector at a time, so that fewer exponents are missing; never a proof that there are none.

    Start points are drawn from `seed` (restart by restart), steps counted over all restarts. A vector is moved to where it
    covers some exponent, mostly a missing one, with a vector of the other side. Where the budget ends first, the note says so.
    """
    m, steps, restarts = (
        positive_integer("m", m),
        positive_integer("steps", steps),
        positive_integer("restarts", restarts),
    )
    require_memory(240 * steps, f"local search with {steps} steps", budget.memory)
    began = time.monotonic()
    packed = [pack(p) for p in grid.points()]
    best, done, tried, spent = len(packed), 0, 0, ""
    with stage(f"local search, m = {m}", restarts, unit="starts") as doing:
        try:
            for restart in range(restarts):
                walk = _Walk(packed, m, np.random.default_rng([seed, restart]))
                tried = restart + 1
                try:
                    walk.run(steps, budget)
                finally:
                    done += walk.done
                    best = min(best, walk.cost)
                if not walk.cost:
                    sets = _readable(grid, *walk.sides)
                    return FitOutcome(m, sets, False, done, time.monotonic() - began, "local search", tried)
                doing.advance()
        except OutOfBudget as ended:
            spent = f"{ended}, "
    note = f"{spent}best: {best} of {len(packed)} exponents missing"
    return FitOutcome(m, None, False, done, time.monotonic() - began, "local search", tried, note)


class _Walk:
    """One start of the local search: two sides of m packed vectors, how often their sums cover each exponent, and how many
    (`cost`) they miss."""

    def __init__(self, packed: list[int], m: int, rng: np.random.Generator) -> None:
        self.packed, self.m, self.rng = packed, m, rng
        self.number = {p: i for i, p in enumerate(packed)}
        self.sides = [[packed[k] - packed[0] for k in rng.integers(len(packed), size=m)]]
        self.sides.append([packed[k] for k in rng.integers(len(packed), size=m)])
        self.cost, self.done = len(packed), 0

    def run(self, steps: int, budget: Budget) -> None:
        """Walk until nothing is missing, or so many steps."""
        number, packed, count = self.number, self.packed, [0] * len(self.packed)
        for a in self.sides[0]:
            budget.look()
            for b in self.sides[1]:
                if (i := number.get(a + b)) is not None:
                    count[i] += 1
        self.cost = count.count(0)
        choices = self.rng.integers(2**31, size=(steps, 4)).tolist()
        chances = self.rng.random(steps).tolist()
        for step in range(steps):
            if not self.cost:
                return
            budget.look()
            self.done += 1
            side, place, partner, pick = choices[step]
            mine, other = self.sides[side % 2], self.sides[1 - side % 2]
            place %= self.m
            # a missing exponent near a random position of the cyclic list; every eighth step any exponent
            word = pick % len(packed)
            if step % 8:
                while count[word]:
                    word = (word + 1) % len(packed)
            old, new = mine[place], packed[word] - other[partner % self.m]
            before = [i for v in other if (i := number.get(old + v)) is not None]
            after = [i for v in other if (i := number.get(new + v)) is not None]
            change = _exchange(count, before, after)
            if change <= 0 or chances[step] < exp(-change / (0.25 + 0.5 * (1 - step / steps))):
                mine[place] = new
                self.cost += change
            else:
                _exchange(count, after, before)


def _exchange(count: list[int], before: list[int], after: list[int]) -> int:
    """Cover the exponents `after` in place of `before`; how many more are missing then."""
    change = 0
    for i in before:
        count[i] -= 1
        change += not count[i]
    for i in after:
        change -= not count[i]
        count[i] += 1
    return change
