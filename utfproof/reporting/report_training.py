"""The report's part about training: the paper's numbers beside the measured ones, and the curves of the runs.

What is shown is handed in as plain data (`utfproof tables --json`, and the curves), because training stands above this part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utfproof.reporting.document import counted
from utfproof.reporting.report_charts import CHARACTER, MARKERS, Axis, Panel, colour, short, swatch
from utfproof.reporting.report_parts import Section, figure, folded, legend, panels, paragraph, table
from utfproof.reporting.svg import text


@dataclass(frozen=True)
class Curve:
    """One run. points: (step, loss, accuracy as a fraction)."""

    task: str
    host: str
    variant: str
    m: int
    seed: int
    steps: int
    complete: bool
    accuracy: float
    points: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Training:
    """hosts: the columns of the paper's tables and what they are called; tables: the document of `utfproof tables --json`,
    whose baselines may be of some tasks only."""

    hosts: Mapping[str, str]
    tables: dict[str, Any]
    curves: tuple[Curve, ...]


def training_section(found: Training | None) -> Section | None:
    """The section, None without runs."""
    if found is None or not found.curves:
        return None
    cells = sum(cell["measured"] is not None for row in _rows(found) for cell in row["cells"].values())
    brief = sum(not curve.complete for curve in found.curves)
    said = f"{counted(len(found.curves), 'training run')}"
    said += f", {brief} of them brief" if brief else ", none of them brief"
    said += f"; {cells} places in the paper's tables filled"
    body = (
        paragraph(
            "Accuracies in percent. Measured: mean ± standard deviation over the seeds; * marks a brief run, of fewer steps "
            "than the paper’s: it does not speak against the paper’s number. Empty: nothing was measured."
        )
        + "<h3>Training curves</h3>"
        + _curves(found)
        + "<h3>Beside the paper’s numbers</h3>"
        + _dots(found)
        + "".join(_table(part, found.hosts) for part in found.tables["tables"])
        + _further(found.tables["further"])
    )
    return Section("training", "Training", body, ((True, said),))


def _rows(found: Training) -> list[dict[str, Any]]:
    return [row for part in found.tables["tables"] for row in part["rows"]]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


# --- curves --------------------------------------------------------------------------------------------------


def _curves(found: Training) -> str:
    ran = {curve.host for curve in found.curves}
    hosts = list(dict.fromkeys([*found.hosts, *(curve.host for curve in found.curves)]))  # colours as below
    tasks: dict[tuple[str, str], list[Curve]] = {}
    for curve in found.curves:
        tasks.setdefault((curve.task, curve.variant), []).append(curve)
    said = [
        (swatch(colour(k), MARKERS[k % len(MARKERS)], dash=""), found.hosts.get(host, host))
        for k, host in enumerate(hosts)
        if host in ran
    ]
    said += [
        (swatch("currentColor", "", dash="5 3"), "a brief run"),
        (swatch("currentColor", "", dash="1 3"), "what simple rules reach"),
    ]
    drawn = []
    for (task, variant), members in tasks.items():
        rules = [(rule["name"], 100 * rule["accuracy"]) for rule in found.tables["baselines"].get(task, [])]
        last = max([1, *(curve.steps for curve in members)])
        panel = Panel(Axis(0, last, name="step", whole=True), Axis(0, 102, name="accuracy, %"))
        for _, level in rules:
            panel.line([(0, level), (last, level)], "currentColor", dash="1 3", width=0.9)
        for curve in members:
            tone = colour(hosts.index(curve.host))
            points = [(float(step), 100 * accuracy) for step, _, accuracy in curve.points if 0 <= step <= last]
            panel.line(points, tone, dash="" if curve.complete else "5 3", width=1.3)
            end = (
                f"{curve.host}, m = {curve.m}, seed {curve.seed}: {_percent(curve.accuracy)} after {curve.steps} steps"
            )
            shape = MARKERS[hosts.index(curve.host) % len(MARKERS)]
            panel.mark(curve.steps, 100 * curve.accuracy, shape, tone, hollow=not curve.complete, title=end)
        below = ""
        if rules:
            below = paragraph("Rules: " + ", ".join(f"{name} {short(level)}" for name, level in rules) + ".", "quiet")
        below += folded(counted(len(members), "run"), _runs(task, members))
        drawn.append(
            figure(f"{task}, {variant}", panel.drawing(f"Accuracy against steps: {task}, {variant}"), below=below)
        )
    return legend(said) + panels(drawn)


def _runs(task: str, members: Sequence[Curve]) -> str:
    rows = [(c.host, c.m, c.seed, f"{c.steps}{'' if c.complete else ' *'}", _percent(c.accuracy)) for c in members]
    return table(f"Runs of {task}", ("host", "m", "seed", "steps", "accuracy"), rows)


# --- beside the paper ----------------------------------------------------------------------------------------


def _dots(found: Training) -> str:
    said = [(swatch(colour(k), MARKERS[k]), f"{name}, measured") for k, name in enumerate(found.hosts.values())]
    said += [
        (swatch("currentColor", "circle", hollow=True), "measured, brief"),
        (swatch("currentColor", "bar"), "the paper's"),
    ]
    drawn = []
    for part in found.tables["tables"]:
        names = [row["label"] for row in part["rows"]]
        count = len(names)
        panel = _Rows(_Named(-0.6, count - 0.4), Axis(0, 103, name="accuracy, %"), height=230.0)
        panel.names = names
        for index, row in enumerate(part["rows"]):
            for k, (host, cell) in enumerate(row["cells"].items()):
                x, name = index + (k - 1) * 0.24, found.hosts.get(host, host)
                printed = cell["paper_percent"]
                panel.mark(
                    x, printed, "bar", colour(k), title=f"{row['label']}, {name}: the paper's {printed}", size=2.6
                )
                measured = cell["measured"]
                if measured is not None:
                    level, spread = 100 * measured["mean"], 100 * (measured["standard_deviation"] or 0)
                    if spread:
                        panel.line([(x, max(0, level - spread)), (x, min(103, level + spread))], colour(k), width=1)
                    title = f"{row['label']}, {name}: measured {_measured(measured)}"
                    panel.mark(
                        x, level, MARKERS[k % len(MARKERS)], colour(k), hollow=not measured["complete"], title=title
                    )
        drawn.append(figure(part["title"], panel.drawing(f"{part['title']}: the paper's accuracies and measured ones")))
    return legend(said) + panels(drawn)


class _Rows(Panel):
    """A panel whose horizontal axis has names in place of numbers."""

    names: Sequence[str] = ()

    def drawing(self, title: str) -> str:
        """The picture; names stand below their place, on two levels where they are long."""
        widest = max((len(name) for name in self.names), default=0) * CHARACTER
        crowded = widest > (self.width - 96) / max(len(self.names), 1)
        for index, name in enumerate(self.names):
            across, _ = self.at(index, self.y.low)
            down = self.height - 27 + (13 if crowded and index % 2 else 0)
            self.body.append(text(across, down, name))
        return super().drawing(title)


class _Named(Axis):
    """An axis without ticks."""

    def ticks(self) -> list[float]:
        """None."""
        return []


def _measured(measured: dict[str, Any]) -> str:
    spread = measured["standard_deviation"]
    return (
        f"{_percent(measured['mean'])}{'' if spread is None else f' ± {_percent(spread)}'}"
        f"{'' if measured['complete'] else ' *'}"
    )


def _circumstances(measured: dict[str, Any]) -> str:
    return f"{counted(measured['seeds'], 'seed')}, {measured['steps']} steps, {'/'.join(measured['devices'])}"


def _table(part: dict[str, Any], hosts: Mapping[str, str]) -> str:
    head = [""]
    for name in hosts.values():
        head += [f"{name}, paper", "measured"]
    rows = []
    for row in part["rows"]:
        line: list[object] = [row["label"]]
        for cell in row["cells"].values():
            measured = cell["measured"]
            said = "" if measured is None else f"{_measured(measured)} ({_circumstances(measured)})"
            line += [f"{cell['paper_percent']:.1f}", said]
        rows.append(line)
    return table(f"{part['title']} ({part['label']})", head, rows)


def _further(further: list[dict[str, Any]]) -> str:
    if not further:
        return ""
    rows = [
        (item["name"], item["differences"], f"{_measured(item['measured'])} ({_circumstances(item['measured'])})")
        for item in further
    ]
    return table("Further runs, which are no cell of the paper's tables", ("run", "differs in", "measured"), rows)
