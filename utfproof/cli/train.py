"""`utfproof train`: run one of the paper's experiments, or a changed one; resumable to the bit."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.generator import check_seed
from utfproof.ground.progress import Stage, stage
from utfproof.shapes import positive_integer

if TYPE_CHECKING:
    from utfproof.training.presets import Preset
    from utfproof.training.results import RunResult
    from utfproof.training.run import Setting, Tick

EPILOG = (
    "Examples: utfproof train parentheses/sparse/attention; "
    "utfproof train 2-hop/random/residual-norm --seeds 5 --device cuda; "
    "utfproof train 1-hop/sparse/attention --steps 200 --set m=600 -o runs/trial; "
    "utfproof train 2-hop/random/residual-norm --scaling ratio --seeds 5"
)
INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "train", command, epilog=EPILOG)


def command(
    preset: Annotated[str, typer.Argument(help="TASK/HOST/VARIANT, such as parentheses/sparse/attention.")],
    steps: Annotated[
        int | None, typer.Option("--steps", help="Steps; fewer than the preset's mark a brief run.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of initial values, data and random hosts.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", help="So many seeds, from --seed on.")] = 1,
    batch: Annotated[int | None, typer.Option("--batch", help="Sequences a step.")] = None,
    positions: Annotated[str | None, typer.Option("--positions", help="none (the theory's), or learned.")] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="Positions the loss averages over: answer, sequence.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE for any field of the preset (m, learning_rate, host, ...); repeatable."),
    ] = None,
    follow: Annotated[
        str,
        typer.Option(
            "--preset", help="Where the paper is silent: paper (this project's choices) or upstream (public code)."
        ),
    ] = "paper",
    scaling: Annotated[
        str | None,
        typer.Option("--scaling", help="Run every point of this panel of the scaling figure: m-bar, Hd, ratio or all."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="paths (path space), wide (m-wide), or auto: paths where it can.")
    ] = "auto",
    device: Annotated[str, typer.Option("--device", help="cpu, or a torch device such as cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, float64 or bfloat16.")] = "float32",
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads of torch; its own choice by default.")
    ] = None,
    results: Annotated[Path | None, typer.Option("--results", help="Folder of result files.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--resume", help="RUNDIR for log and checkpoints; a run in it goes on. runs/KEY by default."
        ),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option("--checkpoint-every", help="Steps between checkpoints.")] = 1000,
    log_every: Annotated[int, typer.Option("--log-every", help="Steps between lines of the log.")] = 100,
    eval_sequences: Annotated[
        int, typer.Option("--eval-sequences", help="Fresh sequences that the final accuracy is measured on.")
    ] = 10_000,
    tensorboard: Annotated[Path | None, typer.Option("--tensorboard", help="Folder for TensorBoard.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Run although its result file is there.")] = False,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Train E and U of a fixed host (or a whole transformer) on a task, and keep the result as a data file.

    After Ctrl-C or a kill the same command goes on from the last checkpoint. Exit 0: all steps done. 1: the loss is no
    finite number any more.
    """
    from utfproof.ground.arrays import require_device
    from utfproof.training.presets import preset as preset_named
    from utfproof.training.presets import scaling_presets, upstream_fields
    from utfproof.training.results import DEFAULT_FOLDER
    from utfproof.training.run import Interrupted, Setting

    positive_integer("--seeds", seeds)
    check_seed(seed)
    check_seed(seed + seeds - 1)
    require_device(device)
    for folder in (results, output):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise MalformedInput(f"{folder} is a file; name a folder")
    if threads is not None:
        use_threads(positive_integer("--threads", threads))
    given = {"steps": steps, "batch": batch, "positions": positions, "loss": loss}
    if follow not in ("paper", "upstream"):
        raise MalformedInput(f"--preset {follow!r} is unknown; choose paper or upstream")
    silent = upstream_fields(preset) if follow == "upstream" else {}
    overrides = {**silent, **name_values(changes or []), **{k: v for k, v in given.items() if v is not None}}
    if scaling is None:
        points = [preset_named(preset, **overrides)]
    elif output is not None:
        raise MalformedInput("--scaling runs many points: each needs a RUNDIR of its own; leave out -o")
    else:
        points = scaling_presets(scaling, preset, **overrides)
    setting = Setting(
        device,
        dtype,
        engine,
        output,
        DEFAULT_FOLDER if results is None else results,
        checkpoint_every=checkpoint_every,
        log_every=log_every,
        eval_sequences=eval_sequences,
        tensorboard=tensorboard,
        again=again,
        max_memory=options.memory_limit(max_memory),
    )
    try:
        found = [_run(point, list(range(seed, seed + seeds)), setting) for point in points]
    except Interrupted as stop:
        typer.echo(f"utfproof: {stop}", err=True)
        raise SystemExit(INTERRUPTED) from None
    documents = [{"preset": runs[0].preset, "runs": [_document(result) for result in runs]} for runs in found]
    if scaling is None:
        emit(documents[0], f"train {preset}", _rows(points[0], found[0]), as_json=as_json)
        return
    document = {"panel": scaling, "points": documents}
    emit(document, f"train {preset}, {scaling}", _point_rows(points, found), as_json=as_json)


