"""Appendix C: the designed weight-tied host. Its theorem in both readings, its printed construction, its routing lemma.

The random weight-tied host of Appendix D stands in `appendix_looped_random`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.checks.appendix_universal import one_head_blocks
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, rank_of
from utfproof.claims.tied_targets import span_verdict, tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.matching import r_all, w_all
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, matching_dimension, paper_looped_dimension

TABLES = list(PAPER_TABLE_SHAPES.values())
Word = tuple[int, ...]


def several(shape: Shape) -> bool:
    """Appendix C assumes H > 1."""
    return shape.heads > 1


@check("thm:designed-R-looped/untied")
def looped_untied(run: Run) -> Iterator[Instance | Figure]:
    """A lower bound where the printed m is below M, a certificate of the repaired host elsewhere and at M."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), *TABLES]):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        if m < M:
            yield Instance(shape, False, f"m = {m} < M = {M}", dimension_certificate(shape, m), m=m)
        else:
            yield decided("tied", shape, m)
        yield decided("tied", shape, part=BESIDE)
    for name, place in PAPER_TABLE_SHAPES.items():
        shape = Shape(*place)
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        yield Figure(name, f"{m} {'<' if m < M else '>='} {M}")


@check("thm:designed-R-looped/where")
def looped_where(run: Run) -> Iterator[Instance | Figure]:
    """Both dimensions by formula and by summing blocks, on an exhaustive grid."""
    total = reaching = 0
    below: list[Instance] = []
    for H in range(2, 6):
        for L in range(1, 5):
            fine = {"formulas": True, "sums": True}
            for d in range(1, 11):
                for d_in in range(1, 25):
                    shape = Shape(H, L, d, d_in)
                    condition = d_in >= 2 * d * H or 2 * d >= H**L * d_in
                    reaches = paper_looped_dimension(shape) >= matching_dimension(shape)
                    words = [H**t for t in range(L + 1)]
                    summed = sum(words) * max(2 * d, d_in) >= 2 * d * sum(words[1:]) + d_in * words[-1]
                    fine["formulas"] &= reaches == condition
                    fine["sums"] &= summed == condition
                    total += 1
                    reaching += reaches
                    if not reaches:
                        below.append(Instance(shape, False))
            both = agree(fine)
            yield Instance(f"H = {H}, L = {L}", both.value, "240 shapes", routes=both.routes)
    yield Figure("shapes", total)
    yield Figure("of them reaching M", reaching)
    yield Figure("smallest below", min(below, key=lambda found: found.order).label)


@check("thm:designed-R-looped/tied")
def looped_tied(run: Run) -> Iterator[Instance | Figure]:
    """Lower bounds from isolating targets or from the span of sample targets; the commuting trie; the repaired host."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), (2, 3, 1, 1), *TABLES], largest=60):
        m, M = paper_looped_dimension(shape), matching_dimension(shape)
        if m >= M:
            yield decided("tied", shape, m)
        elif min(shape.d_in, shape.head_dim) >= shape.layers:
            refuted = dimension_certificate(shape, m, targets="all tied")
            yield Instance(shape, False, f"tied targets span M = {M} columns", refuted, m=m)
        elif shape.d_in == 1 and commuting_dimension(shape) <= m:
            yield served("commuting-trie", shape, m, detail=f"{commuting_dimension(shape)} dimensions suffice")
        else:
            refutation = tied_span_refutes(shape, m)
            yield Instance(shape, None if refutation is None else False, f"M = {M}", refutation, m=m)
        yield decided("tied", shape, part=BESIDE)
    anchor = Shape(2, 2, 1, 1)
    yield Figure("(2,2,1,1), m = 14", span_verdict(anchor, paper_looped_dimension(anchor)))


@check("thm:designed-R-looped/tied-commuting")
def looped_commuting(run: Run) -> Iterator[Instance | Figure]:
    """The identity at 28 and 30 dimensions, a span of 28 for the lower bound."""
    shape = Shape(2, 3, 1, 1)
    least = commuting_dimension(shape)
    for m in (least, paper_looped_dimension(shape)):
        yield served("commuting-trie", shape, m, detail="words with equal counts share a block")
    refutation = tied_span_refutes(shape, least - 1)
    holds = refutation is not None and not refutation.universal
    yield Instance(shape, holds, f"tied targets span {least} dimensions: none with one less", refutation, m=least - 1)
    yield Figure("commuting trie", least)
    yield Figure("printed", paper_looped_dimension(shape))
    yield Figure("M", matching_dimension(shape))


@check("thm:designed-R-looped/construction")
def looped_construction(run: Run) -> Iterator[Instance | Figure]:
    """Refutations of the printed host, certificates of the repaired one."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), *TABLES]):
        yield decided("printed-looped", shape)
        yield decided("tied", shape, part=BESIDE)


