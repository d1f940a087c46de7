"""Appendix B: random hosts. The theorem at m >= M, its count of equations, the stacked system, and the determinant of R_all."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.claim import BESIDE, REPAIR, Figure, Instance, Run, agree, check, each, label
from utfproof.claims.decisions import decided, dense, matched, rank_of
from utfproof.claims.linear import determinant_of, full_rank_host, integer_host, left_inverse
from utfproof.claims.small_models import array
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.exact.symbolic.determinant import determinant_degree, schwartz_zippel_bound
from utfproof.matching import embed, r_all, w_all
from utfproof.paper.formulas import designed_dimension, printed_random_count
from utfproof.shapes import Shape, column_groups, matching_dimension
from utfproof.systems import Universal

DRAWS = [(0, "uniform", "float64"), (1, "signs", "float64"), (2, "binomial", "float64"), (3, "uniform", "float32")]
"""Seed, law and number format of the random hosts that are certified."""


@check("thm:random-R/matching")
def random_matching(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates modulo a prime for several draws."""
    for shape in run.shapes():
        M = matching_dimension(shape)
        for seed, law, dtype in DRAWS[:1] if shape.heads > 2 else DRAWS:
            # few signs make singular matrices likely at the smallest sizes: the seed is raised until one is not
            for attempt in range(seed, seed + (50 if law == "signs" else 1)):
                found = decided("random", shape, M + (seed == 0), seed=attempt, law=law, dtype=dtype)
                if found.holds:
                    break
            yield found


@check("thm:random-R/constant-single")
def constant_single(run: Run) -> Iterator[Instance | Figure]:
    """For each c a depth at which c (d + d_in) < M; the repair at m = M."""
    for c in range(1, 5):
        shape = next(s for s in (Shape(1, L, 1, 1) for L in range(1, 20)) if matching_dimension(s) > 2 * c)
        m = c * (shape.head_dim + shape.d_in)
        refuted = dimension_certificate(shape, m)
        yield Instance(shape, refuted.universal, f"c = {c}: below M = {matching_dimension(shape)}", refuted, m=m)
        yield decided("random", shape, part=BESIDE)


@each("thm:random-R/count")
def count(shape: Shape) -> Iterator[Instance]:
    """Columns of a built R_all and of the list of equations, against the printed count and the m_0 of the same proof."""
    listed = sum(group.words * group.width for group in column_groups(shape))
    columns = agree({"R_all": r_all(build_host("sparse", shape)).shape[1], "equations": listed})
    printed, m_0 = printed_random_count(shape), designed_dimension(shape)
    yield columns.at(shape, f"R_all has {columns} columns, printed {printed}", holds=printed == columns.value)
    yield columns.at(shape, f"R_all has {columns} columns", holds=m_0 == columns.value, part=REPAIR)


@each("eq:multi-head-stacked")
def stacked(shape: Shape) -> Iterator[Instance]:
    """An E that solves all equations, and one with a wrong entry: the columns of R_all, and the equations word by word."""
    host, target = build_host("sparse", shape), integer_target(shape, seed=1)
    E = array(dense(embed(host, target).E))
    wrong = E.copy()
    wrong[0, -1] += 1
    for each_one, solves in ((E, True), (wrong, False)):
        found = matched(host, target, each_one)
        yield found.at(shape, "solved" if solves else "one entry off", holds=found.value is solves)


@each("thm:random-R/pseudoinverse")
def pseudoinverse(shape: Shape) -> Iterator[Instance]:
    """Left inverses found two ways, against ranks found two ways."""
    M = matching_dimension(shape)
    for m, deficient in ((M, False), (M + 1, False), (M + 1, True), (M - 1, False)):
        host = integer_host(shape, m, seed=3, equal_readers=deficient)
        matrix = dense(r_all(host))
        independent = rank_of(host).value == M
        invertible = left_inverse(matrix)
        solves = rational.solve_left(matrix, dense(w_all(integer_target(shape)))) is not None
        holds = invertible.value == independent and (solves or not independent)
        yield invertible.at(shape, f"left inverse: {invertible}", holds=holds, m=m)


# --- the determinant polynomial p of R_all ---------------------------------------------------------------------------


