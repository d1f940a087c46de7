"""Everything that talks to Dask: workers of this machine (a LocalCluster) or of a scheduler elsewhere.

Every wait has a time limit and a line on standard error; after that the run ends with an error that names the address.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from utfproof.errors import MalformedInput, UtfproofError, install
from utfproof.ground.processes import THREAD_VARIABLES, interrupts_ignored, worker_folder
from utfproof.ground.threads import check_parallel, cores
from utfproof.sweeps.jobs import Answer, SweepTask, code_digest, one_line, other_code, run_batch

MAX_DEATHS = 3
"""Workers that a job may take down before it is given up."""
CONNECT_SECONDS = 20.0
"""For a scheduler to accept a client."""
WORKER_SECONDS, NOTE_SECONDS = 120.0, 10.0
"""How long a run waits while there is no worker, and how often it prints that."""

Run = Callable[[Sequence[SweepTask]], list[Answer]]
Note = Callable[[str], None]


class WorkersLost(UtfproofError):
    """The workers are gone; stored results are kept."""

    exit_code = 4


def require_dask() -> None:
    """MalformedInput where Dask is not installed."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MalformedInput(f"a sweep needs Dask: {install('dask')}") from error


def check_address(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT or HOST:PORT; MalformedInput for anything else."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    port = None
    with suppress(ValueError):
        port = parts.port
    if parts.scheme != "tcp" or not parts.hostname or not port or parts.path:
        raise MalformedInput(f"--scheduler {address!r}: expected tcp://HOST:PORT, as dask scheduler prints it")
    return parts.hostname, port


class DaskWorkers:
    """Dask workers: those of the scheduler at this address, or `workers` processes here with `threads` threads each."""

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        threads: int | None = None,
        note: Note = lambda _: None,
    ) -> None:
        if address is not None and (workers is not None or threads is not None):
            raise MalformedInput("--workers and --threads are about this machine; a cluster's workers have their own")
        self.endpoint = None if address is None else check_address(address)
        self.place = "this machine" if address is None else address
        self.threads = 1 if threads is None else check_parallel("threads", threads)
        self.workers = max(1, cores() // self.threads) if workers is None else check_parallel("workers", workers)
        self.note = note

    def run(self, batches: Iterable[Sequence[SweepTask]], function: Run = run_batch) -> Iterator[list[Answer]]:
        """The answers of every batch, in any order; closing the iterator stops the work.

        A batch whose worker dies is run again job by job; a job is given up after MAX_DEATHS. Raises MalformedInput where no
        scheduler answers, WorkersLost when it or all its workers go away.
        """
        with ExitStack() as stack:
            client = stack.enter_context(self._local() if self.endpoint is None else self._remote(*self.endpoint))
            run = _Run(client, self.place, self.note, function)
            run.require_same_code()
            yield from run.all(iter(batches))

    @contextmanager
    def _local(self) -> Iterator[Any]:
        import dask
        from distributed import Client, LocalCluster

        with worker_folder() as folder:
            inherited = {**dict.fromkeys(THREAD_VARIABLES, str(self.threads)), "TMPDIR": folder}
            settings = {
                "distributed.nanny.pre-spawn-environ": inherited,
                "distributed.scheduler.allowed-failures": MAX_DEATHS - 1,
                "temporary-directory": folder,
            }
            with dask.config.set(settings), interrupts_ignored():
                cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address="127.0.0.1:0",  # None means port 8787, which another sweep may have
                    memory_limit=None,
                    silence_logs=logging.CRITICAL + 1,
                    host="127.0.0.1",
                )
            client = None
            try:
                client = Client(cluster, set_as_default=False)
                yield client
            finally:
                _stop(cluster)
                with suppress(Exception):
                    if client is not None:
                        client.close(timeout=5)
                    cluster.close(timeout=10)

    @contextmanager
    def _remote(self, host: str, port: int) -> Iterator[Any]:
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # failures are reported here, in one line
        client = self._connect(host, port)
        try:
            yield client
        finally:
            with suppress(Exception):
                client.close(timeout=5)

    def _connect(self, host: str, port: int) -> Any:
        """A client of the scheduler. In a thread, since Dask waits for ever for a server of another protocol."""
        from distributed import Client

        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def connect() -> None:
            try:
                found.put(Client(f"tcp://{host}:{port}", timeout=CONNECT_SECONDS, set_as_default=False))
            except Exception as error:
                found.put(error)

        threading.Thread(target=connect, daemon=True).start()
        try:
            client = found.get(timeout=CONNECT_SECONDS)
        except queue.Empty:
            client = TimeoutError(f"no answer within {CONNECT_SECONDS:g} s")
        if isinstance(client, Exception):
            problem = f"{one_line(str(client))}; is this the scheduler's port, or that of its dashboard?"
            raise MalformedInput(f"no Dask scheduler answers at {self.place}: {problem}") from client
        return client


def _stop(cluster: Any) -> None:
    """Kill the worker processes: they hold no state, and a job in C would not hear a polite request."""
    for nanny in cluster.workers.values():
        with suppress(Exception):
            nanny.auto_restart = False
            nanny.process.process._process.kill()


