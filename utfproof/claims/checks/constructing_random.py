"""Section 3.2: random hosts, and random looped hosts, whose statement splits as that of Section 3.1 does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import factorial
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.checks.constructing_looped import (
    GAUGES,
    MATCHED,
    ONE_NARROW,
    ONE_WIDE,
    WIDE,
    gauges_run_out,
    in_case,
    looped_case,
    open_shapes,
    random_case,
    refuted_shapes,
)
from utfproof.claims.claim import BESIDE, Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, rank_of
from utfproof.claims.hosts import TABLES, counted, heads, no_matching, small_host
from utfproof.claims.linear import flint_rank
from utfproof.exact import gfp, rational
from utfproof.matching import r_all
from utfproof.shapes import (
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_dimension,
    paper_looped_dimension,
)
from utfproof.systems import Universal


@check("thm:random_universal_transformer")
def random_untied(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed at m-bar, and at a larger m."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)], largest=30):
        yield decided("random", shape, paper_dimension(shape))
        if matching_dimension(shape) <= 12:
            yield decided("random", shape, paper_dimension(shape) + 2)


@check("sec:constructing/non-degeneracy")
def non_degeneracy(run: Run) -> Iterator[Instance | Figure]:
    """Ranks of R_all as drawn, and with the query maps of two heads equal, by FLINT and plain integers."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), (2, 1, 1, 2)], largest=20):
        M = matching_dimension(shape)
        host = small_host(shape, M, tied=False)
        layers = [[row[0]] * shape.heads for row in host.R_Q]
        alike = Universal(shape, M, layers, host.R_K, host.R_V, host.U)
        full, less = rank_of(host), rank_of(alike)
        yield Instance(
            shape,
            full.value == M and less.value < M,
            f"ranks {full.value}, {less.value} of {M}",
            routes=full.routes,
            m=M,
        )


@check("thm:random_looped_universal_transformer/proof")
def random_looped_proof(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds at m-bar-loop, and one seed of the tied law at M."""
    for shape in run.shapes(lambda s: looped_case(s) != MATCHED, anchors=[(2, 1, 1, 2), *TABLES]):
        yield no_matching(shape, paper_looped_dimension(shape), holds=False)
        if matching_dimension(shape) <= 30:
            yield decided("random-tied", shape, part=BESIDE)


@check("thm:random_looped_universal_transformer/m-bar-at-least-M")
def random_looped_matched(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed of the tied law at m-bar-loop."""
    for shape in run.shapes(
        in_case(MATCHED), anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 4), (2, 2, 2, 1)], largest=30
    ):
        yield decided("random-tied", shape, paper_looped_dimension(shape))


@check("thm:random_looped_universal_transformer/linear-test")
def random_looped_linear(run: Run) -> Iterator[Instance | Figure]:
    """Linear-test certificates of one seed of the tied law at m-bar-loop; the package's rank at the table shape."""
    from utfproof.certificates.linear_test import linear_test_certificate

    for shape in run.shapes(in_case(WIDE, random_case), anchors=[(5, 1, 2, 1), (2, 3, 2, 1)], largest=64):
        m = paper_looped_dimension(shape)
        found = linear_test_certificate("random-tied", shape, m)
        yield Instance(shape, found.universal, f"{linear_test_dimension(shape)} columns", found, m=m)
    table = Shape(4, 2, 24, 4)
    rank, routes = _linear_rank(table, linear_test_dimension(table))
    holds = rank == linear_test_dimension(table) <= paper_looped_dimension(table)
    yield Instance(table, holds, f"rank {rank}", routes=routes, m=linear_test_dimension(table))
    yield Figure("columns at (4,2,24,4)", linear_test_dimension(table))
    yield Figure("m-bar-loop at (4,2,24,4)", paper_looped_dimension(table))


def _linear_rank(shape: Shape, m: int) -> tuple[int, tuple[str, ...]]:
    """Rank of the linear test's matrix modulo a prime, seed 0 of the tied law: the package's engine and FLINT's."""
    from utfproof.certificates.linear_test import test_columns
    from utfproof.certificates.sources import RandomDraw

    p = gfp.DEFAULT_PRIMES[0]
    matrix = RandomDraw(shape, m, 0, "uniform", "float64", True).r_all(p)[:, test_columns(shape).tolist()]
    both = agree({"FLINT": flint_rank(matrix, p), "float64 blocks": gfp.rank(matrix, p, overwrite=True)})
    return both.value, both.routes


