"""A smaller host for given inputs, and how far its outputs are from the target's there: proven, in ball arithmetic.

The host is the target's stream, projected to the directions that these inputs reach and that the target reads, balanced against
each other. S holds the rows of the stream that the inputs meet, at all layers; C spans all columns that read it, now or later.
With S C = U Z V^T and the m largest singular values, T = C V Z^{-1/2} and T' = Z^{-1/2} U^T S have T' T = I. The host has
E = W_E T, R_Q = T' W_Q, R_K = T' W_K, R_V = T' M T, U = T' W_U. Nothing is claimed for other inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.emulation.enclosure import BallAttention
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import exact
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, forms
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

BITS = 160
"""Precision of the balls."""
_Layers = list[list[tuple[Any, Any, Any]]]


def _balls(array: np.ndarray) -> Any:
    """A matrix of balls of radius 0, as far as the precision allows: floats are dyadic rationals."""
    from flint import arb, arb_mat, fmpq

    values = (Fraction(x) for x in exact(array).reshape(-1))
    return arb_mat(*array.shape, [arb(fmpq(x.numerator, x.denominator)) for x in values])


def _of_rationals(matrix: Any) -> Any:
    from flint import arb, arb_mat

    return arb_mat(matrix.nrows(), matrix.ncols(), [arb(x) for x in matrix.entries()])


def _upper(number: Any) -> Fraction:
    """The upper end of a ball's absolute value."""
    significand, exponent = (int(x) for x in number.abs_upper().man_exp())
    return significand * Fraction(2) ** exponent


