"""Regenerates tests/certificates/{valid,invalid,malformed}: `python tests/make_corpus.py [FOLDER]`.

The bytes are the same on every run. No file is written before `judge`, a second reading of
docs/certificate-format.md that shares no code with the prover or the checker (dense or column-wise exact
arithmetic; FLINT for ranks), has agreed with the folder it is for.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import struct
import sys
from array import array
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import gcd, isqrt
from pathlib import Path
from types import SimpleNamespace

import naive
import numpy as np
import rfc8785

CORPUS = Path(__file__).parent / "certificates"
SAFE = 2**53 - 1
FIELDS = ("heads", "layers", "head_dim", "d_in", "d_out", "m")


# ----------------------------------------------------------------------------------------------------
# Hosts from their definitions (sections 4.1-4.6): a matrix is {column: [rows of its ones]}


class Undefined(Exception):
    """The construction does not exist at this shape, or not at this m."""


class TooLarge(Exception):
    """Beyond what is computed here."""


def identities(*runs):
    """Identities between rows a+i and columns b+i, i < width, for each (a, b, width)."""
    out = {}
    for a, b, width in runs:
        for i in range(width):
            out.setdefault(b + i, []).append(a + i)
    return out


def layout(words, width):
    """{word: first coordinate} of blocks in this order, and the total width."""
    start, position = {}, 0
    for word in words:
        start[word] = position
        position += width(word)
    return start, position


def by_length(H, first, last):
    return [w for t in range(first, last + 1) for w in naive.words(H, t)]


def index_host(name, H, L, d, d_in, d_out):
    """(least m, Q, K, V, U) with Q, K, V functions of (layer, head), layers from 1."""
    if name in ("sparse", "printed-tree-row", "printed-tree-column"):

        def width(w):
            return d_out if len(w) == L else 2 * H * d

        start, m = layout(by_length(H, 0, L), width)

        def reader(place):
            return lambda layer, h: identities(
                *((start[w] + (place * H + h) * d, 0, d) for w in naive.words(H, layer - 1))
            )

        def value(layer, h):
            if name == "sparse":
                return identities(
                    *((a, a, width(w)) for w, a in start.items() if len(w) >= layer and w[layer - 1] == h)
                )
            pairs = [(w, (*w, h)) for w in naive.words(H, layer - 1)]
            if name == "printed-tree-column":
                pairs = [(b, a) for a, b in pairs]
            return identities(*((start[a], start[b], min(width(a), width(b))) for a, b in pairs))

        U = identities(*((start[w], 0, d_out) for w in naive.words(H, L)))
        return m, reader(0), reader(1), value, U
    if name == "sparse-front":
        T = {L: d_out}
        for t in reversed(range(L)):
            T[t] = 2 * H * d + H * T[t + 1]
        return (
            T[0],
            lambda layer, h: identities((h * d, 0, d)),
            lambda layer, h: identities((H * d + h * d, 0, d)),
            lambda layer, h: identities((2 * H * d + h * T[layer], 0, T[layer])),
            identities((0, 0, d_out)),
        )
    if name in ("tied", "shared-query"):
        if name == "shared-query" and d < d_out:
            raise Undefined
        step = 2 * d if name == "tied" else d_out
        trie, position = layout(by_length(H, 1, L), lambda w: step)
        register, total = layout(naive.words(H, L), lambda w: d_out)
        register = {w: position + a for w, a in register.items()}
        root = register[(0,) * L]

        def value(layer, h):
            down = [(trie[h, *w], trie[w], step) for w in by_length(H, 1, L - 1)]
            return identities(*down, *((register[h, *w[:-1]], a, d_out) for w, a in register.items()))

        U = identities((root, 0, d_out))
        if name == "shared-query":
            return (position + total, lambda layer, h: U, lambda layer, h: identities((trie[h,], 0, d_out)), value, U)
        return (
            position + total,
            lambda layer, h: identities((trie[h,], 0, d)),
            lambda layer, h: identities((trie[h,] + d, 0, d)),
            value,
            U,
        )
    if name == "shared-key":
        if d < d_in:
            raise Undefined
        widths = {"q": lambda w: d_in, "k": lambda w: d_out if len(w) == L else max(d_in, d_out)}
        q, total = layout(by_length(H, 1, L), widths["q"])
        k, size = layout(by_length(H, 0, L), widths["k"])
        k = {w: total + a for w, a in k.items()}

        def value(layer, h):
            return identities(
                *(
                    (trie[h, *w], a, min(widths[which](w), widths[which]((h, *w))))
                    for which, trie in (("q", q), ("k", k))
                    for w, a in trie.items()
                    if len(w) < L
                )
            )

        return (
            total + size,
            lambda layer, h: identities((q[h,], 0, d_in)),
            lambda layer, h: identities((k[()], 0, d_in)),
            value,
            identities((k[()], 0, d_out)),
        )
    b = max(2 * d, d_out)
    if name == "printed-single-head":
        if H != 1:
            raise Undefined
        return (
            (L + 1) * b,
            lambda layer, h: identities(((layer - 1) * b, 0, d)),
            lambda layer, h: identities(((layer - 1) * b + d, 0, d)),
            lambda layer, h: identities(*((i * b, (i - 1) * b, b) for i in range(1, L + 1))),
            identities((L * b, 0, d_out)),
        )
    assert name == "printed-looped"
    block, m = layout(by_length(H, 0, L), lambda w: b)
    return (
        m,
        lambda layer, h: identities((block[h,], 0, d)),
        lambda layer, h: identities((block[h,] + d, 0, d)),
        lambda layer, h: identities(*((block[h, *p], block[p], b) for p in by_length(H, 0, L - 1))),
        identities((0, 0, d_out)),
    )


INDEX = (
    "sparse", "sparse-front", "tied", "shared-key", "shared-query",
    "printed-single-head", "printed-tree-row", "printed-tree-column", "printed-looped",
)  # fmt: skip
PERMUTATIONS = INDEX[:3]
RANDOM = ("random", "random-tied")
LAWS = ("uniform", "signs", "binomial")
DTYPES = ("float64", "float32", "float16", "bfloat16")


def dimension(H, L, d, d_in, d_out):
    """M, section 1."""
    S = L if H == 1 else sum(H**t for t in range(1, L + 1))
    return 2 * d * S + d_out * H**L


@lru_cache(maxsize=4000)
def index_parts(name, *shape):
    """(least m, Q, K, V, U) with the R_V as a table."""
    H, L = shape[:2]
    try:
        least = least_m(name, *shape)
    except IllFormed:
        raise Undefined from None
    if least > 20_000 or L > 12:
        raise TooLarge
    found, Q, K, V, U = index_host(name, *shape)
    assert found == least
    return least, Q, K, {(layer, h): V(layer, h) for layer in range(1, L + 1) for h in range(H)}, U


def routed(values, word, column):
    """R_w times a column."""
    for layer in range(len(word), 0, -1):
        step, moved = values[layer, word[layer - 1]], {}
        for j, x in column.items():
            for i in step.get(j, ()):
                moved[i] = moved.get(i, 0) + x
        column = moved
    return column


@lru_cache(maxsize=50_000)
def index_column(position, name, *shape):
    """One column of R_all, {row: entry}."""
    H, L, d, _, d_out = shape
    _, Q, K, V, U = index_parts(name, *shape)
    for read in (Q, K):
        for length in range(1, L + 1):
            if position < H**length * d:
                number, j = divmod(position, d)
                word = tuple(number // H**k % H for k in reversed(range(length)))
                return routed(V, word[:-1], dict.fromkeys(read(length, word[-1]).get(j, ()), 1))
            position -= H**length * d
    number, j = divmod(position, d_out)
    return routed(V, tuple(number // H**k % H for k in reversed(range(L))), dict.fromkeys(U.get(j, ()), 1))


@lru_cache(maxsize=4000)
def index_columns(name, *shape):
    """(least m, the columns of R_all in canonical order)."""
    H, L, d, _, d_out = shape
    least, Q, K, V, U = index_parts(name, *shape)
    if dimension(*shape) > 20_000:
        raise TooLarge
    result = []
    for read in (Q, K):
        for word in by_length(H, 1, L):
            reader = read(len(word), word[-1])
            result += [routed(V, word[:-1], dict.fromkeys(reader.get(j, ()), 1)) for j in range(d)]
    for word in naive.words(H, L):
        result += [routed(V, word, dict.fromkeys(U.get(j, ()), 1)) for j in range(d_out)]
    return least, result


def dense_index_host(name, shape, m):
    """The same host with dense matrices, for naive.r_all."""
    H, L, d, _, d_out = shape
    least, Q, K, V, U = index_host(name, *shape)
    assert m >= least

    def full(matrix, columns):
        out = np.zeros((m, columns), dtype=object)
        for j, rows in matrix.items():
            for i in rows:
                out[i, j] += 1
        return out

    def maps(layer, h):
        return full(Q(layer + 1, h), d), full(K(layer + 1, h), d), [full(V(layer + 1, h), m)]

    return SimpleNamespace(shape=SimpleNamespace(heads=H, layers=L), maps=maps, U=full(U, d_out))


# ----------------------------------------------------------------------------------------------------
# Random hosts (section 4.7)

MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix(z):
    z &= MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def law_unit(law, rows):
    """(c, e) with unit c * 2^-e."""
    t = 0
    while (c := isqrt(4**t // rows)) < 2**20:
        t += 1
    return {"uniform": (c, t + 32), "signs": (1, 0), "binomial": (c, t + 2)}[law]


def rounded(x, dtype):
    """A fraction that is exact in float64, rounded once to `dtype`."""
    if dtype == "bfloat16":
        if x == 0:
            return x
        exponent = abs(x.numerator).bit_length() - x.denominator.bit_length() + 1  # a power of two below: exact
        while Fraction(2) ** exponent > abs(x):
            exponent -= 1
        quantum = Fraction(2) ** max(exponent - 7, -133)
        return round(x / quantum) * quantum  # Python rounds fractions half to even
    form = {"float64": "<d", "float32": "<f", "float16": "<e"}[dtype]
    return Fraction(struct.unpack(form, struct.pack(form, x.numerator / x.denominator))[0])


@lru_cache(maxsize=3000)
def random_integers(tied, dtype, law, seed, H, L, d, d_in, d_out, m):
    """(integer R_all of section 4.7, the entries' common unit)."""
    M = dimension(H, L, d, d_in, d_out)
    if L * H * m * (m + 2 * d) + m * d_out > 150_000 or m * M > 60_000:
        raise TooLarge
    c, e = law_unit(law, m)
    power = Fraction(1, 2**e)
    unit = c * power

    def matrix(code, layer, head, columns):
        key = mix(seed)
        for number in (code, 0 if tied else layer, head):
            key = mix(key + GOLDEN * (number + 1))
        out = np.empty((m, columns), dtype=object)
        for i in range(m * columns):
            x = mix(key + GOLDEN * (i + 1))
            if law == "uniform":
                n = 2 * (x >> 32) + 1 - 2**32
            else:
                n = 1 - 2 * (x >> 63) if law == "signs" else bin(x).count("1") - 32
            if dtype != "float64":
                entry = rounded(n * unit, dtype) / power
                assert entry.denominator == 1
                n = entry.numerator
            out[divmod(i, columns)] = n
        return out

    held = {(c, layer, h): matrix(c, layer, h, (d, d, m)[c]) for c in range(3) for layer in range(L) for h in range(H)}
    host = SimpleNamespace(
        shape=SimpleNamespace(heads=H, layers=L),
        maps=lambda layer, h: (held[0, layer, h], held[1, layer, h], [held[2, layer, h]]),
        U=matrix(3, 0, 0, d_out),
    )
    return naive.r_all(host), unit if dtype == "float64" else power


def _depths(H, L, d, d_in, d_out):
    """How many matrices each column of R_all is a product of."""
    half = [t for t in range(1, L + 1) for _ in range(d * H**t)]
    return [*half, *half, *[L + 1] * (d_out * H**L)]


def random_r_all(*arguments):
    """R_all in the entries' true values."""
    integers, unit = random_integers(*arguments)
    return integers * np.array([unit**t for t in _depths(*arguments[4:9])], dtype=object)


@lru_cache(maxsize=3000)
def rank_modulo(p, *arguments):
    from flint import nmod_mat

    integers, _ = random_integers(*arguments)
    return int(nmod_mat(*integers.shape, [int(x) % p for x in integers.reshape(-1)], p).rank())


# ----------------------------------------------------------------------------------------------------
# The second opinion


class IllFormed(Exception):
    pass


def demand(condition):
    if not condition:
        raise IllFormed


def fields(value, *names):
    demand(type(value) is dict and sorted(value) == sorted(names))
    return [value[name] for name in names]


def number(value):
    if type(value) is str:
        demand(value.isascii() and value.removeprefix("-").isdigit())
        if len(value) > 4000:
            raise TooLarge
        demand(str(int(value)) == value and abs(int(value)) > SAFE)
        return int(value)
    demand(type(value) is int and abs(value) <= SAFE)
    return value


def canonical(value):
    """RFC 8785; integers up to 2^53 inclusive as numbers."""
    if type(value) is dict:
        return b"{%s}" % b",".join(rfc8785.dumps(k) + b":" + canonical(value[k]) for k in sorted(value))
    if type(value) is list:
        return b"[%s]" % b",".join(map(canonical, value))
    return b"%d" % value if type(value) is int and abs(value) <= SAFE else rfc8785.dumps(value)


def parsed(raw):
    def pairs(items):
        demand(len({key for key, _ in items}) == len(items))
        return dict(items)

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs)
        demand(canonical(value) == raw)
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        raise IllFormed from None
    return value


