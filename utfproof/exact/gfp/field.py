"""The prime field in float64 or float32: which primes, how long an exact sum may get, and reduction to centred residues.

Exactness. Let t be the bits of a significand, 53 or 24, h = (p+1)/2 and X = 2^52 - 2^31 or 2^23 - 2^7. An integer x with
|x| <= X is reduced as r = x - p rint(x fl(1/p)). Rounding 1/p and the product each cost a relative 2^-t, so the rounded
quotient differs from x/p by less than X (2^(1-t) + 2^(-2t)) / p < 1/p before `rint`; hence |r| < p/2 + 1, and because r is an
integer and p odd, |r| <= h. The product p rint(...) is an integer of size at most X + h < 2^t, hence exact, with or without a
fused multiply-add. Residues kept by the engine therefore satisfy |r| <= h: one unit more than centred, but still below p, so
r = 0 exactly where p divides x.

A sum of k products of such residues and one more residue is at most k h^2 + h in size, in any order of summation and any
subset of terms. `block_length(p)` is the largest k for which this is at most X. In float64 it is at least 1 exactly for
p < 2^27, and 4096 for the default primes; in float32 it is 2047 for p = 127. Nothing below sums more products before it
reduces.

Which prime. Full rank modulo one prime is full rank over the rationals, whatever the prime: a minor that is not zero modulo p
is not zero. A lower rank modulo p says nothing over the rationals, and small primes lose rank often: a random square matrix
with probability about 1/(p-1). So `SMALL_PRIMES` only ever prove full rank, with products at float32's speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.util.arrays import is_torch

DEFAULT_PRIMES = (2097143, 2097133, 2097131)
"""The three largest primes below 2^21: products of 4096 terms need one reduction, and a random matrix loses rank modulo
one of them with probability below 10^-6."""
SMALL_PRIMES = (127, 113, 109)
"""Primes for float32, to be tried before the large ones where full rank is expected."""
LIMITS = {"float64": 2**52 - 2**31, "float32": 2**23 - 2**7}
"""Largest size of an integer that `reduce` takes, by the type that holds it."""

CHUNK = 1 << 14
"""Entries per elementwise pass (128 KiB): a chunk and its scratch stay in a core's second-level cache."""


def block_length(p: int, dtype: str = "float64") -> int:
    """How many products of residues modulo p, plus one residue, can be summed exactly in this type."""
    half = (p + 1) // 2
    return (LIMITS[dtype] - half) // (half * half)


def dtype_for(p: int) -> str:
    """The type to hold residues in: float32 for primes below 2^8, whose sums of 500 products are exact, else float64."""
    return "float32" if p < 2**8 else "float64"


def check_prime(p: int) -> int:
    """`p` if it is an odd prime small enough for this engine (one product exact); MalformedInput otherwise."""
    if isinstance(p, bool) or not isinstance(p, int | np.integer):
        raise MalformedInput(f"modulus must be an integer, got {p!r}")
    from flint import fmpz

    p = int(p)
    if p < 3 or not fmpz(p).is_prime():
        raise MalformedInput(f"modulus must be an odd prime, got {p}")
    if block_length(p) < 1:
        raise MalformedInput(f"modulus must be below 2^27 for exact float64 products, got {p}")
    return p


def centre(value: int, p: int) -> int:
    """The residue of a Python integer in -(p-1)/2 ... (p-1)/2."""
    value %= p
    return value - p if value > p // 2 else value


def centred(array: Any, p: int, *, out: np.ndarray | None = None) -> Any:
    """Exact integers, at most `LIMITS` in size, as centred residues, |r| <= (p-1)/2 (float32 stays, NumPy or torch, else
    float64). out: where to put those of a NumPy array, C-contiguous float64 or float32; it may be the array itself."""
    half = (p - 1) // 2
    if is_torch(array):
        found = array - (array * (1 / p)).round_().mul_(p)
        found -= (found > half) * float(p)
        found += (found < -half) * float(p)
        return found
    source = np.ascontiguousarray(array)
    dtype = np.float32 if source.dtype == np.float32 else np.float64
    out = np.empty(source.shape, dtype) if out is None else out
    entries, results = source.reshape(-1), out.reshape(-1)
    scratch, inverse, modulus = np.empty((2, min(CHUNK, out.size)), dtype), dtype(1 / p), dtype(p)
    for start in range(0, out.size, CHUNK):
        x, part = entries[start : start + CHUNK], results[start : start + CHUNK]
        if x.dtype != dtype:
            np.copyto(scratch[0, : len(x)], x, casting="unsafe")
            x = scratch[0, : len(x)]
        quotient = scratch[1, : len(x)]
        np.multiply(x, inverse, quotient)
        np.rint(quotient, quotient)
        np.multiply(quotient, modulus, quotient)
        np.subtract(x, quotient, part, casting="same_kind")
        if part.max() > half or part.min() < -half:  # near a tie the quotient may be off by one, which leaves (p+1)/2
            part[part > half] -= p
            part[part < -half] += p
    return out
