"""How many threads a piece of linear algebra takes: on small pieces, starting a second one costs more than it gains.

OPENBLAS_NUM_THREADS and its like stay the upper limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput

WORTH = 1 << 25
"""Multiplications that a thread must get: about a millisecond, some twenty times what waking it takes."""
SMALL = 1 << 18
"""Multiplications up to which OpenBLAS starts no thread anyway."""
MOST = 1024
"""Threads or processes: far beyond the cores of any machine, BLAS libraries run out of memory, or say nothing."""
_LIBRARIES = ("numpy", "scipy.linalg", "torch")
"""Those that bring a BLAS of their own."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def wait_passively() -> None:
    """Idle threads of linear algebra sleep rather than spin; called before anything loads a library of it."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")  # 2^16 cycles, some tens of microseconds


def cores() -> int:
    """Cores that this process may use: its affinity, and its control group's quota."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        if quota != "max":
            found = min(found, max(1, int(quota) // int(period)))
    return found


def check_parallel(label: str, count: int) -> int:
    """A number of threads or of processes; MalformedInput where no machine has so many."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise MalformedInput(f"{label} must be an integer from 1 to {MOST}, got {count!r}")
    return count


@lru_cache(maxsize=1)
def _pools(loaded: tuple[str, ...]) -> list[tuple[Any, int]]:
    """The thread pools of the BLAS libraries that are loaded, with the threads that each has by default. Empty where the
    package runs without its dependencies."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    return [(pool, pool.num_threads or 1) for pool in pools]


@contextmanager
def chosen_threads(operations: int) -> Iterator[None]:
    """Inside, no more threads than so many multiplications are worth; the default afterwards."""
    capped = []
    if operations > SMALL:
        count = max(1, operations // WORTH)
        loaded = tuple(name for name in _LIBRARIES if name in sys.modules)
        capped = [(pool, limit) for pool, limit in _pools(loaded) if limit > count]
        for pool, _ in capped:
            pool.set_num_threads(count)
    try:
        yield
    finally:
        for pool, limit in capped:
            pool.set_num_threads(limit)
