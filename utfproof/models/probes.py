"""Sequences on which a model is tried: structured ones, since a model may do something else at one length, one position, for
one token, for several separators, for padding, or for one place in a batch; and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, permutations
from typing import Any

import numpy as np

from utfproof.models.reading import ANY_LENGTH, Reading

SPECIAL = 8
"""Token ids at either end of the vocabulary that are tried as special ones, in all places."""
SEPARATORS = 4
"""Of the special ids at either end, and of the others: those that separate documents."""
COVERED = 4096
"""Most tokens of a vocabulary that are all tried."""
BATCHES = (1, 2, 3, 5, 8, 13, 21, 32)
"""Sizes of batches, in turn."""
BATCH_BYTES = 3 * 2**23
"""Most bytes of the logits of a batch."""
LOGITS = 2**28
"""Logits in all after which no more of the vocabulary is tried."""
STRUCTURED = 12000
"""About the tokens of all structured sequences: of a large vocabulary some are left out, evenly."""
WORD_PIECES = (101, 102)
"""Ids of the start and the separator in word-piece vocabularies."""
PLACES = 16
"""Positions at which special tokens are tried one by one."""
FAR = 100.0
"""Tokens whose rows are so many times as large as others' are left out of some sequences."""


def probes(reading: Reading, seed: int) -> Iterator[np.ndarray]:
    """Batches [batch, n] of tokens, of sizes that change, each within BATCH_BYTES of logits. The first batch comes again at the
    end: an answer must not depend on the questions before."""
    first: np.ndarray | None = None
    for batch in batches(reading, sequences(reading, seed)):
        first = batch if first is None else first
        yield batch
    if first is not None:
        yield first


