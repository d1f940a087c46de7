"""Appendix A.2, thm:designed-R: the tree of blocks, the formal routing maps, the recursive description and the figure.

Coordinates of the tree are those of the package's prefix tree: internal blocks by depth and word, each with H query
and H key sub-blocks, then the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from utfproof.claims import plain
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import decided, matched, rank_of, ranks
from utfproof.claims.hosts import counted, heads
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.sparse import prefix_tree
from utfproof.matching import embed, r_all
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension
from utfproof.systems import Target, Universal

FIRST = [(2, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]
"""Anchors with H >= 2, the smallest first."""
RANKS = [(2, 1, 1, 2), (2, 2, 1, 2), (2, 2, 2, 3), (3, 2, 1, 1)]
"""Where the rank of the printed R_all is recorded."""


def block_start(shape: Shape, word: tuple[int, ...]) -> int:
    """First coordinate of the block of this word, counting blocks of width 2Hd and leaves of width d_in one by one."""
    start = 0
    for depth in range(shape.layers + 1):
        for other in plain.words(shape.heads, depth):
            if other == word:
                return start
            start += shape.d_in if depth == shape.layers else 2 * shape.heads * shape.head_dim
    raise AssertionError(word)


def selector(m: int, start: int, width: int) -> plain.Rows:
    """The m × width matrix S with X S = the columns start, start+1, … of X."""
    return [[int(i == start + j) for j in range(width)] for i in range(m)]


def reads_block(host: Universal, kind: str) -> tuple[bool, tuple[str, ...]]:
    """Whether R_w R_Q^{l,h} ("Q"), R_w R_K^{l,h} ("K") or R_w U ("OV") select the block that the paper names, for all words.

    Two routes: the package's R_all, and products of plain integers word by word.
    """
    shape, H, d = host.shape, host.shape.heads, host.shape.head_dim
    slow, wanted = [], []
    for length in range(1, shape.layers + 1):
        for word in plain.words(H, length):
            if kind == "OV":
                if length == shape.layers:
                    slow.append(plain.multiply(plain.routed(host, word), plain.rows(host.U)))
                    wanted.append(selector(host.m, block_start(shape, word), shape.d_in))
                continue
            maps = host.maps(length - 1, word[-1])
            reader = maps.query if kind == "Q" else maps.key
            slow.append(plain.multiply(plain.routed(host, word[:-1]), plain.rows(reader)))
            place = word[-1] + (H if kind == "K" else 0)
            wanted.append(selector(host.m, block_start(shape, word[:-1]) + place * d, d))
    width = d * shape.word_count
    start = {"Q": 0, "K": width, "OV": 2 * width}[kind]
    stop = start + (shape.d_in * shape.leaves if kind == "OV" else width)
    own = [row[start:stop] for row in plain.rows(r_all(host))]
    both = agree({"matching": own == plain.beside(wanted), "plain integers": slow == wanted})
    return both.value, both.routes


def _reading(run: Run, kinds: tuple[str, ...], deep: bool) -> Iterator[Instance]:
    shapes = run.shapes(
        lambda s: heads(s) and (s.layers > 1 or not deep),
        anchors=[(2, 2, 1, 1), (2, 2, 1, 2)] if deep else FIRST,
        largest=24,
    )
    for shape in shapes:
        for name in ("printed-tree-row", "printed-tree-column", "sparse"):
            host = build_host(name, shape)
            for kind in kinds:
                holds, routes = reads_block(host, kind)
                part = "repair" if name == "sparse" else ""
                yield Instance(shape, holds, f"{name}, {kind}", routes=routes, part=part, m=host.m)


@check("thm:designed-R/statement")
def statement(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of the prefix tree at the theorem's m."""
    yield from ranks(run.shapes(heads, anchors=FIRST), "sparse", m=printed.designed_dimension)


@check("thm:designed-R/dimension")
def dimension(run: Run) -> Iterator[Instance | Figure]:
    """The printed sum, m-bar, and words counted one at a time."""
    for shape in run.shapes(heads, anchors=[*FIRST, (2, 3, 1, 1)]):
        same = agree({"printed sum": printed.designed_dimension(shape), "words counted": counted(shape)})
        order = shape.leaves * (shape.head_dim + shape.d_in)
        holds = same.value == paper_dimension(shape) and same.value <= 4 * order
        yield Instance(shape, holds, f"m = {same.value}", routes=same.routes)
        if shape == Shape(2, 3, 1, 1):
            yield Figure("m / (H^L d + H^L d_in) at (2,3,1,1)", str(Fraction(same.value, order)))


