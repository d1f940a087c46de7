"""The attention of trained models: softmax with what real configurations add to it, layer by layer.

All of it is a function of queries, keys and positions, so a host that matches queries, keys and outputs serves it as it
serves plain softmax (emulation lemma). The factor of the logits is not here: the reader puts it into W_Q and b_Q.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention, like, parse_kernel, softmax, visible
from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, namespace, transpose


@dataclass(frozen=True, eq=False)
class Rotary:
    """Queries and keys turned by their positions: the first 2 r coordinates of a head, in r pairs.

    cos, sin: [P, r], one row per position, as the model computes them (often in float32, so they are tables and no formula).
    adjacent: pairs (2i, 2i + 1); otherwise (i, i + r).
    """

    cos: np.ndarray
    sin: np.ndarray
    adjacent: bool

    def __call__(self, x: Array, positions: np.ndarray) -> Array:
        """x [..., n, d] at positions [n]."""
        r = self.cos.shape[1]
        cos, sin = like(x, self.cos[positions]), like(x, self.sin[positions])
        turned, kept = x[..., : 2 * r], x[..., 2 * r :]
        first, second = (turned[..., 0::2], turned[..., 1::2]) if self.adjacent else (turned[..., :r], turned[..., r:])
        pair = [first * cos - second * sin, first * sin + second * cos]
        xp = namespace(x)
        joined = xp.stack(pair, axis=-1).reshape(turned.shape) if self.adjacent else xp.concatenate(pair, axis=-1)
        return xp.concatenate([joined, kept], axis=-1)


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Softmax attention of one layer.

    causal: position i sees j <= i only; window: |i - j| < window only; cap: logits z become cap tanh(z / cap); bias [H, P, P]:
    added to the logits by head and positions (ALiBi, relative positions), -inf where a key is hidden; rotary: queries and keys
    are turned first.
    """

    causal: bool = False
    window: int | None = None
    cap: float | None = None
    bias: np.ndarray | None = None
    rotary: Rotary | None = None

    @property
    def plain(self) -> SoftmaxAttention | None:
        """The SoftmaxAttention that this is; None if the cap, the bias or the rotation makes it another."""
        if any(part is not None for part in (self.cap, self.bias, self.rotary)):
            return None
        return SoftmaxAttention(causal=self.causal, window=self.window)

    def positions(self) -> float:
        """How many positions its tables have."""
        tables = [len(self.rotary.cos)] if self.rotary is not None else []
        return min([*tables, *([self.bias.shape[-1]] if self.bias is not None else [])], default=math.inf)

    def matrix(self, queries: Array, keys: Array, positions: np.ndarray, head: int) -> Array:
        """The attention matrix [n, n] of queries and keys [n, d]. MalformedInput for a position beyond the tables."""
        if len(positions) and int(positions.max()) >= self.positions():
            raise MalformedInput(
                f"position {int(positions.max())} is beyond the {self.positions()} of the model's tables"
            )
        if self.rotary is not None:
            queries, keys = self.rotary(queries, positions), self.rotary(keys, positions)
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

    def document(self) -> dict[str, Any]:
        """For JSON."""
        rotary = None
        if self.rotary is not None:
            rotary = [self.rotary.cos.tolist(), self.rotary.sin.tolist(), self.rotary.adjacent]
        bias = None if self.bias is None else self.bias.tolist()
        return {"causal": self.causal, "window": self.window, "cap": self.cap, "bias": bias, "rotary": rotary}

    @staticmethod
    def of_document(document: Any) -> LayerAttention:
        """The inverse of `document`. ValueError, KeyError or TypeError for other documents."""
        causal, window, cap, bias, turned = (document[name] for name in ("causal", "window", "cap", "bias", "rotary"))
        if not isinstance(causal, bool) or not (window is None or (type(window) is int and window > 0)):
            raise ValueError(f"causal {causal!r}, window {window!r}"[:80])
        if cap is not None and not (0 < abs(float(cap)) < math.inf):
            raise ValueError(f"cap {cap!r}"[:80])
        rotary = None
        if turned is not None:
            cos, sin = _table(turned[0], 2), _table(turned[1], 2)
            if cos.shape != sin.shape or not np.isfinite([cos, sin]).all():
                raise ValueError(f"rotations of shapes {cos.shape} and {sin.shape}")
            rotary = Rotary(cos, sin, bool(turned[2]))
        return LayerAttention(causal, window, cap, None if bias is None else _table(bias, 3), rotary)

    def unfit(self, heads: int, head_dim: int) -> str:
        """Why heads as these have no such attention; "" where they have."""
        if self.bias is not None and self.bias.shape != (heads, *self.bias.shape[-1:] * 2):
            return f"the stored attention has a bias of shape {list(self.bias.shape)}, expected [{heads}, P, P]"
        if self.rotary is not None and 2 * self.rotary.cos.shape[1] > head_dim:
            return f"the stored attention rotates {2 * self.rotary.cos.shape[1]} coordinates, of heads of dimension {head_dim}"
        return ""

    def words(self) -> str:
        """For people."""
        parts = ["causal" if self.causal else "both ways"]
        parts += [f"window {self.window}"] if self.window is not None else []
        parts += [f"a bias for each pair of {self.bias.shape[-1]} positions"] if self.bias is not None else []
        parts += [f"logits capped at {self.cap:g}"] if self.cap is not None else []
        if self.rotary is not None:
            kind = "adjacent" if self.rotary.adjacent else "half-way"
            parts.append(f"rotary on {2 * self.rotary.cos.shape[1]} coordinates, {kind} pairs")
        return ", ".join(parts)


