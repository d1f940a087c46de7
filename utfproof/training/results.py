"""Finished runs as data files: one JSON for each run in results/training/, so that further runs add cells and repeat none.

A file's name is the run's key: task, host, variant, steps done and seed in words, and a hash of every field of the preset
that changes what is computed. Engine, device and dtype are recorded but not in the key: they change how, not what.
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
from utfproof.ground.files import json_files, make_folder, read_json, write_json
from utfproof.ground.forms import is_number
from utfproof.training.presets import PAPER_HOSTS, PAPER_VARIANTS, Preset, field_names, home_of
from utfproof.training.tables import SAME, Further, Measured

FORMAT = "utfproof-training-result"
VERSION = 1
DEFAULT_FOLDER = Path("results/training")
_NOT_IN_KEY = ("name", "seed", "steps")


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

    @cached_property
    def key(self) -> str:
        """The name under which the run is kept."""
        return run_key(self.preset, self.seed, self.steps)

    @cached_property
    def without_seed(self) -> str:
        """What runs that differ in their seed only have in common."""
        return run_key(self.preset, 0, self.steps)

    @cached_property
    def point(self) -> Preset:
        """The preset as run."""
        return Preset.of_fields(self.preset)


_UNLESS_CHANGED = {
    **{"length": 0, "grow_from": 0, "min_hops": -1, "max_hops": -1},
    **{"norm_place": "pre", "norm_gain": False, "max_grad_norm": 0.0},
}
"""Fields that are left out where they have this value: files and keys from before they existed stay what they are."""


def preset_fields(preset: Preset) -> dict[str, Any]:
    """A preset's fields as plain JSON values."""
    document = {
        name: value
        for name, value in asdict(preset).items()
        if name not in _UNLESS_CHANGED or value != _UNLESS_CHANGED[name]
    }
    document["betas"] = list(document["betas"])
    return document


def run_key(preset: Preset | Mapping[str, Any], seed: int, steps: int) -> str:
    """The key of a run: the same for the same computation, whatever the preset is called. `steps` are those done; the steps
    asked for count too, since the learning rate decays over them."""
    values = preset_fields(preset) if isinstance(preset, Preset) else dict(preset)
    view = Preset.of_fields(values)
    matters = {name: value for name, value in values.items() if name not in _NOT_IN_KEY}
    matters["schedule"] = values["steps"]
    text = json.dumps(matters, sort_keys=True, separators=(",", ":"))
    mark = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{view.task}-{view.host}-{view.variant}-m{view.m}-steps{steps}-seed{seed}-{mark}"


def is_complete(preset: Preset | Mapping[str, Any], steps: int) -> bool:
    """Whether so many steps are no brief run: all of the schedule, and as many as `home_of` says."""
    point = preset if isinstance(preset, Preset) else Preset.of_fields(preset)
    home = _home(point)
    return steps >= max(point.steps, home.steps if home else 0)


def _home(point: Preset) -> Preset | None:
    return home_of(point.task, point.host, point.residual, point.norm, point.mlp)


def result_path(result: RunResult, folder: Path | str) -> Path:
    """Where `write_result` puts a run."""
    return Path(folder) / f"{result.key}.json"


