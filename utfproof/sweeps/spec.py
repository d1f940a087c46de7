"""Sweep files: a TOML table [sweep] with a name, and grids of jobs, [[jobs]], each key a value or a list of values.

The whole file is checked before anything runs; an error is one line that names the table and the key.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from utfproof.cli.options import WRITTEN
from utfproof.cli.registry import NAMES, Parameter, load, parameters
from utfproof.errors import MalformedInput, ResourceLimit, choose
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import span
from utfproof.sweeps.jobs import SweepJob, sha256
from utfproof.util.files import read_bytes

DIMENSIONS = ("heads", "layers", "head_dim", "d_in", "d_out")
APART = ("check", "sweep", "glossary")
"""Commands that sweeps don't run."""
NO_KEYS = ("max_memory", "threads", "workers", "results", "checkpoint_every", "log_every", "seeds", "listing")
"""Options that a sweep sets itself, or that say where and how one run is shown; `output` and other files are too."""
MAX_JOBS = 200_000
LARGEST = 2**64 - 1
_EXPECTED = {bool: "true or false", int: 'integers, or a range such as "0..99"', float: "a number", str: "a text"}
Values = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Sweep:
    """Jobs in the order of the file, the last key of a grid varying fastest, each once. repeated: how many asked for the same
    as an earlier one."""

    name: str
    jobs: tuple[SweepJob, ...]
    repeated: int


def read_spec(path: Path | str) -> Sweep:
    """The jobs of a sweep file. MalformedInput naming the first mistake; ResourceLimit above MAX_JOBS."""
    path = Path(path)
    try:
        document = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedInput(f"{path} is not TOML: {error}") from error
    return parse_spec(document, path.absolute().parent, str(path))


def parse_spec(document: Mapping[str, Any], folder: Path, source: str = "sweep") -> Sweep:
    """The same of a parsed document; input files are looked for in `folder`."""
    _known(document, ("sweep", "jobs"), source)
    head, groups = document.get("sweep"), document.get("jobs")
    if not isinstance(head, Mapping):
        raise MalformedInput(f"{source}: table [sweep] with a name is missing")
    _known(head, ("name", "description"), f"{source}: [sweep]")
    name = head.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise MalformedInput(f"{source}: [sweep] name must be letters, digits, '.', '_' or '-', got {name!r}")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        raise MalformedInput(f"{source}: no jobs; write at least one table [[jobs]] with a command")
    grids = [Grid(group, f"{source}: [[jobs]] number {i}", folder) for i, group in enumerate(groups, start=1)]
    size = sum(grid.size for grid in grids)
    if size > MAX_JOBS:
        raise ResourceLimit(f"{source} asks for {size} jobs, more than {MAX_JOBS}; split it")
    asked = [job for grid in grids for job in grid.jobs()]
    jobs = tuple({job.key: job for job in asked}.values())
    return Sweep(name, jobs, len(asked) - len(jobs))


