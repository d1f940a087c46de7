"""`Reading`: a model in this package's own axes, its own formulas, the target that is made of it, and the evidence that they
are the model's.

One-hot tokens (V of them) and, where there are learned positions, a second one-hot of the position (P of them) beside the
token's: d_in = V + P, and d_out is the width of the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.attention import Kernel, ModelAttention
from utfproof.models.configuration import FACTS
from utfproof.models.coverage import Coverage
from utfproof.models.norms import OwnNorm
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget

NORMALISED = (
    "it normalises its rows, which no embedding before and no readout after it can take over: a host without a norm of its own "
    "serves such models in one layer only, one with a norm in at most two (docs/proofs/normalisation.md); "
    "HOST own-norm, or embed_normalised, is for those"
)
LAYER_ROLES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
ANY_LENGTH = 64
"""Positions of a model without learned ones: nobody says how many, tests go to this many, or just beyond its windows."""
LONGEST = 1024
"""Most positions without learned ones that are tried."""
PARTS = "parts"
"""The family of a model that is given by its matrices."""
UNIT = 1e-12
"""How far from 1 the tokens' part of an input row may be: rounding of its own sum."""

Forward = Callable[[np.ndarray], np.ndarray]
"""Tokens [batch, n] -> the model's own logits [batch, n, d_out] in float64."""


