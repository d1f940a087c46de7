"""The paper's four tables beside what has been measured: cells that nobody has run stay empty.

Printed numbers come from `paper/tables.py`; measured ones and baselines are handed in, so that this module only arranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from utfproof.paper import tables as paper

HOSTS = {"sparse": "sparse", "random": "random", "trained": "fully trained"}
"""Columns, in the order of the paper's triples, and what they are called."""


def mean_and_spread(accuracies: Sequence[float]) -> str:
    """Such as 96.1 ± 0.4, in percent: the mean, and the sample standard deviation where there are several."""
    spread = f" ± {percent(stdev(accuracies))}" if len(accuracies) > 1 else ""
    return f"{percent(fmean(accuracies))}{spread}"


@dataclass(frozen=True)
class Measured:
    """Runs that differ in their seed only. Accuracies are fractions, one for each seed."""

    accuracies: tuple[float, ...]
    answers: tuple[float, ...]
    steps: int
    complete: bool
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return fmean(self.accuracies)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over the seeds; None for a single one."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def accuracy(self) -> str:
        """Such as 96.1 ± 0.4, in percent; * marks a brief run."""
        return f"{mean_and_spread(self.accuracies)}{'' if self.complete else ' *'}"

    @property
    def circumstances(self) -> str:
        """Seeds, steps where they are fewer than the paper's, device, and dtype where it is another than float32."""
        seeds = f"{len(self.accuracies)} seed{'s' if len(self.accuracies) > 1 else ''}"
        said = [seeds, *([] if self.complete else [f"{self.steps} steps"]), "/".join(self.devices)]
        return ", ".join([*said, *(name for name in self.dtypes if name != "float32")])


@dataclass(frozen=True)
class Rule:
    """A baseline as the tables show it; accuracies are fractions, `sequences` 0 where it is exact."""

    name: str
    rule: str
    accuracy: float
    answers: float
    standard_error: float
    sequences: int


@dataclass(frozen=True)
class Row:
    """One line: what the paper prints for each host, in percent, and what was measured (None: nothing). held: what fixed
    hosts of this row are known to hold at the paper's setting, an accuracy (None: no target was embedded)."""

    label: str
    task: str
    printed: tuple[float, ...]
    measured: tuple[Measured | None, ...]
    held: float | None = None


@dataclass(frozen=True)
class TablePart:
    """A table, or a half of one."""

    label: str
    title: str
    rows: tuple[Row, ...]

    @property
    def circumstances(self) -> str:
        """A line that tells how the measured cells were run: what most of them share, then those that differ."""
        places: dict[str, list[str]] = {}
        for row in self.rows:
            for name, measured in zip(HOSTS.values(), row.measured, strict=True):
                if measured is not None:
                    places.setdefault(measured.circumstances, []).append(f"{row.label} ({name})")
        if not places:
            return ""
        most = max(places, key=lambda said: len(places[said]))
        others = [f"{said}: {', '.join(where)}" for said, where in places.items() if said != most]
        return "; ".join([f"measured: {most}", *others])


SAME = "—"
"""In place of differences, where there are none: a host that is not the paper's, at the paper's setting."""


@dataclass(frozen=True)
class Further:
    """Runs that are no cell of the paper's tables, or are brief where others are not: what they are, in words."""

    name: str
    differences: str
    measured: Measured

    @property
    def said(self) -> str:
        """Accuracy, seeds, steps and device."""
        return f"{self.measured.accuracy}, {self.measured.circumstances}"


Cells = Mapping[tuple[str, str, str], Measured]
"""(task, host, variant as the paper's tables call it) -> measured."""

PARTS: tuple[tuple[str, str, str, str], ...] = (
    ("tab:summary_results_combined", "Table 1a: attention-only", "variant", "attention-only"),
    ("tab:summary_results_combined", "Table 1b: residual stream and layer normalisation", "variant", "residual and LN"),
    ("tab:ablation_results", "Table 2a: parentheses", "task", "parentheses"),
    ("tab:ablation_results", "Table 2b: 2-hop", "task", "2-hop"),
    ("tab:induction_head_1hop", "Table 3: 1-hop", "task", "1-hop"),
    ("tab:induction_head_3_4_hop", "Table 4a: 3-hop", "task", "3-hop"),
    ("tab:induction_head_3_4_hop", "Table 4b: 4-hop", "task", "4-hop"),
)
"""(the paper's label, title, what its rows have in common, and its value)."""

_SUMMARIES = {"attention-only": paper.SUMMARY_ATTENTION_ONLY, "residual and LN": paper.SUMMARY_RESIDUAL_LN}


def tables(cells: Cells, held: Mapping[tuple[str, str], float] | None = None) -> list[TablePart]:
    """The paper's four tables, as seven parts, with the measured cells beside the printed ones. held: by (task, variant)."""
    found = []
    for label, title, common, value in PARTS:
        if common == "variant":
            lines = [(task, task, value, printed) for task, printed in _SUMMARIES[value].items()]
        else:
            lines = [(variant, value, variant, printed) for variant, printed in paper.ABLATIONS[value].items()]
        rows = tuple(
            Row(
                name,
                task,
                printed,
                tuple(cells.get((task, host, variant)) for host in HOSTS),
                (held or {}).get((task, variant)),
            )
            for name, task, variant, printed in lines
        )
        found.append(TablePart(label, title, rows))
    return found