class Grid:
    """One [[jobs]] table: its command and the values of every key."""

    def __init__(self, table: Mapping[str, Any], place: str, folder: Path) -> None:
        name = table.get("command")
        if not isinstance(name, str):
            raise MalformedInput(f'{place}: command is missing; write for example command = "certify"')
        self.command, self.place, self.folder = name, f"{place} ({name})", folder
        self.keys = keys = keys_of(name, place)
        _known(table, ("command", *keys, *(["shape"] if {*DIMENSIONS} <= keys.keys() else [])), self.place)
        self.axes: list[Values] = []
        for key, given in table.items():
            if key == "shape":
                self.axes.append(self._shapes(table, given))
            elif key != "command":
                self.axes.append(self._axis(keys[key], given))
        covered = {*table, *(DIMENSIONS if "shape" in table else ())}
        if missing := [key for key, known in keys.items() if known.required and key not in covered]:
            raise MalformedInput(f"{self.place}: {', '.join(missing)} missing")
        self.size = math.prod(map(len, self.axes))

    def _shapes(self, table: Mapping[str, Any], given: Any) -> Values:
        place = f"{self.place}: shape"
        if both := [name for name in DIMENSIONS if name in table]:
            raise MalformedInput(f"{place} cannot be combined with {', '.join(both)}")
        shapes: list[Mapping[str, Any]] = []
        for value in given if isinstance(given, list) and given else [given]:
            numbers: Any = PAPER_TABLE_SHAPES.get(value) if isinstance(value, str) else value
            whole = isinstance(numbers, list | tuple) and all(type(v) is int and v > 0 for v in numbers)
            if not whole or len(numbers) not in (4, 5):
                raise MalformedInput(
                    f"{place} has {value!r}; write a list of [H, L, d, d_in] or [H, L, d, d_in, d_out], or of table shapes "
                    f"({', '.join(PAPER_TABLE_SHAPES)})"
                )
            shapes.append(dict(zip(DIMENSIONS, [*numbers, None][:5], strict=False)))
        return shapes

    def _axis(self, key: Parameter, given: Any) -> Values:
        """The values of one key; a pattern of file names gives every file that fits."""
        place = f"{self.place}: {key.name}"
        ranges = [_values(place, key, value) for value in (given if isinstance(given, list) else [given])]
        if not ranges:
            raise MalformedInput(f"{place} is an empty list")
        if sum(found[-1] - found[0] + 1 if isinstance(found, range) else 1 for found in ranges) > MAX_JOBS:
            raise ResourceLimit(f"{place} has more than {MAX_JOBS} values; split it")
        values = [value for found in ranges for value in found]
        if key.kind is Path:
            values = [path for value in values for path in self._files(place, value)]
        return [{key.name: value} for value in values]

    def _files(self, place: str, text: str) -> list[str]:
        """The names of the files that fit, relative to the sweep's own file unless absolute."""
        if not any(sign in text for sign in "*?["):
            return [text]
        anchor = Path(text).anchor
        top = Path(anchor) if anchor else self.folder
        found = sorted(path for path in top.glob(text.removeprefix(anchor)) if path.is_file())
        if not found:
            raise MalformedInput(f"{place}: no file fits {text!r}")
        return [str(path) if anchor else str(path.relative_to(self.folder)) for path in found]

    def jobs(self) -> Iterator[SweepJob]:
        """Every combination, with the digests of the files that it reads."""
        digests: dict[str, str] = {}
        for combination in itertools.product(*self.axes):
            given = {name: value for part in combination for name, value in part.items()}
            kept = {key: given.get(key, known.default) for key, known in self.keys.items()}
            files = {}
            for key, known in self.keys.items():
                path = self.folder / str(kept[key])
                may_name = known.kind is Path or (known.names_file and path.is_file())
                if given.get(key) is not None and may_name:
                    if str(path) not in digests:
                        digests[str(path)] = sha256(read_bytes(path))
                    files[key] = digests[str(path)]
            kept = {key: value for key, value in kept.items() if value is not None}
            yield SweepJob(self.command, kept, files, self.folder if files else Path())


def keys_of(command: str, place: str) -> dict[str, Parameter]:
    """What a sweep may set of a command: options that say what is run. MalformedInput where it cannot be run here."""
    known = [name for name in NAMES if name not in APART]
    if command not in known:
        raise MalformedInput(f"{place}: command {command!r} is unknown; {choose(command, known)}")
    try:
        found = parameters(load(command))
    except ModuleNotFoundError as error:
        raise MalformedInput(f"{place}: command {command!r} cannot run here: module {error.name} is missing") from error
    return {
        name: one
        for name, one in found.items()
        if name not in NO_KEYS and name != "output" and one.info.parser not in WRITTEN
    }


def _known(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """MalformedInput naming an unknown key and the nearest known one."""
    known = list(known)
    for key in table:
        if key not in known:
            raise MalformedInput(f"{place}: key {key!r} is unknown; {choose(key, known)}")


def _values(place: str, key: Parameter, value: Any) -> Sequence[Any]:
    """One value in a list, or a range written "0..99". MalformedInput for another type, or a value that the option refuses."""
    kind = key.kind if key.kind in (bool, int, float) else str
    if kind is int and isinstance(value, str) and ".." in value and (ends := span(value)):
        if ends[1] < ends[0]:
            raise MalformedInput(f"{place} has the empty range {value!r}; write the smaller number first")
        for end in ends:
            _checked(place, key, end)
        return range(ends[0], ends[1] + 1)
    allowed = {bool: (bool,), int: (int,), float: (int, float), str: (int, str)}[kind]
    if type(value) not in allowed or (kind is float and not math.isfinite(value)):
        raise MalformedInput(f"{place} has {value!r}, expected {_EXPECTED[kind]}")
    return [_checked(place, key, kind(value))]


def _checked(place: str, key: Parameter, value: Any) -> Any:
    """The value as the command line would read it."""
    if key.info.parser is None or key.kind is Path:
        return value
    try:
        return key.info.parser(value)
    except typer.BadParameter as error:
        raise MalformedInput(f"{place} {error.message}") from error
