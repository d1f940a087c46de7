"""Test inputs of a model, its own outputs from a file, and what compares outputs with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.attention import Kernel
from utfproof.models.family import ANY_LENGTH
from utfproof.models.reading import Reading
from utfproof.models.sizes import AGREEMENT, ROUNDING, Sizes
from utfproof.models.tensors import listed
from utfproof.systems import Universal
from utfproof.weights import as_float64, read_tensors

if TYPE_CHECKING:
    from utfproof.models.model import ImportedModel

FAR = 100.0
"""Tokens whose rows are so many times as large as others' are left out of some sequences."""
COVERED = 4096
"""Most tokens of a vocabulary that are all tried."""
BEYOND = "undecided: an output of the host is beyond float64, so that nothing can be compared; nothing is written"


def covering_sequences(reading: Reading, seed: int) -> list[np.ndarray]:
    """Sequences in which every token of the vocabulary stands once, or COVERED of them do: what a model does with a single
    token, padding say, is seen so."""
    tokens = np.random.default_rng(seed).permutation(reading.vocabulary)[:COVERED]
    longest = min(reading.longest, ANY_LENGTH)
    return [tokens[start : start + longest] for start in range(0, len(tokens), longest)]


def random_sequences(model: ImportedModel | Reading, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones (at most 64 without positions). Where
    tokens' rows are of very different sizes, one more of the longest for each set of `ordinary_tokens`."""
    reading = model if isinstance(model, Reading) else model.reading
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


def extent(reading: Reading, sequences: Sequence[np.ndarray]) -> str:
    """What of a model was tried, for people, where that is not all of its tokens and positions. sequences: tokens [n], or
    inputs [n, V + P]."""
    longest, tokens = max(map(len, sequences)), [given for given in sequences if given.ndim == 1]
    seen = len(np.unique(np.concatenate(tokens))) if tokens else reading.vocabulary
    parts = [f"{seen} of its {reading.vocabulary} tokens"] if seen < reading.vocabulary else []
    parts += [f"contexts of at most {longest} tokens"] if longest != reading.positions else []
    return f" on {', in '.join(parts)}" if parts else ""


def read_sequences(path: Path | str, model: ImportedModel, max_memory: int | None = None) -> list[np.ndarray]:
    """Sequences of tokens of a file: tensor `tokens` [n] or [sequences, n], integers."""
    file = read_tensors(path, max_memory=max_memory)
    if file.tensors.keys() != {"tokens"}:
        raise file.refuse(f"expected one tensor named tokens, found {listed(file.tensors) or 'none'}")
    tokens = file.tensors["tokens"]
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2) or not tokens.size:
        raise file.refuse("tokens must be integers [n] or [sequences, n], not empty")
    rows = [tokens] if tokens.ndim == 1 else list(tokens)
    for row in rows:
        model.one_hots(row)
    return rows


