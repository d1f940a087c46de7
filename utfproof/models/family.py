"""What a family of models is: which tensor plays which role with which axes, and what each field of its configuration means.

A family is a file in `families/`. Axes are written as in "(H d) D": letters are H heads, G heads of keys and values, d head
dimension, D width, V vocabulary, P positions, O outputs, c components in the order of the roles; a bracket is one axis of the
stored tensor that runs over its letters, the last one fastest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utfproof.models.norms import NormTensors

CANONICAL = {
    "W_E": "V D",
    "W_pos": "P D",
    "W_U": "D O",
    "b_U": "O",
    "W_Q": "H D d",
    "W_K": "G D d",
    "W_V": "G D d",
    "W_O": "H d D",
    "b_Q": "H d",
    "b_K": "G d",
    "b_V": "G d",
    "b_O": "D",
}
"""Axes of each role as this package holds them; matrices act on rows from the right."""


@dataclass(frozen=True)
class Tensor:
    """A stored tensor: its roles (several for fused ones, along the letter c) and its axes."""

    axes: str
    roles: tuple[str, ...]


def tensor(axes: str, *roles: str) -> Tensor:
    """A tensor of these axes in these roles."""
    return Tensor(axes, roles)


EMBEDDED = {
    "W_E": tensor("V D", "W_E"),
    "W_pos": tensor("P D", "W_pos"),
    "W_U": tensor("O D", "W_U"),
    "b_U": tensor("O", "b_U"),
}
"""What stands outside of layers: nn.Embeddings of tokens and positions, and an nn.Linear."""


def linears(q: str, k: str, v: str, o: str) -> dict[str, Tensor]:
    """Four nn.Linear of these names: queries, keys, values, output."""
    rows: dict[str, Tensor] = {}
    for name, part, heads in ((q, "Q", "H"), (k, "K", "G"), (v, "V", "G")):
        rows |= {
            f"{name}.weight": tensor(f"({heads} d) D", f"W_{part}"),
            f"{name}.bias": tensor(f"({heads} d)", f"b_{part}"),
        }
    return rows | {f"{o}.weight": tensor("D (H d)", "W_O"), f"{o}.bias": tensor("D", "b_O")}


@dataclass(frozen=True)
class Meaning:
    """What a field of a configuration says. fact: the fact that it sets, "" where it sets none; only: the values, or the test
    of a value, under which the model is read (None: any); why: why others are refused; convert: field's value -> the fact's."""

    fact: str = ""
    only: tuple[Any, ...] | Callable[[Any], bool] | None = None
    why: str = ""
    convert: Callable[[Any], Any] | None = None


def whole(value: Any, least: int = 0) -> bool:
    """Whether a field's value is a whole number, at least so large, and no more than any size is."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def number(value: Any) -> bool:
    """Whether a field's value is a finite number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


HARMLESS = Meaning()
"""A field that no output depends on."""


def sets(fact: str, convert: Callable[[Any], Any] | Mapping[Any, Any] | None = None) -> Meaning:
    """A field that sets a fact; a mapping lists the values that are understood."""
    if isinstance(convert, Mapping):
        return Meaning(fact, only=tuple(convert), why="it is not one of those that are understood", convert=convert.get)
    return Meaning(fact, convert=convert)


def maximum(fact: str, least: int = 0) -> Meaning:
    """A field that is a whole number, or null where there is no such limit (0 for the fact)."""
    return Meaning(
        fact, lambda n: n is None or whole(n, least), f"it is no whole number from {least} on", lambda n: n or 0
    )


def only(*values: Any, why: str) -> Meaning:
    """A field under whose other values no embedding carries the model (or this reader does not)."""
    return Meaning(only=values, why=why)


def harmless(*names: str) -> dict[str, Meaning]:
    """Fields that no output depends on; a text may hold several names, separated by spaces."""
    return dict.fromkeys(" ".join(names).split(), HARMLESS)


WORDS = {
    "attention_dir": sets("causal", {"causal": True, "bidirectional": False}),
    "positional_embedding_type": sets("positions", {"standard": "learned", "rotary": "rotary", None: "none"}),
    "normalization_type": sets("norm", {None: "none", "LN": "LayerNorm", "RMS": "RMS"}),
    "attn_scores_soft_cap": Meaning(
        "cap",
        lambda cap: cap is None or (number(cap) and (cap >= 0 or cap == -1)),
        "it is neither a positive number nor one of 0, -1 and null, which mean that there is no cap",
        lambda cap: float(cap) if cap and cap > 0 else 0.0,
    ),
    "rotary_dim": sets("rotary_dim", lambda r: "all" if r is None else r),
    "rotary_adjacent_pairs": sets("adjacent"),
}
"""TransformerLens' words for facts that tensors do not show, understood wherever a family has no field of its own."""

