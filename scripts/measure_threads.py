"""Measures rank modulo p with a limit of two BLAS threads against one, as the machine is and with a busy process per core.

python scripts/measure_threads.py [--sizes 512,1024,2280] [--repetitions 5] [-o FILE]

Each time is taken in a process of its own, one thread and two in turn; a ratio of medians above 1 means that the second thread
costs time. "idle" is idle only where nothing else runs: how many other processes wanted a core is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from utfproof.benchmarks.timing import busy_processes

ROUNDS = 3
"""Processes for each number of threads."""
TIME = """
import json, sys, time
from utfproof.ground.threads import wait_passively
wait_passively()
import numpy as np
from utfproof.exact import gfp
p = gfp.DEFAULT_PRIMES[0]
found = {}
for n in json.loads(sys.argv[1]):
    matrix = np.random.default_rng(n).integers(0, p, (n, n)).astype(float)
    gfp.rank(matrix, p)
    found[n] = []
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        gfp.rank(matrix, p)
        found[n].append(time.perf_counter() - start)
print(json.dumps(found))
"""


def times(sizes: list[int], repetitions: int, threads: int) -> dict[str, list[float]]:
    """Seconds by size, in one process with this limit."""
    limit = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [sys.executable, "-c", TIME, json.dumps(sizes), str(repetitions)]
    done = subprocess.run(command, env={**os.environ, **limit}, capture_output=True, text=True, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def running() -> int | None:
    """Other processes that run or wait for a core, the least of ten looks; None where the system does not say."""
    looks = []
    for _ in range(10):
        found = re.search(
            r"^procs_running (\d+)", Path("/proc/stat").read_text() if os.path.exists("/proc/stat") else "", re.M
        )
        if found is None:
            return None
        looks.append(int(found[1]) - 1)
        time.sleep(0.01)
    return min(looks)


def measure(sizes: list[int], repetitions: int) -> Iterator[dict[str, Any]]:
    """A row for each size, idle and then busy."""
    for busy in (False, True):
        with busy_processes((os.cpu_count() or 1) if busy else 0):
            time.sleep(0.2)
            others = running()
            taken: dict[int, list[dict[str, list[float]]]] = {1: [], 2: []}
            for _ in range(ROUNDS):
                for threads, found in taken.items():
                    found.append(times(sizes, repetitions, threads))
        for n in sizes:
            one, two = (statistics.median(t for f in taken[k] for t in f[str(n)]) for k in (1, 2))
            yield {"n": n, "busy": busy, "one": one, "two": two, "ratio": two / one, "others": others}


def main() -> None:
    """Measure, print a line each, and write the document where asked to."""
    parser = argparse.ArgumentParser(description="Two BLAS threads against one.")
    parser.add_argument("--sizes", default="512,1024,2280")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for row in measure([int(n) for n in arguments.sizes.split(",")], arguments.repetitions):
        rows.append(row)
        state = "busy" if row["busy"] else f"idle (others running: {row['others']})"
        print(
            f"n = {row['n']}, {state}: one thread {1e3 * row['one']:.0f} ms, two {1e3 * row['two']:.0f} ms, "
            f"ratio {row['ratio']:.2f}",
            flush=True,
        )
    if arguments.output is not None:
        arguments.output.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
