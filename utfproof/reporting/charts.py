"""Charts of the training runs as inline SVG by matplotlib: every number comes from result files or the paper's tables.

Lines and text take the page's colour, so they read in light and in dark.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from statistics import fmean
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from utfproof.paper import tables as paper
from utfproof.reporting.document import plain
from utfproof.shapes import paper_dimension
from utfproof.training.results import paper_cells, with_seeds
from utfproof.training.tables import HOSTS
from utfproof.util.plots import open_figure

if TYPE_CHECKING:
    from utfproof.training.results import RunResult

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
TASKS = ("1-hop", "2-hop")


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


def lines(series: Mapping[str, Sequence[tuple[float, float]]], x: str) -> Markup:
    """One line per series of (x, accuracy in percent)."""
    with chart() as (axes, drawn):
        for k, (name, members) in enumerate(series.items()):
            style: dict[str, Any] = {"marker": MARKERS[k % len(MARKERS)], "color": SERIES[k % len(SERIES)]}
            axes.plot(*zip(*members, strict=True), label=plain(name), markersize=3, linewidth=1.2, **style)
        axes.set_xlabel(x)
        axes.set_ylabel("accuracy, %")
        axes.legend(fontsize=7)
        return drawn()


def variants(runs: Sequence[RunResult]) -> Markup:
    """Accuracy of each variant of 1-hop and 2-hop: a mark for the paper's figure, one for each setting's mean."""
    measured = {setting: paper_cells(runs, setting) for setting in ("paper", "theory")}
    cells = [(task, variant, k) for task in TASKS for variant in paper.ABLATIONS[task] for k in range(len(HOSTS))]
    with chart(7.0, 0.22 * len(cells)) as (axes, drawn):
        series: dict[str, list[tuple[float, int]]] = {"the paper": [], "setting paper": [], "setting theory": []}
        for row, (task, variant, k) in enumerate(cells):
            series["the paper"].append((paper.ABLATIONS[task][variant][k], row))
            for setting, found in measured.items():
                cell = found.get((task, list(HOSTS)[k], variant))
                if cell is not None and cell.complete:
                    series[f"setting {setting}"].append((100 * cell.mean, row))
        for (name, points), marker, colour in zip(series.items(), "|oD", SERIES, strict=False):
            xs, ys = zip(*points, strict=True) if points else ((), ())
            axes.plot(xs, ys, marker, color=colour, label=name, markersize=7 if marker == "|" else 4)
        axes.set_yticks(range(len(cells)), [f"{task}, {variant}, {list(HOSTS)[k]}" for task, variant, k in cells])
        axes.invert_yaxis()
        axes.set_xlabel("accuracy, %")
        axes.legend(fontsize=7)
        return drawn()


def curves(runs: Sequence[RunResult]) -> Markup:
    """Accuracy of training batches against steps, for full runs of the 1-hop cells with residual stream and normalisation."""
    found = {
        f"{HOSTS[made.column]}, {made.setting}, seed {run.seed}": [(step, 100 * share) for step, _, share in run.curve]
        for run in runs
        if ((made := run.preset).task, made.variant) == ("1-hop", "residual-norm")
        and run.complete and made.column and not run.changes
    }  # fmt: skip
    return lines(found, "step")


def scaling(runs: Sequence[RunResult]) -> Markup:
    """The paper's scaling figure (fig:scaling_law): mean accuracy of full 2-hop runs of random hosts against m."""
    series: dict[str, list[tuple[float, float]]] = {}
    for group in with_seeds(run for run in runs if run.preset.column == "random"):
        first, made = group[0], group[0].preset
        if (made.task, made.variant) != ("2-hop", "residual-norm") or set(first.changes) - {"head_dim", "m"}:
            continue
        swept = {
            "m = m̄, d swept": made.m == paper_dimension(made.shape),
            "m = H d, d swept": made.m == made.heads * made.head_dim,
            "m swept": "head_dim" not in first.changes,
        }
        for name in (name for name, holds in swept.items() if holds):
            point = (made.m, 100 * fmean(run.accuracy for run in group))
            series.setdefault(f"{name}, {made.setting}", []).append(point)
    return lines({name: sorted(members) for name, members in series.items()}, "m")
