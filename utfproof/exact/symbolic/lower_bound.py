"""The two lemmas of the paper's lower bound (thm:lower_bound_utf), in exact integers.

Spanning lemma: attention matrices I and B make each head word's attention product visible alone. Null-vector lemma:
m x m value matrices with m^2 < H^L satisfy a linear relation over head words that some target breaks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact import rational
from utfproof.exact.symbolic.words import RoutesDisagree
from utfproof.ground.arrays import exact
from utfproof.shapes import Word, head_words, positive_integer, word_at, word_index

Matrix = list[list[int]]

STAY: Matrix = [[1, 0], [0, 1]]
MOVE: Matrix = [[0, 1], [0, 1]]
"""The lemma's I and B: row-stochastic, and any product with a factor B is B."""
ORDERS = ("lemma", "unrolling")
"""A_{1,h_1} ... A_{L,h_L} as the lemma multiplies, A^{L,h_L} ... A^{1,h_1} as the layers do."""
MOST_WORDS = 1_024
MOST_VECTORS = 256


def _word_count(heads: int, layers: int) -> int:
    positive_integer("heads", heads), positive_integer("layers", layers)
    if (heads > 1 and layers * (heads.bit_length() - 1) > MOST_WORDS.bit_length()) or heads**layers > MOST_WORDS:
        raise ResourceLimit(f"{heads}^{layers} head words exceed the limit of {MOST_WORDS}; choose a smaller shape")
    return int(heads**layers)


