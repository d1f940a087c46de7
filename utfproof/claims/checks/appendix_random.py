"""Appendix B: random hosts. The theorem at m >= M, its count of equations, and the stacked linear system.

What the proof says of the determinant polynomial stands in `appendix_random_determinant`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.claim import BESIDE, REPAIR, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, dense, matched, rank_of
from utfproof.claims.linear import integer_host, left_inverse, minors
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import embed, r_all, w_all
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Column, Shape, column_at, column_groups, matching_dimension, printed_random_count
from utfproof.systems import Target, Universal

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]
DRAWS = [(0, "uniform", "float64"), (1, "signs", "float64"), (2, "binomial", "float64"), (3, "uniform", "float32")]
"""Seed, law and number format of the random hosts that are certified."""


@check("thm:random-R/matching")
def random_matching(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates modulo a prime for several draws."""
    for shape in run.shapes(anchors=SMALLEST, largest=24):
        M = matching_dimension(shape)
        for seed, law, dtype in DRAWS[:1] if shape.heads > 2 else DRAWS:
            # few signs make singular matrices likely at the smallest sizes: the seed is raised until one is not
            yield _first_full(shape, M + (seed == 0), seed, law, dtype)


def _first_full(shape: Shape, m: int, seed: int, law: str, dtype: str) -> Instance:
    tries = range(seed, seed + 50) if law == "signs" else range(seed, seed + 1)
    found = None
    for attempt in tries:
        found = decided("random", shape, m, seed=attempt, law=law, dtype=dtype)
        if found.holds:
            break
    assert found is not None
    return found


@check("thm:random-R/constant-heads")
def constant_heads(run: Run) -> Iterator[Instance | Figure]:
    """Certificates at 4 H^L d + H^L d_in, and the ratio M / (H^L d + H^L d_in) on fixed shapes."""
    for shape in run.shapes(lambda s: s.heads > 1, anchors=[(2, 1, 1, 1)], largest=16):
        m = (4 * shape.head_dim + shape.d_in) * shape.leaves
        yield decided("random", shape, m)
    for H in range(2, 6):
        for L in (1, 4, 8, 12):
            shapes = [Shape(H, L, d, d_in) for d in (1, 2, 3) for d_in in (1, 2, 3)]
            limits = [(4 * shape.head_dim + shape.d_in) * H**L for shape in shapes]
            words = sum(H**t for t in range(1, L + 1))
            fits = agree(
                {
                    "formula": [matching_dimension(s) <= m for s, m in zip(shapes, limits, strict=True)],
                    "powers added": [
                        2 * s.head_dim * words + s.d_in * H**L <= m for s, m in zip(shapes, limits, strict=True)
                    ],
                }
            )
            yield Instance(f"H = {H}, L = {L}", all(fits.value), f"{len(shapes)} shapes", routes=fits.routes)
    few = Shape(2, 3, 1, 1)
    yield Figure("M against 3 H^L d + H^L d_in at (2,3,1,1)", f"{matching_dimension(few)} against {4 * few.leaves}")
    ratios = []
    for H, L, d, d_in in [(2, 3, 1, 1), (2, 4, 30, 30), (3, 3, 2, 1), (2, 5, 3, 1), (2, 4, 9, 1), (5, 2, 1, 3)]:
        shape = Shape(H, L, d, d_in)
        ratios.append(Fraction(matching_dimension(shape), (d + d_in) * H**L))
    yield Figure("largest M / (H^L d + H^L d_in) examined", str(max(ratios)))


@check("thm:random-R/constant-single")
def constant_single(run: Run) -> Iterator[Instance | Figure]:
    """For each c a depth at which c (d + d_in) < M; the repair at m = M."""
    for c in range(1, 5):
        shape = next(s for s in (Shape(1, L, 1, 1) for L in range(1, 20)) if matching_dimension(s) > 2 * c)
        m = c * (shape.head_dim + shape.d_in)
        refuted = dimension_certificate(shape, m)
        yield Instance(shape, refuted.universal, f"c = {c}: below M = {matching_dimension(shape)}", refuted, m=m)
        yield decided("random", shape, part=BESIDE)


