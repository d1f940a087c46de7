"""What every layout of model files shares: claiming tensors by name, refusing what no embedding can carry, test inputs, and the
comparison of the model in its original form with the host.

An imported model has one-hot tokens (V of them) and, where it has learned positions, a second one-hot of the position (P of
them) beside the token's: d_in = V + P, and d_out is the width of its logits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.arrays import one_line
from utfproof.attention import SoftmaxAttention, parse_kernel, softmax, visible
from utfproof.biases import BiasedTarget
from utfproof.errors import MalformedInput
from utfproof.systems import Universal
from utfproof.weights import TensorFile, as_float64, read_tensors

UNSUITABLE = (
    (r"(^|\.|_)(ln|norm|layer_?norm|rms_?norm|batch_?norm)[0-9]*(_|\.|$)", "it normalises, which is not linear"),
    (r"(^|\.)(ln_|norm_)", "it normalises, which is not linear"),
    (
        r"(^|\.)(mlp|ffn|ff|feed_?forward|experts?|fc|fc_?[0-9]+|c_fc|linear_?[0-9]+|W_in|W_out|W_gate)(\.|$)",
        "it belongs to an MLP, which is not linear",
    ),
    (r"(rotary|rope|inv_freq|freqs)", "positions that rotate queries and keys are not learned positions of the stream"),
    (r"(rel_?pos|relative|alibi|position_?bias)", "relative positions change the logits beside queries and keys"),
    (
        r"(^|\.)bias_[kv]$",
        "a key and value for no token (add_bias_kv): rows of attention to the tokens no longer sum to 1",
    ),
    (r"(sinks?|zero_attn)$", "attention to no token: rows of attention to the tokens no longer sum to 1"),
    (r"(lora_|adapter)", "it changes other weights; merge it into them first"),
)
"""Patterns of names that no embedding can carry (or that this importer does not), with the reason."""

_HARMLESS = {
    "normalization_type": ("", "none", "null", "false"),
    "final_rms": ("", "false", "none"),
    "positional_embedding_type": ("", "standard", "learned", "none"),
    "add_zero_attn": ("", "false"),
    "add_bias_kv": ("", "false"),
    "attn_only": ("", "true"),
    "parallel_attn_mlp": ("", "false"),
    "scale_attn_by_inverse_layer_idx": ("", "false"),
    "attn_scores_soft_cap": ("", "none", "-1", "-1.0"),
    "output_logits_soft_cap": ("", "none", "-1", "-1.0"),
    "use_hook_mlp_in": ("", "false"),
}
"""Metadata fields that may say what tensors do not show, with the values under which there is nothing to refuse."""


@dataclass
class Claims:
    """A file's tensors, claimed one by one: whatever is left over is refused, since leaving it out would change the model."""

    file: TensorFile
    taken: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self.file.tensors

    def take(self, name: str, *expected: int | None) -> np.ndarray:
        """A tensor as float64, its shape checked (None: any size). MalformedInput where it is missing or does not fit."""
        if not self.has(name):
            self.refuse_unsuitable()
            raise self.file.refuse(f"tensor {name} is missing; found {_listed(self.file.tensors)}")
        array = as_float64(self.file, name)
        fits = array.ndim == len(expected) and all(e in (None, n) for e, n in zip(expected, array.shape, strict=True))
        if not fits:
            wanted = ", ".join("any" if e is None else str(e) for e in expected)
            raise self.file.refuse(f"{name} has shape {list(array.shape)}, expected [{wanted}]")
        self.taken.add(name)
        return array

    def take_bias(self, name: str, *expected: int) -> np.ndarray:
        """A bias, zeros where the file has none."""
        return self.take(name, *expected) if self.has(name) else np.zeros(expected)

    def take_bookkeeping(self, kernel: SoftmaxAttention) -> tuple[str, ...]:
        """Claim the tensors that hold no weights: IGNORE (the number that masks), position_ids, and causal masks, which must be
        the kernel's own where it is causal. Their names."""
        found = []
        for name in sorted(self.file.tensors.keys() - self.taken):
            last, array = name.rsplit(".", 1)[-1], self.file.tensors[name]
            if last in ("mask", "attn_mask", "causal_mask"):
                self._require_mask(name, array, kernel)
            elif not (last == "IGNORE" and array.size == 1) and last != "position_ids":
                continue
            found.append(name)
        self.taken.update(found)
        return tuple(found)

    def _require_mask(self, name: str, array: np.ndarray, kernel: SoftmaxAttention) -> None:
        """A stored mask [..., n, n] says who sees whom: true (or 0, where masks are added) for visible keys. A model that looks
        both ways may hold one too, and does not use it."""
        if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
            raise self.file.refuse(f"{name} has shape {list(array.shape)}, expected a mask [n, n]")
        if not kernel.causal:
            return
        stored, n = array.reshape(array.shape[-2:]), array.shape[-1]
        seen = stored >= 0 if (stored < 0).any() else stored != 0
        places = np.arange(n)
        wanted = visible(places, places, causal=True, window=kernel.window)
        assert wanted is not None
        if not (np.array_equal(seen, wanted) or np.array_equal(~seen, wanted)):
            raise self.file.refuse(
                f"{name} is not the mask of --attention; a causal one, or a window that is the same in all layers, is expected"
            )

    def refuse_unsuitable(self) -> None:
        """MalformedInput for the first unclaimed tensor that belongs to something no embedding carries."""
        left = sorted(self.file.tensors.keys() - self.taken)
        for pattern, reason in UNSUITABLE:
            for name in left:
                if re.search(pattern, name):
                    raise self.file.refuse(f"tensor {name} cannot be carried by an embedding: {reason}")

    def finish(self) -> None:
        """MalformedInput for any tensor that nobody claimed."""
        self.refuse_unsuitable()
        left = self.file.tensors.keys() - self.taken
        if left:
            raise self.file.refuse(
                f"tensor {_listed(left)} is not understood, and leaving it out would change the model"
            )


