"""How commands speak: a short table for people, one JSON object for machines, notes and errors on standard error."""

from __future__ import annotations

import json
import math
from typing import Any


def emit(document: dict[str, Any], title: str, rows: dict[str, Any], *, as_json: bool) -> None:
    """The result of a command: `document` as JSON, or `rows` as a two-column table."""
    if as_json:
        print(json.dumps(_finite(document), sort_keys=True, allow_nan=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text: file names are never read as markup
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE, show_header=False, title_style="bold")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(str(value)))
    Console(highlight=False).print(table)


def emit_table(
    document: dict[str, Any],
    title: str,
    header: list[str],
    lines: list[list[str]],
    *,
    notes: list[str],
    as_json: bool,
) -> None:
    """The result of a command that has many: `document` as JSON, or one line each under a header, and notes below."""
    if as_json:
        emit(document, title, {}, as_json=True)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE, title_style="bold")
    for name in header:
        table.add_column(Text(name), no_wrap=True)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    console = Console(highlight=False)
    console.print(table)
    for note in notes:
        console.print(Text(note))


def _finite(value: Any) -> Any:
    """The same document with null for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
