"""Section 1: the informal theorems and the overview figure. There d = d_in ("embedding dimension d"), and O( ) hides constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from utfproof.claims import plain
from utfproof.claims.bounds import below_root, side_by_side_bound, too_small_at_depth
from utfproof.claims.decisions import decided, exact_emulation
from utfproof.claims.record import Category, Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.notions import Attention, Notion, Scope
from utfproof.matching import embed
from utfproof.paper import tables as paper
from utfproof.shapes import Shape, matching_dimension, paper_dimension

DIAGONAL = [(H, L, d, d) for H in (2, 3) for L in (1, 2, 3) for d in (1, 2)]
"""Shapes with d = d_in, as the informal statements have it."""


def _diagonal(shape: Shape) -> bool:
    return shape.d_in == shape.head_dim


@claim(
    "intro:sparse/heads",
    place="Section 1, informal sparse theorem, H ≥ 2",
    statement="For H ≥ 2 and d_in = d, embedding dimension O(H^L d) suffices for a {0,1} host that serves every target.",
    category=Category.THEOREM,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="H ≥ 2, d_in = d: at most 5 H^L d",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="M = 2dS + d H^L is below 5 d H^L, and the repaired prefix tree serves every target there.",
)
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


@claim(
    "intro:sparse/single-head",
    place="Section 1, informal sparse theorem, H = 1",
    statement="For H = 1 and d_in = d, embedding dimension O(Ld) suffices for a {0,1} host that serves every target.",
    category=Category.THEOREM,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="H = 1, d_in = d: at most 3 L d",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="M = (2L + 1) d is at most 3 L d, and the repaired construction serves every target there.",
)
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


@claim(
    "intro:random/heads",
    place="Section 1, informal random theorem, H ≥ 2",
    statement="For H ≥ 2 and d_in = d, a random host, tied or not, of embedding dimension O(H^L d) serves every target almost surely.",
    category=Category.THEOREM,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="H ≥ 2, d_in = d, m = M < 5 H^L d; one full-rank draw makes the determinant polynomial nonzero",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="At each shape one draw has rank M modulo a prime, so almost every draw has rank M over the reals.",
    proof="docs/proofs/decision-theorem.md",
)
def random_heads(run: Run) -> Iterator[Instance | Figure]:
    """One draw, untied and tied, at m = M."""
    for shape in run.shapes(lambda s: s.heads > 1 and _diagonal(s), anchors=[(2, 1, 1, 1)], largest=80):
        for name in ("random", "random-tied"):
            yield decided(name, shape)


@claim(
    "intro:random/single-head",
    place="Section 1, informal random theorem, H = 1",
    statement="At H = 1 embedding dimension O(H^L d) = O(d), with a constant that does not depend on L, suffices.",
    category=Category.THEOREM,
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H = 1, d_in = d: constants c = 1 … 8",
    verdict=Verdict.FAILS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    proof="docs/proofs/functional-is-attention-matching.md",
    sentence="Any host needs m ≥ (L + 1) d, which outgrows c d for every constant c (refuted here at L = c); the bound must carry L.",
)
def random_single_head(run: Run) -> Iterator[Instance | Figure]:
    """For each constant c, no host with m = c d at L = c."""
    for c in range(1, 9):
        for d in (1, 2):
            yield too_small_at_depth(c, d)
    yield Figure("least m allowed / d at L = 8", side_by_side_bound(Shape(1, 8, 2, 2)) // 2)


@claim(
    "intro:embedding-shape",
    place="Section 1, both informal upper bounds",
    statement="The embedding matrix E is d×m, d being the targets' embedding dimension.",
    category=Category.REMARK,
    scope="read with the d of the informal theorems, which is d_in later on; as the head dimension d it would be wrong where d ≠ d_in",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="E multiplies inputs with d_in columns, so it has d_in rows.",
)
def embedding_shape(run: Run) -> Iterator[Instance | Figure]:
    """The number of rows of the E that embed finds, and of W_all word by word."""
    for shape in run.shapes(anchors=[(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 2, 2)], largest=20):
        target = integer_target(shape)
        rows = agree({"embed": embed(build_host("tied", shape), target).E.shape[0], "W_all": len(plain.w_all(target))})
        yield Instance(shape, rows.value == shape.d_in, f"E has {rows.value} rows", routes=rows.routes)


@claim(
    "intro:lower-bound",
    place="Section 1, informal lower bound",
    statement="For H ≥ 2 every host that serves all untied targets of width 1 by attention-matching has m ≥ H^{L/2}, even with attention matrices supplied and E and U both free: the depth enters exponentially.",
    category=Category.THEOREM,
    about=Scope.of(Notion.SHARED_ATTENTION, "all untied", free="E and U"),
    scope="H ≥ 2, d_in = 1, E and U both free; that attention-matching gives E R_w U = M_w is sec:optimality/attention-matching",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="At the largest m with m² < H^L no host serves all targets (untied ones; for looped targets the claim fails, see thm:lower_bound_utf).",
    proof="docs/proofs/shared-attention.md",
)
def lower_bound(run: Run) -> Iterator[Instance | Figure]:
    """The largest m below the bound, at every (H, L)."""
    for shape in run.shapes(lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 6, 1, 1), (3, 3, 1, 1)]):
        found = below_root(shape)
        yield found
        if (shape.heads, shape.layers) == (2, 6):
            yield Figure("largest m refuted at (H, L) = (2, 6)", found.m or 0)


@claim(
    "fig:overview",
    place="Section 1, Figure 1",
    statement="One fixed host, with an embedding computed from the target, gives the target's outputs on every input: a sparse host and a random one.",
    about=Scope.of(Notion.FUNCTIONAL, "some untied, if integer", attention=Attention.RATIONAL),
    scope="sparse, tied and random hosts at m = M, exact rational arithmetic, n = 1, 2, 3",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="Outputs agree as rational numbers, for a rational attention that depends on the logits; two forward passes agree on it.",
)
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


@claim(
    "intro:looped",
    place="Section 1, informal sparse theorem, the looped half",
    statement="For d_in = d, embedding dimension O(H^L d) for H ≥ 2 and O(Ld) for H = 1 suffices for a looped {0,1} host that serves every target, looped or not.",
    category=Category.THEOREM,
    about=Scope.of(Notion.MATCHING, "all untied", hosts="tied"),
    scope="d_in = d: at most 5 H^L d for H ≥ 2, at most 3 L d for H = 1",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="The trie with a shift register has M dimensions, tied and untied hosts alike.",
)
def looped(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of the tied host at M, and M against the stated growth."""
    for shape in run.shapes(lambda s: s.head_dim == s.d_in, anchors=[(1, 1, 1, 1), (2, 1, 1, 1)], largest=60):
        most = 3 * shape.layers * shape.d_in if shape.heads == 1 else 5 * shape.leaves * shape.d_in
        found = decided("tied", shape)
        yield replace(found, holds=bool(found.holds) and matching_dimension(shape) <= most)


@claim(
    "intro:near-perfect",
    place="Section 1, empirical evaluation",
    statement="Sparse and random hosts achieve perfect or near-perfect accuracy on every task: read as 95 % or more in the best of the five variants.",
    category=Category.REMARK,
    scope="all cells of sparse and random hosts in the tables",
    verdict=Verdict.FAILS.by(Evidence.RECORD),
    sentence="The sparse host does on all five tasks, the random host not on 2-hop (85.7) and 4-hop (89.2).",
)
def near_perfect(run: Run) -> Iterator[Instance | Figure]:
    """The best variant of each task and kind of host; how many of all cells reach that much."""
    high = cells = 0
    for task, table in paper.ABLATIONS.items():
        for column, kind in enumerate(("sparse", "random")):
            found = [row[column] for row in table.values()]
            high, cells = high + sum(v >= paper.NEAR_PERFECT for v in found), cells + len(found)
            yield Instance(f"{task}, {kind}", max(found) >= paper.NEAR_PERFECT, f"best {max(found)} %")
    yield Figure("cells of 95 % or more", f"{high} of {cells}")
