"""Charts as inline SVG by matplotlib. Lines and text take the page's colour, so they read in light and in dark."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from utfproof.errors import MalformedInput
from utfproof.ground.forms import plain
from utfproof.ground.plots import open_figure

SERIES = ("#3f7fc1", "#c8731c", "#2f9c74", "#a65fb0", "#c8452f", "#85802a", "#4b93a6", "#9a6d4c")
MARKERS = "osD^vP"
"""Markers tell series apart where colours do not."""
_INK = "#010203"
"""Replaced by currentColor in the SVG."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "utfproof",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_OWN_NAME = re.compile(r' id="[A-Za-z0-9.]+_\d+"')
"""Identifiers of groups, which would occur in every chart."""


def short(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


@contextmanager
def chart(width: float = 5.0, height: float = 3.4) -> Iterator[tuple[Any, Callable[[], Markup]]]:
    """Axes, and a function that returns the SVG. Sizes in inches. MalformedInput where matplotlib is missing."""
    figure = open_figure((width, height))
    from matplotlib import rc_context

    with rc_context(_STYLE):

        def drawn() -> Markup:
            text = StringIO()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a character that the font lacks; the browser has it
                figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            body = text.getvalue()
            return Markup(_OWN_NAME.sub("", body[body.index("<svg") :]).replace(_INK, "currentColor"))

        yield figure.add_subplot(), drawn


def available() -> bool:
    """Whether charts can be drawn here."""
    try:
        open_figure((1, 1))
    except MalformedInput:
        return False
    return True


def bars(values: Mapping[str, float], label: str) -> Markup:
    """Horizontal bars of ratios on a logarithmic scale that begin at 1."""
    names = list(values)
    with chart(7.0, 0.6 + 0.24 * len(names)) as (axes, drawn):
        for row, name in enumerate(names):
            ratio = values[name]
            axes.barh(row, ratio - 1, left=1, color=SERIES[0], alpha=0.7)
            axes.text(max(ratio, 1) * 1.05, row, short(ratio), va="center")
        axes.set_yticks(range(len(names)), [plain(name) for name in names])
        axes.invert_yaxis()
        axes.axvline(1, color=_INK, linewidth=0.8)
        logarithmic(axes, "x")
        axes.set_xlim(right=2 * max([1.0, *values.values()]))
        axes.set_xlabel(label)
        return drawn()


def points(series: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> Markup:
    """Points on two logarithmic axes, with the diagonal."""
    with chart(6.4, 4.4) as (axes, drawn):
        for k, (name, members) in enumerate(series.items()):
            style = {"marker": MARKERS[k % len(MARKERS)], "color": SERIES[k % len(SERIES)]}
            axes.plot(
                *zip(*members, strict=True),
                linestyle="none",
                markersize=3,
                fillstyle="none",
                label=plain(name),
                **style,
            )
        reach = [value for members in series.values() for point in members for value in point]
        ends = [min(reach), max(reach)]
        axes.plot(ends, ends, color=_INK, linestyle="--", linewidth=0.8, label=f"{x} = {y}")
        for axis in "xy":
            logarithmic(axes, axis)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.legend(loc="upper left")
        return drawn()


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    x: str,
    y: str,
    *,
    dashed: Mapping[str, str] = MappingProxyType({}),
    log: bool = False,
) -> Markup:
    """One line per series. dashed: series drawn so, each with the series whose colour it takes."""
    with chart() as (axes, drawn):
        for name, members in series.items():
            k = [other for other in series if other not in dashed].index(dashed.get(name, name))
            style: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": SERIES[k % len(SERIES)]}
            style |= {"linestyle": "--" if name in dashed else "-", "markersize": 3, "linewidth": 1.2}
            axes.plot(*zip(*members, strict=True), label=None if name in dashed else plain(name), **style)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if log:
            logarithmic(axes, "y")
        axes.legend(fontsize=7)
        return drawn()


def logarithmic(axes: Any, axis: str) -> None:
    """A logarithmic axis with plain labels."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set(**{f"{axis}scale": "log"})
    own = axes.xaxis if axis == "x" else axes.yaxis
    own.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    own.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    return short(value) if 1e-3 < value < 1e5 else f"1e{round(math.log10(value))}"
