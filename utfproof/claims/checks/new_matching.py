"""New results on matching: isolating targets, the decision theorem, the notions, repaired hosts and tied targets.

The emulation lemma stands in `new_emulation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.lower_bounds import span_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, dense, matched, rank_of
from utfproof.claims.hosts import most_ones, parameters
from utfproof.claims.linear import full_rank_host, integer_host
from utfproof.claims.tied_targets import isolates, tied_isolating_target, tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.counting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.exact.symbolic.determinant import integer_determinant
from utfproof.matching import distance_bound, embed, isolating_target, r_all, w_all
from utfproof.shapes import (
    Shape,
    matching_dimension,
    shared_key_dimension,
)

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]


# --- the decision theorem ------------------------------------------------------------------------------------------


@check("new:isolating-targets")
def isolating_targets(run: Run) -> Iterator[Instance | Figure]:
    """W_all of every isolating target, by the package and word by word."""
    for shape in run.shapes(anchors=SMALLEST, largest=24):
        M = matching_dimension(shape)
        unit = {
            column: [[int(i == 0 and j == column) for j in range(M)] for i in range(shape.d_in)] for column in range(M)
        }
        targets = {column: isolating_target(shape, column) for column in range(M)}
        own = sum(dense(w_all(target)).tolist() == unit[column] for column, target in targets.items())
        slow = sum(plain.equations(target) == unit[column] for column, target in targets.items())
        both = agree({"matching": own, "plain integers": slow})
        yield Instance(shape, both.value == M, f"{both.value} of {M} columns", routes=both.routes)
        if label(shape) == "(2,2,1,2)":
            yield Figure("targets at (2,2,1,2)", both.value)


@check("new:decision-theorem/full-rank")
def decision_full_rank(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of full rank, and an E solved for a sample target."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        M = matching_dimension(shape)
        for name in ("sparse", "tied", "random", "random-tied"):
            yield decided(name, shape, M)
        host, target = full_rank_host(shape), integer_target(shape, seed=1)
        E = rational.solve_left(dense(r_all(host)), dense(w_all(target)))
        solved = agree(
            {
                "plain Fractions": E is not None
                and plain.multiply(plain.rows(E), plain.equations(host)) == plain.equations(target),
                "matching": E is not None and bool((dense(E) @ dense(r_all(host)) == dense(w_all(target))).all()),
            }
        )
        yield Instance(shape, bool(solved), "E R_all = W_all solved exactly", routes=solved.routes, m=host.m)


@check("new:decision-theorem/deficient")
def decision_deficient(run: Run) -> Iterator[Instance | Figure]:
    """Hosts of deficient rank: z, its isolating target, and the unsolvable system."""
    for shape in run.shapes(anchors=SMALLEST, largest=16):
        M = matching_dimension(shape)
        hosts = [integer_host(shape, M, 2, equal_readers=True), integer_host(shape, M - 1, 2, tied=True)]
        for host in hosts + ([build_host("printed-looped", shape)] if shape.heads > 1 else []):
            matrix = dense(r_all(host))
            z = rational.kernel_vector(matrix)
            assert z is not None
            column = max(range(M), key=lambda j: abs(z[j]))
            target = isolating_target(shape, column)
            unsolvable = rational.solve_left(matrix, dense(w_all(target))) is None
            ours, theirs = (
                plain.multiply(rows, [[v] for v in z]) for rows in (plain.equations(host), plain.equations(target))
            )
            both = agree({"FLINT": unsolvable, "plain integers": any(map(any, theirs)) and not any(map(any, ours))})
            yield Instance(shape, both.value, f"column {column}", routes=both.routes, m=host.m)


@check("new:decision-theorem/distance")
def decision_distance(run: Run) -> Iterator[Instance | Figure]:
    """Exact least squares against z_c^2 / |z|^2."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        M = matching_dimension(shape)
        for host in (integer_host(shape, M, 2, equal_readers=True), integer_host(shape, M - 1, 3)):
            matrix = dense(r_all(host))
            z = rational.kernel_vector(matrix)
            assert z is not None
            column = max(range(M), key=lambda j: abs(z[j]))
            bound = distance_bound(z, column)
            deficiency = M - rank_of(host).value
            distances = agree({"row space": _distance_to_rows(matrix, column), "kernel": _kernel_part(matrix, column)})
            holds = distances.value >= bound > 0 and (deficiency > 1 or distances.value == bound)
            yield Instance(shape, holds, f"{distances.value} >= {bound}", routes=distances.routes, m=host.m)


