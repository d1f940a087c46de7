"""Everything that talks to Dask: workers of this machine (a LocalCluster) or of a scheduler elsewhere.

Every wait has a time limit; after that the run ends with an error that names the address.
"""

from __future__ import annotations

import logging
import socket
from asyncio import CancelledError
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from utfproof.errors import MalformedInput, UtfproofError, install
from utfproof.sweeps.jobs import Answer, SweepJob, one_line, run_job
from utfproof.util.processes import THREAD_VARIABLES, check_parallel, cores, interrupts_deferred, worker_folder

MAX_DEATHS = 3
"""Workers that a job may take down before it is given up."""
CONNECT_SECONDS, WORKER_SECONDS = 20.0, 120.0
"""For a scheduler to accept a client, and for a worker to join it."""
LOOK_SECONDS = 10.0
"""How often a run without news looks whether workers are there."""


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

    def __init__(self, address: str | None = None, *, workers: int | None = None, threads: int | None = None) -> None:
        if address is not None and (workers is not None or threads is not None):
            raise MalformedInput("--workers and --threads are about this machine; a cluster's workers have their own")
        self.endpoint = None if address is None else check_address(address)
        self.place = "this machine" if address is None else address
        self.threads = 1 if threads is None else check_parallel("threads", threads)
        self.workers = max(1, cores() // self.threads) if workers is None else check_parallel("workers", workers)

    def run(self, jobs: Iterable[SweepJob], code: str, max_memory: int | None) -> Generator[Answer, None, None]:
        """The answers in any order; closing the iterator stops the work.

        A job whose worker dies is run again, and given up after MAX_DEATHS. Raises MalformedInput where no scheduler answers,
        WorkersLost when it or all its workers go away.
        """
        waiting, running = iter(jobs), set[Any]()
        with self._local() if self.endpoint is None else self._remote(*self.endpoint) as client:
            while True:
                try:
                    room = 4 * self._require_workers(client) - len(running)
                    for job in islice(waiting, max(0, room)):
                        future = client.submit(run_job, job, code, max_memory, key=f"utfproof-{job.key}", pure=False)
                        future.job = job
                        running.add(future)
                    answers = self._ended(client, running)
                except (Exception, CancelledError) as error:
                    broken = isinstance(error, OSError)  # a connection that ended, before the client has seen that
                    if isinstance(error, UtfproofError) or (client.status == "running" and not broken):
                        raise
                    raise self._lost() from error
                if not running and not answers:
                    return
                yield from answers

    def _ended(self, client: Any, running: set[Any]) -> list[Answer]:
        """Wait for news; the answers of the futures that ended, which leave `running`."""
        from distributed import wait

        done: set[Any] = set()
        if running:
            with suppress(TimeoutError), client.as_current():
                done = wait(running, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED").done
        answers = []
        for future in done:
            if future.status == "cancelled":
                raise self._lost()
            with suppress(TimeoutError):
                if future.status in ("finished", "error"):  # else its worker died meanwhile, and Dask runs it again
                    answers.append(self._answer(future))
                    running.discard(future)
        return answers

    def _answer(self, future: Any) -> Answer:
        if future.status == "finished":
            answer: Answer = future.result(timeout=CONNECT_SECONDS)
            return answer
        cause = future.exception(timeout=CONNECT_SECONDS)
        if type(cause).__name__ == "KilledWorker":
            reason = f"its worker process died {MAX_DEATHS} times, most likely for want of memory"
        else:  # the worker lacks utfproof, say
            reason = f"worker of {self.place}: {type(cause).__name__}: {cause}"
        return Answer(future.job.key, failure=one_line(reason))

    def _require_workers(self, client: Any) -> int:
        """Threads of all workers. Waits for the first one; WorkersLost after WORKER_SECONDS, or without a scheduler."""
        try:
            if client.status != "running":
                raise self._lost()
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
            return max(1, sum(client.nthreads().values()))
        except TimeoutError:
            raise WorkersLost(
                f"no worker has joined {self.place} for {WORKER_SECONDS:g} s; start one with dask worker {self.place}"
            ) from None

    def _lost(self) -> WorkersLost:
        return WorkersLost(f"lost the Dask scheduler at {self.place}")

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
            cluster = client = None
            try:
                with dask.config.set(settings), interrupts_deferred():
                    cluster = LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        dashboard_address="127.0.0.1:0",  # None means port 8787, which another sweep may have
                        memory_limit=None,
                        silence_logs=logging.CRITICAL + 1,
                        host="127.0.0.1",
                    )
                client = Client(cluster, set_as_default=False)
                yield client
            finally:
                _stop(cluster)
                with suppress(Exception):
                    for part in filter(None, (client, cluster)):
                        part.close(timeout=5)

    @contextmanager
    def _remote(self, host: str, port: int) -> Iterator[Any]:
        from distributed import Client

        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # failures are reported here, in one line
        client = None
        try:
            with socket.create_connection(
                (host, port), CONNECT_SECONDS
            ) as probe:  # Dask waits for ever for another protocol
                probe.settimeout(CONNECT_SECONDS)
                if b"pickle-protocol" not in probe.recv(1000):
                    raise OSError("it speaks another protocol; is this the scheduler's port, or that of its dashboard?")
            client = Client(f"tcp://{host}:{port}", timeout=CONNECT_SECONDS, set_as_default=False)
        except OSError as error:
            raise MalformedInput(f"no Dask scheduler answers at {self.place}: {one_line(str(error))}") from error
        try:
            yield client
        finally:
            with suppress(Exception):
                client.close(timeout=5)


def _stop(cluster: Any) -> None:
    """Kill the worker processes: they hold no state, and a job in C would not hear a polite request."""
    for nanny in cluster.workers.values() if cluster else ():
        with suppress(Exception):
            nanny.auto_restart = False
            nanny.process.process._process.kill()