def coverage(cells: Cells) -> str:
    """How many of the paper's cells have been run with all its steps, in words."""
    complete = sum(cell.complete for cell in cells.values())
    every = sum(len(printed) for rows in paper.ABLATIONS.values() for printed in rows.values())
    said = f"{complete} of the paper's {every} cells have" if complete else f"None of the paper's {every} cells has"
    return f"{said} been run in full"


def percent(fraction: float) -> str:
    """A fraction in percent with one decimal place, as the paper prints."""
    return f"{100 * fraction:.1f}"


def baseline_line(task: str, rules: Sequence[Rule]) -> str:
    """One line with all baselines of a task."""
    drawn = [rule for rule in rules if rule.sequences]
    line = f"baselines, {task}: " + ", ".join(f"{rule.name} {percent(rule.accuracy)}" for rule in rules)
    if not drawn:
        return f"{line} (exact)"
    error = 100 * max(rule.standard_error for rule in drawn)
    least, most = (pick(rule.sequences for rule in drawn) for pick in (min, max))
    counted = f"{least} sequences" if least == most else f"{least} to {most} sequences"
    said = f"{counted}, standard error at most {error:.2f}"
    if len(drawn) == len(rules):
        return f"{line} ({said})"
    fewer = min(([rule for rule in rules if not rule.sequences], drawn), key=len)
    names = ", ".join(rule.name for rule in fewer)
    return f"{line} (exact but for {names}: {said})" if fewer is drawn else f"{line} ({said}; exact: {names})"


HEADER = [
    "",
    *(f"{name}, {side}" for name in HOSTS.values() for side in ("paper", "measured")),
    "optimum ≥",
    "best rule",
]


def row_cells(row: Row, rules: Mapping[str, Sequence[Rule]]) -> list[str]:
    """The cells of a row: label, printed and measured accuracy of each host, what hosts are known to hold, and what the best
    simple rule reaches."""
    best = max((rule.accuracy for rule in rules.get(row.task, ())), default=None)
    pairs = zip(row.printed, row.measured, strict=True)
    middle = [cell for printed, found in pairs for cell in (f"{printed:.1f}", found.accuracy if found else "")]
    return [row.label, *middle, *("" if known is None else percent(known) for known in (row.held, best))]


def by_difference(further: Sequence[Further]) -> dict[str, list[Further]]:
    """Further runs by what is different."""
    found: dict[str, list[Further]] = {}
    for item in further:
        found.setdefault(item.differences, []).append(item)
    return found


BRIEF = "* brief: fewer steps than the paper's"
REMARK = (
    "accuracies in percent; measured: mean ± standard deviation over the seeds; empty: nothing was measured; optimum ≥: what "
    "fixed hosts hold, shown by an embedded target or training at any schedule (the theory has neither normalisation nor MLPs)"
)


def markdown(parts: Iterable[TablePart], rules: Mapping[str, Sequence[Rule]], further: Sequence[Further]) -> str:
    """All tables as Markdown."""
    text = []
    for part in parts:
        text += [f"### {part.title}", "", _bar(HEADER), _bar(["---"] * len(HEADER))]
        text += [*(_bar(row_cells(row, rules)) for row in part.rows), ""]
        text += [f"{part.circumstances[0].upper()}{part.circumstances[1:]}.", ""] if part.circumstances else []
    text += [*(f"- {baseline_line(task, found)}" for task, found in rules.items()), ""]
    if further:
        text += ["### Further runs", "", _bar(["run", "differs in", "measured"]), _bar(["---"] * 3)]
        text += [_bar([f.name, f.differences, f.said]) for f in further]
        text += [""]
    return "\n".join([*text, f"{REMARK[0].upper()}{REMARK[1:]}. {BRIEF}.", ""])


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def document(
    parts: Iterable[TablePart], rules: Mapping[str, Sequence[Rule]], further: Sequence[Further]
) -> dict[str, Any]:
    """All tables for --json. Printed accuracies in percent as the paper has them, measured ones as fractions."""
    return {
        "tables": [
            {
                "label": part.label,
                "title": part.title,
                "rows": [
                    {
                        "label": row.label,
                        "task": row.task,
                        "held": row.held,
                        "cells": {
                            host: {"paper_percent": printed, "measured": measured_document(measured)}
                            for host, printed, measured in zip(HOSTS, row.printed, row.measured, strict=True)
                        },
                    }
                    for row in part.rows
                ],
            }
            for part in parts
        ],
        "baselines": {task: [asdict(rule) for rule in found] for task, found in rules.items()},
        "further": [
            {"name": f.name, "differences": f.differences, "measured": measured_document(f.measured)} for f in further
        ],
    }


def measured_document(measured: Measured | None) -> dict[str, Any] | None:
    """Measured accuracies for --json, None where nothing was."""
    if measured is None:
        return None
    return {
        **asdict(measured),
        "mean": measured.mean,
        "standard_deviation": measured.deviation,
        "mean_answers": fmean(measured.answers),
        "seeds": len(measured.accuracies),
    }
