"""`utfproof rank`: the rank of a stored matrix modulo a prime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import MaxMemory
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.util.files import require_regular
from utfproof.util.resources import require_memory

SHOWN = 10
"""Dependent rows and columns that people see."""


def rank(*, matrix: Annotated[Path, typer.Argument(help="A matrix: .npy.")], max_memory: MaxMemory = None) -> Outcome:
    """Compute the rank of a stored matrix modulo a prime.

    It names the rows and columns that depend on those before them. Floats are read as exact rationals. A full rank modulo a
    prime is the matrix's rank; a smaller one is a lower bound. Exit 0, whatever the rank is.

    Example: utfproof rank matrix.npy --max-memory 2G
    """
    from utfproof.exact import gfp

    array = _matrix(matrix)
    if array.ndim != 2:
        raise MalformedInput(f"{matrix} holds an array of shape {array.shape}; a matrix is expected")
    rows, columns = (int(size) for size in array.shape)
    require_memory(32 * rows * columns, f"the rank of a {rows} x {columns} matrix", max_memory)

    def residues(p: int) -> Any:
        return gfp.residues(array, p, name=str(matrix), dtype=gfp.dtype_for(p))

    # of other matrices, which rows or columns depend needs a prime that rarely misleads
    proven = gfp.full_rank_prime(residues) if rows == columns else None
    prime = proven or gfp.DEFAULT_PRIMES[0]
    profile = gfp.RankProfile([*range(rows)], [*range(columns)]) if proven else gfp.rank_profile(residues(prime), prime)
    rank = len(profile.columns)
    full = rank == min(rows, columns)
    outside = {
        "rows": sorted({*range(rows)} - {*profile.rows}),
        "columns": sorted({*range(columns)} - {*profile.columns}),
    }
    document = {"matrix": str(matrix), "rows": rows, "columns": columns, "prime": prime, "rank": rank, "exact": full}
    document |= {f"dependent_{name}": numbers for name, numbers in outside.items()}
    meaning = "full, so this is its rank" if full else "its rank is at least this"
    shown = {
        "matrix": f"{rows} x {columns}, {matrix}",
        "rank": f"{rank} modulo {prime}: {meaning}",
        **{f"dependent {name}": _listed(numbers) for name, numbers in outside.items() if numbers},
    }
    return Outcome(document, f"rank {matrix}", shown)


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return ", ".join(map(str, numbers[:SHOWN])) + more


def _matrix(path: Path) -> Any:
    """The array in a file."""
    import numpy as np

    try:
        require_regular(path)
        return np.lib.format.open_memmap(path, mode="r")
    except MalformedInput:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise MalformedInput(f"cannot read {path} as a .npy file: {error}; write it with numpy.save") from None
