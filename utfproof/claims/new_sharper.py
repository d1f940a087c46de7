"""Bounds that are attained: heads narrower and wider than the input, residual streams, and the functional theorem."""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.certificates.dimensions import GENERIC_UNTIED
from utfproof.claims.bounds import below, served, side_by_side_bound
from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict
from utfproof.claims.registry import claim
from utfproof.constructions.residual_outputs import query_dimension
from utfproof.constructions.shared_query_groups import grouped_dimension
from utfproof.constructions.symmetric_keys import symmetric_dimension
from utfproof.frontier.interval import interval
from utfproof.frontier.questions import ALMOST_ALL, Question
from utfproof.ground.notions import Notion, Scope
from utfproof.shapes import Shape, matching_dimension

FUNCTIONAL = "docs/proofs/functional-is-attention-matching.md"
SHARPER = "docs/proofs/sharper-frontier.md"
WIDE = "docs/proofs/wide-heads.md"
Entry = tuple[int, int, int, int]


def _named(entry: Entry) -> str:
    return "({},{},{},{})".format(*entry)


def functional_bound(shape: Shape) -> int:
    """What is proved, with a certificate, of every host that serves almost all untied targets functionally."""
    return interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL), certified=True).lower


def _below(shape: Shape, least: int, notion: Notion, targets: str = GENERIC_UNTIED) -> Instance:
    """No host of less than `least` dimensions."""
    return below(shape, least - 1, notion, targets)


def _served(name: str, shape: Shape, least: int) -> Instance:
    """The construction's certificate, at its own least dimension, which has to be this."""
    return served(name, shape, least=least, detail=f"{name} serves at {least}")


