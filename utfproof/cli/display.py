"""Stages of the work on standard error: bars on a terminal, a line each with --progress plain, nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from utfproof.cli.output import console, plain
from utfproof.errors import MalformedInput, choose
from utfproof.ground.progress import Stage, listening

MODES = ("auto", "plain", "none")
DELAY = 0.7
"""Seconds of work before anything is drawn: what is quick stays quiet."""


def require_mode(mode: str) -> None:
    """MalformedInput unless this is a mode of --progress."""
    if mode not in MODES:
        raise MalformedInput(f"--progress {mode!r} is unknown; {choose(mode, MODES)}")


@contextlib.contextmanager
def shown(mode: str) -> Iterator[None]:
    """The stages of this block, shown in this mode."""
    if mode == "plain":
        with listening(Plain()):
            yield
    elif mode == "auto" and sys.stderr is not None and sys.stderr.isatty():
        with Bars() as bars, listening(bars):
            yield
    else:
        yield


class Plain:
    """A line on standard error when a stage begins: seconds since the command began, what, how much."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, stage: Stage) -> None:
        """Print the line."""
        size = "" if stage.total is None or stage.unit == "%" else f", {stage.total:,.0f} {stage.unit or 'steps'}"
        line = f"[{time.monotonic() - self._began:7.1f} s] {plain(stage.name)}{size}"
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    def end(self, stage: Stage) -> None:
        """A stage's length is the difference to the next line."""


class Bars:
    """Bars of Rich, from DELAY seconds on, gone at the end of the block. What the command prints meanwhile appears above."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        tasks: dict[Stage, Any] = {}
        self._tasks = tasks

        class Stages(Progress):
            """Bars that are brought up to date whenever they are drawn."""

            def get_renderables(self) -> Any:
                with self._lock:  # a stage may end meanwhile
                    for doing, task in [*tasks.items()]:
                        steps = "" if doing.total is None else f"{doing.done:,.0f}/{doing.total:,.0f} {doing.unit}"
                        said = plain(f"{steps} {doing.note}".strip())
                        alone = not doing.whole or all(other.whole for other in [*tasks])
                        if task in self.task_ids:
                            self.update(task, total=doing.total, completed=doing.done, visible=alone, said=said)
                return super().get_renderables()

        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.fields[said]}", markup=False), TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        redirect = sys.stdout is not None and sys.stdout.isatty()
        screen = console(stderr=True)
        self._bars = Stages(*columns, console=screen, transient=True, refresh_per_second=4, redirect_stdout=redirect)
        self._lock, self._open = threading.Lock(), True
        self._timer = threading.Timer(DELAY, self._start)
        self._timer.daemon = True

    def __enter__(self) -> Bars:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open = False
        self._timer.cancel()
        with contextlib.suppress(OSError, ValueError):
            self._bars.stop()

    def _start(self) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._open:
                self._bars.start()

    def begin(self, stage: Stage) -> None:
        """Add its bar."""
        self._tasks[stage] = self._bars.add_task(plain(stage.name), total=None, said="")

    def end(self, stage: Stage) -> None:
        """Take it away."""
        self._bars.remove_task(self._tasks.pop(stage))
