"""How far a host's outputs are from the target's on inputs that are given: proven, in ball arithmetic, input by input.

The bound of `besteffort` is for all inputs, and soon says nothing. On given ones both systems are run in balls around the exact
numbers that weights and inputs are, so what is proven is what is there, up to the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.emulation.enclosure import BallAttention
from utfproof.errors import MalformedInput
from utfproof.models.realization.besteffort import BITS, balls, dense_balls, largest, of_rationals, upper
from utfproof.models.realization.hankel import forms
from utfproof.models.realization.projected import Projections, projections
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

_Layers = list[list[tuple[Any, Any, tuple[Any, ...]]]]


class GivenInputs:
    """One target on inputs X [n, d_in], ready to be compared with many hosts; kernel: softmax, its positions 0 ... n-1.
    scale: at most the largest output in size, of all inputs (1 where all are zero)."""

    def __init__(self, target: Target, inputs: Sequence[np.ndarray], kernel: SoftmaxAttention) -> None:
        from flint import ctx

        held = forms(target)
        self.target, self.given = target, list(inputs)
        self.shape, self.kernel = held.shape, kernel
        if reason := kernel.unfit(held.shape.head_dim):
            raise MalformedInput(reason)
        with ctx.workprec(BITS):
            self.inputs = [balls(np.asarray(X)) for X in inputs]
            layers = [
                [
                    (
                        of_rationals(held.W_Q[layer][h]),
                        of_rationals(held.W_K[layer][h]),
                        (of_rationals(held.M[layer][h]),),
                    )
                    for h in range(held.shape.heads)
                ]
                for layer in range(held.shape.layers)
            ]
            W_E, W_U = of_rationals(held.W_E), of_rationals(held.W_U)
            self.outputs = [self._run(X * W_E, layers, W_U) for X in self.inputs]
            self.scale = max(upper(x.abs_lower()) for Y in self.outputs for x in Y.entries()) or Fraction(1)

    def projections(self) -> Projections:
        """Hosts of fewer dimensions that are fitted to these inputs."""
        return projections(self.target, self.given, self.kernel)

    def error(self, host: Universal, E: np.ndarray) -> Fraction:
        """At least max |UTF(X, E) - T(X)| over these inputs. MalformedInput for another shape, or where nothing finite is
        known."""
        from flint import ctx

        if host.shape != self.shape or E.shape != (host.shape.d_in, host.m):
            raise MalformedInput(f"host and target differ: host {host.shape}, E {list(E.shape)}, target {self.shape}")
        with ctx.workprec(BITS):
            layers: _Layers = []
            for layer in range(self.shape.layers):
                maps = [host.maps(layer, head) for head in range(self.shape.heads)]
                layers.append([(dense_balls(q), dense_balls(k), tuple(map(dense_balls, v))) for q, k, v in maps])
            rows, U = dense_balls(E), dense_balls(host.U)
            found = [self._run(X * rows, layers, U) for X in self.inputs]
            return upper(
                largest([x for mine, its in zip(found, self.outputs, strict=True) for x in (mine - its).entries()])
            )

    def _run(self, stream: Any, layers: _Layers, U: Any) -> Any:
        """Outputs [n, d_out] of rows of a stream."""
        shape: Shape = self.shape
        places, attention = np.arange(stream.nrows()), BallAttention(self.kernel)
        for layer, heads in enumerate(layers):
            after = stream if shape.residual else None
            for head, (query, key, values) in enumerate(heads):
                pattern = attention(_array(stream * query), _array(stream * key), places, layer=layer, head=head)
                added = _matrix(pattern) * stream
                for factor in values:
                    added = added * factor
                after = added if after is None else after + added
            stream = after
        return stream * U


def _array(matrix: Any) -> np.ndarray:
    out = np.empty((matrix.nrows(), matrix.ncols()), dtype=object)
    out.reshape(-1)[:] = matrix.entries()
    return out


def _matrix(array: np.ndarray) -> Any:
    from flint import arb_mat

    return arb_mat(*array.shape, list(array.reshape(-1)))
