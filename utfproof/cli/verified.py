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
VALUED = ("--weights", "--max-seconds", "--max-memory", "--target", "--kind")
"""The checker's options that a value follows."""


def binary() -> Path:
    """The program: UTFPROOF_UTFCHECK, the one of this checkout, or the one on PATH. MalformedInput without one."""
    named = os.environ.get("UTFPROOF_UTFCHECK")
    found = Path(named) if named else BUILT if BUILT.is_file() else Path(shutil.which("utfcheck") or "")
    if not found.is_file():
        raise MalformedInput(f"{FLAG} needs the verified checker: make checker builds proofs/checker/utfcheck")
    return found


def require(words: Sequence[str]) -> None:
    """MalformedInput where it cannot run, or its lines would stand in a JSON document."""
    if "--json" in words:
        raise MalformedInput(f"{FLAG} prints a line a certificate; --json has no place for them")
    binary()


def paths(words: Sequence[str]) -> list[str]:
    """The certificates and folders among the checker's words."""
    found, skip, ended = [], False, False
    for word in words:
        if skip:
            skip = False
        elif ended or not word.startswith("-"):
            found.append(word)
        elif word == "--":
            ended = True
        else:
            skip = word != "-" and any(name.startswith(word) for name in VALUED)  # a part of a name will do
    return found


def run(words: Sequence[str]) -> int:
    """Have the verified checker judge the same certificates; it prints a line each. Its exit code: 0 where it rejects none."""
    command = [str(binary()), *(path if not path.startswith("-") else f"./{path}" for path in paths(words))]
    return subprocess.run(command, check=False).returncode
