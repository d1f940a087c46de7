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

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import Array, is_exact, is_torch, namespace, one_line, transpose


class AttentionKernel(Protocol):
    """What a forward pass asks of a kernel."""

    @property
    def logits_only(self) -> bool:
        """True if the attention matrix depends on queries and keys through q k^T only."""
        ...

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        """Attention matrix [n, n]; layer and head count from 0, positions [n] are integers."""
        ...


def visible(rows: np.ndarray, columns: np.ndarray, *, causal: bool, window: int | None) -> np.ndarray | None:
    """Boolean [rows, columns]: which key each query may see, by their positions; None when all are. A window of w sees
    |i - j| < w."""
    if not causal and window is None:
        return None
    distance = rows[:, None] - columns[None, :]
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

    def factor(self, head_dim: int) -> float:
        """The scale as a number."""
        return 1 / math.sqrt(head_dim) if isinstance(self.scale, str) else float(self.scale)

    def rotated(self, queries: Array, keys: Array, positions: np.ndarray) -> tuple[Array, Array]:
        """Queries and keys as the logits see them: turned by their positions where there is a rope_base."""
        if is_exact(queries):
            raise MalformedInput(
                "softmax has no exact values; pass floats, or RationalAttention or GivenAttention for exact arithmetic"
            )
        if self.rope_base is None:
            return queries, keys
        return rotate(queries, positions, self.rope_base), rotate(keys, positions, self.rope_base)

    def logits(self, queries: Array, keys: Array, rows: np.ndarray, columns: np.ndarray, *, head: int) -> Array:
        """Logits [rows, columns] of rotated queries at positions `rows` and keys at positions `columns`, minus infinity
        where a key is not visible."""
        logits = queries @ transpose(keys)
        scale = self.factor(queries.shape[-1])
        if scale != 1:
            logits = logits * scale
        if self.alibi_heads is not None:
            slope = 2.0 ** (-8.0 * (head + 1) / self.alibi_heads)
            distance = np.abs(rows[:, None] - columns[None, :])
            logits = logits - slope * _like(logits, distance)
        mask = visible(rows, columns, causal=self.causal, window=self.window)
        return masked(logits, mask)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        positions = np.asarray(positions)
        queries, keys = self.rotated(queries, keys, positions)
        return softmax(self.logits(queries, keys, positions, positions, head=head))


def _like(reference: Array, values: np.ndarray) -> Array:
    """`values` with the dtype (unless boolean) and device of `reference`."""
    if is_exact(reference):
        return values
    if is_torch(reference):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(reference.device)
        return tensor if tensor.dtype == torch.bool else tensor.to(reference.dtype)
    return values if values.dtype == bool else values.astype(reference.dtype)


def masked(logits: Array, mask: np.ndarray | None) -> Array:
    """Logits with minus infinity where the mask is False."""
    if mask is None:
        return logits
    return namespace(logits).where(_like(logits, mask), logits, -math.inf)


def softmax_weights(logits: Array) -> tuple[Array, Array]:
    """exp(logits - their row's maximum) [..., rows, columns], and the row sums [..., rows, 1]."""
    xp = namespace(logits)
    weights = xp.exp(logits - xp.amax(logits, axis=-1, keepdims=True))
    return weights, weights.sum(axis=-1, keepdims=True)


def softmax(logits: Array, mask: np.ndarray | None = None) -> Array:
    """Row-wise softmax of [..., n, n] logits, over the visible keys."""
    weights, total = softmax_weights(masked(logits, mask))
    return weights / total


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


def attend(
    kernel: AttentionKernel, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int
) -> Array:
    """The attention matrix times the rows of x [..., n, width]: by the kernel's own `attended` where it has one."""
    attended = getattr(kernel, "attended", None)
    if attended is not None:
        return attended(queries, keys, x, positions, layer=layer, head=head)
    return kernel(queries, keys, positions, layer=layer, head=head) @ x


KEY_BLOCK = 256
"""Keys summed at a time by ChunkedAttention."""


