"""Sequences on which a model is tried: structured ones, since a model may do something else at one length, one position, for
one token, for several separators, for padding, or for one place in a batch; and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np

from utfproof.models.reading import ANY_LENGTH, Reading

SPECIAL = 8
"""Token ids at either end of the vocabulary that are tried as special ones, in all places."""
NEAR = 128
"""Token ids from 0 on that are tried in some places: tokenizers put special ones there."""
SAMPLE = 64
"""Other token ids that are tried in some places."""
SEPARATORS = 4
"""Of the special ids at either end, and of the others: those that separate documents."""
COVERED = 4096
"""Most tokens of a vocabulary that are all tried."""
BATCHES = (1, 2, 3, 5, 8, 13, 21, 32)
"""Sizes of batches, in turn."""
BATCH_BYTES = 2**26
"""Most bytes of the logits of a batch."""
FAR = 100.0
"""Tokens whose rows are so many times as large as others' are left out of some sequences."""


def probes(reading: Reading, seed: int) -> Iterator[np.ndarray]:
    """Batches [batch, n] of tokens, of sizes that change, each within BATCH_BYTES of logits. The first batch comes again at the
    end: an answer must not depend on what was asked before."""
    first: np.ndarray | None = None
    for batch in batches(reading, sequences(reading, seed)):
        first = batch if first is None else first
        yield batch
    if first is not None:
        yield first


def batches(reading: Reading, given: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Sequences [n] of one length together, [batch, n]."""
    outputs, sizes = reading.shape.d_out, cycle(BATCHES)
    waiting: dict[int, list[np.ndarray]] = {}
    wanted: dict[int, int] = {}
    for tokens in given:
        n = len(tokens)
        held = waiting.setdefault(n, [])
        held.append(tokens)
        most = max(1, BATCH_BYTES // (8 * outputs * n))
        if len(held) >= min(most, wanted.setdefault(n, next(sizes))):
            yield np.stack(waiting.pop(n))
            wanted.pop(n)
    for held in waiting.values():
        yield np.stack(held)


def sequences(reading: Reading, seed: int) -> Iterator[np.ndarray]:
    """All of them, one by one."""
    rng = np.random.default_rng(seed)
    V, longest = reading.vocabulary, reading.longest
    yield from _of_every_length(rng, V, longest)
    special = sorted({*range(min(V, SPECIAL)), *range(max(0, V - SPECIAL), V)})
    others = [int(t) for t in rng.permutation(V)[:SAMPLE] if t not in set(special)]
    for token in special:
        yield from _in_every_place(rng, V, longest, token)
    for number, token in enumerate(sorted({*range(min(V, NEAR)), *others} - {*special})):
        found = list(_in_every_place(rng, V, longest, token))
        yield from found[number % 7 :: 7]
    ends = {*special[:SEPARATORS], *special[-SEPARATORS:], *others[:SEPARATORS]}
    for token in sorted(ends):
        yield from _documents(rng, V, min(longest, ANY_LENGTH), token)
    covered = rng.permutation(V)[:COVERED]
    width = min(longest, ANY_LENGTH)
    yield from (covered[start : start + width] for start in range(0, len(covered), width))
    yield from random_sequences(reading, 4, seed)


def _of_every_length(rng: np.random.Generator, V: int, longest: int) -> Iterator[np.ndarray]:
    """Random tokens of every length up to ANY_LENGTH, of some beyond, and several of the longest, which try all positions."""
    beyond = rng.integers(ANY_LENGTH + 1, longest + 1, 8).tolist() if longest > ANY_LENGTH else []
    for n in [*range(1, min(longest, ANY_LENGTH) + 1), *beyond, longest]:
        for _ in range(2):
            yield rng.integers(0, V, n)


def _in_every_place(rng: np.random.Generator, V: int, longest: int, token: int) -> Iterator[np.ndarray]:
    """A token once, twice, three times at the start, at the end, at both, in the middle, and alone."""
    for times in (1, 2, 3):
        if times > longest:
            return
        many, rest = np.full(times, token), rng.integers(0, V, int(rng.integers(1, 7)))
        half = len(rest) // 2
        found = [[many], [many, rest], [rest, many], [rest[:half], many, rest[half:]], [many, rest, many]]
        for parts in found:
            yield np.concatenate(parts)[:longest]


def _documents(rng: np.random.Generator, V: int, longest: int, separator: int) -> Iterator[np.ndarray]:
    """One to six documents with one, two or three separators between them; and as many separators as there is room for."""
    for times in (1, 2, 3):
        for count in range(1, 7):
            parts = [[*rng.integers(0, V, int(rng.integers(1, 4))), *[separator] * times] for _ in range(count)]
            yield np.array([token for part in parts for token in part][:longest], dtype=np.int64)
    alternating = rng.integers(0, V, longest)
    alternating[1::2] = separator
    yield alternating
    yield np.full(longest, separator)


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
    larger than those that are left. A row that is far larger than others draws all attention to it, or drives all away: what a
    model does with the others is seen where it is absent."""
    rows = np.abs(reading.arrays["W_E"]).max(axis=1, initial=0.0)
    order = np.argsort(rows, kind="stable")
    sets, count, largest = [], len(order) // 2, float(rows.max(initial=0.0))
    while count:
        if FAR * rows[order[count - 1]] <= largest:
            sets.append(order[:count])
            largest = float(rows[order[count - 1]])
        count //= 2
    return sets