@check("thm:designed-R-looped/construction-tied")
def looped_construction_tied(run: Run) -> Iterator[Instance | Figure]:
    """Two equal columns of R_all, and a tied target whose W_all differs in them."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2)], largest=36):
        host, target = build_host("printed-looped", shape), integer_target(shape, seed=4, tied=True)
        both = agree(
            {
                "matching": [plain.rows(r_all(host)), plain.rows(w_all(target))],
                "plain integers": [plain.r_all(host), plain.w_all(target)],
            }
        )
        clash = _clash(*(np.array(matrix, dtype=object) for matrix in both.value))
        detail = "no target found" if clash is None else f"columns {clash} agree in R_all, not in W_all"
        yield Instance(shape, None if clash is None else False, detail, routes=both.routes)


def _clash(left: np.ndarray, right: np.ndarray) -> tuple[int, int] | None:
    """The first two columns that are equal in `left` and differ in `right`."""
    first: dict[tuple[Any, ...], int] = {}
    for j in range(left.shape[1]):
        i = first.setdefault(tuple(left[:, j]), j)
        if i != j and (right[:, i] != right[:, j]).any():
            return i, j
    return None


def printed_contents(shape: Shape) -> list[tuple[Word, str]]:
    """(block, what the proof stores in it), in the order of its list."""
    H, L = shape.heads, shape.layers
    inner = [(*p, h) for t in range(L) for p in plain.words(H, t) for h in range(H)]
    return [((), "M"), *((word, "QK") for word in inner), *((word, "M") for word in plain.words(H, L))]


def _readings(shape: Shape) -> dict[int, set[str]]:
    """Block number -> which of QK and M the printed host's readers find there, from its R_all."""
    width = max(2 * shape.head_dim, shape.d_in)
    rows, columns = r_all(build_host("printed-looped", shape)).coordinates()
    readers = 2 * shape.head_dim * shape.word_count
    found: dict[int, set[str]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        found.setdefault(row // width, set()).add("QK" if column < readers else "M")
    return found


@check("thm:designed-R-looped/blocks-once")
def looped_blocks_once(run: Run) -> Iterator[Instance | Figure]:
    """Blocks that occur twice in the list, and blocks that the printed host reads in both ways."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), (2, 4, 30, 30)]):
        listed = [block for block, _ in printed_contents(shape)]
        twice = len(listed) - len(set(listed))
        read_twice = sum(len(kinds) > 1 for kinds in _readings(shape).values())
        both = agree({"the proof's list": twice, "the host's readers": read_twice})
        yield Instance(shape, both.value == 0, f"{both.value} blocks", routes=both.routes)
        if (shape.heads, shape.layers) == (2, 4):
            yield Figure("blocks defined twice at (2,4,30,30)", both.value)


@check("thm:designed-R-looped/bookkeeping")
def looped_bookkeeping(run: Run) -> Iterator[Instance | Figure]:
    """The printed sum in blocks, against the list of contents and its count."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), (2, 4, 30, 30)]):
        width = max(2 * shape.head_dim, shape.d_in)
        printed = sum(shape.heads**t * width for t in range(1, shape.layers)) + (shape.leaves + 1) * width
        counted = agree({"printed sum": printed // width, "formula": paper_looped_dimension(shape) // width})
        contents = agree({"list": len(printed_contents(shape)), "formula": 1 + shape.word_count + shape.leaves})
        holds = counted.value >= contents.value and printed == paper_looped_dimension(shape)
        yield Instance(shape, holds, f"{counted.value} blocks, {contents.value} contents", routes=contents.routes)
        if (shape.heads, shape.layers) == (2, 4):
            yield Figure("blocks counted at (2,4,30,30)", counted.value)
            yield Figure("contents at (2,4,30,30)", contents.value)


@check("thm:designed-R-looped/block-width")
def looped_block_width(run: Run) -> Iterator[Instance | Figure]:
    """Columns of the contents of a target, against the width."""
    for shape in run.shapes(several, anchors=[(2, 1, 1, 1), (2, 1, 1, 2), (2, 1, 1, 3)], largest=60):
        target = integer_target(shape, tied=True)
        w_q, w_k, _, _ = target.parameters(0, 0)
        columns = agree({"target": w_q.shape[1] + w_k.shape[1], "2d": 2 * shape.head_dim})
        width = paper_looped_dimension(shape) // (1 + shape.word_count)
        fits = max(columns.value, shape.d_in) <= width and (columns.value != shape.d_in or width == shape.d_in)
        yield Instance(shape, fits, f"{columns.value} and {shape.d_in} columns in {width}", routes=columns.routes)


# --- routing -------------------------------------------------------------------------------------------------------


def block_starts(shape: Shape, width: int) -> dict[Word, int]:
    """First coordinate of the block of each word of length 0 ... L: by length, then lexicographically."""
    listed = [word for t in range(shape.layers + 1) for word in plain.words(shape.heads, t)]
    return {word: number * width for number, word in enumerate(listed)}


def routed_blocks(shape: Shape, head: int) -> dict[Word, Word | None]:
    """Where the printed R_V^h sends each block B_p: another whole block, or None for zero (two routes agree)."""
    width = max(2 * shape.head_dim, shape.d_in)
    host = build_host("printed-looped", shape)
    starts = block_starts(shape, width)
    words = {start: word for word, start in starts.items()}
    value = host.maps(0, head).value[0]
    matrix = plain.rows(value)
    out: dict[Word, Word | None] = {}
    for word, start in starts.items():
        columns = [[row[start + i] for row in matrix] for i in range(width)]
        hits = [[i for i, entry in enumerate(column) if entry] for column in columns]
        slow: Word | None = None
        if any(hits):
            slow = words[hits[0][0]]
            whole = [[starts[slow] + i] for i in range(width)]
            assert hits == whole, f"block {word} is not moved as a whole"
        rows, cells = value.coordinates()
        moved = rows[(cells >= start) & (cells < start + width)]
        fast = words.get(int(moved.min())) if len(moved) == width else None
        out[word] = agree({"index maps": fast, "plain integers": slow}).value
    return out


ROUTES = ("index maps", "plain integers")


@check("lem:looped-routing")
def looped_routing(run: Run) -> Iterator[Instance | Figure]:
    """Where the host's R_V sends each block."""
    for shape in run.shapes(anchors=[(2, 2, 1, 1), (2, 1, 1, 2)], largest=60):
        holds = True
        for head in range(shape.heads):
            for word, image in routed_blocks(shape, head).items():
                holds &= image == ((head, *word) if len(word) < shape.layers else None)
        yield Instance(shape, holds, f"{1 + shape.word_count} blocks, {shape.heads} heads", routes=ROUTES)


@check("lem:looped-routing/last-line")
def looped_last_line(run: Run) -> Iterator[Instance | Figure]:
    """Both orders of the letters."""
    yield from letter_orders(run)


def letter_orders(run: Run) -> Iterator[Instance]:
    """B_(p,h) as printed, B_(h,p) as repaired, for every block that R_V^h moves."""
    for shape in run.shapes(anchors=[(2, 2, 1, 1), (1, 2, 1, 1)], largest=60):
        moved = [
            (head, word, image)
            for head in range(shape.heads)
            for word, image in routed_blocks(shape, head).items()
            if len(word) < shape.layers
        ]
        behind = sum(image != (*word, head) for head, word, image in moved)
        before = sum(image != (head, *word) for head, word, image in moved)
        yield Instance(shape, behind == 0, f"{behind} of {len(moved)} blocks go elsewhere", routes=ROUTES)
        yield Instance(shape, before == 0, f"{len(moved)} blocks", routes=ROUTES, part="repair")


@check("thm:designed-R-looped/routing-products")
def looped_products(run: Run) -> Iterator[Instance | Figure]:
    """Products of the printed host's matrices, as index maps and in plain integers."""
    for shape in run.shapes(anchors=[(2, 2, 1, 1), (2, 1, 1, 2)], largest=40):
        host = build_host("printed-looped", shape)
        starts = block_starts(shape, max(2 * shape.head_dim, shape.d_in))
        fine = {"index maps": True, "plain integers": True}
        for word, start in starts.items():
            product: Any = host.U
            for head in reversed(word):
                product = host.maps(0, head).value[0] @ product
            selector = [[int(i == start + j) for j in range(shape.d_in)] for i in range(host.m)]
            fine["index maps"] &= plain.rows(product) == selector
            fine["plain integers"] &= plain.multiply(plain.routed(host, word), plain.rows(host.U)) == selector
        both = agree(fine)
        yield Instance(shape, both.value, f"{len(starts)} words", routes=both.routes)


@check("app:looped/lemmas")
def looped_lemmas(run: Run) -> Iterator[Instance | Figure]:
    """The identities with tied letters."""
    from utfproof.exact.symbolic import equal_attention, equal_output, unrolling

    pairs = sorted(
        {(s.heads, s.layers) for s in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1)]) if s.heads**s.layers <= 9}
    )
    for H, L in pairs:
        results = [unrolling(H, L, system=system, tied=True) for system in ("host", "target")]
        for tied_target in (False, True):
            results.append(equal_attention(H, L, tied_host=True, tied_target=tied_target))
            results.append(equal_output(H, L, tied_host=True, tied_target=tied_target))
        holds = all(result.holds for result in results)
        yield Instance(f"H = {H}, L = {L}", holds, f"{sum(r.terms for r in results)} words", routes=results[0].routes)


@check("app:looped/single-head-tied")
def single_head_tied(run: Run) -> Iterator[Instance | Figure]:
    """Readers of all layers side by side."""
    for shape in run.shapes(lambda s: s.heads == 1, anchors=[(1, 1, 1, 1), (1, 2, 1, 1)]):
        host = build_host("printed-single-head", shape)
        maps = [host.maps(layer, 0) for layer in range(shape.layers)]
        by_index = {str([part.coordinates() for part in (entry.query, entry.key, entry.value[0])]) for entry in maps}
        by_entry = {str([plain.rows(part) for part in (entry.query, entry.key, entry.value[0])]) for entry in maps}
        both = agree({"index maps": len(by_index), "plain integers": len(by_entry)})
        yield Instance(shape, both.value == 1, f"{both.value} different layers", routes=both.routes)
        shifted = one_head_blocks(shape, shifted=True)
        rank = rank_of(shifted)
        whole = shifted.tied and shifted.m == host.m and rank.value == matching_dimension(shape)
        yield Instance(shape, whole, "left shift, readers at B_1", routes=rank.routes, part="repair")


@check("app:looped/single-head")
def single_head(run: Run) -> Iterator[Instance | Figure]:
    """The repaired tied host at the printed dimension."""
    for shape in run.shapes(lambda s: s.heads == 1, anchors=[(1, 1, 1, 1), (1, 4, 3, 2)]):
        yield decided("tied", shape, (shape.layers + 1) * max(2 * shape.head_dim, shape.d_in))
