"""Small hosts, attention maps and path sums that the claims about bounds and shared attention share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal
from utfproof.systems.biases import BiasedTarget
from utfproof.util.generator import integer_matrix

Grid = list[list[plain.Rows]]
"""Matrices by layer, then head."""


def drawn(seed: int, rows: int, columns: int, *, layer: int = 0, head: int = 0, bound: int = 2) -> plain.Rows:
    """A matrix of integers in -bound ... bound from the seeded generator."""
    numbers = integer_matrix(seed, "R_V", rows, columns, law="uniform", layer=layer, head=head)
    return [[int(v) // 2 % (2 * bound + 1) - bound for v in row] for row in numbers]


def value_grid(shape: Shape, m: int, seed: int = 0, *, tied: bool = False) -> Grid:
    """R_V [L][H] of m x m integers; the same in every layer if tied."""
    return [
        [drawn(seed, m, m, layer=0 if tied else layer, head=head) for head in range(shape.heads)]
        for layer in range(shape.layers)
    ]


def stochastic_grid(shape: Shape, context: int, seed: int = 0) -> Grid:
    """Row-stochastic n x n matrices of positive Fractions, one for each layer and head."""
    out: Grid = []
    for layer in range(shape.layers):
        out.append([])
        for head in range(shape.heads):
            weights = integer_matrix(seed, "X", context, context, law="uniform", layer=layer, head=head)
            positive = [[int(v) // 2 % 5 + 1 for v in row] for row in weights]
            out[-1].append([[Fraction(v, sum(row)) for v in row] for row in positive])
    return out


def path_sum(grid: Grid, attention: Grid, x: plain.Rows, E: plain.Rows, U: plain.Rows) -> plain.Rows:
    """The sum over head words of A^{L,h_L} ... A^{1,h_1} X E R_w U, word by word in plain Fractions."""
    heads, total = len(grid[0]), None
    for word in plain.words(heads, len(grid)):
        state = plain.multiply(x, E)
        for layer, head in enumerate(word):
            state = plain.multiply(plain.multiply(attention[layer][head], state), grid[layer][head])
        term = plain.multiply(state, U)
        total = term if total is None else plain.add(total, term)
    assert total is not None
    return total


def values_of(model: SharedAttentionUniversal) -> Grid:
    """R_V [L][H] of a shared-attention host, as plain matrices."""
    return [
        [plain.rows(model.value(layer, head)) for head in range(model.shape.heads)]
        for layer in range(model.shape.layers)
    ]


def array(matrix: Any) -> np.ndarray:
    """Nested lists as an object array."""
    return np.array(matrix, dtype=object)


# --- attention maps that depend on logits and positions alone, over the rationals ---------------------------------


def _map(
    score: Callable[[Any, int, int], Any] = lambda s, distance, head: s,
    kept: Callable[[int], bool] = lambda distance: True,
) -> plain.Attention:
    """Rows proportional to 1 + s + s^2, s a score of q k^T, the distance i - j and the head, where the distance is kept."""

    def attention(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        logits = plain.multiply(queries, plain.transpose(keys))
        weights = [
            [plain.weight(Fraction(score(s, i - j, head))) * kept(i - j) for j, s in enumerate(row)]
            for i, row in enumerate(logits)
        ]
        return [[weight / sum(row) for weight in row] for row in weights]

    return attention


LOGIT_MAPS: dict[str, plain.Attention] = {
    "causal": _map(kept=lambda distance: distance >= 0),
    "window": _map(kept=lambda distance: abs(distance) < 2),
    "scale": _map(lambda s, distance, head: Fraction(s) / 3),
    "bias": _map(lambda s, distance, head: s - Fraction(abs(distance), head + 1)),
}


# --- targets with biases, and their inputs ------------------------------------------------------------------------

BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U")


def both(entry: Sequence[int], **options: Any) -> Iterator[Shape]:
    """The shape without and with a residual stream."""
    for residual in (False, True):
        yield Shape(*entry, residual=residual, **options)


def biased_target(shape: Shape, width: int, seed: int = 0, *, positions: int = 0) -> BiasedTarget:
    """Odd weights and biases, none of them zero; the last `positions` inputs are positions, and the constant counts tokens."""
    lead, d = (shape.layers, shape.heads), shape.head_dim
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(("W_Q", "W_K", "W_V"), (*lead, width, d))
    sizes |= {"W_O": (*lead, d, width), "W_E": (shape.d_in, width), "W_U": (width, shape.d_out)}
    sizes |= dict.fromkeys(("b_Q", "b_K", "b_V"), (*lead, d))
    sizes |= {"b_O": (shape.layers, width), "b_E": (width,), "b_U": (shape.d_out,)}

    def integers(code: int, *size: int) -> np.ndarray:
        numbers = integer_matrix(seed, "W_E", 1, int(np.prod(size)), law="binomial", layer=code, head=7)
        return array([int(v) % 5 - 2 for v in numbers.reshape(-1)]).reshape(size)

    arrays = {name: 2 * integers(code, *size) + 1 for code, (name, size) in enumerate(sizes.items())}
    return BiasedTarget(shape, **arrays, constant=array([1] * (shape.d_in - positions) + [0] * positions))


def one_hots(tokens: Sequence[int], inputs: int, positions: int = 0) -> plain.Rows:
    """X for these tokens, each with the one-hot of its place beside it where there are positions."""
    return [
        [int(j == token) for j in range(inputs - positions)] + [int(j == i) for j in range(positions)]
        for i, token in enumerate(tokens)
    ]