def _run(point: Preset, seeds: list[int], setting: Setting) -> list[RunResult]:
    from utfproof.training.run import run

    with _live(f"{point.name}, m = {point.m}") as advance:
        return run(point, seeds, setting, advance)


def use_threads(count: int) -> None:
    """Threads of torch in this process."""
    import torch

    torch.set_num_threads(count)


def name_values(items: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON, or text where they are none. MalformedInput for anything else."""
    found: dict[str, Any] = {}
    for item in items:
        name, sign, text = item.partition("=")
        if not sign or not name.strip():
            raise MalformedInput(f"--set {item!r} is not NAME=VALUE")
        try:
            found[name.strip()] = json.loads(text)
        except ValueError:
            found[name.strip()] = text.strip()
    return found


def _document(result: RunResult) -> dict[str, Any]:
    names = ("seed", "steps", "complete", "device", "dtype", "engine", "accuracy", "accuracy_answers", "loss")
    more = ("eval_sequences", "seconds", "parameters", "note", "key")
    return {name: getattr(result, name) for name in (*names, *more)}


def _rows(preset: Preset, found: list[RunResult]) -> dict[str, str]:
    first = found[0]
    brief = "" if first.complete else ", a brief run"
    rows = {
        "run": f"{first.steps} steps{brief}, batch {preset.batch}, {first.engine} engine, {first.dtype} on {first.device}",
        "model": f"{preset.shape}, m = {preset.m}, {preset.host}, {preset.variant}; {first.parameters} trained numbers",
    }
    for result in found:
        answers = (
            "" if result.accuracy == result.accuracy_answers else f" (answers alone {result.accuracy_answers:.2%})"
        )
        rows[f"seed {result.seed}"] = (
            f"accuracy {result.accuracy:.2%}{answers}, loss {result.loss:.4f}, {result.seconds:.0f} s"
        )
    if len(found) > 1:
        values = [result.accuracy for result in found]
        rows["accuracy"] = f"{statistics.mean(values):.2%} ± {statistics.stdev(values):.2%} over {len(values)} seeds"
    return rows


def _point_rows(points: list[Preset], found: list[list[RunResult]]) -> dict[str, str]:
    """A line for each point of a panel."""
    rows = {}
    for point, runs in zip(points, found, strict=True):
        values = [result.accuracy for result in runs]
        spread = f" ± {statistics.stdev(values):.2%} over {len(values)} seeds" if len(values) > 1 else ""
        rows[f"d = {point.head_dim}, m = {point.m}"] = f"accuracy {statistics.mean(values):.2%}{spread}"
    return rows


@contextmanager
def _live(name: str) -> Iterator[Callable[[Tick], None]]:
    """A stage for each group of seeds: steps, loss, accuracy and rate of the last logged batch."""
    with ExitStack() as opened:
        stages: dict[tuple[int, ...], Stage] = {}

        def advance(tick: Tick) -> None:
            if tick.seeds not in stages:
                label = f"train {name}, seed{'s' * (len(tick.seeds) > 1)} {', '.join(map(str, tick.seeds))}"
                stages[tick.seeds] = opened.enter_context(stage(label, tick.steps, unit="steps"))
                stages[tick.seeds].resume(tick.done)
            note = f"loss {tick.loss:.4f} accuracy {tick.accuracy:.1%} {tick.rate:.1f} steps/s"
            stages[tick.seeds].reach(tick.done, note)

        yield advance
