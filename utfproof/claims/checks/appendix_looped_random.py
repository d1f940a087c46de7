"""Appendix D: the random weight-tied host. Its count in both readings, and the steps of its proof."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.checks.appendix_looped import refuted_tied
from utfproof.claims.checks.appendix_random import equations_as_blocks
from utfproof.claims.claim import BESIDE, REPAIR, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import decided, dense, rank_modulo, rank_of
from utfproof.claims.linear import determinant_of, full_rank_host, integer_host, minors
from utfproof.claims.tied_targets import tied_rows
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.shapes import Shape, column_groups, matching_dimension, printed_looped_random_count
from utfproof.systems import TiedUniversal


@each("thm:looped_random-R/count")
def count(shape: Shape) -> Iterator[Instance]:
    """Columns of a built R_all and of the list of equations."""
    H, d, S = shape.heads, shape.head_dim, shape.word_count
    listed = sum(group.words * group.width for group in column_groups(shape))
    columns = agree({"R_all": r_all(build_host("tied", shape)).shape[1], "equations": listed})
    missing = columns.value - printed_looped_random_count(shape)
    yield columns.at(shape, f"{columns.value - missing} of {columns}", holds=missing == 0)
    # H (M - M_loop) = 2 d S (H - 1), without fractions
    holds = H * missing == 2 * d * S * (H - 1) and columns.value == matching_dimension(shape)
    yield columns.at(shape, f"M - M_loop = {missing}", holds=holds, part=REPAIR)


@each("thm:looped_random-R/tied")
def tied(shape: Shape) -> Iterator[Instance]:
    """Lower bounds from isolating targets or spans of sample targets; rank certificates at M."""
    m, M = printed_looped_random_count(shape), matching_dimension(shape)
    yield decided("random-tied", shape, m) if m >= M else refuted_tied(shape, m)
    if M <= 44:
        yield decided("random-tied", shape, M, part=BESIDE)


@check("thm:looped_random-R/tied-commuting")
def tied_without_span(run: Run) -> Iterator[Instance | Figure]:
    """Rank of a random R_all with the targets' rows below it: above m, so for almost every host of that dimension."""
    shape = Shape(2, 4, 1, 1)
    m = printed_looped_random_count(shape)
    rows = tied_rows(shape, commuting_dimension(shape) + 15)
    stacked = np.concatenate([dense(r_all(integer_host(shape, m, seed=1, tied=True))), rows])
    span = agree({"FLINT": rational.rank(rows), "modulo a prime": rank_modulo(rows)})
    both = agree({"FLINT": rational.rank(stacked) > m, "modulo a prime": rank_modulo(stacked) > m})
    detail = f"a span of {span}; rows of host and targets together exceed {m} dimensions"
    yield both.at(shape, detail, holds=not both, m=m)


@each("eq:looped-random-stacked")
def looped_stacked(shape: Shape) -> Iterator[Instance]:
    """Column by column, for tied and untied targets."""
    for tied_target in (False, True):
        yield from equations_as_blocks(shape, integer_target(shape, seed=1, tied=tied_target), tied=True)


@each("thm:looped_random-R/fubini")
def fubini(shape: Shape) -> Iterator[Instance]:
    """The same parameters with U drawn and with a U that is zero."""
    M, host = matching_dimension(shape), full_rank_host(shape, tied=True)
    drawn, other = rank_of(host), rank_of(TiedUniversal(shape, M, host.R_Q, host.R_K, host.R_V, host.U * 0))
    detail = f"rank {drawn} with the drawn U, {other} with another"
    yield drawn.at(shape, detail, holds=other.value < drawn.value == M, m=M)


@each("thm:looped_random-R/disjoint-supports")
def disjoint_supports(shape: Shape) -> Iterator[Instance]:
    """Rows of R_all that more than one column uses."""
    host = build_host("printed-looped", shape)
    shared = int((np.bincount(r_all(host).coordinates()[0]) > 1).sum())
    slow = sum(sum(map(bool, row)) > 1 for row in plain.equations(host))
    both = agree({"index maps": shared, "plain integers": slow})
    yield both.at(shape, f"{both} coordinates are used twice", holds=both.value == 0, m=host.m)
    yield decided("tied", shape, part=BESIDE)


@each("thm:looped_random-R/selectors")
def selectors(shape: Shape) -> Iterator[Instance]:
    """Coordinates of the two selectors, and of the printed looped host's readers."""
    d, D = shape.head_dim, shape.d_in
    first, last, every = set(range(d)), set(range(D - d, D)), set(range(D))
    fine = agree({"coordinates": first | last <= every and not first & last, "inequality": 2 * d <= D})
    yield fine.at(shape, f"d = {d} of {D}")
    maps = build_host("printed-looped", shape).maps(0, 0)
    own, other = (set(part.coordinates()[0].tolist()) for part in (maps.query, maps.key))
    both = [any(q) and any(k) for q, k in zip(plain.rows(maps.query), plain.rows(maps.key), strict=True)]
    apart = agree({"index maps": not own & other, "plain integers": not any(both)})
    yield apart.at(shape, "the host's readers", part=REPAIR)


@each("thm:looped_random-R/sum-of-squares")
def sum_of_squares(shape: Shape) -> Iterator[Instance]:
    """All minors against the Gram determinant and the rank."""
    M = matching_dimension(shape)
    for deficient in (False, True):
        host = integer_host(shape, M + 2, seed=5, tied=True, equal_readers=deficient)
        matrix = dense(r_all(host))
        squares = sum(value**2 for value in minors(matrix).values())
        gram = determinant_of(plain.multiply(plain.transpose(matrix.tolist()), matrix.tolist()))
        rank = rank_of(host).value
        holds = squares == gram.value and (squares == 0) == (rank < M)
        yield gram.at(shape, f"rank {rank} of {M}, sum {squares}", holds=holds, m=M + 2)
