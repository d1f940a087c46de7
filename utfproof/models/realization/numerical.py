"""A small host for one target in float64: states that matter less than a tolerance are left out.

The time-varying balanced truncation of linear systems, and with a residual stream the staircase of `hankel`, in orthonormal
bases. Nothing here is exact: a rank is a count of singular values above a tolerance, and the residual of E R_all = W_all is
reported as found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line, to_numpy
from utfproof.ground.resources import require_memory
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal

TOLERANCE = 1e-10
"""Singular values below this part of the largest are taken for zero."""


@one_line
@dataclass(frozen=True, eq=False)
class NumericalHost:
    """A float64 host and its embedding. ranks: singular values above the tolerance at l = 0 ... L; added: dimensions added
    there (with a residual stream). misfit: ||E R_all - W_all|| / ||W_all|| as computed in float64."""

    host: Universal
    E: np.ndarray
    tolerance: float
    ranks: tuple[int, ...]
    added: tuple[int, ...]
    misfit: float

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "m": self.host.m,
            "notion": "matching, up to the residual",
            "arithmetic": "float64",
            "tolerance": self.tolerance,
            "ranks": list(self.ranks),
            "added": list(self.added),
            "misfit": self.misfit,
        }


@dataclass(frozen=True)
class Floats:
    """The target's forms in float64."""

    shape: Shape
    W_E: np.ndarray
    W_Q: list[list[np.ndarray]]
    W_K: list[list[np.ndarray]]
    M: list[list[np.ndarray]]
    W_U: np.ndarray


def in_floats(target: Target) -> Floats:
    """The target's forms. MalformedInput for weights that are not finite."""

    def held(matrix: Any) -> np.ndarray:
        found = to_numpy(matrix).astype(np.float64)
        if not np.isfinite(found).all():
            raise MalformedInput("the target's weights hold NaN or infinity, or products overflow")
        return found

    shape = target.shape
    layers, heads = range(shape.layers), range(shape.heads)
    return Floats(
        shape,
        held(target.embedding()),
        [[held(target.parameters(layer, head)[0]) for head in heads] for layer in layers],
        [[held(target.parameters(layer, head)[1]) for head in heads] for layer in layers],
        [[held(target.value_form(layer, head)) for head in heads] for layer in layers],
        held(target.unembedding()),
    )


def _factor(stack: np.ndarray) -> np.ndarray:
    """F [D, at most D] with F F^T = stack stack^T, for stack [D, k]."""
    if stack.shape[1] <= stack.shape[0]:
        return stack
    left, values, _ = np.linalg.svd(stack, full_matrices=False)
    return left * values


def _reading(target: Floats) -> list[np.ndarray]:
    """Per boundary 0 ... L a factor F of the Gram matrix of everything that reads the stream from there on."""
    found = [_factor(target.W_U)]
    for layer in reversed(range(target.shape.layers)):
        parts = [*target.W_Q[layer], *target.W_K[layer], *(form @ found[-1] for form in target.M[layer])]
        if target.shape.residual:
            parts.append(found[-1])
        found.append(_factor(np.concatenate(parts, axis=1)))
    return found[::-1]


def _kept(values: np.ndarray, largest: float, tolerance: float) -> int:
    return int((values > tolerance * largest).sum()) if largest > 0 else 0


