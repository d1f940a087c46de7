"""Attention-matching as equations for many targets at once: the host R_V, R_Q, R_K, U is common to all, E is each target's own.

    E R_w U = M_w                                                  for the words w of length L,
    (E R_w R_Q^{l,h})(E R_v R_K^{l,h})^T = M_w A^{l,h} M_v^T        for the words w, v of length l - 1, all layers and heads:

the forms themselves, so that no change of basis of queries and keys is an unknown. An untied host's last layer enters as
R_V^{L,h} U alone and is kept as that product (any such columns come from some R_V and a U of full rank). The interface is that
of numerical.py. Axis letters: b restarts, t targets, p words, a coordinates of d_in, k of the head dimension, P unknowns of the
host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.ground.arrays import Array, namespace, zeros
from utfproof.search.levenberg import REFERENCE, Restarts, RightSides, SearchEngine, permute
from utfproof.search.numerical import EMBEDDING, HOST, KEYS, LARGEST_WEIGHT, LEAST_WEIGHT, QUERIES, UNEMBEDDING, draw
from utfproof.search.problem import Problem


@dataclass(frozen=True)
class AttentionState(Restarts):
    """Restarts side by side. R: R_V [b, L-1, H, m, m] ([b, 1, H, m, m] when tied); V: R_V^{L,h} U [b, H, m, d_in] (U
    [b, 1, m, d_in] when tied); Q, K [b, L, H, m, d] (one layer when tied); E [b, t, d_in, m]."""

    R: Array
    V: Array
    Q: Array
    K: Array
    E: Array


def host_layers(problem: Problem) -> int:
    """Layers whose R_V is an unknown matrix."""
    return 1 if problem.tied_host else problem.shape.layers - 1


def host_sizes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Shapes of the host's unknowns, in the order of the host's vector."""
    shape, m = problem.shape, problem.m
    H, d, own = shape.heads, shape.head_dim, 1 if problem.tied_host else shape.layers
    last = (1, m, shape.d_in) if problem.tied_host else (H, m, shape.d_in)
    return {"R": (host_layers(problem), H, m, m), "V": last, "Q": (own, H, m, d), "K": (own, H, m, d)}


def start(
    problem: Problem, seed: int, restarts: Sequence[int], targets: int, *, engine: SearchEngine = REFERENCE
) -> AttentionState:
    """Random start points: restart number k depends on the seed and k alone, and is the same for every engine."""
    sizes, scale = host_sizes(problem), np.sqrt(3 / problem.m)
    purposes = {"R": HOST, "V": UNEMBEDDING, "Q": QUERIES, "K": KEYS}
    parts = [
        np.stack([(scale if name == "R" else 1.0) * draw(seed, purposes[name], k, size) for k in restarts])
        for name, size in sizes.items()
    ]
    E = np.stack([draw(seed, EMBEDDING, k, (targets, problem.shape.d_in, problem.m)) for k in restarts])
    return AttentionState(*(engine.array(part) for part in (*parts, E)))


def fresh_start(problem: Problem, state: AttentionState, rows: np.ndarray, E: Array, U: Array) -> AttentionState:
    """The hosts of these restarts (a row each), with E [rows, 1, d_in, m]."""
    del problem, U
    kept = state.pick(rows)
    return AttentionState(kept.R, kept.V, kept.Q, kept.K, E)


def draw_targets(problem: Problem, seed: int, purpose: int, count: int, *, positive: bool = False) -> np.ndarray:
    """Right-hand sides of random targets, [t, rows], in the order of the equations; every M^{l,h} and A^{l,h} has mean square
    near 1 and rank min(d, d_in). positive: all weights positive (d_in = 1)."""
    shape = problem.shape
    H, L, d = shape.heads, shape.layers, shape.d_in
    rank, own = min(shape.head_dim, d), 1 if problem.tied_targets else L
    out = []
    for t in range(count):
        raw = draw(seed, purpose, t, (2, own, H, d, 2, rank))
        if d == 1:
            weights = raw[..., 0, 0, :1]
            forms = LEAST_WEIGHT + (LARGEST_WEIGHT - LEAST_WEIGHT) * np.abs(weights)
            forms = (forms if positive else np.sign(weights) * forms)[..., None]
        else:
            forms = raw[..., 0, :] @ raw[..., 1, :].swapaxes(-1, -2)
            forms = forms / np.sqrt(np.mean(forms**2, axis=(-1, -2), keepdims=True))
        values, logits = forms
        products, rows = np.eye(d)[None], []
        for layer in range(L):
            at = 0 if problem.tied_targets else layer
            tall = products.reshape(-1, d)
            rows += [tall @ logits[at, h] @ tall.T for h in range(H)]
            products = (products[:, None] @ values[at][None]).reshape(-1, d, d) / np.sqrt(d)
        out.append(np.concatenate([products.reshape(-1), *(form.reshape(-1) for form in rows)]))
    return np.stack(out)


