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
from utfproof.models.tensors import listed
from utfproof.systems import Universal
from utfproof.weights import as_float64, read_tensors

if TYPE_CHECKING:
    from utfproof.models.model import ImportedModel

AGREEMENT = 1e-8
"""Largest relative difference of outputs under which two models are called the same."""

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Of an output's size: what the numbers that are compared may lose by being written down."""
COVERED = 4096
"""Most tokens of a vocabulary that are all tried."""


def covering_sequences(reading: Reading, seed: int) -> list[np.ndarray]:
    """Sequences in which every token of the vocabulary stands once, or COVERED of them do: what a model does with a single
    token, padding say, is seen so."""
    tokens = np.random.default_rng(seed).permutation(reading.vocabulary)[:COVERED]
    longest = min(reading.longest, ANY_LENGTH)
    return [tokens[start : start + longest] for start in range(0, len(tokens), longest)]


def random_sequences(model: ImportedModel | Reading, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones (at most 64 without positions)."""
    reading = model if isinstance(model, Reading) else model.reading
    rng = np.random.default_rng(seed)
    longest = reading.longest
    lengths = [longest, 1, min(2, longest)][:count]
    lengths += [int(n) for n in rng.integers(1, longest + 1, max(0, count - len(lengths)))]
    return [rng.integers(0, reading.vocabulary, n) for n in lengths]


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
    sequence it is."""

    relative_difference: float
    sequence: int
    sequences: int
    positions: int

    def within(self, tolerance: float) -> bool:
        """Whether it is at most the tolerance (a NaN is not)."""
        return self.relative_difference <= tolerance


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """max |Z - Y| / max |Y|, absolute where Y is zero."""
    scale = float(np.max(np.abs(expected), initial=0.0))
    difference = float(np.max(np.abs(found - expected), initial=0.0))
    return difference / scale if scale > 0 else difference


def scales(rows: np.ndarray) -> np.ndarray:
    """Of outputs [n, d_out]: half of how far each one moves over the rows, no less than the median one does, [d_out]. A large
    constant, such as -1e9 on tokens that are never to be said, so hides nothing that the numbers can show; outputs that do not
    move are measured by their size."""
    size = np.abs(rows).max(axis=0, initial=0.0)
    moves = np.ptp(rows, axis=0) / 2
    moves = np.maximum(moves, np.median(moves))
    shown = np.where(moves > ROUNDING * size, moves, size.max(initial=0.0) or 1.0)
    return np.asarray(np.maximum(shown, ROUNDING / AGREEMENT * size))


def agreement(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Agreement:
    """Of (found, expected) outputs [n, d_out], sequence by sequence. MalformedInput for none."""
    if not pairs:
        raise MalformedInput("at least one sequence is needed to compare")
    worst, where, count = -1.0, 0, 0
    scale = scales(np.concatenate([expected for _, expected in pairs]))
    for number, (found, expected) in enumerate(pairs):
        relative = float(np.max(np.abs(found - expected) / scale, initial=0.0))
        count += len(expected)
        if not relative <= worst:  # a NaN wins, and stays
            worst, where = relative, number
        if relative != relative:
            break
    return Agreement(worst, where, len(pairs), count)


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
    pairs += [(host_outputs(given), logits) for given, logits in model.references] if kernel is None else []
    return agreement(pairs)