@one_line
@dataclass(frozen=True, eq=False)
class Reading:
    """A model as it was read. arrays: W_E [V, D], W_pos [P, D], W_U [D, O], b_U [O], and per layer W_Q [L, H, D, d], W_K, W_V
    [L, G, D, d], W_O [L, H, d, D], b_Q [L, H, d], b_K, b_V [L, G, d], b_O [L, D]; factors: what each layer's logits are
    multiplied by. facts: every fact that changes outputs, as it was taken and on whose word; unknown: those that nobody says;
    not_read: names of metadata; left_out: tensors that hold no weights. norm: where rows are normalised, its gains and biases
    being part of the matrices. witness: whose outputs were compared (a live module, a reference file), None where there is
    nothing but the reading; coverage: on which inputs; forward: the module's own; references: (tokens [n] or inputs
    [n, V + P], logits) of a file; difference: the largest relative one. ids [V]: of a part of a model (`part`), the model's own
    token ids; tokens are then numbers 0 ... V-1, W_E has a row for each token at each position, and P is `context`."""

    family: str
    title: str
    arrays: dict[str, np.ndarray]
    factors: tuple[float, ...]
    attention: ModelAttention
    stream: bool
    shortformer: bool = False
    norm: OwnNorm | None = None
    context: int = ANY_LENGTH
    facts: dict[str, str] | None = None
    unknown: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    witness: str | None = None
    coverage: Coverage | None = None
    forward: Forward | None = None
    references: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    difference: float | None = None
    ids: np.ndarray | None = None

    @property
    def pairs(self) -> bool:
        """Whether W_E has a row for every token at every position, row token P + position: a part of a model."""
        return self.ids is not None

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.arrays["W_E"] if self.ids is None else self.ids)

    @property
    def positions(self) -> int:
        """P, 0 where positions are not in E."""
        return self.context if self.pairs else len(self.arrays["W_pos"])

    @property
    def d_in(self) -> int:
        """Rows of E: V + P, or V P."""
        return len(self.arrays["W_E"]) + len(self.arrays["W_pos"])

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        """Numbers 0 ... V-1 of the model's own token ids. MalformedInput for ids that the part does not hold."""
        if self.ids is None:
            return tokens
        same = tokens[..., None] == self.ids
        if not same.any(axis=-1).all():
            raise MalformedInput(f"tokens lie outside the part's {self.vocabulary} token ids")
        return np.asarray(same.argmax(axis=-1))

    def shown(self, given: np.ndarray) -> np.ndarray:
        """The model's own token ids of numbers 0 ... V-1, for people."""
        return given if self.ids is None else self.ids[given]

    @property
    def kv_heads(self) -> int:
        """G, heads that have keys and values of their own."""
        return int(self.arrays["W_K"].shape[1])

    @property
    def shape(self) -> Shape:
        """The model's own: d_in = V + P."""
        L, H, _, d = self.arrays["W_Q"].shape
        outputs = self.arrays["W_U"].shape[1]
        return Shape(H, L, d, self.d_in, outputs, residual=self.stream)

    @property
    def longest(self) -> int:
        """The longest context to try."""
        tables = [len(layer.rotary.cos) for layer in self.attention.layers if layer.rotary is not None]
        return min([self.positions or self.context, *tables])

    @property
    def kernel(self) -> Kernel:
        """The attention, as plain as it is."""
        return self.attention.simplest()

    def biases(self) -> str:
        """Which biases there are, for people."""
        names = [name for name in ("b_Q", "b_K", "b_V", "b_O", "b_U") if np.any(self.arrays[name])]
        return ", ".join(names) or "none"

    def summary(self) -> str:
        """The facts under which the model was read, in one line."""
        return "; ".join(f"{word}: {value}" for word, value in (self.facts or {}).items())

    def acted_as(self, notion: str) -> str:
        """What a host that gives its outputs acts as, by this notion, and on which evidence."""
        if self.witness is None:
            read = "these matrices" if self.family == PARTS else "this reading of the file"
            return f"{read}, by {notion}; nothing here compares the reading with the model"
        seen = "" if self.coverage is None else f" on {self.coverage.words()}"
        if self.unknown:
            left = ", ".join(FACTS[name][0] for name in self.unknown)
            return f"this reading of the file, by {notion}: {self.witness} agree with it{seen} and nobody says: {left}"
        what = "the model"
        if self.pairs:
            what = (
                f"{self.title} for sequences of at most {self.positions} of {self.vocabulary} tokens (position i reads the row "
                "of E for its token and i)"
            )
        return f"{what}, by {notion}: compared with {self.witness}{seen}"

    def stages(self, given: np.ndarray, kernel: Kernel | None = None) -> dict[str, np.ndarray]:
        """The model's own formulas, tensor by tensor in the file's grouping: the stream that each layer reads, what its
        attention adds, and the logits [n, O]. given: tokens [n], or inputs [n, V + P]."""
        a, places = self.arrays, np.arange(len(given))
        attention = self.attention if kernel is None else kernel
        V = len(a["W_E"])
        if given.ndim == 2:
            x, at = given[:, :V] @ a["W_E"], given[:, V:] @ a["W_pos"]
        else:
            x = a["W_E"][self._token_rows(given)]
            at = a["W_pos"][: len(given)] if len(a["W_pos"]) else np.zeros((1, x.shape[1]))
        out: dict[str, np.ndarray] = {}
        if not self.shortformer:
            x, at = x + at, np.zeros((1, x.shape[1]))
        for layer, factor in enumerate(self.factors):
            W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = (a[name][layer] for name in LAYER_ROLES)
            inner = self.norm(x) if self.norm is not None else x
            out[f"input of layer {layer}"] = inner
            added = np.broadcast_to(b_O, x.shape)
            for head in range(len(W_Q)):
                group = head * len(W_K) // len(W_Q)
                q = factor * ((inner + at) @ W_Q[head] + b_Q[head])
                k, v = (inner + at) @ W_K[group] + b_K[group], inner @ W_V[group] + b_V[group]
                added = added + attention(q, k, places, layer=layer, head=head) @ v @ W_O[head]
            out[f"attention of layer {layer}"] = added
            x = x + added if self.stream else added
        last = x if self.norm is None or not self.norm.final else self.norm(x)
        out["logits"] = last @ a["W_U"] + a["b_U"]
        return out

    def original(self, given: np.ndarray, kernel: Kernel | None = None) -> np.ndarray:
        """Logits [n, d_out] by the model's own formulas, as they were read. given: tokens [n], or inputs [n, V + P]."""
        return self.stages(given, kernel)["logits"]

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, d_out] on the highest authority there is: the module's own forward pass, or the reading."""
        return self.original(tokens) if self.forward is None else self.forward(np.asarray(tokens)[None])[0]

    def _token_rows(self, tokens: np.ndarray) -> np.ndarray:
        """Rows of W_E of tokens [n]."""
        return tokens * self.positions + np.arange(len(tokens)) if self.pairs else tokens

    def one_hots(self, tokens: np.ndarray) -> np.ndarray:
        """X [n, d_in] of these tokens [n]. MalformedInput for tokens outside the vocabulary and for more than P positions."""
        tokens = np.asarray(tokens)
        n = len(tokens)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not n:
            raise MalformedInput("tokens must be a non-empty list of integers")
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.vocabulary:
            raise MalformedInput(f"tokens lie outside 0 ... {self.vocabulary - 1}")
        if self.positions and n > self.positions:
            raise MalformedInput(f"{n} tokens are more than the model's {self.positions} positions")
        x = np.zeros((n, self.d_in))
        x[np.arange(n), self._token_rows(tokens)] = 1
        if len(self.arrays["W_pos"]):
            x[np.arange(n), self.vocabulary + np.arange(n)] = 1
        return x

    def rows(self, given: np.ndarray) -> np.ndarray:
        """X [n, V + P]: the one-hots of tokens [n], or inputs [n, V + P] as they are. MalformedInput as `one_hots`, and for
        inputs that this model's biases have no constant coordinate in."""
        given = np.asarray(given)
        if given.ndim != 2:
            return self.one_hots(given)
        V, P = len(self.arrays["W_E"]), len(self.arrays["W_pos"])
        if not len(given) or given.shape[1] != V + P:
            apart = f", {V} tokens and {P} positions" if P else ""
            raise MalformedInput(
                f"inputs have shape {list(given.shape)}, expected [n, {V + P}] with d_in = {V + P}{apart}"
            )
        sums = given[:, :V].sum(axis=1)
        worst = int(np.argmax(np.abs(sums - 1)))
        if self.biases() != "none" and not abs(sums[worst] - 1) <= UNIT:
            raise MalformedInput(
                f"row {worst} of inputs sums to {sums[worst]:.6g} over the {V} columns of tokens, expected 1: the model has "
                f"biases ({self.biases()}), which a host carries as a constant coordinate of its inputs"
            )
        return given

    def target(self) -> BiasedTarget:
        """The target: factors in W_Q and b_Q, shared keys and values repeated, positions added to queries and keys alone as
        coordinates of their own that no layer writes. MalformedInput for a model with norms."""
        a = self.arrays
        if self.norm is not None:
            raise MalformedInput(f"normalisation is {(self.facts or {}).get('normalisation', 'there')}: {NORMALISED}")
        L, H, D, d = a["W_Q"].shape
        repeats = H // a["W_K"].shape[1]
        factors = np.array(self.factors)
        arrays = {name: np.repeat(a[name], repeats, axis=1) for name in ("W_K", "W_V", "b_K", "b_V")}
        arrays["W_Q"], arrays["b_Q"] = a["W_Q"] * factors[:, None, None, None], a["b_Q"] * factors[:, None, None]
        arrays |= {name: a[name] for name in ("W_O", "b_O", "W_U", "b_U")}
        arrays["W_E"] = np.concatenate([a["W_E"], a["W_pos"]])
        V, P = len(a["W_E"]), len(a["W_pos"])
        if self.shortformer:
            for name in ("W_Q", "W_K"):
                arrays[name] = np.concatenate([arrays[name], arrays[name]], axis=2)
            arrays["W_V"] = np.concatenate([arrays["W_V"], np.zeros((L, H, D, d))], axis=2)
            arrays["W_O"] = np.concatenate([arrays["W_O"], np.zeros((L, H, d, D))], axis=3)
            arrays["b_O"] = np.concatenate([arrays["b_O"], np.zeros((L, D))], axis=1)
            arrays["W_U"] = np.concatenate([arrays["W_U"], np.zeros_like(a["W_U"])])
            arrays["W_E"] = np.block([[a["W_E"], np.zeros((V, D))], [np.zeros((P, D)), a["W_pos"]]])
        constant = np.zeros(V + P)
        constant[:V] = 1
        return BiasedTarget(self.shape, **arrays, constant=constant)
