"""What hosts with gated MLPs are made of: named coordinates, products of them, heads that copy.

g(a) b - g(-a) b = a b where g(z) - g(-z) = z, so two hidden units multiply two coordinates. A host that multiplies keeps
the target's weights as constants, equal in every row: E puts them there, since X c = 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from utfproof.systems.mlp import MLP
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix, uniform


class Product(NamedTuple):
    """A block adds sign * y[left] * y[right] to y[to], gated: g(y[left]) y[right]; arrays of coordinates of one length."""

    left: np.ndarray
    right: np.ndarray
    to: np.ndarray
    sign: float = 1
    gated: bool = False


@dataclass
class Places:
    """Coordinates by name, numbered in the order in which they are first named."""

    size: int = 0
    known: dict[Hashable, np.ndarray] = field(default_factory=dict)

    def __call__(self, name: Hashable, *shape: int) -> np.ndarray:
        """The coordinates of this name, new ones of this shape if there are none."""
        if name not in self.known:
            count = prod(shape)
            self.known[name] = np.arange(self.size, self.size + count).reshape(shape)
            self.size += count
        return self.known[name]


def times(vector: np.ndarray, matrix: np.ndarray, to: np.ndarray) -> Product:
    """y[to] += y[vector] y[matrix]: [k], [k, n] and [n] coordinates."""
    return Product(np.repeat(vector.reshape(-1), matrix.shape[1]), matrix.reshape(-1), np.tile(to, matrix.shape[0]))


def scaled(source: np.ndarray, one: np.ndarray, to: np.ndarray, sign: int = 1) -> Product:
    """y[to] += sign y[source], by the coordinate `one` that is 1."""
    return Product(source.reshape(-1), np.full(source.size, one.item()), to.reshape(-1), sign)


def hidden_units(products: Iterable[Product]) -> tuple[np.ndarray, ...]:
    """(gate, factor, to, half, sign) of each hidden unit: it adds half * sign * g(half * y[gate]) * y[factor] to y[to]. A
    product has two of them, half = 1 and -1; a gated one the first."""
    rows: list[tuple[np.ndarray, ...]] = [(np.zeros(0, dtype=np.int64),) * 5]
    for left, right, to, sign, gated in products:
        halves = np.tile([1] if gated else [1, -1], len(to))
        repeated = (np.repeat(x, 1 if gated else 2) for x in (left, right, to))
        rows.append((*repeated, halves, np.full(len(halves), sign)))
    return tuple(np.concatenate(part) for part in zip(*rows, strict=True))


def multiplier(layers: Sequence[Iterable[Product]], m: int, activation: str, *, tied: bool) -> MLP:
    """The MLP whose layer l adds all products of layers[l] at once, entries 0, 1 and -1. ResourceLimit before allocating."""
    units = [hidden_units(products) for products in layers]
    width = max(len(gate) for gate, *_ in units)
    require_memory(4 * 8 * len(units) * m * width, f"MLPs of {width} hidden units at m = {m}")
    W_gate, W_in = (np.zeros((len(units), m, width), dtype=np.int64) for _ in range(2))
    W_out = np.zeros((len(units), width, m), dtype=np.int64)
    for layer, (gate, factor, to, half, sign) in enumerate(units):
        unit = np.arange(len(gate))
        W_gate[layer, gate, unit], W_in[layer, factor, unit], W_out[layer, unit, to] = half, 1, half * sign
    arrays: tuple[Any, ...] = (W_in, W_out, W_gate)
    return MLP(activation, *(array[0] if tied else array for array in arrays))


def selected(m: int, rows: np.ndarray, columns: int) -> SelectionMatrix:
    """[m, columns]: column i is the unit vector of rows[i], zero beyond them."""
    return SelectionMatrix(uniform(m, 1), uniform(columns, 1), rows, np.arange(len(rows)))


def copied(m: int, source: np.ndarray, to: np.ndarray) -> SelectionMatrix:
    """R_V [m, m] that copies y[source] to y[to]."""
    return SelectionMatrix(uniform(m, 1), uniform(m, 1), source, to)
