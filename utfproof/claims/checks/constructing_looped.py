"""Sections 3.1 and 3.2: looped hosts, sparse and random.

The looped theorems are about universality as defined; their proofs go through matching. `looped_case` and `random_case` say
which part of the statement a shape belongs to, so that the parts together cover every shape once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from math import factorial
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, GENERIC_UNTIED
from utfproof.certificates.hosts import RandomDraw
from utfproof.certificates.linear_test import test_columns
from utfproof.certificates.prover import certify
from utfproof.claims import plain
from utfproof.claims.bounds import below, served
from utfproof.claims.claim import KNOWN, Agreed, Figure, Instance, Run, agree, check, each
from utfproof.claims.linear import flint_rank, integer_host
from utfproof.constructions.shared_query import grouped_dimension
from utfproof.exact import gfp, rational
from utfproof.frontiers.interval import Interval, interval
from utfproof.frontiers.questions import ALMOST_ALL, TIED, Question
from utfproof.matching import r_all
from utfproof.paper import formulas as printed
from utfproof.shapes import (
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_dimension,
    paper_looped_dimension,
    shared_key_dimension,
)
from utfproof.util.notions import Notion

ONE_LAYER = [(H, 1, d, d_in) for H in range(2, 6) for d_in in range(1, 9) for d in range(1, d_in + 1)]
"""L = 1, H = 2 ... 5, d <= d_in <= 8: where lower bounds are compared with the looped m-bar."""
DEEPER = [(2, 2, 1, 2), (3, 2, 1, 3)]
"""L = 2: two shapes at which what a functional host needs exceeds the looped m-bar."""
MATCHED, WIDE, FALSE, SERVED, UNDECIDED = "m-bar-loop >= M", "d >= d_in", "refuted", "another host serves", "open"
ONE_WIDE, ONE_NARROW, GAUGES = "L = 1, d >= d_in", "L = 1, d < d_in", "more equations than gauges"
Case = Callable[[Shape], str]


def _known(shape: Shape) -> Interval:
    return interval(shape, Question(Notion.FUNCTIONAL, host=TIED))


def looped_case(shape: Shape) -> str:
    """Which part of thm:looped_sparse_universal_transformer this shape belongs to, by what the frontier knows."""
    m, known = paper_looped_dimension(shape), _known(shape)
    if m >= matching_dimension(shape):
        return MATCHED
    if m < known.lower:
        return FALSE
    if shape.head_dim >= shape.d_in and m >= shared_key_dimension(shape):
        return WIDE
    return SERVED if known.upper is not None and m >= known.upper else UNDECIDED


def random_case(shape: Shape) -> str:
    """The same for thm:random_looped_universal_transformer, where what holds of random hosts takes the tries' place
    (docs/proofs/random-looped.md)."""
    case, wide = looped_case(shape), shape.head_dim >= shape.d_in
    if case in (MATCHED, FALSE):
        return case
    if wide and paper_looped_dimension(shape) >= linear_test_dimension(shape):
        return WIDE
    if shape.layers == 1:
        return ONE_WIDE if wide else ONE_NARROW
    return GAUGES if gauges_run_out(shape, paper_looped_dimension(shape)) else UNDECIDED


def gauges_run_out(shape: Shape, m: int) -> bool:
    """d <= d_in: whether the equations that m < M dimensions leave for a random host outnumber the entries of the gauges."""
    left = shape.d_in * (matching_dimension(shape) - m)
    return shape.head_dim <= shape.d_in and left > shape.layers * shape.heads * shape.head_dim**2


def in_case(wanted: str, case: Case = looped_case) -> Callable[[Shape], bool]:
    """The shapes that belong to this part of the theorem."""
    return lambda shape: case(shape) == wanted


@each("eq:m-bar-loop")
def m_bar_loop(shape: Shape) -> Iterator[Instance]:
    """The printed cases, the package's formula, and blocks counted length by length."""
    H, d, d_in, M = shape.heads, shape.head_dim, shape.d_in, matching_dimension(shape)
    blocks = sum(H**t for t in range(shape.layers + 1)) * max(2 * d, d_in)
    m = agree({"printed cases": printed.m_bar_loop(shape), "blocks counted": blocks})
    enough = H == 1 or d_in >= 2 * d * H or 2 * d >= H**shape.layers * d_in
    holds = m.value == paper_looped_dimension(shape) and (m.value >= M) == enough
    yield m.at(shape, f"m-bar-loop = {m}, M = {M}", holds=holds and (H > 1 or m.value == paper_dimension(shape)))


