"""Stages of the work on standard error: bars on a terminal, a line each with --progress plain, nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from utfproof.cli.output import plain
from utfproof.errors import MalformedInput, choose
from utfproof.ground.console import console
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
        self._bars = _bars()
        self._tasks: dict[Stage, Any] = {}
        self._lock = threading.Lock()
        self._timer = threading.Timer(DELAY, self._start)
        self._timer.daemon = True
        self._open = True

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
        self._tasks[stage] = self._bars.add_task(plain(stage.name), total=None, stage=stage)

    def end(self, stage: Stage) -> None:
        """Take it away."""
        self._bars.remove_task(self._tasks.pop(stage))


def _bars() -> Any:
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Stages(Progress):
        """Bars that are brought up to date whenever they are drawn."""

        def get_renderables(self) -> Any:
            whole = [task for task in self.tasks if task.fields["stage"].whole]
            for task in self.tasks:
                task.total, task.completed = task.fields["stage"].total, task.fields["stage"].done
                task.visible = task not in whole or len(whole) == len(self.tasks)
            return super().get_renderables()

    class Done(ProgressColumn):
        """Steps of steps, and the stage's own words."""

        def render(self, task: Any) -> Text:
            stage = task.fields["stage"]
            steps = "" if stage.total is None else f"{stage.done:,.0f}/{stage.total:,.0f} {stage.unit}".rstrip()
            return Text(plain(f"{steps} {stage.note}".strip()))

    class Left(ProgressColumn):
        """Time spent and time left."""

        def render(self, task: Any) -> Text:
            left = remaining(task.fields["stage"])
            spent = clock(time.monotonic() - task.fields["stage"].began)
            return Text(spent if left is None else f"{spent}, {clock(left)} left")

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), Done(), Left())
    redirect = sys.stdout is not None and sys.stdout.isatty()
    return Stages(
        *columns, console=console(stderr=True), transient=True, refresh_per_second=4, redirect_stdout=redirect
    )


def remaining(stage: Stage) -> float | None:
    """Seconds that a stage will still take at its speed so far; None where nothing is known."""
    if stage.total is None or stage.done <= stage.before:
        return None
    spent = time.monotonic() - stage.began
    return spent * max(stage.total - stage.done, 0) / (stage.done - stage.before)


def clock(seconds: float) -> str:
    """0:07, 12:30, 3:05:00."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