def _distance_to_rows(matrix: np.ndarray, column: int) -> Fraction:
    """Squared distance of the unit vector of a column to the row space: a ratio of Gram determinants, in plain integers."""
    basis: plain.Rows = []
    for row in plain.rows(matrix):
        if plain.rank([*basis, row]) > len(basis):
            basis.append(row)
    unit = [int(j == column) for j in range(matrix.shape[1])]
    wide, gram = (plain.multiply(rows, plain.transpose(rows)) for rows in ([*basis, unit], basis))
    return Fraction(integer_determinant(wide), integer_determinant(gram))


def _kernel_part(matrix: np.ndarray, column: int) -> Fraction:
    """|projection of the unit vector onto the kernel|^2, by FLINT: its nullspace, and the inverse of that one's Gram matrix."""
    from flint import fmpq_mat, fmpz_mat

    space, nullity = fmpz_mat(plain.rows(matrix)).nullspace()
    kernel = fmpz_mat([[int(space[i, j]) for i in range(matrix.shape[1])] for j in range(nullity)])
    part = fmpq_mat(fmpz_mat([[int(kernel[j, column]) for j in range(nullity)]]))
    found = (part * fmpq_mat(kernel * kernel.transpose()).inv() * part.transpose())[0, 0]
    return Fraction(int(found.p), int(found.q))


# --- ranks modulo a prime ------------------------------------------------------------------------------------------


@check("new:one-instance/full")
def one_instance(run: Run) -> Iterator[Instance | Figure]:
    """Full rank modulo a prime and over the rationals at one host; certificates at others drawn by other laws."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        host = full_rank_host(shape)
        M = matching_dimension(shape)
        rank = rank_of(host)
        yield Instance(shape, rank.value == M, "full modulo a prime and over the rationals", routes=rank.routes, m=M)
        for law in ("uniform", "binomial"):
            yield decided("random", shape, M, seed=5, law=law)


# --- the notions ---------------------------------------------------------------------------------------------------


@check("new:notions/strict")
def strict(run: Run) -> Iterator[Instance | Figure]:
    """An identity for attention-matching, a lower bound for matching."""
    for shape in run.shapes(lambda s: s.head_dim >= s.d_in, anchors=[(1, 1, 2, 1), (2, 1, 1, 1)]):
        m = shared_key_dimension(shape)
        if m >= matching_dimension(shape):
            continue
        refuted = dimension_certificate(shape, m)
        yield served("shared-key", shape, m, detail="universal by attention-matching")
        yield Instance(shape, not refuted.universal, "not universal by matching", refuted, m=m)


# --- the repaired hosts --------------------------------------------------------------------------------------------

REPAIRED = ("sparse", "sparse-front", "tied")


@check("new:repaired-hosts/nonzeros")
def nonzeros(run: Run) -> Iterator[Instance | Figure]:
    """Ones of every parameter matrix: by the index maps, and by looking at each entry."""
    for shape in run.shapes(anchors=SMALLEST, largest=60):
        for name in REPAIRED:
            host = build_host(name, shape)
            most = most_ones(host)
            holds = most.value is not None and most.value <= host.m
            detail = f"at most {most.value} of m = {host.m}"
            yield Instance(f"{name} at {label(shape)}", holds, detail, routes=most.routes)
    matrices = parameters(build_host("tied", Shape(2, 4, 30, 30)))
    yield Figure("most ones in a matrix of tied at (2,4,30,30)", max(matrix.nonzeros for _, matrix in matrices))


@check("new:repaired-hosts/closed-form")
def closed_form(run: Run) -> Iterator[Instance | Figure]:
    """E of a sample target against W_all's columns, and the matching equations."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        target = integer_target(shape, seed=8)
        for name in REPAIRED:
            host = build_host(name, shape)
            found = embed(host, target)
            columns = sorted(map(tuple, dense(found.E).T.tolist())) == sorted(
                zip(*plain.equations(target), strict=True)
            )
            solved = matched(host, target)
            holds = columns and solved.value and found.method == "closed form"
            yield Instance(f"{name} at {label(shape)}", holds, found.method, routes=solved.routes)


