"""Weights as residues modulo p, exactly: floats are significands times powers of two, and 2 is invertible modulo p."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.gfp.field import LIMITS, centre, centred, check_prime
from utfproof.util.arrays import is_torch

_SIGNIFICAND = 53
_CHUNK = 1 << 15
"""Entries converted together: a chunk and what is computed from it stay in a core's second-level cache."""
_HALF = 27
"""A significand is cut into parts of 26 bits, and a sign, each."""
_SPLIT_BELOW = 1 << 25
"""Primes below this leave room for both parts' products in one exact sum."""


def residues(array: Any, p: int, *, name: str = "", factor: int = 1, dtype: str = "float64") -> Any:
    """Centred residues (same shape and device) of weights of any supported number format, times an integer factor.

    dtype: of the residues of NumPy arrays, float64 or float32. Weights: NumPy float64, float32, float16, integers, object
    arrays of ints and Fractions; torch tensors also bfloat16. Raises MalformedInput for NaN and infinities, naming tensor
    `name` and index, for a denominator that p divides, for p = 2.
    """
    if is_torch(array):
        floating = array.dtype.is_floating_point
        if array.dtype.is_complex:
            raise MalformedInput(f"{_entries(name)} of type {array.dtype} have no residues; give real weights")
    else:
        array = np.asarray(array)
        floating = array.dtype.kind == "f"
        if array.dtype.kind not in "fiubO" or array.dtype.itemsize > 8:
            raise MalformedInput(
                f"{_entries(name)} of type {array.dtype} have no residues here; give float64, float32, float16, integers, "
                "Fractions, or a torch tensor (bfloat16)"
            )
    if floating:
        return residues_of_floats(array, p, name=name, factor=factor, dtype=dtype)
    found = residues_of_integers(array, p, name=name)
    found = found if factor % p == 1 else centred(found * float(centre(factor, p)), p)
    return found if is_torch(found) else found.astype(dtype, copy=False)


def residues_of_integers(array: Any, p: int, *, name: str = "") -> Any:
    """Centred residues (float64) of an integer array or tensor, or of an object array of ints and Fractions."""
    p = check_prime(p)
    if is_torch(array):
        if array.dtype == sys.modules["torch"].uint64:  # torch has no remainder for it, and int64 would wrap
            reduced = residues_of_integers(array.cpu().numpy(), p, name=name)
            return sys.modules["torch"].from_numpy(reduced).to(array.device)
        return _centred_integers(array.long() % p, p)
    array = np.asarray(array)
    if array.dtype.kind == "O":
        return _of_objects(array, p, name)
    if array.dtype.kind not in "iub":
        raise MalformedInput(f"{_entries(name)} must be integers, got {array.dtype}")
    if not array.size:
        return np.zeros(array.shape)
    if int(array.min()) >= -LIMITS["float64"] and int(array.max()) <= LIMITS["float64"]:
        return centred(array, p)
    if array.dtype.kind == "u":
        return _centred_integers((array % np.uint64(p)).astype(np.int64), p)
    return _centred_integers(array.astype(np.int64) % p, p)


def _of_objects(array: np.ndarray, p: int, name: str) -> np.ndarray:
    out = np.empty(array.shape)
    flat = out.reshape(-1)
    for i, value in enumerate(array.reshape(-1)):
        if isinstance(value, Fraction):
            if value.denominator % p == 0:
                raise MalformedInput(
                    f"{_entry(name, np.unravel_index(i, array.shape))} is {value}: its denominator is zero modulo {p}; "
                    "choose another prime"
                )
            flat[i] = centre(value.numerator * pow(value.denominator, -1, p), p)
        elif isinstance(value, int | np.integer):
            flat[i] = centre(int(value), p)
        else:
            raise MalformedInput(
                f"{_entry(name, np.unravel_index(i, array.shape))} is {value!r}; expected an int or a Fraction"
            )
    return out


def residues_of_floats(array: Any, p: int, *, name: str = "", factor: int = 1, dtype: str = "float64") -> Any:
    """Centred residues of finite floats times an integer factor, NumPy or torch (on its device), subnormals included.

    Raises MalformedInput for NaN and infinities, naming the tensor and the first index, and for p = 2.
    """
    p = check_prime(p)
    if is_torch(array):
        xp = sys.modules["torch"]
        values = array.detach().to(xp.float64)
        _require_finite(values, name)
        return _by_exponent(values, p, factor)
    values = np.asarray(array)
    out = np.empty(values.shape, dtype)
    flat, into = values.reshape(-1), out.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64, copy=False)
        largest = float(np.abs(part).max())
        if not largest < float("inf"):
            _require_finite(values, name)
        found = _by_halves(part, largest, p, factor) if p < _SPLIT_BELOW else None
        into[start : start + _CHUNK] = _by_exponent(part, p, factor) if found is None else found
    return out


def _require_finite(values: Any, name: str) -> None:
    xp = sys.modules["torch"] if is_torch(values) else np
    finite = xp.isfinite(values)
    if not bool(finite.all()):
        index = tuple(int(i) for i in xp.argwhere(~finite)[0])
        raise MalformedInput(f"{_entry(name, index)} is {float(values[index])}; only finite weights have residues")


def _by_halves(part: np.ndarray, largest: float, p: int, factor: int) -> np.ndarray | None:
    """Residues where all entries are integers below 2^53 over one power of two; None where they are not.

    y = hi 2^27 + lo with |hi| <= 2^26 and |lo| <= 2^26, both exact, so hi and lo times centred constants, added up, are at most
    2^27 (p - 1) / 2 in size: below 2^51.
    """
    shift = _SIGNIFICAND - math.frexp(largest)[1]
    if not 0 <= shift < 900:  # scaling up is exact; scaling down would lose entries far below the largest
        return None
    y = part * 2.0**shift
    high = np.rint(y * 2.0**-_HALF)
    low = y - high * 2.0**_HALF
    if not np.array_equal(np.rint(low), low):
        return None
    unit = factor * pow(2, -shift, p)
    high *= float(centre(unit << _HALF, p))
    low *= float(centre(unit, p))
    high += low
    return centred(high, p)


def _by_exponent(values: Any, p: int, factor: int) -> Any:
    """The same for finite floats of any exponents, from a table of powers of two."""
    xp = sys.modules["torch"] if is_torch(values) else np
    significand, exponent = xp.frexp(values)
    # the scaled significand is an integer below 2^53
    integer = _as_int64(significand * 2.0**_SIGNIFICAND) % p
    low, high = (int(exponent.min()), int(exponent.max())) if 0 not in values.shape else (0, 0)
    table = np.array([factor * pow(2, e - _SIGNIFICAND, p) % p for e in range(low, high + 1)], dtype=np.int64)
    powers = xp.from_numpy(table).to(values.device) if is_torch(values) else table
    return _centred_integers(integer * powers[_as_int64(exponent) - low] % p, p)


def _as_int64(array: Any) -> Any:
    return array.long() if is_torch(array) else array.astype(np.int64)


def _centred_integers(reduced: Any, p: int) -> Any:
    """0 ... p-1 as centred float64."""
    xp = sys.modules["torch"] if is_torch(reduced) else np
    signed = xp.where(reduced > p // 2, reduced - p, reduced)
    return signed.double() if is_torch(signed) else signed.astype(np.float64)


def _entries(name: str) -> str:
    return f"{name + ' ' if name else ''}entries"


def _entry(name: str, index: Any) -> str:
    return f"{name + ' ' if name else ''}entry {tuple(int(i) for i in index)}"
