"""Every large piece of work beside its floor or a peer: processor seconds of both in one process, one after the other, and the
ratio.

A floor is what the work cannot do without (a float64 product of its size, the interpreter); a peer is what a user would take
otherwise. One BLAS thread, pairs interleaved; the ratio is the median over the pairs, so that what slows a machine slows both
sides.
"""

from __future__ import annotations

import functools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.benchmarks.timing import circumstances, library
from utfproof.errors import MalformedInput
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape
from utfproof.util.progress import stage, staged

Call = Callable[[], Any]
Make = Callable[[Any, Path], tuple[Call, Call]]
_SAMPLE = 0.1
"""Processor seconds that one side of a pair lasts at least, short ones being repeated within it."""
_MOST_CALLS = 200
_ADDITIONS = 1_000_000
_LARGE_PRIME = 2097143
"""The first of `gfp.DEFAULT_PRIMES`."""


@dataclass(frozen=True)
class Pairing:
    """What is measured at these sizes, or the `tiny` ones: `make` gives the work and its comparison, in an empty folder of
    its own. ImportError where either side cannot run here."""

    work: str
    beside: str
    peer: bool
    sizes: tuple[Any, ...]
    tiny: tuple[Any, ...]
    make: Make


ROWS: list[Pairing] = []


def _row(work: str, beside: str, sizes: tuple[Any, ...], tiny: tuple[Any, ...] = (), *, peer: bool = False) -> Any:
    """Put a pair into the table."""

    def put(make: Make) -> Make:
        ROWS.append(Pairing(work, beside, peer, sizes, tiny, make))
        return make

    return put


@dataclass(frozen=True)
class RatioSetting:
    """What to measure. works: names of rows, all where there are none."""

    tiny: bool = False
    works: tuple[str, ...] = ()
    repetitions: int = 3

    def check(self) -> None:
        """MalformedInput for what cannot be measured."""
        if self.repetitions < 1:
            raise MalformedInput(f"--repetitions starts at 1, got {self.repetitions}")
        known = list(dict.fromkeys(row.work for row in ROWS))
        if unknown := [name for name in self.works if name not in known]:
            raise MalformedInput(f"row {unknown[0]!r} is unknown; choose {', '.join(known)}")

    def rows(self) -> Iterator[tuple[Pairing, Any]]:
        """Rows and sizes asked for."""
        for row in ROWS:
            if not self.works or row.work in self.works:
                yield from ((row, size) for size in (row.tiny if self.tiny else row.sizes))


