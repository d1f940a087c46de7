"""Targets beyond the paper's class: of any width, and with biases. Plain integers, for exact comparisons."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from utfproof.claims import plain
from utfproof.constructions.random import integer_target
from utfproof.ground.generator import integer_matrix
from utfproof.shapes import Shape
from utfproof.systems import Target


def _integers(seed: int, tensor: str, rows: int, columns: int, layer: int = 0, head: int = 0) -> np.ndarray:
    drawn = integer_matrix(seed, tensor, rows, columns, law="binomial", layer=layer, head=head)
    return np.array([int(v) % 5 - 2 for v in drawn.reshape(-1)], dtype=object).reshape(rows, columns)


def wide_target(shape: Shape, width: int, seed: int = 0) -> Target:
    """A target of this width with small integer weights, W_E [d_in, D] and W_U [D, d_in]."""
    inner = integer_target(Shape(shape.heads, shape.layers, shape.head_dim, width), seed, bound=1)
    return replace(
        inner,
        shape=shape,
        W_E=_integers(seed, "W_E", shape.d_in, width),
        W_U=_integers(seed, "W_U", width, shape.d_out),
    )


@dataclass(frozen=True)
class PlainBiasedTarget:
    """A target with biases, width D = d_in: queries X W_Q + 1 b_Q, keys X W_K + 1 b_K, layer sum_h A^h (X M^h + 1 b^h), output
    X + 1 b_U. Each bias of a head is one row; `share` is what head h carries of the constant (summing to 1 in each layer)."""

    target: Target
    b_Q: dict[tuple[int, int], list[int]]
    b_K: dict[tuple[int, int], list[int]]
    b: dict[tuple[int, int], list[int]]
    b_U: list[int]

    def share(self, head: int) -> int:
        """Sums to 1 over the heads: 2, -1, 0, 0, ... (1 for a single head)."""
        return 1 if self.target.shape.heads == 1 else {0: 2, 1: -1}.get(head, 0)

    def run(self, x: plain.Rows, attention: plain.Attention) -> plain.Rows:
        """The output [n, d_in], from the definition with biases."""
        shape, state = self.target.shape, x
        ones = [[1] for _ in x]

        def plus(matrix: plain.Rows, bias: list[int]) -> plain.Rows:
            return plain.add(matrix, plain.multiply(ones, [bias]))

        for layer in range(shape.layers):
            total = [[0] * shape.d_in for _ in x]
            for head in range(shape.heads):
                w_q, w_k, w_v, w_o = (plain.rows(part) for part in self.target.parameters(layer, head))
                queries = plus(plain.multiply(state, w_q), self.b_Q[layer, head])
                keys = plus(plain.multiply(state, w_k), self.b_K[layer, head])
                values = plus(plain.multiply(plain.multiply(state, w_v), w_o), self.b[layer, head])
                total = plain.add(total, plain.multiply(attention(queries, keys, layer + 1, head), values))
            state = total
        return plus(state, self.b_U)

    def w_all(self) -> plain.Rows:
        """W_all [d_in, M] of the augmented matrices, for inputs whose rows sum to 1."""
        shape, D = self.target.shape, self.target.shape.d_in
        start = [[*row, 1] for row in plain.identity(D)]
        prefixes: dict[tuple[int, ...], plain.Rows] = {(): start}
        for length in range(1, shape.layers + 1):
            for word in plain.words(shape.heads, length):
                prefixes[word] = plain.multiply(prefixes[word[:-1]], self._augmented(length - 1, word[-1]))
        blocks = []
        for place, bias in ((0, self.b_Q), (1, self.b_K)):
            for length in range(1, shape.layers + 1):
                for word in plain.words(shape.heads, length):
                    reader = plain.rows(self.target.parameters(length - 1, word[-1])[place])
                    blocks.append(plain.multiply(prefixes[word[:-1]], [*reader, bias[length - 1, word[-1]]]))
        output = [*plain.identity(D), self.b_U]
        blocks += [plain.multiply(prefixes[word], output) for word in plain.words(shape.heads, shape.layers)]
        return plain.beside(blocks)

    def _augmented(self, layer: int, head: int) -> plain.Rows:
        """The value form with the carried constant as last coordinate [D + 1, D + 1]."""
        _, _, w_v, w_o = (plain.rows(part) for part in self.target.parameters(layer, head))
        form = [[*row, 0] for row in plain.multiply(w_v, w_o)]
        return [*form, [*self.b[layer, head], self.share(head)]]


def biased_target(shape: Shape, seed: int = 0) -> PlainBiasedTarget:
    """A target with small integer weights and biases."""
    places = [(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]

    def rows(tensor: str, columns: int) -> dict[tuple[int, int], list[int]]:
        # streams of the tensors' own names, far from the weights' heads
        return {place: _integers(seed, tensor, 1, columns, place[0], 100 + place[1])[0].tolist() for place in places}

    d, D = shape.head_dim, shape.d_in
    last = [1000] * D  # larger than anything that could cancel it, so that X = 0 tells targets with biases apart
    return PlainBiasedTarget(integer_target(shape, seed, bound=1), rows("W_Q", d), rows("W_K", d), rows("W_O", D), last)
