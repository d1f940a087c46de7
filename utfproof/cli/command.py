"""Commands: a plain function a file in utfproof/commands, whose parameters are options, and the keys of a sweep.

The function's docstring is the help. It returns an `Outcome`; --json, --progress, outputs that never share a file and exit
codes are added here.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import tempfile
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from utfproof.cli.display import require_mode, shown
from utfproof.cli.options import DIMENSIONS, More, option_of, required_shape
from utfproof.cli.outcome import Outcome
from utfproof.cli.output import show
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, write_json
from utfproof.ground.progress import stage
from utfproof.ground.resources import limits
from utfproof.shapes import Shape
from utfproof.sweeps.jobs import REQUIRED, Context, Found, Key

VERDICTS = {0: "holds", 1: "refuted", 4: "undecided"}
"""Of a result whose document has none, by the exit code."""
Prepared = tuple[dict[str, Any], dict[str, str]]
"""Canonical parameters, and the files that they name by digest."""
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
ProgressMode = Annotated[
    str, typer.Option("--progress", help="auto: live, on a terminal; plain: a line for each stage on stderr; none.")
]
PATHS = (Path, Path | None)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command's function. base: its type without None; hint: its type with Typer's part."""

    name: str
    hint: Any
    base: Any
    default: Any
    info: Any

    @property
    def more(self) -> More:
        """Beside Typer's part."""
        return typing.cast(More, getattr(self.info, "more", More()))

    @property
    def is_argument(self) -> bool:
        """A word without an option."""
        return isinstance(self.info, ArgumentInfo)

    @property
    def label(self) -> str:
        """How a message names it: the option, or the argument in capitals."""
        if self.is_argument:
            return str(self.info.metavar or self.name.upper())
        names = self.info.param_decls or ()
        return next((word for word in names if word.startswith("--")), option_of(self.name)).partition("/")[0]

    @property
    def is_key(self) -> bool:
        """Whether a sweep has it."""
        more = self.more
        return more.text or (not more.aside and not more.written and self.base in (bool, int, float, str))

    def check(self, label: str, value: Any) -> Any:
        """The value; MalformedInput where it cannot be this parameter's."""
        return value if value is None or self.more.check is None else self.more.check(label, value)


class Given:
    """The values of a command's parameters as attributes, for the functions that share them. stated: given in so many words."""

    def __init__(self, values: Mapping[str, Any], stated: frozenset[str] = frozenset()) -> None:
        self.__dict__.update({"stated": stated, **values})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this command has no parameter {name}")

    @property
    def dimensions(self) -> dict[str, int | None]:
        """The parts of a shape."""
        return {name: getattr(self, name) for name in DIMENSIONS}

    @property
    def shape(self) -> Shape:
        """The shape, or MalformedInput naming the options that are missing."""
        return required_shape(self.dimensions, residual=bool(self.residual))


