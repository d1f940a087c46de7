"""Where jobs run: worker processes on this machine, or a Dask cluster. Both give answers in the order they come.

Here every worker is an executor of its own with one process and one job at a time: when a process dies, it is known which
job it died of, no other job is disturbed, and only that process is started again.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children, get_context
from typing import Any, Protocol

from utfproof.errors import MalformedInput, UtfproofError, install
from utfproof.ground.processes import interrupts_ignored, temporary_files_in, threads_capped, worker_folder
from utfproof.ground.threads import check_parallel
from utfproof.sweeps.jobs import one_line, run_task

MAX_DEATHS = 3
"""Workers that a job may take down before it is given up."""
CONNECT_SECONDS = 30
_LOOK_SECONDS = 2.0  # between two looks at how many workers there are
_WINDOW = (
    64  # jobs submitted to a cluster ahead of need, at least, and four items a thread; results wait there until fetched
)

Run = Callable[[Any], Any]
"""What runs an item of work: a task gives an answer, a batch a segment."""


class Item(Protocol):
    """Work for one process: a task, or a batch of them."""

    @property
    def key(self) -> str:
        """Of its first job."""
        ...

    @property
    def size(self) -> int:
        """How many jobs it is."""
        ...

    def parts(self) -> Sequence[Any]:
        """The items that it falls into when a worker dies of it."""
        ...

    def failed(self, reason: str) -> Any:
        """What it comes to where no worker can run it."""
        ...


class WorkersLost(UtfproofError):
    """The cluster is gone; what has a result is kept."""

    exit_code = 4


class Workers(Protocol):
    """Somewhere that runs tasks."""

    def run(self, tasks: Iterable[Item], function: Run = run_task) -> Iterator[Any]:
        """What every item comes to, in any order; items are taken when there is room for them. Closing the iterator stops the
        work."""
        ...


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalWorkers:
    """`workers` fresh processes on this machine, each with `threads` threads for linear algebra."""

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        check_parallel("threads", threads)
        if workers is not None:
            check_parallel("workers", workers)
        self.threads = threads
        self.workers = max(1, available_cores() // threads) if workers is None else workers

    def run(self, tasks: Iterable[Item], function: Run = run_task) -> Iterator[Any]:
        """As `Workers.run`. A job whose process dies is run again, last of all, and given up after MAX_DEATHS; of a batch each
        job then has an item of its own."""
        with worker_folder() as folder:
            yield from self._run(_Waiting(tasks), function, folder)

    def _run(self, waiting: _Waiting, function: Run, folder: str) -> Iterator[Any]:
        idle = [_Worker(self.threads, folder) for _ in range(self.workers)]
        everyone = tuple(idle)
        busy: dict[Future[Any], tuple[_Worker, Item]] = {}
        deaths: Counter[str] = Counter()
        ended: list[Any] = []
        try:
            while True:
                while idle and (item := waiting.take()) is not None:
                    worker = idle.pop()
                    busy[worker.submit(function, item)] = worker, item
                yield from ended  # while the next ones run
                ended = []
                if not busy:
                    return
                done, _ = wait(busy, return_when=FIRST_COMPLETED)
                for future in done:
                    worker, item = busy.pop(future)
                    idle.append(worker)
                    try:
                        ended.append(future.result())
                    except BrokenProcessPool:
                        worker.stop()
                        parts = item.parts()
                        deaths[item.key] += len(parts) == 1
                        if deaths[item.key] < MAX_DEATHS:
                            waiting.again(parts)
                        else:
                            reason = f"its worker process died {MAX_DEATHS} times, most likely for want of memory"
                            ended.append(item.failed(reason))
        finally:
            for worker in everyone:
                worker.stop()


class _Waiting:
    """Items that are taken when there is room, and those that have to be run again, last of all."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items, self.returned = iter(items), deque[Item]()

    def take(self) -> Item | None:
        """The next one; None where there is none now."""
        found = next(self.items, None)
        if found is None and self.returned:
            return self.returned.popleft()
        return found

    def again(self, items: Iterable[Item]) -> None:
        """Run these once more."""
        self.returned.extend(items)


