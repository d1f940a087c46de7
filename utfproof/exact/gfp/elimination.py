"""Recursive block elimination modulo p, rank-revealing, with all the work in matrix products.

Form. With rows permuted by `rows`, A = L U, where U holds the pivot rows as they stand when they are chosen and L is block
unit lower triangular: its diagonal blocks are identities, so that a block step needs the inverse of a small square (kept)
and products only, no triangular solves within a block. L is stored compactly, column k of L in column k of `work`, below the
block that pivot k belongs to; row k of U occupies row k from its pivot column on. They never overlap, since pivot k lies
in column k or behind.

Recursion. Columns are halved down to panels of `PANEL`. A panel first tries its top square: if that is invertible by
Gauss-Jordan steps without exchanges (almost always, for generic matrices) its columns are all pivots. Otherwise the panel is
halved further, and at `THIN` columns pivots are searched in whole columns. Columns behind are updated once per level, and
reduced modulo p only when they become operands themselves, or when their sums would get too long to be exact: `debt`, below,
is the number of products that entries carry unreduced.

Pivot search by columns, among the candidates the row that came first in the input, reveals both rank profiles
(Dumas, Pernet and Sultan, "Computing the rank profile matrix"); `ordered=False` takes any candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.exact.gfp.field import centre
from utfproof.exact.gfp.kernels import NumpyKernels, TorchKernels, kernels_for
from utfproof.util.progress import LARGE, stage

PANEL = 96
SPARE = 8
"""Rows below a panel's top square that may be exchanged with its rows: small primes divide many leading minors."""
THIN = 8
_TINY = 4


@dataclass(frozen=True)
class PivotBlock:
    """Pivots start ... stop-1: the inverse [k, k] of U at these rows and pivot columns."""

    start: int
    stop: int
    inverse: Any


def invert_panel(table: np.ndarray, kernels: NumpyKernels) -> tuple[np.ndarray, np.ndarray] | None:
    """Inverse [k, k] of a square made of k rows of a table [rows >= k, k] of residues in main memory, and the order of the rows
    that puts those first. None where a leading minor vanishes, even after rows were exchanged.

    Gauss-Jordan in place, four columns at a time: their square is inverted among Python's integers, which costs less than
    array operations of this size. Entries grow by one product per column before they are reduced.
    """
    p, (rows, size), step = kernels.p, table.shape, min(_TINY, kernels.length)
    order, summed = np.arange(rows), 0
    line, column, scaled = (kernels.zeros(step, n) for n in (size, rows, size))
    update = np.empty_like(table)
    reduce_line, reduce_column, reduce_scaled = map(kernels.reducer, (line, column, scaled))
    for start in range(0, size, step):
        stop = min(start + step, size)
        if stop - start < step:
            line, column, scaled = line[: size - start], column[: size - start], scaled[: size - start]
        if summed + step > kernels.length:
            kernels.reduce(table)
            summed = 0
        column[:] = table[:, start:stop].T
        reduce_column()
        inverse = _invert_tiny(column[:, start:stop].T.astype(np.int64).tolist(), p)
        if inverse is None:
            chosen = _independent(column[:, start:].T.astype(np.int64), p)
            if chosen is None:
                return None
            for permuted in (table, order, column.T):
                permuted[start:] = permuted[start:][chosen]
            inverse = _invert_tiny(column[:, start:stop].T.astype(np.int64).tolist(), p)
            assert inverse is not None, "rows were chosen so that no leading minor vanishes"
        line[:] = table[start:stop]
        reduce_line()
        np.matmul(inverse, line, scaled, dtype=kernels.dtype, casting="unsafe")
        scaled[:, start:stop] = inverse
        reduce_scaled()
        table[:, start:stop] = 0
        np.subtract(table, np.dot(column.T, scaled, update), table)
        table[start:stop] = scaled
        summed += step
    square = table[:size]
    kernels.reduce(square)
    return square, order


def _independent(rows: np.ndarray, p: int) -> np.ndarray | None:
    """An order of integer rows [n, k], k <= n, in which the leading k minors do not vanish modulo p; None if there is none."""
    rows, order = rows % p, np.arange(len(rows))
    for k in range(rows.shape[1]):
        candidates = np.flatnonzero(rows[k:, k])
        if not len(candidates):
            return None
        swap, back = [k, k + int(candidates[0])], [k + int(candidates[0]), k]
        rows[swap], order[swap] = rows[back], order[back]
        factor = rows[k + 1 :, k] * pow(int(rows[k, k]), -1, p) % p
        rows[k + 1 :] = (rows[k + 1 :] - factor[:, None] * rows[k]) % p
    return order