@dataclass(frozen=True)
class Command:
    """A function as a command line and as a command of sweeps.

    In a sweep: prepare turns one combination of a grid into canonical parameters, everything filled in, so that two ways of
    asking for one thing have one key. find: the result of canonical parameters, where it is not what the function itself
    returns. version: of that result; certified: it is written in the certificate format as well. aside: shared options that
    are no keys of a sweep here.
    """

    function: Callable[..., Outcome]
    name: str
    examples: str
    version: int = 1
    certified: bool = False
    prepare: Callable[[dict[str, Any], Path], Iterator[Prepared]] | None = None
    find: Callable[[Given, Context], Found] | None = None
    aside: tuple[str, ...] = ()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """By name."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        return {
            name: _parameter(name, hints[name], given.default)
            for name, given in inspect.signature(self.function).parameters.items()
            if name != "stated"
        }

    def register(self, app: typer.Typer, name: str) -> None:
        """Add it to an application."""
        app.command(name, epilog=self.examples, help=inspect.getdoc(self.function), cls=Shown)(self._entry())

    def _entry(self) -> Callable[..., Any]:
        """The function that Typer is given: with --json and --progress."""

        def entry(typer_context: typer.Context, as_json: bool, progress_mode: str, **values: Any) -> None:
            self._run(values, as_json, progress_mode, _stated(typer_context))

        entry.outputs = self.outputs  # type: ignore[attr-defined]
        hints = {
            "typer_context": typer.Context,
            **{name: _annotated(entry) for name, entry in self.parameters.items()},
            "as_json": AsJson,
            "progress_mode": ProgressMode,
        }
        defaults = {name: entry.default for name, entry in self.parameters.items()}
        defaults |= {"as_json": False, "progress_mode": "auto"}
        entry.__annotations__ = hints
        entry.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    annotation=hint,
                    default=inspect.Parameter.empty if defaults.get(name, REQUIRED) is REQUIRED else defaults[name],
                )
                for name, hint in hints.items()
            ]
        )
        return entry

    @property
    def outputs(self) -> dict[str, str]:
        """Files that it writes: parameter and option."""
        return {name: entry.label for name, entry in self.parameters.items() if entry.more.written}

    def _run(self, values: dict[str, Any], as_json: bool, progress_mode: str, stated: frozenset[str]) -> None:
        require_mode(progress_mode)
        known, outputs = self.parameters, self.outputs
        paths = {name for name, entry in known.items() if entry.base is Path and values[name] is not None}
        require_apart(
            {outputs[name]: values[name] for name in outputs if name in paths},
            {known[name].label: values[name] for name in known if name in paths and name not in outputs},
        )
        for name, entry in known.items():
            values[name] = entry.check(entry.label, values[name])
        require_writable(*(values[name] for name in outputs))
        with shown(progress_mode), stage(self.name, whole=True):
            with limits(None, values.get("max_seconds"), self.name):
                outcome = self.call(values, stated)
            for name, entry in known.items():
                if entry.more.document and values[name] is not None:
                    write_json(values[name], outcome.document)
            show(outcome, as_json=as_json)
        if outcome.closing is not None:
            outcome.closing()
        if outcome.failure is not None:
            raise outcome.failure
        raise typer.Exit(outcome.exit_code)

    def call(self, values: Mapping[str, Any], stated: frozenset[str]) -> Outcome:
        """Call the function; stated: the names of what was given in so many words, where it asks for them."""
        more = {"stated": stated} if "stated" in inspect.signature(self.function).parameters else {}
        return self.function(**values, **more)

    # --- in a sweep ---

    @property
    def keys(self) -> dict[str, Key]:
        """What a sweep may set: options that say what is run."""
        return {
            name: Key(
                str if entry.more.text else entry.base, REQUIRED if entry.more.needed else entry.default, entry.check
            )
            for name, entry in self.parameters.items()
            if entry.is_key and name not in self.aside
        }

    @property
    def versions(self) -> dict[str, int | str]:
        """Of the formats that results are written in."""
        from utfproof.certificates.format import VERSION

        return {"result": self.version, **({"certificate": VERSION} if self.certified else {})}

    def prepared(self, given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
        """Canonical parameters of one combination. Nothing is run."""
        if self.prepare is not None:
            yield from self.prepare(given, folder)
            return
        needed = [p for p in self.parameters.values() if p.default is REQUIRED and not p.more.written and not p.is_key]
        if needed:
            files = ", ".join(entry.label for entry in needed)
            raise MalformedInput(f"no key of a sweep names {files}; run the command by itself")
        yield given, {}

    def result(self, parameters: Mapping[str, Any], context: Context) -> Found:
        """The result of canonical parameters, and the files beside it: a function of the parameters alone."""
        if self.find is not None:
            return self.find(Given(self.filled(parameters, context.max_memory), frozenset(parameters)), context)
        with tempfile.TemporaryDirectory() as place:
            values = self.filled(parameters, context.max_memory)
            for name, entry in self.parameters.items():
                if entry.more.written and entry.default is REQUIRED:
                    values[name] = Path(place) / f"{context.key}.json"
            outcome = self.call(values, frozenset({*parameters, "as_json"}))
            files = {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}
            document = json.loads(json.dumps(outcome.document, default=str).replace(f"{place}/", ""))
        return {"verdict": VERDICTS.get(outcome.exit_code, "done"), **document}, files

    def filled(self, parameters: Mapping[str, Any], max_memory: int | None = None) -> dict[str, Any]:
        """Every parameter of the function: these, else its default; lists as comma-separated text."""
        values = {name: None if p.default is REQUIRED else p.default for name, p in self.parameters.items()}
        for name, value in parameters.items():
            if value is not None:
                values[name] = ",".join(map(str, value)) if isinstance(value, list) else value
        if "max_memory" in values:
            values["max_memory"] = max_memory
        return values


def command(examples: str, *, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
    """Make a function a command; `more` as in `Command`. The function stays as it is, its attribute `command` is new."""

    def decorate(function: Any) -> Any:
        function.command = Command(function, name or function.__name__.replace("_", "-"), examples, **more)
        return function

    return decorate


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    base, *infos = typing.get_args(hint)
    plain = next(part for part in typing.get_args(base) if part is not type(None)) if _is_union(base) else base
    given = REQUIRED if default is inspect.Parameter.empty else default
    return Parameter(name, hint, typing.get_origin(plain) or plain, given, infos[0])


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def _stated(context: typer.Context) -> frozenset[str]:
    """Options that stand on the command line, whatever their value."""
    found = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in found.items() if source is not None and source.name == "COMMANDLINE")


# --- how words are read --------------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    """An integer in digits: int() takes 1_0 and spaces as well."""
    if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]{1,4000}", value, re.ASCII):
        raise typer.BadParameter(f"{quoted(value)} is not a valid integer.")
    return int(value)


def _number(value: Any) -> Any:
    """A number; float() takes 1_0 and spaces as well."""
    with contextlib.suppress(ValueError):
        if not isinstance(value, str) or (value.isascii() and not re.search(r"[_\s]", value)):
            return float(value)
    raise typer.BadParameter(f"{quoted(value)} is not a valid float.")


def _path(value: Any) -> Any:
    """A file or a folder; Path takes the empty name, of a variable that is not set, for the working directory."""
    if value == "":
        raise typer.BadParameter("an empty name; name a file or a folder, '.' for the working directory")
    return Path(value)


def _file(value: Any) -> Any:
    """A file to write; Path forgets that a name ends like a folder's."""
    if isinstance(value, str) and value.endswith("/"):
        raise typer.BadParameter(f"{value} names a folder; name a file")
    return _path(value)


