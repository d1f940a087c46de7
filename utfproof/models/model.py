"""An imported model: the target that was made of it, the model by its own formulas, and what compares them.

One-hot tokens (V of them) and, where there are learned positions, a second one-hot of the position (P of them) beside the
token's: d_in = V + P, and d_out is the width of the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention, parse_kernel
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.alternatives import left_open
from utfproof.models.attention import Kernel
from utfproof.models.comparison import Agreement
from utfproof.models.embedding import embed_model
from utfproof.models.family import FACTS
from utfproof.models.normalised import embed_normalised
from utfproof.models.reading import Reading
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget

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
    def shape(self) -> Shape:
        """The model's own: d_in = V + P."""
        L, H, _, d = self.reading.arrays["W_Q"].shape
        outputs = self.reading.arrays["W_U"].shape[1]
        return Shape(H, L, d, self.vocabulary + self.positions, outputs, residual=self.reading.stream)

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
        """Facts that change outputs and that neither file, configuration, caller nor the model's own outputs say. Outputs say a
        fact where no other reading gives them (`left_open`): those for one token, or for one token many times, say nothing of
        attention, and those of contexts shorter than there may be nothing of windows."""
        if self.witness is None:
            return self.reading.unknown
        if self.forward is not None:
            return ()
        if "unknown" not in self._cache:
            self._cache["unknown"] = left_open(self.reading, self.references)
        found: tuple[str, ...] = self._cache["unknown"]
        return found

    def acted_as(self, notion: str) -> str:
        """What a host that gives its outputs acts as, by this notion, and on whose word."""
        if self.witness is None:
            return f"this reading of the file, by {notion}; nothing here compares the reading with the model"
        if self.unknown:
            left = ", ".join(FACTS[name] for name in self.unknown)
            return f"this reading of the file, by {notion}: {self.witness} agree with it and do not show all: {left}"
        return f"the model, by {notion}: compared with {self.witness}"

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

    def embed(self, host: Any = None, **recipe: Any) -> Any:
        """The embedding under which a host acts as this model, compared on the model's own outputs: an
        `utfproof.models.embedding.EmbeddedModel`. host: a construction's name (sparse by default), or a host; recipe: m,
        seed, law, dtype. A model with norms is embedded in a host with a norm of its own:
        `utfproof.models.normalised.embed_normalised`."""
        if self.reading.norm is not None:
            return embed_normalised(self, host, **recipe)
        return embed_model(self, "sparse" if host is None else host, **recipe)


_ROLES = {"embedding": "W_E", "pos": "W_pos", "unembed": "W_U", "layers": "layers"}
