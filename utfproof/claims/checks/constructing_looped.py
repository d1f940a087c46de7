"""Sections 3.1 and 3.2: looped hosts, sparse and random.

The looped theorems are about universality as defined; their proofs go through matching. `looped_case` and `random_case` say
which part of the statement a shape belongs to, so that the parts together cover every shape once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import factorial
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, GENERIC_UNTIED
from utfproof.certificates.linear_test import linear_test_certificate, test_columns
from utfproof.certificates.sources import RandomDraw
from utfproof.claims import plain
from utfproof.claims.bounds import below, fibre_bound, served
from utfproof.claims.claim import KNOWN, Agreed, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import figures
from utfproof.claims.linear import flint_rank, integer_host
from utfproof.constructions.shared_query_groups import grouped_dimension
from utfproof.exact import gfp, rational
from utfproof.frontiers.interval import Interval, interval
from utfproof.frontiers.questions import ALMOST_ALL, TIED, UNTIED, Question
from utfproof.ground.notions import Notion
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

ONE_LAYER = [(H, 1, d, d_in) for H in range(2, 6) for d_in in range(1, 9) for d in range(1, d_in + 1)]
"""L = 1, H = 2 ... 5, d <= d_in <= 8: where the fibre dimension is compared with the looped m-bar."""
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


# --- lower bounds, for sparse and for random hosts ---------------------------------------------------------------------


@check("thm:looped_sparse_universal_transformer/one-layer")
def looped_false(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop; the number of shapes below the fibre bound, by the bound and by the bare inequality."""
    yield from refuted_shapes(run, looped_case, one_layer=True)
    bare = [d_in * (1 + H) * max(2 * d, d_in) < H * (d_in * d_in + 2 * d * d_in - d * d) for H, _, d, d_in in ONE_LAYER]
    shapes = [Shape(*shape) for shape in ONE_LAYER]
    lower = [paper_looped_dimension(shape) < fibre_bound(shape) for shape in shapes]
    counts = agree({"bound": sum(lower), "bare inequality": sum(bare)})
    cases = [looped_case(shape) for shape in shapes if shape.head_dim < shape.d_in]
    found = f"{cases.count(FALSE)}, {cases.count(MATCHED) + cases.count(SERVED)}, {cases.count(UNDECIDED)}"
    yield Figure("shapes below the bound, H = 2..5, d <= d_in <= 8", counts.value)
    yield Figure("of the shapes with d < d_in: refuted, holding, open", found)
    yield Figure("bound at (2,1,1,2)", fibre_bound(Shape(2, 1, 1, 2)))


@check("thm:looped_sparse_universal_transformer/more-layers")
def looped_false_deeper(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, looped_case, one_layer=False)


@check("thm:random_looped_universal_transformer/one-layer")
def random_false(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, random_case, one_layer=True)


@check("thm:random_looped_universal_transformer/more-layers")
def random_false_deeper(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, random_case, one_layer=False)


def refuted_shapes(run: Run, case: Case, *, one_layer: bool) -> Iterator[Instance]:
    """Lower bounds at m-bar-loop, at the shapes where the theorem is false."""

    def wanted(shape: Shape) -> bool:
        return (shape.layers == 1) is one_layer and case(shape) == FALSE

    anchors = [entry for entry in (ONE_LAYER if one_layer else DEEPER) if wanted(Shape(*entry))]
    for shape in run.shapes(wanted, anchors=anchors):
        m = paper_looped_dimension(shape)
        routes = below_fibre_bound(shape, m).routes if one_layer else ()  # elsewhere another bound refutes
        almost_all = interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL)).lower > m
        targets = GENERIC_UNTIED if almost_all else ALL_UNTIED
        detail = f"m-bar-loop = {m} < {_known(shape).lower}"
        yield below(shape, m, Notion.FUNCTIONAL, targets, detail=detail, holds=False, routes=routes)


def below_fibre_bound(shape: Shape, m: int) -> Agreed:
    """Whether m is below the fibre bound, at L = 1 and d <= d_in: as the frontier knows it, and by counting entries and
    dimensions."""
    H, d, d_in = shape.heads, shape.head_dim, shape.d_in
    left_over = d_in * (m - H * d_in)  # entries of E that the value equations leave free
    needed = H * (d_in * d_in - (d_in - d) * (d_in - d))  # H forms of rank d: codimension (d_in - d)^2 each
    return agree({"bound": m < fibre_bound(shape), "entries counted": left_over < needed})


