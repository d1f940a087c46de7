"""New results on matching, continued: the repaired hosts, tied targets, and hosts that the theory does not cover."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np

from utfproof.certificates.lower_bounds import dimension_certificate, span_dimension
from utfproof.certificates.sources import assemble
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, dense, matched, rank_of
from utfproof.claims.hosts import parameters
from utfproof.claims.tied_targets import isolates, tied_isolating_target, tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.ground.generator import weight_matrix
from utfproof.matching import Embedder, embed
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]
TABLES = list(PAPER_TABLE_SHAPES.values())
REPAIRED = ("sparse", "sparse-front", "tied")


# --- the repaired hosts --------------------------------------------------------------------------------------------


@check("new:repaired-hosts/certified")
def repaired_hosts(run: Run) -> Iterator[Instance | Figure]:
    """Permutation certificates for all three."""
    for shape in run.shapes(anchors=[*SMALLEST, *TABLES], largest=120):
        for name in REPAIRED:
            yield decided(name, shape)
    for name, place in PAPER_TABLE_SHAPES.items():
        yield Figure(name, build_host("tied", Shape(*place)).m)


@check("new:repaired-hosts/padding")
def padding(run: Run) -> Iterator[Instance | Figure]:
    """Permutation certificates above M."""
    for shape in run.shapes(anchors=SMALLEST, largest=24):
        for name in REPAIRED:
            for extra in (1, 2, 7):
                yield decided(name, shape, matching_dimension(shape) + extra)


@check("new:repaired-hosts/nonzeros")
def nonzeros(run: Run) -> Iterator[Instance | Figure]:
    """Ones of every parameter matrix: by the index maps, and by looking at each entry."""
    for shape in run.shapes(anchors=SMALLEST, largest=60):
        for name in REPAIRED:
            host = build_host(name, shape)
            matrices = [plain.rows(matrix) for _, matrix in parameters(host)]
            ones = agree(
                {
                    "index maps": [matrix.nonzeros for _, matrix in parameters(host)],
                    "dense": [sum(row.count(1) for row in rows) for rows in matrices],
                }
            )
            binary = all(set(row) <= {0, 1} for rows in matrices for row in rows)
            holds = binary and max(ones.value) <= host.m
            if name == "tied":
                known = {"R_Q": shape.head_dim, "R_K": shape.head_dim, "U": shape.d_in}
                names = [found.partition("[")[0] for found, _ in parameters(host)]
                holds &= all(known.get(kind, count) == count for kind, count in zip(names, ones.value, strict=True))
            detail = f"at most {max(ones.value)} of m = {host.m}"
            yield Instance(f"{name} at {label(shape)}", holds, detail, routes=ones.routes)
    most = max(matrix.nonzeros for _, matrix in parameters(build_host("tied", Shape(2, 4, 30, 30))))
    yield Figure("most ones in a matrix of tied at (2,4,30,30)", most)


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


@check("new:single-head-depth")
def single_head_depth(run: Run) -> Iterator[Instance | Figure]:
    """A certificate at 2dL + d_in, a lower bound below it."""
    for shape in run.shapes(lambda s: s.heads == 1, anchors=[(1, 1, 1, 1), (1, 4, 3, 2)]):
        m = 2 * shape.head_dim * shape.layers + shape.d_in
        found = decided("tied", shape, m)
        printed = (shape.layers + 1) * max(2 * shape.head_dim, shape.d_in)
        if (m < printed) is not (shape.d_in != 2 * shape.head_dim):
            found = Instance(shape, False, f"printed {printed}, {m}", found.certificate, m=m)
        yield found
        refuted = dimension_certificate(shape, m - 1)
        yield Instance(shape, not refuted.universal, "no host below", refuted, m=m - 1)
    yield Figure("least m at (1,4,3,2)", build_host("tied", Shape(1, 4, 3, 2)).m)
    yield Figure("printed at (1,4,3,2)", 5 * max(2 * 3, 2))


@check("new:random-hosts/condition")
def condition(run: Run) -> Iterator[Instance | Figure]:
    """Singular values of random R_all."""
    shape = Shape(*PAPER_TABLE_SHAPES["1-hop"])
    M = matching_dimension(shape)
    for m, low, high in ((M, 1e3, float("inf")), (ceil(1.25 * M), 1, 25)):
        for seed in (0, 1):
            found = Embedder(build_host("random", shape, m, seed=seed)).solver
            holds = found.rank == M and low < found.condition < high
            yield Instance(shape, holds, f"seed {seed}: condition {found.condition:.3g}", m=m)
            yield Figure(f"m = {m}, seed {seed}", found.condition)


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


@check("new:tied-targets/lower-bound")
def tied_lower_bound(run: Run) -> Iterator[Instance | Figure]:
    """A lower bound at M - 1, a certificate at M."""
    for shape in run.shapes(
        lambda s: min(s.head_dim, s.d_in) >= s.layers, anchors=[(1, 1, 1, 1), (2, 2, 2, 3), *TABLES]
    ):
        M = matching_dimension(shape)
        refuted = dimension_certificate(shape, M - 1, targets="all tied")
        yield Instance(shape, not refuted.universal, f"no host below M = {M}", refuted, m=M - 1)
        yield decided("tied", shape)


@check("new:tied-targets/span")
def tied_span(run: Run) -> Iterator[Instance | Figure]:
    """Span certificates at M - 1."""
    for shape in run.shapes(lambda s: s.layers <= 3 and s.d_in >= 2, anchors=[(1, 1, 1, 2), (2, 3, 1, 2)], largest=75):
        M = matching_dimension(shape)
        refutation = tied_span_refutes(shape, M - 1)
        yield Instance(
            shape, None if refutation is None else not refutation.universal, f"span M = {M}", refutation, m=M - 1
        )
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


# --- who is not covered --------------------------------------------------------------------------------------------


@check("new:not-covered/narrow-heads")
def narrow_heads(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds at m = H d."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), *TABLES]):
        m = shape.heads * shape.head_dim
        refuted = dimension_certificate(shape, m)
        holds = not refuted.universal and matching_dimension(shape) >= 2 * m
        yield Instance(shape, holds, f"M = {matching_dimension(shape)}", refuted, m=m)


@check("new:not-covered/factored-values")
def factored_values(run: Run) -> Iterator[Instance | Figure]:
    """Ranks of hosts with exact factors against the bound."""
    for shape in run.shapes(anchors=[(2, 1, 1, 2), (2, 2, 1, 2)], largest=16):
        M = matching_dimension(shape)
        for inner in (1, 2):
            rank, bound = rank_of(_factored(shape, M, inner)), min(M, _factored_bound(shape, inner))
            at, detail = f"d_v = {inner} at {label(shape)}", f"rank {rank.value}, bound {bound}"
            yield Instance(at, rank.value == bound, detail, routes=rank.routes)
    anchor = Shape(2, 2, 2, 3)
    least = next(v for v in range(1, 99) if _factored_bound(anchor, v) >= matching_dimension(anchor))
    yield Figure("bound at (2,2,2,3), d_v = 2", _factored_bound(anchor, 2))
    yield Figure("least d_v at (2,2,2,3)", least)


def _factored_bound(shape: Shape, inner: int) -> int:
    return 2 * shape.head_dim * shape.heads + shape.heads * inner


def _factored(shape: Shape, m: int, inner: int, *, rounded: bool = False) -> Universal:
    """A host of float32 weights with factored values, or with their rounded product, as exact numbers: all times 2^160, so that
    columns of R_all are scaled by powers of two."""

    def drawn(tensor: str, rows: int, columns: int, layer: int, head: int) -> np.ndarray:
        return weight_matrix(9, tensor, rows, columns, dtype="float32", layer=layer, head=head)

    def draw(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        found = drawn(tensor, inner if tensor == "W_O" else m, columns, layer, head)
        if tensor == "R_V":
            found = drawn("W_V", m, inner, layer, head) @ drawn("W_O", inner, m, layer, head)
        return np.array([int(float(v) * 2.0**160) for v in found.reshape(-1)], dtype=object).reshape(found.shape)

    def factors(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        return draw(tensor, inner if tensor == "W_V" else columns, layer, head)

    return assemble(shape, m, False, *((draw,) if rounded else (factors, ("W_V", "W_O"))))


@check("new:not-covered/rounded-product")
def rounded_product(_: Run) -> Iterator[Instance | Figure]:
    """Exact ranks with the factors and with their rounded product."""
    shape = Shape(2, 2, 2, 3)
    M = matching_dimension(shape)
    exact, full = (rank_of(_factored(shape, M, 2, rounded=rounded)) for rounded in (False, True))
    holds = exact.value == _factored_bound(shape, 2) < M
    yield Instance("exact factors", holds, f"rank {exact.value} of {M}", routes=exact.routes)
    yield Instance("rounded product", full.value == M, f"rank {full.value} of {M}", routes=full.routes)
    yield Figure("rank with exact factors", exact.value)
    yield Figure("rank with the rounded product", full.value)
    yield Figure("M", M)
