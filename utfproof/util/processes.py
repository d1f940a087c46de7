"""Threads of linear algebra, and worker processes: Ctrl-C is the parent's to handle, and their end."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from utfproof.errors import MalformedInput, ResourceLimit

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


MOST = 1024
"""Threads or processes: far beyond the cores of any machine, BLAS libraries run out of memory, or say nothing."""
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


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Processes started here have these variables: threads of linear algebra are read once, when its library is loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C waits until the block ends. Processes that are started here never see one: it is the driver's to handle."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield  # only the main thread may set handlers
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started later, it would unblock SIGINT here
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started inherits this
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def worker_folder() -> Iterator[str]:
    """A folder for the temporary files of workers. It goes with the driver's block, so that nothing is left of workers that
    are stopped or die."""
    with tempfile.TemporaryDirectory(prefix="utfproof-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def worker_pool(
    count: int, advice: str = "choose fewer --workers or a smaller problem"
) -> Iterator[ProcessPoolExecutor]:
    """`count` fresh processes, each with one thread for linear algebra. They end at once when something goes wrong here,
    Ctrl-C above all. ResourceLimit, with the advice, when one of them dies."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    with worker_folder() as folder:
        pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
        try:
            # workers inherit these from their first moment
            with environment(TMPDIR=folder, **dict.fromkeys(THREAD_VARIABLES, "1")), interrupts_deferred():
                for _ in range(count):
                    pool.submit(os.getpid)
            yield pool
        except BrokenProcessPool as error:
            raise ResourceLimit(f"a worker process died, most likely for want of memory; {advice}") from error
        except BaseException:
            for process in active_children():
                process.terminate()  # the pool then gives up its jobs by itself
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()
