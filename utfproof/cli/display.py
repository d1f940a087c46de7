"""Stages of the work on standard error: bars on a terminal, or a line each with --progress plain."""

from __future__ import annotations

import contextlib
import re
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
SILENCE = 1.5
"""Seconds without a line, after which plain stages say how far they are."""


@contextlib.contextmanager
def shown(mode: str) -> Iterator[None]:
    """The stages of this block: a line each where the mode is plain, else bars."""
    if mode == "plain":
        lines = Plain()
        threading.Thread(target=lines.repeat, daemon=True).start()
        try:
            with listening(lines):
                yield
        finally:
            lines.over.set()
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
    """A line on standard error when a stage begins, and while it is silent: seconds since the command began, what, how much."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._stages: list[Stage] = []
        self.over = threading.Event()

    def begin(self, stage: Stage) -> None:
        """Print the line."""
        self._stages.append(stage)
        counted = stage.total is not None and stage.unit != "%"
        self._print(f"{stage.name}, {amount(stage.total, stage.unit)}" if counted else stage.name)

    def end(self, stage: Stage) -> None:
        """A stage's length is the difference to the next line."""
        self._stages.remove(stage)

    def repeat(self) -> None:
        """Say how far the innermost stage is whenever nothing was printed for a while."""
        while not self.over.wait(max(0.1, self._last + SILENCE - time.monotonic())):
            if time.monotonic() - self._last >= SILENCE and (stages := [*self._stages]):
                doing = stages[-1]
                far = "" if doing.total is None else f" {doing.done:,.0f} of {amount(doing.total, doing.unit)}"
                self._print(" ".join(f"... {doing.name}:{far or ' at work'} {doing.note}".split()))

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            print(f"[{self._last - self._began:7.1f} s] {plain(text)}", file=sys.stderr, flush=True)


def amount(total: float | None, unit: str) -> str:
    """Such as 3 runs, or 1 run."""
    unit = unit or "steps"
    return f"{total:,.0f} {re.sub(r's(?= |$)', '', unit, count=1) if total == 1 else unit}"


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