def judge(raw: bytes, folder: Path) -> int | None:
    """0, 1 or 2 as section 8 has it for a certificate with these bytes in this folder; None where it would take
    too long to say (never for the shapes of the corpus)."""
    try:
        return 0 if _holds(parsed(raw), folder) else 1
    except IllFormed:
        return 2
    except TooLarge:
        return None


def _holds(document, folder):
    form, version, kind, shape, claim, evidence = fields(
        document, "format", "version", "kind", "shape", "claim", "evidence"
    )
    demand(form == "utfproof-certificate" and type(version) is int and version == 1)
    demand(kind in ("rank-permutation", "rank-modular", "rank-deficient"))
    demand(type(claim) is dict and claim.get("verdict") in ("universal", "not universal"))
    universal = claim["verdict"] == "universal"
    host, notion, targets, *rank = fields(
        claim, "host", "notion", "targets", *(["rank"] if universal else []), "verdict"
    )[:-1]
    demand(notion == "matching" and targets == "all untied")
    rank = [number(r) for r in rank]
    *dims, m = [number(x) for x in fields(shape, *FIELDS)]
    demand(min(*dims, m) >= 1)
    if dims[0] > 1 and dims[1] * (dims[0] - 1).bit_length() > 60:
        raise TooLarge
    name = host.get("construction") if type(host) is dict else None
    demand(name in INDEX or name in RANDOM)
    drawn = ()
    if name in RANDOM:
        _, dtype, law, seed = fields(host, "construction", "dtype", "law", "seed")
        demand(dtype in DTYPES and law in LAWS and 0 <= number(seed) < 2**64)
        drawn = (name == "random-tied", dtype, law, number(seed), *dims, m)
    else:
        fields(host, "construction")
        demand(m >= least_m(name, *dims))
    demand(kind != "rank-modular" or name in RANDOM)
    demand(kind != "rank-permutation" or name in PERMUTATIONS)
    M = dimension(*dims) if dims[0] > 1 else 2 * dims[1] * dims[2] + dims[4]
    settle = {"rank-permutation": _permutation, "rank-modular": _modular, "rank-deficient": _deficient}[kind]
    holds = settle(name, dims, m, M, drawn, evidence, folder)
    if universal == (kind == "rank-deficient") or (rank and rank[0] != M):
        return False
    return holds()


def least_m(name, H, L, d, d_in, d_out):
    S = L if H == 1 else sum(H**t for t in range(1, L + 1))
    demand(name != "shared-key" or d >= d_in)
    demand(name != "shared-query" or d >= d_out)
    demand(name != "printed-single-head" or H == 1)
    if name == "shared-key":
        return d_in * S + max(d_in, d_out) * (1 + S - H**L) + d_out * H**L
    if name == "shared-query":
        return d_out * (S + H**L)
    if name == "printed-single-head":
        return (L + 1) * max(2 * d, d_out)
    if name == "printed-looped":
        return (1 + S) * max(2 * d, d_out)
    return 2 * d * S + d_out * H**L


def integers_of(value, length, folder, size=4):
    """An array (section 2)."""
    if type(value) is list:
        demand(len(value) == length <= 4096)
        return [number(entry) for entry in value]
    dtype, stated, digest = fields(value, "dtype", "length", "sidecar")
    demand(dtype == f"uint{8 * size}" and number(stated) == length > 4096)
    demand(type(digest) is str and len(digest) == 64 and set(digest) <= set("0123456789abcdef"))
    path = Path(folder) / f"{digest}.bin"
    demand(path.is_file() and not path.is_symlink())
    content = path.read_bytes()
    demand(len(content) == size * length and hashlib.sha256(content).hexdigest() == digest)
    return list(struct.unpack(f"<{length}{'H' if size == 2 else 'I'}", content))


