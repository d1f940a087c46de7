"""Which commands there are. A command is the function of its own name in utfproof/commands, a file each."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any

from typer.models import ArgumentInfo

from utfproof.cli.options import READERS

if TYPE_CHECKING:
    from utfproof.cli.outcome import Outcome

_FIRST = (
    "verify", "certify", "decide", "refute-lower", "rank", "check", "build", "embed", "export", "emulate", "enclose",
    "frontier", "train", "optimum", "tables", "report", "sweep", "search numerical",
    "search exhaustive", "bench all",
)  # fmt: skip
"""In the order of --help; others follow."""
GROUPS = {
    "search": "Search the shared-attention model for smaller hosts.",
    "bench": "Measurements beside what a user would otherwise use.",
}
_FOLDER = Path(__file__).parents[1] / "commands"


def _stem(name: str) -> str:
    """Module and function of a command."""
    return name.replace("-", "_").replace(" ", "_")


def _names() -> tuple[str, ...]:
    """Every file of the folder that has a function of its own name is a command."""
    known = {_stem(name) for name in _FIRST}
    files = sorted(path for path in _FOLDER.glob("*.py") if path.stem not in known)
    more = [path.stem for path in files if f"\ndef {path.stem}(" in path.read_text(encoding="utf-8")]
    return (*_FIRST, *(name.replace("_", "-") for name in more))


NAMES = _names()


def load(name: str) -> Callable[..., Outcome]:
    """The function of this command."""
    found: Callable[..., Outcome] = getattr(import_module(f"utfproof.commands.{_stem(name)}"), _stem(name))
    return found


@cache
def help_of(name: str) -> str:
    """A command's docstring, read from its source: a list of commands imports none of them."""
    text = (_FOLDER / f"{_stem(name)}.py").read_text(encoding="utf-8")
    found = re.search(rf'^def {_stem(name)}\(.*?"""(.*?)"""', text, re.DOTALL | re.MULTILINE)
    return inspect.cleandoc(found[1]) if found else ""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command. kind: its type without None; info: Typer's part; signature: as Typer takes it."""

    name: str
    kind: Any
    info: Any
    signature: inspect.Parameter

    @property
    def default(self) -> Any:
        """Its value where none is given; None where one has to be."""
        return None if self.required else self.signature.default

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.signature.default is inspect.Parameter.empty

    @property
    def label(self) -> str:
        """How a message names it: the option, or the argument in capitals."""
        if isinstance(self.info, ArgumentInfo):
            return str(self.info.metavar)
        words = map(str, (self.info.default, *(self.info.param_decls or ())))
        return next((word for word in words if word.startswith("--")), f"--{self.name.replace('_', '-')}")

    @property
    def names_file(self) -> bool:
        """Whether its value is a file's name, or may be one."""
        return self.kind is Path or (self.kind is str and isinstance(self.info, ArgumentInfo))


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a command's function, by name. Numbers and files are read by `READERS` unless they say how."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = {}
    for name, given in inspect.signature(function).parameters.items():
        hint, info = typing.get_args(hints[name])
        kind = next((part for part in typing.get_args(hint) if part is not NoneType), hint)
        kind = list if typing.get_origin(hint) is list else typing.get_origin(kind) or kind
        if kind in READERS and info.parser is None:
            info = copy(info)
            named = name.upper() if isinstance(info, ArgumentInfo) else {int: "N", float: "X", Path: "FILE"}[kind]
            info.parser, info.metavar = READERS[kind], info.metavar or named
        elif isinstance(info, ArgumentInfo) and info.metavar is None:
            info = copy(info)
            info.metavar = name.upper()
        found[name] = Parameter(name, kind, info, given.replace(annotation=Annotated[hint, info]))
    return found
