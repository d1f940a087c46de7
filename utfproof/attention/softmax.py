"""softmax(q k^T) with its parts. Whoever needs a property of a kernel asks its parts.

A part turns queries and keys, changes logits, or hides keys. Every method's default leaves things as they are. Parts act in
the order of PARTS, and a key that one of them hides is hidden.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array, is_exact, is_torch, namespace, transpose

BY_HEAD_DIM = "1/sqrt(d)"
BASE = 10000.0
LONGEST = 10**18
"""Windows of this size and more have no name in the certificate format."""


class Rounding(NamedTuple):
    """Units of roundoff that a part adds (docs/emulation.md): to the product q k^T; and to a logit, relative to the largest
    logit and to the mean of |z_j - max z| under the weights."""

    product: int = 0
    largest: int = 0
    mean: int = 0


def ball(x: Any) -> Any:
    """A ball around an int or a Fraction."""
    from flint import arb, fmpq

    return arb(fmpq(x.numerator, x.denominator))


def like(reference: Array, values: np.ndarray) -> Array:
    """`values` with the dtype (unless boolean) and device of `reference`."""
    if is_exact(reference):
        return values
    if is_torch(reference):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(reference.device)
        return tensor if tensor.dtype == torch.bool else tensor.to(reference.dtype)
    return values if values.dtype == bool else values.astype(reference.dtype)


@dataclass(frozen=True)
class Part:
    """A part with its value. Axis letters: n tokens, d head dimension."""

    value: Any

    name: ClassVar[str]
    """On the command line and in certificates, with a letter for a value."""
    option: ClassVar[str]
    """The keyword of SoftmaxAttention."""
    absent: ClassVar[Any] = None
    """The keyword's value where the part is not there."""
    logits_only: ClassVar[bool] = True
    """Whether attention still depends on queries and keys through q k^T alone."""
    rounding: ClassVar[Rounding] = Rounding()
    certified_words: ClassVar[str] = ""
    """For people: the values that the certificate format has a name for, where it is not all of them; {heads} is H."""
    torch_text: ClassVar[str | None] = None
    """Lines of an exported module that set `hidden` or `logits` [n, n], with {value} filled in (`distance` is i - j, `head`
    counts from 0); "" where the module's own lines know the part, None where it is not exported."""

    def __post_init__(self) -> None:
        """MalformedInput for a value that cannot be."""

    @classmethod
    def usual(cls, heads: int) -> Any:
        """The value that the name alone stands for, with H = heads."""
        return True

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        """The part of this name for H = heads, None for another name."""
        return cls(cls.usual(heads)) if text == cls.name else None

    def written(self) -> str:
        """The part's name with its value."""
        return self.name

    def certified(self, heads: int) -> bool:
        """Whether the certificate format has a name for it, at a shape with so many heads."""
        return bool(self.value == self.usual(heads))

    def unfit(self, head_dim: int) -> str | None:
        """Why heads of this dimension cannot have the part."""
        return None

    # --- floats ---

    def turned(self, x: Array, positions: np.ndarray) -> Array:
        """Queries or keys [..., n, d] as the products see them."""
        return x

    def factor(self, head_dim: int) -> float:
        """What q k^T is multiplied by; no logit changes by more than that times the change of q k^T."""
        return 1.0

    def logits(self, logits: Array, distance: Callable[[], np.ndarray], *, head_dim: int, head: int) -> Array:
        """Logits [..., rows, columns] with the part; distance: i - j, integers [rows, columns]."""
        return logits

    def visible(self, distance: np.ndarray) -> np.ndarray | None:
        """Boolean, by i - j: which key each query may see; None for all."""
        return None

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that any query of start ... stop - 1 may see, where positions are 0 ... n - 1."""
        return 0, n

    # --- balls ---

    def turned_balls(self, x: Array, positions: Array) -> Array:
        """As `turned`, on balls [n, d]."""
        return x

    def ball_logits(self, head_dim: int, head: int) -> Callable[[Any, int], Any] | None:
        """A function (logit, i - j) -> logit on balls; None where it changes nothing."""
        return None


class Scale(Part):
    """value: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim)."""

    name = "scaled"
    option = "scale"
    absent = 1.0
    certified_words = "scale 1/sqrt(d)"
    torch_text = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            if self.value != BY_HEAD_DIM:
                raise MalformedInput(f"attention scale must be a number or '{BY_HEAD_DIM}', got {self.value!r}")
        elif not math.isfinite(self.value):
            raise MalformedInput(f"attention scale must be finite, got {self.value!r}")

    @classmethod
    def usual(cls, heads: int) -> Any:
        return BY_HEAD_DIM

    def factor(self, head_dim: int) -> float:
        return 1 / math.sqrt(head_dim) if isinstance(self.value, str) else float(self.value)

    def logits(self, logits: Array, distance: Callable[[], np.ndarray], *, head_dim: int, head: int) -> Array:
        return logits * self.factor(head_dim)

    def ball_logits(self, head_dim: int, head: int) -> Callable[[Any, int], Any] | None:
        from flint import arb

        factor = 1 / arb(head_dim).sqrt() if isinstance(self.value, str) else ball(Fraction(self.value))
        return lambda logit, away: logit * factor


class Causal(Part):
    """j is visible only if j <= i."""

    name = "causal"
    option = "causal"
    absent = False
    torch_text = ""

    def visible(self, distance: np.ndarray) -> np.ndarray | None:
        return distance >= 0

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return 0, stop


class Window(Part):
    """j is visible only if |i - j| < value."""

    name = "window:W"
    option = "window"
    torch_text = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, Integral) or self.value < 1:
            raise MalformedInput(f"attention window must be a positive integer, got {self.value!r}")

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        found = re.fullmatch(r"window:(\d+)", text)
        return cls(int(found.group(1))) if found else None

    def written(self) -> str:
        return f"window:{self.value}"

    def certified(self, heads: int) -> bool:
        return bool(self.value < LONGEST)

    def visible(self, distance: np.ndarray) -> np.ndarray | None:
        return np.abs(distance) < self.value

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        return max(0, start - self.value + 1), min(n, stop + self.value - 1)


class ALiBi(Part):
    """2^{-8(h+1)/H} |i - j| is subtracted for head h; value: the number of heads H (the geometric slopes, for every H)."""

    name = "alibi"
    option = "alibi_heads"
    rounding = Rounding(largest=7, mean=8)  # the slope, its product with the distance, and their sum
    certified_words = "ALiBi's slopes for the shape's {heads} heads"

    @classmethod
    def usual(cls, heads: int) -> Any:
        return heads

    def logits(self, logits: Array, distance: Callable[[], np.ndarray], *, head_dim: int, head: int) -> Array:
        slope = 2.0 ** (-8.0 * (head + 1) / self.value)
        return logits - slope * like(logits, np.abs(distance()))

    def ball_logits(self, head_dim: int, head: int) -> Callable[[Any, int], Any] | None:
        from flint import arb

        slope = arb(2) ** ball(Fraction(-8 * (head + 1), self.value))
        return lambda logit, away: logit - slope * abs(away)


class RoPE(Part):
    """Rotary positions: the pair (2i, 2i+1) of queries and keys turns by position * base^(-2i/d). value: the base."""

    name = "rope"
    option = "rope_base"
    logits_only = False  # it mixes the coordinates of q and k with positions
    rounding = Rounding(product=9)  # rounded cosines and sines, two products and a sum, for queries and for keys
    certified_words = "RoPE with base 10000"

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, Real) or not 0 < float(self.value) < np.inf:
            raise MalformedInput(f"the base of rotary positions must be a positive number, got {self.value!r}")

    @classmethod
    def usual(cls, heads: int) -> Any:
        return BASE

    def unfit(self, head_dim: int) -> str | None:
        return f"RoPE needs an even head dimension, got {head_dim}" if head_dim % 2 else None

    def turned(self, x: Array, positions: np.ndarray) -> Array:
        d = x.shape[-1]
        if reason := self.unfit(d):
            raise MalformedInput(reason)
        angles = np.asarray(positions, dtype=np.float64)[:, None] * self.value ** (-np.arange(0, d, 2) / d)
        cos, sin = like(x, np.cos(angles)), like(x, np.sin(angles))
        even, odd = x[..., 0::2], x[..., 1::2]
        pairs = namespace(x).stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return pairs.reshape(x.shape)

    def turned_balls(self, x: Array, positions: Array) -> Array:
        n, d = x.shape
        out: Array = np.empty((n, d), dtype=object)
        for t in range(0, d, 2):
            frequency = ball(Fraction(self.value)) ** ball(Fraction(-t, d))
            for i in range(n):
                sin, cos = (frequency * int(positions[i])).sin_cos()
                out[i, t] = x[i, t] * cos - x[i, t + 1] * sin
                out[i, t + 1] = x[i, t] * sin + x[i, t + 1] * cos
        return out


PARTS: tuple[type[Part], ...] = (Scale, Causal, Window, ALiBi, RoPE)
"""Every part, in the order in which names are written and logits are changed."""


@dataclass(frozen=True)
class SoftmaxAttention:
    """softmax(scale * q k^T + bias + mask), optionally with rotated queries and keys: one keyword for each of PARTS.

    scale: a number, or "1/sqrt(d)" for the usual 1/sqrt(head_dim). causal: keys at earlier positions and the own one.
    window: only |i - j| < window. alibi_heads: number of heads H for ALiBi's bias -2^{-8(h+1)/H} |i - j| (the geometric
    slopes, for every H). rope_base: rotary positions with this base; the head dimension must be even.
    """

    scale: float | str = 1.0
    causal: bool = False
    window: int | None = None
    alibi_heads: int | None = None
    rope_base: float | None = None

    row_stochastic = True

    def __post_init__(self) -> None:
        _ = self.parts

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are there, in the registry's order. MalformedInput for a value that cannot be."""
        values = [(part, getattr(self, part.option)) for part in PARTS]
        return tuple(part(value) for part, value in values if value != part.absent)

    @property
    def logits_only(self) -> bool:
        """Whether attention sees q k^T only."""
        return all(part.logits_only for part in self.parts)

    def unfit(self, head_dim: int) -> str | None:
        """Why heads of this dimension cannot have this attention."""
        return next((reason for part in self.parts if (reason := part.unfit(head_dim))), None)

    def written(self) -> str:
        """The name that `parse_kernel` reads."""
        return "+".join(part.written() for part in self.parts) or "softmax"

    def rounding(self) -> Rounding:
        """Units of roundoff of all parts together."""
        return Rounding(
            *(sum(units) for units in zip(Rounding(), *(part.rounding for part in self.parts), strict=True))
        )

    def factor(self, head_dim: int) -> float:
        """The scale as a number."""
        return math.prod(part.factor(head_dim) for part in self.parts)

    def turned(self, queries: Array, keys: Array, positions: np.ndarray) -> tuple[Array, Array]:
        """Queries and keys as the logits see them: turned by their positions where a part does so."""
        if is_exact(queries):
            raise MalformedInput(
                "softmax has no exact values; pass floats, or RationalAttention or GivenAttention for exact arithmetic"
            )
        for part in self.parts:
            queries, keys = part.turned(queries, positions), part.turned(keys, positions)
        return queries, keys

    def mask(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Boolean [rows, columns]: which key each query may see, by their positions; None when all are."""
        distance = rows[:, None] - columns[None, :]
        masks = [mask for part in self.parts if (mask := part.visible(distance)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def logits(self, queries: Array, keys: Array, rows: np.ndarray, columns: np.ndarray, *, head: int) -> Array:
        """Logits [rows, columns] of turned queries at positions `rows` and keys at positions `columns`, none hidden."""
        logits = queries @ transpose(keys)
        for part in self.parts:
            logits = part.logits(
                logits, lambda: rows[:, None] - columns[None, :], head_dim=queries.shape[-1], head=head
            )
        return logits

    def span(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that any query of start ... stop - 1 may see, where positions are 0 ... n - 1."""
        spans = [(0, n), *(part.span(start, stop, n) for part in self.parts)]
        return max(first for first, _ in spans), min(last for _, last in spans)

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        positions = np.asarray(positions)
        logits = self.logits(*self.turned(queries, keys, positions), positions, positions, head=head)
        return softmax(logits, self.mask(positions, positions))


def visible(rows: np.ndarray, columns: np.ndarray, *, causal: bool, window: int | None) -> np.ndarray | None:
    """Boolean [rows, columns]: which key each query may see, by their positions; None when all are. A window of w sees
    |i - j| < w."""
    return SoftmaxAttention(causal=causal, window=window).mask(rows, columns)


def softmax(logits: Array, mask: np.ndarray | None = None) -> Array:
    """Row-wise softmax of [..., n, n] logits, over the visible keys."""
    xp = namespace(logits)
    if mask is not None:
        logits = xp.where(like(logits, mask), logits, -math.inf)
    weights = xp.exp(logits - xp.amax(logits, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