def _invert_tiny(square: list[list[int]], p: int) -> np.ndarray | None:
    """The same for at most four rows of Python's integers, by the complement of what their first two rows reach."""
    size = len(square)
    if size < _TINY:
        square = [row + [0] * (_TINY - size) for row in square]
        square += [[int(j == i) for j in range(_TINY)] for i in range(size, _TINY)]
    (a, b, *B), (c, d, *D), (*C, m, n), (*G, o, q) = square
    if (first := _invert_two(a, b, c, d, p)) is None:
        return None
    right, left = _times_two(first, (*B, *D), p), _times_two((*C, *G), first, p)
    s, t, u, v = _times_two((*C, *G), right, p)
    if (last := _invert_two(m - s, n - t, o - u, q - v, p)) is None:
        return None
    below = _times_two(last, left, p)
    (a, b, c, d), (e, f, g, h), (i, j, k, l) = first, _times_two(right, last, p), below  # noqa: E741
    s, t, u, v = _times_two(right, below, p)
    m, n, o, q = last
    half = (p - 1) // 2
    entries = (a + s, b + t, -e, -f, c + u, d + v, -g, -h, -i, -j, m, n, -k, -l, o, q)
    inverse = np.array([(x + half) % p - half for x in entries], dtype=np.float64).reshape(_TINY, _TINY)
    return inverse[:size, :size]


_Two = tuple[int, ...]


def _invert_two(a: int, b: int, c: int, d: int, p: int) -> _Two | None:
    """Inverse modulo p of the rows (a, b), (c, d); None where their determinant or a is zero."""
    determinant = (a * d - b * c) % p
    if not (a % p and determinant):
        return None
    inverse = pow(determinant, -1, p)
    return d * inverse % p, -b * inverse % p, -c * inverse % p, a * inverse % p


def _times_two(x: _Two, y: _Two, p: int) -> _Two:
    """The product of two such squares modulo p."""
    a, b, c, d = x
    e, f, g, h = y
    return (a * e + b * g) % p, (a * f + b * h) % p, (c * e + d * g) % p, (c * f + d * h) % p


