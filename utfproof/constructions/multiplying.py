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
    """A block adds sign * y[left] * y[right] to y[to]; arrays of coordinates of one length."""

    left: np.ndarray
    right: np.ndarray
    to: np.ndarray
    sign: int = 1


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


def multiplier(layers: Sequence[Iterable[Product]], m: int, activation: str, *, tied: bool) -> MLP:
    """The MLP whose layer l adds all products of layers[l] at once: two hidden units a product, entries 0, 1 and -1.
    ResourceLimit before allocating."""
    none = np.zeros(0, dtype=np.int64)
    joined = [
        [np.concatenate(part) for part in zip(*map(_rows, [*products, Product(none, none, none)]), strict=True)]
        for products in layers
    ]
    width = 2 * max(len(rows[0]) for rows in joined)
    require_memory(4 * 8 * len(joined) * m * width, f"MLPs of {width} hidden units at m = {m}")
    W_gate, W_in = (np.zeros((len(joined), m, width), dtype=np.int64) for _ in range(2))
    W_out = np.zeros((len(joined), width, m), dtype=np.int64)
    for layer, (left, right, to, sign) in enumerate(joined):
        first = 2 * np.arange(len(left))
        for units, half in ((first, 1), (first + 1, -1)):
            W_gate[layer, left, units] = half
            W_in[layer, right, units] = 1
            W_out[layer, units, to] = half * sign
    arrays: tuple[Any, ...] = (W_in, W_out, W_gate)
    return MLP(activation, *(array[0] if tied else array for array in arrays))


def _rows(product: Product) -> tuple[np.ndarray, ...]:
    return product.left, product.right, product.to, np.full(len(product.to), product.sign)


def selected(m: int, rows: np.ndarray, columns: int) -> SelectionMatrix:
    """[m, columns]: column i is the unit vector of rows[i], zero beyond them."""
    return SelectionMatrix(uniform(m, 1), uniform(columns, 1), rows, np.arange(len(rows)))


def copied(m: int, source: np.ndarray, to: np.ndarray) -> SelectionMatrix:
    """R_V [m, m] that copies y[source] to y[to]."""
    return SelectionMatrix(uniform(m, 1), uniform(m, 1), source, to)
