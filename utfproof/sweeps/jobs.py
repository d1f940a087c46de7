"""A job: a command with all its parameters, the key of its content, and running it anywhere.

A job calls the function that the command line calls. Its result is what `--json` prints, or the claim of its certificate.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from utfproof.cli.registry import load, parameters
from utfproof.errors import NotDefined, Refuted, ResourceLimit, Undecided, UtfproofError
from utfproof.util.notions import Notion

SAFE_INTEGER = 2**53 - 1
"""Larger integers are written as decimal strings, as in certificates."""
ENDINGS = {Refuted: "refuted", Undecided: "undecided", NotDefined: "not defined"}
"""Verdicts of jobs that end with these errors; any other error is no result."""
_SOURCES = ("*.py", "*.json", "*.toml")
_OUTSIDE_RESULTS = ("cli", "reporting", "benchmarks", "sweeps")
"""Parts of the package that no result depends on."""


@dataclass(frozen=True)
class SweepJob:
    """One command with its parameters, defaults filled in. files: SHA-256 of the input files, by parameter, whose names are
    relative to `folder`."""

    command: str
    parameters: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def document(self) -> dict[str, Any]:
        """The key is the SHA-256 of this, as canonical JSON."""
        return {"command": self.command, "parameters": dict(self.parameters), "inputs": dict(self.files)}

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits."""
        return sha256(canonical(self.document))

    @property
    def label(self) -> str:
        """For people, on one line."""
        return " ".join([self.command, *(f"{name}={str(value)[:60]}" for name, value in self.parameters.items())])


@dataclass(frozen=True)
class Answer:
    """A line of results.jsonl with the files it names, or why the job could not be run (`failure`; `resource`: a limit)."""

    key: str
    line: dict[str, Any] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    failure: str | None = None
    resource: bool = False


def sha256(data: bytes) -> str:
    """As hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def canonical(document: Any) -> bytes:
    """Canonical JSON (RFC 8785) of plain data; integers beyond 2^53 as strings, NaN and infinities as null."""
    import rfc8785

    return rfc8785.dumps(plain(document))


def plain(value: Any) -> Any:
    """Numbers, strings, lists and objects that JSON has; anything else as text."""
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
        real = float(value)
        return real if math.isfinite(real) else None
    return str(value)


@lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 of the package's source and data, without the parts that results do not depend on."""
    root = Path(__file__).resolve().parent.parent
    named = {path.relative_to(root).as_posix(): path for kind in _SOURCES for path in root.rglob(kind)}
    kept = (name for name in sorted(named) if not name.startswith(_OUTSIDE_RESULTS))
    return sha256("".join(f"{name} {sha256(named[name].read_bytes())}\n" for name in kept).encode())


def run_job(job: SweepJob, code: str, max_memory: int | None = None) -> Answer:
    """Run one job. code: digest of the driver's package. Every failure but Ctrl-C becomes part of the answer."""
    resource, reason = False, ""
    try:
        if code != code_digest():
            raise UtfproofError("this worker runs other code of utfproof than the driver; install the same on both")
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as place:
            warnings.simplefilter("ignore")  # d > d_in and the like, a thousand times over
            return _answer(job, Path(place), max_memory)
    except (ResourceLimit, MemoryError) as error:
        resource, reason = True, str(error) or "out of memory"
    except UtfproofError as error:
        reason = str(error)
    except Exception as error:  # a fault in one job must not end a sweep of thousands
        reason = f"internal error, nothing was decided: {type(error).__name__}: {error}"
    return Answer(job.key, failure=one_line(reason), resource=resource)


def _answer(job: SweepJob, place: Path, max_memory: int | None) -> Answer:
    function = load(job.command)
    known = parameters(function)
    values: dict[str, Any] = {name: one.default for name, one in known.items()}
    values |= {name: [value] if known[name].kind is list else value for name, value in job.parameters.items()}
    for name, digest in job.files.items():
        values[name] = known[name].kind(job.folder / values[name])
        if sha256(Path(values[name]).read_bytes()) != digest:
            raise UtfproofError(f"{values[name]} has changed since the sweep began; start it again")
    own = {"output": place / f"{job.key}.json", "results": place / "results", "max_memory": max_memory, "workers": 1}
    values |= {name: value for name, value in own.items() if name in values and name not in job.parameters}
    try:
        outcome = function(**values)
    except tuple(ENDINGS) as error:
        verdict = next(word for kind, word in ENDINGS.items() if isinstance(error, kind))
        return _line(job, {"verdict": verdict, "reason": str(error)}, {})
    files = {path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.is_file()}
    code = outcome.exit_code if outcome.failure is None else outcome.failure.exit_code
    document = {"verdict": f"exit code {code}", **plain(outcome.document)}
    text = json.dumps(document).replace(f"{place}/", "").replace(f"{job.folder}/", "")  # results hold no paths
    written = files.get(f"{job.key}.json", b"")
    if written.startswith(b"{") and (found := json.loads(written)).get("format") == "utfproof-certificate":
        claim = {name: found["claim"][name] for name in ("verdict", "notion", "targets") if name in found["claim"]}
        return _line(job, {**claim, "kind": found["kind"]}, files)
    return _line(job, json.loads(text), files)


def _line(job: SweepJob, result: dict[str, Any], files: dict[str, bytes]) -> Answer:
    listed = [{"file": name, "sha256": sha256(data)} for name, data in files.items()]
    return Answer(job.key, plain({"key": job.key, "job": job.document, "files": listed, "result": result}), files)


def verdict_of(line: Mapping[str, Any]) -> str:
    """The verdict of a result, with its notion and, unless they are all untied ones, its targets."""
    found = line["result"]
    verdict, targets = str(found["verdict"]), found.get("targets")
    if "kind" not in found or "notion" not in found:
        return verdict
    named = f"{verdict} {Notion(found['notion']).sense}"
    return named if targets in (None, "all untied") else f"{named} ({targets})"


def one_line(text: str) -> str:
    """The text on one line of reasonable length."""
    return " ".join(text.split())[:400]
