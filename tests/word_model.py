"""All hosts of a shape at once: the left sides of the attention-matching equations as independent unknowns, float64.

A host enters its outputs only through the forms (E R_w R_Q)(E R_v R_K)^T and the products E R_w U. Written from the statement
of docs/proofs/functional-is-attention-matching.md, with plain NumPy; complex entries allow derivatives by complex steps.
"""

import itertools
from typing import NamedTuple

import numpy as np


class Model(NamedTuple):
    """Heads, layers, width b; letters = heads, and one more for the stream (the last letter)."""

    heads: int
    layers: int
    width: int
    stream: bool = False
    causal: bool = False

    @property
    def letters(self):
        return self.heads + self.stream

    @property
    def sizes(self):
        """Rows of the forms of each layer, then of the outputs: letters^t b."""
        return [self.letters**t * self.width for t in range(self.layers + 1)]

    @property
    def unknowns(self):
        return self.heads * sum(size**2 for size in self.sizes[:-1]) + self.sizes[-1] * self.width


def outputs(model, theta, X):
    """theta [..., unknowns], X [contexts, n, b] -> outputs [..., contexts, n, b]."""
    theta = np.asarray(theta)[..., None, :]
    lead, n = theta.shape[:-2] + X.shape[:1], X.shape[1]
    paths, at = [np.broadcast_to(X, (*lead, n, model.width))], 0
    hidden = np.triu(np.ones((n, n), dtype=bool), 1)
    for layer in range(model.layers):
        size = model.sizes[layer]
        wide = np.concatenate(paths, axis=-1)
        attention = []
        for _ in range(model.heads):
            form = theta[..., at : at + size**2].reshape(*theta.shape[:-1], size, size)
            at += size**2
            logits = wide @ form @ np.swapaxes(wide, -1, -2)
            if model.causal:
                logits = np.where(hidden, -np.inf, logits)
            weights = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
            attention.append(weights / weights.sum(axis=-1, keepdims=True))
        paths = [path if h == model.heads else attention[h] @ path for path in paths for h in range(model.letters)]
    last = theta[..., at:].reshape(*theta.shape[:-1], model.sizes[-1], model.width)
    return np.concatenate(paths, axis=-1) @ last


def left_sides(model, A, M):
    """What a solution of the equations has: theta of the target A, M [L][H] of b x b matrices."""
    stacked, parts = np.eye(model.width), []
    for layer in range(model.layers):
        parts += [(stacked @ form @ stacked.T).ravel() for form in A[layer]]
        values = [*M[layer], np.eye(model.width)][: model.letters]
        blocks = stacked.reshape(-1, model.width, model.width)
        stacked = np.concatenate([block @ value for block in blocks for value in values])
    return np.concatenate([*parts, stacked.ravel()])


def renamed(model, A, M):
    """The left sides of the target under all permutations of the heads of each layer."""
    for orders in itertools.product(itertools.permutations(range(model.heads)), repeat=model.layers):
        yield left_sides(
            model,
            [[A[layer][h] for h in order] for layer, order in enumerate(orders)],
            [[M[layer][h] for h in order] for layer, order in enumerate(orders)],
        )


def jacobian(model, theta, X):
    """[outputs, unknowns], by complex steps: exact to rounding."""
    step = 1e-30
    moved = theta + 1j * step * np.eye(len(theta))
    return (outputs(model, moved, X).imag / step).reshape(len(theta), -1).T


def drawn_target(model, rng, tied=False):
    """Random A, M [L][H], entries of size 0.4 to 1.4."""

    def entry():
        return rng.uniform(0.4, 1.4, size=(model.width,) * 2) * rng.choice((-1, 1), size=(model.width,) * 2)

    def layer():
        return [[entry() for _ in range(model.heads)] for _ in range(2)]

    layers = [layer()] * model.layers if tied else [layer() for _ in range(model.layers)]
    return [forms for forms, _ in layers], [values for _, values in layers]


def fit(model, wanted, X, theta, steps=400):
    """Levenberg-Marquardt from theta; (relative loss, theta)."""
    scale = np.sum(wanted**2) or 1.0
    miss = (outputs(model, theta, X) - wanted).ravel()
    loss, damping = miss @ miss / scale, 1e-2
    for _ in range(steps):
        J = jacobian(model, theta, X)
        normal, gradient = J.T @ J, J.T @ miss
        for _ in range(12):
            trial = theta - np.linalg.solve(
                normal + damping * (np.diag(np.diag(normal)) + 1e-12 * np.eye(len(theta))), gradient
            )
            new = (outputs(model, trial, X) - wanted).ravel()
            if np.isfinite(new).all() and new @ new / scale < loss:
                break
            damping *= 4
        else:
            break
        theta, miss, before, loss = trial, new, loss, new @ new / scale
        damping = max(damping / 6, 1e-15)
        if loss < 1e-27 or (loss > 1e-6 and loss > 0.9999 * before and damping < 1e-12):
            break
    return loss, theta
