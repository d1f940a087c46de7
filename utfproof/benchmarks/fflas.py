"""FFLAS-FFPACK as a contestant: a small driver compiled on the spot, linked to the OpenBLAS of SciPy's wheel if possible."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from utfproof.ground.compiler import run_compiler

HEADERS = Path("/usr/include/fflas-ffpack")
SOURCE = Path(__file__).with_name("fflas_rank.cpp")
FIELDS = ("modular", "balanced")


class Unavailable(Exception):
    """Why FFLAS-FFPACK takes no part."""


def _scipy_openblas() -> Path | None:
    """The OpenBLAS that SciPy's wheel carries: a build like NumPy's, but with the 32-bit integers that FFLAS passes."""
    specification = importlib.util.find_spec("scipy")
    if specification is None or specification.origin is None:
        return None
    folder = Path(specification.origin).parents[1] / "scipy.libs"
    return next(iter(sorted(folder.glob("libscipy_openblas-*.so"))), None)


def _cblas_names() -> list[str]:
    text = "".join(path.read_text(errors="replace") for path in sorted(HEADERS.rglob("*")) if path.is_file())
    return sorted(set(re.findall(r"\bcblas_[a-z0-9]+\b", text)))


def _linkings() -> list[tuple[str, list[str]]]:
    """Ways to link BLAS, best first: name and compiler options."""
    ways = []
    own = _scipy_openblas()
    if own is not None:
        renamed = [f"-D{name}=scipy_{name}" for name in _cblas_names()]
        config = "-DOPENBLAS_CONFIG=scipy_openblas_get_config"
        ways.append(("SciPy's OpenBLAS", [*renamed, config, str(own), f"-Wl,-rpath,{own.parent}"]))
    ways.append(("system OpenBLAS", ["-DOPENBLAS_CONFIG=openblas_get_config", "-lopenblas"]))
    ways.append(("system BLAS", ["-lblas"]))
    return ways


def compile_driver(folder: Path) -> tuple[Path, str]:
    """The driver, built in `folder`, and which BLAS it links; Unavailable with the reason."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unavailable("no g++")
    if not HEADERS.is_dir():
        raise Unavailable("no FFLAS-FFPACK headers (Debian package fflas-ffpack)")
    program = folder / "fflas_rank"
    failure = ""
    for name, options in _linkings():
        command = [compiler, "-O3", "-march=native", "-std=c++14", "-w", str(SOURCE), "-o", str(program)]
        code, said = run_compiler([*command, *options, "-lgivaro", "-lgmpxx", "-lgmp"], folder)
        if code == 0:
            return program, name
        failure = (said.strip().splitlines() or ["no message"])[-1]
    raise Unavailable(f"the driver does not compile: {failure}")


class FflasRun(NamedTuple):
    """A rank, the seconds that it took, and those of a processor."""

    rank: int
    seconds: float
    processor: float


class Fflas:
    """A running driver: `load` a matrix, then `run` as often as wanted. A context manager; ends its process and files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="utfproof-fflas-")
        try:
            program, linked = compile_driver(Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.blas = f"{linked}: {self._read()}"

    def __enter__(self) -> Fflas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _tell(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def load(self, matrix: np.ndarray, p: int) -> None:
        """Hand over a square matrix of residues."""
        path = Path(self._folder.name) / "matrix"
        np.mod(matrix, p).tofile(path)
        self._tell(f"load {len(matrix)} {p} {path}")
        path.unlink()

    def run(self) -> dict[str, FflasRun]:
        """What each field representation in FIELDS comes to."""
        words: Sequence[str] = self._tell("run").split()
        if len(words) != 3 * len(FIELDS):
            raise RuntimeError("the FFLAS-FFPACK driver stopped")
        parts = (words[3 * i : 3 * i + 3] for i in range(len(FIELDS)))
        return {name: FflasRun(int(r), float(s), float(u)) for name, (r, s, u) in zip(FIELDS, parts, strict=True)}
