"""One run of a preset from start to result: a folder with the log and the last checkpoint, and a result file at the end.

After a kill at any moment the same call goes on from the last checkpoint, and ends with the same parameters and the same log,
to the bit, as a run that was never stopped (on a CPU: same machine, same number of threads). Times are kept out of the log
for that.

RUNDIR/log.jsonl        a header, then one line every `log_every` steps
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
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from utfproof.errors import MalformedInput, Refuted, install
from utfproof.ground.files import make_folder, require_alone, require_folder
from utfproof.ground.forms import is_number
from utfproof.training import checkpoint
from utfproof.training.loop import Trainer, learning_rate, parallel_seeds, threads
from utfproof.training.presets import Preset
from utfproof.training.results import (
    DEFAULT_FOLDER,
    RunResult,
    is_complete,
    preset_fields,
    read_named,
    run_key,
    write_result,
)

DEFAULT_RUNS = Path("runs")
LOG = "log.jsonl"
CURVE_POINTS = 200
"""Points of a result's curve, at most; the log has them all."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: a checkpoint of `step` stands in `folder`."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}; the same command goes on from the checkpoint in {folder}")
        self.folder = folder
        self.step = step


class Diverged(Refuted):
    """The loss is no number any more: no further checkpoint and no result is written. Exit code 1."""


class Tick(NamedTuple):
    """How far a run is: `done` of `steps`, loss and accuracy of the last logged batch (mean over seeds), steps a second."""

    done: int
    steps: int
    loss: float
    accuracy: float
    rate: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class RunSetting:
    """How to run a preset; what is computed is the preset's and the seeds' business. folder: RUNDIR, by default named after the
    run under `runs`. results None: no result file."""

    device: str = "cpu"
    dtype: str = "float32"
    engine: str = "auto"
    folder: Path | None = None
    results: Path | None = DEFAULT_FOLDER
    runs: Path = DEFAULT_RUNS
    checkpoint_every: int = 1000
    log_every: int = 100
    eval_sequences: int = 10_000
    tensorboard: Path | None = None
    again: bool = False
    max_memory: int | None = None

    def check(self) -> None:
        """MalformedInput naming the field that cannot be."""
        for name in ("checkpoint_every", "log_every", "eval_sequences"):
            if getattr(self, name) < 1:
                raise MalformedInput(f"{name} must be a positive integer, got {getattr(self, name)}")


def run(
    preset: Preset, seeds: Sequence[int], setting: RunSetting, progress: Callable[[Tick], None] | None = None
) -> list[RunResult]:
    """Train the preset with these seeds and return a result for each, written to the results' folder.

    Runs whose result file is there already are not repeated (unless `again`). Raises Interrupted on Ctrl-C, after a checkpoint;
    MalformedInput where RUNDIR holds another run.
    """
    setting.check()
    if len(set(seeds)) < len(seeds) or not seeds:
        raise MalformedInput(f"seeds {list(seeds)}: at least one, and each once")
    wanted = {seed: _finished(preset, seed, setting) for seed in seeds}
    missing = [seed for seed, result in wanted.items() if result is None]
    together = parallel_seeds(preset, setting.device, setting.engine)
    if setting.folder is not None and len(missing) > 1 and not together:
        raise MalformedInput("several seeds run one after another here: each needs a RUNDIR of its own; leave out -o")
    groups = [missing] if together and missing else [[seed] for seed in missing]
    for group in groups:
        for result in _run_group(preset, group, setting, progress):
            wanted[result.seed] = result
    return [result for result in wanted.values() if result is not None]


def _finished(preset: Preset, seed: int, setting: RunSetting) -> RunResult | None:
    """The result file of a run that has been made before."""
    if setting.results is None or setting.again:
        return None
    path = setting.results / f"{run_key(preset, seed, preset.steps)}.json"
    return read_named(path) if path.exists() else None


