"""Finished runs as data files in results/training/, so that further runs repeat none.

`train` writes one JSON file for each run; a *.jsonl file holds many, one run a line. A run's own file replaces its line.
A JSON file is named after its run's key: setting (unless theory), task, host, variant, m, steps, seed, and a hash of every
field of the preset that changes what is computed. Documents without a setting are of setting `theory`.

Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import json_files, make_folder, read_json, read_json_lines, write_json
from utfproof.ground.forms import ANY, NUMBER, WHOLE, Each, conform
from utfproof.training.presets import MLP_FACTOR, PAPER_HOSTS, PAPER_VARIANTS, SETTINGS, Preset, home_of, variant_of
from utfproof.training.tables import Cells, Measured

FORMAT = "utfproof-training-result"
VERSION = 1
DEFAULT_FOLDER = Path("results/training")
_USUAL = {
    **{"length": 0, "min_hops": -1, "max_hops": -1, "norm_gain": False, "max_grad_norm": 0.0},
    **{"grow_from": 0, "norm_place": "pre", "betas": [0.9, 0.999]},
}
"""Values of the fields that a file may leave out. The last three are of older files only: training has no other value."""


@dataclass(frozen=True)
class RunResult:
    """One run. Accuracies are fractions over `eval_sequences` fresh sequences; `accuracy_answers` is the task's second one."""

    preset: dict[str, Any]
    """The fields of the preset as run (`preset_fields`); its `steps` are the length of the learning-rate schedule."""
    seed: int
    steps: int
    """Steps done."""
    complete: bool
    """False: a brief run (`is_complete`)."""
    device: str
    dtype: str
    engine: str
    accuracy: float
    accuracy_answers: float
    loss: float
    eval_sequences: int
    seconds: float
    parameters: int
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """(step, loss, accuracy) along the way."""
    note: str = ""
    setting: str = "theory"
    stopped_early: bool = False
    """Whether it stopped because three evaluations in a row were at 100 %."""

    @cached_property
    def key(self) -> str:
        """The name under which the run is kept."""
        return run_key(self.preset, self.seed, self.setting)

    @property
    def variant(self) -> str:
        """attention, residual, ..."""
        return variant_of(self.preset)

    @property
    def home(self) -> Preset | None:
        """The cell that this run is a change of; None for a task without presets."""
        return home_of(self.setting, self.preset["task"], self.preset["host"], self.variant)


def preset_fields(preset: Preset, seed: int = 0) -> dict[str, Any]:
    """A preset's fields as plain JSON values, as files hold them."""
    values = {name: value for name, value in asdict(preset).items() if name != "setting" and value != _USUAL.get(name)}
    width = MLP_FACTOR * preset.m if preset.mlp else 0
    return {**values, "name": _name(values), "mlp_width": width, "betas": _USUAL["betas"], "seed": seed}


def _name(values: Mapping[str, Any]) -> str:
    return f"{values['task']}/{values['host']}/{variant_of(values)}"


def run_key(preset: Preset | Mapping[str, Any], seed: int, setting: str = "") -> str:
    """The key of a run: the same for the same computation. The steps are those of the schedule."""
    if isinstance(preset, Preset):
        return run_key(preset_fields(preset), seed, preset.setting)
    matters = {name: value for name, value in preset.items() if name not in ("name", "seed", "steps")}
    text = json.dumps({**matters, "schedule": preset["steps"]}, sort_keys=True, separators=(",", ":"))
    mark = hashlib.sha256(text.encode()).hexdigest()[:10]
    first = "" if setting == "theory" else f"{setting}-"
    name = _name(preset).replace("/", "-")
    return f"{first}{name}-m{preset['m']}-steps{preset['steps']}-seed{seed}-{mark}"


def is_complete(preset: Mapping[str, Any], setting: str, steps: int, early: bool) -> bool:
    """Whether so many steps are no brief run: all of the schedule, or stopped at 100 %, with a schedule no shorter than
    that of the preset's cell."""
    home = home_of(setting, preset["task"], preset["host"], variant_of(preset))
    return (early or steps >= preset["steps"]) and preset["steps"] >= (home.steps if home else 0)


