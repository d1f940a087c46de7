"""The base of every command, what it returns, and what a sweep asks of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from utfproof.errors import MalformedInput, UtfproofError
from utfproof.jobs.parameters import REQUIRED, parameters

VERDICTS = {0: "holds", 1: "refuted", 4: "undecided"}
"""Of a job whose document has none, by its exit code."""


@dataclass(frozen=True)
class Outcome:
    """What a command found.

    document: for machines. For people: a title with rows (a table of two columns), or with a header and lines (a table of
    many) and notes below; or words printed by `text`, after rows where there are any. Then, for both, what `closing` says on
    standard error, and the exit code, or a failure whose line is said last.
    """

    document: dict[str, Any]
    title: str = ""
    rows: Mapping[str, Any] | None = None
    exit_code: int = 0
    header: tuple[str, ...] = ()
    lines: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: Callable[[], None] | None = None
    closing: Callable[[], None] | None = None
    failure: UtfproofError | None = None


@dataclass(frozen=True)
class Context:
    """What a job in a sweep may know beside its parameters; nothing of it may enter the result. key: for naming files."""

    key: str
    files: Mapping[str, str] = field(default_factory=dict)
    max_memory: int | None = None


Prepared = tuple[dict[str, Any], dict[str, str]]
"""Canonical parameters, and the files that they name by digest."""
Found = tuple[dict[str, Any], dict[str, bytes]]
"""A result, which has a "verdict", and the files beside it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One command: its docstring is its help, its fields its options (and the keys of a sweep), `run` what it does.

    A class says its place in --help, `order=`, and its `name=` where that is not the name of its module. examples: what its
    help ends with. form: of what it prints with --json, where reporting/documents has none (ground/forms says how). moved:
    options that it had once, and what to write now. version: of the result in a sweep, raised when its content changes;
    certified: whether the result is written in the certificate format as well.
    """

    examples = ""
    form: ClassVar[Any] = None
    moved: ClassVar[dict[str, str]] = {}
    version = 1
    certified = False
    stated: frozenset[str] = field(default=frozenset(), compare=False)
    """Fields that were given in so many words, whatever their value."""

    def __init_subclass__(cls, *, order: int | None = None, name: str | None = None) -> None:
        """order, name: read from the source by the registry."""

    def says(self, name: str) -> bool:
        """Whether this field was given in so many words."""
        return name in self.stated

    def run(self) -> Outcome:
        """Do it."""
        raise NotImplementedError

    # --- in a sweep ---

    @classmethod
    def prepared(cls, given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
        """Canonical parameters of one combination of a grid, everything filled in, so that two ways of asking for one thing
        have one key; None is left out. `folder`: where the sweep's file is. Nothing is run."""
        needed = [entry for entry in parameters(cls).values() if entry.default is REQUIRED and not entry.written]
        if files := ", ".join(entry.label for entry in needed if not entry.is_key):
            raise MalformedInput(f"no key of a sweep names {files}; run the command by itself")
        yield given, {}

    @classmethod
    def of(cls, given: Mapping[str, Any], *, max_memory: int | None = None, **outputs: Path) -> Any:
        """The job of these parameters; lists stand for comma-separated text, outputs that are not named are not meant to be
        written."""
        values = {
            name: ",".join(map(str, value)) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        known = parameters(cls)
        wanted = {name: Path() for name, entry in known.items() if entry.written and entry.default is REQUIRED}
        limit = {} if max_memory is None or "max_memory" not in known else {"max_memory": str(max_memory)}
        return cls(**{**wanted, **values, **limit, **outputs}, stated=frozenset(values))

    def _with(self, values: Mapping[str, Any]) -> Any:
        return replace(self, **values)

    def found(self, context: Context) -> Found:
        """The result of this job in a sweep, and the files beside it: what `run` finds, its document and the files that it must
        write, unless a command has a shorter one. A function of the parameters alone: no time, path or host name is in it."""
        with tempfile.TemporaryDirectory() as name:
            wanted = {
                part: Path(name) / f"{context.key}.json"
                for part, entry in parameters(type(self)).items()
                if entry.written and entry.default is REQUIRED
            }
            said = self.stated | {"as_json"}  # the document is what a sweep keeps
            outcome = self._with({**wanted, "stated": said}).run()
            files = {path.name: path.read_bytes() for path in sorted(Path(name).iterdir())}
            document = json.loads(json.dumps(outcome.document, default=str).replace(f"{name}/", ""))
        return {"verdict": VERDICTS.get(outcome.exit_code, "done"), **document}, files
