"""Bounds that are attained: heads narrower and wider than the input, residual streams, and the functional theorem."""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.certificates.dimensions import GENERIC_UNTIED
from utfproof.claims.bounds import below, served, side_by_side_bound
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures
from utfproof.constructions.residual_outputs import query_dimension
from utfproof.constructions.shared_query_groups import grouped_dimension
from utfproof.constructions.symmetric_keys import symmetric_dimension
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, matching_dimension

FUNCTIONAL = "docs/proofs/functional-is-attention-matching.md"
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


@check("new:functional/attention-matching")
def functional(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates, and at d = d_in the shared-query host's identity at the bound."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 4, 30, 30), (2, 2, 1, 2)], largest=60):
        least = functional_bound(shape)
        yield _below(shape, least, Notion.FUNCTIONAL)
        if shape.head_dim == shape.d_in:
            yield _served("shared-query", shape, least)
    yield from figures("least m", functional_bound, ((2, 2, 1, 1), (2, 4, 30, 30)))


NARROW: dict[Entry, int] = {
    (1, 2, 1, 2): 5,
    (2, 1, 1, 2): 7,
    (2, 2, 1, 2): 17,
    (2, 2, 1, 3): 22,
    (2, 3, 1, 2): 37,
    (4, 2, 1, 2): 62,
}


@check("new:narrow-heads/bound")
def narrow_bound(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates just below the formula."""
    for shape in run.shapes(lambda s: s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), (2, 3, 2, 5)], largest=100):
        yield _below(shape, side_by_side_bound(shape), Notion.FUNCTIONAL)
    yield from figures("bound", side_by_side_bound, ((2, 2, 28, 30), (2, 3, 28, 30), (2, 3, 2, 5)))


@check("new:narrow-heads/host")
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
    yield from figures("m", grouped_dimension, ((2, 2, 28, 30), (2, 3, 28, 30)))


STREAMS = ((1, 2, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1))


@check("new:residual/outputs")
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


@check("new:one-layer/all-targets")
def one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at M - 1."""

    def applies(shape: Shape) -> bool:
        room = shape.head_dim * (shape.heads + 1) <= shape.d_in
        return shape.layers == 1 and (room or (shape.heads, shape.head_dim, shape.d_in) == (2, 1, 2))

    for shape in run.shapes(applies, anchors=[(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 5), (3, 1, 2, 8)]):
        yield _below(shape, matching_dimension(shape), Notion.FUNCTIONAL, "all untied")
    yield from figures("least m", matching_dimension, ((2, 1, 1, 2), (2, 1, 1, 5)))
    yield Figure("almost all at (2,1,1,2)", grouped_dimension(Shape(2, 1, 1, 2)))


@check("new:wide-heads/bound")
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


@check("new:wide-heads/stream")
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


@check("new:wide-heads/hosts")
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
