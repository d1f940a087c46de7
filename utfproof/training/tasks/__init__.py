"""The registry of tasks: whatever a module of this folder lists in KINDS, by name. A module is all that a task needs.

The tasks of the paper's experiments (Section 5.1) come first, in its order.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.training.task import Kind, Task


def _families() -> list[tuple[Kind, ...]]:
    """The tasks of each module."""
    order = list(paper.TABLE_ROWS)
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    found: list[tuple[Kind, ...]] = [module.KINDS for module in modules if hasattr(module, "KINDS")]
    return sorted(
        found, key=lambda kinds: min((order.index(k.name) for k in kinds if k.name in order), default=len(order))
    )


_FAMILIES = _families()
TASKS: dict[str, Kind] = {kind.name: kind for kinds in _FAMILIES for kind in kinds}


def kind_of(name: str) -> Kind:
    """The task of that name; MalformedInput listing the known ones otherwise."""
    if name not in TASKS:
        known = (kinds[0].name if len(kinds) == 1 else f"{kinds[0].name}, ... {kinds[-1].name}" for kinds in _FAMILIES)
        raise MalformedInput(f"task {name!r} is unknown; choose {', '.join(known)}")
    return TASKS[name]


def task_named(name: str, **options: Any) -> Task:
    """The task of that name; options are the fields of its class. MalformedInput for unknown ones."""
    kind = kind_of(name)
    try:
        return kind.make(**options)
    except TypeError as error:
        raise MalformedInput(f"task {name}: {error}") from None