def read_reference(
    path: Path | str, model: ImportedModel, max_memory: int | None = None
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """What the model was given and its own logits: tensors `tokens` [n] or [batch, n], integers, or `inputs` [n, d_in] or
    [batch, n, d_in], floats with d_in = V + P, and `logits` [n, d_out] or [batch, n, d_out]. MalformedInput where they do
    not fit the model."""
    file = read_tensors(path, max_memory=max_memory)
    given = next(iter(file.tensors.keys() - {"logits"}), "")
    if file.tensors.keys() not in ({"tokens", "logits"}, {"inputs", "logits"}):
        found = listed(file.tensors) or "nothing"
        raise file.refuse(f"a reference holds tokens and logits, or inputs and logits, found {found}")
    logits, d_in, d_out = as_float64(file, "logits"), model.shape.d_in, model.shape.d_out
    if given == "tokens":
        values = file.tensors["tokens"]
        if values.dtype.kind not in "iu" or values.ndim not in (1, 2) or not values.size:
            raise file.refuse("tokens must be integers [n] or [batch, n], not empty")
        lead, batch = values.shape, np.atleast_2d(values)
    elif model.reading.norm is not None:
        raise file.refuse(
            "a model with norms is compared on tokens: its host has a row for each token at each position"
        )
    else:
        values = file.tensors["inputs"]
        if values.dtype.kind != "f" or values.ndim not in (2, 3) or not values.size or values.shape[-1] != d_in:
            found = f"{values.dtype} {list(values.shape)}"
            raise file.refuse(
                f"inputs are {found}, expected floats [n, {d_in}] or [batch, n, {d_in}], not empty: {model.vocabulary} columns "
                f"for tokens, then {model.positions} for positions"
            )
        values = as_float64(file, "inputs")
        lead, batch = values.shape[:-1], values.reshape(-1, *values.shape[-2:])
    if logits.shape != (*lead, d_out):
        raise file.refuse(f"logits has shape {list(logits.shape)}, expected {[*lead, d_out]}")
    for part in batch:
        try:
            model.rows(part)
        except MalformedInput as error:
            raise file.refuse(str(error)) from error
    return tuple(zip(batch, logits.reshape(len(batch), -1, d_out), strict=True))


@one_line
@dataclass(frozen=True)
class Agreement:
    """How far outputs are from the model's: the largest |Z - Y| over how far that output moves (`scales`), and in which
    sequence it is; NaN where an output of the host is beyond float64, so that nothing is known."""

    relative_difference: float
    sequence: int
    sequences: int
    positions: int

    def within(self, tolerance: float) -> bool:
        """Whether it is at most the tolerance (a NaN is not)."""
        return self.relative_difference <= tolerance

    def decided(self, tolerance: float) -> bool | None:
        """The same, None where nothing is known."""
        return None if np.isnan(self.relative_difference) else self.within(tolerance)


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """max |Z - Y| / max |Y|, absolute where Y is zero."""
    scale = float(np.max(np.abs(expected), initial=0.0))
    difference = float(np.max(np.abs(found - expected), initial=0.0))
    return difference / scale if scale > 0 else difference


def scales(rows: np.ndarray) -> np.ndarray:
    """Of outputs [n, d_out]: half of how far each one moves over the rows, no less than the median one does, [d_out]. A large
    constant, such as -1e9 on tokens that are never to be said, so hides nothing that the numbers can show; outputs that do not
    move are measured by their size. MalformedInput for outputs that are not finite."""
    if not np.isfinite(rows).all():
        raise MalformedInput(
            "outputs are not finite: weights or inputs are too large for float64, nothing can be compared"
        )
    size = np.abs(rows).max(axis=0, initial=0.0)
    moves = rows.max(axis=0) / 2 - rows.min(axis=0) / 2  # halved first: the difference may overflow
    moves = np.maximum(moves, np.median(moves))
    shown = np.where(moves > ROUNDING * size, moves, size.max(initial=0.0) or 1.0)
    return np.asarray(np.maximum(shown, ROUNDING / AGREEMENT * size))


def row_scales(expected: np.ndarray, sizes: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """[n, d_out]: what each output's terms amount to (`Sizes`) or how far it is from its constant [d_out], if that is more; no
    less than what the output's last digits let be seen."""
    return np.maximum(np.maximum(sizes, np.abs(expected - constant)), ROUNDING / AGREEMENT * np.abs(expected))


def agreement(pairs: Sequence[tuple[np.ndarray, np.ndarray]], rows: Sequence[np.ndarray] | None = None) -> Agreement:
    """Of (found, expected) outputs [n, d_out], sequence by sequence. rows: for each its `row_scales`, by which outputs are
    measured as well: how far outputs move at all is the measure of one sequence with a row of 1e9 and of none without.
    MalformedInput for no pairs, and for outputs that are not finite."""
    if not pairs:
        raise MalformedInput("at least one sequence is needed to compare")
    worst, where, count = -1.0, 0, 0
    scale = scales(np.concatenate([expected for _, expected in pairs]))
    for number, (found, expected) in enumerate(pairs):
        measure = scale if rows is None else np.minimum(scale, rows[number])
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite difference is the largest
            off = np.abs(found - expected) / measure if np.isfinite(found).all() else np.array(np.nan)
            relative = float(np.max(off, initial=0.0))
        count += len(expected)
        if not relative <= worst:  # a NaN wins, and stays
            worst, where = relative, number
        if relative != relative:
            break
    return Agreement(worst, where, len(pairs), count)


def measured(
    reading: Reading,
    given: Sequence[np.ndarray],
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    kernel: Kernel | None = None,
) -> Agreement:
    """The `agreement` of (found, expected) outputs on these tokens [n] or inputs [n, V + P], rows measured by their own sizes.
    kernel: another attention than the reading's."""
    sizes = Sizes(reading)
    rows = [
        row_scales(expected, sizes(x, kernel), reading.arrays["b_U"])
        for x, (_, expected) in zip(given, pairs, strict=True)
    ]
    return agreement(pairs, rows)


def compare(
    model: ImportedModel,
    host: Universal,
    E: np.ndarray,
    kernel: Kernel | None,
    sequences: Sequence[np.ndarray],
) -> Agreement:
    """The host with E on these sequences, and on those of the model's references, against the model's outputs, at all
    positions, in float64. kernel: another attention than the model's, in both."""

    def host_outputs(given: np.ndarray) -> np.ndarray:
        return host.forward(model.rows(given), E, model.attention if kernel is None else kernel)

    own = model.outputs if kernel is None else lambda tokens: model.original(tokens, kernel)
    pairs = [(host_outputs(tokens), own(tokens)) for tokens in sequences]
    references = model.references if kernel is None else ()
    pairs += [(host_outputs(given), logits) for given, logits in references]
    return measured(model.reading, [*sequences, *(given for given, _ in references)], pairs, kernel)
