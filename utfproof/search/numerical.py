"""Levenberg-Marquardt over many targets at once: E R_w U = M_w for all words w of length L, the host R_V common to all targets.

The per-target unknowns (E, U) are eliminated by a Schur complement, many restarts run as one batch, and a ridge that is lowered
in steps keeps the gauge balanced and shows whether weights have to grow for the residual to fall. Axis letters: b restarts,
t targets, w words, d = d_in, m embedding dimension, H heads, P parameters of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.generator import check_seed, mix, raw_numpy
from utfproof.search.problem import Problem

Array = np.ndarray

_STREAM = 0x9E3779B97F4A7C15
HOST, EMBEDDING, UNEMBEDDING, TARGET, FRESH, FRESH_START = range(6)
"""What a stream of random numbers is for."""
LEAST_WEIGHT, LARGEST_WEIGHT = 0.5, 1.5
"""Targets' weights have random signs and sizes between these: away from the zeros where a weight of the host would blow up."""


def draw(seed: int, purpose: int, number: int, shape: Sequence[int]) -> Array:
    """Uniform numbers in (-1, 1), float64, the same on every machine: stream `number` of a purpose."""
    key = mix(check_seed(seed))
    for value in (purpose, number):
        key = mix(key + _STREAM * (value + 1))
    raw = raw_numpy(key, int(np.prod(shape))) >> np.uint64(32)
    return ((raw.astype(np.float64) * 2 + 1) * 2.0**-32 - 1).reshape(shape)


def draw_weights(problem: Problem, seed: int, purpose: int, count: int, *, positive: bool = False) -> Array:
    """Weights of random targets with d_in = 1, [t, layers, H] (one layer when tied)."""
    layers = 1 if problem.looped_targets else problem.shape.layers
    raw = np.stack([draw(seed, purpose, t, (layers, problem.shape.heads)) for t in range(count)])
    signs = 1.0 if positive else np.sign(raw)
    out: Array = signs * (LEAST_WEIGHT + (LARGEST_WEIGHT - LEAST_WEIGHT) * np.abs(raw))
    return out


def draw_targets(problem: Problem, seed: int, purpose: int, count: int, *, positive: bool = False) -> Array:
    """M_w of random targets of the class, [t, w, d, d], each scaled to mean square 1; positive: all weights positive, d_in = 1.

    A host that serves only an open set of targets (a sign condition, say) is sought with positive ones.
    """
    shape = problem.shape
    H, L, d, rank = shape.heads, shape.layers, shape.d_in, min(shape.head_dim, shape.d_in)
    layers = 1 if problem.looped_targets else L
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
            products = (products[:, None] @ forms[0 if problem.looped_targets else layer][None]).reshape(-1, d, d)
        outputs[t] = products / np.sqrt(np.mean(products**2))
    return outputs


@dataclass(frozen=True)
class State:
    """Restarts side by side: R [b, layers, H, m, m] (one layer when tied); E [b, t, d, m] and U [b, t, m, d], with t = 1
    where they are fixed with the host."""

    R: Array
    E: Array
    U: Array

    def pick(self, rows: Any) -> State:
        """Some of the restarts."""
        return State(self.R[rows], self.E[rows], self.U[rows])


def start(problem: Problem, seed: int, restarts: Sequence[int], targets: int) -> State:
    """Random start points: restart number k depends on the seed and k alone."""
    shape, m, d = problem.shape, problem.m, problem.shape.d_in
    scale = np.sqrt(3 / m)
    R, E, U = [], [], []
    for k in restarts:
        R.append(scale * draw(seed, HOST, k, (problem.host_layers, shape.heads, m, m)))
        E.append(draw(seed, EMBEDDING, k, (targets if "E" in problem.free else 1, d, m)))
        U.append(draw(seed, UNEMBEDDING, k, (targets if "U" in problem.free else 1, m, d)))
    return State(np.stack(R), np.stack(E), np.stack(U))


