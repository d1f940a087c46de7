"""Appendices C and D: the designed weight-tied host, its routing lemma, and the random one. Both theorems in both readings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.checks.appendix_universal import selector
from utfproof.claims.claim import BESIDE, REPAIR, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import decided, dense, rank_modulo
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import array
from utfproof.claims.tied_targets import tied_rows, tied_span_refutes
from utfproof.constructions import build_host
from utfproof.constructions.counting import commuting_dimension
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import r_all, w_all
from utfproof.paper.formulas import printed_looped_random_count
from utfproof.shapes import (
    Shape,
    column_groups,
    matching_dimension,
    paper_looped_dimension,
)

Word = tuple[int, ...]


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


@each("thm:designed-R-looped/blocks-once")
def looped_blocks_once(shape: Shape) -> Iterator[Instance]:
    """Blocks that occur twice in the proof's list, and blocks that the printed host's readers and its U both use."""
    H, L, width = shape.heads, shape.layers, max(2 * shape.head_dim, shape.d_in)
    listed = [word for length in range(L + 1) for word in plain.words(H, length)] + list(plain.words(H, L))
    rows, columns = r_all(build_host("printed-looped", shape)).coordinates()
    reads = columns < 2 * shape.head_dim * shape.word_count
    shared = len(set((rows[reads] // width).tolist()) & set((rows[~reads] // width).tolist()))
    both = agree({"the proof's list": len(listed) - len(set(listed)), "the host's readers": shared})
    yield both.at(shape, f"{both} blocks", holds=both.value == 0)


@each("thm:designed-R-looped/bookkeeping")
def looped_bookkeeping(shape: Shape) -> Iterator[Instance]:
    """The printed sum in blocks, against the list of contents and its count."""
    width = max(2 * shape.head_dim, shape.d_in)
    printed = sum(shape.heads**t * width for t in range(1, shape.layers)) + (shape.leaves + 1) * width
    counted = agree({"printed sum": printed, "formula": paper_looped_dimension(shape)}).value // width
    listed = sum(1 for length in range(1, shape.layers + 1) for _ in plain.words(shape.heads, length))
    leaves = sum(1 for _ in plain.words(shape.heads, shape.layers))  # M_p beside [M_p W_Q, M_p W_K]
    contents = agree({"list": 1 + listed + leaves, "formula": 1 + shape.word_count + shape.leaves})
    yield contents.at(shape, f"{counted} blocks, {contents} contents", holds=counted >= contents.value)


# --- routing -------------------------------------------------------------------------------------------------------


def moved_blocks(shape: Shape) -> list[tuple[int, Word, Word | None]]:
    """(h, p, where R_V^h of the printed looped host sends the block B_p): another whole block, None for zero."""
    host, width = build_host("printed-looped", shape), max(2 * shape.head_dim, shape.d_in)
    words = [word for length in range(shape.layers + 1) for word in plain.words(shape.heads, length)]
    blocks = [selector(host.m, number * width, width) for number in range(len(words))]
    images: list[tuple[int, Word, Word | None]] = []
    for head in range(shape.heads):
        value = host.maps(0, head).value[0]
        for word, block in zip(words, blocks, strict=True):
            routes = {
                "NumPy": (dense(value) @ array(block)).tolist(),
                "plain": plain.multiply(plain.rows(value), block),
            }
            image = agree(routes).value
            assert image in blocks or not any(map(any, image)), f"block {word} is not moved as a whole"
            images.append((head, word, words[blocks.index(image)] if image in blocks else None))
    return images


ROUTES = ("NumPy", "plain")


@each("lem:looped-routing")
def looped_routing(shape: Shape) -> Iterator[Instance]:
    """Where the host's R_V sends each block."""
    holds = all(
        image == ((head, *word) if len(word) < shape.layers else None) for head, word, image in moved_blocks(shape)
    )
    yield Instance(shape, holds, f"{1 + shape.word_count} blocks, {shape.heads} heads", routes=ROUTES)


