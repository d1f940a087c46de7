"""Charts of the report as SVG text: axes, lines, points and bars, drawn in `currentColor` and middle tones that read on light
and on dark paper. What an axis shows comes from the numbers handed in; shapes and strokes repeat what colours say.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from utfproof.reporting.svg import Label, label_width, number, svg, text

SERIES = ("#3f7fc1", "#c8731c", "#2f9c74", "#a65fb0", "#c8452f", "#85802a", "#4b93a6", "#9a6d4c")
"""One tone for each series, in order."""
MARKERS = ("circle", "square", "diamond", "triangle", "wedge", "plus")
"""One marker for each series, in order: they tell series apart where colours do not."""

CHARACTER = 6.8
"""About how wide a letter is."""

WIDTH, HEIGHT = 340.0, 250.0
"""Of a panel: it fits a telephone held upright."""
_RIGHT, _TOP, _BOTTOM = 46.0, 14.0, 40.0
_NAME = 22.0
"""Room for the name of a vertical axis, left of its labels."""


def colour(index: int) -> str:
    """The tone of a series."""
    return SERIES[index % len(SERIES)]


def short(value: float) -> str:
    """A number for an axis or a bar: 3 significant digits, with an exponent only where zeros would be many."""
    return f"{round(value, 2 - math.floor(math.log10(abs(value)))):.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


# --- axes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """Values from low to high, on a logarithmic scale where `log`. name: what stands beside it."""

    low: float
    high: float
    log: bool = False
    name: str = ""
    whole: bool = False
    """Ticks at integers only."""

    @staticmethod
    def of(values: Iterable[float], *, log: bool = False, name: str = "", whole: bool = False) -> Axis:
        """An axis that holds these values with a little room; on a logarithmic one only positive values count."""
        found = [value for value in values if not log or value > 0] or [1.0]
        low, high = min(found), max(found)
        if log:
            room = max(1.15, (high / low) ** 0.05) if high / low < 1e300 else 1.15
            return Axis(low / room, high * room, True, name, whole)
        room = (high - low) * 0.05 or max(abs(high) * 0.1, 0.5)
        return Axis(low - room, high + room, False, name, whole)

    def share(self, value: float) -> float:
        """Where a value stands, 0 at the low end and 1 at the high one."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """A handful of round values."""
        return self._decades() if self.log else self._steps()

    def _decades(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        if self.high / self.low < 300:
            found = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        else:
            found = [10.0**power for power in range(first, last + 1, max(1, (last - first) // 5))]
        return [value for value in found if self.low <= value <= self.high]

    def _steps(self) -> list[float]:
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        if self.whole:
            step = max(1.0, round(step))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def tick_label(value: float, axis: Axis) -> Label:
    """10 to a power where that is shorter (or the axis spans many), else the plain number."""
    power = round(math.log10(value)) if axis.log else 0
    least = 2 if axis.log and axis.high / axis.low > 1e6 else 4
    if abs(power) >= least and math.isclose(value, 10.0**power, rel_tol=1e-9):
        return [("10", ""), (str(power).replace("-", "−"), "sup")]
    if value == int(value) and abs(value) < 1e15:
        whole = int(value)
        return [(f"{whole // 1000}k" if whole >= 10_000 and whole % 1000 == 0 else str(whole), "")]
    return [(short(value), "")]


# --- a panel -------------------------------------------------------------------------------------------------


@dataclass
class Panel:
    """A drawing area with a horizontal and a vertical axis; what is drawn is kept in order."""

    x: Axis
    y: Axis
    width: float = WIDTH
    height: float = HEIGHT
    body: list[str] = field(default_factory=list)

    @cached_property
    def left(self) -> float:
        """Where the horizontal axis begins: right of the labels and the name of the vertical one."""
        labels = (label_width(tick_label(value, self.y)) for value in self.y.ticks())
        return _NAME + max([20.0, *labels]) + 6

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point in the drawing."""
        across, up = self.width - self.left - _RIGHT, self.height - _TOP - _BOTTOM
        return self.left + across * self.x.share(x), _TOP + up * (1 - self.y.share(y))

    def line(self, points: Sequence[tuple[float, float]], tone: str, *, dash: str = "", width: float = 1.6) -> None:
        """A line through the points; dash as in SVG."""
        if len(points) < 2:
            return
        path = "L".join(f"{number(x)} {number(y)}" for x, y in (self.at(*point) for point in points))
        broken = f' stroke-dasharray="{dash}"' if dash else ""
        self.body.append(
            f'<path d="M{path}" fill="none" stroke="{tone}" stroke-width="{number(width)}" stroke-linejoin="round"{broken}/>'
        )

    def band(self, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]], tone: str) -> None:
        """The area between two lines, tinted."""
        corners = [self.at(*point) for point in [*lower, *reversed(upper)]]
        path = "L".join(f"{number(x)} {number(y)}" for x, y in corners)
        self.body.append(f'<path d="M{path}z" fill="{tone}" fill-opacity=".13"/>')

    def mark(
        self, x: float, y: float, shape: str, tone: str, *, hollow: bool = False, title: str = "", size: float = 3.4
    ) -> None:
        """A point with its tooltip."""
        self.body.append(marker(*self.at(x, y), shape, tone, hollow=hollow, title=title, size=size))

    def note(self, x: float, y: float, label: Label | str, *, anchor: str = "start", shift: float = 0.0) -> None:
        """Text beside a point."""
        across, down = self.at(x, y)
        self.body.append(text(across + shift, down, label, anchor=anchor))

    def drawing(self, title: str) -> str:
        """The picture with its axes."""
        left, right = self.left, self.width - _RIGHT
        top, bottom = _TOP, self.height - _BOTTOM
        rules, labels = "", []
        for value in self.y.ticks():
            down = self.at(self.x.low, value)[1]
            rules += f"M{number(left)} {number(down)}H{number(right)}"
            labels.append(text(left - 6, down, tick_label(value, self.y), anchor="end"))
        last = -math.inf
        for value in self.x.ticks():
            across = self.at(value, self.y.low)[0]
            rules += f"M{number(across)} {number(top)}V{number(bottom)}"
            label = tick_label(value, self.x)
            if across - label_width(label) / 2 > last:
                labels.append(text(across, bottom + 13, label))
                last = across + label_width(label) / 2 + 4
        grid = f'<path d="{rules}" fill="none" stroke="currentColor" stroke-opacity=".14" stroke-width=".8"/>'
        frame = (
            f'<path d="M{number(left)} {number(top)}V{number(bottom)}H{number(right)}" fill="none" stroke="currentColor" '
            'stroke-opacity=".6" stroke-width=".9"/>'
        )
        names = [
            text((left + right) / 2, self.height - 9, self.x.name),
            text(11, (top + bottom) / 2, self.y.name, upright=True),
        ]
        return svg(self.width, self.height, title, [grid, frame, *self.body, *labels, *names])


