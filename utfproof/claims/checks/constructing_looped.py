"""Sections 3.1 and 3.2: looped hosts, random hosts, and the dimensions said to suffice.

The looped theorems are about universality as defined; their proofs go through matching. `looped_case` says which part
of the statement a shape belongs to, so that the parts together cover every shape once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from utfproof.certificates.dimensions import ALL_UNTIED, GENERIC_UNTIED
from utfproof.claims.bounds import below, fibre_bound, served
from utfproof.claims.claim import BESIDE, KNOWN, Agreed, Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import decided, figures, ranks
from utfproof.claims.hosts import TABLES, is_binary, most_nonzeros, no_matching
from utfproof.constructions import build_host
from utfproof.constructions.shared_query_groups import grouped_dimension
from utfproof.frontiers.interval import Interval, interval
from utfproof.frontiers.questions import ALMOST_ALL, TIED, UNTIED, Question
from utfproof.ground.notions import Notion
from utfproof.paper import formulas as printed
from utfproof.shapes import (
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_dimension,
    paper_looped_dimension,
    shared_key_dimension,
)
from utfproof.systems import Universal

ONE_LAYER = [(H, 1, d, d_in) for H in range(2, 6) for d_in in range(1, 9) for d in range(1, d_in + 1)]
"""L = 1, H = 2 ... 5, d <= d_in <= 8: where the fibre dimension is compared with the looped m-bar."""
DEEPER = [(2, 2, 1, 2), (3, 2, 1, 3)]
"""L = 2: two shapes at which what a functional host needs exceeds the looped m-bar."""
MATCHED, WIDE, FALSE, SERVED, UNDECIDED = "m-bar-loop >= M", "d >= d_in", "refuted", "another host serves", "open"
ONE_WIDE, ONE_NARROW, GAUGES = "L = 1, d >= d_in", "L = 1, d < d_in", "more equations than gauges"


def below_fibre_bound(shape: Shape, m: int) -> Agreed:
    """Whether m is below the fibre bound, at L = 1 and d <= d_in: as the frontier knows it, and by counting entries and
    dimensions."""
    H, d, d_in = shape.heads, shape.head_dim, shape.d_in
    left_over = d_in * (m - H * d_in)  # entries of E that the value equations leave free
    needed = H * (d_in * d_in - (d_in - d) * (d_in - d))  # H forms of rank d: codimension (d_in - d)^2 each
    return agree({"bound": m < fibre_bound(shape), "entries counted": left_over < needed})


def _known(shape: Shape) -> Interval:
    return interval(shape, Question(Notion.FUNCTIONAL, host=TIED))


def looped_case(shape: Shape) -> str:
    """Which part of thm:looped_sparse_universal_transformer this shape belongs to, by what the frontier knows."""
    m, known = paper_looped_dimension(shape), _known(shape)
    if m >= matching_dimension(shape):
        return MATCHED
    if m < known.lower:
        return FALSE
    if shape.head_dim >= shape.d_in and m >= shared_key_dimension(shape):
        return WIDE
    return SERVED if known.upper is not None and m >= known.upper else UNDECIDED


def random_case(shape: Shape) -> str:
    """The same for thm:random_looped_universal_transformer, where what holds of random hosts takes the tries' place
    (docs/proofs/random-looped.md)."""
    case, wide = looped_case(shape), shape.head_dim >= shape.d_in
    if case in (MATCHED, FALSE):
        return case
    if wide and paper_looped_dimension(shape) >= linear_test_dimension(shape):
        return WIDE
    if shape.layers == 1:
        return ONE_WIDE if wide else ONE_NARROW
    return GAUGES if gauges_run_out(shape, paper_looped_dimension(shape)) else UNDECIDED


def gauges_run_out(shape: Shape, m: int) -> bool:
    """d <= d_in: whether the equations that m < M dimensions leave for a random host outnumber the entries of the gauges."""
    left = shape.d_in * (matching_dimension(shape) - m)
    return shape.head_dim <= shape.d_in and left > shape.layers * shape.heads * shape.head_dim**2


def in_case(case: str, of: Callable[[Shape], str] = looped_case) -> Callable[[Shape], bool]:
    return lambda shape: of(shape) == case


@check("eq:m-bar-loop")
def m_bar_loop(run: Run) -> Iterator[Instance | Figure]:
    """The printed cases, the package's formula, and blocks counted length by length."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 1, 1, 4), (2, 2, 2, 1), *TABLES]):
        H, d, d_in = shape.heads, shape.head_dim, shape.d_in
        blocks = sum(H**t for t in range(shape.layers + 1)) * max(2 * d, d_in)
        m = agree({"printed cases": printed.m_bar_loop(shape), "shapes": paper_looped_dimension(shape)})
        both = same({"printed cases": printed.m_bar_loop(shape), "blocks counted": blocks})
        enough = H == 1 or d_in >= 2 * d * H or 2 * d >= H**shape.layers * d_in
        holds = both.value and (m.value >= matching_dimension(shape)) == enough
        holds &= H > 1 or m.value == paper_dimension(shape)
        detail = f"m-bar-loop = {m.value}, M = {matching_dimension(shape)}"
        yield Instance(shape, holds, detail, routes=both.routes)
        name = f"({H},{shape.layers},{d},{d_in})"
        if (H, shape.layers, d, d_in) in TABLES:
            yield Figure(name, m.value)


