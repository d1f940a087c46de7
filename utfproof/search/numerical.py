"""Shared attention as equations for many targets at once: E R_w U = M_w for all words w of length L, one host R_V for all.

Random targets and start points, residuals and derivatives, on NumPy arrays or torch tensors; levenberg.py iterates. Axis
letters: b restarts, t targets, w words, d = d_in, m embedding dimension, H heads, P parameters of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.ground.arrays import Array, namespace, zeros
from utfproof.ground.generator import mix, raw_numpy
from utfproof.ground.laws import check_seed
from utfproof.search.levenberg import REFERENCE, Restarts, RightSides, SearchEngine, permute
from utfproof.search.problem import Problem

_STREAM = 0x9E3779B97F4A7C15
HOST, EMBEDDING, UNEMBEDDING, TARGET, FRESH, FRESH_START, QUERIES, KEYS = range(8)
"""What a stream of random numbers is for."""
LEAST_WEIGHT, LARGEST_WEIGHT = 0.5, 1.5
"""Targets' weights have random signs and sizes between these: away from the zeros where a weight of the host would blow up."""


def draw(seed: int, purpose: int, number: int, shape: Sequence[int]) -> np.ndarray:
    """Uniform numbers in (-1, 1), float64, the same on every machine: stream `number` of a purpose."""
    key = mix(check_seed(seed))
    for value in (purpose, number):
        key = mix(key + _STREAM * (value + 1))
    raw = raw_numpy(key, int(np.prod(shape))) >> np.uint64(32)
    return ((raw.astype(np.float64) * 2 + 1) * 2.0**-32 - 1).reshape(shape)


def draw_weights(problem: Problem, seed: int, purpose: int, count: int, *, positive: bool = False) -> np.ndarray:
    """Weights of random targets with d_in = 1, [t, layers, H] (one layer when tied)."""
    layers = 1 if problem.tied_targets else problem.shape.layers
    raw = np.stack([draw(seed, purpose, t, (layers, problem.shape.heads)) for t in range(count)])
    signs = 1.0 if positive else np.sign(raw)
    out: np.ndarray = signs * (LEAST_WEIGHT + (LARGEST_WEIGHT - LEAST_WEIGHT) * np.abs(raw))
    return out


def draw_targets(problem: Problem, seed: int, purpose: int, count: int, *, positive: bool = False) -> np.ndarray:
    """M_w of random targets of the class, [t, w, d, d], each scaled to mean square 1; positive: all weights positive, d_in = 1.

    A host that serves only an open set of targets (a sign condition, say) is sought with positive ones.
    """
    shape = problem.shape
    H, L, d, rank = shape.heads, shape.layers, shape.d_in, min(shape.head_dim, shape.d_in)
    layers = 1 if problem.tied_targets else L
    outputs = np.empty((count, shape.leaves, d, d))
    weights = draw_weights(problem, seed, purpose, count, positive=positive) if d == 1 else None
    for t in range(count):
        if weights is not None:
            forms = weights[t, :, :, None, None]
        else:
            raw = draw(seed, purpose, t, (2, layers, H, d, rank))
            forms = raw[0] @ raw[1].swapaxes(-1, -2)
        products = np.eye(d)[None]
        for layer in range(L):
            products = (products[:, None] @ forms[0 if problem.tied_targets else layer][None]).reshape(-1, d, d)
        outputs[t] = products / np.sqrt(np.mean(products**2))
    return outputs


@dataclass(frozen=True)
class State(Restarts):
    """Restarts side by side: R [b, layers, H, m, m] (one layer when tied); E [b, t, d, m] and U [b, t, m, d], with t = 1
    where they are fixed with the host."""

    R: Array
    E: Array
    U: Array


