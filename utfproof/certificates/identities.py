"""Certificates of kind `identity`: an embedding whose blocks are words in the target's own matrices.

For the constructions below M, the matching or attention equations are identities of words: the certificate says which word
stands in which block of E (and of U where it is free), and a checker follows the blocks (docs/certificate-format.md section 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from utfproof.certificates.format import Certificate, certificate, integer
from utfproof.constructions import construction, resolve_m
from utfproof.constructions.commuting import commuting_dimension, require_commuting
from utfproof.constructions.shared_attention import (
    SHARED_ATTENTION,
    count_tuples,
    require_equal_widths,
)
from utfproof.errors import MalformedInput, NotDefined
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.shapes import Shape, Word, head_words, positive_integer, shared_key_dimension, shared_query_dimension

Blocks = list[tuple[int, list[str]]]
"""(first coordinate, letters of the word), by first coordinate."""

ALL_UNTIED = "all untied"
ALL_TIED = "all tied"
INVERTIBLE = "untied with invertible M^(l,0)"


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


@dataclass(frozen=True)
class IdentityKind:
    """What a construction's identity says: notion, targets, what is free, its least m, and the words."""

    notion: Notion
    targets: str
    free: str | None
    least_m: Callable[[Shape], int]
    defined: Callable[[Shape], None]
    words: Callable[[Shape], tuple[Blocks, Blocks | None]]


def _require_named(name: str) -> Callable[[Shape], None]:
    def defined(shape: Shape) -> None:
        require_equal_widths(f"an identity of {name}", shape)
        resolve_m(construction(name), shape, None)

    return defined


def _shared_attention(name: str, words: Callable[[Shape], tuple[Blocks, Blocks | None]]) -> IdentityKind:
    entry = SHARED_ATTENTION[name]
    targets = ALL_TIED if entry.tied_targets else ALL_UNTIED
    return IdentityKind(Notion.SHARED_ATTENTION, targets, entry.free, entry.least_m, entry.defined, words)


IDENTITIES: dict[str, IdentityKind] = {
    "shared-key": IdentityKind(
        Notion.ATTENTION_MATCHING,
        ALL_UNTIED,
        None,
        shared_key_dimension,
        _require_named("shared-key"),
        shared_key_words,
    ),
    "shared-query": IdentityKind(
        Notion.ATTENTION_MATCHING,
        INVERTIBLE,
        None,
        shared_query_dimension,
        _require_named("shared-query"),
        shared_query_words,
    ),
    "commuting-trie": IdentityKind(
        Notion.MATCHING, ALL_TIED, None, commuting_dimension, require_commuting, commuting_trie_words
    ),
    "register": _shared_attention("register", register_words),
    "two-sided": _shared_attention("two-sided", two_sided_words),
    "counting": _shared_attention("counting", counting_words),
}
"""The constructions that the kind `identity` is specified for."""


def identity_certificate(
    name: str, shape: Shape, m: int | None = None, *, max_memory: int | None = None
) -> Certificate:
    """The identity by which this construction serves its targets at this shape; m defaults to the least one.

    The claim says which targets: "all untied" (shared-key, register, two-sided), "untied with invertible M^(l,0)"
    (shared-query), "all tied" (counting, commuting-trie). Raises MalformedInput for other constructions, NotDefined outside
    the construction's shapes and below its least m, ResourceLimit before allocating.
    """
    if name not in IDENTITIES:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    kind = IDENTITIES[name]
    kind.defined(shape)
    least = kind.least_m(shape)
    m = least if m is None else positive_integer("m", m)
    if m < least:
        raise NotDefined(f"{name} at {shape} needs m >= {least}, got {m}")
    # a block: its letters (8 bytes each, strings of some 60), the list and the pair
    require_memory(least * (200 + 70 * 2 * shape.layers), f"an identity of {name} at {shape}", max_memory)
    E, U = kind.words(shape)
    evidence: dict[str, Any] = {"E": [[integer(start), word] for start, word in E]}
    if U is not None:
        evidence["U"] = [[integer(start), word] for start, word in U]
    return certificate(
        "identity",
        shape,
        m,
        {"construction": name},
        evidence,
        notion=kind.notion,
        targets=kind.targets,
        free=kind.free,
        universal=True,
    )