def _table(given: Any, axes: int) -> np.ndarray:
    """A table of a document with this many axes. ValueError or TypeError for anything else."""
    table = np.array(given, dtype=np.float64)
    if table.ndim != axes or not table.size or np.isnan(table).any():
        raise ValueError(f"a table of shape {table.shape}")
    return table


@dataclass(frozen=True, eq=False)
class ModelAttention:
    """An attention kernel with a `LayerAttention` for every layer. Rows sum to 1."""

    layers: tuple[LayerAttention, ...]

    row_stochastic = True

    @property
    def logits_only(self) -> bool:
        """Whether every layer sees q k^T only."""
        return all(layer.rotary is None for layer in self.layers)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.layers[layer].matrix(queries, keys, np.asarray(positions), head)

    def unfit(self, heads: int, head_dim: int, layers: int | None = None) -> str:
        """Why a model of this shape has no such attention; "" where it has."""
        if not self.layers or layers not in (None, len(self.layers)):
            return f"the stored attention is of {len(self.layers)} layers, {layers or 'at least one'} expected"
        return next(filter(None, (layer.unfit(heads, head_dim) for layer in self.layers)), "")

    def in_blocks(self, blocks: int) -> ModelAttention:
        """For a host that has `blocks` layers in the place of each of the model's."""
        return ModelAttention(tuple(layer for layer in self.layers for _ in range(blocks)))

    def simplest(self) -> SoftmaxAttention | ModelAttention:
        """A SoftmaxAttention where all layers are the same one."""
        plain = {layer.plain for layer in self.layers}
        found = next(iter(plain))
        return found if len(plain) == 1 and found is not None else self

    def words(self) -> str:
        """For people: layers that do the same are said once."""
        each = [layer.words() for layer in self.layers]
        return each[0] if len(set(each)) == 1 else "; ".join(f"layer {i}: {text}" for i, text in enumerate(each))


def attention_kernel(text: str) -> SoftmaxAttention:
    """A kernel that is said on the command line: softmax, causal, window:W or a combination. The scale is in W_Q already."""
    kernel = parse_kernel(text, 1, 2)
    plain = SoftmaxAttention(causal=getattr(kernel, "causal", False), window=getattr(kernel, "window", None))
    if kernel != plain:
        raise MalformedInput(
            f"attention {text!r}: imported models take softmax, causal, window:W or a combination (their scale is in W_Q)"
        )
    return plain


Kernel = SoftmaxAttention | ModelAttention
"""The attention of an imported model."""


def write_kernel(kernel: Kernel) -> str:
    """The text that metadata store: the command line's name of a plain kernel, JSON for others."""
    if isinstance(kernel, ModelAttention):
        return json.dumps([layer.document() for layer in kernel.layers], separators=(",", ":"))
    parts = ["causal"] if kernel.causal else []
    parts += [] if kernel.window is None else [f"window:{kernel.window}"]
    return "+".join(parts) or "softmax"


def read_kernel(text: str, heads: int, head_dim: int) -> Any:
    """The kernel that `write_kernel` wrote, or that a command-line name means. MalformedInput otherwise."""
    if not text.startswith("["):
        return parse_kernel(text, heads, head_dim)
    try:
        kernel = ModelAttention(tuple(LayerAttention.of_document(layer) for layer in json.loads(text)))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedInput(f"the stored attention is not one that this package writes: {error}") from error
    if reason := kernel.unfit(heads, head_dim):
        raise MalformedInput(reason)
    return kernel
