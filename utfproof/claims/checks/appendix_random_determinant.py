"""Appendix B: the determinant polynomial of R_all, its explicit nonzero value, and how often it can vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, dense, rank_modulo
from utfproof.claims.linear import determinant_of, integer_host
from utfproof.constructions import build_host
from utfproof.ground.generator import integer_matrix
from utfproof.matching import r_all
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, column_at, matching_dimension
from utfproof.systems import TiedUniversal, Universal

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
    from utfproof.exact.symbolic import generic_r_all, multilinearity

    for shape, found in _multilinear(run, tied=True):
        detail = f"highest degree {found.highest} {found.monomial}".strip()
        yield Instance(shape, found.holds is (shape.layers == 1), detail, routes=found.routes)
    yield Figure(
        "a repeated factor at (1,2,1,1)", multilinearity(generic_r_all(Shape(1, 2, 1, 1), 2, tied=True)).monomial
    )


def _multilinear(run: Run, *, tied: bool) -> Iterator[tuple[Shape, Multilinearity]]:
    from utfproof.exact.symbolic import generic_r_all, multilinearity

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
    from utfproof.claims.claim import label
    from utfproof.exact.symbolic import block_diagonal as diagonal
    from utfproof.exact.symbolic import block_sizes

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
    from utfproof.exact.symbolic import determinant_degree, determinant_polynomial, generic_r_all, homogeneous_columns

    for shape in run.shapes(anchors=[*SMALLEST, (1, 2, 1, 1), (2, 2, 1, 1)], largest=16):
        for tied in (False, True):
            fine, reason = homogeneous_columns(generic_r_all(shape, 2, tied=tied))
            yield Instance(shape, fine, reason or "columns homogeneous", routes=("SymPy", "plain integers"))
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
    from utfproof.exact.symbolic import along_line, determinant_degree, line_polynomial

    for shape in run.shapes(anchors=[*SMALLEST, (2, 2, 1, 1)], largest=10):
        for name, tied in (("sparse", False), ("tied", True)):
            M = matching_dimension(shape)
            kind = TiedUniversal if tied else Universal
            line = along_line(
                lambda *parts, shape=shape, M=M, kind=kind: r_all(kind(shape, M, *parts)).tolist(),
                _parameters(build_host(name, shape), tied),
                _parameters(integer_host(shape, M, seed=11, tied=tied), tied),
            )
            found = line_polynomial(line, determinant_degree(shape))
            there = determinant_of(line(0)).value
            holds = (
                abs(found.constant) == 1 and found.constant == there and 0 <= found.degree <= determinant_degree(shape)
            )
            yield Instance(shape, holds, f"{name}: degree {found.degree} of {found.bound}", routes=found.routes, m=M)


def _parameters(host: Universal, tied: bool) -> tuple[np.ndarray, ...]:
    """R_Q, R_K, R_V, U as object arrays with their layer and head axes."""
    layers, heads = range(1 if tied else host.shape.layers), range(host.shape.heads)

    def grid(place: int) -> np.ndarray:
        drawn = [[dense(host.maps(layer, head)[place]) for head in heads] for layer in layers]
        return np.array(drawn[0] if tied else drawn, dtype=object)

    values = [[dense(host.maps(layer, head).value[0]) for head in heads] for layer in layers]
    return (
        grid(0),
        grid(1),
        np.array(values[0] if tied else values, dtype=object),
        np.array(dense(host.U), dtype=object),
    )


@check("new:finite-weights")
def finite_weights(run: Run) -> Iterator[Instance | Figure]:
    """The exact probability at the smallest shape, counted and by formula, against the bound."""
    from fractions import Fraction

    from utfproof.exact.symbolic import schwartz_zippel_bound

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


@check("new:float-weights/wide")
def float_weights_wide(run: Run) -> Iterator[Instance | Figure]:
    """Degree times largest atom, the atom found in two ways."""
    yield from _float_weights(("float64", "float32"))
    for fmt in ("float64", "float32"):
        yield Figure(f"{fmt} at (2,4,30,30)", _grid_bound(Shape(2, 4, 30, 30), fmt))


@check("new:float-weights/short")
def float_weights_short(run: Run) -> Iterator[Instance | Figure]:
    """Degree times largest atom, the atom found in two ways."""
    largest, vacuous = label(Shape(*PAPER_TABLE_SHAPES["4-hop"])), []
    for found in _float_weights(("bfloat16", "float16")):
        short = found.label.startswith("bfloat16") or found.label.endswith(largest)
        vacuous += [found.label] if found.holds is False else []
        yield found if found.holds is None else replace(found, holds=found.holds is not short)
    yield Figure("vacuous", "; ".join(vacuous))
    yield Figure("float16 at (2,2,28,30)", _grid_bound(Shape(2, 2, 28, 30), "float16"))


def _grid_bound(shape: Shape, fmt: str) -> float:
    from utfproof.exact.symbolic import float_grid_bound

    return float(float_grid_bound(shape, fmt).bound)


def _float_weights(formats: tuple[str, ...]) -> Iterator[Instance]:
    from utfproof.exact.symbolic import float_grid_bound

    for fmt in formats:
        for place in sorted(PAPER_TABLE_SHAPES.values(), key=lambda place: matching_dimension(Shape(*place))):
            shape = Shape(*place)
            found = float_grid_bound(shape, fmt)
            spaced = _spacing(fmt, found.m) * found.m**0.5 / 2 * _degree_by_columns(shape)
            both = agree({"symbolic": found.bound < 1, "NumPy's spacing": spaced < 1})
            close = abs(spaced / float(found.bound) - 1) < 1e-9
            yield Instance(
                f"{fmt} at {label(shape)}",
                both.value if close else None,
                f"bound {float(found.bound):.3g}",
                routes=both.routes,
            )


def _spacing(fmt: str, m: int) -> float:
    """Distance of neighbouring numbers of a format just below 1/sqrt(m), by NumPy."""
    below = np.nextafter(m**-0.5, 0)
    kind = np.dtype("float32" if fmt == "bfloat16" else fmt).type
    value = kind(below)
    spacing = float(np.spacing(value if value <= below else np.nextafter(value, kind(0))))
    return spacing * 2.0**16 if fmt == "bfloat16" else spacing  # bfloat16 is float32 without 16 bits


def _degree_by_columns(shape: Shape) -> int:
    """The degree of p, column by column: one factor for the reader or U, and one for every R_V passed."""
    total = 0
    for j in range(matching_dimension(shape)):
        column = column_at(shape, j)
        total += len(column.word) + (column.kind == "OV")
    return total
