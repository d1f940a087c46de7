"""How commands speak: a short table for people, one JSON object for machines, notes and errors on standard error."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from typing import Any

from utfproof.cli.outcome import Outcome

NARROWEST = 40
"""Columns of a table. A terminal that is narrower, or whose COLUMNS is 0, breaks its lines."""


def console(*, least: int = NARROWEST, **options: Any) -> Any:
    """A console without highlighting; `options` as of `rich.console.Console`."""
    from rich.console import Console

    found = Console(highlight=False, **options)
    return found if found.width >= least else Console(highlight=False, width=least, **options)


def plain(text: str) -> str:
    """The text with every control character written out: names in files that others made reach the terminal as letters. Line
    breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


class _Plain:
    """Standard output for a command's own words: colours stay, other control characters, of names in them, are written out."""

    COLOUR = re.compile("(\x1b\\[[0-9;]*m)")

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        parts = self.COLOUR.split(text)
        written: int = self._stream.write("".join(part if i % 2 else plain(part) for i, part in enumerate(parts)))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def show(outcome: Outcome, *, as_json: bool) -> None:
    """What a command found: its document as JSON, or its rows, lines and words."""
    if as_json:
        print(json.dumps(_finite(outcome.document), sort_keys=True, allow_nan=False))
        return
    if outcome.rows is not None or outcome.header:
        _draw(outcome)
    if outcome.text is not None:
        with contextlib.redirect_stdout(_Plain(sys.stdout)):
            outcome.text()


def _draw(outcome: Outcome) -> None:
    """Rows as a table of two columns, or lines under a header, and notes below."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text: file names are never read as markup
    table = Table(
        title=Text(plain(outcome.title)),
        title_justify="left",
        box=box.SIMPLE,
        show_header=bool(outcome.header),
        title_style="bold",
    )
    # sentences give way to the width, words do not
    for name, *cells in zip(outcome.header, *outcome.lines, strict=True):
        table.add_column(Text(plain(name)), no_wrap=not any(" " in str(cell) for cell in cells))
    if not outcome.header:
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
    for line in outcome.lines or (outcome.rows or {}).items():
        table.add_row(*(Text(plain(str(cell))) for cell in line))
    screen = console()
    screen.print(table)
    for note in outcome.notes:
        screen.print(Text(plain(note)))


def _finite(value: Any) -> Any:
    """The same document with null for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