def _permutation(name, dims, m, M, drawn, evidence, folder):
    (rows,) = fields(evidence, "rows")
    rows = integers_of(rows, M, folder)

    def holds():
        least, columns = index_columns(name, *dims)
        assert least <= m
        return len(set(rows)) == M and all(column == {r: 1} for r, column in zip(rows, columns, strict=True))

    return holds


def _modular(name, dims, m, M, drawn, evidence, folder):
    method = evidence.get("method") if type(evidence) is dict else None
    demand(method in ("recompute", "witness"))
    p, *arrays = fields(evidence, "prime", *(["rows", "inverse"] if method == "witness" else []), "method")[:-1]
    p = number(p)
    demand(2 <= p < 2**31)
    prime = p % 2 == 1 and all(p % k for k in range(3, isqrt(p) + 1, 2))
    if method == "recompute":
        return lambda: prime and m >= M and rank_modulo(p, *drawn) == M
    rows = integers_of(arrays[0], M, folder)
    demand(all(a < b for a, b in pairwise(rows)))
    inverse = integers_of(arrays[1], M * M, folder, 2 if p < 2**16 else 4)

    def holds():
        if not prime or rows[0] < 0 or rows[-1] >= m or min(inverse) < 0 or max(inverse) >= p:
            return False
        from flint import nmod_mat

        N = random_integers(*drawn)[0][rows]
        product = nmod_mat(M, M, inverse, p) * nmod_mat(M, M, [int(x) % p for x in N.reshape(-1)], p)
        return all(int(product[a, b]) == (a == b) for a in range(M) for b in range(M))

    return holds


def _deficient(name, dims, m, M, drawn, evidence, folder):
    method = evidence.get("method") if type(evidence) is dict else None
    if method == "dimension":
        fields(evidence, "method")
        return lambda: m < M
    _, column, distance, z = fields(evidence, "method", "column", "distance_squared", "z")
    demand(method == "kernel-vector" and type(distance) is list and len(distance) == 2 and type(z) is list)
    column, n, q = number(column), *map(number, distance)
    demand(q > 0 and gcd(n, q) == 1 and 1 <= len(z) <= 4096)
    demand(all(type(pair) is list and len(pair) == 2 for pair in z))
    z = [(number(i), number(v)) for i, v in z]
    positions = [i for i, _ in z]
    demand(all(v for _, v in z) and positions == sorted(set(positions)))
    demand(positions[0] >= 0 and positions[-1] < M and 0 <= column < M)
    vector = dict(z)

    def holds():
        if column not in vector or Fraction(n, q) != Fraction(vector[column] ** 2, sum(v * v for _, v in z)):
            return False
        if name in INDEX:
            total = {}
            for i, v in z:
                for row, x in index_column(i, name, *dims).items():
                    total[row] = total.get(row, 0) + x * v
            return not any(total.values())
        integers, unit = random_integers(*drawn)
        depths = _depths(*dims)
        weighted = [(i, v * unit ** depths[i]) for i, v in z]
        return not any(sum(row[i] * v for i, v in weighted) for row in integers)

    return holds


# ----------------------------------------------------------------------------------------------------
# Certificates


def written(n):
    return n if abs(n) <= SAFE else str(n)


