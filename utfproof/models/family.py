"""What a family of models is. A family is a file in `families/`; adding one touches that file only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utfproof.models.configuration import Facts, Meaning
from utfproof.models.tensors import Claims

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Family:
    """One family of models.

    marks: names of a layer's tensors, behind the prefix of its attention module, by which the family is recognised. fields:
    what the fields of its configuration mean; whole: fields without which a configuration does not say all that changes
    outputs. settled: facts that hold for every model of the family; assumed: facts as they are taken where nobody says them.
    arrays: the tensors as `Reading.arrays`, each claimed. norms: which norms it has, with the names of their gain and bias.
    live: a module's configuration; double: makes a float64 copy compute in float64 throughout; tables: a module's own cos and
    sin [P, r] of rotated positions.
    """

    name: str
    title: str
    looks: str
    marks: tuple[str, ...]
    fields: Mapping[str, Meaning]
    arrays: Callable[[Claims, list[str], Facts], Arrays]
    settled: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Any] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    norms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    live: Callable[[Any, list[Any]], dict[str, Any]] = lambda module, layers: {}
    double: Callable[[Any], None] = lambda module: None
    tables: Callable[[Any, int], tuple[np.ndarray, np.ndarray] | None] = lambda module, positions: None


def stacked(claims: Claims, prefixes: list[str], names: Mapping[str, tuple[str, tuple[int, ...], str]]) -> Arrays:
    """The tensors of all layers, [L, ...] by role. names: role -> (name behind the prefix, its shape, axes): axes "" leave it
    as it is, "(h d) D" and "D (h d)" name the fused axes of a linear's weight with the number of heads in `shape`[0]."""
    out = {}
    for role, (name, shape, axes) in names.items():
        rows = [_unfused(claims, prefix + name, shape, axes, role.startswith("b_")) for prefix in prefixes]
        out[role] = np.stack(rows)
    return out


def _unfused(claims: Claims, name: str, shape: tuple[int, ...], axes: str, optional: bool) -> np.ndarray:
    """One tensor in the axes of `Reading.arrays`; shape: of these axes, without the last two exchanged."""
    take = claims.optional if optional else claims.take
    if not axes:
        return take(name, shape)
    if axes == "(h d)":
        heads, d = shape
        return take(name, (heads * d,)).reshape(shape)
    heads, D, d = shape
    if axes == "(h d) D":
        return np.ascontiguousarray(take(name, (heads * d, D)).reshape(heads, d, D).transpose(0, 2, 1))
    return np.ascontiguousarray(take(name, (D, heads * d)).reshape(D, heads, d).transpose(1, 2, 0))
