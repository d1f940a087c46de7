"""Rank and rank profiles modulo p of a matrix that memory does not hold: it is met in blocks of columns, and what a block
leaves for those behind it lies on disk.

Method. Let a block of columns stand as the blocks before it left it, and let P be its pivot rows, C its pivot columns. Every
column behind it becomes rest - G top, where top are its entries in the rows P, rest those in the rows that remain, and
G = A[rest, C] A[P, C]^-1. So a block of pivots is one matrix G, and a block of columns is updated by one product for each
block before it (left-looking: columns are read once, each G once for every block of columns behind it, nothing is written
twice). What remains of a block is eliminated in memory (`gfp.elimination`), pivots by columns and in the order of the
input's rows, which stay in that order: pivots show both rank profiles, as in memory.

Files. `matrix.json` says what is eliminated, and in which blocks. `block-N.bin` appears whole, when block N is settled, and
holds k and the rows that remain (int64), the positions of the pivot rows among the rows that remained before (int32 [k]),
pivot columns (int32 [k]), G (int32, row by row), and the CRC-32 of all this (int64), little-endian; the sum begins with
that of `matrix.json` and N, for a block says nothing under another width or number. A run that was killed goes on behind the
last block that is there, and first sums all that are: what is found rests on their heads also where no G is applied again.
Blocks are read, not mapped: what is held is what is announced.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.gfp.elimination import PANEL, Elimination
from utfproof.exact.gfp.field import check_prime
from utfproof.exact.gfp.functions import RankProfile
from utfproof.exact.gfp.kernels import NumpyKernels
from utfproof.ground.files import atomic_file, make_folder, read_json, write_json
from utfproof.ground.progress import LARGE, Stage, stage
from utfproof.ground.resources import LIBRARIES, default_limit, held_memory, require_memory

NARROWEST = 16
"""Columns that a block has at least (or all that there are): with fewer, more is read than computed."""
SLAB = 1 << 19
"""Entries of G that are met at a time (4 MiB)."""
_MATRIX = "matrix.json"


@dataclass(frozen=True)
class ColumnSource:
    """A matrix [rows, columns] modulo `prime`. name: what tells it from others, for resuming. fill(part, out [rows, width])
    writes residues of these columns; each block is asked for once."""

    name: str
    rows: int
    columns: int
    prime: int
    fill: Callable[[slice, np.ndarray], None]


@dataclass
class Traffic:
    """Bytes of blocks read and written by one run; settled: blocks that were there when it began."""

    read: int = 0
    written: int = 0
    settled: int = 0


@dataclass(frozen=True)
class DiskRank:
    """What was found: both profiles, columns of a block, how many blocks there are, and this run's traffic."""

    profile: RankProfile
    width: int
    blocks: int
    traffic: Traffic

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.profile.columns)


