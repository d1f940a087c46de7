"""Residual streams: the number of matching equations, hosts that meet it, and what tied hosts can and cannot match.

Letter 0 is the stream itself; R_V^{l,0} = M^{l,0} = I. Words are over H + 1 letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from utfproof.certificates.dimensions import ALL_TIED, ALL_UNTIED, GENERIC_UNTIED
from utfproof.certificates.format import Certificate
from utfproof.certificates.lower_bounds import dimension_certificate, span_certificate
from utfproof.certificates.prover import certify
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, of_full_rank, rank_of_matrix, small_input, told
from utfproof.claims.linear import determinant_of, integer_host
from utfproof.claims.streams import carries, equations, routed_targets
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.residual import embed_residual_tied, embed_residual_tree, tied_obstruction
from utfproof.errors import Undecided
from utfproof.ground.notions import Hosts, Notion, Scope, Targets
from utfproof.matching import isolating_target, r_all, w_all
from utfproof.shapes import Shape, matching_dimension, tied_targets_dimension

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 1)]


MANY = 10**6
"""Dimensions of tied hosts that do not help."""
AT_TWO = "(2,2,2,2) residual"
LARGEST = 500
"""M_res up to which certificates are made."""
ACCEPTED = [(H, L, *widths) for H in (1, 2, 3) for L in (1, 2, 3) for widths in ((1, 1), (2, 3))]
"""Shapes up to three heads and three layers, certified whatever the grid is."""


def _shapes(run: Run, largest: int, anchors: Sequence[tuple[int, ...]] = SMALLEST) -> list[Shape]:
    """Shapes with a residual stream, M_res <= largest."""
    found = run.shapes(lambda shape: matching_dimension(shape.with_residual()) <= largest, anchors=anchors)
    return [shape.with_residual() for shape in found]


# --- claims --------------------------------------------------------------------------------------------------------


@check("new:residual/dimension")
def dimension(run: Run) -> Iterator[Instance | Figure]:
    """Columns of W_all, counted twice, against the formula."""
    for shape in _shapes(run, 120):
        target = integer_target(shape, 1)
        found = agree({"package": w_all(target).shape[1], "plain": len(equations(target)[0])})
        yield Instance(shape, found.value == matching_dimension(shape), f"M_res = {found.value}", routes=found.routes)
    for entry in ((2, 1, 1, 2), (2, 2, 1, 1), (2, 4, 30, 30)):
        yield Figure("M_res at ({},{},{},{})".format(*entry), matching_dimension(Shape(*entry, residual=True)))


@check("new:residual/unimodular")
def unimodular(run: Run) -> Iterator[Instance | Figure]:
    """A triangular form certified at every shape; at small ones the determinant of R_all from the definition too."""
    certified = 0
    for shape in _shapes(run, LARGEST, (*SMALLEST, *ACCEPTED)):
        m = matching_dimension(shape)
        found = certify("sparse", shape, m)
        holds, detail = of_full_rank(found), told(found)
        routes: tuple[str, ...] = ()
        if m <= 25:
            host = build_host("sparse", shape, m)
            rows = equations(host)
            same = agree({"definition": rows, "package": plain.rows(r_all(host))})
            value = determinant_of(rows)
            holds &= value.value in (1, -1) and len(rows) == m
            detail, routes = f"determinant {value.value}", (*value.routes, *same.routes)
        certified += holds and (shape.heads, shape.layers, shape.head_dim, shape.d_in) in ACCEPTED
        yield Instance(shape, holds, detail, found, routes=routes, m=m)
    yield Figure("shapes certified with H, L ≤ 3, (d, d_in) = (1,1) or (2,3)", certified)


@check("new:residual/moebius")
def moebius(run: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs for integer targets."""
    for shape in _shapes(run, 25):
        m, target = matching_dimension(shape), integer_target(shape, 3)
        E = embed_residual_tree(shape, m, target)
        found = carries(build_host("sparse", shape, m), E, target, small_input(shape, 2))
        yield Instance(shape, bool(found), "equations and outputs", routes=found.routes, m=m)