def write_result(result: RunResult, folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Write the run's file, all or nothing, and return its path. The folder is made where it is missing."""
    document = to_document(result)
    from_document(document, "the result to write")  # what cannot be read again is not written
    make_folder(folder, parents=True)
    path = Path(folder) / f"{result.key}.json"
    write_json(path, document)
    return path


def read_results(folder: Path | str = DEFAULT_FOLDER) -> list[RunResult]:
    """All runs of a folder in order of their keys; none where the folder does not exist.

    MalformedInput for a file or line that is no result or lacks a field, and for a copy, which would count one run twice:
    a JSON file that is not named after its key, or a second line of the same run.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise MalformedInput(f"{folder} is a file; expected a folder of results")
    return distinct([(str(path), read_named(path)) for path in json_files(folder)], _lines(folder))


def find_result(key: str, folder: Path | str = DEFAULT_FOLDER) -> RunResult | None:
    """The run with this key in a folder; None where it has not been made."""
    path = Path(folder) / f"{key}.json"
    return read_named(path) if path.exists() else next((run for _, run in _lines(folder) if run.key == key), None)


def _lines(folder: Path | str) -> list[tuple[str, RunResult]]:
    """(source, run) of each line of a folder's *.jsonl files."""
    lines = (line for path in json_files(folder, ".jsonl") for line in read_json_lines(path))
    return [(source, from_document(document, source)) for source, document in lines]


def distinct(files: Iterable[tuple[str, RunResult]], lines: Iterable[tuple[str, RunResult]]) -> list[RunResult]:
    """The runs of (source, run) pairs in order of their keys; a run's own file replaces its line.

    MalformedInput where two files, or two lines, hold the same run.
    """
    found: dict[str, RunResult] = {}
    for group in (lines, files):
        seen: dict[str, str] = {}
        for source, run in group:
            if run.key in seen:
                raise MalformedInput(f"{seen[run.key]} and {source} are the same run; remove one of them")
            seen[run.key], found[run.key] = source, run
    return [found[key] for key in sorted(found)]


def read_named(path: Path) -> RunResult:
    """One run's file. MalformedInput with the file's name and what is wrong, also for a file named after another run."""
    result = from_document(read_json(path), str(path))
    if path.stem != result.key:
        raise MalformedInput(
            f"{path}: this run's file is called {result.key}.json; rename it, or remove it if it is a copy"
        )
    return result


def to_document(result: RunResult) -> dict[str, Any]:
    """The JSON of a run."""
    return {"format": FORMAT, "version": VERSION, **asdict(result), "curve": [list(point) for point in result.curve]}


_FORM = {
    **dict.fromkeys(("seed", "steps", "eval_sequences", "parameters"), WHOLE),
    **dict.fromkeys(("accuracy", "accuracy_answers", "loss", "seconds"), NUMBER),
    **dict.fromkeys(("device", "dtype", "engine", "note"), str),
    **{"preset": Each(ANY), "curve": [[NUMBER]], "complete": bool, "stopped_early": bool, "setting": tuple(SETTINGS)},
}


def from_document(document: Any, source: str) -> RunResult:
    """The run of a JSON document; MalformedInput, naming `source`, unless every field is there and possible."""
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise MalformedInput(f"{source} is no training result (format {FORMAT}, version {VERSION})")
    values: dict[str, Any] = {"setting": "theory", "stopped_early": False, **document}
    del values["format"], values["version"]
    if wrong := sorted(set(_FORM) ^ set(values)):
        raise MalformedInput(f"{source}: field {wrong[0]} is {'missing' if wrong[0] in _FORM else 'unknown'}")
    conform(values, _FORM, source)
    for name, least, most in (
        ("accuracy", 0, 1),
        ("accuracy_answers", 0, 1),
        ("seconds", 0, None),
        ("eval_sequences", 1, None),
    ):
        if values[name] < least or (most is not None and values[name] > most):
            raise MalformedInput(f"{source}: {name} {values[name]} is out of range")
    for point in values["curve"]:
        if len(point) != 3 or point[0] not in range(values["steps"] + 1) or not 0 <= point[2] <= 1:
            raise MalformedInput(f"{source}: curve has {str(point)[:60]}; expected [step, loss, accuracy from 0 to 1]")
    values["curve"] = [(int(step), float(loss), float(accuracy)) for step, loss, accuracy in values["curve"]]
    _check_preset(values["preset"], source)
    result, most = RunResult(**values), values["preset"]["steps"]
    if result.steps > most or (result.stopped_early and result.steps == most):
        raise MalformedInput(f"{source}: {result.steps} steps contradict the {most} of the preset")
    if result.complete != is_complete(result.preset, result.setting, result.steps, result.stopped_early):
        raise MalformedInput(f"{source}: complete is {result.complete}, which {result.steps} steps contradict")
    return result


_KEPT = {item.name for item in fields(Preset)} - {"setting"}


def _check_preset(values: dict[str, Any], source: str) -> None:
    """MalformedInput unless the values are those of a preset, or of one that older versions had."""
    known = _KEPT | {"mlp_width", "seed", *_USUAL}
    needed = known - set(_USUAL)
    if wrong := sorted((needed - set(values)) | (set(values) - known)):
        state = "missing" if wrong[0] in needed else "unknown"
        raise MalformedInput(f"{source}: field {wrong[0]} of the preset is {state}")
    try:
        Preset(setting="theory", **{name: value for name, value in values.items() if name in _KEPT})
    except (MalformedInput, TypeError) as error:
        raise MalformedInput(f"{source}: {error}") from None


def with_seeds(results: Iterable[RunResult]) -> list[list[RunResult]]:
    """Runs that differ only in their seed (and in when they stopped at 100 %), together, in order of the seeds."""
    groups: dict[str, list[RunResult]] = {}
    for result in sorted(results, key=lambda run: run.seed):
        steps = 0 if result.stopped_early else result.steps
        groups.setdefault(f"{run_key(result.preset, 0, result.setting)} {steps}", []).append(result)
    return list(groups.values())


# --- what the tables show ------------------------------------------------------------------------------------


def measured(runs: list[RunResult]) -> Measured:
    """Runs that differ only in their seed, as the tables show them."""
    return Measured(
        accuracies=tuple(float(run.accuracy) for run in runs),
        answers=tuple(float(run.accuracy_answers) for run in runs),
        steps=max(run.steps for run in runs),
        complete=all(run.complete for run in runs),
        stopped_early=any(run.stopped_early for run in runs),
        devices=tuple(sorted({run.device for run in runs})),
        dtypes=tuple(sorted({run.dtype for run in runs})),
    )


def differences(run: RunResult) -> dict[str, Any]:
    """The fields in which a run differs from its cell: field -> the run's value."""
    if run.home is None:
        return {"task": run.preset["task"]}
    theirs = {**_USUAL, **preset_fields(run.home)}
    mine = {**_USUAL, **run.preset, "mlp_width": MLP_FACTOR * run.preset["m"] * run.preset["mlp"]}
    theirs["mlp_width"] = MLP_FACTOR * mine["m"] * mine["mlp"]
    return {name: mine[name] for name in mine if name not in ("name", "seed") and mine[name] != theirs.get(name)}


def column(run: RunResult) -> str:
    """The column of the paper's tables that a run's host belongs to, "" for other hosts."""
    if run.preset["host"] == SETTINGS[run.setting]["sparse"]:
        return "sparse"
    return run.preset["host"] if run.preset["host"] in PAPER_HOSTS[1:] else ""


def paper_cells(results: Iterable[RunResult], setting: str = "theory") -> Cells:
    """The cells of the paper's tables that have been run in this setting.

    A cell takes runs that differ from its preset in seed and steps only: complete ones if there are any, else those with
    most steps, marked as brief.
    """
    cells: dict[tuple[str, str, str], Measured] = {}
    groups = with_seeds(run for run in results if run.setting == setting)

    def preferred(runs: list[RunResult]) -> tuple[Any, ...]:
        return runs[0].complete, "steps" not in differences(runs[0]), len(runs), runs[0].steps

    for runs in sorted(groups, key=preferred, reverse=True):
        first = runs[0]
        cell = (first.preset["task"], column(first), PAPER_VARIANTS.get(first.variant, ""))
        if all(cell) and set(differences(first)) <= {"steps"}:
            cells.setdefault(cell, measured(runs))
    return cells
