"""Appendix A.2, thm:designed-R: the tree of blocks, the formal routing maps, the recursive description and the figure.

Coordinates of the tree are those of the package's prefix tree: internal blocks by depth and word, each with H query
and H key sub-blocks, then the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.claims import plain
from utfproof.claims.claim import BESIDE, REPAIR, Agreed, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import decided, figures, matched, rank_of
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.sparse import prefix_tree
from utfproof.matching import embed, r_all
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension
from utfproof.systems import Target, Universal

RANKS = [(2, 1, 1, 2), (2, 2, 1, 2), (2, 2, 2, 3), (3, 2, 1, 1)]
"""Where the rank of the printed R_all is recorded."""
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


@each("thm:designed-R/sum-across-prefixes")
def sum_across(shape: Shape) -> Iterator[Instance]:
    """Every reader of the prefix tree against selectors added up in plain integers."""
    host, d, H, starts = build_host("sparse", shape), shape.head_dim, shape.heads, blocks_of(shape)
    readers, totals = [], []
    for layer in range(shape.layers):
        for head in range(H):
            maps = host.maps(layer, head)
            for place, reader in ((head, maps.query), (H + head, maps.key)):
                total = [[0] * d for _ in range(host.m)]
                for word in plain.words(H, layer):
                    total = plain.add(total, selector(host.m, starts[word][0] + place * d, d))
                readers.append((plain.rows(reader), reader.nonzeros))
                totals.append((total, d * H**layer))
    yield agree({"index maps": readers, "plain integers": totals}).at(shape, holds=True)


# --- the tree ----------------------------------------------------------------------------------------------------------


@each("thm:designed-R/dimension")
def dimension(shape: Shape) -> Iterator[Instance]:
    """The printed sum, m-bar, and words counted one at a time."""
    m = agree({"printed sum": printed.designed_dimension(shape), "words counted": plain.columns(shape)})
    order = shape.leaves * (shape.head_dim + shape.d_in)
    yield m.at(shape, f"m = {m}", holds=m.value == paper_dimension(shape) and m.value <= 4 * order)


@each("thm:designed-R/blocks")
def blocks(shape: Shape) -> Iterator[Instance]:
    """Starts of all blocks: the package's tree against widths added up."""
    m, own = printed.designed_dimension(shape), []
    cells, starts = prefix_tree(shape, m)
    for depth in range(shape.layers + 1):
        step = 1 if depth == shape.layers else 2 * shape.heads
        own += [int(cells.offsets[starts[depth] + number * step]) for number in range(shape.heads**depth)]
    slow = [start for start, _ in blocks_of(shape).values()]
    covered = cells.size == m == slow[-1] + shape.d_in and own == sorted(set(own))
    yield agree({"prefix tree": own, "widths added": slow}).at(shape, f"{len(own)} blocks", holds=covered)


def _formal(run: Run, name: str) -> Iterator[Instance | Figure]:
    for shape in run.shapes():
        yield decided(name, shape)
        yield decided("sparse", shape, part=REPAIR)
    hosts = [build_host(name, Shape(*anchor)) for anchor in RANKS]
    literal = all(
        plain.maps(host, layer, head)[2] == _copy(host.shape, host.m, layer, head, name)
        for host in hosts
        for layer in range(host.shape.layers)
        for head in range(host.shape.heads)
    )
    yield from figures(
        "rank of R_all", lambda shape: f"{rank_of(build_host(name, shape))} of {plain.columns(shape)}", RANKS
    )
    yield Figure("R_V is what the text says", literal)


def _copy(shape: Shape, m: int, layer: int, head: int, name: str) -> plain.Rows:
    """R_V^{l,h} from the text, l = layer + 1: ones from each block of depth l-1 to its child h, as far as both reach."""
    out, starts = [[0] * m for _ in range(m)], blocks_of(shape)
    for word in plain.words(shape.heads, layer):
        (parent, wide), (child, narrow) = starts[word], starts[*word, head]
        for i in range(min(wide, narrow)):
            out[parent + i][child + i] = 1
    return plain.transpose(out) if name == "printed-tree-column" else out


@check("thm:designed-R/formal-row")
def formal_row(run: Run) -> Iterator[Instance | Figure]:
    """Integer kernel vectors of R_all; the rank at four shapes by FLINT and plain integers."""
    yield from _formal(run, "printed-tree-row")


@check("thm:designed-R/formal-column")
def formal_column(run: Run) -> Iterator[Instance | Figure]:
    """Integer kernel vectors of R_all; the rank at four shapes by FLINT and plain integers."""
    yield from _formal(run, "printed-tree-column")


@each("thm:designed-R/width-map")
def width_map(shape: Shape) -> Iterator[Instance]:
    """How many columns the last R_V of the printed tree moves, against the width of the blocks."""
    parents, width = shape.leaves // shape.heads, 2 * shape.heads * shape.head_dim
    value = build_host("printed-tree-row", shape).maps(shape.layers - 1, 0).value[0]
    moved = {"index maps": value.nonzeros, "widths": parents * min(width, shape.d_in)}
    if matching_dimension(shape) <= 60:
        agree(moved | {"plain rank": plain.rank(value)})
    both = agree(moved)
    yield both.at(shape, f"{both} of {parents * width}", holds=both.value == parents * width)


@each("thm:designed-R/annihilates")
def annihilates(shape: Shape) -> Iterator[Instance]:
    """The blocks that the image of R_w reaches, by the package's index maps and by plain integers; what projections keep."""
    words, routes = list(blocks_of(shape)), ("index maps", "plain integers")
    inner = [word for word in words if 0 < len(word) < shape.layers]
    row, projections = build_host("printed-tree-row", shape), build_host("sparse", shape)
    alone = all(_reached(row, word) == [word] for word in inner)
    yield Instance(shape, alone, "no other block is reached", routes=routes)
    subtree = all(_reached(projections, word) == [w for w in words if w[: len(word)] == word] for word in inner)
    yield Instance(shape, subtree, "projections keep the subtree", routes=routes, part=BESIDE)


def _reached(host: Universal, word: Word) -> list[Word]:
    """Words of the blocks in which R_w has entries, by the package's index maps and by plain integers; AssertionError where it
    reaches a part of one."""
    product = host.maps(0, word[0]).value[0]
    for layer, head in enumerate(word[1:], start=1):
        product = product @ host.maps(layer, head).value[0]
    rows = agree({"index maps": plain.rows(product), "plain integers": plain.routed(host, word)}).value
    found = []
    for block, (start, width) in blocks_of(host.shape).items():
        hit = [any(row[i] for row in rows) for i in range(start, start + width)]
        if any(hit):
            assert all(hit), f"block {block} is cut"
            found.append(block)
    return found


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