def write_result(result: RunResult, folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Write the run's file, all or nothing, and return its path. The folder is made where it is missing."""
    document = to_document(result)
    from_document(document, "the result to write")  # what cannot be read again is not written
    make_folder(folder, parents=True)
    path = result_path(result, folder)
    write_json(path, document)
    return path


def read_results(folder: Path | str = DEFAULT_FOLDER) -> list[RunResult]:
    """All runs of a folder in order of their keys; none where the folder does not exist.

    MalformedInput for a file that is no result, lacks a field, or does not bear its key as a name (a copy, which would count
    one run twice).
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise MalformedInput(f"{folder} is no folder of results")
    return [read_named(path) for path in json_files(folder)]


def read_named(path: Path) -> RunResult:
    """The file of a run that its name promises. MalformedInput as `read_result`, and for the file of another run."""
    result = read_result(path)
    if path.stem != result.key:
        raise MalformedInput(
            f"{path}: this run's file is called {result.key}.json; rename it, or remove it if it is a copy"
        )
    return result


def read_result(path: Path | str) -> RunResult:
    """One run's file. MalformedInput with the file's name and what is wrong."""
    return from_document(read_json(path), str(path))


def to_document(result: RunResult) -> dict[str, Any]:
    """The JSON of a run."""
    return {"format": FORMAT, "version": VERSION, **asdict(result), "curve": [list(point) for point in result.curve]}


_KINDS: dict[str, tuple[type, ...]] = {
    "preset": (dict,),
    "seed": (int,),
    "steps": (int,),
    "complete": (bool,),
    "device": (str,),
    "dtype": (str,),
    "engine": (str,),
    "accuracy": (int, float),
    "accuracy_answers": (int, float),
    "loss": (int, float),
    "eval_sequences": (int,),
    "seconds": (int, float),
    "parameters": (int,),
    "curve": (list,),
    "note": (str,),
}


def from_document(document: Any, source: str) -> RunResult:
    """The run of a JSON document; MalformedInput, naming `source`, unless every field is there, of its kind and possible."""
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise MalformedInput(f"{source} is no training result (format {FORMAT}, version {VERSION})")
    values = {name: value for name, value in document.items() if name not in ("format", "version")}
    names = {item.name for item in fields(RunResult)}
    if wrong := sorted(names ^ set(values)):
        state = "missing" if wrong[0] in names else "unknown"
        raise MalformedInput(f"{source}: field {wrong[0]} is {state}")
    for name, kinds in _KINDS.items():
        value = values[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise MalformedInput(f"{source}: {name} is {value!r}, a {type(value).__name__}")
        if isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value):
            raise MalformedInput(f"{source}: {name} is {str(value)[:40]}, which is beyond what numbers of a run can be")
    for name in ("accuracy", "accuracy_answers"):
        if not 0 <= values[name] <= 1:
            raise MalformedInput(f"{source}: {name} {values[name]} is no fraction from 0 to 1")
    for name, least in (("seed", 0), ("steps", 0), ("eval_sequences", 1), ("seconds", 0), ("parameters", 0)):
        if values[name] < least:
            raise MalformedInput(f"{source}: {name} {values[name]} is below {least}")
    values["curve"] = _curve(values["curve"], values["steps"], source)
    _check_preset(values["preset"], source)
    result = RunResult(**values)
    if result.steps > result.point.steps:
        raise MalformedInput(f"{source}: steps {result.steps} are more than the {result.point.steps} of the preset")
    if result.complete != is_complete(result.point, result.steps):
        raise MalformedInput(f"{source}: complete is {result.complete}, which {result.steps} steps contradict")
    return result


def _curve(points: list[Any], steps: int, source: str) -> list[tuple[int, float, float]]:
    for point in points:
        fine = isinstance(point, list) and len(point) == 3 and all(map(is_number, point))
        if not fine or point[0] not in range(steps + 1) or not 0 <= point[2] <= 1:
            raise MalformedInput(
                f"{source}: curve has {str(point)[:60]} where [step up to {steps}, loss, accuracy from 0 to 1] is expected"
            )
    return [(int(step), float(loss), float(accuracy)) for step, loss, accuracy in points]


def _check_preset(values: dict[str, Any], source: str) -> None:
    expected = field_names() - {name for name, usual in _UNLESS_CHANGED.items() if values.get(name, usual) == usual}
    if wrong := sorted(expected ^ set(values)):
        state = "missing" if wrong[0] in expected else "unknown"
        raise MalformedInput(f"{source}: field {wrong[0]} of the preset is {state}")
    if not isinstance(values["betas"], list):
        raise MalformedInput(f"{source}: betas {values['betas']!r} of the preset are no list")
    try:
        Preset.of_fields(values)
    except (MalformedInput, TypeError) as error:
        raise MalformedInput(f"{source}: {error}") from None


def with_seeds(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Runs that differ in their seed only, by their common key (without the seed), in order of the seeds."""
    groups: dict[str, list[RunResult]] = {}
    for result in sorted(results, key=lambda run: run.seed):
        groups.setdefault(result.without_seed, []).append(result)
    return groups


# --- what the tables show ------------------------------------------------------------------------------------


def measured(runs: list[RunResult]) -> Measured:
    """Runs that differ in their seed only, as the tables show them."""
    return Measured(
        accuracies=tuple(float(run.accuracy) for run in runs),
        answers=tuple(float(run.accuracy_answers) for run in runs),
        steps=runs[0].steps,
        complete=runs[0].complete,
        devices=tuple(sorted({run.device for run in runs})),
        dtypes=tuple(sorted({run.dtype for run in runs})),
        notes=tuple(sorted({run.note for run in runs} - {""})),
    )


def differences(run: RunResult) -> dict[str, Any]:
    """The fields in which a run differs from `home_of` its task, host and variant: field -> the run's value."""
    mine = run.point
    theirs = _home(mine)
    if theirs is None:
        return {"task": mine.task}
    return {n: v for n in field_names() - {"name", "seed"} if (v := getattr(mine, n)) != getattr(theirs, n)}


def is_cell(run: RunResult) -> bool:
    """Whether the run is of a cell of the paper's tables: it differs from it in seed and steps at most."""
    point = run.point
    return point.host in PAPER_HOSTS and point.variant in PAPER_VARIANTS and not set(differences(run)) - {"steps"}


def paper_cells(results: Iterable[RunResult]) -> tuple[dict[tuple[str, str, str], Measured], list[Further]]:
    """The cells of the paper's tables that have been run, and everything else.

    A cell takes runs that differ from its preset in seed and steps only: complete ones if there are any, else those with
    most steps, marked as brief. The others are listed by what makes them different.
    """
    cells: dict[tuple[str, str, str], Measured] = {}
    further = []
    groups = sorted(
        with_seeds(results).values(), key=lambda runs: (runs[0].complete, _at_schedule(runs[0]), runs[0].steps)
    )
    for runs in reversed(groups):
        point = runs[0].point
        other = differences(runs[0])
        cell = (point.task, point.host, PAPER_VARIANTS.get(point.variant, ""))
        if is_cell(runs[0]) and cell not in cells:
            cells[cell] = measured(runs)
        else:
            words = ", ".join(f"{name} {other[name]}" for name in sorted(other)) or SAME
            further.append(Further(point.name, words, measured(runs)))
    return cells, sorted(further, key=lambda item: (item.name, item.differences, item.measured.steps))


def _at_schedule(run: RunResult) -> bool:
    return "steps" not in differences(run)
