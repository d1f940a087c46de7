"""Sequences on which a model is tried: structured ones, since a model may do something else at one length, one position, for
one token, for several separators, for padding, or for one place in a batch; and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, permutations

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
    """All of them, one by one: first those that always are tried, then others within LOGITS."""
    rng = np.random.default_rng(seed)
    rows = LOGITS // reading.shape.d_out
    every = -(-STRUCTURED // rows)
    for number, tokens in enumerate(_structured(rng, reading)):
        if not number % every:
            yield tokens
            rows -= len(tokens)
    for tokens in chain(_of_some_lengths(rng, reading), random_sequences(reading, 4, seed)):
        yield tokens
        rows -= len(tokens)
    for tokens in chain(_near(rng, reading), _of_all_tokens(rng, reading)):
        if (rows := rows - len(tokens)) < 0:
            return
        yield tokens


def _of_some_lengths(rng: np.random.Generator, reading: Reading) -> Iterator[np.ndarray]:
    """Random tokens of every length up to ANY_LENGTH, of some beyond, and of the longest, which tries all positions."""
    V, longest = reading.vocabulary, reading.longest
    beyond = rng.integers(ANY_LENGTH + 1, longest + 1, 8).tolist() if longest > ANY_LENGTH else []
    lengths = [*range(1, min(longest, ANY_LENGTH) + 1), *beyond, longest]
    times = 2 if 2 * sum(lengths) <= LOGITS // (4 * reading.shape.d_out) else 1
    for n in lengths:
        for _ in range(times):
            yield rng.integers(0, V, n)


def _special(V: int) -> list[int]:
    """SPECIAL ids at either end."""
    return sorted({*range(min(V, SPECIAL)), *range(max(0, V - SPECIAL), V)})


def _structured(rng: np.random.Generator, reading: Reading) -> Iterator[np.ndarray]:
    """Special tokens in every place, pairs of them, documents, copies."""
    V, longest = reading.vocabulary, reading.longest
    special = _special(V)
    marks = sorted({*special[:SEPARATORS], *special[-SEPARATORS:], *(t for t in WORD_PIECES if t < V)})
    yield from _copies(rng, V, longest)
    for token in special:
        yield from _in_every_place(rng, V, longest, token)
    for pair in permutations(marks, 2):
        yield from _pairs(rng, V, longest, *pair)
    for token in marks:
        yield from _documents(rng, V, min(longest, ANY_LENGTH), token)
        yield from _at_every_position(rng, V, longest, token)


def _near(rng: np.random.Generator, reading: Reading) -> Iterator[np.ndarray]:
    """NEAR ids and SAMPLE others in some places, and between documents of one token."""
    V, longest = reading.vocabulary, reading.longest
    tokens = {*range(min(V, NEAR)), *rng.permutation(V)[:SAMPLE].tolist()} - {*_special(V)}
    for number, token in enumerate(sorted(tokens)):
        found = list(_in_every_place(rng, V, longest, token))
        yield from found[number % 7 :: 7]
        yield _alternating(rng, V, min(longest, PLACES), token)


def _of_all_tokens(rng: np.random.Generator, reading: Reading) -> Iterator[np.ndarray]:
    """COVERED tokens, each in one place."""
    covered = rng.permutation(reading.vocabulary)[:COVERED]
    width = min(reading.longest, ANY_LENGTH)
    return (covered[start : start + width] for start in range(0, len(covered), width))


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
    """One to six documents with one, two or three separators between them, and many separators."""
    for times in (1, 2, 3):
        for count in range(1, 7):
            parts = [[*rng.integers(0, V, int(rng.integers(1, 4))), *[separator] * times] for _ in range(count)]
            yield np.array([token for part in parts for token in part][:longest], dtype=np.int64)
    room = min(longest, PLACES)
    yield _alternating(rng, V, room, separator)
    yield np.full(room, separator)


def _alternating(rng: np.random.Generator, V: int, n: int, separator: int) -> np.ndarray:
    """Documents of one token."""
    tokens = rng.integers(0, V, n)
    tokens[1::2] = separator
    return tokens


def _pairs(rng: np.random.Generator, V: int, longest: int, first: int, last: int) -> Iterator[np.ndarray]:
    """One token at the start, another at the end, and once more in the middle."""
    inner = [rng.integers(0, V, int(n)) for n in rng.integers(1, 5, 2)]
    for tokens in ([first, *inner[0], last], [first, *inner[0], last, *inner[1], last]):
        if len(tokens) <= longest:
            yield np.array(tokens, dtype=np.int64)


def _at_every_position(rng: np.random.Generator, V: int, longest: int, token: int) -> Iterator[np.ndarray]:
    """The token once, at each of the first PLACES positions."""
    for position in range(min(longest, PLACES)):
        n = int(rng.integers(position + 1, min(longest, position + 4) + 1))
        tokens = (token + rng.integers(1, V, n)) % V if V > 1 else np.zeros(n, dtype=np.int64)
        tokens[position] = token
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
    rows = np.abs(reading.arrays["W_E"]).reshape(reading.vocabulary, -1).max(axis=1, initial=0.0)
    order = np.argsort(rows, kind="stable")
    sets, count, largest = [], len(order) // 2, float(rows.max(initial=0.0))
    while count:
        if FAR * rows[order[count - 1]] <= largest:
            sets.append(order[:count])
            largest = float(rows[order[count - 1]])
        count //= 2
    return sets
