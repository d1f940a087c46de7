"""The scaling figure (fig:scaling_law): accuracy on 2-hop against m = m-bar, m = H d, and m from 0.5 to 2 times m-bar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.plots import picture_format, write_figure
from utfproof.shapes import paper_dimension
from utfproof.training.presets import PAPER_HOSTS, PRESETS, SCALING_TASK, Preset, field_names
from utfproof.training.results import RunResult, differences, measured, preset_of, with_seeds
from utfproof.training.tables import Measured
from utfproof.training.tasks import task_baselines

PANELS = {
    "m-bar": "m = m̄, head dimensions swept",
    "Hd": "m = H d, head dimensions swept",
    "ratio": "m from 0.5 to 2 times m̄ at the paper's shape",
}
FREE = {"head_dim", "m", "mlp_width", "steps"}
"""Fields that points of one line differ in."""


@dataclass(frozen=True)
class ScalingPoint:
    """Runs of one setting that differ in their seed only, and where they stand."""

    panel: str
    host: str
    variant: str
    m: int
    head_dim: int
    measured: Measured


def panels_of(point: Preset) -> list[str]:
    """The panels that a setting belongs to: none unless it is 2-hop at the paper's H and L with one of its three models."""
    home = PRESETS.get(f"{SCALING_TASK}/{point.host}/{point.variant}")
    if point.task != SCALING_TASK or point.host not in PAPER_HOSTS or home is None:
        return []
    m_bar = paper_dimension(point.shape)
    conditions = {
        "m-bar": point.m == m_bar,
        "Hd": point.m == point.heads * point.head_dim,
        "ratio": point.head_dim == home.head_dim and 0.5 <= point.m / m_bar <= 2,
    }
    return [panel for panel, holds in conditions.items() if holds]


def scaling_points(results: Iterable[RunResult], setting: dict[str, Any] | None = None) -> list[ScalingPoint]:
    """Every measured point of every panel, in order of m. Brief runs stand beside complete ones, marked.

    setting: the fields in which the experiment differs from the paper's (besides what is swept, and steps); runs of any other
    are left out. MalformedInput for fields that presets do not have, or that the figure sweeps.
    """
    wanted = dict(setting or {})
    if unknown := set(wanted) - (field_names() - {"name", "seed"} - FREE):
        raise MalformedInput(
            f"the figure is not chosen by {', '.join(sorted(unknown))}; name other fields of the preset"
        )
    points = []
    for runs in with_seeds(results).values():
        if {name: value for name, value in differences(runs[0]).items() if name not in FREE} != wanted:
            continue  # another loss, positions, rate: not this experiment
        preset = preset_of(runs[0])
        found = measured(runs)
        points += [
            ScalingPoint(panel, preset.host, preset.variant, preset.m, preset.head_dim, found)
            for panel in panels_of(preset)
        ]
    return sorted(points, key=lambda point: (point.panel, point.host, point.variant, point.measured.steps, point.m))


def plot_scaling(
    results: Iterable[RunResult], path: Path | str, setting: dict[str, Any] | None = None
) -> list[ScalingPoint]:
    """Draw the three panels: a line for each host, variant and number of steps, ± 1 sd over seeds; brief runs dashed and
    hollow; a panel without points says so. Returns what was drawn. MalformedInput where `path` cannot be written."""
    picture_format(path)
    from matplotlib.figure import Figure

    points = scaling_points(results, setting)
    length = setting.get("length", 0) if setting else 0
    rules = {rule.name: rule.accuracy for rule in task_baselines(SCALING_TASK, length=length)}
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    colours = {host: f"C{number}" for number, host in enumerate(PAPER_HOSTS)}
    marks = dict(zip(sorted({point.variant for point in points}), "osd^v", strict=False))
    for axes, (panel, title) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("m")
        axes.set_ylim(0, 103)
        for name in ("chance", "last two characters"):
            axes.axhline(100 * rules[name], color="grey", linewidth=0.8, linestyle=":")
            axes.annotate(name, (0.01, 100 * rules[name]), xycoords=("axes fraction", "data"), fontsize=7, color="grey")
        here = [point for point in points if point.panel == panel]
        if not here:
            axes.text(0.5, 0.5, "nothing measured", ha="center", va="center", transform=axes.transAxes)
            continue
        for host, variant, steps in dict.fromkeys((p.host, p.variant, p.measured.steps) for p in here):
            line = [p for p in here if (p.host, p.variant, p.measured.steps) == (host, variant, steps)]
            complete = line[0].measured.complete
            seeds = sorted({len(p.measured.accuracies) for p in line})
            counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]}-{seeds[-1]}"
            axes.errorbar(
                [p.m for p in line],
                [100 * p.measured.mean for p in line],
                yerr=[100 * (p.measured.deviation or 0) for p in line],
                color=colours[host],
                marker=marks[variant],
                markerfacecolor=colours[host] if complete else "white",
                linestyle="-" if complete else "--",
                capsize=3,
                label=f"{host}, {variant}, {steps} steps{'' if complete else ' (brief)'}, seeds: {counted}",
            )
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel("accuracy on 2-hop, percent")
    if setting:
        figure.suptitle(
            "changed: " + ", ".join(f"{name} {value}" for name, value in sorted(setting.items())), fontsize=9
        )
    write_figure(figure, path)
    return points
