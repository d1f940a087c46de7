"""Appendix D: the random weight-tied host. Its count in both readings, and the steps of its proof."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.checks.appendix_looped import letter_orders
from utfproof.claims.checks.appendix_random import equations_as_blocks
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, dense, rank_modulo, rank_of
from utfproof.claims.linear import determinant_of, integer_host, minors
from utfproof.claims.tied_targets import span_verdict, tied_rows, tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, column_groups, matching_dimension, printed_looped_random_count
from utfproof.systems import TiedUniversal

TABLES = list(PAPER_TABLE_SHAPES.values())


@check("thm:looped_random-R/untied")
def untied(run: Run) -> Iterator[Instance | Figure]:
    """A lower bound at M_loop where it is below M; rank certificates at M."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 2), *TABLES]):
        m, M = printed_looped_random_count(shape), matching_dimension(shape)
        if m < M:
            yield Instance(shape, False, f"m = {m} < M = {M}", dimension_certificate(shape, m), m=m)
        elif M <= 40:
            yield decided("random-tied", shape, m)
        if M <= 40:
            yield decided("random-tied", shape, M, part=BESIDE)


@check("thm:looped_random-R/count")
def count(run: Run) -> Iterator[Instance | Figure]:
    """Columns of a built R_all and of the list of equations."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), *TABLES]):
        H, d, S = shape.heads, shape.head_dim, shape.word_count
        listed = sum(group.words * group.width for group in column_groups(shape))
        columns = agree({"R_all": r_all(build_host("tied", shape)).shape[1], "equations": listed})
        printed = printed_looped_random_count(shape)
        yield Instance(shape, printed == columns.value, f"{printed} of {columns.value}", routes=columns.routes)
        # H (M - M_loop) = 2 d S (H - 1), without fractions
        gap = H * (columns.value - printed) == 2 * d * S * (H - 1)
        holds = gap and columns.value == matching_dimension(shape)
        yield Instance(shape, holds, f"M - M_loop = {columns.value - printed}", routes=columns.routes, part="repair")
    for name, place in PAPER_TABLE_SHAPES.items():
        shape = Shape(*place)
        yield Figure(name, f"{printed_looped_random_count(shape)} < {matching_dimension(shape)}")


@check("thm:looped_random-R/tied")
def tied(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds from isolating targets or spans of sample targets; rank certificates at M."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), *TABLES], largest=44):
        m, M = printed_looped_random_count(shape), matching_dimension(shape)
        if m >= M:
            yield decided("random-tied", shape, m)
        elif min(shape.d_in, shape.head_dim) >= shape.layers:
            refuted = dimension_certificate(shape, m, targets="all tied")
            yield Instance(shape, False, f"tied targets span M = {M} columns", refuted, m=m)
        else:
            refutation = tied_span_refutes(shape, m)
            yield Instance(shape, None if refutation is None else False, f"M = {M}", refutation, m=m)
        if M <= 44:
            yield decided("random-tied", shape, M, part=BESIDE)
    anchor = Shape(2, 2, 1, 1)
    yield Figure("(2,2,1,1), m = 10", span_verdict(anchor, printed_looped_random_count(anchor)))


@check("thm:looped_random-R/tied-commuting")
def tied_without_span(run: Run) -> Iterator[Instance | Figure]:
    """Rank of a random R_all with the targets' rows below it: above m, so for almost every host of that dimension."""
    shape = Shape(2, 4, 1, 1)
    m = printed_looped_random_count(shape)
    rows = tied_rows(shape, commuting_dimension(shape) + 15)
    stacked = np.concatenate([dense(r_all(integer_host(shape, m, seed=1, tied=True))), rows])
    span = agree({"FLINT": rational.rank(rows), "modulo a prime": rank_modulo(rows)})
    both = agree({"FLINT": rational.rank(stacked) > m, "modulo a prime": rank_modulo(stacked) > m})
    yield Instance(
        shape, not both.value, f"rows of host and targets together exceed {m} dimensions", routes=both.routes, m=m
    )
    yield Figure("span of tied targets", span.value)
    yield Figure("M_loop", m)
    yield Figure("M", matching_dimension(shape))


