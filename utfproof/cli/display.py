"""Stages of the work on standard error: live on a terminal, a line each with --progress plain, nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from utfproof.cli.output import plain
from utfproof.errors import MalformedInput
from utfproof.ground.console import console
from utfproof.ground.progress import Stage, listening

MODES = ("auto", "plain", "none")
DELAY = 0.7
"""Seconds of work before anything is drawn: what is quick stays quiet."""


def require_mode(mode: str) -> None:
    """MalformedInput unless this is a mode of --progress."""
    if mode not in MODES:
        raise MalformedInput(f"--progress {mode!r} is unknown; choose {', '.join(MODES)}")


@contextlib.contextmanager
def shown(mode: str) -> Iterator[None]:
    """The stages of this block, shown as `mode` says."""
    if mode == "plain":
        with listening(Plain()):
            yield
    elif mode == "auto" and sys.stderr is not None and sys.stderr.isatty():
        live, printed = Live(), sys.stdout
        if printed is not None and printed.isatty():
            sys.stdout = _Hushing(printed, live)
        with listening(live):
            try:
                yield
            finally:
                live.close()
                sys.stdout = printed
    else:
        yield


class _Hushing:
    """Standard output on the terminal that the bars are drawn on: they are taken away before anything is printed."""

    def __init__(self, stream: Any, live: Live) -> None:
        self._stream, self._live = stream, live

    def write(self, text: str) -> int:
        self._live.close()
        written: int = self._stream.write(text)
        self._live.draw_later()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Plain:
    """A line on standard error when a stage begins: seconds since the command began, what, how much."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, stage: Stage) -> None:
        size = "" if stage.total is None or stage.unit == "%" else f", {stage.total:,.0f} {stage.unit or 'steps'}"
        about = "" if stage.expected is None or stage.expected < 1 else f", about {stage.expected:.0f} s"
        line = f"[{time.monotonic() - self._began:7.1f} s] {plain(stage.name)}{size}{about}"
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    def end(self, stage: Stage) -> None:
        """A stage's length is the difference to the next line."""


class Live:
    """Bars with what is done and what remains; drawn when a stage has lasted for a moment, gone when it ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: list[Stage] = []
        self._timer: threading.Timer | None = None
        self._bars: Any = None

    def begin(self, stage: Stage) -> None:
        with self._lock:
            self._open.append(stage)
            if self._bars is not None:
                _add(self._bars, stage)
        self.draw_later()

    def draw_later(self) -> None:
        """Draw what is open then, unless it is drawn, or will be, already."""
        with self._lock:
            if self._open and self._bars is None and self._timer is None:
                self._timer = threading.Timer(DELAY, self._draw)
                self._timer.daemon = True
                self._timer.start()

    def end(self, stage: Stage) -> None:
        with self._lock:
            self._open.remove(stage)
            if not self._open:
                self.close()
            elif self._bars is not None:
                _remove(self._bars, stage)

    def close(self) -> None:
        """Nothing is drawn any more: before a result is printed."""
        with self._lock:
            timer, bars = self._timer, self._bars
            self._timer = self._bars = None
        if timer is not None:
            timer.cancel()
        if bars is not None:
            with contextlib.suppress(OSError, ValueError):
                bars.stop()

    def _draw(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._lock:
            if self._open and self._timer is not None:
                bars = _bars()
                for stage in self._open:
                    _add(bars, stage)
                bars.start()
                self._bars = bars


def _add(bars: Any, stage: Stage) -> None:
    bars.add_task(stage.name, total=None, stage=stage)


def _remove(bars: Any, stage: Stage) -> None:
    for task in bars.tasks:
        if task.fields["stage"] is stage:
            bars.remove_task(task.id)
            return


def _bars() -> Any:
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Bars(Progress):
        """A bar for each stage, brought up to date whenever it is drawn."""

        def get_renderables(self) -> Any:
            whole = [task for task in self.tasks if task.fields["stage"].whole]
            for task in self.tasks:
                task.total, task.completed = _position(task.fields["stage"])
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
            stage = task.fields["stage"]
            left = remaining(stage)
            spent = clock(time.monotonic() - stage.began)
            return Text(spent if left is None else f"{spent}, {clock(left)} left")

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), Done(), Left())
    return Bars(*columns, console=console(stderr=True), transient=True, refresh_per_second=4, redirect_stdout=False)


def _position(stage: Stage) -> tuple[float | None, float]:
    """Total and completed for a bar; a stage of one step is as far as its expected time says, and never at the end."""
    if stage.total is not None:
        return stage.total, stage.done
    if stage.expected:
        spent = time.monotonic() - stage.began
        return stage.expected, min(spent, 0.98 * stage.expected)
    return None, stage.done


def remaining(stage: Stage) -> float | None:
    """Seconds that a stage will still take at its speed so far; None where nothing is known."""
    spent = time.monotonic() - stage.began
    if stage.total is not None and stage.done > stage.before:
        return spent * max(stage.total - stage.done, 0) / (stage.done - stage.before)
    if stage.expected is not None and stage.total is None:
        return max(stage.expected - spent, 0)
    return None


def clock(seconds: float) -> str:
    """0:07, 12:30, 3:05:00."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
