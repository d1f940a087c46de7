"""R_all with one symbol per parameter entry: its entries as polynomials, and where they are multilinear.

Symbols are numbered R_Q, R_K, R_V, U, each in index order ([L, H, m, d] and so on; tied hosts have no layer axis).
Sums over coordinate paths, entry by entry; at drawn values the product of layers must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.symbolic.words import RoutesDisagree
from utfproof.ground.generator import integer_matrix
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
POINTS = 3
ROUTES = ("coordinate paths", "layers, at drawn points")


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

    def drawn(self) -> Iterator[list[int]]:
        """Values of 32 bits for all entries, at `POINTS` points: different polynomials differ at one of them."""
        for seed in range(POINTS):
            yield [int(v) for v in integer_matrix(seed, "W_E", 1, self.size, law="uniform").reshape(-1)]

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
    """R_all [m, M] with symbols for entries. `entries[row][column]` maps monomials to coefficients; `routes` agreed on
    all of them."""

    layout: Layout
    entries: list[list[Entry]]
    routes: tuple[str, ...] = ROUTES

    @property
    def terms(self) -> int:
        """Monomials of all entries together."""
        return sum(len(entry) for row in self.entries for entry in row)

    def at(self, values: Sequence[int]) -> list[list[int]]:
        """R_all [m, M] at one value per symbol."""
        return [
            [sum(c * prod(values[i] for i in monomial) for monomial, c in entry.items()) for entry in row]
            for row in self.entries
        ]


def generic_terms(shape: Shape, m: int) -> int:
    """Monomials of all entries of R_all, before like ones are collected: a column of degree k has m^{k-1} an entry."""
    H, d, L = shape.heads, shape.head_dim, shape.layers
    readers = sum(2 * d * H**layer * m ** (layer - 1) for layer in range(1, L + 1))
    return m * (readers + shape.d_out * H**L * m**L)


def generic_r_all(shape: Shape, m: int | None = None, *, tied: bool = False) -> GenericMatrix:
    """R_all [m, M] of a host with indeterminate parameters, in canonical column order; m defaults to M.

    Raises ResourceLimit when it would have too many terms, RoutesDisagree when the two routes differ.
    """
    if shape.layers > 16 or matching_dimension(shape) > 10_000:
        raise ResourceLimit(f"R_all in symbols at {shape} is far too large; choose a smaller shape")
    size = matching_dimension(shape) if m is None else positive_integer("m", m)
    layout, terms = Layout(shape, size, tied), generic_terms(shape, size)
    if terms > MOST_TERMS:
        shown = str(terms) if terms < 10**12 else f"about 2^{(terms * terms).bit_length() // 2}"
        raise ResourceLimit(
            f"R_all in symbols at {shape}, m = {size}, has {shown} terms, the limit is {MOST_TERMS}; choose a smaller shape"
        )
    found = GenericMatrix(layout, _by_paths(layout))
    for values in layout.drawn():
        if found.at(values) != _by_layers(layout, values):
            raise RoutesDisagree(f"R_all in symbols at {shape}, m = {size}: coordinate paths and layers differ")
    return found


def _by_layers(layout: Layout, values: Sequence[int]) -> list[list[int]]:
    """R_all [m, M] at these values, from the last layer on: S_l = [R_Q^l, R_K^l, R_V^{l,h} S_{l+1} for each h], columns
    keyed by (kind, word, coordinate)."""
    tensors, start = {}, 0
    for name, extent in layout.blocks:
        tensors[name] = np.array(values[start : start + prod(extent)], dtype=object).reshape(extent)
        start += prod(extent)
    shape = layout.shape
    current = {Column("OV", (), j): tensors["U"][:, j] for j in range(shape.d_out)}
    for layer in reversed(range(shape.layers)):
        longer: dict[Column, np.ndarray] = {}
        for head in range(shape.heads):
            place = (head,) if layout.tied else (layer, head)
            for kind, j in itertools.product(("Q", "K"), range(shape.head_dim)):
                longer[Column(kind, (head,), j)] = tensors["R_" + kind][place][:, j]
            for key, column in current.items():
                longer[key._replace(word=(head, *key.word))] = tensors["R_V"][place] @ column
        current = longer
    return np.stack([current[column_at(shape, j)] for j in range(matching_dimension(shape))], axis=1).tolist()


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
    """Whether every entry of R_all has degree at most 1 in every single parameter. Where it fails: a monomial with a repeated
    factor, of the first such entry in canonical column order, then by row."""

    holds: bool
    highest: int
    monomial: str = ""
    routes: tuple[str, ...] = ROUTES


def multilinearity(generic: GenericMatrix) -> Multilinearity:
    """Degree of each entry of R_all in each single parameter, by counting letters of monomials.

    The paper calls the entries multilinear (proof of thm:random-R): true untied; tied it fails from L = 2 on.
    """
    layout, highest, repeated = generic.layout, 0, ""
    for column in range(matching_dimension(layout.shape)):
        for row in range(layout.m):
            entry = generic.entries[row][column]
            counted = max((max(map(monomial.count, monomial)) for monomial in entry), default=0)
            highest = max(highest, counted)
            if counted > 1 and not repeated:
                names = layout.names()
                worst = min(monomial for monomial in entry if len(set(monomial)) < len(monomial))
                powers = {i: worst.count(i) for i in worst}
                repeated = " ".join(names[i] + (f"^{power}" if power > 1 else "") for i, power in powers.items())
    return Multilinearity(not repeated, highest, repeated)