class _Builder:
    """Coordinates of the host, layer by layer: `represent` [t, D], a state of the target for each coordinate."""

    def __init__(self, target: Floats, tolerance: float) -> None:
        self.target, self.tolerance = target, tolerance
        self.reading = _reading(target)
        self.ranks: list[int] = []
        self.added: list[int] = []
        self.represent = np.zeros((0, target.W_E.shape[1]))
        self.reached = _factor(target.W_E.T).T
        self._write = self._boundary(0, self.reached)
        self.steps: list[tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]] = []

    def _boundary(self, layer: int, fresh: np.ndarray) -> Any:
        """Add coordinates for fresh states [k, D]; returns the map from states to coordinates."""
        reading, keeps = self.reading[layer], self.target.shape.residual
        old = self.represent if keeps else self.represent[:0]
        before, seen = old @ reading, fresh @ reading
        largest = float(np.linalg.norm(np.concatenate([before, seen]), 2)) if len(fresh) else 0.0
        values = np.linalg.svd(np.concatenate([before, seen]), compute_uv=False) if largest else np.zeros(0)
        self.ranks.append(_kept(values, largest, self.tolerance))
        inverse = np.linalg.pinv(before, rcond=self.tolerance) if len(old) else np.zeros((reading.shape[1], 0))
        rest = seen - seen @ inverse @ before
        left, sizes, right = np.linalg.svd(rest, full_matrices=False)
        count = _kept(sizes, largest, self.tolerance)
        basis = right[:count]
        states = (left[:, :count].T @ (fresh - seen @ inverse @ old)) / sizes[:count, None]
        self.added.append(count)
        self.represent = np.concatenate([old, states])

        def write(rows: np.ndarray) -> np.ndarray:
            read = rows @ reading
            known = read @ inverse
            return np.concatenate([known, (read - known @ before) @ basis.T], axis=1)

        return write

    def run(self) -> tuple[np.ndarray, list[tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]], np.ndarray]:
        """(E, per layer the rows of R_Q, R_K and R_V, rows of U)."""
        E = self._write(self.target.W_E)
        for layer in range(self.target.shape.layers):
            held = self.represent
            heads = range(self.target.shape.heads)
            moved = [self.reached @ self.target.M[layer][head] for head in heads]
            fresh = np.concatenate(moved)
            if self.target.shape.residual:
                self.reached = _factor(np.concatenate([self.reached, fresh]).T).T
            else:
                self.reached = _factor(fresh.T).T
            write = self._boundary(layer + 1, fresh)
            self.steps.append(
                (
                    [held @ self.target.W_Q[layer][head] for head in heads],
                    [held @ self.target.W_K[layer][head] for head in heads],
                    [write(held @ self.target.M[layer][head]) for head in heads],
                )
            )
        return E, self.steps, self.represent @ self.target.W_U


def numerical_host(
    target: Target, residual: bool | None = None, *, tolerance: float = TOLERANCE, max_memory: int | None = None
) -> NumericalHost:
    """A float64 host of the numerical least dimension, and its E.

    Raises MalformedInput for weights that are not finite, ResourceLimit before allocating.
    """
    shape = target.shape if residual is None else target.shape.with_residual(residual)
    if shape != target.shape:
        target = replace(target, shape=shape)
    held = in_floats(target)
    D = held.W_E.shape[1]
    M = matching_dimension(shape)
    needed = 8 * (shape.layers * shape.heads * D * (D + 2 * shape.head_dim) + 2 * (D + shape.d_in) * M)
    require_memory(needed, f"a host for one target at {shape}, width {D},", max_memory)
    builder = _Builder(held, tolerance)
    embedded, steps, output = builder.run()
    m = max(1, len(builder.represent) if shape.residual else max(builder.added))

    def padded(rows: np.ndarray, columns: int) -> np.ndarray:
        out = np.zeros((m, columns))
        out[: rows.shape[0], : rows.shape[1]] = rows
        return out

    d = shape.head_dim
    host = Universal(
        shape,
        m,
        np.array([[padded(x, d) for x in queries] for queries, _, _ in steps]),
        np.array([[padded(x, d) for x in keys] for _, keys, _ in steps]),
        np.array([[padded(x, m) for x in values] for _, _, values in steps]),
        padded(output, shape.d_out),
    )
    E = np.zeros((shape.d_in, m))
    E[:, : embedded.shape[1]] = embedded
    right = to_numpy(w_all(target)).astype(np.float64)
    found = _relative(E @ r_all(host) - right, right)
    return NumericalHost(host, E, tolerance, tuple(builder.ranks), tuple(builder.added), found)


def _relative(difference: np.ndarray, reference: np.ndarray) -> float:
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(difference)) / (scale or 1.0)


def truncated_host(target: Target, m: int, residual: bool | None = None) -> NumericalHost:
    """A float64 host of dimension at most m: the tolerance is raised until so few states are left.

    The bisection stops at the smallest tolerance found, to within one part in 2^20.
    """
    found = numerical_host(target, residual)
    if found.host.m <= m:
        return found
    low, high = np.log2(TOLERANCE), 0.0
    best = numerical_host(target, residual, tolerance=1.0)
    for _ in range(24):
        middle = (low + high) / 2
        trial = numerical_host(target, residual, tolerance=float(2**middle))
        if trial.host.m <= m:
            best, high = trial, middle
        else:
            low = middle
    return best
