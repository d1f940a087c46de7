"""Shared attention for looped targets: polynomial in the depth, exact with one of E and U free, and the smallest cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from utfproof.certificates.dimensions import ALL_TIED, GENERIC_TIED, least_square_root
from utfproof.claims import plain
from utfproof.claims.bounds import attained, below, served
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures, rank_of_matrix
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_dimension
from utfproof.ground.notions import BOTH_FREE, Notion
from utfproof.shapes import Shape
from utfproof.systems import prefix_products


def _counted(shape: Shape) -> int:
    """Monomials of the words' products, by listing the words."""
    return len({tuple(sorted(word)) for word in plain.words(shape.heads, shape.layers)})


@check("new:looped-shared/E-free")
def e_free(run: Run) -> Iterator[Instance | Figure]:
    """Both certificates, one apart; the count of monomials by listing words."""
    shapes = run.shapes(lambda s: s.head_dim == s.d_in == 1, anchors=[(1, 1, 1, 1), (2, 6, 1, 1), (3, 4, 1, 1)])
    yield from attained(shapes, _counted, Notion.SHARED_ATTENTION, "counting", targets=ALL_TIED, free="E")
    yield from figures("least m", counting_dimension, ((2, 6), (3, 4)))


@check("new:looped-shared/both-free")
def both_free(run: Run) -> Iterator[Instance | Figure]:
    """Refutations at the largest m below the root."""

    def least(shape: Shape) -> int:
        return least_square_root(counting_dimension(shape))

    shapes = run.shapes(lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), (3, 4, 1, 1)])
    yield from attained(shapes, least, Notion.SHARED_ATTENTION, targets=ALL_TIED, free=BOTH_FREE)


@check("new:looped-shared/two-heads")
def two_heads(run: Run) -> Iterator[Instance | Figure]:
    """The system of the proof, with and without the condition; the counting host at (2,2)."""
    basis, without = _groebner(True), _groebner(False)
    yield Instance("(2,2), m = 2", basis == ["1"] and without != ["1"], "no solution with c·det K ≠ 0")
    largest_commutative = max(_commutative_span(a, b) for a in range(-2, 3) for b in range(-2, 3))
    needed = counting_dimension(Shape(2, 3, 1, 1))
    yield Instance("(2,3), m = 2", largest_commutative < needed, f"span {largest_commutative} < {needed}")
    for layers in (2, 3):
        yield below(Shape(2, layers, 1, 1), 2, Notion.SHARED_ATTENTION, GENERIC_TIED, free=BOTH_FREE, every="tied host")
    yield served("counting", Shape(2, 2, 1, 1), detail="three dimensions")
    yield Figure("Gröbner basis with s·c·det K = 1", ", ".join(basis))
    yield Figure("basis elements without it", len(without))
    yield Figure("m² needed at (2,3)", needed)


def _groebner(regular: bool) -> list[str]:
    """Gröbner basis of R_i² = R_i − δ_i and of the four products in terms of K, c_1, c_4, c (the page's normal form);
    regular: with s·c·det K = 1 as well."""
    import sympy as sp

    k11, k12, k22, c1, c4, c, s = unknowns = sp.symbols("k11 k12 k22 c1 c4 c s")
    K, half = sp.Matrix([[k11, k12], [k12, k22]]), sp.Rational(1, 2)
    products = {
        (0, 0): K * sp.Matrix([[1, c1], [-c1, 0]]),
        (1, 1): K * sp.Matrix([[0, c4], [-c4, 1]]),
        (0, 1): K * sp.Matrix([[0, half + c], [half - c, 0]]),
        (1, 0): K * sp.Matrix([[0, half - c], [half + c, 0]]),
    }
    # traces 1: R = R^2 + det R, det R = (1 - tr R^2)/2, and tr R_1^2 = k11, tr R_2^2 = k22 as K is symmetric
    R = [products[0, 0] + (1 - k11) * half * sp.eye(2), products[1, 1] + (1 - k22) * half * sp.eye(2)]
    equations = [sp.expand(e) for (i, j), P in products.items() for e in R[i] * R[j] - P]
    if regular:
        equations.append(s * c * K.det() - 1)
    basis = sp.groebner([e for e in equations if e != 0], *reversed(unknowns), order="grevlex")
    return [str(e) for e in basis.exprs]


def _commutative_span(a: int, b: int) -> int:
    """Dimension spanned by the products of length three of R_1 = [[0, a], [1, b]] and R_2 = R_1 + 1: they commute."""
    first = [[0, a], [1, b]]
    matrices = [first, plain.add(first, plain.identity(2))]
    rows = [[v for row in plain.product([matrices[h] for h in word]) for v in row] for word in plain.words(2, 3)]
    return int(rank_of_matrix(rows).value)


@check("new:looped-shared/wide")
def wide(_: Run) -> Iterator[Instance | Figure]:
    """The rank over twenty integer targets from below, equal columns from above."""
    words = list(plain.words(2, 4))
    for d, wanted in ((1, 28), (2, 32)):
        stacked: plain.Rows = []
        for seed in range(20):
            products = prefix_products(integer_target(Shape(2, 4, d, 2), seed, tied=True, bound=3), 4)
            stacked += products.transpose(1, 0, 2).reshape(2, -1).tolist()
        # at d = 1 the first letter, the last one and the transitions with their numbers are all that M_w shows
        classes = {(word[0], word[-1], *sorted(pairwise(word))) if d == 1 else word for word in words}
        rank = rank_of_matrix(stacked)
        holds = rank.value == 2 * len(classes) == wanted
        yield Instance(f"d = {d}", holds, f"{rank.value} of {2 * len(words)}", routes=rank.routes)
        yield Figure(f"span at d = {d}", int(rank.value))
