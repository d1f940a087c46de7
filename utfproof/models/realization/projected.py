"""Hosts of fewer dimensions for given inputs: the target's stream, projected to the directions that these inputs reach and
that the target reads, balanced against each other.

S holds the rows of the stream that the inputs meet, at all layers; C spans all columns that read it, now or later: W_U, W_Q,
W_K and M times those of later layers. With S C = U Z V^T and the m largest singular values, T = C V Z^{-1/2} and
T' = Z^{-1/2} U^T S have T' T = I. The host has E = W_E T, R_Q = T' W_Q, R_K = T' W_K, R_V = T' M T, U = T' W_U: balanced
truncation, with the Gramians of the inputs and of the readers. With m = rank S C it gives the target's outputs on these inputs
(S T T' C = S C). Nothing is claimed for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.models.realization.numerical import Floats, in_floats
from utfproof.systems import Target, Universal


@dataclass(frozen=True, eq=False)
class Projections:
    """A target's stream on given inputs, factored: left [rank, D] and right [D, rank] hold Z^{-1/2} U^T S and C V Z^{-1/2}."""

    target: Floats
    left: np.ndarray
    right: np.ndarray

    @property
    def rank(self) -> int:
        """The largest m."""
        return len(self.left)

    def host(self, m: int) -> tuple[Universal, np.ndarray]:
        """The host of m dimensions (at most the rank), and E [d_in, m]."""
        held, left, right = self.target, self.left[:m], self.right[:, :m]
        R_Q, R_K = (np.array([[left @ matrix for matrix in row] for row in grid]) for grid in (held.W_Q, held.W_K))
        R_V = np.array([[left @ matrix @ right for matrix in row] for row in held.M])
        return Universal(held.shape, m, R_Q, R_K, R_V, left @ held.W_U), held.W_E @ right


def projections(target: Target, inputs: Sequence[np.ndarray], kernel: SoftmaxAttention) -> Projections:
    """Of the stream that inputs X [n, d_in] meet. MalformedInput for weights that are not finite."""
    held = in_floats(target)
    layers, heads = range(held.shape.layers), range(held.shape.heads)
    rows = []
    for X in inputs:
        stream = np.asarray(X, dtype=np.float64) @ held.W_E
        rows.append(stream)
        for layer in layers:
            added = np.zeros_like(stream)
            for head in heads:
                queries, keys = stream @ held.W_Q[layer][head], stream @ held.W_K[layer][head]
                added += kernel(queries, keys, np.arange(len(X)), layer=layer, head=head) @ stream @ held.M[layer][head]
            stream = stream + added if held.shape.residual else added
            rows.append(stream)
    S = np.concatenate(rows)
    C = _readers(held)
    U, sizes, V = np.linalg.svd(S @ C, full_matrices=False)
    kept = max(1, int((sizes > 1e-12 * sizes[0]).sum()))
    scale = 1 / np.sqrt(np.where(sizes[:kept] > 0, sizes[:kept], 1.0))
    return Projections(held, scale[:, None] * (U[:, :kept].T @ S), (C @ V[:kept].T) * scale)


def _readers(held: Floats) -> np.ndarray:
    """C [D, D]: a square root of the readers' Gramian."""
    gramian = held.W_U @ held.W_U.T
    total = gramian
    for queries, keys, forms in reversed(list(zip(held.W_Q, held.W_K, held.M, strict=True))):
        later = gramian if held.shape.residual else np.zeros_like(gramian)
        gramian = later + sum(W @ W.T for W in (*queries, *keys)) + sum(M @ gramian @ M.T for M in forms)
        total = gramian if held.shape.residual else total + gramian
    values, vectors = np.linalg.eigh(total)
    root: np.ndarray = vectors * np.sqrt(np.clip(values, 0, None))
    return root
