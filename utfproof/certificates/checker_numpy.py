"""The checker's witness method with NumPy (`--numpy`): many times faster, and NumPy has then to be trusted too.

It repeats docs/certificate-format.md sections 4.7 and 6.2 in array arithmetic and imports nothing else of the package.
Products modulo p are exact: residues are split into halves below 2^16, so that a product of halves is below 2^32 and
sums of up to 2^21 of them stay below 2^53, where float64 holds every integer.
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
    if not hasattr(host, "seed"):  # weights from a file: as the checker reads them
        rows = host.rows(code, layer, head, columns, p)
        return np.array([[x % p for x in row] for row in rows], dtype=np.int64).reshape(m, columns)
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
    if a.shape[1] > EXACT_TERMS:
        return (product(a[:, :EXACT_TERMS], b[:EXACT_TERMS], p) + product(a[:, EXACT_TERMS:], b[EXACT_TERMS:], p)) % p

    def part(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64) % p

    low = 2**16 - 1
    if p <= 2**16:
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