@each("lem:looped-routing/last-line", "thm:looped_random-R/letter-order")
def letter_orders(shape: Shape) -> Iterator[Instance]:
    """B_(p,h) as printed, B_(h,p) as repaired, for every block that R_V^h moves."""
    moved = [entry for entry in moved_blocks(shape) if len(entry[1]) < shape.layers]
    behind = sum(image != (*word, head) for head, word, image in moved)
    before = sum(image != (head, *word) for head, word, image in moved)
    yield Instance(shape, behind == 0, f"{behind} of {len(moved)} blocks go elsewhere", routes=ROUTES)
    yield Instance(shape, before == 0, f"{len(moved)} blocks", routes=ROUTES, part=REPAIR)


# --- Appendix D: the random host ------------------------------------------------------------------------------------


@each("thm:looped_random-R/count")
def random_count(shape: Shape) -> Iterator[Instance]:
    """Columns of a built R_all and of the list of equations."""
    H, d, S = shape.heads, shape.head_dim, shape.word_count
    listed = sum(group.words * group.width for group in column_groups(shape))
    columns = agree({"R_all": r_all(build_host("tied", shape)).shape[1], "equations": listed})
    missing = columns.value - printed_looped_random_count(shape)
    yield columns.at(shape, f"{columns.value - missing} of {columns}", holds=missing == 0)
    # H (M - M_loop) = 2 d S (H - 1), without fractions
    holds = H * missing == 2 * d * S * (H - 1) and columns.value == matching_dimension(shape)
    yield columns.at(shape, f"M - M_loop = {missing}", holds=holds, part=REPAIR)


@each("thm:looped_random-R/tied")
def random_tied(shape: Shape) -> Iterator[Instance]:
    """Lower bounds from isolating targets or spans of sample targets; rank certificates at M."""
    m, M = printed_looped_random_count(shape), matching_dimension(shape)
    yield decided("random-tied", shape, m) if m >= M else refuted_tied(shape, m)
    if M <= 44:
        yield decided("random-tied", shape, M, part=BESIDE)


@check("thm:looped_random-R/tied-commuting")
def random_tied_commuting(run: Run) -> Iterator[Instance | Figure]:
    """Rank of a random R_all with the targets' rows below it: above m, so for almost every host of that dimension."""
    shape = Shape(2, 4, 1, 1)
    m = printed_looped_random_count(shape)
    rows = tied_rows(shape, commuting_dimension(shape) + 15)
    stacked = np.concatenate([dense(r_all(integer_host(shape, m, seed=1, tied=True))), rows])
    span = agree({"FLINT": rational.rank(rows), "modulo a prime": rank_modulo(rows)})
    both = agree({"FLINT": rational.rank(stacked) > m, "modulo a prime": rank_modulo(stacked) > m})
    detail = f"a span of {span}; rows of host and targets together exceed {m} dimensions"
    yield both.at(shape, detail, holds=not both, m=m)


@each("thm:looped_random-R/disjoint-supports")
def disjoint_supports(shape: Shape) -> Iterator[Instance]:
    """Rows of R_all that more than one column uses."""
    host = build_host("printed-looped", shape)
    shared = int((np.bincount(r_all(host).coordinates()[0]) > 1).sum())
    slow = sum(sum(map(bool, row)) > 1 for row in plain.equations(host))
    both = agree({"index maps": shared, "plain integers": slow})
    yield both.at(shape, f"{both} coordinates are used twice", holds=both.value == 0, m=host.m)
    yield decided("tied", shape, part=BESIDE)


@each("thm:looped_random-R/selectors")
def selectors(shape: Shape) -> Iterator[Instance]:
    """Coordinates of the two selectors, and of the printed looped host's readers."""
    d, D = shape.head_dim, shape.d_in
    first, last, every = set(range(d)), set(range(D - d, D)), set(range(D))
    fine = agree({"coordinates": first | last <= every and not first & last, "inequality": 2 * d <= D})
    yield fine.at(shape, f"d = {d} of {D}")
    maps = build_host("printed-looped", shape).maps(0, 0)
    own, other = (set(part.coordinates()[0].tolist()) for part in (maps.query, maps.key))
    both = [any(q) and any(k) for q, k in zip(plain.rows(maps.query), plain.rows(maps.key), strict=True)]
    apart = agree({"index maps": not own & other, "plain integers": not any(both)})
    yield apart.at(shape, "the host's readers", part=REPAIR)
