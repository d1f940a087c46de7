"""Stages of the work on standard error: bars on a terminal, or a line each with --progress plain."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from utfproof.cli.outcome import console, plain
from utfproof.util.progress import Stage, listening

DELAY = 0.7
"""Seconds of work before anything is drawn: what is quick stays quiet."""


@contextlib.contextmanager
def shown(mode: str) -> Iterator[None]:
    """The stages of this block: a line each where the mode is plain, else bars."""
    if mode == "plain":
        with listening(Plain()):
            yield
        return
    bars = Bars()
    timer = threading.Timer(DELAY, bars.begin_drawing)
    timer.daemon = True
    timer.start()
    try:
        with listening(bars):
            yield
    finally:
        timer.cancel()
        bars.end_drawing()


class Plain:
    """A line on standard error when a stage begins: seconds since the command began, what, how much."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, stage: Stage) -> None:
        """Print the line."""
        size = "" if stage.total is None or stage.unit == "%" else f", {stage.total:,.0f} {stage.unit or 'steps'}"
        with contextlib.suppress(OSError, ValueError):
            print(f"[{time.monotonic() - self._began:7.1f} s] {plain(stage.name)}{size}", file=sys.stderr, flush=True)

    def end(self, stage: Stage) -> None:
        """A stage's length is the difference to the next line."""


class Bars(Progress):
    """Bars of Rich that are brought up to date whenever they are drawn. What the command prints meanwhile appears above."""

    def __init__(self) -> None:
        self._stages: dict[Stage, TaskID] = {}
        self._drawing, self._open = threading.Lock(), True
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
            refresh_per_second=4,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )

    def begin_drawing(self) -> None:
        """Draw from now on, unless the work is over."""
        with self._drawing, contextlib.suppress(OSError, ValueError):
            if self._open:
                self.start()

    def end_drawing(self) -> None:
        """Take the bars away."""
        with self._drawing, contextlib.suppress(OSError, ValueError):
            self._open = False
            self.stop()

    def get_renderables(self) -> Any:
        with self._lock:  # a stage may end meanwhile
            for doing, task in [*self._stages.items()]:
                steps = "" if doing.total is None else f"{doing.done:,.0f}/{doing.total:,.0f} {doing.unit}"
                alone = not doing.whole or all(other.whole for other in [*self._stages])
                if task in self.task_ids:
                    said = plain(f"{steps} {doing.note}".strip())
                    self.update(task, total=doing.total, completed=doing.done, visible=alone, said=said)
        return super().get_renderables()

    def begin(self, stage: Stage) -> None:
        """Add its bar."""
        self._stages[stage] = self.add_task(plain(stage.name), total=None, said="")

    def end(self, stage: Stage) -> None:
        """Take it away."""
        self.remove_task(self._stages.pop(stage))
