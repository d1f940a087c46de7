"""One run of a preset from start to result: a folder with the last checkpoint, and a result file at the end.

After a kill the same command goes on from the last checkpoint and ends with the same parameters and the same log, bit for
bit, as a run that was never stopped (on a CPU: same machine, same number of threads). So the log holds no times.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from utfproof.errors import MalformedInput, Refuted
from utfproof.training import checkpoint
from utfproof.training.presets import Preset
from utfproof.training.results import DEFAULT_FOLDER, RunResult, read_results, run_key, write_result
from utfproof.training.step import Trainer
from utfproof.util.files import make_folder, require_alone

DEFAULT_RUNS = Path("runs")
LOCK = "lock"
"""Locked while a process continues the run."""
CURVE_POINTS = 200
"""Points of a result's curve, at most; the checkpoint has them all."""
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
    """How to run a preset. folder: RUNDIR, by default named after the run under `runs`. results None: no result file.
    together: so many seeds take their steps in turn, each on a stream of its own where there is a GPU."""

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
    together: int = 1
    max_memory: int | None = None

    def folder_of(self, preset: Preset, seed: int) -> Path:
        """RUNDIR of a run."""
        return self.folder or self.runs / run_key(preset, seed)

    def check(self) -> None:
        """MalformedInput naming the field that is out of range."""
        for name in ("checkpoint_every", "log_every", "evaluate_every", "eval_sequences", "together"):
            if getattr(self, name) < 1:
                raise MalformedInput(f"{name} must be a positive integer, got {getattr(self, name)}")


def run(
    preset: Preset, seeds: Sequence[int], setting: RunSetting, progress: Callable[[Tick], None] | None = None
) -> list[RunResult]:
    """Train the preset with these seeds and return their results, written to the results' folder.

    Runs that the results' folder holds are not repeated. Raises Interrupted on Ctrl-C, after a checkpoint of
    each; MalformedInput where RUNDIR holds another run.
    """
    setting.check()
    if len(set(seeds)) < len(seeds) or not seeds:
        raise MalformedInput(f"seeds {list(seeds)}: expected at least one, and each once")
    known = {} if setting.results is None else {run.key: run for run in read_results(setting.results)}
    finished = {seed: known[key] for seed in seeds if (key := run_key(preset, seed)) in known}
    missing = [seed for seed in seeds if seed not in finished]
    if setting.folder is not None and len(missing) > 1:
        raise MalformedInput("several seeds need a RUNDIR each; leave out -o")
    with _gentle_interrupts() as stop:
        for start in range(0, len(missing), setting.together):
            chosen = missing[start : start + setting.together]
            finished |= _in_turn(
                {seed: _run_one(preset, seed, setting, progress, stop) for seed in chosen}, setting.device
            )
    return [finished[seed] for seed in seeds]


def _in_turn(runs: dict[int, Generator[None, None, RunResult]], device: str) -> dict[int, RunResult]:
    """One step of each run in turn, until all have their result. On a GPU each run has a stream of its own, so that kernels of
    several runs fill the card. Raises Interrupted when each has its checkpoint."""
    import torch

    places: dict[int, Any] = {
        seed: torch.cuda.stream(torch.cuda.Stream(device)) if device.startswith("cuda") else nullcontext()
        for seed in runs
    }
    found: dict[int, RunResult] = {}
    interrupted: Interrupted | None = None
    while runs:
        for seed in list(runs):
            try:
                with places[seed]:
                    next(runs[seed])
            except (StopIteration, Interrupted) as end:
                del runs[seed]
                if isinstance(end, Interrupted):
                    interrupted = end
                else:
                    found[seed] = end.value
    if interrupted is not None:
        raise interrupted
    return found


