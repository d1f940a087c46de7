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
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from utfproof.cli.display import require_mode, shown
from utfproof.cli.options import DIMENSIONS, More, option_of
from utfproof.cli.outcome import Outcome
from utfproof.cli.output import show
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.ground.files import require_writable, write_json
from utfproof.ground.progress import stage
from utfproof.ground.resources import limits
from utfproof.shapes import positive_integer
from utfproof.sweeps.jobs import REQUIRED, Context, Found, Key

VERDICTS = {0: "holds", 1: "refuted", 4: "undecided"}
"""Of a result whose document has none, by the exit code."""
T = TypeVar("T")
Prepared = tuple[dict[str, Any], dict[str, str]]
"""Canonical parameters, and the files that they name by digest."""
REFUSALS = {1: "refuted", 2: "refused", 4: "undecided"}
"""Of a job of a sweep that ends with an error, by the error's exit code."""
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
    def is_key(self) -> bool:
        """Whether a sweep has it."""
        more = self.more
        return more.text or (not more.aside and not more.written and self.base in (bool, int, float, str))

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
    find: Callable[[dict[str, Any], Context], Found] | None = None
    aside: tuple[str, ...] = ()

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints = typing.get_type_hints(self.function, include_extras=True)
        return {name: hints[name] for name in inspect.signature(self.function).parameters if name != "stated"}

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Parameters that stand for several options: dataclasses of `cli.options`."""
        return {name: hint for name, hint in self._hints.items() if is_dataclass(hint)}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """By name, groups of options one by one."""
        found: dict[str, Parameter] = {}
        for name, given in inspect.signature(self.function).parameters.items():
            if name in self._groups:
                group = self._groups[name]
                hints = typing.get_type_hints(group, include_extras=True)
                found |= {part.name: _parameter(part.name, hints[part.name], part.default) for part in fields(group)}
            elif name in self._hints:
                found[name] = _parameter(name, self._hints[name], given.default)
        return found

    def register(self, app: typer.Typer, name: str) -> None:
        """Add it to an application."""
        settings = {"max_content_width": WIDTH}
        more: dict[str, Any] = {"cls": Shown, "context_settings": settings, "epilog": self.examples}
        app.command(name, help=inspect.getdoc(self.function), **more)(self._entry())

    def _entry(self) -> Callable[..., Any]:
        """The function that Typer is given, with the options that every command has."""

        def entry(typer_context: typer.Context, **values: Any) -> None:
            common = {name: values.pop(name) for name in COMMON}
            self._run(values, common, _stated(typer_context))

        entry.outputs = self.outputs  # type: ignore[attr-defined]
        entry.advanced = {  # type: ignore[attr-defined]
            *(name for name, known in self.parameters.items() if known.more.advanced), "progress_mode", "max_seconds"
        }  # fmt: skip
        hints = {name: (_annotated(known), known.default) for name, known in self.parameters.items()} | COMMON
        keyword = inspect.Parameter.KEYWORD_ONLY
        entry.__annotations__ = {"typer_context": typer.Context} | {name: hint for name, (hint, _) in hints.items()}
        entry.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("typer_context", keyword, annotation=typer.Context),
                *(
                    inspect.Parameter(
                        name,
                        keyword,
                        annotation=hint,
                        default=inspect.Parameter.empty if default is REQUIRED else default,
                    )
                    for name, (hint, default) in hints.items()
                ),
            ]
        )
        return entry

    @property
    def outputs(self) -> dict[str, str]:
        """Files that it writes: parameter and option."""
        return {name: entry.label for name, entry in self.parameters.items() if entry.more.written}

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
            arguments[name] = grouped(group, values)
            for part in fields(group):
                del arguments[part.name]
        if "stated" in inspect.signature(self.function).parameters:
            arguments["stated"] = stated
        return self.function(**arguments)

    # --- in a sweep ---

    @property
    def keys(self) -> dict[str, Key]:
        """What a sweep may set: options that say what is run."""
        return {
            name: Key(str if entry.more.text else entry.base, entry.default, entry.check)
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
        values = self.filled(parameters, context.max_memory)
        if values.get("device") not in (None, "cpu"):
            from utfproof.ground.arrays import require_device

            require_device(values["device"])  # a missing device belongs to this machine, and is no result
        if self.find is not None:
            return self.find(values, context)
        with tempfile.TemporaryDirectory() as place:
            for name, entry in self.parameters.items():
                if entry.more.written and entry.default is REQUIRED:
                    values[name] = Path(place) / f"{context.key}.json"
            try:
                outcome = self.call(values, frozenset({*parameters, "as_json"}))
            except UtfproofError as error:
                if error.exit_code not in REFUSALS:
                    raise
                return {"verdict": REFUSALS[error.exit_code], "reason": str(error)}, {}
            files = {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}
            document = json.loads(json.dumps(outcome.document, default=str).replace(f"{place}/", ""))
        if self.certified:
            return decided(json.loads(files[f"{context.key}.json"])), files
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


def grouped(group: type[T], values: Mapping[str, Any]) -> T:
    """The options of this group among these values."""
    return group(**{part.name: values[part.name] for part in fields(group)})  # type: ignore[arg-type]


def decided(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a sweep's job that wrote this certificate."""
    claim = certificate["claim"]
    return {"verdict": claim["verdict"], "kind": certificate["kind"], "targets": claim["targets"]}


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