class AttentionEquations(RightSides):
    """Residuals and derivatives for given right-hand sides `wanted` [t, rows] or [b, t, rows]."""

    axes = 3

    def __init__(self, problem: Problem, wanted: Array, *, frozen_host: bool = False) -> None:
        super().__init__(problem, wanted, frozen_host=frozen_host)
        self.local_size = problem.m * problem.shape.d_in
        self.sizes = host_sizes(problem)
        self.starts: dict[str, int] = {}
        at = 0
        for name, size in self.sizes.items():
            self.starts[name] = at
            at += int(np.prod(size))
        self.global_size = 0 if frozen_host else at

    def own(self, layer: int) -> int:
        """Where a layer's matrices stand."""
        return 0 if self.problem.tied_host else layer

    def prefixes(self, state: AttentionState) -> list[Array]:
        """E R_p for the words p of length 0 ... L - 1 (L when tied), each [b, t, p, d_in, m]."""
        shape, m = self.problem.shape, self.problem.m
        B, T, H, d = len(state.E), self.targets, shape.heads, shape.d_in
        out = [state.E[:, :, None]]
        for layer in range(shape.layers - (not self.problem.tied_host)):
            flat = permute(state.R[:, self.own(layer)], 0, 2, 1, 3).reshape(B, m, H * m)
            step = (out[-1].reshape(B, -1, m) @ flat).reshape(B, T, -1, d, H, m)
            out.append(permute(step, 0, 1, 2, 4, 3, 5).reshape(B, T, -1, d, m))
        return out

    def read(self, prefix: Array, matrix: Array) -> Array:
        """E R_p Y for Y [b, m, k]: [b, t, p d_in, k]."""
        B, T, m = len(prefix), self.targets, self.problem.m
        return (prefix.reshape(B, -1, m) @ matrix).reshape(B, T, -1, matrix.shape[-1])

    def residual(self, state: AttentionState) -> Array:
        """Outputs, then the forms layer by layer and head by head, minus what is wanted [b, t, rows]."""
        prefixes = self.prefixes(state)
        B, T = len(state.E), self.targets
        read = [self._outputs(self.read(prefixes[self._depth], state.V[:, h])) for h in range(state.V.shape[1])]
        # words in lexicographic order: the last letter is the innermost
        out = [namespace(state.E).stack(read, axis=3).reshape(B, T, -1)]
        for layer in range(self.problem.shape.layers):
            for h in range(self.problem.shape.heads):
                X = self.read(prefixes[layer], state.Q[:, self.own(layer), h])
                Y = self.read(prefixes[layer], state.K[:, self.own(layer), h])
                out.append((X @ Y.swapaxes(-1, -2)).reshape(B, T, -1))
        return namespace(state.E).concatenate(out, axis=2) - self.wanted

    @property
    def _depth(self) -> int:
        """Letters before V."""
        return self.problem.shape.layers - (not self.problem.tied_host)

    def _outputs(self, read: Array) -> Array:
        """[b, t, p, d_in d_in] of what `read` gives."""
        d = self.problem.shape.d_in
        return read.reshape(len(read), self.targets, -1, d * d)

    def _linear(self, state: AttentionState, prefixes: list[Array], depth: int, name: str, place: int) -> Array:
        """Derivatives of E R_p Y, p of length depth, Y matrix number `place` of an array: [b, t, p, d_in, k, P + local]."""
        problem, m = self.problem, self.problem.m
        H, d, B, T = problem.shape.heads, problem.shape.d_in, len(state.E), self.targets
        array = getattr(state, name)
        Y = array.reshape(B, -1, m, array.shape[-1])[:, place]
        k, P = Y.shape[-1], self.global_size
        words = H**depth
        out = zeros(state.E, B, T, words, d, k, P + d * m)
        suffix = Y[:, None]  # [b, s, m, k]
        for layer in reversed(range(depth + 1)):
            if layer < depth:
                R = state.R[:, self.own(layer)]
                e, s = prefixes[layer], suffix.shape[1]
                if P:
                    product = (
                        e[:, :, :, None, :, None, :, None] * suffix.swapaxes(-1, -2)[:, None, None, :, None, :, None, :]
                    )
                    rows = out.reshape(B, T, e.shape[2], H, s, d, k, P + d * m)
                    for h in range(H):
                        at = self.starts["R"] + (self.own(layer) * H + h) * m * m
                        rows[:, :, :, h, :, :, :, at : at + m * m] += product.reshape(B, T, -1, s, d, k, m * m)
                suffix = (R[:, :, None] @ suffix[:, None]).reshape(B, H * s, m, k)
        if P:
            at = self.starts[name] + place * m * k
            for c in range(k):
                out[:, :, :, :, c, at + c : at + m * k : k] += prefixes[depth]
        for a in range(d):
            out[:, :, :, a, :, P + a * m : P + (a + 1) * m] += suffix.swapaxes(-1, -2)[:, None]
        return out

    def linearised(self, state: AttentionState) -> tuple[Array, Array]:
        """Derivatives of the residual: by the host [b, t, rows, P], by E [b, t, rows, local]."""
        prefixes = self.prefixes(state)
        shape = self.problem.shape
        B, T, H, d, P = len(state.E), self.targets, shape.heads, shape.d_in, self.global_size
        width = P + self.local_size
        xp = namespace(state.E)
        outputs = [
            self._linear(state, prefixes, self._depth, "V", h).reshape(B, T, -1, 1, d * d, width)
            for h in range(state.V.shape[1])
        ]
        parts = [xp.concatenate(outputs, axis=3).reshape(B, T, -1, width)]
        for layer in range(shape.layers):
            for h in range(H):
                place = self.own(layer) * H + h
                tall, k = H**layer * d, shape.head_dim
                dX = self._linear(state, prefixes, layer, "Q", place).reshape(B, T, tall, k, width)
                dY = self._linear(state, prefixes, layer, "K", place).reshape(B, T, tall, k, width)
                X = self.read(prefixes[layer], state.Q[:, self.own(layer), h])
                Y = self.read(prefixes[layer], state.K[:, self.own(layer), h])
                form = Y[:, :, None] @ dX + permute(X[:, :, None] @ dY, 0, 1, 3, 2, 4)
                parts.append(form.reshape(B, T, -1, width))
        whole = xp.concatenate(parts, axis=2)
        return whole[..., :P], whole[..., P:]

    def local_vector(self, state: AttentionState) -> Array:
        """[b, t, local]."""
        return state.E.reshape(len(state.E), self.targets, -1)

    def global_vector(self, state: AttentionState) -> Array:
        """[b, P]."""
        B = len(state.E)
        if self.frozen_host:
            return zeros(state.E, B, 0)
        return namespace(state.E).concatenate([getattr(state, n).reshape(B, -1) for n in self.sizes], axis=1)

    def moved(self, state: AttentionState, host: Array, local: Array) -> AttentionState:
        """The state with these steps added: host [b, P], local [b, t, local]."""
        parts = {name: getattr(state, name) for name in self.sizes}
        if not self.frozen_host:
            for name, at in self.starts.items():
                size = int(np.prod(self.sizes[name]))
                parts[name] = parts[name] + host[:, at : at + size].reshape(parts[name].shape)
        return AttentionState(parts["R"], parts["V"], parts["Q"], parts["K"], state.E + local.reshape(state.E.shape))


def host_document(problem: Problem, state: AttentionState) -> dict[str, Any]:
    """The host of one restart, for JSON."""
    names = {"R": "R_V", "V": "U" if problem.tied_host else "R_V^L U", "Q": "R_Q", "K": "R_K"}
    return {names[name]: getattr(state, name)[0].tolist() for name in names}
