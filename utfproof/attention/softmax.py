"""softmax(scale * q k^T + bias + mask): one formula, for NumPy and torch.

Axis letters: n tokens, d head dimension. A name joins the options that are there with '+', in the order of KERNEL_NAMES.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, is_exact, is_torch, namespace, transpose

KERNEL_NAMES = ("softmax", "scaled", "causal", "window:W", "alibi", "rope")
BY_HEAD_DIM = "1/sqrt(d)"
BASE = 10000.0
"""The base of `rope` without a number."""


def like(reference: Array, values: np.ndarray) -> Array:
    """`values` with the dtype (unless boolean) and device of `reference`."""
    if is_exact(reference):
        return values
    if is_torch(reference):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(reference.device)
        return tensor if tensor.dtype == torch.bool else tensor.to(reference.dtype)
    return values if values.dtype == bool else values.astype(reference.dtype)


def _require_positive(value: Any, kind: Any, what: str) -> None:
    if value is None or (isinstance(value, kind) and not isinstance(value, bool) and 0 < value < math.inf):
        return
    raise MalformedInput(f"{what}, got {value!r}")


@dataclass(frozen=True)
class SoftmaxAttention:
    """softmax(scale * q k^T + bias + mask), optionally with rotated queries and keys.

    scale: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim). causal: keys at earlier positions and the own one.
    window: only |i - j| < window. alibi_heads: number of heads H for ALiBi's bias -2^{-8(h+1)/H} |i - j| (the geometric
    slopes, for every H). rope_base: rotary positions, the pair (2i, 2i+1) turns by position * base^{-2i/d}; d must be even.

    >>> import numpy as np
    >>> from utfproof import Shape, SoftmaxAttention, random_target
    >>> attention = SoftmaxAttention(scale="1/sqrt(d)", causal=True)
    >>> random_target(Shape(1, 2, 2, 3)).forward(np.eye(3), attention).shape
    (3, 3)
    """

    scale: float | str = 1.0
    causal: bool = False
    window: int | None = None
    alibi_heads: int | None = None
    rope_base: float | None = None

    row_stochastic = True

    def __post_init__(self) -> None:
        if isinstance(self.scale, str):
            if self.scale != BY_HEAD_DIM:
                raise MalformedInput(f"attention scale must be a number or '{BY_HEAD_DIM}', got {self.scale!r}")
        elif not math.isfinite(self.scale):
            raise MalformedInput(f"attention scale must be finite, got {self.scale!r}")
        _require_positive(self.window, Integral, "attention window must be a positive integer")
        _require_positive(self.alibi_heads, Integral, "the number of heads of ALiBi must be a positive integer")
        _require_positive(self.rope_base, Real, "the base of rotary positions must be a positive number")

    @classmethod
    def named(cls, text: str, heads: int) -> SoftmaxAttention:
        """The kernel of this name. MalformedInput for an unknown one."""
        usual: dict[str, dict[str, Any]] = {
            "softmax": {},
            "scaled": {"scale": BY_HEAD_DIM},
            "causal": {"causal": True},
            "alibi": {"alibi_heads": heads},
            "rope": {"rope_base": BASE},
        }
        options: dict[str, Any] = {}
        for name in text.strip().split("+"):
            if found := re.fullmatch(r"window:([0-9]{1,18})", name):
                options["window"] = int(found[1])
            elif name in usual:
                options |= usual[name]
            else:
                known = f"join any of {', '.join(KERNEL_NAMES)} with '+', or use given alone"
                raise MalformedInput(f"attention {text!r} is unknown at {name!r}; {known}")
        return cls(**options)

    @property
    def logits_only(self) -> bool:
        """Whether attention sees q k^T only: rotary positions mix the coordinates of queries and keys."""
        return self.rope_base is None

    def unfit(self, head_dim: int) -> str | None:
        """Why heads of this dimension cannot have this attention."""
        odd = self.rope_base is not None and head_dim % 2
        return f"RoPE needs an even head dimension, got {head_dim}" if odd else None

    def written(self) -> str:
        """The name that `parse_kernel` reads."""
        there = (self.scale != 1, self.causal, self.window, self.alibi_heads, self.rope_base)
        names = [name for name, value in zip(KERNEL_NAMES[1:], there, strict=True) if value]
        return "+".join(names).replace(":W", f":{self.window}") or KERNEL_NAMES[0]

    def rounding(self) -> tuple[int, int, int]:
        """Units of roundoff beyond those of q k^T (docs/emulation.md): of the product, by cosines, sines, two products and a
        sum for queries and for keys; of a logit, relative to the largest logit and to the mean of |z_j - max z|, by the slope,
        its product with the distance, and their sum."""
        return (0 if self.rope_base is None else 9, *((7, 8) if self.alibi_heads else (0, 0)))

    # --- the numbers of the formula --------------------------------------------------------------------------------

    def factor(self, head_dim: int) -> Any:
        """The scale as a number."""
        return 1 / math.sqrt(head_dim) if isinstance(self.scale, str) else float(self.scale)

    def slope(self, head: int) -> Any:
        """ALiBi's slope of a head."""
        return 2.0 ** (-8.0 * (head + 1) / (self.alibi_heads or 1))

    def rotation(self, positions: np.ndarray, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines [n, d/2] of rotary positions."""
        powers = (self.rope_base or BASE) ** (-np.arange(0, head_dim, 2) / head_dim)
        angles = np.asarray(positions, dtype=np.float64)[:, None] * powers
        return np.cos(angles), np.sin(angles)

    # --- the formula -----------------------------------------------------------------------------------------------

    def turned(self, x: Array, positions: np.ndarray) -> Array:
        """Queries or keys [..., n, d] as the logits see them: turned by their positions if they are rotary. MalformedInput for
        an odd d."""
        if self.rope_base is None:
            return x
        if reason := self.unfit(x.shape[-1]):
            raise MalformedInput(reason)
        cos, sin = (like(x, table) for table in self.rotation(positions, x.shape[-1]))
        even, odd = x[..., 0::2], x[..., 1::2]
        pairs = namespace(x).stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return pairs.reshape(x.shape)

    def mask(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Boolean [rows, columns]: which key each query may see, by their positions; None when all are."""
        distance = rows[:, None] - columns[None, :]
        masks = [distance >= 0] if self.causal else []
        masks += [] if self.window is None else [np.abs(distance) < self.window]
        return np.logical_and.reduce(masks) if masks else None

    def logits(self, queries: Array, keys: Array, rows: np.ndarray, columns: np.ndarray, *, head: int) -> Array:
        """Logits [rows, columns] of turned queries at positions `rows` and keys at positions `columns`, none hidden."""
        logits = queries @ transpose(keys)
        if self.scale != 1:
            logits = logits * self.factor(queries.shape[-1])
        if self.alibi_heads:
            logits = logits - like(logits, np.abs(rows[:, None] - columns[None, :])) * self.slope(head)
        return logits

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that any query of start ... stop - 1 may see, where positions are 0 ... n - 1."""
        reach = n if self.window is None else self.window
        return max(0, start - reach + 1), stop if self.causal else min(n, stop + reach - 1)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        require_floats(queries)
        positions = np.asarray(positions)
        queries, keys = self.turned(queries, positions), self.turned(keys, positions)
        logits = self.logits(queries, keys, positions, positions, head=head)
        return softmax(logits, self.mask(positions, positions))


def require_floats(queries: Array) -> None:
    """MalformedInput for exact queries, of which softmax has no exact values."""
    if is_exact(queries):
        raise MalformedInput(
            "softmax has no exact values; pass floats, or RationalAttention or GivenAttention for exact arithmetic"
        )


def visible(rows: np.ndarray, columns: np.ndarray, *, causal: bool, window: int | None) -> np.ndarray | None:
    """Boolean [rows, columns]: which key each query may see, by their positions; None when all are. A window of w sees
    |i - j| < w."""
    return SoftmaxAttention(causal=causal, window=window).mask(rows, columns)


def softmax(logits: Array, mask: np.ndarray | None = None) -> Array:
    """Row-wise softmax of [..., n, n] logits over the visible keys, in place of the logits."""
    xp = namespace(logits)
    if mask is not None and is_torch(logits):
        logits.masked_fill_(like(logits, ~mask), -math.inf)
    elif mask is not None:
        np.copyto(logits, -math.inf, where=~mask)
    logits -= xp.amax(logits, axis=-1, keepdims=True)
    weights = xp.exp(logits, out=logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
