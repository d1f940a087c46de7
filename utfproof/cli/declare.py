"""What every command has without saying so: whole sentences in --help, --progress, and outputs that never share a file.

An output is an option declared with `writable=True`; nothing else about it is written down a second time.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, ParameterInfo

from utfproof.cli.display import require_mode, shown
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage

ProgressMode = Annotated[
    str, typer.Option("--progress", help="auto: live, on a terminal; plain: a line for each stage on stderr; none.")
]


def summary(help_text: str) -> str:
    """What a command's help says first, whole."""
    return " ".join(help_text.split("\n\n")[0].split())


class Command(TyperCommand):
    """A command whose sentence in the list of commands is not cut."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")


class Group(TyperGroup):
    """A group of commands, likewise."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return summary(self.help or "")


def add(app: typer.Typer, name: str, command: Callable[..., Any], *, epilog: str) -> None:
    """Add a command with its own options and those that every command has."""
    app.command(name, epilog=epilog, cls=Command)(_declared(name, command))


def group(app: typer.Typer, name: str, help_text: str) -> typer.Typer:
    """Add a group and return it, for `add`."""
    made = typer.Typer(cls=Group, help=help_text, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(made, name=name)
    return made


def _declared(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with --progress, its outputs looked at first; `outputs` names them, parameter and option."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    given = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    mode = inspect.Parameter("progress_mode", inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=ProgressMode)
    outputs = dict(_paths(hints, writable=True))
    inputs = dict(_paths(hints, writable=False))

    @functools.wraps(command)
    def run(progress_mode: str = "auto", **values: Any) -> Any:
        require_mode(progress_mode)
        require_apart(
            {label: values[name] for name, label in outputs.items() if values[name] is not None},
            {label: values[name] for name, label in inputs.items() if values[name] is not None},
        )
        with shown(progress_mode), stage(name, whole=True):
            return command(**values)

    run.__signature__ = signature.replace(parameters=[*given, mode])  # type: ignore[attr-defined]
    run.outputs = outputs  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, "progress_mode": ProgressMode}
    return run


def _paths(hints: dict[str, Any], *, writable: bool) -> Iterator[tuple[str, str]]:
    """Parameters that are paths, and how a message names them."""
    for name, hint in hints.items():
        for found in getattr(hint, "__metadata__", ()):
            is_path = Path in (hint.__origin__, *getattr(hint.__origin__, "__args__", ()))
            if isinstance(found, ParameterInfo) and is_path and bool(found.writable) == writable:
                # in Annotated the first name stands where the default would
                names = (found.default, *(found.param_decls or ())) if isinstance(found, OptionInfo) else ()
                long = (word for word in names if isinstance(word, str) and word.startswith("--"))
                yield name, next(long, name.upper())


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
