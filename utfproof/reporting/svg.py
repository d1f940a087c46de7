"""Small SVG pieces: labels with indices, runs of ones along diagonals, framed matrices.

Everything is drawn in `currentColor` and three middle tones, which read on light and on dark paper alike.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import numpy as np

COLOURS = {"Q": "#3f7fc1", "K": "#d4822a", "OV": "#2f9c74", "": "currentColor"}
"""By kind of content; "" where the content is not known or there is none."""
ZERO = "#c8452f"
"""Columns without a one."""

FONT = 12.0
SQUARES = 3.0
"""Cells of at least this many units are drawn as squares, smaller ones as strokes along their diagonal."""

Label = Sequence[tuple[str, str]]
"""Pieces of text, each "" (plain), "sub" or "sup"."""

_SHIFT = {"": 0.0, "sub": 3.5, "sup": -5.0}
_SIZE = {"": FONT, "sub": 8.5, "sup": 8.5}


def number(value: float) -> str:
    """At most two decimals, none where they are zero."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def svg(width: float, height: float, title: str, body: Iterable[str]) -> str:
    """A standalone picture with its title, which is also its accessible name."""
    box = f"{number(width)} {number(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {box}" width="{number(width)}" '
        f'height="{number(height)}" font-family="Georgia, \'DejaVu Serif\', serif" font-size="{number(FONT)}" '
        f'fill="currentColor"><title>{html.escape(title)}</title>{"".join(body)}</svg>'
    )


def label_width(label: Label) -> float:
    """About how wide a label is."""
    return sum(len(text) * _SIZE[kind] * 0.7 for text, kind in label)


def label_text(label: Label) -> str:
    """The label in one line of plain text: M_0 W_Q^{2,1}."""
    marks = {"": ("", ""), "sub": ("_", ""), "sup": ("^{", "}")}
    out = ""
    for text, kind in label:
        before, after = marks[kind]
        space = " " if kind == "" and out else ""
        out += f"{space}{before}{text}{after}"
    return out


def text(x: float, y: float, label: Label | str, *, anchor: str = "middle", upright: bool = False) -> str:
    """A label centred on (x, y), or turned to read upwards where `upright` is set."""
    pieces: Label = [(label, "")] if isinstance(label, str) else label
    spans, shift = [], 0.0
    for piece, kind in pieces:
        step = _SHIFT[kind] - shift
        shift = _SHIFT[kind]
        dy = f' dy="{number(step)}"' if step else ""
        size = "" if kind == "" else f' font-size="{number(_SIZE[kind])}"'
        content = html.escape(piece)
        spans.append(f"<tspan{dy}{size}>{content}</tspan>" if dy or size else content)
    turn = f' transform="rotate(-90 {number(x)} {number(y)})"' if upright else ""
    return f'<text x="{number(x)}" y="{number(y)}" dy="4" text-anchor="{anchor}"{turn}>{"".join(spans)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, *, opacity: float = 0.25, title: str = "") -> str:
    """A tinted block, with a tooltip where it has a title."""
    shape = (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
        f'fill="{COLOURS[kind]}" fill-opacity="{opacity}" stroke="{COLOURS[kind]}" stroke-width=".8"'
    )
    return f"{shape}><title>{html.escape(title)}</title></rect>" if title else f"{shape}/>"


def diagonal_runs(rows: np.ndarray, columns: np.ndarray) -> list[tuple[int, int, int]]:
    """Ones at (rows[k], columns[k]) as maximal runs (row, column, length) along diagonals, each one once."""
    if not len(rows):
        return []
    diagonal, along = np.unique(np.stack([columns - rows, rows], axis=1), axis=0).T
    starts = np.flatnonzero((np.diff(diagonal, prepend=diagonal[0] - 1) != 0) | (np.diff(along, prepend=along[0]) != 1))
    lengths = np.diff(np.append(starts, len(along)))
    return [
        (int(along[start]), int(along[start] + diagonal[start]), int(length))
        for start, length in zip(starts, lengths, strict=True)
    ]


def cells(runs: Sequence[tuple[int, int, int]], x: float, y: float, cell: float, kind: str) -> str:
    """One path for all ones of a kind."""
    if not runs:
        return ""
    place = f'transform="translate({number(x)} {number(y)}) scale({number(cell)})"'
    if cell >= SQUARES:
        steps = (f"M{c} {r}" + "h1v1h-1zm1 1" * (n - 1) + "h1v1h-1z" for r, c, n in runs)
        return f'<path {place} fill="{COLOURS[kind]}" d="{"".join(steps)}"/>'
    strokes = "".join(f"M{c} {r}l{n} {n}" for r, c, n in runs)
    return f'<path {place} stroke="{COLOURS[kind]}" stroke-width="{number(max(1.0, 1.5 / cell))}" fill="none" d="{strokes}"/>'


def frame(
    x: float,
    y: float,
    width: int,
    height: int,
    cell: float,
    row_cuts: Iterable[int] = (),
    column_cuts: Iterable[int] = (),
) -> str:
    """The outline of a matrix of height rows and width columns, with faint lines at the cuts."""
    lines = "".join(f"M0 {cut}h{width}" for cut in row_cuts) + "".join(f"M{cut} 0v{height}" for cut in column_cuts)
    place = f'transform="translate({number(x)} {number(y)}) scale({number(cell)})" fill="none" stroke="currentColor"'
    fixed = 'vector-effect="non-scaling-stroke"'
    faint = f'<path {place} stroke-opacity=".22" stroke-width=".6" {fixed} d="{lines}"/>' if lines else ""
    return f'{faint}<path {place} stroke-opacity=".7" stroke-width="1" {fixed} d="M0 0h{width}v{height}h-{width}z"/>'
