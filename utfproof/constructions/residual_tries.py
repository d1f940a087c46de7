"""Tied hosts with a residual stream, for tied targets of width d_in = d_out: tries of outputs M_w, with queries and keys as far
as they are needed.

| host | blocks | serves | least m |
|---|---|---|---|
| residual-trie-key | outputs and queries M_w A | d >= d_in, attention-matching | d_in (1 + 2S) |
| residual-counting | outputs, queries and keys, by counts | d_in = 1, matching | 2dH C(L-1+H, H) + C(L+H, H) |
| residual-counting-key | outputs and queries, by counts | d_in = 1, attention-matching | C(L+H, H) + H C(L-1+H, H) |
| residual-output-trie | outputs | attention from outside, E free | d_in (1 + S) |
| residual-output-counting | outputs, by counts | d_in = 1, attention from outside, E free | C(L+H, H) |

The stream keeps a word as it is, so that words without its letter are all there is, and the output of a word that stops early
is there already: where d >= d_in, U reads keys as well. At d_in = 1 products depend on how often each head occurs.
docs/proofs/residual-frontier.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import comb

import numpy as np

from utfproof.constructions.layout import Layout
from utfproof.constructions.record import EQUAL, SCALAR, Construction, Domain, SharedAttention
from utfproof.constructions.shared_key import key_forms
from utfproof.errors import OutsideClass
from utfproof.ground.arrays import Array, zeros
from utfproof.ground.notions import Notion
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape, Word, geometric, head_words, word_index
from utfproof.systems import SharedAttentionUniversal, Target, TiedUniversal, prefix_stacks

QUERY, KEY, OUTPUT = "query", "key", "output"


def reduced_counts(shape: Shape, shorter: int = 0) -> int:
    """C(L + H, H): how often each head can occur in them (up to length L - shorter)."""
    return comb(shape.layers - shorter + shape.heads, shape.heads)


@dataclass(frozen=True)
class Trie:
    """What a host's blocks hold besides outputs: nothing, queries (keys are outputs), or queries and keys. counted: blocks of
    numbers, by the counts of heads in place of words."""

    name: str
    readers: tuple[str, ...] = ()
    counted: bool = False

    @property
    def domain(self) -> Domain:
        """Its shapes."""
        domain = replace(SCALAR if self.counted else EQUAL, stream=True)
        if self.readers != (QUERY,):
            return domain
        text, holds = f"{domain.text} <= head_dim (keys are outputs)", domain.holds
        return Domain(text, lambda shape: holds(shape) and shape.head_dim >= shape.d_in, stream=True)

    def width(self, shape: Shape) -> int:
        """Of a query or a key: forms M_w A are d_in wide."""
        return shape.d_in if self.readers == (QUERY,) else shape.head_dim

    def size(self, shape: Shape, kind: str) -> int:
        """Coordinates of a block."""
        return shape.d_out if kind == OUTPUT else self.width(shape)

    def least_m(self, shape: Shape) -> int:
        """Coordinates of all blocks."""
        words, shorter = (
            reduced_counts(shape, cut) if self.counted else geometric(shape.heads, 0, shape.layers - cut)
            for cut in (0, 1)
        )
        return words * shape.d_out + shorter * shape.heads * len(self.readers) * self.width(shape)

    def blocks(self, shape: Shape) -> dict[tuple[str, Word, int], int]:
        """Where each block begins, by what it holds, its word (or counts) and its head; outputs last."""
        found: dict[tuple[str, Word, int], int] = {}
        begin = 0
        for length, head in product(range(shape.layers), range(shape.heads)) if self.readers else ():
            for word, kind in product(self._words(shape, length), self.readers):
                found[kind, word, head] = begin
                begin += self.width(shape)
        for length in range(shape.layers + 1):
            for word in self._words(shape, length):
                found[OUTPUT, word, 0] = begin
                begin += shape.d_out
        return found

    def _words(self, shape: Shape, length: int) -> list[Word]:
        if self.counted:
            return [c for c in product(range(length + 1), repeat=shape.heads) if sum(c) == length]
        return list(head_words(shape.heads, length))

    def _longer(self, word: Word, head: int) -> Word:
        return tuple(c + (h == head) for h, c in enumerate(word)) if self.counted else (head, *word)

    def _read(self, shape: Shape, m: int, kind: str, head: int, columns: int) -> SelectionMatrix:
        """The root's block, as far as it fits into so many columns."""
        (root,) = self._words(shape, 0)
        width = min(columns, self.size(shape, kind))
        return Layout(shape, m, shape.d_in).read([self.blocks(shape)[kind, root, head]], width, columns)

    def values(self, shape: Shape, m: int) -> tuple[SelectionMatrix, ...]:
        """R_V of each head: the block of the word with this head before it goes to the word's own."""
        layout, blocks = Layout(shape, m, shape.d_in), self.blocks(shape)

        def value(head: int) -> SelectionMatrix:
            pairs: dict[str, list[tuple[int, int]]] = {}
            for (kind, word, at), begin in blocks.items():
                source = blocks.get((kind, self._longer(word, head), at))
                if source is not None:
                    pairs.setdefault(kind, []).append((source, begin))
            return layout.moved(
                *((*np.array(found, dtype=np.int64).T, self.size(shape, kind)) for kind, found in pairs.items())
            )

        return tuple(value(head) for head in range(shape.heads))

    def unembedding(self, shape: Shape, m: int) -> SelectionMatrix:
        """U [m, d_out]: the root's output."""
        return self._read(shape, m, OUTPUT, 0, shape.d_out)

    def host(self, shape: Shape, m: int) -> TiedUniversal:
        """The host with queries and keys of its own."""
        kinds, d = (QUERY, self.readers[-1] if KEY in self.readers else OUTPUT), shape.head_dim
        queries, keys = (
            tuple(self._read(shape, m, kind, 0 if kind == OUTPUT else h, d) for h in range(shape.heads))
            for kind in kinds
        )
        U = self.unembedding(shape, m)
        return TiedUniversal(shape, m, queries, keys, self.values(shape, m), U, self.name)

    def shared(self, shape: Shape, m: int) -> SharedAttentionUniversal:
        """The host whose attention comes from outside."""
        return SharedAttentionUniversal(shape, m, self.values(shape, m), tied=True)

    def embed(self, shape: Shape, m: int, target: Target) -> Array:
        """E [d_in, m]: block w is M_w, M_w A for queries whose keys are outputs, else M_w W_Q and M_w W_K. OutsideClass for
        targets that are not tied, or not of width d_in."""
        if target.W_E is not None or target.W_U is not None or not target.tied:
            raise OutsideClass(f"{self.name} at {shape} serves tied targets of width d_in = d_out")
        E = zeros(target.W_Q, shape.d_in, m)
        tables = list(prefix_stacks(target, stream=False))
        for (kind, word, head), begin in self.blocks(shape).items():
            spelled = tuple(h for h, c in enumerate(word) for _ in range(c)) if self.counted else word
            value = tables[len(spelled)][word_index(spelled, shape.heads)]
            if kind != OUTPUT:
                w_q, w_k, _, _ = target.parameters(0, head)
                value = value @ (w_q @ w_k.T if self.readers == (QUERY,) else w_q if kind == QUERY else w_k)
            E[:, begin : begin + value.shape[1]] = value
        return E


