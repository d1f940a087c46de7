"""Counter-based random weights: a seed means the same numbers on every machine.

The generator is SplitMix64's output function applied to key + G*(i+1); docs/certificate-format.md section 4.7
specifies it in a few lines. It is written here in plain Python, in NumPy and in torch, bit for bit alike
(integer arithmetic modulo 2^64 only). An entry is numerator * unit with an integer numerator and one rational unit
per matrix, exact in float64, so the rank of a random host is decided on small integers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from utfproof.util.laws import check_dtype, check_law, check_seed

TENSOR_CODES = {
    name: code for code, name in enumerate(["R_Q", "R_K", "R_V", "U", "W_Q", "W_K", "W_V", "W_O", "W_E", "W_U", "X"])
}

_MASK = 2**64 - 1
_G = 0x9E3779B97F4A7C15
_C1 = 0xBF58476D1CE4E5B9
_C2 = 0x94D049BB133111EB
_CHUNK = 1 << 15


def mix(z: int) -> int:
    """SplitMix64's output function on 64-bit integers."""
    z &= _MASK
    z = ((z ^ (z >> 30)) * _C1) & _MASK
    z = ((z ^ (z >> 27)) * _C2) & _MASK
    return z ^ (z >> 31)


@cache
def stream_key(seed: int, tensor: str, layer: int = 0, head: int = 0) -> int:
    """Key of one matrix's stream. Layers and heads count from 0; both are 0 for U and shared matrices."""
    key = mix(check_seed(seed))
    for value in (TENSOR_CODES[tensor], layer, head):
        key = mix(key + _G * (value + 1))
    return key


@cache
def _steps() -> np.ndarray:
    """G i modulo 2^64 for i < _CHUNK."""
    return np.arange(_CHUNK, dtype=np.uint64) * np.uint64(_G)


def raw_numpy(key: int, count: int, start: int = 0) -> np.ndarray:
    """The same numbers as uint64 [count]."""
    out, scratch = np.empty(count, np.uint64), np.empty(min(count, _CHUNK), np.uint64)
    for begin in range(0, count, _CHUNK):
        z = out[begin : begin + _CHUNK]
        shifted = scratch[: len(z)]
        np.add(_steps()[: len(z)], np.uint64((key + _G * (start + begin + 1)) & _MASK), z)
        for bits, factor in ((30, _C1), (27, _C2), (31, None)):
            np.right_shift(z, np.uint64(bits), shifted)
            np.bitwise_xor(z, shifted, z)
            if factor is not None:
                np.multiply(z, np.uint64(factor), z)
    return out


def _signed(value: int) -> int:
    """The int64 with the same bits, for torch."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def raw_torch(key: int, count: int, device: Any, start: int = 0) -> Any:
    """The same numbers as an int64 tensor [count] (two's complement) on `device`."""
    import torch

    def xor_shift(z: Any, bits: int) -> Any:  # logical shift: the sign's copies are masked away
        return z ^ ((z >> bits) & ((1 << (64 - bits)) - 1))

    z = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=device)
    z = z * _signed(_G) + _signed(key)
    z = xor_shift(z, 30) * _signed(_C1)
    z = xor_shift(z, 27) * _signed(_C2)
    return xor_shift(z, 31)


