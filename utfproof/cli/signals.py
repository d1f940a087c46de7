"""What the system does to a command: signals, and standard streams that the caller closed.

Ctrl-C, SIGTERM and a closed terminal end a command alike: one line, no traceback, what was begun is taken away.

Only the process that a person started sets this up (`utfproof.cli.main`); workers leave signals to it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

NUMBERS: dict[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
PATIENCE = 2.0
"""Seconds in which more of the same do not disturb the clearing away."""
_received: list[tuple[int, float]] = []


def line(number: int) -> str:
    """The line printed about it."""
    return f"utfproof: {NUMBERS[number]}; nothing half-written is left"


def received() -> int | None:
    """The signal that this process is ending for; None where there was none."""
    return _received[0][0] if _received else None


def code(number: int) -> int:
    """Exit code, as shells have it: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + number


def while_loading() -> None:
    """Until commands run nothing has been written: leave at once, without unwinding a half-done import."""

    def leave(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(2, f"{line(number)}\n".encode())
        os._exit(code(number))

    for number in NUMBERS:  # `nohup` and shell scripts ignore signals for their children
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, leave)


def while_running() -> None:
    """A signal unwinds the command as KeyboardInterrupt: files and child processes are cleared away on the way out."""
    _received.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not _received or now - _received[-1][1] > PATIENCE:
            _received.append((number, now))
            raise KeyboardInterrupt

    for number in NUMBERS:
        if callable(signal.getsignal(number)):
            signal.signal(number, interrupt)
    sys.unraisablehook = _quiet


def when_done() -> None:
    """Everything is printed: a later signal ends the process as the system would."""
    for number in NUMBERS:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _quiet(event: Any) -> None:
    """An interrupt that came inside a destructor or a callback is no news."""
    if not issubclass(event.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(event)


def open_streams() -> None:
    """Give every standard stream that the caller closed a number of its own; writing to a closed output fails, as it should."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # the lowest free number: this one. Read-only, so that output to it fails and is reported
            os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
