"""What compares outputs with a model's own, batch by batch, so that no more than a batch is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.attention import Kernel
from utfproof.models.reading import Reading
from utfproof.models.tensors import listed
from utfproof.systems import Universal
from utfproof.weights import as_float64, read_tensors

AGREEMENT = 1e-8
"""Largest relative difference of outputs under which two models are called the same."""
ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Of a size: what the numbers that are compared may lose by being written down."""
SMALL_ROW = 1e-3
"""Rows whose outputs are smaller than this part of the sequence's median row are measured as if they were so large."""
CACHED = 2**15
"""Numbers that are compared at a time."""
BEYOND = "undecided: an output of the host is beyond float64, so that nothing can be compared; nothing is written"


@dataclass(frozen=True)
class Difference:
    """One output: its sequence, position and number, what was found there and what is right."""

    tokens: tuple[int, ...]
    position: int
    output: int
    found: float
    expected: float

    def words(self, found: str, expected: str) -> str:
        """For people; found and expected: who gave them."""
        shown = ", ".join(map(str, self.tokens[:12])) + (", ..." if len(self.tokens) > 12 else "")
        where = f"{len(self.tokens)} tokens [{shown}], position {self.position}, output {self.output}"
        return f"{where}: {found} {self.found:.9g}, {expected} {self.expected:.9g}"


@one_line
@dataclass(frozen=True)
class Agreement:
    """How far outputs are from the model's: the largest |Z - Y| over how far that output moves, or over the size of the row's
    outputs; NaN where an output of the host is beyond float64, so that nothing is known. first: the first output that is
    further off than AGREEMENT."""

    relative_difference: float
    sequence: int
    sequences: int
    positions: int
    first: Difference | None = None

    def within(self, tolerance: float) -> bool:
        """Whether it is at most the tolerance (a NaN is not)."""
        return self.relative_difference <= tolerance

    def decided(self, tolerance: float) -> bool | None:
        """The same, None where nothing is known."""
        return None if np.isnan(self.relative_difference) else self.within(tolerance)


