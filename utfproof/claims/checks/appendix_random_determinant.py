"""Appendix B: the determinant polynomial of R_all, its explicit nonzero value, and how often it can vanish."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, dense, rank_modulo
from utfproof.claims.linear import determinant_of
from utfproof.constructions import build_host
from utfproof.ground.generator import integer_matrix
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal

if TYPE_CHECKING:
    from utfproof.exact.symbolic.generic import Multilinearity

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2)]


@check("thm:random-R/multilinear-untied")
def multilinear_untied(run: Run) -> Iterator[Instance | Figure]:
    """R_all in symbols."""
    for shape, found in _multilinear(run, tied=False):
        yield Instance(shape, found.holds, f"highest degree {found.highest}", routes=found.routes)


@check("thm:random-R/multilinear-tied")
def multilinear_tied(run: Run) -> Iterator[Instance | Figure]:
    """R_all in symbols, with a monomial that has a square."""
    from utfproof.exact.symbolic.generic import generic_r_all, multilinearity

    for shape, found in _multilinear(run, tied=True):
        detail = f"highest degree {found.highest} {found.monomial}".strip()
        yield Instance(shape, found.holds is (shape.layers == 1), detail, routes=found.routes)
    yield Figure(
        "a repeated factor at (1,2,1,1)", multilinearity(generic_r_all(Shape(1, 2, 1, 1), 2, tied=True)).monomial
    )


def _multilinear(run: Run, *, tied: bool) -> Iterator[tuple[Shape, Multilinearity]]:
    from utfproof.exact.symbolic.generic import generic_r_all, multilinearity

    for shape in run.shapes(anchors=[*SMALLEST, (1, 2, 1, 1), (2, 2, 1, 1), (1, 3, 1, 1)], largest=16):
        # m = 2 shows every product pattern that larger m have
        yield shape, multilinearity(generic_r_all(shape, 2, tied=tied))


@check("thm:random-R/explicit-assignment")
def explicit_assignment(run: Run) -> Iterator[Instance | Figure]:
    """The determinant at the repaired hosts by two routes, and a certificate."""
    for shape in run.shapes(anchors=SMALLEST, largest=60):
        M = matching_dimension(shape)
        for name in ("sparse", "tied"):
            if M <= 24:
                value = determinant_of(dense(r_all(build_host(name, shape))))
                yield Instance(shape, abs(value.value) == 1, f"det = {value.value} at {name}", routes=value.routes, m=M)
            yield decided(name, shape, M)


@check("thm:random-R/every-choice-of-rows")
def every_choice_of_rows(run: Run) -> Iterator[Instance | Figure]:
    """Every M of M + 2 rows of a random integer host: minors modulo a prime, and over the integers."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1)], largest=5):
        M = matching_dimension(shape)
        m = M + 2
        host = _wide_integer_host(shape, m)
        matrix = dense(r_all(host))
        choices = list(combinations(range(m), M))
        modular = sum(rank_modulo(matrix[list(rows)]) == M for rows in choices)
        exact = sum(plain.rank(matrix[list(rows)].tolist()) == M for rows in choices)
        both = agree({"modulo a prime": modular, "plain integers": exact})
        yield Instance(
            shape, both.value == len(choices), f"{both.value} of {len(choices)} minors", routes=both.routes, m=m
        )


def _wide_integer_host(shape: Shape, m: int) -> Universal:
    """A host of exact integers with entries up to 2^32, from the uniform law's numerators."""

    def draw(tensor: str, columns: int, *place: int) -> np.ndarray:
        layer, head = place or (0, 0)
        return integer_matrix(7, tensor, m, columns, law="uniform", layer=layer, head=head).astype(object)

    layers, heads = range(shape.layers), range(shape.heads)

    def grid(tensor: str, columns: int) -> Any:
        return [[draw(tensor, columns, layer, head) for head in heads] for layer in layers]

    d = shape.head_dim
    return Universal(shape, m, grid("R_Q", d), grid("R_K", d), grid("R_V", m), draw("U", shape.d_out))


@check("thm:random-R/block-diagonal")
def block_diagonal(run: Run) -> Iterator[Instance | Figure]:
    """The permutation itself, or what prevents it."""
    from utfproof.exact.symbolic.blocks import block_diagonal as diagonal
    from utfproof.exact.symbolic.blocks import block_sizes

    for shape in run.shapes(anchors=[(2, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)], largest=40):
        M = matching_dimension(shape)
        if shape.heads > 1:
            for name in ("printed-tree-row", "printed-tree-column"):
                found = diagonal(dense(r_all(build_host(name, shape))))
                yield Instance(f"{name} at {label(shape)}", found.holds, found.reason, routes=found.routes)
        for name in ("sparse", "sparse-front", "tied"):
            for m in (M, M + 1):
                found = diagonal(dense(r_all(build_host(name, shape, m))))
                yield Instance(
                    f"{name} at {label(shape)}, m = {m}", found.holds, found.reason, routes=found.routes, part="repair"
                )
    sizes = ", ".join(f"{kind}: {number} of width {width}" for kind, number, width in block_sizes(Shape(2, 2, 1, 2)))
    yield Figure("blocks at (2,2,1,2)", sizes)