@check("thm:designed-R/blocks")
def blocks(run: Run) -> Iterator[Instance | Figure]:
    """Starts of all blocks: the package's tree against widths added up."""
    for shape in run.shapes(heads, anchors=FIRST, largest=60):
        m = printed.designed_dimension(shape)
        cells, starts = prefix_tree(shape, m)
        own, slow = [], []
        for depth in range(shape.layers + 1):
            step = 1 if depth == shape.layers else 2 * shape.heads
            for number, word in enumerate(plain.words(shape.heads, depth)):
                own.append(int(cells.offsets[starts[depth] + number * step]))
                slow.append(block_start(shape, word))
        covered = cells.size == m == slow[-1] + shape.d_in and own == sorted(set(own))
        both = same({"prefix tree": own, "widths added": slow})
        yield Instance(shape, both.value and covered, f"{len(own)} blocks", routes=both.routes)


def _formal(run: Run, name: str) -> Iterator[Instance | Figure]:
    for shape in run.shapes(heads, anchors=[*FIRST, *RANKS], largest=60):
        yield decided(name, shape)
        yield decided("sparse", shape, part="repair")
    literal = True
    for anchor in RANKS:
        host = build_host(name, Shape(*anchor))
        literal &= all(
            plain.rows(host.maps(layer, head).value[0]) == _copy(host.shape, host.m, layer, head, name)
            for layer in range(host.shape.layers)
            for head in range(host.shape.heads)
        )
        rank = rank_of(host)
        where = ",".join(map(str, anchor))
        yield Figure(f"rank of R_all at ({where})", f"{rank.value} of {matching_dimension(Shape(*anchor))}")

    yield Figure("R_V is what the text says", literal)


def _copy(shape: Shape, m: int, layer: int, head: int, name: str) -> plain.Rows:
    """R_V^{l,h} from the text, l = layer + 1: ones from each block of depth l-1 to its child h, as far as both reach."""
    out = [[0] * m for _ in range(m)]
    inner = 2 * shape.heads * shape.head_dim
    for word in plain.words(shape.heads, layer):
        parent, child = block_start(shape, word), block_start(shape, (*word, head))
        for i in range(inner if layer + 1 < shape.layers else min(inner, shape.d_in)):
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


