"""Section 3.2, last sentence: the order of m that is said to suffice, and how many hosts of that size are universal."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from utfproof.claims.bounds import too_small_at_depth
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided
from utfproof.claims.hosts import counted, heads, one_head
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension


def _served(name: str, shape: Shape, m: int, part: str = "") -> Instance:
    """A certificate at m, or a failure where m is below M."""
    below = agree({"formula": m < matching_dimension(shape), "words counted": m < counted(shape)})
    if below:
        return Instance(shape, False, f"M = {counted(shape)}", routes=below.routes, part=part, m=m)
    return decided(name, shape, m, part=part)


@check("sec:constructing/theta-dimension/heads")
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


@check("sec:constructing/theta-dimension/single-head")
def theta_single(run: Run) -> Iterator[Instance | Figure]:
    """Each constant at the depth of the same number; the prefix tree at 3 L max{d, d_in}."""
    for constant in range(1, 9):
        yield too_small_at_depth(constant, 1)
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 8, 1, 1)]):
        m = printed.theta_dimension(shape, printed.ENOUGH_A_LAYER * shape.layers)
        yield _served("sparse", shape, m, part=BESIDE)


@check("sec:constructing/almost-all")
def almost_all(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed, untied and tied, at m = M."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1)], largest=30):
        for name in ("random", "random-tied"):
            yield decided(name, shape)
