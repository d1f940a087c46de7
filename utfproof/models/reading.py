"""`Reading`: a model as a target with its attention, and the evidence that they are the model's.

One-hot tokens (V of them) and, where there are learned positions, a second one-hot of the position (P of them) beside the
token's: d_in = V + P, and d_out is the width of the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import Kernel, ModelAttention
from utfproof.models.comparison import Coverage
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP
from utfproof.util.arrays import one_line

Arrays = dict[str, np.ndarray]
"""W_E [V, D], W_pos [P, D], W_U [D, O], b_U [O], W_Q [L, H, D, d], W_K, W_V [L, G, D, d] with G dividing H, W_O [L, H, d, D],
b_Q [L, H, d], b_K, b_V [L, G, d], b_O [L, D]: a model's matrices, which act on rows from the right."""
ANY_LENGTH = 64
"""Positions of a model without learned ones: their number is unknown. Tests go to this many, or just beyond its windows."""
BY_MATRICES = "its matrices"
"""The title of a model that is given by its matrices."""
Forward = Callable[[np.ndarray], np.ndarray]
"""Tokens [batch, n] -> the model's own logits [batch, n, d_out] in float64."""


def biased_target(arrays: Arrays, factors: np.ndarray, stream: bool, mlp: MLP | None = None) -> BiasedTarget:
    """The target of these matrices: positions' rows below the tokens' in W_E, shared keys and values repeated. factors [L, H]:
    what each head's logits are multiplied by. stream: whether there is a residual stream."""
    a = {name: array for name, array in arrays.items() if name != "W_pos"}
    L, H, _, d = a["W_Q"].shape
    a["W_Q"], a["b_Q"] = a["W_Q"] * factors[:, :, None, None], a["b_Q"] * factors[:, :, None]
    a |= {name: np.repeat(a[name], H // a[name].shape[1], axis=1) for name in ("W_K", "W_V", "b_K", "b_V")}
    a["W_E"] = np.concatenate([a["W_E"], arrays["W_pos"]])
    a["constant"] = (np.arange(len(a["W_E"])) < len(arrays["W_E"])).astype(float)
    return BiasedTarget(Shape(H, L, d, len(a["W_E"]), a["W_U"].shape[1], residual=stream), **a, mlp=mlp)


def facts_of(attention: ModelAttention, factors: np.ndarray, stream: bool, source: str) -> dict[str, str]:
    """`Reading.facts` on the word of this source."""
    shown = ", ".join(dict.fromkeys(f"{factor:.6g}" for factor in factors.flat))
    stated = {"logits times": shown, "residual stream": "yes" if stream else "no"}
    return {"attention": attention.words(), **{name: f"{value} ({source})" for name, value in stated.items()}}


@one_line
@dataclass(frozen=True, eq=False)
class Reading:
    """A model as it was read.

    target: its matrices, the factor of the logits in W_Q and b_Q. vocabulary: V; positions: P, 0 where positions are not in E,
    and then context: the longest to try.
    facts: what changes outputs, each with its source; unknown: the facts without one.
    witness: the live module whose outputs were compared, None if there is only the reading; coverage: on which inputs; forward:
    the module's own.
    ids [V]: of a part of a model (`live.from_model`), the model's own token ids. Tokens are then numbers 0 ... V-1, and E has
    a row for each token at each position, token P + position.
    """

    title: str
    target: BiasedTarget
    attention: ModelAttention
    vocabulary: int
    positions: int = 0
    context: int = ANY_LENGTH
    facts: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    witness: str | None = None
    coverage: Coverage | None = None
    forward: Forward | None = None
    ids: np.ndarray | None = None

    @property
    def shape(self) -> Shape:
        """The target's."""
        return self.target.shape

    @property
    def longest(self) -> int:
        """The longest context to try."""
        return int(min([self.positions or self.context, *(layer.positions() for layer in self.attention.layers)]))

    @property
    def kernel(self) -> Kernel:
        """The attention, as plain as it is."""
        return self.attention.simplest()

    def acted_as(self, notion: str) -> str:
        """What a host that gives its outputs acts as, by this notion, and on which evidence."""
        if self.witness is None or self.coverage is None:
            read = "these matrices" if self.title == BY_MATRICES else "this reading of the file"
            return f"{read}, by {notion}; nothing here compares the reading with the model"
        what = "the model"
        if self.ids is not None:
            what = (
                f"{self.title} for sequences of at most {self.positions} of {self.vocabulary} tokens (position i reads the row "
                "of E for its token and i)"
            )
        return f"{what}, by {notion}: compared with {self.witness} on {self.coverage.words()}"

    def original(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, d_out] of tokens [n] as the model was read."""
        return np.asarray(self.target.forward(self.one_hots(tokens), self.attention))

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, d_out] on the highest authority there is: the module's own forward pass, or the reading."""
        return self.original(tokens) if self.forward is None else self.forward(np.asarray(tokens)[None])[0]

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
        x, places = np.zeros((n, self.shape.d_in)), np.arange(n)
        x[places, tokens if self.ids is None else tokens * self.positions + places] = 1
        if self.positions and self.ids is None:
            x[places, self.vocabulary + places] = 1
        return x
