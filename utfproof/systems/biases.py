"""Targets with biases, and how a constant coordinate absorbs them (mathematics: "Any width").

Wherever inputs have a constant coordinate, X c = 1, the biases of queries, keys, values, outputs, embedding and
unembedding are entries of wider matrices: the stream gets one coordinate more that is 1 at every position, carried
through each layer by the residual stream or, without one, by head 0. Attention leaves it alone because its rows sum to
one, so the kernel has to be row-stochastic. The wider value forms have rank d + 1: they give W_all, and are never written
back as W_V, W_O of width d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, attend
from utfproof.errors import MalformedInput, OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import AugmentedTarget, Target
from utfproof.util.arrays import Array, eye, hstack, is_exact, namespace, one_line, to_numpy, zeros

_SLACK = 1e-9
"""How far from 1 a float sum may be to be taken for 1."""


def _is_one(sums: Array) -> bool:
    """Whether these are all 1: exactly for exact arrays, within rounding for floats."""
    if is_exact(sums):
        return all(value == 1 for value in np.asarray(sums).reshape(-1))
    return bool((np.abs(to_numpy(sums).astype(np.float64) - 1) <= _SLACK).all())


def require_row_stochastic(kernel: AttentionKernel) -> None:
    """MalformedInput unless the kernel's rows are known to sum to one, as the absorption of value biases needs: its
    `row_stochastic` is true."""
    if not getattr(kernel, "row_stochastic", False):
        raise MalformedInput(
            f"{type(kernel).__name__} is not known to have rows that sum to 1, which biases of values need; "
            "a kernel that has says row_stochastic = True"
        )


@one_line
@dataclass(frozen=True, eq=False)
class BiasedTarget:
    """A target with biases, and with MLPs if it has a residual stream (mlp: each layer ends with x <- x + MLP(x)).

    W_Q, W_K, W_V [L, H, D, d], W_O [L, H, d, D]; b_Q, b_K, b_V [L, H, d], b_O [L, D]; W_E [d_in, D],
    b_E [D]; W_U [D, d_out], b_U [d_out]. A bias of None is zero; W_E or W_U of None is the identity.

    constant: c [d_in] with X c = 1 for every valid input; None is ones, right for one-hots. With a token's and a position's
    one-hot side by side it is ones on the token's rows and zeros on the position's. The shape says whether there is a
    residual stream. A scale of the logits belongs to the kernel, or to W_Q and b_Q.
    Raises MalformedInput naming the tensor whose shape does not fit.
    """

    shape: Shape
    W_Q: Any
    W_K: Any
    W_V: Any
    W_O: Any
    W_E: Any = None
    W_U: Any = None
    b_Q: Any = None
    b_K: Any = None
    b_V: Any = None
    b_O: Any = None
    b_E: Any = None
    b_U: Any = None
    constant: Any = None
    mlp: Any = None

    def __post_init__(self) -> None:
        shape, D = self.shape, self.without_biases().width  # which checks the weights
        if self.mlp is not None:
            self.mlp.require_fit(shape.layers, D)
            if not shape.residual:
                raise MalformedInput(
                    f"targets with MLPs have a residual stream; {shape} has none: pass --residual (residual=True in Python)"
                )
        for name, expected in self._sizes.items():
            array = getattr(self, name)
            if array is not None and tuple(array.shape) != expected:
                raise MalformedInput(f"{name} has shape {list(array.shape)}, expected {list(expected)}")

    @property
    def _sizes(self) -> dict[str, tuple[int, ...]]:
        shape, D = self.shape, self.width
        sizes = dict.fromkeys(("b_Q", "b_K", "b_V"), (shape.layers, shape.heads, shape.head_dim))
        return {**sizes, "b_O": (shape.layers, D), "b_E": (D,), "b_U": (shape.d_out,), "constant": (shape.d_in,)}

    @classmethod
    def plain(cls, target: Target) -> BiasedTarget:
        """A target without biases and MLPs, its weights by layer."""

        def grid(array: Array) -> Array:
            return np.broadcast_to(to_numpy(array), (target.shape.layers, *array.shape[-3:]))

        W_Q, W_K, W_V, W_O = (grid(w) for w in (target.W_Q, target.W_K, target.W_V, target.W_O))
        return cls(target.shape, W_Q, W_K, W_V, W_O, target.W_E, target.W_U)

    @property
    def width(self) -> int:
        """D, the width of the stream."""
        return int(self.W_Q.shape[-2])

    def without_biases(self) -> Target:
        """The target of the same weights without biases and MLPs: not the same function."""
        return Target(self.shape, self.W_Q, self.W_K, self.W_V, self.W_O, self.W_E, self.W_U)

    def bias(self, name: str) -> Array:
        """A bias by its name, zeros where it is None."""
        array = getattr(self, name)
        return zeros(self.W_Q, *self._sizes[name]) if array is None else array

    def constant_vector(self) -> Array:
        """c [d_in]."""
        return zeros(self.W_Q, self.shape.d_in) + 1 if self.constant is None else self.constant

    def require_valid(self, x: Array) -> None:
        """MalformedInput unless X c = 1 for these inputs [..., n, d_in]."""
        if not _is_one(x @ self.constant_vector()):
            raise MalformedInput("these inputs have no constant coordinate: X c = 1 fails, and biases need it")

    def forward(self, x: Array, kernel: AttentionKernel, positions: Array | None = None) -> Array:
        """T(X), x [..., n, d_in] -> [..., n, d_out], with every bias added. Inputs and kernel are checked first."""
        require_row_stochastic(kernel)
        self.require_valid(x)
        if positions is None:
            positions = np.arange(x.shape[-2])
        b_Q, b_K, b_V, b_O = (self.bias(name) for name in ("b_Q", "b_K", "b_V", "b_O"))
        stream = (x if self.W_E is None else x @ self.W_E) + self.bias("b_E")
        for layer in range(self.shape.layers):
            out = stream + b_O[layer] if self.shape.residual else b_O[layer]
            for head in range(self.shape.heads):
                queries = stream @ self.W_Q[layer][head] + b_Q[layer][head]
                keys = stream @ self.W_K[layer][head] + b_K[layer][head]
                values = stream @ self.W_V[layer][head] + b_V[layer][head]
                mixed = attend(kernel, queries, keys, values, positions, layer=layer, head=head)
                out = out + mixed @ self.W_O[layer][head]
            stream = out if self.mlp is None else out + self.mlp(out, layer)
        return (stream if self.W_U is None else stream @ self.W_U) + self.bias("b_U")

    def augmented(self) -> AugmentedTarget:
        """The same function on inputs with X c = 1, without biases: width D + 1, inner value width d + 1, in this target's
        arithmetic. The last coordinate of the stream is 1 at every position. OutsideClass for a target with MLPs."""
        if self.mlp is not None:
            raise OutsideClass("this target has MLPs: a host such as mlp-8-16 serves it, where 8 and 16 are widths")
        D, d = self.width, self.shape.head_dim
        lead = (self.shape.layers, self.shape.heads)

        def row(array: Array) -> Array:
            return array[..., None, :]

        def under(top: Array, bottom: Array) -> Array:
            return namespace(top).concatenate([top, bottom], axis=-2)

        column = zeros(self.W_Q, *lead, D, 1)
        one = zeros(self.W_Q, *lead, 1, 1) + 1
        # the bias of the outputs, and the carried 1 where no stream carries it, go through head 0
        carried = zeros(self.W_O, self.shape.layers, 1, 1, 1) + int(not self.shape.residual)
        first = hstack([self.bias("b_O")[:, None, None, :], carried])
        others = zeros(self.W_O, self.shape.layers, self.shape.heads - 1, 1, D + 1)
        bottom = namespace(first).concatenate([first, others], axis=1)
        c = self.constant_vector()
        W_E = eye(self.shape.d_in, self.W_Q) if self.W_E is None else self.W_E
        W_U = eye(self.shape.d_out, self.W_Q) if self.W_U is None else self.W_U
        return AugmentedTarget(
            self.shape,
            W_Q=under(self.W_Q, row(self.bias("b_Q"))),
            W_K=under(self.W_K, row(self.bias("b_K"))),
            W_V=hstack([under(self.W_V, row(self.bias("b_V"))), under(column, one)]),
            W_O=under(hstack([self.W_O, zeros(self.W_O, *lead, d, 1)]), bottom),
            W_E=hstack([W_E + c[:, None] * self.bias("b_E"), c[:, None]]),
            W_U=under(W_U, row(self.bias("b_U"))),
        )
