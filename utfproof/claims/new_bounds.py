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
from utfproof.claims.decisions import decided, same_outputs
from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict
from utfproof.claims.registry import claim
from utfproof.claims.small_models import (
    array,
    seven_dimension_embedding,
    seven_dimension_host,
    two_dimension_embedding,
    two_dimension_host,
)
from utfproof.constructions.random import integer_target
from utfproof.frontier.interval import interval
from utfproof.frontier.questions import ALMOST_ALL, Question
from utfproof.ground.notions import Notion, Scope
from utfproof.shapes import (
    Shape,
    matching_dimension,
    paper_looped_dimension,
)
from utfproof.systems import Target

FIBRE = "docs/proofs/fibre-dimension.md"
MATCHED = "docs/proofs/attention-matching-bound.md"
SHARPER = "docs/proofs/sharper-frontier.md"
OPTIMUM = "docs/proofs/attention-matching-optimum.md"


@claim(
    "new:fibre/bound",
    place=FIBRE,
    statement="At L = 1 with d ≤ d_in every host, even one that serves almost all targets only, has m ≥ H(d_in + 2d − d²/d_in).",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="L = 1, d ≤ d_in = d_out, softmax",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.ARITHMETIC, Evidence.WRITTEN),
    sentence="Softmax heads with different forms are independent, so the embedding's fibre over the values must reach all logit forms.",
)
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
    for entry in ((2, 1, 1, 2), (1, 1, 1, 1), (4, 1, 3, 6)):
        yield Figure("bound at ({},{},{},{})".format(*entry), fibre_bound(Shape(*entry)))


@claim(
    "new:fibre/against-looped-bound",
    place=FIBRE,
    statement="The paper's looped dimension m-bar lies below this bound at 78 of the shapes with L = 1, H = 2 … 5, d ≤ d_in ≤ 8, so no host of that size serves the class there, functionally.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="L = 1, H = 2 … 5, 1 ≤ d ≤ d_in ≤ 8",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="A dimension certificate at m = m-bar for each of the 78.",
)
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