@check("sec:constructing/matrix-count")
def matrix_count(run: Run) -> Iterator[Instance | Figure]:
    """Distinct matrices that the layers use, and matrices that the containers hold."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 4, 30, 30)]):
        counts = []
        for name, formula in (("tied", printed.MATRICES_LOOPED), ("sparse", printed.MATRICES)):
            host = build_host(name, shape)
            used = {
                id(matrix)
                for layer in range(shape.layers)
                for head in range(shape.heads)
                for matrix in _maps(host, layer, head)
            }
            held = sum(len(grid) if host.tied else sum(map(len, grid)) for grid in (host.R_Q, host.R_K, host.R_V))
            both = agree({"matrices used": len(used) + 1, "matrices held": held + 1})
            counts.append((both.value, printed.evaluate(formula, shape)))
        holds = all(found == expected for found, expected in counts)
        yield Instance(shape, holds, f"{counts[0][0]} and {counts[1][0]}", routes=("matrices used", "matrices held"))
        if shape == Shape(2, 4, 30, 30):
            yield Figure("looped at (2,4,30,30)", counts[0][0])
            yield Figure("untied at (2,4,30,30)", counts[1][0])


def _maps(host: Universal, layer: int, head: int) -> list[object]:
    maps = host.maps(layer, head)
    return [maps.query, maps.key, *maps.value]


@check("thm:looped_sparse_universal_transformer/proof")
def looped_proof(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds at m-bar-loop, and the repaired host at M."""
    for shape in run.shapes(lambda s: looped_case(s) != MATCHED, anchors=[(2, 1, 1, 2), *TABLES]):
        yield no_matching(shape, paper_looped_dimension(shape), holds=False)
        yield decided("tied", shape, part=BESIDE)


@check("thm:looped_sparse_universal_transformer/m-bar-at-least-M")
def looped_matched(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of the tied host at m-bar-loop."""
    yield from ranks(
        run.shapes(in_case(MATCHED), anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 4), (2, 2, 2, 1)]),
        "tied",
        m=paper_looped_dimension,
    )


@check("thm:looped_sparse_universal_transformer/wide-heads")
def looped_wide(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates of the shared-key tries, padded to m-bar-loop."""
    for shape in run.shapes(in_case(WIDE), anchors=[(3, 1, 1, 1), (4, 2, 24, 4), (2, 4, 30, 30)], largest=120):
        m, least = paper_looped_dimension(shape), shared_key_dimension(shape)
        yield served("shared-key", shape, m, holds=least <= m, detail=f"least m {least}")


def refuted_shapes(run: Run, of: Callable[[Shape], str], *, one_layer: bool) -> Iterator[Instance]:
    anchors = ONE_LAYER if one_layer else DEEPER
    wanted = in_case(FALSE, of)
    for shape in run.shapes(
        lambda s: wanted(s) and (s.layers == 1) is one_layer, anchors=[s for s in anchors if wanted(Shape(*s))]
    ):
        m = paper_looped_dimension(shape)
        counted = below_fibre_bound(shape, m) if one_layer else None
        routes = counted.routes if counted else ()  # elsewhere another bound refutes
        almost_all = interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL)).lower > m
        targets = GENERIC_UNTIED if almost_all else ALL_UNTIED
        detail = f"m-bar-loop = {m} < {_known(shape).lower}"
        yield below(shape, m, Notion.FUNCTIONAL, targets, detail=detail, holds=False, routes=routes)


