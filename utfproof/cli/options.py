"""Options that several commands share, and how an option is declared: `name: Annotated[type, option(...)] = default`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

import typer

from utfproof.errors import MalformedInput, choose
from utfproof.ground.laws import DTYPES, LAWS, check_seed
from utfproof.ground.resources import parse_bytes
from utfproof.ground.threads import check_parallel
from utfproof.shapes import Shape, positive_integer

Check = Callable[[str, Any], Any]
"""From the option's name and a value to the value; MalformedInput for one that it cannot be."""
DIMENSIONS = ("heads", "layers", "head_dim", "d_in", "d_out")


@dataclass(frozen=True)
class More:
    """What an option is beside Typer's part.

    written: a file that the command writes; document: its --json document goes there. aside: no key of a sweep (it says where
    and how one run is shown). needed: without a default in a sweep. text: a key of a sweep, as text, whatever its type.
    """

    check: Check | None = None
    written: bool = False
    document: bool = False
    aside: bool = False
    needed: bool = False
    text: bool = False


def option(
    help_text: str,
    *names: str,
    metavar: str | None = None,
    choices: Sequence[str] = (),
    check: Check | None = None,
    parser: Callable[[Any], Any] | None = None,
    **more: Any,
) -> Any:
    """An option; `names` where it is not called --NAME, `more` as in `More`."""
    if choices:
        help_text, check = f"{help_text}: {', '.join(choices)}.", one_of(choices)
    info = typer.Option(*names, help=help_text, metavar=metavar, parser=parser)
    info.more = More(check, **more)
    return info


def argument(help_text: str, *, metavar: str | None = None, **more: Any) -> Any:
    """A word of the command line without an option."""
    info = typer.Argument(help=help_text, metavar=metavar)
    info.more = More(**more)
    return info


def written(help_text: str, *names: str, **more: Any) -> Any:
    """A file that the command writes. No two of them, and none of the command's inputs, may be one file."""
    return option(help_text, *names, written=True, **more)


# --- checks --------------------------------------------------------------------------------------------------------


def one_of(choices: Sequence[str]) -> Check:
    """One of these words."""

    def check(label: str, value: str) -> str:
        word = value if value in choices else value.replace(" ", "-")  # a notion, as documents have it
        if word not in choices:
            raise MalformedInput(f"{label} {value!r} is unknown; {choose(value, choices)}")
        return word

    return check


def seed(label: str, value: int) -> int:
    """A seed of the generator."""
    check_seed(value)
    return value


def amount(label: str, value: float) -> float:
    """A positive, finite number."""
    if not 0 < value < inf:
        raise MalformedInput(f"{label} must be positive{' and finite' * (value > 0)}, got {value:g}")
    return value


def seconds(label: str, value: float) -> float:
    """A time limit."""
    if not 0 < value < inf:
        raise MalformedInput(
            f"{label} must be a positive{' and finite' * (value > 0)} number of seconds, got {value:g}"
        )
    return value


def memory(value: Any) -> int:
    """Bytes, from words such as 4G."""
    try:
        return parse_bytes(value) if isinstance(value, str) else int(value)
    except MalformedInput as error:
        raise typer.BadParameter(str(error)) from error


# --- shared options ------------------------------------------------------------------------------------------------

Heads = Annotated[
    int | None, option("Heads H per layer.", "--heads", "-H", metavar="H", check=positive_integer, needed=True)
]
Layers = Annotated[int | None, option("Layers L.", "--layers", "-L", metavar="L", check=positive_integer, needed=True)]
StoredLayers = Annotated[int | None, option("Layers L.", "--layers", "-L", metavar="L", check=positive_integer)]
HeadDim = Annotated[
    int | None, option("Head dimension d.", "--head-dim", "-d", metavar="d", check=positive_integer, needed=True)
]
DIn = Annotated[
    int | None, option("Input dimension d_in (vocabulary size for one-hots).", check=positive_integer, needed=True)
]
StoredHeadDim = Annotated[
    int | None, option("Head dimension d.", "--head-dim", "-d", metavar="d", check=positive_integer)
]
StoredDIn = Annotated[
    int | None, option("Input dimension d_in (vocabulary size for one-hots).", check=positive_integer)
]
DOut = Annotated[int | None, option("Output dimension; d_in unless said otherwise.", check=positive_integer)]
Residual = Annotated[
    bool, option("With a residual stream: X^l = X^(l-1) + sum over heads, in hosts and targets.", "--residual")
]
StoredResidual = Annotated[
    bool | None,
    option(
        "Whether weights have a residual stream, where their metadata does not say it; none by default.",
        "--residual/--no-residual",
    ),
]
M = Annotated[
    int | None, option("Embedding dimension m; the construction's own unless said otherwise.", check=positive_integer)
]
Seed = Annotated[int, option("Seed of random weights, 0 ... 2^64-1.", check=seed)]
Law = Annotated[str, option("Law of random weights", choices=LAWS)]
Dtype = Annotated[str, option("Number format of random weights", choices=DTYPES)]
Device = Annotated[str, option("cpu (NumPy), or a torch device such as cuda.")]
MaxMemory = Annotated[
    int | None, option("Memory limit such as 4G; 80 % of RAM unless said otherwise.", parser=memory, aside=True)
]
"""In bytes."""
MaxSeconds = Annotated[
    int | None,
    option("Time limit of the whole command in seconds; none by default.", check=positive_integer, aside=True),
]
"""Kept by `cli.command` for every command that has it."""


def option_of(name: str) -> str:
    """The option of a parameter, such as --head-dim."""
    return f"--{name.replace('_', '-')}"


def shape_of(given: Mapping[str, Any]) -> Shape:
    """The shape of these values, complete or not. MalformedInput naming a dimension that is not positive."""
    return Shape(*(given[name] for name in DIMENSIONS), residual=bool(given.get("residual")))


def required_shape(given: Mapping[str, Any], *, residual: bool | None = False) -> Shape:
    """The shape of these dimensions, or MalformedInput naming the options that are missing."""
    needed = DIMENSIONS[:4]
    if missing := [option_of(name) for name in needed if given.get(name) is None]:
        wanted = ", ".join(map(option_of, needed))
        raise MalformedInput(f"the shape is incomplete: {', '.join(missing)} missing (all of {wanted} are needed)")
    return shape_of({"d_out": None, **given, "residual": residual})


def parallel(label: str, value: int) -> int:
    """Threads or processes."""
    return check_parallel(label, value)
