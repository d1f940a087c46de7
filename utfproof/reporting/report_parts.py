"""What the report's sections are made of: headings, figures, tables, legends. Texts are escaped here, and only here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from utfproof.reporting.page import escape, prose, scrolling


@dataclass(frozen=True)
class Section:
    """A section of the page. lines: what the head of the page says of it, each with whether it is fine."""

    name: str
    title: str
    body: str
    lines: tuple[tuple[bool, str], ...]


def section(part: Section) -> str:
    """The section with its heading, which the contents link to."""
    return (
        f'<section id="_{part.name}" aria-labelledby="_{part.name}-heading">'
        f'<h2 id="_{part.name}-heading">{escape(part.title)}</h2>{part.body}</section>'
    )


def paragraph(text: object, kind: str = "") -> str:
    """Prose with its indices set."""
    return f'<p class="{kind}">{prose(text)}</p>' if kind else f"<p>{prose(text)}</p>"


def figure(caption: object, drawing: str, *, below: str = "") -> str:
    """A drawing with its caption, which fits a telephone; `drawing` and `below` are markup."""
    under = f'<div class="below">{below}</div>' if below else ""
    return f'<figure class="chart plot"><figcaption>{prose(caption)}</figcaption>{drawing}{under}</figure>'


def panels(figures: Iterable[str]) -> str:
    """Small figures side by side, as many as fit."""
    return f'<div class="plots">{"".join(figures)}</div>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Swatches (markup) and what they mean."""
    items = "".join(f"<li>{swatch}<span>{prose(name)}</span></li>" for swatch, name in entries)
    return f'<ul class="legend">{items}</ul>'


@dataclass(frozen=True)
class Markup:
    """A cell that is markup already."""

    html: str


Cell = object


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], *, long: bool = False) -> str:
    """A table that scrolls by itself, downwards too where it is `long`; the first cell of each row is its heading. Texts are
    escaped."""
    columns = "".join(f'<th scope="col">{prose(name)}</th>' for name in head)
    lines = []
    for row in rows:
        first, *others = (cell.html if isinstance(cell, Markup) else prose(cell) for cell in row)
        cells = "".join(f"<td{_unbroken(cell)}>{cell}</td>" for cell in others)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return scrolling(
        caption,
        f'<table class="data"><caption>{prose(caption)}</caption><thead><tr>{columns}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>",
        "scroll long" if long else "scroll",
    )


def _unbroken(cell: str) -> str:
    """A number such as 6.01e-15 is not broken at its sign."""
    return ' class="whole"' if re.fullmatch(r"[\d.,+e–-]{1,14}", cell) else ""


def folded(summary: str, content: str, *, shown: bool = False) -> str:
    """Content behind a line that opens it; open on paper."""
    return f'<details class="fold"{" open" if shown else ""}><summary>{prose(summary)}</summary>{content}</details>'


def alarm(lines: Sequence[str]) -> str:
    """What is not as it should be; nothing for no lines."""
    if not lines:
        return ""
    return f'<div class="alarm" role="note"><ul>{"".join(f"<li>{prose(line)}</li>" for line in lines)}</ul></div>'


def shape_text(shape: dict[str, object]) -> str:
    """(H, L, d, d_in) in short, with d_out where it differs and the residual stream where there is one."""
    text = ",\u00a0".join(str(shape[name]) for name in ("heads", "layers", "head_dim", "d_in"))
    out = "" if shape["d_out"] == shape["d_in"] else f", d_out {shape['d_out']}"
    return f"({text}){out}{', residual' if shape.get('residual') else ''}"
