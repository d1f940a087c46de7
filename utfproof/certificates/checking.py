"""Both checkers as one judge: what `utfproof check` and `utfproof.check` run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.certificates import verified
from utfproof.certificates.checker import VALID, Options, Verdict
from utfproof.certificates.limited import Limited
from utfproof.ground.resources import default_limit
from utfproof.ground.results import Result

SECONDS = 3600
"""Time limit for one certificate."""


@dataclass(frozen=True)
class Judge:
    """The Python checker under limits, then the verified one where it is built."""

    limited: Limited
    second: verified.Verified | None

    def __call__(self, path: str, in_folder: bool = False) -> Verdict:
        verdict = self.limited.judge(path, in_folder)
        return self.second.confirmed(path, verdict) if self.second else verdict

    @property
    def trusted(self) -> str:
        """What has to be trusted of the verified checker; empty where there is none."""
        return self.second.trusted if self.second else ""


@contextmanager
def judging(options: Options, memory: int | None = None, seconds: int = SECONDS) -> Iterator[Judge]:
    """The judge, with limits of memory in bytes and of time in seconds for one certificate."""
    allowed = default_limit() if memory is None else memory
    program = verified.program()
    second = None if program is None else verified.Verified(program, allowed, seconds)
    with Limited(options, allowed, seconds) as limited:
        yield Judge(limited, second)


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
    """
    options = Options(numpy=numpy, weights=tuple(map(str, weights)))
    with judging(options, max_memory, max_seconds) as judge:
        return Checked(str(path), judge(str(path)))
