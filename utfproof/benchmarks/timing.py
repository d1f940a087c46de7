"""What every measurement needs: clocks, names of tables, devices, and the circumstances that its document names."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from utfproof.errors import MalformedInput, install
from utfproof.ground.threads import check_parallel
from utfproof.paper.tables import PAPER_TABLE_SHAPES

PAUSE = 0.1
"""Seconds between two contestants: idle BLAS threads spin for a while and would disturb the next one."""


class Seconds(NamedTuple):
    """Of one call: elapsed, and processor time of all threads of this process."""

    elapsed: float
    processor: float


def timed(call: Callable[[], Any], calls: int = 1, wait: Callable[[], None] = lambda: None) -> Seconds:
    """Of one of so many calls; wait: for what goes on after a call returns."""
    wait()
    start, used = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    wait()
    return Seconds((time.perf_counter() - start) / calls, (time.process_time() - used) / calls)


def waiting(device: str) -> Callable[[], None]:
    """What to call before a clock is read: work on a GPU goes on after a call returns."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def check_counts(threads: int, repetitions: int, context: int = 1) -> None:
    """MalformedInput unless they start at 1 and threads end somewhere."""
    check_parallel("threads", threads)
    if repetitions < 1 or context < 1:
        raise MalformedInput(f"repetitions and context start at 1, got {repetitions} and {context}")


def table_shapes(names: Sequence[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names and (H, L, d, d_in) of these table shapes, each once; MalformedInput for none and for others."""
    unknown = sorted(set(names) - set(PAPER_TABLE_SHAPES))
    if unknown or not names:
        raise MalformedInput(
            f"shapes {', '.join(unknown) or 'none'} are unknown; choose {', '.join(PAPER_TABLE_SHAPES)}"
        )
    return tuple((name, PAPER_TABLE_SHAPES[name]) for name in dict.fromkeys(names))


def check_device(device: str) -> None:
    """MalformedInput unless `device` is cpu, or cuda where torch has one."""
    if device == "cpu":
        return
    if device != "cuda":
        raise MalformedInput(f"device {device!r} is unknown; choose cpu or cuda")
    try:
        import torch
    except ImportError:
        raise MalformedInput(f"--device cuda needs torch: {install('torch')}") from None
    if not torch.cuda.is_available():
        raise MalformedInput("--device cuda: torch finds no CUDA device here")


_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes that do nothing but compute, as long as this one lives, however it ends."""
    running = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def circumstances() -> dict[str, Any]:
    """Where and with what this runs; the load average is that of the moment."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def library(device: str) -> str:
    """The linear algebra that runs there."""
    import numpy as np

    if device != "cpu":
        import torch

        return f"cuBLAS of torch {torch.__version__} on {torch.cuda.get_device_name()}"
    config: dict[str, Any] = np.show_config(mode="dicts") or {}  # type: ignore[assignment]
    found = config.get("Build Dependencies", {}).get("blas", {})
    return (
        f"NumPy's {found.get('name', 'BLAS')}: {found.get('openblas configuration', found.get('version', 'unknown'))}"
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("utfproof", "numpy", "python-flint", "sympy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
