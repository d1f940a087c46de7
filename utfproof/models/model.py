"""An imported model: the target that was made of it, the model by its own formulas, and what compares them.

One-hot tokens (V of them) and, where there are learned positions, a second one-hot of the position (P of them) beside the
token's: d_in = V + P, and d_out is the width of the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention, parse_kernel
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.attention import Kernel
from utfproof.models.reading import Reading
from utfproof.models.tensors import listed
from utfproof.systems import Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.weights import as_float64, read_tensors

AGREEMENT = 1e-8
"""Largest relative difference of outputs under which two models are called the same."""
UNIT = 1e-12
"""How far from 1 the tokens' part of an input row may be: rounding of its own sum."""


def attention_kernel(text: str) -> SoftmaxAttention:
    """A kernel that is said on the command line: softmax, causal, window:W or a combination. The scale is in W_Q already."""
    kernel = parse_kernel(text, 1, 2)
    if kernel != SoftmaxAttention(causal=getattr(kernel, "causal", False), window=getattr(kernel, "window", None)):
        raise MalformedInput(
            f"--attention {text!r}: imported models take softmax, causal, window:W or a combination (their scale is in W_Q)"
        )
    assert isinstance(kernel, SoftmaxAttention)
    return kernel


def parse_scale(text: str) -> float | str:
    """What logits are multiplied by: '1/sqrt(d)' or a positive number."""
    if text == "1/sqrt(d)":
        return text
    try:
        scale = float(text)
    except ValueError:
        scale = float("nan")
    if not (np.isfinite(scale) and scale > 0):
        raise MalformedInput(f"--scale {text!r} is neither '1/sqrt(d)' nor a positive number")
    return scale


@one_line
@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model as it was read, and on whose authority.

    reading: its tensors and facts. witness: where the model's own outputs come from (a live module, a reference file), None
    where there is nothing but the reading; forward: tokens [n] -> the model's own logits, of a live module; references: tokens
    [n] or inputs [n, V + P] and the model's own logits, of a file. agreement: of the reading with the model's own outputs.
    """

    reading: Reading
    witness: str | None = None
    forward: Callable[[np.ndarray], np.ndarray] | None = None
    references: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    agreement: Agreement | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def layout(self) -> str:
        """The family's name."""
        return self.reading.family.name

    @property
    def target(self) -> BiasedTarget:
        """The target: biases apart, the logits' factor in W_Q and b_Q, shared keys and values repeated for every head."""
        if "target" not in self._cache:
            self._cache["target"] = self.reading.target()
        target: BiasedTarget = self._cache["target"]
        return target

    @property
    def attention(self) -> Kernel:
        """The model's attention, as plain as it is."""
        return self.reading.attention.simplest()

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.reading.vocabulary

    @property
    def positions(self) -> int:
        """P, 0 without learned positions."""
        return self.reading.positions

    @property
    def kv_heads(self) -> int:
        """G, heads that have keys and values of their own."""
        return int(self.reading.arrays["W_K"].shape[1])

    @property
    def bookkeeping(self) -> tuple[str, ...]:
        """Tensors that hold no weights."""
        return self.reading.bookkeeping

    @property
    def roles(self) -> dict[str, str]:
        """Which tensor was taken for what."""
        return {word: self.reading.roles.get(role, "") for word, role in _ROLES.items()}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Facts that change outputs and that neither file, configuration, caller nor the model's own outputs say."""
        return () if self.witness else self.reading.unknown

    def original(self, given: np.ndarray, kernel: Kernel | None = None) -> np.ndarray:
        """Logits [n, d_out] by the model's own formulas, as they were read. given: tokens [n], or inputs [n, V + P]."""
        return self.reading.stages(given, kernel)["logits"]

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, d_out] on the highest authority there is: the module's own forward pass, or the reading."""
        return self.original(tokens) if self.forward is None else self.forward(tokens)

    def one_hots(self, tokens: np.ndarray) -> np.ndarray:
        """X [n, V + P] of these tokens [n]. MalformedInput for tokens outside the vocabulary and for more than P positions."""
        tokens = np.asarray(tokens)
        n = len(tokens)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not n:
            raise MalformedInput("tokens must be a non-empty list of integers")
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.vocabulary:
            raise MalformedInput(f"tokens lie outside 0 ... {self.vocabulary - 1}")
        if self.positions and n > self.positions:
            raise MalformedInput(f"{n} tokens are more than the model's {self.positions} positions")
        x = np.zeros((n, self.vocabulary + self.positions))
        x[np.arange(n), tokens] = 1
        if self.positions:
            x[np.arange(n), self.vocabulary + np.arange(n)] = 1
        return x

    def rows(self, given: np.ndarray) -> np.ndarray:
        """X [n, V + P]: the one-hots of tokens [n], or inputs [n, V + P] as they are. MalformedInput as `one_hots`, and for
        inputs that this model's biases have no constant coordinate in."""
        given = np.asarray(given)
        if given.ndim != 2:
            return self.one_hots(given)
        V, P = self.vocabulary, self.positions
        if not len(given) or given.shape[1] != V + P:
            apart = f", {V} tokens and {P} positions" if P else ""
            raise MalformedInput(
                f"inputs have shape {list(given.shape)}, expected [n, {V + P}] with d_in = {V + P}{apart}"
            )
        sums = given[:, :V].sum(axis=1)
        worst = int(np.argmax(np.abs(sums - 1)))
        if self.reading.biases() != "none" and not abs(sums[worst] - 1) <= UNIT:
            raise MalformedInput(
                f"row {worst} of inputs sums to {sums[worst]:.6g} over the {V} columns of tokens, expected 1: the model has "
                f"biases ({self.reading.biases()}), which a host carries as a constant coordinate of its inputs"
            )
        return given

    def embed(self, host: str | Universal = "sparse", **recipe: Any) -> Any:
        """The embedding under which a host acts as this model, compared on the model's own outputs: an
        `utfproof.models.embedding.EmbeddedModel`. host: a construction's name, or a host; recipe: m, seed, law, dtype."""
        from utfproof.models.embedding import embed_model

        return embed_model(self, host, **recipe)


_ROLES = {"embedding": "W_E", "pos": "W_pos", "unembed": "W_U", "layers": "layers"}

# --- test inputs and comparison ----------------------------------------------------------------------------


def random_sequences(model: ImportedModel | Reading, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones (at most 64 without positions)."""
    reading = model.reading if isinstance(model, ImportedModel) else model
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
    logits, d_in, d_out = as_float64(file, "logits"), model.vocabulary + model.positions, model.target.shape.d_out
    if given == "tokens":
        values = file.tensors["tokens"]
        if values.dtype.kind not in "iu" or values.ndim not in (1, 2) or not values.size:
            raise file.refuse("tokens must be integers [n] or [batch, n], not empty")
        lead, batch = values.shape, np.atleast_2d(values)
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
    """How far outputs are from the model's: the largest max |Z - Y| / max |Y| over sequences, and where it is."""

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


def agreement(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Agreement:
    """Of (found, expected) outputs [n, d_out], sequence by sequence. MalformedInput for none."""
    if not pairs:
        raise MalformedInput("at least one sequence is needed to compare")
    worst, where, count = -1.0, 0, 0
    for number, (found, expected) in enumerate(pairs):
        relative = relative_difference(found, expected)
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