class Equations:
    """Residuals and Jacobians of E R_w U = M_w for given right-hand sides `wanted` [t, w, d, d] or [b, t, w, d, d].

    frozen_host: R (and what is fixed with it) is held, only the per-target unknowns move.
    """

    def __init__(self, problem: Problem, wanted: Array, *, frozen_host: bool = False) -> None:
        self.problem, self.frozen_host = problem, frozen_host
        self.wanted = wanted if wanted.ndim == 5 else wanted[None]
        self.targets = int(self.wanted.shape[1])
        self.rows = int(np.prod(self.wanted.shape[2:]))
        shape, m, d = problem.shape, problem.m, problem.shape.d_in
        self.R_size = problem.host_layers * shape.heads * m * m
        self.locals = ("E" in problem.free, "U" in problem.free)
        self.local_size = m * d * sum(self.locals)
        self.global_size = 0 if frozen_host else self.R_size + m * d * (2 - sum(self.locals))

    def pick(self, rows: Array) -> Equations:
        """The equations of some of the restarts."""
        if len(self.wanted) == 1:
            return self
        return Equations(self.problem, self.wanted[rows], frozen_host=self.frozen_host)

    def sweep(self, state: State) -> tuple[list[Array], list[Array]]:
        """E R_p for the words p of length 0 ... L, each [b, t, p, d, m]; R_s U for the words s of the layers l+1 ... L,
        l = 0 ... L, each [b, t, s, m, d]."""
        shape, m, d = self.problem.shape, self.problem.m, self.problem.shape.d_in
        H, L, T = shape.heads, shape.layers, self.targets
        B = len(state.R)
        E = np.broadcast_to(state.E, (B, T, d, m))
        U = np.broadcast_to(state.U, (B, T, m, d))
        prefixes, suffixes = [E[:, :, None]], [U[:, :, None]]
        for layer in range(L):
            R = state.R[:, 0 if self.problem.tied_host else layer]
            flat = np.ascontiguousarray(R.transpose(0, 2, 1, 3)).reshape(B, m, H * m)
            step = (prefixes[-1].reshape(B, -1, m) @ flat).reshape(B, T, -1, d, H, m)
            prefixes.append(step.transpose(0, 1, 2, 4, 3, 5).reshape(B, T, -1, d, m))
            R = state.R[:, 0 if self.problem.tied_host else L - 1 - layer]
            last = suffixes[-1]
            columns = last.transpose(0, 3, 1, 2, 4).reshape(B, m, -1)
            step = (R.reshape(B, H * m, m) @ columns).reshape(B, H, m, T, last.shape[2], d)
            suffixes.append(step.transpose(0, 3, 1, 4, 2, 5).reshape(B, T, -1, m, d))
        return prefixes, suffixes[::-1]

    def residual(self, prefixes: list[Array], state: State) -> Array:
        """E R_w U - M_w [b, t, w, d, d]."""
        U = np.broadcast_to(state.U, (len(state.R), self.targets, *state.U.shape[2:]))
        out: Array = prefixes[-1] @ U[:, :, None] - self.wanted
        return out

    def jacobians(self, prefixes: list[Array], suffixes: list[Array]) -> tuple[Array, Array]:
        """(host [b, t, rows, P], per target [b, t, rows, local]), rows being (w, a, c)."""
        problem, shape = self.problem, self.problem.shape
        m, d, H, L, T = problem.m, shape.d_in, shape.heads, shape.layers, self.targets
        B, W = len(prefixes[0]), shape.leaves
        to_E, to_U = suffixes[0], prefixes[-1]
        E_block = np.zeros((B, T, W, d, d, d, m))  # (w, a, c | a', i)
        U_block = np.zeros((B, T, W, d, d, m, d))  # (w, a, c | j, c')
        for a in range(d):
            E_block[:, :, :, a, :, a, :] = to_E.swapaxes(-1, -2)
            U_block[:, :, :, :, a, :, a] = to_U
        blocks = {"E": E_block.reshape(B, T, -1, m * d), "U": U_block.reshape(B, T, -1, m * d)}
        local = [blocks[name] for name, free in zip("EU", self.locals, strict=True) if free]
        if self.frozen_host:
            return np.zeros((B, T, self.rows, 0)), np.concatenate(local, axis=3)
        host = np.zeros((B, T, self.rows, self.global_size))
        view = host[..., : self.R_size].reshape(B, T, W * d * d, problem.host_layers, H, m, m)
        for layer in range(L):
            e, u = prefixes[layer], suffixes[layer + 1]  # [b,t,p,a,i], [b,t,s,j,c]
            p, s = e.shape[2], u.shape[2]
            product = e[:, :, :, None, :, None, :, None] * u.swapaxes(-1, -2)[:, :, None, :, None, :, None, :]
            rows = view.reshape(B, T, p, H, s, d, d, problem.host_layers, H, m, m)
            for h in range(H):
                rows[:, :, :, h, :, :, :, 0 if problem.tied_host else layer, h] += product
        start_at = self.R_size
        for name, free in zip("EU", self.locals, strict=True):
            if not free:
                host[..., start_at : start_at + m * d] = blocks[name]
                start_at += m * d
        return host, np.concatenate(local, axis=3)

    def local_vector(self, state: State) -> Array:
        """[b, t, local]."""
        parts = [x.reshape(*x.shape[:2], -1) for x, free in zip((state.E, state.U), self.locals, strict=True) if free]
        return np.concatenate(parts, axis=2)

    def global_vector(self, state: State) -> Array:
        """[b, P]."""
        if self.frozen_host:
            return np.zeros((len(state.R), 0))
        B = len(state.R)
        fixed = [x.reshape(B, -1) for x, free in zip((state.E, state.U), self.locals, strict=True) if not free]
        return np.concatenate([state.R.reshape(B, -1), *fixed], axis=1)

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


@dataclass(frozen=True)
class Fit:
    """A batch after some iterations: the state, each restart's residual (root mean square over targets and words; targets
    have mean square 1), its largest weight, iterations made."""

    state: State
    residual: Array
    largest: Array
    iterations: int


