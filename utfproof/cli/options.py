"""Options that several commands share, as annotated types for Typer, and how their words are read.

A reader raises `typer.BadParameter`; its message follows the option's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.errors import MalformedInput, choose
from utfproof.shapes import Shape
from utfproof.util.laws import DTYPES, LAWS
from utfproof.util.notions import Notion
from utfproof.util.resources import parse_bytes

ADVANCED = "Advanced"
rare = partial(typer.Option, rich_help_panel=ADVANCED)
"""An option that --help names and --help-all explains."""

# --- how words are read --------------------------------------------------------------------------------------------


def quoted(value: str) -> str:
    """For a message: cut where it is long."""
    return repr(value if len(value) <= 60 else f"{value[:60]}…")


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """A reader of one of these words."""

    def read(word: str) -> str:
        word = word if word in choices else word.replace(" ", "-")  # as documents have it
        if word not in choices:
            raise typer.BadParameter(f"{quoted(word)} is unknown; {choose(word, choices)}")
        return word

    return read


def integer(least: int, most: int | None = None) -> Callable[[Any], int]:
    """A reader of integers in digits: int() takes 1_0 and spaces as well."""
    expected = "a positive integer" if most is None else f"an integer from {least} to {most}"

    def read(value: Any) -> int:
        if not isinstance(value, int) and not re.fullmatch("[+-]?[0-9]{1,4000}", value, re.ASCII):
            raise typer.BadParameter(f"{quoted(value)} is not a valid integer")
        if not least <= int(value) <= (int(value) if most is None else most):
            raise typer.BadParameter(f"must be {expected}, got {int(value)}")
        return int(value)

    return read


positive, parallel, seed = integer(1), integer(1, 1024), integer(0, 2**64 - 1)


def amount(value: Any) -> float:
    """A positive, finite number; float() takes 1_0 and spaces as well."""
    try:
        number = float(value)
        readable = not isinstance(value, str) or re.fullmatch("[!-^`-~]+", value)
    except ValueError:
        readable = None
    if not readable:
        raise typer.BadParameter(f"{quoted(value)} is not a valid float")
    if not 0 < number < inf:
        raise typer.BadParameter(f"must be positive and finite, got {number:g}")
    return number


def memory(value: Any) -> int:
    """Bytes, from words such as 4G."""
    try:
        return parse_bytes(value) if isinstance(value, str) else int(value)
    except MalformedInput:
        raise typer.BadParameter(f"{quoted(value)} is not a size; write for example 512M or 4G") from None


def known_construction(name: str) -> str:
    """The name of a construction."""
    from utfproof.constructions import construction

    try:
        return construction(name).name
    except MalformedInput as error:
        raise typer.BadParameter(str(error).removeprefix("construction ")) from None


def path(value: Any) -> Path:
    """A file or a folder; Path takes the empty name, of a variable that is not set, for the working directory."""
    if value == "":
        raise typer.BadParameter("has an empty name; name a file or a folder, '.' for the working directory")
    return Path(value)


def file_to_write(value: Any) -> Path:
    """A file; Path forgets that a name ends like a folder's."""
    if isinstance(value, str) and value.endswith("/"):
        raise typer.BadParameter(f"{value} names a folder; name a file")
    return path(value)


def certificate_to_write(value: Any) -> Path:
    """A file whose name ends in .json."""
    found = file_to_write(value)
    if found.suffix != ".json":
        raise typer.BadParameter(f"{found}: a certificate's file name ends in .json")
    return found


READERS: dict[Any, Callable[[Any], Any]] = {int: positive, float: amount, Path: path}
"""Of options that name no reader, by their type."""


def choice(help_text: str, words: Sequence[str], *, panel: str | None = None) -> Any:
    """An option whose value is one of these words."""
    text = f"{help_text}: {', '.join(words)}."
    return typer.Option(help=text, parser=one_of(words), metavar="WORD", rich_help_panel=panel)


def written(help_text: str, *names: str) -> Any:
    """An option for a file that the command writes."""
    return typer.Option(*names, help=help_text, parser=file_to_write, metavar="FILE")


WRITTEN = (file_to_write, certificate_to_write)
"""Readers of files that a command writes: no two of them, and none of its inputs, may be one file."""

# --- shared options ------------------------------------------------------------------------------------------------

Heads = Annotated[int | None, typer.Option("--heads", "-H", help="Heads H per layer.", metavar="H")]
Layers = Annotated[int | None, typer.Option("--layers", "-L", help="Layers L.", metavar="L")]
HeadDim = Annotated[int | None, typer.Option("--head-dim", "-d", help="Head dimension d.", metavar="d")]
DIn = Annotated[int | None, typer.Option(help="Input dimension d_in; of one-hots the vocabulary.")]
DOut = Annotated[int | None, rare(help="Output dimension d_out (default: d_in).")]
Residual = Annotated[bool, typer.Option("--residual", help="Hosts and targets with a residual stream.")]
StoredResidual = Annotated[
    bool | None, typer.Option("--residual/--no-residual", help="With a residual stream; as files say by default.")
]
M = Annotated[int | None, typer.Option(help="Embedding dimension m; the host's own by default.")]
Seed = Annotated[int, typer.Option(help="Seed of what is drawn.", parser=seed, metavar="N")]
Law = Annotated[str, choice("Law of random weights", LAWS, panel=ADVANCED)]
Dtype = Annotated[str, choice("Number format of random weights", DTYPES, panel=ADVANCED)]
Device = Annotated[str, rare(help="cpu (NumPy), or a torch device such as cuda.")]
Threads = Annotated[int | None, rare(help="Threads of torch; its own choice by default.", parser=parallel, metavar="N")]
MaxMemory = Annotated[
    int | None, rare(help="Memory limit such as 4G (default: 80 % of RAM).", parser=memory, metavar="SIZE")
]
"""In bytes."""
NOTIONS = tuple(notion.word for notion in Notion)
Certificate = Annotated[
    Path,
    typer.Option("-o", "--output", help="Certificate to write (.json).", parser=certificate_to_write, metavar="FILE"),
]
Output = Annotated[Path | None, written("Also write the JSON document here.", "-o", "--output")]


def shape_of(
    heads: int | None,
    layers: int | None,
    head_dim: int | None,
    d_in: int | None,
    d_out: int | None,
    *,
    residual: bool | None = False,
) -> Shape:
    """The shape of these options; MalformedInput naming those that are missing."""
    if heads is None or layers is None or head_dim is None or d_in is None:
        needed = {"--heads": heads, "--layers": layers, "--head-dim": head_dim, "--d-in": d_in}
        missing = ", ".join(name for name, value in needed.items() if value is None)
        raise MalformedInput(f"the shape is incomplete: {missing} missing (all of {', '.join(needed)} are needed)")
    return Shape(heads, layers, head_dim, d_in, d_out, residual=bool(residual))