def _folder(preset: Preset, seeds: Sequence[int], setting: RunSetting) -> Path:
    if setting.folder is not None:
        return setting.folder
    more = f"-and-{len(seeds) - 1}-more" if len(seeds) > 1 else ""
    return setting.runs / (run_key(preset, seeds[0], preset.steps) + more)


def _run_group(
    preset: Preset, seeds: Sequence[int], setting: RunSetting, progress: Callable[[Tick], None] | None
) -> list[RunResult]:
    trainer = Trainer(
        preset,
        seeds,
        device=setting.device,
        dtype=setting.dtype,
        engine=setting.engine,
        max_memory=setting.max_memory,
    )
    if setting.results is not None:
        require_folder(setting.results)  # rather now than after the steps
    folder = _folder(preset, seeds, setting)
    identity = {
        "preset": {name: value for name, value in preset_fields(preset).items() if name != "name"},
        "seeds": list(seeds),
        "device": setting.device,
        "dtype": setting.dtype,
        "engine": trainer.engine.name,
        "log_every": setting.log_every,
    }
    before = _resume(trainer, folder, identity)
    with _board(setting) as board, _Log(folder / LOG, before["log_bytes"], identity) as log:
        clock = _Clock(before["seconds"])
        save = partial(_save, trainer, folder, identity, log, clock)
        _steps(trainer, setting, log, board, progress, save)
        try:
            results = _results(trainer, preset, setting, log, clock)
        except KeyboardInterrupt:
            raise Interrupted(folder, trainer.done) from None
    if setting.results is not None:
        for result in results:
            write_result(result, setting.results)
    return results


def _steps(
    trainer: Trainer,
    setting: RunSetting,
    log: _Log,
    board: Any,
    progress: Callable[[Tick], None] | None,
    save: Callable[[], None],
) -> None:
    """All steps that are left, with their log and checkpoints. Raises Interrupted after Ctrl-C, Diverged."""
    preset, seeds = trainer.preset, trainer.model.seeds
    last = (float("nan"), float("nan"))
    start, began = trainer.done, time.perf_counter()
    with _gentle_interrupts() as stop:
        while trainer.done < preset.steps:
            trainer.step()
            ended = trainer.done == preset.steps
            if trainer.done % setting.log_every == 0 or ended:
                losses, accuracies = trainer.loss.tolist(), trainer.accuracy.tolist()
                _require_numbers(losses, trainer)
                log.line(trainer.done, losses, accuracies, learning_rate(preset, trainer.done - 1))
                last = sum(losses) / len(losses), sum(accuracies) / len(accuracies)
                if board is not None:
                    for name, value in zip(("loss", "accuracy"), last, strict=True):
                        board.add_scalar(name, value, trainer.done)
            if progress is not None:
                rate = (trainer.done - start) / max(time.perf_counter() - began, 1e-9)
                progress(Tick(trainer.done, preset.steps, *last, rate, tuple(seeds)))
            if trainer.done % setting.checkpoint_every == 0 or ended or stop.is_set():
                _require_numbers(trainer.loss.tolist(), trainer)
                save()
            if stop.is_set():
                raise Interrupted(log.path.parent, trainer.done)