def memory_needed(rows: int, width: int) -> int:
    """Bytes held with blocks of so many columns: the block; a square (the rows `top`, or the inverse beside G); elimination's
    work space, and its widest panel or slabs of G and their products; what BLAS packs factors into."""
    products = min(rows * width // 2, max(1 << 21, 2 * PANEL * width))
    beside = max(rows * min(PANEL, width), 5 * _slab(rows, width, width) * width // 2)
    return 8 * (rows * width + width * width + products + beside) + min(LIBRARIES, 12_000 * width)


def block_width(rows: int, columns: int, max_memory: int | None = None) -> int:
    """The most columns that a block may have beside what the process holds. ResourceLimit where even few are too many."""
    allowed = (
        (default_limit() if max_memory is None else max_memory) - held_memory() - (1 << 20)
    )  # meanwhile it may grow
    low, high = min(NARROWEST, columns), columns + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if memory_needed(rows, middle) <= allowed else (low, middle)
    require_memory(memory_needed(rows, low), f"{low} columns of a matrix of {rows} rows", max_memory)
    return -(-columns // -(-columns // low)) if low else 0  # blocks of one size


def rank_profile_on_disk(source: ColumnSource, folder: Path | str, *, max_memory: int | None = None) -> DiskRank:
    """Rank profiles of a matrix with its blocks in a folder, which is made, or holds what an earlier run has settled.

    Raises MalformedInput for a modulus that is not one and a folder of another matrix or of blocks that have changed,
    ResourceLimit before anything is allocated, OutputFailed where the disk is full.
    """
    check_prime(source.prime)
    store = _Store(Path(folder), source, max_memory)
    starts = range(0, source.columns, store.width) if store.width else range(0)
    remaining, blocks = np.arange(source.rows), store.blocks
    for block in blocks:
        remaining = block.without_pivots(remaining)
    costs = [_cost(source, store.width, number) for number in range(len(starts))]
    # each one for all blocks: what is given back to the system and taken again is held twice for a while
    space, square = np.empty(source.rows * store.width), np.empty(store.width**2)
    with stage(f"rank modulo {source.prime} on disk", 100, unit="%", large=sum(costs) > LARGE) as doing:
        if blocks:
            doing.resume(100 * sum(costs[: len(blocks)]) / sum(costs))
        for number in range(len(blocks), len(starts)):
            if not len(remaining):
                break
            part = slice(starts[number], min(starts[number] + store.width, source.columns))
            work = space[: source.rows * (part.stop - part.start)].reshape(source.rows, -1)
            source.fill(part, work)
            block = _settle(work, part.start, square, store, _Advance(doing, 100 / sum(costs)))
            remaining = block.without_pivots(remaining)
            doing.reach(100 * sum(costs[: number + 1]) / sum(costs), f"block {number + 1} of {len(starts)}")
    kept = np.ones(source.rows, dtype=bool)
    kept[remaining] = False
    profile = RankProfile(np.flatnonzero(kept).tolist(), [c for block in blocks for c in block.columns.tolist()])
    return DiskRank(profile, store.width, len(starts), store.traffic)


def _cost(source: ColumnSource, width: int, number: int) -> float:
    """Operations of one block of columns, if all before it were full of pivots."""
    rows = [max(1, source.rows - k * width) for k in range(number + 1)]
    return 2.0 * width * width * (sum(rows[1:]) + 2 * rows[-1])


@dataclass(frozen=True)
class _Advance:
    doing: Stage
    share: float

    def __call__(self, operations: float) -> None:
        self.doing.advance(self.share * operations)


# --- one block of columns ------------------------------------------------------------------------------------


def _settle(work: np.ndarray, first: int, square: np.ndarray, store: _Store, advance: _Advance) -> _Block:
    """Update a block of columns, from number `first` on, by all before it, eliminate what remains of it, and write its G."""
    kernels, debt = NumpyKernels(store.source.prime), 0
    for block in store.blocks:
        top = square[: len(block.columns) * work.shape[1]].reshape(-1, work.shape[1])
        work, debt = _apply(block, work, top, debt, kernels, store.traffic)
        advance(2.0 * work.size * len(top))
    if debt:
        kernels.reduce(work)
    del kernels  # with its work space: elimination has its own
    found = Elimination(work, store.source.prime, ordered=True, factors=False)
    return store.write(found, first, square[: found.rank**2].reshape(found.rank, found.rank))


def _apply(
    block: _Block, work: np.ndarray, top: np.ndarray, debt: int, kernels: NumpyKernels, traffic: Traffic
) -> tuple[np.ndarray, int]:
    """The rows of `work` that remain after a block of pivots, rest - G top, and how many products they carry unreduced."""
    count = len(top)
    if not count:
        return work, debt
    np.take(work, block.positions, axis=0, out=top, mode="clip")  # clip: no copy between
    if debt:
        kernels.reduce(top)
    _close_gaps(work, block.positions)
    rest, after = work[count:], debt
    for start, lower in block.slabs(work.shape[1], traffic):
        after = kernels.accumulate(rest[start : start + len(lower)], lower, top, debt)
    return rest, after


def _close_gaps(work: np.ndarray, positions: np.ndarray) -> None:
    """Rows at other places than `positions` move behind the first len(positions) ones, in their order, in place."""
    count, last = len(positions), int(positions.max())
    if last + 1 == count:
        return
    moved = np.setdiff1d(np.arange(last + 1), positions, assume_unique=True)
    for stop in range(len(moved), 0, -PANEL):  # from the last on: what is written over has moved
        first = max(0, stop - PANEL)
        work[count + first : count + stop] = work[moved[first:stop]]


def _slab(rows: int, count: int, width: int) -> int:
    """Rows of G that are met at a time."""
    return max(1, min(rows, max(PANEL, min(SLAB, rows * width // 8) // max(1, count, width))))


# --- what lies on disk ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """The pivots of one block of columns: positions [k] of their rows among those that remained before, columns [k], and
    where G [rest, k] is."""

    path: Path
    mark: int
    positions: np.ndarray
    columns: np.ndarray
    rest: int

    @classmethod
    def read(cls, path: Path, mark: int) -> _Block:
        """What the file says, but for G. MalformedInput unless it is what was written; mark: the checksum's start."""
        with path.open("rb") as stream:
            data, checksum, left = stream.read(16), mark, path.stat().st_size - 8
            head = np.frombuffer(data, dtype="<i8") if len(data) == 16 else (-1, -1)
            count, rest = int(head[0]), int(head[1])
            if left != 16 + 4 * count * (2 + rest):
                raise _changed(path)
            while data:
                checksum, left = zlib.crc32(data, checksum), left - len(data)
                data = stream.read(min(left, 1 << 20))
            if stream.read() != np.array([checksum], dtype="<i8").tobytes():
                raise _changed(path)
            stream.seek(16)
            positions, columns = (np.frombuffer(stream.read(4 * count), dtype="<i4").astype(np.int64) for _ in "rc")
        return cls(path, mark, positions, columns, rest)

    def without_pivots(self, remaining: np.ndarray) -> np.ndarray:
        """The rows that remain after it, of those that remained before."""
        return np.delete(remaining, self.positions)

    def slabs(self, width: int, traffic: Traffic) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows of G in float64), all of them; MalformedInput at the end if the file is not what was written."""
        count = len(self.columns)
        step = _slab(self.rest, count, width)
        stored, floats = np.empty((step, count), dtype="<i4"), np.empty((step, count))
        with self.path.open("rb") as stream:
            checksum = zlib.crc32(stream.read(16 + 8 * count), self.mark)
            for start in range(0, self.rest, step):
                rows = stored[: min(step, self.rest - start)]
                traffic.read += stream.readinto(rows.data)
                checksum = zlib.crc32(rows.data, checksum)
                np.copyto(floats[: len(rows)], rows)
                yield start, floats[: len(rows)]
            if stream.read() != np.array([checksum], dtype="<i8").tobytes():
                raise _changed(self.path)


@dataclass
class _Store:
    """A folder with the blocks of one matrix."""

    folder: Path
    source: ColumnSource
    max_memory: int | None
    width: int = 0
    blocks: list[_Block] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        source, place = self.source, self.folder / _MATRIX
        asked = {"name": source.name, "rows": source.rows, "columns": source.columns, "prime": int(source.prime)}
        if not place.exists():
            self.width = block_width(source.rows, source.columns, self.max_memory)
            make_folder(self.folder)
            write_json(place, {**asked, "width": self.width})
            return
        told: Any = read_json(place)
        width = told.get("width") if isinstance(told, dict) else None
        if type(width) is not int or told != {**asked, "width": width}:
            raise MalformedInput(f"{self.folder} holds blocks of another matrix; name another folder, or remove it")
        self.width = width
        what = f"going on in {self.folder}, with blocks of {self.width} columns,"
        require_memory(memory_needed(source.rows, self.width), what, self.max_memory)
        while self._path(len(self.blocks)).exists():
            self.blocks.append(_Block.read(self._path(len(self.blocks)), self._mark()))
        self.traffic.settled = len(self.blocks)

    def _path(self, number: int) -> Path:
        return self.folder / f"block-{number}.bin"

    def _mark(self) -> int:
        """Where the next block's checksum begins."""
        return zlib.crc32((self.folder / _MATRIX).read_bytes() + str(len(self.blocks)).encode())

    def write(self, found: Elimination, first: int, inverse: np.ndarray) -> _Block:
        """The next block, from what elimination left of its columns; `first` is the number of their first, inverse [k, k]
        is written over."""
        work, count = found.work, found.rank
        order = np.argsort(found.rows[count:])
        inverse[:] = 0
        np.fill_diagonal(inverse, 1)
        found.forward(inverse, 0, len(found.blocks))
        positions, columns = found.rows[:count], np.array(found.columns, dtype=np.int64) + first
        path, mark = self._path(len(self.blocks)), self._mark()
        head = [np.array([count, len(order)], dtype="<i8"), positions.astype("<i4"), columns.astype("<i4")]
        checksum = mark
        with atomic_file(path) as stream:
            for part in head:
                checksum = zlib.crc32(part.data, checksum)
                stream.write(part.tobytes())
            step = _slab(len(order), count, work.shape[1])
            for start in range(0, len(order) if count else 0, step):
                lower = work[count + order[start : start + step], :count]
                rows = found.kernels.product(lower, inverse).astype("<i4")
                checksum = zlib.crc32(rows.data, checksum)
                stream.write(rows.data)
                self.traffic.written += rows.nbytes
            stream.write(np.array([checksum], dtype="<i8").tobytes())
        self.blocks.append(_Block(path, mark, positions, columns, len(order)))
        return self.blocks[-1]


def _changed(path: Path) -> MalformedInput:
    return MalformedInput(f"{path} is not what was written there; remove it and all blocks behind it, and start again")
