"""One table of what fixed hosts hold beside what training from N(0, 0.02^2) finds in them. Numbers come from data files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utfproof.training.presets import variant_of
from utfproof.training.results import RunResult
from utfproof.training.tables import mean_and_spread, percent

HEADER = ["target", "host", "holds", "training finds"]
REMARK = (
    "holds: accuracy of an embedded trained target, in percent; training finds: the best schedule of at least as many steps "
    "from N(0, 0.02²) in the same host and setting."
)
_SAME = ("task", "heads", "layers", "head_dim", "residual", "norm", "mlp", "loss", "positions", "length", "min_hops")
"""Fields in which a run from scratch equals the target's."""


@dataclass(frozen=True)
class Line:
    """One target in one host. Accuracies are fractions; found: of each seed of the best schedule from scratch."""

    setting: str
    task: str
    variant: str
    width: int
    length: int
    trained: float
    host: str
    m: int
    embedded: float
    largest_difference: float
    found: tuple[float, ...]
    schedule: str


def optimum_lines(documents: Iterable[dict[str, Any]], runs: Sequence[RunResult]) -> list[Line]:
    """A line for each target and host."""
    return [_line(document, name, runs) for document in documents for name in document["hosts"]]


def _line(document: dict[str, Any], name: str, runs: Sequence[RunResult]) -> Line:
    target, host = document["preset"], document["hosts"][name]
    schedules: dict[str, list[float]] = {}
    for run in runs:
        theirs = run.preset
        same = all(theirs.get(field) == target.get(field) for field in _SAME) and theirs["init_std"] == 0.02
        if same and (theirs["host"], theirs["m"]) == (name, host["m"]) and run.steps >= target["steps"]:
            words = f"{run.steps} steps, rate {theirs['learning_rate']:g}"
            schedules.setdefault(words, []).append(run.accuracy)
    best = max(schedules, key=lambda words: sum(schedules[words]) / len(schedules[words]), default="")
    return Line(
        document.get("setting", "theory"),
        target["task"],
        variant_of(target),
        target["m"],
        target.get("length", 0),
        document["trained"]["accuracy"],
        name,
        host["m"],
        host["embedded"]["accuracy"],
        host["agreement"]["largest_difference"],
        tuple(schedules.get(best, ())),
        best,
    )


def cells(lines: Iterable[Line]) -> list[list[str]]:
    """The table's rows."""
    found = []
    for line in lines:
        length = f", length {line.length}" if line.length else ""
        scratch = f"{mean_and_spread(line.found)} ({line.schedule})" if line.found else "–"
        target = f"{line.setting}: {line.task}, {line.variant}, width {line.width}{length}"
        found.append([target, f"{line.host}, m = {line.m}", percent(line.embedded), scratch])
    return found


def document(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """For --json."""
    return [asdict(line) for line in lines]
