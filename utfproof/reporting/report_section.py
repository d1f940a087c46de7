"""A section of the report: what its template gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

Line = tuple[bool, str]
"""Whether all is as it should be, and the sentence."""


@dataclass(frozen=True)
class Table:
    """Rows of text; the template escapes them."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Section:
    """A part of the page. lines: its summary; problems: what is not as it should be; charts: caption and SVG."""

    name: str
    title: str
    text: str = ""
    lines: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    charts: list[tuple[str, Markup]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
