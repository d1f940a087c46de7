"""Residual streams: the number of matching equations, hosts that meet it, and what tied hosts can and cannot match.

Letter 0 is the stream itself; R_V^{l,0} = M^{l,0} = I. Words are over H + 1 letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from utfproof.certificates.dimensions import ALL_TIED, ALL_UNTIED, GENERIC_UNTIED, dimension_certificate
from utfproof.certificates.lower_bounds import span_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import below
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import carries, decided, rank_of_matrix, small_input
from utfproof.claims.linear import determinant_of, integer_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.errors import Undecided
from utfproof.matching import embed, isolating_target, r_all, w_all
from utfproof.shapes import Column, Shape, column_index, matching_dimension, tied_targets_dimension
from utfproof.util.notions import Hosts, Notion, Scope, Targets

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


def _dimension(shape: Shape) -> int:
    return matching_dimension(shape.with_residual())


@check("new:residual/unimodular")
def unimodular(run: Run) -> Iterator[Instance | Figure]:
    """A triangular form certified at every shape; at small ones the determinant of R_all from the definition too."""
    certified = 0
    for shape in _shapes(run, LARGEST, (*SMALLEST, *ACCEPTED)):
        found = decided("sparse", shape)
        if matching_dimension(shape) <= 25:
            host = build_host("sparse", shape)
            rows = agree({"definition": plain.equations(host), "package": plain.rows(r_all(host))}).value
            value = determinant_of(rows)
            holds = found.holds and value.value in (1, -1)
            found = replace(found, holds=holds, detail=f"determinant {value.value}", routes=value.routes)
        certified += bool(found.holds) and (shape.heads, shape.layers, shape.head_dim, shape.d_in) in ACCEPTED
        yield found
    yield Figure("shapes certified with H, L ≤ 3, (d, d_in) = (1,1) or (2,3)", certified)


@check("new:residual/moebius")
def moebius(run: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs for integer targets."""
    for shape in _shapes(run, 25):
        m, target = matching_dimension(shape), integer_target(shape, 3)
        host = build_host("sparse", shape, m)
        found = carries(host, embed(host, target).E, target, small_input(shape, 2))
        yield Instance(shape, found.value, "equations and outputs", routes=found.routes, m=m)


