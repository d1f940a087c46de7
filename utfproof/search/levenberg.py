"""Levenberg-Marquardt for many restarts and many targets at once.

The unknowns of each target are eliminated by a Schur complement, so that a step costs one factorisation in the host's
parameters. Axis letters: b restarts, t targets, r residuals of a target, P parameters of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.search.numerical import Array, Equations, State


@dataclass(frozen=True)
class Fit:
    """A batch after some iterations: the state, each restart's residual (root mean square over targets and words; targets
    have mean square 1) and its largest weight."""

    state: State
    residual: Array
    largest: Array


def levenberg_marquardt(
    equations: Equations,
    state: State,
    *,
    ridge: float | Array,
    iterations: int,
    goal: float = 1e-13,
    stall: float = 1e-4,
    mask: Array | None = None,
) -> Fit:
    """Minimise sum r^2 + ridge (|host|^2 t + |locals|^2) for each restart; each stops at residual `goal` or when ten steps
    gain less than the fraction `stall`.

    ridge: one for all, or [b]. mask [P]: 0 holds an entry of the host. Deterministic.
    """
    state = state.pick(slice(None))
    r = equations.residual(state)
    B = len(r)
    ridges, damping = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (B,)), np.full(B, 1e-2)

    def cost_of(s: State, residual: Array, mu: Array) -> Array:
        host = equations.targets * squares(equations.global_vector(s))
        return squares(residual) + mu * (host + squares(equations.local_vector(s)))

    cost = cost_of(state, r, ridges)
    marker, active = cost.copy(), np.ones(B, dtype=bool)
    for made in range(1, iterations + 1):
        rows = np.flatnonzero(active)
        part, own = state.pick(rows), equations.pick(rows)
        trial = own.moved(part, *_step(own, part, r[rows], ridges[rows], damping[rows] + ridges[rows], mask))
        trial_r = own.residual(trial)
        trial_cost = cost_of(trial, trial_r, ridges[rows])
        better = trial_cost < cost[rows]
        good = rows[better]
        state.put(good, trial.pick(better))
        r[good], cost[good] = trial_r[better], trial_cost[better]
        damping[rows] = np.where(better, np.maximum(damping[rows] / 3, 1e-15), np.minimum(damping[rows] * 4, 1e8))
        active[rows] = (rms(r[rows]) > goal) & (damping[rows] < 1e8)
        if made % 10 == 0:
            active &= cost < (1 - stall) * marker
            marker = cost.copy()
        if not active.any():
            break
    return Fit(state, rms(r), state.largest())


def _step(
    equations: Equations, state: State, r: Array, ridge: Array, added: Array, mask: Array | None
) -> tuple[Array, Array]:
    """(of the host [b, P], of the locals [b, t, local]): the step at residual r; the unknowns of each target are eliminated.

    ridge [b]; added [b]: ridge and damping, on the diagonal.
    """
    b, T, P, local = len(r), equations.targets, equations.global_size, equations.local_size
    host_j, local_j = equations.linearised(state)
    flat_r = r.reshape(b, T, -1)
    inner = local_j.swapaxes(-1, -2) @ local_j + added[:, None, None, None] * np.eye(local)
    g_local = (local_j.swapaxes(-1, -2) @ flat_r[..., None])[..., 0]
    g_local += ridge[:, None, None] * equations.local_vector(state)
    if not P:
        return np.zeros((b, 0)), -solve(inner, g_local[..., None])[..., 0]
    g_host = T * ridge[:, None] * equations.global_vector(state)
    if mask is not None:
        host_j, g_host = host_j * mask, g_host * mask
    flat = host_j.reshape(b, -1, P)
    g_host = g_host + (flat_r.reshape(b, 1, -1) @ flat)[:, 0]
    cross = local_j.swapaxes(-1, -2) @ host_j  # [b, t, local, P]
    eliminated = solve(inner, np.concatenate([cross, g_local[..., None]], axis=3))
    left = cross.reshape(b, T * local, P).swapaxes(-1, -2)
    schur = flat.swapaxes(-1, -2) @ flat - left @ eliminated[..., :-1].reshape(b, T * local, P)
    schur += T * added[:, None, None] * np.eye(P)
    rhs = g_host - (left @ eliminated[..., -1].reshape(b, T * local, 1))[..., 0]
    step_host = -solve(schur, rhs[..., None])[..., 0]
    back = g_local + (cross @ step_host[:, None, :, None])[..., 0]
    return step_host, -solve(inner, back[..., None])[..., 0]


def solve(matrices: Array, right: Array) -> Array:
    """matrices^-1 right, batched; where one is singular to the last bit, all get a little more on the diagonal."""
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:
        trace = np.trace(matrices, axis1=-2, axis2=-1)[..., None, None]
        return np.linalg.solve(matrices + 1e-10 * (1 + trace) * np.eye(matrices.shape[-1]), right)


def squares(array: Array) -> Array:
    """Sum of squares over all but the first axis [b]."""
    found: Array = (array.reshape(len(array), -1) ** 2).sum(axis=1)
    return found


def rms(r: Array) -> Array:
    """Root mean square over targets and words [b]."""
    found: Array = np.sqrt(squares(r) / max(1, int(np.prod(r.shape[1:]))))
    return found
