"""R_all with one symbol per parameter entry: its entries as polynomials, and where they are multilinear.

Symbols are numbered R_Q, R_K, R_V, U, each in index order ([L, H, m, d] and so on; tied hosts have no layer axis).
Two routes: SymPy's polynomial ring, layer by layer from the last; and plain sums over coordinate paths, entry by entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.symbolic.results import ROUTES, RoutesDisagree
from utfproof.shapes import (
    Column,
    Shape,
    column_at,
    column_groups,
    matching_dimension,
    positive_integer,
    require_plain,
    word_at,
)

Monomial = tuple[int, ...]
"""Symbol numbers in ascending order, with repetition: (3, 3, 7) is x_3^2 x_7."""
Entry = dict[Monomial, int]

MOST_TERMS = 100_000
MOST_EXPONENTS = 25_000_000
"""Terms times symbols: SymPy keeps one exponent per symbol in every term."""


@dataclass(frozen=True)
class Layout:
    """Names and numbers of the parameter entries of a host at this shape and m."""

    shape: Shape
    m: int
    tied: bool

    def __post_init__(self) -> None:
        require_plain(self.shape, "the generic R_all")

    @property
    def blocks(self) -> list[tuple[str, tuple[int, ...]]]:
        """(tensor, its shape), in order."""
        lead = (self.shape.heads,) if self.tied else (self.shape.layers, self.shape.heads)
        m, d = self.m, self.shape.head_dim
        tensors = [("R_Q", (*lead, m, d)), ("R_K", (*lead, m, d)), ("R_V", (*lead, m, m))]
        return [*tensors, ("U", (m, self.shape.d_out))]

    @property
    def size(self) -> int:
        """How many parameter entries there are."""
        return sum(prod(extent) for _, extent in self.blocks)

    def number(self, tensor: str, *index: int) -> int:
        """The symbol of an entry; layer (from 0) and head first, the layer ignored when tied."""
        start = 0
        for name, extent in self.blocks:
            if name == tensor:
                place = index[1:] if self.tied and tensor != "U" else index
                offset = 0
                for i, length in zip(place, extent, strict=True):
                    offset = offset * length + i
                return start + offset
            start += prod(extent)
        raise MalformedInput(f"{tensor!r} is no tensor of a host")

    def names(self) -> tuple[str, ...]:
        """A name such as R_V[0,1][2,3] (tied: R_V[1][2,3]) for every symbol."""
        out = []
        for tensor, extent in self.blocks:
            for index in itertools.product(*map(range, extent)):
                head, entry = ",".join(map(str, index[:-2])), ",".join(map(str, index[-2:]))
                out.append(f"{tensor}[{head}][{entry}]" if head else f"{tensor}[{entry}]")
        return tuple(out)


@dataclass(frozen=True)
class GenericMatrix:
    """R_all [m, M] with symbols for entries. `entries[row][column]` maps monomials to coefficients; `ring_entries` are
    the same in SymPy's polynomial ring; `routes` agreed on all of them."""

    layout: Layout
    entries: list[list[Entry]]
    ring_entries: list[list[Any]]
    routes: tuple[str, ...] = ROUTES

    @property
    def terms(self) -> int:
        """Monomials of all entries together."""
        return sum(len(entry) for row in self.entries for entry in row)

    def values(self, R_Q: Any, R_K: Any, R_V: Any, U: Any) -> list[int]:
        """Integer parameters as one value per symbol. MalformedInput naming the tensor whose shape does not fit."""
        out: list[int] = []
        for (name, extent), array in zip(self.layout.blocks, (R_Q, R_K, R_V, U), strict=True):
            found = np.asarray(array, dtype=object)
            if found.shape != extent:
                raise MalformedInput(f"{name} has shape {list(found.shape)}, expected {list(extent)}")
            out.extend(int(x) for x in found.reshape(-1))
        return out

    def evaluate(self, R_Q: Any, R_K: Any, R_V: Any, U: Any) -> list[list[int]]:
        """R_all [m, M] at integer parameters (or exact ones that are integers)."""
        values = self.values(R_Q, R_K, R_V, U)
        return [[evaluate(entry, values) for entry in row] for row in self.entries]


