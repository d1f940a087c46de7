"""MLPs of targets and hosts: row by row, gated or not, with biases or without; for NumPy, exact and torch arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, NotDefined, choose
from utfproof.util.arrays import Array, is_exact, is_torch, one_line, zeros

MULTIPLYING = ("relu", "silu", "gelu", "gelu-tanh")
"""Activations g with g(z) - g(-z) = z, so that g(a) b - g(-a) b = a b: gated hosts multiply by them. `activated` knows no
others, and exports (`models/exporting.py`) call torch's functionals of these names."""
_CONSTANT = np.sqrt(2 / np.pi)


def _silu(z: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return np.asarray(z * expit(z))


def _gelu(z: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(z * ndtr(z))


_IN_FLOATS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0),
    "silu": _silu,
    "gelu": _gelu,
    "gelu-tanh": lambda z: z / 2 * (1 + np.tanh(_CONSTANT * (z + 0.044715 * z**3))),
}


def activated(name: str, z: Array) -> Array:
    """g(z), entry by entry. NotDefined for exact numbers, unless g is relu."""
    if is_torch(z):
        import torch

        kind, _, approximation = name.partition("-")
        further = {"approximate": approximation} if approximation else {}
        return getattr(torch.nn.functional, kind)(z, **further)
    if is_exact(z) and name != "relu":
        raise NotDefined(f"{name} of exact numbers is not rational; use relu, or floats")
    return _IN_FLOATS[name](z)


@one_line
@dataclass(frozen=True, eq=False)
class MLP:
    """x -> (g(x W_gate + b_gate) * (x W_in + b_in)) W_out + b_out; without W_gate x -> g(x W_in + b_in) W_out + b_out.

    W_gate, W_in [L, D, K], W_out [L, K, D], b_gate, b_in [L, K], b_out [L, D]; without the axis L if all layers share
    them. D is the width of the stream, K that of the MLP. A bias of None is zero. activation: one of MULTIPLYING.
    Raises MalformedInput naming the tensor whose shape does not fit.
    """

    activation: str
    W_in: Any
    W_out: Any
    W_gate: Any = None
    b_in: Any = None
    b_gate: Any = None
    b_out: Any = None

    def __post_init__(self) -> None:
        if self.activation not in MULTIPLYING:
            raise MalformedInput(f"activation {self.activation!r} is unknown; {choose(self.activation, MULTIPLYING)}")
        if len(getattr(self.W_in, "shape", ())) not in (2, 3):
            raise MalformedInput("the MLP's W_in is no array [L, D, K], or [D, K] for tied weights")
        *lead, D, K = self.W_in.shape
        expected = {"W_gate": (D, K), "W_out": (K, D), "b_in": (K,), "b_gate": (K,), "b_out": (D,)}
        if self.W_gate is None and self.b_gate is not None:
            raise MalformedInput("the MLP has b_gate without W_gate; give both, or neither")
        for name, sizes in expected.items():
            array = getattr(self, name)
            if array is not None and tuple(array.shape) != (*lead, *sizes):
                raise MalformedInput(
                    f"the MLP's {name} has shape {list(array.shape)}, expected {[*lead, *sizes]} as W_in says"
                )

    @property
    def tied(self) -> bool:
        """Whether all layers share the weights."""
        return len(self.W_in.shape) == 2

    @property
    def width(self) -> int:
        """K, the number of hidden units."""
        return int(self.W_in.shape[-1])

    @property
    def arrays(self) -> dict[str, Any]:
        """Its tensors by name, without those that are None."""
        named = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: array for name, array in named.items() if array is not None}

    def changed(self, change: Callable[[Any], Any]) -> MLP:
        """The same MLP with `change` applied to each tensor."""
        return MLP(self.activation, **{name: change(array) for name, array in self.arrays.items()})

    def require_fit(self, layers: int, width: int) -> None:
        """MalformedInput unless it has this many layers, or is tied, and this width D."""
        found, D = self.W_in.shape[:-2], int(self.W_in.shape[-2])
        if (found and int(found[0]) != layers) or D != width:
            raise MalformedInput(f"the MLP's W_in has shape {list(self.W_in.shape)}, expected {[layers, width, 'K']}")

    def part(self, name: str, layer: int) -> Array:
        """One layer's tensor, zeros where a bias is None; layers count from 0."""
        array = getattr(self, name)
        if array is None:
            return zeros(self.W_in, self.width if name != "b_out" else int(self.W_in.shape[-2]))
        return array if self.tied else array[layer]

    def __call__(self, x: Array, layer: int) -> Array:
        """MLP(x) of this layer: x [..., n, D] -> [..., n, D]."""
        hidden = x @ self.part("W_in", layer) + self.part("b_in", layer)
        if self.W_gate is None:
            hidden = activated(self.activation, hidden)
        else:
            hidden = activated(self.activation, x @ self.part("W_gate", layer) + self.part("b_gate", layer)) * hidden
        return hidden @ self.part("W_out", layer) + self.part("b_out", layer)
