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
"""Tokens whose rows are so many times as large as the median are left out of some sequences."""


def probes(reading: Reading, seed: int) -> Iterator[np.ndarray]:
    """Batches [batch, n] of tokens, of sizes that change, each within BATCH_BYTES of logits. The first batch comes again at the
    end: an answer must not depend on the questions before."""
    every = batches(reading, sequences(reading, seed))
    first = next(every)
    yield first
    yield from every
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
    """First those that always are tried, then COVERED tokens, or as many as LOGITS allow, once each."""
    rng, V, longest = np.random.default_rng(seed), reading.vocabulary, reading.longest
    width, rows = min(longest, ANY_LENGTH), LOGITS // reading.shape.d_out
    every = -(-STRUCTURED // rows)
    always = [t[:longest] for number, t in enumerate(_structured(rng, V, width)) if not number % every]
    beyond: Any = rng.integers(width + 1, longest + 1, 8) if longest > width else []
    lengths = [*range(1, width + 1), *(int(n) for n in beyond), longest]
    lengths *= 2 if 2 * sum(lengths) <= rows // 4 else 1
    always += [*(rng.integers(0, V, n) for n in lengths), *random_sequences(reading, 4, seed)]
    yield from always
    covered = rng.permutation(V)[: max(0, min(COVERED, rows - sum(map(len, always))))]
    yield from (covered[start : start + width] for start in range(0, len(covered), width))


def _structured(rng: np.random.Generator, V: int, longest: int) -> Iterator[np.ndarray]:
    """Copies, special tokens in every place, pairs of them, documents; some are longer than `longest`."""

    def some(least: int, most: int) -> list[int]:
        return rng.integers(0, V, rng.integers(least, most)).tolist()

    def one(*parts: list[int]) -> np.ndarray:
        return np.array([token for part in parts for token in part], dtype=np.int64)

    special = sorted({*range(min(V, SPECIAL)), *range(max(0, V - SPECIAL), V)})
    marks = sorted({*special[:SEPARATORS], *special[-SEPARATORS:], *(t for t in WORD_PIECES if t < V)})
    yield from _copies(rng, V, longest)
    for token in special:
        for times in range(1, min(3, longest) + 1):
            many, before, after = [token] * times, some(1, 4), some(0, 4)
            for parts in ([many], [many, before], [before, many], [before, many, after], [many, before, many]):
                yield one(*parts)
    for first, last in permutations(marks, 2):
        whole = [[first], some(1, 5), [last], some(1, 5), [last]]
        yield from (one(*parts) for parts in (whole[:3], whole) if len(one(*parts)) <= longest)
    for mark in marks:
        for times in (1, 2, 3):
            for count in range(1, 7):
                documents = [[*some(1, 4), *[mark] * times] for _ in range(count)]
                yield one(*documents)[:longest]
        yield one([mark] * min(longest, PLACES))
        for position in range(min(longest, PLACES)):
            tokens = one(some(position + 1, min(longest, position + 4) + 1))
            tokens[tokens == mark] = (mark + 1) % V
            tokens[position] = mark
            yield tokens


def _copies(rng: np.random.Generator, V: int, longest: int) -> Iterator[np.ndarray]:
    """Tokens repeated once and reversed, of small periods, sorted both ways, counted up, and of few or low ids."""
    for n in sorted({min(n, longest) for n in (4, 6, 9, 16, ANY_LENGTH)}):
        tokens, half = rng.integers(0, V, n), rng.integers(0, V, (n + 1) // 2)
        yield np.concatenate([half, half])[:n]
        yield np.concatenate([half, half[::-1][n % 2 :]])
        yield np.sort(tokens)
        yield np.sort(tokens)[::-1]
        yield (tokens[0] + np.arange(n)) % V
        yield rng.integers(0, min(V, SPECIAL), n)
        for few in (2, 3, 4):
            yield np.resize(tokens[:few], n)
            yield rng.choice(tokens[:few], n)


def random_sequences(reading: Reading, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones. Where some tokens' rows are FAR larger
    than the median, one more of the longest without them: such a row draws all attention to it, or drives all away."""
    rng, longest = np.random.default_rng(seed), reading.longest
    lengths = [longest, 1, min(2, longest)][:count]
    lengths += [int(n) for n in rng.integers(1, longest + 1, max(0, count - len(lengths)))]
    rows = np.abs(reading.target.W_E)[: reading.vocabulary * (reading.positions if reading.ids is not None else 1)]
    sizes = rows.reshape(reading.vocabulary, -1).max(axis=1)
    ordinary = np.flatnonzero(sizes <= FAR * np.median(sizes))
    drawn = [rng.integers(0, reading.vocabulary, n) for n in lengths]
    return drawn if len(ordinary) == len(sizes) else [*drawn, rng.choice(ordinary, longest)]
