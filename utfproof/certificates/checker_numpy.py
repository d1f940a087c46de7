"""The checker's ranks modulo a prime with NumPy (`--numpy`): many times faster, and NumPy has then to be trusted too.

It repeats docs/certificate-format.md sections 4.7, 4.8, 6.1 and 6.2 in array arithmetic and imports nothing of the package.
A matrix of the host is met in slabs of rows, which are turned into residues, multiplied and forgotten.

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
from math import isqrt
from typing import Any

import numpy as np

G, C1, C2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
MASK = 2**64 - 1
CHUNK = 2**15
"""Entries that are worked on together: they and what is computed from them stay in a core's cache."""
SLAB, ROWS = 2**20, 256
"""Entries of a slab of rows, and the least rows of one that is multiplied: BLAS packs the other factor anew for each."""
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
R_Q, R_K, R_V, CODE_U = 0, 1, 2, 3
NAMES = ("R_Q", "R_K", "R_V", "U")


def mix(z: int) -> int:
    """SplitMix64's output function."""
    z = ((z & MASK) ^ (z & MASK) >> 30) * int(C1) & MASK
    z = (z ^ z >> 27) * int(C2) & MASK
    return z ^ z >> 31


# --- arithmetic modulo p ---------------------------------------------------------------------------------------------------


