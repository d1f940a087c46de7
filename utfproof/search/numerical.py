"""Shared attention as equations for many targets at once: E R_w U = M_w for all words w of length L, one host R_V for all.

Random targets and start points, residuals and derivatives; levenberg.py iterates. Axis letters: b restarts, t targets,
w words, d = d_in, m embedding dimension, H heads, P parameters of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.search.problem import Problem
from utfproof.util.generator import mix, raw_numpy
from utfproof.util.laws import check_seed

_STREAM = 0x9E3779B97F4A7C15
HOST, EMBEDDING, UNEMBEDDING, TARGET, FRESH, FRESH_START = range(6)
"""What a stream of random numbers is for."""
LEAST_WEIGHT, LARGEST_WEIGHT = 0.5, 1.5
"""Targets' weights have random signs and sizes between these: away from the zeros where a weight of the host would blow up."""
Array = np.ndarray


def draw(seed: int, purpose: int, number: int, shape: Sequence[int]) -> Array:
    """Uniform numbers in (-1, 1), float64, the same on every machine: stream `number` of a purpose."""
    key = mix(check_seed(seed))
    for value in (purpose, number):
        key = mix(key + _STREAM * (value + 1))
    raw = raw_numpy(key, int(np.prod(shape))) >> np.uint64(32)
    return ((raw.astype(np.float64) * 2 + 1) * 2.0**-32 - 1).reshape(shape)


def draw_targets(problem: Problem, seed: int, purpose: int, count: int) -> Array:
    """M_w of random targets of the class, [t, w, d, d], each scaled to mean square 1."""
    shape = problem.shape
    H, L, d, rank = shape.heads, shape.layers, shape.d_in, min(shape.head_dim, shape.d_in)
    layers = 1 if problem.tied_targets else L
    outputs = np.empty((count, shape.leaves, d, d))
    for t in range(count):
        if d == 1:
            raw = draw(seed, purpose, t, (layers, H, 1, 1))
            forms = np.sign(raw) * (LEAST_WEIGHT + (LARGEST_WEIGHT - LEAST_WEIGHT) * np.abs(raw))
        else:
            left, right = draw(seed, purpose, t, (2, layers, H, d, rank))
            forms = left @ right.swapaxes(-1, -2)
        products = np.eye(d)[None]
        for layer in range(L):
            products = (products[:, None] @ forms[0 if problem.tied_targets else layer][None]).reshape(-1, d, d)
        outputs[t] = products / np.sqrt(np.mean(products**2))
    return outputs


@dataclass(frozen=True)
class State:
    """Restarts side by side: R [b, layers, H, m, m] (one layer when tied); E [b, t, d, m]; U [b, t, m, d], t = 1 where it is
    fixed with the host."""

    R: Array
    E: Array
    U: Array

    def pick(self, rows: Any) -> State:
        """Some of the restarts, copied."""
        return State(self.R[rows].copy(), self.E[rows].copy(), self.U[rows].copy())

    def put(self, rows: Array, piece: State) -> None:
        """Replace these restarts, in place."""
        self.R[rows], self.E[rows], self.U[rows] = piece.R, piece.E, piece.U

    def largest(self) -> Array:
        """The largest weight of each restart [b]."""
        parts = [abs(x.reshape(len(x), -1)).max(axis=1) for x in (self.R, self.E, self.U)]
        return np.max(parts, axis=0)


def start(problem: Problem, seed: int, restarts: Sequence[int], targets: int) -> State:
    """Random start points: restart number k depends on the seed and k alone."""
    m, d = problem.m, problem.shape.d_in
    host = (problem.host_layers, problem.shape.heads, m, m)
    own = targets if problem.free == "E and U" else 1
    R = np.stack([np.sqrt(3 / m) * draw(seed, HOST, k, host) for k in restarts])
    E = np.stack([draw(seed, EMBEDDING, k, (targets, d, m)) for k in restarts])
    return State(R, E, np.stack([draw(seed, UNEMBEDDING, k, (own, m, d)) for k in restarts]))