@check("thm:random-R/variables")
def variables(run: Run) -> Iterator[Instance | Figure]:
    """p with U doubled, everything else unchanged."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        M = matching_dimension(shape)
        host = _wide_integer_host(shape, M)
        doubled = Universal(shape, M, host.R_Q, host.R_K, host.R_V, 2 * host.U)
        first, second = determinant_of(dense(r_all(host))), determinant_of(dense(r_all(doubled)))
        yield Instance(shape, first.value == second.value, "U doubled, p changes", routes=second.routes, m=M)
        scaled = second.value == first.value * 2 ** (shape.d_out * shape.leaves)
        yield Instance(
            shape, scaled and first.value != 0, "degree d_in H^L in U", routes=second.routes, part="repair", m=M
        )


@check("thm:random-R/degree")
def degree(run: Run) -> Iterator[Instance | Figure]:
    """Degrees of columns in symbols, and p at twice the parameters."""
    from utfproof.exact.symbolic.determinant import determinant_degree, determinant_polynomial, homogeneous_columns
    from utfproof.exact.symbolic.generic import generic_r_all

    for shape in run.shapes(anchors=[*SMALLEST, (1, 2, 1, 1), (2, 2, 1, 1)], largest=16):
        for tied in (False, True):
            generic = generic_r_all(shape, 2, tied=tied)
            fine, reason = homogeneous_columns(generic)
            yield Instance(shape, fine, reason or "columns homogeneous", routes=generic.routes)
        M = matching_dimension(shape)
        host = _wide_integer_host(shape, M)
        R_Q, R_K, R_V = ([[2 * x for x in row] for row in grid] for grid in (host.R_Q, host.R_K, host.R_V))
        scaled = Universal(shape, M, R_Q, R_K, R_V, 2 * host.U)
        first, second = determinant_of(dense(r_all(host))), determinant_of(dense(r_all(scaled)))
        holds = first.value != 0 and second.value == first.value << determinant_degree(shape)
        yield Instance(shape, holds, f"degree {determinant_degree(shape)}", routes=second.routes, m=M)
    smallest = Shape(1, 1, 1, 1)
    for tied in (False, True):
        p = determinant_polynomial(smallest, tied=tied)
        yield Instance(smallest, p.degrees == (determinant_degree(smallest),), f"{p.terms} terms", routes=p.routes)
    for place in ((2, 4, 30, 30), (4, 2, 24, 4), (1, 1, 1, 1)):
        yield Figure(f"({','.join(map(str, place))})", determinant_degree(Shape(*place)))


@check("thm:random-R/measure-zero")
def measure_zero(run: Run) -> Iterator[Instance | Figure]:
    """p along a line from the repaired host to a random one."""
    from utfproof.exact.symbolic.determinant import determinant_degree
    from utfproof.matching.symbolic import line_from

    for shape in run.shapes(anchors=[*SMALLEST, (2, 2, 1, 1)], largest=10):
        for name in ("sparse", "tied"):
            host = build_host(name, shape)
            found, there = line_from(host, seed=11), determinant_of(dense(r_all(host))).value
            holds = abs(found.constant) == 1 and found.constant == there
            holds &= 0 <= found.degree <= determinant_degree(shape)
            yield Instance(
                shape, holds, f"{name}: degree {found.degree} of {found.bound}", routes=found.routes, m=host.m
            )


@check("new:finite-weights")
def finite_weights(run: Run) -> Iterator[Instance | Figure]:
    """The exact probability at the smallest shape, counted and by formula, against the bound."""
    from fractions import Fraction

    from utfproof.exact.symbolic.determinant import schwartz_zippel_bound

    smallest, q = Shape(1, 1, 1, 1), 5
    counted = _singular_probability(q)
    # R_V U is uniform when U is not zero, so three independent uniform columns remain
    inverse = Fraction(1, q)
    formula = 1 - (1 - inverse**3) * (1 - inverse) * (1 - inverse**2) * (1 - inverse**3)
    exact = agree({"enumeration": counted, "formula": formula})
    bound = schwartz_zippel_bound(smallest, q)
    yield Instance(smallest, exact.value <= bound, f"{exact.value} <= {bound}", routes=exact.routes, m=3)
    yield Figure("(1,1,1,1) over 5 elements", str(exact.value))
    yield Figure("bound there", str(bound))
    yield Figure("(2,4,30,30), 2^32 values", float(schwartz_zippel_bound(Shape(2, 4, 30, 30), 2**32)))


def _singular_probability(q: int) -> Any:
    """P[det R_all = 0] at (1,1,1,1), m = 3, entries uniform over integers modulo a prime q: all 3 x 3 matrices counted."""
    from fractions import Fraction

    triples = np.array(list(np.ndindex(q, q, q)))
    crosses = np.cross(triples[:, None, :], triples[None, :, :]).reshape(-1, 3) % q
    kinds, how_many = np.unique(crosses, axis=0, return_counts=True)
    singular = int((how_many[:, None] * ((kinds @ triples.T) % q == 0)).sum())
    zero_output = Fraction(1, q**3)
    return zero_output + (1 - zero_output) * Fraction(singular, q**9)
