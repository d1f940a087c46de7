"""End-to-end times of dense rank certificates, as whole processes: `utfproof certify random` with and without a witness,
and `utfproof check` with the standard library alone and with NumPy, on the paper's table shapes, one run, interleaved."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from utfproof.benchmarks.timing import check_counts, table_shapes
from utfproof.errors import UtfproofError
from utfproof.ground.progress import staged
from utfproof.shapes import Shape, matching_dimension

STEPS = ("certify", "certify --witness", "check, standard library", "check --numpy")


def run(
    names: tuple[str, ...], *, device: str = "cpu", repetitions: int = 3, recompute: bool = False
) -> dict[str, Any]:
    """The document of one run: seconds of every step at each table shape; `recompute` adds the check without a witness."""
    shapes = table_shapes(names)
    check_counts(1, repetitions)
    told = staged("bench certify", shapes, len(shapes), unit="shapes")
    results = [_measure(name, dimensions, device, repetitions, recompute) for name, dimensions in told]
    return {
        "benchmark": "certify",
        "device": device,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "results": results,
    }


def _measure(name: str, dimensions: tuple[int, ...], device: str, repetitions: int, recompute: bool) -> dict[str, Any]:
    shape = Shape(*dimensions)
    options = [f"--{field}={n}" for field, n in zip(("heads", "layers", "head-dim", "d-in"), dimensions, strict=True)]
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain, witnessed = Path(folder) / "plain.json", Path(folder) / "witness.json"
        certify = ["certify", "random", *options, "--device", device, "-o"]
        commands = {
            STEPS[0]: [*certify, str(plain)],
            STEPS[1]: [*certify, str(witnessed), "--witness"],
            STEPS[2]: ["check", str(witnessed)],
            STEPS[3]: ["check", str(witnessed), "--numpy"],
        }
        if recompute:
            commands["check, standard library, recompute"] = ["check", str(plain)]
        for _ in range(repetitions):
            for step, command in commands.items():
                seconds.setdefault(step, []).append(_timed(command))
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path != plain)
    return {
        "shape": name,
        "dimensions": list(dimensions),
        "m": matching_dimension(shape),
        "witness_bytes": size,
        "seconds": seconds,
        "median_seconds": {step: statistics.median(times) for step, times in seconds.items()},
    }


def _timed(arguments: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "utfproof", *arguments], capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - begin
    if done.returncode:
        raise UtfproofError(f"utfproof {' '.join(arguments)} left with {done.returncode}: {done.stderr.strip()}")
    return elapsed
