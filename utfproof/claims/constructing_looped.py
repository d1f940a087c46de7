"""Sections 3.1 and 3.2: looped hosts, random hosts, and the dimensions said to suffice.

The looped theorems are about universality as defined; their proofs go through matching. `looped_case` says which part
of the statement a shape belongs to, so that the parts together cover every shape once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from utfproof.certificates.format import Certificate
from utfproof.claims import printed
from utfproof.claims.decisions import decided, rank_of
from utfproof.claims.hosts import TABLES, heads, is_binary, most_nonzeros, no_matching, small_host
from utfproof.claims.record import Category, Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.constructions import build_host
from utfproof.exact import gfp
from utfproof.notions import Notion
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
MATCHED, WIDE, FALSE, UNDECIDED = "m-bar-loop >= M", "d >= d_in", "fewer dimensions than fibres", "open"


def fibre_bound(shape: Shape) -> Fraction:
    """H (d_in + 2d - d^2/d_in): what functional universality needs at L = 1, d <= d_in (docs/proofs/fibre-dimension.md)."""
    d, d_in = shape.head_dim, shape.d_in
    return shape.heads * (d_in + 2 * d - Fraction(d * d, d_in))


def below_fibre_bound(shape: Shape, m: int) -> tuple[bool, tuple[str, ...]]:
    """Whether L = 1, d <= d_in and m is below the bound: as a fraction, and by counting entries and dimensions."""
    if shape.layers > 1 or shape.head_dim > shape.d_in:
        return False, ("the bound does not apply",)
    H, d, d_in = shape.heads, shape.head_dim, shape.d_in
    left_over = d_in * (m - H * d_in)  # entries of E that the value equations leave free
    needed = H * (d_in * d_in - (d_in - d) * (d_in - d))  # H forms of rank d: codimension (d_in - d)^2 each
    both = agree({"fraction": m < fibre_bound(shape), "entries counted": left_over < needed})
    return both.value, both.routes


def looped_case(shape: Shape) -> str:
    """Which part of thm:looped_sparse_universal_transformer this shape belongs to."""
    m = paper_looped_dimension(shape)
    if m >= matching_dimension(shape):
        return MATCHED
    if shape.head_dim >= shape.d_in:
        return WIDE
    return FALSE if below_fibre_bound(shape, m)[0] else UNDECIDED


def random_case(shape: Shape) -> str:
    """The same for thm:random_looped_universal_transformer, where the linear test takes the tries' place."""
    case = looped_case(shape)
    if case == WIDE and paper_looped_dimension(shape) < linear_test_dimension(shape):
        return FALSE if below_fibre_bound(shape, paper_looped_dimension(shape))[0] else UNDECIDED
    return case


def _in(case: str, of: Callable[[Shape], str] = looped_case) -> Callable[[Shape], bool]:
    return lambda shape: of(shape) == case


