"""Everything that wants a GPU until the time is spent: `make gpu`, or `python scripts/gpu.py --hours H`.

Tests marked gpu, rank modulo p up to 30 000, the price of emulation, 10 000 targets at context 16 384, training steps, then
the cells of the paper's tables and the points of its scaling figure that have no full run yet, by value for time, several side
by side: with NVIDIA's MPS running (`nvidia-cuda-mps-control -d`) and --jobs 10 they share the device well. Each part writes its
data file under results/ (or --results), which the pages pick up. Parts whose file is there are not repeated; runs that the end
interrupts leave a checkpoint, and the same command goes on from it. TF32 is for cells, where --tf32 asks for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from utfproof.errors import MalformedInput, UtfproofError
from utfproof.ground.arrays import require_device
from utfproof.ground.files import make_folder, write_bytes
from utfproof.training.models import TF32, check_dtype
from utfproof.training.presets import (
    PAPER_HOSTS,
    PAPER_TASKS,
    PRESETS,
    SCALING_SEEDS,
    VARIANTS,
    Preset,
    scaling_presets,
)
from utfproof.training.results import DEFAULT_FOLDER, run_key

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "utfproof")
CHECKPOINT_SECONDS = 20
"""Time that is left to running cells for their checkpoints."""
SEEDS = {"random": 5}
"""As in the paper; 1 for the others."""
MOST_HOURS = 10_000
OTHERS = 10
"""Time that the first seed of a cell may take in place of further seeds, or of a point of the figure."""


@dataclass(frozen=True)
class Part:
    """A command that writes `output`, which shows that it has been run."""

    name: str
    arguments: tuple[str, ...]
    output: Path


class Started(NamedTuple):
    """A cell in training, and since when."""

    point: Preset
    began: float


def file_of(results: Path, name: str, device: str) -> Path:
    """Where a measurement is kept: one of any CUDA device under one name."""
    return results / f"{name}-{'cuda' if device.startswith('cuda') else device}.json"


def benches(results: Path, device: str, tiny: bool) -> Iterator[Part]:
    """The measurements, in order."""

    def bench(name: str, file: str, *arguments: str) -> Part:
        path = file_of(results, file, device)
        return Part(name, (*COMMAND, "bench", *arguments, "--device", device, "-o", str(path)), path)

    sizes, skipped = (
        ("64", "sympy,fflas-ffpack") if tiny else ("512,1024,2280,4560,9120,18240,30000", "sympy,flint,fflas-ffpack")
    )
    yield bench(
        "rank modulo p",
        "bench-exact",
        "exact",
        "--sizes",
        sizes,
        "--skip",
        skipped,
        "--repetitions",
        "1" if tiny else "3",
    )
    few = ("--repetitions", "1") if tiny else ("--repetitions", "5")
    yield bench(
        "emulation", "bench-emulate", "emulate", "--shapes", "1-hop" if tiny else "parentheses,1-hop,2-hop,4-hop", *few
    )
    for variant in ("attention",) if tiny else ("attention", "residual-norm"):
        tasks = ("--tasks", "1-hop", "--batch", "2") if tiny else ()
        file = "bench-train" if variant == "attention" else f"bench-train-{variant}"
        yield bench(f"training steps, {variant}", file, "train", "--variant", variant, *tasks, *few)


def many_targets(results: Path, device: str, tiny: bool) -> Part:
    """10 000 targets at context 16 384, in one fixed host."""
    path = file_of(results, "emulate-many-targets", device)
    amount = (
        ("--trials", "2", "--context", "16") if tiny else ("--trials", "10000", "--batch", "100", "--context", "16384")
    )  # bounds would take longer than the passes, on the processor
    return Part(
        "many targets at a long context",
        (*COMMAND, "emulate", "shared-key", "--shapes", "parentheses", "--attention", "causal", *amount,
         "--no-bounds", "--tolerance", "1e-8", "--device", device, "--json"),
        path,
    )  # fmt: skip


def measurements(results: Path, device: str, tiny: bool) -> Iterator[Part]:
    """All parts but tests and cells."""
    yield from benches(results, device, tiny)
    yield many_targets(results, device, tiny)


def cells(tiny: bool) -> list[tuple[Preset, int]]:
    """(preset, seeds) of every cell and point of the scaling figure, by value for time: one seed of each, and all seeds."""
    found = [
        (PRESETS[f"{task}/{host}/{variant}"], SEEDS.get(host, 1))
        for task in PAPER_TASKS
        for variant in VARIANTS
        for host in PAPER_HOSTS
    ]
    home = {point for point, _ in found}
    found += [(point, SCALING_SEEDS) for point in scaling_presets("all") if point not in home]
    if tiny:
        found = [(replace(PRESETS["1-hop/sparse/attention"], steps=2, batch=2), 1)]
    found += [(point, 1) for point, seeds in found if seeds > 1]
    return sorted(found, key=lambda pair: cost(*pair) * (1 if pair[0] in home and pair[1] == 1 else OTHERS))


def cost(point: Preset, seeds: int) -> float:
    """Steps times what a step multiplies, roughly: rows of the last layer's stream, or m-wide tokens with an MLP; whole
    transformers update H L m^2 numbers besides."""
    letters = point.heads + point.residual
    width = point.m if point.mlp else point.vocabulary * letters ** (point.layers - 1)
    updates = point.heads * point.layers * point.m**2 / 1e4 if point.host == "trained" else 0
    return point.steps * seeds * (point.batch * (width * (1 + point.norm) + 100 * point.mlp * width) + updates)


def missing(point: Preset, seeds: int, folder: Path) -> bool:
    """Whether a run of the preset has no result file."""
    return any(not (folder / f"{run_key(point, seed, point.steps)}.json").exists() for seed in range(seeds))


def train_command(point: Preset, seeds: int, folder: Path, more: Sequence[str]) -> tuple[str, ...]:
    """The command that trains one cell, with more options."""
    home = PRESETS[point.name]
    changed = [
        f"{name}={getattr(point, name)}" for name in ("head_dim", "m") if getattr(point, name) != getattr(home, name)
    ]
    sets = [word for change in changed for word in ("--set", change)]
    return (*COMMAND, "train", point.name, *sets, "--seeds", str(seeds), "--results", str(folder),
            "--checkpoint-every", "2000", *more)  # fmt: skip


def how_to_train(device: str, tiny: bool, tf32: bool) -> Iterator[str]:
    """Options of every cell."""
    yield from ("--device", device)
    if tiny:
        yield from ("--steps", "2", "--batch", "2", "--eval-sequences", "20")
    if tf32:
        yield from ("--dtype", TF32)


def run_cells(jobs: int, end: float, folder: Path, tiny: bool, only: Sequence[str], more: Sequence[str]) -> int:
    """Train what is missing, `jobs` at once, until `end`; the number that failed."""
    waiting = [
        pair for pair in cells(tiny) if missing(*pair, folder) and (not only or any(o in pair[0].name for o in only))
    ]
    running: dict[subprocess.Popen[bytes], Started] = {}
    failed = 0
    print(f"cells: {len(waiting)} without a full run", flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        while (waiting or running) and time.monotonic() < end:
            while len(running) < jobs and (pair := _next(waiting, running)) is not None:
                waiting.remove(pair)
                # a group of its own: a terminal's Ctrl-C reaches this process alone, which stops each child once
                child = subprocess.Popen(
                    train_command(*pair, folder, more),
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    process_group=0,
                )
                running[child] = Started(pair[0], time.monotonic())
            failed += _collect(running)
            time.sleep(0.2)
    finally:
        _stop(running)
    return failed


def _next(
    waiting: list[tuple[Preset, int]], running: dict[subprocess.Popen[bytes], Started]
) -> tuple[Preset, int] | None:
    """The first of those that wait but for further seeds of one that is running, whose folder would be in use."""
    busy = {started.point for started in running.values()}
    return next((pair for pair in waiting if pair[0] not in busy), None)


def _stop(running: dict[subprocess.Popen[bytes], Started]) -> None:
    """Have what is running leave a checkpoint and end; kill what does not, or at a second Ctrl-C."""
    try:
        for child in running:
            child.send_signal(signal.SIGINT)
        limit = time.monotonic() + 3 * CHECKPOINT_SECONDS  # of a busy machine; then they hang
        while running and time.monotonic() < limit:
            _collect(running)
            time.sleep(0.2)
    finally:
        for child in running:
            child.kill()


def _collect(running: dict[subprocess.Popen[bytes], Started]) -> int:
    failed = 0
    for child in [child for child in running if child.poll() is not None]:
        point, began = running.pop(child)
        name = f"{point.name}, d = {point.head_dim}, m = {point.m}"
        how = {0: "done", 130: "stopped, with a checkpoint"}.get(child.returncode, f"failed, exit {child.returncode}")
        print(f"{name}: {how} after {time.monotonic() - began:.0f} s", flush=True)
        failed += child.returncode not in (0, 130)
    return failed


def run_part(part: Part, end: float) -> bool:
    """Run a measurement unless its file is there, until `end`. Whether it went well."""
    if part.output.exists():
        print(f"{part.name}: {part.output} is there", flush=True)
        return True
    began = time.monotonic()
    own_output = "-o" not in part.arguments
    try:
        limit = max(1.0, end - began)
        done = subprocess.run(part.arguments, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{part.name}: not done after {limit:.0f} s", flush=True)
        return True
    if own_output and done.returncode == 0:
        write_bytes(part.output, done.stdout)
    print(f"{part.name}: exit {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


PARTS = ("tests", "bench", "targets", "cells")


def check(given: argparse.Namespace) -> None:
    """MalformedInput for what cannot be, before anything is run."""
    require_device(given.device)
    check_dtype(TF32 if given.tf32 else "float32", given.device)
    if not 0 < given.hours <= MOST_HOURS:
        raise MalformedInput(f"--hours {given.hours:g} is not above 0 and at most {MOST_HOURS}")
    if given.jobs < 1:
        raise MalformedInput(f"--jobs must be a positive integer, got {given.jobs}")
    if unknown := [name for name in given.only or [""] if name not in PARTS]:
        raise MalformedInput(f"--only {unknown[0]!r} is unknown; choose {', '.join(PARTS)}")
    known = [point.name for point, _ in cells(given.tiny)]
    if strange := [part for part in given.cells if not any(part in name for name in known)]:
        raise MalformedInput(f"--cells {strange[0]!r} is in no cell's name, such as {known[0]}")
    make_folder(given.results, parents=True)


def parts(given: argparse.Namespace) -> bool:
    """Run what --only names. Whether all of it went well."""
    end = time.monotonic() + 3600 * given.hours - CHECKPOINT_SECONDS
    well = True
    if "tests" in given.only and given.device != "cpu":
        well &= subprocess.run((sys.executable, "-m", "pytest", "-m", "gpu"), cwd=ROOT, check=False).returncode == 0
    if "bench" in given.only:
        for part in benches(given.results, given.device, given.tiny):
            well &= run_part(part, end)
    if "targets" in given.only:
        well &= run_part(many_targets(given.results, given.device, given.tiny), end)
    if "cells" in given.only:
        folder = given.results / DEFAULT_FOLDER.name
        more = tuple(how_to_train(given.device, given.tiny, given.tf32))
        well &= run_cells(given.jobs, end, folder, given.tiny, given.cells, more) == 0
    return well


def listed(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def main() -> int:
    """The parts that --only names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="stop after so many hours (default 1)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a dry run with --tiny")
    parser.add_argument("--tiny", action="store_true", help="the smallest size of everything: a dry run")
    parser.add_argument("--jobs", type=int, default=4, help="cells trained side by side (default 4)")
    parser.add_argument("--only", type=listed, default=list(PARTS), help="of these parts, comma-separated")
    parser.add_argument(
        "--cells", type=listed, default=[], help="only cells whose name holds one of these, comma-separated"
    )
    parser.add_argument("--tf32", action="store_true", help="train cells with TF32 products; results say so")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of data files")
    given = parser.parse_args()
    given.results = given.results.absolute()  # measurements run elsewhere
    # a shell's background jobs, and their children, ignore an interrupt; nohup is left as it is
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGINT or signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        check(given)
        return 0 if parts(given) else 1
    except UtfproofError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("gpu: stopped; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