@check("eq:looped-random-stacked")
def looped_stacked(run: Run) -> Iterator[Instance | Figure]:
    """Column by column, for tied and untied targets."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 2)], largest=20):
        for tied_target in (False, True):
            yield from equations_as_blocks(shape, integer_target(shape, seed=1, tied=tied_target), tied=True)


@check("thm:looped_random-R/fubini")
def fubini(run: Run) -> Iterator[Instance | Figure]:
    """The same parameters with U drawn and with a U that repeats a column or is zero."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2)], largest=12):
        M = matching_dimension(shape)
        host = integer_host(shape, M, seed=_full_seed(shape), tied=True)
        poor = TiedUniversal(shape, M, host.R_Q, host.R_K, host.R_V, host.U * 0)
        drawn, other = rank_of(host), rank_of(poor)
        detail = f"rank {drawn.value} with the drawn U, {other.value} with another"
        yield Instance(shape, other.value < drawn.value == M, detail, routes=drawn.routes, m=M)


def _full_seed(shape: Shape) -> int:
    """The first seed whose small integer host has full rank modulo a prime (entries of five values can be unlucky)."""
    M = matching_dimension(shape)
    full = (seed for seed in range(100) if rank_modulo(dense(r_all(integer_host(shape, M, seed, tied=True)))) == M)
    return next(full, 0)


@check("thm:looped_random-R/letter-order")
def letter_order(run: Run) -> Iterator[Instance | Figure]:
    """Both orders of the letters."""
    yield from letter_orders(run)


@check("thm:looped_random-R/disjoint-supports")
def disjoint_supports(run: Run) -> Iterator[Instance | Figure]:
    """Rows of R_all that more than one column uses."""
    for shape in run.shapes(lambda s: s.heads > 1, anchors=[(2, 1, 1, 1), (2, 1, 1, 2)], largest=60):
        host = build_host("printed-looped", shape)
        matrix = r_all(host)
        shared = int((np.bincount(matrix.coordinates()[0]) > 1).sum())
        slow = sum(sum(map(bool, row)) > 1 for row in plain.r_all(host))
        both = agree({"index maps": shared, "plain integers": slow})
        yield Instance(shape, both.value == 0, f"{both.value} coordinates are used twice", routes=both.routes, m=host.m)
        yield decided("tied", shape, part=BESIDE)


@check("thm:looped_random-R/selectors")
def selectors(run: Run) -> Iterator[Instance | Figure]:
    """Coordinates of the two selectors, and of the printed looped host's readers."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2)], largest=60):
        d, D = shape.head_dim, shape.d_in
        first, last = set(range(d)), set(range(D - d, D))
        exist = first <= set(range(D)) and last <= set(range(D))
        fine = agree({"coordinates": exist and not first & last, "inequality": 2 * d <= D})
        yield Instance(shape, fine.value, f"d = {d} of {D}", routes=fine.routes)
        maps = build_host("printed-looped", shape).maps(0, 0)
        rows = [set(part.coordinates()[0].tolist()) for part in (maps.query, maps.key)]
        dense_rows = [{i for i, row in enumerate(plain.rows(part)) if any(row)} for part in (maps.query, maps.key)]
        apart = agree({"index maps": not rows[0] & rows[1], "plain integers": not dense_rows[0] & dense_rows[1]})
        yield Instance(shape, apart.value, "the host's readers", routes=apart.routes, part="repair")


@check("thm:looped_random-R/sum-of-squares")
def sum_of_squares(run: Run) -> Iterator[Instance | Figure]:
    """All minors against the Gram determinant and the rank."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1)], largest=6):
        M = matching_dimension(shape)
        for deficient in (False, True):
            host = integer_host(shape, M + 2, seed=5, tied=True, equal_readers=deficient)
            matrix = dense(r_all(host))
            squares = sum(value**2 for value in minors(matrix).values())
            gram = determinant_of(plain.multiply(plain.transpose(matrix.tolist()), matrix.tolist()))
            rank = rank_of(host).value
            holds = squares == gram.value and (squares == 0) == (rank < M)
            yield Instance(shape, holds, f"rank {rank} of {M}, sum {squares}", routes=gram.routes, m=M + 2)