@each("thm:random-R/explicit-assignment")
def explicit_assignment(shape: Shape) -> Iterator[Instance]:
    """The determinant at the repaired hosts by two routes, and a certificate."""
    M = matching_dimension(shape)
    for name in ("sparse", "tied"):
        if M <= 24:
            value = determinant_of(dense(r_all(build_host(name, shape))))
            yield value.at(shape, f"det = {value} at {name}", holds=abs(value.value) == 1, m=M)
        yield decided(name, shape, M)


@check("thm:random-R/block-diagonal")
def block_diagonal(run: Run) -> Iterator[Instance | Figure]:
    """Whether the rows of R_all that are not zero are those of the identity, in some order."""
    for shape in run.shapes():
        M = matching_dimension(shape)
        hosts = [(name, M, "") for name in ("printed-tree-row", "printed-tree-column") if shape.heads > 1]
        hosts += [(name, m, REPAIR) for name in ("sparse", "sparse-front", "tied") for m in (M, M + 1)]
        for name, m, part in hosts:
            host = build_host(name, shape, m) if part else build_host(name, shape)
            matrix, nonzero = dense(r_all(host)), sorted(row for row in plain.equations(host) if any(row))
            sums = (matrix.sum(0) == 1).all() and (matrix.sum(1) <= 1).all() and (matrix * matrix == matrix).all()
            both = agree({"NumPy": bool(sums), "plain integers": nonzero == sorted(plain.identity(M))})
            yield both.at(f"{name} at {label(shape)}" + (f", m = {m}" if part else ""), part=part)
    groups = column_groups(Shape(2, 2, 1, 2))
    counts = {(group.kind, group.width): sum(g.words for g in groups if g.kind == group.kind) for group in groups}
    sizes = (f"{kind}: {words} of width {width}" for (kind, width), words in counts.items())
    yield Figure("blocks at (2,2,1,2)", ", ".join(sizes))


@each("thm:random-R/variables")
def variables(shape: Shape) -> Iterator[Instance]:
    """p with U doubled, everything else unchanged."""
    M, host = matching_dimension(shape), full_rank_host(shape)
    doubled = Universal(shape, M, host.R_Q, host.R_K, host.R_V, 2 * host.U)
    first, second = (determinant_of(dense(r_all(one))) for one in (host, doubled))
    yield second.at(shape, "U doubled, p changes", holds=first.value == second.value, m=M)
    scaled = first.value != 0 and second.value == first.value << (shape.d_out * shape.leaves)
    yield second.at(shape, "degree d_in H^L in U", holds=scaled, part=REPAIR, m=M)


@check("thm:random-R/degree")
def degree(run: Run) -> Iterator[Instance | Figure]:
    """p at integer hosts and at twice their parameters."""
    for shape in run.shapes():
        M, expected = matching_dimension(shape), determinant_degree(shape)
        for tied in (False, True):
            host = full_rank_host(shape, tied=tied)
            R_Q, R_K, R_V = (2 * np.array(part, dtype=object) for part in (host.R_Q, host.R_K, host.R_V))
            doubled = type(host)(shape, M, R_Q, R_K, R_V, 2 * host.U)
            first, second = (determinant_of(dense(r_all(one))) for one in (host, doubled))
            holds = first.value != 0 and second.value == first.value << expected
            yield second.at(shape, f"degree {expected}", holds=holds, m=M)
    for place in ((2, 4, 30, 30), (4, 2, 24, 4), (1, 1, 1, 1)):
        yield Figure(f"({','.join(map(str, place))})", determinant_degree(Shape(*place)))


@check("new:finite-weights")
def finite_weights(run: Run) -> Iterator[Instance | Figure]:
    """The exact probability at the smallest shape, counted and by formula, against the bound."""
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


def _singular_probability(q: int) -> Fraction:
    """P[det R_all = 0] at (1,1,1,1), m = 3, entries uniform over integers modulo a prime q: all 3 x 3 matrices counted."""
    triples = np.array(list(np.ndindex(q, q, q)))
    crosses = np.cross(triples[:, None, :], triples[None, :, :]).reshape(-1, 3) % q
    kinds, how_many = np.unique(crosses, axis=0, return_counts=True)
    singular = int((how_many[:, None] * ((kinds @ triples.T) % q == 0)).sum())
    zero_output = Fraction(1, q**3)
    return zero_output + (1 - zero_output) * Fraction(singular, q**9)
