"""Rank modulo p side by side: this engine, FLINT, SymPy, FFLAS-FFPACK, and a float64 matrix product as the yardstick.

One run, the same matrices, repetitions interleaved in turn; medians, and ratios of medians (of the best times too, which a busy
machine disturbs less). "utfproof" and FFLAS-FFPACK work in place on a copy made beforehand; "utfproof with copy" is a plain
`gfp.rank`, which keeps its argument. FLINT's conversion is reported apart.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from utfproof.benchmarks.timing import PAUSE, check_counts, check_device, circumstances, library
from utfproof.errors import MalformedInput
from utfproof.ground.plots import picture_format, write_figure
from utfproof.ground.processes import as_child, run_child
from utfproof.ground.progress import staged
from utfproof.ground.resources import require_memory

CONTESTANTS = ("utfproof", "product", "fflas-ffpack", "flint", "sympy")
LARGEST = 8192
"""On a CPU."""
SYMPY_LARGEST = 128
"""SymPy's DomainMatrix takes seconds at this size."""
_BYTES_PER_ENTRY = {"utfproof": 32, "product": 16, "fflas-ffpack": 32, "flint": 64, "sympy": 0}


@dataclass(frozen=True)
class ExactSetting:
    """What to measure. sizes: n of the n x n matrices. threads: of BLAS, for every contestant that has any."""

    sizes: tuple[int, ...] = (512, 1024, 2280)
    prime: int = 2097143
    device: str = "cpu"
    threads: int = 2
    repetitions: int = 5
    seed: int = 0
    skip: tuple[str, ...] = ()

    def check(self, max_memory: int | None = None) -> None:
        """MalformedInput or ResourceLimit, before anything is allocated."""
        from utfproof.exact import gfp
        from utfproof.ground.generator import check_seed

        gfp.check_prime(self.prime)
        check_seed(self.seed)
        if not self.sizes or any(n < 1 or (n > LARGEST and self.device == "cpu") for n in self.sizes):
            raise MalformedInput(
                f"sizes must be between 1 and {LARGEST} (more on a GPU, as far as its memory goes), "
                f"got {','.join(map(str, self.sizes)) or 'none'}"
            )
        check_counts(self.threads, self.repetitions)
        unknown = sorted(set(self.skip) - set(CONTESTANTS[1:]))
        if unknown:
            raise MalformedInput(f"cannot skip {', '.join(unknown)}; choose from {', '.join(CONTESTANTS[1:])}")
        each = 16 + sum(size for name, size in _BYTES_PER_ENTRY.items() if name not in self.skip)
        largest = max(self.sizes)
        require_memory(each * largest * largest, f"the comparison at n = {largest}", max_memory)
        check_device(self.device)


def run(setting: ExactSetting, max_memory: int | None = None) -> dict[str, Any]:
    """The document of one comparison, measured in a child process: BLAS fixes its threads when it is loaded."""
    setting.check(max_memory)
    return json.loads(
        run_child("utfproof.benchmarks.exact", json.dumps(asdict(setting)), setting.threads, "choose smaller sizes")
    )


# --- in the child process ------------------------------------------------------------------------------------


def measure(setting: ExactSetting) -> dict[str, Any]:
    """Time all contestants in this process."""
    import numpy as np

    from utfproof.benchmarks.fflas import Fflas, Unavailable

    absent = dict.fromkeys(setting.skip, "skipped")
    blas = {"utfproof": library(setting.device)}
    with ExitStack() as stack:
        fflas = None
        if "fflas-ffpack" not in absent:
            try:
                fflas = stack.enter_context(Fflas())
                blas["fflas-ffpack"] = fflas.blas
            except Unavailable as reason:
                absent["fflas-ffpack"] = str(reason)
        if "sympy" not in absent:
            try:
                import sympy  # noqa: F401
            except ImportError:
                absent["sympy"] = "not installed"
        generator = np.random.default_rng(setting.seed)
        results = []
        for n in staged("bench exact", setting.sizes, len(setting.sizes), unit="sizes"):
            half = setting.prime // 2
            matrix = generator.integers(-half, half, size=(n, n), endpoint=True).astype(np.float64)
            results.append(_one_size(matrix, setting, fflas, absent))
    return {
        "benchmark": "exact",
        "setting": {**asdict(setting), "sizes": list(setting.sizes), "skip": list(setting.skip)},
        "absent": absent,
        "blas": blas,
        **circumstances(),
        "results": results,
    }


def _one_size(matrix: Any, setting: ExactSetting, fflas: Any, absent: dict[str, str]) -> dict[str, Any]:
    n, p = len(matrix), setting.prime
    contestants: dict[str, Callable[[], Iterable[tuple[str, int | None, float]]]] = {}
    in_place, copying, product = _engine(matrix, setting)
    contestants["utfproof"] = in_place
    contestants["utfproof with copy"] = copying
    if "product" not in absent:
        contestants["product"] = product
    if fflas is not None:
        fflas.load(matrix, p)
        contestants["fflas-ffpack"] = lambda: [
            (f"fflas-ffpack {name}", found.rank, found.seconds) for name, found in fflas.run().items()
        ]
    conversion = None
    if "flint" not in absent:
        from utfproof.exact.gfp.flint_engine import to_flint

        start = time.perf_counter()
        table = to_flint(matrix, p)
        conversion = time.perf_counter() - start
        contestants["flint"] = _timed("flint", lambda: int(table.rank()))
    if "sympy" not in absent and n <= SYMPY_LARGEST:
        contestants["sympy"] = _sympy(matrix, p)
    times: dict[str, list[float]] = {}
    ranks: dict[str, int] = {}
    for name, contestant in contestants.items():
        if name not in ("flint", "sympy"):
            list(contestant())  # warm-up: threads started, work space mapped
    for _ in range(setting.repetitions):
        for contestant in contestants.values():
            time.sleep(PAUSE)
            for label, rank, seconds in contestant():
                times.setdefault(label, []).append(seconds)
                if rank is not None:
                    ranks[label] = rank
    return summary(n, times, ranks, conversion)


