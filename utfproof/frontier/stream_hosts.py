"""Hosts with a residual stream that the frontier counts as reached, and their embeddings, in exact integers.

Trees (untied) and tries (tied) whose blocks hold outputs M_w, queries and keys as far as they are needed. Where d >= d_in a key
needs no block: the stream passes every layer by, so the output of a word w that stops early is M_w already, and U reads
keys as well. docs/proofs/residual-frontier.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from utfproof.constructions.residual import moebius
from utfproof.errors import NotDefined
from utfproof.ground.arrays import Array
from utfproof.shapes import Shape, Word, head_words, word_index
from utfproof.systems import LoopedUniversal, Target, Universal, prefix_products

QUERY, KEY, OUTPUT = "query", "key", "output"
READERS = ("none", "queries", "queries and keys")
"""What a host holds besides outputs: nothing (attention from outside), queries M_w A (keys are outputs), or M_w W_Q and
M_w W_K."""


@dataclass(frozen=True)
class Block:
    """Coordinates start ... start + width - 1 hold what this reader makes of the word's product."""

    kind: str
    word: Word
    head: int
    start: int
    width: int


@dataclass(frozen=True)
class StreamHost:
    """A host, its blocks by (kind, word, head), and what they hold. `words`: "all" letters 0 ... H (trees), "reduced" ones
    (tries), or "counts" of each head (tries of numbers)."""

    host: Universal
    blocks: dict[tuple[str, Word, int], Block]
    readers: str
    words: str

    def embed(self, target: Target) -> Array:
        """E [d_in, m] for an integer target of width d_in = d_out, tied for tries."""
        shape = self.host.shape
        if target.W_E is not None or target.W_U is not None or (self.words != "all" and not target.tied):
            raise NotDefined("these hosts serve targets of width d_in = d_out, and tries tied ones")
        E = np.zeros((shape.d_in, self.host.m), dtype=object)
        tables = {t: prefix_products(target, t, stream=self.words == "all") for t in range(shape.layers + 1)}
        for block in self.blocks.values():
            if self.words == "all":
                length, alphabet, word = len(block.word), shape.letters, block.word
            else:
                word = block.word if self.words == "reduced" else _spelled(block.word)
                length, alphabet = len(word), shape.heads
            table = tables[length]
            if self.words == "all":  # every zero of a word reads the blocks of all letters
                table = moebius(table, alphabet, length)
            value = table[word_index(word, alphabet)]
            layer = min(length, shape.layers - 1)
            if block.kind != OUTPUT:
                w_q, w_k, _, _ = target.parameters(layer, block.head)
                reader = w_q @ w_k.T if self.readers == "queries" else (w_q if block.kind == QUERY else w_k)
                value = value @ reader
            E[:, block.start : block.start + block.width] = value
        return E


def _spelled(counts: Word) -> Word:
    """A word with these counts of each head."""
    return tuple(head for head, count in enumerate(counts) for _ in range(count))


def _words(shape: Shape, words: str, length: int) -> Iterator[Word]:
    if words == "all":
        yield from head_words(shape.letters, length)
    elif words == "reduced":
        yield from head_words(shape.heads, length)
    else:
        yield from (c for c in product(range(length + 1), repeat=shape.heads) if sum(c) == length)


def _blocks(shape: Shape, readers: str, words: str) -> dict[tuple[str, Word, int], Block]:
    if readers not in READERS:
        raise NotDefined(f"readers are one of {', '.join(READERS)}, not {readers!r}")
    if shape.d_in != shape.d_out or not shape.residual:
        raise NotDefined(f"these hosts have a residual stream and d_in = d_out, not {shape}")
    if readers == "queries" and shape.head_dim < shape.d_in:
        raise NotDefined(f"keys that are outputs need head_dim >= d_in, got {shape}")
    if words == "counts" and shape.d_in > 1:
        raise NotDefined(f"products depend on counts at d_in = 1 only, got {shape}")
    found: dict[tuple[str, Word, int], Block] = {}
    m = 0

    def add(kind: str, word: Word, head: int, width: int) -> None:
        nonlocal m
        found[kind, word, head] = Block(kind, word, head, m, width)
        m += width

    for length in range(shape.layers if readers != "none" else 0):
        for word, head in product(_words(shape, words, length), range(shape.heads)):
            add(QUERY, word, head, shape.d_in if readers == "queries" else shape.head_dim)
            if readers == "queries and keys":
                add(KEY, word, head, shape.head_dim)
    for length in [shape.layers] if words == "all" else range(shape.layers + 1):
        for word in _words(shape, words, length):
            add(OUTPUT, word, 0, shape.d_out)
    return found


def _identity(matrix: np.ndarray, row: int, column: int, width: int) -> None:
    for i in range(width):
        matrix[row + i, column + i] = 1


def _read(m: int, width: int, taken: Sequence[Block]) -> np.ndarray:
    out = np.zeros((m, width), dtype=object)
    for block in taken:
        _identity(out, block.start, 0, min(width, block.width))
    return out


def stream_host(shape: Shape, readers: str, words: str) -> StreamHost:
    """The host of these blocks: untied for words "all", tied for "reduced" and "counts". NotDefined outside its shapes."""
    blocks = _blocks(shape, readers, words)
    m, heads = sum(block.width for block in blocks.values()), range(shape.heads)

    def size(word: Word) -> int:
        return sum(word) if words == "counts" else len(word)

    def outputs(width: int) -> np.ndarray:
        """U: the leaves of a tree, the root of a trie."""
        return _read(
            m, width, [b for b in blocks.values() if b.kind == OUTPUT and (words == "all" or not size(b.word))]
        )

    def reader(kind: str, layer: int, head: int) -> np.ndarray:
        if kind == KEY and readers == "queries":
            return outputs(shape.head_dim)
        depth = layer if words == "all" else 0
        return _read(
            m,
            shape.head_dim,
            [b for b in blocks.values() if (b.kind, b.head) == (kind, head) and size(b.word) == depth],
        )

    def value(layer: int, head: int) -> np.ndarray:
        out = np.zeros((m, m), dtype=object)
        for (kind, word, at), block in blocks.items():
            source: Block | None
            if words == "all":
                source = block if len(word) > layer and word[layer] == head + 1 else None
            else:
                longer = (head, *word) if words == "reduced" else tuple(c + (h == head) for h, c in enumerate(word))
                source = blocks.get((kind, longer, at))
            if source is not None:
                _identity(out, source.start, block.start, block.width)
        return out

    grids = [
        (
            [reader(QUERY, layer, h) for h in heads],
            [reader(KEY, layer, h) for h in heads],
            [value(layer, h) for h in heads],
        )
        for layer in range(shape.layers if words == "all" else 1)
    ]
    U = outputs(shape.d_out)
    if words == "all":
        R_Q, R_K, R_V = zip(*grids, strict=True)
        return StreamHost(Universal(shape, m, R_Q, R_K, R_V, U), blocks, readers, words)
    return StreamHost(LoopedUniversal(shape, m, *grids[0], U), blocks, readers, words)
