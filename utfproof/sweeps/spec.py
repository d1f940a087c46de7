"""Sweep files: a TOML table [sweep] with a name, and grids of jobs, [[jobs]], each key a value or a list of values.

Everything is checked before anything runs; what is wrong is said in one line that names the place.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, ResourceLimit, UtfproofError
from utfproof.ground.files import read_bytes
from utfproof.ground.threads import MOST
from utfproof.jobs.groups import DIMENSIONS
from utfproof.jobs.parameters import REQUIRED, Parameter, keys
from utfproof.jobs.registry import job as job_named
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import span
from utfproof.sweeps.jobs import SweepJob

MAX_JOBS = 2_000_000
CHECKED = 10_000
"""Jobs up to which all are prepared before anything runs; of more, every value of every key is, and each job in its turn."""
_LARGEST = {"seed": 2**64 - 1, "positive": 2**53 - 1, "parallel": MOST, "integer": 2**53 - 1}


@dataclass(frozen=True)
class Sweep:
    """What a file asks for: jobs in its order, the last key of a grid varying fastest. folder: where the file is."""

    name: str
    grids: tuple[_Grid, ...]
    folder: Path

    @property
    def size(self) -> int:
        """Combinations of all grids; a job may be asked for by several, and a pattern of weights or claims is more than one."""
        return sum(grid.size for grid in self.grids)

    @property
    def is_large(self) -> bool:
        """Whether jobs are planned while others run, and go to workers in batches."""
        return self.size > CHECKED

    @cached_property
    def jobs(self) -> tuple[SweepJob, ...]:
        """All of them."""
        return tuple(self.planned())

    @cached_property
    def repeated(self) -> int:
        """How many jobs there were that ask for the same as an earlier one."""
        return sum(1 for grid in self.grids for _ in grid.jobs(self.folder)) - len(self.jobs)

    def planned(self) -> Iterator[SweepJob]:
        """The jobs one after another, each once."""
        seen: set[bytes] = set()
        for grid in self.grids:
            for job in grid.jobs(self.folder):
                key = bytes.fromhex(job.key)
                if key not in seen:
                    seen.add(key)
                    yield job


def read_spec(path: Path | str) -> Sweep:
    """The jobs of a sweep file. MalformedInput naming the first thing that is wrong; ResourceLimit above MAX_JOBS."""
    path = Path(path)
    try:
        document = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedInput(f"{path} is not TOML: {error}") from error
    return parse_spec(document, path.absolute().parent, str(path))


def parse_spec(document: Mapping[str, Any], folder: Path, source: str = "sweep") -> Sweep:
    """The same of a document read already; weights are looked for in `folder`."""
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
    grids = [_Grid(group, f"{source}: [[jobs]] number {i}") for i, group in enumerate(groups, start=1)]
    asked = sum(grid.size for grid in grids)
    if asked > MAX_JOBS:
        raise ResourceLimit(f"{source} asks for {asked} jobs, more than {MAX_JOBS}; split it")
    sweep = Sweep(name, tuple(grids), folder)
    if sweep.is_large:
        for grid in grids:
            grid.check(folder)
    else:
        _ = sweep.jobs
    return sweep


class _Grid:
    """One [[jobs]] table: its command and the values of every key."""

    def __init__(self, table: Mapping[str, Any], place: str) -> None:
        name = table.get("command")
        if not isinstance(name, str):
            raise MalformedInput(f'{place}: command is missing; write for example command = "certify"')
        self.place = f"{place} ({name})"
        try:
            self.name, self.command = job_named(name)
        except MalformedInput as error:
            raise MalformedInput(f"{place}: {error}") from error
        self.parameters = parameters = keys(self.command)
        shaped = {*DIMENSIONS} <= parameters.keys()
        _known(table, ("command", *parameters, *(["shape"] if shaped else [])), self.place)
        self.axes: dict[str, Sequence[Mapping[str, Any]]] = {}
        for key, given in table.items():
            if key == "command":
                continue
            if key == "shape":
                self.axes[key] = self._shapes(table, given)
            else:
                self.axes[key] = _Axis(key, _values(f"{self.place}: {key}", parameters[key], given))
        covered = {*table, *(DIMENSIONS if "shape" in table else ())}
        missing = [key for key, entry in parameters.items() if entry.default is REQUIRED and key not in covered]
        if missing:
            raise MalformedInput(f"{self.place}: {', '.join(missing)} missing")
        self.size = math.prod(len(axis) for axis in self.axes.values())

    def _shapes(self, table: Mapping[str, Any], given: Any) -> list[Mapping[str, Any]]:
        place = f"{self.place}: shape"
        both = [name for name in DIMENSIONS if name in table]
        if both:
            raise MalformedInput(f"{place} cannot be combined with {', '.join(both)}")
        found: list[Mapping[str, Any]] = []
        for value in given if isinstance(given, list) and given else [given]:
            dimensions: Any = PAPER_TABLE_SHAPES.get(value) if isinstance(value, str) else value
            whole = isinstance(dimensions, list | tuple) and all(type(v) is int and v > 0 for v in dimensions)
            if not whole or len(dimensions) not in (4, 5):
                raise MalformedInput(
                    f"{place} has {value!r}; write a list of [H, L, d, d_in] or [H, L, d, d_in, d_out], or of table shapes "
                    f"({', '.join(PAPER_TABLE_SHAPES)})"
                )
            found.append(dict(zip(DIMENSIONS, [*dimensions, None][:5], strict=False)))
        return found

    def check(self, folder: Path) -> None:
        """Prepare the jobs that ranges have at their ends; where these are too many as well, one for every value of every key.
        MalformedInput where that fails."""
        axes = [list(axis.ends()) if isinstance(axis, _Axis) else list(axis) for axis in self.axes.values()]
        if math.prod(map(len, axes)) <= CHECKED:
            combinations: Iterable[Sequence[Mapping[str, Any]]] = itertools.product(*axes)
        else:
            first = [axis[0] for axis in axes]
            combinations = [(*first[:n], value, *first[n + 1 :]) for n, axis in enumerate(axes) for value in axis]
        for _ in self._prepared(folder, combinations):
            pass

    def jobs(self, folder: Path) -> Iterator[SweepJob]:
        """Every combination, prepared by its command."""
        return self._prepared(folder, _combinations(tuple(self.axes.values())))

    def _prepared(self, folder: Path, combinations: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[SweepJob]:
        defaults = {key: None if entry.default is REQUIRED else entry.default for key, entry in self.parameters.items()}
        versions = _versions(self.command)
        for combination in combinations:
            given = dict(defaults)
            for part in combination:
                given.update(part)
            try:
                for parameters, files in self.command.prepared(given, folder):
                    kept = {name: value for name, value in parameters.items() if value is not None}
                    yield SweepJob(self.name, kept, versions, files)
            except UtfproofError as error:
                raise type(error)(f"{self.place}: {error}") from error


def _combinations(axes: tuple[Sequence[Mapping[str, Any]], ...]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """One value of each, the last varying fastest; unlike itertools.product, a long range is never held."""
    if not axes:
        yield ()
        return
    for value in axes[0]:
        for rest in _combinations(axes[1:]):
            yield (value, *rest)


def _versions(command: Any) -> dict[str, int | str]:
    """Of the formats that results are written in."""
    from utfproof.certificates.format import VERSION

    return {"result": command.version, **({"certificate": VERSION} if command.certified else {})}


class _Axis(Sequence[Mapping[str, Any]]):
    """The values of one key, which may be long ranges: {key: value} for each."""

    def __init__(self, key: str, pieces: list[Sequence[Any]]) -> None:
        self.key, self.pieces = key, pieces
        self.length = sum(_length(piece) for piece in pieces)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return ({self.key: value} for value in itertools.chain.from_iterable(self.pieces))

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def ends(self) -> Iterator[Mapping[str, Any]]:
        """The values, of ranges the first and the last."""
        for piece in self.pieces:
            values = dict.fromkeys((piece[0], piece[-1])) if isinstance(piece, range) else piece
            yield from ({self.key: value} for value in values)


def _length(piece: Sequence[Any]) -> int:
    return piece.stop - piece.start if isinstance(piece, range) else len(piece)


def _known(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """MalformedInput naming a key that means nothing here."""
    known = list(known)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise MalformedInput(f"{place}: key {key!r} is unknown; {hint}")


def _values(place: str, parameter: Parameter, given: Any) -> list[Sequence[Any]]:
    """The values of one key, in pieces: lists of one, and ranges."""
    values = given if isinstance(given, list) else [given]
    if not values:
        raise MalformedInput(f"{place} is an empty list")
    pieces: list[Sequence[Any]] = [_piece(place, parameter, value) for value in values]
    if sum(_length(piece) for piece in pieces) > MAX_JOBS:
        raise ResourceLimit(f"{place} has more than {MAX_JOBS} values; split it")
    return pieces


def _piece(place: str, parameter: Parameter, value: Any) -> Sequence[Any]:
    kind = parameter.kind
    if kind in _LARGEST:
        return _integers(place, kind, value)
    if kind == "flag" and isinstance(value, bool):
        return [value]
    if (
        kind in ("number", "amount", "seconds")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    ):
        return [parameter.check(place, float(value))]
    if kind == "lengths" and type(value) is int:
        return [str(value)]
    if kind in ("text", "lengths") and isinstance(value, str):
        return [parameter.check(place, value)]
    expected = {"flag": "true or false", "text": "a text", "lengths": 'such as 64 or "1,7,64"'}
    raise MalformedInput(f"{place} has {value!r}, expected {expected.get(kind, 'a number')}")


def _integers(place: str, kind: str, value: Any) -> Sequence[int]:
    """One integer, or a range written "0..99"."""
    least = {"positive": 1, "parallel": 1, "seed": 0, "integer": -(2**53 - 1)}[kind]
    written = span(value) if isinstance(value, str) and ".." in value else None
    if written is not None:
        first, last = written
    elif type(value) is int:
        first = last = value
    else:
        raise MalformedInput(f'{place} has {value!r}, expected integers, or a range such as "0..99"')
    if last < first:
        raise MalformedInput(f"{place} has the empty range {value!r}; write the smaller number first")
    if first < least or last > _LARGEST[kind]:
        raise MalformedInput(f"{place} has {value!r}, expected {least} ... {_LARGEST[kind]}")
    return range(first, last + 1)
