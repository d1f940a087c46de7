"""Section 3.2, last sentence: the order of m that is said to suffice, and how many hosts of that size are universal."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from utfproof.claims.bounds import too_small_at_depth
from utfproof.claims.decisions import decided
from utfproof.claims.hosts import counted, heads, one_head
from utfproof.claims.record import BESIDE, Category, Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.ground.notions import Notion, Scope
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension


def _served(name: str, shape: Shape, m: int, part: str = "") -> Instance:
    """A certificate at m, or a failure where m is below M."""
    below = agree({"formula": m < matching_dimension(shape), "words counted": m < counted(shape)})
    if below:
        return Instance(shape, False, f"M = {counted(shape)}", routes=below.routes, part=part, m=m)
    return decided(name, shape, m, part=part)


@claim(
    "sec:constructing/theta-dimension/heads",
    place="Section 3.2, last sentence, H ≥ 2",
    statement="For H ≥ 2, m = c·H^L max{d, d_in} suffices for sparse hosts, tied or not, with a constant c: c = 5 does.",
    category=Category.THEOREM,
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H ≥ 2, every L, d, d_in",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="M ≤ 5 H^L max{d, d_in}, and both hosts serve every m ≥ M by matching.",
)
def theta_heads(run: Run) -> Iterator[Instance | Figure]:
    """Certificates at five times H^L max{d, d_in}."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), (2, 2, 28, 30)], largest=120):
        for name in ("sparse", "tied"):
            yield _served(name, shape, printed.theta_dimension(shape, printed.ENOUGH))
    for name, shape in (
        ("M / (H^L max{d, d_in}) at (2,1,1,1)", Shape(2, 1, 1, 1)),
        ("the same at (2,8,1,1)", Shape(2, 8, 1, 1)),
    ):
        yield Figure(name, str(Fraction(matching_dimension(shape), printed.theta_dimension(shape, 1))))


@claim(
    "sec:constructing/theta-dimension/single-head",
    place="Section 3.2, last sentence, H = 1",
    statement="For H = 1, m = c·max{d, d_in} suffices with one constant c for every depth L. Beside it: m = 3L max{d, d_in} does.",
    category=Category.THEOREM,
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H = 1, d = d_in; c = 1 … 8",
    verdict=Verdict.FAILS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    proof="docs/proofs/functional-is-attention-matching.md",
    sentence="At d = d_in a host needs m ≥ (L+1)d, even for almost all targets, and this grows with the depth: it exceeds c·d from L = c on.",
)
def theta_single(run: Run) -> Iterator[Instance | Figure]:
    """Each constant at the depth of the same number; the prefix tree at 3 L max{d, d_in}."""
    for constant in range(1, 9):
        yield too_small_at_depth(constant, 1)
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 8, 1, 1)]):
        m = printed.theta_dimension(shape, printed.ENOUGH_A_LAYER * shape.layers)
        yield _served("sparse", shape, m, part=BESIDE)


@claim(
    "sec:constructing/almost-all",
    place="Section 3.2, last sentence",
    statement="Almost all hosts of that size, tied or not, are universal: for H ≥ 2 at m ≥ M, which 5 H^L max{d, d_in} is; for H = 1 at m ≥ M.",
    category=Category.THEOREM,
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="every shape with m ≥ M, the size read as in theta-dimension (for H = 1 with a constant that grows with L); seed 0 of the uniform law",
    verdict=Verdict.HOLDS.by(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence="One host of full rank, tied or not, makes the hosts that are not universal by matching a null set.",
)
def almost_all(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed, untied and tied, at m = M."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1)], largest=30):
        for name in ("random", "random-tied"):
            yield decided(name, shape)
