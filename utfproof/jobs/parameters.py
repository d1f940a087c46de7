"""Fields of jobs: each is named, typed, explained and checked here alone, for the command line and for sweeps."""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.threads import check_parallel
from utfproof.shapes import positive_integer

REQUIRED: Any = ...
"""In place of a default."""
_KINDS = {bool: "flag", int: "integer", float: "number", str: "text", Path: "path", list: "list"}
_MARK = "parameter"


@dataclass(frozen=True)
class Parameter:
    """What a field is beside its type.

    help: what it says of itself; names: its options where they are not --NAME; kind: flag, integer, positive, parallel
    (threads, processes), seed, number, text, lengths, path or list, by its type unless given; choices: of a text; metavar:
    what stands for its value; argument: a word of the command line without an option; written: a file that the command
    writes; document: the result's document goes there, written by whoever runs the job; deniable: with --no-NAME, so that
    silence is told from no; needed: without a default in a sweep (the command line says which parts of a shape are missing);
    aside: no key of a sweep (it says where and how to show one run). default and type are the field's.
    """

    help: str
    names: tuple[str, ...] = ()
    kind: str = ""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    argument: bool = False
    written: bool = False
    document: bool = False
    deniable: bool = False
    needed: bool = False
    aside: bool = False
    name: str = ""
    default: Any = REQUIRED
    type: Any = str

    @property
    def whole_help(self) -> str:
        """The help with the choices."""
        return f"{self.help}: {', '.join(self.choices)}." if self.choices else self.help

    @property
    def label(self) -> str:
        """How a message names it: the option, or the argument in capitals."""
        if self.argument:
            return self.metavar or self.name.upper()
        return next((word for word in self.names if word.startswith("--")), option_of(self.name)).partition("/")[0]

    @property
    def is_key(self) -> bool:
        """Whether a sweep has it."""
        return not (self.aside or self.written or self.kind in ("path", "list"))

    def check(self, label: str, value: Any) -> Any:
        """The value, of the right type already; MalformedInput where this parameter cannot be it."""
        if value is None:
            return value
        if self.kind == "positive":
            return positive_integer(label, value)
        if self.kind == "parallel":
            return check_parallel(label, value)
        if self.kind == "seed":
            from utfproof.ground.generator import check_seed

            check_seed(value)
        if self.kind in ("amount", "seconds") and not 0 < value < inf:
            what = "positive and finite" if value > 0 else "positive"
            what = what if self.kind == "amount" else f"a {what} number of seconds"
            raise MalformedInput(f"{label} must be {what}, got {value:g}")
        if self.choices and value not in self.choices:
            if (word := value.replace(" ", "-")) in self.choices:  # a notion, as documents have it
                return word
            raise MalformedInput(f"{label} {value!r} is unknown; choose {', '.join(self.choices)}")
        return value


def option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """A field that is an option; `names` where it is not called --FIELD, `more` as in `Parameter`."""
    return field_of(default, Parameter(help_text, names, **more))


def argument(default: Any, help_text: str, **more: Any) -> Any:
    """A field that is a word of the command line without an option."""
    return field_of(default, Parameter(help_text, argument=True, **more))


def written(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """A field that names a file which the command writes; the field `output` is -o as well. No two of them, and none of the
    command's inputs, may be one file."""
    return field_of(default, Parameter(help_text, names, written=True, **more))


def field_of(default: Any, parameter: Parameter) -> Any:
    given = {} if default is REQUIRED else {"default": default}
    return field(**given, metadata={_MARK: parameter})


def option_of(name: str) -> str:
    """The option of a field, such as --head-dim."""
    return f"--{name.replace('_', '-')}"


def parameters(job: Any) -> dict[str, Parameter]:
    """The parameters of a job by name: its own first, then those of the groups it has, in the order of its bases."""
    return _parameters(job)


@cache
def _parameters(job: Any) -> dict[str, Parameter]:
    hints = typing.get_type_hints(job)
    own = [name for kind in job.__mro__ for name in inspect.get_annotations(kind)]
    by_name = {entry.name: entry for entry in fields(job) if _MARK in entry.metadata}
    found = {}
    for name in dict.fromkeys(name for name in own if name in by_name):
        given: Parameter = by_name[name].metadata[_MARK]
        default = REQUIRED if by_name[name].default is MISSING else by_name[name].default
        kind = given.kind or _KINDS[_plain(hints[name])]
        names = ("-o", "--output") if given.written and name == "output" and not given.names else given.names
        found[name] = replace(given, name=name, type=hints[name], default=default, kind=kind, names=names)
    return found


def keys(job: Any) -> dict[str, Parameter]:
    """Those that a sweep has."""
    found = {name: entry for name, entry in parameters(job).items() if entry.is_key}
    return {name: replace(entry, default=REQUIRED) if entry.needed else entry for name, entry in found.items()}


def _plain(hint: Any) -> Any:
    """The type without None, and without what a list holds."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.get_origin(hint) or hint