@one_line
@dataclass(frozen=True)
class ChunkedAttention:
    """The same attention in bounded memory: `rows` queries at a time, sums over keys in blocks of KEY_BLOCK.

    Keys that a causal mask or a window hides from a whole chunk are never looked at. Summing in blocks also keeps the
    rounding error of n terms at that of KEY_BLOCK + n / KEY_BLOCK (docs/emulation.md). `rows` None: about 2^22 logits.
    """

    kernel: Any
    rows: int | None = None

    @property
    def logits_only(self) -> bool:
        """As the kernel's."""
        return bool(self.kernel.logits_only)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        return self.kernel(queries, keys, positions, layer=layer, head=head)

    def attended(self, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int) -> Array:
        """A x [..., n, width], never more than `rows` rows of A at a time."""
        positions = np.asarray(positions)
        if not isinstance(self.kernel, SoftmaxAttention):
            return blocked_product(self.kernel(queries, keys, positions, layer=layer, head=head), x)
        n = x.shape[-2]
        rows = self.rows or max(16, (1 << 22) // n)
        queries, keys = self.kernel.rotated(queries, keys, positions)
        parts = []
        for start in range(0, n, rows):
            stop = min(start + rows, n)
            first, last = self._span(positions, start, stop)
            logits = self.kernel.logits(
                queries[..., start:stop, :],
                keys[..., first:last, :],
                positions[start:stop],
                positions[first:last],
                head=head,
            )
            weights, total = softmax_weights(logits)
            parts.append(blocked_product(weights, x[..., first:last, :]) / total)
        return parts[0] if len(parts) == 1 else namespace(x).concatenate(parts, axis=-2)

    def _span(self, positions: np.ndarray, start: int, stop: int) -> tuple[int, int]:
        """First and last key that any of these queries may see, where positions count upwards."""
        n, causal, window = len(positions), self.kernel.causal, self.kernel.window
        if (not causal and window is None) or not np.array_equal(positions, np.arange(n)):
            return 0, n
        first = 0 if window is None else max(0, start - window + 1)
        last = stop if causal else min(n, stop + window - 1)
        return first, last


def blocked_product(weights: Array, x: Array, block: int = KEY_BLOCK) -> Array:
    """weights @ x, the sum over the inner index taken in blocks."""
    n = x.shape[-2]
    total = weights[..., :block] @ x[..., :block, :]
    for start in range(block, n, block):
        total += weights[..., start : start + block] @ x[..., start : start + block, :]
    return total


@one_line
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
        return matrix if is_exact(matrix) or is_torch(matrix) else _like(queries, np.asarray(matrix))


@one_line
@dataclass(frozen=True)
class SeededAttention(GivenAttention):
    """Matrices from outside for any context length, drawn from a seed: row i of layer l and head h holds the generator's
    numbers 1 ... 16 over their sum, the same for host and target whatever they compute. Needs n^2 numbers at a time."""

    matrices: Array = None
    seed: int = 0

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        weights = self._weights(queries.shape[-2], layer, head).astype(np.float64)
        return _like(queries, weights / weights.sum(axis=1, keepdims=True))

    def _weights(self, context: int, layer: int, head: int) -> np.ndarray:
        """Integers 1 ... 16 [n, n]."""
        from utfproof.ground.generator import raw_numpy, stream_key

        numbers = raw_numpy(stream_key(self.seed, "X", layer, head), context * context)
        return (numbers >> np.uint64(60)).astype(np.int64).reshape(context, context) + 1

    def rational(self, layers: int, heads: int, context: int) -> GivenAttention:
        """The same matrices as exact fractions, [L, H, n, n], whose rows sum to one exactly."""
        from fractions import Fraction

        out = np.empty((layers, heads, context, context), dtype=object)
        for index in np.ndindex(layers, heads, context):
            row = [int(w) for w in self._weights(context, *index[:2])[index[2]]]
            out[index] = [Fraction(w, sum(row)) for w in row]
        return GivenAttention(out)


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
        places = np.asarray(positions)
        mask = visible(places, places, causal=self.causal, window=None)
        if mask is not None:
            weights = weights * _like(weights, mask.astype(np.int64))
        total = weights.sum(axis=-1, keepdims=True)
        if is_exact(weights):
            from fractions import Fraction

            return weights.astype(object) * np.vectorize(lambda t: Fraction(1) / t, otypes=[object])(total)
        return weights / total


KERNEL_NAMES = ("softmax", "scaled", "causal", "window:W", "alibi", "rope")
EVERY_KERNEL = ("softmax", "scaled", "causal", "window:64", "alibi", "rope", "scaled+causal+alibi", "given")
"""One of each kind, and matrices from outside: what `--attention all` means."""


def parse_kernel(text: str, heads: int, head_dim: int) -> SoftmaxAttention | SeededAttention:
    """A kernel from its command-line name: 'softmax', or parts joined by '+', as in 'scaled+causal+window:8'; or 'given',
    row-stochastic matrices from outside.

    scaled is 1/sqrt(d); alibi uses slopes for `heads` heads; rope needs an even `head_dim`. MalformedInput otherwise.
    """
    if text.strip() == "given":
        return SeededAttention()
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
                f"attention {text!r} is unknown at {part!r}; join any of {', '.join(KERNEL_NAMES)} with '+', or use given alone"
            )
    return SoftmaxAttention(**options)
