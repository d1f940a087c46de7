"""Parameters that commands take as options and sweeps as keys: each is named, typed, explained and checked here alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utfproof.ground.generator import DTYPES, LAWS
from utfproof.shapes import Shape

REQUIRED: Any = ...
"""In place of a default."""


@dataclass(frozen=True)
class Parameter:
    """kind: positive, seed, integer, number, flag, text or lengths. choices: of a text. help: what an option says of itself;
    letter: its short name, which also stands for its value."""

    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    help: str = ""
    letter: str = ""

    @property
    def whole_help(self) -> str:
        """The help with the choices."""
        return f"{self.help}: {', '.join(self.choices)}." if self.choices else f"{self.help}."


DIMENSIONS = {
    "heads": Parameter("positive", REQUIRED, help="Heads H per layer", letter="H"),
    "layers": Parameter("positive", REQUIRED, help="Layers L", letter="L"),
    "head_dim": Parameter("positive", REQUIRED, help="Head dimension d", letter="d"),
    "d_in": Parameter("positive", REQUIRED, help="Input dimension d_in (vocabulary size for one-hots)"),
    "d_out": Parameter("positive", help="Output dimension; d_in unless said otherwise"),
}
"""In the order of `Shape`, which checks them."""

SHAPE = {
    **DIMENSIONS,
    "residual": Parameter(
        "flag", False, help="With a residual stream: X^l = X^(l-1) + sum over heads, in hosts and targets"
    ),
}
EMBEDDING_DIMENSION = Parameter("positive", help="Embedding dimension m; the construction's own unless said otherwise")
RESIDUAL_OF_WEIGHTS = Parameter(
    "flag", help="Whether weights have a residual stream, where their metadata does not say it; none by default"
)
DRAW = {
    "seed": Parameter("seed", 0, help="Seed of random weights, 0 ... 2^64-1"),
    "law": Parameter("text", "uniform", LAWS, help="Law of random weights"),
    "dtype": Parameter("text", "float64", DTYPES, help="Number format of random weights"),
}
"""How weights are drawn."""


def option(name: str) -> str:
    """The option of a parameter, such as --head-dim."""
    return f"--{name.replace('_', '-')}"


def shape_of(given: Mapping[str, Any]) -> Shape:
    """The shape that these values of SHAPE ask for; None stands for what is left out. MalformedInput naming a dimension that
    is not positive."""
    return Shape(*(given[name] for name in DIMENSIONS), residual=bool(given["residual"]))
