"""Which commands there are: every class of `utfproof/jobs` and `utfproof/cli` that says its order is one.

Names and sentences are read from the source, so that a list of commands imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput

ROOMS = ("jobs", "cli")
"""Folders that commands are found in; a sweep has those of the first."""
_CLASS = re.compile(
    r'^class (\w+)\([^()]*?\border=(\d+)(?:,\s*name="([^"]+)")?,?\s*\):\n    """(.*?)"""$', re.MULTILINE | re.DOTALL
)
_GROUP = re.compile(r'^GROUP = "(.*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """A command: its name, the module and the class that have it, its place and its help; group: what is said of the group
    that it belongs to, where its module says it."""

    name: str
    module: str
    kind: str
    order: int
    help: str
    group: str = ""

    def load(self) -> Any:
        """The class, imported."""
        return getattr(import_module(self.module), self.kind)


@lru_cache(maxsize=1)
def commands() -> dict[str, Entry]:
    """Every command by name, in the order of --help."""
    found = [entry for room in ROOMS for entry in _of_room(room)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: (entry.order, entry.name))}


def _of_room(room: str) -> Iterable[Entry]:
    folder = Path(__file__).resolve().parents[1] / room
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        said = _GROUP.search(source)
        for kind, order, name, help_text in _CLASS.findall(source):
            module = f"utfproof.{room}.{path.stem}"
            whole = "\n".join(line.removeprefix("    ") for line in help_text.split("\n")).strip()
            yield Entry(name or path.stem, module, kind, int(order), whole, said[1] if said else "")


def groups() -> dict[str, str]:
    """Groups of commands and what is said of each."""
    found: dict[str, str] = {}
    for entry in commands().values():
        first, space, _ = entry.name.partition(" ")
        if space:
            found[first] = found.get(first) or entry.group
    return found


def job(name: str) -> tuple[str, Any]:
    """The command of this name in a sweep, and its class: a group stands for its first command. MalformedInput where there is
    none, or where it cannot run here."""
    known = {entry.name: entry for entry in commands().values() if entry.module.startswith("utfproof.jobs.")}
    for group in groups():
        first = next(entry for entry in known.values() if entry.name.startswith(f"{group} "))
        known[group] = known.pop(first.name)
        if name == first.name:
            name = group
    if name not in known:
        raise MalformedInput(f"command {name!r} is unknown; choose {', '.join(known)}")
    try:
        return name, known[name].load()
    except ModuleNotFoundError as error:
        raise MalformedInput(f"command {name!r} cannot run here: module {error.name} is missing") from error