# --- lower bounds, and what is open ------------------------------------------------------------------------------------


def refuted(case: Case, one_layer: bool, run: Run) -> Iterator[Instance]:
    """Lower bounds at m-bar-loop, at the shapes where the theorem is false."""

    def wanted(shape: Shape) -> bool:
        return (shape.layers == 1) is one_layer and case(shape) == FALSE

    anchors = [entry for entry in (ONE_LAYER if one_layer else DEEPER) if wanted(Shape(*entry))]
    for shape in run.shapes(wanted, anchors=anchors):
        m = paper_looped_dimension(shape)
        almost_all = interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL)).lower > m
        targets = GENERIC_UNTIED if almost_all else ALL_UNTIED
        detail = f"m-bar-loop = {m} < {_known(shape).lower}"
        yield below(shape, m, Notion.FUNCTIONAL, targets, detail=detail, holds=False)


def undecided(case: Case, run: Run) -> Iterator[Instance]:
    """What is known decides none of these shapes; an anchor that something decides after all is decided."""
    for shape in run.shapes(in_case(UNDECIDED, case)):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        holds = {UNDECIDED: None, FALSE: False}.get(case(shape), True)
        detail = f"m-bar-loop = {m} < M = {M}; {_known(shape)}" if holds is None else case(shape)
        yield Instance(shape, holds, detail, routes=(KNOWN,), m=m)


for theorem, parts in (
    ("thm:looped_sparse_universal_transformer", looped_case),
    ("thm:random_looped_universal_transformer", random_case),
):
    check(f"{theorem}/one-layer")(partial(refuted, parts, True))
    check(f"{theorem}/more-layers")(partial(refuted, parts, False))
    check(f"{theorem}/open")(partial(undecided, parts))


# --- sparse hosts ------------------------------------------------------------------------------------------------------


def at_looped(
    host: str, dimension: Callable[[Shape], int], wanted: Callable[[Shape], bool], run: Run
) -> Iterator[Instance]:
    """Identity certificates of a host of this dimension, padded to m-bar-loop."""
    for shape in run.shapes(wanted):
        m, least = paper_looped_dimension(shape), dimension(shape)
        yield served(host, shape, m, holds=least <= m, detail=f"least m {least}")


def grouped(shape: Shape) -> bool:
    """Whether shared-query-groups serves almost all targets at m-bar-loop, below M."""
    m = paper_looped_dimension(shape)
    return shape.head_dim < shape.d_in and grouped_dimension(shape) <= m < matching_dimension(shape)


check("thm:looped_sparse_universal_transformer/wide-heads")(
    partial(at_looped, "shared-key", shared_key_dimension, in_case(WIDE))
)
check("thm:looped_sparse_universal_transformer/almost-all")(
    partial(at_looped, "shared-query-groups", grouped_dimension, grouped)
)


@check("thm:looped_sparse_universal_transformer/attention-matching")
def looped_attention(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    question = Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL, host=TIED)
    for shape in run.shapes(lambda shape: paper_looped_dimension(shape) < interval(shape, question).lower):
        m = paper_looped_dimension(shape)
        yield below(shape, m, Notion.ATTENTION_MATCHING, detail=f"m-bar-loop = {m}", holds=False)


