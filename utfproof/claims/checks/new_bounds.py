"""Lower bounds functionally and by attention-matching, hosts that meet them, and what is open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from utfproof.certificates.dimensions import ALL_UNTIED, logit_form_dimension
from utfproof.claims.bounds import (
    attained,
    attention_matching_bound,
    below,
    fibre_bound,
    gap,
    generic_form_rank,
    open_question,
    served,
    side_by_side_bound,
    square,
)
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import decided, figures, same_outputs
from utfproof.claims.small_models import (
    array,
    seven_dimension_embedding,
    seven_dimension_host,
    two_dimension_embedding,
    two_dimension_host,
)
from utfproof.constructions.random import integer_target
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, matching_dimension, paper_looped_dimension
from utfproof.systems import Target


@check("new:fibre/bound")
def fibre(run: Run) -> Iterator[Instance | Figure]:
    """The inequality just below the bound; the dimension of the logit forms as an exact Jacobian rank."""
    anchors = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 1, 2, 3)]
    for shape in run.shapes(lambda s: s.layers == 1 and s.head_dim <= s.d_in, anchors=anchors):
        bound, forms = fibre_bound(shape), generic_form_rank(shape)
        free = shape.d_in * (bound - shape.heads * shape.d_in)
        fits = free >= forms.value > free - shape.d_in
        detail = f"m ≥ {bound}; forms: {forms.value}"
        yield below(shape, bound - 1, Notion.FUNCTIONAL, detail=detail, holds=fits, routes=forms.routes)
    yield from figures("bound", fibre_bound, ((2, 1, 1, 2), (1, 1, 1, 1), (4, 1, 3, 6)))


@check("new:fibre/against-looped-bound")
def against_looped_bound(_: Run) -> Iterator[Instance | Figure]:
    """The inequality at m-bar, wherever it is below the bound."""
    shapes = [Shape(H, 1, d, a) for H in range(2, 6) for a in range(1, 9) for d in range(1, a + 1)]
    below_it = [shape for shape in shapes if paper_looped_dimension(shape) < fibre_bound(shape)]
    for shape in below_it:
        yield below(shape, paper_looped_dimension(shape), Notion.FUNCTIONAL, detail=f"m ≥ {fibre_bound(shape)}")
    yield Figure("shapes", len(below_it))


@check("new:fibre/seven")
def seven(_: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for the first twelve integer targets for which the formula is defined."""
    host = seven_dimension_host()
    targets = (integer_target(host.shape, seed, bound=3) for seed in range(200))
    known = ((target, E) for target in targets if (E := seven_dimension_embedding(target)) is not None)
    examined = list(itertools.islice(known, 12))
    for i, (target, E) in enumerate(examined):
        found = same_outputs(host, E, target)
        yield Instance(f"seed {i}", found.value, "equal rational outputs", routes=found.routes)
    yield Figure("targets examined", len(examined))
    yield Figure("m", host.m)
    yield Figure("bound", fibre_bound(host.shape))


@check("new:fibre/seven-all-targets")
def seven_all(_: Run) -> Iterator[Instance | Figure]:
    """The inequality at seven; targets that the formula leaves out."""
    shape = Shape(2, 1, 1, 2)
    yield below(shape, 7, Notion.FUNCTIONAL, ALL_UNTIED)
    left_out = [seed for seed in range(60) if seven_dimension_embedding(integer_target(shape, seed)) is None]
    yield Figure("served from m", int(interval(shape, Question(Notion.FUNCTIONAL)).upper or 0))
    yield Figure("targets of 60 that the formula leaves out", len(left_out))


