"""What `check` announces of its time against what it takes: python scripts/measure_check.py [--d 6,12] [-o FILE]

Announced: the largest figure that `utfproof check` holds against --max-seconds; by the checker: the same of the checker run by
itself. Taken: seconds of a processor. Certificates of the corpus and of certificates/ are checked in one process; those at
(H, L) = (2, 4), m = 76 d without a stream, and the others named below, each in one of its own.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from utfproof.certificates import checker, expected

ROOT = Path(__file__).parent.parent
CORPUS = (ROOT / "tests/certificates/valid", ROOT / "certificates")
SHOWN = 0.2
"""Seconds from which a certificate has a row: what takes less is announced as less than a second."""
SQUARE = ("sparse", "tied", "shared-key", "shared-query", "shared-query-groups", "register", "two-sided")
SQUARE_STREAM = ("residual-key", "residual-query")
OTHERS = {
    "sparse": [(2, 13, 1, 1), (4, 7, 2, 2)],
    "sparse --residual": [(2, 7, 1, 1)],
    "sparse-front": [(4, 8, 1, 1)],
    "tied": [(3, 10, 2, 2), (2, 14, 1, 1)],
    "shared-key": [(3, 9, 2, 2), (8, 4, 8, 8)],
    "shared-query": [(2, 9, 8, 8), (3, 3, 64, 64)],
    "shared-query-groups": [(2, 12, 1, 1), (8, 4, 2, 8), (6, 3, 10, 30)],
    "residual-key --residual": [(2, 8, 4, 4), (2, 10, 1, 1)],
    "residual-query --residual": [(2, 9, 1, 1), (8, 3, 2, 16), (2, 3, 30, 60)],
    "symmetric-keys": [(100, 2, 5, 1)],
    "symmetric-keys-deep": [(4, 7, 3, 1), (12, 4, 3, 1), (6, 5, 6, 1)],
    "commuting-trie": [(4, 12, 2, 1), (6, 8, 1, 1), (2, 40, 1, 1)],
    "counting": [(6, 12, 1, 1), (20, 4, 1, 1)],
    "two-sided-counting": [(8, 16, 1, 1)],
    "polynomial": [(9, 9, 1, 1)],
    "middle-path": [(5, 9, 4, 4)],
    "register": [(4, 9, 2, 2)],
    "random-tied --residual": [(2, 4, 3, 3), (2, 2, 30, 30)],
}
DENSE = {"": 12, "--numpy": 48}
"""Largest d of random hosts that are checked with these options."""


class Announced(expected.Expected):
    """Keeps the largest figure."""

    largest = 0

    def require(self, memory: int, operations: int) -> None:
        type(self).largest = max(self.largest, operations)
        super().require(memory, operations)


def checked(path: Path, numpy: bool) -> dict[str, Any]:
    """Announced and taken seconds of one check in this process."""
    Announced.largest, begun = 0, time.process_time()
    verdict = checker.check_file(path, Announced(numpy=numpy))
    taken = time.process_time() - begun
    assert verdict.code == checker.VALID, (path, verdict)
    kind, at = verdict.facts["kind"], Announced.largest / 1e9
    return {"kind": kind, "announced": round(at, 3), "taken": round(taken, 3)}


def corpus() -> tuple[int, list[dict[str, Any]]]:
    """How many certificates, and a row for each that takes long."""
    paths = sorted(path for folder in CORPUS for path in folder.glob("*.json"))
    rows = [{"certificate": path.stem, "m": None, **checked(path, numpy=False)} for path in paths]
    return len(rows), [row for row in rows if row["taken"] >= SHOWN]


def cases(head_dims: list[int]) -> list[tuple[str, tuple[int, int, int, int], str]]:
    """Construction with its options, shape, and an option of the check."""
    found = [(name, (2, 4, d, d), "") for name in SQUARE for d in head_dims]
    found += [(f"{name} --residual", (2, 4, d, d), "") for name in SQUARE_STREAM for d in head_dims if d <= 48]
    for option, largest in DENSE.items():
        names = ("random", "random --witness")
        found += [(name, (2, 4, d, d), option) for name in names for d in head_dims if d <= largest]
    return found + [(name, shape, "") for name, shapes in OTHERS.items() for shape in shapes]


def case(name: str, shape: tuple[int, int, int, int], option: str) -> list[dict[str, Any]]:
    """The row of one certificate, which is made first; none where the check takes no time."""
    words = [word for pair in zip(("-H", "-L", "-d", "--d-in"), map(str, shape), strict=True) for word in pair]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.json")
        made = [sys.executable, "-m", "utfproof", "certify", *name.split(), *words, "-o", str(path), "--json"]
        done = subprocess.run(made, check=False, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        m = json.loads(path.read_bytes())["shape"]["m"]
        row = json.loads(called("--check", str(path), *([option] if option else [])))
    told = f"{name} at {shape}{' ' + option if option else ''}"
    print(f"{told:60s} announced {row['announced']:8.2f} s, taken {row['taken']:8.2f} s", flush=True)
    return [{"certificate": told, "m": m, **row}] if row["taken"] >= SHOWN else []


def called(*words: str) -> str:
    """What this script prints in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """The rows on standard output, and in a file where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--d", default="6,12,24,48,96", help="head dimensions of the square shapes, separated by commas"
    )
    parser.add_argument("-o", type=Path)
    parser.add_argument("--check", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numpy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.check or chosen.corpus:
        print(json.dumps(corpus() if chosen.corpus else checked(chosen.check, chosen.numpy)))
        return
    load = os.getloadavg()[0]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = pool.submit(called, "--corpus")
        found = [pool.submit(case, *entry) for entry in cases([int(d) for d in chosen.d.split(",")])]
        count, rows = json.loads(files.result())
        rows += [row for entry in found for row in entry.result()]
    if chosen.o:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, load average {load:.0f} at the start"
        checks = {"shown from, s": SHOWN, "checked": count + len(found)}
        document = {"machine": machine, "python": platform.python_version(), **checks, "rows": rows}
        chosen.o.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