# --- random hosts ------------------------------------------------------------------------------------------------------


@check("thm:random_looped_universal_transformer/linear-test")
def random_linear(run: Run) -> Iterator[Instance | Figure]:
    """Linear-test certificates of one seed of the tied law at m-bar-loop; the package's rank and FLINT's, modulo a prime, at
    the table shape."""
    for shape in run.shapes(in_case(WIDE, random_case)):
        m = paper_looped_dimension(shape)
        found = certify("random-tied", shape, m, notion=Notion.ATTENTION_MATCHING)
        yield Instance(shape, found.universal, f"{linear_test_dimension(shape)} columns", found, m=m)
    table, p = Shape(4, 2, 24, 4), gfp.DEFAULT_PRIMES[0]
    m = linear_test_dimension(table)
    matrix = RandomDraw(table, m, 0, "uniform", "float64", True).r_all(p)[:, test_columns(table).tolist()]
    rank = agree({"FLINT": flint_rank(matrix, p), "float64 blocks": gfp.rank(matrix, p, overwrite=True)})
    yield rank.at(table, f"rank {rank}", holds=rank.value == m <= paper_looped_dimension(table), m=m)


@check("thm:random_looped_universal_transformer/one-layer-wide")
def random_one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Columns of keys and outputs are independent, and each head's queries add d_in to their rank."""
    for shape in run.shapes(in_case(ONE_WIDE, random_case)):
        m = paper_looped_dimension(shape)
        ranks = _by_two_routes(shape, m, _room)
        rest, least = ranks.value
        holds = rest == (shape.head_dim + shape.d_in) * shape.heads and least >= rest + shape.d_in
        yield ranks.at(shape, f"ranks {rest}, {least}", holds=holds, m=m)


Ranks = Callable[[plain.Rows], int]


def _by_two_routes(shape: Shape, m: int, told: Callable[[plain.Rows, Shape, Ranks], Any]) -> Agreed:
    """What is told of a tied host's R_all: FLINT's ranks of the package's, and plain integers of one formed word by word."""
    host = integer_host(shape, m, tied=True)
    flint = told(plain.rows(r_all(host)), shape, lambda rows: rational.rank(np.array(rows, dtype=object)))
    return agree({"FLINT": flint, "plain integers": told(plain.equations(host), shape, plain.rank)})


def _room(columns: plain.Rows, shape: Shape, rank: Ranks) -> tuple[int, int]:
    """Of R_all at L = 1: the rank of all columns but the queries', and the least with one head's queries beside them."""
    H, d = shape.heads, shape.head_dim
    rest = [row[H * d :] for row in columns]
    return rank(rest), min(rank(plain.beside([[row[h * d : (h + 1) * d] for row in columns], rest])) for h in range(H))


@check("thm:random_looped_universal_transformer/one-layer-narrow")
def random_narrow(run: Run) -> Iterator[Instance | Figure]:
    """The last row of E at a target whose queries and keys vanish there, for every renaming of the heads."""
    for shape in run.shapes(in_case(ONE_NARROW, random_case)):
        m = paper_looped_dimension(shape)
        solvable = _by_two_routes(shape, m, _solvable)
        yield solvable.at(shape, f"{factorial(shape.heads)} renamings of the heads", m=m)


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
def random_gauges(run: Run) -> Iterator[Instance | Figure]:
    """Equations and entries of gauges at m-bar-loop, by formulas and counted."""
    for shape in run.shapes(in_case(GAUGES, random_case)):
        m, d = paper_looped_dimension(shape), shape.head_dim
        left = shape.d_in * (plain.columns(shape) - m)
        gauges = sum(d * d for _ in range(shape.layers) for _ in range(shape.heads))
        more = agree({"shapes": gauges_run_out(shape, m), "words counted": left > gauges})
        yield more.at(shape, f"{left} > {gauges}", holds=not more, m=m)
