"""{0,1} matrices made of identity blocks between cells of coordinates: the parameters of the sparse and tied hosts.

A host of millions of dimensions is a few arrays of cell numbers here; products of such matrices are joins of index
lists, and `x @ R` is a gather (or a sum of gathers), for NumPy arrays, exact object arrays and torch tensors alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, block_coordinates, is_torch, one_line, zeros


@one_line
@dataclass(frozen=True)
class Partition:
    """Coordinates 0 ... size-1 cut into consecutive cells; `offsets` [cells + 1] starts at 0 and ends at size."""

    offsets: np.ndarray

    @classmethod
    def of_widths(cls, widths: Any) -> Partition:
        """Cells of these widths, in order."""
        return cls(np.concatenate([[0], np.cumsum(np.asarray(widths, dtype=np.int64))]).astype(np.int64))

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.offsets[-1])

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.offsets) - 1

    @cached_property
    def widths(self) -> np.ndarray:
        """Width of each cell [cells]."""
        return np.diff(self.offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and np.array_equal(self.offsets, other.offsets)

    __hash__ = None  # type: ignore[assignment]


@one_line
@dataclass(frozen=True, eq=False)
class SelectionMatrix:
    """Matrix [rows.size, columns.size] with an identity between row cell `row_cells[k]` and column cell
    `column_cells[k]` for every k. A pair may pair cells of different width: the identity covers the smaller one.
    A pair that occurs twice counts twice (entries add up)."""

    rows: Partition
    columns: Partition
    row_cells: np.ndarray
    column_cells: np.ndarray

    __array_ufunc__ = None  # NumPy defers `x @ self` to __rmatmul__

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in coordinates."""
        return self.rows.size, self.columns.size

    @property
    def pair_widths(self) -> np.ndarray:
        """Width of the identity of each pair."""
        return np.minimum(self.rows.widths[self.row_cells], self.columns.widths[self.column_cells])

    @property
    def nonzeros(self) -> int:
        """Number of ones (with multiplicity)."""
        return int(self.pair_widths.sum())

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """(row, column) coordinate of every one, int64 [nonzeros] each."""
        widths = self.pair_widths
        within = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
        rows = np.repeat(self.rows.offsets[self.row_cells], widths) + within
        columns = np.repeat(self.columns.offsets[self.column_cells], widths) + within
        return rows, columns

    def to_dense(self, dtype: Any = np.int64) -> np.ndarray:
        """The matrix itself."""
        rows, columns = self.coordinates()
        out = np.zeros(self.shape, dtype=dtype)
        np.add.at(out, (rows, columns), 1)
        return out

    def transposed(self) -> SelectionMatrix:
        """The transpose."""
        return SelectionMatrix(self.columns, self.rows, self.column_cells, self.row_cells)

    def __rmatmul__(self, x: Array) -> Array:
        if x.shape[-1] != self.rows.size:
            raise MalformedInput(f"cannot multiply {tuple(x.shape)} by {self.shape}")
        rows, columns, first = self._gather
        if is_torch(x):
            import torch

            out = zeros(x, *x.shape[:-1], self.columns.size)
            rows_t = torch.from_numpy(rows).to(x.device)
            columns_t = torch.from_numpy(columns).to(x.device)
            return out.index_add(-1, columns_t, x.index_select(-1, rows_t))
        taken = np.take(x, rows, axis=-1)
        if len(first) < len(columns):
            taken, columns = np.add.reduceat(taken, first, axis=-1), columns[first]
        if len(columns) == self.columns.size:
            return taken
        out = zeros(x, *x.shape[:-1], self.columns.size)
        out[..., columns] = taken
        return out

    @cached_property
    def _gather(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of the ones, sorted by column, and where each new column begins: kept for the next product."""
        rows, columns = self.coordinates()
        order = np.argsort(columns, kind="stable")
        rows, columns = rows[order], columns[order]
        return rows, columns, np.flatnonzero(np.diff(columns, prepend=-1))

    @cached_property
    def read_first(self) -> tuple[SelectionMatrix, SelectionMatrix]:
        """Two factors: the rows with a one, picked out; and the matrix of these rows alone."""
        rows, columns = self.coordinates()
        used, place = np.unique(rows, return_inverse=True)
        units, inner = uniform(self.rows.size, 1), uniform(len(used), 1)
        rest = SelectionMatrix(inner, uniform(self.columns.size, 1), place.astype(np.int64), columns)
        return SelectionMatrix(units, inner, used, np.arange(len(used))), rest

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, SelectionMatrix):
            return NotImplemented
        if self.columns != other.rows:
            raise MalformedInput(f"cannot multiply cells of {self.shape} by cells of {other.shape}")
        order = np.argsort(self.column_cells, kind="stable")
        keys = self.column_cells[order]
        low = np.searchsorted(keys, other.row_cells, side="left")
        count = np.searchsorted(keys, other.row_cells, side="right") - low
        position = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        product = SelectionMatrix(
            self.rows, other.columns, self.row_cells[order][position], np.repeat(other.column_cells, count)
        )
        middle = np.minimum(self.pair_widths[order][position], np.repeat(other.pair_widths, count))
        if not np.array_equal(product.pair_widths, middle):
            raise MalformedInput("cells of unequal width meet in a product; use a finer partition")
        return product

    def hstack_with(self, others: list[SelectionMatrix]) -> SelectionMatrix:
        """This matrix and others side by side (same row partition)."""
        parts = [self, *others]
        starts = np.cumsum([0] + [part.columns.cells for part in parts[:-1]])
        return SelectionMatrix(
            self.rows,
            Partition.of_widths(np.concatenate([part.columns.widths for part in parts])),
            np.concatenate([part.row_cells for part in parts]),
            np.concatenate([part.column_cells + start for part, start in zip(parts, starts, strict=True)]),
        )

    def take_column_blocks(self, widths: np.ndarray, order: np.ndarray) -> SelectionMatrix:
        """The same columns, cut into consecutive blocks of whole cells, with the blocks in this order."""
        cuts = np.searchsorted(self.columns.offsets, np.concatenate([[0], np.cumsum(widths)]))
        taken = block_coordinates(np.diff(cuts), order)  # of cells
        place = np.empty_like(taken)
        place[taken] = np.arange(len(taken))
        return SelectionMatrix(
            self.rows, Partition.of_widths(self.columns.widths[taken]), self.row_cells, place[self.column_cells]
        )

    def unit_rows(self) -> np.ndarray | None:
        """For a matrix whose columns are pairwise different unit vectors: the row of each column, int64 [columns].
        None otherwise. (Its rank is then the number of its columns.)"""
        order = np.argsort(self.column_cells, kind="stable")
        if not np.array_equal(self.column_cells[order], np.arange(self.columns.cells)):
            return None
        row_cells = self.row_cells[order]
        full = np.array_equal(self.pair_widths[order], self.columns.widths)
        if not full or len(np.unique(row_cells)) < len(row_cells):
            return None
        widths = self.columns.widths
        return np.repeat(self.rows.offsets[row_cells] - self.columns.offsets[:-1], widths) + np.arange(
            self.columns.size
        )


# --- equal cells: for maps whose blocks do not line up -----------------------------------------------------


def uniform(size: int, unit: int) -> Partition:
    """Coordinates cut into cells of width `unit` (which divides the size)."""
    return Partition(np.arange(0, size + 1, unit, dtype=np.int64))


def pieces(
    rows: Partition, columns: Partition, row_starts: np.ndarray, column_starts: np.ndarray, width: int, unit: int
) -> SelectionMatrix:
    """Identities of one width between coordinates row_starts[k]... and column_starts[k]..., over equal cells."""
    steps = np.arange(width // unit)
    return SelectionMatrix(
        rows,
        columns,
        (np.asarray(row_starts)[:, None] // unit + steps).reshape(-1),
        (np.asarray(column_starts)[:, None] // unit + steps).reshape(-1),
    )


def over_equal_cells(matrix: SelectionMatrix, rows: Partition, unit: int) -> SelectionMatrix:
    """The same matrix over equal cells."""
    columns = uniform(matrix.columns.size, unit)
    r, c = matrix.coordinates()
    keep = r % unit == 0
    return SelectionMatrix(rows, columns, r[keep] // unit, c[keep] // unit)
