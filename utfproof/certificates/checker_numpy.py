"""The checker's ranks modulo a prime with NumPy (`--numpy`): many times faster, and NumPy has then to be trusted too.

It repeats docs/certificate-format.md sections 4.7, 4.8, 6.1 and 6.2 in array arithmetic and imports nothing of the package.
Products modulo p are exact: sums of so many terms are formed that they stay below 2^53, where float64 holds every
integer; above p = 2^22 residues are split into halves below 2^16, of whose products 2^21 can be added up.
"""

from __future__ import annotations

from array import array
from math import isqrt
from typing import Any

import numpy as np

G, C1, C2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
MASK = 2**64 - 1
CHUNK = 2**18
EXACT_TERMS = 2**21
PANEL = 64
"""Columns that are eliminated at once."""
FLOATS = {"F64": ("<u8", 52), "F32": ("<u4", 23), "F16": ("<u2", 10), "BF16": ("<u2", 7)}
"""Bits of a stored float, and those before the significand's."""
FORMATS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
R_Q, R_K, R_V, CODE_U = 0, 1, 2, 3


def mix(z: int) -> int:
    """SplitMix64's output function."""
    z = ((z & MASK) ^ (z & MASK) >> 30) * int(C1) & MASK
    z = (z ^ z >> 27) * int(C2) & MASK
    return z ^ z >> 31


def residues(host: Any, p: int, code: int, layer: int, head: int, columns: int) -> np.ndarray:
    """The integers of one matrix (sections 4.7, 4.8), modulo p, int64 [m, columns]; layers count from 1."""
    m = host.s.m
    if not hasattr(host, "seed"):
        if code != R_V or "R_Vv" not in host.tensors:
            return stored(host, ("R_Q", "R_K", "R_V", "U")[code], layer, head, columns, p)
        first = stored(host, "R_Vv", layer, head, host.inner, p)
        return product(first, stored(host, "R_Vo", layer, head, m, p), p)
    key = mix(host.seed)
    for number in (code, 0 if host.tied or code == CODE_U else layer - 1, head):
        key = mix(key + int(G) * (number + 1))
    out = np.empty(m * columns, dtype=np.int64)
    for start in range(0, len(out), CHUNK):
        stop = min(start + CHUNK, len(out))
        z = np.arange(start + 1, stop + 1, dtype=np.uint64)
        z *= G
        z += np.uint64(key)
        z = (z ^ z >> np.uint64(30)) * C1
        z = (z ^ z >> np.uint64(27)) * C2
        z ^= z >> np.uint64(31)
        out[start:stop] = integers(host, z) % p
    return out.reshape(m, columns)


def stored(host: Any, name: str, layer: int, head: int, columns: int, p: int) -> np.ndarray:
    """One matrix of a file, as the integers of section 4.8 modulo p, int64; its entries are finite."""
    tensor = host.tensors[name]
    rows = tensor.sizes[-2]
    number = 0 if name == "U" else head if host.tied else (layer - 1) * host.s.heads + head
    kind = (
        FLOATS[tensor.dtype][0] if tensor.dtype in FLOATS else f"<{tensor.dtype[0].lower()}{int(tensor.dtype[1:]) // 8}"
    )
    count = rows * columns
    raw = np.frombuffer(tensor.data, kind)[number * count : (number + 1) * count]
    out = np.empty(count, dtype=np.int64)
    if tensor.dtype in FLOATS:
        bits = FLOATS[tensor.dtype][1]
        fields = 2 ** (8 * raw.itemsize - 1 - bits)  # values of the exponent; 0 and 1 share a power of two
        powers = np.array([pow(2, max(k - 1, 0), p) for k in range(fields)], dtype=np.int64)
        leading = np.concatenate([[0], powers[1:] * (2**bits % p) % p])
        powers, leading = np.concatenate([powers, -powers]), np.concatenate([leading, -leading])  # the sign is on top
    for at in range(0, count, CHUNK):
        x = raw[at : at + CHUNK]
        if tensor.dtype not in FLOATS:
            out[at : at + CHUNK] = x % np.array(p, x.dtype if x.dtype.itemsize > 4 else np.int64)
            continue
        place = (x >> x.dtype.type(bits)).astype(np.int64)
        low = (x & x.dtype.type(2**bits - 1)).astype(np.int64)
        out[at : at + CHUNK] = (powers[place] * (low % p if bits > 31 else low) + leading[place]) % p
    return out.reshape(rows, columns)


def finite(tensor: Any) -> bool:
    """Whether a tensor of floats holds no infinity and no NaN."""
    kind, bits = FLOATS[tensor.dtype]
    raw = np.frombuffer(tensor.data, kind)
    top = raw.dtype.type((2 ** (8 * raw.itemsize - 1 - bits) - 1) << bits)
    return all(not ((raw[at : at + CHUNK] & top) == top).any() for at in range(0, len(raw), CHUNK))


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