@check("thm:random-R/count")
def count(run: Run) -> Iterator[Instance | Figure]:
    """Columns of a built R_all and of the list of equations, against the printed count and m_0."""
    for shape in run.shapes(anchors=SMALLEST, largest=40):
        listed = sum(group.words * group.width for group in column_groups(shape))
        columns = agree({"R_all": r_all(build_host("sparse", shape)).shape[1], "equations": listed})
        printed, detail = printed_random_count(shape), f"R_all has {columns.value} columns"
        yield Instance(shape, printed == columns.value, f"{detail}, printed {printed}", routes=columns.routes)
        yield Instance(shape, _m_0(shape) == columns.value, detail, routes=columns.routes, part=REPAIR)
    large, small = Shape(*PAPER_TABLE_SHAPES["4-hop"]), Shape(2, 1, 1, 2)
    yield Figure("printed at (2,4,30,30)", printed_random_count(large))
    yield Figure("columns at (2,4,30,30)", sum(group.words * group.width for group in column_groups(large)))
    yield Figure("printed M at (2,1,1,2)", printed_random_count(small))
    yield Figure("m_0 at (2,1,1,2)", _m_0(small))


def _m_0(shape: Shape) -> int:
    """m_0 as the proof of thm:random-R sums it: internal blocks of width 2Hd, then the leaves."""
    return (
        sum(shape.heads**t * 2 * shape.heads * shape.head_dim for t in range(shape.layers)) + shape.leaves * shape.d_in
    )


@check("thm:random-R/equations")
def equations(run: Run) -> Iterator[Instance | Figure]:
    """Blocks of columns against words written out and the closed formula."""
    for shape in run.shapes(anchors=SMALLEST):
        H, L = shape.heads, shape.layers
        groups = column_groups(shape)
        found = tuple(sum(g.words for g in groups if g.kind == kind) for kind in ("Q", "K", "OV"))
        words = sum(1 for length in range(1, L + 1) for _ in plain.words(H, length))
        formula = L if H == 1 else H * (H**L - 1) // (H - 1)
        listed = (words, words, sum(1 for _ in plain.words(H, L)))
        same = agree(
            {"columns of R_all": found == (formula, formula, H**L), "words listed": listed == (formula, formula, H**L)}
        )
        yield Instance(
            shape, bool(same), f"{found[0]} queries, {found[1]} keys, {found[2]} outputs", routes=same.routes
        )


@check("eq:multi-head-stacked")
def stacked(run: Run) -> Iterator[Instance | Figure]:
    """Column by column: which columns of E R_all and W_all agree, against the equations formed on their own."""
    for shape in run.shapes(anchors=SMALLEST, largest=20):
        yield from equations_as_blocks(shape, integer_target(shape, seed=1), tied=False)


def equations_as_blocks(shape: Shape, target: Target, *, tied: bool) -> Iterator[Instance]:
    """For E that solve all equations, or only some: the columns in which E R_all and W_all differ belong to the equations
    that fail."""
    for host, E in _embeddings(shape, target, tied):
        off = np.any(dense(E) @ dense(r_all(host)) != dense(w_all(target)), axis=0)
        stacked_fails = {_equation(column_at(shape, j)) for j in np.flatnonzero(off).tolist()}
        alone = {word for word, fine in _equations_alone(host, target, E).items() if not fine}
        same = stacked_fails == alone
        again = plain.multiply(plain.rows(E), plain.r_all(host)) == plain.w_all(target)
        both = agree({"matching": same and (not stacked_fails) == again, "plain integers": same})
        yield Instance(shape, both.value, f"{len(alone)} equations fail", routes=both.routes)


def _equation(column: Column) -> tuple[str, tuple[int, ...]]:
    return column.kind, tuple(column.word)