def summary(n: int, times: dict[str, list[float]], ranks: dict[str, int], conversion: float | None) -> dict[str, Any]:
    """Medians, speeds (2/3 n^3 operations for a rank, 2 n^3 for a product) and ratios of medians."""
    median = {name: statistics.median(values) for name, values in times.items()}
    speed = {name: (2 if name == "product" else 2 / 3) * n**3 / t / 1e9 for name, t in median.items()}
    best = {name: min(values) for name, values in times.items()}
    ours = median["utfproof"]
    fields = [name for name in times if name.startswith("fflas-ffpack")]
    ratios: dict[str, float] = {}
    if fields:
        ratios["time over fflas-ffpack (its faster field)"] = ours / min(median[name] for name in fields)
        ratios["best time over fflas-ffpack's best"] = best["utfproof"] / min(best[name] for name in fields)
    if "flint" in median:
        ratios["flint over our time"] = median["flint"] / ours
    if "sympy" in median:
        ratios["sympy over our time"] = median["sympy"] / ours
    if "product" in median:
        ratios["share of the product's speed"] = speed["utfproof"] / speed["product"]
    return {
        "n": n,
        "ranks": ranks,
        "agree": len(set(ranks.values())) == 1,
        "seconds": times,
        "median_seconds": median,
        "best_seconds": best,
        "flint_conversion_seconds": conversion,
        "gflops": speed,
        "ratios": ratios,
    }


def _timed(
    name: str, call: Callable[[], Any], prepare: Callable[[], Any] | None = None
) -> Callable[[], Iterable[tuple[str, int | None, float]]]:
    def contestant() -> list[tuple[str, int | None, float]]:
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        rank = call()
        return [(name, rank, time.perf_counter() - start)]

    return contestant


def _engine(matrix: Any, setting: ExactSetting) -> tuple[Any, Any, Any]:
    """Our rank in place, our rank of a matrix that is kept, and the float64 product, on the device asked for."""
    import numpy as np

    from utfproof.exact import gfp

    p = setting.prime
    if setting.device == "cpu":
        there, work, out = matrix, np.empty_like(matrix), np.empty_like(matrix)

        def copy() -> None:
            np.copyto(work, matrix)

        def multiply() -> None:
            np.matmul(matrix, matrix, out)

    else:
        import torch

        there = torch.as_tensor(matrix, dtype=torch.float64, device=setting.device)
        work, out = torch.empty_like(there), torch.empty_like(there)

        def copy() -> None:
            work.copy_(there)
            torch.cuda.synchronize()

        def multiply() -> None:
            torch.mm(there, there, out=out)
            torch.cuda.synchronize()

    # a rank is an integer of the host: nothing is left to wait for
    in_place = _timed("utfproof", lambda: gfp.rank(work, p, overwrite=True), copy)
    copying = _timed("utfproof with copy", lambda: gfp.rank(there, p))
    return in_place, copying, _timed("product", multiply)


def _sympy(matrix: Any, p: int) -> Any:
    from sympy import GF
    from sympy.polys.matrices import DomainMatrix

    field = GF(p)
    rows = [[field(int(x)) for x in row] for row in matrix]
    table = DomainMatrix(rows, matrix.shape, field)
    return _timed("sympy", lambda: int(table.rank()))


# --- for people ----------------------------------------------------------------------------------------------


def plot(document: dict[str, Any], path: str) -> None:
    """Speed against size, one line per contestant; MalformedInput where matplotlib is missing."""
    picture_format(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names = dict.fromkeys(name for entry in document["results"] for name in entry["gflops"])
    for name in names:
        points = [(entry["n"], entry["gflops"][name]) for entry in document["results"] if name in entry["gflops"]]
        axes.plot(*zip(*points, strict=True), marker="o", label="float64 product" if name == "product" else name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("n")
    axes.set_ylabel("GFLOP/s (rank: 2/3 n³, product: 2 n³)")
    axes.set_title(f"rank modulo {document['setting']['prime']}, {document['setting']['threads']} BLAS threads")
    axes.grid(alpha=0.3)
    axes.legend()
    write_figure(figure, path)


def main() -> None:
    """Read a setting on standard input, write the document to standard output."""
    given = json.load(sys.stdin)
    setting = ExactSetting(**{**given, "sizes": tuple(given["sizes"]), "skip": tuple(given["skip"])})
    json.dump(measure(setting), sys.stdout)


if __name__ == "__main__":
    with as_child():
        main()
