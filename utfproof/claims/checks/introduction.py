"""Section 1: the informal theorems and the overview figure. There d = d_in, and O( ) hides constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from utfproof.claims import plain
from utfproof.claims.bounds import below_root, side_by_side_bound, too_small_at_depth
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, exact_emulation, ranks
from utfproof.claims.verdicts import TOLERANCE
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.matching import embed
from utfproof.paper import tables as paper
from utfproof.shapes import Shape, matching_dimension, paper_dimension

DIAGONAL = [(H, L, d, d) for H in (2, 3) for L in (1, 2, 3) for d in (1, 2)]
"""Shapes with d = d_in, as the informal statements have it."""


def _diagonal(shape: Shape) -> bool:
    return shape.d_in == shape.head_dim


@check("intro:sparse/heads")
def sparse_heads(run: Run) -> Iterator[Instance | Figure]:
    """m-bar against 5 H^L d, and a certificate at that m."""
    ratios = [Fraction(paper_dimension(Shape(*s)), s[0] ** s[1] * s[2]) for s in DIAGONAL]
    for shape in run.shapes(lambda s: s.heads > 1 and _diagonal(s), anchors=DIAGONAL):
        m = paper_dimension(shape)
        if m >= 5 * shape.leaves * shape.head_dim:
            yield Instance(shape, False, f"m-bar = {m}", m=m)
        else:
            yield decided("sparse", shape, m)
    yield Figure("largest m / (H^L d) examined", str(max(ratios)))


@check("intro:sparse/single-head")
def sparse_single_head(run: Run) -> Iterator[Instance | Figure]:
    """M against 3 L d, and a certificate at that m."""
    for shape in run.shapes(
        lambda s: s.heads == 1 and _diagonal(s), anchors=[(1, 1, 1, 1), (1, 5, 2, 2), (1, 20, 1, 1)]
    ):
        M = matching_dimension(shape)
        found = decided("sparse", shape)
        yield Instance(
            shape, found.holds and M <= 3 * shape.layers * shape.head_dim, found.detail, found.certificate, m=M
        )


@check("intro:random/heads")
def random_heads(run: Run) -> Iterator[Instance | Figure]:
    """One draw, untied and tied, at m = M."""
    yield from ranks(
        run.shapes(lambda s: s.heads > 1 and _diagonal(s), anchors=[(2, 1, 1, 1)], largest=80), "random", "random-tied"
    )


@check("intro:random/single-head")
def random_single_head(run: Run) -> Iterator[Instance | Figure]:
    """For each constant c, no host with m = c d at L = c."""
    for c in range(1, 9):
        for d in (1, 2):
            yield too_small_at_depth(c, d)
    yield Figure("least m allowed / d at L = 8", side_by_side_bound(Shape(1, 8, 2, 2)) // 2)


@check("intro:embedding-shape")
def embedding_shape(run: Run) -> Iterator[Instance | Figure]:
    """The number of rows of the E that embed finds, and of W_all word by word."""
    for shape in run.shapes(anchors=[(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 2, 2)], largest=20):
        target = integer_target(shape)
        rows = agree({"embed": embed(build_host("tied", shape), target).E.shape[0], "W_all": len(plain.w_all(target))})
        yield Instance(shape, rows.value == shape.d_in, f"E has {rows.value} rows", routes=rows.routes)


@check("intro:lower-bound")
def lower_bound(run: Run) -> Iterator[Instance | Figure]:
    """The largest m below the bound, at every (H, L)."""
    for shape in run.shapes(lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 6, 1, 1), (3, 3, 1, 1)]):
        found = below_root(shape)
        yield found
        if (shape.heads, shape.layers) == (2, 6):
            yield Figure("largest m refuted at (H, L) = (2, 6)", found.m or 0)


@check("fig:overview")
def overview(run: Run) -> Iterator[Instance | Figure]:
    """Exact emulation of small integer targets."""
    from utfproof.ground.arrays import exact

    for shape in (Shape(1, 1, 1, 1), Shape(2, 1, 1, 2), Shape(2, 2, 1, 2)):
        for name in ("sparse", "tied", "random"):
            host = build_host(name, shape, law="signs", seed=3)
            if name == "random":
                host = type(host)(shape, host.m, exact(host.R_Q), exact(host.R_K), exact(host.R_V), exact(host.U))
            same = exact_emulation(host, integer_target(shape, 5), contexts=(1, 2, 3))
            at = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}), {name}"
            yield Instance(at, bool(same), "equal rational outputs", routes=same.routes)


@check("intro:looped")
def looped(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of the tied host at M, and M against the stated growth."""
    for shape in run.shapes(lambda s: s.head_dim == s.d_in, anchors=[(1, 1, 1, 1), (2, 1, 1, 1)], largest=60):
        most = 3 * shape.layers * shape.d_in if shape.heads == 1 else 5 * shape.leaves * shape.d_in
        found = decided("tied", shape)
        yield replace(found, holds=bool(found.holds) and matching_dimension(shape) <= most)


@check("intro:near-perfect")
def near_perfect(run: Run) -> Iterator[Instance | Figure]:
    """The best variant of each task and kind of host; how many of all cells reach that much."""
    high = cells = 0
    for task, table in paper.ABLATIONS.items():
        for column, kind in enumerate(("sparse", "random")):
            found = [row[column] for row in table.values()]
            high, cells = high + sum(v >= 100 - TOLERANCE for v in found), cells + len(found)
            yield Instance(f"{task}, {kind}", max(found) >= 100 - TOLERANCE, f"best {max(found)} %")
    yield Figure("cells of 95 % or more", f"{high} of {cells}")