def product(a: np.ndarray, b: np.ndarray, p: int) -> np.ndarray:
    """a @ b modulo p, exactly, for residues 0 ... p-1 in int64 (p below 2^31)."""
    direct = p <= 2**22
    terms = min(EXACT_TERMS, 2**53 // (p - 1) ** 2) if direct else EXACT_TERMS
    if a.shape[1] > terms:
        cuts = range(0, a.shape[1], terms)
        return sum(product(a[:, at : at + terms], b[at : at + terms], p) for at in cuts) % p  # type: ignore[return-value]

    def part(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64) % p

    low = 2**16 - 1
    if direct:
        return part(a, b)
    a1, a0, b1, b0 = a >> 16, a & low, b >> 16, b & low
    high, cross = part(a1, b1), (part(a1, b0) + part(a0, b1)) % p
    return (((high << 16) % p + cross << 16) % p + part(a0, b0)) % p


def witness_holds(host: Any, p: int, chosen: array[int], inverse: array[int], x: list[array[int]]) -> bool:
    """Whether inverse * (R_all x)[chosen] = x modulo p for every probe x (each of length M)."""
    s = host.s
    d, H, letters = s.head_dim, s.heads, s.letters
    vectors = np.array(x, dtype=np.int64).T  # [M, k]
    M, k = vectors.shape
    quarter = d * s.readers(s.layers)
    tail = vectors[2 * quarter :].reshape(s.leaves, s.d_out, k)
    # state[i, word, probe] = coordinate i of T(word)
    state = product(residues(host, p, CODE_U, 1, 0, s.d_out), tail.transpose(1, 0, 2).reshape(s.d_out, -1), p)
    state = state.reshape(s.m, s.leaves, k)
    for layer in range(s.layers, 0, -1):
        start, words = d * s.readers(layer - 1), letters ** (layer - 1)
        total = np.zeros((s.m, words * k), dtype=np.int64)
        if s.residual:
            total += state[:, ::letters].reshape(s.m, -1)
        for head in range(H):
            ending = state[:, head + s.residual :: letters].reshape(s.m, -1)
            total += product(residues(host, p, R_V, layer, head, s.m), ending, p)
            for code, first in ((R_Q, start), (R_K, quarter + start)):
                block = vectors[first : first + words * H * d].reshape(words, H, d, k)[:, head]
                right = block.transpose(1, 0, 2).reshape(d, -1)
                total += product(residues(host, p, code, layer, head, d), right, p)
        state = (total % p).reshape(s.m, words, k)
    reached = state[np.frombuffer(chosen, dtype=chosen.typecode), 0]  # [M, k]
    found = np.empty((M, k), dtype=np.int64)
    rows = np.frombuffer(inverse, dtype=inverse.typecode).reshape(M, M)
    slab = max(1, 2**24 // M)
    for begin in range(0, M, slab):
        found[begin : begin + slab] = product(rows[begin : begin + slab].astype(np.int64), reached, p)
    return bool(np.array_equal(found, vectors))


def columns_independent(host: Any, p: int, wanted: int, queries: int | None, gauges: Any) -> bool:
    """Whether R_all modulo p has this rank; with `queries` only so many columns of every R_Q are used, with gauges [l, h, :, :]
    those of R_Q C^T."""
    s = host.s
    below = residues(host, p, CODE_U, 1, 0, s.d_out)
    for layer in range(s.layers, 0, -1):
        parts = []
        for h in range(s.heads):
            read = residues(host, p, R_Q, layer, h, s.head_dim)
            C = None if gauges is None else np.array(gauges[(layer - 1) % len(gauges)][h], dtype=np.int64)
            parts += [
                read[:, :queries] if C is None else product(read, C.T, p),
                residues(host, p, R_K, layer, h, s.head_dim),
            ]
        parts += [below] if s.residual else []
        below = np.hstack([*parts, *(product(residues(host, p, R_V, layer, h, s.m), below, p) for h in range(s.heads))])
    return rank_reaches(below, p, wanted)


def rank_reaches(a: np.ndarray, p: int, wanted: int) -> bool:
    """Whether the rank modulo p of `a` (int64 residues [rows, columns], overwritten) is at least `wanted`."""
    while wanted > 0:
        if min(a.shape) < wanted:
            return False
        panel, rest = a[:, :PANEL], a[:, PANEL:]
        order, pivots = np.arange(len(a)), list[int]()
        factors = np.zeros((len(a), 0), dtype=np.int64)
        for k in range(panel.shape[1]):
            t = len(pivots)
            found = np.flatnonzero(panel[t:, k])
            if len(found) == 0:
                continue
            i = t + int(found[0])
            panel[[t, i]], order[[t, i]], factors[[t, i]] = panel[[i, t]], order[[i, t]], factors[[i, t]]
            factor = panel[:, k] * pow(int(panel[t, k]), -1, p) % p
            factor[: t + 1] = 0
            panel[t + 1 :, k:] = (panel[t + 1 :, k:] - factor[t + 1 :, None] * panel[t, k:]) % p
            factors = np.hstack([factors, factor[:, None]])
            pivots.append(k)
        t = len(pivots)
        rest = rest[order]
        for i in range(1, t):  # unit lower triangular
            rest[i] = (rest[i] - product(factors[i : i + 1, :i], rest[:i], p)[0]) % p
        a = (rest[t:] - product(factors[t:], rest[:t], p)) % p if t else rest
        wanted -= t
    return True
