"""A folder of results: which file is what, by its content, and whether it is whole.

A file of a known kind that lacks a field or contradicts itself is refused; a file of no known kind is listed as such.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import read_bytes, require_text
from utfproof.reporting.document import plain
from utfproof.reporting.documents import COMMANDS
from utfproof.reporting.report_others import command_of, is_certificate, lines_of, sweep_file

KINDS = {
    "verify": "verify: claims and their verdicts",
    "frontier": "frontier: least m proved and reached",
    "emulation": "emulate: errors and bounds",
    "bench": "bench: times side by side",
    "training": "train: a finished run",
    "certificate": "a certificate",
    "sweep": "sweep: results of jobs",
    "sweep-result": "sweep: the result of one job",
    "sweep-jobs": "sweep: the jobs asked for",
    "sweep-failures": "sweep: jobs that could not be run",
    "sweep-times": "sweep: seconds of each job",
    "sweep-head": "sweep: its name",
    "output": "what a command printed",
    "unfinished": "train: a run that is not finished; the same command goes on",
    "archive": "a large sweep's index and certificates: its results.jsonl is shown instead",
    "sidecar": "numbers that a certificate names by their digest",
    "module": "export: a PyTorch module",
    "picture": "a picture",
    "page": "a page",
    "weights": "weights: utfproof decide, embed and emulate read them; not shown",
    "table": "a table that collect wrote: the sweep's results.jsonl is shown instead",
}
"""What is understood, and what it is called in the list of files."""

MOST_FILES = 20_000
MOST_BYTES = 256 * 2**20
"""Of one file."""

_FORMATS = {
    "utfproof-training-result": "training",
    "utfproof-training-checkpoint": "unfinished",
}
"""Kinds by the format that a document names."""
_BEGINNINGS = (
    (".db", b"SQLite format 3\0", "archive"),
    (".zip", b"PK\x03\x04", "archive"),
    (".parquet", b"PAR1", "table"),
    (".csv", b"key,command,", "table"),
    (".png", b"\x89PNG", "picture"),
    (".pdf", b"%PDF", "picture"),
    (".svg", b"<", "picture"),
    (".html", b"<!doctype html>", "page"),
    (".py", b'"""A fixed transformer with one embedding, as a plain torch.nn.Module', "module"),
)
"""Files that are no JSON: ending, first bytes, kind."""
BENCHMARKS = ("exact", "certify", "emulate", "train", "all")
_SIGNS = {
    "verify": ("claims", "grid", "holds"),
    "frontier": ("entries", "bounds", "sides"),
    "emulation": ("comparisons", "quantiles", "max_relative_error"),
}
"""A document that has two of these keys is of the kind."""
_NAMES = ("verify", "frontier", "emulat", "bench")
"""How names of files begin that ought to be understood."""


@dataclass(frozen=True)
class Source:
    """A file of the folder. name: its path inside; kind: a key of KINDS, None where it is not understood; why: the reason."""

    name: str
    size: int
    digest: str
    kind: str | None
    document: Any = None
    why: str = ""


@dataclass
class Gathered:
    """All files of a folder."""

    folder: str
    sources: list[Source] = field(default_factory=list)
    forms: Mapping[str, Any] = field(default_factory=lambda: COMMANDS)

    def of(self, kind: str) -> list[Source]:
        """The files of one kind, in order of their names."""
        return [source for source in self.sources if source.kind == kind]