@claim(
    "new:fibre/seven",
    place=FIBRE,
    statement="At (2,1,1,2) a host of seven dimensions, one below M = 8, gives the output of almost every target: it meets the functional bound.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="(2,1,1,2); integer targets with independent queries and λ, μ ≠ 0, exact rational attention",
    verdict=Verdict.HOLDS.by(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="The second query is the first plus a column of the value block; Cramer's rule gives λ and μ.",
)
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


@claim(
    "new:fibre/seven-all-targets",
    place=SHARPER,
    statement="Seven dimensions do not serve all targets at (2,1,1,2), functionally.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="(2,1,1,2), where m = 8 = M suffices",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="No host of seven dimensions does, though one serves almost all: its formula fails for targets with dependent queries.",
)
def seven_all(run: Run) -> Iterator[Instance | Figure]:
    """The inequality at seven; targets that the formula leaves out."""
    shape = Shape(2, 1, 1, 2)
    yield below(shape, 7, Notion.FUNCTIONAL, ALL_UNTIED)
    left_out = [seed for seed in range(60) if seven_dimension_embedding(integer_target(shape, seed)) is None]
    yield Figure("served from m", int(interval(shape, Question(Notion.FUNCTIONAL)).upper or 0))
    yield Figure("targets of 60 that the formula leaves out", len(left_out))


@claim(
    "new:fibre/diagonal",
    place=FIBRE,
    statement="At L = 1 and d = d_in the least m for almost all targets is 2H d_in, functionally and by attention-matching.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="L = 1, d = d_in = d_out",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="The shared-query host has m = 2H d_in, and one dimension less is refuted.",
)
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


@claim(
    "new:one-by-one/functional",
    place=FIBRE,
    statement="At (1,1,1,1) two dimensions serve all targets, functionally, and one does not.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="(1,1,1,1): A = a, M = b; the formula E = (a/b, b), and 0 where b = 0; integers |a|, |b| ≤ 3 examined",
    verdict=Verdict.HOLDS.by(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="Where b = 0 the output is zero whatever the attention is, so E = 0 will do.",
)
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


@claim(
    "new:one-by-one/attention-matching",
    place=FIBRE,
    statement="At (1,1,1,1) the least m by attention-matching for all targets is 3 = M: two dimensions do not suffice for any host.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "all untied"),
    scope="(1,1,1,1); hosts of two dimensions with entries −1, 0, 1 examined, all by the proof",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="b = 0 puts E on a line, where the logit a is a square times a constant and so has one sign.",
)
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


@claim(
    "new:attention-matching-bound",
    place=MATCHED,
    statement="With d' = min(d, d_in), r = min(Hd', d_in), every host that matches the attention and the outputs of almost all targets has d_in(m − d_in H^L) ≥ H(2d'd_in − d'²) + (L−1)H(2d'r − d'²).",
    about=Scope.of(Notion.ATTENTION_MATCHING, "almost all untied"),
    scope="every H, L, d, d_in = d_out; softmax without masks, or by equations of logits",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.ARITHMETIC, Evidence.WRITTEN),
    sentence="E R_w U = M_w fixes d_in H^L columns, and the rest must reach all logit forms, whose dimension is an exact Jacobian rank here; no hypothesis is left open.",
)
def matched(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the logit forms, formula against the exact rank at one target; the bound below every known host."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 3)], largest=50):
        found = generic_form_rank(shape)
        bound = attention_matching_bound(shape)
        known = interval(shape, Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL))
        holds = found.value == logit_form_dimension(shape) and bound <= known.lower <= int(known.upper or bound)
        detail = f"forms: {found.value}; {bound} ≤ m"
        yield below(shape, bound - 1, Notion.ATTENTION_MATCHING, detail=detail, holds=holds, routes=found.routes)
    for entry in ((4, 2, 24, 4), (2, 2, 28, 30), (2, 3, 28, 30), (2, 4, 30, 30)):
        yield Figure("bound at ({},{},{},{})".format(*entry), attention_matching_bound(Shape(*entry)))


@claim(
    "new:attention-matching/optimum",
    place=OPTIMUM,
    statement="For d ≤ d_in, and Hd ≥ d_in unless L = 1, every host that matches the attention and the outputs of almost all targets has m ≥ d_in H^L + S(2d − d²/d_in); for d = d_in that is d_in(S + H^L), the shared-query host's, and the least m.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "almost all untied"),
    scope="d ≤ d_in = d_out, Hd ≥ d_in or L = 1; every H, L; softmax without masks, or by equations of logits",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="Solutions over one first layer lie in a linear space, and H of these stand side by side: each layer multiplies the space by H.",
)
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


@claim(
    "new:attention-matching/single-head",
    place=MATCHED,
    statement="For H = 1 and d ≥ d_in the least m by attention-matching for almost all targets is (L + 1) d_in, at every depth.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "almost all untied"),
    scope="H = 1, d ≥ d_in = d_out",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="The shared-query host meets the bound: d_in(S + H^L) = d_in(L + 1).",
)
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


@claim(
    "new:frontier/attention-matching",
    place=OPTIMUM,
    statement="The least m by attention-matching, all targets, is known for L ≥ 2 and d_in ≥ 2.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "all untied"),
    scope="L, d_in ≥ 2: the frontier's interval at each shape (at d = d_in = 1: new:all-targets/products)",
    verdict=Verdict.OPEN.by(Evidence.WRITTEN, Evidence.OPEN),
    sentence="The bound is that for almost all targets; hosts of all targets need more, as far as is known.",
)
def frontier_matched(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    for shape in run.shapes(lambda s: min(s.layers, s.d_in) > 1, anchors=[(2, 2, 2, 2)]):
        yield open_question(shape, Notion.ATTENTION_MATCHING)
    for entry in ((4, 2, 24, 4), (2, 4, 30, 30), (2, 2, 28, 30)):
        yield Figure("gap at ({},{},{},{})".format(*entry), gap(Shape(*entry), Notion.ATTENTION_MATCHING))


@claim(
    "new:frontier/functional",
    place="docs/proofs/frontier.md",
    statement="The least m functionally, all targets, is known for L ≥ 2 and d_in ≥ 2.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="L, d_in ≥ 2: the frontier's interval at each shape (at d = d_in = 1: new:all-targets/products)",
    verdict=Verdict.OPEN.by(Evidence.WRITTEN, Evidence.OPEN),
    sentence="What is proved of every host, and the best host known.",
    proof="docs/proofs/frontier.md",
)
def frontier_functional(run: Run) -> Iterator[Instance | Figure]:
    """The interval at each shape."""
    for shape in run.shapes(lambda s: min(s.layers, s.d_in) > 1, anchors=[(2, 2, 2, 2), (2, 2, 1, 3)]):
        yield open_question(shape, Notion.FUNCTIONAL)
    for entry in ((2, 2, 2, 2), (2, 2, 1, 3), (4, 2, 24, 4), (2, 4, 30, 30)):
        yield Figure("gap at ({},{},{},{})".format(*entry), gap(Shape(*entry), Notion.FUNCTIONAL))
