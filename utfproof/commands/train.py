"""`utfproof train`: run one of the paper's experiments, or a changed one; resumable to the bit."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.options import MaxMemory, Seed, Threads, choice, rare
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput, Stopped
from utfproof.util.laws import check_seed
from utfproof.util.progress import stage

if TYPE_CHECKING:
    from utfproof.training.loop import Tick
    from utfproof.training.presets import Preset
    from utfproof.training.results import RunResult

SETTINGS = ("paper", "theory")


def train(
    *,
    preset: Annotated[str, typer.Argument(help="TASK/HOST/VARIANT, such as 1-hop/sparse/residual-norm.")],
    setting: Annotated[str, choice("paper: learned positions, sparse-front; theory: no positions", SETTINGS)] = "paper",
    steps: Annotated[int | None, typer.Option(help="Steps; fewer than the preset's mark a brief run.")] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="So many seeds, from --seed on.")] = 1,
    batch: Annotated[int | None, typer.Option(help="Sequences a step; the preset's by default.")] = None,
    m: Annotated[int | None, typer.Option(help="Embedding dimension of the host; the preset's by default.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="NAME=VALUE for any other field of the preset, such as host, learning_rate, warmup; repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    engine: Annotated[str, rare(help="paths (path space: no positions, LN, MLPs), wide (m-wide), or auto.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, or a torch device such as cuda.")] = "cpu",
    dtype: Annotated[
        str, rare(help="float32, float64, bfloat16, or tf32 on a GPU: float32 whose products take TF32.")
    ] = "float32",
    threads: Threads = None,
    results: Annotated[Path | None, typer.Option(help="Folder of result files.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--resume", help="RUNDIR for checkpoints; a run in it goes on. runs/KEY by default."),
    ] = None,
    checkpoint_every: Annotated[int, rare(help="Steps between checkpoints.")] = 1000,
    together: Annotated[int, rare(help="Seeds whose steps take turns, each on a stream of its own on a GPU.")] = 1,
    log_every: Annotated[int, rare(help="Steps between lines of the log.")] = 100,
    eval_sequences: Annotated[int, rare(help="Fresh sequences that the final accuracy is measured on.")] = 10000,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Train E and U of a fixed host on a task of the paper.

    A preset may also train a whole transformer. After Ctrl-C or a kill the same command goes on from the last checkpoint. Exit
    0: all steps done. 1: the loss became NaN or infinite.

    Examples: utfproof train 1-hop/sparse/residual-norm; utfproof train 2-hop/random/residual-norm --seeds 5 --device cuda;
    utfproof train 1-hop/sparse/attention --setting theory --steps 200 --set host=random -o runs/trial
    """
    from utfproof.training.loop import Interrupted, RunSetting, run
    from utfproof.training.model import check_dtype
    from utfproof.training.presets import preset as preset_named
    from utfproof.training.results import DEFAULT_FOLDER
    from utfproof.util.arrays import require_device

    overrides = name_values(changes or [])
    chosen = {"steps": steps, "batch": batch, "m": m}
    if both := [name for name, value in chosen.items() if value is not None and name in overrides]:
        raise MalformedInput(f"{both[0]} is named by --{both[0]} and by --set; choose one")
    overrides |= {name: value for name, value in chosen.items() if value is not None}
    point = preset_named(preset, setting, **overrides)  # a wrong name first, before what PyTorch needs
    check_seed(seed + seeds - 1)
    require_device(device)
    for folder in (results, output):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise MalformedInput(f"{folder} is a file; name a folder")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    check_dtype(dtype, device)
    every: dict[str, Any] = {
        "checkpoint_every": checkpoint_every,
        "log_every": log_every,
        "eval_sequences": eval_sequences,
        "together": together,
    }
    how = RunSetting(device, dtype, engine, output, results or DEFAULT_FOLDER, **every, max_memory=max_memory)
    reached: dict[int, int] = {}

    def advance(tick: Tick) -> None:
        reached[tick.seed] = tick.done
        note = f"loss {tick.loss:.4f} accuracy {tick.accuracy:.1%} {tick.rate:.1f} steps/s"
        doing.reach(sum(reached.values()), f"seed {tick.seed} {note}", total=tick.steps * seeds)

    try:
        with stage(f"train {point.name}, m = {point.m}", unit="steps") as doing:
            found = run(point, list(range(seed, seed + seeds)), how, advance)
    except Interrupted as stop:
        raise Stopped(str(stop)) from None
    document = {"preset": asdict(found[0].preset), "runs": [_document(result) for result in found]}
    return Outcome(document, f"train {preset}", _rows(point, found))


def name_values(items: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON, or text where they are none. MalformedInput for anything else, and for a seed."""
    found: dict[str, Any] = {}
    for item in items:
        name, sign, text = item.partition("=")
        if not sign or not name.strip():
            raise MalformedInput(f"--set {item!r} is not NAME=VALUE")
        if name.strip() == "seed":
            raise MalformedInput("--set changes the experiment, which every seed has in common; `train` has --seed")
        if name.strip() in found:
            raise MalformedInput(f"--set names {name.strip()} twice; choose one value")
        try:
            found[name.strip()] = json.loads(text)
        except ValueError:
            found[name.strip()] = text.strip()
    return found


def _document(result: RunResult) -> dict[str, Any]:
    more = {name: getattr(result, name) for name in ("key", "complete", "stopped_early")}
    said = {"setting": result.preset.setting, "preset": result.preset.name, "curve": len(result.curve)}
    return {**asdict(result), **more, **said}


def _rows(preset: Preset, found: list[RunResult]) -> dict[str, str]:
    first = found[0]
    brief = "" if first.complete else ", a brief run"
    brief += ", stopped early at 100 %" if first.stopped_early else ""
    rows = {
        "run": f"{first.steps} steps{brief}, batch {preset.batch}, {first.engine} engine, {first.dtype} on {first.device}",
        "setting": f"{preset.setting}, positions {preset.positions}",
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