def document(kind, name, dims, m, evidence, *, rank=None, **drawn):
    """A certificate's JSON object; dims = (H, L, d, d_in, d_out)."""
    host = {"construction": name}
    if name in RANDOM:
        host |= {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
        host["seed"] = written(host["seed"])
    claim = {
        "host": host,
        "notion": "matching",
        "targets": "all untied",
        "verdict": "not universal" if rank is None else "universal",
    }
    if rank is not None:
        claim["rank"] = written(rank)
    shape = {field: written(value) for field, value in zip(FIELDS, (*dims, m), strict=True)}
    return {
        "format": "utfproof-certificate",
        "version": 1,
        "kind": kind,
        "shape": shape,
        "claim": claim,
        "evidence": evidence,
    }


def kernel_evidence(z, column=None):
    """z as {position: value}; the isolated column defaults to the largest entry's."""
    column = max(z, key=lambda i: (abs(z[i]), -i)) if column is None else column
    distance = Fraction(z[column] ** 2, sum(v * v for v in z.values()))
    return {
        "method": "kernel-vector",
        "column": written(column),
        "distance_squared": [written(distance.numerator), written(distance.denominator)],
        "z": [[written(i), written(z[i])] for i in sorted(z)],
    }


def proved(name, dims, m=None, **drawn):
    """A true certificate about this host, of the kind that fits: (document, sidecars)."""
    M = dimension(*dims)
    if name in RANDOM:
        m = M if m is None else m
        options = {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
        host = (name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, m)
        if rank_modulo(8388593, *host) == M:
            evidence = {"method": "recompute", "prime": 8388593}
            return document("rank-modular", name, dims, m, evidence, rank=M, **drawn), {}
        return document(
            "rank-deficient", name, dims, m, kernel_evidence(kernel_basis(random_r_all(*host))[0]), **drawn
        ), {}
    least, columns = index_columns(name, *dims)
    m = least if m is None else m
    rows = [row for column in columns for row, x in column.items() if x == 1 and len(column) == 1]
    if name in PERMUTATIONS:
        assert len(set(rows)) == M
        held, files = (rows, {}) if M <= 4096 else sidecar(rows)
        return document("rank-permutation", name, dims, m, {"rows": held}, rank=M), files
    return document("rank-deficient", name, dims, m, kernel_evidence(kernel_basis(index_matrix(name, dims))[0])), {}


def kernel_basis(matrix):
    """Integer vectors that span the rational kernel, as {position: value}."""
    from flint import fmpq, fmpq_mat

    rows, columns = matrix.shape
    entries = [fmpq(Fraction(x).numerator, Fraction(x).denominator) for x in matrix.reshape(-1)]
    reduced, rank = fmpq_mat(rows, columns, entries).rref()
    pivots = [next(j for j in range(columns) if reduced[i, j] != 0) for i in range(int(rank))]
    basis = []
    for free in (j for j in range(columns) if j not in pivots):
        z = {pivot: -Fraction(int(reduced[i, free].p), int(reduced[i, free].q)) for i, pivot in enumerate(pivots)}
        z[free] = Fraction(1)
        scale = 1
        for v in z.values():
            scale = scale * v.denominator // gcd(scale, v.denominator)
        basis.append({i: int(v * scale) for i, v in z.items() if v})
    return basis


def index_matrix(name, dims):
    """R_all at the least m, dense."""
    least, columns = index_columns(name, *dims)
    out = np.zeros((least, len(columns)), dtype=object)
    for j, column in enumerate(columns):
        for i, x in column.items():
            out[i, j] = x
    return out


def matrix_of(name, dims, m, **drawn):
    """R_all, dense and exact."""
    if name in INDEX:
        return index_matrix(name, dims)
    options = {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
    return random_r_all(name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, m)


def changed(base, *path_and_value):
    """A copy with the value at a path replaced (or deleted: `...`)."""
    *path, last, value = path_and_value
    result = copy.deepcopy(base)
    place = result
    for step in path:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return result


def added(base, *path_and_pair):
    *path, key, value = path_and_pair
    result = copy.deepcopy(base)
    place = result
    for step in path:
        place = place[step]
    place[key] = value
    return result


def sidecar(numbers, size=4):
    """(reference, {digest: content})."""
    content = struct.pack(f"<{len(numbers)}{'H' if size == 2 else 'I'}", *numbers)
    digest = hashlib.sha256(content).hexdigest()
    return {"dtype": f"uint{8 * size}", "length": len(numbers), "sidecar": digest}, {digest: content}


def kernel_modulo(matrix, p):
    """An integer vector, not zero modulo p, that an integer matrix maps to zero modulo p."""
    from flint import nmod_mat

    rows, columns = matrix.shape
    basis, nullity = nmod_mat(rows, columns, [int(x) % p for x in matrix.reshape(-1)], p).nullspace()
    assert nullity
    return {i: v for i in range(columns) if (v := int(basis[i, 0]))}


def witness(name, dims, m, p, **drawn):
    """(document, sidecars) of section 6.2: the first rows that are independent modulo p, and their inverse."""
    from flint import nmod_mat

    M = dimension(*dims)
    options = {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
    matrix, _ = random_integers(name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, m)
    residues = [[int(x) % p for x in row] for row in matrix]
    reduced, rank = nmod_mat(M, m, [residues[i][j] for j in range(M) for i in range(m)], p).rref()
    assert rank == M, (name, dims, m, p, drawn)
    rows = [next(j for j in range(m) if int(reduced[i, j])) for i in range(M)]
    inverse = nmod_mat(M, M, [x for row in rows for x in residues[row]], p).inv()
    numbers = [int(inverse[a, b]) for a in range(M) for b in range(M)]
    held, files = (numbers, {}) if M * M <= 4096 else sidecar(numbers, 2 if p < 2**16 else 4)
    evidence = {"inverse": held, "method": "witness", "prime": p, "rows": rows}
    return document("rank-modular", name, dims, m, evidence, rank=M, **drawn), files


TALL = (1, 1, 30, 1, 5)  # M = 65: the shortest sidecar of a witness
BIG = (1, 1, 1, 1, 4095)  # M = 4097: the shortest sidecar, in one block
WIDE = (16, 2, 7, 2, 2)  # M = 4320, many blocks


def valid():
    """{name: (document, sidecars)}."""
    out = {}

    def add(name, found):
        assert name not in out, name
        out[name] = found if isinstance(found, tuple) else (found, {})

    def label(dims):
        return "h{}-l{}-d{}-in{}-out{}".format(*dims)

    shapes = [
        (1, 1, 1, 1, 1),
        (2, 2, 1, 2, 2),
        (2, 2, 2, 3, 1),
        (1, 3, 2, 2, 3),
        (3, 2, 1, 1, 2),
        (2, 3, 2, 2, 2),
        (5, 1, 1, 2, 2),
        (1, 1, 3, 2, 5),
    ]
    for name in PERMUTATIONS:
        for dims in shapes:
            add(f"permutation-{name}-{label(dims)}", proved(name, dims))
        add(f"permutation-{name}-padded-m-above-M", proved(name, (2, 2, 1, 2, 2), 27))
        add(
            f"permutation-{name}-m-beyond-2-to-the-64",
            changed(proved(name, (2, 1, 1, 1, 1))[0], "shape", "m", str(2**64)),
        )
    add(
        "permutation-sparse-d_in-beyond-2-to-the-53",
        changed(proved("sparse", (2, 1, 1, 1, 1))[0], "shape", "d_in", str(2**53 + 1)),
    )
    add("permutation-sparse-4096-rows-inline", proved("sparse", (64, 1, 31, 2, 2)))
    add("permutation-sparse-4097-rows-in-sidecar", proved("sparse", BIG))
    add("permutation-tied-4320-rows-in-sidecar", proved("tied", WIDE))
    add("permutation-sparse-front-4371-rows-in-sidecar", proved("sparse-front", (3, 6, 1, 3, 3)))

    for tied in RANDOM:
        for dims in shapes[:5]:
            add(f"modular-{tied}-{label(dims)}", proved(tied, dims, seed=7))
        add(f"modular-{tied}-padded-m-above-M", proved(tied, (2, 2, 1, 2, 2), 23, seed=1))
        for law in LAWS:
            for dtype in DTYPES:
                for seed in range(50):
                    found = proved(tied, (2, 1, 1, 2, 2), 9, seed=seed, law=law, dtype=dtype)
                    if found[0]["kind"] == "rank-modular":
                        break
                add(f"modular-{tied}-{law}-{dtype}", found)
        for seed in (2**53 - 1, 2**53 + 1, 2**64 - 1):
            add(f"modular-{tied}-seed-{seed}", proved(tied, (1, 2, 1, 2, 2), seed=seed))
        for prime in (3, 5, 7, 2**31 - 1):
            dims = (2, 1, 1, 1, 1)
            seed = next(
                s
                for s in range(500)
                if rank_modulo(prime, tied == "random-tied", "float64", "uniform", s, *dims, 6) == 6
            )
            add(
                f"modular-{tied}-prime-{prime}",
                document("rank-modular", tied, dims, 6, {"method": "recompute", "prime": prime}, rank=6, seed=seed),
            )
    add(
        "modular-random-seed-2-to-the-53",
        document(  # the least integer that is written as a string
            "rank-modular", "random", (1, 1, 1, 1, 1), 3, {"method": "recompute", "prime": 8388593}, rank=3, seed=2**53
        ),
    )

    for name in RANDOM:
        for dims, m, p in [
            ((2, 1, 1, 1, 1), 6, 8388593),
            ((2, 1, 1, 1, 1), 9, 2**31 - 1),
            ((2, 2, 1, 2, 1), 20, 65521),
            ((1, 3, 2, 2, 3), 18, 65537),
            ((1, 2, 1, 1, 2), 20, 3),
        ]:
            add(f"witness-{name}-{label(dims)}-m{m}-prime-{p}", witness(name, dims, m, p, seed=5))
        for law, dtype in [("signs", "float64"), ("binomial", "float16"), ("uniform", "bfloat16")]:
            add(f"witness-{name}-{law}-{dtype}", witness(name, (2, 1, 1, 2, 2), 12, 10007, law=law, dtype=dtype))
        for p in (65521, 65537):
            add(f"witness-{name}-sidecar-prime-{p}", witness(name, TALL, 66, p, seed=6))

    for name, dims, m in [
        ("printed-looped", (2, 2, 1, 2, 2), None),
        ("shared-key", (2, 2, 3, 2, 2), None),
        ("shared-query", (2, 2, 3, 2, 2), None),
        ("shared-key", (2, 2, 3, 2, 3), None),
        ("shared-query", (2, 2, 3, 3, 1), None),
        ("random", (2, 2, 1, 2, 2), 19),
        ("random-tied", (2, 2, 2, 3, 1), 1),
        ("random", (2, 60, 3, 5, 7), 2**62),
    ]:
        text = label(dims) if m != 2**62 else "M-beyond-2-to-the-64"
        host = {"seed": 4} if name in RANDOM else {}
        least = least_m(name, *dims) if name in INDEX else None
        add(
            f"deficient-dimension-{name}-{text}",
            document("rank-deficient", name, dims, m or least, {"method": "dimension"}, **host),
        )
    for name, dims, m in [
        ("printed-single-head", (1, 2, 2, 2, 2), None),
        ("printed-single-head", (1, 3, 1, 2, 3), None),
        ("printed-tree-row", (2, 2, 1, 2, 2), None),
        ("printed-tree-row", (2, 2, 2, 3, 5), None),
        ("printed-tree-column", (2, 2, 1, 2, 2), None),
        ("printed-tree-column", (3, 2, 1, 1, 4), None),
        ("printed-looped", (2, 2, 1, 2, 2), 20),
        ("printed-looped", (2, 3, 1, 2, 4), 80),
        ("shared-key", (2, 2, 3, 2, 2), 44),
        ("shared-query", (2, 2, 3, 2, 2), 50),
        ("shared-key", (2, 2, 3, 2, 4), 60),
        ("shared-query", (2, 2, 3, 4, 1), 44),
    ]:
        add(f"deficient-kernel-{name}-{label(dims)}", proved(name, dims, m))
    for name, dims in [
        ("printed-looped", (2, 2, 1, 2, 2)),
        ("shared-key", (2, 2, 3, 2, 2)),
        ("shared-query", (2, 2, 2, 2, 1)),
        ("printed-tree-row", (2, 1, 2, 2, 1)),
    ]:
        least, _ = index_columns(name, *dims)
        basis = kernel_basis(index_matrix(name, dims))
        z = {}
        for weight, vector in zip([3, -5, 2**60, 7, 1, 10**40], basis, strict=False):
            for i, v in vector.items():
                z[i] = z.get(i, 0) + weight * v
        add(
            f"deficient-kernel-{name}-many-entries-some-huge",
            document("rank-deficient", name, dims, least, kernel_evidence({i: v for i, v in z.items() if v})),
        )
    for tied in RANDOM:
        for law, dtype, dims, m in [
            ("signs", "float64", (1, 1, 1, 1, 1), 3),
            ("signs", "bfloat16", (2, 1, 1, 1, 1), 6),
            ("binomial", "float64", (1, 1, 1, 1, 1), 3),
            ("binomial", "float16", (1, 1, 1, 1, 1), 3),
        ]:
            for seed in range(2000):
                found = proved(tied, dims, m, seed=seed, law=law, dtype=dtype)
                if found[0]["kind"] == "rank-deficient":
                    break
            add(f"deficient-kernel-{tied}-{law}-{dtype}", found)
        for dtype in DTYPES:
            dims, m = (1, 2, 1, 1, 1), 4
            z = kernel_basis(matrix_of(tied, dims, m, dtype=dtype, seed=11))[0]
            add(
                f"deficient-kernel-{tied}-uniform-{dtype}-m-below-M",
                document("rank-deficient", tied, dims, m, kernel_evidence(z), dtype=dtype, seed=11),
            )
        dims, m = (2, 2, 1, 1, 1), 9
        z = kernel_basis(matrix_of(tied, dims, m, law="binomial", seed=2))[0]
        add(
            f"deficient-kernel-{tied}-binomial-two-layers",
            document("rank-deficient", tied, dims, m, kernel_evidence(z), law="binomial", seed=2),
        )
    return out


def invalid():
    out = {}

    def add(name, found, sidecars=()):
        assert name not in out, name
        out[name] = (found, dict(sidecars))

    dims, M = (2, 2, 1, 2, 2), 20
    for name in PERMUTATIONS:
        base, _ = proved(name, dims)
        rows = base["evidence"]["rows"]

        def with_rows(attack, new, base=base, name=name):
            add(f"permutation-{name}-{attack}", changed(base, "evidence", "rows", new))

        with_rows("two-rows-swapped", [rows[1], rows[0], *rows[2:]])
        with_rows("last-two-rows-swapped", [*rows[:-2], rows[-1], rows[-2]])
        with_rows("q-and-k-swapped", [*rows[6:12], *rows[:6], *rows[12:]])
        with_rows(
            "letters-of-words-reversed",
            [
                *rows[:3],
                rows[4],
                rows[3],
                *rows[5:9],
                rows[10],
                rows[9],
                *rows[11:14],
                *rows[16:18],
                *rows[14:16],
                *rows[18:],
            ],
        )
        with_rows("reversed", rows[::-1])
        with_rows(
            "identity" if rows != list(range(M)) else "rotated",
            [*range(M)] if rows != [*range(M)] else [*rows[1:], rows[0]],
        )
    base, _ = proved("sparse", dims)
    rows = base["evidence"]["rows"]
    for attack, new in {
        "row-repeated": [rows[0], rows[0], *rows[2:]],
        "row-off-by-one": [*rows[:7], rows[7] + 1, *rows[8:]],
        "row-negative": [rows[0] - M, *rows[1:]],
        "row-minus-one": [*rows[:-1], -1],
        "row-beyond-m": [*rows[:-1], M],
        "row-2-to-the-32-too-large": [rows[0] + 2**32, *rows[1:]],
        "row-2-to-the-64-too-large": [str(rows[0] + 2**64), *rows[1:]],
        "all-rows-zero": [0] * M,
    }.items():
        add(f"permutation-{attack}", changed(base, "evidence", "rows", new))
    padded, _ = proved("sparse", dims, 27)
    add("permutation-row-in-the-padding", changed(padded, "evidence", "rows", [*rows[:-1], 26]))
    tied, _ = proved("tied", dims)
    add("permutation-rows-of-another-construction", changed(base, "evidence", "rows", tied["evidence"]["rows"]))
    add("permutation-host-renamed", changed(base, "claim", "host", "construction", "sparse-front"))
    other, _ = proved("sparse", (2, 1, 2, 2, 6))  # M is 20, too
    add("permutation-shape-with-the-same-M", changed(base, "shape", other["shape"]))
    for attack, rank in {
        "below-M": M - 1,
        "above-M": M + 1,
        "zero": 0,
        "negative": -M,
        "half": M // 2,
        "huge": str(2**80),
        "plus-2-to-the-64": str(M + 2**64),
    }.items():
        add(f"claim-rank-{attack}", changed(base, "claim", "rank", rank))
    add("claim-rank-is-m", changed(padded, "claim", "rank", 27))
    flipped = changed(changed(base, "claim", "verdict", "not universal"), "claim", "rank", ...)
    add("verdict-flipped-permutation", flipped)
    big, contents = proved("sparse", BIG)
    numbers = list(struct.unpack("<4097I", next(iter(contents.values()))))
    for attack, new in {
        "rows-swapped": [*numbers[:-2], numbers[-1], numbers[-2]],
        "byte-order": list(struct.unpack(">4097I", next(iter(contents.values())))),
    }.items():
        reference, files = sidecar(new)
        add(f"sidecar-{attack}", changed(big, "evidence", "rows", reference), files)

    modular, _ = proved("random", dims, seed=7)
    for attack, p in {
        "composite-prime": 8388593 + 2,
        "prime-two": 2,
        "prime-even": 2**23,
        "prime-carmichael": 561,
        "prime-square": 4093**2,
        "prime-pseudoprime-2": 2047,
        "prime-pseudoprime-2-3": 1373653,
        "prime-pseudoprime-2-3-5": 25326001,
        "prime-product-of-large": 46337 * 46327,
        "prime-nine": 9,
    }.items():
        add(f"modular-{attack}", changed(modular, "evidence", "prime", p))
    add("verdict-flipped-modular", changed(changed(modular, "claim", "verdict", "not universal"), "claim", "rank", ...))
    add("modular-rank-below-M", changed(modular, "claim", "rank", M - 1))
    add("modular-m-below-M", changed(modular, "shape", "m", M - 1))
    add("modular-m-and-rank-below-M", changed(changed(modular, "shape", "m", M - 1), "claim", "rank", M - 1))
    tiny = (1, 1, 1, 1, 1)

    def singular(name, law, p=None):
        """A seed whose R_all is singular over the rationals, or modulo p only."""
        for seed in range(2000):
            arguments = (name == "random-tied", "float64", law, seed, *tiny, 3)
            zero = rank_modulo(2**31 - 1, *arguments) < 3
            if zero if p is None else not zero and rank_modulo(p, *arguments) < 3:
                return seed
        raise AssertionError

    for name in RANDOM:
        for attack, law, p in [
            ("singular-host", "signs", None),
            ("singular-host-binomial", "binomial", None),
            ("singular-modulo-this-prime", "uniform", 3),
        ]:
            evidence = {"method": "recompute", "prime": p or 8388593}
            add(
                f"modular-{name}-{attack}",
                document("rank-modular", name, tiny, 3, evidence, rank=3, law=law, seed=singular(name, law, p)),
            )

    base, _ = witness("random", tiny, 5, 101, seed=5)
    rows, inverse = base["evidence"]["rows"], base["evidence"]["inverse"]
    for attack, path_and_value in {
        "entry-off-by-one": ("inverse", [*inverse[:-1], (inverse[-1] + 1) % 101]),
        "entry-plus-p": ("inverse", [inverse[0] + 101, *inverse[1:]]),
        "entry-minus-p": ("inverse", [inverse[0] - 101, *inverse[1:]]),
        "transposed": ("inverse", [inverse[3 * b + a] for a in range(3) for b in range(3)]),
        "zero": ("inverse", [0] * 9),
        "identity": ("inverse", [1, 0, 0, 0, 1, 0, 0, 0, 1]),
        "rows-of-the-inverse-swapped": ("inverse", [*inverse[3:6], *inverse[:3], *inverse[6:]]),
        "other-rows": ("rows", [0, 1, 4] if rows != [0, 1, 4] else [0, 2, 4]),
        "row-m": ("rows", [*rows[:2], 5]),
        "row-2-to-the-32": ("rows", [*rows[:2], 2**32]),
        "first-row-negative": ("rows", [-1, *rows[1:]]),
        "another-prime": ("prime", 103),
        "composite-prime": ("prime", 105),
        "prime-two": ("prime", 2),
    }.items():
        add(f"witness-{attack}", changed(base, "evidence", *path_and_value))
    add("witness-of-another-seed", changed(base, "claim", "host", "seed", 6))
    add("witness-m-below-M", changed(base, "shape", "m", 2))
    seed = singular("random", "signs")
    add(
        "witness-of-a-singular-host",
        changed(changed(base, "claim", "host", "law", "signs"), "claim", "host", "seed", seed),
    )
    for p, size in ((65521, 2), (65537, 4)):
        big, files = witness("random", TALL, 66, p, seed=6)
        numbers = list(struct.unpack(f"<4225{'H' if size == 2 else 'I'}", next(iter(files.values()))))
        reference, files = sidecar([*numbers[:-1], (numbers[-1] + 1) % p], size)
        add(f"witness-sidecar-entry-off-by-one-{p}", changed(big, "evidence", "inverse", reference), files)
        reference, files = sidecar([p, *numbers[1:]], size)
        add(f"witness-sidecar-entry-is-p-{p}", changed(big, "evidence", "inverse", reference), files)

    # refutations
    seed = singular("random", "signs")
    base, _ = proved("random", tiny, 3, seed=seed, law="signs")
    z = dict(base["evidence"]["z"])
    n, q = base["evidence"]["distance_squared"]

    def refute(attack, *path_and_value):
        add(f"deficient-{attack}", changed(base, "evidence", *path_and_value))

    refute("distance-wrong", "distance_squared", [n, q + 1])
    refute("distance-zero", "distance_squared", [0, 1])
    refute("distance-negative", "distance_squared", [-n, q])
    refute("distance-upside-down", "distance_squared", [q, n])
    refute("column-outside-z", "column", next(i for i in range(3) if i not in z))
    add("verdict-flipped-deficient", added(changed(base, "claim", "verdict", "universal"), "claim", "rank", 3))
    sign = copy.deepcopy(base)
    sign["evidence"]["z"][0][1] *= -1
    add("deficient-z-sign-flipped", sign)
    shift = changed(base, "evidence", kernel_evidence({(i + 1) % 3: v for i, v in z.items()}))
    add("deficient-z-shifted", shift)
    for attack, changes in {
        "of-another-seed": {"seed": seed + 1},
        "of-another-law": {"law": "uniform"},
        "of-another-law-binomial": {"law": "binomial"},
    }.items():
        found = copy.deepcopy(base)
        found["claim"]["host"] |= changes
        add(f"deficient-z-{attack}", found)
    add(
        "deficient-full-rank-called-refuted",
        document("rank-deficient", "sparse", dims, M, kernel_evidence({0: 1, 1: -1})),
    )
    add("deficient-full-rank-one-entry", document("rank-deficient", "tied", dims, M, kernel_evidence({5: 1})))
    add(
        "deficient-z-not-in-kernel",
        document("rank-deficient", "printed-looped", dims, 20, kernel_evidence({0: 1, 1: -1})),
    )
    looped, _ = proved("printed-looped", dims, 20)
    add(
        "deficient-z-misses-one-entry", changed(looped, "evidence", kernel_evidence({looped["evidence"]["z"][0][0]: 1}))
    )
    row = next(
        z
        for z in kernel_basis(index_matrix("printed-tree-row", dims))
        if (index_matrix("printed-tree-column", dims) @ [z.get(i, 0) for i in range(M)]).any()
    )
    add(
        "deficient-z-of-the-transposed-tree",
        document("rank-deficient", "printed-tree-column", dims, M, kernel_evidence(row)),
    )
    for attack, m in {"equals-M": M, "above-M": M + 1, "huge": 2**80}.items():
        add(
            f"deficient-dimension-m-{attack}",
            document("rank-deficient", "random", dims, m, {"method": "dimension"}, seed=3),
        )
    add("deficient-dimension-of-sparse", document("rank-deficient", "sparse", dims, M, {"method": "dimension"}))
    add(
        "deficient-dimension-printed-count-without-the-2",
        document("rank-deficient", "random", dims, 20, {"method": "dimension"}),
    )
    arguments = (False, "float64", "uniform", singular("random", "uniform", 3), *tiny, 3)
    add(
        "deficient-kernel-modulo-three-only",
        document(
            "rank-deficient",
            "random",
            tiny,
            3,
            kernel_evidence(kernel_modulo(random_integers(*arguments)[0], 3)),
            seed=arguments[3],
        ),
    )
    for power in (32, 53, 64):
        add(
            f"deficient-kernel-modulo-2-to-the-{power}-only",
            document("rank-deficient", "random", tiny, 3, kernel_evidence({0: 2**power}), law="signs", seed=1),
        )
    z = kernel_basis(matrix_of("random", (1, 2, 1, 1, 1), 4, seed=11))[0]
    wide = document("rank-deficient", "random", (1, 2, 1, 1, 1), 4, kernel_evidence(z), seed=11)
    add(
        "deficient-distance-of-another-column",
        changed(wide, "evidence", "column", next(i for i in z if abs(z[i]) != abs(z[wide["evidence"]["column"]]))),
    )
    add("deficient-z-of-the-tied-host", changed(wide, "claim", "host", "construction", "random-tied"))
    root = Fraction(abs(z[wide["evidence"]["column"]]), sum(map(abs, z.values())))
    add(
        "deficient-distance-not-squared",
        changed(wide, "evidence", "distance_squared", [written(root.numerator), written(root.denominator)]),
    )
    add(
        "deficient-kernel-of-the-numerators-only",
        document(  # forgets that deeper columns have more units
            "rank-deficient",
            "random",
            (1, 2, 1, 1, 1),
            4,
            kernel_evidence(kernel_basis(random_integers(False, "float64", "uniform", 11, 1, 2, 1, 1, 1, 4)[0])[0]),
            seed=11,
        ),
    )
    add(
        "deficient-kernel-off-by-one-in-the-last-digit",
        document(
            "rank-deficient",
            "random",
            (1, 2, 1, 1, 1),
            4,
            kernel_evidence({i: v + (i == max(z)) for i, v in z.items()}),
            seed=11,
        ),
    )
    add(
        "deficient-kernel-of-float64-claimed-for-float32",
        document("rank-deficient", "random", (1, 2, 1, 1, 1), 4, kernel_evidence(z), seed=11, dtype="float32"),
    )
    return out


def malformed():
    """{name: bytes or (document, sidecar files)}."""
    out = {}
    dims = (2, 1, 1, 1, 1)  # M = 6
    sparse, _ = proved("sparse", dims)
    modular, _ = proved("random", dims, seed=7)
    kernel, _ = proved("printed-looped", dims, 12)
    small = document("rank-deficient", "random", dims, 5, {"method": "dimension"})
    raw = canonical(sparse)

    def add(name, content, sidecars=()):
        assert name not in out, name
        out[name] = content if isinstance(content, bytes) else (content, dict(sidecars))

    def text(name, old, new, source=sparse):
        raw = canonical(source)
        old, new = old.encode(), new.encode("utf-8", "surrogatepass")
        assert raw.count(old) == 1, (name, old)
        add(name, raw.replace(old, new))

    def quoted(text):
        return f'"{text}"'

    # the file
    add("empty-file", b"")
    add("one-space", b" ")
    add("one-nul-byte", b"\0")
    add("null", b"null")
    add("not-an-object-array", b"[" + raw + b"]")
    add("not-an-object-string", b'"utfproof-certificate"')
    add("not-an-object-number", b"1")
    add("empty-object", b"{}")
    add("trailing-newline", raw + b"\n")
    add("trailing-nul", raw + b"\0")
    add("trailing-object", raw + raw)
    add("leading-space", b" " + raw)
    add("byte-order-mark", b"\xef\xbb\xbf" + raw)
    add("utf-16", raw.decode().encode("utf-16"))
    add("crlf", json.dumps(sparse, indent=0, sort_keys=True).replace("\n", "\r\n").encode())
    add("white-space", json.dumps(sparse, sort_keys=True).encode())
    add("unsorted-keys", json.dumps(sparse, separators=(",", ":")).encode())
    add("unsorted-keys-in-shape", canonical(sparse).replace(b'"d_in":1,"d_out":1', b'"d_out":1,"d_in":1'))
    add("truncated", raw[:-1])
    add("truncated-in-the-middle", raw[: len(raw) // 2])
    add("deep-nesting-arrays", b"[" * 100_000)
    add("deep-nesting-closed", b"[" * 5000 + b"]" * 5000)
    add("deep-nesting-objects", b'{"":' * 50_000)
    add("deep-nesting-inside", raw.replace(b'"rows":[', b'"rows":[' + b"[" * 3000 + b"]" * 3000 + b","))
    add("invalid-utf-8", raw.replace(b"matching", b"match\xffng"))
    add("overlong-utf-8", raw.replace(b"matching", b"match\xc1\xa9ng"))
    text("escaped-letter", '"matching"', '"\\u006datching"')
    text("escaped-slash-key", '"version"', '"ver\\u0073ion"')
    text("lone-surrogate", '"matching"', '"\\ud800"')
    text("raw-surrogate", '"matching"', '"\ud800"')
    text("non-ascii-letters", '"matching"', '"m\u0430tching"')  # a Cyrillic a
    text("duplicate-key", '"notion":"matching"', '"notion":"matching","notion":"matching"')
    text("duplicate-key-false-first", '"rank":6', '"rank":5,"rank":6')
    text("duplicate-key-at-the-top", '"version":1', '"version":1,"version":1')
    text("duplicate-key-in-shape", '"heads":2', '"heads":2,"heads":2')
    text("duplicate-key-in-evidence", '"rows":[', '"rows":[],"rows":[')
    text("duplicate-key-in-host", '"construction":"sparse"', '"construction":"sparse","construction":"sparse"')

    # numbers
    for name, number in {
        "float-instead-of-integer": "6.0",
        "float-with-exponent": "6e0",
        "exponent": "1E1",
        "minus-zero": "-0",
        "leading-zero": "06",
        "plus-sign": "+6",
        "nan": "NaN",
        "infinity": "Infinity",
        "minus-infinity": "-Infinity",
        "huge-exponent": "1e999999999",
        "hexadecimal": "0x6",
        "true-as-one": "true",
        "null-as-number": "null",
        "huge-integer-as-number": str(2**53),
        "enormous-integer-as-number": "9" * 5000,
        "small-integer-as-string": '"6"',
        "integer-below-2-to-the-53-as-string": f'"{2**53 - 1}"',
        "string-with-leading-zero": f'"0{2**60}"',
        "string-with-plus": f'"+{2**60}"',
        "string-with-space": f'" {2**60}"',
        "string-with-newline": f'"{2**60}\\n"',
        "string-with-underscore": '"1_000_000_000_000_000_000_000"',
        "string-with-point": f'"{2**60}.0"',
        "string-with-exponent": '"1e30"',
        "string-minus-zero": '"-0"',
        "string-two-minus": f'"--{2**60}"',
        "string-arabic-digits": quoted("\u0666" * 20),
        "string-fullwidth-digits": quoted("\uff16" * 20),
        "string-superscript-digits": quoted("\u2076" * 20),
        "string-empty": '""',
        "string-with-nul": f'"{2**60}\\u0000"',
        "number-in-array": "[6]",
        "number-in-object": '{"6":6}',
    }.items():
        text(f"rank-{name}", '"rank":6', f'"rank":{number}')
    for field in FIELDS:
        for name, value in {"zero": 0, "negative": -1, "null": None, "true": True, "string": "2", "list": [2]}.items():
            add(f"shape-{field}-{name}", changed(sparse, "shape", field, value))
        add(
            f"shape-{field}-float",
            raw.replace(
                f'"{field}":{sparse["shape"][field]}'.encode(), f'"{field}":{sparse["shape"][field]}.0'.encode()
            ),
        )
        add(f"shape-{field}-missing", changed(sparse, "shape", field, ...))
    add("shape-negative-huge", changed(sparse, "shape", "d_in", str(-(2**60))))
    add("shape-is-a-list", changed(sparse, "shape", [2, 1, 1, 1, 1, 6]))
    add("shape-is-null", changed(sparse, "shape", None))

    # fields
    places = {"top": (), "shape": ("shape",), "claim": ("claim",), "host": ("claim", "host"), "evidence": ("evidence",)}
    for source, bases in {"permutation": sparse, "modular": modular, "kernel": kernel, "dimension": small}.items():
        for place, path in places.items():
            for key in ("zzz", "__class__", "", "\0", "Version"):
                if source == "permutation" or key == "zzz":
                    label = {"": "empty-name", "\0": "nul-name", "__class__": "dunder"}.get(key, key)
                    add(f"unknown-field-{source}-{place}-{label}", added(bases, *path, key, 1))
            value = bases
            for step in path:
                value = value[step]
            for key in value:
                if place != "shape":
                    add(f"missing-field-{source}-{place}-{key}", changed(bases, *path, key, ...))
    add("unknown-field-random-field-in-index-host", added(sparse, "claim", "host", "seed", 0))
    add("unknown-field-rank-in-a-refutation", added(kernel, "claim", "rank", 5))
    add("verdict-flipped-but-rank-kept", changed(sparse, "claim", "verdict", "not universal"))
    for field, values in {
        "format": ["utfproof-certificate ", "UTFPROOF-CERTIFICATE", "", 1, None],
        "version": [0, 2, -1, "1", True, None, str(2**64 + 1)],
        "kind": ["rank-full", "rank_permutation", "", None, ["rank-permutation"], {}],
    }.items():
        for i, value in enumerate(values):
            add(f"wrong-{field}-{i}", changed(sparse, field, value))
    text("version-1.0", '"version":1', '"version":1.0')
    for field, values in {
        "notion": ["functional", "attention-matching", "Matching", None, ["matching"]],
        "targets": ["all", "all tied", "almost all untied", None],
        "verdict": ["Universal", "not-universal", True, None, []],
        "host": [None, [], "sparse", {}],
    }.items():
        for i, value in enumerate(values):
            label = value.replace(" ", "-") if type(value) is str and value.islower() else str(i)
            add(f"claim-{field}-{label}", changed(sparse, "claim", field, value))
    add("claim-is-null", changed(sparse, "claim", None))
    add("claim-is-a-list", changed(sparse, "claim", ["universal"]))
    add("claim-is-a-string", changed(sparse, "claim", "universal"))
    add("evidence-is-null", changed(sparse, "evidence", None))
    add("evidence-is-a-list", changed(sparse, "evidence", sparse["evidence"]["rows"]))
    for i, value in enumerate(["Sparse", "dense", "", None, 0, ["sparse"], {}]):
        add(f"unknown-construction-{i}", changed(sparse, "claim", "host", "construction", value))
    for field, values in {
        "seed": [str(2**64), -1, str(-(2**63) - 1), "7", True, None, str(2**200), [7]],
        "law": ["normal", "Uniform", "", None, 0],
        "dtype": ["float128", "f64", "Float64", "int64", "", None, 64],
    }.items():
        for i, value in enumerate(values):
            add(f"wrong-{field}-{i}", changed(modular, "claim", "host", field, value))

    # kinds, constructions, shapes
    add("kind-permutation-for-random", changed(modular, "kind", "rank-permutation"))
    add("kind-modular-for-sparse", changed(sparse, "kind", "rank-modular"))
    add("kind-deficient-with-rows", changed(sparse, "kind", "rank-deficient"))
    add("kind-permutation-for-printed-tree-row", changed(sparse, "claim", "host", "construction", "printed-tree-row"))
    add("kind-permutation-for-shared-key", changed(sparse, "claim", "host", "construction", "shared-key"))
    add(
        "kind-modular-for-shared-query",
        document("rank-modular", "shared-query", (2, 1, 2, 1, 1), 20, {"method": "recompute", "prime": 3}, rank=10),
    )
    for name, at, m in [
        ("shared-key", (2, 2, 2, 3, 3), 99),
        ("shared-query", (2, 2, 2, 3, 3), 99),
        ("shared-key", (2, 2, 2, 3, 1), 99),
        ("shared-query", (2, 2, 2, 1, 3), 99),
        ("printed-single-head", (2, 2, 1, 1, 1), 99),
    ]:
        add(
            f"{name}-not-defined-at-d{at[2]}-in{at[3]}-out{at[4]}",
            document("rank-deficient", name, at, m, {"method": "dimension"}),
        )
    for name in INDEX:
        at = (1, 2, 2, 2, 2)
        m = least_m(name, *at) - 1
        kind, evidence, rank = "rank-deficient", {"method": "dimension"}, None
        if name in PERMUTATIONS:
            kind, evidence, rank = "rank-permutation", {"rows": list(range(m + 1))}, m + 1
        add(f"m-below-the-least-m-of-{name}", document(kind, name, at, m, evidence, rank=rank))
    add("m-one", changed(sparse, "shape", "m", 1))

    # evidence
    rows = sparse["evidence"]["rows"]
    for attack, new in {
        "too-long": [*rows, 6],
        "too-short": rows[:-1],
        "empty": [],
        "null": None,
        "string": "012345",
        "with-null": [*rows[:-1], None],
        "with-true": [0, True, *rows[2:]],
        "with-string": ["0", *rows[1:]],
        "nested": [rows],
        "as-object": {str(i): r for i, r in enumerate(rows)},
        "number": 0,
        "of-pairs": [[i, r] for i, r in enumerate(rows)],
    }.items():
        add(f"inline-array-{attack}", changed(sparse, "evidence", "rows", new))
    text("inline-array-with-float", '"rows":[', '"rows":[0.0,')
    for i, value in enumerate(["Recompute", "certificate", None, 1, "dimension"]):
        add(f"modular-method-{i}", changed(modular, "evidence", "method", value))
    for i, value in enumerate([0, 1, -3, 2**31, 2**31 + 11, str(2**61 - 1), "3", None, True, [3], "8388593"]):
        add(f"modular-prime-out-of-range-{i}", changed(modular, "evidence", "prime", value))
    text("modular-prime-float", '"prime":8388593', '"prime":8388593.0', modular)
    base, _ = witness("random", (1, 1, 1, 1, 1), 5, 101, seed=5)
    rows, inverse = base["evidence"]["rows"], base["evidence"]["inverse"]
    for attack, path_and_value in {
        "rows-decrease": ("rows", rows[::-1]),
        "rows-repeat": ("rows", [rows[0], rows[0], rows[2]]),
        "rows-too-long": ("rows", [0, 1, 2, 3]),
        "rows-too-short": ("rows", rows[:2]),
        "rows-null": ("rows", None),
        "inverse-too-short": ("inverse", inverse[:-1]),
        "inverse-too-long": ("inverse", [*inverse, 0]),
        "inverse-of-rows": ("inverse", [inverse[:3], inverse[3:6], inverse[6:]]),
        "inverse-null": ("inverse", None),
        "inverse-missing": ("inverse", ...),
        "rows-missing": ("rows", ...),
        "prime-missing": ("prime", ...),
        "method-recompute": ("method", "recompute"),
        "prime-out-of-range": ("prime", 2**31 + 11),
        "inverse-with-true": ("inverse", [True, *inverse[1:]]),
        "inverse-as-string": ("inverse", "1"),
    }.items():
        add(f"witness-{attack}", changed(base, "evidence", *path_and_value))
    add("witness-unknown-field", added(base, "evidence", "k", 1))
    add("witness-of-a-permutation", changed(sparse, "evidence", base["evidence"]))
    for p, wrong in ((65521, 4), (65537, 2)):
        big, files = witness("random", TALL, 66, p, seed=6)
        numbers = struct.unpack(f"<4225{'I' if wrong == 2 else 'H'}", next(iter(files.values())))
        reference, files = sidecar([n % 65536 for n in numbers], wrong)
        add(f"witness-sidecar-wrong-width-{p}", changed(big, "evidence", "inverse", reference), files)
        other = reference | {"dtype": f"uint{8 * (6 - wrong)}"}
        add(f"witness-sidecar-dtype-of-the-other-width-{p}", changed(big, "evidence", "inverse", other))
    short, files = sidecar(inverse, 2)
    add("witness-sidecar-for-a-short-array", changed(base, "evidence", "inverse", short), files)

    rows = sparse["evidence"]["rows"]
    z = kernel["evidence"]["z"]
    assert len(z) == 2
    distance = kernel["evidence"]["distance_squared"]
    for attack, path_and_value in {
        "z-empty": ("z", []),
        "z-null": ("z", None),
        "z-object": ("z", {"0": 1}),
        "z-not-pairs": ("z", [0, 1]),
        "z-triples": ("z", [[*pair, 0] for pair in z]),
        "z-singles": ("z", [[0], [1]]),
        "z-unsorted": ("z", z[::-1]),
        "z-position-twice": ("z", [z[0], z[0], z[1]]),
        "z-zero-value": ("z", [z[0], [z[1][0], 0]]),
        "z-position-M": ("z", [z[0], [6, -1]]),
        "z-position-negative": ("z", [[-1, 1], *z]),
        "z-value-string": ("z", [[z[0][0], "1"], z[1]]),
        "z-value-true": ("z", [[z[0][0], True], z[1]]),
        "z-value-null": ("z", [[z[0][0], None], z[1]]),
        "z-position-string": ("z", [["0", 1], z[1]]),
        "z-dense": ("z", [1, -1, 0, 0, 0, 0]),
        "z-position-beyond-2-to-the-64": ("z", [z[0], [str(2**64), 1]]),
        "column-M": ("column", 6),
        "column-negative": ("column", -1),
        "column-string": ("column", "0"),
        "column-null": ("column", None),
        "column-huge": ("column", str(2**64)),
        "column-true": ("column", True),
        "distance-not-lowest": ("distance_squared", [2 * x for x in distance]),
        "distance-q-zero": ("distance_squared", [1, 0]),
        "distance-q-negative": ("distance_squared", [-1, -2]),
        "distance-one-number": ("distance_squared", [1]),
        "distance-three": ("distance_squared", [*distance, 1]),
        "distance-string": ("distance_squared", "1/2"),
        "distance-null": ("distance_squared", None),
        "distance-number": ("distance_squared", 1),
        "distance-of-strings": ("distance_squared", ["1", "2"]),
        "distance-zero-over-two": ("distance_squared", [0, 2]),
        "method-list": ("method", ["kernel-vector"]),
        "method-unknown": ("method", "kernel"),
    }.items():
        add(f"kernel-{attack}", changed(kernel, "evidence", *path_and_value))
    add("kernel-method-dimension-with-z", changed(kernel, "evidence", "method", "dimension"))
    many = {i: (1 if i % 2 else -1) for i in range(4097)}
    add("kernel-z-4097-entries", document("rank-deficient", "sparse", BIG, 4097, kernel_evidence(many, 0)))

    # sidecars; every case has its own content, because a sidecar's name is its digest
    big, _ = proved("sparse", BIG)
    contents = {}

    def reference(case):
        shuffled = list(range(4097))
        random.Random(case).shuffle(shuffled)
        found, files = sidecar(shuffled)
        contents[case] = next(iter(files.values()))
        return found

    def with_sidecar(case, alter=None, changes=()):
        found = reference(case)
        digest = found["sidecar"]
        files = {} if alter is None else {digest: alter(contents[case])}
        add(f"sidecar-{case}", changed(big, "evidence", "rows", found | dict(changes)), files)

    def flip(content):
        return content[:-1] + bytes([content[-1] ^ 1])

    with_sidecar("missing")
    with_sidecar("truncated", lambda c: c[:-4])
    with_sidecar("truncated-by-a-byte", lambda c: c[:-1])
    with_sidecar("extended", lambda c: c + bytes(4))
    with_sidecar("extended-by-a-byte", lambda c: c + b"\n")
    with_sidecar("altered", flip)
    with_sidecar("empty", lambda c: b"")
    with_sidecar("zeroed", lambda c: bytes(len(c)))
    for case, changes in {
        "dtype-int32": {"dtype": "int32"},
        "dtype-null": {"dtype": None},
        "length-too-short": {"length": 4096},
        "length-too-long": {"length": 4098},
        "length-string": {"length": "4097"},
        "length-negative": {"length": -4097},
        "length-huge": {"length": str(2**64 + 4097)},
        "unknown-field": {"path": "rows.bin"},
    }.items():
        with_sidecar(case, lambda c: c, changes)
    with_sidecar("length-missing", lambda c: c)
    del out["sidecar-length-missing"][0]["evidence"]["rows"]["length"]
    with_sidecar("dtype-missing", lambda c: c)
    del out["sidecar-dtype-missing"][0]["evidence"]["rows"]["dtype"]
    digest = reference("uppercase-digest")["sidecar"].upper()
    add(
        "sidecar-uppercase-digest",
        changed(big, "evidence", "rows", {"dtype": "uint32", "length": 4097, "sidecar": digest}),
        {digest: contents["uppercase-digest"]},
    )
    inside = proved("sparse", BIG)[0]["evidence"]["rows"]["sidecar"]
    for case, path in {
        "path-traversal": "../x",
        "path-to-the-valid-folder": f"../valid/{inside}",
        "path-absolute": "/dev/zero",
        "path-of-64-characters": "../valid/../".ljust(64, "0"),
        "path-with-suffix": f"{inside}.bin",
        "path-empty": "",
        "path-null": None,
        "path-number": 0,
        "path-newline": f"{inside}\n",
        "path-63-digits": inside[:-1],
        "path-65-digits": inside + "0",
        "path-with-nul": inside[:63] + "\0",
        "path-list": [inside],
        "path-unicode-digits": inside[:63] + "\u0660",
    }.items():
        add(f"sidecar-{case}", changed(big, "evidence", "rows", {"dtype": "uint32", "length": 4097, "sidecar": path}))
    short, files = sidecar(rows)
    add("sidecar-for-a-short-array", changed(sparse, "evidence", "rows", short), files)
    add("sidecar-missing-where-inline-is-too-long", changed(big, "evidence", "rows", list(range(4097))))
    add("sidecar-for-z", changed(kernel, "evidence", "z", short))
    return out


def build(folder: Path) -> int:
    """Write the three folders anew; returns the number of certificates."""
    expected = {"valid": 0, "invalid": 1, "malformed": 2}
    count = 0
    for (name, code), table in zip(expected.items(), (valid, invalid, malformed), strict=True):
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for case, content in table().items():
            raw, files = (content, {}) if isinstance(content, bytes) else (encoded(content[0]), content[1])
            for digest, data in files.items():
                (place / f"{digest}.bin").write_bytes(data)
            found = judge(raw, place)
            if found != code:
                raise AssertionError(f"{name}/{case} is judged {found}")
            (place / f"{case}.json").write_bytes(raw)
            count += 1
    return count


def encoded(value) -> bytes:
    """Canonical apart from what has no canonical form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


if __name__ == "__main__":
    assert array("I").itemsize == 4
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS
    print(build(target), "certificates in", target)
