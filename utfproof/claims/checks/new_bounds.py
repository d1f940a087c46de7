"""Lower bounds functionally and by attention-matching that rest on more than certificates, and what is open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from utfproof.certificates.dimensions import logit_form_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import (
    attention_matching_bound,
    below,
    fibre_bound,
    gap,
    generic_form_rank,
    open_question,
)
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures, same_outputs
from utfproof.claims.small_models import (
    array,
)
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, Question
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal
from utfproof.util.notions import Notion


@check("new:one-by-one/functional")
def one_by_one(_: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for all small a and b of the host R_Q = e_1, R_K = U = e_2, R_V = I, with E = (a/b, b)."""
    first, second, one = array([[1], [0]]), array([[0], [1]]), array([[[[1]]]])
    host = Universal(Shape(1, 1, 1, 1), 2, [[first]], [[second]], [[array(plain.identity(2))]], second)
    for a, b in itertools.product(range(-3, 4), repeat=2):
        target = Target(host.shape, a * one, one, b * one, one)
        E = [[Fraction(a, b), b]] if b else [[0, 0]]  # the target is zero where b = 0
        found = same_outputs(host, E, target, (2, 3))
        yield Instance(f"a = {a}, b = {b}", found.value, "equal rational outputs", routes=found.routes)
    yield Figure("bound", fibre_bound(host.shape))
    yield Figure("M", matching_dimension(host.shape))


@check("new:attention-matching-bound")
def matched(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the logit forms, formula against the exact rank at one target; the bound below every known host."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 3)], largest=50):
        found, bound = generic_form_rank(shape), attention_matching_bound(shape)
        known = interval(shape, Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL))
        holds = found.value == logit_form_dimension(shape) and bound <= known.lower <= int(known.upper or bound)
        detail = f"forms: {found.value}; {bound} ≤ m"
        yield below(shape, bound - 1, Notion.ATTENTION_MATCHING, detail=detail, holds=holds, routes=found.routes)
    entries = ((4, 2, 24, 4), (2, 2, 28, 30), (2, 3, 28, 30), (2, 4, 30, 30))
    yield from figures("bound", attention_matching_bound, entries)


@check("new:frontier/attention-matching")
def frontier_matched(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    anchors, sizes = [(2, 2, 2, 2)], ((4, 2, 24, 4), (2, 4, 30, 30), (2, 2, 28, 30))
    yield from _open(run, Notion.ATTENTION_MATCHING, anchors, sizes, lambda s: s.heads == 1 or 2 * s.head_dim > s.d_in)


@check("new:frontier/functional")
def frontier_functional(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    anchors = [(2, 2, 2, 2), (2, 2, 1, 3)]
    yield from _open(run, Notion.FUNCTIONAL, anchors, (*anchors, (4, 2, 24, 4), (2, 4, 30, 30)))


def _open(
    run: Run,
    notion: Notion,
    anchors: Iterable[tuple[int, ...]],
    told: Iterable[tuple[int, ...]],
    among: Callable[[Shape], bool] = lambda shape: True,
) -> Iterator[Instance | Figure]:
    def left(s: Shape) -> bool:
        known = s.heads == s.head_dim == 1 and s.layers > 2  # one column a layer: docs/proofs/all-targets.md
        return min(s.layers, s.d_in) > 1 and not known and among(s)

    for shape in run.shapes(left, anchors=anchors):
        yield open_question(shape, notion)
    yield from figures("gap", lambda shape: gap(shape, notion), told)
