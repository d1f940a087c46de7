"""Tied hosts for one tied target: between which two numbers their least m lies.

A tied host is a host, so the least m of `hankel` is a lower bound. The minimal realization of the target's matrices, repeated
without end, is a tied host: its dimension, the rank of the infinite Hankel matrix, is an upper bound (at most the target's
width).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, forms, least_dimension
from utfproof.models.realization.host import matches
from utfproof.systems import TiedTarget, TiedUniversal


@one_line
@dataclass(frozen=True, eq=False)
class TiedHost:
    """lower <= least m of a tied host that matches this tied target <= upper = m of the host given; E R_all = W_all exactly."""

    lower: int
    upper: int
    host: TiedUniversal
    E: np.ndarray

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"notion": "matching", "lower": self.lower, "upper": self.upper, "decided": self.lower == self.upper}


def _closed(start: Any, steps: list[Any]) -> Any:
    """A basis of the smallest space of rows that contains the rows of `start` and is carried into itself by every step."""
    rows = linear.rows_of(start, linear.independent_rows(start))
    fresh = rows
    while fresh.nrows():
        moved = linear.stacked([fresh * step for step in steps])
        old, new = linear.extended_basis(rows, moved)
        assert len(old) == rows.nrows()
        fresh = linear.rows_of(moved, new)
        rows = linear.stacked([rows, fresh])
    return rows


def tied_host(target: TiedTarget, residual: bool | None = None) -> TiedHost:
    """Bounds of the least m of tied hosts, and the tied host that reaches the upper one. MalformedInput for untied targets."""
    if not target.tied:
        raise MalformedInput("tied hosts are asked for tied targets; this one is untied")
    held: Forms = forms(target, residual)
    values = held.M[0]
    readers = linear.side_by_side([*held.W_Q[0], *held.W_K[0], held.W_U])
    columns = _closed(readers.transpose(), [form.transpose() for form in values]).transpose()
    states = _closed(held.W_E, values)
    states = linear.rows_of(states, linear.independent_rows(states * columns))
    seen = states * columns
    chosen = linear.independent_columns(seen)
    basis = linear.columns_of(seen, chosen)
    picked = linear.columns_of(columns, chosen)
    count, shape = states.nrows(), held.shape
    m = max(1, count)

    def padded(rows: Any, width: int) -> np.ndarray:
        out = np.zeros((m, width), dtype=object)
        found = linear.from_flint(rows)
        out[: found.shape[0], : found.shape[1]] = found
        return out

    def written(rows: Any) -> np.ndarray:
        return linear.from_flint(linear.coefficients(basis, rows * picked))

    E = np.zeros((shape.d_in, m), dtype=object)
    E[:, :count] = written(held.W_E)
    R_V = np.zeros((shape.heads, m, m), dtype=object)
    for head in range(shape.heads):
        R_V[head, :count, :count] = written(states * values[head])
    d = shape.head_dim
    host = TiedUniversal(
        shape,
        m,
        np.array([padded(states * x, d) for x in held.W_Q[0]], dtype=object),
        np.array([padded(states * x, d) for x in held.W_K[0]], dtype=object),
        R_V,
        padded(states * held.W_U, shape.d_out),
    )
    if not matches(host, E, held):
        raise AssertionError("the tied realization does not match its target")
    return TiedHost(least_dimension(held).m, m, host, E)