class _Worker:
    """One process, started when first needed and after it died."""

    def __init__(self, threads: int, folder: str) -> None:
        self.threads, self.folder = threads, folder
        self.pool: ProcessPoolExecutor | None = None
        self.process: Any = None

    def submit(self, function: Run, task: Item) -> Future[Any]:
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


def sent(function: Run, item: Item) -> bytes:
    """What to run on what, as a cluster gets it. Dask keeps the last thousand messages of every connection, and these as
    objects: a batch of a thousand jobs takes more than a megabyte there, its bytes a twentieth."""
    return zlib.compress(pickle.dumps((function, item)), 1)


def run_sent(data: bytes) -> Any:
    """On a worker: what the driver sent is run."""
    function, item = pickle.loads(zlib.decompress(data))
    return function(item)


class DaskWorkers:
    """The workers of a Dask scheduler at this address (extra `cluster`). They need the same utfproof installed, and the files
    that jobs name at the same paths; results come back to the driver, which alone writes."""

    def __init__(self, address: str, note: Callable[[str], None] | None = None) -> None:
        self.address, self.note = address, note

    def run(self, tasks: Iterable[Item], function: Run = run_task) -> Iterator[Any]:
        """As `Workers.run`. The scheduler runs a job again whose worker died, and gives it up after a few times. Raises
        WorkersLost when the scheduler is gone."""
        client, as_completed = self._connect()
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what happens is said here, in a line
        try:
            if self.note is not None and not client.scheduler_info()["workers"]:
                self.note(f"no worker has joined {self.address} yet; waiting for one")
            yield from self._run(client, as_completed(loop=client.loop), _Waiting(tasks), function)
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

    def _run(self, client: Any, completed: Any, waiting: _Waiting, function: Run) -> Iterator[Any]:
        run = uuid.uuid4().hex[:8]  # two sweeps at one scheduler stay apart
        out: dict[Any, Item] = {}
        number = held = ahead = 0
        looked = 0.0
        while True:
            try:
                if time.monotonic() - looked > _LOOK_SECONDS:  # workers come and go
                    looked, ahead = time.monotonic(), 4 * sum(client.nthreads().values())
                while (held < _WINDOW or len(out) < ahead) and (item := waiting.take()) is not None:
                    number, held = number + 1, held + item.size
                    key = f"utfproof-{run}-{number}-{item.key}"
                    future = client.submit(run_sent, sent(function, item), key=key, retries=2, pure=False)
                    out[future] = item
                    completed.add(future)
                if not out:
                    return
                future = next(completed)
                item = out.pop(future)
                held -= item.size
                answer = self._answer(future, item)
            except Exception as error:
                raise WorkersLost(f"lost the Dask scheduler at {self.address} ({type(error).__name__})") from error
            if isinstance(answer, str):
                if client.status != "running":
                    raise WorkersLost(f"lost the Dask scheduler at {self.address}")
                parts = item.parts()
                if len(parts) > 1:  # it is not known which job it was
                    waiting.again(parts)
                    continue
                answer = item.failed(answer)
            yield answer

    def _answer(self, future: Any, item: Item) -> Any:
        """What came back; a reason where nothing did."""
        if future.status == "finished":
            try:
                return future.result()
            except Exception as lost:  # the last worker that held it died before it was fetched
                return one_line(f"its result was lost: {type(lost).__name__}: {lost}")
        if future.status == "error":
            error = future.exception()
            kind = type(error).__name__
            reason = "its workers died again and again" if kind == "KilledWorker" else f"{kind}: {error}"
        else:
            reason = f"the scheduler at {self.address} gave it up ({future.status})"
        return one_line(reason)