def marker(
    x: float, y: float, shape: str, tone: str, *, hollow: bool = False, title: str = "", size: float = 3.4
) -> str:
    """One mark of a series, filled or hollow."""
    s = size
    paths = {
        "square": f"M{number(x - s)} {number(y - s)}h{number(2 * s)}v{number(2 * s)}h{number(-2 * s)}z",
        "diamond": f"M{number(x)} {number(y - 1.35 * s)}l{number(1.35 * s)} {number(1.35 * s)}l{number(-1.35 * s)} "
        f"{number(1.35 * s)}l{number(-1.35 * s)} {number(-1.35 * s)}z",
        "triangle": f"M{number(x)} {number(y - 1.2 * s)}l{number(1.2 * s)} {number(2.1 * s)}h{number(-2.4 * s)}z",
        "wedge": f"M{number(x)} {number(y + 1.2 * s)}l{number(1.2 * s)} {number(-2.1 * s)}h{number(-2.4 * s)}z",
        "plus": f"M{number(x - s)} {number(y)}h{number(2 * s)}M{number(x)} {number(y - s)}v{number(2 * s)}",
        "cross": f"M{number(x - s)} {number(y - s)}l{number(2 * s)} {number(2 * s)}m0 {number(-2 * s)}l{number(-2 * s)} "
        f"{number(2 * s)}",
        "bar": f"M{number(x - 1.9 * s)} {number(y)}h{number(3.8 * s)}",
    }
    fill = ' class="hollow" fill="none"' if hollow else f' fill="{tone}"'
    if shape == "circle":
        drawn = f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(s)}"{fill} stroke="{tone}" stroke-width="1.2"'
    else:
        open_shape = shape in ("plus", "cross", "bar")
        style = ' fill="none"' if open_shape else fill
        drawn = f'<path d="{paths[shape]}"{style} stroke="{tone}" stroke-width="{"2" if open_shape else "1.2"}"'
    return f"{drawn}><title>{html.escape(title)}</title></{drawn[1:].split()[0]}>" if title else f"{drawn}/>"


# --- bars ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One bar: its name, length, series, and what is said of it."""

    name: str
    value: float
    series: int = 0
    title: str = ""


def bars(entries: Sequence[Bar], title: str, *, log: bool = True, unit: str = "") -> str:
    """Horizontal bars with their numbers. log: lengths are logarithms of ratios, from 1, slower to the right and faster to
    the left; else from 0."""
    numbers = [f"{short(bar.value)}{unit}" for bar in entries]
    left, room = (
        10 + max([least, *(label_width([(name, "")]) for name in names)])
        for least, names in ((60.0, [bar.name for bar in entries]), (40.0, numbers))
    )
    step = 21.0
    width = max(WIDTH, left + 150 + room)
    values = [bar.value for bar in entries if not log or bar.value > 0]
    axis = Axis(min([1.0, *values]), max([1.0, *values]) * 1.0001, True) if log else Axis(0, max([*values, 1e-300]))
    across = width - left - room
    origin = left + across * axis.share(1.0 if log else 0.0)
    body = []
    for index, bar in enumerate(entries):
        y = 6 + index * step
        body.append(text(left - 8, y + 8, bar.name, anchor="end"))
        if log and not bar.value > 0:
            continue
        end = left + across * axis.share(bar.value)
        x, length = min(origin, end), max(abs(end - origin), 0.8)
        tone = colour(bar.series)
        body.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(length)}" height="15" fill="{tone}" '
            f'fill-opacity=".55" stroke="{tone}" stroke-width=".8"><title>{html.escape(bar.title or bar.name)}</title></rect>'
        )
        body.append(text(max(end, origin) + 5, y + 8, numbers[index], anchor="start"))
    height = 6 + len(entries) * step
    body.append(
        f'<path d="M{number(origin)} 0V{number(height)}" stroke="currentColor" stroke-opacity=".7" stroke-width=".9"/>'
    )
    return svg(width, height + 4, title, body)


def swatch(tone: str, shape: str, *, hollow: bool = False, dash: str | None = None) -> str:
    """A piece of a legend: a marker, on a line where `dash` is given. It says nothing by itself."""
    stroke = "" if dash is None else f' stroke-dasharray="{dash}"' * bool(dash)
    line = "" if dash is None else f'<path d="M1 7H25" fill="none" stroke="{tone}" stroke-width="1.6"{stroke}/>'
    mark = marker(13, 7, shape, tone, hollow=hollow, size=3.6) if shape else ""
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 26 14" width="26" height="14">{line}{mark}</svg>'
