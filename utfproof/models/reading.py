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
from utfproof.models.attention import Kernel, ModelAttention
from utfproof.models.comparison import Coverage
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP
from utfproof.util.arrays import one_line

LAYER_ROLES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
ANY_LENGTH = 64
"""Positions of a model without learned ones: nobody says how many, tests go to this many, or just beyond its windows."""
PARTS = "parts"
"""The family of a model that is given by its matrices."""
Forward = Callable[[np.ndarray], np.ndarray]
"""Tokens [batch, n] -> the model's own logits [batch, n, d_out] in float64."""


def scaled(arrays: dict[str, np.ndarray], factors: np.ndarray) -> dict[str, np.ndarray]:
    """`Reading.arrays` of arrays with W_K, W_V [L, G, D, d] and b_K, b_V [L, G, d], G dividing H; factors [L, H]: what each
    head's logits are multiplied by."""
    shared = {name: arrays[name] for name in ("W_K", "W_V", "b_K", "b_V")}
    H = arrays["W_Q"].shape[1]
    queries = {"W_Q": arrays["W_Q"] * factors[:, :, None, None], "b_Q": arrays["b_Q"] * factors[:, :, None]}
    return {**arrays, **queries, **{name: np.repeat(x, H // x.shape[1], axis=1) for name, x in shared.items()}}


@one_line
@dataclass(frozen=True, eq=False)
class Reading:
    """A model as it was read.

    arrays: W_E [V, D], W_pos [P, D], W_U [D, O], b_U [O], and per layer W_Q, W_K, W_V [L, H, D, d] (shared keys and values are
    repeated), W_O [L, H, d, D], b_Q, b_K, b_V [L, H, d], b_O [L, D]; the factor of the logits is in W_Q and b_Q.
    context: the longest to try where E has no positions. mlp: of each layer, behind its attention.
    facts: what changes outputs, as it was taken and on whose word; unknown: what nobody says.
    witness: the live module whose outputs were compared, None if there is only the reading; coverage: on which inputs; forward:
    the module's own; difference: the largest relative one.
    ids [V]: of a part of a model (`first_layer`), the model's own token ids. Tokens are then numbers 0 ... V-1, W_E has a row
    for each token at each position, and P is `context`.
    """

    family: str
    title: str
    arrays: dict[str, np.ndarray]
    attention: ModelAttention
    stream: bool
    context: int = ANY_LENGTH
    facts: dict[str, str] | None = None
    unknown: tuple[str, ...] = ()
    witness: str | None = None
    coverage: Coverage | None = None
    forward: Forward | None = None
    difference: float | None = None
    ids: np.ndarray | None = None
    mlp: MLP | None = None

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

    @property
    def shape(self) -> Shape:
        """The model's own: d_in = V + P."""
        L, H, _, d = self.arrays["W_Q"].shape
        outputs = self.arrays["W_U"].shape[1]
        return Shape(H, L, d, self.d_in, outputs, residual=self.stream)

    @property
    def longest(self) -> int:
        """The longest context to try."""
        return int(min([self.positions or self.context, *(layer.positions() for layer in self.attention.layers)]))

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
        what = "the model"
        if self.pairs:
            what = (
                f"{self.title} for sequences of at most {self.positions} of {self.vocabulary} tokens (position i reads the row "
                "of E for its token and i)"
            )
        return f"{what}, by {notion}: compared with {self.witness}{seen}"

    def original(self, tokens: np.ndarray, kernel: Kernel | None = None) -> np.ndarray:
        """Logits [n, d_out] of tokens [n] by the model's own formulas, as they were read."""
        a, places = self.arrays, np.arange(len(tokens))
        attention = self.attention if kernel is None else kernel
        x = a["W_E"][self._token_rows(tokens)]
        if len(a["W_pos"]):
            x = x + a["W_pos"][: len(tokens)]
        for layer in range(len(a["W_Q"])):
            W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = (a[name][layer] for name in LAYER_ROLES)
            added = np.broadcast_to(b_O, x.shape)
            for head in range(len(W_Q)):
                q, k, v = (x @ W[head] + b[head] for W, b in ((W_Q, b_Q), (W_K, b_K), (W_V, b_V)))
                added = added + attention(q, k, places, layer=layer, head=head) @ v @ W_O[head]
            x = x + added if self.stream else added
            x = x if self.mlp is None else x + self.mlp(x, layer)
        return np.asarray(x @ a["W_U"] + a["b_U"])

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

    def target(self) -> BiasedTarget:
        """The target: positions' rows below the tokens' in W_E."""
        a = self.arrays
        arrays = {name: a[name] for name in (*LAYER_ROLES, "W_U", "b_U")}
        arrays["W_E"] = np.concatenate([a["W_E"], a["W_pos"]])
        constant = np.zeros(self.d_in)
        constant[: len(a["W_E"])] = 1
        return BiasedTarget(self.shape, **arrays, constant=constant, mlp=self.mlp)
