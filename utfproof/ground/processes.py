"""Worker processes: how many threads their linear algebra takes, that Ctrl-C is the parent's to handle, and their end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from utfproof.errors import ResourceLimit
from utfproof.ground.progress import Stage, listening, stage

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
_GRACE = 5.0
"""Seconds that a child process is given to clear its files away."""
_TOLD = "\x1e"
"""What a child's line about a stage begins with."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@contextmanager
def threads_capped(threads: int) -> Iterator[None]:
    """Processes started here read the cap before they load any linear algebra."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing here, nor in the processes started here: it is the driver's to handle."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def worker_folder() -> Iterator[str]:
    """A folder for the temporary files of workers. It goes with the driver's block, so that nothing is left of workers that
    are stopped or die."""
    with tempfile.TemporaryDirectory(prefix="utfproof-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def temporary_files_in(folder: str) -> Iterator[None]:
    """Processes started here keep their temporary files in this folder."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = before


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
            # workers inherit all three, from their first moment
            with threads_capped(1), temporary_files_in(folder), interrupts_ignored():
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


def run_child(module: str, text: str, threads: int, advice: str) -> str:
    """What `python -m module` writes to standard output, given `text`, with so many threads of linear algebra.

    Its stages are shown as this process's own. ResourceLimit, with the advice, when it fails. It ends with this process's own
    call: first asked to, so that it clears its files away, then made to.
    """
    with threads_capped(threads), interrupts_ignored():
        child = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with suppress(BrokenPipeError):  # a child that has ended says so by its code
            child.stdin.write(text)
            child.stdin.close()
        found = _shown(child.stdout)
        child.wait()
    except BaseException:
        child.terminate()
        try:
            child.wait(_GRACE)
        except BaseException:
            child.kill()
            child.wait()
        raise
    finally:
        for stream in (child.stdin, child.stdout):
            with suppress(BrokenPipeError):
                stream.close()
    if child.returncode:
        raise ResourceLimit(f"the measuring process ended with code {child.returncode}; {advice}")
    return found


def _shown(lines: Iterable[str]) -> str:
    """What a child writes, but for the lines that tell of its stages: these are shown here."""
    text: list[str] = []
    opened: list[tuple[ExitStack, Stage]] = []
    with ExitStack() as everything:
        for line in lines:
            if not line.startswith(_TOLD):
                text.append(line)
                continue
            begun, done = json.loads(line.removeprefix(_TOLD))
            if begun is None:
                opened.pop()[0].close()
            else:
                own = everything.enter_context(ExitStack())
                opened.append((own, own.enter_context(stage(**begun))))
            for (_, doing), steps in zip(opened, done, strict=True):
                doing.reach(steps)
    return "".join(text)


class _Telling:
    """In a child: a line when a stage begins or ends, with what is done of those that are open."""

    def __init__(self) -> None:
        self._open: list[Stage] = []

    def begin(self, stage: Stage) -> None:
        self._open.append(stage)
        self._tell({"name": stage.name, "total": stage.total, "unit": stage.unit})

    def end(self, stage: Stage) -> None:
        self._open.remove(stage)
        self._tell(None)

    def _tell(self, begun: dict[str, Any] | None) -> None:
        print(_TOLD + json.dumps([begun, [stage.done for stage in self._open]]), flush=True)


@contextmanager
def as_child() -> Iterator[None]:
    """In a child of `run_child`: it tells of its stages, and SIGTERM unwinds it, so that temporary folders and its own children
    go."""

    def leave(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    with listening(_Telling()):
        yield
