"""Certificates of kind `identity`: an embedding whose blocks are words in the target's own matrices.

For the constructions below M, the matching or attention equations are identities of words: the certificate says which word
stands in which block of E (and of U where it is free), and a checker follows the blocks (docs/certificate-format.md section 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

from utfproof.certificates.format import STANDARD, WRITTEN_OUT, Certificate, certificate, integer
from utfproof.constructions import CONSTRUCTIONS, Construction, construction, resolve_m
from utfproof.constructions.commuting import commuting_dimension, require_commuting
from utfproof.constructions.middle import Bilinear, path_bilinear, polynomial_bilinear, two_stars_bilinear
from utfproof.constructions.shared_attention import (
    SHARED_ATTENTION,
    count_tuples,
    require_equal_widths,
    require_scalar,
)
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.shapes import (
    Shape,
    Word,
    geometric,
    head_words,
    positive_integer,
    require_plain,
    require_words,
    shared_key_dimension,
    shared_query_dimension,
)

Blocks = list[tuple[int, list[str]]]
"""(first coordinate, letters of the word), by first coordinate."""

ALL_UNTIED = "all untied"
ALL_TIED = "all tied"
INVERTIBLE = "untied with invertible M^(l,0)"
INVERTIBLE_MIDDLE = "untied with invertible M^(k+1,h)"

MOST_MOVES = 1_000_000_000
"""What a checker follows in its default hour: some microseconds a move."""

Edges = list[tuple[int, int]]
"""One pair (i, j) for each head: the middle layer's weight is p_i u_j."""


def _values(word: Word, first: int = 1) -> list[str]:
    """The letters of M_w for a word whose first head is in this layer (from 1)."""
    return [f"M{layer}.{head}" for layer, head in enumerate(word, first)]


def _powers(counts: tuple[int, ...]) -> list[str]:
    """A product of tied value forms, head by head."""
    return [letter for head, count in enumerate(counts) for letter in [f"M.{head}"] * count]


def _by_length(shape: Shape, first: int, last: int) -> Iterator[Word]:
    for length in range(first, last + 1):
        yield from head_words(shape.heads, length)


def shared_key_words(shape: Shape) -> tuple[Blocks, None]:
    """Query block (w,h): M_w A^{l,h}; key block w: M_w."""
    b = shape.d_in
    words = [[*_values(word[:-1]), f"A{len(word)}.{word[-1]}"] for word in _by_length(shape, 1, shape.layers)]
    words += [_values(word) for word in _by_length(shape, 0, shape.layers)]
    return [(i * b, word) for i, word in enumerate(words)], None


def shared_query_words(shape: Shape) -> tuple[Blocks, None]:
    """Key block (w,h): M_w (A^{l,h})^T (M^{l,0} ... M^{L,0})^{-T}; register block w: M_w."""
    b, L = shape.d_in, shape.layers
    words = []
    for word in _by_length(shape, 1, L):
        layer = len(word)
        duals = [f"M{later}.0IT" for later in range(layer, L + 1)]
        words.append([*_values(word[:-1]), f"A{layer}.{word[-1]}T", *duals])
    words += [_values(word) for word in head_words(shape.heads, L)]
    return [(i * b, word) for i, word in enumerate(words)], None


def register_words(shape: Shape) -> tuple[Blocks, None]:
    """Block w: M_w."""
    words = head_words(shape.heads, shape.layers)
    return [(i * shape.d_in, _values(word)) for i, word in enumerate(words)], None


def two_sided_words(shape: Shape) -> tuple[Blocks, Blocks]:
    """Block w of E: M_w over the first half of the layers; block v of U: M_v over the second half."""
    half, b = shape.layers // 2, shape.d_in
    words = list(head_words(shape.heads, half))
    return (
        [(i * b, _values(word)) for i, word in enumerate(words)],
        [(i * b, _values(word, half + 1)) for i, word in enumerate(words)],
    )


