"""Certify, check and emulate the four shapes of the paper's tables, untied (`sparse`) and tied (`tied`).

    python scripts/verify_tables.py [--output FOLDER]

Runs the command line itself, one line per step; exits with the first code that is not 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from utfproof.paper.tables import PAPER_TABLE_SHAPES

OPTIONS = ("--heads", "--layers", "--head-dim", "--d-in")
ATTENTION = "softmax,scaled+causal,window:16,alibi,rope"


def utfproof(*arguments: str) -> dict[str, Any]:
    """One command of the CLI with --json; leaves with its code when that is not 0."""
    command = [sys.executable, "-m", "utfproof", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        print(f"exit code {done.returncode}: utfproof {' '.join(arguments)}", file=sys.stderr)
        sys.exit(done.returncode)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def verify(folder: Path) -> None:
    """The eight hosts, three steps each."""
    for name, dimensions in PAPER_TABLE_SHAPES.items():
        options = [text for pair in zip(OPTIONS, map(str, dimensions), strict=True) for text in pair]
        for construction in ("sparse", "tied"):
            path = str(folder / f"{construction}-{name}.json")
            certified = utfproof("certify", construction, *options, "-o", path)
            checked = utfproof("check", path)
            emulated = utfproof(
                "emulate",
                construction,
                *options,
                "--trials",
                "2",
                "--context",
                "1,7,64,256",
                "--attention",
                ATTENTION,
            )
            print(
                f"{construction:7} {name:12} m = {certified['shape']['m']:5}  {certified['verdict']}, "
                f"certificate {checked['results'][0]['status']}, max relative error "
                f"{emulated['max_relative_error']:.1e} over {len(emulated['comparisons'])} runs",
                flush=True,
            )


def main() -> None:
    """Parse the arguments and verify."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="keep the certificates in this folder")
    folder = parser.parse_args().output
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        verify(folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        verify(Path(temporary))


if __name__ == "__main__":
    main()