def evaluate(entry: Entry, values: Sequence[int]) -> int:
    """A polynomial at integer values of the symbols."""
    return sum(c * prod(values[i] for i in monomial) for monomial, c in entry.items())


def generic_terms(shape: Shape, m: int) -> int:
    """Monomials of all entries of R_all, before like ones are collected: a column of degree k has m^{k-1} an entry."""
    H, d, L = shape.heads, shape.head_dim, shape.layers
    readers = sum(2 * d * H**layer * m ** (layer - 1) for layer in range(1, L + 1))
    return m * (readers + shape.d_out * H**L * m**L)


def generic_r_all(shape: Shape, m: int | None = None, *, tied: bool = False) -> GenericMatrix:
    """R_all [m, M] of a host with indeterminate parameters, in canonical column order; m defaults to M.

    Raises ResourceLimit when it would have too many terms, RoutesDisagree when the two routes differ.
    """
    require_small(shape)
    size = matching_dimension(shape) if m is None else positive_integer("m", m)
    layout = Layout(shape, size, tied)
    require_terms(generic_terms(shape, size), layout.size, f"R_all in symbols at {shape}, m = {size},")
    plain = _by_paths(layout)
    ring_entries = _by_layers(layout)
    for row in range(size):
        for column, entry in enumerate(plain[row]):
            if from_ring(ring_entries[row][column]) != entry:
                raise RoutesDisagree(f"R_all in symbols: SymPy and plain integers differ at entry ({row}, {column})")
    return GenericMatrix(layout, plain, ring_entries)


def require_small(shape: Shape) -> None:
    """ResourceLimit for shapes whose term counts need not even be computed."""
    if shape.layers > 16 or matching_dimension(shape) > 10_000:
        raise ResourceLimit(f"R_all in symbols at {shape} is far too large; choose a smaller shape")


def require_terms(terms: int, symbols: int, what: str) -> None:
    """ResourceLimit when a polynomial computation of this many terms is too large."""
    if terms > MOST_TERMS or terms * symbols > MOST_EXPONENTS:
        shown = str(terms) if terms < 10**12 else f"about 2^{(terms * terms).bit_length() // 2}"
        raise ResourceLimit(
            f"{what} has {shown} terms in {symbols} symbols, the limit is {MOST_TERMS} terms and {MOST_EXPONENTS} "
            "exponents; choose a smaller shape, or restrict to a line"
        )


def from_ring(polynomial: Any) -> Entry:
    """A polynomial of SymPy's ring as a dict of monomials."""
    out = {}
    for exponents, coefficient in polynomial.items():  # .terms() would sort them
        if coefficient:
            present = itertools.compress(itertools.count(), exponents)  # few of a thousand symbols
            out[tuple(i for i in present for _ in range(exponents[i]))] = int(coefficient)
    return out


def symbol_ring(layout: Layout) -> tuple[Any, tuple[Any, ...]]:
    """SymPy's polynomial ring over the integers with a generator per parameter entry."""
    from sympy import ZZ
    from sympy.polys.rings import PolyRing

    ring = PolyRing([f"x{i}" for i in range(layout.size)], ZZ)
    return ring, ring.gens


