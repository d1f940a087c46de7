"""A folder of results: which file is what, by its content.

The rule: a JSON object of a kind in KINDS, or a CSV file, is shown; every other file is listed as not shown, with the reason.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import read_bytes

KINDS = {
    "verify": "verify: claims and their verdicts",
    "frontier": "frontier: the least m, proved and reached",
    "bench": "bench all: ratios of times",
    "training": "train: a finished run",
    "optimum": "optimum: a trained model embedded in hosts",
    "certificate": "a certificate",
    "sweep": "sweep: results of its jobs",
    "check": "check: which certificates are valid",
    "output": "the verdict that a command printed",
    "table": "a table of figures",
}
MOST_FILES = 20_000
MOST_BYTES = 256 * 2**20
"""Of one file."""
_FORMATS = {
    "utfproof-training-result": "training",
    "utfproof-training-optimum": "optimum",
    "utfproof-certificate": "certificate",
}
_SIGNS = (
    ("verify", {"claims", "grid", "holds"}),
    ("frontier", {"entries", "bounds", "sides"}),
    ("check", {"exit_code", "results"}),
    ("output", {"verdict"}),
    ("output", {"outcome"}),
)
"""A document with all of these keys is of the kind; the first that fits counts."""


@dataclass(frozen=True)
class Source:
    """A file. name: its path inside the folder; kind: a key of KINDS, "" where it is not shown; why: the reason."""

    name: str
    size: int
    digest: str
    kind: str
    document: Any = None
    why: str = ""


@dataclass
class Gathered:
    """All files of a folder."""

    folder: str
    sources: list[Source] = field(default_factory=list)

    def of(self, kind: str) -> list[Source]:
        """The files of one kind, in order of their names."""
        return [source for source in self.sources if source.kind == kind]


def gather(folder: Path, *, skip: Path | None = None) -> Gathered:
    """Read a folder and its subfolders, without hidden files and `skip`, the page to be written.

    MalformedInput where it is not a folder or nothing in it can be shown. ResourceLimit for more than MOST_FILES files.
    """
    if not folder.is_dir():
        raise MalformedInput(f"{folder} is not a folder; `utfproof report` without arguments lists what fills one")
    found = Gathered(str(folder))
    for path in files_below(folder):
        if skip is not None and path.absolute() == skip.absolute():
            continue
        if len(found.sources) >= MOST_FILES:
            raise ResourceLimit(f"{folder} holds more than {MOST_FILES} files; gather the results in a smaller folder")
        found.sources.append(read(path, str(path.relative_to(folder))))
    if not any(source.kind for source in found.sources):
        raise MalformedInput(f"{folder} holds no results; `utfproof report` without arguments lists what makes them")
    return found


def files_below(folder: Path) -> Iterator[Path]:
    """Everything but folders in order of their paths. Links to folders are not followed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise MalformedInput(f"cannot read {folder}: {error.strerror or error}") from error
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)
        else:
            yield path


def read(path: Path, name: str) -> Source:
    """One file."""
    if not path.is_file():
        return Source(name, 0, "", "", why="no regular file")
    size = path.stat().st_size
    if path.suffix not in (".json", ".jsonl", ".csv"):
        return Source(name, size, "", "", why="neither JSON nor CSV")
    if size > MOST_BYTES:
        return Source(name, size, "", "", why=f"larger than {MOST_BYTES} bytes")
    data = read_bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    document: Any
    try:
        if path.suffix == ".csv":
            lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
            kind, document = "table", list(csv.reader(lines))
        elif path.suffix == ".jsonl":
            document = [json.loads(line) for line in data.splitlines() if line.strip()]
            kind = kind_of_lines(document)
        else:
            document = json.loads(data)
            kind = kind_of(document)
    except (ValueError, RecursionError, AttributeError, KeyError) as error:
        return Source(name, size, digest, "", why=f"damaged: {' '.join(str(error).split())[:80]}")
    return Source(name, size, digest, kind, document if kind else None, "" if kind else "JSON of no known kind")


def kind_of(document: Any) -> str:
    """The kind of a document, "" where it is of none."""
    if not isinstance(document, dict):
        return ""
    if document.get("benchmark") == "all":
        return "bench"
    named = _FORMATS.get(str(document.get("format")))
    return named or next((kind for kind, keys in _SIGNS if keys <= document.keys()), "")


def kind_of_lines(lines: list[Any]) -> str:
    """The kind of a JSON Lines file: the results of a sweep, or finished runs."""
    if all({"key", "job", "result"} <= line.keys() for line in lines):
        return "sweep"
    return "training" if {kind_of(line) for line in lines} == {"training"} else ""
