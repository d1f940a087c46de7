"""Which commands there are. A command is the function of its own name in utfproof/commands, a file each."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, choose

_FIRST = (
    "verify", "certify", "decide", "refute-lower", "rank", "check", "build", "embed", "export", "emulate", "enclose",
    "frontier", "train", "optimum", "tables", "report", "sweep", "search numerical",
    "search exhaustive", "bench all",
)  # fmt: skip
"""In the order of --help; others follow."""
GROUPS = {
    "search": "Search the shared-attention model for smaller hosts.",
    "bench": "Measurements side by side with what a user would otherwise use.",
}
APART = ("check", "sweep")
"""No commands of a sweep."""
_FOLDER = Path(__file__).parents[1] / "commands"


def _names() -> tuple[str, ...]:
    """Every file of the folder that has a function of its own name is a command."""
    known = {stem(name) for name in _FIRST}
    files = sorted(path for path in _FOLDER.glob("*.py") if path.stem not in known)
    more = [path.stem for path in files if f"\ndef {path.stem}(" in path.read_text(encoding="utf-8")]
    return (*_FIRST, *(name.replace("_", "-") for name in more))


def stem(name: str) -> str:
    """Module and function of a command."""
    return name.replace("-", "_").replace(" ", "_")


NAMES = _names()


def load(name: str) -> Any:
    """The `Command` of this name."""
    return getattr(import_module(f"utfproof.commands.{stem(name)}"), stem(name)).command


@cache
def help_of(name: str) -> str:
    """A command's docstring, read from its source: a list of commands imports none of them."""
    tree = ast.parse((_FOLDER / f"{stem(name)}.py").read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == stem(name))
    return inspect.cleandoc(ast.get_docstring(found) or "")


@cache
def in_sweep(name: str) -> Any:
    """The command of this name in a sweep; a group stands for its first command. MalformedInput where there is none, or where
    it cannot run here."""
    known = [entry for entry in NAMES if entry not in APART]
    first = {group: next(entry for entry in known if entry.startswith(f"{group} ")) for group in GROUPS}
    for group, entry in first.items():
        known[known.index(entry)] = group
        name = group if name == entry else name
    if name not in known:
        raise MalformedInput(f"command {name!r} is unknown; {choose(name, known)}")
    try:
        return load(first.get(name, name))
    except ModuleNotFoundError as error:
        raise MalformedInput(f"command {name!r} cannot run here: module {error.name} is missing") from error
