"""What the rank of a matrix beyond memory takes: python scripts/measure_rank.py [--sizes 3000,10000] [-o FILE]

A random matrix [M, M] of residues, some columns of which depend on others, lies in a file. `utfproof rank` may hold a tenth of
it (in float64) beside the interpreter, and must name the columns that were made so. Up to --compare it is first killed with
SIGKILL halfway and run again, with the same answer, which the engine in memory must give too. A product of squares of M/10
columns, by the same processor in the same run, is the yardstick.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

INTERPRETER = 32_000_000
"""Bytes that Python, NumPy and FLINT hold before anything is computed, about."""
PRIME = 2097143
HERE = Path(__file__).resolve().parent


def stored(path: Path, size: int) -> list[int]:
    """Write the matrix; the columns that depend on those before them."""
    rng, lost = np.random.default_rng(size), [size // 2, size - 1]
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(size, size))
    for start in range(0, size, 256):
        rows = rng.integers(0, PRIME, (min(256, size - start), size), dtype=np.int64)
        rows[:, lost[0]] = (rows[:, 0] + 3 * rows[:, size // 3]) % PRIME
        rows[:, lost[1]] = (7 * rows[:, 5] + rows[:, lost[0]]) % PRIME
        table[start : start + 256] = rows
    table.flush()
    return lost


def ranked(limit: int, blocks: str = "") -> list[str]:
    """The command, observed."""
    more = ["--folder", blocks] if blocks else []
    asked = ["rank", "matrix.npy", "--max-memory", str(limit), "--json", *more]
    return [sys.executable, str(HERE / "measure_memory.py"), "--observe", json.dumps(asked)]


def killed(folder: str, limit: int) -> int:
    """Start it, kill it when half of its blocks are there; how many there were."""
    child = subprocess.Popen(ranked(limit, "blocks"), cwd=folder, stdout=subprocess.DEVNULL)
    place = Path(folder) / "blocks"
    while child.poll() is None:
        time.sleep(0.05)
        if (place / "matrix.json").exists():
            size = json.loads((place / "matrix.json").read_text())
            if len(list(place.glob("block-*.bin"))) * size["width"] >= size["columns"] // 2:
                child.kill()
    child.wait()
    return len(list(place.glob("block-*.bin")))


def measure(size: int, compare: bool) -> dict[str, Any]:
    """One row: a run from beginning to end, one that was killed, and the engine in memory."""
    limit = INTERPRETER + 8 * size * size // 10
    row: dict[str, Any] = {"M": size, "limit": limit, "product_gflops": product_rate(size // 10)}
    with tempfile.TemporaryDirectory() as folder:
        lost = stored(Path(folder) / "matrix.npy", size)

        def run(blocks: str) -> dict[str, Any]:
            text = subprocess.run(ranked(limit, blocks), cwd=folder, check=True, capture_output=True, text=True)
            found: dict[str, Any] = json.loads(text.stdout)
            assert (found["said"]["rank"], found["said"]["dependent_columns"]) == (size - len(lost), lost), found
            return found

        if compare:
            there = killed(folder, limit)
            row["resumed"] = run("blocks")
            assert row["resumed"]["said"]["blocks_resumed"] == there, row
            row["in_memory"] = in_memory(Path(folder) / "matrix.npy", lost)
        row["whole"] = run("")
    return row


def product_rate(size: int) -> float:
    """10^9 operations a second of the processor, of a product of squares."""
    square, rounds = np.random.default_rng(0).random((size, size)), max(3, int(3e10 / size**3))
    square @ square
    began = time.process_time()
    for _ in range(rounds):
        square @ square
    return round(2e-9 * rounds * size**3 / (time.process_time() - began), 1)


def in_memory(path: Path, lost: list[int]) -> dict[str, float]:
    """The same rank profile by the engine in memory: its seconds of the processor."""
    from utfproof.exact import gfp

    matrix = gfp.residues(np.load(path), PRIME)
    began = time.process_time()
    profile = gfp.rank_profile(matrix, PRIME)
    seconds = round(time.process_time() - began, 1)
    assert sorted(set(range(len(matrix))) - set(profile.columns)) == lost
    return {"processor_seconds": seconds}


def main() -> None:
    """The rows on standard output, and in a file where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="3000,10000", help="M, separated by commas")
    parser.add_argument("--compare", type=int, default=10000, help="largest M that is also killed, and done in memory")
    parser.add_argument("-o", type=Path)
    chosen = parser.parse_args()
    rows = []
    for size in map(int, chosen.sizes.split(",")):
        rows.append(measure(size, size <= chosen.compare))
        print(json.dumps(rows[-1]), flush=True)
        if chosen.o:
            found = {"prime": PRIME, "machine": machine(), "rows": rows}
            chosen.o.write_text(json.dumps(found, indent=1) + "\n")


def machine() -> str:
    """Where this ran."""
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    load = f"load average {os.getloadavg()[0]:.0f} at the end"
    return f"{platform.machine()}, {os.cpu_count()} cores, threads of BLAS: {threads}, {load}"


if __name__ == "__main__":
    main()