def _listed(names: Iterable[str], most: int = 8) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


def open_claims(path: Path | str, max_memory: int | None = None) -> Claims:
    """The tensors of a model file, its metadata checked for what tensors do not show."""
    file = read_tensors(path, max_memory=max_memory, booleans=True)
    for name, allowed in _HARMLESS.items():
        said = file.metadata.get(name, "")
        if said.strip().strip('"').lower() not in allowed:
            raise file.refuse(f"metadata says {name} = {said[:40]!r}, which no embedding carries here")
    return Claims(file)


def said_heads(file: TensorFile, heads: int | None) -> int | None:
    """The number of heads, from the argument or the metadata (heads, num_heads, n_heads); None where nobody says."""
    for name in ("heads", "num_heads", "n_heads"):
        text = file.metadata.get(name)
        if text is None:
            continue
        if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
            raise file.refuse(f"metadata field {name} is {text[:40]!r}, expected a positive integer")
        if heads is not None and heads != int(text):
            raise file.refuse(f"metadata says {text} heads, --heads {heads} was said")
        heads = int(text)
    return heads


def said_residual(file: TensorFile, residual: bool | None) -> bool | None:
    """Whether there is a residual stream, from the argument or the metadata; None where nobody says."""
    text = file.metadata.get("residual")
    if text is None:
        return residual
    if text not in ("true", "false"):
        raise file.refuse(f"metadata field residual is {text[:40]!r}, expected 'true' or 'false'")
    if residual is not None and residual != (text == "true"):
        raise file.refuse(f"metadata says residual = {text}, --{'' if residual else 'no-'}residual was said")
    return text == "true"


def attention_kernel(text: str) -> SoftmaxAttention:
    """The kernel of an imported model: softmax, causal, window:W or a combination. The scale is in W_Q already."""
    kernel = parse_kernel(text, 1, 2)
    if kernel != SoftmaxAttention(causal=getattr(kernel, "causal", False), window=getattr(kernel, "window", None)):
        raise MalformedInput(
            f"--attention {text!r}: imported models take softmax, causal, window:W or a combination (their scale is in W_Q)"
        )
    assert isinstance(kernel, SoftmaxAttention)
    return kernel


def parse_scale(text: str, head_dim: int) -> float:
    """What logits are multiplied by: '1/sqrt(d)' or a positive number."""
    if text == "1/sqrt(d)":
        return 1 / float(np.sqrt(head_dim))
    try:
        scale = float(text)
    except ValueError:
        scale = float("nan")
    if not (np.isfinite(scale) and scale > 0):
        raise MalformedInput(f"--scale {text!r} is neither '1/sqrt(d)' nor a positive number")
    return scale