@claim(
    "eq:m-bar-loop",
    place="Section 3.1, the definition of the looped m̄",
    statement="Both cases of the looped m̄ are (1 + S) max{2d, d_in}; it equals m̄ for H = 1, and for H ≥ 2 it is at least M exactly "
    "when d_in ≥ 2dH or 2d ≥ H^L d_in.",
    category=Category.COUNT,
    scope="every shape",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.ARITHMETIC,),
    sentence="1 + S = (H^{L+1} − 1)/(H − 1) for H ≥ 2 and L + 1 for H = 1; at all four table shapes it is below M.",
    smallest="(1,1,1,1)",
    figures={"(4,2,24,4)": 1008, "(2,2,28,30)": 392, "(2,3,28,30)": 840, "(2,4,30,30)": 1860},
)
def m_bar_loop(run: Run) -> Iterator[Instance | Figure]:
    """The printed cases, the package's formula, and blocks counted length by length."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 1, 1, 4), (2, 2, 2, 1), *TABLES]):
        H, d, d_in = shape.heads, shape.head_dim, shape.d_in
        blocks = sum(H**t for t in range(shape.layers + 1)) * max(2 * d, d_in)
        m = agree({"printed cases": printed.m_bar_loop(shape), "shapes": paper_looped_dimension(shape)})
        enough = H == 1 or d_in >= 2 * d * H or 2 * d >= H**shape.layers * d_in
        holds = m.value == blocks and (m.value >= matching_dimension(shape)) == enough
        holds &= H > 1 or m.value == paper_dimension(shape)
        detail = f"m-bar-loop = {m.value}, M = {matching_dimension(shape)}"
        yield Instance(shape, holds, detail, routes=("printed cases", "blocks counted"))
        name = f"({H},{shape.layers},{d},{d_in})"
        if (H, shape.layers, d, d_in) in TABLES:
            yield Figure(name, m.value)


@claim(
    "sec:constructing/matrix-count",
    place="Section 3.1, looped transformers",
    statement="A looped host has 3H + 1 parameter matrices, that is O(H); an untied one has 3HL + 1.",
    category=Category.COUNT,
    scope="every shape, the tied host and the prefix tree",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.ARITHMETIC,),
    sentence="R_Q^h, R_K^h and R_V^h for each head, once or once a layer, and U.",
    smallest="(1,1,1,1)",
    figures={"looped at (2,4,30,30)": 7, "untied at (2,4,30,30)": 25},
)
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


LOOPED = "thm:looped_sparse_universal_transformer"
LOOPED_STATEMENT = "At m ≥ m̄_loop some looped {0,1} host is universal for all untied targets"
WRITTEN = (Evidence.WRITTEN, Evidence.CERTIFICATE, Evidence.ARITHMETIC)


@claim(
    f"{LOOPED}/proof",
    place="Section 3.1, thm:looped_sparse_universal_transformer, its proof (thm:designed-R-looped)",
    statement="The way of the proof: some looped host of dimension m̄_loop matches all untied targets. In repair: the trie with a shift "
    "register does at m = M.",
    category=Category.THEOREM,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="m̄_loop < M, that is H ≥ 2, d_in < 2dH and 2d < H^L d_in",
    verdict=Verdict.REPAIRED,
    evidence=(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence="Matching all untied targets needs m ≥ M, tied host or not; at m = M the tied host of the repair is universal by matching.",
    counterexample="(2,1,1,2), m = 6",
    smallest="(2,1,1,2), m = 8",
)
def looped_proof(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds at m-bar-loop, and the repaired host at M."""
    for shape in run.shapes(lambda s: looped_case(s) != MATCHED, anchors=[(2, 1, 1, 2), *TABLES]):
        yield no_matching(shape, paper_looped_dimension(shape), holds=False)
        yield decided("tied", shape, part="repair")