class Equations:
    """Residuals and Jacobians of E R_w U = M_w for right-hand sides `wanted` [t, w, d, d] or, one for each restart,
    [b, t, w, d, d]. frozen_host: only what each target has of its own moves."""

    def __init__(self, problem: Problem, wanted: Array, *, frozen_host: bool = False) -> None:
        self.problem, self.frozen_host = problem, frozen_host
        self.wanted = wanted if wanted.ndim == 5 else wanted[None]
        self.targets, self.rows = self.wanted.shape[1], int(np.prod(self.wanted.shape[2:]))
        shape, size = problem.shape, problem.m * problem.shape.d_in
        self.U_free = problem.free == "E and U"
        self.R_size = problem.host_layers * shape.heads * problem.m**2
        self.local_size = size * (1 + self.U_free)
        self.global_size = 0 if frozen_host else self.R_size + size * (not self.U_free)

    def pick(self, rows: Any) -> Equations:
        """The equations of some of the restarts."""
        if len(self.wanted) == 1:
            return self
        return Equations(self.problem, self.wanted[rows], frozen_host=self.frozen_host)

    def _layer(self, layer: int) -> int:
        return 0 if self.problem.tied_host else layer

    def prefixes(self, state: State) -> list[Array]:
        """E R_p for the words p of length 0 ... L, each [b, t, p, d, m]."""
        m, d, H, B = self.problem.m, self.problem.shape.d_in, self.problem.shape.heads, len(state.R)
        out = [state.E[:, :, None]]
        for layer in range(self.problem.shape.layers):
            flat = state.R[:, self._layer(layer)].transpose(0, 2, 1, 3).reshape(B, m, H * m)
            step = (out[-1].reshape(B, -1, m) @ flat).reshape(B, self.targets, -1, d, H, m)
            out.append(step.transpose(0, 1, 2, 4, 3, 5).reshape(B, self.targets, -1, d, m))
        return out

    def suffixes(self, state: State) -> list[Array]:
        """R_s U for the words s of the layers l+1 ... L, l = 0 ... L, each [b, t, s, m, d]."""
        m, d, H, B = self.problem.m, self.problem.shape.d_in, self.problem.shape.heads, len(state.R)
        out = [np.broadcast_to(state.U, (B, self.targets, m, d))[:, :, None]]
        for layer in reversed(range(self.problem.shape.layers)):
            last = out[-1]
            columns = last.transpose(0, 3, 1, 2, 4).reshape(B, m, -1)
            step = state.R[:, self._layer(layer)].reshape(B, H * m, m) @ columns
            step = step.reshape(B, H, m, self.targets, last.shape[2], d)
            out.append(step.transpose(0, 3, 1, 4, 2, 5).reshape(B, self.targets, -1, m, d))
        return out[::-1]

    def residual(self, state: State) -> Array:
        """E R_w U - M_w [b, t, w, d, d]."""
        found: Array = self.prefixes(state)[-1] @ state.U[:, :, None] - self.wanted
        return found

    def linearised(self, state: State) -> tuple[Array, Array]:
        """Derivatives of the residual: by the host [b, t, rows, P], by what a target has [b, t, rows, local]; rows are
        (w, a, c)."""
        prefixes, suffixes = self.prefixes(state), self.suffixes(state)
        m, d, H, B, T = self.problem.m, self.problem.shape.d_in, self.problem.shape.heads, len(state.R), self.targets
        by_E = np.zeros((B, T, self.problem.shape.leaves, d, d, d, m))  # (w, a, c | a', i)
        by_U = np.zeros((B, T, self.problem.shape.leaves, d, d, m, d))  # (w, a, c | j, c')
        for a in range(d):
            by_E[:, :, :, a, :, a, :] = suffixes[0].swapaxes(-1, -2)
            by_U[:, :, :, :, a, :, a] = prefixes[-1]
        local, last = by_E.reshape(B, T, -1, m * d), by_U.reshape(B, T, -1, m * d)
        if self.U_free:
            local = np.concatenate([local, last], axis=3)
        host = np.zeros((B, T, self.rows, self.global_size))
        if self.frozen_host:
            return host, local
        for layer in range(self.problem.shape.layers):
            e, u = prefixes[layer], suffixes[layer + 1]  # [b,t,p,a,i], [b,t,s,j,c]
            p, s = e.shape[2], u.shape[2]
            product = e[:, :, :, None, :, None, :, None] * u.swapaxes(-1, -2)[:, :, None, :, None, :, None, :]
            rows = host.reshape(B, T, p, H, s, d, d, -1)
            for h in range(H):
                at = (self._layer(layer) * H + h) * m * m
                rows[:, :, :, h, :, :, :, at : at + m * m] += product.reshape(B, T, p, s, d, d, m * m)
        if not self.U_free:
            host[..., self.R_size :] = last
        return host, local

    def local_vector(self, state: State) -> Array:
        """[b, t, local]."""
        parts = [state.E, state.U] if self.U_free else [state.E]
        return np.concatenate([x.reshape(*x.shape[:2], -1) for x in parts], axis=2)

    def global_vector(self, state: State) -> Array:
        """[b, P]."""
        parts = [state.R, state.U] if not self.U_free else [state.R]
        return np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)[:, : self.global_size]

    def moved(self, state: State, host: Array, local: Array) -> State:
        """The state with these steps added: host [b, P], local [b, t, local]."""
        size = self.problem.m * self.problem.shape.d_in
        R, U = state.R, state.U
        if self.U_free:
            U = U + local[..., size:].reshape(U.shape)
        elif not self.frozen_host:
            U = U + host[:, self.R_size :].reshape(U.shape)
        if not self.frozen_host:
            R = R + host[:, : self.R_size].reshape(R.shape)
        return State(R, state.E + local[..., :size].reshape(state.E.shape), U)