@check("thm:random_looped_universal_transformer/one-layer")
def random_looped_false(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, random_case, one_layer=True)


@check("thm:random_looped_universal_transformer/more-layers")
def random_looped_false_deeper(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, random_case, one_layer=False)


@check("thm:random_looped_universal_transformer/one-layer-wide")
def random_looped_one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Columns of keys and outputs are independent, and each head's queries add d_in to their rank."""
    for shape in run.shapes(in_case(ONE_WIDE, random_case), anchors=[(3, 1, 1, 1), (7, 1, 3, 2)], largest=56):
        m = paper_looped_dimension(shape)
        ranks = _by_two_routes(small_host(shape, m, tied=True), shape, _room)
        rest, least = ranks.value
        holds = rest == (shape.head_dim + shape.d_in) * shape.heads and least >= rest + shape.d_in
        yield Instance(shape, holds, f"ranks {rest}, {least}", routes=ranks.routes, m=m)


Ranks = Callable[[plain.Rows], int]


def _by_two_routes(host: Universal, shape: Shape, told: Callable[[plain.Rows, Shape, Ranks], Any]) -> Agreed:
    """What is told of R_all: FLINT's ranks of the package's, and plain integers of one formed word by word."""
    flint = told(plain.rows(r_all(host)), shape, lambda rows: rational.rank(np.array(rows, dtype=object)))
    return agree({"FLINT": flint, "plain integers": told(plain.r_all(host), shape, plain.rank)})


def _room(columns: plain.Rows, shape: Shape, rank: Ranks) -> tuple[int, int]:
    """Of R_all at L = 1: the rank of all columns but the queries', and the least with one head's queries beside them."""
    H, d = shape.heads, shape.head_dim
    rest = [row[H * d :] for row in columns]
    return rank(rest), min(rank(plain.beside([[row[h * d : (h + 1) * d] for row in columns], rest])) for h in range(H))


@check("thm:random_looped_universal_transformer/one-layer-narrow")
def random_looped_narrow(run: Run) -> Iterator[Instance | Figure]:
    """The last row of E at a target whose queries and keys vanish there, for every renaming of the heads."""
    for shape in run.shapes(in_case(ONE_NARROW, random_case), anchors=[(2, 1, 2, 3)], largest=24):
        m = paper_looped_dimension(shape)
        solvable = _by_two_routes(small_host(shape, m, tied=True), shape, _solvable)
        detail = f"{factorial(shape.heads)} renamings of the heads"
        yield Instance(shape, solvable.value, detail, routes=solvable.routes, m=m)


def _solvable(columns: plain.Rows, shape: Shape, rank: Ranks) -> bool:
    """L = 1: whether some row e has e R_Q^h = e R_K^h = 0 and e R_V^h U = y_h, for y_h the rows of integers (1 + h + H j)^2 in
    some order of the heads."""
    H, b = shape.heads, shape.d_in
    outputs = [[(1 + h + H * j) ** 2 for j in range(b)] for h in range(H)]
    alone, zeros = rank(columns), [0] * (2 * H * shape.head_dim)
    return any(
        rank([*columns, zeros + [v for row in order for v in row]]) == alone
        for order in itertools.permutations(outputs)
    )


@check("thm:random_looped_universal_transformer/gauges")
def random_looped_gauges(run: Run) -> Iterator[Instance | Figure]:
    """Equations and entries of gauges at m-bar-loop, by formulas and counted."""
    anchors = [(3, 2, 1, 1), (2, 2, 2, 3), (2, 3, 28, 30), (2, 4, 30, 30)]
    for shape in run.shapes(in_case(GAUGES, random_case), anchors=anchors):
        m, d, layers = paper_looped_dimension(shape), shape.head_dim, range(shape.layers)
        left, gauges = shape.d_in * (counted(shape) - m), sum(d * d for _ in layers for _ in range(shape.heads))
        more = agree({"shapes": gauges_run_out(shape, m), "words counted": left > gauges})
        detail = f"{left} > {gauges}"
        yield Instance(shape, not more.value, detail, routes=more.routes, m=m)
        if d > 20:
            yield Figure(f"({shape.heads},{shape.layers},{d},{shape.d_in})", detail)


@check("thm:random_looped_universal_transformer/open")
def random_looped_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from open_shapes(run, random_case, (2, 2, 28, 30), (3, 3, 3, 2))
