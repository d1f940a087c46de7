"""A smaller host for given inputs, and how far its outputs are from the target's there: proven, in ball arithmetic.

The host is the target's stream, projected to the directions that these inputs reach and that the target reads, balanced against
each other. S holds the rows of the stream that the inputs meet, at all layers; C spans all columns that read it, now or later.
With S C = U Z V^T and the m largest singular values, T = C V Z^{-1/2} and T' = Z^{-1/2} U^T S have T' T = I. The host has
E = W_E T, R_Q = T' W_Q, R_K = T' W_K, R_V = T' M T, U = T' W_U. Nothing is claimed for other inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log10

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.emulation.enclosure import enclose
from utfproof.systems import Target, Universal

DIGITS = 12
"""Decimal places of a proven error, relative to the largest output."""


class GivenInputs:
    """One target on inputs X [n, d_in]; kernel: softmax, its positions 0 ... n-1. scale: at most the largest output in size, of
    all inputs (1 where all are zero). rank: the largest m of `host`."""

    def __init__(self, target: Target, inputs: Sequence[np.ndarray], kernel: SoftmaxAttention) -> None:
        self.target, self.kernel = target, kernel
        self.inputs = [np.asarray(X, dtype=np.float64) for X in inputs]
        self.outputs = [target.forward(X, kernel) for X in self.inputs]
        largest = max(float(np.abs(Y).max()) for Y in self.outputs)
        self.digits = max(1, DIGITS - round(log10(largest))) if largest else DIGITS
        self._project()
        host, E = self.host(1)
        silent = replace(host, U=np.zeros_like(host.U))
        at = int(np.argmax([np.abs(Y).max() for Y in self.outputs]))
        self.scale = float(enclose(silent, target, E, self.inputs[at], kernel, self.digits).lower) or 1.0

    def _project(self) -> None:
        """T' and T in float64, with the target's maps [L, H, D, ...]."""
        target, L, H = self.target, self.target.shape.layers, self.target.shape.heads
        self.W_E, self.W_U = (np.asarray(W) for W in (target.embedding(), target.unembedding()))
        held = [[(*target.parameters(t, h)[:2], target.value_form(t, h)) for h in range(H)] for t in range(L)]
        self.W_Q, self.W_K, self.M = (np.array([[maps[i] for maps in heads] for heads in held]) for i in range(3))
        rows = []
        for X in self.inputs:
            rows.append(X @ self.W_E)
            for layer, heads in enumerate(held):
                stream = rows[-1]
                rows.append(stream if target.shape.residual else np.zeros_like(stream))
                for head, (W_Q, W_K, M) in enumerate(heads):
                    pattern = self.kernel(stream @ W_Q, stream @ W_K, np.arange(len(X)), layer=layer, head=head)
                    rows[-1] = rows[-1] + pattern @ stream @ M
        S, C = np.concatenate(rows), self._readers()
        U, sizes, V = np.linalg.svd(S @ C, full_matrices=False)
        self.rank = max(1, int((sizes > 1e-12 * sizes[0]).sum()))
        scale = 1 / np.sqrt(np.where(sizes > 0, sizes, 1.0))[: self.rank]
        self.left = scale[:, None] * (U[:, : self.rank].T @ S)
        self.right = (C @ V[: self.rank].T) * scale

    def _readers(self) -> np.ndarray:
        """C [D, D]: a square root of the readers' Gramian."""
        total = gramian = self.W_U @ self.W_U.T
        for W_Q, W_K, M in zip(self.W_Q[::-1], self.W_K[::-1], self.M[::-1], strict=True):
            read = sum(W @ W.swapaxes(-1, -2) for W in (W_Q, W_K)) + M @ gramian @ M.swapaxes(-1, -2)
            gramian = read.sum(axis=0) + (gramian if self.target.shape.residual else 0)
            total = gramian if self.target.shape.residual else total + gramian
        values, vectors = np.linalg.eigh(total)
        root: np.ndarray = vectors * np.sqrt(np.clip(values, 0, None))
        return root

    def host(self, m: int) -> tuple[Universal, np.ndarray]:
        """The host of m dimensions (at most the rank), and E [d_in, m]."""
        left, right = self.left[:m], self.right[:, :m]
        maps = left @ self.W_Q, left @ self.W_K, left @ self.M @ right
        return Universal(self.target.shape, m, *maps, left @ self.W_U), self.W_E @ right

    def error(self, host: Universal, E: np.ndarray) -> float:
        """At least max |UTF(X, E) - T(X)| over these inputs, over `scale`."""
        proven = (enclose(host, self.target, E, X, self.kernel, self.digits).upper for X in self.inputs)
        return float(np.nextafter(float(max(proven)) / self.scale, np.inf))

    def least_within(self, within: float) -> tuple[Universal, np.ndarray, float] | None:
        """The host of fewest dimensions among these, its E, and its proven error on the given inputs, at most `within` of their
        largest output; None where none is so close. Smaller hosts that do as well are not excluded."""
        for m in range(1, self.rank + 1):
            host, E = self.host(m)
            seen = [host.forward(X, E, self.kernel) - Y for X, Y in zip(self.inputs, self.outputs, strict=True)]
            if max(float(np.abs(apart).max()) for apart in seen) > within * self.scale:
                continue  # float64 shows that it is further off, nearly always
            error = self.error(host, E)
            if error <= within:
                return host, E, error
        return None
