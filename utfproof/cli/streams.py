"""Standard streams that the caller closed: without them, the next file opened would take their number and their output."""

from __future__ import annotations

import os
import sys


def open_all() -> None:
    """Give every closed standard stream a number of its own; writing to a closed output fails, as it should."""
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