def _by_layers(layout: Layout) -> list[list[Any]]:
    """SymPy: S_l = [R_Q^l, R_K^l, R_V^{l,h} S_{l+1} for each h], columns keyed by (kind, word, coordinate)."""
    ring, symbols = symbol_ring(layout)
    shape, m = layout.shape, layout.m

    def matrix(tensor: str, columns: int, *lead: int) -> list[list[Any]]:
        return [[symbols[layout.number(tensor, *lead, i, j)] for j in range(columns)] for i in range(m)]

    def column(table: list[list[Any]], j: int) -> list[Any]:
        return [row[j] for row in table]

    output = matrix("U", shape.d_out)
    current: dict[Column, list[Any]] = {Column("OV", (), j): column(output, j) for j in range(shape.d_out)}
    for layer in reversed(range(shape.layers)):
        longer: dict[Column, list[Any]] = {}
        for head in range(shape.heads):
            for kind in ("Q", "K"):
                reader = matrix("R_" + kind, shape.head_dim, layer, head)
                for j in range(shape.head_dim):
                    longer[Column(kind, (head,), j)] = column(reader, j)
            value = matrix("R_V", m, layer, head)
            for key, entries in current.items():
                moved = []
                for row in value:
                    total = ring.zero
                    for a, b in zip(row, entries, strict=True):
                        total = total + a * b
                    moved.append(total)
                longer[key._replace(word=(head, *key.word))] = moved
        current = longer
    order = [column_at(shape, j) for j in range(matching_dimension(shape))]
    return [[current[key][row] for key in order] for row in range(m)]


def _by_paths(layout: Layout) -> list[list[Entry]]:
    """Plain: entry (i, column) is the sum over coordinate paths i -> ... of the product of the entries passed."""
    shape, m = layout.shape, layout.m
    rows: list[list[Entry]] = [[] for _ in range(m)]
    for group in column_groups(shape):
        steps = group.length if group.kind == "OV" else group.length - 1
        for place, coordinate in itertools.product(range(group.words), range(group.width)):
            word = word_at(place, group.length, shape.heads)
            for row in range(m):
                entry: Entry = {}
                for path in itertools.product(range(m), repeat=steps):
                    stops = (row, *path)
                    factors = [layout.number("R_V", t, word[t], stops[t], stops[t + 1]) for t in range(steps)]
                    if group.kind == "OV":
                        factors.append(layout.number("U", stops[-1], coordinate))
                    else:
                        factors.append(layout.number("R_" + group.kind, steps, word[-1], stops[-1], coordinate))
                    monomial = tuple(sorted(factors))
                    entry[monomial] = entry.get(monomial, 0) + 1
                rows[row].append(entry)
    return rows


# --- multilinearity ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Multilinearity:
    """Whether every entry of R_all has degree at most 1 in every single parameter. Where it fails: the first entry in
    canonical column order (then by row), the column it is in, and a monomial with a repeated factor."""

    holds: bool
    highest: int
    entry: tuple[int, int] | None = None
    column: Column | None = None
    monomial: str = ""
    routes: tuple[str, ...] = ROUTES


def multilinearity(generic: GenericMatrix) -> Multilinearity:
    """Degree of each entry of R_all in each single parameter: by SymPy's degrees, and by counting letters of monomials.

    The paper calls the entries multilinear (proof of thm:random-R): true untied; tied it fails from L = 2 on.
    """
    layout, names = generic.layout, generic.layout.names()
    highest, first, repeated = 0, None, ""
    for column in range(matching_dimension(layout.shape)):
        for row in range(layout.m):
            entry = generic.entries[row][column]
            counted = max((max(map(monomial.count, monomial)) for monomial in entry), default=0)
            degrees = generic.ring_entries[row][column].degrees()
            if max(degrees, default=0) != counted:
                raise RoutesDisagree(f"degrees of entry ({row}, {column}): SymPy {max(degrees)}, counted {counted}")
            highest = max(highest, counted)
            if counted > 1 and first is None:
                first = row, column
                worst = min(monomial for monomial in entry if len(set(monomial)) < len(monomial))
                powers = {i: worst.count(i) for i in worst}
                repeated = " ".join(names[i] + (f"^{power}" if power > 1 else "") for i, power in powers.items())
    if first is None:
        return Multilinearity(True, highest)
    return Multilinearity(False, highest, first, column_at(layout.shape, first[1]), repeated)