# --- tied targets --------------------------------------------------------------------------------------------------


@check("new:tied-targets/isolating-path")
def isolating_path(run: Run) -> Iterator[Instance | Figure]:
    """The first row of W_all of each, by the package and word by word."""
    for shape in run.shapes(
        lambda s: min(s.head_dim, s.d_in) >= s.layers, anchors=[(2, 2, 2, 3), (1, 3, 3, 3)], largest=40
    ):
        M = matching_dimension(shape)
        found = [isolates(tied_isolating_target(shape, column), column) for column in range(M)]
        both = agree({"matching": sum(a for a, _ in found), "plain integers": sum(b for _, b in found)})
        yield Instance(shape, both.value == M, f"{both.value} of {M} columns", routes=both.routes)
        if label(shape) == "(2,2,2,3)":
            yield Figure("targets at (2,2,2,3)", both.value)


@check("new:tied-targets/span")
def tied_span(run: Run) -> Iterator[Instance | Figure]:
    """Span certificates at M - 1."""
    for shape in run.shapes(lambda s: s.layers <= 3 and s.d_in >= 2, anchors=[(1, 1, 1, 2), (2, 3, 1, 2)], largest=75):
        M = matching_dimension(shape)
        refutation = tied_span_refutes(shape, M - 1)
        holds = None if refutation is None else not refutation.universal
        yield Instance(shape, holds, f"span M = {M}", refutation, m=M - 1)
    yield Figure("span at (2,4,1,2), M = 92", span_dimension(Shape(2, 4, 1, 2), tied=True))


@check("new:tied-targets/scalar")
def tied_scalar(run: Run) -> Iterator[Instance | Figure]:
    """The rank of sampled rows, the formula, and the distinct monomials of one generic row."""
    for shape in run.shapes(lambda s: s.d_in == 1, anchors=[(2, 2, 1, 1), (2, 3, 1, 1), (2, 4, 1, 1)], largest=60):
        M = matching_dimension(shape)
        span = agree({"rank of samples": span_dimension(shape, tied=True), "monomials": _scalar_monomials(shape)})
        smaller = (span.value < M) is (shape.heads > 1 and shape.layers > 1)
        yield Instance(
            shape, span.value == commuting_dimension(shape) and smaller, f"{span.value} of {M}", routes=span.routes
        )
        if (shape.heads, shape.head_dim) == (2, 1) and shape.layers > 1:
            yield Figure(label(shape), f"{span.value} of {M}")


def _scalar_monomials(shape: Shape) -> int:
    """Different monomials among the columns of W_all of a generic tied target with d_in = 1."""
    H, L = shape.heads, shape.layers
    columns: set[tuple[Any, ...]] = {("OV", *sorted(word)) for word in plain.words(H, L)}
    for kind in ("Q", "K"):
        for length in range(1, L + 1):
            for word in plain.words(H, length):
                columns |= {(kind, word[-1], j, *sorted(word[:-1])) for j in range(shape.head_dim)}
    return len(columns)
