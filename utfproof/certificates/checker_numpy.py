"""The checker's ranks modulo a prime with NumPy (`--numpy`): many times faster, and NumPy has then to be trusted too.

It repeats docs/certificate-format.md sections 4.7, 4.8, 6.1 and 6.2 in array arithmetic and imports nothing of the package.

Exactness. Residues modulo p (below 2^31) are integers of size at most (p+1)/2, held in float64, or in float32 for p < 2^8. An
integer x of size at most X = 2^51 (float32: 2^22) is reduced to x - p q, q = rint(x fl(1/p)): two roundings of a relative 2^-53
(2^-24) leave the quotient within 0.51/p before `rint`, so |x - p q| <= p/2 + 0.51, and that integer is at most (p+1)/2 in size;
p q is below 2 X, exact. Sums of products are cut off before they pass X, in whatever order BLAS adds them; above p = 2^22
residues are split into halves of which products are at most 2^30.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

G, C1, C2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
CHUNK = 2**15
"""Entries that are worked on together: they and what is computed from them stay in a core's cache."""
SLAB = 2**20
"""Entries of a matrix that are subtracted from together."""
EXACT, EXACT_SHORT = 2**51, 2**22
"""Largest size of an integer that is reduced, in float64 and in float32."""
SHORT = 2**8
"""Residues modulo smaller primes are held in float32."""
DIRECT = 2**22
"""Residues modulo larger primes are split before they are multiplied."""
EXACT_TERMS = 2**20
"""Products of halves that are added up."""
PANEL = 128
"""Columns that are eliminated at once."""
FLOATS = {"F64": ("<u8", 52), "F32": ("<u4", 23), "F16": ("<u2", 10), "BF16": ("<u2", 7)}
"""Bits of a stored float, and those before the significand's."""
FORMATS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
NAMES = ("R_Q", "R_K", "R_V", "U")


# --- arithmetic modulo p ---------------------------------------------------------------------------------------------------