def _embeddings(shape: Shape, target: Target, tied: bool) -> Iterator[tuple[Universal, np.ndarray]]:
    """Hosts with an E that solves everything, one with a wrong entry, and one that has nothing to do with the target."""
    host = build_host("tied" if tied else "sparse", shape)
    E = np.array(dense(embed(host, target).E), dtype=object)
    yield host, E
    wrong = E.copy()
    wrong[0, -1] += 1
    yield host, wrong
    other = integer_host(shape, 3, seed=2, tied=tied)
    yield other, np.array([[(i + 2 * j) % 3 - 1 for j in range(3)] for i in range(shape.d_in)], dtype=object)


def _equations_alone(host: Universal, target: Target, E: np.ndarray) -> dict[tuple[str, tuple[int, ...]], bool]:
    """Every matching equation on its own, in plain integers: (kind, word) -> whether it holds."""
    H, L = host.shape.heads, host.shape.layers
    left = plain.rows(E)

    found = {}
    for length in range(1, L + 1):
        for word in plain.words(H, length):
            routed = plain.multiply(left, plain.routed(host, word[:-1]))
            forms = plain.form(target, word[:-1])
            for kind, place in (("Q", 0), ("K", 1)):
                reader = plain.rows(host.maps(length - 1, word[-1])[place])
                wanted = plain.multiply(forms, plain.rows(target.parameters(length - 1, word[-1])[place]))
                found[kind, word] = plain.multiply(routed, reader) == wanted
    for word in plain.words(H, L):
        out = plain.multiply(plain.multiply(left, plain.routed(host, word)), plain.rows(host.U))
        found["OV", word] = out == plain.form(target, word)
    return found


@check("thm:random-R/pseudoinverse")
def pseudoinverse(run: Run) -> Iterator[Instance | Figure]:
    """Left inverses found two ways, against ranks found two ways."""
    for shape in run.shapes(anchors=SMALLEST, largest=8):
        M = matching_dimension(shape)
        for m, deficient in ((M, False), (M + 1, False), (M + 1, True), (M - 1, False)):
            host = integer_host(shape, m, seed=3, equal_readers=deficient)
            matrix = dense(r_all(host))
            independent = rank_of(host).value == M
            invertible = left_inverse(matrix)
            solves = rational.solve_left(matrix, dense(w_all(integer_target(shape)))) is not None
            holds = invertible.value == independent and (solves or not independent)
            yield Instance(shape, holds, f"left inverse: {invertible.value}", routes=invertible.routes, m=m)


@check("thm:random-R/single-target")
def single_target(run: Run) -> Iterator[Instance | Figure]:
    """A host with two equal columns still matches targets with W_Q = W_K in that head."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        m = matching_dimension(shape)
        host = integer_host(shape, m, seed=3, equal_readers=True)
        target = integer_target(shape, seed=2)
        target.W_K[0, 0] = target.W_Q[0, 0]
        rank = rank_of(host)
        if rank.value != m - shape.head_dim:
            continue
        carried = matched(host, target)
        yield Instance(
            shape,
            carried.value,
            f"rank {rank.value} < M = {m}, and E exists: {carried.value}",
            routes=carried.routes,
            m=m,
        )


@check("thm:random-R/minors")
def some_minor(run: Run) -> Iterator[Instance | Figure]:
    """All maximal minors against the rank."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1)], largest=6):
        M = matching_dimension(shape)
        for m, deficient in ((M, False), (M + 2, False), (M + 2, True)):
            host = integer_host(shape, m, seed=5, equal_readers=deficient)
            rank, found = rank_of(host), minors(dense(r_all(host)))
            nonzero = sum(1 for value in found.values() if value)
            detail = f"rank {rank.value} of {M}, {nonzero} of {len(found)} minors nonzero"
            yield Instance(shape, (nonzero > 0) == (rank.value == M), detail, routes=rank.routes, m=m)
