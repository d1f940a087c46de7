"""The scaling figure (fig:scaling_law): accuracy on 2-hop against m = m-bar, m = H d, and m from 0.5 to 2 times m-bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.plots import picture_format, write_figure
from utfproof.shapes import paper_dimension
from utfproof.training.presets import PAPER_HOSTS, PRESETS, SCALING_TASK, Preset, field_names, scaling_presets
from utfproof.training.results import RunResult, differences, measured, with_seeds
from utfproof.training.tables import Measured
from utfproof.training.tasks import task_baselines

PANELS = {
    "m-bar": "m = m̄, head dimensions swept",
    "Hd": "m = H d, head dimensions swept",
    "ratio": "m from 0.5 to 2 times m̄ at the paper's shape",
}
FREE = {"head_dim", "m", "mlp_width", "steps"}
"""Fields that points of one line differ in."""
SHOWN = {"task", "host", "residual", "norm", "mlp"}
"""Fields by which lines are told apart: all of them are drawn."""


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
    are left out. MalformedInput for fields that presets do not have or that the figure sweeps or shows, and impossible values.
    """
    wanted = dict(setting or {})
    if unknown := set(wanted) - (field_names() - {"name", "seed"} - FREE - SHOWN):
        raise MalformedInput(
            f"the figure is not chosen by {', '.join(sorted(unknown))}; name other fields of the preset"
        )
    usual, changed = (scaling_presets("ratio", **fields)[0] for fields in ({}, wanted))
    wanted = {name: value for name in wanted if (value := getattr(changed, name)) != getattr(usual, name)}
    points = []
    for runs in with_seeds(results).values():
        if {name: value for name, value in differences(runs[0]).items() if name not in FREE} != wanted:
            continue  # another loss, positions, rate: not this experiment
        preset = runs[0].point
        found = measured(runs)
        points += [
            ScalingPoint(panel, preset.host, preset.variant, preset.m, preset.head_dim, found)
            for panel in panels_of(preset)
        ]
    return sorted(points, key=lambda point: (point.panel, point.host, point.variant, point.measured.steps, point.m))


def lines(points: Iterable[ScalingPoint]) -> list[list[ScalingPoint]]:
    """Points that belong on one line: of one panel, host, variant and number of steps, in order of m."""
    found: dict[tuple[str, str, str, int], list[ScalingPoint]] = {}
    for point in points:
        found.setdefault((point.panel, point.host, point.variant, point.measured.steps), []).append(point)
    return [sorted(line, key=lambda point: point.m) for line in found.values()]


def plot_scaling(
    results: Iterable[RunResult], path: Path | str, setting: dict[str, Any] | None = None
) -> list[ScalingPoint]:
    """Draw the three panels: a line for each host, variant and number of steps, ± 1 sd over seeds; brief runs dashed and
    hollow; a panel without points says so. The axis spans what was measured; a simple rule is a line across, or is named at
    the edge that it lies beyond. Returns what was drawn. MalformedInput where `path` cannot be written."""
    picture_format(path)
    from utfproof.ground.plots import open_figure

    points = scaling_points(results, setting)
    rules = reached_by_rules(setting)
    figure = open_figure((14, 4.2))
    marks = dict(zip(sorted({point.variant for point in points}), "osd^v", strict=False))
    for axes, (panel, title) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("m")
        axes.set_ylim(*band(points))
        _draw_rules(axes, rules)
        here = [line for line in lines(points) if line[0].panel == panel]
        for line in here:
            _draw_line(axes, line, marks[line[0].variant])
        if not here:
            axes.text(0.5, 0.5, "nothing measured", ha="center", va="center", transform=axes.transAxes)
            continue
        axes.grid(alpha=0.3)
    named = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize="x-small")
    figure.axes[0].set_ylabel("accuracy on 2-hop, percent")
    if setting:
        figure.suptitle(
            "changed: " + ", ".join(f"{name} {value}" for name, value in sorted(setting.items())), fontsize=9
        )
    write_figure(figure, path)
    return points


def band(points: Sequence[ScalingPoint]) -> tuple[float, float]:
    """What the axis spans, in percent: the points with their deviations, and a margin."""
    ends = [100 * (p.measured.mean + sign * (p.measured.deviation or 0)) for p in points for sign in (-1, 1)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 100.0)
    margin = max(0.08 * (high - low), 0.5)
    return low - margin, high + margin


def reached_by_rules(setting: dict[str, Any] | None = None) -> dict[str, float]:
    """What simple rules that know the position reach at a setting of the figure, in percent, the best first."""
    rules = task_baselines(SCALING_TASK, 0, length=(setting or {}).get("length", 0))
    known = {rule.name: 100 * rule.accuracy for rule in rules if ", " not in rule.name}
    return dict(sorted(known.items(), key=lambda rule: -rule[1]))


def beyond(rules: dict[str, float], low: float, high: float) -> dict[str, str]:
    """The nearest rules above and below what an axis spans, in words."""
    above = [f"above: {name}, {reached:.1f}" for name, reached in rules.items() if reached > high][-1:]
    below = [f"below: {name}, {reached:.1f}" for name, reached in rules.items() if reached < low][:1]
    return {edge: said[0] for edge, said in (("top", above), ("bottom", below)) if said}


def across(rules: dict[str, float], low: float, high: float, apart: float) -> list[tuple[float, str]]:
    """The rules that an axis spans, and what is written at their lines: nothing where a line is closer to the last one named
    above it than the share `apart` of the axis."""
    found, free = [], high
    for name, reached in rules.items():
        if low <= reached <= high:
            found.append((reached, name if reached <= free else ""))
            free = reached - apart * (high - low) if reached <= free else free
    return found


def _draw_rules(axes: Any, rules: dict[str, float]) -> None:
    """What simple rules reach, in percent, in axes whose limits are set."""
    low, high = axes.get_ylim()
    for reached, name in across(rules, low, high, 1 / 30):
        axes.axhline(reached, color="grey", linewidth=0.8, linestyle=":")
        if name:
            axes.annotate(name, (0.01, reached), xycoords=("axes fraction", "data"), fontsize=6, color="grey")
    for edge, said in beyond(rules, low, high).items():
        height = {"top": 0.985, "bottom": 0.015}[edge]
        axes.text(0.01, height, said, transform=axes.transAxes, va=edge, fontsize=6, color="grey")


def _draw_line(axes: Any, line: list[ScalingPoint], mark: str) -> None:
    """One line of points, in the colour of its host."""
    first = line[0]
    colour = f"C{list(PAPER_HOSTS).index(first.host)}"
    complete, steps = first.measured.complete, first.measured.steps
    seeds = sorted({len(point.measured.accuracies) for point in line})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]}-{seeds[-1]}"
    axes.errorbar(
        [point.m for point in line],
        [100 * point.measured.mean for point in line],
        yerr=[100 * (point.measured.deviation or 0) for point in line],
        color=colour,
        marker=mark,
        markerfacecolor=colour if complete else "white",
        linestyle="-" if complete else "--",
        capsize=3,
        label=f"{first.host}, {first.variant}, {steps} steps{'' if complete else ' (brief)'}, seeds: {counted}",
    )