def counting_words(shape: Shape, start: int = 0) -> tuple[Blocks, None]:
    """Coordinate c: the product of the M.h, as often as c says, and M.0 for the rest of the L letters."""
    tuples = count_tuples(shape.heads - 1, shape.layers)
    return [(start + i, _powers((shape.layers - sum(c), *c))) for i, c in enumerate(tuples)], None


def commuting_trie_words(shape: Shape) -> tuple[Blocks, None]:
    """Block (c,g): the product of the M.h, as often as c says, with Q.g and with K.g; then as `counting`."""
    blocks: Blocks = []
    start = 0
    for counts in count_tuples(shape.heads, shape.layers - 1):
        for head in range(shape.heads):
            for letter in "QK":
                blocks.append((start, [*_powers(counts), f"{letter}.{head}"]))
                start += shape.head_dim
    return blocks + counting_words(shape, start)[0], None


def two_sided_counting_words(shape: Shape) -> tuple[Blocks, Blocks]:
    """Coordinate c of E: the first half's letters, as often as c says; coordinate c of U: the second half's."""
    half = (shape.layers + 1) // 2

    def blocks(length: int) -> Blocks:
        tuples = enumerate(count_tuples(shape.heads - 1, half))
        return [(i, _powers((length - sum(c), *c))) for i, c in tuples if sum(c) <= length]

    return blocks(half), blocks(shape.layers - half)


# --- the middle layer of an odd number ------------------------------------------------------------------------


def edges_of(bilinear: Bilinear) -> Edges:
    """The places of a bilinear map whose matrices are matrix units."""
    places = []
    for matrix in bilinear.matrices:
        [i], [j] = matrix.nonzero()
        places.append((int(i), int(j)))
    return places


def _inverse(word: list[str]) -> list[str]:
    return [letter[:-1] if letter.endswith("I") else f"{letter}I" for letter in reversed(word)]