@check("thm:looped_sparse_universal_transformer/open")
def looped_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from open_shapes(run, looped_case)


@check("thm:random_looped_universal_transformer/open")
def random_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from open_shapes(run, random_case)


def open_shapes(run: Run, case: Case) -> Iterator[Instance]:
    """Undecided instances; an anchor that something decides after all is decided."""
    for shape in run.shapes(in_case(UNDECIDED, case)):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        holds = {UNDECIDED: None, FALSE: False}.get(case(shape), True)
        detail = f"m-bar-loop = {m} < M = {M}; {_known(shape)}" if holds is None else case(shape)
        yield Instance(shape, holds, detail, routes=(KNOWN,), m=m)


# --- sparse hosts ------------------------------------------------------------------------------------------------------


@check("thm:looped_sparse_universal_transformer/wide-heads")
def looped_wide(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates of the shared-key tries, padded to m-bar-loop."""
    for shape in run.shapes(in_case(WIDE)):
        m, least = paper_looped_dimension(shape), shared_key_dimension(shape)
        yield served("shared-key", shape, m, holds=least <= m, detail=f"least m {least}")


def grouped(shape: Shape) -> bool:
    """Whether shared-query-groups serves almost all targets at m-bar-loop, below M."""
    m = paper_looped_dimension(shape)
    return shape.head_dim < shape.d_in and grouped_dimension(shape) <= m < matching_dimension(shape)


@check("thm:looped_sparse_universal_transformer/almost-all")
def looped_almost_all(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates at m-bar-loop; how many shapes are served so, at how many the theorem is false, and at how many,
    for almost all targets, neither is known."""
    for shape in run.shapes(grouped):
        m, least = paper_looped_dimension(shape), grouped_dimension(shape)
        yield served("shared-query-groups", shape, m, holds=least <= m, detail=f"least m {least}")
    yield from figures("needed", grouped_dimension, ((2, 2, 28, 30), (2, 3, 28, 30)))
    for layers in (1, 2, 3, 4):
        shapes = [Shape(H, layers, d, b) for H in range(1, 6) for b in range(1, 9) for d in range(1, b + 1)]
        found = [_for_almost_all(shape) for shape in shapes]
        for what in ("true", "false", "not known"):
            yield Figure(f"L = {layers}: {what} of {len(shapes)} shapes", found.count(what))


def _for_almost_all(shape: Shape) -> str:
    """Whether m-bar-loop is enough for almost all targets."""
    m = paper_looped_dimension(shape)
    known = interval(shape, Question(Notion.FUNCTIONAL, None, UNTIED, ALMOST_ALL, TIED))
    assert known.upper is not None
    return "false" if m < known.lower else "true" if m >= known.upper else "not known"


@check("thm:looped_sparse_universal_transformer/attention-matching")
def looped_attention(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop; of a family of shapes, at how many."""
    for shape in run.shapes(_misses_attention):
        m = paper_looped_dimension(shape)
        yield below(shape, m, Notion.ATTENTION_MATCHING, detail=f"m-bar-loop = {m}", holds=False)
    family = [Shape(H, L, d, b) for H in range(2, 5) for L in (1, 2, 3) for d in range(1, 6) for b in range(1, 6)]
    yield Figure("of 225 shapes with H = 2..4, L <= 3, d, d_in <= 5", sum(map(_misses_attention, family)))


def _misses_attention(shape: Shape) -> bool:
    known = interval(shape, Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL, host=TIED))
    return paper_looped_dimension(shape) < known.lower


# --- random hosts ------------------------------------------------------------------------------------------------------


@check("thm:random_looped_universal_transformer/linear-test")
def random_linear(run: Run) -> Iterator[Instance | Figure]:
    """Linear-test certificates of one seed of the tied law at m-bar-loop; the package's rank and FLINT's, modulo a prime, at
    the table shape."""
    for shape in run.shapes(in_case(WIDE, random_case)):
        m = paper_looped_dimension(shape)
        found = linear_test_certificate("random-tied", shape, m)
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