@claim(
    f"{LOOPED}/m-bar-at-least-M",
    place="Section 3.1, thm:looped_sparse_universal_transformer",
    statement=f"{LOOPED_STATEMENT}: where m̄_loop ≥ M.",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="H = 1, or d_in ≥ 2dH, or 2d ≥ H^L d_in",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.CERTIFICATE,),
    sentence="The trie with a shift register is tied and universal by matching at every m ≥ M.",
    smallest="(1,1,1,1), m = 4",
)
def looped_matched(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of the tied host at m-bar-loop."""
    for shape in run.shapes(_in(MATCHED), anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 4), (2, 2, 2, 1)]):
        yield decided("tied", shape, paper_looped_dimension(shape))


@claim(
    f"{LOOPED}/wide-heads",
    place="Section 3.1, thm:looped_sparse_universal_transformer",
    statement=f"{LOOPED_STATEMENT}: where d ≥ d_in, although m̄_loop < M there.",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="d ≥ d_in and m̄_loop < M; so at (4,2,24,4) and (2,4,30,30)",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.CERTIFICATE,),
    sentence="The shared-key tries need d_in(1 + 2S) < m̄_loop dimensions and serve all targets by attention-matching.",
    smallest="(3,1,1,1), m = 8",
)
def looped_wide(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates of the shared-key tries, padded to m-bar-loop."""
    from utfproof.certificates.identities import identity_certificate

    for shape in run.shapes(_in(WIDE), anchors=[(3, 1, 1, 1), (4, 2, 24, 4), (2, 4, 30, 30)], largest=120):
        m, least = paper_looped_dimension(shape), shared_key_dimension(shape)
        found = identity_certificate("shared-key", shape, m)
        yield Instance(shape, found.universal and least <= m, f"least m {least}", found, m=m)


def _fibre_failures(run: Run, of: Callable[[Shape], str]) -> Iterator[Instance]:
    from utfproof.certificates.lower_bounds import dimension_certificate

    for shape in run.shapes(_in(FALSE, of), anchors=[s for s in ONE_LAYER if of(Shape(*s)) == FALSE]):
        m = paper_looped_dimension(shape)
        _, routes = below_fibre_bound(shape, m)
        found: Certificate = dimension_certificate(shape, m, notion=Notion.FUNCTIONAL)
        yield Instance(shape, False, f"m-bar-loop = {m} < {fibre_bound(shape)}", found, routes, m=m)


@claim(
    f"{LOOPED}/one-layer",
    place="Section 3.1, thm:looped_sparse_universal_transformer",
    statement=f"{LOOPED_STATEMENT}: at L = 1, d < d_in, where m̄_loop < H(d_in + 2d − d²/d_in).",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="L = 1; 78 shapes with H = 2 … 5, d ≤ d_in ≤ 8",
    verdict=Verdict.FAILS,
    evidence=WRITTEN,
    proof="docs/proofs/fibre-dimension.md",
    sentence="The outputs fix the value blocks and too few entries of E are left for the attention forms, whatever the host.",
    counterexample="(2,1,1,2), m = 6",
    figures={"shapes with H = 2..5, d <= d_in <= 8": 78, "bound at (2,1,1,2)": "7"},
)
def looped_false(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at m-bar-loop; the number of such shapes, by cases and by the bare inequality."""
    found = list(_fibre_failures(run, looped_case))
    yield from found
    bare = [d_in * (1 + H) * max(2 * d, d_in) < H * (d_in * d_in + 2 * d * d_in - d * d) for H, _, d, d_in in ONE_LAYER]
    by_case = [looped_case(Shape(*shape)) == FALSE for shape in ONE_LAYER]
    counts = agree({"by cases": sum(by_case), "bare inequality": sum(bare)})
    yield Figure("shapes with H = 2..5, d <= d_in <= 8", counts.value)
    yield Figure("bound at (2,1,1,2)", str(fibre_bound(Shape(2, 1, 1, 2))))


@claim(
    f"{LOOPED}/open",
    place="Section 3.1, thm:looped_sparse_universal_transformer",
    statement=f"{LOOPED_STATEMENT}: at the remaining shapes, among them (2,2,28,30) and (2,3,28,30).",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="d < d_in and m̄_loop < M, with L ≥ 2 or above the one-layer bound",
    verdict=Verdict.OPEN,
    evidence=(Evidence.ARITHMETIC,),
    sentence="No host below M is known there, and no functional lower bound reaches m̄_loop.",
    figures={"(2,2,28,30)": "392 < 456", "(2,3,28,30)": "840 < 1024"},
)
def looped_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from _open(run, looped_case)


def _open(run: Run, of: Callable[[Shape], str], *also: tuple[int, ...]) -> Iterator[Instance | Figure]:
    for shape in run.shapes(_in(UNDECIDED, of), anchors=[(2, 2, 28, 30), (2, 3, 28, 30), *also]):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        if of(shape) != UNDECIDED:  # an anchor that something decides after all
            yield Instance(shape, of(shape) != FALSE, of(shape), m=m)
            continue
        yield Instance(shape, None, f"m-bar-loop = {m} < M = {M}", m=m)
        if shape.head_dim > 20:
            yield Figure(f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in})", f"{m} < {M}")


@claim(
    f"{LOOPED}/binary",
    place="Section 3.1, thm:looped_sparse_universal_transformer",
    statement="The looped hosts that serve have entries 0 and 1, and at most m nonzero entries in each parameter matrix.",
    category=Category.THEOREM,
    scope="the trie with a shift register; the shared-key tries where d ≥ d_in",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.GRID,),
    sentence="R_V^h has at most one 1 in each row and column of blocks; the readers have d or d_in ones.",
    smallest="(1,1,1,1), m = 3",
)
def looped_binary(run: Run) -> Iterator[Instance | Figure]:
    """Every entry looked at, and the index maps."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 2, 3)], largest=60):
        for name in ("tied", "shared-key") if shape.head_dim >= shape.d_in else ("tied",):
            host = build_host(name, shape)
            fine, routes = is_binary(host)
            most, _ = most_nonzeros(host)
            yield Instance(
                shape, fine and most <= host.m, f"{name}: at most {most} of {host.m}", routes=routes, m=host.m
            )


# --- Section 3.2 ----------------------------------------------------------------------------------------------

RANDOM = "thm:random_universal_transformer"
RANDOM_LOOPED = "thm:random_looped_universal_transformer"
ONE_SEED = (
    "One seed has rank R_all = M modulo a prime, so a minor is a nonzero polynomial and vanishes with probability 0."
)


@claim(
    RANDOM,
    place="Section 3.2, thm:random_universal_transformer",
    statement="For m ≥ m̄ a host with independent parameters of absolutely continuous law is universal for all untied targets, almost surely.",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="every shape; seed 0 of the uniform law at m = m̄, and m̄ + 2",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence=f"{ONE_SEED} Universal by matching, which is more.",
    smallest="(1,1,1,1), m = 4",
)
def random_untied(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed at m-bar, and at a larger m."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)], largest=30):
        yield decided("random", shape, paper_dimension(shape))
        if matching_dimension(shape) <= 12:
            yield decided("random", shape, paper_dimension(shape) + 2)


@claim(
    "sec:constructing/non-degeneracy",
    place="Section 3.2, between the theorems",
    statement="Universality by matching is the non-degeneracy rank R_all = M: with it every target is matched, and a host that loses "
    "rank (two heads reading alike) is not universal by matching.",
    category=Category.REMARK,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="random hosts at m = M, as drawn and made degenerate",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.ARITHMETIC,),
    sentence="The degenerate hosts satisfy a polynomial equation in the parameters, and form a null set.",
    smallest="(2,1,1,1), m = 6",
)
def non_degeneracy(run: Run) -> Iterator[Instance | Figure]:
    """Ranks of R_all as drawn, and with the query maps of two heads equal, by FLINT and plain integers."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), (2, 1, 1, 2)], largest=20):
        M = matching_dimension(shape)
        host = small_host(shape, M, tied=False)
        layers = [[row[0]] * shape.heads for row in host.R_Q]
        alike = Universal(shape, M, layers, host.R_K, host.R_V, host.U)
        full, less = rank_of(host), rank_of(alike)
        yield Instance(
            shape,
            full.value == M and less.value < M,
            f"ranks {full.value}, {less.value} of {M}",
            routes=full.routes,
            m=M,
        )


@claim(
    f"{RANDOM_LOOPED}/proof",
    place="Section 3.2, thm:random_looped_universal_transformer, its proof (thm:looped_random-R)",
    statement="The way of the proof: random looped hosts of dimension m̄_loop match all untied targets. In repair: at m = M they do, "
    "almost surely.",
    category=Category.THEOREM,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="m̄_loop < M",
    verdict=Verdict.REPAIRED,
    evidence=(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence="No host below M matches all untied targets; at m = M one seed's full rank shows it almost surely.",
    counterexample="(2,1,1,2), m = 6",
    smallest="(2,1,1,2), m = 8",
)
def random_looped_proof(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds at m-bar-loop, and one seed of the tied law at M."""
    for shape in run.shapes(lambda s: looped_case(s) != MATCHED, anchors=[(2, 1, 1, 2), *TABLES]):
        yield no_matching(shape, paper_looped_dimension(shape), holds=False)
        if matching_dimension(shape) <= 30:
            yield decided("random-tied", shape, part="repair")


@claim(
    f"{RANDOM_LOOPED}/m-bar-at-least-M",
    place="Section 3.2, thm:random_looped_universal_transformer",
    statement="At m ≥ m̄_loop a random looped host is universal for all untied targets almost surely: where m̄_loop ≥ M.",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="H = 1, or d_in ≥ 2dH, or 2d ≥ H^L d_in; seed 0 of the uniform law",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence=ONE_SEED,
    smallest="(1,1,1,1), m = 4",
)
def random_looped_matched(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed of the tied law at m-bar-loop."""
    for shape in run.shapes(_in(MATCHED), anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 4), (2, 2, 2, 1)], largest=30):
        yield decided("random-tied", shape, paper_looped_dimension(shape))


@claim(
    f"{RANDOM_LOOPED}/linear-test",
    place="Section 3.2, thm:random_looped_universal_transformer",
    statement="The same where m̄_loop < M, d ≥ d_in and m̄_loop ≥ (d + d_in)S + d_in H^L: true, by attention-matching.",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="d > d_in; so at (4,2,24,4), 624 ≤ 1008; seed 0 of the uniform law",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.CERTIFICATE),
    proof="docs/proofs/decision-theorem.md",
    sentence="Keys M_w C and query forms M_w A in one fixed gauge C are linear equations in E, of full rank for one seed, so almost surely.",
    smallest="(5,1,2,1), m = 24",
    figures={"columns at (4,2,24,4)": 624, "m-bar-loop at (4,2,24,4)": 1008},
)
def random_looped_linear(run: Run) -> Iterator[Instance | Figure]:
    """Linear-test certificates of one seed of the tied law at m-bar-loop; the package's rank at the table shape."""
    from utfproof.certificates.linear_test import linear_test_certificate

    for shape in run.shapes(_in(WIDE, random_case), anchors=[(5, 1, 2, 1), (2, 3, 2, 1)], largest=64):
        m = paper_looped_dimension(shape)
        found = linear_test_certificate("random-tied", shape, m)
        yield Instance(shape, found.universal, f"{linear_test_dimension(shape)} columns", found, m=m)
    table = Shape(4, 2, 24, 4)
    rank, routes = _linear_rank(table, linear_test_dimension(table))
    holds = rank == linear_test_dimension(table) <= paper_looped_dimension(table)
    yield Instance(table, holds, f"rank {rank}", routes=routes, m=linear_test_dimension(table))
    yield Figure("columns at (4,2,24,4)", linear_test_dimension(table))
    yield Figure("m-bar-loop at (4,2,24,4)", paper_looped_dimension(table))


def _linear_rank(shape: Shape, m: int) -> tuple[int, tuple[str, ...]]:
    """Rank of the linear test's matrix modulo a prime, seed 0 of the tied law: the package's engine and FLINT's."""
    from utfproof.certificates.linear_test import test_columns
    from utfproof.certificates.sources import RandomDraw

    p = gfp.DEFAULT_PRIMES[0]
    matrix = RandomDraw(shape, m, 0, "uniform", "float64", True).r_all(p)[:, test_columns(shape).tolist()]
    both = agree({"FLINT": gfp.rank(matrix, p, engine="flint"), "float64 blocks": gfp.rank(matrix, p, overwrite=True)})
    return both.value, both.routes


@claim(
    f"{RANDOM_LOOPED}/one-layer",
    place="Section 3.2, thm:random_looped_universal_transformer",
    statement="The same at L = 1 where m̄_loop < H(d_in + 2d − d²/d_in).",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="L = 1; 78 shapes with H = 2 … 5, d ≤ d_in ≤ 8",
    verdict=Verdict.FAILS,
    evidence=WRITTEN,
    proof="docs/proofs/fibre-dimension.md",
    sentence="No host of that dimension is universal, so no random one is.",
    counterexample="(2,1,1,2), m = 6",
)
def random_looped_false(run: Run) -> Iterator[Instance | Figure]:
    """Dimension certificates at m-bar-loop."""
    yield from _fibre_failures(run, random_case)


@claim(
    f"{RANDOM_LOOPED}/open",
    place="Section 3.2, thm:random_looped_universal_transformer",
    statement="The same at the remaining shapes, among them (2,2,28,30), (2,3,28,30) and (2,4,30,30).",
    category=Category.THEOREM,
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    scope="m̄_loop < M and neither the linear test nor the one-layer bound decides",
    verdict=Verdict.OPEN,
    evidence=(Evidence.ARITHMETIC,),
    sentence="The linear test has more columns than m̄_loop there, and no functional lower bound reaches it.",
    figures={"(2,2,28,30)": "392 < 456", "(2,3,28,30)": "840 < 1024", "(2,4,30,30)": "1860 < 2280"},
)
def random_looped_open(run: Run) -> Iterator[Instance | Figure]:
    """What is known decides none of these shapes."""
    yield from _open(run, random_case, (2, 4, 30, 30))