@check("new:residual/decision")
def decision(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the rows W_all over routed 0/1 targets, which a certificate holds too; at larger shapes the bound alone."""
    for shape in _shapes(run, 100):
        m = matching_dimension(shape)
        if m > 25:
            yield below(shape, m - 1, Notion.MATCHING, ALL_UNTIED, detail=f"no host of {m - 1} dimensions")
            continue
        targets = [isolating_target(shape, column) for column in range(m)]
        found = rank_of_matrix(np.concatenate([w_all(target) for target in targets]))
        proof = span_certificate(shape, m - 1, targets, tied=False)
        yield Instance(shape, found.value == m, f"rank {found.value}", proof, routes=found.routes, m=m - 1)
    for shape in (Shape(1, 2, 1, 1, 2, residual=True), Shape(1, 2, 1, 2, 1, residual=True)):
        m = matching_dimension(shape)
        found = rank_of_matrix([row for column in range(m) for row in plain.equations(isolating_target(shape, column))])
        detail, holds = f"rank {found.value}", found.value == m
        yield below(shape, m - 1, Notion.MATCHING, ALL_UNTIED, detail=detail, holds=holds, routes=found.routes)
        yield Figure(f"rank at {label(shape).removesuffix(' residual')}", found.value)


@check("new:residual/random")
def random_hosts(run: Run) -> Iterator[Instance | Figure]:
    """The rank of a random host certified, and that of one integer host by two routes; one dimension less gives less."""
    for shape in _shapes(run, 25):
        m = matching_dimension(shape)
        found, proved = rank_of_matrix(r_all(integer_host(shape, m, 3))), decided("random", shape, m)
        short = rank_of_matrix(r_all(integer_host(shape, m - 1, 3))).value if m <= 12 else 0
        holds = found.value == m > short and proved.holds
        yield replace(proved, holds=holds, detail=f"rank {found.value}", routes=found.routes)


@check("new:residual/tied-host")
def tied_host(_: Run) -> Iterator[Instance | Figure]:
    """Equal columns in two tied hosts, and the target's gap, by the package and from the definition."""
    for entry in ((1, 2, 1, 1), (2, 2, 1, 1), (1, 3, 1, 1), (2, 2, 1, 2)):
        shape = Shape(*entry, residual=True)
        target = integer_target(shape, 5)
        # head 0 read in the first layer alone, and in the second alone
        starts = [column_index(shape, Column("OV", (*word, *[0] * (shape.layers - 2)), 0)) for word in ((1, 0), (0, 1))]
        left, right = (slice(start, start + shape.d_out) for start in starts)
        hosts = [integer_host(shape, matching_dimension(shape) + 2, 3, tied=True)]
        hosts.append(build_host("tied", shape, tied_targets_dimension(shape)))
        seen = {
            "package": [plain.rows(r_all(host)) for host in hosts],
            "plain Fractions": [plain.equations(h) for h in hosts],
        }
        seen["package"].append(plain.rows(w_all(target)))
        seen["plain Fractions"].append(plain.equations(target))
        # the columns of both words agree in the hosts, and not in the target
        equal = {
            name: [[row[left] for row in rows] == [row[right] for row in rows] for rows in matrices]
            for name, matrices in seen.items()
        }
        both = agree({name: parts == [True, True, False] for name, parts in equal.items()})
        for targets, told in (
            (ALL_UNTIED, f"columns {starts[0]} and {starts[1]}"),
            (GENERIC_UNTIED, "almost all missed"),
        ):
            bound = below(shape, MANY, Notion.MATCHING, targets, every="tied host", detail=told, holds=both.value)
            yield replace(bound, routes=both.routes)
        sample = decided("random-tied", shape)
        about = Scope(Notion.MATCHING, Targets.parse(ALL_UNTIED), Hosts(tied=True, examined=True))
        yield replace(sample, holds=sample.holds is False, about=about)


@check("new:residual/tied-targets")
def tied_targets(run: Run) -> Iterator[Instance | Figure]:
    """Distinct columns against the formula; equations and outputs for tied integer targets; the bound below."""
    for shape in _shapes(run, 30, (*SMALLEST, *ACCEPTED, (2, 2, 2, 2))):
        m, served = tied_targets_dimension(shape), decided("tied", shape)
        if matching_dimension(shape) <= 20:
            target, host = integer_target(shape, 3, tied=True), build_host("tied", shape, m)
            found = carries(host, embed(host, target).E, target, small_input(shape, 2))
            columns = {tuple(column) for column in plain.transpose(plain.equations(host))}
            units = all(sum(column) == 1 and set(column) <= {0, 1} for column in columns)
            holds = served.holds and found.value and units and len(columns) == m
            served = replace(served, holds=holds, detail=f"{len(columns)} distinct columns", routes=found.routes)
        yield served
        if m > 20 and label(shape) != AT_TWO:
            continue
        if min(shape.head_dim, shape.d_in) >= shape.layers:
            yield below(shape, m - 1, Notion.MATCHING, ALL_TIED, holds=_undecided(shape, m, ALL_TIED))
        elif shape.heads == 1:
            yield Instance(shape, True, "sampled targets", span_certificate(shape, m - 1, tied=True), m=m - 1)
        if label(shape) == AT_TWO:
            yield Figure("least at (2,2,2,2)", m)
    yield Figure("m at (2,2,1,1)", tied_targets_dimension(Shape(2, 2, 1, 1, residual=True)))
    yield Figure("M_res at (2,2,1,1)", _dimension(Shape(2, 2, 1, 1)))


def _undecided(shape: Shape, m: int, targets: str) -> bool:
    """Whether no bound refutes m dimensions."""
    try:
        return dimension_certificate(shape, m, targets=targets).universal
    except Undecided:
        return True
