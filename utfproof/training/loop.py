"""One run of a preset from start to result: a folder with the log and the last checkpoint, and a result file at the end.

After a kill the same command goes on from the last checkpoint and ends with the same parameters and the same log, bit for
bit, as a run that was never stopped (on a CPU: same machine, same number of threads). So the log holds no times.

RUNDIR/log.jsonl        a header, then one line every `log_every` steps and one for each evaluation
RUNDIR/checkpoint.json  what runs, the step, the name of the tensors' file, the seconds spent
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from utfproof.errors import MalformedInput, Refuted
from utfproof.ground.files import make_folder, require_alone, require_folder
from utfproof.ground.forms import is_number
from utfproof.training import checkpoint
from utfproof.training.presets import Preset
from utfproof.training.results import (
    DEFAULT_FOLDER,
    RunResult,
    find_result,
    is_complete,
    preset_fields,
    run_key,
    write_result,
)
from utfproof.training.step import Trainer, learning_rate

DEFAULT_RUNS = Path("runs")
LOG = "log.jsonl"
CURVE_POINTS = 200
"""Points of a result's curve, at most; the log has them all."""
STOPPING = 3
"""A run stops after so many evaluations in a row at 100 %."""
FULL = 0.9995
"""Accuracy that prints as 100.0 %."""
STOPPING_SEQUENCES = 1024
"""Fresh sequences of each of these evaluations."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: `folder` holds a checkpoint of `step`."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}; the same command goes on from the checkpoint in {folder}")
        self.folder = folder
        self.step = step


class Diverged(Refuted):
    """The loss is NaN or infinite: no further checkpoint and no result is written. Exit code 1."""


class Tick(NamedTuple):
    """How far a run is: `done` of `steps`, loss and accuracy of the last logged batch, steps a second."""

    done: int
    steps: int
    loss: float
    accuracy: float
    rate: float
    seed: int


@dataclass(frozen=True)
class RunSetting:
    """How to run a preset. folder: RUNDIR, by default named after the run under `runs`. results None: no result file."""

    device: str = "cpu"
    dtype: str = "float32"
    engine: str = "auto"
    folder: Path | None = None
    results: Path | None = DEFAULT_FOLDER
    runs: Path = DEFAULT_RUNS
    checkpoint_every: int = 1000
    log_every: int = 100
    evaluate_every: int = 500
    eval_sequences: int = 10_000
    again: bool = False
    max_memory: int | None = None

    def check(self) -> None:
        """MalformedInput naming the field that is out of range."""
        for name in ("checkpoint_every", "log_every", "evaluate_every", "eval_sequences"):
            if getattr(self, name) < 1:
                raise MalformedInput(f"{name} must be a positive integer, got {getattr(self, name)}")


def run(
    preset: Preset, seeds: Sequence[int], setting: RunSetting, progress: Callable[[Tick], None] | None = None
) -> list[RunResult]:
    """Train the preset with these seeds, one after another, and return their results, written to the results' folder.

    Runs that the results' folder holds are not repeated (unless `again`). Raises Interrupted on Ctrl-C, after a checkpoint;
    MalformedInput where RUNDIR holds another run.
    """
    setting.check()
    if len(set(seeds)) < len(seeds) or not seeds:
        raise MalformedInput(f"seeds {list(seeds)}: expected at least one, and each once")
    finished = {seed: _finished(preset, seed, setting) for seed in seeds}
    missing = [seed for seed, result in finished.items() if result is None]
    if setting.folder is not None and len(missing) > 1:
        raise MalformedInput("several seeds need a RUNDIR each; leave out -o")
    return [result or _run_one(preset, seed, setting, progress) for seed, result in finished.items()]


def _finished(preset: Preset, seed: int, setting: RunSetting) -> RunResult | None:
    """The result of a run that was made before, in full or stopped at 100 %."""
    if setting.results is None or setting.again:
        return None
    return find_result(run_key(preset, seed), setting.results)


def _run_one(preset: Preset, seed: int, setting: RunSetting, progress: Callable[[Tick], None] | None) -> RunResult:
    trainer = Trainer(
        preset, seed, device=setting.device, dtype=setting.dtype, engine=setting.engine, max_memory=setting.max_memory
    )
    if setting.results is not None:
        require_folder(setting.results)  # rather now than after the steps
    folder = setting.folder or setting.runs / run_key(preset, seed)
    identity = {
        "preset": {name: value for name, value in preset_fields(preset).items() if name != "name"},
        "setting": preset.setting,
        "seed": seed,
        "device": setting.device,
        "dtype": setting.dtype,
        "engine": trainer.engine.name,
        "log_every": setting.log_every,
        "evaluate_every": setting.evaluate_every,
    }
    before = _resume(trainer, folder, identity)
    with _Log(folder / LOG, before["log_bytes"], identity) as log:
        clock = _Clock(before["seconds"])

        def save() -> None:
            document = {"identity": identity, "log_bytes": log.size(), "seconds": clock.spent()}
            checkpoint.save(folder, trainer.tensors(), trainer.done, document)

        _steps(trainer, setting, log, progress, save)
        try:
            result = _result(trainer, setting, log, clock)
        except KeyboardInterrupt:
            raise Interrupted(folder, trainer.done) from None
    if setting.results is not None:
        write_result(result, setting.results)
    return result


def _steps(
    trainer: Trainer,
    setting: RunSetting,
    log: _Log,
    progress: Callable[[Tick], None] | None,
    save: Callable[[], None],
) -> None:
    """All steps that are left, with their log and checkpoints. Raises Interrupted after Ctrl-C, Diverged."""
    preset, last = trainer.preset, (float("nan"), float("nan"))
    start, began = trainer.done, time.perf_counter()
    with _gentle_interrupts() as stop:
        while trainer.done < preset.steps and not stopped_early(log.points()):
            trainer.step()
            ended = trainer.done == preset.steps
            if trainer.done % setting.log_every == 0 or ended:
                _require_number(trainer)
                last = float(trainer.loss), float(trainer.accuracy)
                log.write(step=trainer.done, loss=last[0], accuracy=last[1],
                          learning_rate=learning_rate(preset, trainer.done - 1))  # fmt: skip
            if trainer.done % setting.evaluate_every == 0:
                log.write(step=trainer.done, evaluation=trainer.evaluate(STOPPING_SEQUENCES).accuracy)
            if progress is not None:
                rate = (trainer.done - start) / max(time.perf_counter() - began, 1e-9)
                progress(Tick(trainer.done, preset.steps, *last, rate, trainer.seed))
            ended = ended or stopped_early(log.points())
            if trainer.done % setting.checkpoint_every == 0 or ended or stop.is_set():
                _require_number(trainer)
                save()
            if stop.is_set():
                raise Interrupted(log.path.parent, trainer.done)


def stopped_early(points: Sequence[dict[str, Any]]) -> bool:
    """Whether the last evaluations of a log are all at 100 %."""
    found = [point["evaluation"] for point in points if "evaluation" in point][-STOPPING:]
    return len(found) == STOPPING and min(found) >= FULL


def _resume(trainer: Trainer, folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Restore the trainer from the folder's checkpoint; the length of the log and the seconds spent then."""
    found = checkpoint.load(folder)
    if found is None:
        return {"log_bytes": 0, "seconds": 0.0}
    document, tensors = found
    held: Any = document.get("identity")
    size, seconds = document.get("log_bytes"), document.get("seconds")
    fine = {
        "identity": isinstance(held, dict) and isinstance(held.get("preset"), dict),
        "log_bytes": type(size) is int and size >= 0,
        "seconds": is_number(seconds) and float(seconds or 0) >= 0,
    }
    for name, holds in fine.items():
        if not holds:
            raise MalformedInput(
                f"{folder / checkpoint.DOCUMENT} is damaged: {name} is missing or wrong; remove the folder"
            )
    differing = [name for name in identity if held.get(name) != identity[name]]
    if differing:
        detail = differing[0]
        if detail == "preset":
            old, new = held["preset"], identity["preset"]
            detail = ", ".join(sorted(name for name in {*old, *new} if old.get(name) != new.get(name)))
        raise MalformedInput(f"{folder} holds another run ({detail} differs); choose another -o, or remove it")
    trainer.restore({name: tensor.to(trainer.device) for name, tensor in tensors.items()})
    trainer.done = int(document["step"])
    return document


