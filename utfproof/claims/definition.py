"""Models from their definitions in plain Python: residual streams, biases and norms.

The second route of the claims about residual streams, trained models and normalisation. Words are over the heads
0 ... H-1; with a residual stream over 0 ... H, letter 0 for the stream and h + 1 for head h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.claims.decisions import dense
from utfproof.claims.small_models import array
from utfproof.constructions.normalised import Norm
from utfproof.ground.generator import integer_matrix
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget

BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U")


def both(entry: Sequence[int], **options: Any) -> Iterator[Shape]:
    """The shape without and with a residual stream."""
    for residual in (False, True):
        yield Shape(*entry, residual=residual, **options)


def maps(system: Any, layer: int, head: int) -> list[plain.Rows]:
    """Query, key and the factors of the value: W_V and W_O of a target, R_V or its factors of a host."""
    if isinstance(system, BiasedTarget):
        system = system.without_biases()
    if isinstance(system, Target):
        return [plain.rows(matrix) for matrix in system.parameters(layer, head)]
    found = system.maps(layer, head)
    return [plain.rows(matrix) for matrix in (found.query, found.key, *found.value)]


def value(system: Any, layer: int, head: int) -> plain.Rows:
    """M^{l,h} of a target, R_V^{l,h} of a host."""
    return plain.product(maps(system, layer, head)[2:])


def ends(system: Any) -> tuple[plain.Rows, plain.Rows]:
    """W_E and W_U of a target, I [m, m] and U of a host."""
    if isinstance(system, BiasedTarget):
        system = system.without_biases()
    if isinstance(system, Target):
        return plain.rows(system.embedding()), plain.rows(system.unembedding())
    return plain.identity(system.m), plain.rows(system.U)


def states(system: Any) -> list[list[plain.Rows]]:
    """What the words of each length 0 ... L make of the start, words in lexicographic order."""
    found = [[ends(system)[0]]]
    for layer in range(system.shape.layers):
        moves = [value(system, layer, head) for head in range(system.shape.heads)]
        found.append([])
        for state in found[-2]:
            found[-1] += [state] if system.shape.residual else []
            found[-1] += [plain.multiply(state, move) for move in moves]
    return found


def equations(system: Any) -> plain.Rows:
    """R_all of a host, W_all of a target: Q and K by prefix and reading head, then outputs by word."""
    reached, shape = states(system), system.shape
    blocks = [
        plain.multiply(state, maps(system, layer, head)[kind])
        for kind in (0, 1)
        for layer in range(shape.layers)
        for state in reached[layer]
        for head in range(shape.heads)
    ]
    return plain.beside([*blocks, *(plain.multiply(state, ends(system)[1]) for state in reached[-1])])


# --- forward passes ------------------------------------------------------------------------------------------------


def balls(matrix: plain.Rows) -> plain.Rows:
    """Rationals as FLINT's balls; zeros stay integers, so that products skip them."""
    return [[_ball(v) if v else 0 for v in row] for row in matrix]


def _ball(value: Any) -> Any:
    return value if isinstance(value, arb) else arb(fmpq(value.numerator, value.denominator))


def run(
    system: Any,
    x: plain.Rows,
    E: plain.Rows | None = None,
    attention: plain.Attention = plain.rational_attention,
    *,
    norm: Norm | None = None,
    place: str = "pre",
) -> plain.Rows:
    """The outputs of a target for X, of a host for X and E. norm: at `place`, and all numbers are balls of 300 bits then."""
    with ctx.workprec(300):
        lift = balls if norm is not None else plain.rows

        def plus(matrix: plain.Rows, name: str, *at: int) -> plain.Rows:
            if not isinstance(system, BiasedTarget):
                return matrix
            return [[v + b for v, b in zip(row, system.bias(name)[at], strict=True)] for row in matrix]

        def normalised(rows: plain.Rows, here: str) -> plain.Rows:
            return rows if norm is None or place != here else [_normalised(row, norm) for row in rows]

        start, output = ends(system)
        state = plus(plain.multiply(lift(x), lift(start if E is None else E)), "b_E")
        for layer in range(system.shape.layers):
            inner = normalised(state, "pre")
            after = state if system.shape.residual else [[0] * len(row) for row in state]
            for head in range(system.shape.heads):
                query, key, *values = (lift(matrix) for matrix in maps(system, layer, head))
                queries, keys = (
                    plus(plain.multiply(inner, matrix), name, layer, head)
                    for matrix, name in ((query, "b_Q"), (key, "b_K"))
                )
                term = plus(plain.multiply(inner, values[0]), "b_V", layer, head)
                term = plain.multiply(lift(attention(queries, keys, layer + 1, head)), term)
                after = plain.add(after, plain.multiply(term, values[1]) if values[1:] else term)
            state = normalised(plus(after, "b_O", layer), "post")
        return plus(plain.multiply(normalised(state, "final"), lift(output)), "b_U")


