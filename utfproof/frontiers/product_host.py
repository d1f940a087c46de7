"""d_in = 1, all targets, by attention-matching with S + H^L dimensions: every form is a product of two readers of shared
coordinates, and products of readers take all values (docs/proofs/sharper-frontier.md, Theorem E).

The coordinates of a word w of length l - 1 are z_1 M_w ... z_H M_w, where (z_1 ... z_H) solves q_h(z) k_h(z) = A^{l,h} for all
heads h; those of the outputs are M_w, |w| = L. At H = 1 there is one word of each length, and the layers take the heads'
place. Hosts and forms are integers; z has square roots and roots of quartics in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

from utfproof.constructions.tied import register_pairs, trie_pairs
from utfproof.errors import NotDefined
from utfproof.ground.arrays import Array
from utfproof.shapes import Shape
from utfproof.systems import Target, TiedUniversal, Universal, prefix_products

PAIR = (((1, -1), (1, 1)), ((1, 0), (0, 1)))
"""(x - y)(x + y) and x y: the readers (q, k) of two heads."""
TRIPLE = (((1, 0, 0), (1, -2, 0)), ((0, 1, 0), (1, 1, 1)), ((0, 0, 1), (0, 2, 1)))
"""x (x - 2y), y (x + y + z) and z (2y + z)."""


def defined(shape: Shape) -> bool:
    """d_in = d_out = 1 without a residual stream, and two heads or two layers."""
    return shape.d_in == shape.d_out == 1 and not shape.residual and shape.heads * shape.layers > 1


def dimension(shape: Shape) -> int:
    """S + H^L."""
    return shape.word_count + shape.leaves


def reader_matrices(count: int) -> tuple[np.ndarray, np.ndarray]:
    """q and k [count, count], a reader in each row: pairs, and a triple where count >= 2 is odd."""
    if count < 2:
        raise NotDefined("products of readers of one coordinate have one sign; two heads or layers, please")
    q, k = np.zeros((2, count, count), dtype=object)
    start = 0
    while start < count:
        block = TRIPLE if count - start == 3 else PAIR
        for i, (left, right) in enumerate(block):
            q[start + i, start : start + len(block)] = left
            k[start + i, start : start + len(block)] = right
        start += len(block)
    return q, k


def solve_products(values: Sequence[float]) -> np.ndarray:
    """z [count] with q_i(z) k_i(z) = values[i], in floats."""
    found: list[float] = []
    while len(found) < len(values):
        rest = values[len(found) :]
        found += _triple(*rest) if len(rest) == 3 else _pair(*rest[:2])
    return _polished(np.array(found), np.array(values, dtype=float))


def _polished(z: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A few steps of Newton's method, the last one kept that came nearer: square roots near 0 have lost half the digits."""
    q, k = (matrix.astype(float) for matrix in reader_matrices(len(z)))
    best, error = z, float("inf")
    for _ in range(4):
        missed = (q @ z) * (k @ z) - values
        if np.abs(missed).max() >= error:
            break
        best, error = z, np.abs(missed).max()
        slopes = (k @ z)[:, None] * q + (q @ z)[:, None] * k
        z = z - np.linalg.lstsq(slopes, missed, rcond=None)[0]
    return best


def _pair(a: float, b: float) -> list[float]:
    """(x - y)(x + y) = a and x y = b: x + iy is a square root of a + 2ib."""
    root = complex(np.sqrt(complex(a, 2 * b)))
    return [root.real, root.imag]


def _triple(a: float, b: float, c: float) -> list[float]:
    """x (x - 2y) = a, y (x + y + z) = b, z (2y + z) = c. With t = y^2, u = xy - t and w = yz + t these say u^2 = t^2 + at,
    w^2 = t^2 + ct and u + w = b - t: a quartic in t, at most 0 where the smaller square vanishes, and positive far out."""
    low = max(0.0, -a, -c)
    if b == 0 and low == 0:
        return [sqrt(a), 0.0, sqrt(c)]

    def quartic(t: float) -> float:
        return float(4 * t * t * (t + a) * (t + c) - (t * t + (2 * b + a + c) * t - b * b) ** 2)

    high = max(low, 1.0)
    while quartic(high) <= 0:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if quartic(middle) > 0 else (middle, high)
    t, y = high, sqrt(high)
    u, w = sqrt(max(t * t + a * t, 0.0)), sqrt(max(t * t + c * t, 0.0))
    _, u, w = min((abs(s * u + r * w - b + t), s * u, r * w) for s in (1, -1) for r in (1, -1))
    return [(t + u) / y, y, (w - t) / y]


def product_host(shape: Shape) -> Universal:
    """The host: tied for H >= 2, untied for H = 1. NotDefined outside its shapes."""
    if not defined(shape):
        raise NotDefined(f"hosts by products of readers are for d_in = d_out = 1, no stream, H L >= 2, not {shape}")
    m, H, d = dimension(shape), shape.heads, shape.head_dim
    U = np.zeros((m, 1), dtype=object)
    q, k = reader_matrices(H if H > 1 else shape.layers)

    def reads(rows: np.ndarray, i: int) -> np.ndarray:
        out = np.zeros((m, d), dtype=object)
        out[: len(rows), 0] = rows[i]
        return out

    if H == 1:
        U[m - 1] = 1
        stay = np.eye(m, dtype=int).astype(object)
        layers = range(shape.layers)
        return Universal(
            shape, m, [[reads(q, t)] for t in layers], [[reads(k, t)] for t in layers], [[stay]] * len(layers), U
        )
    tries = shape.word_count
    U[tries] = 1
    values = []
    for head in range(H):
        value = np.zeros((m, m), dtype=object)
        value[trie_pairs(shape, head, 1, shape.layers)] = 1
        rows, columns = register_pairs(shape, head)
        value[tries + rows, tries + columns] = 1
        values.append(value)
    heads = range(H)
    return TiedUniversal(shape, m, [reads(q, h) for h in heads], [reads(k, h) for h in heads], values, U)


def embed(target: Target, solve: Callable[[Sequence[Any]], Array] = solve_products) -> Array:
    """E [1, m] for any target of d_in = d_out = 1, to the precision of `solve`."""
    shape = target.shape
    forms = [[target.attention_form(t, h)[0, 0] for h in range(shape.heads)] for t in range(shape.layers)]
    words = [prefix_products(target, t).reshape(-1) for t in range(shape.layers + 1)]
    if shape.heads == 1:
        z = solve([forms[t][0] * words[t][0] ** 2 for t in range(shape.layers)])
        return np.array([[*z, words[-1][0]]])
    tries = [z * value for t in range(shape.layers) for value, z in product(words[t], solve(forms[t]))]
    return np.array([[*tries, *words[-1]]])
