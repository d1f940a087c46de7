"""Shared attention: what the value path alone costs, where it is no identity of words. (Other claims have `bounds` rows.)"""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.certificates.dimensions import word_family_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import below, generic_rank, parameter_bound, word_family_rank
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import figures
from utfproof.claims.small_models import array, values_of
from utfproof.constructions import construction
from utfproof.constructions.krylov import krylov_dimension
from utfproof.constructions.random import integer_target
from utfproof.constructions.split_layer import split_dimension
from utfproof.ground.notions import BOTH_FREE, Notion
from utfproof.shapes import Shape
from utfproof.systems import prefix_products


@check("new:shared-attention/parameter-count")
def parameter_count(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the family by formula and by exact rank; the bound is the least m that leaves room for it."""
    anchors = [(1, 1, 1, 1), (2, 2, 2, 2)]
    for shape in run.shapes(lambda s: s.head_dim >= s.d_in and s.leaves <= 9, anchors=anchors, largest=60):
        found, bound = generic_rank(word_family_rank, shape), parameter_bound(shape)
        room = 2 * shape.d_in * bound - 1 >= found.value > 2 * shape.d_in * (bound - 1) - 1
        holds = found.value == word_family_dimension(shape) and room
        yield Instance(shape, holds, f"dimension {found.value}, m ≥ {bound}", routes=found.routes, m=bound)
    yield from figures("bound", parameter_bound, ((2, 2, 2, 2), (3, 2, 3, 3)))


def _serves(name: str, shape: Shape, m: int) -> Agreed:
    """Whether E R_w U = M_w for every word of length L at an integer target: by the package, and word by word."""
    shared, target = construction(name).shared, integer_target(shape, 3, bound=3)
    assert shared is not None
    host = shared.host(shape, m)
    E, U = shared.embed(shape, m, target)
    grid, (e, u) = values_of(host), (plain.rows(E), plain.rows(U))
    slow = own = True
    for word, wanted in zip(plain.words(shape.heads, shape.layers), prefix_products(target, shape.layers), strict=True):
        routed = array(e)
        for layer, head in enumerate(word):
            routed = routed @ host.value(layer, head)
        own &= bool((routed @ array(u) == wanted).all())
        values = [grid[layer][head] for layer, head in enumerate(word)]
        slow &= plain.product([e, *values, u]) == plain.routed(target, word)
    return agree({"plain Fractions": slow, "package": own})


@check("new:shared-attention/krylov")
def krylov(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets; at L = 1 the bound is the dimension."""
    for entry in ((2, 1, 1, 1), (2, 1, 2, 2), (2, 1, 3, 3), (2, 1, 3, 2), (2, 3, 1, 1), (2, 3, 2, 2)):
        shape = Shape(*entry)
        m, least = krylov_dimension(shape), parameter_bound(shape)
        found = _serves("krylov", shape, m)
        holds = found.value and (shape.layers > 1 or m == least)
        yield Instance(shape, holds, f"parameter count m ≥ {least}", routes=found.routes, m=m)
    yield from figures("m", krylov_dimension, ((2, 1, 3, 3), (2, 3, 2, 2)))
    yield from figures("bound", parameter_bound, [(2, 3, 2, 2)])


SPLIT = ((1, 1, 1, 2), (1, 2, 2, 3), (1, 3, 2, 2), (2, 1, 1, 3), (2, 2, 1, 3), (2, 3, 1, 4), (3, 3, 2, 1))


@check("new:shared-attention/split-layer")
def split(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets at d H^(floor(L/2) + 1); at H = 1 the refutation one below."""
    for shape in (Shape(*entry) for entry in SPLIT):
        m = shape.head_dim * shape.heads ** (shape.layers // 2 + 1)
        found = _serves("split-layer", shape, m)
        holds = found.value and m == split_dimension(shape)
        yield Instance(shape, holds, "every word", routes=found.routes, m=m)
        if shape.heads == 1 < shape.head_dim <= shape.d_in:
            yield below(shape, m - 1, Notion.SHARED_ATTENTION, free=BOTH_FREE)
    yield from figures("m", split_dimension, [(2, 3, 1, 4)])
