"""`utfproof rank`: the rank of a stored matrix modulo a prime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from utfproof.errors import MalformedInput
from utfproof.ground.forms import WHOLE
from utfproof.ground.resources import require_memory
from utfproof.jobs.groups import Limited
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option

SHOWN = 10
"""Dependent rows and columns that people see."""


@dataclass(frozen=True, kw_only=True)
class Rank(Limited, Job, order=45):
    """Rank of a matrix in a file modulo a prime, and which rows and columns depend on those before them.

    Floats are read as exact rationals. A full rank modulo a prime is the matrix's rank; a smaller one is a lower bound.
    Exit 0, whatever the rank is.
    """

    examples = "Example: utfproof rank matrix.npy --max-memory 2G"
    form: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(("rows", "columns", "prime", "rank"), WHOLE),
        "dependent_rows": [WHOLE],
        "dependent_columns": [WHOLE],
        "matrix": str,
        "exact": bool,
    }
    matrix: Path = argument(..., "A matrix: .npy, or a tensor of a .safetensors file.")
    tensor: str | None = option(None, "Name of the tensor in a .safetensors file; its only one by default.")
    prime: int | None = option(None, "Odd prime below 2^27; the engine's own by default.")

    def run(self) -> Outcome:
        from utfproof.exact import gfp

        prime = gfp.DEFAULT_PRIMES[0] if self.prime is None else gfp.check_prime(self.prime)
        matrix = _matrix(self.matrix, self.tensor)
        if matrix.ndim != 2:
            raise MalformedInput(f"{self.matrix} holds an array of shape {matrix.shape}; a matrix is expected")
        rows, columns = (int(size) for size in matrix.shape)
        require_memory(32 * rows * columns, f"the rank of a {rows} x {columns} matrix", self.limit)
        residues = gfp.residues(matrix, prime, name=str(self.matrix))
        profile = gfp.rank_profile(residues, prime)
        rank = len(profile.columns)
        full = rank == min(rows, columns)
        outside = {
            "rows": sorted(set(range(rows)) - set(profile.rows)),
            "columns": sorted(set(range(columns)) - set(profile.columns)),
        }
        document = {
            "matrix": str(self.matrix),
            "rows": rows,
            "columns": columns,
            "prime": prime,
            "rank": rank,
            "exact": full,
            "dependent_rows": outside["rows"],
            "dependent_columns": outside["columns"],
        }
        meaning = "full, so this is its rank" if full else "its rank is at least this"
        shown = {
            "matrix": f"{rows} x {columns}, {self.matrix}",
            "rank": f"{rank} modulo {prime}: {meaning}",
            **{f"dependent {name}": _listed(numbers) for name, numbers in outside.items() if numbers},
        }
        return Outcome(document, f"rank {self.matrix}", shown)


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return ", ".join(map(str, numbers[:SHOWN])) + more


def _matrix(path: Path, tensor: str | None) -> Any:
    """The array in a file."""
    import numpy as np

    from utfproof.weights.tensors import read_tensors

    if path.suffix != ".npy":
        tensors = read_tensors(path).tensors
        if tensor is None and len(tensors) == 1:
            (tensor,) = tensors
        if tensor not in tensors:
            raise MalformedInput(f"{path} holds {', '.join(tensors) or 'no tensor'}; choose one with --tensor")
        return tensors[tensor]
    if tensor is not None:
        raise MalformedInput("--tensor belongs to .safetensors files; a .npy file holds one matrix")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise MalformedInput(f"cannot read {path} as a .npy file: {error}") from None