class Elimination:
    """A matrix of residues, eliminated in place (`work` [m, n], NumPy or torch).

    rows [m]: position -> row of the input. columns: pivot columns, ascending. blocks: see `PivotBlock`. factors=False leaves
    out what only U needs.
    """

    def __init__(self, work: Any, p: int, *, ordered: bool = False, factors: bool = True) -> None:
        self.work = work
        self.p = p
        self.kernels: NumpyKernels | TorchKernels = kernels_for(work, p)
        self._small = NumpyKernels(p, str(work.dtype).removeprefix("torch."))
        self._ordered = ordered
        self._factors = factors
        self.rows = np.arange(work.shape[0])
        self.columns: list[int] = []
        self.blocks: list[PivotBlock] = []
        m, n = work.shape
        r = min(m, n)
        operations = 2.0 * (m * n * r - (m + n) * r * r / 2 + r**3 / 3)
        with stage(f"elimination modulo {p}", 100, unit="%", large=operations > LARGE) as doing:
            self._tell = lambda more: doing.advance(100 * more / operations)
            self._eliminate(0, n, 0)

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.columns)

    def _eliminate(self, left: int, right: int, debt: int) -> None:
        """Find the pivots of columns left ... right-1, whose entries in rows from `rank` on are up to date."""
        top, height = self.rank, self.work.shape[0]
        width = right - left
        if top == height or not width:
            return
        if width <= PANEL:
            if debt:
                self.kernels.reduce(self.work[top:, left:right])
                debt = 0
            if self._panel(left, right):
                return
        if width > height - top:
            middle = left + (height - top)  # no more pivots than rows: what is behind may never be needed
        elif width > PANEL:
            middle = left + -(-width // (2 * PANEL)) * PANEL
        else:
            middle = left + width // 2
        first = len(self.blocks)
        self._eliminate(left, middle, debt)
        if self.rank > top and (self._factors or self.rank < height):
            debt = self._update(first, middle, right, debt)
        self._eliminate(middle, right, debt)

    def _update(self, first: int, left: int, right: int, debt: int) -> int:
        """Apply the pivots of the blocks from `first` on to columns left ... right-1; returns the new debt below."""
        work, start, stop = self.work, self.blocks[first].start, self.rank
        self.forward(work[:, left:right], first, len(self.blocks), debt)
        operands = work[stop:, start:stop], work[start:stop, left:right]
        debt = self.kernels.accumulate(work[stop:, left:right], *operands, debt)
        # with the triangular solve before it
        self._tell(2.0 * (work.shape[0] - stop / 2 - start / 2) * (stop - start) * (right - left))
        return debt

    def forward(self, right: Any, first: int, last: int, debt: int = 0) -> None:
        """Solve with the diagonal part of L that belongs to blocks first ... last-1, in place on right [m, k]."""
        if last - first <= 1:
            if debt and last > first:
                self.kernels.reduce(right[self.blocks[first].start : self.blocks[first].stop])
            return
        middle = (first + last) // 2
        start, split, stop = self.blocks[first].start, self.blocks[middle].start, self.blocks[last - 1].stop
        self.forward(right, first, middle, debt)
        debt = self.kernels.accumulate(right[split:stop], self.work[split:stop, start:split], right[start:split], debt)
        self.forward(right, middle, last, debt)

    def backward(self, right: Any, first: int, last: int, upper: Any, debt: int = 0) -> None:
        """Solve with the diagonal part of U at the pivot columns, upper [rank, rank], in place on right [rank, k]."""
        if last - first < 1:
            return
        if last - first == 1:
            block = self.blocks[first]
            part = right[block.start : block.stop]
            if debt:
                self.kernels.reduce(part)
            part[:] = self.kernels.product(block.inverse, part)
            return
        middle = (first + last) // 2
        start, split, stop = self.blocks[first].start, self.blocks[middle].start, self.blocks[last - 1].stop
        self.backward(right, middle, last, upper, debt)
        debt = self.kernels.accumulate(right[start:split], upper[start:split, split:stop], right[split:stop], debt)
        self.backward(right, first, middle, upper, debt)

    # --- panels ------------------------------------------------------------------------------------------------

    def _panel(self, left: int, right: int) -> bool:
        """Settle a panel; False where it has to be halved."""
        top, width = self.rank, right - left
        if self._ordered:
            self._sort_top(width)
        if self.work.shape[0] - top >= width:
            spare = 0 if self._ordered else SPARE
            found = invert_panel(self.kernels.host(self.work[top : top + width + spare, left:right]), self._small)
            if found is not None:
                square, order = found
                self._reorder(order)
                self._append(list(range(left, right)), square)
                return True
        if width > THIN:
            return False
        self._thin(left, right)
        return True

    def _append(self, columns: list[int], inverse: np.ndarray) -> None:
        """A block whose pivot rows stand at the top; write its part of L."""
        top, stop = self.rank, self.rank + len(columns)
        on_device = self.kernels.device(inverse)
        adjacent = columns[-1] - columns[0] + 1 == len(columns)
        below = self.work[stop:, columns[0] : columns[-1] + 1] if adjacent else self.work[stop:, columns]
        if below.shape[0]:
            self.work[stop:, top:stop] = self.kernels.product(below, on_device)
        self.blocks.append(PivotBlock(top, stop, on_device))
        self.columns += columns

    def _thin(self, left: int, right: int) -> None:
        """Pivot search over whole columns, on a transposed copy in main memory [width, rows]."""
        top, p, small = self.rank, self.p, self._small
        table = np.ascontiguousarray(self.kernels.host(self.work[top:, left:right]).T)
        if not table.any():
            return
        origin = self.rows[top:].copy()
        order = np.arange(len(origin))
        pivots: list[int] = []
        summed = 0
        for column in range(right - left):
            found = len(pivots)
            if found == len(origin):
                break
            small.reduce(table[column:, found:] if summed == small.length else table[column : column + 1, found:])
            summed = 0 if summed == small.length else summed
            candidates = np.flatnonzero(table[column, found:])
            if not len(candidates):
                continue
            pick = candidates[np.argmin(origin[found + candidates])] if self._ordered else candidates[0]
            if pick:
                swap, back = [found, found + int(pick)], [found + int(pick), found]
                table[:, swap] = table[:, back]
                order[swap], origin[swap] = order[back], origin[back]
            pivots.append(left + column)
            if column + 1 == right - left:
                break
            small.reduce(table[column + 1 :, found : found + 1])
            inverse = centre(pow(int(table[column, found]), -1, p), p)
            factor = table[column : column + 1, found + 1 :] * inverse
            small.reduce(factor)
            table[column + 1 :, found + 1 :] -= table[column + 1 :, found : found + 1] * factor
            summed += 1
        if not pivots:
            return
        self._reorder(order)
        square = self.kernels.host(self.work[top : top + len(pivots), pivots])
        inverted = invert_panel(square, small)
        assert inverted is not None, "pivots were found one by one, so every leading minor is nonzero"
        self._append(pivots, inverted[0])

    def _reorder(self, order: np.ndarray) -> None:
        """The first rows from `rank` on become those that stood at `rank` + order."""
        moved = np.flatnonzero(order != np.arange(len(order)))
        if len(moved):
            targets, sources = self.rank + moved, self.rank + order[moved]
            self.kernels.permute_rows(self.work, targets, sources)
            self.rows[targets] = self.rows[sources]

    def _sort_top(self, width: int) -> None:
        """Bring the `width` remaining rows that came first in the input to the top, in their order."""
        origin = self.rows[self.rank :]
        count = min(width, len(origin))
        if (origin[:count] == np.arange(origin[0], origin[0] + count)).all() and origin[0] == origin.min():
            return
        first = np.argpartition(origin, count - 1)[:count] if count < len(origin) else np.arange(count)
        first = first[np.argsort(origin[first])]
        order = np.arange(len(origin))
        vacated = np.setdiff1d(first, np.arange(count), assume_unique=True)
        displaced = np.setdiff1d(np.arange(count), first, assume_unique=True)
        order[:count] = first
        order[vacated] = displaced
        self._reorder(order)