def _require_number(trainer: Trainer) -> None:
    """Diverged unless the loss is finite."""
    if not math.isfinite(float(trainer.loss)):
        raise Diverged(
            f"the loss of seed {trainer.seed} is not finite after step {trainer.done}: training diverged, no result is "
            "written; try a smaller learning rate (--set learning_rate=...)"
        )


class _Clock:
    """Seconds spent on a run, over all its parts."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.perf_counter()

    def spent(self) -> float:
        return self._before + time.perf_counter() - self._start


class _Log:
    """A JSONL file, cut back to its length at the checkpoint and appended to from there. It is locked, so that no second
    process continues the same run."""

    def __init__(self, path: Path, size: int, header: dict[str, Any]) -> None:
        self.path, self._size, self._header = path, size, header
        self._stream: IO[bytes] | None = None
        self._points: list[dict[str, Any]] = []

    def __enter__(self) -> _Log:
        folder = self.path.parent
        make_folder(folder, parents=True)
        try:
            with ExitStack() as opened:
                self._stream = opened.enter_context(open(self.path, "a+b"))
                busy = f"another process continues the run in {folder}; wait for it, or choose another -o"
                require_alone(self._stream, busy)
                self._cut_back()
                opened.pop_all()
        except OSError as error:
            raise MalformedInput(f"cannot write {self.path}: {error.strerror or error}") from error
        return self

    def _cut_back(self) -> None:
        assert self._stream is not None
        if os.fstat(self._stream.fileno()).st_size < self._size:
            raise MalformedInput(f"{self.path} is shorter than its checkpoint says; remove the folder to start anew")
        self._stream.truncate(self._size)
        self._points = self._read()  # a damaged line is noticed before the steps, not after them
        if self._size == 0:
            self._append(self._header)

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def _append(self, document: dict[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write((json.dumps(document, sort_keys=True) + "\n").encode())
        self._stream.flush()

    def write(self, **values: Any) -> None:
        """One line."""
        self._points.append(values)
        self._append(values)

    def size(self) -> int:
        """Bytes so far, on the disk."""
        assert self._stream is not None
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def points(self) -> list[dict[str, Any]]:
        """All lines but the header."""
        return self._points

    def _read(self) -> list[dict[str, Any]]:
        assert self._stream is not None
        self._stream.seek(0)
        try:
            found = [json.loads(line) for line in self._stream.read().splitlines()[1:]]
            for line in found:
                numbers = [line["evaluation"]] if "evaluation" in line else [line["loss"], line["accuracy"]]
                if type(line["step"]) is not int or not all(map(is_number, numbers)):
                    raise ValueError("a value of another kind")
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(f"{self.path} has a damaged line ({error}); remove the folder to start anew") from None
        return found


@contextmanager
def _gentle_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event: the current step is finished first. A second one stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _result(trainer: Trainer, setting: RunSetting, log: _Log, clock: _Clock) -> RunResult:
    import torch

    preset = trainer.preset
    scores = trainer.evaluate(setting.eval_sequences)
    _require_number(trainer)
    points = [point for point in log.points() if "loss" in point]
    stride = max(1, -(-len(points) // CURVE_POINTS))
    kept = [point for number, point in enumerate(points) if (len(points) - 1 - number) % stride == 0]
    early = trainer.done < preset.steps
    return RunResult(
        preset=preset_fields(preset, trainer.seed),
        setting=preset.setting,
        seed=trainer.seed,
        steps=trainer.done,
        complete=is_complete(preset_fields(preset), preset.setting, trainer.done, early),
        stopped_early=early,
        device=setting.device,
        dtype=setting.dtype,
        engine=trainer.engine.name,
        accuracy=scores.accuracy,
        accuracy_answers=scores.answers,
        loss=scores.loss,
        eval_sequences=setting.eval_sequences,
        seconds=clock.spent(),
        parameters=trainer.model.count(),
        curve=[(point["step"], point["loss"], point["accuracy"]) for point in kept],
        note=torch.cuda.get_device_name(trainer.device) if trainer.on_gpu else "",
    )
