"""The verified checker of proofs/checker beside the others: `utfproof check --verified` and `make checker`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from utfproof.errors import MalformedInput

FLAG = "--verified"
BUILT = Path(__file__).parents[2] / "proofs" / "checker" / "utfcheck"
"""Where `make checker` puts it."""


def binary() -> Path:
    """The program: UTFPROOF_UTFCHECK, the one of this checkout, or the one on PATH. MalformedInput without one."""
    named = os.environ.get("UTFPROOF_UTFCHECK")
    found = Path(named) if named else BUILT if BUILT.is_file() else Path(shutil.which("utfcheck") or "")
    if not found.is_file():
        raise MalformedInput(f"{FLAG} needs the verified checker: make checker builds proofs/checker/utfcheck")
    return found


def require(json: bool) -> None:
    """MalformedInput where it cannot run, or its lines would stand in a JSON document."""
    if json:
        raise MalformedInput(f"{FLAG} prints a line a certificate; --json has no place for them")
    binary()


def run(paths: Sequence[str]) -> int:
    """Have the verified checker judge the same certificates; it prints a line each. Its exit code: 0 where it proves all, 4
    where it does not cover one."""
    command = [str(binary()), *(path if not path.startswith("-") else f"./{path}" for path in paths)]
    return subprocess.run(command, check=False).returncode