def quoted(value: str) -> str:
    """For a message: cut where it is long."""
    return repr(value if len(value) <= 60 else f"{value[:60]}…")


def _annotated(entry: Parameter) -> Any:
    """The parameter's type, with a reader for its words."""
    readers = {int: (_whole, "<int>"), float: (_number, "<float>"), Path: (_path, "<path>")}
    if entry.info.parser is not None:
        entry.info.metavar = "<size>"
    if entry.base in readers and not (entry.is_argument and entry.base is Path) and entry.info.parser is None:
        read, metavar = readers[entry.base]
        entry.info.parser = _file if entry.more.written else read
        entry.info.metavar = entry.info.metavar or metavar
    return entry.hint


# --- outputs -------------------------------------------------------------------------------------------------------


def require_apart(outputs: dict[str, Path], inputs: dict[str, Path]) -> None:
    """MalformedInput, before any work, where two outputs name one file, or an output one of the command's inputs."""
    seen: list[tuple[str, Path]] = []
    for label, path in outputs.items():
        for other, earlier in seen:
            if same_file(path, earlier):
                raise MalformedInput(f"{other} and {label} name one file, {path}; give each output a file of its own")
        seen.append((label, path))
        for other, source in inputs.items():
            if source.is_file() and same_file(path, source):
                raise MalformedInput(
                    f"{label} {path} would overwrite an input of this command, {other}; choose another name"
                )


def same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, there or not yet: through links, dots, and other spellings of a folder."""
    try:
        if one.exists() and other.exists():
            return one.samefile(other)
        return os.path.realpath(one) == os.path.realpath(other)
    except OSError:  # a name that is too long, a loop of links: said where it is written
        return False


# --- help ----------------------------------------------------------------------------------------------------------


def summary(help_text: str) -> str:
    """The first paragraph of a help text, on one line."""
    return " ".join(help_text.split("\n\n")[0].split())


class Shown(TyperCommand):
    """A command whose sentence in the list of commands is not cut."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")


class Group(TyperGroup):
    """A group of commands, likewise."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")