def levenberg_marquardt(
    equations: Equations,
    state: State,
    *,
    ridge: float | Array,
    iterations: int,
    goal: float = 1e-13,
    stall: float = 1e-4,
    mask: Array | None = None,
    local_mask: Array | None = None,
) -> Fit:
    """Minimise sum r^2 + ridge (|R|^2 t + |E|^2 + |U|^2) for each restart; each stops at residual `goal` or when ten steps gain
    less than the fraction `stall`.

    ridge: one for all, or [b]. mask [b, P]: 0 holds an entry of the host; local_mask [local]: one of
    E and U, for all targets. Deterministic.
    """
    B, T = len(state.R), equations.targets
    ridges = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (B,))
    damping = np.full(B, 1e-2)
    P, local = equations.global_size, equations.local_size

    def cost_of(s: State, r: Array, mu: Array) -> Array:
        host = T * np.sum(equations.global_vector(s) ** 2, axis=1)
        cost: Array = np.sum(r**2, axis=(1, 2, 3, 4)) + mu * (
            host + np.sum(equations.local_vector(s) ** 2, axis=(1, 2))
        )
        return cost

    state = State(state.R.copy(), state.E.copy(), state.U.copy())
    r = equations.residual(equations.sweep(state)[0], state)
    cost = cost_of(state, r, ridges)
    marker, active = cost.copy(), np.ones(B, dtype=bool)
    made = 0
    for made in range(1, iterations + 1):
        rows = np.flatnonzero(active)
        part, b, mu = state.pick(rows), len(rows), ridges[rows]
        added = damping[rows] + mu
        eq = equations.pick(rows)
        host_j, local_j = eq.jacobians(*eq.sweep(part))
        if local_mask is not None:
            local_j = local_j * local_mask
        flat_r = r[rows].reshape(b, T, -1)
        inner = local_j.swapaxes(-1, -2) @ local_j
        inner[..., np.arange(local), np.arange(local)] += added[:, None, None]
        g_local = (local_j.swapaxes(-1, -2) @ flat_r[..., None])[..., 0] + mu[:, None, None] * eq.local_vector(part)
        if local_mask is not None:
            g_local *= local_mask
        step_host, back = np.zeros((b, P)), g_local
        if P:
            g_host = T * mu[:, None] * eq.global_vector(part)
            if mask is not None:
                host_j = host_j * mask[rows][:, None, None, :]
                g_host *= mask[rows]
            flat = host_j.reshape(b, -1, P)
            g_host += (flat_r.reshape(b, 1, -1) @ flat)[:, 0]
            cross = local_j.swapaxes(-1, -2) @ host_j  # [b, t, local, P]
            eliminated = solve(inner, np.concatenate([cross, g_local[..., None]], axis=3))
            left = cross.reshape(b, T * local, P).swapaxes(-1, -2)
            schur = flat.swapaxes(-1, -2) @ flat - left @ eliminated[..., :-1].reshape(b, T * local, P)
            schur[:, np.arange(P), np.arange(P)] += T * added[:, None]
            rhs = g_host - (left @ eliminated[..., -1].reshape(b, T * local, 1))[..., 0]
            step_host = -solve(schur, rhs[..., None])[..., 0]
            back = g_local + (cross @ step_host[:, None, :, None])[..., 0]
        step_local = -solve(inner, back[..., None])[..., 0]
        trial = eq.moved(part, step_host, step_local)
        trial_r = eq.residual(eq.sweep(trial)[0], trial)
        trial_cost = cost_of(trial, trial_r, mu)
        better = trial_cost < cost[rows]
        good = rows[better]
        for whole, piece in (
            (state.R, trial.R),
            (state.E, trial.E),
            (state.U, trial.U),
            (r, trial_r),
            (cost, trial_cost),
        ):
            whole[good] = piece[better]
        damping[rows] = np.where(better, np.maximum(damping[rows] / 3, 1e-15), np.minimum(damping[rows] * 4, 1e8))
        active[rows] = (rms(r[rows]) > goal) & (damping[rows] < 1e8)
        if made % 10 == 0:
            active &= cost < (1 - stall) * marker
            marker = cost.copy()
        if not active.any():
            break
    largest = np.maximum.reduce([np.abs(x).reshape(B, -1).max(axis=1) for x in (state.R, state.E, state.U)])
    return Fit(state, rms(r), largest, made)


def solve(matrices: Array, right: Array) -> Array:
    """matrices^-1 right, batched; where one is singular to the last bit, all get a little more on the diagonal."""
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:
        size = matrices.shape[-1]
        more = 1e-10 * (1 + np.trace(matrices, axis1=-2, axis2=-1))[..., None, None] * np.eye(size)
        return np.linalg.solve(matrices + more, right)


def rms(r: Array) -> Array:
    """Root mean square over targets and words [b]."""
    out: Array = np.sqrt(np.mean(r**2, axis=(1, 2, 3, 4)))
    return out
