"""Appendix A: the lemmas on unrolling, equal attention and equal outputs, and what the blocks of thm:designed-R hold.

In the lemmas layers count from 1 and the letters are matrices that commute with none, so an identity of words holds for
matrices of every size, for every context length and every attention map. Coordinates of the tree are those of the package's
prefix tree: internal blocks by depth and word, each with H query and H key sub-blocks, then the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from utfproof.claims import plain
from utfproof.claims.claim import REPAIR, Agreed, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import matched, rank_of, symbolic
from utfproof.claims.small_models import array
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.matching import embed, r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal

Sizes = Sequence[tuple[int, int]]
ONE_HEAD: Sizes = [(1, L) for L in range(1, 7)]
SEVERAL: Sizes = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)]
"""(H, L) of the expansions with several heads; the induction steps cover the rest."""
STEP = "every layer, from the one before"


def unrolled(sizes: Sizes, step: int, run: Run) -> Iterator[Instance | Figure]:
    """The layer recursion expanded, and the induction step, of target and host."""
    from utfproof.exact.symbolic.free_algebra import unrolling, unrolling_step

    for system in ("target", "host"):
        for H, L in sizes:
            yield symbolic(f"H = {H}, L = {L}, {system}", unrolling(H, L, system=system))
        yield symbolic(f"H = {step}, {STEP}, {system}", unrolling_step(step, system=system))


def equal_attentions(sizes: Sizes, step: int, run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by the query and key equations; and with each of them dropped."""
    from utfproof.exact.symbolic.free_algebra import equal_attention, equal_attention_step

    for H, L in sizes:
        yield symbolic(f"H = {H}, L = {L}", equal_attention(H, L))
        words = [(kind, word) for t in range(1, L + 1) for word in plain.words(H, t) for kind in "QK"]
        without = [equal_attention(H, L, dropped=each) for each in words]
        where = f"H = {H}, L = {L}, any of {len(words)} equations dropped"
        differ = not any(each.holds for each in without)
        yield Instance(where, differ, without[-1].difference, routes=without[-1].routes)
    yield symbolic(f"H = {step}, {STEP}", equal_attention_step(step))