def batches(reading: Reading, given: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Sequences [n] of one length together, [batch, n]."""
    sizes = cycle(BATCHES)
    waiting: dict[int, list[np.ndarray]] = {}
    wanted: dict[int, int] = {}
    for tokens in given:
        n = len(tokens)
        held = waiting.setdefault(n, [])
        held.append(tokens)
        most = max(1, BATCH_BYTES // (8 * reading.shape.d_out * n))
        if len(held) >= min(most, wanted.setdefault(n, next(sizes))):
            yield np.stack(waiting.pop(n))
            wanted.pop(n)
    for held in waiting.values():
        yield np.stack(held)


def sequences(reading: Reading, seed: int) -> Iterator[np.ndarray]:
    """All of them, one by one: first those that always are tried, then others within LOGITS."""
    drawn = _Drawn(np.random.default_rng(seed), reading.vocabulary, reading.longest)
    rows = LOGITS // reading.shape.d_out
    every = -(-STRUCTURED // rows)
    always = [t for number, t in enumerate(drawn.structured()) if not number % every]
    always += [*drawn.lengths(rows // 4), *random_sequences(reading, 4, seed)]
    yield from always
    yield from drawn.covering(rows - sum(map(len, always)))


class _Drawn:
    """Sequences of at most `longest` of the tokens 0 ... V-1."""

    def __init__(self, rng: np.random.Generator, V: int, longest: int) -> None:
        self.rng, self.V, self.longest = rng, V, longest
        self.special = sorted({*range(min(V, SPECIAL)), *range(max(0, V - SPECIAL), V)})

    def some(self, n: int) -> np.ndarray:
        """n random tokens."""
        return self.rng.integers(0, self.V, n)

    def lengths(self, rows: int) -> Iterator[np.ndarray]:
        """Random tokens of every length up to ANY_LENGTH, twice where the rows allow it, of some beyond, and of the longest."""
        short = range(1, min(self.longest, ANY_LENGTH) + 1)
        beyond: Any = self.rng.integers(ANY_LENGTH + 1, self.longest + 1, 8) if self.longest > ANY_LENGTH else []
        all_of_them = [*short, *(int(n) for n in beyond), self.longest]
        for n in all_of_them * (2 if 2 * sum(all_of_them) <= rows else 1):
            yield self.some(n)

    def structured(self) -> Iterator[np.ndarray]:
        """Copies, special tokens in every place, pairs of them, documents."""
        ends = {*self.special[:SEPARATORS], *self.special[-SEPARATORS:]}
        marks = sorted({*ends, *(t for t in WORD_PIECES if t < self.V)})
        yield from self._copies()
        for token in self.special:
            yield from self._in_every_place(token)
        for first, last in permutations(marks, 2):
            inner = [self.some(int(n)) for n in self.rng.integers(1, 5, 2)]
            for tokens in ([first, *inner[0], last], [first, *inner[0], last, *inner[1], last]):
                if len(tokens) <= self.longest:
                    yield np.array(tokens, dtype=np.int64)
        for token in marks:
            yield from self._documents(token)
            yield from self._at_every_position(token)

    def covering(self, rows: int) -> Iterator[np.ndarray]:
        """COVERED tokens, or as many as these rows of logits hold, each once."""
        covered, width = self.rng.permutation(self.V)[: max(0, min(COVERED, rows))], min(self.longest, ANY_LENGTH)
        yield from (covered[start : start + width] for start in range(0, len(covered), width))

    def _in_every_place(self, token: int) -> Iterator[np.ndarray]:
        """A token once, twice, three times at the start, at the end, at both, in the middle, and alone."""
        for times in range(1, min(3, self.longest) + 1):
            many, rest = np.full(times, token), self.some(int(self.rng.integers(1, 7)))
            half = len(rest) // 2
            for parts in ([many], [many, rest], [rest, many], [rest[:half], many, rest[half:]], [many, rest, many]):
                yield np.concatenate(parts)[: self.longest]

    def _documents(self, separator: int) -> Iterator[np.ndarray]:
        """One to six documents with one, two or three separators between them, and many separators."""
        longest = min(self.longest, ANY_LENGTH)
        for times in (1, 2, 3):
            for count in range(1, 7):
                parts = [[*self.some(int(self.rng.integers(1, 4))), *[separator] * times] for _ in range(count)]
                yield np.array([token for part in parts for token in part][:longest], dtype=np.int64)
        yield np.full(min(longest, PLACES), separator)

    def _at_every_position(self, token: int) -> Iterator[np.ndarray]:
        """The token once, at each of the first PLACES positions."""
        for position in range(min(self.longest, PLACES)):
            n = int(self.rng.integers(position + 1, min(self.longest, position + 4) + 1))
            tokens = (token + self.rng.integers(1, max(2, self.V), n)) % self.V
            tokens[position] = token
            yield tokens

    def _copies(self) -> Iterator[np.ndarray]:
        """Tokens repeated once and reversed, of small periods, sorted both ways, counted up, and of few or low ids."""
        for n in sorted({min(n, self.longest) for n in (4, 6, 9, 16, ANY_LENGTH)}):
            tokens, half = self.some(n), self.some((n + 1) // 2)
            yield np.concatenate([half, half])[:n]
            yield np.concatenate([half, half[::-1][n % 2 :]])
            yield np.sort(tokens)
            yield np.sort(tokens)[::-1]
            yield (tokens[0] + np.arange(n)) % self.V
            yield self.rng.integers(0, min(self.V, SPECIAL), n)
            for few in (2, 3, 4):
                yield np.resize(tokens[:few], n)
                yield self.rng.choice(tokens[:few], n)


def random_sequences(reading: Reading, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones. Where tokens' rows are of very different
    sizes, one more of the longest for each set of `ordinary_tokens`."""
    rng = np.random.default_rng(seed)
    longest = reading.longest
    lengths = [longest, 1, min(2, longest)][:count]
    lengths += [int(n) for n in rng.integers(1, longest + 1, max(0, count - len(lengths)))]
    drawn = [rng.integers(0, reading.vocabulary, n) for n in lengths]
    return drawn + [rng.choice(tokens, longest) for tokens in ordinary_tokens(reading)]


def ordinary_tokens(reading: Reading) -> list[np.ndarray]:
    """Sets of the tokens with the smaller rows: half of them all, a quarter, ..., wherever that leaves out rows that are FAR
    larger than those that are left. A row that is far larger than others draws all attention to it, or drives all away."""
    rows = np.abs(reading.target.W_E)
    rows = (rows if reading.ids is not None else rows[: reading.vocabulary]).reshape(reading.vocabulary, -1).max(axis=1)
    order = np.argsort(rows, kind="stable")
    sets, count, largest = [], len(order) // 2, float(rows.max(initial=0.0))
    while count:
        if FAR * rows[order[count - 1]] <= largest:
            sets.append(order[:count])
            largest = float(rows[order[count - 1]])
        count //= 2
    return sets
