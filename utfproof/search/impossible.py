"""Impossibility at small sizes: a polynomial system without solutions, and cofactors that show it.

SymPy decides (a Gröbner basis modulo a prime, {1} or not: a guide); the cofactors come from linear algebra over the products
q f_i of equations and monomials up to a degree (a Macaulay matrix), modulo a prime to see which are needed and exactly for
those. nullstellensatz.py checks the result with nothing of this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, lcm
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.resources import require_memory
from utfproof.search import nullstellensatz as ns
from utfproof.search.derivation import DERIVATIONS

MEANING = {
    "looped-two-layers": (2, 2, 2, "direct"),
    "looped-two-layers-normal-form": (2, 2, 2, "after the reductions of the written proof"),
    "looped-three-layers": (2, 3, 2, "direct"),
}
"""(H, L, m) of a system, and how it was obtained: no looped host of m dimensions serves almost all looped targets, d_in =
1, both E and U free."""
MOST_MONOMIALS = 2_000_000
LONG_ROW = 24
"""Unknowns in a row from which on a dense solver is quicker."""


@dataclass(frozen=True)
class Attempt:
    """One degree: size of the Macaulay matrix (products q f_i, monomials), and whether 1 is in its span modulo the prime."""

    degree: int
    products: int
    monomials: int
    spanned: bool
    seconds: float


@dataclass(frozen=True)
class Impossibility:
    """What was found: the certificate, checked, or none within the budget."""

    system: str
    document: dict[str, Any] | None
    attempts: tuple[Attempt, ...]
    seconds: float
    prime: int

    @property
    def certified(self) -> bool:
        """Whether there is a certificate (it has passed the check)."""
        return self.document is not None

    def summary(self) -> dict[str, Any]:
        """For JSON: everything but the certificate itself."""
        H, L, m, how = MEANING[self.system]
        names, equations = ns.SYSTEMS[self.system]()
        cofactors = [] if self.document is None else self.document["cofactors"]
        return {
            "search": "impossible",
            "system": self.system,
            "problem": {
                "heads": H,
                "layers": L,
                "d_in": 1,
                "m": m,
                "free": "E and U",
                "targets": "all tied",
                "host": "tied",
            },
            "says": f"no tied host of {m} dimensions serves almost all tied targets at ({H},{L}), d_in = 1, "
            f"E and U free ({how})",
            "outcome": "certified" if self.certified else "open",
            "variables": len(names),
            "equations": len(equations),
            "terms": sum(len(c) for c in cofactors),
            "largest_degree": max((sum(p[1] for p in t[1]) for c in cofactors for t in c), default=None),
            "prime": self.prime,
            "method": "derivation" if self.certified and not self.attempts else "linear algebra",
            "attempts": [
                {
                    "degree": a.degree,
                    "products": a.products,
                    "monomials": a.monomials,
                    "spanned": a.spanned,
                    "seconds": round(a.seconds, 3),
                }
                for a in self.attempts
            ],
            "seconds": round(self.seconds, 3),
        }


def gradings(equations: Sequence[ns.Polynomial]) -> list[tuple[int, ...]]:
    """Independent integer weights of the variables for which every equation is homogeneous; a cofactor may be taken homogeneous
    of the opposite weight."""
    from flint import fmpz_mat

    width = len(next(iter(equations[0])))
    rows = []
    for equation in equations:
        first, *others = equation
        rows += [[a - b for a, b in zip(first, other, strict=True)] for other in others]
    kernel, rank = fmpz_mat(rows or [[0] * width]).nullspace()
    return [tuple(int(kernel[i, j]) for i in range(width)) for j in range(int(rank))]


def _weight(weights: Sequence[tuple[int, ...]], monomial: ns.Monomial) -> tuple[int, ...]:
    return tuple(sum(w * e for w, e in zip(weight, monomial, strict=True)) for weight in weights)


def monomials(
    width: int, degree: int, weights: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], ns.Monomial]]:
    """(weight, monomial) of every monomial up to this degree."""
    exponents = [0] * width

    def run(place: int, left: int, weight: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ns.Monomial]]:
        if place == width:
            yield weight, tuple(exponents)
            return
        step = tuple(w[place] for w in weights)
        for power in range(left + 1):
            exponents[place] = power
            yield from run(place + 1, left - power, weight)
            weight = tuple(a + b for a, b in zip(weight, step, strict=True))
        exponents[place] = 0

    yield from run(0, degree, (0,) * len(weights))


def _products(
    equations: Sequence[ns.Polynomial], degree: int, weights: Sequence[tuple[int, ...]]
) -> list[tuple[int, ns.Monomial]]:
    """(equation, monomial q) with q f_i up to this degree and of weight zero, by degree of the product."""
    width = len(next(iter(equations[0])))
    degrees = [max(sum(m) for m in e) for e in equations]
    wanted: dict[tuple[int, ...], list[int]] = {}
    for i, equation in enumerate(equations):
        weight = _weight(weights, next(iter(equation)))
        wanted.setdefault(tuple(-w for w in weight), []).append(i)
    out = []
    for weight, monomial in monomials(width, degree - min(degrees), weights):
        for i in wanted.get(weight, ()):
            if sum(monomial) + degrees[i] <= degree:
                out.append((sum(monomial) + degrees[i], i, monomial))
    out.sort()
    return [(i, monomial) for _, i, monomial in out]


def certify(
    system: str,
    *,
    degrees: Sequence[int] | None = None,
    most_degree: int | None = None,
    prime: int = 67_108_859,
    max_memory: int | None = None,
    seconds: float = 600.0,
) -> Impossibility:
    """Cofactors for a named system: those of a written proof where it is written as a computation here (`DERIVATIONS`)
    and no degrees are asked for, else over rising degrees of the products q f_i.

    Raises MalformedInput for an unknown system and ResourceLimit where the first degree's matrix is beyond memory; stops
    without a certificate after the last degree or past the time.
    """
    if system not in ns.SYSTEMS:
        raise MalformedInput(f"no system {system!r}; choose {', '.join(ns.SYSTEMS)}")
    names, equations = ns.SYSTEMS[system]()
    began = time.monotonic()
    if system in DERIVATIONS and degrees is None and most_degree is None:
        document = _checked(system, DERIVATIONS[system]())
        return Impossibility(system, document, (), time.monotonic() - began, prime)
    weights = gradings(equations)
    least = max(max(sum(m) for m in e) for e in equations)
    attempts: list[Attempt] = []
    for degree in degrees if degrees is not None else range(least, (most_degree or least + 20) + 1):
        if time.monotonic() - began > seconds:
            break
        start = time.monotonic()
        try:
            if comb(len(names) + degree, degree) > MOST_MONOMIALS:
                raise ResourceLimit(
                    f"more than {MOST_MONOMIALS} monomials of degree {degree} in {len(names)} variables"
                )
            found, products, columns = _attempt(equations, degree, weights, prime, max_memory)
        except ResourceLimit:
            if not attempts:
                raise
            break
        attempts.append(Attempt(degree, products, columns, found is not None, time.monotonic() - start))
        if found is not None:
            document = _checked(system, found)
            return Impossibility(system, document, tuple(attempts), time.monotonic() - began, prime)
    return Impossibility(system, None, tuple(attempts), time.monotonic() - began, prime)


def _checked(system: str, cofactors: Sequence[ns.Polynomial]) -> dict[str, Any]:
    """The certificate, after its check."""
    document = ns.document(system, cofactors)
    valid, why = ns.check(document)
    if not valid:
        raise AssertionError(why)
    return document


def _attempt(
    equations: Sequence[ns.Polynomial],
    degree: int,
    weights: Sequence[tuple[int, ...]],
    prime: int,
    max_memory: int | None,
) -> tuple[list[ns.Polynomial] | None, int, int]:
    """(cofactors or None, products, monomials) of one degree."""
    width = len(next(iter(equations[0])))
    products = _products(equations, degree, weights)
    integral = []
    for equation in equations:
        denominator = lcm(*(v.denominator for v in equation.values()))
        integral.append([(m, int(v * denominator)) for m, v in equation.items()])
    place: dict[ns.Monomial, int] = {(0,) * width: 0}
    rows: list[dict[int, int]] = [{}]
    for number, (i, q) in enumerate(products):
        for monomial, value in integral[i]:
            moved = tuple(a + b for a, b in zip(monomial, q, strict=True))
            row = place.setdefault(moved, len(place))
            if row == len(rows):
                rows.append({})
            if value % prime:
                rows[row][number] = value % prime
    require_memory(400 * sum(len(row) for row in rows), f"degree {degree}", max_memory)
    used = _sparse_support(rows, prime, max_memory)
    if used is None:
        return None, len(products), len(place)
    chosen = [products[k] for k in sorted(used)]
    return _exactly(equations, integral, chosen, prime), len(products), len(place)


def _sparse_support(rows: list[dict[int, int]], prime: int, max_memory: int | None) -> list[int] | None:
    """Unknowns with nonzero value in one solution modulo the prime of: row 0 times x = 1, the other rows times x = 0; None
    if there is none.

    Short rows are used up first (a row with one or two unknowns removes one at no cost); what is left, once rows are long,
    is solved as a dense system.
    """
    right = {0: 1}
    found = _short_rows_used(rows, right, prime)
    if found is None:
        return None
    solved, left = found
    x = _solved_densely(rows, right, left, prime, max_memory)
    if x is None:
        return None
    for pivot, row, value in reversed(solved):
        total = value - sum(v * x.get(unknown, 0) for unknown, v in row.items() if unknown != pivot)
        x[pivot] = total * pow(row[pivot], -1, prime) % prime
    return [unknown for unknown, value in x.items() if value]


def _short_rows_used(
    rows: list[dict[int, int]], right: dict[int, int], prime: int
) -> tuple[list[tuple[int, dict[int, int], int]], list[int]] | None:
    """Eliminate by rows of at most LONG_ROW unknowns, in place, right-hand sides too: (pivot, row, side) of each that was
    used, and the numbers of those that are left; None where a row says 0 = 1."""
    import heapq

    holders: dict[int, set[int]] = {}
    for number, row in enumerate(rows):
        for unknown in row:
            holders.setdefault(unknown, set()).add(number)
    heap = [(len(row), number) for number, row in enumerate(rows)]
    heapq.heapify(heap)
    active = set(range(len(rows)))
    solved: list[tuple[int, dict[int, int], int]] = []
    while heap:
        length, number = heapq.heappop(heap)
        row = rows[number]
        if number not in active or length != len(row):
            continue
        if not row:
            if right.get(number, 0):
                return None
            active.discard(number)
            continue
        if length > LONG_ROW:
            break
        pivot = min(row, key=lambda unknown: len(holders[unknown]))
        active.discard(number)
        for unknown in row:
            holders[unknown].discard(number)
        solved.append((pivot, row, right.get(number, 0)))
        inverse = pow(row[pivot], -1, prime)
        for other in holders.pop(pivot):
            theirs = rows[other]
            factor = theirs.pop(pivot) * inverse % prime
            _subtract(theirs, factor, row, pivot, prime, holders, other)
            if right.get(number, 0):
                right[other] = (right.get(other, 0) - factor * right[number]) % prime
            heapq.heappush(heap, (len(theirs), other))
    return solved, sorted(active)


def _subtract(
    theirs: dict[int, int],
    factor: int,
    row: dict[int, int],
    pivot: int,
    prime: int,
    holders: dict[int, set[int]],
    other: int,
) -> None:
    """theirs -= factor row but for the pivot, in place; holders: the rows that hold an unknown, theirs under `other`."""
    for unknown, value in row.items():
        if unknown == pivot:
            continue
        new = (theirs.get(unknown, 0) - factor * value) % prime
        if new:
            theirs[unknown] = new
            holders[unknown].add(other)
        elif unknown in theirs:
            del theirs[unknown]
            holders[unknown].discard(other)


def _solved_densely(
    rows: list[dict[int, int]], right: dict[int, int], left: list[int], prime: int, max_memory: int | None
) -> dict[int, int] | None:
    """A solution of the rows of these numbers, unknown -> residue; None if there is none."""
    from utfproof.exact import gfp

    if not left:
        return {}
    unknowns = sorted({unknown for number in left for unknown in rows[number]})
    column = {unknown: k for k, unknown in enumerate(unknowns)}
    require_memory(40 * len(left) * len(unknowns), f"{len(left)} equations in {len(unknowns)} unknowns", max_memory)
    table, side = np.zeros((len(left), len(unknowns))), np.zeros((len(left), 1))
    for k, number in enumerate(left):
        side[k, 0] = right.get(number, 0)
        for unknown, value in rows[number].items():
            table[k, column[unknown]] = value
    solution = gfp.solve(gfp.centred(table, prime), gfp.centred(side, prime), prime)
    if solution is None:
        return None
    return {unknown: int(v) % prime for unknown, v in zip(unknowns, np.asarray(solution)[:, 0], strict=True)}


def _exactly(
    equations: Sequence[ns.Polynomial],
    integral: Sequence[Sequence[tuple[ns.Monomial, int]]],
    chosen: Sequence[tuple[int, ns.Monomial]],
    prime: int,
) -> list[ns.Polynomial] | None:
    """Cofactors over the rationals from the products that are needed modulo the prime; None where the prime misled."""
    from flint import fmpz_mat

    from utfproof.exact.lifting import relation

    width = len(next(iter(equations[0])))
    place: dict[ns.Monomial, int] = {(0,) * width: 0}
    columns: list[dict[int, int]] = []
    for i, q in chosen:
        column = {}
        for monomial, value in integral[i]:
            moved = tuple(a + b for a, b in zip(monomial, q, strict=True))
            column[place.setdefault(moved, len(place))] = value
        columns.append(column)
    columns.append({0: -1})
    flat = [0] * (len(place) * len(columns))
    for j, column in enumerate(columns):
        for i, value in column.items():
            flat[i * len(columns) + j] = value
    z = relation(fmpz_mat(len(place), len(columns), flat), "a combination of the equations", prime)
    if z is None or not z[-1]:
        return None
    cofactors: list[ns.Polynomial] = [{} for _ in equations]
    for (i, q), value in zip(chosen, z, strict=False):
        denominator = lcm(*(v.denominator for v in equations[i].values()))
        if value:
            cofactors[i][q] = Fraction(value * denominator, z[-1])
    return cofactors
