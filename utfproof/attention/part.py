"""What a part of softmax attention says of itself. Whoever needs a property of a kernel asks its parts.

A part turns queries and keys, changes logits, or hides keys; every method's default is to leave things as they are. Parts
act in the order of the registry (`kernel.PARTS`), and what several of them hide is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from utfproof.ground.arrays import Array


class Rounding(NamedTuple):
    """Units of roundoff that a part adds (docs/emulation.md): to the product q k^T; and to a logit, relative to the largest
    logit and to the mean of |z_j - max z| under the weights."""

    product: int = 0
    largest: int = 0
    mean: int = 0


@dataclass(frozen=True)
class Part:
    """A part with its value. Axis letters: n tokens, d head dimension."""

    value: Any

    name: ClassVar[str]
    """On the command line and in certificates, with a letter for a value."""
    example: ClassVar[str]
    """The name with a value."""
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

    @classmethod
    def parse(cls, text: str, heads: int) -> Self | None:
        """The part of this name for H = heads, None for another name."""
        return cls(True) if text == cls.name else None

    def unfit(self, head_dim: int) -> str | None:
        """Why heads of this dimension cannot have the part."""
        return None

    def written(self) -> str:
        """The part's name with its value."""
        return self.name

    def certified(self, heads: int) -> bool:
        """Whether the certificate format has a name for it, at a shape with so many heads."""
        return True

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

    def clear(self, start: int, stop: int, n: int) -> tuple[int, int]:
        """First and last key that all of these queries see; equal where no such stretch is known."""
        return (0, n) if type(self).visible is Part.visible else (0, 0)

    # --- balls ---

    def turned_balls(self, x: Array, positions: Array) -> Array:
        """As `turned`, on balls [n, d]."""
        return x

    def ball_factor(self, head_dim: int) -> Any:
        """As `factor`, a ball; None for 1."""
        return None

    def ball_logits(self, head_dim: int, head: int) -> Callable[[Any, int], Any] | None:
        """A function (logit, i - j) -> logit on balls; None where it changes nothing."""
        factor = self.ball_factor(head_dim)
        return None if factor is None else lambda logit, away: logit * factor


def ball(x: Any) -> Any:
    """A ball around an int or a Fraction."""
    from flint import arb, fmpq

    return arb(fmpq(x.numerator, x.denominator))