def _run_one(
    preset: Preset, seed: int, setting: RunSetting, progress: Callable[[Tick], None] | None, stop: threading.Event
) -> Generator[None, None, RunResult]:
    """One run, which yields after every step."""
    trainer = Trainer(
        preset, seed, device=setting.device, dtype=setting.dtype, engine=setting.engine, max_memory=setting.max_memory
    )
    if setting.results is not None:
        make_folder(setting.results, parents=True)  # rather now than after the steps
    folder = setting.folder_of(preset, seed)
    identity = checkpoint.Identity(
        preset, seed, setting.device, setting.dtype, trainer.engine.name, setting.log_every, setting.evaluate_every
    )
    with _alone(folder):
        before, points = _resumed(trainer, folder, identity)
        began = time.perf_counter() - before

        def save() -> None:
            saved = checkpoint.Saved(identity, trainer.done, time.perf_counter() - began, points)
            checkpoint.save(folder, trainer.tensors(), saved)

        yield from _steps(trainer, setting, points, progress, save, stop)
        result = _result(trainer, setting, points, began)
        if stop.is_set():
            raise Interrupted(folder, trainer.done)
    if setting.results is not None:
        write_result(result, setting.results)
    return result


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing, with no second process in it."""
    make_folder(folder, parents=True)
    try:
        with open(folder / LOCK, "a+b") as stream:
            require_alone(stream, f"another process continues the run in {folder}; wait for it, or choose another -o")
            yield
    except OSError as error:
        raise MalformedInput(f"cannot write {folder}: {error.strerror or error}") from error


def _steps(
    trainer: Trainer,
    setting: RunSetting,
    points: list[dict[str, int | float]],
    progress: Callable[[Tick], None] | None,
    save: Callable[[], None],
    stop: threading.Event,
) -> Iterator[None]:
    """All steps that are left, with their log and checkpoints. Raises Interrupted after Ctrl-C, Diverged."""
    preset, last = trainer.preset, (float("nan"), float("nan"))
    start, began = trainer.done, time.perf_counter()
    while trainer.done < preset.steps and not stopped_early(points):
        trainer.step()
        ended = trainer.done == preset.steps
        if trainer.done % setting.log_every == 0 or ended:
            _require_number(trainer)
            last = float(trainer.loss), float(trainer.accuracy)
            points.append({"step": trainer.done, "loss": last[0], "accuracy": last[1]})
        if trainer.done % setting.evaluate_every == 0:
            points.append({"step": trainer.done, "evaluation": trainer.evaluate(STOPPING_SEQUENCES).accuracy})
        if progress is not None:
            rate = (trainer.done - start) / max(time.perf_counter() - began, 1e-9)
            progress(Tick(trainer.done, preset.steps, *last, rate, trainer.seed))
        ended = ended or stopped_early(points)
        if trainer.done % setting.checkpoint_every == 0 or ended or stop.is_set():
            _require_number(trainer)
            save()
        if stop.is_set():
            raise Interrupted(setting.folder_of(preset, trainer.seed), trainer.done)
        yield


def stopped_early(points: Sequence[dict[str, int | float]]) -> bool:
    """Whether the last evaluations of a log are all at 100 %."""
    found = [point["evaluation"] for point in points if "evaluation" in point][-STOPPING:]
    return len(found) == STOPPING and min(found) >= FULL


def _resumed(
    trainer: Trainer, folder: Path, identity: checkpoint.Identity
) -> tuple[float, list[dict[str, int | float]]]:
    """(seconds spent before, log so far), the trainer restored from the folder's checkpoint if it has one. MalformedInput for
    that of another run."""
    found = checkpoint.load(folder)
    if found is None:
        return 0.0, []
    saved, tensors = found
    if differing := saved.identity.differences(identity):
        raise MalformedInput(
            f"{folder} holds another run ({', '.join(differing)} differs); choose another -o, or remove it"
        )
    trainer.restore({name: tensor.to(trainer.device) for name, tensor in tensors.items()})
    trainer.done = saved.step
    return saved.seconds, saved.points


def _require_number(trainer: Trainer) -> None:
    """Diverged unless the loss is finite."""
    if not math.isfinite(float(trainer.loss)):
        raise Diverged(
            f"the loss of seed {trainer.seed} is not finite after step {trainer.done}: training diverged, no result is "
            "written; try a smaller learning rate (--set learning_rate=...)"
        )


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


def _result(trainer: Trainer, setting: RunSetting, log: list[dict[str, int | float]], began: float) -> RunResult:
    import torch

    scores = trainer.evaluate(setting.eval_sequences)
    _require_number(trainer)
    points = [point for point in log if "loss" in point]
    stride = max(1, -(-len(points) // CURVE_POINTS))
    kept = [point for number, point in enumerate(points) if (len(points) - 1 - number) % stride == 0]
    return RunResult(
        preset=trainer.preset,
        seed=trainer.seed,
        steps=trainer.done,
        device=setting.device,
        dtype=setting.dtype,
        engine=trainer.engine.name,
        accuracy=scores.accuracy,
        accuracy_answers=scores.answers,
        loss=scores.loss,
        eval_sequences=setting.eval_sequences,
        seconds=time.perf_counter() - began,
        parameters=trainer.model.count(),
        curve=[(int(point["step"]), point["loss"], point["accuracy"]) for point in kept],
        note=torch.cuda.get_device_name(trainer.device) if trainer.on_gpu else "",
    )
