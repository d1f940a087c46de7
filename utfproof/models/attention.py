"""The attention of trained models: softmax with what real configurations add to it, layer by layer.

All of it is a function of queries, keys and positions, so a host that matches queries, keys and outputs serves it as it
serves plain softmax (emulation lemma). The factor of the logits is not here: the reader puts it into W_Q and b_Q.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention, like, parse_kernel, softmax, visible
from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, namespace, transpose


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Softmax attention of one layer.

    causal: position i sees j <= i only; window: |i - j| < window only; cap: logits z become cap tanh(z / cap); bias [H, P, P]:
    added to the logits by head and positions (ALiBi, relative positions), -inf where a key is hidden; rope_base: queries and
    keys are turned first, as `SoftmaxAttention` turns them. MalformedInput for values that cannot be.
    """

    causal: bool = False
    window: int | None = None
    cap: float | None = None
    bias: np.ndarray | None = None
    rope_base: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.causal, bool) or not (self.cap is None or 0 < abs(self.cap) < math.inf):
            raise MalformedInput(f"causal {self.causal!r}, logits capped at {self.cap!r}")
        b = self.bias
        if b is not None and (b.ndim != 3 or not b.size or b.shape[1] != b.shape[2] or np.isnan(b).any()):
            raise MalformedInput(f"a bias of shape {list(b.shape)}, expected [H, P, P] without NaN")
        _ = self._formula  # whether window and base can be

    @property
    def _formula(self) -> SoftmaxAttention:
        """This without cap and bias."""
        return SoftmaxAttention(causal=self.causal, window=self.window, rope_base=self.rope_base)

    @property
    def plain(self) -> SoftmaxAttention | None:
        """The SoftmaxAttention that this is; None if the cap, the bias or the rotation makes it another."""
        return self._formula if self.cap is self.bias is self.rope_base is None else None

    def positions(self) -> float:
        """How many positions its tables have."""
        return math.inf if self.bias is None else self.bias.shape[-1]

    def matrix(self, queries: Array, keys: Array, positions: np.ndarray, head: int) -> Array:
        """The attention matrix [n, n] of queries and keys [n, d]. MalformedInput for a position beyond the tables."""
        if len(positions) and int(positions.max()) >= self.positions():
            raise MalformedInput(
                f"position {int(positions.max())} is beyond the {self.positions()} of the model's tables"
            )
        queries, keys = (self._formula.turned(x, positions) for x in (queries, keys))
        logits = queries @ transpose(keys)
        if self.cap is not None:
            logits = self.cap * namespace(logits).tanh(logits / self.cap)
        seen = visible(positions, positions, causal=self.causal, window=self.window)
        if self.bias is not None:
            added = self.bias[head][np.ix_(positions, positions)]
            shown = np.isfinite(added)
            seen = shown if seen is None else seen & shown
            logits = logits + like(logits, np.where(shown, added, 0.0))
        return softmax(logits, seen)

    def words(self) -> str:
        """For people."""
        parts = ["causal" if self.causal else "both ways"]
        parts += [f"window {self.window}"] if self.window is not None else []
        parts += [f"a bias for each pair of {self.bias.shape[-1]} positions"] if self.bias is not None else []
        parts += [f"logits capped at {self.cap:g}"] if self.cap is not None else []
        parts += [f"rotations of base {self.rope_base:g}"] if self.rope_base is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class ModelAttention:
    """An attention kernel with a `LayerAttention` for every layer. Rows sum to 1."""

    layers: tuple[LayerAttention, ...]

    row_stochastic = True

    @property
    def logits_only(self) -> bool:
        """Whether every layer sees q k^T only."""
        return all(layer.rope_base is None for layer in self.layers)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.layers[layer].matrix(queries, keys, np.asarray(positions), head)

    def require_fit(self, heads: int, head_dim: int, layers: int) -> None:
        """MalformedInput where a model of this shape has no such attention."""
        if len(self.layers) != layers:
            raise MalformedInput(f"the attention is of {len(self.layers)} layers, expected {layers}")
        for layer in self.layers:
            if layer.bias is not None and len(layer.bias) != heads:
                raise MalformedInput(f"the attention has a bias of {len(layer.bias)} heads, expected {heads}")
            if layer.rope_base is not None and head_dim % 2:
                raise MalformedInput(f"the attention rotates pairs, of heads of dimension {head_dim}")

    def simplest(self) -> SoftmaxAttention | ModelAttention:
        """A SoftmaxAttention where all layers are the same one."""
        plain = {layer.plain for layer in self.layers}
        found = next(iter(plain))
        return found if len(plain) == 1 and found is not None else self

    def words(self) -> str:
        """For people: layers that do the same are listed once."""
        each = [layer.words() for layer in self.layers]
        return each[0] if len(set(each)) == 1 else "; ".join(f"layer {i}: {text}" for i, text in enumerate(each))


def layer_attention(text: str) -> LayerAttention:
    """What the command line says: softmax, causal, window:W or a combination. The scale is in W_Q already."""
    kernel = parse_kernel(text, 1, 2)
    plain = LayerAttention(getattr(kernel, "causal", False), getattr(kernel, "window", None))
    if kernel != plain.plain:
        raise MalformedInput(
            f"attention {text!r}: imported models take softmax, causal, window:W or a combination (their scale is in W_Q)"
        )
    return plain


Kernel = SoftmaxAttention | ModelAttention
"""The attention of an imported model."""


def write_kernel(kernel: Kernel) -> str:
    """The text that metadata store: the command line's name of a plain kernel, JSON for others."""
    if isinstance(kernel, SoftmaxAttention):
        return kernel.written()
    return json.dumps([asdict(layer) for layer in kernel.layers], default=np.ndarray.tolist, separators=(",", ":"))


def read_kernel(text: str, heads: int, head_dim: int, layers: int) -> Any:
    """The kernel that `write_kernel` wrote, or that a command-line name means. MalformedInput otherwise."""
    if not text.startswith("["):
        return parse_kernel(text, heads, head_dim)
    try:
        kernel = ModelAttention(
            tuple(LayerAttention(**one | {"bias": _table(one["bias"])}) for one in json.loads(text))
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedInput(f"the stored attention is not one that this package writes: {error}") from error
    kernel.require_fit(heads, head_dim, layers)
    return kernel


def _table(given: Any) -> np.ndarray | None:
    """A bias of JSON. ValueError or TypeError for what is no array of numbers."""
    return None if given is None else np.array(given, dtype=np.float64)
