"""The paper's tables beside what has been measured: cells that nobody has run stay empty.

Printed numbers come from `paper/tables.py`; measured ones and baselines are arguments: this module only arranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utfproof.paper import tables as paper
from utfproof.training.results import Cells, Measured, percent
from utfproof.training.task import Baseline

HOSTS = {"sparse": "sparse", "random": "random", "trained": "fully trained"}
"""Columns, in the order of the paper's triples, and their headings."""
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
REMARK = (
    "Accuracies in percent: the paper's / measured (mean ± standard deviation over the seeds); –: not run; "
    "*: brief, fewer steps than the paper's; †: stopped early, at 100 % three evaluations in a row."
)


@dataclass(frozen=True)
class Row:
    """One line: what the paper prints for each host, in percent, and what was measured (None: nothing)."""

    label: str
    task: str
    printed: tuple[float, ...]
    measured: tuple[Measured | None, ...]


@dataclass(frozen=True)
class TablePart:
    """A table, or a half of one."""

    label: str
    title: str
    rows: tuple[Row, ...]

    @property
    def circumstances(self) -> list[str]:
        """Lines that tell how the measured cells were run, and which cells each line is about."""
        places: dict[str, list[str]] = {}
        for row in self.rows:
            for host, measured in zip(HOSTS, row.measured, strict=True):
                if measured is not None:
                    places.setdefault(measured.circumstances, []).append(f"{row.label} {host}")
        return [f"{how}: {', '.join(where)}" for how, where in places.items()]


def tables(cells: Cells) -> list[TablePart]:
    """The paper's four tables, as seven parts, with the measured cells beside the printed ones."""
    found = []
    for label, title, common, value in PARTS:
        if common == "variant":
            lines = [(task, task, value, printed) for task, printed in _SUMMARIES[value].items()]
        else:
            lines = [(variant, value, variant, printed) for variant, printed in paper.ABLATIONS[value].items()]
        rows = tuple(
            Row(name, task, printed, tuple(cells.get((task, host, variant)) for host in HOSTS))
            for name, task, variant, printed in lines
        )
        found.append(TablePart(label, title, rows))
    return found


def coverage(cells: Cells) -> str:
    """How many of the paper's cells have been run in full, and how many end near or above the paper's figure."""
    full = {place: cell for place, cell in cells.items() if cell.complete}
    near = sum(
        100 * cell.mean >= dict(zip(HOSTS, paper.ABLATIONS[task][variant], strict=True))[host] - 5
        for (task, host, variant), cell in full.items()
    )
    every = sum(len(printed) for rows in paper.ABLATIONS.values() for printed in rows.values())
    return f"{len(full)} of the paper's {every} cells run in full; {near} within 5 points of its figure or above"


HEADER = ["", *HOSTS.values(), "best rule"]


def row_cells(row: Row, rules: Mapping[str, Sequence[Baseline]]) -> list[str]:
    """The cells of a row: label, printed / measured accuracy of each host, and the best simple rule."""
    best = max((rule.accuracy for rule in rules.get(row.task, ())), default=None)
    pairs = zip(row.printed, row.measured, strict=True)
    middle = [f"{printed:.1f} / {found.accuracy if found else '–'}" for printed, found in pairs]
    return [row.label, *middle, "" if best is None else percent(best)]


def compact(cells: Cells) -> list[list[str]]:
    """One line for each task and variant with a measured cell: the measured accuracies alone."""
    lines = []
    for task, variants in paper.ABLATIONS.items():
        for variant in variants:
            found = [cells.get((task, host, variant)) for host in HOSTS]
            if any(found):
                lines.append([f"{task}, {variant}", *(cell.accuracy if cell else "–" for cell in found)])
    return lines


def rule_line(task: str, rules: Sequence[Baseline]) -> str:
    """One line with all simple rules of a task."""
    return f"{task}: " + ", ".join(f"{rule.name} {percent(rule.accuracy)}" for rule in rules)


def document(parts: Iterable[TablePart], rules: Mapping[str, Sequence[Baseline]]) -> dict[str, Any]:
    """Tables for --json. Printed accuracies in percent as the paper has them, measured ones as fractions."""
    return {
        "tables": [
            {
                "label": part.label,
                "title": part.title,
                "rows": [
                    {
                        "label": row.label,
                        "task": row.task,
                        "cells": {
                            host: {"paper_percent": printed, "measured": measured and measured.document()}
                            for host, printed, measured in zip(HOSTS, row.printed, row.measured, strict=True)
                        },
                    }
                    for row in part.rows
                ],
            }
            for part in parts
        ],
        "baselines": {task: [asdict(rule) for rule in found] for task, found in rules.items()},
    }