def start(
    problem: Problem, seed: int, restarts: Sequence[int], targets: int, *, engine: SearchEngine = REFERENCE
) -> State:
    """Random start points: restart number k depends on the seed and k alone, and is the same for every engine."""
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    scale = np.sqrt(3 / m)
    R, E, U = [], [], []
    for k in restarts:
        R.append(scale * draw(seed, HOST, k, (problem.host_layers, shape.heads, m, m)))
        E.append(draw(seed, EMBEDDING, k, (targets if "E" in problem.free else 1, d, m)))
        U.append(draw(seed, UNEMBEDDING, k, (targets if "U" in problem.free else 1, m, d)))
    return State(*(engine.array(np.stack(parts)) for parts in (R, E, U)))


class Equations(RightSides):
    """Residuals and Jacobians of E R_w U = M_w for given right-hand sides `wanted` [t, w, d, d] or [b, t, w, d, d].

    Frozen: R and what is fixed with it.
    """

    axes = 5

    def __init__(self, problem: Problem, wanted: Array, *, frozen_host: bool = False) -> None:
        super().__init__(problem, wanted, frozen_host=frozen_host)
        shape, m, d = problem.shape, problem.m, problem.shape.d_in
        self.R_size = problem.host_layers * shape.heads * m * m
        self.locals = ("E" in problem.free, "U" in problem.free)
        self.local_size = m * d * sum(self.locals)
        self.global_size = 0 if frozen_host else self.R_size + m * d * (2 - sum(self.locals))

    def prefixes(self, state: State) -> list[Array]:
        """E R_p for the words p of length 0 ... L, each [b, t, p, d, m]."""
        shape, m, d = self.problem.shape, self.problem.m, self.problem.shape.d_in
        B, T, H = len(state.R), self.targets, shape.heads
        out = [namespace(state.E).broadcast_to(state.E, (B, T, d, m))[:, :, None]]
        for layer in range(shape.layers):
            R = state.R[:, 0 if self.problem.tied_host else layer]
            flat = permute(R, 0, 2, 1, 3).reshape(B, m, H * m)
            step = (out[-1].reshape(B, -1, m) @ flat).reshape(B, T, -1, d, H, m)
            out.append(permute(step, 0, 1, 2, 4, 3, 5).reshape(B, T, -1, d, m))
        return out

    def suffixes(self, state: State) -> list[Array]:
        """R_s U for the words s of the layers l+1 ... L, l = 0 ... L, each [b, t, s, m, d]."""
        shape, m, d = self.problem.shape, self.problem.m, self.problem.shape.d_in
        B, T, H = len(state.R), self.targets, shape.heads
        out = [namespace(state.U).broadcast_to(state.U, (B, T, m, d))[:, :, None]]
        for layer in reversed(range(shape.layers)):
            R = state.R[:, 0 if self.problem.tied_host else layer]
            last = out[-1]
            columns = permute(last, 0, 3, 1, 2, 4).reshape(B, m, -1)
            step = (R.reshape(B, H * m, m) @ columns).reshape(B, H, m, T, last.shape[2], d)
            out.append(permute(step, 0, 3, 1, 4, 2, 5).reshape(B, T, -1, m, d))
        return out[::-1]

    def residual(self, state: State) -> Array:
        """E R_w U - M_w [b, t, w, d, d]."""
        U = namespace(state.U).broadcast_to(state.U, (len(state.R), self.targets, *state.U.shape[2:]))
        return self.prefixes(state)[-1] @ U[:, :, None] - self.wanted

    def linearised(self, state: State) -> tuple[Array, Array]:
        """Derivatives of the residual: by the host [b, t, rows, P], by E and U [b, t, rows, local]; rows being (w, a, c)."""
        prefixes, suffixes = self.prefixes(state), self.suffixes(state)
        problem, shape = self.problem, self.problem.shape
        m, d, H, L, T = problem.m, shape.d_in, shape.heads, shape.layers, self.targets
        B, W = len(prefixes[0]), shape.leaves
        to_E, to_U = suffixes[0], prefixes[-1]
        E_block = zeros(state.E, B, T, W, d, d, d, m)  # (w, a, c | a', i)
        U_block = zeros(state.U, B, T, W, d, d, m, d)  # (w, a, c | j, c')
        for a in range(d):
            E_block[:, :, :, a, :, a, :] = to_E.swapaxes(-1, -2)
            U_block[:, :, :, :, a, :, a] = to_U
        blocks = {"E": E_block.reshape(B, T, -1, m * d), "U": U_block.reshape(B, T, -1, m * d)}
        local = [blocks[name] for name, free in zip("EU", self.locals, strict=True) if free]
        if self.frozen_host:
            return zeros(state.E, B, T, self.rows, 0), namespace(state.E).concatenate(local, axis=3)
        host = zeros(state.R, B, T, self.rows, self.global_size)
        for layer in range(L):
            e, u = prefixes[layer], suffixes[layer + 1]  # [b,t,p,a,i], [b,t,s,j,c]
            p, s = e.shape[2], u.shape[2]
            product = e[:, :, :, None, :, None, :, None] * u.swapaxes(-1, -2)[:, :, None, :, None, :, None, :]
            rows = host.reshape(B, T, p, H, s, d, d, -1)
            for h in range(H):
                at = ((0 if problem.tied_host else layer) * H + h) * m * m
                rows[:, :, :, h, :, :, :, at : at + m * m] += product.reshape(B, T, p, s, d, d, m * m)
        start_at = self.R_size
        for name, free in zip("EU", self.locals, strict=True):
            if not free:
                host[..., start_at : start_at + m * d] = blocks[name]
                start_at += m * d
        return host, namespace(host).concatenate(local, axis=3)

    def local_vector(self, state: State) -> Array:
        """[b, t, local]."""
        parts = [x.reshape(*x.shape[:2], -1) for x, free in zip((state.E, state.U), self.locals, strict=True) if free]
        return namespace(state.E).concatenate(parts, axis=2)

    def global_vector(self, state: State) -> Array:
        """[b, P]."""
        if self.frozen_host:
            return zeros(state.R, len(state.R), 0)
        B = len(state.R)
        fixed = [x.reshape(B, -1) for x, free in zip((state.E, state.U), self.locals, strict=True) if not free]
        return namespace(state.R).concatenate([state.R.reshape(B, -1), *fixed], axis=1)

    def moved(self, state: State, host: Array, local: Array) -> State:
        """The state with these steps added: host [b, P], local [b, t, local]."""
        m, d = self.problem.m, self.problem.shape.d_in
        B = len(state.R)
        parts = {"E": state.E, "U": state.U}
        at, at_host = 0, self.R_size
        for name, free in zip("EU", self.locals, strict=True):
            if free:
                parts[name] = parts[name] + local[..., at : at + m * d].reshape(parts[name].shape)
                at += m * d
            elif not self.frozen_host:
                parts[name] = parts[name] + host[:, at_host : at_host + m * d].reshape(parts[name].shape)
                at_host += m * d
        R = state.R if self.frozen_host else state.R + host[:, : self.R_size].reshape(B, *state.R.shape[1:])
        return State(R, parts["E"], parts["U"])


def fresh_start(problem: Problem, state: State, rows: np.ndarray, E: Array, U: Array) -> State:
    """The hosts of these restarts (a row each), with the free ones of E [rows, 1, d, m] and U [rows, 1, m, d]."""
    kept = state.pick(rows)
    return State(kept.R, E if "E" in problem.free else kept.E, U if "U" in problem.free else kept.U)


def host_document(problem: Problem, state: State) -> dict[str, Any]:
    """The host of one restart, for JSON."""
    out = {"R_V": state.R[0].tolist()}
    for name, array in (("E", state.E), ("U", state.U)):
        if name not in problem.free:
            out[name] = array[0, 0].tolist()
    return out
