"""What commands announce of memory against what they take: python scripts/measure_memory.py [--d 6,12] [--only NAME] [-o FILE]

Each command runs in a process of its own at (H, L) = (2, 4), m = 76 d. Announced: the largest that a guard added up, in bytes.
Taken: the largest anonymous resident set, sampled every two milliseconds; files mapped into memory are not counted on either
side, since the system takes their pages back.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import utfproof

COMMANDS = {
    "certify": ["certify", "random", "{shape}", "-o", "c.json"],
    "certify --witness": ["certify", "random", "{shape}", "--witness", "-o", "w.json"],
    "decide": ["decide", "host.safetensors", "-o", "d.json"],
    "check --numpy": ["check", "c.json", "--numpy"],
    "check --numpy, witness": ["check", "w.json", "--numpy"],
    "check --numpy, weights": ["check", "d.json", "--numpy"],
    "embed": ["embed", "random", "target.safetensors", "-o", "E.safetensors"],
    "emulate": ["emulate", "random", "{shape}", "--trials", "1"],
}
BEFORE = (
    ["build", "random", "{shape}", "--dtype", "float32", "-o", "host.safetensors"],
    ["build", "target", "{shape}", "-o", "target.safetensors"],
)


def observe(arguments: list[str]) -> dict[str, Any]:
    """Announced and taken bytes of one command, run in this process, and its seconds, of the clock and of processors."""
    from utfproof.ground import resources, threads

    threads.unoccupied = lambda count: count  # as on idle cores: each thread of linear algebra takes buffers of its own
    threads.available = lambda before, after, count: count
    announced, taken = [0], [0]
    guard = resources.require_memory

    def told(needed: int, what: str, limit: int | None = None) -> None:
        announced.append(needed + resources.held_memory())
        guard(needed, what, limit)

    resources.require_memory = told  # before a command's modules take it from there
    if arguments[0] == "check":
        from utfproof.certificates import checker

        held, require = resources.held_memory(), checker.Limits.require

        def required(self: checker.Limits, memory: int, operations: int) -> None:
            announced.append(memory + held)  # the checker's costs are those of a whole check
            require(self, memory, operations)

        checker.Limits.require = required  # type: ignore[method-assign]
    from utfproof.cli.app import run

    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.002):
            taken.append(resources.held_memory())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    start, printed = time.time(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run(arguments)
    times = {"seconds": round(time.time() - start, 1), "processor_seconds": round(time.process_time(), 1)}
    done.set()
    sampler.join()
    said = {"said": json.loads(printed.getvalue())} if "--json" in arguments else {}
    return {"exit_code": code, "announced": max(announced), "taken": max(taken), **times, **said}


def measure(head_dims: list[int], only: list[str]) -> list[dict[str, Any]]:
    """A row for each command, or for those named, and size."""
    compileall.compile_dir(Path(utfproof.__file__).parent, quiet=2)  # compiling leaves memory that commands then reuse
    rows = []
    for d in head_dims:
        shape = ["--heads", "2", "--layers", "4", "--head-dim", str(d), "--d-in", str(d)]
        with tempfile.TemporaryDirectory() as folder:
            for command in BEFORE if {"decide", "embed"} & set(only or COMMANDS) else ():
                _call(filled(command, shape), folder)
            for name, command in COMMANDS.items():
                if only and name not in only:
                    continue
                row = {"command": name, "m": 76 * d, **json.loads(_call(filled(command, shape), folder))}
                print(f"{name:20s} m = {row['m']:5d}: announced {row['announced'] / 1e6:8.1f} MB, taken "
                      f"{row['taken'] / 1e6:8.1f} MB, ratio {row['announced'] / row['taken']:.2f}", flush=True)  # fmt: skip
                rows.append(row)
    return rows


def filled(command: list[str], shape: list[str]) -> list[str]:
    """The command with its shape."""
    return [part for entry in command for part in (shape if entry == "{shape}" else [entry])]


def _call(arguments: list[str], folder: str) -> str:
    command = [sys.executable, os.path.abspath(__file__), "--observe", json.dumps(arguments)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """The table on standard output, and in a file where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", default="6,12,24,48,96", help="head dimensions, separated by commas")
    parser.add_argument(
        "--only", action="append", default=[], choices=COMMANDS, help="commands, each after those it needs"
    )
    parser.add_argument("-o", type=Path)
    parser.add_argument("--observe", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.observe:
        print(json.dumps(observe(json.loads(chosen.observe))))
        return
    start = time.time()
    rows = measure([int(d) for d in chosen.d.split(",")], chosen.only)
    if chosen.o:
        found = {"shape": "(2, 4, d, d)", "seconds": round(time.time() - start), "rows": rows}
        chosen.o.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