@check("new:fibre/diagonal")
def diagonal(run: Run) -> Iterator[Instance | Figure]:
    """Both certificates, one apart."""

    def least(shape: Shape) -> int:
        return 2 * shape.heads * shape.d_in

    anchors = [(1, 1, 1, 1), (2, 1, 2, 2), (4, 1, 4, 4)]
    shapes = run.shapes(lambda s: s.layers == 1 and s.head_dim == s.d_in, anchors=anchors)
    yield from attained(shapes, least, Notion.FUNCTIONAL, "shared-query")
    yield from figures("least m", least, [(4, 1, 4, 4)])


@check("new:one-by-one/functional")
def one_by_one(_: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for all small a and b."""
    host, one = two_dimension_host(), array([[[[1]]]])
    for a, b in itertools.product(range(-3, 4), repeat=2):
        target = Target(host.shape, a * one, one, b * one, one)
        found = same_outputs(host, two_dimension_embedding(a, b), target, (2, 3))
        yield Instance(f"a = {a}, b = {b}", found.value, "equal rational outputs", routes=found.routes)
    yield Figure("bound", fibre_bound(host.shape))
    yield Figure("M", matching_dimension(host.shape))


@check("new:one-by-one/attention-matching")
def one_by_one_matched(_: Run) -> Iterator[Instance | Figure]:
    """For each small host of two dimensions a target that it misses; the certificate at m = 3."""
    vectors = list(itertools.product((-1, 0, 1), repeat=2))
    hosts = list(itertools.product(vectors, repeat=3))
    missed = sum(_misses(*host) for host in hosts)
    shape, detail = Shape(1, 1, 1, 1), f"{missed} of {len(hosts)} hosts miss a target"
    yield below(shape, 2, Notion.ATTENTION_MATCHING, ALL_UNTIED, detail=detail, holds=missed == len(hosts))
    yield decided("sparse", shape)
    yield Figure("hosts examined", len(hosts))


def _misses(u: tuple[int, ...], query: tuple[int, ...], key: tuple[int, ...]) -> bool:
    """Whether logits a of both signs are out of reach for b = 0, where E u = 0; for u = 0 every b != 0 is."""
    logits = [(s * (u[0] * query[1] - u[1] * query[0])) * (s * (u[0] * key[1] - u[1] * key[0])) for s in (-2, -1, 0, 1)]
    return u == (0, 0) or not min(logits) < 0 < max(logits)


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


@check("new:attention-matching/optimum")
def optimum(run: Run) -> Iterator[Instance | Figure]:
    """The inequality below the bound; at d = d_in the shared-query host's identity certificate at it."""

    def applies(shape: Shape) -> bool:
        return shape.head_dim <= shape.d_in and (shape.layers == 1 or shape.heads * shape.head_dim >= shape.d_in)

    shapes = run.shapes(applies, anchors=[(1, 1, 1, 1), (2, 2, 2, 2), (2, 2, 1, 2)], largest=100)
    yield from attained(shapes, side_by_side_bound, Notion.ATTENTION_MATCHING, "shared-query", met=square)
    yield from figures("bound", side_by_side_bound, ((2, 2, 28, 30), (2, 3, 28, 30)))
    yield from figures("least m", side_by_side_bound, ((2, 4, 30, 30), (2, 2, 2, 2)))


@check("new:attention-matching/single-head")
def single_head(run: Run) -> Iterator[Instance | Figure]:
    """The shared-query host's certificate at the bound."""
    anchors = [(1, 1, 1, 1), (1, 3, 2, 2), (1, 6, 1, 1)]
    for shape in run.shapes(lambda s: s.heads == 1 and s.head_dim >= s.d_in, anchors=anchors):
        exact = attention_matching_bound(shape) == (shape.layers + 1) * shape.d_in
        yield served("shared-query", shape, least=attention_matching_bound(shape), holds=exact)
    yield from figures("least m", attention_matching_bound, [(1, 3, 2, 2)])


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
    for shape in run.shapes(lambda s: min(s.layers, s.d_in) > 1 and among(s), anchors=anchors):
        yield open_question(shape, notion)
    yield from figures("gap", lambda shape: gap(shape, notion), told)
