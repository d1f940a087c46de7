"""Shared attention, E and U free: hosts of any width in the middle layer, and smaller ones for looped targets."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from utfproof.claims.bounds import below, parameter_bound, served
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.small_models import serves
from utfproof.constructions.krylov import embed_krylov, krylov_dimension, krylov_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.split_layer import embed_split, split_dimension, split_host
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape


@check("new:shared-attention/krylov")
def krylov(run: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets; at L = 1 the bound is the dimension."""
    for entry in ((2, 1, 1, 1), (2, 1, 2, 2), (2, 1, 3, 3), (2, 1, 3, 2), (2, 3, 1, 1), (2, 3, 2, 2)):
        shape = Shape(*entry)
        m, target = krylov_dimension(shape), integer_target(shape, 3, bound=3)
        found = serves(krylov_host(shape, m), *embed_krylov(shape, m, target), target)
        least = parameter_bound(shape)
        holds = bool(found) and (shape.layers > 1 or m == least)
        yield Instance(shape, holds, f"parameter count m ≥ {least}", routes=found.routes, m=m)
        if entry in ((2, 1, 3, 3), (2, 3, 2, 2)):
            yield Figure("m at ({},{},{},{})".format(*entry), m)
    yield Figure("bound at (2,3,2,2)", parameter_bound(Shape(2, 3, 2, 2)))


@check("new:shared-attention/split-layer")
def split(run: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets at d H^(floor(L/2) + 1); at H = 1 the refutation one below."""
    for entry in (
        (1, 1, 1, 2),
        (1, 2, 2, 3),
        (1, 3, 2, 2),
        (2, 1, 1, 3),
        (2, 2, 1, 3),
        (2, 3, 1, 4),
        (2, 4, 1, 3),
        (3, 3, 2, 1),
    ):
        shape = Shape(*entry)
        m = shape.head_dim * shape.heads ** (shape.layers // 2 + 1)
        target = integer_target(shape, 3, bound=3)
        found = serves(split_host(shape, m), *embed_split(shape, m, target), target)
        yield Instance(shape, bool(found) and m == split_dimension(shape), "every word", routes=found.routes, m=m)
        if shape.heads == 1 < shape.head_dim <= shape.d_in:
            yield below(shape, m - 1, Notion.SHARED_ATTENTION, free="E and U")
        if entry == (2, 3, 1, 4):
            yield Figure("m at (2,3,1,4)", m)


@check("new:shared-attention/stars-any-width")
def stars(run: Run) -> Iterator[Instance | Figure]:
    """The identity in the weights, certified, at the dimension of the formula."""
    anchors = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 3, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 1 and s.leaves <= 27, anchors=anchors):
        wanted = shape.d_in * shape.heads ** (shape.layers // 2) * ((shape.heads + 1) // 2 + 1)
        yield served("middle-stars", shape, least=wanted, detail="two stars serve")
        if str(shape) == str(Shape(3, 3, 2, 2)):
            yield Figure("m at (3,3,2,2)", wanted)


@check("new:shared-attention/path-any-width")
def path(run: Run) -> Iterator[Instance | Figure]:
    """The rational identity in the weights, certified, at the dimension of the formula."""
    anchors = [(1, 1, 1, 1), (2, 1, 2, 2), (3, 3, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 1 and s.leaves <= 27 and s.d_in <= s.head_dim, anchors=anchors):
        wanted = shape.d_in * shape.heads ** (shape.layers // 2) * ((shape.heads + 2) // 2)
        yield served("middle-path", shape, least=wanted, detail="the path serves")
        if str(shape) == str(Shape(3, 3, 2, 2)):
            yield Figure("m at (3,3,2,2)", wanted)


@check("new:looped-shared/two-sided")
def two_sided_counting(run: Run) -> Iterator[Instance | Figure]:
    """The identity's certificate; at H = 2, L = 2 and 4 the span's square root as well, one dimension below refuted."""
    from utfproof.certificates.lower_bounds import dimension_certificate

    anchors = [(1, 2, 1, 1), (2, 2, 1, 1), (2, 4, 1, 1), (2, 8, 1, 1), (3, 4, 1, 1)]
    for shape in run.shapes(lambda s: s.d_in == s.head_dim == 1 and s.layers > 1, anchors=anchors):
        wanted = comb((shape.layers + 1) // 2 + shape.heads - 1, shape.heads - 1)
        yield served("two-sided-counting", shape, least=wanted, detail="two-sided counting serves")
        if shape.heads == 2 and shape.layers in (2, 4):
            below = dimension_certificate(
                shape, wanted - 1, notion=Notion.SHARED_ATTENTION, targets="all tied", free="E and U"
            )
            yield Instance(shape, not below.universal, f"m ≥ {wanted}", below, m=wanted - 1)
        if (shape.heads, shape.layers) in ((2, 4), (2, 8), (3, 4)):
            yield Figure(f"m at ({shape.heads},{shape.layers})", wanted)
