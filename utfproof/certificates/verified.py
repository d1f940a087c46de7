"""The verified checker, proofs/checker/utfcheck, as a second judge of certificates that the Python checker accepts.

`make checker` builds it. Its soundness is proved in Coq; which OCaml is trusted besides, it says itself (`utfcheck --version`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from utfproof.certificates.checker import INTERNAL, PROVED, VALID, Verdict
from utfproof.certificates.limited import limit_memory
from utfproof.errors import MalformedInput

VARIABLE = "UTFPROOF_UTFCHECK"
"""The program's path; empty for none."""
BUILT = Path(__file__).parents[2] / "proofs" / "checker" / "utfcheck"
"""Where `make checker` puts it."""
ACCEPTED, REJECTED = 0, 1
"""Exit codes that settle a certificate. With any other one it was left alone."""
SAID = re.compile(r"(?:valid, proved )?(.*), [\d.]+ s\n")
"""After the name: the statement that was proved, or why none was."""


def program() -> Path | None:
    """UTFPROOF_UTFCHECK, else the program that this checkout has built, else the one on PATH, else None.

    Raises MalformedInput where the variable names no file.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        if named and not Path(named).is_file():
            raise MalformedInput(
                f"{VARIABLE} is {named}, which is no file; make checker builds proofs/checker/utfcheck"
            )
        return Path(named) if named else None
    elsewhere = shutil.which("utfcheck")
    return BUILT if BUILT.is_file() else Path(elsewhere) if elsewhere else None


@dataclass(frozen=True)
class Verified:
    """The program, with limits of memory in bytes and of processor time in seconds for one certificate."""

    program: Path
    memory: int
    seconds: int

    @property
    def trusted(self) -> str:
        """The program, and what has to be trusted of it beside Coq."""
        done = subprocess.run([str(self.program), "--version"], capture_output=True, text=True, check=False)
        return f"proved by {self.program}: {done.stdout.strip() or 'a build that does not say what it rests on'}"

    def confirmed(self, path: str, verdict: Verdict) -> Verdict:
        """A valid verdict with the statement that was proved; INTERNAL where this judge rejects the certificate."""
        if verdict.code != VALID:
            return verdict
        command = [str(self.program), "--seconds", str(self.seconds), f"./{path}" if path.startswith("-") else path]
        limited = partial(limit_memory, self.memory)
        done = subprocess.run(command, capture_output=True, check=False, preexec_fn=limited)
        name = "".join(chr(c) if 32 <= c <= 126 else f"\\x{c:02x}" for c in os.fsencode(command[-1]))
        found = SAID.fullmatch(done.stdout.decode("utf-8", "replace").removeprefix(f"{name}: "))
        said = found[1] if found else f"exit status {done.returncode}"
        if done.returncode == ACCEPTED and found:
            return replace(
                verdict, facts={name: fact for name, fact in verdict.facts.items() if name != "cited"} | {PROVED: said}
            )
        if done.returncode == REJECTED:
            return Verdict(
                INTERNAL, f"no verdict, the judges disagree: checker.py accepts it, {self.program} rejects it {said}"
            )
        return replace(verdict, facts=verdict.facts | {"not_proved": said})