def _record(trie: Trie, summary: str, notion: Notion) -> Construction:
    outside = notion is Notion.SHARED_ATTENTION
    return Construction(
        trie.name,
        summary,
        True,
        notion,
        trie.least_m,
        None if outside else trie.host,
        trie.domain,
        streams=True,
        targets="all tied",
        embed=None if outside else lambda shape, m, target: (trie.embed(shape, m, target), None),
        forms=key_forms if trie.readers == (QUERY,) else None,
        shared=SharedAttention(
            "E", trie.shared, lambda shape, m, target: (trie.embed(shape, m, target), trie.unembedding(shape, m))
        )
        if outside
        else None,
    )


TRIE_KEY = _record(
    Trie("residual-trie-key", (QUERY,)),
    "with a residual stream: a trie of queries and outputs, keys read the output; tied targets, d >= d_in",
    Notion.ATTENTION_MATCHING,
)
COUNTING = _record(
    Trie("residual-counting", (QUERY, KEY), counted=True),
    "with a residual stream: how often each head occurs; d_in = 1, tied targets",
    Notion.MATCHING,
)
COUNTING_KEY = _record(
    Trie("residual-counting-key", (QUERY,), counted=True),
    "with a residual stream: how often each head occurs, keys read the output; d_in = 1, tied targets",
    Notion.ATTENTION_MATCHING,
)
OUTPUT_TRIE = _record(
    Trie("residual-output-trie"),
    "with a residual stream: a trie of outputs; tied targets; E free, U fixed",
    Notion.SHARED_ATTENTION,
)
OUTPUT_COUNTING = _record(
    Trie("residual-output-counting", counted=True),
    "with a residual stream: how often each head occurs; d_in = 1, tied targets; E free, U fixed",
    Notion.SHARED_ATTENTION,
)