def slabs(count: int, width: int, entries: int) -> Iterator[slice]:
    """Rows 0 ... count-1 of this width in pieces of about so many entries."""
    step = max(1, entries // max(1, width))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def reduced(x: np.ndarray, p: int) -> np.ndarray:
    """x itself [rows, columns], its integers (at most X in size) replaced by residues."""
    for part in (x[rows] for rows in slabs(len(x), x.shape[1], CHUNK)):
        quotient = part * (1 / p)
        np.rint(quotient, quotient)
        quotient *= p
        part -= quotient
    return x


def terms(p: int) -> int:
    """How many products of residues, beside one residue, are exact together."""
    half = (p + 1) // 2
    return ((EXACT_SHORT if p < SHORT else EXACT) - half) // half**2 if p <= DIRECT else 0


def kind(p: int) -> Any:
    """The type that holds residues."""
    return np.float32 if p < SHORT else np.float64


def product(a: np.ndarray, b: np.ndarray, p: int) -> np.ndarray:
    """a @ b modulo p, for residues."""
    most = terms(p) or EXACT_TERMS
    if a.shape[1] > most:
        cuts = range(0, a.shape[1], most)
        return reduced(sum(product(a[:, at : at + most], b[at : at + most], p) for at in cuts), p)  # type: ignore[arg-type]
    if terms(p):
        return reduced(a @ b, p)
    a1, b1 = np.rint(a * 2.0**-16), np.rint(b * 2.0**-16)
    a0, b0 = a - a1 * 2.0**16, b - b1 * 2.0**16
    found = reduced(a1 @ b1, p) * 2.0**16 + (a1 @ b0 + a0 @ b1)
    return reduced(reduced(found, p) * 2.0**16 + a0 @ b0, p)


def subtract(c: np.ndarray, a: np.ndarray, b: np.ndarray, p: int) -> np.ndarray:
    """c itself, with a @ b subtracted."""
    for rows in slabs(len(c), c.shape[1], SLAB):
        c[rows] -= a[rows] @ b if a.shape[1] <= terms(p) else product(a[rows], b, p)
        reduced(c[rows], p)
    return c


# --- a host's matrices as residues -----------------------------------------------------------------------------------------

Read = Callable[[int, int], np.ndarray]
"""(start, stop) -> the entries start ... stop-1 of a matrix, row by row, modulo p and at most 2^51 in size."""


def residues(host: Any, p: int, name: str, layer: int, head: int) -> np.ndarray:
    """One matrix [rows, columns], as the integers of sections 4.7 and 4.8 modulo p; layers count from 1."""
    if hasattr(host, "seed"):
        sizes = host.s.m, {"U": host.s.d_out, "R_V": host.s.m}.get(name, host.s.head_dim)
        read = drawn(host, NAMES.index(name), layer, head, p)
    else:
        sizes, read = host.tensors[name].sizes[-2:], stored(host, name, layer, head, p)
    out = np.empty((sizes[0] * sizes[1], 1), kind(p))
    for at in slabs(len(out), 1, CHUNK):
        out[at] = reduced(read(at.start, at.stop).astype(np.float64)[:, None], p)
    return out.reshape(sizes)


def mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's output function."""
    z = (z ^ z >> np.uint64(30)) * C1
    z = (z ^ z >> np.uint64(27)) * C2
    return z ^ z >> np.uint64(31)


def drawn(host: Any, code: int, layer: int, head: int, p: int) -> Read:
    """A matrix drawn from the seed (section 4.7)."""
    key = mix(np.array([host.seed], np.uint64))
    for number in (code, 0 if host.tied or code == NAMES.index("U") else layer - 1, head):
        key = mix(key + G * np.array([number + 1], np.uint64))

    def read(start: int, stop: int) -> np.ndarray:
        found = integers(host, mix(key + G * np.arange(start + 1, stop + 1, dtype=np.uint64)))
        return found if host.dtype == "float64" else found % p

    return read


def integers(host: Any, x: np.ndarray) -> np.ndarray:
    """Numerators, or for other dtypes than float64 the rounded entries in units of one power of two, int64."""
    if host.law != "uniform":  # the host's table has the integer of each number of bits
        ones = np.bitwise_count(x) if host.law == "binomial" else np.where(x >> np.uint64(63), 31, 33)
        return np.array(host.table)[ones]
    numerators = (x >> np.uint64(32)).astype(np.int64) * 2 + (1 - 2**32)
    if host.dtype == "float64":
        return numerators
    bits, least = FORMATS[host.dtype]
    size = np.abs(numerators) * host.scale  # below 2^53
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    drop = np.clip(np.maximum(length - bits, least - host.exponent), 0, 60)
    half = (np.int64(1) << drop) >> 1
    up = np.where(drop > 0, half - 1 + (size >> drop & 1), 0)  # ties to even
    return np.sign(numerators) * (size + up >> drop << drop)


def stored(host: Any, name: str, layer: int, head: int, p: int) -> Read:
    """A matrix of a file, whose entries are finite (section 4.8)."""
    tensor = host.tensors[name]
    count = tensor.sizes[-2] * tensor.sizes[-1]
    first = count * (0 if name == "U" else head if host.tied else (layer - 1) * host.s.heads + head)
    if tensor.dtype not in FLOATS:
        raw = np.frombuffer(tensor.data, f"<{tensor.dtype[0].lower()}{int(tensor.dtype[1:]) // 8}")
        modulus = np.array(p, raw.dtype if raw.dtype.itemsize > 4 else np.int64)
        return lambda start, stop: raw[first + start : first + stop] % modulus
    form, bits = FLOATS[tensor.dtype]
    raw, powers = np.frombuffer(tensor.data, form), units(tensor.dtype, p)

    def read(start: int, stop: int) -> np.ndarray:
        x = raw[first + start : first + stop].astype(np.int64)
        upper = x >> bits & len(powers) - 1  # the sign and the exponent
        low = (x & 2**bits - 1) + (np.int64(1) << bits) * (upper & len(powers) // 2 - 1 > 0)
        worth = (low if p << bits + 1 <= EXACT else low % p) * powers[upper]
        return worth if p**2 <= EXACT else worth % p

    return read


@cache
def units(dtype: str, p: int) -> np.ndarray:
    """By the sign and the exponent of a stored float: what a unit of its significand is modulo p."""
    form, bits = FLOATS[dtype]
    exponents = range(2 ** (8 * np.dtype(form).itemsize - 1 - bits))
    powers = np.array([pow(2, max(e - 1, 0), p) for e in exponents])  # 0 and 1 share a power of two
    return np.concatenate([powers, -powers])


# --- products with a host's matrices ---------------------------------------------------------------------------------------


def values_times(host: Any, p: int, layer: int, head: int, right: np.ndarray) -> np.ndarray:
    """R_V right; of values in two factors the second comes first."""
    names = ["R_V"] if hasattr(host, "seed") or "R_V" in host.tensors else ["R_Vo", "R_Vv"]
    for name in names:
        right = product(residues(host, p, name, layer, head), right, p)
    return right


def witness_holds(host: Any, p: int, chosen: array[int], inverse: array[int], x: list[array[int]]) -> bool:
    """Whether inverse * (R_all x)[chosen] = x modulo p for every probe x (each of length M)."""
    s = host.s
    d, H, letters = s.head_dim, s.heads, s.letters
    vectors = reduced(np.array(x, dtype=np.float64).T, p).astype(kind(p))  # [M, k]
    M, k = vectors.shape
    quarter = d * s.readers(s.layers)

    def read(name: str, layer: int, head: int, part: np.ndarray) -> np.ndarray:
        """A matrix of `width` columns times each word's part [words, width, k] of the probes."""
        return product(residues(host, p, name, layer, head), part.transpose(1, 0, 2).reshape(part.shape[1], -1), p)

    # state[i, word, probe] = coordinate i of T(word)
    state = read("U", 1, 0, vectors[2 * quarter :].reshape(s.leaves, s.d_out, k)).reshape(s.m, s.leaves, k)
    for layer in range(s.layers, 0, -1):
        start, words = d * s.readers(layer - 1), letters ** (layer - 1)
        total = np.zeros((s.m, words * k), kind(p))
        if s.residual:
            total += state[:, ::letters].reshape(s.m, -1)
        for head in range(H):
            ending = state[:, head + s.residual :: letters].reshape(s.m, -1)
            total += values_times(host, p, layer, head, ending)
            for name, first in (("R_Q", start), ("R_K", quarter + start)):
                block = vectors[first : first + words * H * d].reshape(words, H, d, k)[:, head]
                total += read(name, layer, head, block)
            reduced(total, p)
        state = total.reshape(s.m, words, k)
    reached = state[np.frombuffer(chosen, dtype=chosen.typecode), 0]  # [M, k]
    rows = np.frombuffer(inverse, dtype=inverse.typecode).reshape(M, M)
    parts = slabs(M, M, SLAB)
    return not any(
        reduced(product(reduced(rows[at].astype(kind(p)), p), reached, p) - vectors[at], p).any() for at in parts
    )


def columns_independent(host: Any, p: int, wanted: int, queries: int | None) -> bool:
    """Whether R_all modulo p has this rank; with `queries` only so many columns of every R_Q are used."""
    below = residues(host, p, "U", 1, 0)
    for layer in range(host.s.layers, 0, -1):
        heads = range(host.s.heads)
        reads = [residues(host, p, "R_Q", layer, head)[:, :queries] for head in heads]
        reads += [residues(host, p, "R_K", layer, head) for head in heads]
        reads += [below] * host.s.residual
        below = np.hstack([*reads, *(values_times(host, p, layer, head, below) for head in heads)])
    return rank_reaches(below, p, wanted)


# --- rank ------------------------------------------------------------------------------------------------------------------


def rank_reaches(a: np.ndarray, p: int, wanted: int) -> bool:
    """Whether the rank modulo p of `a` (residues [rows, columns], overwritten) is at least `wanted`."""
    while wanted > 0:
        if min(a.shape) < wanted:
            return False
        lower, order = panel_pivots(a[:, :PANEL], p)
        t, rest = lower.shape[1], a[:, PANEL:]
        moved = np.flatnonzero(order != np.arange(len(order)))
        rest[moved] = rest[order[moved]]
        inverse = np.eye(t, dtype=kind(p))  # of the unit lower triangle on top
        for i in range(1, t):
            inverse[i, :i] = -product(lower[i : i + 1, :i], inverse[:i, :i], p)[0]
        upper = product(inverse, rest[:t], p)
        a = subtract(rest[t:], lower[t:], upper, p)
        wanted -= t
    return True


def panel_pivots(panel: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The factor L [rows, pivots] of a panel whose rows are taken in this order: L times some echelon form. One column after
    the other: what the pivots before make of it is all that is computed."""
    height, width = panel.shape
    panel, order = np.array(panel, order="F"), np.arange(height)
    lower, upper, t = np.zeros((height, width), kind(p), order="F"), np.zeros((width, width), kind(p)), 0
    for k in range(width):
        column = subtract(panel[t:, k : k + 1], lower[t:, :t], upper[:t, k : k + 1], p)
        candidates = np.flatnonzero(column)
        if not len(candidates):
            continue
        if swap := int(candidates[0]):
            for held in (panel, lower, order):
                held[[t, t + swap]] = held[[t + swap, t]]
        upper[t, k] = column[0, 0]
        upper[t, k + 1 :] = subtract(panel[t : t + 1, k + 1 :], lower[t : t + 1, :t], upper[:t, k + 1 :], p)[0]
        unit = np.array([[pow(int(column[0, 0]), -1, p)]], kind(p))
        lower[t:, t : t + 1] = product(column, reduced(unit, p), p)
        t += 1
        if t == height:
            break
    return lower[:, :t], order
