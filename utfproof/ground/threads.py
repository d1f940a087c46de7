"""How many threads a piece of linear algebra takes: what it is worth, and no more than the machine has idle cores.

On a busy machine a second BLAS thread does not help: each product ends when the slower one ends, which waits for its turn. On
small pieces starting it costs more than it gains. So the number is chosen piece by piece, from the operations to come
and from what other processes left idle since the last choice. OPENBLAS_NUM_THREADS and its like stay the upper limit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput

WORTH = 1 << 25
"""Multiplications that a thread must get: about a millisecond, some twenty times what waking it takes."""
SMALL = 1 << 18
"""Multiplications up to which OpenBLAS starts no thread anyway."""
MOST = 1024
"""Threads or processes: far beyond the cores of any machine, BLAS libraries run out of memory, or say nothing."""
_INTERVAL = 0.1
"""Seconds between two looks at the machine: ten ticks of its clock."""
_LIBRARIES = ("numpy", "scipy.linalg", "torch")
"""Those that bring a BLAS of their own."""
_STAT = Path("/proc/stat")
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


@dataclass(frozen=True)
class ThreadReading:
    """Seconds: of the clock, of all cores together idle, of this process on a processor. idle is None where unknown."""

    clock: float
    idle: float | None
    own: float

    @classmethod
    def now(cls) -> ThreadReading:
        """The machine as it is."""
        idle = None
        with suppress(OSError, ValueError, IndexError, AttributeError):
            fields = _STAT.read_text().split("\n", 1)[0].split()
            idle = (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), idle, time.process_time())


def available(before: ThreadReading, after: ThreadReading, count: int) -> int:
    """Cores, of `count`, that others left to this process between two readings: idle ones and its own; at least 1."""
    seconds = after.clock - before.clock
    if after.idle is None or before.idle is None:
        busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return max(1, min(count, int(count - busy + 1)))
    free = (after.idle - before.idle + after.own - before.own) / seconds
    return max(1, min(count, int(free + 0.25)))


def unoccupied(count: int) -> int:
    """Cores, of `count`, that nothing else runs on now: what is known before anything could be watched; at least 1."""
    with suppress(OSError, ValueError, IndexError):
        running = int(_STAT.read_text().split("procs_running", 1)[1].split("\n", 1)[0])
        return max(1, min(count, (os.cpu_count() or 1) + 1 - running))
    return count


def _pools() -> list[Any]:
    """What sets the threads of each BLAS that is loaded; nothing where the package runs without its dependencies."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@dataclass
class Threads:
    """The thread pools of BLAS that are loaded, and how many threads they have: `limit` where nothing is chosen, and
    `current` now. `free`: cores that others left to this process when it last looked."""

    limit: int = 1
    current: int = 1
    cores: int = 1
    free: int = 1
    reading: ThreadReading = field(default_factory=lambda: ThreadReading.now())
    pools: list[Any] = field(default_factory=list)
    loaded: tuple[str, ...] = ()

    def find(self) -> None:
        """The pools, looked for again when another library has been loaded."""
        loaded = tuple(name for name in _LIBRARIES if name in sys.modules)
        if loaded == self.loaded:
            return
        if not self.loaded:
            self.cores = cores()
            self.free = unoccupied(self.cores)
        self.loaded = loaded
        self.set(self.limit)
        self.pools = _pools()
        self.limit = self.current = max((pool.num_threads or 1 for pool in self.pools), default=1)

    def look(self) -> None:
        """Renew `free` where the last look is long enough ago."""
        now = ThreadReading.now()
        if now.clock - self.reading.clock >= _INTERVAL:
            self.free, self.reading = available(self.reading, now, self.cores), now

    def worth(self, operations: int) -> int:
        """Threads for so many multiplications, here and now."""
        self.find()
        wanted = min(self.limit, max(1, operations // WORTH))
        if wanted > 1:
            self.look()
        return min(wanted, self.free)

    def set(self, count: int) -> None:
        """Give every pool so many threads."""
        if count != self.current:
            for pool in self.pools:
                pool.set_num_threads(count)
            self.current = count


THREADS = Threads()
"""Of this process."""


@contextmanager
def chosen_threads(operations: int) -> Iterator[None]:
    """Inside, as many threads as so many multiplications are worth; as many as before afterwards."""
    if operations <= SMALL:
        yield
        return
    THREADS.set(THREADS.worth(operations))
    try:
        yield
    finally:
        THREADS.set(THREADS.limit)