@check("thm:designed-R/width-map")
def width_map(run: Run) -> Iterator[Instance | Figure]:
    """How many columns the last R_V of the printed tree moves, against the width of the blocks."""
    for shape in run.shapes(heads, anchors=[*FIRST, (2, 1, 1, 4), (2, 2, 28, 30)], largest=60):
        host = build_host("printed-tree-row", shape)
        parents, width = shape.leaves // shape.heads, 2 * shape.heads * shape.head_dim
        value = host.maps(shape.layers - 1, 0).value[0]
        by_width = parents * min(width, shape.d_in)
        both = agree({"index maps": value.nonzeros, "widths": by_width})
        moved = both.value
        if matching_dimension(shape) <= 60:
            agree({"index maps": value.nonzeros, "plain rank": plain.rank(value)})
        yield Instance(shape, moved == parents * width, f"{moved} of {parents * width}", routes=both.routes)
        if shape == Shape(2, 2, 28, 30):
            yield Figure("columns lost of each block at (2,2,28,30)", width - moved // parents)


@check("thm:designed-R/unembedding-identity")
def unembedding(run: Run) -> Iterator[Instance | Figure]:
    """R_w U against the selector of the leaf block."""
    yield from _reading(run, ("OV",), deep=False)


@check("thm:designed-R/selector-identity")
def selectors(run: Run) -> Iterator[Instance | Figure]:
    """R_w R_Q and R_w R_K against the selectors of the sub-blocks."""
    yield from _reading(run, ("Q", "K"), deep=True)


@check("thm:designed-R/sum-across-prefixes")
def sum_across(run: Run) -> Iterator[Instance | Figure]:
    """Every reader of the prefix tree against selectors added up in plain integers."""
    for shape in run.shapes(heads, anchors=FIRST, largest=36):
        host, d, H = build_host("sparse", shape), shape.head_dim, shape.heads
        readers, totals = [], []
        for layer in range(shape.layers):
            for head in range(H):
                maps = host.maps(layer, head)
                for place, reader in ((head, maps.query), (H + head, maps.key)):
                    total = [[0] * d for _ in range(host.m)]
                    for word in plain.words(H, layer):
                        total = plain.add(total, selector(host.m, block_start(shape, word) + place * d, d))
                    readers.append((plain.rows(reader), reader.nonzeros))
                    totals.append((total, d * H**layer))
        both = same({"index maps": readers, "plain integers": totals})
        yield Instance(shape, both.value, routes=both.routes)


@check("thm:designed-R/annihilates")
def annihilates(run: Run) -> Iterator[Instance | Figure]:
    """The blocks that the image of R_w reaches, by the package's index maps and by plain integers; what projections keep."""
    shapes = run.shapes(lambda s: heads(s) and s.layers > 1, anchors=[(2, 2, 1, 1), (2, 3, 1, 1)], largest=36)
    routes = ("index maps", "plain integers")
    for shape in shapes:
        blocks = _blocks(shape)
        inner = [word for word in blocks if 0 < len(word) < shape.layers]
        row, projections = build_host("printed-tree-row", shape), build_host("sparse", shape)
        alone = all(_reached(row, word) == [word] for word in inner)
        yield Instance(shape, alone, "no other block is reached", routes=routes)
        subtree = all(_reached(projections, word) == [w for w in blocks if w[: len(word)] == word] for word in inner)
        yield Instance(shape, subtree, "projections keep the subtree", routes=routes, part=BESIDE)


def _blocks(shape: Shape) -> list[tuple[int, ...]]:
    """The words of all blocks of the tree, by length."""
    return [word for depth in range(shape.layers + 1) for word in plain.words(shape.heads, depth)]


def _reached(host: Universal, word: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Words of the blocks in which R_w has entries, by the package's index maps and by plain integers; AssertionError where it
    reaches a part of one."""
    shape, product = host.shape, host.maps(0, word[0]).value[0]
    for layer, head in enumerate(word[1:], start=1):
        product = product @ host.maps(layer, head).value[0]
    rows = agree({"index maps": plain.rows(product), "plain integers": plain.routed(host, word)}).value
    found = []
    for block in _blocks(shape):
        width = shape.d_in if len(block) == shape.layers else 2 * shape.heads * shape.head_dim
        start = block_start(shape, block)
        hit = [any(row[i] for row in rows) for i in range(start, start + width)]
        if any(hit):
            assert all(hit), f"block {block} is cut"
            found.append(block)
    return found


@check("thm:designed-R/recursive")
def recursive(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of the prefix trees in depth-first and in breadth-first order."""
    yield from ranks(run.shapes(anchors=[(1, 1, 1, 1), *FIRST]), "sparse-front", "sparse")


def _chunk(target: Target, prefix: tuple[int, ...], product: plain.Rows) -> plain.Rows:
    """The figure's E (or E_{l,h_1..h_l}): query chunks of all heads, key chunks, then the chunks of the children."""
    H, layer = target.shape.heads, len(prefix)
    if layer == target.shape.layers:
        return product
    parts = [
        plain.multiply(product, plain.rows(target.parameters(layer, head)[kind]))
        for kind in (0, 1)
        for head in range(H)
    ]
    for head in range(H):
        _, _, w_v, w_o = target.parameters(layer, head)
        parts.append(
            _chunk(target, (*prefix, head), plain.multiply(plain.multiply(product, plain.rows(w_v)), plain.rows(w_o)))
        )
    return plain.beside(parts)


@check("fig:E-block")
def figure(run: Run) -> Iterator[Instance | Figure]:
    """The figure's E assembled in plain Fractions, against the package's; and the chunk that R_V^{1,h} selects."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 2)], largest=44):
        host, target = build_host("sparse-front", shape), integer_target(shape)
        drawn = _chunk(target, (), plain.identity(shape.d_in))
        solved = matched(host, target)
        holds = bool(solved) and plain.rows(embed(host, target).E) == drawn and len(drawn[0]) == counted(shape)
        for head in range(shape.heads):
            _, _, w_v, w_o = target.parameters(0, head)
            child = _chunk(target, (head,), plain.multiply(plain.rows(w_v), plain.rows(w_o)))
            moved = plain.multiply(drawn, plain.rows(host.maps(0, head).value[0]))
            holds &= [row[: len(child[0])] for row in moved] == child
        yield Instance(shape, holds, f"width {len(drawn[0])}", routes=("plain Fractions", "matching"))
