"""Levenberg-Marquardt for many restarts and many targets at once, on NumPy arrays or torch tensors.

The unknowns of each target are eliminated by a Schur complement, so that a step costs one factorisation in the host's
parameters. The arithmetic is written once, over `utfproof.ground.arrays.namespace`; what is decided for each restart
(accept, damp, stop) are a few numbers on the host.

Axis letters: b restarts, t targets, r residuals of a target, P parameters of the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array, eye, is_torch, namespace, require_device, to_numpy, zeros
from utfproof.search.problem import Problem

NUMPY, TORCH = "numpy", "torch"
DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class SearchEngine:
    """Where the batch is computed: NumPy (the reference) or torch on a device, in this dtype.

    Raises MalformedInput for an unknown name or dtype, a device that is not there, and NumPy on another device than the CPU.
    """

    name: str = NUMPY
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        if self.name not in (NUMPY, TORCH):
            raise MalformedInput(f"engine {self.name!r} is unknown; choose {NUMPY} or {TORCH}")
        if self.dtype not in DTYPES:
            raise MalformedInput(f"dtype {self.dtype!r} is unknown; choose {', '.join(DTYPES)}")
        if self.name == TORCH:
            require_device(self.device)
        elif self.device != "cpu":
            raise MalformedInput(f"the NumPy engine has no device {self.device!r}; use --engine torch")

    def array(self, values: np.ndarray) -> Array:
        """The same numbers on the device, in the dtype."""
        if self.name == NUMPY:
            return np.asarray(values, dtype=self.dtype)
        import torch

        # a copy: steps are written in place, and the reference's arrays must not change under it
        return torch.tensor(values, dtype=getattr(torch, self.dtype), device=self.device)

    def document(self) -> dict[str, str]:
        """For JSON."""
        out = {"name": self.name, "device": self.device, "dtype": self.dtype}
        if self.name == TORCH:
            import torch

            out["torch"] = str(torch.__version__)
        return out


REFERENCE = SearchEngine()


def take(array: Array, rows: Any) -> Array:
    """array[rows], a copy; rows: NumPy integers or booleans."""
    if is_torch(array):
        torch = namespace(array)
        return array[torch.as_tensor(rows, device=array.device)]
    return array[rows]


def put(whole: Array, rows: np.ndarray, piece: Array) -> None:
    """whole[rows] = piece, in place."""
    whole[namespace(whole).as_tensor(rows, device=whole.device) if is_torch(whole) else rows] = piece


def like(values: np.ndarray, array: Array) -> Array:
    """NumPy numbers, in the dtype and on the device of `array`."""
    if is_torch(array):
        return namespace(array).as_tensor(values, dtype=array.dtype, device=array.device)
    return np.asarray(values, dtype=array.dtype)


def permute(array: Array, *axes: int) -> Array:
    """Axes in this order."""
    return array.permute(*axes) if is_torch(array) else array.transpose(*axes)


def diagonal_added(matrices: Array, values: Array) -> Array:
    """matrices + values on their diagonals; values broadcast over all but the last axis. In place."""
    places = range(matrices.shape[-1])
    matrices[..., places, places] += values[..., None]
    return matrices


class Restarts:
    """Restarts side by side: a dataclass of arrays [b, ...]."""

    def arrays(self) -> tuple[Array, ...]:
        """The arrays, in order."""
        return tuple(getattr(self, part.name) for part in fields(self))  # type: ignore[arg-type]

    def copy(self) -> Self:
        """The same numbers, to be changed."""
        return self.pick(np.arange(len(self.arrays()[-1])))

    def pick(self, rows: Any) -> Self:
        """Some of the restarts, copied."""
        return type(self)(*(take(array, rows) for array in self.arrays()))

    def largest(self) -> np.ndarray:
        """The largest weight of each restart [b]."""
        found = [namespace(x).amax(abs(x.reshape(len(x), -1)), axis=1) for x in self.arrays() if math.prod(x.shape)]
        out: np.ndarray = np.maximum.reduce([to_numpy(x) for x in found]).astype(np.float64)
        return out


class RightSides:
    """Equations for right-hand sides `wanted` [t, ...] or, one for each restart, [b, t, ...]. frozen_host: the host is held,
    only what each target has of its own moves."""

    axes: int
    """Axes of `wanted`, restarts among them."""

    def __init__(self, problem: Problem, wanted: Array, *, frozen_host: bool = False) -> None:
        self.problem, self.frozen_host = problem, frozen_host
        self.wanted = wanted if len(wanted.shape) == self.axes else wanted[None]
        self.targets, self.rows = int(self.wanted.shape[1]), math.prod(self.wanted.shape[2:])

    def pick(self, rows: Any) -> Self:
        """The equations of some of the restarts."""
        if len(self.wanted) == 1:
            return self
        return type(self)(self.problem, take(self.wanted, rows), frozen_host=self.frozen_host)


@dataclass(frozen=True)
class Fit:
    """A batch after some iterations: the state, each restart's residual (root mean square over targets and words; targets
    have mean square 1), its largest weight, iterations made."""

    state: Any
    residual: np.ndarray
    largest: np.ndarray
    iterations: int


def levenberg_marquardt(
    equations: Any,
    state: Any,
    *,
    ridge: float | np.ndarray,
    iterations: int,
    goal: float = 1e-13,
    stall: float = 1e-4,
    mask: np.ndarray | None = None,
    local_mask: np.ndarray | None = None,
) -> Fit:
    """Minimise sum r^2 + ridge (|host|^2 t + |locals|^2) for each restart; each stops at residual `goal` or when ten steps
    gain less than the fraction `stall`.

    ridge: one for all, or [b]. mask [b, P]: 0 holds an entry of the host; local_mask [local]: one of
    the unknowns of every target. Deterministic.
    """
    T = equations.targets
    state = state.copy()
    r = equations.residual(state)
    B = len(r)
    ridges = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (B,))
    damping = np.full(B, 1e-2)

    def cost_of(s: Any, residual: Array, mu: np.ndarray) -> np.ndarray:
        host = T * squares(equations.global_vector(s))
        return squares(residual) + mu * (host + squares(equations.local_vector(s)))

    cost = cost_of(state, r, ridges)
    marker, active = cost.copy(), np.ones(B, dtype=bool)
    held = None if mask is None else like(mask, r)
    held_local = None if local_mask is None else like(local_mask, r)
    made = 0
    for made in range(1, iterations + 1):
        rows = np.flatnonzero(active)
        part, eq = state.pick(rows), equations.pick(rows)
        held_rows = None if held is None else take(held, rows)
        mu = like(ridges[rows], r)
        trial = eq.moved(part, *_step(eq, part, take(r, rows), mu, like(damping[rows], r) + mu, held_rows, held_local))
        trial_r = eq.residual(trial)
        trial_cost = cost_of(trial, trial_r, ridges[rows])
        better = trial_cost < cost[rows]
        good = rows[better]
        for whole, piece in zip((r, *state.arrays()), (trial_r, *trial.arrays()), strict=True):
            put(whole, good, take(piece, better))
        cost[good] = trial_cost[better]
        damping[rows] = np.where(better, np.maximum(damping[rows] / 3, 1e-15), np.minimum(damping[rows] * 4, 1e8))
        active[rows] = (rms(take(r, rows)) > goal) & (damping[rows] < 1e8)
        if made % 10 == 0:
            active &= cost < (1 - stall) * marker
            marker = cost.copy()
        if not active.any():
            break
    return Fit(state, rms(r), state.largest(), made)


def _step(
    equations: Any, state: Any, r: Array, ridge: Array, added: Array, held: Array | None, held_local: Array | None
) -> tuple[Array, Array]:
    """(of the host [b, P], of the locals [b, t, local]): the step at residual r; the unknowns of each target are eliminated.

    ridge [b]; added [b]: ridge and damping, on the diagonal; held [b, P] and held_local [local]: 0 where nothing moves.
    """
    b, T = len(r), equations.targets
    P, local = equations.global_size, equations.local_size
    host_j, local_j = equations.linearised(state)
    if held_local is not None:
        local_j = local_j * held_local
    flat_r = r.reshape(b, T, -1)
    inner = diagonal_added(local_j.swapaxes(-1, -2) @ local_j, added[:, None])
    g_local = (local_j.swapaxes(-1, -2) @ flat_r[..., None])[..., 0] + ridge[:, None, None] * equations.local_vector(
        state
    )
    if held_local is not None:
        g_local = g_local * held_local
    step_host, back = zeros(r, b, P), g_local
    if P:
        g_host = T * ridge[:, None] * equations.global_vector(state)
        if held is not None:
            host_j = host_j * held[:, None, None, :]
            g_host = g_host * held
        flat = host_j.reshape(b, -1, P)
        g_host = g_host + (flat_r.reshape(b, 1, -1) @ flat)[:, 0]
        cross = local_j.swapaxes(-1, -2) @ host_j  # [b, t, local, P]
        eliminated = solve(inner, namespace(r).concatenate([cross, g_local[..., None]], axis=3))
        left = cross.reshape(b, T * local, P).swapaxes(-1, -2)
        schur = flat.swapaxes(-1, -2) @ flat - left @ eliminated[..., :-1].reshape(b, T * local, P)
        schur = diagonal_added(schur, T * added)
        rhs = g_host - (left @ eliminated[..., -1].reshape(b, T * local, 1))[..., 0]
        step_host = -solve(schur, rhs[..., None])[..., 0]
        back = g_local + (cross @ step_host[:, None, :, None])[..., 0]
    return step_host, -solve(inner, back[..., None])[..., 0]


def solve(matrices: Array, right: Array) -> Array:
    """matrices^-1 right, batched; where one is singular to the last bit, all get a little more on the diagonal."""
    linalg = namespace(matrices).linalg
    try:
        return linalg.solve(matrices, right)
    except linalg.LinAlgError:
        size = matrices.shape[-1]
        trace = namespace(matrices).einsum("...ii->...", matrices)
        more = 1e-10 * (1 + trace)[..., None, None] * eye(size, matrices)
        return linalg.solve(matrices + more, right)


def squares(array: Array) -> np.ndarray:
    """Sum of squares over all but the first axis, float64 [b]."""
    flat = array.reshape(len(array), -1)
    out: np.ndarray = to_numpy((flat**2).sum(axis=1)).astype(np.float64)
    return out


def rms(r: Array) -> np.ndarray:
    """Root mean square over targets and words [b]."""
    count = max(1, int(np.prod(r.shape[1:])))
    out: np.ndarray = np.sqrt(squares(r) / count)
    return out
