"""Commands: a plain function a file in utfproof/commands, whose parameters are options, and the keys of a sweep.

The function's docstring is the help. It returns an `Outcome`; --json, --progress, outputs that never share a file and exit
codes are added here.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from utfproof.cli.display import require_mode, shown
from utfproof.cli.options import DIMENSIONS, More, option_of
from utfproof.cli.outcome import Outcome
from utfproof.cli.output import show
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, write_json
from utfproof.ground.progress import stage
from utfproof.ground.resources import limits
from utfproof.shapes import positive_integer

REQUIRED: Any = ...
"""In place of a default."""
WIDTH = 100
"""Columns of a help text, at most."""
EVERYTHING = "utfproof.help-all"
"""In the context of a command whose every option is explained."""


def _help_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[EVERYTHING] = True
        print(context.get_help())
        raise typer.Exit()


COMMON: dict[str, tuple[Any, Any]] = {
    "max_seconds": (
        Annotated[int | None, typer.Option("--max-seconds", help="Time limit of the whole command in seconds.")],
        None,
    ),
    "progress_mode": (
        Annotated[str, typer.Option("--progress", help="auto: bars on a terminal; plain: a line a stage; none.")],
        "auto",
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")],
        False,
    ),
    "help_all": (Annotated[bool, typer.Option("--help-all", callback=_help_all, is_eager=True, hidden=True)], False),
}
"""Options of every command, with their defaults."""


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
    def names_file(self) -> bool:
        """Whether its value is a file's name, or may be one."""
        return self.base is Path or (self.is_argument and self.base is str)

    def check(self, label: str, value: Any) -> Any:
        """The value; MalformedInput where it cannot be this parameter's."""
        return value if value is None or self.more.check is None else self.more.check(label, value)


class Given:
    """The values of a command's options as attributes, for the functions that share them. stated: given on the command
    line."""

    def __init__(self, values: Mapping[str, Any], stated: frozenset[str] = frozenset()) -> None:
        self.__dict__.update({"stated": stated, **_flat(values)})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this command has no option {name}")

    @property
    def dimensions(self) -> dict[str, int | None]:
        """The parts of a shape."""
        return {name: getattr(self, name) for name in DIMENSIONS}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of each group of options in the group's place."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= vars(value) if is_dataclass(value) else {name: value}
    return found


class Command:
    """A function as a command line, and as a command of sweeps."""

    def __init__(self, function: Callable[..., Outcome], name: str, examples: str) -> None:
        self.function, self.name, self.examples = function, name, examples

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Parameters that stand for several options: dataclasses of `cli.options`."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        return {name: hint for name, hint in hints.items() if is_dataclass(hint) and name != "return"}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """By name, groups of options one by one."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        found: dict[str, Parameter] = {}
        for name, given in inspect.signature(self.function).parameters.items():
            if name in self._groups:
                own = typing.get_type_hints(hints[name], include_extras=True)
                found |= {
                    part.name: _parameter(part.name, own[part.name], part.default) for part in fields(hints[name])
                }
            elif name != "stated":
                found[name] = _parameter(name, hints[name], given.default)
        return found

    @property
    def keys(self) -> dict[str, Parameter]:
        """What a sweep may set: options that say what is run."""
        return {name: known for name, known in self.parameters.items() if not (known.more.aside or known.more.written)}

    @property
    def defaults(self) -> dict[str, Any]:
        """Every parameter's value where none is given; None where one has to be."""
        return {name: None if p.default is REQUIRED else p.default for name, p in self.parameters.items()}

    @property
    def outputs(self) -> dict[str, str]:
        """Files that it writes: parameter and option."""
        return {name: entry.label for name, entry in self.parameters.items() if entry.more.written}

    def register(self, app: typer.Typer, name: str) -> None:
        """Add it to an application, with the options that every command has."""

        def entry(typer_context: typer.Context, **values: Any) -> None:
            self._run(values, {name: values.pop(name) for name in COMMON}, _stated(typer_context))

        rare = {name for name, known in self.parameters.items() if known.more.advanced}
        entry.outputs = self.outputs  # type: ignore[attr-defined]
        entry.advanced = {*rare, "progress_mode", "max_seconds"}  # type: ignore[attr-defined]
        hints = {name: (_annotated(known), known.default) for name, known in self.parameters.items()} | COMMON
        own = [("typer_context", (typer.Context, REQUIRED)), *hints.items()]
        entry.__annotations__ = {name: hint for name, (hint, _) in own}
        entry.__signature__ = inspect.Signature([_keyword(name, *known) for name, known in own])  # type: ignore[attr-defined]
        more: dict[str, Any] = {"cls": Shown, "context_settings": {"max_content_width": WIDTH}, "epilog": self.examples}
        app.command(name, help=inspect.getdoc(self.function), **more)(entry)

    def _run(self, values: dict[str, Any], common: dict[str, Any], stated: frozenset[str]) -> None:
        require_mode(common["progress_mode"])
        known, outputs = self.parameters, self.outputs
        files = {name: Path(values[name]) for name, entry in known.items() if entry.names_file and values[name]}
        require_apart(
            {outputs[name]: files[name] for name in outputs if name in files},
            {known[name].label: path for name, path in files.items() if name not in outputs},
        )
        for name, entry in known.items():
            values[name] = entry.check(entry.label, values[name])
        if common["max_seconds"] is not None:
            positive_integer("--max-seconds", common["max_seconds"])
        require_writable(*(values[name] for name in outputs))
        with shown(common["progress_mode"]), stage(self.name, whole=True):
            with limits(None, common["max_seconds"], self.name):
                outcome = self.call(values, stated)
            for name, entry in known.items():
                if entry.more.document and values[name] is not None:
                    write_json(values[name], outcome.document)
            show(outcome, as_json=common["as_json"])
        if outcome.closing is not None:
            outcome.closing()
        if outcome.failure is not None:
            raise outcome.failure
        raise typer.Exit(outcome.exit_code)

    def call(self, values: Mapping[str, Any], stated: frozenset[str] = frozenset()) -> Outcome:
        """Call the function; stated: the names of options on the command line, where it asks for them."""
        arguments = dict(values)
        for name, group in self._groups.items():
            arguments[name] = group(**{part.name: arguments.pop(part.name) for part in fields(group)})
        if "stated" in inspect.signature(self.function).parameters:
            arguments["stated"] = stated
        return self.function(**arguments)


def command(examples: str, *, name: str | None = None) -> Callable[[Any], Any]:
    """Make a function a command. The function stays as it is, its attribute `command` is new."""

    def decorate(function: Any) -> Any:
        function.command = Command(function, name or function.__name__.replace("_", "-"), examples)
        return function

    return decorate


def _keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    given = inspect.Parameter.empty if default is REQUIRED else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=given)


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
    """A command whose --help names its advanced options in one line, and whose --help-all explains them."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Advanced options": []}
        names: list[str] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            rare = param.name in getattr(self.callback, "advanced", ())
            place = "Arguments" if param.param_type_name == "argument" else "Advanced options" if rare else "Options"
            if record is not None:
                sections[place].append(record)
                names += [next(name for name in param.opts if name.startswith("--"))] if rare else []
        if not ctx.meta.get(EVERYTHING):
            del sections["Advanced options"]
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if "Advanced options" not in sections:
            text = f"Advanced options (--help-all explains them): {', '.join(names)}"
            lines = textwrap.wrap(text, formatter.width, subsequent_indent="  ", break_on_hyphens=False)
            formatter.write("\n" + "\n".join(lines) + "\n")


class Group(TyperGroup):
    """A group of commands, listed by their whole first sentences."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")