def gather(folder: Path, *, skip: Path | None = None, forms: Mapping[str, Any] = COMMANDS) -> Gathered:
    """Read a folder and its subfolders; `skip` (the page to be written) and hidden files are left out. forms: of what
    commands print.

    MalformedInput where it is no folder, where nothing in it is understood, or where a file that bears the name of a known
    kind is no JSON. ResourceLimit for more than MOST_FILES files or a file of more than MOST_BYTES.
    """
    if not folder.is_dir():
        raise MalformedInput(f"{folder} is no folder of results; `utfproof report` alone says how to fill one")
    left_out = None if skip is None else skip.absolute()
    found = Gathered(str(folder), forms=forms)
    for path in _files(folder):
        if path.absolute() == left_out:
            continue
        if len(found.sources) >= MOST_FILES:
            raise ResourceLimit(f"{folder} holds more than {MOST_FILES} files; gather the results in a smaller one")
        found.sources.append(_source(path, str(path.relative_to(folder)), forms))
    if not any(source.kind for source in found.sources):
        raise MalformedInput(
            f"{folder} holds no results that are understood; `utfproof report` alone says what makes them"
        )
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Plain files in order of their paths; links to folders are not followed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise MalformedInput(f"cannot read {folder}: {error.strerror or error}") from error
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not path.is_symlink():
                yield from _files(path)
        elif path.is_file() or path.is_symlink():
            yield path


def _source(path: Path, name: str, forms: Mapping[str, Any]) -> Source:
    if path.suffix == ".jsonl" and path.exists() and path.stat().st_size <= MOST_BYTES:
        data = read_bytes(path)
        found = lines_of(data)
        if found is not None:
            return Source(name, len(data), hashlib.sha256(data).hexdigest(), *found)
    if path.suffix != ".json":
        size = path.stat().st_size if path.exists() else 0
        kind = _beside(path, size) if size else None
        return Source(name, size, "", kind, why="" if kind else "no JSON")
    if path.exists() and path.stat().st_size > MOST_BYTES:
        raise ResourceLimit(f"{path} has {path.stat().st_size} bytes, at most {MOST_BYTES} are read")
    data = read_bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    try:
        document = json.loads(data, parse_constant=_no_constant)
        require_text(document, data)
    except (ValueError, RecursionError) as error:
        if path.name.startswith(_NAMES) or path.parent.name == "training":
            reason = " ".join(plain(error).split())[:120]
            raise MalformedInput(f"{path} is no JSON: {reason}; make it again, or take it away") from None
        return Source(name, len(data), digest, None, why="no JSON")
    kind = kind_of(document, forms)
    return Source(name, len(data), digest, kind, document if kind else None, "" if kind else _what(document))


def _beside(path: Path, size: int) -> str | None:
    """The kind of a file that is no JSON, by how it begins; of a sidecar, by its name."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(128)
            if re.fullmatch(r"[0-9a-f]{64}\.bin", path.name):  # others are not worth reading whole
                stream.seek(0)
                return "sidecar" if hashlib.file_digest(stream, "sha256").hexdigest() == path.stem else None
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    if path.suffix == ".safetensors" and begin[8:9] == b"{" and int.from_bytes(begin[:8], "little") <= size - 8:
        return "weights"
    if path.name == "log.jsonl" and begin.startswith(b'{"device": '):
        return "unfinished"
    return next(
        (kind for ending, first, kind in _BEGINNINGS if path.suffix == ending and begin.startswith(first)), None
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def kind_of(document: Any, forms: Mapping[str, Any] = COMMANDS) -> str | None:
    """The kind of a document, by its content; None where it is of none."""
    if not isinstance(document, dict):
        return None
    if (named := _FORMATS.get(str(document.get("format")))) is not None:
        return named
    if document.get("benchmark") in BENCHMARKS:
        return "bench"
    if "cases" in document and "totals" in document:
        return "emulation"
    for kind, keys in _SIGNS.items():
        if sum(key in document for key in keys) >= 2:
            return kind
    if is_certificate(document):
        return "certificate"
    return sweep_file(document) or ("output" if command_of(document, forms) else None)


def _what(document: Any) -> str:
    """A hint at what another document is: its outermost keys."""
    if not isinstance(document, dict):
        return f"JSON, a {type(document).__name__}"
    keys = ", ".join(plain(key)[:24] for key in list(document)[:5])
    return f"JSON with {keys}{', …' * (len(document) > 5)}" if keys else "JSON, empty"


def refuse(source: str, what: str) -> NoReturn:
    """A document that speaks against itself, or two that speak against each other."""
    raise MalformedInput(f"{source} contradicts itself: {what}; make it again")
