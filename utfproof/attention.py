"""Attention kernels: (queries, keys, positions) -> attention matrix, shared by targets and hosts.

Axis letters: n tokens, d head dimension. Queries and keys are [n, d], the result is [n, n] with rows summing to 1.
A kernel sees the layer and head too (ALiBi's slopes, matrices given from outside). Every kernel here is a function
of queries, keys and positions alone, so the emulation lemma applies to all of them; those with
`logits_only` depend on q k^T alone, which the attention-matching hosts need.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from utfproof.arrays import Array, is_exact, is_torch, namespace, transpose
from utfproof.errors import MalformedInput


class AttentionKernel(Protocol):
    """What a forward pass asks of a kernel."""

    @property
    def logits_only(self) -> bool:
        """True if the attention matrix depends on queries and keys through q k^T only."""
        ...

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        """Attention matrix [n, n]; layer and head count from 0, positions [n] are integers."""
        ...


def visible(positions: np.ndarray, *, causal: bool, window: int | None) -> np.ndarray | None:
    """Boolean [n, n]: which key each query may see; None when all are. A window of w sees |i - j| < w."""
    if not causal and window is None:
        return None
    distance = positions[:, None] - positions[None, :]
    mask = distance >= 0 if causal else np.ones_like(distance, dtype=bool)
    return mask if window is None else mask & (np.abs(distance) < window)


@dataclass(frozen=True)
class SoftmaxAttention:
    """softmax(scale * q k^T + bias + mask), optionally with rotated queries and keys.

    scale: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim). causal: keys at earlier positions and the own one.
    window: only |i - j| < window. alibi_heads: number of heads H for ALiBi's bias -2^{-8(h+1)/H} |i - j| (the geometric
    slopes, for every H). rope_base: rotary positions with this base; the head dimension must be even.
    """

    scale: float | str = 1.0
    causal: bool = False
    window: int | None = None
    alibi_heads: int | None = None
    rope_base: float | None = None

    def __post_init__(self) -> None:
        if self.window is not None and (isinstance(self.window, bool) or self.window < 1):
            raise MalformedInput(f"attention window must be a positive integer, got {self.window!r}")
        if isinstance(self.scale, str):
            if self.scale != "1/sqrt(d)":
                raise MalformedInput(f"attention scale must be a number or '1/sqrt(d)', got {self.scale!r}")
        elif not math.isfinite(self.scale):
            raise MalformedInput(f"attention scale must be finite, got {self.scale!r}")

    @property
    def logits_only(self) -> bool:
        """RoPE mixes the coordinates of q and k with positions; the rest sees q k^T only."""
        return self.rope_base is None

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        if is_exact(queries):
            raise MalformedInput(
                "softmax has no exact values; pass floats, or RationalAttention or GivenAttention for exact arithmetic"
            )
        positions = np.asarray(positions)
        if self.rope_base is not None:
            queries = rotate(queries, positions, self.rope_base)
            keys = rotate(keys, positions, self.rope_base)
        scale = 1 / math.sqrt(queries.shape[-1]) if isinstance(self.scale, str) else self.scale
        logits = (queries @ transpose(keys)) * scale
        if self.alibi_heads is not None:
            slope = 2.0 ** (-8.0 * (head + 1) / self.alibi_heads)
            distance = np.abs(positions[:, None] - positions[None, :])
            logits = logits - slope * _like(logits, distance)
        mask = visible(positions, causal=self.causal, window=self.window)
        return softmax(logits, mask)


def _like(reference: Array, values: np.ndarray) -> Array:
    """`values` with the dtype (unless boolean) and device of `reference`."""
    if is_torch(reference):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(reference.device)
        return tensor if tensor.dtype == torch.bool else tensor.to(reference.dtype)
    return values if values.dtype == bool else values.astype(reference.dtype)


def softmax(logits: Array, mask: np.ndarray | None = None) -> Array:
    """Row-wise softmax of [n, n] logits, over the visible keys."""
    xp = namespace(logits)
    if mask is not None:
        logits = xp.where(_like(logits, mask), logits, -math.inf)
    weights = xp.exp(logits - xp.amax(logits, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def rotate(x: Array, positions: np.ndarray, base: float) -> Array:
    """Rotary position embedding of x [n, d]: the pair (2i, 2i+1) turns by position * base^(-2i/d).

    Raises MalformedInput for an odd d: there is no pair for the last coordinate.
    """
    d = x.shape[-1]
    if d % 2:
        raise MalformedInput(f"RoPE needs an even head dimension, got {d}")
    angles = np.asarray(positions, dtype=np.float64)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = _like(x, np.cos(angles)), _like(x, np.sin(angles))
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = namespace(x).stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return pairs.reshape(x.shape)


@dataclass(frozen=True)
class GivenAttention:
    """Attention matrices from outside, [L, H, n, n]: the shared-attention model of the paper's lower bound."""

    matrices: Array

    logits_only = True

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        matrix = self.matrices[layer][head]
        if matrix.shape[-1] != queries.shape[-2]:
            raise MalformedInput(
                f"attention matrices are for {matrix.shape[-1]} tokens, the input has {queries.shape[-2]}"
            )
        return matrix


@dataclass(frozen=True)
class RationalAttention:
    """Rows proportional to 1 + (q k^T)^2 over the visible keys: depends on the logits and is exact over the rationals.

    With it the emulation lemma can be tested as an equality of rational numbers.
    """

    causal: bool = False

    logits_only = True

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        logits = queries @ transpose(keys)
        weights = 1 + logits * logits
        mask = visible(np.asarray(positions), causal=self.causal, window=None)
        if mask is not None:
            weights = weights * _like(weights, mask.astype(np.int64))
        total = weights.sum(axis=-1, keepdims=True)
        if is_exact(weights):
            from fractions import Fraction

            return weights.astype(object) * np.vectorize(lambda t: Fraction(1) / t, otypes=[object])(total)
        return weights / total


KERNEL_NAMES = ("softmax", "scaled", "causal", "window:W", "alibi", "rope")


def parse_kernel(text: str, heads: int, head_dim: int) -> SoftmaxAttention:
    """A kernel from its command-line name: 'softmax', or parts joined by '+', as in 'scaled+causal+window:8'.

    scaled is 1/sqrt(d); alibi uses slopes for `heads` heads; rope needs an even `head_dim`. MalformedInput otherwise.
    """
    options: dict[str, Any] = {}
    for part in text.strip().split("+"):
        window = re.fullmatch(r"window:(\d+)", part)
        if part == "scaled":
            options["scale"] = "1/sqrt(d)"
        elif part == "causal":
            options["causal"] = True
        elif window:
            options["window"] = int(window.group(1))
        elif part == "alibi":
            options["alibi_heads"] = heads
        elif part == "rope":
            if head_dim % 2:
                raise MalformedInput(f"RoPE needs an even head dimension, got {head_dim}")
            options["rope_base"] = 10000.0
        elif part != "softmax":
            raise MalformedInput(
                f"attention {text!r} is unknown at {part!r}; join any of {', '.join(KERNEL_NAMES)} with '+'"
            )
    return SoftmaxAttention(**options)
