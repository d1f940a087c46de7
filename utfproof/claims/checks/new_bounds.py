"""Lower bounds functionally and by attention-matching, hosts that meet them, and what is open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

from utfproof.certificates.dimensions import ALL_UNTIED, logit_form_dimension
from utfproof.claims.bounds import (
    attention_matching_bound,
    below,
    fibre_bound,
    gap,
    generic_form_rank,
    open_question,
    served,
    side_by_side_bound,
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
from utfproof.shapes import (
    Shape,
    matching_dimension,
    paper_looped_dimension,
)
from utfproof.systems import Target


@check("new:fibre/bound")
def fibre(run: Run) -> Iterator[Instance | Figure]:
    """The inequality just below the bound; the dimension of the logit forms as an exact Jacobian rank."""
    for shape in run.shapes(
        lambda s: s.layers == 1 and s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (3, 1, 2, 3)]
    ):
        bound, forms = fibre_bound(shape), generic_form_rank(shape)
        free = shape.d_in * (bound - shape.heads * shape.d_in)
        fits = free >= forms.value > free - shape.d_in
        detail = f"m ≥ {bound}; forms: {forms.value}"
        yield below(shape, bound - 1, Notion.FUNCTIONAL, detail=detail, holds=fits, routes=forms.routes)
    yield from figures("bound", fibre_bound, ((2, 1, 1, 2), (1, 1, 1, 1), (4, 1, 3, 6)))


@check("new:fibre/against-looped-bound")
def against_looped_bound(run: Run) -> Iterator[Instance | Figure]:
    """The inequality at m-bar, wherever it is below the bound."""
    count = 0
    for H, a in itertools.product(range(2, 6), range(1, 9)):
        for d in range(1, a + 1):
            shape = Shape(H, 1, d, a)
            m = paper_looped_dimension(shape)
            if a * m < H * (a * a + 2 * d * a - d * d):
                least = fibre_bound(shape)
                yield below(shape, m, Notion.FUNCTIONAL, detail=f"m ≥ {least}", holds=m < least)
                count += 1
    yield Figure("shapes", count)


@check("new:fibre/seven")
def seven(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for the first twelve integer targets for which the formula is defined."""
    host, examined = seven_dimension_host(), 0
    for seed in range(200):
        target = integer_target(host.shape, seed, bound=3)
        E = seven_dimension_embedding(target)
        if E is None or examined == 12:
            continue
        found = same_outputs(host, E, target)
        yield Instance(f"seed {examined}", bool(found), "equal rational outputs", routes=found.routes)
        examined += 1
    yield Figure("targets examined", examined)
    yield Figure("m", host.m)
    yield Figure("bound", fibre_bound(host.shape))


@check("new:fibre/seven-all-targets")
def seven_all(run: Run) -> Iterator[Instance | Figure]:
    """The inequality at seven; targets that the formula leaves out."""
    shape = Shape(2, 1, 1, 2)
    yield below(shape, 7, Notion.FUNCTIONAL, ALL_UNTIED)
    left_out = [seed for seed in range(60) if seven_dimension_embedding(integer_target(shape, seed)) is None]
    yield Figure("served from m", int(interval(shape, Question(Notion.FUNCTIONAL)).upper or 0))
    yield Figure("targets of 60 that the formula leaves out", len(left_out))


@check("new:fibre/diagonal")
def diagonal(run: Run) -> Iterator[Instance | Figure]:
    """Both certificates, one apart."""
    for shape in run.shapes(
        lambda s: s.layers == 1 and s.head_dim == s.d_in, anchors=[(1, 1, 1, 1), (2, 1, 2, 2), (4, 1, 4, 4)]
    ):
        found = served("shared-query", shape, least=2 * shape.heads * shape.d_in, detail="served")
        m = int(found.m or 0)
        yield below(shape, m - 1, Notion.FUNCTIONAL)
        yield found
        if shape == Shape(4, 1, 4, 4):
            yield Figure("least m at (4,1,4,4)", m)


