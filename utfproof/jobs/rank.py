"""`utfproof rank`: the rank of a stored matrix modulo a prime, in memory or beyond it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from utfproof.errors import MalformedInput
from utfproof.ground.forms import WHOLE
from utfproof.jobs.groups import Limited
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option

if TYPE_CHECKING:
    import numpy as np

    from utfproof.exact.out_of_core import ColumnSource

SHOWN = 10
"""Dependent rows and columns that are named to people."""


@dataclass(frozen=True, kw_only=True)
class Rank(Limited, Job, order=45):
    """Rank of a matrix in a file modulo a prime, and which rows and columns depend on those before them.

    A matrix that memory does not hold is met in blocks of columns, which lie on disk (--folder). Floats are taken as the
    dyadic rationals that they are. Exit 0, whatever the rank is.
    """

    examples = "Example: utfproof rank matrix.npy --max-memory 2G --folder blocks"
    form: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(("rows", "columns", "prime", "rank", "block_width", "blocks", "blocks_resumed"), WHOLE),
        **dict.fromkeys(("bytes_read", "bytes_written"), WHOLE),
        "dependent_rows": [WHOLE],
        "dependent_columns": [WHOLE],
        "matrix": str,
        "exact": bool,
    }
    matrix: Path = argument(..., "A matrix: .npy, or a tensor of a .safetensors file.")
    tensor: str | None = option(None, "Which tensor of a .safetensors file; its only one unless said otherwise.")
    prime: int | None = option(None, "Odd prime below 2^27; the engine's own by default.")
    folder: Path | None = option(
        None,
        "Where blocks are left, so that a run that was killed goes on from there; else a temporary folder.",
        aside=True,
    )

    def run(self) -> Outcome:
        from utfproof.exact import gfp
        from utfproof.exact.out_of_core import rank_profile_on_disk

        prime = gfp.DEFAULT_PRIMES[0] if self.prime is None else gfp.check_prime(self.prime)
        source = _source(self.matrix, self.tensor, prime)
        with TemporaryDirectory() if self.folder is None else nullcontext(str(self.folder)) as folder:
            found = rank_profile_on_disk(source, folder, max_memory=self.limit)
        full = found.rank == min(source.rows, source.columns)
        outside = {
            "rows": sorted(set(range(source.rows)) - set(found.profile.rows)),
            "columns": sorted(set(range(source.columns)) - set(found.profile.columns)),
        }
        document = {
            "matrix": str(self.matrix),
            "rows": source.rows,
            "columns": source.columns,
            "prime": prime,
            "rank": found.rank,
            "exact": full,
            "dependent_rows": outside["rows"],
            "dependent_columns": outside["columns"],
            "block_width": found.width,
            "blocks": found.blocks,
            "blocks_resumed": found.traffic.settled,
            "bytes_written": found.traffic.written,
            "bytes_read": found.traffic.read,
        }
        told = "full, so this is its rank" if full else "its rank is at least this"
        rows = {
            "matrix": f"{source.rows} x {source.columns}, {self.matrix}",
            "rank": f"{found.rank} modulo {prime}: {told}",
            **{f"dependent {name}": _listed(numbers) for name, numbers in outside.items() if numbers},
            "blocks": f"{found.blocks} of {found.width} columns",
            "on disk": f"{found.traffic.written} bytes written, {found.traffic.read} read",
        }
        return Outcome(document, f"rank {self.matrix}", rows)


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return ", ".join(map(str, numbers[:SHOWN])) + more


def _source(path: Path, tensor: str | None, prime: int) -> ColumnSource:
    """The matrix in a file, mapped; its residues are made a few rows at a time."""
    from utfproof.exact import gfp
    from utfproof.exact.out_of_core import SLAB, ColumnSource

    matrix, name = _matrix(path, tensor)
    if matrix.ndim != 2:
        raise MalformedInput(f"{path} holds an array of shape {matrix.shape}; a matrix is expected")
    rows, columns = (int(size) for size in matrix.shape)

    def fill(part: slice, out: np.ndarray) -> None:
        step = max(1, SLAB // (8 * max(1, out.shape[1])))
        for start in range(0, rows, step):
            where = f"{path}: rows from {start} on, columns from {part.start} on,"
            out[start : start + step] = gfp.residues(matrix[start : start + step, part], prime, name=where)

    stamp = path.stat()
    told = f"{path.resolve()} {name} of {stamp.st_size} bytes, changed {stamp.st_mtime_ns}"
    return ColumnSource(told, rows, columns, prime, fill)


def _matrix(path: Path, tensor: str | None) -> tuple[Any, str]:
    """The array, mapped from its file, and the name of its tensor."""
    import numpy as np

    from utfproof.weights.tensors import read_tensors

    if path.suffix != ".npy":
        tensors = read_tensors(path).tensors
        if tensor is None and len(tensors) == 1:
            (tensor,) = tensors
        if tensor not in tensors:
            raise MalformedInput(f"{path} holds {', '.join(tensors) or 'no tensor'}; name one with --tensor")
        return tensors[tensor], tensor
    if tensor is not None:
        raise MalformedInput("--tensor belongs to .safetensors files; a .npy file holds one matrix")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), ""
    except (OSError, ValueError, EOFError) as error:
        raise MalformedInput(f"cannot read {path} as a .npy file: {error}") from None
