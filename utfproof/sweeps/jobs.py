"""A job: a command with all its parameters, the key of its content, and running it anywhere.

A result is a function of the job alone (and, where floats are measured, of the processor and its BLAS). Times, host names
and paths are kept beside it.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from utfproof.errors import ResourceLimit, UtfproofError
from utfproof.ground.notions import Notion

SAFE_INTEGER = 2**53 - 1
"""Larger integers are written as decimal strings, as in certificates."""
REQUIRED: Any = ...
"""In place of a default."""
_SOURCES = ("*.py", "*.cpp", "*.json", "*.toml")
_OUTSIDE_RESULTS = ("cli", "reporting", "benchmarks", "sweeps/cluster.py", "sweeps/table.py", "sweeps/run.py")
"""Parts of the package that no result depends on."""
Parameters = Mapping[str, Any]
Found = tuple[dict[str, Any], dict[str, bytes]]
"""A result, which has a "verdict", and the files beside it."""


@dataclass(frozen=True)
class Key:
    """A key of a command in a sweep: bool, int, float or str; its default or REQUIRED; `check` takes the name and a value."""

    type: type
    default: Any
    check: Callable[[str, Any], Any]


@dataclass(frozen=True)
class Context:
    """What a job may use beside its parameters; none of it may enter the result. key: for naming files."""

    key: str
    files: Mapping[str, str] = field(default_factory=dict)
    max_memory: int | None = None


Find = Callable[[str], Any]
"""From a name to the command (utfproof/cli/command.py); a worker imports this function by its own name."""


@dataclass(frozen=True)
class SweepJob:
    """One command with its parameters, defaults filled in. files: where the weights are that parameters name by digest."""

    command: str
    parameters: Parameters
    versions: Mapping[str, int | str]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The key is the SHA-256 of this, as canonical JSON."""
        return {"command": self.command, "parameters": dict(self.parameters), "versions": dict(self.versions)}

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits."""
        return sha256(canonical(self.document))

    @property
    def label(self) -> str:
        """For people, on one line."""
        return " ".join([self.command, *(f"{name}={_short(value)}" for name, value in self.parameters.items())])


@dataclass(frozen=True)
class SweepTask:
    """A job on its way to a worker. code: digest of the driver's package, which the worker's must equal."""

    job: SweepJob
    code: str
    find: Find
    max_memory: int | None = None


@dataclass(frozen=True)
class Answer:
    """A result with the files it names, or why the job could not be run (`failure`; `resource`: a limit or no memory)."""

    key: str
    result: dict[str, Any] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    failure: str | None = None
    resource: bool = False
    seconds: float = 0.0
    worker: str = ""


def sha256(data: bytes) -> str:
    """As hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


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
    lines = (f"{name} {sha256(path.read_bytes())}\n" for name, path in sources().items())
    return sha256("".join(lines).encode())


def sources() -> dict[str, Path]:
    """Files of the package that results depend on, by name: its code, and its data, such as the claims' records."""
    root = Path(__file__).resolve().parent.parent
    by_name = {path.relative_to(root).as_posix(): path for kind in _SOURCES for path in root.rglob(kind)}
    return {name: by_name[name] for name in sorted(by_name) if not name.startswith(_OUTSIDE_RESULTS)}


def run_batch(tasks: Sequence[SweepTask]) -> list[Answer]:
    """Run these jobs, one after another."""
    return [run_task(task) for task in tasks]


def run_task(task: SweepTask) -> Answer:
    """Run one job. Every failure but Ctrl-C becomes part of the answer."""
    start = time.perf_counter()
    job = task.job
    outcome: dict[str, Any]
    if task.code != code_digest():
        outcome = {"failure": other_code(code_digest(), task.code)}
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # d > d_in and the like, a thousand times over
                found, files = task.find(job.command).result(
                    job.parameters, Context(job.key, job.files, task.max_memory)
                )
            outcome = {"result": _result(job, found, files), "files": files}
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
    return Answer(job.key, **outcome, seconds=time.perf_counter() - start, worker=f"{platform.node()}:{os.getpid()}")


def other_code(worker: str, driver: str) -> str:
    """The message for a worker whose package is not the driver's."""
    return (
        f"this worker runs other code of utfproof ({worker[:12]}) than the driver ({driver[:12]}); "
        "install the same version on both and start workers anew"
    )


def question(command: str, fields: Parameters) -> tuple[str, str]:
    """Notion and targets of a verdict about universality; "" for other commands."""
    if command not in ("certify", "decide"):
        return "", ""
    return str(fields.get("notion") or ""), str(fields.get("targets") or "")


def named(verdict: str, notion: str, targets: str) -> str:
    """A verdict with its notion, and its targets where they are not all untied ones."""
    if not notion or verdict == "refused":
        return verdict
    full = f"{verdict} {Notion(notion).sense}"
    return full if targets in ("", "all untied") else f"{full} ({targets})"


def verdict_of(result: Parameters) -> str:
    """The verdict of a result, named."""
    job, found = result["job"], result["result"]
    return named(str(found["verdict"]), *question(job["command"], {**found, **job["parameters"]}))


def one_line(text: str) -> str:
    """The text on one line of reasonable length."""
    return " ".join(text.split())[:400]


def _result(job: SweepJob, document: dict[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    listed = [{"file": name, "sha256": sha256(data)} for name, data in sorted(files.items())]
    return dict(plain({"key": job.key, "job": job.document, "files": listed, "result": document}))


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    text = str(value)
    return text if len(text) < 64 else text[:12] + "..."