@check("new:one-by-one/functional")
def one_by_one(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for all small a and b."""
    host = two_dimension_host()
    for a, b in itertools.product(range(-3, 4), repeat=2):
        found = same_outputs(host, two_dimension_embedding(a, b), _scalar_target(a, b), (2, 3))
        yield Instance(f"a = {a}, b = {b}", bool(found), "equal rational outputs", routes=found.routes)
    yield Figure("bound", fibre_bound(host.shape))
    yield Figure("M", matching_dimension(host.shape))


def _scalar_target(a: int, b: int) -> Target:
    one, shape = array([[[[1]]]]), Shape(1, 1, 1, 1)
    return Target(shape, array([[[[a]]]]), one, array([[[[b]]]]), one)


@check("new:one-by-one/attention-matching")
def one_by_one_matched(run: Run) -> Iterator[Instance | Figure]:
    """For each small host of two dimensions a target that it misses; the certificate at m = 3."""
    missed = examined = 0
    vectors = list(itertools.product((-1, 0, 1), repeat=2))
    for u, query, key in itertools.product(vectors, repeat=3):
        examined += 1
        if u == (0, 0):
            missed += 1  # b != 0 is out of reach
            continue
        line = (-u[1], u[0])  # E u = 0
        reached = {
            _sign(s * s * _dot(line, query) * _dot(line, key))
            for s in (Fraction(-2), Fraction(-1), Fraction(0), Fraction(1))
        }
        missed += not {-1, 1} <= reached
    shape = Shape(1, 1, 1, 1)
    detail = f"{missed} of {examined} hosts miss a target"
    yield below(shape, 2, Notion.ATTENTION_MATCHING, ALL_UNTIED, detail=detail, holds=missed == examined)
    served = decided("sparse", shape)
    yield Instance(shape, served.holds, "served, even by matching", served.certificate, m=served.m)
    yield Figure("hosts examined", examined)


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def _dot(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


@check("new:attention-matching-bound")
def matched(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the logit forms, formula against the exact rank at one target; the bound below every known host."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 3)], largest=50):
        found = generic_form_rank(shape)
        bound = attention_matching_bound(shape)
        known = interval(shape, Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL))
        holds = found.value == logit_form_dimension(shape) and bound <= known.lower <= int(known.upper or bound)
        detail = f"forms: {found.value}; {bound} ≤ m"
        yield below(shape, bound - 1, Notion.ATTENTION_MATCHING, detail=detail, holds=holds, routes=found.routes)
    yield from figures(
        "bound", attention_matching_bound, ((4, 2, 24, 4), (2, 2, 28, 30), (2, 3, 28, 30), (2, 4, 30, 30))
    )


@check("new:attention-matching/optimum")
def optimum(run: Run) -> Iterator[Instance | Figure]:
    """The inequality below the bound; at d = d_in the shared-query host's identity certificate at it."""

    def applies(shape: Shape) -> bool:
        return shape.head_dim <= shape.d_in and (shape.layers == 1 or shape.heads * shape.head_dim >= shape.d_in)

    for shape in run.shapes(applies, anchors=[(1, 1, 1, 1), (2, 2, 2, 2), (2, 2, 1, 2)], largest=100):
        least = side_by_side_bound(shape)
        yield below(shape, least - 1, Notion.ATTENTION_MATCHING)
        if shape.head_dim == shape.d_in:
            yield served("shared-query", shape, least=least, detail="shared-query meets it")
    for entry in ((2, 2, 28, 30), (2, 3, 28, 30), (2, 4, 30, 30), (2, 2, 2, 2)):
        name = "least m" if entry[2] == entry[3] else "bound"
        yield Figure(f"{name} at ({','.join(map(str, entry))})", side_by_side_bound(Shape(*entry)))


@check("new:attention-matching/single-head")
def single_head(run: Run) -> Iterator[Instance | Figure]:
    """The shared-query host's certificate at the bound."""
    for shape in run.shapes(
        lambda s: s.heads == 1 and s.head_dim >= s.d_in, anchors=[(1, 1, 1, 1), (1, 3, 2, 2), (1, 6, 1, 1)]
    ):
        bound = attention_matching_bound(shape)
        exact = bound == (shape.layers + 1) * shape.d_in
        found = served("shared-query", shape, least=bound, holds=exact, detail=f"m ≥ {bound}")
        yield found
        if shape == Shape(1, 3, 2, 2):
            yield Figure("least m at (1,3,2,2)", int(found.m or 0))


@check("new:frontier/attention-matching")
def frontier_matched(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    for shape in run.shapes(lambda s: min(s.layers, s.d_in) > 1, anchors=[(2, 2, 2, 2)]):
        yield open_question(shape, Notion.ATTENTION_MATCHING)
    for entry in ((4, 2, 24, 4), (2, 4, 30, 30), (2, 2, 28, 30)):
        yield Figure("gap at ({},{},{},{})".format(*entry), gap(Shape(*entry), Notion.ATTENTION_MATCHING))


@check("new:frontier/functional")
def frontier_functional(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    for shape in run.shapes(lambda s: min(s.layers, s.d_in) > 1, anchors=[(2, 2, 2, 2), (2, 2, 1, 3)]):
        yield open_question(shape, Notion.FUNCTIONAL)
    for entry in ((2, 2, 2, 2), (2, 2, 1, 3), (4, 2, 24, 4), (2, 4, 30, 30)):
        yield Figure("gap at ({},{},{},{})".format(*entry), gap(Shape(*entry), Notion.FUNCTIONAL))
