"""Fields that several commands share: of a shape, of drawn weights, of limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.generator import DTYPES, LAWS
from utfproof.ground.resources import parse_bytes
from utfproof.jobs.parameters import Parameter, field_of, option, option_of
from utfproof.shapes import Shape

_SHARED: dict[str, tuple[Any, Parameter]] = {
    "heads": (None, Parameter("Heads H per layer.", ("--heads", "-H"), "positive", metavar="H", needed=True)),
    "layers": (None, Parameter("Layers L.", ("--layers", "-L"), "positive", metavar="L", needed=True)),
    "head_dim": (None, Parameter("Head dimension d.", ("--head-dim", "-d"), "positive", metavar="d", needed=True)),
    "d_in": (None, Parameter("Input dimension d_in (vocabulary size for one-hots).", kind="positive", needed=True)),
    "d_out": (None, Parameter("Output dimension; d_in unless said otherwise.", kind="positive")),
    "residual": (False, Parameter("With a residual stream: X^l = X^(l-1) + sum over heads, in hosts and targets.")),
    "m": (None, Parameter("Embedding dimension m; the construction's own unless said otherwise.", kind="positive")),
    "seed": (0, Parameter("Seed of random weights, 0 ... 2^64-1.", kind="seed")),
    "law": ("uniform", Parameter("Law of random weights", choices=LAWS)),
    "dtype": ("float64", Parameter("Number format of random weights", choices=DTYPES)),
    "device": ("cpu", Parameter("cpu (NumPy), or a torch device such as cuda.")),
    "max_memory": (None, Parameter("Memory limit such as 4G; 80 % of RAM unless said otherwise.", aside=True)),
}
DIMENSIONS = ("heads", "layers", "head_dim", "d_in", "d_out")
"""In the order of `Shape`, which checks them."""


def shared(name: str, **changes: Any) -> Any:
    """A field that several commands have; `changes` as in `Parameter`, and `default`."""
    default, parameter = _SHARED[name]
    return field_of(changes.pop("default", default), replace(parameter, **changes))


def residual_of_weights() -> Any:
    """Whether weights have a residual stream, where their file does not say it."""
    words = "Whether weights have a residual stream, where their metadata does not say it; none by default."
    return option(None, words, deniable=True)


def shape_of(given: Mapping[str, Any]) -> Shape:
    """The shape that these values ask for; None stands for what is left out. MalformedInput naming a dimension that is not
    positive."""
    return Shape(*(given[name] for name in DIMENSIONS), residual=bool(given["residual"]))


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The options of a shape."""

    heads: int | None = shared("heads")
    layers: int | None = shared("layers")
    head_dim: int | None = shared("head_dim")
    d_in: int | None = shared("d_in")
    d_out: int | None = shared("d_out")

    @property
    def dimensions(self) -> dict[str, int | None]:
        """What was given, by name."""
        return {name: getattr(self, name) for name in DIMENSIONS}

    @property
    def shape(self) -> Shape:
        """The shape, or MalformedInput naming the options that are missing."""
        return self.shape_with(residual=bool(getattr(self, "residual", False)))

    def shape_with(self, *, residual: bool) -> Shape:
        """The same with a residual stream or without one, whatever the options say of it."""
        return required_shape(self.dimensions, residual=residual)


def required_shape(given: Mapping[str, int | None], *, residual: bool = False) -> Shape:
    """The shape of these dimensions, or MalformedInput naming the options that are missing."""
    needed = [name for name in DIMENSIONS if _SHARED[name][1].needed]
    missing = [option_of(name) for name in needed if given.get(name) is None]
    if missing:
        wanted = ", ".join(map(option_of, needed))
        raise MalformedInput(f"the shape is incomplete: {', '.join(missing)} missing (all of {wanted} are needed)")
    return shape_of({**given, "residual": residual})


@dataclass(frozen=True, kw_only=True)
class Shaped(Dimensions):
    """The options of a shape and of a residual stream."""

    residual: bool = shared("residual")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How weights are drawn."""

    seed: int = shared("seed")
    law: str = shared("law")
    dtype: str = shared("dtype")


@dataclass(frozen=True, kw_only=True)
class Limited:
    """A memory limit."""

    max_memory: str | None = shared("max_memory")

    @property
    def limit(self) -> int | None:
        """Bytes, None for the default."""
        return None if self.max_memory is None else parse_bytes(self.max_memory)
