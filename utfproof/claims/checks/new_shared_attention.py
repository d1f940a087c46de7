"""Shared attention: what the value path alone costs, for untied targets, with E free or with E and U free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utfproof.certificates.dimensions import least_square_root, word_family_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import below, parameter_bound, served, word_family_rank
from utfproof.claims.claim import KNOWN, Figure, Instance, Run, check
from utfproof.claims.decisions import figures
from utfproof.claims.small_models import array, serves
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
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, BOTH, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape
from utfproof.systems import Target


def _below(shape: Shape, m: int, free: str, detail: str, *, holds: bool = True) -> Instance:
    """No host of m dimensions serves almost all untied targets."""
    return below(shape, m, Notion.SHARED_ATTENTION, free=free, detail=detail, holds=holds)


@check("new:shared-attention/E-free")
def e_free(run: Run) -> Iterator[Instance | Figure]:
    """Both certificates, one apart."""
    table = [(2, 4, 30, 30), (4, 2, 24, 4)]
    for shape in run.shapes(anchors=[(1, 1, 1, 1), *table], largest=60):
        least = shape.d_in * shape.heads**shape.layers
        if least > 1:
            yield _below(shape, least - 1, "E", f"m ≥ {least}")
        at_least = served("register", shape, least=least)
        yield at_least
        if (entry := (shape.heads, shape.layers, shape.head_dim, shape.d_in)) in table:
            yield Figure("least m at ({},{},{},{})".format(*entry), int(at_least.m or 0))


@check("new:shared-attention/even")
def even(run: Run) -> Iterator[Instance | Figure]:
    """The two-sided register's certificate, and the refutation one below at d_in = 1."""
    anchors = [(1, 2, 1, 1), (2, 6, 1, 1), (4, 4, 1, 1), (2, 2, 2, 2)]
    for shape in run.shapes(lambda s: s.layers % 2 == 0, anchors=anchors):
        root = shape.heads ** (shape.layers // 2)
        at_root = served("two-sided", shape, least=shape.d_in * root)
        yield at_root
        if shape.d_in == 1 and root > 1:
            yield _below(shape, root - 1, "E and U", f"m² ≥ {shape.leaves}")
        if (shape.heads, shape.layers, shape.d_in) in ((2, 6, 1), (4, 4, 1)):
            yield Figure(f"least m at ({shape.heads},{shape.layers}), d_in = 1", int(at_root.m or 0))


@check("new:shared-attention/any-width")
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at d_in of two and three."""
    for shape in run.shapes(lambda s: s.heads > 1 and s.d_in > 1, anchors=[(2, 1, 1, 2)]):
        yield _below(shape, least_square_root(shape.leaves) - 1, "E and U", f"m² ≥ {shape.leaves}")


@check("new:shared-attention/wide")
def wide(run: Run) -> Iterator[Instance | Figure]:
    """The inequality one below the bound, and the bound against the best host that is known."""
    for shape in run.shapes(
        lambda s: s.d_in > 1 and max(s.heads, s.head_dim) > 1, anchors=[(1, 2, 2, 2), (2, 2, 2, 2), (2, 5, 1, 2)]
    ):
        bound = least_square_root(shape.leaves + 1)
        reached = interval(shape, Question(Notion.SHARED_ATTENTION, BOTH, extent=ALMOST_ALL)).upper
        assert reached is not None
        detail = f"at least {bound}, reached at {reached}"
        yield _below(shape, bound - 1, "E and U", detail, holds=bound <= reached)
    shape = Shape(2, 2, 2, 2)
    yield Figure("least m allowed at (2,2,2,2)", least_square_root(shape.leaves + 1))
    yield Figure("two-sided register at (2,2,2,2)", two_sided_dimension(shape))


@check("new:shared-attention/wide-all")
def wide_all(run: Run) -> Iterator[Instance | Figure]:
    """The least m that the proved bounds allow against the stated one."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for place in ((2, 2, 2, 2), (2, 3, 2, 2), (2, 6, 2, 2), (2, 7, 2, 2), (3, 5, 2, 2)):
        shape = Shape(*place)
        known = interval(shape, Question(Notion.SHARED_ATTENTION, BOTH))
        stated = least_square_root(shape.leaves) + 1
        holds = True if known.lower >= stated else None
        if known.upper is not None and known.upper < stated:
            holds = False
        found[holds is not None].append(f"({','.join(map(str, place))})")
        yield Instance(shape, holds, f"{known}, stated m ≥ {stated}", routes=(KNOWN,))
    yield Figure("decided", ", ".join(found[True]))
    yield Figure("open", ", ".join(found[False]))


@check("new:shared-attention/parameter-count")
def parameter_count(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the family by formula and by exact rank; the bound is the least m that leaves room for it."""
    for shape in run.shapes(
        lambda s: s.head_dim >= s.d_in and s.leaves <= 9, anchors=[(1, 1, 1, 1), (2, 2, 2, 2)], largest=60
    ):
        found = max(
            (word_family_rank(integer_target(shape, seed, bound=3)) for seed in (1, 2, 3)), key=lambda f: int(f.value)
        )
        bound = parameter_bound(shape)
        room = 2 * shape.d_in * bound - 1 >= found.value > 2 * shape.d_in * (bound - 1) - 1
        holds = found.value == word_family_dimension(shape) and room
        yield Instance(shape, holds, f"dimension {found.value}, m ≥ {bound}", routes=found.routes, m=bound)
    yield from figures("bound", parameter_bound, ((2, 2, 2, 2), (3, 2, 3, 3)))


@check("new:shared-attention/two-layers-of-width-two")
def width_two(run: Run) -> Iterator[Instance | Figure]:
    """The two-sided register's certificate at the parameter count's bound."""
    for heads in (1, 2, 3, 4, 5):
        shape = Shape(heads, 2, 2, 2)
        bound = parameter_bound(shape)
        least = 2 * heads
        found = served("two-sided", shape, least=least, holds=least == bound, detail=f"m ≥ {bound}")
        yield found
        if heads in (2, 5):
            yield Figure(f"least m at ({heads},2,2,2)", int(found.m or 0))


# --- odd depth -------------------------------------------------------------------------------------------------


def _scalar_target(shape: Shape, seed: int, middle: Sequence[int] | None = None) -> Target:
    """A target of width 1 with nonzero integer weights; `middle`: the weights of the middle layer."""
    drawn = integer_target(Shape(shape.heads, shape.layers, 1, 1), seed)
    W_V = array([[[[int(v) or 3 for v in row] for row in head] for head in layer] for layer in drawn.W_V.tolist()])
    W_O = np.ones_like(W_V)
    if middle is not None:
        for head, value in enumerate(middle):
            W_V[shape.layers // 2, head, 0, 0] = value
    return Target(shape, drawn.W_Q, drawn.W_K, W_V, W_O)


def _middle(shape: Shape, bilinear: Bilinear, target: Target) -> Instance:
    """Whether the host with this map in the middle layer serves this target, exactly."""
    m = middle_dimension(shape, bilinear)
    E, U = embed_middle(shape, bilinear, m, target)
    found = serves(middle_host(shape, bilinear, m), E, U, target)
    return Instance(shape, bool(found), f"{bilinear.name}: every word", routes=found.routes, m=m)


@check("new:shared-attention/odd")
def odd(run: Run) -> Iterator[Instance | Figure]:
    """The inequality one below the least m with m² ≥ H^L + 1, and the splittings that equality would need."""
    for heads in range(2, 10):
        for layers in (1, 3, 5):
            count = heads**layers
            least = least_square_root(count + 1)
            # m = H^|A| = H^|B| with |A| + |B| = L is what equality m^2 = H^L needs
            splits = [a for a in range(layers + 1) if heads**a == heads ** (layers - a)]
            root = least_square_root(count)
            square = root * root == count
            holds = not splits and least == root + square
            yield _below(Shape(heads, layers, 1, 1), least - 1, "E and U", f"m ≥ {least}", holds=holds)
            if (heads, layers) in ((4, 1), (9, 3)):
                yield Figure(f"least m allowed at ({heads},{layers})", least)


@check("new:shared-attention/odd-path")
def odd_path(run: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings of integer targets; the dimension against the formula."""
    for heads, layers in ((2, 1), (2, 3), (3, 1), (3, 3), (5, 3), (4, 3), (2, 5)):
        shape = Shape(heads, layers, 1, 1)
        found = _middle(shape, path_bilinear(heads), _scalar_target(shape, 4))
        exact = found.m == heads ** (layers // 2) * ((heads + 2) // 2)
        yield Instance(shape, bool(found.holds) and exact, found.detail, routes=found.routes, m=found.m)
    for heads, layers in ((3, 3), (5, 3), (3, 5)):
        shape = Shape(heads, layers, 1, 1)
        yield Figure(f"m at ({heads},{layers})", middle_dimension(shape, path_bilinear(heads)))
        if heads + layers == 8:
            yield Figure(f"bound at ({heads},{layers})", least_square_root(shape.leaves))


@check("new:shared-attention/one-layer")
def one_layer(run: Run) -> Iterator[Instance | Figure]:
    """The parameter count against the path's dimension, and an exact embedding."""
    for heads in range(1, 9):
        shape = Shape(heads, 1, 1, 1)
        found = _middle(shape, path_bilinear(heads), _scalar_target(shape, 4))
        holds = bool(found.holds) and found.m == parameter_bound(shape)
        yield Instance(shape, holds, f"m ≥ {parameter_bound(shape)}", routes=found.routes, m=found.m)
    yield Figure("least m at H = 8", int(found.m or 0))


@check("new:shared-attention/three-three")
def three_three(run: Run) -> Iterator[Instance | Figure]:
    """The refutation at five, exact embeddings at six."""
    shape = Shape(3, 3, 1, 1)
    yield _below(shape, least_square_root(shape.leaves) - 1, "E and U", f"m² ≥ {shape.leaves}")
    for seed in (4, 5):
        found = _middle(shape, path_bilinear(3), _scalar_target(shape, seed))
        yield Instance(
            shape, found.holds and found.m == least_square_root(27), found.detail, routes=found.routes, m=found.m
        )
    yield Figure("least m", int(found.m or 0))
    yield Figure("for all targets", str(interval(shape, Question(Notion.SHARED_ATTENTION, BOTH))))


@check("new:shared-attention/two-three")
def two_three(run: Run) -> Iterator[Instance | Figure]:
    """The spans of the splittings of the multidegree (1,1,1); exact embeddings at four, every pattern of zeros."""
    largest = 0
    for chosen in plain.words(2, 3):
        p = _span(sum(chosen))
        q = _span(3 - sum(chosen))
        largest = max(largest, p * q)
    shape = Shape(2, 3, 1, 1)
    detail = f"products of rank one span at most {largest} of {shape.leaves}"
    yield _below(shape, 3, "E and U", detail, holds=largest < shape.leaves)
    for middle in plain.words(3, 2):
        found = _middle(shape, path_bilinear(2), _scalar_target(shape, 4, [v - 1 for v in middle]))
        least = found.m
        yield Instance(
            f"middle weights {[v - 1 for v in middle]}, m = {least}", found.holds, found.detail, routes=found.routes
        )
    yield Figure("paper's bound", least_square_root(shape.leaves))
    yield Figure("least m", int(least or 0))
    yield Figure("largest span of a product of rank one", largest)


def _span(degree: int) -> int:
    """Largest dimension spanned by the three entries of a vector of multilinear forms in this many pairs of weights."""
    return min(3, 2**degree)


@check("new:shared-attention/odd-all")
def odd_all(run: Run) -> Iterator[Instance | Figure]:
    """Exact embeddings for every pattern of zeros in the middle layer."""
    for heads, layers in ((2, 1), (3, 1), (4, 1), (2, 3), (3, 3)):
        shape = Shape(heads, layers, 1, 1)
        wanted = heads ** (layers // 2) * ((heads + 1) // 2 + 1)
        for pattern in plain.words(2, heads) if layers == 1 else [(0,) * heads, (1, 0) + (1,) * (heads - 2)]:
            middle = [(i + 2) * bit for i, bit in enumerate(pattern)]
            found = _middle(shape, two_stars_bilinear(heads), _scalar_target(shape, 4, middle))
            at = f"({heads},{layers}), weights ({', '.join(map(str, middle))})"
            yield Instance(at, bool(found.holds) and found.m == wanted, f"m = {found.m}", routes=found.routes)
    for heads, layers in ((3, 3), (2, 3)):
        yield Figure(
            f"m at ({heads},{layers})", middle_dimension(Shape(heads, layers, 1, 1), two_stars_bilinear(heads))
        )


@check("new:shared-attention/odd-least")
def odd_least(run: Run) -> Iterator[Instance | Figure]:
    """The frontier's interval against the path's dimension."""
    for heads, layers in ((2, 1), (3, 1), (2, 3), (3, 3), (4, 3), (5, 3), (2, 5), (3, 5)):
        shape = Shape(heads, layers, 1, 1)
        known = interval(shape, Question(Notion.SHARED_ATTENTION, BOTH, extent=ALMOST_ALL))
        lower, upper = known.lower, int(known.upper or 0)
        stated = middle_dimension(shape, path_bilinear(heads))
        holds = lower <= stated <= upper if lower == upper or upper < stated else None
        yield Instance(shape, holds, str(known), routes=(KNOWN,), m=upper)
        if heads + layers > 6 and heads * layers > 6 and (heads, layers) != (2, 5):
            yield Figure(f"interval at ({heads},{layers})", f"{lower} to {upper}")
