"""Shared attention: what the value path alone costs, for untied targets, with E free or with E and U free."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from utfproof.certificates.dimensions import least_square_root, word_family_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import attained, below, generic_rank, parameter_bound, served, word_family_rank
from utfproof.claims.claim import KNOWN, Figure, Instance, Run, check, label
from utfproof.claims.decisions import figures
from utfproof.claims.small_models import serves
from utfproof.constructions.middle import (
    Bilinear,
    embed_middle,
    middle_dimension,
    middle_host,
    path_bilinear,
    two_stars_bilinear,
)
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import two_sided_dimension
from utfproof.frontiers.interval import Interval, interval
from utfproof.frontiers.questions import ALL, ALMOST_ALL, BOTH, Question
from utfproof.ground.notions import BOTH_FREE, Notion
from utfproof.shapes import Shape
from utfproof.systems import Target

SHARED = Notion.SHARED_ATTENTION


def _below(shape: Shape, m: int, detail: str = "", *, holds: bool = True) -> Instance:
    """No host of m dimensions serves almost all untied targets, E and U free."""
    return below(shape, m, SHARED, free=BOTH_FREE, detail=detail, holds=holds)


def _root(shape: Shape) -> int:
    """The least m with m² >= H^L."""
    return least_square_root(shape.leaves)


def _above_root(shape: Shape) -> int:
    """The least m with m² >= H^L + 1."""
    return least_square_root(shape.leaves + 1)


def _reached(shape: Shape, extent: str) -> Interval:
    """What the frontier knows of the least m, E and U free."""
    return interval(shape, Question(SHARED, BOTH, extent=extent))


@check("new:shared-attention/E-free")
def e_free(run: Run) -> Iterator[Instance | Figure]:
    """Both certificates, one apart."""

    def least(shape: Shape) -> int:
        return int(shape.d_in * shape.heads**shape.layers)

    table = [(2, 4, 30, 30), (4, 2, 24, 4)]
    shapes = run.shapes(anchors=[(1, 1, 1, 1), *table], largest=60)
    yield from attained(shapes, least, SHARED, "register", free="E")
    yield from figures("least m", least, table)


@check("new:shared-attention/even")
def even(run: Run) -> Iterator[Instance | Figure]:
    """The two-sided register's certificate, and the refutation one below at d_in = 1."""
    anchors = [(1, 2, 1, 1), (2, 6, 1, 1), (4, 4, 1, 1), (2, 2, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 0, anchors=anchors):
        root = shape.heads ** (shape.layers // 2)
        yield served("two-sided", shape, least=shape.d_in * root)
        if shape.d_in == 1 and root > 1:
            yield _below(shape, root - 1)
        if (shape.heads, shape.layers, shape.d_in) in ((2, 6, 1), (4, 4, 1)):
            yield Figure(f"least m at ({shape.heads},{shape.layers}), d_in = 1", root)


@check("new:shared-attention/any-width")
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at d_in of two and three."""
    shapes = run.shapes(lambda s: s.heads > 1 and s.d_in > 1, anchors=[(2, 1, 1, 2)])
    yield from attained(shapes, _root, SHARED, free=BOTH_FREE)


@check("new:shared-attention/wide")
def wide(run: Run) -> Iterator[Instance | Figure]:
    """The inequality one below the bound, and the bound against the best host that is known."""
    anchors = [(1, 2, 2, 2), (2, 2, 2, 2), (2, 5, 1, 2)]
    for shape in run.shapes(lambda s: s.d_in > 1 and max(s.heads, s.head_dim) > 1, anchors=anchors):
        bound, upper = _above_root(shape), _reached(shape, ALMOST_ALL).upper
        holds = upper is not None and bound <= upper
        yield _below(shape, bound - 1, f"at least {bound}, reached at {upper}", holds=holds)
    yield from figures("least m allowed", _above_root, [(2, 2, 2, 2)])
    yield from figures("two-sided register", two_sided_dimension, [(2, 2, 2, 2)])


@check("new:shared-attention/wide-all")
def wide_all(_: Run) -> Iterator[Instance | Figure]:
    """The least m that the proved bounds allow against the stated one."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for entry in ((2, 2, 2, 2), (2, 3, 2, 2), (2, 6, 2, 2), (2, 7, 2, 2), (3, 5, 2, 2)):
        shape = Shape(*entry)
        known, stated = _reached(shape, ALL), _root(shape) + 1
        refuted = known.upper is not None and known.upper < stated
        holds = False if refuted else True if known.lower >= stated else None
        found[holds is not None].append(label(shape))
        yield Instance(shape, holds, f"{known}, stated m ≥ {stated}", routes=(KNOWN,))
    yield Figure("decided", ", ".join(found[True]))
    yield Figure("open", ", ".join(found[False]))


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


@check("new:shared-attention/two-layers-of-width-two")
def width_two(_: Run) -> Iterator[Instance | Figure]:
    """The two-sided register's certificate at the parameter count's bound."""
    for heads in range(1, 6):
        shape = Shape(heads, 2, 2, 2)
        yield served("two-sided", shape, least=2 * heads, holds=parameter_bound(shape) == 2 * heads)
    yield from figures("least m", parameter_bound, ((2, 2, 2, 2), (5, 2, 2, 2)))


# --- odd depth -------------------------------------------------------------------------------------------------


def _scalar_target(shape: Shape, seed: int, middle: Sequence[int] | None = None) -> Target:
    """A target of width 1 with nonzero integer weights; `middle`: the weights of the middle layer."""
    target = integer_target(shape, seed)
    W_V = np.where(target.W_V == 0, 3, target.W_V)
    if middle is not None:
        W_V[shape.layers // 2, :, 0, 0] = middle
    return replace(target, W_V=W_V, W_O=np.ones_like(W_V))


def _middle(shape: Shape, bilinear: Bilinear, middle: Sequence[int] | None = None, seed: int = 4) -> Instance:
    """Whether the host with this map in the middle layer serves a target, exactly."""
    m, target = middle_dimension(shape, bilinear), _scalar_target(shape, seed, middle)
    found = serves(middle_host(shape, bilinear, m), *embed_middle(shape, bilinear, m, target), target)
    return Instance(shape, found.value, f"{bilinear.name}: every word", routes=found.routes, m=m)


def _path(shape: Shape) -> int:
    """m of the host with a path in the middle layer."""
    return middle_dimension(shape, path_bilinear(shape.heads))


def _stars(shape: Shape) -> int:
    """m of the host with two stars in the middle layer."""
    return middle_dimension(shape, two_stars_bilinear(shape.heads))


@check("new:shared-attention/odd")
def odd(_: Run) -> Iterator[Instance | Figure]:
    """The inequality one below the least m with m² ≥ H^L + 1, and the splittings that equality would need."""
    for heads in range(2, 10):
        for layers in (1, 3, 5):
            shape = Shape(heads, layers, 1, 1)
            # m = H^|A| = H^|B| with |A| + |B| = L is what equality m^2 = H^L needs
            split = any(heads**a == heads ** (layers - a) for a in range(layers + 1))
            holds = not split and _above_root(shape) == _root(shape) + (_root(shape) ** 2 == shape.leaves)
            yield _below(shape, _above_root(shape) - 1, holds=holds)
    yield from figures("least m allowed", _above_root, ((4, 1), (9, 3)))


@check("new:shared-attention/odd-path")
def odd_path(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets; the dimension against the formula."""
    for heads, layers in ((2, 1), (2, 3), (3, 1), (3, 3), (5, 3), (4, 3), (2, 5)):
        found = _middle(Shape(heads, layers, 1, 1), path_bilinear(heads))
        exact = found.m == heads ** (layers // 2) * ((heads + 2) // 2)
        yield replace(found, holds=found.holds and exact)
    yield from figures("m", _path, ((3, 3), (5, 3), (3, 5)))
    yield from figures("bound", _root, ((5, 3), (3, 5)))


@check("new:shared-attention/one-layer")
def one_layer(_: Run) -> Iterator[Instance | Figure]:
    """The parameter count against the path's dimension, and an exact embedding."""
    for heads in range(1, 9):
        shape = Shape(heads, 1, 1, 1)
        found = _middle(shape, path_bilinear(heads))
        yield replace(found, holds=found.holds and found.m == parameter_bound(shape))
    yield Figure("least m at H = 8", int(found.m or 0))


@check("new:shared-attention/three-three")
def three_three(_: Run) -> Iterator[Instance | Figure]:
    """The refutation at five, exact embeddings at six."""
    shape = Shape(3, 3, 1, 1)
    yield _below(shape, _root(shape) - 1)
    for seed in (4, 5):
        found = _middle(shape, path_bilinear(3), seed=seed)
        yield replace(found, holds=found.holds and found.m == _root(shape))
    yield Figure("least m", _path(shape))
    yield Figure("for all targets", str(_reached(shape, ALL)))


@check("new:shared-attention/two-three")
def two_three(_: Run) -> Iterator[Instance | Figure]:
    """The spans of the splittings of the multidegree (1,1,1); exact embeddings at four, every pattern of zeros."""
    shape = Shape(2, 3, 1, 1)
    # three entries of a vector of forms of some degree span that many dimensions at most
    largest = max(min(3, 2**degree) * min(3, 2 ** (3 - degree)) for degree in range(4))
    detail = f"products of rank one span at most {largest} of {shape.leaves}"
    yield _below(shape, 3, detail, holds=largest < shape.leaves)
    for middle in itertools.product((-1, 0, 1), repeat=2):
        found = _middle(shape, path_bilinear(2), middle)
        yield replace(found, at=f"middle weights {list(middle)}, m = {found.m}", m=None)
    yield Figure("paper's bound", _root(shape))
    yield Figure("least m", _path(shape))
    yield Figure("largest span of a product of rank one", largest)


@check("new:shared-attention/odd-all")
def odd_all(_: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings for every pattern of zeros in the middle layer."""
    for heads, layers in ((2, 1), (3, 1), (4, 1), (2, 3), (3, 3)):
        wanted = heads ** (layers // 2) * ((heads + 1) // 2 + 1)
        for pattern in plain.words(2, heads) if layers == 1 else [(0,) * heads, (1, 0) + (1,) * (heads - 2)]:
            middle = [(i + 2) * bit for i, bit in enumerate(pattern)]
            found = _middle(Shape(heads, layers, 1, 1), two_stars_bilinear(heads), middle)
            at = f"({heads},{layers}), weights ({', '.join(map(str, middle))})"
            yield replace(found, at=at, holds=found.holds and found.m == wanted, detail=f"m = {found.m}", m=None)
    yield from figures("m", _stars, ((3, 3), (2, 3)))


@check("new:shared-attention/odd-least")
def odd_least(_: Run) -> Iterator[Instance | Figure]:
    """The frontier's interval against the path's dimension."""
    for heads, layers in ((2, 1), (3, 1), (2, 3), (3, 3), (4, 3), (5, 3), (2, 5), (3, 5)):
        shape = Shape(heads, layers, 1, 1)
        known, stated = _reached(shape, ALMOST_ALL), _path(shape)
        lower, upper = known.lower, int(known.upper or 0)
        holds = lower <= stated <= upper if lower == upper or upper < stated else None
        yield Instance(shape, holds, str(known), routes=(KNOWN,), m=upper)
        if (heads, layers) in ((4, 3), (5, 3), (3, 5)):
            yield Figure(f"interval at ({heads},{layers})", f"{lower} to {upper}")