def kernel() -> str:
    """The kernel that NumPy's BLAS has chosen for this processor, such as Haswell."""
    import numpy  # noqa: F401
    from threadpoolctl import threadpool_info

    return next((str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"), "unknown")


# --- measuring ---------------------------------------------------------------------------------------------------


def run(setting: RatioSetting) -> dict[str, Any]:
    """Measure all rows: the document."""
    import scipy.linalg  # noqa: F401  # the libraries whose threads are limited
    from threadpoolctl import threadpool_limits

    setting.check()
    about, absent, results = circumstances(), {}, []
    rows = list(setting.rows())
    for row, size in staged("rows", rows, len(rows)):
        with stage(f"{row.work} {size}"), threadpool_limits(1):
            found = _measured(row, size, setting)
        if isinstance(found, str):
            absent[f"{row.work} beside {row.beside}"] = found
        else:
            results.append(found)
    setting_ = {"tiny": setting.tiny, "repetitions": setting.repetitions, "threads": 1}
    known = {"benchmark": "all", "setting": setting_, "kernel": kernel(), "blas": library(), **about}
    return {**known, "absent": absent, "results": results}


def _measured(row: Pairing, size: Any, setting: RatioSetting) -> dict[str, Any] | str:
    """Time one row in this process; a text says why it cannot be measured here."""
    with tempfile.TemporaryDirectory(prefix="utfproof-bench-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)  # of shapes that the rows name
        try:
            both = row.make(size, Path(folder))
            pairs = _pairs(*both, setting.repetitions)
        except ImportError as reason:
            return str(reason)
    return {
        "work": row.work,
        "size": str(size),
        "beside": row.beside,
        "peer": row.peer,
        "processor_seconds": {"alone": [list(pair) for pair in pairs]},
        "ratios": {"alone": statistics.median(a / b for a, b in pairs)},
    }


def _pairs(work: Call, beside: Call, repetitions: int) -> list[tuple[float, float]]:
    """Processor seconds of both sides, in turn; warmed up first."""
    counts = [min(_MOST_CALLS, int(_SAMPLE / max(_used(side, 1), 1e-9)) + 1) for side in (work, beside)]
    return [(_used(work, counts[0]), _used(beside, counts[1])) for _ in range(repetitions)]


def _used(call: Call, calls: int) -> float:
    """Processor seconds of one of so many calls, with those of processes that they wait for."""
    begun = _clock()
    for _ in range(calls):
        call()
    return max(_clock() - begun, 1e-9) / calls


def _clock() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _forget() -> None:
    """Every function of the package that keeps what it found starts anew, as in a process of its own."""
    for name, module in list(sys.modules.items()):
        if name.startswith("utfproof."):
            for entry in list(vars(module).values()):
                if isinstance(entry, functools._lru_cache_wrapper):
                    entry.cache_clear()


# --- floors -----------------------------------------------------------------------------------------------------


def _product(n: int, dtype: str = "float64") -> Call:
    """A product of two n x n matrices."""
    import numpy as np

    a = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out)


def _interpreter() -> None:
    """So many additions in a loop."""
    total = 0
    for i in range(_ADDITIONS):
        total += i


def _process(*arguments: str) -> Call:
    """A Python process, waited for."""
    return lambda: subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


# --- rows -------------------------------------------------------------------------------------------------------


def _dense(m: int) -> Shape:
    """(H, L) = (2, 4) and d = d_in with m = M = 76 d."""
    return Shape(2, 4, m // 76, m // 76)


def _matrix(n: int, p: int) -> Any:
    """Residues modulo p [n, n], all of them equally likely."""
    import numpy as np

    from utfproof.exact import gfp

    return np.random.default_rng(n).integers(-(p // 2), p // 2 + 1, (n, n)).astype(gfp.dtype_for(p))


def _ranked(n: int, p: int) -> Call:
    import numpy as np

    from utfproof.exact import gfp

    work = np.empty_like(matrix := _matrix(n, p))

    def rank() -> None:
        np.copyto(work, matrix)
        gfp.rank(work, p, overwrite=True)

    return rank


@_row("rank modulo p", "float64 product", (512, 1024, 2280), (512, 1024))
def _rank(n: int, _: Path) -> tuple[Call, Call]:
    return _ranked(n, _LARGE_PRIME), _product(n)


@_row("full rank modulo 127", "float64 product", (2280, 4560))
def _full_rank(n: int, _: Path) -> tuple[Call, Call]:
    return _ranked(n, 127), _product(n)


@_row("rank modulo p", "FLINT", (512, 1024), (256,), peer=True)
def _rank_flint(n: int, _: Path) -> tuple[Call, Call]:
    import numpy as np
    from flint import nmod_mat

    p = _LARGE_PRIME
    entries = np.mod(_matrix(n, p), p).astype(np.int64).reshape(-1).tolist()
    return _ranked(n, p), nmod_mat(n, n, entries, p).rank


@_row("certify a random host", "float64 product", (1824, 3648), (912,))
def _certify(m: int, _: Path) -> tuple[Call, Call]:
    from utfproof.certificates.prover import certify

    return lambda: certify("random", _dense(m)), _product(m)


def _stored(m: int, folder: Path) -> Path:
    """A random host's weights in a file."""
    from utfproof.constructions import build_host
    from utfproof.weights import write_host

    write_host(path := folder / "host.safetensors", build_host("random", _dense(m), dtype="float32"), dtype="float32")
    return path


@_row("decide stored weights", "float64 product", (912, 3648), (912,))
def _decide(m: int, folder: Path) -> tuple[Call, Call]:
    from utfproof.decision.verdict import decide_matching
    from utfproof.weights import stored_host

    path = _stored(m, folder)
    return lambda: decide_matching(stored_host(path)), _product(m)


def _checked(certificate: Any, folder: Path, weights: tuple[str, ...] = ()) -> Call:
    from utfproof.certificates.checker import VALID, Options, check_file

    certificate.write(path := folder / "certificate.json")

    def check() -> None:
        assert check_file(path, Options(numpy=True, weights=weights)).code == VALID

    return check


@_row("check --numpy, stored weights and witness", "float64 product", (1824,), (912,))
def _check(m: int, folder: Path) -> tuple[Call, Call]:
    from utfproof.decision.verdict import decide_matching
    from utfproof.weights import stored_host

    path = _stored(m, folder)
    return _checked(decide_matching(stored_host(path), witness=True).certificate, folder, (str(path),)), _product(m)


@_row("check --numpy, rank recomputed", "float64 product", (1824,), (912,))
def _recompute(m: int, folder: Path) -> tuple[Call, Call]:
    from utfproof.certificates.prover import certify

    return _checked(certify("random", _dense(m)), folder), _product(m)


@_row("embed, solve for E", "numpy.linalg.solve", (1824, 3648), (912,), peer=True)
def _embed(m: int, _: Path) -> tuple[Call, Call]:
    import numpy as np

    from utfproof.constructions import build_host
    from utfproof.emulation.laws import draw_target
    from utfproof.matching import FloatSolver, r_all, w_all

    shape = _dense(m)
    columns, right = r_all(build_host("random", shape)), w_all(draw_target(shape, 0))
    return lambda: FloatSolver(columns, shape).solve(right), lambda: np.linalg.solve(columns.T, right.T)


def _index_map(size: str) -> tuple[Call, Any, Any, Any]:
    """A run of the sparse host as an index map at "H,L,d,d_in,n", its target, the tokens and the attention."""
    from utfproof.attention import ChunkedAttention, SoftmaxAttention
    from utfproof.constructions import build_host
    from utfproof.emulation.compare import random_input
    from utfproof.emulation.engines import Engine
    from utfproof.emulation.laws import draw_target
    from utfproof.matching import Embedder

    *dimensions, n = map(int, size.split(","))
    shape, kernel = Shape(*dimensions), ChunkedAttention(SoftmaxAttention(causal=True))
    target, x = draw_target(shape, 0), random_input(shape, n, 0, law="one-hot")
    engine = Engine(embedder := Embedder(build_host("sparse", shape)), "index-map")
    E = engine.prepare(embedder.embed(target).E)
    return lambda: engine.run(x, E, kernel), target, x, kernel


_CONTEXTS = ("4,2,24,4,4096", "2,4,12,12,4096")


@_row("emulate, index map at (H, L, d, d_in, n)", "the target's own pass", _CONTEXTS, ("2,3,6,6,512",), peer=True)
def _emulate(size: str, _: Path) -> tuple[Call, Call]:
    work, target, x, kernel = _index_map(size)
    return work, lambda: target.forward(x, kernel)


@_row("training step in path space", "the same step m-wide", ("3-hop",), peer=True)
def _train(task: str, _: Path) -> tuple[Call, Call]:
    import torch

    from utfproof.training.presets import preset
    from utfproof.training.step import Trainer

    torch.set_num_threads(1)
    narrow, wide = (Trainer(preset(f"{task}/sparse/attention", "theory"), 0, engine=name) for name in ("paths", "wide"))
    return narrow.step, wide.step


@_row("frontier, H up to 8, L up to", "a million additions in Python", (20,), (2,))
def _frontier(layers: int, _: Path) -> tuple[Call, Call]:
    from utfproof.frontiers.table import frontier, shapes

    def numbers() -> None:
        _forget()
        frontier(shapes(range(1, 9), range(1, layers + 1), 2, 2))

    return numbers, _interpreter


@_row("start of a command", "a Python process", ("--version",), ("--version",))
def _start(option: str, _: Path) -> tuple[Call, Call]:
    return _process("-m", "utfproof", option), _process("-c", "pass")
