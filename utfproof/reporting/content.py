"""What the coordinates of E hold, read off R_all: the coordinate where a column of R_all has its one holds that column
of W_all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all
from utfproof.reporting.svg import Label
from utfproof.shapes import Word, column_at
from utfproof.systems import Universal


def word_text(word: Word) -> str:
    """01, or 0,12 where a letter has two digits."""
    return ("" if all(letter < 10 for letter in word) else ",").join(map(str, word))


@dataclass(frozen=True)
class PageBlock:
    """Consecutive coordinates start ... start+width-1 of E that hold columns of one kind ('Q', 'K', 'OV', '' for none)
    and one head word."""

    start: int
    width: int
    kind: str
    word: Word

    @property
    def route(self) -> Word:
        """The heads passed before the block is read: the whole word for outputs, all but the reader for Q and K."""
        return self.word if self.kind == "OV" else self.word[:-1]

    @property
    def depth(self) -> int:
        """Length of the route."""
        return len(self.route)

    @property
    def label(self) -> Label:
        """M_w W_Q^{l,h} in pieces; layers count from 1, heads from 0."""
        if not self.kind:
            return [("0", "")]
        product = [("M", ""), (word_text(self.route), "sub")] if self.route else []
        if self.kind == "OV":
            return product
        return [*product, ("W", ""), (self.kind, "sub"), (f"{len(self.word)},{self.word[-1]}", "sup")]


def embedding_blocks(host: Universal) -> list[PageBlock] | None:
    """The blocks of E from left to right, covering all m coordinates; None where R_all is not made of pairwise different
    unit columns (its columns then do not say what a coordinate holds)."""
    matrix = r_all(host)
    rows = matrix.unit_rows() if isinstance(matrix, SelectionMatrix) else None
    if rows is None:
        return None
    held = np.full(host.m, -1, dtype=np.int64)
    held[rows] = np.arange(len(rows))
    blocks: list[PageBlock] = []
    for coordinate, index in enumerate(held.tolist()):
        kind, word = ("", ()) if index < 0 else column_at(host.shape, index)[:2]
        last = blocks[-1] if blocks else None
        if last is not None and (last.kind, last.word) == (kind, word):
            blocks[-1] = PageBlock(last.start, last.width + 1, kind, word)
        else:
            blocks.append(PageBlock(coordinate, 1, kind, word))
    return blocks


def nodes(blocks: Iterable[PageBlock]) -> dict[Word, list[tuple[int, int]]]:
    """For each route the stretches [start, end) of coordinates that its blocks fill."""
    found: dict[Word, list[tuple[int, int]]] = {}
    for block in sorted(blocks, key=lambda entry: entry.start):
        spans = found.setdefault(block.route, [])
        if spans and spans[-1][1] == block.start:
            spans[-1] = (spans[-1][0], block.start + block.width)
        else:
            spans.append((block.start, block.start + block.width))
    return found