@check("thm:looped_sparse_universal_transformer/one-layer")
def looped_false(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop; the number of shapes below the fibre bound, by the bound and by the bare inequality."""
    yield from refuted_shapes(run, looped_case, one_layer=True)
    bare = [d_in * (1 + H) * max(2 * d, d_in) < H * (d_in * d_in + 2 * d * d_in - d * d) for H, _, d, d_in in ONE_LAYER]
    shapes = [Shape(*shape) for shape in ONE_LAYER]
    lower = [paper_looped_dimension(shape) < fibre_bound(shape) for shape in shapes]
    counts = agree({"bound": sum(lower), "bare inequality": sum(bare)})
    cases = [looped_case(shape) for shape in shapes if shape.head_dim < shape.d_in]
    yield Figure("shapes below the bound, H = 2..5, d <= d_in <= 8", counts.value)
    yield Figure(
        "of the shapes with d < d_in: refuted, holding, open",
        f"{cases.count(FALSE)}, {cases.count(MATCHED) + cases.count(SERVED)}, {cases.count(UNDECIDED)}",
    )
    yield Figure("bound at (2,1,1,2)", fibre_bound(Shape(2, 1, 1, 2)))


@check("thm:looped_sparse_universal_transformer/more-layers")
def looped_false_deeper(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop."""
    yield from refuted_shapes(run, looped_case, one_layer=False)


def grouped(shape: Shape) -> bool:
    """Whether shared-query-groups serves almost all targets at m-bar-loop, below M."""
    m = paper_looped_dimension(shape)
    return shape.head_dim < shape.d_in and grouped_dimension(shape) <= m < matching_dimension(shape)


@check("thm:looped_sparse_universal_transformer/almost-all")
def looped_almost_all(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates at m-bar-loop; how many shapes are served so, at how many the theorem is false, and at how many,
    for
    almost all targets, neither is known."""
    for shape in run.shapes(grouped, anchors=[(2, 2, 28, 30), (2, 3, 28, 30)], largest=60):
        m, least = paper_looped_dimension(shape), grouped_dimension(shape)
        yield served("shared-query-groups", shape, m, holds=least <= m, detail=f"least m {least}")
    yield from figures("needed", grouped_dimension, ((2, 2, 28, 30), (2, 3, 28, 30)))
    for layers in (1, 2, 3, 4):
        shapes = [Shape(H, layers, d, b) for H in range(1, 6) for b in range(1, 9) for d in range(1, b + 1)]
        for what, count in looped_counts(shapes).items():
            yield Figure(f"L = {layers}: {what} of {len(shapes)} shapes", count)


def looped_counts(shapes: list[Shape]) -> dict[str, int]:
    """How often m-bar-loop is enough for almost all targets, is not, or is not decided."""
    found = {"true": 0, "false": 0, "not known": 0}
    for shape in shapes:
        m, known = (
            paper_looped_dimension(shape),
            interval(shape, Question(Notion.FUNCTIONAL, None, UNTIED, ALMOST_ALL, TIED)),
        )
        assert known.upper is not None
        found["false" if m < known.lower else "true" if m >= known.upper else "not known"] += 1
    return found


@check("thm:looped_sparse_universal_transformer/attention-matching")
def looped_attention(run: Run) -> Iterator[Instance | Figure]:
    """Inequalities at m-bar-loop; of a family of shapes, at how many."""
    for shape in run.shapes(_misses_attention, anchors=[(2, 1, 1, 2), (2, 2, 1, 2)]):
        m = paper_looped_dimension(shape)
        yield below(shape, m, Notion.ATTENTION_MATCHING, detail=f"m-bar-loop = {m}", holds=False)
    family = [Shape(H, L, d, b) for H in range(2, 5) for L in (1, 2, 3) for d in range(1, 6) for b in range(1, 6)]
    yield Figure("of 225 shapes with H = 2..4, L <= 3, d, d_in <= 5", sum(map(_misses_attention, family)))


def _misses_attention(shape: Shape) -> bool:
    known = interval(shape, Question(Notion.ATTENTION_MATCHING, extent=ALMOST_ALL, host=TIED))
    return paper_looped_dimension(shape) < known.lower


@check("thm:looped_sparse_universal_transformer/open")
def looped_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from open_shapes(run, looped_case, (2, 3, 28, 30))


def open_shapes(run: Run, of: Callable[[Shape], str], *anchors: tuple[int, ...]) -> Iterator[Instance | Figure]:
    for shape in run.shapes(in_case(UNDECIDED, of), anchors=anchors):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        if of(shape) != UNDECIDED:  # an anchor that something decides after all
            yield Instance(shape, of(shape) != FALSE, of(shape), routes=(KNOWN,), m=m)
            continue
        yield Instance(shape, None, f"m-bar-loop = {m} < M = {M}; {_known(shape)}", routes=(KNOWN,), m=m)
        if shape.head_dim > 20:
            yield Figure(f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in})", f"{m} < {M}")


@check("thm:looped_sparse_universal_transformer/binary")
def looped_binary(run: Run) -> Iterator[Instance | Figure]:
    """Every entry looked at, and the index maps."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 2, 3)], largest=60):
        for name in ("tied", "shared-key" if shape.head_dim >= shape.d_in else "shared-query-groups"):
            host = build_host(name, shape)
            fine, routes = is_binary(host)
            most, _ = most_nonzeros(host)
            yield Instance(
                shape, fine and most <= host.m, f"{name}: at most {most} of {host.m}", routes=routes, m=host.m
            )
