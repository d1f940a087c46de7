"""FFLAS-FFPACK's rank modulo p: a small driver, compiled when it is first needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

HEADERS = Path("/usr/include/fflas-ffpack")
SOURCE = Path(__file__).with_name("fflas_rank.cpp")


class Unavailable(Exception):
    """Why a contestant cannot run here."""


class FflasRun(NamedTuple):
    """A rank and the processor seconds that it took, without reading the matrix."""

    rank: int
    processor: float


def fflas_rank(matrix: np.ndarray, p: int, folder: Path) -> Callable[[], FflasRun]:
    """A call that computes the rank of a square matrix of residues with FFLAS-FFPACK's faster field.

    The driver and the matrix are written to `folder`. Raises Unavailable where the driver cannot be compiled.
    """
    compiler = shutil.which("g++")
    if compiler is None or not HEADERS.is_dir():
        raise Unavailable("needs g++ and the Debian package fflas-ffpack")
    program, entries = folder / "fflas_rank", folder / "matrix"
    command = [compiler, "-O3", "-march=native", "-std=c++14", "-w", str(SOURCE), "-o", str(program)]
    built = subprocess.run(
        [*command, "-lopenblas", "-lgivaro", "-lgmpxx", "-lgmp"], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise Unavailable(f"the driver does not compile: {(built.stderr.splitlines() or ['no message'])[-1]}")
    np.mod(matrix, p).tofile(entries)

    def run() -> FflasRun:
        done = subprocess.run(
            [str(program), str(entries), str(len(matrix)), str(p)], capture_output=True, text=True, check=True
        )
        rank, seconds = done.stdout.split()
        return FflasRun(int(rank), float(seconds))

    return run
