"""Bounds that are attained: heads narrower and wider than the input, residual streams, and the functional theorem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from utfproof.certificates.dimensions import ALL_UNTIED
from utfproof.claims.bounds import attained, below, served, side_by_side_bound, square
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures
from utfproof.constructions.residual_outputs import query_dimension
from utfproof.constructions.shared_query_groups import grouped_dimension
from utfproof.constructions.symmetric_keys import symmetric_dimension
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, matching_dimension

Entry = tuple[int, int, int, int]


def functional_bound(shape: Shape) -> int:
    """What is proved, with a certificate, of every host that serves almost all untied targets functionally."""
    return interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL), certified=True).lower


def narrow(shape: Shape) -> bool:
    """d <= d_in."""
    return shape.head_dim <= shape.d_in


def _residual(value: Callable[[Shape], int]) -> Callable[[Shape], int]:
    """The value with a residual stream."""
    return lambda shape: value(shape.with_residual())


@check("new:functional/attention-matching")
def functional(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates, and at d = d_in the shared-query host's identity at the bound."""
    shapes = run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 4, 30, 30), (2, 2, 1, 2)], largest=60)
    yield from attained(shapes, functional_bound, Notion.FUNCTIONAL, "shared-query", met=square)
    yield from figures("least m", functional_bound, ((2, 2, 1, 1), (2, 4, 30, 30)))


@check("new:narrow-heads/bound")
def narrow_bound(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates just below the formula."""
    shapes = run.shapes(narrow, anchors=[(1, 1, 1, 1), (2, 3, 2, 5)], largest=100)
    yield from attained(shapes, side_by_side_bound, Notion.FUNCTIONAL)
    yield from figures("bound", side_by_side_bound, ((2, 2, 28, 30), (2, 3, 28, 30), (2, 3, 2, 5)))


NARROW: Sequence[Entry] = ((1, 2, 1, 2), (2, 1, 1, 2), (2, 2, 1, 2), (2, 2, 1, 3), (2, 3, 1, 2), (4, 2, 1, 2))
"""Where the host meets the bound."""
ABOVE: Sequence[Entry] = ((2, 2, 28, 30), (2, 3, 28, 30))


@check("new:narrow-heads/host")
def narrow_host(run: Run) -> Iterator[Instance | Figure]:
    """Certificates at the formula's value, and from below where both meet."""
    for shape in run.shapes(narrow, anchors=[(1, 1, 1, 1), *NARROW, *ABOVE], largest=60):
        d, g = shape.head_dim, -(-shape.d_in // shape.head_dim)
        full, fewer = shape.heads // g, shape.heads // min(g, shape.heads)
        saved = full + fewer * (shape.word_count - shape.heads) // shape.heads
        least = shape.d_in * shape.leaves + 2 * d * shape.word_count - d * saved
        yield served("shared-query-groups", shape, least=least)
        if side_by_side_bound(shape) == least:
            yield below(shape, least - 1, Notion.ATTENTION_MATCHING)
    assert all(side_by_side_bound(Shape(*entry)) == grouped_dimension(Shape(*entry)) for entry in NARROW)
    yield from figures("least m", grouped_dimension, NARROW)
    yield from figures("m", grouped_dimension, ABOVE)


@check("new:residual/outputs")
def residual_outputs(run: Run) -> Iterator[Instance | Figure]:
    """Dimension and identity certificates with a residual stream."""
    least_at = ((1, 2, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1))
    plain = run.shapes(narrow, anchors=[(1, 1, 1, 1), *least_at, (2, 2, 1, 2), (1, 3, 1, 3)], largest=30)
    shapes = [shape.with_residual() for shape in plain]
    yield from attained(shapes, side_by_side_bound, Notion.FUNCTIONAL, "residual-key", met=square)
    for shape in shapes:
        yield served("residual-query", shape, least=query_dimension(shape))
    yield from figures("least m", _residual(side_by_side_bound), least_at)
    yield from figures("bound", _residual(side_by_side_bound), ((1, 2, 1, 3), (1, 3, 1, 3)))


@check("new:one-layer/all-targets")
def one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at M - 1."""

    def applies(shape: Shape) -> bool:
        room = shape.head_dim * (shape.heads + 1) <= shape.d_in
        return shape.layers == 1 and (room or (shape.heads, shape.head_dim, shape.d_in) == (2, 1, 2))

    shapes = run.shapes(applies, anchors=[(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 5), (3, 1, 2, 8)])
    yield from attained(shapes, matching_dimension, Notion.FUNCTIONAL, targets=ALL_UNTIED)
    yield from figures("least m", matching_dimension, ((2, 1, 1, 2), (2, 1, 1, 5)))
    yield from figures("almost all", grouped_dimension, [(2, 1, 1, 2)])


@check("new:wide-heads/bound")
def wide_bound(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates; the shared-query host where it is least."""
    shapes = run.shapes(
        lambda s: not narrow(s) and min(s.heads, s.layers) > 1,
        anchors=[(2, 2, 2, 1), (2, 2, 3, 2), (4, 2, 24, 4)],
        largest=100,
    )
    met = Shape(2, 2, 3, 2)
    yield from attained(shapes, functional_bound, Notion.FUNCTIONAL, "shared-query", met=lambda s: s == met)
    yield from figures("bound", functional_bound, ((2, 2, 2, 1), (2, 3, 2, 1), (4, 2, 24, 4)))
    yield from figures("least m", functional_bound, [(2, 2, 3, 2)])


@check("new:wide-heads/stream")
def wide_streams(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates; the residual-key host where it is least."""
    least_at, above = ((1, 2, 2, 1), (1, 2, 3, 2), (2, 2, 3, 2)), ((1, 3, 2, 1), (2, 2, 5, 3))
    plain = run.shapes(lambda s: not narrow(s) and s.layers > 1, anchors=[*least_at, *above], largest=60)
    shapes, met = ([shape.with_residual() for shape in found] for found in (plain, [Shape(*e) for e in least_at]))
    yield from attained(shapes, functional_bound, Notion.FUNCTIONAL, "residual-key", met=lambda s: s in met)
    yield from figures("least m", _residual(functional_bound), least_at)
    yield from figures("bound", _residual(functional_bound), above)


@check("new:wide-heads/hosts")
def wide_hosts(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates at the formula's value."""
    deeper = ((3, 2, 3, 1), (2, 3, 2, 1), (3, 3, 3, 1))
    for shape in run.shapes(
        lambda s: s.d_in == 1 and min(s.head_dim, s.heads, s.layers) > 1, anchors=[(2, 2, 2, 1), *deeper], largest=100
    ):
        H, e = shape.heads, min(shape.head_dim, shape.heads)
        if shape.layers == 2:
            yield served("symmetric-keys", shape, least=2 * H * H + H - e * (e - 1) // 2)
        else:
            yield served("symmetric-keys-deep", shape, least=symmetric_dimension(shape))
    assert functional_bound(Shape(2, 2, 2, 1)) == symmetric_dimension(Shape(2, 2, 2, 1))
    yield from figures("least m", symmetric_dimension, [(2, 2, 2, 1)])
    yield from figures("m", symmetric_dimension, deeper)