def _resume(trainer: Trainer, folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Put the trainer where the checkpoint of the folder left it; how long the log was and how much time was spent then."""
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


def _require_numbers(losses: Sequence[float], trainer: Trainer) -> None:
    """Diverged unless every loss is finite."""
    wrong = [seed for seed, loss in zip(trainer.model.seeds, losses, strict=True) if not math.isfinite(loss)]
    if wrong:
        raise Diverged(
            f"the loss of seed {wrong[0]} is not finite after step {trainer.done}: training diverged, no result is "
            "written; try a smaller learning rate (--set learning_rate=...)"
        )


def _save(trainer: Trainer, folder: Path, identity: dict[str, Any], log: _Log, clock: _Clock) -> None:
    document = {"identity": identity, "log_bytes": log.size(), "seconds": clock.spent(), "threads": threads()}
    checkpoint.save(folder, trainer.tensors(), trainer.done, document)


class _Clock:
    """Seconds spent on a run, over all its parts."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.perf_counter()

    def spent(self) -> float:
        return self._before + time.perf_counter() - self._start


class _Log:
    """A JSONL file that is cut back to what a checkpoint knew of, and added to from there. Its folder is made where it is
    missing; it is locked, so that no second process goes on with the same run."""

    def __init__(self, path: Path, size: int, header: dict[str, Any]) -> None:
        self.path, self._size, self._header = path, size, header
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> _Log:
        folder = self.path.parent
        make_folder(folder, parents=True)
        try:
            with ExitStack() as opened:
                self._stream = opened.enter_context(open(self.path, "a+b"))
                busy = f"another process goes on with the run in {folder}; wait for it, or choose another -o"
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
        self.points()  # a damaged line is noticed before the steps, not after them
        if self._size == 0:
            self._write(self._header)

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def _write(self, document: dict[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write((json.dumps(document, sort_keys=True) + "\n").encode())
        self._stream.flush()

    def line(self, step: int, loss: list[float], accuracy: list[float], rate: float) -> None:
        """One line: the loss and accuracy of each seed in the batch of this step."""
        self._write({"step": step, "loss": loss, "accuracy": accuracy, "learning_rate": rate})

    def size(self) -> int:
        """Bytes so far, on the disk."""
        assert self._stream is not None
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def points(self) -> list[dict[str, Any]]:
        """All lines but the header."""
        assert self._stream is not None
        self._stream.seek(0)
        try:
            found = [json.loads(line) for line in self._stream.read().splitlines()[1:]]
            if not all(isinstance(line[name], kind) for line in found for name, kind in _LINE.items()):
                raise ValueError("a value of another kind")
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(f"{self.path} has a damaged line ({error}); remove the folder to start anew") from None
        return found


_LINE = {"step": int, "loss": list, "accuracy": list}
"""What every line of the log has, and of which kind."""


@contextmanager
def _gentle_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event: the step in hand is finished first. A second one stops at once."""
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


@contextmanager
def _board(setting: RunSetting) -> Iterator[Any]:
    """A TensorBoard writer, or None."""
    if setting.tensorboard is None:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MalformedInput(f"--tensorboard needs TensorBoard: {install('tensorboard')}") from error
    writer = SummaryWriter(str(setting.tensorboard))
    try:
        yield writer
    finally:
        writer.close()


def _note(trainer: Trainer) -> str:
    """What the seconds of a run are of, where they are not of one model on a CPU."""
    import torch

    seeds = len(trainer.model.seeds)
    said = [f"seconds of {seeds} seeds together"] if seeds > 1 else []
    if trainer.on_gpu:
        said.append(torch.cuda.get_device_name(trainer.device))
    return ", ".join(said)


def _results(trainer: Trainer, preset: Preset, setting: RunSetting, log: _Log, clock: _Clock) -> list[RunResult]:
    scores = trainer.evaluate(setting.eval_sequences)
    _require_numbers(scores.loss, trainer)
    seconds = clock.spent()
    points = log.points()
    stride = max(1, -(-len(points) // CURVE_POINTS))
    kept = [point for number, point in enumerate(points) if (len(points) - 1 - number) % stride == 0]
    note = _note(trainer)
    return [
        RunResult(
            preset={**preset_fields(preset), "seed": seed},
            seed=seed,
            steps=trainer.done,
            complete=is_complete(preset, trainer.done),
            device=setting.device,
            dtype=setting.dtype,
            engine=trainer.engine.name,
            accuracy=scores.accuracy[number],
            accuracy_answers=scores.answers[number],
            loss=scores.loss[number],
            eval_sequences=setting.eval_sequences,
            seconds=seconds,
            parameters=trainer.model.count(),
            curve=[(point["step"], point["loss"][number], point["accuracy"][number]) for point in kept],
            note=note,
        )
        for number, seed in enumerate(trainer.model.seeds)
    ]