class _Run:
    """Batches on the workers of one client."""

    def __init__(self, client: Any, place: str, note: Note, function: Run) -> None:
        self.client, self.place, self.note, self.function = client, place, note, function
        self.name = uuid.uuid4().hex[:8]  # two sweeps at one scheduler stay apart
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.out: dict[str, tuple[Any, Sequence[SweepTask]]] = {}
        self.alone: deque[Sequence[SweepTask]] = deque()
        self.single: set[str] = set()  # keys of jobs beside which nothing else ran
        self.tries: Counter[str] = Counter()
        self.number = 0

    def require_same_code(self) -> None:
        """Wait for a worker, and MalformedInput where one lacks utfproof or has other code of it."""

        def probe() -> str:  # a nested function travels by value: the worker need not have this module
            from utfproof.sweeps.jobs import code_digest

            return code_digest()

        self._wait_for_workers()
        try:
            answers = self.client.run(probe, on_error="return")
        except Exception as error:
            raise self._lost(error) from error
        for worker, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError):
                raise MalformedInput(
                    f"worker {worker} of {self.place} cannot import {answer.name}: install this utfproof there"
                )
            if isinstance(answer, BaseException):
                raise MalformedInput(f"worker {worker} of {self.place} fails: {one_line(str(answer))}")
            if answer != code_digest():
                raise MalformedInput(f"worker {worker} of {self.place}: {other_code(answer, code_digest())}")

    def all(self, batches: Iterator[Sequence[SweepTask]]) -> Iterator[list[Answer]]:
        """Answers in the order in which batches end. Jobs whose worker died run last, one at a time."""
        room = 2 * self._threads()
        while True:
            while len(self.out) < room and (batch := next(batches, None)):
                self._submit(batch)
            if not self.out:
                if not self.alone:
                    return
                batch = self.alone.popleft()
                self.single.add(batch[0].job.key)
                self._submit(batch)
            future, batch = self._next()
            answers = self._answers(future, batch)
            room = 2 * self._threads()
            if answers:
                yield answers

    def _submit(self, batch: Sequence[SweepTask]) -> None:
        self.number += 1
        key = f"utfproof-{self.name}-{self.number}-{batch[0].job.key}"
        try:
            future = self.client.submit(self.function, batch, key=key, pure=False)
        except Exception as error:
            raise self._lost(error) from error
        self.out[key] = future, batch
        future.add_done_callback(self.ended.put)

    def _next(self) -> tuple[Any, Sequence[SweepTask]]:
        """The next future that ended, with its batch."""
        looked = time.monotonic()
        while True:
            with suppress(queue.Empty):
                future = self.ended.get(timeout=1.0)
                return self.out.pop(future.key)
            if self.client.status != "running":
                raise self._lost()
            if time.monotonic() - looked > NOTE_SECONDS:
                self._wait_for_workers()
                looked = time.monotonic()

    def _answers(self, future: Any, batch: Sequence[SweepTask]) -> list[Answer]:
        """What a batch came to; nothing where its jobs have to be run again."""
        cause: BaseException | None = None
        if future.status == "finished":
            try:
                return list(future.result(timeout=CONNECT_SECONDS))
            except Exception as error:  # the worker died before its result was fetched
                cause = error
        if self.client.status != "running":
            raise self._lost()
        if future.status == "error":
            cause = future.exception()
        key, killed = batch[0].job.key, type(cause).__name__ == "KilledWorker"
        shared = killed and key not in self.single  # Dask also blames jobs that waited at the worker when it died
        if len(batch) > 1 or shared or (future.status != "error" and self.tries[key] < MAX_DEATHS):
            self.tries[key] += 1  # it is not known which job it was, or the result was lost
            self.alone.extend([task] for task in batch)
            return []
        if killed:
            reason = f"its worker process died {MAX_DEATHS} times, most likely for want of memory"
        else:
            reason = one_line(f"its result was lost: {type(cause).__name__}: {cause}")
        return [Answer(key, failure=reason)]

    def _threads(self) -> int:
        """Threads of all workers, at least 1."""
        try:
            return max(
                1, sum(self.client.sync(self.client.scheduler.ncores, callback_timeout=CONNECT_SECONDS).values())
            )
        except Exception as error:
            raise self._lost(error) from error

    def _wait_for_workers(self) -> None:
        """Return when there is a worker; a line every few seconds, WorkersLost after WORKER_SECONDS."""
        began, told = time.monotonic(), 0.0
        while True:
            try:
                if self.client.sync(self.client.scheduler.ncores, callback_timeout=CONNECT_SECONDS):
                    return
            except Exception as error:
                raise self._lost(error) from error
            waited = time.monotonic() - began
            if waited > WORKER_SECONDS:
                raise WorkersLost(
                    f"no worker has joined {self.place} for {WORKER_SECONDS:g} s; start one with dask worker {self.place}"
                )
            if waited >= told:
                self.note(f"no worker at {self.place}; waiting {WORKER_SECONDS - waited:.0f} s for one")
                told += NOTE_SECONDS
            time.sleep(0.5)

    def _lost(self, error: Exception | None = None) -> WorkersLost:
        return WorkersLost(f"lost the Dask scheduler at {self.place}{f' ({type(error).__name__})' if error else ''}")
