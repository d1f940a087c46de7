"""Train the paper's cells that have no result yet, in order of value, until the time is spent: `make gpu`.

    python scripts/gpu.py --hours 8 --jobs 4 [--device cuda] [--cells 2-hop,residual-norm] [--tf32] [--list]

First residual-norm and attention of every task, then residual, mlp-norm and mlp, one seed each; then seeds 1 to 4 of the
random hosts of parentheses, 1-hop and 2-hop. Each cell is one `utfproof train` in the setting `paper`; several run side by
side (NVIDIA's MPS helps: `nvidia-cuda-mps-control -d`). What the end interrupts leaves a checkpoint, and the same command
goes on from it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from utfproof.errors import MalformedInput, UtfproofError
from utfproof.training.model import TF32, check_dtype
from utfproof.training.presets import PAPER_HOSTS, PAPER_TASKS, preset
from utfproof.training.results import DEFAULT_FOLDER, read_results, run_key
from utfproof.util.arrays import require_device

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("residual-norm", "attention", "residual", "mlp-norm", "mlp")
SEVERAL_SEEDS = ("parentheses", "1-hop", "2-hop")
SEEDS = range(1, 5)


def cells() -> Iterator[tuple[str, int]]:
    """(preset, seed) in order of value."""
    for group in (VARIANTS[:2], *((variant,) for variant in VARIANTS[2:])):
        yield from (
            (f"{task}/{host}/{variant}", 0) for task in PAPER_TASKS for variant in group for host in PAPER_HOSTS
        )
    for variant in VARIANTS:
        yield from ((f"{task}/random/{variant}", seed) for task in SEVERAL_SEEDS for seed in SEEDS)


def waiting(folder: Path, only: Sequence[str], changes: dict[str, int]) -> list[tuple[str, int]]:
    """The cells without a result; only: those whose name holds one of these words."""
    chosen = [cell for cell in cells() if not only or any(word in cell[0] for word in only)]
    if not chosen:
        raise MalformedInput(f"--cells {','.join(only)} is in no cell's name, such as 1-hop/sparse/residual-norm")
    known = {result.key for result in read_results(folder)}
    return [(name, seed) for name, seed in chosen if run_key(preset(name, **changes), seed) not in known]


def train(name: str, seed: int, end: float, given: argparse.Namespace) -> bool:
    """Train one cell until `end` on the clock, and say how it went; whether it failed."""
    if (left := end - time.monotonic()) <= 0:
        return False
    words = [sys.executable, "-m", "utfproof", "train", name, "--seed", str(seed), "--device", given.device]
    words += ["--results", str(given.results), "--checkpoint-every", "2000", *(["--dtype", TF32] if given.tf32 else [])]
    words += ["--steps", "2", "--batch", "2", "--eval-sequences", "20"] if given.tiny else []
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        code = process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        code = process.wait()
    how = {0: "done", 130: "stopped, with a checkpoint"}.get(code, f"failed, exit {code}")
    print(f"{name}, seed {seed}: {how}", flush=True)
    return code not in (0, 130)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: all runs went well; 1: one failed."""

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="stop after so many hours (default 1)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu")
    parser.add_argument("--jobs", type=int, default=4, help="cells trained side by side (default 4)")
    parser.add_argument(
        "--cells", type=lambda text: text.split(","), default=[], help="only cells whose name holds one of these words"
    )
    parser.add_argument("--tf32", action="store_true", help="TF32 products; results say so")
    parser.add_argument(
        "--list", action="store_true", help="print the cells without a result in this order, train none"
    )
    parser.add_argument("--tiny", action="store_true", help="two steps of each cell: a dry run")
    parser.add_argument("--results", type=Path, default=ROOT / DEFAULT_FOLDER, help="folder of result files")
    given = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        left = waiting(given.results, given.cells, {"steps": 2, "batch": 2} if given.tiny else {})
        first = sum(seed == 0 for _, seed in left)
        print(f"{first} of the paper's 75 cells and {len(left) - first} further seeds without a full run", flush=True)
        if given.list:
            print("\n".join(f"{name}, seed {seed}" for name, seed in left))
            return 0
        require_device(given.device)
        check_dtype(TF32 if given.tf32 else "float32", given.device)
        if given.jobs < 1 or not 0 < given.hours <= 10_000:
            raise MalformedInput(f"--jobs {given.jobs}, --hours {given.hours:g}: expected positive numbers")
        end = time.monotonic() + 3600 * given.hours
        with ThreadPoolExecutor(given.jobs) as pool:  # a terminal's Ctrl-C reaches the children too
            return int(any([*pool.map(lambda cell: train(cell[0], cell[1], end, given), left)]))
    except UtfproofError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("gpu: stopped; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
