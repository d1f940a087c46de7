"""Appendix E: the two lemmas of the lower bound, and the closing remark on looped transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import least_square_root
from utfproof.certificates.lower_bounds import null_vector_certificate, word_products
from utfproof.claims import plain
from utfproof.claims.claim import REPAIR, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.small_models import array, drawn, stochastic_grid, value_grid, values_of
from utfproof.constructions.counting import counting_dimension, counting_host
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal

STAY = [[1, 0], [0, 1]]
MOVE = [[0, 1], [0, 1]]
"""The spanning lemma's I and B: row-stochastic, and any product with a factor B is B."""


def attention_products(heads: int, layers: int, stay: plain.Rows, move: plain.Rows, step: int = 1) -> plain.Rows:
    """v^(s)_h for all words s and h: the (1,1) entry of the product of `stay` where letters agree, of `move`
    elsewhere; step -1: in the unrolling's order."""
    words = list(plain.words(heads, layers))
    patterns = ([[stay if a == b else move for a, b in zip(h, s, strict=True)] for h in words] for s in words)
    return [[plain.product(factors[::step])[0][0] for factors in row] for row in patterns]


@check("asm:matching-attention")
def matching_attention(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the vectors for positive matrices, by FLINT and by plain integers."""
    eps = Fraction(1, 7)
    stay, move = ([[(1 - eps) * v + eps / 2 for v in row] for row in matrix] for matrix in (STAY, MOVE))
    rows = [*stay, *move]
    proper = all(v > 0 for row in rows for v in row) and all(sum(row) == 1 for row in rows)
    for heads, layers in ((1, 1), (2, 1), (2, 2), (2, 3), (3, 2)):
        found = rank_of_matrix(attention_products(heads, layers, stay, move))
        holds = proper and found.value == heads**layers
        yield found.at(f"({heads},{layers})", f"rank {found} of {heads**layers}", holds=holds)


@check("lem:spanning")
def spanning_lemma(run: Run) -> Iterator[Instance | Figure]:
    """The absorbing identities, and all vectors v at small H and L: unit vectors, of full rank."""
    pairs = [(STAY, MOVE), (MOVE, STAY), (MOVE, MOVE)]
    absorbs = {
        "NumPy": all((array(a) @ array(b) == array(MOVE)).all() for a, b in pairs),
        "plain integers": all(plain.multiply(a, b) == MOVE for a, b in pairs),
    }
    yield agree(absorbs).at("every H, L", "I B = B I = B B = B")
    for heads, layers in sorted({(s.heads, s.layers) for s in run.shapes() if s.leaves <= 128}):
        vectors = attention_products(heads, layers, STAY, MOVE)
        rank, units = rank_of_matrix(vectors), vectors == plain.identity(heads**layers)
        yield rank.at(f"({heads},{layers})", f"rank {rank}", holds=units and rank.value == heads**layers)


@check("lem:spanning/order")
def spanning_order(run: Run) -> Iterator[Instance | Figure]:
    """Products of positive matrices in both orders; then the lemma in the unrolling's order."""
    for heads, layers in ((2, 1), (2, 2), (2, 3), (3, 2)):
        attention = stochastic_grid(Shape(heads, layers, 1, 1), 2, 3)
        slow = own = True
        for word in plain.words(heads, layers):
            factors = [attention[layer][head] for layer, head in enumerate(word)]
            slow &= plain.product(factors)[0][0] == plain.product(factors[::-1])[0][0]
            arrays = [array(factor) for factor in factors]
            own &= reduce(np.matmul, arrays)[0, 0] == reduce(np.matmul, arrays[::-1])[0, 0]
        found = agree({"NumPy": bool(own), "plain Fractions": slow})
        yield found.at(f"({heads},{layers})", "(1,1) entries in both orders")
        vectors = attention_products(heads, layers, STAY, MOVE, step=-1)
        rank, units = rank_of_matrix(vectors), vectors == plain.identity(heads**layers)
        where, holds = f"({heads},{layers}), unrolling's order", units and rank.value == heads**layers
        yield rank.at(where, f"rank {rank}", holds=holds, part=REPAIR)


@check("lem:null-vector/U-transposed")
def u_transposed(run: Run) -> Iterator[Instance | Figure]:
    """E R_w Uᵀ with the U that the model takes, and with its transpose."""
    for m in (2, 3):
        grid, E, tall = value_grid(Shape(2, 2, 1, 1), m, 5), drawn(7, 1, m), drawn(8, m, 1)
        model, one = SharedAttentionUniversal(Shape(2, 2, 1, 1), m, array(grid)), np.ones((2, 2, 1, 1), dtype=object)
        taken = _or_none(model.forward, array([[1]]), array(E), array(tall), one) is not None
        theorem = tall if taken else plain.transpose(tall)
        routed = plain.product([E, grid[0][0], grid[1][1]])
        for part, U, name in (("", theorem, "theorem's U"), (REPAIR, plain.transpose(theorem), "lemma's U")):
            own = _or_none(np.matmul, array(routed), array(U).T)
            slow = _or_none(plain.multiply, routed, plain.transpose(U))
            found = agree({"NumPy": own if own is None else plain.rows(own), "plain integers": slow})
            holds = found.value == plain.multiply(routed, tall)
            yield found.at(f"m = {m}, {name}", "sizes and value", holds=holds, part=part)


def _or_none(product: Callable[..., Any], *factors: Any) -> Any:
    """A product, None where the sizes do not fit."""
    try:
        return product(*factors)
    except ValueError:
        return None


@each("lem:null-vector")
def null_vectors(shape: Shape) -> Iterator[Instance]:
    """Relations between the word products of given hosts, each with a 0/1 target that breaks it."""
    m = least_square_root(shape.leaves) - 1
    for tied in (False, True):
        for R in _values(shape, m, tied):
            found = null_vector_certificate(R, shape, tied=tied)
            yield Instance(shape, not found.universal, f"{'tied' if tied else 'untied'} host", found, m=m)


def _values(shape: Shape, m: int, tied: bool) -> Iterator[np.ndarray]:
    """Three hosts: integer draws, all values equal to the identity, and draws of rank one."""
    lead = value_grid(shape, m, 11, tied=tied)
    identity = [[plain.identity(m)] * shape.heads] * shape.layers
    flat = [[[row if i == 0 else [0] * m for i, row in enumerate(matrix)] for matrix in layer] for layer in lead]
    for grid in (lead, identity, flat):
        yield array(grid[0] if tied else grid)


@check("thm:lower_bound_matching_attention/looped-remark")
def looped_remark(run: Run) -> Iterator[Instance | Figure]:
    """Whether the unit vectors of constant words lie in the column space of the word products: no relation has these words."""
    for layers in (6, 7):
        shape = Shape(2, layers, 1, 1)
        m = counting_dimension(shape)
        values = [array(value) for value in values_of(counting_host(shape, m))[0]]
        A = array([product.reshape(-1) for product in word_products([values], layers)])
        units = array([[int(i == place) for place in (0, len(A) - 1)] for i in range(len(A))])
        rank, wider = (rank_of_matrix(matrix) for matrix in (A, np.concatenate([A, units], axis=1)))
        detail = f"relations: {shape.leaves - rank.value}; with a constant word: {wider.value - rank.value}"
        yield rank.at(f"({shape.heads},{shape.layers}), m = {m}", detail, holds=wider.value > rank.value)
