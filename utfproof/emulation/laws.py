"""Weight laws of random targets: well scaled, badly scaled, rank-deficient.

| law | weights |
|---|---|
| uniform | i.i.d., variance 1/(3 fan-in) |
| binomial | i.i.d., variance about 1/fan-in: logits that grow from layer to layer |
| signs | i.i.d. +1 and -1: logits of the order of the width |
| graded | uniform; W_Q times 2^12 and W_K times 2^-12, heads scaled from 2^6 down to 2^-6 through W_V |
| sharp | uniform; W_Q times 64: attention that is almost hard |
| rank-one | every matrix an outer product |
| dead-heads | uniform; the last head's W_V is zero, head 1 repeats head 0 |

Scalings are powers of two, so the numbers keep the generator's exact values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from utfproof.constructions.random import random_target
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.systems import Target

SHARP_FACTOR = 64.0
GRADED_EXPONENT = 12


def _graded(target: Target) -> Target:
    heads = target.shape.heads
    exponents = np.rint(np.linspace(6, -6, heads)) if heads > 1 else np.array([6.0])
    scale = 2.0 ** exponents.reshape(-1, 1, 1)
    factor = 2.0**GRADED_EXPONENT
    return replace(target, W_Q=target.W_Q * factor, W_K=target.W_K / factor, W_V=target.W_V * scale)


def _sharp(target: Target) -> Target:
    return replace(target, W_Q=target.W_Q * SHARP_FACTOR)


def _rank_one(target: Target) -> Target:
    """First column times first row: an outer product with entries of the same order, and of rank one exactly."""

    def short(values: np.ndarray) -> np.ndarray:  # 24 bits after the point: products of two are exact
        return np.ldexp(np.rint(np.ldexp(values, 24)), -24)

    def outer(matrix: np.ndarray) -> np.ndarray:
        row = matrix[..., :1, :]
        largest = np.abs(row).max(axis=-1, keepdims=True)
        # a power of two near the row's size: scaling by it is exact
        return short(matrix[..., :, :1]) * short(row / np.exp2(np.ceil(np.log2(largest))))

    changes: dict[str, Any] = {name: outer(getattr(target, name)) for name in ("W_Q", "W_K", "W_V", "W_O")}
    return replace(target, **changes)


def _dead_heads(target: Target) -> Target:
    arrays: dict[str, Any] = {name: getattr(target, name).copy() for name in ("W_Q", "W_K", "W_V", "W_O")}
    if target.shape.heads > 1:
        for array in arrays.values():
            array[..., 1, :, :] = array[..., 0, :, :]
    if target.shape.heads > 2:
        arrays["W_V"][..., -1, :, :] = 0
    return replace(target, **arrays)


_CHANGES: dict[str, Callable[[Target], Target] | None] = {
    "uniform": None,
    "binomial": None,
    "signs": None,
    "graded": _graded,
    "sharp": _sharp,
    "rank-one": _rank_one,
    "dead-heads": _dead_heads,
}
TARGET_LAWS = tuple(_CHANGES)


def check_target_law(law: str) -> str:
    """`law` if it is known; MalformedInput otherwise."""
    if law not in _CHANGES:
        raise MalformedInput(f"target law {law!r} is unknown; choose {', '.join(TARGET_LAWS)}")
    return law


def draw_target(
    shape: Shape,
    seed: int,
    law: str = "uniform",
    *,
    width: int | None = None,
    tied: bool = False,
    max_memory: int | None = None,
) -> Target:
    """A random target under one of the laws above, float64; `seed` means the same weights everywhere."""
    change = _CHANGES[check_target_law(law)]
    base = law if change is None else "uniform"
    target = random_target(shape, seed, width=width, law=base, tied=tied, max_memory=max_memory)
    return target if change is None else change(target)