def equal_outputs(sizes: Sizes, step: int, run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by all equations; without one output equation; and the step on to a layer more."""
    from utfproof.exact.symbolic.free_algebra import equal_attention_step, equal_output

    for H, L in sizes:
        yield symbolic(f"H = {H}, L = {L}", equal_output(H, L))
        without = equal_output(H, L, dropped=("OV", (0,) * L))
        yield symbolic(f"H = {H}, L = {L}, one output equation dropped", without, fails=True)
    yield symbolic(f"H = {step}, {STEP}", equal_attention_step(step))


for one, several, identities in (
    ("lem:unroll", "lem:multiunroll", unrolled),
    ("lem:eqatt", "lem:multieqatt/all-layers", equal_attentions),
    ("lem:equal-io", "lem:equal-io-multi", equal_outputs),
):
    check(one)(partial(identities, ONE_HEAD, 1))
    check(several)(partial(identities, SEVERAL, 3))


@check("lem:multiunroll/prose")
def prose(run: Run) -> Iterator[Instance | Figure]:
    """The host's summand as the proof's first sentence has it, and as the lemma has it."""
    from utfproof.exact.symbolic.free_algebra import HOST, prose_word, unrolling

    for H, L in ((1, 2), (2, 2), (2, 3)):
        yield symbolic(f"H = {H}, L = {L}", unrolling(H, L, system=HOST, summand=prose_word))
        yield symbolic(f"H = {H}, L = {L}, as the lemma says", unrolling(H, L, system=HOST), part=REPAIR)


# --- lem:single_head ---------------------------------------------------------------------------------------------------


@each("lem:single_head/equivalently")
def equivalently(shape: Shape) -> Iterator[Instance]:
    """Block numbers pushed through the printed R_V, by the package and in plain integers."""
    host = build_host("printed-single-head", shape)
    b = host.m // (shape.layers + 1)
    slow = [[1 + i // b for i in range(host.m)]]
    state, behind, front = array(slow), True, True
    for layer in range(1, shape.layers):
        value = host.maps(layer - 1, 0).value[0]
        state, slow = state @ value, plain.multiply(slow, plain.rows(value))
        row = agree({"index maps": plain.rows(state), "plain integers": slow}).value[0]
        behind &= row[layer * b : (layer + 1) * b] == [1] * b
        front &= row[:b] == [layer + 1] * b
    routes = ("index maps", "plain integers")
    yield Instance(shape, behind, "B_l has B_1's content", routes=routes)
    yield Instance(shape, front, "B_1 has B_l's content", routes=routes, part=REPAIR)


@each("app:looped/single-head-tied")
def single_head_tied(shape: Shape) -> Iterator[Instance]:
    """How many layers differ; the rank of R_all where every layer is the first one and U reads B_1."""
    host = build_host("printed-single-head", shape)
    maps = [host.maps(layer, 0) for layer in range(shape.layers)]
    by_index = {str([part.coordinates() for part in (entry.query, entry.key, entry.value[0])]) for entry in maps}
    by_entry = {str(plain.maps(host, layer, 0)) for layer in range(shape.layers)}
    both = agree({"index maps": len(by_index), "plain integers": len(by_entry)})
    yield both.at(shape, f"{both} different layers", holds=both.value == 1)
    query, key, value = ([array(matrix)] for matrix in plain.maps(host, 0, 0))
    rank = rank_of(Universal(shape, host.m, query, key, value, array(selector(host.m, 0, shape.d_in))))
    holds = rank.value == matching_dimension(shape)
    yield rank.at(shape, "left shift, readers at B_1", holds=holds, part=REPAIR)


# --- thm:designed-R ----------------------------------------------------------------------------------------------------

TREES = ("printed-tree-row", "printed-tree-column", "sparse")
Word = tuple[int, ...]


def blocks_of(shape: Shape) -> dict[Word, tuple[int, int]]:
    """(first coordinate, width) of the block of each word: blocks of width 2Hd and leaves of width d_in, one by one."""
    start, found = 0, {}
    for depth in range(shape.layers + 1):
        width = shape.d_in if depth == shape.layers else 2 * shape.heads * shape.head_dim
        for word in plain.words(shape.heads, depth):
            found[word] = start, width
            start += width
    return found


def selector(m: int, start: int, width: int) -> plain.Rows:
    """The m × width matrix S with X S = the columns start, start+1, … of X."""
    return [[int(i == start + j) for j in range(width)] for i in range(m)]


# --- what the readers see ----------------------------------------------------------------------------------------------


def reads_block(host: Universal, kind: str) -> Agreed:
    """Whether R_w R_Q^{l,h} ("Q"), R_w R_K^{l,h} ("K") or R_w U ("OV") select the block that the paper names, for all words:
    by the package's R_all, and by products of plain integers word by word."""
    shape, H, d, starts = host.shape, host.shape.heads, host.shape.head_dim, blocks_of(host.shape)
    width = d * shape.word_count
    first = {"Q": 0, "K": width, "OV": 2 * width}[kind]
    if kind == "OV":
        wanted = [selector(host.m, *starts[word]) for word in plain.words(H, shape.layers)]
    else:
        own = {word: (word[-1] + (H if kind == "K" else 0)) * d for word in starts if word}
        wanted = [selector(host.m, starts[word[:-1]][0] + own[word], d) for word in own]
    whole = plain.beside(wanted)
    columns = slice(first, first + len(whole[0]))
    return agree(
        {
            "matching": [row[columns] for row in plain.rows(r_all(host))] == whole,
            "plain integers": [row[columns] for row in plain.equations(host)] == whole,
        }
    )


def _reading(shape: Shape, kinds: tuple[str, ...]) -> Iterator[Instance]:
    for name in TREES:
        host = build_host(name, shape)
        for kind in kinds:
            yield reads_block(host, kind).at(
                shape, f"{name}, {kind}", part=REPAIR if name == "sparse" else "", m=host.m
            )


@each("thm:designed-R/unembedding-identity")
def unembedding(shape: Shape) -> Iterator[Instance]:
    """R_w U against the selector of the leaf block."""
    yield from _reading(shape, ("OV",))


@each("thm:designed-R/selector-identity")
def selectors(shape: Shape) -> Iterator[Instance]:
    """R_w R_Q and R_w R_K against the selectors of the sub-blocks."""
    yield from _reading(shape, ("Q", "K"))


@each("thm:designed-R/width-map")
def width_map(shape: Shape) -> Iterator[Instance]:
    """How many columns the last R_V of the printed tree moves, against the width of the blocks."""
    parents, width = shape.leaves // shape.heads, 2 * shape.heads * shape.head_dim
    value = build_host("printed-tree-row", shape).maps(shape.layers - 1, 0).value[0]
    moved = {"index maps": value.nonzeros, "widths": parents * min(width, shape.d_in)}
    if matching_dimension(shape) <= 60:
        moved["plain rank"] = plain.rank(value)
    both = agree(moved)
    yield both.at(shape, f"{both} of {parents * width}", holds=both.value == parents * width)


# --- the figure --------------------------------------------------------------------------------------------------------


def _chunk(target: Target, prefix: Word, product: plain.Rows) -> plain.Rows:
    """The figure's E (or E_{l,h_1..h_l}): query chunks of all heads, key chunks, then the chunks of the children."""
    layer, heads = len(prefix), range(target.shape.heads)
    if layer == target.shape.layers:
        return product
    maps = [plain.maps(target, layer, head) for head in heads]
    parts = [plain.multiply(product, maps[head][kind]) for kind in (0, 1) for head in heads]
    parts += [_chunk(target, (*prefix, head), plain.multiply(product, maps[head][2])) for head in heads]
    return plain.beside(parts)


@each("fig:E-block")
def figure(shape: Shape) -> Iterator[Instance]:
    """The figure's E assembled in plain Fractions, against the package's; and the chunk that R_V^{1,h} selects."""
    host, target = build_host("sparse-front", shape), integer_target(shape)
    drawn = _chunk(target, (), plain.identity(shape.d_in))
    solved = matched(host, target)
    holds = bool(solved) and plain.rows(embed(host, target).E) == drawn and len(drawn[0]) == plain.columns(shape)
    for head in range(shape.heads):
        child = _chunk(target, (head,), plain.maps(target, 0, head)[2])
        moved = plain.multiply(drawn, plain.maps(host, 0, head)[2])
        holds &= [row[: len(child[0])] for row in moved] == child
    yield solved.at(shape, f"width {len(drawn[0])}", holds=holds)
