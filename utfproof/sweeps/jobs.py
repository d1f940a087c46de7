"""A job: a command with all its parameters, the key of its content, and running it anywhere.

What a job returns is a function of the job alone (and, where floats are measured, of the processor and BLAS): no time,
host name, process or path enters it. What changes from run to run travels beside it.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from utfproof.errors import ResourceLimit, UtfproofError
from utfproof.ground.notions import Notion

SAFE_INTEGER = 2**53 - 1
"""Larger integers are written as decimal strings, as in certificates."""
_SOURCES = ("*.py", "*.cpp", "*.json")
_OUTSIDE_RESULTS = ("cli", "reporting", "benchmarks", "sweeps/executor.py", "sweeps/table.py", "sweeps/run.py")
"""Parts of the package that no result depends on."""


@dataclass(frozen=True)
class SweepJob:
    """One command with its parameters, defaults filled in. `versions`: the formats its result is written in. files: where
    the weights named by digest in the parameters are found; no part of the job's content."""

    command: str
    parameters: Mapping[str, Any]
    versions: Mapping[str, int | str]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """What the key is the SHA-256 of, as canonical JSON."""
        return {"command": self.command, "parameters": dict(self.parameters), "versions": dict(self.versions)}

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits."""
        return hashlib.sha256(canonical(self.document)).hexdigest()

    @property
    def label(self) -> str:
        """For people, on one line."""
        return " ".join([self.command, *(f"{name}={_short(value)}" for name, value in self.parameters.items())])


@dataclass(frozen=True)
class SweepTask:
    """A job on its way to a worker. code: digest of the driver's package, which the worker's must equal."""

    job: SweepJob
    code: str
    max_memory: int | None = None
    size = 1

    @property
    def key(self) -> str:
        """Of its job."""
        return self.job.key

    def parts(self) -> list[SweepTask]:
        """What it falls into: itself."""
        return [self]

    def failed(self, reason: str) -> Answer:
        """What is said where no worker could run it."""
        return Answer(self.key, failure=one_line(reason))


@dataclass(frozen=True)
class Answer:
    """What came back: a result with the files it names, or why the job could not be run (`failure`; `resource`: for want of
    memory). seconds and worker are for the side file of timings."""

    key: str
    result: dict[str, Any] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    failure: str | None = None
    resource: bool = False
    seconds: float = 0.0
    worker: str = ""


def canonical(document: Any) -> bytes:
    """Canonical JSON (RFC 8785) of plain data; integers beyond 2^53 as strings, NaN and infinities as null."""
    import rfc8785

    return rfc8785.dumps(plain(document))


def plain(value: Any) -> Any:
    """Numbers, strings, lists and objects that JSON has."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(type(value), "__index__"):
        number = int(value.__index__())
        return number if abs(number) <= SAFE_INTEGER else str(number)
    if hasattr(type(value), "__float__"):
        number_ = float(value)
        return number_ if math.isfinite(number_) else None
    raise TypeError(f"a result holds {type(value).__name__}, which JSON does not have")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 of the package's source, without the parts that results do not depend on."""
    sha = hashlib.sha256()
    for name, path in sources().items():
        sha.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return sha.hexdigest()


def sources() -> dict[str, Path]:
    """Files of the package that results depend on, by name: its code, and what it reads, such as the claims' records."""
    root = Path(__file__).resolve().parent.parent
    found = {path.relative_to(root).as_posix(): path for kind in _SOURCES for path in root.rglob(kind)}
    return {name: found[name] for name in sorted(found) if not name.startswith(_OUTSIDE_RESULTS)}


def run_task(task: SweepTask) -> Answer:
    """Run one job. Never raises but for Ctrl-C: what goes wrong is the answer."""
    from utfproof.jobs.job import Context
    from utfproof.jobs.registry import job

    start = time.perf_counter()
    key = task.job.key
    outcome: dict[str, Any]
    if task.code != code_digest():
        outcome = {
            "failure": f"this worker runs other code of utfproof ({code_digest()[:12]}) than the driver "
            f"({task.code[:12]}); install the same version on both and start workers anew"
        }
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # d > d_in and the like: said of shapes, a thousand times over
                context = Context(key, task.job.files, task.max_memory)
                _, kind = job(task.job.command)
                document, files = kind.of(task.job.parameters, max_memory=task.max_memory).found(context)
            outcome = {"result": _result(task.job, document, files), "files": files}
        except ResourceLimit as error:
            outcome = {"failure": str(error), "resource": True}
        except MemoryError:
            outcome = {"failure": "out of memory", "resource": True}
        except UtfproofError as error:
            outcome = {"failure": str(error)}
        except Exception as error:  # a fault in one job must not end a sweep of thousands
            outcome = {"failure": f"internal error, nothing was decided: {type(error).__name__}: {error}"}
    if "failure" in outcome:
        outcome["failure"] = one_line(outcome["failure"])
    return Answer(key, **outcome, seconds=time.perf_counter() - start, worker=f"{platform.node()}:{os.getpid()}")


def question(command: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    """Notion and targets of a verdict about universality, which says nothing without them; "" for other commands."""
    if command not in ("certify", "decide"):
        return "", ""
    return str(fields.get("notion") or ""), str(fields.get("targets") or "")


def named(verdict: str, notion: str, targets: str) -> str:
    """A verdict with its notion, and its targets where they are not all untied ones."""
    if not notion or verdict == "refused":
        return verdict
    said = f"{verdict} {Notion(notion).sense}"
    return said if targets in ("", "all untied") else f"{said} ({targets})"


def verdict_of(result: Mapping[str, Any]) -> str:
    """What a result is counted under: its verdict, named."""
    job, found = result["job"], result["result"]
    return named(str(found["verdict"]), *question(job["command"], {**found, **job["parameters"]}))


def one_line(text: str) -> str:
    """The text on one line of reasonable length."""
    return " ".join(text.split())[:400]


def _result(job: SweepJob, document: dict[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    named = [{"file": name, "sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(files.items())]
    return plain({"key": job.key, "job": job.document, "files": named, "result": document})


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    text = str(value)
    return text if len(text) < 64 else text[:12] + "..."