def factor_words(edges: Edges, letters: list[str]) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Words p_i and u_j with p_i u_j = the letter of each edge (i, j): along a forest, from the identity at a vertex with
    most edges in each of its trees. Inverses occur unless every tree is a star. MalformedInput where the edges have a
    cycle."""
    neighbours: dict[tuple[int, int], list[tuple[tuple[int, int], str]]] = {}
    for (i, j), letter in zip(edges, letters, strict=True):
        neighbours.setdefault((0, i), []).append(((1, j), letter))
        neighbours.setdefault((1, j), []).append(((0, i), letter))
    words: dict[tuple[int, int], list[str]] = {}
    used = 0
    for root in sorted(neighbours, key=lambda vertex: (-len(neighbours[vertex]), vertex)):
        if root in words:
            continue
        words[root] = []
        waiting = [root]
        while waiting:
            vertex = waiting.pop()
            side = vertex[0]
            for other, letter in neighbours[vertex]:
                if other not in words:
                    inverse = _inverse(words[vertex])
                    words[other] = [letter, *inverse] if side == 1 else [*inverse, letter]
                    waiting.append(other)
                    used += 1
    if used != len(edges):
        raise MalformedInput(f"the edges {edges} have a cycle, so not all weights of the middle layer are products")
    return (
        {at: word for (side, at), word in words.items() if side == 0},
        {at: word for (side, at), word in words.items() if side == 1},
    )


def middle_words(shape: Shape, edges: Edges) -> tuple[Blocks, Blocks]:
    """Part i of block w of E: M_w p_i; part j of block v of U: u_j M_v. The weights of layer k+1 are p_i u_j."""
    k, b = shape.layers // 2, shape.d_in
    size = b * _parts(edges)
    left, right = factor_words(edges, [f"M{k + 1}.{head}" for head in range(shape.heads)])
    words = list(head_words(shape.heads, k))
    return (
        [(n * size + i * b, [*_values(w), *left[i]]) for n, w in enumerate(words) for i in sorted(left)],
        [(n * size + j * b, [*right[j], *_values(v, k + 2)]) for n, v in enumerate(words) for j in sorted(right)],
    )


def polynomial_words(shape: Shape) -> tuple[Blocks, Blocks]:
    """Part i of block w of E: M_w P.i; part j of block v of U: U.j M_v."""
    k = shape.layers // 2
    left, right = shape.heads // 2, (shape.heads - 1) // 2
    words = list(head_words(shape.heads, k))
    return (
        [(n * (left + 1) + i, [*_values(w), f"P.{i}"]) for n, w in enumerate(words) for i in range(left + 1)],
        [(n * (left + 1) + j, [f"U.{j}", *_values(v, k + 2)]) for n, v in enumerate(words) for j in range(right + 1)],
    )


def _parts(edges: Edges) -> int:
    return 1 + max(max(edge) for edge in edges)


def _require_odd(name: str) -> Callable[[Shape], None]:
    def defined(shape: Shape) -> None:
        require_equal_widths(name, shape)
        if shape.layers % 2 == 0:
            raise NotDefined(f"{name} is defined for an odd number of layers, got {shape.layers}")
        require_words(shape, name, shape.layers // 2)

    return defined


def _require_path(shape: Shape) -> None:
    _require_odd("middle-path")(shape)
    if shape.head_dim < shape.d_in and shape.heads > 2:
        raise NotDefined(f"middle-path inverts weights of the middle layer, which have rank at most d at {shape}")


def _require_polynomial(shape: Shape) -> None:
    require_scalar("polynomial", shape)
    _require_odd("polynomial")(shape)
    polynomial_bilinear(shape.heads)


def _require_two_sided_counting(shape: Shape) -> None:
    require_scalar("two-sided-counting", shape)
    if shape.layers == 1:
        raise NotDefined("two-sided-counting is defined for two layers or more")


def _two_sided_counting_dimension(shape: Shape) -> int:
    return comb((shape.layers + 1) // 2 + shape.heads - 1, shape.heads - 1)


@dataclass(frozen=True)
class IdentityKind:
    """What a construction's identity says: notion, targets, what is free, its least m, and the words."""

    notion: Notion
    targets: str
    free: str | None
    least_m: Callable[[Shape], int]
    defined: Callable[[Shape], None]
    words: Callable[[Shape], tuple[Blocks, Blocks | None]] | None
    """None for an embedding of rational functions, which a checker computes at a drawn target (section 9.2)."""
    construction: str = ""
    """Its name in the format, where that is another one."""
    edges: Callable[[Shape], Edges] | None = None
    moves: Callable[[Shape], int] | None = None
    """How many moves of blocks a checker follows, where the format has a standard embedding (section 9.1)."""

    def numbers(self, shape: Shape) -> int:
        """Roughly the letters and numbers of the evidence, written out."""
        return self.least_m(shape) // shape.d_in * (shape.layers + 1)

    def is_standard(self, shape: Shape) -> bool:
        """Whether the standard embedding is named, not written out."""
        return self.words is None or (self.moves is not None and self.numbers(shape) > WRITTEN_OUT)

    def work(self, shape: Shape) -> int:
        """Nanoseconds of a check at a drawn target, roughly."""
        b, d, H, L = shape.d_in, shape.head_dim, shape.heads, shape.layers
        nodes = geometric(shape.letters, 0, L)
        columns = 2 * d * H * geometric(shape.letters, 0, L - 1) + b * shape.words_at(L)
        return 600 * (columns * (b * b + L) + L * H * 8 * b * b * (b + d) + nodes * b**3) + 10**9


def _output_moves(shape: Shape) -> int:
    """One for every word of length 1 ... L, and one for each output."""
    H, L = shape.heads, shape.layers
    return geometric(H, 1, L) + H**L


def _attention_moves(shape: Shape) -> int:
    """The same for the outputs and, for queries and keys of every layer and head, for the words before them."""
    H, L = shape.heads, shape.layers
    words = geometric(H, 1, L)
    before = L * (L - 1) // 2 if H == 1 else (words - L * H) // (H - 1)
    return _output_moves(shape) + 2 * (H * before + words)


