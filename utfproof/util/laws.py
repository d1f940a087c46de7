"""Laws, number formats and seeds of random weights: what the command line asks before any array is made."""

from __future__ import annotations

from numbers import Integral
from typing import Literal, get_args

from utfproof.errors import MalformedInput

Law = Literal["uniform", "signs", "binomial"]
LAWS: tuple[str, ...] = get_args(Law)
DTYPES: tuple[str, ...] = ("float64", "float32", "float16", "bfloat16")


def check_seed(seed: object) -> int:
    """`seed` as an int with 0 <= seed < 2^64; MalformedInput otherwise."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise MalformedInput(f"seed must be an integer from 0 to 2^64 - 1, got {seed!r}")
    return int(seed)


def check_law(law: str) -> str:
    """`law` if it is known; MalformedInput otherwise."""
    if law not in LAWS:
        raise MalformedInput(f"law {law!r} is unknown; choose {', '.join(LAWS)}")
    return law


def check_dtype(dtype: str) -> str:
    """`dtype` if weights can be drawn in it; MalformedInput otherwise."""
    if dtype not in DTYPES:
        raise MalformedInput(f"dtype {dtype!r} is unknown; choose {', '.join(DTYPES)}")
    return dtype
