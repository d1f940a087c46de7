"""A {0,1} host without the coordinates that nothing reads, and with those that all of its readers read alike added up.

A layer mixes rows (A X) and moves columns (X R_V), so columns may be added before they are mixed or after. Backwards from U,
the coordinates of the stream before a layer fall into classes: two are alike where, for every head, R_Q and R_K send them to
the same column and R_V into the same class of the next stream (and the residual stream too, where there is one). A stream
then holds a column for each class, the sum of its members; coordinates that go nowhere have none. The host is the same
function of every E and X in exact arithmetic. Nothing but its own index maps decides: neither E nor the target plays a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel
from utfproof.ground.arrays import Array, hstack, one_line
from utfproof.ground.selection import Partition, SelectionMatrix, uniform
from utfproof.systems import Universal, run_layers


@one_line
@dataclass(frozen=True, eq=False)
class LumpedHost(Universal):
    """A host on classes of its coordinates, m_l of them after l layers: R_Q, R_K [m_{l-1}, d], R_V [m_{l-1}, m_l], by
    [layer][head] though the host be tied; U [m_L, d_out]; m = m_0.

    kept [m_0]: the coordinates of E that are read; none of these are added up. passed: per layer, the residual stream's way
    into the next classes [m_{l-1}, m_l].
    """

    kept: Any = None
    passed: Any = None

    def __post_init__(self) -> None:
        """Widths differ from layer to layer."""

    def carried(self, layer: int) -> Any:
        return self.passed[layer]

    def forward(self, x: Array, E: Array, kernel: AttentionKernel, positions: Array | None = None) -> Array:
        """UTF(X, E) for x [..., n, d_in] and the columns of E that `taken` gives; layer 1 averages X, and not X E."""
        return run_layers(x @ E, self.shape, self.maps, kernel, positions, self.carried, (x, E)) @ self.U

    def taken(self, E: Array) -> Array:
        """The columns [..., d_in, m_0] of the host's E [..., d_in, m] that are read."""
        return E[..., self.kept]

    @property
    def widths(self) -> list[int]:
        """m_0, ..., m_L."""
        return [*(row[0].shape[0] for row in self.R_Q), self.U.shape[0]]

    @property
    def averaged(self) -> list[int]:
        """Columns that a layer averages, over its heads."""
        read = [sum(len(np.unique(matrix.row_cells)) for matrix in row) for row in self.R_V]
        return [self.shape.heads * self.shape.d_in, *read[1:]]


def lumped(host: Universal) -> LumpedHost | None:
    """The host on its classes. None for dense hosts, and for those with MLPs."""
    if not isinstance(host.U, SelectionMatrix) or host.mlp is not None:
        return None
    shape, known = host.shape, dict[int, SelectionMatrix]()

    def units(matrix: SelectionMatrix) -> SelectionMatrix:
        """The matrix on cells of one coordinate, once."""
        if id(matrix) not in known:
            rows, columns = map(_units, matrix.shape)
            known[id(matrix)] = SelectionMatrix(rows, columns, *matrix.coordinates())
        return known[id(matrix)]

    classes, members = _classes(units(host.U))
    U = members @ units(host.U)
    grids: list[list[Any]] = [[], [], [], []]
    for layer in reversed(range(shape.layers)):
        maps = [host.maps(layer, head) for head in range(shape.heads)]
        moved = [reduce(lambda found, matrix: units(matrix) @ found, reversed(entry.value), classes) for entry in maps]
        read = [[units(entry.query) for entry in maps], [units(entry.key) for entry in maps]]
        readers = [*read, moved, [classes] * shape.residual]
        classes, members = _classes(hstack([matrix for kind in readers for matrix in kind]), apart=not layer)
        for grid, kind in zip(grids, readers, strict=True):
            grid.insert(0, [members @ matrix for matrix in kind])
    R_Q, R_K, R_V, passed = grids
    kept, stream = members.column_cells, [entry[0] if entry else None for entry in passed]
    return LumpedHost(shape, len(kept), R_Q, R_K, R_V, U, host.construction, kept=kept, passed=stream)


def _units(size: int) -> Partition:
    return uniform(size, 1)


def _classes(readers: SelectionMatrix, *, apart: bool = False) -> tuple[SelectionMatrix, SelectionMatrix]:
    """Classes of equal rows of a matrix [m, columns] that are not zero; with `apart` each of these rows is a class. The class
    of each coordinate as a matrix [m, classes], and a member of each class, its first, as one [classes, m]."""
    rows, columns = readers.coordinates()
    order = np.lexsort((columns, rows))
    count = np.bincount(rows, minlength=readers.shape[0])
    alive, begin = np.flatnonzero(count), np.cumsum(count) - count
    labels = np.arange(len(alive)) if apart else np.zeros(len(alive), dtype=np.int64)
    ones, last = columns[order] + 1, max(len(order) - 1, 0)
    for place in range(0 if apart else count.max(initial=0)):
        # rows that agreed so far differ in their next one, or where only some have one
        following = np.where(count[alive] > place, ones[np.minimum(begin[alive] + place, last)], 0)
        _, labels = np.unique(labels * (readers.shape[1] + 1) + following, return_inverse=True)
    _, first, labels = np.unique(labels, return_index=True, return_inverse=True)
    numbers = np.argsort(np.argsort(first))
    m, k = _units(readers.shape[0]), _units(len(first))
    return SelectionMatrix(m, k, alive, numbers[labels]), SelectionMatrix(
        k, m, np.arange(len(first)), alive[np.sort(first)]
    )
