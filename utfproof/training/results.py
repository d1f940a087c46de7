"""Finished runs as data files in results/training/, so that further runs repeat none.

`train` writes one JSON file for each run; a *.jsonl file holds many, one run a line. A run's own file replaces its line.
A JSON file is named after its run's key: setting, task, host, variant, m, steps, seed, and a hash of every field of the preset.

Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal

from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from utfproof.errors import MalformedInput
from utfproof.training.presets import PAPER_VARIANTS, STRICT, Positive, Preset, Whole, read
from utfproof.util.files import json_files, make_folder, read_bytes, write_json

DEFAULT_FOLDER = Path("results/training")
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=STRICT)
class RunResult:
    """One finished run. Accuracies are fractions over `eval_sequences` fresh sequences; `accuracy_answers` is the task's
    second one."""

    preset: Preset
    """As run; its `steps` are the length of the learning-rate schedule."""
    seed: Whole
    steps: Positive
    """Steps done: fewer than the schedule's where three evaluations in a row were at 100 %."""
    device: str
    dtype: str
    engine: str
    accuracy: Share
    accuracy_answers: Share
    loss: float
    eval_sequences: Positive
    seconds: Annotated[float, Field(ge=0)]
    parameters: Whole
    curve: list[Annotated[tuple[Whole, float, Share], Strict(False)]] = field(default_factory=list)
    """(step, loss, accuracy) along the way."""
    note: str = ""
    format: Literal["utfproof-training-result"] = "utfproof-training-result"

    def __post_init__(self) -> None:
        if self.steps > self.preset.steps:
            raise ValueError(f"steps {self.steps} are more than the {self.preset.steps} of the preset")

    @property
    def key(self) -> str:
        """The name under which the run is kept."""
        return run_key(self.preset, self.seed)

    @property
    def stopped_early(self) -> bool:
        """Whether it stopped at 100 %."""
        return self.steps < self.preset.steps

    @property
    def complete(self) -> bool:
        """Whether it is no brief run: its schedule is no shorter than that of its cell."""
        return self.preset.home is None or self.preset.steps >= self.preset.home.steps

    @property
    def changes(self) -> dict[str, Any]:
        """The fields in which the preset differs from its cell."""
        mine, home = asdict(self.preset), self.preset.home
        theirs = asdict(home) if home else {**mine, "task": ""}
        return {name: value for name, value in mine.items() if value != theirs[name]}


def run_key(preset: Preset, seed: int) -> str:
    """The key of a run: the same for the same computation."""
    mark = hashlib.sha256(json.dumps(asdict(preset), sort_keys=True).encode()).hexdigest()[:10]
    name = preset.name.replace("/", "-")
    return f"{preset.setting}-{name}-m{preset.m}-steps{preset.steps}-seed{seed}-{mark}"


def write_result(result: RunResult, folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Write the run's file, all or nothing, and return its path. The folder is made where it is missing."""
    make_folder(folder, parents=True)
    path = Path(folder) / f"{result.key}.json"
    write_json(path, asdict(result))
    return path


def read_results(folder: Path | str = DEFAULT_FOLDER) -> list[RunResult]:
    """All runs of a folder in order of their keys, each once; none where the folder does not exist.

    MalformedInput for a file or line that is no result.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise MalformedInput(f"{folder} is a file; expected a folder of results")
    found = {}
    for path in (*json_files(folder, ".jsonl"), *json_files(folder)):
        lines = read_bytes(path).splitlines() if path.suffix == ".jsonl" else [read_bytes(path)]
        for number, line in enumerate(lines, 1):
            run = read(RunResult, line, f"{path}, line {number}" if path.suffix == ".jsonl" else str(path))
            found[run.key] = run
    return [found[key] for key in sorted(found)]


def with_seeds(results: Iterable[RunResult]) -> list[list[RunResult]]:
    """Runs that differ only in their seed (and in when they stopped at 100 %), together, in order of the seeds."""
    groups: dict[Preset, list[RunResult]] = {}
    for result in sorted(results, key=lambda run: run.seed):
        groups.setdefault(result.preset, []).append(result)
    return list(groups.values())


# --- the paper's cells ---------------------------------------------------------------------------------------


def percent(fraction: float) -> str:
    """A fraction in percent with one decimal place, as the paper prints."""
    return f"{100 * fraction:.1f}"


def mean_and_spread(accuracies: list[float]) -> str:
    """Such as 96.1 ± 0.4, in percent: the mean, and the sample standard deviation where there are several."""
    spread = f" ± {percent(stdev(accuracies))}" if len(accuracies) > 1 else ""
    return f"{percent(fmean(accuracies))}{spread}"


class Measured:
    """Runs that differ only in their seed, as the tables show them."""

    def __init__(self, runs: list[RunResult]) -> None:
        self.runs = runs
        self.accuracies = [run.accuracy for run in runs]
        self.mean = fmean(self.accuracies)
        self.complete = all(run.complete for run in runs)

    @property
    def accuracy(self) -> str:
        """Such as 96.1 ± 0.4, in percent, with * for brief runs and † where one stopped at 100 %."""
        marks = " *" * (not self.complete) + " †" * any(run.stopped_early for run in self.runs)
        return f"{mean_and_spread(self.accuracies)}{marks}"

    @property
    def circumstances(self) -> str:
        """Seeds, steps, device, and dtype where it is not float32."""
        seeds = f"{len(self.runs)} seed{'s' if len(self.runs) > 1 else ''}"
        devices, dtypes = ({getattr(run, name) for run in self.runs} for name in ("device", "dtype"))
        steps = max(run.steps for run in self.runs)
        return ", ".join([seeds, f"{steps} steps", "/".join(sorted(devices)), *sorted(dtypes - {"float32"})])

    def document(self) -> dict[str, Any]:
        """For --json."""
        runs = [{**asdict(run), "preset": run.key, "curve": len(run.curve)} for run in self.runs]
        return {"mean": self.mean, "accuracy": self.accuracy, "complete": self.complete, "runs": runs}


Cells = Mapping[tuple[str, str, str], Measured]
"""(task, host, variant as the paper's tables call it) -> measured."""


def paper_cells(results: Iterable[RunResult], setting: str) -> Cells:
    """The cells of the paper's tables that have been run in this setting.

    A cell takes runs that differ from its preset in seed and steps only: complete ones if there are any, else those with
    most steps, marked as brief.
    """
    cells: dict[tuple[str, str, str], Measured] = {}
    groups = with_seeds(run for run in results if run.preset.setting == setting)

    def preferred(runs: list[RunResult]) -> tuple[Any, ...]:
        return runs[0].complete, "steps" not in runs[0].changes, len(runs), runs[0].steps

    for runs in sorted(groups, key=preferred, reverse=True):
        preset = runs[0].preset
        cell = (preset.task, preset.column, PAPER_VARIANTS.get(preset.variant, ""))
        if all(cell) and set(runs[0].changes) <= {"steps"}:
            cells.setdefault(cell, Measured(runs))
    return cells
