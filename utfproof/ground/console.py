"""The one place that opens a Rich console: its width is never below what a table needs."""

from __future__ import annotations

from typing import Any

NARROWEST = 40
"""Columns of a table. A terminal that is narrower, or whose COLUMNS is 0, breaks its lines."""


def console(*, least: int = NARROWEST, **options: Any) -> Any:
    """A console without highlighting; `options` as of `rich.console.Console`."""
    from rich.console import Console

    found = Console(highlight=False, **options)
    return found if found.width >= least else Console(highlight=False, width=least, **options)