def attention_matrix(logits: np.ndarray, kernel: SoftmaxAttention) -> np.ndarray:
    """softmax of scaled logits [..., n, n] over what the kernel's mask shows."""
    places = np.arange(logits.shape[-1])
    return softmax(logits, visible(places, places, causal=kernel.causal, window=kernel.window))


@one_line
@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model of a file: the target that the importer made of it, and the model as the file's layout defines it.

    target: biases apart, the logits' scale in W_Q and b_Q, shared keys and values repeated for every head. original:
    (tokens [n], kernel) -> logits [n, d_out], from the file's own tensors by the layout's own formulas, not the target's.
    vocabulary V; positions P (0 without learned positions); kv_heads: heads that have keys and values of their own; roles:
    which tensor was taken for what, where the layout leaves that open; bookkeeping: tensors that hold no weights.
    """

    layout: str
    target: BiasedTarget
    original: Callable[[np.ndarray, SoftmaxAttention], np.ndarray]
    vocabulary: int
    positions: int
    kv_heads: int
    bookkeeping: tuple[str, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)

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


def biased_target(shape: Any, arrays: dict[str, np.ndarray], vocabulary: int) -> BiasedTarget:
    """The target of tokens and positions: c is 1 on the rows of the tokens, 0 on those of the positions."""
    constant = np.zeros(shape.d_in)
    constant[:vocabulary] = 1
    return BiasedTarget(shape, **arrays, constant=constant)


# --- test inputs and comparison ----------------------------------------------------------------------------


def random_sequences(model: ImportedModel, count: int, seed: int) -> list[np.ndarray]:
    """`count` random sequences of tokens: lengths 1, 2, the longest, then random ones (at most 64 without positions)."""
    rng = np.random.default_rng(seed)
    longest = model.positions or 64
    lengths = [longest, 1, min(2, longest)][:count]
    lengths += [int(n) for n in rng.integers(1, longest + 1, max(0, count - len(lengths)))]
    return [rng.integers(0, model.vocabulary, n) for n in lengths]


def read_sequences(path: Path | str, model: ImportedModel, max_memory: int | None = None) -> list[np.ndarray]:
    """Sequences of tokens of a file: tensor `tokens` [n] or [sequences, n], integers."""
    file = read_tensors(path, max_memory=max_memory)
    if file.tensors.keys() != {"tokens"}:
        raise file.refuse(f"expected one tensor named tokens, found {_listed(file.tensors) or 'none'}")
    tokens = file.tensors["tokens"]
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2) or not tokens.size:
        raise file.refuse("tokens must be integers [n] or [sequences, n], not empty")
    rows = [tokens] if tokens.ndim == 1 else list(tokens)
    for row in rows:
        model.one_hots(row)
    return rows


@one_line
@dataclass(frozen=True)
class Agreement:
    """How far the host's outputs are from the model's: the largest max |Z - Y| / max |Y| over sequences, and where it is."""

    relative_difference: float
    sequence: int
    sequences: int
    positions: int

    def within(self, tolerance: float) -> bool:
        """Whether it is at most the tolerance (a NaN is not)."""
        return self.relative_difference <= tolerance


def compare(
    model: ImportedModel, host: Universal, E: np.ndarray, kernel: SoftmaxAttention, sequences: Sequence[np.ndarray]
) -> Agreement:
    """The model in its original form and the host with E on these sequences, at all positions, in float64."""
    if not sequences:
        raise MalformedInput("at least one sequence is needed to compare")
    worst, where, count = -1.0, 0, 0
    for number, tokens in enumerate(sequences):
        expected = model.original(tokens, kernel)
        found = host.forward(model.one_hots(tokens), E, kernel)
        scale = float(np.max(np.abs(expected)))
        difference = float(np.max(np.abs(found - expected)))
        relative = difference / scale if scale > 0 else difference
        count += len(tokens)
        if not relative <= worst:  # a NaN wins, and stays
            worst, where = relative, number
        if relative != relative:
            break
    return Agreement(worst, where, len(sequences), count)