@claim(
    "new:functional/attention-matching",
    place=FUNCTIONAL,
    statement="A host that has the outputs of almost every target, for all n and X, has at least the dimension that attention-matching needs for more than a null set of targets; for d = d_in the least m is d_in(S + H^L).",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="softmax, unmasked or causal; every H, L, d, d_in = d_out",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="Poles of deep logistic networks show a host's logits up to the names of its heads; the shared-query host meets the bound.",
)
def functional(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates, and at d = d_in the shared-query host's identity at the bound."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 4, 30, 30), (2, 2, 1, 2)], largest=60):
        least = functional_bound(shape)
        yield _below(shape, least, Notion.FUNCTIONAL)
        if shape.head_dim == shape.d_in:
            yield _served("shared-query", shape, least)
    for entry in ((2, 2, 1, 1), (2, 4, 30, 30)):
        yield Figure(f"least m at {_named(entry)}", functional_bound(Shape(*entry)))


NARROW: dict[Entry, int] = {
    (1, 2, 1, 2): 5,
    (2, 1, 1, 2): 7,
    (2, 2, 1, 2): 17,
    (2, 2, 1, 3): 22,
    (2, 3, 1, 2): 37,
    (4, 2, 1, 2): 62,
}


@claim(
    "new:narrow-heads/bound",
    place=SHARPER,
    statement="For d ≤ d_in every host that serves almost all targets has m ≥ d_in H^L + 2dS − d²(H/d_in + (S − H)/r), r = min(Hd, d_in).",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="d ≤ d_in = d_out, every H, L; also where Hd < d_in",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="Solutions factor through the first layer's values, and spaces of rows are supermodular.",
)
def narrow_bound(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates just below the formula."""
    for shape in run.shapes(lambda s: s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), (2, 3, 2, 5)], largest=100):
        yield _below(shape, side_by_side_bound(shape), Notion.FUNCTIONAL)
    for entry in ((2, 2, 28, 30), (2, 3, 28, 30), (2, 3, 2, 5)):
        yield Figure(f"bound at {_named(entry)}", side_by_side_bound(Shape(*entry)))


@claim(
    "new:narrow-heads/host",
    place=SHARPER,
    statement="For d ≤ d_in a tied {0,1} host serves almost all targets at m = d_in H^L + 2dS − d⌊H/g⌋ − d⌊H/g'⌋(S − H)/H, g = ⌈d_in/d⌉, g' = min(g, H), which is least wherever it exceeds the bound by less than 1.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "almost all untied"),
    scope="d ≤ d_in = d_out, every H, L",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="One head of each group of g reads its query off the output and the queries of the others: an identity of rational functions, at a drawn target.",
)
def narrow_host(run: Run) -> Iterator[Instance | Figure]:
    """Certificates at the formula's value, and from below where both meet."""
    anchors = [(1, 1, 1, 1), *NARROW, (2, 2, 28, 30), (2, 3, 28, 30)]
    for shape in run.shapes(lambda s: s.head_dim <= s.d_in, anchors=anchors, largest=60):
        d, g = shape.head_dim, -(-shape.d_in // shape.head_dim)
        full, fewer = shape.heads // g, shape.heads // min(g, shape.heads)
        saved = full + fewer * (shape.word_count - shape.heads) // shape.heads
        least = shape.d_in * shape.leaves + 2 * d * shape.word_count - d * saved
        yield _served("shared-query-groups", shape, least)
        if side_by_side_bound(shape) == least:
            yield _below(shape, least, Notion.ATTENTION_MATCHING)
    for entry in NARROW:
        assert side_by_side_bound(Shape(*entry)) == grouped_dimension(Shape(*entry))
        yield Figure(f"least m at {_named(entry)}", grouped_dimension(Shape(*entry)))
    for entry in ((2, 2, 28, 30), (2, 3, 28, 30)):
        yield Figure(f"m at {_named(entry)}", grouped_dimension(Shape(*entry)))


STREAMS = ((1, 2, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1))


@claim(
    "new:residual/outputs",
    place=SHARPER,
    statement="With a residual stream and d ≤ d_in: m ≥ d_in(H+1)^L + H(2d − d²/d_in)(1 + q + … + q^{L−1}), q = H + 1 or, where (H+1)d < d_in, d_in/(d_in − Hd); for d = d_in that is d_in(2(H+1)^L − 1), it serves all targets, and it is least.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="d ≤ d_in = d_out with a residual stream, every H, L; hosts for all targets at d = d_in, else for almost all",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="The output of a word that stops early is there already: every key, or one query of each group of heads, reads it.",
)
def residual_outputs(run: Run) -> Iterator[Instance | Figure]:
    """Dimension and identity certificates with a residual stream."""
    for plain in run.shapes(
        lambda s: s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), *STREAMS, (2, 2, 1, 2), (1, 3, 1, 3)], largest=30
    ):
        shape = plain.with_residual()
        yield _below(shape, side_by_side_bound(shape), Notion.FUNCTIONAL)
        yield _served("residual-query", shape, query_dimension(shape))
        if plain.head_dim == plain.d_in:
            yield _served("residual-key", shape, side_by_side_bound(shape))
    for entry in STREAMS:
        yield Figure(f"least m at {_named(entry)}", side_by_side_bound(Shape(*entry, residual=True)))
    for entry in ((1, 2, 1, 3), (1, 3, 1, 3)):
        yield Figure(f"bound at {_named(entry)}", side_by_side_bound(Shape(*entry, residual=True)))


@claim(
    "new:one-layer/all-targets",
    place=SHARPER,
    statement="At L = 1 no host of less than M = H(d_in + 2d) dimensions serves all targets functionally where d(H+1) ≤ d_in, or (H, d, d_in) = (2, 1, 2).",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="L = 1; at (2,1,1,2) almost all targets are served with 7, one less",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="A relation among the readers that holds for every E meets targets whose queries and keys are independent.",
)
def one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at M - 1."""

    def applies(shape: Shape) -> bool:
        room = shape.head_dim * (shape.heads + 1) <= shape.d_in
        return shape.layers == 1 and (room or (shape.heads, shape.head_dim, shape.d_in) == (2, 1, 2))

    for shape in run.shapes(applies, anchors=[(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 5), (3, 1, 2, 8)]):
        yield _below(shape, matching_dimension(shape), Notion.FUNCTIONAL, "all untied")
    for entry in ((2, 1, 1, 2), (2, 1, 1, 5)):
        yield Figure(f"least m at {_named(entry)}", matching_dimension(Shape(*entry)))
    yield Figure("almost all at (2,1,1,2)", grouped_dimension(Shape(2, 1, 1, 2)))


@claim(
    "new:wide-heads/bound",
    place=WIDE,
    statement="For d > d_in and H, L ≥ 2 every host that serves almost all targets has m ≥ d_in(H^L + LH) + 1, and m ≥ d_in(H^L + H(1 + K)) − (H/d_in)t(d − t)K, where t = ⌊(d − d_in)/2⌋ and K = K_1 + … + K_{L−1}, K_q words of length q having spread products; at L = 2, d = d_in + 1, H ≤ d_in² that is d_in(S + H²), the shared-query host's.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="d > d_in = d_out, H, L ≥ 2",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="Equality would fix the later layers' forms by the values; a generic representation of a quiver is semistable.",
)
def wide_bound(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates; the shared-query host where it is least."""

    def applies(shape: Shape) -> bool:
        return shape.head_dim > shape.d_in and min(shape.heads, shape.layers) > 1

    for shape in run.shapes(applies, anchors=[(2, 2, 2, 1), (2, 2, 3, 2), (4, 2, 24, 4)], largest=100):
        least = functional_bound(shape)
        yield _below(shape, least, Notion.FUNCTIONAL)
        if shape == Shape(2, 2, 3, 2):
            yield _served("shared-query", shape, least)
    for entry, name in (
        ((2, 2, 2, 1), "bound"),
        ((2, 2, 3, 2), "least m"),
        ((2, 3, 2, 1), "bound"),
        ((4, 2, 24, 4), "bound"),
    ):
        yield Figure(f"{name} at {_named(entry)}", functional_bound(Shape(*entry)))


@claim(
    "new:wide-heads/stream",
    place=WIDE,
    statement="With a residual stream, d > d_in and L ≥ 2 every host that serves almost all targets has m ≥ d_in((H+1)^L + LH) + 1, and m ≥ d_in((H+1)^L + H(1 + K)) − (H/d_in)t(d − t)K with words in H + 1 letters; at L = 2, d = d_in + 1, H < d_in² that is d_in(2(H+1)² − 1), which serves all targets.",
    about=Scope.of(Notion.FUNCTIONAL, "almost all untied"),
    scope="d > d_in = d_out with a residual stream, L ≥ 2; hosts for all targets",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.CERTIFICATE, Evidence.WRITTEN),
    sentence="The stream is one letter more, whose value is the identity.",
)
def wide_streams(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates; the residual-key host where it is least."""
    least_at: tuple[Entry, ...] = ((1, 2, 2, 1), (1, 2, 3, 2), (2, 2, 3, 2))
    anchors = [*least_at, (1, 3, 2, 1), (2, 2, 5, 3)]
    for plain in run.shapes(lambda s: s.head_dim > s.d_in and s.layers > 1, anchors=anchors, largest=60):
        shape = plain.with_residual()
        least = functional_bound(shape)
        yield _below(shape, least, Notion.FUNCTIONAL)
        if plain in [Shape(*entry) for entry in least_at]:
            yield _served("residual-key", shape, least)
    for entry in anchors:
        name = "least m" if entry in least_at else "bound"
        yield Figure(f"{name} at {_named(entry)}", functional_bound(Shape(*entry, residual=True)))


@claim(
    "new:wide-heads/hosts",
    place=WIDE,
    statement="For d_in = 1 and d ≥ 2, e = min(d, H), a tied {0,1} host serves almost all two-layer targets at m = 2H² + H − e(e−1)/2, below the d_in(S + H²) of d = d_in; from three layers on an untied one has fewer, too.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "almost all untied"),
    scope="d_in = d_out = 1, d ≥ 2, H ≥ 2, L ≥ 2",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.WRITTEN),
    proof=WIDE,
    sentence="One symmetric table of keys serves all heads: an identity of rational functions, at a drawn target.",
)
def wide_hosts(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates at the formula's value."""
    entries = ((2, 2, 2, 1), (3, 2, 3, 1), (2, 3, 2, 1), (3, 3, 3, 1))

    def applies(shape: Shape) -> bool:
        return shape.d_in == 1 and min(shape.head_dim, shape.heads, shape.layers) > 1

    for shape in run.shapes(applies, anchors=entries, largest=100):
        H, e = shape.heads, min(shape.head_dim, shape.heads)
        if shape.layers == 2:
            yield _served("symmetric-keys", shape, 2 * H * H + H - e * (e - 1) // 2)
        else:
            yield _served("symmetric-keys-deep", shape, symmetric_dimension(shape))
    assert functional_bound(Shape(2, 2, 2, 1)) == symmetric_dimension(Shape(2, 2, 2, 1))
    for entry in entries:
        name = "least m" if entry == (2, 2, 2, 1) else "m"
        yield Figure(f"{name} at {_named(entry)}", symmetric_dimension(Shape(*entry)))
