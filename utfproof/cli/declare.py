"""Jobs as commands: options from their fields, --json and --progress for all, and outputs that never share a file."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from utfproof.cli.display import require_mode, shown
from utfproof.cli.output import show
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, write_json
from utfproof.ground.progress import stage
from utfproof.jobs.job import Job
from utfproof.jobs.parameters import REQUIRED, Parameter, parameters

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
ProgressMode = Annotated[
    str, typer.Option("--progress", help="auto: live, on a terminal; plain: a line for each stage on stderr; none.")
]


def summary(help_text: str) -> str:
    """What a command's help says first, whole."""
    return " ".join(help_text.split("\n\n")[0].split())


class Command(TyperCommand):
    """A command whose sentence in the list of commands is not cut."""

    moved: Mapping[str, str] = {}

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever, but for options that the command had once."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", ""))  # of the argument parser's own error
            if name in self.moved:
                raise MalformedInput(f"{self.name} has no option {name} any more: {self.moved[name]}") from error
            raise


class Group(TyperGroup):
    """A group of commands, likewise."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")


def group(app: typer.Typer, name: str, help_text: str) -> typer.Typer:
    """Add a group and return it, for `add`."""
    made = typer.Typer(cls=Group, help=help_text, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(made, name=name)
    return made


def add(app: typer.Typer, name: str, job: type[Job]) -> None:
    """Add a job as a command."""
    own = type("Command", (Command,), {"moved": job.moved})
    app.command(name, epilog=job.examples, help=inspect.getdoc(job), cls=own)(_command(name, job))


def _command(name: str, job: type[Job]) -> Callable[..., Any]:
    """The function whose signature has the job's options, --json and --progress; `outputs` names the files it writes,
    parameter and option."""
    known = parameters(job)
    paths = {entry.name: entry for entry in known.values() if entry.type in PATHS}
    outputs = {entry.name: entry.label for entry in paths.values() if entry.written}

    def run(typer_context: typer.Context, as_json: bool, progress_mode: str, **values: Any) -> None:
        require_mode(progress_mode)
        require_apart(
            {label: values[part] for part, label in outputs.items() if values[part] is not None},
            {
                entry.label: values[part]
                for part, entry in paths.items()
                if not entry.written and values[part] is not None
            },
        )
        for part, entry in known.items():
            values[part] = entry.check(entry.label, values[part])
        require_writable(*(values[part] for part in outputs))
        with shown(progress_mode), stage(name, whole=True):
            outcome = job(
                **values, stated=frozenset(part for part in (*known, "as_json") if _stated(typer_context, part))
            ).run()
            for part, entry in known.items():
                if entry.document and values[part] is not None:
                    write_json(values[part], outcome.document)
            show(outcome, as_json=as_json)
        if outcome.closing is not None:
            outcome.closing()
        if outcome.failure is not None:
            raise outcome.failure
        raise typer.Exit(outcome.exit_code)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            _parameter("typer_context", typer.Context),
            *(_parameter(part, _annotated(entry), entry.default) for part, entry in known.items()),
            _parameter("as_json", AsJson, False),
            _parameter("progress_mode", ProgressMode, "auto"),
        ]
    )
    run.outputs = outputs  # type: ignore[attr-defined]
    run.__annotations__ = {
        "typer_context": typer.Context,
        **{part: _annotated(entry) for part, entry in known.items()},
        "as_json": AsJson,
        "progress_mode": ProgressMode,
    }
    return run


def _parameter(name: str, hint: Any, default: Any = REQUIRED) -> inspect.Parameter:
    given = inspect.Parameter.empty if default is REQUIRED else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hint)


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


PATHS = (Path, Path | None)
READERS: tuple[tuple[tuple[Any, ...], Callable[[Any], Any], str], ...] = (
    ((int, int | None), _whole, "<int>"),
    ((float, float | None), _number, "<float>"),
    (PATHS, _path, "<path>"),
)
"""How words are read, by the type of the field (paths: those of options)."""


def _annotated(entry: Parameter) -> Any:
    """The parameter's type with what typer wants to know of it."""
    more: dict[str, Any] = {"help": entry.whole_help, "metavar": entry.metavar}
    for kinds, read, metavar in READERS:
        if entry.type in kinds and not (entry.argument and kinds is PATHS):
            more |= {"parser": _file if entry.written else read, "metavar": entry.metavar or metavar}
    if entry.argument:
        return Annotated[entry.type, typer.Argument(**more)]
    names = entry.names or (entry.label,)
    if entry.deniable:
        names = (f"{names[0]}/--no-{names[0].removeprefix('--')}", *names[1:])
    return Annotated[entry.type, typer.Option(*names, **more)]


def _stated(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, whatever its value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


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