class Comparison:
    """Compares outputs sequence by sequence; running maxima are all that is kept. constant [d_out]: what no row moves.

    An output is measured by half of how far it moves over all rows, no less than the median output does: a large constant, such
    as -1e9 on tokens that are never to be said, hides nothing. Each row is also measured by its own outputs, so that one huge
    row hides no difference in another. No measure is less than what the last digits of float64 show.
    """

    def __init__(self, constant: np.ndarray) -> None:
        self.constant = constant
        self.count = self.rows = self.sequence = 0
        self.high, self.low = np.full(len(constant), -np.inf), np.full(len(constant), np.inf)
        self.off = np.zeros(len(constant))
        self.by_row = 0.0
        self.undecided = False
        self.first: Difference | None = None

    def add(self, given: np.ndarray, found: np.ndarray, expected: np.ndarray) -> None:
        """Outputs [n, d_out] for tokens [n] or inputs [n, d_in]. MalformedInput where the model's own are not finite."""
        high, low, rows = self._sizes(expected)
        if not (np.isfinite(high).all() and np.isfinite(low).all()):
            raise MalformedInput(
                "outputs are not finite: weights or inputs are too large for float64, nothing can be compared"
            )
        self.count, self.rows = self.count + 1, self.rows + len(expected)
        self.high, self.low = np.maximum(self.high, high), np.minimum(self.low, low)
        if not all(np.isfinite(found[part]).all() for part in _parts(*found.shape)):
            self.undecided, self.sequence = True, self.count - 1
            return
        off, by_row = np.zeros(len(self.off)), 0.0
        for part in _parts(*expected.shape):
            apart = _apart(found[part], expected[part])
            off = np.maximum(off, apart.max(axis=0))
            with np.errstate(over="ignore", invalid="ignore"):
                no_larger = bool((apart.max(axis=1) <= self.by_row * rows[part]).all())
            if not no_larger:
                by_row = max(by_row, float(_by_rows(apart, expected[part], rows[part]).max()))
        self.off = np.maximum(self.off, off)
        if by_row > self.by_row:
            self.by_row, self.sequence = by_row, self.count - 1
        seen = by_row > AGREEMENT or (off > ROUNDING * np.maximum(self.high, -self.low)).any()
        if not seen or self.first is not None:
            return
        apart = _apart(found, expected)
        worst = np.maximum(_by_rows(apart, expected, rows), apart / self._scales()) > AGREEMENT
        if worst.any():
            row, column = (int(i) for i in np.argwhere(worst)[0])
            tokens = tuple(int(t) for t in given) if given.ndim == 1 else (-1,) * len(given)
            self.first = Difference(tokens, row, column, float(found[row, column]), float(expected[row, column]))

    def _sizes(self, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The largest and the smallest of each output, and the largest of each row beside the constant."""
        high, low, rows = np.full(len(self.constant), -np.inf), np.full(len(self.constant), np.inf), []
        for part in _parts(*expected.shape):
            values = expected[part]
            high, low = np.maximum(high, values.max(axis=0)), np.minimum(low, values.min(axis=0))
            rows.append(_apart(values, self.constant).max(axis=1))
        sizes = np.concatenate(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            return high, low, np.asarray(np.maximum(sizes, SMALL_ROW * np.median(sizes)))

    def _scales(self) -> np.ndarray:
        """[d_out]: half of how far each output moves, no less than the median one does; those that do not move by their
        size."""
        size = np.maximum(np.abs(self.high), np.abs(self.low))
        moves = self.high / 2 - self.low / 2  # halved first: the difference may overflow
        moves = np.maximum(moves, np.median(moves))
        shown = np.where(moves > ROUNDING * size, moves, size.max(initial=0.0) or 1.0)
        return np.asarray(np.maximum(shown, ROUNDING / AGREEMENT * size))

    def result(self) -> Agreement:
        """What was found. MalformedInput where nothing was compared."""
        if not self.count:
            raise MalformedInput("at least one sequence is needed to compare")
        with np.errstate(over="ignore"):
            worst = max(self.by_row, float((self.off / self._scales()).max()))
        relative = float("nan") if self.undecided else worst
        return Agreement(relative, self.sequence, self.count, self.rows, self.first)


def _parts(rows: int, columns: int) -> list[slice]:
    """Rows some at a time, which a processor's cache holds."""
    step = max(1, CACHED // columns)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _apart(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|found - expected|, infinite where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.abs(found - expected))


def _by_rows(apart: np.ndarray, expected: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Differences over the sizes of the rows; zero where nothing of a row moves."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.maximum(rows[:, None], ROUNDING / AGREEMENT * np.abs(expected))
        sizes[sizes <= 0] = np.inf
        return np.asarray(apart / sizes)


Triples = Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
"""(tokens or inputs, outputs found, the model's own)."""


def compared(reading: Reading, triples: Triples) -> Agreement:
    """The `Agreement` of these outputs."""
    comparison = Comparison(reading.arrays["b_U"])
    for given, found, expected in triples:
        comparison.add(reading.shown(given) if given.ndim == 1 else given, found, expected)
    return comparison.result()


def compare_outputs(
    reading: Reading, outputs: Callable[[np.ndarray], np.ndarray], sequences: Sequence[np.ndarray]
) -> Agreement:
    """A host's outputs (tokens [n] or inputs [n, d_in] -> [n, d_out]) against the model's own, on these sequences and on those
    of its references."""

    def triples() -> Triples:
        for tokens in sequences:
            yield tokens, outputs(tokens), reading.outputs(tokens)
        for given, logits in reading.references:
            yield given, outputs(given), logits

    return compared(reading, triples())


def compare(
    reading: Reading, host: Universal, E: np.ndarray, kernel: Kernel | None, sequences: Sequence[np.ndarray]
) -> Agreement:
    """The host with E on these sequences, and on those of the model's references, against the model's outputs, at all
    positions, in float64. kernel: another attention than the model's, in both."""

    def outputs(given: np.ndarray) -> np.ndarray:
        return host.forward(reading.rows(given), E, reading.kernel if kernel is None else kernel)

    if kernel is None:
        return compare_outputs(reading, outputs, sequences)
    return compared(reading, ((t, outputs(t), reading.original(t, kernel)) for t in sequences))


def read_sequences(path: Path | str, reading: Reading, max_memory: int | None = None) -> list[np.ndarray]:
    """Sequences of tokens of a file: tensor `tokens` [n] or [sequences, n], integers."""
    file = read_tensors(path, max_memory=max_memory)
    if file.tensors.keys() != {"tokens"}:
        raise file.refuse(f"expected one tensor named tokens, found {listed(file.tensors) or 'none'}")
    tokens = file.tensors["tokens"]
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2) or not tokens.size:
        raise file.refuse("tokens must be integers [n] or [sequences, n], not empty")
    rows = [reading.numbers(row) for row in np.atleast_2d(tokens)]
    for row in rows:
        reading.one_hots(row)
    return rows


def read_reference(
    path: Path | str, reading: Reading, max_memory: int | None = None
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """What the model was given and its own logits: tensors `tokens` [n] or [batch, n], integers, or `inputs` [n, d_in] or
    [batch, n, d_in], floats with d_in = V + P, and `logits` [n, d_out] or [batch, n, d_out]. MalformedInput where they do
    not fit the model."""
    file = read_tensors(path, max_memory=max_memory)
    if file.tensors.keys() not in ({"tokens", "logits"}, {"inputs", "logits"}):
        found = listed(file.tensors) or "nothing"
        raise file.refuse(f"a reference holds tokens and logits, or inputs and logits, found {found}")
    logits, d_in, d_out = as_float64(file, "logits"), reading.shape.d_in, reading.shape.d_out
    if "tokens" in file.tensors:
        values = file.tensors["tokens"]
        if values.dtype.kind not in "iu" or values.ndim not in (1, 2) or not values.size:
            raise file.refuse("tokens must be integers [n] or [batch, n], not empty")
        lead, batch = values.shape, np.atleast_2d(values)
    elif reading.norm is not None:
        raise file.refuse(
            "a model with norms is compared on tokens: its host has a row for each token at each position"
        )
    else:
        values = file.tensors["inputs"]
        if values.dtype.kind != "f" or values.ndim not in (2, 3) or not values.size or values.shape[-1] != d_in:
            raise file.refuse(
                f"inputs are {values.dtype} {list(values.shape)}, expected floats [n, {d_in}] or [batch, n, {d_in}], not "
                f"empty: {reading.vocabulary} columns for tokens, then {reading.positions} for positions"
            )
        values = as_float64(file, "inputs")
        lead, batch = values.shape[:-1], values.reshape(-1, *values.shape[-2:])
    if logits.shape != (*lead, d_out):
        raise file.refuse(f"logits has shape {list(logits.shape)}, expected {[*lead, d_out]}")
    for part in batch:
        try:
            reading.rows(part)
        except MalformedInput as error:
            raise file.refuse(str(error)) from error
    return tuple(zip(batch, logits.reshape(len(batch), -1, d_out), strict=True))
