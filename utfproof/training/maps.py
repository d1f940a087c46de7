"""One layer's maps, which both engines apply: all queries and keys at once, and the R_V of each head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.util.selection import SelectionMatrix

if TYPE_CHECKING:
    from torch import Tensor

    from utfproof.training.model import Model


@dataclass(frozen=True)
class Copies:
    """A {0,1} matrix [m, width] as runs of coordinates (from, to) of equal length: x R is the sum over the runs."""

    runs: list[tuple[slice, slice]]
    width: int


class Maps:
    """One layer of a model, its matrices frozen in a host or trained. Copies take the place of products with index maps."""

    def __init__(self, model: Model, layer: int) -> None:
        self._model, self._layer = model, layer
        if model.host is not None:
            heads = [model.host.maps(layer, head) for head in range(model.shape.heads)]
            readers = [entry.query for entry in heads] + [entry.key for entry in heads]
            self._frozen = [factor(readers, model), *(factor(entry.value[:1], model) for entry in heads)]

    @property
    def copies(self) -> list[Copies] | None:
        """R_V of each head, None where they are no copies."""
        found = [] if self._model.host is None else [f for f in self._frozen[1:] if isinstance(f, Copies)]
        return found or None

    def read(self, x: Tensor) -> Tensor:
        """All queries, then all keys, [..., 2 H d] of x [..., m]."""
        import torch

        if self._model.host is not None:
            return times(x, self._frozen[0])
        names = ("W_Q", "W_K") if "W_Q" in self._model else ("R_Q", "R_K")
        return x @ torch.cat([matrix for name in names for matrix in self._model[name][self._layer]], 1)

    def move(self, head: int, x: Tensor) -> Tensor:
        """x R_V, [..., m]."""
        if self._model.host is not None:
            return times(x, self._frozen[1 + head])
        for name in ("W_V", "W_O") if "W_V" in self._model else ("R_V",):
            x = x @ self._model[name][self._layer, head]
        return x


def factor(matrices: Any, model: Model) -> Tensor | Copies:
    """Matrices side by side: copies where all are index maps, else one tensor."""
    import torch

    if not all(isinstance(matrix, SelectionMatrix) for matrix in matrices):
        return torch.as_tensor(np.concatenate([dense(matrix) for matrix in matrices], 1)).to(model["E"])
    starts = np.cumsum([0, *(matrix.shape[1] for matrix in matrices)])
    ones = [matrix.coordinates() for matrix in matrices]
    rows = np.concatenate([row for row, _ in ones])
    columns = np.concatenate([start + column for start, (_, column) in zip(starts[:-1], ones, strict=True)])
    return Copies(runs_of(rows, columns), int(starts[-1]))


def runs_of(rows: np.ndarray, columns: np.ndarray) -> list[tuple[slice, slice]]:
    """The ones of a {0,1} matrix as runs of consecutive coordinates (from, to)."""
    order = np.lexsort((rows, rows - columns))
    rows, columns = rows[order], columns[order]
    ends = np.flatnonzero((np.diff(rows) != 1) | (np.diff(columns) != 1)) + 1
    pieces = [*zip([0, *ends], [*ends, len(rows)], strict=True)] if len(rows) else []
    return [
        (slice(int(rows[a]), int(rows[b - 1]) + 1), slice(int(columns[a]), int(columns[b - 1]) + 1)) for a, b in pieces
    ]


def dense(matrix: Any) -> np.ndarray:
    """A host's parameter as float64."""
    return matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix, dtype=np.float64)


def times(x: Tensor, right: Tensor | Copies) -> Tensor:
    """x R for x [..., m]."""
    if not isinstance(right, Copies):
        return x @ right
    found = x.new_zeros(*x.shape[:-1], right.width)
    for source, place in right.runs:
        found[..., place] += x[..., source]
    return found