def _product(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


# --- spanning ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spanning:
    """The vectors v^(s), s in [H]^L, and whether each is the basis vector e_s. `rank`: of all of them (FLINT).
    `difference`: the first s, h where v^(s)_h is not 1[h = s]."""

    holds: bool
    order: str
    vectors: int
    rank: int
    difference: str
    routes: tuple[str, ...] = ("NumPy", "plain integers")


def spanning(heads: int, layers: int, *, order: str = "lemma") -> Spanning:
    """The spanning lemma: with A^{(s)}_{i,h} = I where h = s_i and B elsewhere, v^{(s)}_h = (product over h)_{1,1} = 1[h = s].

    The product is taken in the named order.
    """
    if order not in ORDERS:
        raise MalformedInput(f"order {order!r} is none of {', '.join(ORDERS)}")
    count = _word_count(heads, layers)
    if count > MOST_VECTORS:
        raise ResourceLimit(f"{count} vectors exceed the limit of {MOST_VECTORS}; choose a smaller shape")
    words = list(head_words(heads, layers))
    table = [[_entry(s, word, order) for word in words] for s in words]
    vectors = np.array(table, dtype=object)
    if not np.array_equal(vectors, _vectors(heads, layers, order)):
        raise RoutesDisagree("spanning lemma: NumPy and plain integers give different vectors")
    wrong = np.argwhere(vectors != np.eye(count, dtype=int))
    difference = "0"
    if len(wrong):
        i, j = wrong[0]
        difference = f"v^(s)_h = {table[i][j]} at s = {words[i]}, h = {words[j]}"
    return Spanning(difference == "0", order, count, rational.rank(vectors), difference)


def _entry(s: Word, word: Word, order: str) -> int:
    """v^(s)_word: a product of 2x2 matrices in plain integers."""
    factors = [STAY if letter == wanted else MOVE for letter, wanted in zip(word, s, strict=True)]
    return reduce(_product, factors if order == "lemma" else factors[::-1])[0][0]


def _vectors(heads: int, layers: int, order: str) -> np.ndarray:
    """All v^(s) at once [H^L, H^L]: one layer of all products [words, words, 2, 2] after the other."""
    kept = np.eye(heads, dtype=bool)[:, :, None, None]
    layer = np.where(kept, STAY, MOVE)  # [s_i, h_i, 2, 2]
    products = layer
    for _ in range(layers - 1):
        a, b = products[:, None, :, None], layer[None, :, None, :]
        step = a @ b if order == "lemma" else b @ a
        size = products.shape[0] * heads
        products = step.reshape(size, size, 2, 2)
    return products[:, :, 0, 0].astype(object)


# --- null vector ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NullVector:
    """A relation sum_w y_w R_w = 0 between the word products of m x m value matrices, and the target that breaks it.

    y [H^L]: integers, lexicographic in w. word: h*, a word with y_w != 0. weights [L][H]: W^{l,h} = 1 iff h = h*_l,
    so that the target's products are b = e_{h*}. `pairing` = y.b != 0 while y.A = 0: b is not in the column space of A
    [H^L, m^2], so no matrix X has tr(R_w X) = b_w for all w, let alone U E.
    """

    heads: int
    layers: int
    m: int
    y: tuple[int, ...]
    word: Word
    weights: tuple[tuple[int, ...], ...]
    pairing: int
    rank: int
    routes: tuple[str, ...] = ("FLINT", "plain integers")

    @property
    def tied_target(self) -> bool:
        """Whether the weights are the same in every layer: only then is the target a looped one."""
        return len(set(self.weights)) == 1


def _grid(R: Any, heads: int, layers: int, tied: bool) -> list[list[Matrix]]:
    """R as [L][H] matrices of Python ints; MalformedInput where the shape does not fit or an entry is no integer."""
    array = exact(np.asarray(R))
    lead = (heads,) if tied else (layers, heads)
    if array.ndim != len(lead) + 2 or array.shape[:-2] != lead or array.shape[-1] != array.shape[-2]:
        raise MalformedInput(f"R has shape {list(array.shape)}, expected {[*lead, 'm', 'm']}")
    if array.size == 0 or any(x != int(x) for x in array.reshape(-1)):
        raise MalformedInput("R must hold integers (multiply fractions by a common denominator)")
    nested = [
        [[[int(x) for x in row] for row in matrix] for matrix in head] for head in (array[None] if tied else array)
    ]
    return nested * layers if tied else nested


def word_products(R: Any, heads: int, layers: int, *, tied: bool = False) -> np.ndarray:
    """A [H^L, m^2]: R_w = R^{1,h_1} ... R^{L,h_L} as rows, words in lexicographic order, exact."""
    _word_count(heads, layers)
    grid = _grid(R, heads, layers, tied)
    products = np.array(grid[0], dtype=object)
    for layer in grid[1:]:
        step = np.array(layer, dtype=object)
        products = np.concatenate([np.stack([product @ matrix for matrix in step]) for product in products])
    return products.reshape(len(products), -1)


def null_vector(R: Any, heads: int, layers: int, *, tied: bool = False, word: Word | None = None) -> NullVector | None:
    """The null-vector lemma for value matrices R [L][H] of m x m integers (tied: [H]); None when m^2 >= H^L.

    word: h*, any word with y_w != 0 (the first one unless said otherwise; MalformedInput when y_w = 0). A constant word
    gives a tied target, any other an untied one.

    The relation is exact over the rationals (FLINT) and verified again in plain integers, as is that the target's 0/1
    products b pair with it to a nonzero number. Raises MalformedInput, ResourceLimit, RoutesDisagree.
    """
    count = _word_count(heads, layers)
    grid = _grid(R, heads, layers, tied)
    m = len(grid[0][0])
    if m * m >= count:
        return None
    A = word_products(R, heads, layers, tied=tied)
    y = rational.kernel_vector(A.T)
    assert y is not None  # fewer columns than rows
    if word is None:
        word = word_at(next(i for i, value in enumerate(y) if value), layers, heads)
    if len(word) != layers or y[word_index(word, heads)] == 0:
        raise MalformedInput(f"{word} is no word of length {layers} with a nonzero coefficient in the relation")
    weights = tuple(tuple(int(head == letter) for head in range(heads)) for letter in word)
    pairing = relation_pairing(grid, y, weights)
    return NullVector(heads, layers, m, tuple(y), word, weights, pairing, rational.rank(A))


def relation_pairing(grid: list[list[Matrix]], y: Sequence[int], weights: Sequence[Sequence[int]]) -> int:
    """y.b for the products b_w of the weights, after checking in plain integers that y != 0, sum_w y_w R_w = 0 and
    y.b != 0. Raises RoutesDisagree naming the property that fails."""
    heads, layers, m = len(grid[0]), len(grid), len(grid[0][0])
    total = [[0] * m for _ in range(m)]
    pairing = 0
    for coefficient, word in zip(y, itertools.product(range(heads), repeat=layers), strict=True):
        product, weight = grid[-1][word[-1]], weights[-1][word[-1]]
        for layer in reversed(range(layers - 1)):  # from the last factor, unlike `word_products`
            product = _product(grid[layer][word[layer]], product)
            weight *= weights[layer][word[layer]]
        pairing += coefficient * weight
        for i in range(m):
            for j in range(m):
                total[i][j] += coefficient * product[i][j]
    if not any(y):
        raise RoutesDisagree("null-vector lemma: y is zero")
    if any(map(any, total)):
        raise RoutesDisagree("null-vector lemma: the word products do not satisfy the relation y in plain integers")
    if pairing == 0:
        raise RoutesDisagree("null-vector lemma: the target's products satisfy the relation y too")
    return pairing