USUAL = {
    **{"causal": True, "scale": "1/sqrt(d)", "positions": "learned", "norm": "none", "cap": 0.0, "window": 0},
    **{"rotary_base": 10000.0, "rotary_dim": "all"},
}
"""What is assumed, and said to be assumed, of attention that can be anything, where nobody says it."""
FACTS: dict[str, str] = {
    "causal": "mask",
    "scale": "logits times",
    "positions": "positions",
    "norm": "normalisation",
    "cap": "cap of logits",
    "window": "window",
    "stream": "residual stream",
    "mlp": "MLP",
    "head_order": "order of heads",
    "rotary_base": "base of the rotation",
    "rotary_dim": "rotated coordinates",
    "adjacent": "adjacent pairs are rotated",
}
"""Facts that change outputs and that tensors do not show, with the word for people."""

ROTATION = ("rotary_base", "rotary_dim", "adjacent")
"""Facts on which outputs depend where positions are rotated."""

SIZES = {
    "H": "heads",
    "G": "kv_heads",
    "d": "head_dim",
    "D": "width",
    "V": "vocabulary",
    "O": "outputs",
    "P": "context",
    "L": "layers",
}
"""Letters of axes and the facts that say them."""

ANY_LENGTH = 64
"""Positions of a model without learned ones: nobody says how many, tests go to this many, or just beyond its windows."""
LONGEST = 1024
"""Most positions without learned ones that are tried, and whose rotations are read."""


@dataclass(frozen=True)
class Family:
    """One family of models.

    layer: names of a layer's tensors behind the prefix of its attention module -> what they are. outer: the tensors outside of
    layers by role, outer_names: regular expressions for their names (at the end, after the start or a dot). marks: names of
    `layer` of which at least one set must be there for the family to be recognised. config: fields -> meaning. settled: facts
    that hold for every model of the family; assumed: facts as they are taken where nobody says otherwise. live: (module,
    attention modules) -> configuration of a live module; double: makes a float64 copy compute in float64 throughout; buffers:
    names of tensors that hold no weights. shows_positions: whether rows of positions, where there are any, are added to the
    stream by every model of the family. implies: a configuration -> facts that the code it is written for has, whatever its
    fields say of them. rotary: (module, its configuration) -> the tables of a live module. norms: how
    norms are stored, where they are read.
    """

    name: str
    title: str
    layer: Mapping[str, Tensor]
    outer: Mapping[str, Tensor]
    outer_names: Mapping[str, tuple[str, ...]]
    marks: tuple[tuple[str, ...], ...]
    config: Mapping[str, Meaning]
    settled: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    shows_positions: bool = False
    implies: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    required: tuple[str, ...] = ("W_Q", "W_K", "W_V", "W_O")
    tied_output: bool = False
    live: Callable[[Any, Mapping[str, Any]], dict[str, Any]] | None = None
    double: Callable[[Any], None] | None = None
    rotary: Callable[[Any, Mapping[str, Any], int], tuple[np.ndarray, np.ndarray] | None] | None = None
    recognised: Callable[[Mapping[str, Any]], bool] | None = None
    norms: NormTensors | None = None
    looks: str = ""


def split_axes(axes: str) -> list[list[str]]:
    """'(H d) D' -> [['H', 'd'], ['D']]."""
    return [(inside or letter).split() for inside, letter in re.findall(r"\(([^)]*)\)|(\S+)", axes)]