def _middle(bilinear: Callable[[int], Bilinear], defined: Callable[[Shape], None]) -> IdentityKind:
    """Which targets it serves depends on whether inverses occur; the certificate says."""

    def edges(shape: Shape) -> Edges:
        return edges_of(bilinear(shape.heads))

    return IdentityKind(
        Notion.SHARED_ATTENTION,
        ALL_UNTIED,
        "E and U",
        lambda shape: shape.d_in * _parts(edges(shape)) * shape.heads ** (shape.layers // 2),
        defined,
        lambda shape: middle_words(shape, edges(shape)),
        "middle",
        edges,
    )


def _require_single(shape: Shape) -> None:
    _require_named("shared-query")(shape)
    if shape.heads > 1 or shape.d_in > 1:
        raise NotDefined(f"shared-query serves all targets functionally at H = d_in = 1, got {shape}")


def _require_named(name: str) -> Callable[[Shape], None]:
    def defined(shape: Shape) -> None:
        require_equal_widths(f"an identity of {name}", shape)
        resolve_m(construction(name), shape, None)

    return defined


def _shared_attention(
    name: str, words: Callable[[Shape], tuple[Blocks, Blocks | None]], moves: Callable[[Shape], int] | None = None
) -> IdentityKind:
    entry = SHARED_ATTENTION[name]
    targets = ALL_TIED if entry.tied_targets else ALL_UNTIED
    return IdentityKind(Notion.SHARED_ATTENTION, targets, entry.free, entry.least_m, entry.defined, words, moves=moves)


IDENTITIES: dict[str, IdentityKind] = {
    "shared-key": IdentityKind(
        Notion.ATTENTION_MATCHING,
        ALL_UNTIED,
        None,
        shared_key_dimension,
        _require_named("shared-key"),
        shared_key_words,
        moves=_attention_moves,
    ),
    "shared-query": IdentityKind(
        Notion.ATTENTION_MATCHING,
        INVERTIBLE,
        None,
        shared_query_dimension,
        _require_named("shared-query"),
        shared_query_words,
        moves=_attention_moves,
    ),
    "commuting-trie": IdentityKind(
        Notion.MATCHING, ALL_TIED, None, commuting_dimension, require_commuting, commuting_trie_words
    ),
    "register": _shared_attention("register", register_words, _output_moves),
    "two-sided": _shared_attention("two-sided", two_sided_words),
    "counting": _shared_attention("counting", counting_words),
    "middle-path": _middle(path_bilinear, _require_path),
    "middle-stars": _middle(two_stars_bilinear, _require_odd("middle-stars")),
    "polynomial": IdentityKind(
        Notion.SHARED_ATTENTION,
        ALL_UNTIED,
        "E and U",
        lambda shape: shape.heads ** (shape.layers // 2) * (shape.heads // 2 + 1),
        _require_polynomial,
        polynomial_words,
    ),
    "two-sided-counting": IdentityKind(
        Notion.SHARED_ATTENTION,
        ALL_TIED,
        "E and U",
        _two_sided_counting_dimension,
        _require_two_sided_counting,
        two_sided_counting_words,
    ),
    "shared-query-functional": IdentityKind(
        Notion.FUNCTIONAL,
        ALL_UNTIED,
        None,
        shared_query_dimension,
        _require_single,
        shared_query_words,
        "shared-query",
        moves=_attention_moves,
    ),
}
"""The constructions that the kind `identity` is specified for."""


def _drawn(entry: Construction) -> IdentityKind:
    """The identity of a construction whose E is a rational function of the target."""

    def defined(shape: Shape) -> None:
        if shape.d_in != shape.d_out:
            raise NotDefined(f"an identity of {entry.name} is defined for d_in = d_out, got {shape}")
        resolve_m(entry, shape, None)

    assert entry.notion is not None
    return IdentityKind(entry.notion, entry.targets, None, entry.least_m, defined, None)


IDENTITIES |= {
    entry.name: _drawn(entry)
    for entry in CONSTRUCTIONS.values()
    if entry.embed is not None and entry.name not in IDENTITIES
}


def identity_evidence(document: dict[str, Any]) -> str:
    """What an identity certificate shows, in half a sentence."""
    E, name = document["evidence"]["E"], document["claim"]["host"]["construction"]
    if name in IDENTITIES and IDENTITIES[name].words is None:
        return "E is a rational function of the target, and the equations hold at a target drawn modulo a random prime"
    blocks = "the blocks of the standard E" if E == STANDARD else f"{len(E)} blocks"
    return f"E is made of {blocks}, each a product of the target's own matrices"


def identity_certificate(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    max_memory: int | None = None,
    standard: bool | None = None,
    tied_targets: bool = False,
) -> Certificate:
    """The identity by which this construction serves its targets at this shape; m defaults to the least one.

    standard: name the standard embedding of register, shared-key or shared-query in place of its blocks; by default where
    these take more than 100 000 numbers. The certificate has the same size at every shape then, and the checker follows
    the words (ResourceLimit where they are too many for that). Embeddings of rational functions (shared-query-groups,
    symmetric-keys, residual-key, ...) are always named; tied_targets: such a certificate about tied targets.

    The claim says which targets: "all untied" (shared-key, register, two-sided, middle-stars, polynomial), "untied with
    invertible M^(l,0)" (shared-query), "untied with invertible M^(k+1,h)" (middle-path at H >= 3), "all tied" (counting,
    commuting-trie, two-sided-counting). shared-query-functional is shared-query at H = d_in = 1, where a target with a
    singular M^(l,0) is zero. Raises MalformedInput for other constructions, NotDefined outside
    the construction's shapes and below its least m, ResourceLimit before allocating.
    """
    if name not in IDENTITIES:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    kind = IDENTITIES[name]
    if kind.words is not None:
        require_plain(shape, f"the identity of {name}")
    kind.defined(shape)
    least = kind.least_m(shape)
    m = least if m is None else positive_integer("m", m)
    if m < least:
        raise NotDefined(f"{name} at {shape} needs m >= {least}, got {m}")
    if kind.is_standard(shape) if standard is None else standard:
        return _standard(name, kind, shape, m, tied_targets)
    assert kind.words is not None
    # a block: its letters (8 bytes each, strings of some 60), the list and the pair
    require_memory(
        least * (200 + 70 * (2 * shape.layers + shape.heads)), f"an identity of {name} at {shape}", max_memory
    )
    E, U = kind.words(shape)
    return _stated(name, kind, shape, m, E, U)


def _standard(name: str, kind: IdentityKind, shape: Shape, m: int, tied_targets: bool) -> Certificate:
    if kind.moves is None and kind.words is not None:
        raise MalformedInput(f"no standard embedding of {name} is defined in the certificate format")
    moves = 0 if kind.moves is None else kind.moves(shape)
    if moves > MOST_MOVES:
        raise ResourceLimit(
            f"checking {name} at {shape} needs {moves} moves of blocks, at most {MOST_MOVES} are followed"
        )
    return certificate(
        "identity",
        shape,
        m,
        {"construction": kind.construction or name},
        {"E": STANDARD},
        notion=kind.notion,
        targets=kind.targets.replace("untied", "tied") if tied_targets and kind.words is None else kind.targets,
        free=kind.free,
        universal=True,
    )


def _stated(name: str, kind: IdentityKind, shape: Shape, m: int, E: Blocks, U: Blocks | None) -> Certificate:
    """The certificate with these blocks."""
    evidence: dict[str, Any] = {"E": [[integer(start), word] for start, word in E]}
    if U is not None:
        evidence["U"] = [[integer(start), word] for start, word in U]
    host: dict[str, Any] = {"construction": kind.construction or name}
    targets = kind.targets
    if kind.edges is not None:
        host["edges"] = [list(edge) for edge in kind.edges(shape)]
        if any(letter.endswith("I") for _, word in E + (U or []) for letter in word):
            targets = INVERTIBLE_MIDDLE
    return certificate(
        "identity",
        shape,
        m,
        host,
        evidence,
        notion=kind.notion,
        targets=targets,
        free=kind.free,
        universal=True,
    )