@check("new:residual/decision")
def decision(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the rows W_all over routed 0/1 targets, which a certificate holds too; at larger shapes the bound alone."""
    for shape in _shapes(run, 100):
        m = matching_dimension(shape)
        if m > 25:
            detail = f"no host of {m - 1} dimensions"
            yield Instance(shape, _refuted_below(shape, m), detail, dimension_certificate(shape, m - 1), m=m - 1)
            continue
        rows: dict[tuple[int, ...], None] = {}
        targets = list(routed_targets(shape, shape.heads))
        for target in targets:
            rows.update(dict.fromkeys(tuple(int(v) for v in row) for row in w_all(target) if any(row)))
        found = rank_of_matrix([list(row) for row in rows])
        proof = span_certificate(shape, m - 1, targets, tied=False)
        detail = f"rank {found.value} from {len(rows)} rows"
        yield Instance(shape, found.value == m, detail, proof, routes=found.routes, m=m - 1)
    for shape in (Shape(1, 2, 1, 1, 2, residual=True), Shape(1, 2, 1, 2, 1, residual=True)):
        m = matching_dimension(shape)
        stacked = [row for c in range(m) for row in equations(isolating_target(shape, c))]
        found = rank_of_matrix(stacked)
        holds = found.value == m and _refuted_below(shape, m)
        proof = dimension_certificate(shape, m - 1)
        yield Instance(shape, holds, f"rank {found.value}", proof, routes=found.routes, m=m - 1)
        yield Figure(f"rank at {label(shape).removesuffix(' residual')}", found.value)


def _refuted_below(shape: Shape, m: int, targets: str = ALL_UNTIED) -> bool:
    """Whether the proved bound refutes m - 1 dimensions and not m."""
    try:
        dimension_certificate(shape, m, targets=targets)
    except Undecided:
        return not dimension_certificate(shape, m - 1, targets=targets).universal
    return False


@check("new:residual/random")
def random_hosts(run: Run) -> Iterator[Instance | Figure]:
    """The rank of a random host certified, and that of one integer host by two routes; one dimension less gives less."""
    for shape in _shapes(run, 25):
        m = matching_dimension(shape)
        host = integer_host(shape, m, 3)
        matrix = r_all(host)
        found = rank_of_matrix(matrix)
        short = rank_of_matrix(r_all(integer_host(shape, m - 1, 3))) if m <= 12 else None
        proof = certify("random", shape, m)
        holds = found.value == m == matrix.shape[1] and (short is None or short.value < m) and proof.universal
        yield Instance(shape, holds, f"rank {found.value}", proof, routes=found.routes, m=m)


@check("new:residual/tied-host")
def tied_host(run: Run) -> Iterator[Instance | Figure]:
    """Equal columns in two tied hosts, and the target's gap, by the package and from the definition."""
    for shape in (Shape(*entry, residual=True) for entry in [(1, 2, 1, 1), (2, 2, 1, 1), (1, 3, 1, 1), (2, 2, 1, 2)]):
        target = integer_target(shape, 5)
        found = tied_obstruction(target)
        if found is None:
            yield Instance(shape, False, "this target shows no difference")
            continue
        hosts = [integer_host(shape, matching_dimension(shape) + 2, 3, tied=True)]
        hosts.append(build_host("tied", shape, tied_targets_dimension(shape)))
        own, slow = bool((found.gap != 0).any()), True
        wanted = plain.transpose(equations(target))
        for j in range(shape.d_out):
            a, b = found.left + j, found.right + j
            for host in hosts:
                columns, listed = plain.transpose(plain.rows(r_all(host))), plain.transpose(equations(host))
                own &= columns[a] == columns[b]
                slow &= listed[a] == listed[b]
        theirs = w_all(target).T
        slow &= any(wanted[found.left + j] != wanted[found.right + j] for j in range(shape.d_out))
        own &= any(bool((theirs[found.left + j] != theirs[found.right + j]).any()) for j in range(shape.d_out))
        both = agree({"package": own, "plain Fractions": slow})
        proof = dimension_certificate(shape, MANY, every="tied host")
        holds = bool(both) and not proof.universal
        yield Instance(shape, holds, f"columns {found.left} and {found.right}", proof, routes=both.routes, m=MANY)
        generic = dimension_certificate(shape, MANY, every="tied host", targets=GENERIC_UNTIED)
        yield Instance(shape, not generic.universal, "almost all targets are missed", generic, m=MANY)
        sample = decided("random-tied", shape)
        about = Scope(Notion.MATCHING, Targets.parse(ALL_UNTIED), Hosts(tied=True, examined=True))
        yield replace(sample, holds=sample.holds is False, about=about)


@check("new:residual/tied-targets")
def tied_targets(run: Run) -> Iterator[Instance | Figure]:
    """Distinct columns against the formula; equations and outputs for tied integer targets; the bound below."""
    for shape in _shapes(run, 30, (*SMALLEST, *ACCEPTED, (2, 2, 2, 2))):
        m = tied_targets_dimension(shape)
        proof = certify("tied", shape, m)
        holds, detail = of_full_rank(proof), told(proof)
        routes: tuple[str, ...] = ()
        if matching_dimension(shape) <= 20:
            target, host = integer_target(shape, 3, tied=True), build_host("tied", shape, m)
            found = carries(host, embed_residual_tied(shape, m, target), target, small_input(shape, 2))
            columns = {tuple(column) for column in plain.transpose(equations(host))}
            units = all(sum(column) == 1 and set(column) <= {0, 1} for column in columns)
            holds &= bool(found) and units and len(columns) == m
            detail, routes = f"{len(columns)} distinct columns", found.routes
        yield Instance(shape, holds, detail, proof, routes=routes, m=m)
        least = _least_for_tied(shape, m) if m <= 20 or label(shape) == AT_TWO else None
        if least is not None:
            yield Instance(shape, least[0], f"no host of {m - 1} dimensions", least[1], m=m - 1)
            if label(shape) == AT_TWO:
                yield Figure("least at (2,2,2,2)", m)
    yield Figure("m at (2,2,1,1)", tied_targets_dimension(Shape(2, 2, 1, 1, residual=True)))
    yield Figure("M_res at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1, residual=True)))


def _least_for_tied(shape: Shape, m: int) -> tuple[bool, Certificate] | None:
    """That m - 1 dimensions do not serve all tied targets, by the bound where it is proved and by sampled targets at H = 1."""
    if min(shape.head_dim, shape.d_in) >= shape.layers:
        return _refuted_below(shape, m, ALL_TIED), dimension_certificate(shape, m - 1, targets=ALL_TIED)
    if shape.heads == 1:
        return True, span_certificate(shape, m - 1, tied=True)
    return None
