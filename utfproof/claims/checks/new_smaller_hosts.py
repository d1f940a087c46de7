"""Shared attention, E and U free: hosts of any width in the middle layer, and smaller ones for looped targets."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from utfproof.certificates.dimensions import ALL_TIED
from utfproof.claims.bounds import below, parameter_bound, served
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures
from utfproof.claims.small_models import serves
from utfproof.constructions.krylov import embed_krylov, krylov_dimension, krylov_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.split_layer import embed_split, split_dimension, split_host
from utfproof.ground.notions import BOTH_FREE, Notion
from utfproof.shapes import Shape


@check("new:shared-attention/krylov")
def krylov(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets; at L = 1 the bound is the dimension."""
    for entry in ((2, 1, 1, 1), (2, 1, 2, 2), (2, 1, 3, 3), (2, 1, 3, 2), (2, 3, 1, 1), (2, 3, 2, 2)):
        shape = Shape(*entry)
        m, target = krylov_dimension(shape), integer_target(shape, 3, bound=3)
        found = serves(krylov_host(shape, m), *embed_krylov(shape, m, target), target)
        least = parameter_bound(shape)
        holds = found.value and (shape.layers > 1 or m == least)
        yield Instance(shape, holds, f"parameter count m ≥ {least}", routes=found.routes, m=m)
    yield from figures("m", krylov_dimension, ((2, 1, 3, 3), (2, 3, 2, 2)))
    yield from figures("bound", parameter_bound, [(2, 3, 2, 2)])


SPLIT = (
    (1, 1, 1, 2),
    (1, 2, 2, 3),
    (1, 3, 2, 2),
    (2, 1, 1, 3),
    (2, 2, 1, 3),
    (2, 3, 1, 4),
    (2, 4, 1, 3),
    (3, 3, 2, 1),
)


@check("new:shared-attention/split-layer")
def split(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets at d H^(floor(L/2) + 1); at H = 1 the refutation one below."""
    for shape in (Shape(*entry) for entry in SPLIT):
        m = shape.head_dim * shape.heads ** (shape.layers // 2 + 1)
        target = integer_target(shape, 3, bound=3)
        found = serves(split_host(shape, m), *embed_split(shape, m, target), target)
        holds = found.value and m == split_dimension(shape)
        yield Instance(shape, holds, "every word", routes=found.routes, m=m)
        if shape.heads == 1 < shape.head_dim <= shape.d_in:
            yield below(shape, m - 1, Notion.SHARED_ATTENTION, free=BOTH_FREE)
    yield from figures("m", split_dimension, [(2, 3, 1, 4)])


def _stars(shape: Shape) -> int:
    return shape.d_in * int(shape.heads ** (shape.layers // 2)) * ((shape.heads + 1) // 2 + 1)


def _path(shape: Shape) -> int:
    return shape.d_in * int(shape.heads ** (shape.layers // 2)) * ((shape.heads + 2) // 2)


@check("new:shared-attention/stars-any-width")
def stars(run: Run) -> Iterator[Instance | Figure]:
    """The identity in the weights, certified, at the dimension of the formula."""
    anchors = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 3, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 1 and s.leaves <= 27, anchors=anchors):
        yield served("middle-stars", shape, least=_stars(shape))
    yield from figures("m", _stars, [(3, 3, 2, 2)])


@check("new:shared-attention/path-any-width")
def path(run: Run) -> Iterator[Instance | Figure]:
    """The rational identity in the weights, certified, at the dimension of the formula."""
    anchors = [(1, 1, 1, 1), (2, 1, 2, 2), (3, 3, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 1 and s.leaves <= 27 and s.d_in <= s.head_dim, anchors=anchors):
        yield served("middle-path", shape, least=_path(shape))
    yield from figures("m", _path, [(3, 3, 2, 2)])


@check("new:looped-shared/two-sided")
def two_sided_counting(run: Run) -> Iterator[Instance | Figure]:
    """The identity's certificate; at H = 2, L = 2 and 4 the span's square root as well, one dimension below refuted."""

    def least(shape: Shape) -> int:
        return comb((shape.layers + 1) // 2 + shape.heads - 1, shape.heads - 1)

    anchors = [(1, 2, 1, 1), (2, 2, 1, 1), (2, 4, 1, 1), (2, 8, 1, 1), (3, 4, 1, 1)]
    for shape in run.shapes(lambda s: s.d_in == s.head_dim == 1 and s.layers > 1, anchors=anchors):
        yield served("two-sided-counting", shape, least=least(shape))
        if shape.heads == 2 and shape.layers in (2, 4):
            yield below(shape, least(shape) - 1, Notion.SHARED_ATTENTION, ALL_TIED, free=BOTH_FREE)
    yield from figures("m", least, ((2, 4), (2, 8), (3, 4)))