def _root(rows: int) -> tuple[int, int]:
    """(c, t) with c = isqrt(4^t // rows) >= 2^20 for the least t: c 2^-t is 1/sqrt(rows) rounded down."""
    t = 0
    while (c := isqrt(4**t // rows)) < 2**20:
        t += 1
    return c, t


def unit_exponent(law: str, rows: int) -> int:
    """e <= 0 such that `unit` is an integer (c, or 1) times 2^e."""
    if check_law(law) == "signs":
        return 0
    return -_root(rows)[1] - (32 if law == "uniform" else 2)


def unit(law: str, rows: int) -> Fraction:
    """The rational factor of every entry of a matrix with this many rows (fan-in)."""
    return Fraction(1) if check_law(law) == "signs" else _root(rows)[0] * Fraction(2) ** unit_exponent(law, rows)


def numerators_numpy(law: str, raw: np.ndarray) -> np.ndarray:
    """Integer numerators, int64, of raw numbers under a law; raw may be overwritten."""
    if check_law(law) == "uniform":
        raw >>= np.uint64(32)
        found: np.ndarray = raw.view(np.int64)
        found *= 2
        found += 1 - 2**32
        return found
    if law == "signs":
        return 1 - 2 * (raw >> np.uint64(63)).astype(np.int64)
    return np.bitwise_count(raw).astype(np.int64) - 32


def numerators_torch(law: str, raw: Any) -> Any:
    """The same from an int64 tensor of raw bits."""
    if check_law(law) == "uniform":
        return ((raw >> 32) & 0xFFFFFFFF) * 2 + (1 - 2**32)
    if law == "signs":
        return 1 - 2 * ((raw >> 63) & 1)
    # population count by halves: no torch primitive
    x = raw - ((raw >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + ((x >> 4) & 0x0FFFFFFFFFFFFFFF)) & 0x0F0F0F0F0F0F0F0F
    return ((x * 0x0101010101010101) >> 56 & 0xFF) - 32


def integer_matrix(
    seed: int,
    tensor: str,
    rows: int,
    columns: int,
    *,
    law: str,
    dtype: str = "float64",
    layer: int = 0,
    head: int = 0,
    part: slice = slice(None),
) -> np.ndarray:
    """Integers [rows, columns], int64, that the weights are one common multiple of. part: these rows only.

    float64: the numerators; the weights are these times `unit(law, rows)`. Other dtypes: the rounded weights times
    2^-unit_exponent(law, rows) (docs/certificate-format.md section 4.7).
    """
    first, last, _ = part.indices(rows)
    raw = raw_numpy(stream_key(seed, tensor, layer, head), (last - first) * columns, first * columns)
    numerators = numerators_numpy(law, raw).reshape(-1, columns)
    if check_dtype(dtype) == "float64":
        return numerators
    rounded = round_to(numerators * float(unit(law, rows)), dtype).astype(np.float64)
    return np.ldexp(rounded, -unit_exponent(law, rows)).astype(np.int64)


def weight_matrix(
    seed: int,
    tensor: str,
    rows: int,
    columns: int,
    *,
    law: str = "uniform",
    dtype: str = "float64",
    layer: int = 0,
    head: int = 0,
) -> np.ndarray:
    """Weights [rows, columns]: float64, or rounded once to `dtype` (bfloat16 values come as float32)."""
    numbers = integer_matrix(seed, tensor, rows, columns, law=law, layer=layer, head=head)
    return round_to(numbers.astype(np.float64) * float(unit(law, rows)), dtype)


def integer_matrix_torch(
    seed: int, tensor: str, rows: int, columns: int, *, device: Any, law: str, layer: int = 0, head: int = 0
) -> Any:
    """Numerators [rows, columns] drawn on a torch device, int64."""
    raw = raw_torch(stream_key(seed, tensor, layer, head), rows * columns, device)
    return numerators_torch(law, raw).reshape(rows, columns)


def round_to(values: np.ndarray, dtype: str) -> np.ndarray:
    """float64 values rounded once, to nearest even, to `dtype`. bfloat16 results are held in float32, exactly."""
    if check_dtype(dtype) == "float64":
        return values
    if dtype != "bfloat16":
        return values.astype(dtype)
    _, exponent = np.frexp(values)
    quantum = np.maximum(exponent - 8, -133)  # 8 bits of significand; 2^-133 is the least positive number
    # scaling by a power of two is exact, rint rounds ties to even
    return np.ldexp(np.rint(np.ldexp(values, -quantum)), quantum).astype(np.float32)
