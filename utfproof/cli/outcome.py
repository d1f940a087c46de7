"""What a command returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from utfproof.errors import UtfproofError


@dataclass(frozen=True)
class Outcome:
    """What a command found.

    document: for machines. For people: a title with rows (a table of two columns), or with a header and lines (a table of
    many) and notes below; or words printed by `text`, after rows where there are any. Then, for both, what `closing` says on
    standard error, and the exit code, or a failure whose line is said last.
    """

    document: dict[str, Any]
    title: str = ""
    rows: Mapping[str, Any] | None = None
    exit_code: int = 0
    header: tuple[str, ...] = ()
    lines: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: Callable[[], None] | None = None
    closing: Callable[[], None] | None = None
    failure: UtfproofError | None = None