class GivenInputs:
    """One target on inputs X [n, d_in]; kernel: softmax, its positions 0 ... n-1. scale: at most the largest output in size, of
    all inputs (1 where all are zero). rank: the largest m of `host`."""

    def __init__(self, target: Target, inputs: Sequence[np.ndarray], kernel: SoftmaxAttention) -> None:
        from flint import ctx

        held = forms(target)
        self.shape, self.kernel = held.shape, kernel
        if reason := kernel.unfit(held.shape.head_dim):
            raise MalformedInput(reason)
        with ctx.workprec(BITS):
            self.inputs = [_balls(np.asarray(X)) for X in inputs]
            heads = range(held.shape.heads)
            layers = [
                [tuple(_of_rationals(grid[layer][h]) for grid in (held.W_Q, held.W_K, held.M)) for h in heads]
                for layer in range(held.shape.layers)
            ]
            W_E, W_U = _of_rationals(held.W_E), _of_rationals(held.W_U)
            self.outputs = [self._run(X * W_E, layers, W_U) for X in self.inputs]
            self.scale = max(_upper(x.abs_lower()) for Y in self.outputs for x in Y.entries()) or Fraction(1)
        self._project(held, [np.asarray(X, dtype=np.float64) for X in inputs])

    def _project(self, held: Forms, inputs: list[np.ndarray]) -> None:
        """T' and T in float64."""

        def floats(grid: list[list[Any]]) -> list[list[np.ndarray]]:
            return [[linear.from_flint(x).astype(np.float64) for x in row] for row in grid]

        self.W_Q, self.W_K, self.M = floats(held.W_Q), floats(held.W_K), floats(held.M)
        (self.W_E, self.W_U), rows = floats([[held.W_E, held.W_U]])[0], []
        for X in inputs:
            stream = X @ self.W_E
            rows.append(stream)
            for layer in range(self.shape.layers):
                added = np.zeros_like(stream)
                for head in range(self.shape.heads):
                    queries, keys = stream @ self.W_Q[layer][head], stream @ self.W_K[layer][head]
                    pattern = self.kernel(queries, keys, np.arange(len(X)), layer=layer, head=head)
                    added += pattern @ stream @ self.M[layer][head]
                stream = stream + added if self.shape.residual else added
                rows.append(stream)
        S, C = np.concatenate(rows), self._readers()
        U, sizes, V = np.linalg.svd(S @ C, full_matrices=False)
        self.rank = max(1, int((sizes > 1e-12 * sizes[0]).sum()))
        scale = 1 / np.sqrt(np.where(sizes > 0, sizes, 1.0))[: self.rank]
        self.left = scale[:, None] * (U[:, : self.rank].T @ S)
        self.right = (C @ V[: self.rank].T) * scale

    def _readers(self) -> np.ndarray:
        """C [D, D]: a square root of the readers' Gramian."""
        total = gramian = self.W_U @ self.W_U.T
        for queries, keys, maps in reversed(list(zip(self.W_Q, self.W_K, self.M, strict=True))):
            later = gramian if self.shape.residual else np.zeros_like(gramian)
            gramian = later + sum(W @ W.T for W in (*queries, *keys)) + sum(M @ gramian @ M.T for M in maps)
            total = gramian if self.shape.residual else total + gramian
        values, vectors = np.linalg.eigh(total)
        root: np.ndarray = vectors * np.sqrt(np.clip(values, 0, None))
        return root

    def host(self, m: int) -> tuple[Universal, np.ndarray]:
        """The host of m dimensions (at most the rank), and E [d_in, m]."""
        left, right = self.left[:m], self.right[:, :m]
        R_Q, R_K = (np.array([[left @ matrix for matrix in row] for row in grid]) for grid in (self.W_Q, self.W_K))
        R_V = np.array([[left @ matrix @ right for matrix in row] for row in self.M])
        return Universal(self.shape, m, R_Q, R_K, R_V, left @ self.W_U), self.W_E @ right

    def error(self, host: Universal, E: np.ndarray) -> float:
        """At least max |UTF(X, E) - T(X)| over these inputs, over `scale`. MalformedInput where nothing finite is known."""
        from flint import ctx

        with ctx.workprec(BITS):
            layers: _Layers = [
                [(_balls(q), _balls(k), _balls(value[0])) for q, k, value in (host.maps(layer, h) for h in heads)]
                for layer, heads in enumerate([range(self.shape.heads)] * self.shape.layers)
            ]
            rows, U, worst = _balls(E), _balls(np.asarray(host.U)), Fraction(0)
            for X, its in zip(self.inputs, self.outputs, strict=True):
                for x in (self._run(X * rows, layers, U) - its).entries():
                    if not x.abs_upper().is_finite():
                        raise MalformedInput("the error is not finite: weights are too large for it")
                    worst = max(worst, _upper(x))
        found = float(worst / self.scale)
        return found if Fraction(found) >= worst / self.scale else float(np.nextafter(found, np.inf))

    def least_within(self, within: float) -> tuple[Universal, np.ndarray, float] | None:
        """The host of fewest dimensions among these, its E, and its proven error on the given inputs, at most `within` of their
        largest output; None where none is so close. Smaller hosts that do as well are not excluded."""
        for m in range(1, self.rank + 1):
            host, E = self.host(m)
            error = self.error(host, E)
            if error <= within:
                return host, E, error
        return None

    def _run(self, stream: Any, layers: Any, U: Any) -> Any:
        """Outputs [n, d_out] of rows of a stream."""
        from flint import arb_mat

        shape: Shape = self.shape
        places, attention = np.arange(stream.nrows()), BallAttention(self.kernel)
        for layer, heads in enumerate(layers):
            after = stream if shape.residual else None
            for head, (query, key, value) in enumerate(heads):
                pattern = attention(_array(stream * query), _array(stream * key), places, layer=layer, head=head)
                added = arb_mat(*pattern.shape, list(pattern.reshape(-1))) * stream * value
                after = added if after is None else after + added
            stream = after
        return stream * U


def _array(matrix: Any) -> np.ndarray:
    out = np.empty((matrix.nrows(), matrix.ncols()), dtype=object)
    out.reshape(-1)[:] = matrix.entries()
    return out
