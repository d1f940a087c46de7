"""Where jobs run: worker processes on this machine, or a Dask cluster. Both give answers in the order they come.

Here every worker is an executor of its own with one process and one job at a time: when a process dies, it is known which
job it died of, no other job is disturbed, and only that process is started again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children, get_context
from typing import Any, Protocol

from utfproof.errors import MalformedInput, UtfproofError, install
from utfproof.ground.processes import interrupts_ignored, temporary_files_in, threads_capped, worker_folder
from utfproof.sweeps.jobs import Answer, SweepTask, one_line, run_task

MAX_DEATHS = 3
"""Workers that a job may take down before it is given up."""
CONNECT_SECONDS = 30
_LOOK_SECONDS = 2.0  # between two looks at how many workers there are
_WINDOW = 64  # jobs submitted to a cluster ahead of need, at least; results wait there until fetched

Run = Callable[[SweepTask], Answer]


class WorkersLost(UtfproofError):
    """The cluster is gone; what has a result is kept."""

    exit_code = 4


class Workers(Protocol):
    """Somewhere that runs tasks."""

    def run(self, tasks: Sequence[SweepTask], function: Run = run_task) -> Iterator[Answer]:
        """An answer for every task, in any order. Closing the iterator stops the work."""
        ...


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalWorkers:
    """`workers` fresh processes on this machine, each with `threads` threads for linear algebra."""

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        if threads < 1 or (workers is not None and workers < 1):
            raise MalformedInput(f"workers and threads start at 1, got {workers} and {threads}")
        self.threads = threads
        self.workers = max(1, available_cores() // threads) if workers is None else workers

    def run(self, tasks: Sequence[SweepTask], function: Run = run_task) -> Iterator[Answer]:
        """As `Workers.run`. A job whose process dies is run again, last of all, and given up after MAX_DEATHS."""
        with worker_folder() as folder:
            yield from self._run(deque(tasks), function, folder)

    def _run(self, waiting: deque[SweepTask], function: Run, folder: str) -> Iterator[Answer]:
        idle = [_Worker(self.threads, folder) for _ in range(min(self.workers, len(waiting)))]
        everyone = tuple(idle)
        busy: dict[Future[Answer], tuple[_Worker, SweepTask]] = {}
        deaths: Counter[str] = Counter()
        try:
            while waiting or busy:
                while waiting and idle:
                    worker, task = idle.pop(), waiting.popleft()
                    busy[worker.submit(function, task)] = worker, task
                done, _ = wait(busy, return_when=FIRST_COMPLETED)
                for future in done:
                    worker, task = busy.pop(future)
                    idle.append(worker)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        worker.stop()
                        deaths[task.job.key] += 1
                        if deaths[task.job.key] < MAX_DEATHS:
                            waiting.append(task)
                        else:
                            reason = f"its worker process died {MAX_DEATHS} times, most likely for want of memory"
                            yield Answer(task.job.key, failure=reason)
        finally:
            for worker in everyone:
                worker.stop()


class _Worker:
    """One process, started when first needed and after it died."""

    def __init__(self, threads: int, folder: str) -> None:
        self.threads, self.folder = threads, folder
        self.pool: ProcessPoolExecutor | None = None
        self.process: Any = None

    def submit(self, function: Run, task: SweepTask) -> Future[Answer]:
        if self.pool is not None:
            try:
                return self.pool.submit(function, task)
            except BrokenProcessPool:  # it died between two jobs
                self.stop()
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start)
        before = set(active_children())
        with threads_capped(self.threads), temporary_files_in(self.folder), interrupts_ignored():
            future = self.pool.submit(function, task)
        self.process = next((p for p in active_children() if p not in before), None)
        return future

    def stop(self) -> None:
        """End the process at once."""
        if self.pool is None:
            return
        if self.process is not None:
            with suppress(ValueError):  # closed already
                self.process.kill()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = self.process = None


def _start() -> None:
    """In a worker: end with the driver, even when that is killed."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


class DaskWorkers:
    """The workers of a Dask scheduler at this address (extra `cluster`). They need the same utfproof installed, and the files
    that jobs name at the same paths; results come back to the driver, which alone writes."""

    def __init__(self, address: str, note: Callable[[str], None] | None = None) -> None:
        self.address, self.note = address, note

    def run(self, tasks: Sequence[SweepTask], function: Run = run_task) -> Iterator[Answer]:
        """As `Workers.run`. The scheduler runs a job again whose worker died, and gives it up after a few times. Raises
        WorkersLost when the scheduler is gone."""
        client, as_completed = self._connect()
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what happens is said here, in a line
        try:
            if self.note is not None and not client.scheduler_info()["workers"]:
                self.note(f"no worker has joined {self.address} yet; waiting for one")
            yield from self._run(client, as_completed(loop=client.loop), deque(tasks), function)
        finally:
            with suppress(Exception):  # what is not running yet is given up with the client
                client.close(timeout=5)

    def _connect(self) -> tuple[Any, Any]:
        try:
            from distributed import Client, as_completed
        except ImportError as error:
            raise MalformedInput(f"--scheduler needs Dask: {install('dask')}") from error
        try:
            return Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False), as_completed
        except (OSError, ValueError, TypeError) as error:
            raise MalformedInput(f"no Dask scheduler answers at {self.address}: {one_line(str(error))}") from error

    def _run(self, client: Any, completed: Any, waiting: deque[SweepTask], function: Run) -> Iterator[Answer]:
        run = uuid.uuid4().hex[:8]  # two sweeps at one scheduler stay apart
        out: dict[Any, SweepTask] = {}
        looked, window = 0.0, _WINDOW
        while waiting or out:
            try:
                if time.monotonic() - looked > _LOOK_SECONDS:  # workers come and go
                    looked, window = time.monotonic(), max(_WINDOW, 4 * sum(client.nthreads().values()))
                while waiting and len(out) < window:
                    task = waiting.popleft()
                    future = client.submit(function, task, key=f"utfproof-{run}-{task.job.key}", retries=2, pure=False)
                    out[future] = task
                    completed.add(future)
                future = next(completed)
                answer = self._answer(future, out.pop(future))
            except Exception as error:
                raise WorkersLost(f"lost the Dask scheduler at {self.address} ({type(error).__name__})") from error
            if answer.result is None and client.status != "running":
                raise WorkersLost(f"lost the Dask scheduler at {self.address}")
            yield answer

    def _answer(self, future: Any, task: SweepTask) -> Answer:
        if future.status == "finished":
            try:
                return future.result()
            except Exception as lost:  # the last worker that held it died before it was fetched
                return Answer(task.job.key, failure=one_line(f"its result was lost: {type(lost).__name__}: {lost}"))
        if future.status == "error":
            error = future.exception()
            kind = type(error).__name__
            reason = "its workers died again and again" if kind == "KilledWorker" else f"{kind}: {error}"
        else:
            reason = f"the scheduler at {self.address} gave it up ({future.status})"
        return Answer(task.job.key, failure=one_line(reason))