def slabs(count: int, width: int, entries: int, least: int = 1) -> Iterator[slice]:
    """Rows 0 ... count-1 of this width in pieces of about so many entries, and of so many rows at least."""
    step = max(least, entries // max(1, width))
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


def residues(host: Any, p: int, name: str, layer: int, head: int, columns: int, rows: slice) -> np.ndarray:
    """Rows of one matrix, as the integers of sections 4.7 and 4.8 modulo p; layers count from 1."""
    out = np.empty(((rows.stop - rows.start) * columns, 1), kind(p))
    first = rows.start * columns
    seeded = hasattr(host, "seed")
    read = drawn(host, NAMES.index(name), layer, head, p) if seeded else stored(host, name, layer, head, p)
    for at in range(0, len(out), CHUNK):
        stop = min(at + CHUNK, len(out))
        found = read(first + at, first + stop)
        found = found if found.dtype == np.float32 else found.astype(np.float64, copy=False)
        out[at:stop] = reduced(found[:, None], p)
    return out.reshape(-1, columns)


Read = Callable[[int, int], np.ndarray]
"""(start, stop) -> the entries start ... stop-1 of a matrix, row by row, modulo p and at most 2^51 in size."""


def drawn(host: Any, code: int, layer: int, head: int, p: int) -> Read:
    """A matrix drawn from the seed (section 4.7)."""
    key = mix(host.seed)
    for number in (code, 0 if host.tied or code == CODE_U else layer - 1, head):
        key = mix(key + int(G) * (number + 1))

    def read(start: int, stop: int) -> np.ndarray:
        z = np.arange(start + 1, stop + 1, dtype=np.uint64)
        z *= G
        z += np.uint64(key)
        z = (z ^ z >> np.uint64(30)) * C1
        z = (z ^ z >> np.uint64(27)) * C2
        z ^= z >> np.uint64(31)
        found = integers(host, z)
        return found if host.dtype == "float64" else found % p

    return read


def stored(host: Any, name: str, layer: int, head: int, p: int) -> Read:
    """A matrix of a file, whose entries are finite (section 4.8). A float is read as words of 16 bits: the first says what all
    of them are worth modulo p."""
    tensor = host.tensors[name]
    height, width = tensor.sizes[-2:]
    count = height * width
    number = 0 if name == "U" else head if host.tied else (layer - 1) * host.s.heads + head
    if tensor.dtype not in FLOATS:
        raw = np.frombuffer(tensor.data, f"<{tensor.dtype[0].lower()}{int(tensor.dtype[1:]) // 8}")
        modulus = np.array(p, raw.dtype if raw.dtype.itemsize > 4 else np.int64)
        return lambda start, stop: raw[number * count + start : number * count + stop] % modulus
    *tables, top = scales(tensor.dtype, p)
    words = np.frombuffer(tensor.data, "<u2").reshape(-1, len(tables) + 1)[number * count : (number + 1) * count]
    places, held = np.empty(CHUNK, np.intp), np.empty((2, CHUNK), top.dtype)  # filled anew in each call

    def read(start: int, stop: int) -> np.ndarray:
        x = words[start:stop]
        first, (total, term) = places[: len(x)], held[:, : len(x)]
        np.copyto(first, x[:, -1])
        top.take(first, out=total, mode="clip")
        for at, unit in enumerate(tables):
            unit.take(first, out=term, mode="clip")
            term *= x[:, at]
            total += term
        return total

    return read


@cache
def scales(dtype: str, p: int) -> list[np.ndarray]:
    """By the first word of a stored float (its sign, exponent and leading bits): the units modulo p of its other words, the
    last word's first, and the residue of its leading bits. Sums of units times words are exact."""
    stored_as, bits = FLOATS[dtype]
    others = np.dtype(stored_as).itemsize // 2 - 1
    kept, word = bits - 16 * others, np.arange(2**16)
    exponent, leading = (word & 2**15 - 1) >> kept, word & 2**kept - 1
    leading += (exponent > 0) << kept
    powers = np.array([pow(2, max(e - 1, 0), p) for e in range(2 ** (15 - kept))])[
        exponent
    ]  # 0 and 1 share a power of two
    powers = np.where(word >> 15, -powers, powers)
    units = [*(powers * pow(2, 16 * k, p) for k in range(others)), leading * pow(2, 16 * others, p) % p * powers]
    largest = (others * 2**16 + 1) * (p // 2)
    exact = np.float32 if largest <= EXACT_SHORT else np.float64
    return [reduced((unit % p).astype(np.float64)[:, None], p)[:, 0].astype(exact) for unit in units]


def integers(host: Any, x: np.ndarray) -> np.ndarray:
    """Numerators, or for other dtypes than float64 the rounded entries in units of one power of two, int64."""
    if host.law == "uniform":
        numerators = (x >> np.uint64(32)).astype(np.int64) * 2 + (1 - 2**32)
    elif host.law == "signs":
        numerators = 1 - 2 * (x >> np.uint64(63)).astype(np.int64)
    else:
        numerators = np.bitwise_count(x).astype(np.int64) - 32
    if host.dtype == "float64":
        return numerators
    t = 0
    while (root := isqrt(4**t // host.s.m)) < 2**20:
        t += 1
    scale, exponent = {"uniform": (root, -t - 32), "signs": (1, 0), "binomial": (root, -t - 2)}[host.law]
    bits, least = FORMATS[host.dtype]
    size = np.abs(numerators) * scale  # below 2^53
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    drop = np.maximum(np.maximum(length - bits, least - exponent), 0)
    kept = np.where(drop < 62, size >> np.minimum(drop, 62), 0)
    half = np.where(drop > 0, np.int64(1) << np.minimum(np.maximum(drop - 1, 0), 61), 0)
    rest = size - (kept << np.minimum(drop, 62))
    up = (drop > 0) & ((rest > half) | ((rest == half) & (kept % 2 == 1)))
    return np.sign(numerators) * ((kept + up) << np.minimum(drop, 62))


# --- products with a host's matrices ---------------------------------------------------------------------------------------


def whole(host: Any, p: int, code: int, layer: int, head: int, columns: int) -> np.ndarray:
    """R_Q, R_K or U [m, columns]."""
    return residues(host, p, NAMES[code], layer, head, columns, slice(0, host.s.m))


def values_times(host: Any, p: int, layer: int, head: int, right: np.ndarray, out: np.ndarray) -> None:
    """Adds R_V right to `out`, which becomes residues; of values in two factors the second comes first."""
    name, inner = "R_V", host.s.m
    if not hasattr(host, "seed") and "R_Vv" in host.tensors:
        name, inner = "R_Vv", host.inner
        second = np.zeros((inner, right.shape[1]), kind(p))
        times(host, p, "R_Vo", layer, head, right, second)
        right = second
    times(host, p, name, layer, head, right, out)


def times(host: Any, p: int, name: str, layer: int, head: int, right: np.ndarray, out: np.ndarray) -> None:
    """Adds one matrix times `right` to `out`, slab by slab."""
    for rows in slabs(len(out), max(len(right), right.shape[1]), SLAB, ROWS):
        out[rows] += product(residues(host, p, name, layer, head, len(right), rows), right, p)
        reduced(out[rows], p)


def witness_holds(host: Any, p: int, chosen: array[int], inverse: array[int], x: list[array[int]]) -> bool:
    """Whether inverse * (R_all x)[chosen] = x modulo p for every probe x (each of length M)."""
    s = host.s
    d, H, letters = s.head_dim, s.heads, s.letters
    vectors = reduced(np.array(x, dtype=np.float64).T, p).astype(kind(p))  # [M, k]
    M, k = vectors.shape
    quarter = d * s.readers(s.layers)
    tail = vectors[2 * quarter :].reshape(s.leaves, s.d_out, k)
    # state[i, word, probe] = coordinate i of T(word)
    state = product(whole(host, p, CODE_U, 1, 0, s.d_out), tail.transpose(1, 0, 2).reshape(s.d_out, -1), p)
    state = state.reshape(s.m, s.leaves, k)
    for layer in range(s.layers, 0, -1):
        start, words = d * s.readers(layer - 1), letters ** (layer - 1)
        total = np.zeros((s.m, words * k), kind(p))
        if s.residual:
            total += state[:, ::letters].reshape(s.m, -1)
        for head in range(H):
            ending = state[:, head + s.residual :: letters].reshape(s.m, -1)
            values_times(host, p, layer, head, ending, total)
            for code, first in ((R_Q, start), (R_K, quarter + start)):
                block = vectors[first : first + words * H * d].reshape(words, H, d, k)[:, head]
                times(host, p, NAMES[code], layer, head, block.transpose(1, 0, 2).reshape(d, -1), total)
        state = total.reshape(s.m, words, k)
    reached = state[np.frombuffer(chosen, dtype=chosen.typecode), 0]  # [M, k]
    rows = np.frombuffer(inverse, dtype=inverse.typecode).reshape(M, M)
    parts = slabs(M, M, SLAB, ROWS)
    return not any(
        reduced(product(reduced(rows[at].astype(kind(p)), p), reached, p) - vectors[at], p).any() for at in parts
    )


def columns_independent(host: Any, p: int, wanted: int, queries: int | None) -> bool:
    """Whether R_all modulo p has this rank; with `queries` only so many columns of every R_Q are used."""
    s, H = host.s, host.s.heads
    below = whole(host, p, CODE_U, 1, 0, s.d_out)
    for layer in range(s.layers, 0, -1):
        reads = []
        for h in range(H):
            reads += [whole(host, p, R_Q, layer, h, s.head_dim)[:, :queries], whole(host, p, R_K, layer, h, s.head_dim)]
        reads += [below] if s.residual else []
        read, width = np.hstack(reads), below.shape[1]
        out = np.zeros((s.m, read.shape[1] + H * width), kind(p))
        out[:, : read.shape[1]] = read
        for h in range(H):
            at = read.shape[1] + h * width
            values_times(host, p, layer, h, below, out[:, at : at + width])
        below = out
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