def _normalised(row: list[Any], norm: Norm) -> list[Any]:
    mean = sum(row, arb(0)) / len(row) if norm.kind == "layer" else 0
    centred = [v - mean for v in row]
    square = sum((v * v for v in centred), arb(0)) / len(row) + _ball(norm.eps)
    return [v / square.sqrt() for v in centred]


def given(grid: Any) -> plain.Attention:
    """Attention matrices from outside, [L][H][n][n]."""
    return lambda queries, keys, layer, head: grid[layer - 1][head]


class Watching:
    """An attention of `plain` for the package's forward passes, or as it is; keeps the queries and keys that it was shown."""

    logits_only = row_stochastic = True

    def __init__(self, attention: plain.Attention) -> None:
        self._attention = attention
        self.seen: list[Any] = []

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> np.ndarray:
        return array(self.plain(plain.rows(queries), plain.rows(keys), layer + 1, head))

    def plain(self, queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        """The same for `run`."""
        self.seen += [queries, keys]
        return self._attention(queries, keys, layer, head)


def matches(host: Universal, E: Any, target: Target) -> Agreed:
    """Whether E R_all = W_all: the package's matrices, and those of the definition."""
    own = bool((E @ dense(r_all(host)) == w_all(target)).all())
    slow = plain.multiply(plain.rows(E), equations(host)) == equations(target)
    return agree({"package": own, "plain Fractions": slow})


def carries(host: Universal, E: Any, target: Target | BiasedTarget, x: plain.Rows) -> Agreed:
    """Whether E R_all = W_all, and host and target give the same outputs for X: the package's, and the definitions. A target
    with biases is matched with them absorbed, and run with them."""
    held = target.augmented() if isinstance(target, BiasedTarget) else target
    truth = run(target, x)
    own = plain.rows(host.forward(array(x), E, RationalAttention())) == truth
    same = agree({"package": own, "plain Fractions": run(host, x, plain.rows(E)) == truth})
    found = matches(host, E, held)
    return Agreed(found.value and same.value, found.routes)


# --- targets -------------------------------------------------------------------------------------------------------


def drawn(seed: int, code: int, *size: int) -> np.ndarray:
    """An object array of integers in -2 ... 2; different codes give different numbers."""
    numbers = integer_matrix(seed, "W_E", 1, int(np.prod(size)), law="binomial", layer=code, head=7)
    return array([int(v) % 5 - 2 for v in numbers.reshape(-1)]).reshape(size)


def biased_target(shape: Shape, width: int, seed: int = 0, *, positions: int = 0) -> BiasedTarget:
    """Odd weights and biases, none of them zero; the last `positions` inputs are positions, and the constant counts tokens."""
    lead, d = (shape.layers, shape.heads), shape.head_dim
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(("W_Q", "W_K", "W_V"), (*lead, width, d))
    sizes |= {"W_O": (*lead, d, width), "W_E": (shape.d_in, width), "W_U": (width, shape.d_out)}
    sizes |= dict.fromkeys(("b_Q", "b_K", "b_V"), (*lead, d))
    sizes |= {"b_O": (shape.layers, width), "b_E": (width,), "b_U": (shape.d_out,)}
    arrays = {name: 2 * drawn(seed, code, *size) + 1 for code, (name, size) in enumerate(sizes.items())}
    return BiasedTarget(shape, **arrays, constant=array([1] * (shape.d_in - positions) + [0] * positions))


def one_hots(tokens: Sequence[int], inputs: int, positions: int = 0) -> plain.Rows:
    """X for these tokens, each with the one-hot of its place beside it where there are positions."""
    return [
        [int(j == token) for j in range(inputs - positions)] + [int(j == i) for j in range(positions)]
        for i, token in enumerate(tokens)
    ]
