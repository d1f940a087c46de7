"""What a command returns, and how it is shown: a short table for people, one JSON object for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from utfproof.errors import UtfproofError

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


@dataclass(frozen=True)
class Outcome:
    """What a command found.

    document: for machines. For people: a title with rows, a table of two columns, then what `text` prints. Then, for both, the
    exit code, or a failure whose line is printed last.
    """

    document: dict[str, Any]
    title: str = ""
    rows: Mapping[str, Any] | None = None
    exit_code: int = 0
    text: Callable[[], None] | None = None
    failure: UtfproofError | None = None

    def json(self) -> str:
        """The document, with null for NaN and infinities, which JSON does not have."""
        return json.dumps(_finite(self.document), sort_keys=True, allow_nan=False)

    def show(self) -> None:
        """Print the table and the text."""
        if self.rows is not None:
            _draw(self.title, self.rows)
        if self.text is not None:
            self.text()


def _draw(title: str, rows: Mapping[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text: file names are never read as markup
    table = Table(title=Text(plain(title)), title_justify="left", box=box.SIMPLE, show_header=False, title_style="bold")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(plain(name)), Text(plain(str(value))))
    console().print(table)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
