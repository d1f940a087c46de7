"""Options that several commands share, and how an option is declared: `name: Annotated[type, option(...)] = default`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

import typer

from utfproof.errors import MalformedInput, choose
from utfproof.ground.laws import DTYPES, LAWS, check_seed
from utfproof.ground.processes import check_parallel
from utfproof.ground.resources import parse_bytes
from utfproof.shapes import Shape, positive_integer

Check = Callable[[str, Any], Any]
"""From the option's name and a value to the value; MalformedInput for one that it cannot be."""
DIMENSIONS = ("heads", "layers", "head_dim", "d_in", "d_out")


@dataclass(frozen=True)
class More:
    """What an option is beside Typer's part.

    written: a file that the command writes; document: its --json document goes there. aside: no key of a sweep (it says where
    and how one run is shown). advanced: shown by --help-all alone.
    """

    check: Check | None = None
    written: bool = False
    document: bool = False
    aside: bool = False
    advanced: bool = False


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


def memory(value: Any) -> int:
    """Bytes, from words such as 4G."""
    try:
        return parse_bytes(value) if isinstance(value, str) else int(value)
    except MalformedInput as error:
        raise typer.BadParameter(str(error)) from error


def parallel(label: str, value: int) -> int:
    """Threads or processes."""
    return check_parallel(label, value)


# --- shared options ------------------------------------------------------------------------------------------------

Heads = Annotated[int | None, option("Heads H per layer.", "--heads", "-H", metavar="H", check=positive_integer)]
Layers = Annotated[int | None, option("Layers L.", "--layers", "-L", metavar="L", check=positive_integer)]
HeadDim = Annotated[int | None, option("Head dimension d.", "--head-dim", "-d", metavar="d", check=positive_integer)]
DIn = Annotated[int | None, option("Input dimension d_in: for one-hots, the vocabulary size.", check=positive_integer)]
DOut = Annotated[int | None, option("Output dimension d_out (default: d_in).", check=positive_integer, advanced=True)]
Residual = Annotated[bool, option("Hosts and targets with a residual stream.", "--residual")]
StoredResidual = Annotated[
    bool | None,
    option(
        "With a residual stream (default: as files say, else none).",
        "--residual/--no-residual",
    ),
]
M = Annotated[int | None, option("Embedding dimension m (default: the construction's own).", check=positive_integer)]
Seed = Annotated[int, option("Seed of what is drawn, 0 ... 2^64-1.", check=seed)]
Device = Annotated[str, option("cpu (NumPy), or a torch device such as cuda.", advanced=True)]
Threads = Annotated[
    int | None, option("Threads of torch; its own choice by default.", check=parallel, aside=True, advanced=True)
]
MaxMemory = Annotated[
    int | None, option("Memory limit such as 4G (default: 80 % of RAM).", parser=memory, aside=True, advanced=True)
]
"""In bytes."""


@dataclass(frozen=True)
class ShapeOptions:
    """The shape [H, L, d, d_in, d_out]."""

    heads: Heads = None
    layers: Layers = None
    head_dim: HeadDim = None
    d_in: DIn = None
    d_out: DOut = None

    @property
    def dimensions(self) -> dict[str, int | None]:
        """The parts by name, those that were not given as None."""
        return {name: getattr(self, name) for name in DIMENSIONS}

    def shape(self, *, residual: bool | None = False) -> Shape:
        """The shape; MalformedInput naming the options that are missing."""
        return required_shape(self.dimensions, residual=residual)


@dataclass(frozen=True)
class Draw:
    """How random weights are drawn."""

    seed: Seed = 0
    law: Annotated[str, option("Law of random weights", choices=LAWS, advanced=True)] = "uniform"
    dtype: Annotated[str, option("Number format of random weights", choices=DTYPES, advanced=True)] = "float64"


def option_of(name: str) -> str:
    """The option of a parameter, such as --head-dim."""
    return f"--{name.replace('_', '-')}"


def required_shape(given: Mapping[str, Any], *, residual: bool | None = None) -> Shape:
    """The shape of these dimensions (residual: else what they say), or MalformedInput naming the options that are missing."""
    needed = DIMENSIONS[:4]
    if missing := [option_of(name) for name in needed if given.get(name) is None]:
        wanted = ", ".join(map(option_of, needed))
        raise MalformedInput(f"the shape is incomplete: {', '.join(missing)} missing (all of {wanted} are needed)")
    stream = given.get("residual") if residual is None else residual
    return Shape(*(given.get(name) for name in DIMENSIONS), residual=bool(stream))  # type: ignore[arg-type]
