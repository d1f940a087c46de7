"""Small hosts, attention maps and path sums that the claims about bounds and shared attention share."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.ground.generator import integer_matrix
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, Universal

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


class Recording:
    """The package's rational attention, keeping each matrix that it gives, by (layer from 1, head)."""

    logits_only = True

    def __init__(self) -> None:
        self.matrices: dict[tuple[int, int], plain.Rows] = {}
        self._kernel = RationalAttention()

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> np.ndarray:
        found = self._kernel(queries, keys, positions, layer=layer, head=head)
        self.matrices[layer + 1, head] = plain.rows(found)
        return found

    def as_plain(self) -> plain.Attention:
        """The same recording for `plain`'s forward passes."""

        def attention(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
            found = plain.rational_attention(queries, keys, layer, head)
            self.matrices[layer, head] = found
            return found

        return attention


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


# --- two hosts of one layer, below M (docs/proofs/fibre-dimension.md section 3) ------------------------------------


def seven_dimension_host() -> Universal:
    """(2,1,1,2) at m = 7: blocks of two for M^0 and M^1, then keys of both heads, then one query; the query of head 1
    is that of head 0 plus the first coordinate of the M^0 block."""
    m = 7

    def column(*ones: int) -> np.ndarray:
        return array([[int(i in ones)] for i in range(m)])

    def block(start: int) -> np.ndarray:
        return array([[int(j < 2 and i == start + j) for j in range(m)] for i in range(m)])

    U = array([[int(i == j) for j in range(2)] for i in range(m)])
    shape = Shape(2, 1, 1, 2)
    return Universal(shape, m, [[column(6), column(6, 0)]], [[column(4), column(5)]], [[block(0), block(2)]], U)


def seven_dimension_embedding(target: Target) -> plain.Rows | None:
    """E [2, 7] for a target at (2,1,1,2): mu q_1 - lambda q_0 = u, u the first column of M^0. None where q_0, q_1 are
    dependent or lambda or mu vanishes."""
    (q0,), (q1,) = (plain.transpose(plain.rows(target.parameters(0, h)[0])) for h in (0, 1))
    (k0,), (k1,) = (plain.transpose(plain.rows(target.parameters(0, h)[1])) for h in (0, 1))
    m0, m1 = (plain.product(target.parameters(0, h)[2:]) for h in (0, 1))
    u = [row[0] for row in m0]
    determinant = q0[0] * q1[1] - q0[1] * q1[0]
    if determinant == 0:
        return None
    # Cramer's rule for mu q_1 - lambda q_0 = u
    factor_mu = Fraction(q0[0] * u[1] - q0[1] * u[0], determinant)
    factor_lambda = Fraction(q1[0] * u[1] - q1[1] * u[0], determinant)
    if factor_mu == 0 or factor_lambda == 0:
        return None
    return [[*m0[i], *m1[i], k0[i] / factor_lambda, k1[i] / factor_mu, factor_lambda * q0[i]] for i in range(2)]


def two_dimension_host() -> Universal:
    """(1,1,1,1) at m = 2: R_Q = e_1, R_K = U = e_2, R_V = I."""
    first, second = array([[1], [0]]), array([[0], [1]])
    return Universal(Shape(1, 1, 1, 1), 2, [[first]], [[second]], [[array(plain.identity(2))]], second)


def two_dimension_embedding(a: int, b: int) -> plain.Rows:
    """E [1, 2] for the target with A = a, M = b: (a/b, b), and 0 where b = 0 (the target is zero then)."""
    return [[Fraction(a, b), b]] if b else [[0, 0]]


# --- shared attention: does (E, U) serve this target? --------------------------------------------------------------

MOST_WORDS = 8
"""Words for which `serves` runs whole forward passes; the equations are checked for all."""


def serves(model: SharedAttentionUniversal, E: Any, U: Any, target: Target) -> Agreed:
    """Whether E R_w U = M_w for every word of length L (plain Fractions, word by word), and whether the package's forward
    passes agree for the attention matrices I and B of the first words: the two must agree."""
    shape, grid, words = model.shape, values_of(model), list(plain.words(model.shape.heads, model.shape.layers))
    exact, stay, move = SharedAttentionUniversal(shape, model.m, array(grid)), plain.identity(2), [[0, 1], [0, 1]]
    x, e, u = array([range(1, shape.d_in + 1), [0] * shape.d_in]), plain.rows(E), plain.rows(U)
    slow = own = True
    for i, word in enumerate(words):
        routed = plain.product([e, *(grid[layer][head] for layer, head in enumerate(word)), u])
        slow &= routed == plain.routed(target, word)
        if i < MOST_WORDS:
            attention = array([[stay if head == letter else move for head in range(shape.heads)] for letter in word])
            ours = exact.forward(x, array(e), array(u), attention)
            own &= bool((ours == target.forward(x, GivenAttention(attention))).all())
    return agree({"plain Fractions": slow, "systems": own})
