"""Appendix C: the designed weight-tied host. Its theorem in both readings, its printed construction, its routing lemma.

The random weight-tied host of Appendix D stands in `appendix_looped_random`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.claim import BESIDE, REPAIR, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import decided
from utfproof.claims.tied_targets import tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape, matching_dimension, paper_looped_dimension

Word = tuple[int, ...]


@check("thm:designed-R-looped/where")
def looped_where(run: Run) -> Iterator[Instance | Figure]:
    """Both dimensions by formula and by summing blocks, on an exhaustive grid."""
    for H, L in itertools.product(range(2, 6), range(1, 5)):
        words, formulas, sums = [H**t for t in range(L + 1)], [], []
        for d, d_in in itertools.product(range(1, 11), range(1, 25)):
            shape = Shape(H, L, d, d_in)
            wanted = d_in >= 2 * d * H or 2 * d >= H**L * d_in
            formulas.append((paper_looped_dimension(shape) >= matching_dimension(shape)) == wanted)
            columns = 2 * d * sum(words[1:]) + d_in * words[-1]
            sums.append((sum(words) * max(2 * d, d_in) >= columns) == wanted)
        both = agree({"formulas": all(formulas), "sums": all(sums)})
        yield both.at(f"H = {H}, L = {L}", f"{len(sums)} shapes")


def refuted_tied(shape: Shape, m: int) -> Instance:
    """m < M: tied targets refute a host of m dimensions, by isolating targets or by the span of sample targets."""
    M = matching_dimension(shape)
    if min(shape.d_in, shape.head_dim) >= shape.layers:
        refuted = dimension_certificate(shape, m, targets="all tied")
        return Instance(shape, False, f"tied targets span M = {M} columns", refuted, m=m)
    refutation = tied_span_refutes(shape, m)
    return Instance(shape, None if refutation is None else False, f"M = {M}", refutation, m=m)


@each("thm:designed-R-looped/tied")
def looped_tied(shape: Shape) -> Iterator[Instance]:
    """Lower bounds from isolating targets or from the span of sample targets; the commuting trie; the repaired host."""
    m, M = paper_looped_dimension(shape), matching_dimension(shape)
    if m >= M:
        yield decided("tied", shape, m)
    elif min(shape.d_in, shape.head_dim) < shape.layers and shape.d_in == 1 and commuting_dimension(shape) <= m:
        yield served("commuting-trie", shape, m, detail=f"{commuting_dimension(shape)} dimensions suffice")
    else:
        yield refuted_tied(shape, m)
    yield decided("tied", shape, part=BESIDE)


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


@each("thm:designed-R-looped/construction-tied")
def looped_construction_tied(shape: Shape) -> Iterator[Instance]:
    """Two equal columns of R_all, and a tied target whose W_all differs in them."""
    host, target = build_host("printed-looped", shape), integer_target(shape, seed=4, tied=True)
    slow = [plain.equations(host), plain.equations(target)]
    both = agree({"matching": [plain.rows(r_all(host)), plain.rows(w_all(target))], "plain integers": slow})
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


@each("thm:designed-R-looped/blocks-once")
def looped_blocks_once(shape: Shape) -> Iterator[Instance]:
    """Blocks that occur twice in the list, and blocks that the printed host reads in both ways."""
    listed = [block for block, _ in printed_contents(shape)]
    read_twice = sum(len(kinds) > 1 for kinds in _readings(shape).values())
    both = agree({"the proof's list": len(listed) - len(set(listed)), "the host's readers": read_twice})
    yield both.at(shape, f"{both} blocks", holds=both.value == 0)


@each("thm:designed-R-looped/bookkeeping")
def looped_bookkeeping(shape: Shape) -> Iterator[Instance]:
    """The printed sum in blocks, against the list of contents and its count."""
    width = max(2 * shape.head_dim, shape.d_in)
    printed = sum(shape.heads**t * width for t in range(1, shape.layers)) + (shape.leaves + 1) * width
    counted = agree({"printed sum": printed, "formula": paper_looped_dimension(shape)}).value // width
    contents = agree({"list": len(printed_contents(shape)), "formula": 1 + shape.word_count + shape.leaves})
    yield contents.at(shape, f"{counted} blocks, {contents} contents", holds=counted >= contents.value)


@each("thm:designed-R-looped/block-width")
def looped_block_width(shape: Shape) -> Iterator[Instance]:
    """Columns of the contents of a target, against the width."""
    w_q, w_k, _ = plain.maps(integer_target(shape, tied=True), 0, 0)
    columns = agree({"target": len(w_q[0]) + len(w_k[0]), "2d": 2 * shape.head_dim})
    width = paper_looped_dimension(shape) // (1 + shape.word_count)
    fits = max(columns.value, shape.d_in) <= width and (columns.value != shape.d_in or width == shape.d_in)
    yield columns.at(shape, f"{columns} and {shape.d_in} columns in {width}", holds=fits)


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


@each("lem:looped-routing")
def looped_routing(shape: Shape) -> Iterator[Instance]:
    """Where the host's R_V sends each block."""
    sent = [(head, word, image) for head in range(shape.heads) for word, image in routed_blocks(shape, head).items()]
    holds = all(image == ((head, *word) if len(word) < shape.layers else None) for head, word, image in sent)
    yield Instance(shape, holds, f"{1 + shape.word_count} blocks, {shape.heads} heads", routes=ROUTES)


@each("lem:looped-routing/last-line", "thm:looped_random-R/letter-order")
def letter_orders(shape: Shape) -> Iterator[Instance]:
    """B_(p,h) as printed, B_(h,p) as repaired, for every block that R_V^h moves."""
    sent = [(head, word, image) for head in range(shape.heads) for word, image in routed_blocks(shape, head).items()]
    moved = [(head, word, image) for head, word, image in sent if len(word) < shape.layers]
    behind = sum(image != (*word, head) for head, word, image in moved)
    before = sum(image != (head, *word) for head, word, image in moved)
    yield Instance(shape, behind == 0, f"{behind} of {len(moved)} blocks go elsewhere", routes=ROUTES)
    yield Instance(shape, before == 0, f"{len(moved)} blocks", routes=ROUTES, part=REPAIR)


@each("thm:designed-R-looped/routing-products")
def looped_products(shape: Shape) -> Iterator[Instance]:
    """Products of the printed host's matrices, as index maps and in plain integers."""
    host = build_host("printed-looped", shape)
    starts = block_starts(shape, max(2 * shape.head_dim, shape.d_in))
    own, slow, wanted = [], [], []
    for word, start in starts.items():
        product: Any = host.U
        for head in reversed(word):
            product = host.maps(0, head).value[0] @ product
        own.append(plain.rows(product))
        slow.append(plain.multiply(plain.routed(host, word), plain.rows(host.U)))
        wanted.append([[int(i == start + j) for j in range(shape.d_in)] for i in range(host.m)])
    both = agree({"index maps": own == wanted, "plain integers": slow == wanted})
    yield both.at(shape, f"{len(starts)} words")
