"""The scaling figure (fig:scaling_law): accuracy on 2-hop against m = m-bar, m = H d, and m from 0.5 to 2 times m-bar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from utfproof.ground.plots import picture_format, write_figure
from utfproof.shapes import paper_dimension
from utfproof.training.presets import PRESETS, quiet_shape
from utfproof.training.results import RunResult, column, differences, measured, with_seeds
from utfproof.training.tables import Measured

PANELS = {
    "m-bar": "m = m̄, head dimensions swept",
    "Hd": "m = H d, head dimensions swept",
    "ratio": "m from 0.5 to 2 times m̄ at the paper's shape",
}


@dataclass(frozen=True)
class ScalingPoint:
    """Runs that differ only in their seed, and their place in the figure."""

    panel: str
    host: str
    variant: str
    m: int
    head_dim: int
    measured: Measured


def scaling_points(results: Iterable[RunResult], setting: str = "paper") -> list[ScalingPoint]:
    """Every point of every panel in this setting, in order of m: runs that differ from a cell only in head_dim, m and
    steps."""
    points = []
    for runs in with_seeds(run for run in results if run.setting == setting):
        first, values = runs[0], runs[0].preset
        if values["task"] != "2-hop" or not column(first) or set(differences(first)) - {"head_dim", "m", "steps"}:
            continue
        home = PRESETS[setting][f"2-hop/{column(first)}/{first.variant}"]
        m_bar = paper_dimension(quiet_shape(home.heads, home.layers, values["head_dim"], home.vocabulary))
        belongs = {
            "m-bar": values["m"] == m_bar,
            "Hd": values["m"] == values["heads"] * values["head_dim"],
            "ratio": values["head_dim"] == home.head_dim and 0.5 <= values["m"] / m_bar <= 2,
        }
        found = measured(runs)
        points += [
            ScalingPoint(panel, column(first), first.variant, values["m"], values["head_dim"], found)
            for panel, holds in belongs.items()
            if holds
        ]
    return sorted(points, key=lambda point: (point.panel, point.host, point.variant, point.measured.steps, point.m))


def plot_scaling(results: Iterable[RunResult], path: Path | str, setting: str = "paper") -> list[ScalingPoint]:
    """Draw the three panels: a line for each host, variant and number of steps, ± 1 sd over seeds; brief runs dashed.
    Returns what was drawn. MalformedInput where `path` cannot be written."""
    picture_format(path)
    from utfproof.ground.plots import open_figure

    points = scaling_points(results, setting)
    figure = open_figure((14, 4.2))
    for axes, (panel, title) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("m")
        lines: dict[tuple[str, str, int, bool], list[ScalingPoint]] = {}
        for point in points:
            if point.panel == panel:
                found = point.measured
                lines.setdefault((point.host, point.variant, found.steps, found.complete), []).append(point)
        for (host, variant, steps, complete), line in lines.items():
            _draw_line(axes, line, f"{host}, {variant}, {steps} steps", "-" if complete else "--")
        if lines:
            axes.set_xscale("log", base=2)
            axes.legend(fontsize=7)
        else:
            axes.text(0.5, 0.5, "nothing measured", ha="center", transform=axes.transAxes)
    figure.supylabel("accuracy, %", fontsize=10)
    write_figure(figure, path)
    return points


def _draw_line(axes: Any, line: list[ScalingPoint], label: str, style: str) -> None:
    accuracies = [point.measured.accuracies for point in line]
    axes.errorbar(
        [point.m for point in line],
        [100 * fmean(values) for values in accuracies],
        yerr=[100 * stdev(values) if len(values) > 1 else 0 for values in accuracies],
        marker="o",
        linestyle=style,
        capsize=3,
        label=label,
    )
