"""Both checkers as one judge: what `utfproof check` and `utfproof.check` run.

First the Python checker, in a child process under limits of memory and time. Then, on what it accepts, the verified one,
proofs/checker/utfcheck, where it is built (`make checker`). Its soundness is proved in Coq; which OCaml is trusted besides, it
says itself (`utfcheck --version`).
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from utfproof.certificates import limited
from utfproof.certificates.checker import INTERNAL, LIMIT, NO_MEMORY, PROVED, VALID, Options, Verdict
from utfproof.errors import MalformedInput
from utfproof.util.resources import default_limit
from utfproof.util.results import Result

SECONDS = 3600
"""Time limit for one certificate."""
PACKAGE = Path(__file__).parents[2]
VARIABLE = "UTFPROOF_UTFCHECK"
"""The verified checker's path; empty for none."""
BUILT = PACKAGE / "proofs" / "checker" / "utfcheck"
"""Where `make checker` puts it."""
ACCEPTED, REJECTED = 0, 1
"""Its exit codes that settle a certificate. With any other one it was left alone."""
SAID = re.compile(r"(?:valid, proved )?(.*), [\d.]+ s\n")
"""What it prints after the name: the statement that was proved, or why none was."""


def verified_checker() -> Path | None:
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


class Judge:
    """Judges one certificate after the other; to be closed. memory: bytes and seconds: for one certificate.

    One child process serves them all; a new one is started where it had to be killed.
    """

    def __init__(self, options: Options, memory: int | None = None, seconds: int = SECONDS) -> None:
        self.options, self.seconds = options, seconds
        self.memory = default_limit() if memory is None else memory
        self.second = verified_checker()
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __call__(self, path: str, in_folder: bool = False) -> Verdict:
        try:
            verdict = self._limited(path, in_folder)
        except BaseException:
            self.stop()
            raise
        return verdict if self.second is None or verdict.code != VALID else self._confirmed(self.second, path, verdict)

    def stop(self) -> int:
        """Kill the child, if there is one; its exit status."""
        child, self.child = self.child, None
        if child is None:
            return 0
        status = child.poll()
        child.kill()
        child.communicate()
        return child.returncode if status is None else status

    @property
    def trusted(self) -> str:
        """The verified checker, and what has to be trusted of it beside Coq; empty where there is none."""
        if self.second is None:
            return ""
        done = subprocess.run([str(self.second), "--version"], capture_output=True, text=True, check=False)
        return f"proved by {self.second}: {done.stdout.strip() or 'a build that does not say what it rests on'}"

    def _limited(self, path: str, in_folder: bool) -> Verdict:
        """The Python checker's verdict."""
        if self.child is None:
            paths = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
            task = json.dumps([self.options.numpy, self.options.weights])
            self.child = subprocess.Popen(
                [sys.executable, "-m", limited.__name__, task],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
                preexec_fn=self._limit_memory,
            )
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            self.child.stdin.write(json.dumps([path, in_folder]).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        if not select.select([self.child.stdout], [], [], self.seconds)[0]:
            self.stop()
            return Verdict(LIMIT, f"took more than the {self.seconds} s that --max-seconds allows")
        answer = self.child.stdout.readline()
        if not answer.endswith(b"\n"):
            return self._died()
        verdict = Verdict(*json.loads(answer))
        if verdict.code == LIMIT and verdict.message == NO_MEMORY:
            return replace(verdict, message=f"{NO_MEMORY}; --max-memory allows {self.memory} bytes")
        return verdict

    def _limit_memory(self) -> None:
        """Have the system refuse this process more."""
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        allowed = self.memory if most == resource.RLIM_INFINITY else min(self.memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (allowed, most))

    def _died(self) -> Verdict:
        status = self.stop()
        code = LIMIT if status == -signal.SIGKILL else INTERNAL
        allowed = f"--max-memory allows {self.memory} bytes"
        return Verdict(code, f"no verdict, the checking process ended with status {status}; {allowed}")

    def _confirmed(self, program: Path, path: str, verdict: Verdict) -> Verdict:
        """A valid verdict with the statement that was proved; INTERNAL where the verified checker rejects the certificate."""
        command = [str(program), "--seconds", str(self.seconds), f"./{path}" if path.startswith("-") else path]
        done = subprocess.run(command, capture_output=True, check=False, preexec_fn=self._limit_memory)
        name = "".join(chr(c) if 32 <= c <= 126 else f"\\x{c:02x}" for c in os.fsencode(command[-1]))
        found = SAID.fullmatch(done.stdout.decode("utf-8", "replace").removeprefix(f"{name}: "))
        said = found[1] if found else f"exit status {done.returncode}"
        if done.returncode == ACCEPTED and found:
            return replace(
                verdict, facts={name: fact for name, fact in verdict.facts.items() if name != "cited"} | {PROVED: said}
            )
        if done.returncode == REJECTED:
            return Verdict(
                INTERNAL, f"no verdict, the judges disagree: checker.py accepts it, {program} rejects it {said}"
            )
        return replace(verdict, facts=verdict.facts | {"not_proved": said})


@dataclass(frozen=True, repr=False)
class Checked(Result):
    """A certificate's file and the verdict on it."""

    path: str
    verdict: Verdict

    @property
    def valid(self) -> bool:
        """Whether the certificate shows what it states, whichever way it decides."""
        return self.verdict.code == VALID

    def rows(self) -> dict[str, Any]:
        """For people."""
        result = f"valid, {self.verdict.status}" if self.valid else self.verdict.status
        return {"result": result, "statement" if self.valid else "reason": self.verdict.line, "file": self.path}


def check(
    path: Path | str,
    *,
    weights: Sequence[Path | str] = (),
    numpy: bool = False,
    max_memory: int | None = None,
    max_seconds: int = SECONDS,
) -> Checked:
    """Check one certificate with programs that share no code with the prover.

    weights: files and folders in which a host's weights are looked for. numpy: compute ranks with NumPy, which is faster.
    The verdict says where a file is malformed or missing; nothing is raised.

    >>> from utfproof import Shape, certify, check
    >>> paths = certify("tied", Shape(2, 2, 2, 3)).write("tied.json")
    >>> check("tied.json").valid
    True
    """
    with Judge(Options(numpy=numpy, weights=tuple(map(str, weights))), max_memory, max_seconds) as judge:
        return Checked(str(path), judge(str(path)))
