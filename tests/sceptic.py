"""A second judge of certificates, as a sceptic would write it from docs/certificate-format.md alone.

    python tests/sceptic.py FILE...

It shares no code with the checker nor with the prover and imports nothing of utfproof: hosts are dense or column-wise exact
matrices from their definitions, ranks are FLINT's, polynomials are expanded, and everything is done the slow way. Prints a
line for each file; the exit status is 0 if all are valid, else 1 if one is invalid, else 2 if one is malformed, else 3 if one
is too large to be judged here. Weights are looked for beside the certificate only.
"""

import hashlib
import json
import random
import struct
import sys
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import gcd, isqrt
from pathlib import Path
from types import SimpleNamespace

import naive
import numpy as np
import rfc8785

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


def dense(matrix, m, columns):
    out = np.zeros((m, columns), dtype=object)
    for j, rows in matrix.items():
        for i in rows:
            out[i, j] += 1
    return out


def dense_index_host(name, shape, m):
    """The same host with dense matrices, for naive.r_all."""
    H, L, d, _, d_out = shape
    least, Q, K, V, U = index_host(name, *shape)
    assert m >= least

    def maps(layer, h):
        return dense(Q(layer + 1, h), m, d), dense(K(layer + 1, h), m, d), [dense(V(layer + 1, h), m, m)]

    return SimpleNamespace(shape=SimpleNamespace(heads=H, layers=L), maps=maps, U=dense(U, m, d_out))


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
def random_integers(*arguments):
    """(integer R_all of section 4.7, the entries' common unit)."""
    host, unit = random_host(*arguments)
    return naive.r_all(host), unit


@lru_cache(maxsize=500)
def random_host(tied, dtype, law, seed, H, L, d, d_in, d_out, m):
    """(the host in the integers of section 4.7, the entries' common unit)."""
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
    return host, unit if dtype == "float64" else power


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
    return residue_rank(p, random_integers(*arguments)[0])


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


def whole(digits):
    """Python converts no more than 4300 digits at once."""
    return int(digits) if len(digits) <= 4000 else whole(digits[:-4000]) * 10**4000 + int(digits[-4000:])


def number(value):
    if type(value) is str:
        demand(value.isascii() and value.removeprefix("-").isdigit())
        digits = value.removeprefix("-")
        if len(digits) > 100_000:
            raise TooLarge
        size = whole(digits)
        demand(digits[0] != "0" and size > SAFE)
        return -size if value[0] == "-" else size
    demand(type(value) is int and abs(value) <= SAFE)
    return value


def canonical(value):
    """RFC 8785; integers up to 2^53 inclusive as numbers."""
    if type(value) is dict:
        return b"{%s}" % b",".join(rfc8785.dumps(k) + b":" + canonical(value[k]) for k in sorted(value))
    if type(value) is list:
        return b"[%s]" % b",".join(map(canonical, value))
    return b"%d" % value if type(value) is int and abs(value) <= SAFE else rfc8785.dumps(value)


def pairs(items):
    """An object's members; none may stand twice."""
    demand(len({key for key, _ in items}) == len(items))
    return dict(items)


def parsed(raw):
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs)
        demand(canonical(value) == raw)
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        raise IllFormed from None
    return value


def judge(raw: bytes, folder: Path) -> int | None:
    """0, 1 or 2 as section 14 has it for a certificate with these bytes in this folder; None where it would take
    too long to say (never for the shapes of the corpus), or is beyond the limits of section 14."""
    if len(raw) > 64 * 2**20:
        return None
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
    demand(kind in KINDS)
    if kind == "realization":
        return _realization(shape, claim, evidence)()
    if type(shape) is dict and "residual" in shape:
        return _streaming(kind, shape, claim, evidence, folder)
    demand(kind != "rank-triangular")
    if kind == "enclosure":
        return _enclosure(shape, claim, evidence, folder)[0]()
    demand(type(claim) is dict and claim.get("verdict") in ("universal", "not universal"))
    if kind in ("identity", "lower-bound"):
        settle = _identity if kind == "identity" else _lower_bound
        holds = settle(shape, claim, evidence)
        return claim["verdict"] == ("universal" if kind == "identity" else "not universal") and holds()
    universal = claim["verdict"] == "universal"
    host, notion, targets, *rank = fields(
        claim, "host", "notion", "targets", *(["rank"] if universal else []), "verdict"
    )[:-1]
    linear, kernel = kind == "linear-test", kind == "tied-kernel"
    demand(notion == ("attention-matching" if linear else "matching"))
    demand(targets == ("all tied" if kernel else "all untied") or (targets == "all tied" and kind == "rank-deficient"))
    rank = [number(r) for r in rank]
    dims, m = dimensions(shape)
    demand(not linear or dims[3] == dims[4] <= dims[2])
    demand(targets == "all untied" or dims[3] == dims[4])
    name, drawn = host_of(host, dims, m, folder)
    demand(kind != "rank-permutation" or type(drawn) is not Stored)
    demand(kind not in ("rank-modular", "linear-test", "tied-kernel") or drawn)
    demand(kind != "rank-permutation" or name in PERMUTATIONS)
    M = dimension(*dims) if dims[0] > 1 else 2 * dims[1] * dims[2] + dims[4]
    if linear:
        M -= (dims[2] - dims[3]) * (dims[1] if dims[0] == 1 else sum(dims[0] ** t for t in range(1, dims[1] + 1)))
    settle = {
        "rank-permutation": _permutation, "rank-modular": _modular, "rank-deficient": _deficient, "linear-test": _linear,
        "tied-kernel": _tied_kernel,
    }[kind]  # fmt: skip
    if targets == "all tied" and not kernel:
        settle = _tied_target
    holds = settle(name, dims, m, M, drawn, evidence, folder)
    if kernel:
        M -= len(evidence["basis"])
    if universal == (kind == "rank-deficient") or (rank and rank[0] != M):
        return False
    if type(drawn) is Stored and not drawn.sound():
        return False
    return holds()


KINDS = (
    "rank-permutation", "rank-modular", "rank-deficient", "linear-test", "identity", "lower-bound", "tied-kernel",
    "enclosure", "rank-triangular", "realization",
)  # fmt: skip


def host_of(host, dims, m, folder, stream=False):
    """(name of the construction, what a dense host is drawn or read from) of section 4."""
    name = host.get("construction") if type(host) is dict else None
    if type(host) is dict and "weights" in host:
        system, digest = fields(host, "system", "weights")
        demand(system in ("universal", "looped-universal"))
        demand(type(digest) is str and len(digest) == 64 and set(digest) <= set("0123456789abcdef"))
        return None, Stored(weights_beside(folder, digest, stream), system == "looped-universal", dims, m)
    demand(name in INDEX or name in RANDOM)
    if name in RANDOM:
        _, dtype, law, seed = fields(host, "construction", "dtype", "law", "seed")
        demand(dtype in DTYPES and law in LAWS and 0 <= number(seed) < 2**64)
        return name, (name == "random-tied", dtype, law, number(seed), *dims, m)
    fields(host, "construction")
    demand(m >= least_m(name, *dims))
    return name, ()


def integers_of_host(drawn):
    """(integer R_all, the factor of each column that makes it true) of a dense host."""
    if type(drawn) is Stored:
        return drawn.integers()
    integers, unit = random_integers(*drawn)
    return integers, [unit**t for t in _depths(*drawn[4:9])]


def residue_rank(p, matrix):
    from flint import nmod_mat

    return int(nmod_mat(*matrix.shape, [int(x) % p for x in matrix.reshape(-1)], p).rank())


def dimensions(shape):
    """(H, L, d, d_in, d_out) and m of a certificate's shape."""
    *dims, m = [number(x) for x in fields(shape, *FIELDS)]
    demand(min(*dims, m) >= 1)
    if dims[0] > 1 and dims[1] * (dims[0] - 1).bit_length() > 60:
        raise TooLarge
    return dims, m


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
    given = None if rows == "standard" else integers_of(rows, M, folder)

    def holds():
        if given is None and (M > 20_000 or dims[1] > 1000):
            raise TooLarge
        least, columns = index_columns(name, *dims)
        assert least <= m
        rows = found_rows(columns) if given is None else given
        return len(set(rows)) == M and all(column == {r: 1} for r, column in zip(rows, columns, strict=True))

    return holds


def found_rows(columns):
    """The coordinate of each column that is a unit vector; None for another one."""
    return [next(iter(column)) if list(column.values()) == [1] else None for column in columns]


def _modular(name, dims, m, M, drawn, evidence, folder, integers=integers_of_host):
    method = evidence.get("method") if type(evidence) is dict else None
    demand(method in ("recompute", "witness"))
    p, *arrays = fields(evidence, "prime", *(["rows", "inverse"] if method == "witness" else []), "method")[:-1]
    p, prime = prime_of(p)
    if method == "recompute":
        return lambda: prime and m >= M and residue_rank(p, integers(drawn)[0]) == M
    rows = integers_of(arrays[0], M, folder)
    demand(all(a < b for a, b in pairwise(rows)))
    inverse = integers_of(arrays[1], M * M, folder, 2 if p < 2**16 else 4)

    def holds():
        if not prime or rows[0] < 0 or rows[-1] >= m or min(inverse) < 0 or max(inverse) >= p:
            return False
        from flint import nmod_mat

        N = integers(drawn)[0][rows]
        product = nmod_mat(M, M, inverse, p) * nmod_mat(M, M, [int(x) % p for x in N.reshape(-1)], p)
        return all(int(product[a, b]) == (a == b) for a in range(M) for b in range(M))

    return holds


def _deficient(name, dims, m, M, drawn, evidence, folder):
    method = evidence.get("method") if type(evidence) is dict else None
    if method == "dimension":
        fields(evidence, "method")
        return lambda: m < M
    column, distance, z = kernel_vector(evidence, M)

    def holds():
        if column not in dict(z) or distance != Fraction(dict(z)[column] ** 2, sum(v * v for _, v in z)):
            return False
        return in_kernel(z, name, dims, drawn)

    return holds


def kernel_vector(evidence, M):
    """(column, squared distance, z) of section 7."""
    method, column, distance, z = fields(evidence, "method", "column", "distance_squared", "z")
    demand(method == "kernel-vector" and type(distance) is list and len(distance) == 2)
    column, n, q = number(column), *map(number, distance)
    demand(q > 0 and gcd(n, q) == 1 and 0 <= column < M)
    return column, Fraction(n, q), sparse_vector(z, M)


def sparse_vector(z, length):
    """[(position, value)] of section 7."""
    demand(type(z) is list and 1 <= len(z) <= 4096)
    demand(all(type(pair) is list and len(pair) == 2 for pair in z))
    z = [(number(i), number(v)) for i, v in z]
    positions = [i for i, _ in z]
    demand(all(v for _, v in z) and positions == sorted(set(positions)))
    demand(positions[0] >= 0 and positions[-1] < length)
    return z


def in_kernel(z, name, dims, drawn):
    """Whether R_all z = 0."""
    if name in INDEX:
        return cancel(z, lambda i: index_column(i, name, *dims))
    return cancel_densely(z, *integers_of_host(drawn))


def cancel(z, column):
    """Whether these multiples of columns, each {row: entry}, add up to nothing."""
    total = {}
    for i, v in z:
        for row, x in column(i).items():
            total[row] = total.get(row, 0) + x * v
    return not any(total.values())


def cancel_densely(z, integers, factors):
    weighted = [(i, v * factors[i]) for i, v in z]
    return not any(sum(row[i] * v for i, v in weighted) for row in integers)


def _tied_target(name, dims, m, M, drawn, evidence, folder):
    row, target, z = tied_target(evidence, dims, M)
    rows = target_rows(target, True, dims, plain_places)
    return lambda: sum(rows()[row][i] * v for i, v in z) != 0 and in_kernel(z, name, dims, drawn)


def tied_target(evidence, dims, M):
    """(row, target, z) of section 7."""
    method, row, target, z = fields(evidence, "method", "row", "target", "z")
    demand(method == "tied-target" and 0 <= number(row) < dims[3])
    return row, target, sparse_vector(z, M)


def plain_places(H, L, d, d_in, d_out):
    """As stream_places, without a stream."""
    if dimension(H, L, d, d_in, d_out) > 4000:
        raise TooLarge
    words = [(kind, w[:-1], w[-1], d) for kind in ("W_Q", "W_K") for w in by_length(H, 1, L)]
    words += [("U", w, None, d_out) for w in naive.words(H, L)]
    return [(kind, tuple(h + 1 for h in w), reader, j) for kind, w, reader, width in words for j in range(width)]


def _tied_kernel(name, dims, m, M, drawn, evidence, folder, places=plain_places, integers=integers_of_host):
    _, L, d, d_in, _ = dims
    basis, p = fields(evidence, "basis", "prime")
    p, prime = prime_of(p)
    demand(type(basis) is list and basis)
    basis = [sparse_vector(z, M) for z in basis]

    def holds():
        rank = M - len(basis)
        if not prime or m < rank:
            return False
        if M > 4000 or len(basis) * M > 10**6 or sum(map(len, basis)) * d_in * (d * d_in) ** L > 3 * 10**5:
            raise TooLarge
        lines = np.zeros((len(basis), M), dtype=object)
        for line, z in enumerate(basis):
            for i, v in z:
                lines[line, i] = v
        columns = places(*dims)
        if residue_rank(p, lines) < len(basis) or not all(vanishes(z, columns, d, d_in) for z in basis):
            return False
        matrix, factors = integers(drawn)
        return all(cancel_densely(z, matrix, factors) for z in basis) and residue_rank(p, matrix) >= rank

    return holds


def vanishes(z, places, d, d_in):
    """Whether W_all z is the zero polynomial in the entries of a tied target: every coefficient of it is computed.
    places: of each column, as stream_places has them."""
    for row in range(d_in):
        coefficients = {}
        for position, v in z:
            kind, w, reader, j = places[position]
            paths = [((), row)]  # (the entries along it, where it stands)
            for letter in filter(None, w):
                paths = [
                    ((*entries, ("V", letter, at, a), ("O", letter, a, b)), b)
                    for entries, at in paths
                    for a in range(d)
                    for b in range(d_in)
                ]
            for entries, at in paths:
                if kind != "U":
                    entries = (*entries, (kind, reader, at, j))
                elif at != j:
                    continue
                monomial = tuple(sorted(entries))
                coefficients[monomial] = coefficients.get(monomial, 0) + v
        if any(coefficients.values()):
            return False
    return True


# Weights from a file (section 4.8)

BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I8": 1,
    "I16": 2,
    "I32": 4,
    "I64": 8,
    "U8": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
}
POWERS = {"F64": 1074, "F32": 149, "F16": 24, "BF16": 133}


def said_of_a_stream(raw):
    """What the metadata of a safetensors file say of a residual stream, None for nothing."""
    metadata = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")]).get("__metadata__")
    return metadata.get("residual") if type(metadata) is dict else None


def tensors_of(raw):
    """{name: (type, shape, bytes)} of a safetensors file with known types, else None."""

    def counts(value):
        return type(value) is list and all(type(n) is int and n >= 0 for n in value)

    length = int.from_bytes(raw[:8], "little")
    if length > len(raw) - 8:
        return None
    try:
        header = json.loads(raw[8 : 8 + length].decode("utf-8"), object_pairs_hook=pairs)
    except (ValueError, RecursionError, IllFormed):
        return None
    if type(header) is not dict:
        return None
    data, found, places = raw[8 + length :], {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if type(entry) is not dict or sorted(entry) != ["data_offsets", "dtype", "shape"]:
            return None
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if type(kind) is not str or kind not in BYTES or not counts(shape) or len(shape) > 8:
            return None
        if not counts(offsets) or len(offsets) != 2:
            return None
        size = BYTES[kind]
        for n in shape:
            size *= n
        if offsets[1] - offsets[0] != size:
            return None
        places.append(offsets)
        found[name] = (kind, tuple(shape), data[offsets[0] : offsets[1]])
    end = 0
    for first, last in sorted(places):
        if first != end:
            return None
        end = last
    return found if end == len(data) else None


def digest_of(tensors, stream=False):
    content = b""
    for name in sorted(tensors):
        kind, shape, data = tensors[name]
        content += f"{name} {kind} {','.join(str(n) for n in shape)}\n".encode() + data
    return hashlib.sha256(content + b"residual true\n" * stream).hexdigest()


def weights_beside(folder, digest, stream):
    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            raw = path.read_bytes()
        except OSError:
            continue
        tensors = tensors_of(raw)
        if tensors is None or not set(tensors) <= {"R_Q", "R_K", "R_V", "R_Vv", "R_Vo", "U"}:
            continue
        said = said_of_a_stream(raw)
        if said is not None and said != ("true" if stream else "false"):
            continue
        if digest in [digest_of(tensors), *([digest_of(tensors, True)] if stream else [])]:
            values = {"R_V"} if "R_V" in tensors else {"R_Vv", "R_Vo"}
            demand(set(tensors) == {"R_Q", "R_K", "U"} | values)
            return tensors
    raise IllFormed


def entries_of(kind, data):
    """Integers, or fractions; None for what is not finite."""
    count = len(data) // BYTES[kind]
    if kind[0] in "IU":
        size = BYTES[kind]
        return [int.from_bytes(data[i * size : i * size + size], "little", signed=kind[0] == "I") for i in range(count)]
    if kind == "BF16":
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        kind = "F32"
    floats = struct.unpack(f"<{count}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[kind] }", data)
    return [Fraction(x) if x - x == 0 else None for x in floats]


class Stored:
    """A host of a file, whose shapes and entries may yet be wrong."""

    def __init__(self, tensors, tied, dims, m):
        self.tensors, self.tied, self.dims, self.m = tensors, tied, dims, m

    def __bool__(self):
        return True

    def sound(self):
        H, L, d, _, d_out = self.dims
        lead, m = ((H,) if self.tied else (L, H)), self.m
        expected = {"R_Q": (*lead, m, d), "R_K": (*lead, m, d), "U": (m, d_out)}
        if "R_V" in self.tensors:
            expected["R_V"] = (*lead, m, m)
        else:
            shape = self.tensors["R_Vv"][1]
            inner = shape[-1] if shape else 0
            expected |= {"R_Vv": (*lead, m, inner), "R_Vo": (*lead, inner, m)}
        if any(self.tensors[name][1] != shape for name, shape in expected.items()):
            return False
        return all(x is not None for kind, _, data in self.tensors.values() for x in entries_of(kind, data))

    def host(self):
        """(the host in integers, the power of two that makes entries of R_Q, R_K, R_V and U integers)."""
        H, L, _, _, _ = self.dims
        if dimension(*self.dims) * self.m > 60_000 or L > 12:
            raise TooLarge
        held = {}
        for name, (kind, shape, data) in self.tensors.items():
            numbers = [x * 2 ** POWERS.get(kind, 0) for x in entries_of(kind, data)]
            assert all(x == int(x) for x in numbers)
            flat = np.empty(len(numbers), dtype=object)
            flat[:] = [int(x) for x in numbers]
            held[name] = flat.reshape(shape)
        if "R_Vv" in held:
            first, second = held["R_Vv"], held["R_Vo"]
            product = np.zeros((*first.shape[:-1], self.m), dtype=object)
            for place in np.ndindex(first.shape[:-2]):
                if first.shape[-1]:
                    product[place] = first[place].dot(second[place])
            held["R_V"] = product
        host = SimpleNamespace(
            shape=SimpleNamespace(heads=H, layers=L),
            maps=lambda layer, h: [
                [part] if name == "R_V" else part
                for name in ("R_Q", "R_K", "R_V")
                for part in [held[name][h] if self.tied else held[name][layer, h]]
            ],
            U=held["U"],
        )
        power = {name: POWERS.get(self.tensors[name][0], 0) for name in self.tensors}
        if "R_V" not in power:
            power["R_V"] = power["R_Vv"] + power["R_Vo"]
        return host, power

    def integers(self):
        H, L, d, _, d_out = self.dims
        host, power = self.host()
        value = power["R_V"]
        factors = []
        for name in ("R_Q", "R_K"):
            for t in range(1, L + 1):
                factors += [Fraction(1, 2 ** (power[name] + (t - 1) * value))] * (d * H**t)
        factors += [Fraction(1, 2 ** (power["U"] + L * value))] * (d_out * H**L)
        return naive.r_all(host), factors


def prime_of(value):
    """(p, whether it is an odd prime)."""
    p = number(value)
    demand(2 <= p < 2**31)
    return p, p % 2 == 1 and all(p % k for k in range(3, isqrt(p) + 1, 2))


def host_tested(drawn, dims, m, gauges):
    """The test matrix of a host."""
    return tested(integers_of_host(drawn)[0], dims, gauges)


def _linear(name, dims, m, M, drawn, evidence, folder, test=host_tested):
    H, L, d, d_in, _ = dims
    gauged = type(evidence) is dict and "gauges" in evidence
    method, p = fields(evidence, "method", "prime", *(["gauges"] if gauged else []))[:2]
    demand(method == "recompute")
    p, prime = prime_of(p)
    tied = drawn.tied if type(drawn) is Stored else drawn[0]
    gauges = grid_of(evidence["gauges"], 1 if tied else L, H, d_in, d) if gauged else None
    return lambda: prime and m >= M and residue_rank(p, test(drawn, dims, m, gauges)) == M


def grid_of(value, layers, heads, rows, columns):
    """Integer matrices by layer and head."""
    demand(type(value) is list and len(value) == layers)
    held = []
    for layer in value:
        demand(type(layer) is list and len(layer) == heads)
        for matrix in layer:
            demand(type(matrix) is list and len(matrix) == rows)
            demand(all(type(row) is list and len(row) == columns for row in matrix))
        held.append([np.array([[number(x) for x in row] for row in matrix], dtype=object) for matrix in layer])
    return held


def tested(matrix, dims, gauges):
    """The test matrix of section 8."""
    H, L, d, d_in, _ = dims
    first = np.eye(d_in, d, dtype=object)
    blocks, words = [], by_length(H, 1, L)
    for place, w in enumerate(words):
        gauge = first if gauges is None else gauges[0 if len(gauges) == 1 else len(w) - 1][w[-1]]
        blocks.append(matrix[:, place * d : place * d + d].dot(gauge.T))
    return np.concatenate([*blocks, matrix[:, len(words) * d :]], axis=1)


# An identity is evaluated at a random target modulo a large prime: the words are multiplied out, the host is
# applied to them, and the demanded matrices must come out.

LARGE = 2**61 - 1
INVERTIBLE = "untied with invertible M^(l,0)"
RULES = {
    "shared-key": ("attention-matching", ("all untied",), None),
    "shared-query": ("attention-matching", ("all untied", INVERTIBLE), None),
    "commuting-trie": ("matching", ("all tied",), None),
    "register": ("shared attention", ("all untied",), "E"),
    "two-sided": ("shared attention", ("all untied",), "E and U"),
    "counting": ("shared attention", ("all tied",), "E"),
}


INVERTIBLE_MIDDLE = "untied with invertible M^(k+1,h)"
MORE_RULES = {
    "middle": ("shared attention", ("all untied", INVERTIBLE_MIDDLE), "E and U"),
    "polynomial": ("shared attention", ("all untied",), "E and U"),
    "two-sided-counting": ("shared attention", ("all tied",), "E and U"),
}
FUNCTIONAL = ("functional", ("all untied",), None)  # shared-query at H = d_in = 1


def multisets(L, H):
    """C(L+H-1, H-1), by a product of min(L, H-1) factors."""
    small, large = sorted((L, H - 1))
    out = 1
    for i in range(1, small + 1):
        out = out * (large + i) // i
    return out


def tuples(length, total):
    """Tuples of integers >= 0 with at most this sum, in lexicographic order."""
    if length == 0:
        return [()]
    return [(c, *rest) for c in range(total + 1) for rest in tuples(length - 1, total - c)]


def rounded_up(L):
    return (L + 1) // 2


def pairs_of(edges, H):
    """The pairs (i, j) of the middle layer's heads."""
    demand(type(edges) is list and len(edges) == H)
    demand(all(type(edge) is list and len(edge) == 2 for edge in edges))
    found = [(number(i), number(j)) for i, j in edges]
    demand(all(0 <= x <= H for edge in found for x in edge))
    return found


def largest_part(edges):
    return 1 + max(x for edge in edges for x in edge)


def factor_degrees(H):
    return H // 2, H - 1 - H // 2


def identity_least(name, H, L, d, b, edges=None):
    if name == "middle":
        demand(L % 2 == 1)
        return b * largest_part(edges) * H ** (L // 2)
    if name == "polynomial":
        demand(b == 1 and L % 2 == 1 and H % 4 != 3)
        return (H // 2 + 1) * H ** (L // 2)
    if name == "two-sided-counting":
        demand(b == 1 and L >= 2)
        return multisets(rounded_up(L), H)
    if name in ("shared-key", "shared-query"):
        return least_m(name, H, L, d, b, b)
    if name == "register":
        return b * H**L
    if name == "two-sided":
        demand(L % 2 == 0)
        return b * H ** (L // 2)
    demand(b == 1)
    if name == "counting":
        return multisets(L, H)
    return 2 * d * H * multisets(L - 1, H + 1) + multisets(L, H)


def identity_host(name, H, L, d, b, edges=None):
    """(Q, K, V, U) as index_host has them; None for what the construction lacks."""
    if name in ("middle", "polynomial"):
        k = L // 2
        if name == "polynomial":
            first, second = factor_degrees(H)
            ones = [[(i, h - i) for i in range(first + 1) if 0 <= h - i <= second] for h in range(H)]
            q = first + 1
        else:
            ones, q = [[edge] for edge in edges], largest_part(edges)
        start, _ = layout(naive.words(H, k), lambda w: q * b)
        origin = start[(0,) * k]

        def value(layer, h):
            if layer == k + 1:
                return identities(*((origin + i * b, origin + j * b, b) for i, j in ones[h]))
            ends = naive.words(H, k - 1)
            if layer <= k:
                return identities(*((start[h, *s], start[*s, 0], q * b) for s in ends))
            return identities(*((start[0, *s], start[*s, h], q * b) for s in ends))

        return None, None, value, None
    if name == "two-sided-counting":
        k = rounded_up(L)
        place = {c: i for i, c in enumerate(tuples(H - 1, k))}
        below = [c for c in place if sum(c) < k]

        def raised(c, h):
            return tuple(x + (i == h - 1) for i, x in enumerate(c))

        def value(layer, h):
            if layer > k + 1 or layer <= k:
                if h == 0:
                    return identities(*((a, a, 1) for a in place.values()))
                ends = [(place[raised(c, h)], place[c]) for c in below]
            else:
                zero = (0,) * (H - 1)
                ends = [(place[raised(zero, h)], place[zero])] if h else [(place[zero], place[zero])]
            if layer > k:
                ends = [(column, row) for row, column in ends]
            return identities(*((row, column, 1) for row, column in ends))

        return None, None, value, None
    if name in ("shared-key", "shared-query"):
        return index_host(name, H, L, d, b, b)[1:]
    if name == "register":
        start, _ = layout(naive.words(H, L), lambda w: b)
        return (
            None,
            None,
            lambda layer, h: identities(*((start[h, *w[:-1]], a, b) for w, a in start.items())),
            identities((0, 0, b)),
        )
    if name == "two-sided":
        k = L // 2
        start, _ = layout(naive.words(H, k), lambda w: b)

        def value(layer, h):
            ends = naive.words(H, k - 1)
            if layer <= k:
                return identities(*((start[h, *s], start[*s, 0], b) for s in ends))
            return identities(*((start[0, *s], start[*s, h], b) for s in ends))

        return None, None, value, None
    counts = tuples(H - 1, L)
    first = 0
    trie = {}
    if name == "commuting-trie":
        trie, first = layout([(c, g) for c in tuples(H, L - 1) for g in range(H)], lambda block: 2 * d)
    tail = {c: first + i for i, c in enumerate(counts)}

    def up(c, place):
        return tuple(x + (i == place) for i, x in enumerate(c))

    def value(layer, h):
        runs = [(trie[up(c, h), g], a, 2 * d) for (c, g), a in trie.items() if sum(c) < L - 1]
        for c, a in tail.items():
            if h == 0:
                runs.append((a, a, 1))
            elif sum(c) < L:
                runs.append((tail[up(c, h - 1)], a, 1))
        return identities(*runs)

    U = identities((tail[(0,) * (H - 1)], 0, 1))
    if name == "counting":
        return None, None, value, U
    zero = (0,) * H
    return (
        lambda layer, h: identities((trie[zero, h], 0, d)),
        lambda layer, h: identities((trie[zero, h] + d, 0, d)),
        value,
        U,
    )


def letter_of(text, name, tied, H, L):
    """(matrix, layer, head, suffix)."""
    demand(type(text) is str and text.isascii() and text.count(".") == 1)
    demand(text[:1] in ("M", "A", "Q", "K", "P", "U"))
    layer, head = text[1:].split(".")
    suffix = head.lstrip("0123456789")
    head = head[: len(head) - len(suffix)]
    demand(max(len(head), len(layer)) <= 4000)  # as many digits as a layer can have here
    demand(suffix in ("", "T", "I", "IT") and head.isdigit() and str(int(head)) == head)
    if text[0] in "PU":
        demand(name == "polynomial" and layer == "" and suffix == "" and int(head) <= factor_degrees(H)[text[0] == "U"])
        return text[0], 0, int(head), suffix
    demand(int(head) < H)
    if tied:
        demand(layer == "")
    else:
        demand(layer.isdigit() and str(int(layer)) == layer and 1 <= int(layer) <= L)
    if text[0] in "QK":
        demand(suffix == "" and name == "commuting-trie")
    if "I" in suffix:
        middle = name == "middle" and int(layer) == L // 2 + 1
        demand(text[0] == "M" and (middle or (name == "shared-query" and head == "0")))
    return text[0], 0 if tied else int(layer), int(head), suffix


def blocks_of(value, name, tied, H, L, d, b, m, which="E"):
    """[(start, width, letters)]."""
    demand(type(value) is list)
    found, end = [], 0
    for block in value:
        demand(type(block) is list and len(block) == 2 and type(block[1]) is list)
        start = number(block[0])
        word = [letter_of(text, name, tied, H, L) for text in block[1]]
        demand(all(letter[0] in "MAU" for letter in word[:-1]))
        demand(all(letter[0] != "U" for letter in word[1:]))
        demand(all(letter[0] != ("U" if which == "E" else "P") for letter in word))
        width = d if word and word[-1][0] in "QK" else b
        demand(start >= end)
        end = start + width
        found.append((start, width, word))
    demand(end <= m)
    return found


def drawing(seed):
    """A function that draws matrices modulo LARGE."""
    from flint import nmod_mat

    source = random.Random(seed)
    return lambda rows, columns: nmod_mat(
        rows, columns, [source.randrange(LARGE) for _ in range(rows * columns)], LARGE
    )


def random_target(tied, read, H, L, d, b, seed):
    """{(name, layer, head): matrix modulo LARGE}, with Q and K if they are read; the rank of M is at most d."""
    draw, target = drawing(seed), {}
    inner = min(d, b)  # M and A are any matrices of at most this rank
    for layer in [0] if tied else range(1, L + 1):
        for h in range(H):
            target["M", layer, h] = draw(b, inner) * draw(inner, b)
            if read:
                target["Q", layer, h], target["K", layer, h] = draw(b, d), draw(b, d)
                target["A", layer, h] = target["Q", layer, h] * target["K", layer, h].transpose()
            else:
                target["A", layer, h] = draw(b, inner) * draw(inner, b)
    return target


def stated(claim):
    """(host, notion, targets, what is free) of a claim that may leave the last out."""
    free = ["free"] * ("free" in claim)
    return *fields(claim, "host", "notion", "targets", "verdict", *free)[:3], claim.get("free")


def _identity(shape, claim, evidence):
    host, notion, targets, free = stated(claim)
    if type(host) is dict and host.get("construction") in RATIONAL:
        return _rational(shape, claim, evidence)
    (H, L, d, b, d_out), m = dimensions(shape)
    edges = None
    if type(host) is dict and host.get("construction") == "middle":
        name, edges = fields(host, "construction", "edges")
        edges = pairs_of(edges, H)
    else:
        (name,) = fields(host, "construction")
    demand(type(name) is str and name in (RULES | MORE_RULES))
    rule = (RULES | MORE_RULES)[name]
    if name == "shared-query" and notion == "functional" and H == b == 1:
        rule = FUNCTIONAL
    demand(type(notion) is str and notion == rule[0] and targets in rule[1] and free == rule[2])
    demand(b == d_out and m >= identity_least(name, H, L, d, b, edges))
    demand(targets != INVERTIBLE_MIDDLE or d >= b)
    tied = targets == "all tied"
    values = fields(evidence, "E", *(["U"] if free == "E and U" else []))
    standard = values[0] == "standard" and name in ("register", "shared-key", "shared-query")
    if standard:
        values[0] = []  # what it stands for is written out below, if that is not too much
    e, *u = [blocks_of(value, name, tied, H, L, d, b, m, "EU"[at]) for at, value in enumerate(values)]
    inverse = any("I" in suffix for blocks in (e, *u) for _, _, word in blocks for *_, suffix in word)
    inverse = inverse or (standard and name == "shared-query")

    def holds():
        if notion != "functional" and inverse != (targets in (INVERTIBLE, INVERTIBLE_MIDDLE)):
            return False
        if H**L > 2000 or L > 12 or b > 60 or identity_least(name, H, L, d, b, edges) > 4000:
            raise TooLarge
        blocks = blocks_of(standard_embedding(name, H, L, b), name, tied, H, L, d, b, m) if standard else e
        return evaluated(name, tied, H, L, d, b, blocks, u[0] if u else None, edges)

    return holds


def standard_embedding(name, H, L, b):
    """The array that section 9.1 tabulates."""

    def product(w):
        return [f"M{layer}.{h}" for layer, h in enumerate(w, 1)]

    words = {
        "register": [product(w) for w in naive.words(H, L)],
        "shared-key": [
            *([*product(w[:-1]), f"A{len(w)}.{w[-1]}"] for w in by_length(H, 1, L)),
            *(product(w) for w in by_length(H, 0, L)),
        ],
        "shared-query": [
            *(
                [*product(w[:-1]), f"A{len(w)}.{w[-1]}T", *(f"M{layer}.0IT" for layer in range(len(w), L + 1))]
                for w in by_length(H, 1, L)
            ),
            *(product(w) for w in naive.words(H, L)),
        ],
    }[name]
    return [[b * i, word] for i, word in enumerate(words)]


def evaluated(name, tied, H, L, d, b, e, u, edges=None):
    from flint import nmod_mat

    target = random_target(tied, name == "commuting-trie", H, L, d, b, 1)
    first, second = factor_degrees(H)
    source = random.Random(2)
    for i in range(first + 1):  # of the two polynomials
        target["P", 0, i] = nmod_mat(1, 1, [source.randrange(LARGE)], LARGE)
    for j in range(second + 1):
        target["U", 0, j] = nmod_mat(1, 1, [source.randrange(LARGE)], LARGE)
    one = nmod_mat(b, b, [int(i == j) for i in range(b) for j in range(b)], LARGE)

    def multiplied(letters):
        out = one
        for kind, layer, h, suffix in letters:
            matrix = target[kind, layer, h]
            if "I" in suffix:
                matrix = matrix.inv()
            out = out * (matrix.transpose() if "T" in suffix else matrix)
        return out

    held = {}  # coordinate -> column of E
    for start, width, word in e:
        product = multiplied(word)
        assert product.ncols() == width
        for j in range(width):
            held[start + j] = [int(product[i, j]) for i in range(b)]
    Q, K, V, U = identity_host(name, H, L, d, b, edges)
    if u is not None:
        U = {}
        for start, _, word in u:
            product = multiplied(word)
            for i in range(b):
                for j in range(b):
                    U.setdefault(j, {})[start + i] = int(product[i, j])
    values = {(layer, h): V(layer, h) for layer in range(1, L + 1) for h in range(H)}

    def read(word, reader, columns):
        """E R_w times a reader given as {column: rows of its ones} or {column: {row: entry}}."""
        out = nmod_mat(b, columns, LARGE)
        for j, rows in reader.items():
            column = routed(values, word, rows if type(rows) is dict else dict.fromkeys(rows, 1))
            for i in range(b):
                out[i, j] = sum(held[c][i] * x for c, x in column.items() if c in held) % LARGE
        return out

    def product_of(word):
        if name == "polynomial":  # the middle layer's weight is the coefficient of the product
            k = L // 2
            ways = [(i, word[k] - i) for i in range(first + 1) if 0 <= word[k] - i <= second]
            coefficient = sum(int(target["P", 0, i][0, 0]) * int(target["U", 0, j][0, 0]) for i, j in ways)
            others = [("M", at, h, "") for at, h in enumerate(word, 1) if at != k + 1]
            return nmod_mat(1, 1, [int(multiplied(others)[0, 0]) * coefficient % LARGE], LARGE)
        return multiplied([("M", 0 if tied else layer, h, "") for layer, h in enumerate(word, 1)])

    for layer in range(1, L + 1):
        for h in range(H if Q is not None else 0):
            words = naive.words(H, layer - 1)
            wide = d if name == "commuting-trie" else b  # the others' further columns are zero in queries and keys
            queries = [read(w, Q(layer, h), wide) for w in words]
            keys = [read(w, K(layer, h), wide) for w in words]
            products = [product_of(w) for w in words]
            if name == "commuting-trie":
                for got, kind in ((queries, "Q"), (keys, "K")):
                    if any(x != product * target[kind, 0, h] for x, product in zip(got, products, strict=True)):
                        return False
                continue
            for x, left in zip(queries, products, strict=True):
                for y, right in zip(keys, products, strict=True):
                    if x * y.transpose() != left * target["A", layer, h] * right.transpose():
                        return False
    return all(read(w, U, b) == product_of(w) for w in naive.words(H, L))


# --- identities of rational embeddings, at one target modulo a large prime ------------------------------------------

DRAWN = 10**5  # entries of a drawn target, or of a gauge: least m may not depend on d
RATIONAL = ("shared-query-groups", "symmetric-keys", "symmetric-keys-deep", "residual-key", "residual-query")


def rational_least(name, stream, H, L, d, b):
    """None where the host is not defined."""
    if name.startswith("residual") != stream:
        return None
    g, e = -(-b // d), min(d, H)
    leaves, before = H**L, sum(H**t for t in range(1, L))
    if name == "shared-query-groups":
        return b * leaves + d * (2 * (before + leaves) - H // g - H // min(g, H) * before) if d <= b else None
    if name == "residual-key":
        return 2 * b * (H + 1) ** L - b if d >= b else None
    if name == "residual-query":
        return b * (H + 1) ** L + d * (2 * H - H // g) * sum((H + 1) ** t for t in range(L)) if d <= b else None
    if b > 1 or e < 2 or (L != 2 if name == "symmetric-keys" else L < 3):
        return None
    if L == 2:
        return 2 * H * H + H - sum(range(e))
    table = sum(H - c for c in range(1, e))
    return max(leaves + H + before * (H - e + 1) + H ** (L - 2) * table, before * e + H ** (L - 2) * (e + H - 1))


def _rational(shape, claim, evidence):
    stream = type(shape) is dict and "residual" in shape
    host, notion, targets, _ = fields(claim, "host", "notion", "targets", "verdict")
    (name,) = fields(host, "construction")
    demand(name in RATIONAL and notion == "attention-matching" and fields(evidence, "E") == ["standard"])
    extent = "all" if name == "residual-key" else "generic"
    demand(targets in (f"{extent} untied", f"{extent} tied"))
    (H, L, d, b, d_out), m = dimensions(without_stream(shape) if stream else shape)
    least = rational_least(name, stream, H, L, d, b)
    demand(b == d_out and least is not None and m >= least)
    tied = targets.endswith(" tied")

    def holds():
        if (H + stream) ** L > 300 or m > 400 or b > 12 or L * H * b * d > DRAWN:
            raise TooLarge
        try:
            return solves(name, tied, stream, H, L, d, b, m)
        except ZeroDivisionError:
            return False

    return holds


def solves(name, tied, stream, H, L, d, b, m):
    """Whether the E of section 9.2 solves every equation at one random target modulo LARGE, by dense matrices."""
    from flint import nmod_mat

    drawn = drawing(5)
    once = [[(drawn(b, d), drawn(b, d), drawn(b, d), drawn(d, b)) for _ in range(H)] for _ in range(1 if tied else L)]
    W = once * L if tied else once
    M = [[v * o for _, _, v, o in row] for row in W]
    A = [[q * k.transpose() for q, k, _, _ in row] for row in W]
    one = nmod_mat(b, b, [int(i == j) for i in range(b) for j in range(b)], LARGE)

    def along(word, layer=0):
        out = one
        for t, a in enumerate(word, layer):
            if not stream:
                out = out * M[t][a]
            elif a:
                out = out * M[t][a - 1]
        return out

    make = {"shared-query-groups": sq_groups, "residual-key": r_key, "residual-query": r_query}.get(name, symmetric)
    E, Q, K, V, U = make(H, L, d, b, W, M, A, along, one)

    def full(matrix, columns):
        out = nmod_mat(m, columns, LARGE)
        for i, j in matrix:
            out[i, j] = 1
        return out

    start = nmod_mat(b, m, LARGE)
    for at, column in E.items():
        for i in range(b):
            start[i, at] = column[i]
    letters = [None] * stream + list(range(H))
    moves = [[None if h is None else full(V(t, h), m) for h in letters] for t in range(L)]
    states = {(): start}
    for t in range(L):
        here = {w: x for w, x in states.items() if len(w) == t}
        for w, x in here.items():
            for a, move in enumerate(moves[t]):
                states[(*w, a)] = x if move is None else x * move
        for h in range(H):
            query, key = full(Q(t, h), d), full(K(t, h), d)
            for w, x in here.items():
                for v, y in here.items():
                    if (x * query) * (y * key).transpose() != along(w) * A[t][h] * along(v).transpose():
                        return False
    read = full(U, b)
    return all(x * read == along(w) for w, x in states.items() if len(w) == L)


class Places:
    """Blocks as they come: first coordinates, and columns of E."""

    def __init__(self):
        self.first, self.E, self.end = {}, {}, 0

    def put(self, name, matrix):
        self.first[name] = self.end
        for c in range(matrix.ncols()):
            self.E[self.end + c] = [int(matrix[i, c]) for i in range(matrix.nrows())]
        self.end += matrix.ncols()

    def onto(self, names, width):
        """Ones between these blocks and columns 0 ... width - 1."""
        return [(self.first[name] + c, c) for name in names for c in range(width)]

    def along(self, pairs, widths):
        return [(self.first[x] + c, self.first[y] + c) for x, y in pairs for c in range(widths(y))]


def beside(matrices):
    from flint import nmod_mat

    rows = [[int(x[i, j]) for x in matrices for j in range(x.ncols())] for i in range(matrices[0].nrows())]
    return nmod_mat(len(rows), len(rows[0]), [v for row in rows for v in row], LARGE)


def rows_of(matrix, begin, end):
    from flint import nmod_mat

    width = matrix.ncols()
    return nmod_mat(end - begin, width, [int(matrix[i, j]) for i in range(begin, end) for j in range(width)], LARGE)


def first_columns(matrix, d):
    return rows_of(matrix.transpose(), 0, d).transpose()


def gauge_table(W, layer, groups, u, d, front=None):
    """{head: G} for the heads in groups."""
    out = {}
    for group in groups:
        q = beside([W[layer][x][0] for x in group])
        wanted = u
        if front is not None:
            q, wanted = front * q, front * u
        stacked = q.transpose() * ((q * q.transpose()).inv() * wanted)
        for k, x in enumerate(group):
            part = rows_of(stacked, k * d, (k + 1) * d)
            out[x] = part if x == group[-1] else -part
    return out


def grouped(H, size):
    return [tuple(range(k * size, k * size + size)) for k in range(H // size)]


def sq_groups(H, L, d, b, W, M, A, along, one):
    g = -(-b // d)
    by_layer = [grouped(H, g if t == 0 else min(g, H)) for t in range(L)]
    last = [{x[-1] for x in groups} for groups in by_layer]
    queries, keys, u_first = [], [], None
    for t in range(L):
        Y = one
        for later in range(t, L):
            Y = Y * M[later][0]
        u = first_columns(Y, d)
        u_first = u if t == 0 else u_first
        front = None
        if by_layer[t] and len(by_layer[t][0]) * d < b:
            front = beside([W[t - 1][x][3].transpose() for x in range(H)]).transpose()
        G = gauge_table(W, t, by_layer[t], u, d, front)
        queries.append([W[t][h][0] * G[h] if h in G else W[t][h][0] for h in range(H)])
        keys.append([W[t][h][1] * G[h].inv().transpose() if h in G else W[t][h][1] for h in range(H)])
    at = Places()
    for t in range(1, L + 1):
        for w in naive.words(H, t):
            at.put(("K", w), along(w[:-1]) * keys[t - 1][w[-1]])
    for t in range(1, L + 1):
        for w in naive.words(H, t):
            if w[-1] in last[t - 1]:
                continue
            held = queries[t - 1][w[-1]]
            if t == 1 and w[-1] in last[-1]:
                held = W[0][w[-1]][0] - u_first
                for x in range(H):
                    held = held if x == w[-1] else held - W[0][x][0]
            at.put(("Q", w), along(w[:-1]) * held)
    for w in naive.words(H, L):
        at.put(("R", w), along(w))
    zero = ("R", (0,) * L)

    def query(t, h):
        group = next((x for x in by_layer[-1] if x[-1] == h), None)
        if group is None:
            return at.onto([("Q", (h,))], d)
        return at.onto([zero, *(("Q", (x,)) for x in group if ("Q", (x,)) in at.first)], d)

    def value(t, i):
        pairs = [((k, (i, *w)), (k, w)) for k, w in at.first if k != "R" and (k, (i, *w)) in at.first]
        pairs += [(("R", (i, *w[:-1])), ("R", w)) for k, w in at.first if k == "R"]
        return at.along(pairs, lambda y: b if y[0] == "R" else d)

    return at.E, query, lambda t, h: at.onto([("K", (h,))], d), value, at.onto([zero], b)


def stream_tree(H, L, b, width, readers, blocks, along):
    """Places of the blocks in front of the outputs, and R_V."""
    at = Places()
    for t in range(L):
        for w in naive.words(H + 1, t):
            for name, matrix in zip(readers, blocks(t), strict=True):
                at.put((name, w), along(w) * matrix)
    for w in naive.words(H + 1, L):
        at.put(("O", w), along(w))

    def value(t, i):
        pairs = []
        for name, w in at.first:
            if len(w) > t and w[t] == 0:
                moved = list(w)
                moved[t] = i + 1
                pairs.append(((name, tuple(moved)), (name, w)))
        return at.along(pairs, lambda y: b if y[0] == "O" else width)

    return at, value


def r_key(H, L, d, b, W, M, A, along, one):
    at, value = stream_tree(H, L, b, b, [("Q", h) for h in range(H)], lambda t: A[t], along)
    zero = ("O", (0,) * L)
    query = lambda t, h: at.onto([(("Q", h), (0,) * t)], b)  # noqa: E731
    return at.E, query, lambda t, h: at.onto([zero], b), value, at.onto([zero], b)


def r_query(H, L, d, b, W, M, A, along, one):
    groups = grouped(H, -(-b // d))
    last = {x[-1]: x for x in groups}
    own = [h for h in range(H) if h not in last]
    readers = [("K", h) for h in range(H)] + [("Q", h) for h in own]

    def blocks(t):
        G = gauge_table(W, t, groups, first_columns(one, d), d)
        keys = [W[t][h][1] * G[h].inv().transpose() if h in G else W[t][h][1] for h in range(H)]
        return keys + [W[t][h][0] * G[h] if h in G else W[t][h][0] for h in own]

    at, value = stream_tree(H, L, b, d, readers, blocks, along)
    zero = ("O", (0,) * L)

    def query(t, h):
        w = (0,) * t
        return at.onto([zero, *((("Q", x), w) for x in last[h][:-1])] if h in last else [(("Q", h), w)], d)

    return at.E, query, lambda t, h: at.onto([(("K", h), (0,) * t)], d), value, at.onto([zero], b)


def symmetric(H, L, d, b, W, M, A, along, one):
    e, p = min(d, H), LARGE
    D = [int(x[0, 0]) for x in M[0]]
    number = lambda matrix: int(matrix[0, 0])  # noqa: E731
    over = lambda x, y: x * pow(y, -1, p) % p if y else 1 // 0  # noqa: E731
    alpha = over(number(M[L - 1][0]), D[0])
    states = [
        ("Q", t, h, w, c) for t in range(2, L + 1) for h in range(H) for w in naive.words(H, t - 2) for c in range(e)
    ]
    states += [("K", v, c) for v in naive.words(H, L - 2) for c in range(e)]
    states += [("O", v, k) for v in naive.words(H, L - 2) for k in range(1, H)]
    place = {name: i for i, name in enumerate(states)}
    for v in naive.words(H, L - 2):
        place["O", v, 0] = place["K", v, 0]
    held = [(("a", h), 0) for h in range(H)]
    held += [(("u", w), number(along(w))) for w in naive.words(H, L)]
    for t in range(2, L + 1):
        for h in range(H):
            for w in naive.words(H, t - 2):
                scale = alpha * number(along((0,) * (L - t), t - 1)) % p
                base = over(number(A[t - 1][h]) * number(along(w, 1)) % p, scale)
                held.append((("g", t, h, w), base))
                held += [(("g", t, h, w, i), over(base * D[i] % p, D[e - 1])) for i in range(e, H)]
    for v in naive.words(H, L - 2):
        for c in range(1, e):
            held += [(("s", v, c, j), alpha * D[c] * D[j] * number(along(v, 1)) % p) for j in range(c, H)]
    zero, out = (0,) * L, H * e + e + H - 1
    names = [name for name, _ in held]
    order = {name: i for i, name in enumerate(names)}
    if L == 2:
        fixed = {("a", h): place["Q", 2, h, (), 0] for h in range(H)}
        fixed["u", zero] = place["K", (), 0]
        free = [i for i in range(len(names)) if i not in fixed.values()]
        order = {**dict(zip([x for x in names if x not in fixed], free, strict=True)), **fixed}
    E = {order[name]: [value] for name, value in held}
    for h in range(H):
        rest = 0
        if L == 2:
            rest = sum(E[place["Q", 2, h, (), c]][0] * E[place["K", (), c]][0] for c in range(1, e))
        E[order["a", h]] = [over((number(A[0][h]) - rest) % p, E[order["u", zero]][0])]

    def unfolded(i):
        pairs = []
        for name, to in place.items():
            if name[0] == "Q" and (name[4] == i or (i >= e and name[4] == e - 1)):
                pairs.append((order[("g", *name[1:4])] if i < e else order[("g", *name[1:4], i)], to))
            if name[0] == "K" and name[2] and i:
                pairs.append((order["s", name[1], *sorted((name[2], i))], to))
            elif name[0] == "K":
                pairs.append((order["u", (name[2] + i, *name[1], 0)], to))
            if name[0] == "O" and name[2]:
                pairs.append((order["u", (i, *name[1], name[2])], to))
        return pairs

    def value(t, i):
        if L == 2:
            return [*unfolded(i), (place["O", (), i], out)]
        if t == 0:
            return unfolded(i)
        if t == L - 1:
            return [(place["O", zero[2:], i], 0)]
        pairs = {}
        for name, to in place.items():
            k = 3 if name[0] == "Q" else 1
            w = list(name[k])
            if len(w) >= t and w[t - 1] == 0:
                w[t - 1] = i
                pairs[to] = place[(*name[:k], tuple(w), *name[k + 1 :])]
        return [(x, y) for y, x in pairs.items()]

    def query(t, h):
        if t == 0 and L > 2:
            return [(order["a", h], 0)]
        return [(place["Q", max(t, 1) + 1, h, zero[: max(t, 1) - 1], c], c) for c in range(e)]

    def key(t, h):
        return [(order["u", zero], 0)] if t == 0 and L > 2 else [(place["K", zero[2:], c], c) for c in range(e)]

    return E, query, key, value, [(out if L == 2 else 0, 0)]


def _lower_bound(shape, claim, evidence):
    host, notion, targets, free = stated(claim)
    dims, m = dimensions(shape)
    H, L, d, d_in, d_out = dims
    generic = targets in ("generic untied", "generic tied")
    demand(generic or targets in ("all untied", "all tied"))
    demand(notion in ("matching", "functional", "shared attention", "attention-matching"))
    demand(free in (("E", "E and U") if notion == "shared attention" else (None,)))
    demand("free" in claim or free is None)
    method = evidence.get("method") if type(evidence) is dict else None
    if type(host) is dict and "every" in host:
        demand(fields(host, "every")[0] in ("host", "tied host") and method in ("dimension", "span"))
    else:
        R, system = fields(host, "R_V", "system")
        demand(system in ("shared-attention-universal", "looped-shared-attention-universal"))
        demand(method == "null-vector" and notion == "shared attention" and targets == "all untied")
        demand(free == "E and U")
        _, word, y = fields(evidence, "method", "word", "y")
        return _null(R, system.startswith("looped"), H, L, m, number(word), y)
    if method == "span":
        _, p, given = fields(evidence, "method", "prime", "targets")
        demand((notion == "matching" or (notion == "shared attention" and generic)) and d_in == d_out)
        return _span(*prime_of(p), given, targets.endswith(" tied"), dims, m, free, plain_places)
    fields(evidence, "method")
    leaves = H**L
    M = dimension(*dims)
    untied = targets in ("all untied", "generic untied")
    if generic:
        demand(d_in == d_out)
        if L > 10_000:
            raise TooLarge
        bounds = list(generic_bounds(notion, untied, free, H, L, d, d_in, host["every"] == "tied host"))
        demand(bounds)
        return lambda: any(too_small(m) for too_small in bounds)
    if notion == "attention-matching":
        demand(untied and (H, L, d_in, d_out) == (1, 1, 1, 1))
        return lambda: m < 3
    if (notion, untied, free) == ("shared attention", True, "E and U") and (H, L, d_in, d_out) == (3, 1, 1, 1):
        return lambda: m < 3
    if notion == "matching":
        demand(untied or (d_in >= L and d >= L))
        return lambda: m < M
    if (
        notion == "functional"
        and L == 1
        and d_in == d_out
        and untied
        and (d + d * H <= d_in or (H, d, d_in) == (2, 1, 2))
    ):
        return lambda: m < H * d_in + 2 * H * d
    if notion == "functional":
        demand(untied and L == 1 and d <= d_in == d_out)
        return lambda: Fraction(m) < H * (d_in + 2 * d - Fraction(d * d, d_in))
    if free == "E":
        return lambda: m < (d_out * leaves if untied else multisets(L, H))
    return lambda: m * m < (leaves if untied else multisets(L, H))


def wider_than_input(H, L, d, b, letters):
    """The bound at d > d_in and L >= 2, for words in so many letters."""
    t = (d - b) // 2
    spread = [1, min(letters, b * b)]
    while len(spread) < L:
        half, odd = divmod(len(spread), 2)
        spread.append(min(b, letters**half) * min(b, letters ** (half + odd)))
    rest = sum(spread[1:L])
    lost = Fraction(t * (d - t), b)
    return max(b * letters**L + b * L * H + 1, b * letters**L + b * H + H * rest * (b - lost))


def generic_bounds(notion, untied, free, H, L, d, b, tied_host):
    """Predicates of m, one for each line of the second table that applies; any of them refutes."""
    e = min(d, b)
    walks = d >= L and b >= L
    if notion == "matching":
        if untied or walks:
            yield lambda m: m < dimension(H, L, d, b, b)
        elif b == 1:
            yield lambda m: m < 2 * d * H * multisets(L - 1, H + 1) + multisets(L, H)
    if notion in ("attention-matching", "functional"):
        form = Fraction(2 * e * b - e * e, b)
        if untied:
            r = min(H * e, b)
            later = Fraction(2 * e * r - e * e, b)
            yield lambda m: m < b * H**L + H * form + H * (L - 1) * later
            if d <= b:
                S = sum(H**t for t in range(1, L + 1))
                yield lambda m: m < b * H**L + 2 * d * S - d * d * (Fraction(H, b) + Fraction(S - H, r))
            elif H >= 2 and L >= 2:
                yield lambda m: m < wider_than_input(H, L, d, b, H)
        elif walks or b == 1:
            yield lambda m: m < (b * H**L if walks else multisets(L, H)) + H * form
    if notion == "functional" and not untied:
        yield lambda m: m < max(b, multisets(L, H))
        if L > 1:
            yield lambda m: b * m < (H - 1) * (b - 1) * e + b * e + e * b - e * e - b
    if notion == "shared attention" and free == "E":
        yield lambda m: m < (b * H**L if untied or walks else multisets(L, H))
    if notion == "shared attention" and free == "E and U":
        yield lambda m: m * m < (H**L if untied or walks else multisets(L, H))
        yield lambda m: m < e
        if untied:
            if b == 1 and H >= 2 and L % 2 == 1:
                yield lambda m: m * m <= H**L
            if b >= 2 and (H >= 2 or d >= 2):
                yield lambda m: m * m <= H**L
            if d >= b:
                yield lambda m: 2 * b * m <= b * b * (L * (H - 1) + 1)
            if b == 1 and H == 2 and L == 3:
                yield lambda m: m <= 3
        elif tied_host and b == 1 and H == 2 and L in (2, 3):
            yield lambda m: m <= 2


def target_sizes(d, d_in):
    return {"W_Q": (d_in, d), "W_K": (d_in, d), "W_V": (d_in, d), "W_O": (d, d_in)}


def target_table(entries, tied, H, L, d, d_in):
    """{(tensor, layer, head, row, column): entry} of a target as section 10.2 writes it."""
    sizes = target_sizes(d, d_in)
    demand(type(entries) is list)
    places, table = [], {}
    for entry in entries:
        demand(type(entry) is list and len(entry) == 6 and type(entry[0]) is str and entry[0] in sizes)
        tensor, (layer, h, i, j, v) = entry[0], map(number, entry[1:])
        demand((layer == 0 if tied else 1 <= layer <= L) and 0 <= h < H and v != 0)
        demand(0 <= i < sizes[tensor][0] and 0 <= j < sizes[tensor][1])
        places.append((tensor, layer, h, i, j))
        table[places[-1]] = v
    demand(all(a < b for a, b in pairwise(places)))
    return table


def _span(p, prime, given, tied, dims, m, free, places):
    demand(type(given) is list and given)
    tables = [target_rows(entries, tied, dims, places) for entries in given]
    H, L, _, _, d_out = dims

    def holds():
        if not prime:
            return False
        rows = np.concatenate([rows() for rows in tables])
        if free is not None:
            rows = rows[:, -d_out * H**L :]
        if free == "E and U":
            rows = rows.reshape(-1, H**L, d_out).transpose(0, 2, 1).reshape(-1, H**L)
        return residue_rank(p, rows) > (m * m if free == "E and U" else m)

    return holds


def _null(R, looped, H, L, m, s, y):
    demand(0 <= s < H**L)
    y = sparse_vector(y, H**L)
    held = grid_of(R, 1 if looped else L, H, m, m)

    def holds():
        if L > 60:
            raise TooLarge
        total = np.zeros((m, m), dtype=object)
        for position, v in y:
            out = np.eye(m, dtype=object)
            for layer in range(L):
                out = out.dot(held[0 if looped else layer][position // H ** (L - 1 - layer) % H])
            total = total + v * out
        return s in dict(y) and not total.any()

    return holds


# An enclosure is recomputed with mpmath's intervals (given attention: with fractions), host and target alike as plain
# matrices {column: [(row, entry)]} from their definitions.

PARTS = ("scaled", "causal", "window", "alibi", "rope")


def exact_numbers(value, count):
    q, numerators = fields(value, "denominator", "numerators")
    demand(number(q) >= 1 and type(numerators) is list and len(numerators) == count)
    return [Fraction(number(x), number(q)) for x in numerators]


def cut(flat, columns):
    return [flat[i : i + columns] for i in range(0, len(flat), columns)]


def attention_parts(text, d):
    """{part: its number or None}; empty for softmax, None for given attention."""
    if text in ("softmax", "given"):
        return {} if text == "softmax" else None
    demand(type(text) is str)
    parts = {}
    for part in text.split("+"):
        name, *rest = part.split(":")
        demand(name in PARTS and name not in parts and len(rest) == (name == "window"))
        if rest:
            demand(rest[0].isascii() and rest[0].isdigit() and rest[0][0] != "0" and len(rest[0]) <= 18)
        parts[name] = int(rest[0]) if rest else None
    demand(list(parts) == [name for name in PARTS if name in parts])
    demand("rope" not in parts or d % 2 == 0)
    return parts


def by_columns(matrix):
    """A matrix given by its rows, {column: [(row, entry)]}."""
    out = {j: [] for j in range(len(matrix[0]))}
    for i, row in enumerate(matrix):
        for j, x in enumerate(row):
            if x:
                out[j].append((i, x))
    return out


def maps_of(dims, m, Q, K, V, U):
    H, L, d, _, d_out = dims

    def full(matrix, columns):
        return {j: [(i, 1) for i in matrix.get(j, ())] for j in range(columns)}

    heads = {
        (layer, h): (full(Q(layer, h), d), full(K(layer, h), d), full(V(layer, h), m))
        for layer in range(1, L + 1)
        for h in range(H)
    }
    return heads, full(U, d_out)


def host_columns(name, dims, m, drawn):
    """(maps of (layer, head) to Q, K and V, U), layers from 1."""
    H, L, *_ = dims
    if name in INDEX:
        _, Q, K, V, U = index_parts(name, *dims)
        return maps_of(dims, m, Q, K, lambda *place: V[place], U)
    if type(drawn) is Stored:
        host, power = drawn.host()
        units = [Fraction(1, 2 ** power[tensor]) for tensor in ("R_Q", "R_K", "R_V", "U")]
    else:
        host, unit = random_host(*drawn)
        units = [unit] * 4

    def scaled(matrix, unit):
        return by_columns([[x * unit for x in row] for row in matrix.tolist()])

    heads = {}
    for layer in range(1, L + 1):
        for h in range(H):
            Q, K, (V,) = host.maps(layer - 1, h)
            heads[layer, h] = tuple(scaled(x, u) for x, u in zip((Q, K, V), units, strict=False))
    return heads, scaled(host.U, units[3])


def _enclosure(shape, claim, evidence, folder):
    stream = type(shape) is dict and "residual" in shape
    if stream:
        shape = without_stream(shape)
    demand(type(claim) is dict and claim.get("verdict") in ("within", "apart", "equal"))
    equal = claim["verdict"] == "equal"
    host, notion, targets, verdict, attention, n, *stated = fields(
        claim,
        "host",
        "notion",
        "targets",
        "verdict",
        "attention",
        "context",
        *([] if equal else ["digits", "difference"]),
        *(bound := ["E", "X", "target"] if {"E", "X", "target"} & set(claim) else []),
    )
    named = dict(zip(bound, stated[len(stated) - len(bound) :], strict=True))
    demand(all(type(d) is str and len(d) == 64 and set(d) <= set("0123456789abcdef") for d in named.values()))
    demand(notion == "one emulation" and targets == "this one")
    dims, m = dimensions(shape)
    H, L, d, d_in, d_out = dims
    name, drawn = (stream_host_of if stream else host_of)(host, dims, m, folder)
    parts = attention_parts(attention, d)
    given, n = parts is None, number(n)
    demand(n >= 1 and (given or not equal))
    k, a, b = 0, 0, 0
    if not equal:
        k, (a, b) = (
            number(stated[0]),
            map(number, stated[1]) if type(stated[1]) is list and len(stated[1]) == 2 else (1, 0),
        )
        demand(k >= 1 and 0 <= a < b)
    E, X, method, T, *matrices = fields(evidence, "E", "X", "method", "target", *(["attention"] if given else []))
    demand(method == ("rational" if given else "interval"))
    parts_named = {"E": E, "X": X, "target": T}
    optional = [tensor for tensor in ("W_E", "W_U") if type(T) is dict and tensor in T]
    tensors = ["W_Q", "W_K", "W_V", "W_O", *optional]
    *values, system, D = fields(T, *tensors, "system", "width")
    D = number(D)
    demand(system in ("target", "looped-target") and D >= 1)
    demand(("W_E" in optional or D == d_in) and ("W_U" in optional or D == d_out))
    layers = 1 if system == "looped-target" else L
    sizes = {"W_Q": (D, d), "W_K": (D, d), "W_V": (D, d), "W_O": (d, D), "W_E": (d_in, D), "W_U": (D, d_out)}
    held = {}
    for tensor, value in zip(tensors, values, strict=True):
        rows, columns = sizes[tensor]
        count = 1 if tensor in optional else layers * H
        flat = exact_numbers(value, count * rows * columns)
        held[tensor] = cut(cut(flat, columns), rows)
    E, X = cut(exact_numbers(E, d_in * m), m), cut(exact_numbers(X, n * d_in), d_in)
    A = None
    if given:
        A = cut(cut(exact_numbers(matrices[0], L * H * n * n), n), n)
        demand(all(min(row) >= 0 and sum(row) == 1 for matrix in A for row in matrix))

    def holds():
        if any(hashlib.sha256(canonical(parts_named[part])).hexdigest() != digest for part, digest in named.items()):
            return False
        if not equal and (verdict == "apart") != (a > 0):
            return False
        if type(drawn) is Stored and not drawn.sound():
            return False
        for low, high in bounds():
            if a <= low and high <= b:
                return True
            if low > b or high < a:
                return False
        return False

    def bounds():
        """Lower and upper bounds of 10^k delta, with more and more bits."""
        if L * H * n * (n + m + D) * (m if name not in INDEX else 10) > 3 * 10**5 or k > 2000:
            raise TooLarge
        entries = [E, X, *(matrix for found in held.values() for matrix in found)]
        if not given and max(abs(x) for matrix in entries for row in matrix for x in row) > 10**100:
            raise TooLarge  # exponentials beyond measure
        ours = (stream_host_columns if stream else host_columns)(name, dims, m, drawn)
        table = {tensor: [by_columns(matrix) for matrix in found] for tensor, found in held.items()}

        def head(layer, h):
            place = (0 if layers == 1 else layer - 1) * H + h
            return [table[tensor][place] for tensor in ("W_Q", "W_K", "W_V", "W_O")]

        theirs = {(layer, h): head(layer, h) for layer in range(1, L + 1) for h in range(H)}

        def difference(field):
            def run(x, heads, last):
                for layer in range(1, L + 1):
                    total = x if stream else None
                    for h in range(H):
                        q, key, *value = heads[layer, h]
                        if given:
                            matrix = A[(layer - 1) * H + h]
                        else:
                            matrix = softmaxed(times(x, q, field), times(x, key, field), parts, h, H, d)
                        term = [[sum(map(product, row, column)) for column in zip(*x, strict=True)] for row in matrix]
                        for factor in value:
                            term = times(term, factor, field)
                        total = (
                            term
                            if total is None
                            else [list(map(plus, *rows)) for rows in zip(total, term, strict=True)]
                        )
                    x = total
                return times(x, last, field) if last is not None else x

            start = [[field(x) for x in row] for row in X]
            first = times(start, by_columns(E), field)
            second = times(start, table["W_E"][0], field) if "W_E" in table else start
            found = run(first, *ours), run(second, theirs, table["W_U"][0] if "W_U" in table else None)
            return [x - y for rows in zip(*found, strict=True) for x, y in zip(*rows, strict=True)]

        if given:
            delta = max(map(abs, difference(Fraction))) * 10**k
            return [(delta, delta)]
        return narrowing(difference, k)

    return holds, bounds


def product(x, y):
    return x * y


def plus(x, y):
    return x + y


def times(x, matrix, field):
    zero = field(Fraction(0))
    return [[sum((row[i] * field(v) for i, v in column), zero) for column in matrix.values()] for row in x]


def interval(x):
    from mpmath import iv

    x = Fraction(x)
    return iv.mpf(x.numerator) / iv.mpf(x.denominator)


def narrowing(difference, k):
    """Bounds of 10^k max |difference|, with twice the bits each time, up to those that settle it or not."""
    from mpmath import iv

    bits, enough = 128 + 4 * k, False
    while not enough:
        before, iv.prec = iv.prec, bits
        try:
            found = [ends(abs(x)) for x in difference(interval)]
        finally:
            iv.prec = before
        if None not in found:
            yield tuple(max(pair[i] for pair in found) * 10**k for i in (0, 1))
        enough = bits > max(2**13, 16 * (64 + 4 * k))
        bits *= 2


def measured(document, folder):
    """Bounds of 10^k delta for an enclosure, whatever it states."""
    return next(iter(_enclosure(document["shape"], document["claim"], document["evidence"], folder)[1]()))


def ends(x):
    """The ends of an interval of numbers >= 0 as fractions; None if one is not finite, or too large to be written out."""
    out = []
    for up, (sign, significand, exponent, bits) in enumerate(x._mpi_):
        assert not sign
        if (not significand and exponent) or exponent > 10**6:
            return None
        if exponent < -(10**6):
            out.append(Fraction(up, 2 ** (10**6 - bits)))
        else:
            out.append(int(significand) * Fraction(2) ** int(exponent))
    return out


def softmaxed(queries, keys, parts, h, H, d):
    from mpmath import iv

    n = len(queries)
    if "rope" in parts:
        queries, keys = ([turned(row, i, d) for i, row in enumerate(rows)] for rows in (queries, keys))
    out = []
    for i in range(n):
        seen = [j for j in range(n) if ("causal" not in parts or j <= i) and abs(i - j) < parts.get("window", n)]
        logits = {}
        for j in seen:
            s = sum(map(product, queries[i], keys[j]))
            if "scaled" in parts:
                s = s / iv.sqrt(iv.mpf(d))
            if "alibi" in parts:
                s = s - abs(i - j) * power(2, Fraction(8 * (h + 1), H))
            logits[j] = s
        out.append(
            [
                1 / sum(iv.exp(logits[other] - logits[j]) for other in seen) if j in logits else iv.mpf(0)
                for j in range(n)
            ]
        )
    return out


def power(base, exponent):
    """base^-exponent."""
    from mpmath import iv

    return iv.exp(-interval(exponent) * iv.log(iv.mpf(base)))


def turned(row, position, d):
    from mpmath import iv

    out = []
    for t in range(d // 2):
        angle = position * power(10000, Fraction(2 * t, d))
        x, y = row[2 * t], row[2 * t + 1]
        out += [x * iv.cos(angle) - y * iv.sin(angle), x * iv.sin(angle) + y * iv.cos(angle)]
    return out


# ----------------------------------------------------------------------------------------------------
# Residual streams: words over the letters 0 ... H (letter h + 1 is head h), everything dense and word by word


def without_stream(shape):
    """The shape's other fields; `residual` is true or the certificate is malformed."""
    demand(shape["residual"] is True)
    rest = {name: value for name, value in shape.items() if name != "residual"}
    (H, L, *_), _ = dimensions(rest)
    if L * H.bit_length() > 60:
        raise TooLarge
    return rest


def stream_places(H, L, d, d_in, d_out):
    """(kind, letters before the reader or output, reading head, coordinate) of every column, in canonical order."""
    if 2 * d * H * L * (H + 1) ** (L - 1) + d_out * (H + 1) ** L > 20_000:
        raise TooLarge
    found = []
    for kind in ("W_Q", "W_K"):
        for length in range(L):
            for w in naive.words(H + 1, length):
                found += [(kind, w, h, j) for h in range(H) for j in range(d)]
    return found + [("U", w, None, j) for w in naive.words(H + 1, L) for j in range(d_out)]


def stream_M(H, L, d, d_in, d_out):
    return 2 * d * H * sum((H + 1) ** t for t in range(L)) + d_out * (H + 1) ** L


def stream_reduced(H, L, d, d_out):
    S = sum(H**t for t in range(1, L + 1))
    return 2 * d * S + d_out * (1 + S)


def stream_index_host(name, H, L, d, d_in, d_out):
    """(least m, Q, K, V, U) as index_host has them."""
    if name == "sparse":

        def width(w):
            return d_out if len(w) == L else 2 * H * d

        start, m = layout([w for t in range(L + 1) for w in naive.words(H + 1, t)], width)

        def reader(place):
            return lambda layer, h: identities(
                *((start[w] + (place * H + h) * d, 0, d) for w in naive.words(H + 1, layer - 1))
            )

        def value(layer, h):
            return identities(
                *((a, a, width(w)) for w, a in start.items() if len(w) >= layer and w[layer - 1] == h + 1)
            )

        U = identities(*((start[w], 0, d_out) for w in naive.words(H + 1, L)))
        return m, reader(0), reader(1), value, U
    assert name == "tied"
    first, end = layout(by_length(H, 1, L), lambda w: 2 * d)
    second, size = layout(by_length(H, 0, L), lambda w: d_out)
    second = {w: end + a for w, a in second.items()}

    def moved(layer, h):
        runs = [(trie[h, *w], a, wide) for trie, wide in ((first, 2 * d), (second, d_out)) for w, a in trie.items()
                if len(w) < L]  # fmt: skip
        return identities(*runs)

    return (
        end + size,
        lambda layer, h: identities((first[h,], 0, d)),
        lambda layer, h: identities((first[h,] + d, 0, d)),
        moved,
        identities((second[()], 0, d_out)),
    )


def stream_least(name, H, L, d, d_in, d_out):
    return stream_M(H, L, d, d_in, d_out) if name == "sparse" else stream_reduced(H, L, d, d_out)


def stream_host_of(host, dims, m, folder):
    """As host_of."""
    name = host.get("construction") if type(host) is dict else None
    if name in INDEX and "weights" not in host:
        fields(host, "construction")
        demand(name in ("sparse", "tied") and m >= stream_least(name, *dims))
        return name, ()
    return host_of(host, dims, m, folder, stream=True)


def stream_host_columns(name, dims, m, drawn):
    """As host_columns."""
    if name not in INDEX:
        return host_columns(name, dims, m, drawn)
    H, L, *_ = dims
    if m > 3000 or (H + 1) ** L > 300:
        raise TooLarge
    return maps_of(dims, m, *stream_index_host(name, *dims)[1:])


def stream_columns(name, dims):
    """The columns of R_all of `sparse` or `tied` as {row: entry}, by their places."""
    H, L, *_ = dims
    places = stream_places(*dims)
    if stream_least(name, *dims) > 3000:
        raise TooLarge
    _, Q, K, V, U = stream_index_host(name, *dims)
    table = {(layer, h): V(layer, h) for layer in range(1, L + 1) for h in range(H)}
    found = {}
    for kind, w, h, j in places:
        reader = U if kind == "U" else (Q if kind == "W_Q" else K)(len(w) + 1, h)
        column = dict.fromkeys(reader.get(j, ()), 1)
        for layer in range(len(w), 0, -1):
            if w[layer - 1] == 0:
                continue
            step, moved = table[layer, w[layer - 1] - 1], {}
            for c, x in column.items():
                for i in step.get(c, ()):
                    moved[i] = moved.get(i, 0) + x
            column = moved
        found[kind, w, h, j] = column
    return found


def stream_dense(drawn, dims, m):
    """(R_all in integers, the factor of each column that makes it true)."""
    H, L, *_ = dims
    places = stream_places(*dims)
    if len(places) * m > 60_000:
        raise TooLarge
    if type(drawn) is Stored:
        host, power = drawn.host()
        units = {name: Fraction(1, 2 ** power[tensor]) for name, tensor in
                 (("W_Q", "R_Q"), ("W_K", "R_K"), ("V", "R_V"), ("U", "U"))}  # fmt: skip
    else:
        host, unit = random_host(*drawn)
        units = dict.fromkeys(("W_Q", "W_K", "V", "U"), unit)
    one = np.eye(m, dtype=object)
    product = {(): one}
    for t in range(1, L + 1):
        for w in naive.words(H + 1, t):
            (value,) = host.maps(t - 1, w[-1] - 1)[2] if w[-1] else (one,)
            product[w] = product[w[:-1]].dot(value) if w[-1] else product[w[:-1]]
    columns, factors, blocks = [], [], {}
    for kind, w, h, j in places:
        if (kind, w, h) not in blocks:
            reader = host.U if kind == "U" else host.maps(len(w), h)[0 if kind == "W_Q" else 1]
            blocks[kind, w, h] = product[w].dot(reader)
        columns.append(blocks[kind, w, h][:, j])
        factors.append(units[kind] * units["V"] ** sum(letter > 0 for letter in w))
    return np.array(columns, dtype=object).T, factors


def w_all(weights, places, W_E=None, W_U=None):
    """W_all from {(tensor, layer, head): matrix}, layers from 1; places: of its columns, as stream_places has them."""
    product = {(): np.eye(weights["W_V", 1, 0].shape[0], dtype=object) if W_E is None else W_E}
    columns, blocks = [], {}
    for kind, w, h, j in places:
        if w not in product:
            before, place = product[w[:-1]], (len(w), w[-1] - 1)
            product[w] = before.dot(weights["W_V", *place]).dot(weights["W_O", *place]) if w[-1] else before
        if (kind, w, h) not in blocks:
            end = product[w]
            if kind == "U":
                blocks[kind, w, h] = end if W_U is None else end.dot(W_U)
            else:
                blocks[kind, w, h] = end.dot(weights[kind, len(w) + 1, h])
        columns.append(blocks[kind, w, h][:, j])
    return np.array(columns, dtype=object).T


def zero_weights(dims, D):
    """All zero."""
    H, L, d, *_ = dims
    if max(D, d) > 50 or H * L > 2000:
        raise TooLarge
    return {
        (tensor, layer, h): np.zeros(size, dtype=object)
        for tensor, size in target_sizes(d, D).items()
        for layer in range(1, L + 1)
        for h in range(H)
    }


def stream_routed(dims, column):
    """W_all of the routed target of a column (section 7)."""
    *_, d_in, d_out = dims
    D = max(d_in, d_out)
    kind, w, h, j = stream_places(*dims)[column]
    weights = zero_weights(dims, D)
    one = np.eye(D, dtype=object)
    W_E, W_U = one[:d_in].copy(), one[:, :d_out]
    route = [(t, letter - 1) for t, letter in enumerate(w, 1) if letter]
    for t, head in route:
        weights["W_V", t, head][0, 0] = 1
        weights["W_O", t, head][0, j if kind == "U" and (t, head) == route[-1] else 0] = 1
    if kind != "U":
        weights[kind, len(w) + 1, h][0, j] = 1
    elif not route and d_in != d_out:
        W_E[0] = 0
        W_E[0, j] = 1
    return w_all(weights, stream_places(*dims), W_E, W_U)


def target_rows(entries, tied, dims, places):
    """Rows of W_all of a target given by its entries."""
    H, L, d, d_in, _ = dims
    table = target_table(entries, tied, H, L, d, d_in)

    def rows():
        weights = zero_weights(dims, d_in)
        for (tensor, layer, h, i, j), v in table.items():
            for at in range(1, L + 1) if tied else [layer]:
                weights[tensor, at, h][i, j] = v
        return w_all(weights, places(*dims))

    return rows


def stream_in_kernel(z, name, dims, m, drawn):
    if name in INDEX:
        return cancel(z, list(stream_columns(name, dims).values()).__getitem__)
    return cancel_densely(z, *stream_dense(drawn, dims, m))


def _streaming(kind, shape, claim, evidence, folder):
    dims, m = dimensions(without_stream(shape))
    _, L, d, d_in, d_out = dims
    if kind == "enclosure":
        return _enclosure(shape, claim, evidence, folder)[0]()
    demand(type(claim) is dict and claim.get("verdict") in ("universal", "not universal"))
    universal = claim["verdict"] == "universal"
    if kind == "identity":
        holds = _rational(shape, claim, evidence)
        return universal and holds()
    bound = kind == "lower-bound"
    ranked = universal and not bound
    host, notion, targets, *rank = fields(claim, "host", "notion", "targets", *(["rank"] if ranked else []), "verdict")[
        :-1
    ]
    rank = [number(r) for r in rank]
    logits = bound and notion in ("attention-matching", "functional")
    demand(logits or notion == ("attention-matching" if kind == "linear-test" else "matching"))
    known = {
        "rank-deficient": ("all untied", "all tied"),
        "tied-kernel": ("all tied",),
        "rank-permutation": ("all tied", "all untied") if L == 1 else ("all tied",),
        "lower-bound": ("all untied", "all tied", "generic untied", "generic tied"),
    }
    demand(targets in known.get(kind, ("all untied",)))
    if bound:
        holds = (stream_logits if logits else stream_bound)(host, targets, dims, m, evidence)
        return not universal and holds()
    demand(kind != "linear-test" or d_in == d_out <= d)
    demand(targets == "all untied" or d_in == d_out or kind == "rank-permutation")
    name, drawn = stream_host_of(host, dims, m, folder)
    demand(kind != "rank-permutation" or name == "tied")
    demand(kind != "rank-triangular" or name == "sparse")
    demand(kind not in ("rank-modular", "linear-test", "tied-kernel") or drawn)
    M = stream_M(*dims)
    count, holds = stream_settle(kind, name, dims, m, M, targets, drawn, evidence, folder)
    if universal == (kind == "rank-deficient") or (rank and rank[0] != count):
        return False
    if type(drawn) is Stored and not drawn.sound():
        return False
    return holds()


def stream_logits(host, targets, dims, m, evidence):
    H, L, d, b, d_out = dims
    demand(fields(host, "every")[0] in ("host", "tied host") and fields(evidence, "method") == ["dimension"])
    demand(targets == "generic untied" and b == d_out)
    e, words = min(d, b), (H + 1) ** L
    form = 2 * e - Fraction(e * e, b)
    if d > b and L > 1:
        return lambda: m < wider_than_input(H, L, d, b, H + 1)
    q = H + 1 if H * d + d >= b else Fraction(b, b - H * d)
    return lambda: m < b * words + H * form * sum(q**t for t in range(L))


def stream_bound(host, targets, dims, m, evidence):
    H, L, d, d_in, d_out = dims
    (every,) = fields(host, "every")
    demand(every in ("host", "tied host"))
    method = evidence.get("method") if type(evidence) is dict else None
    if method == "dimension":
        fields(evidence, "method")
        demand(targets == "all untied" or d_in == d_out)
        if targets.endswith("untied"):
            return lambda: m < stream_M(*dims) or (every == "tied host" and L > 1)
        demand(min(d_in, d) >= L)
        return lambda: m < stream_reduced(H, L, d, d_out)
    _, p, given = fields(evidence, "method", "prime", "targets")
    demand(method == "span" and d_in == d_out)
    return _span(*prime_of(p), given, targets.endswith(" tied"), dims, m, None, stream_places)


def stream_settle(kind, name, dims, m, M, targets, drawn, evidence, folder):
    """(the rank to be stated, whether the evidence holds)."""
    H, L, d, d_in, d_out = dims
    if kind in ("rank-permutation", "rank-triangular"):
        count = M if name == "sparse" else stream_reduced(H, L, d, d_out)
        (given,) = fields(evidence, "rows")
        rows = None if given == "standard" and kind == "rank-permutation" else integers_of(given, count, folder)

        def holds():
            if rows is None and count > 5000:
                raise TooLarge
            columns = stream_columns(name, dims)
            if name == "sparse":
                owner = {r: c for c, r in enumerate(rows)}
                if len(owner) != count or not all(0 <= r < M for r in rows):
                    return False
                return all(
                    column.get(rows[c]) == 1 and all(x and owner.get(r, c) >= c for r, x in column.items())
                    for c, column in enumerate(columns.values())
                )
            wanted = [
                columns[kind, tuple(h + 1 for h in w[:-1]), w[-1], j]
                for kind in ("W_Q", "W_K")
                for w in by_length(H, 1, L)
                for j in range(d)
            ]
            wanted += [
                columns["U", tuple(h + 1 for h in w) + (0,) * (L - len(w)), None, j]
                for w in by_length(H, 0, L)
                for j in range(d_out)
            ]
            chosen = found_rows(wanted) if rows is None else rows
            return len(set(chosen)) == count and all(c == {r: 1} for r, c in zip(chosen, wanted, strict=True))

        return count, holds
    if kind == "rank-modular":
        return M, _modular(name, dims, m, M, drawn, evidence, folder, lambda host: stream_dense(host, dims, m))
    if kind == "linear-test":
        count = M - (d - d_in) * H * sum((H + 1) ** t for t in range(L))
        return count, _linear(name, dims, m, count, drawn, evidence, folder, stream_tested)
    if kind == "tied-kernel":
        holds = _tied_kernel(
            name, dims, m, M, drawn, evidence, folder, stream_places, lambda host: stream_dense(host, dims, m)
        )
        return M - len(evidence["basis"]), holds
    method = evidence.get("method") if type(evidence) is dict else None
    if targets == "all tied":
        row, target, z = tied_target(evidence, dims, M)
        rows = target_rows(target, True, dims, stream_places)
        return None, lambda: sum(rows()[row][i] * v for i, v in z) != 0 and stream_in_kernel(z, name, dims, m, drawn)
    if method == "dimension":
        fields(evidence, "method")
        return None, lambda: m < M
    column, distance, z = kernel_vector(evidence, M)

    def holds():
        if column not in dict(z):
            return False
        missed = [sum(line[i] * v for i, v in z) for line in stream_routed(dims, column)]
        square = sum(x * x for x in missed)
        if square == 0 or distance != Fraction(square, sum(v * v for _, v in z)):
            return False
        return stream_in_kernel(z, name, dims, m, drawn)

    return None, holds


def stream_tested(drawn, dims, m, gauges):
    """As host_tested."""
    *_, d, d_in, _ = dims
    if d_in * d > DRAWN:
        raise TooLarge
    matrix, blocks = stream_dense(drawn, dims, m)[0], []
    for at, (kind, w, h, j) in enumerate(stream_places(*dims)):
        if kind != "W_Q":
            blocks.append(matrix[:, at : at + 1])
        elif j == 0:
            gauge = np.eye(d_in, d, dtype=object) if gauges is None else gauges[0 if len(gauges) == 1 else len(w)][h]
            blocks.append(matrix[:, at : at + d].dot(gauge.T))
    return np.concatenate(blocks, axis=1)


# ----------------------------------------------------------------------------------------------------
# The least host of one target (section 13), word by word


def exact_matrices(value, count, rows, columns, least=False):
    """(denominator, `count` matrices of numerators)."""
    q, numerators = fields(value, "denominator", "numerators")
    q = number(q)
    demand(q >= 1 and type(numerators) is list and len(numerators) == count * rows * columns)
    flat = [number(x) for x in numerators]
    demand(not least or gcd(q, *flat) == 1)
    if rows * columns * count > 20_000:
        raise TooLarge
    return q, [np.array(part, dtype=object).reshape(rows, columns) for part in cut(flat, rows * columns)]


def matrices_of(value, names, dims, width, least):
    """(rows that enter, {"Q": by layer, "K": by layer, "M": by layer}, columns that leave), all (denominator, matrices)."""
    H, L, d, d_in, d_out = dims
    enter, leave, *grids = names
    held = dict(zip(sorted(value), fields(value, *sorted(value)), strict=True))
    layers = {}
    for kind, name, columns in zip("QKM", grids, (d, d, width), strict=True):
        demand(type(held[name]) is list and len(held[name]) == L)
        layers[kind] = [exact_matrices(layer, H, width, columns, least) for layer in held[name]]
    return (
        exact_matrices(held[enter], 1, d_in, width, least),
        layers,
        exact_matrices(held[leave], 1, width, d_out, least),
    )


def word_of(value, length, letters):
    demand(type(value) is list and len(value) == length)
    word = tuple(number(a) for a in value)
    demand(all(0 <= a < letters for a in word))
    return word


def _realization(shape, claim, evidence):
    stream = int(type(shape) is dict and "residual" in shape)
    dims, m = dimensions(without_stream(shape) if stream else shape)
    H, L, d, d_in, d_out = dims
    host, notion, digest, targets, verdict = fields(claim, "host", "notion", "target", "targets", "verdict")
    demand(fields(host, "every") == ["host"])
    demand((notion, targets, verdict) == ("matching", "this one", "least m"))
    demand(type(digest) is str and len(digest) == 64 and set(digest) <= set("0123456789abcdef"))
    given, lower, target = fields(evidence, "host", "lower", "target")
    fields(given, "E", "R_K", "R_Q", "R_V", "U")
    *_, D = fields(target, "M", "W_E", "W_K", "W_Q", "W_U", "width")
    D = number(D)
    demand(D >= 1)
    ours = matrices_of(given, ("E", "U", "R_Q", "R_K", "R_V"), dims, m, False)
    theirs = matrices_of(target, ("W_E", "W_U", "W_Q", "W_K", "M"), dims, D, True)
    at, columns, p, rows, steps = fields(lower, "boundary", "columns", "prime", "rows", "steps")
    p, prime = prime_of(p)
    letters = H + stream

    def named(at, rows, columns):
        demand(type(rows) is list and type(columns) is list)
        demand(all(type(row) is list and len(row) == 2 for row in rows))
        rows = [(number(i), word_of(w, at, letters)) for i, w in rows]
        demand(all(0 <= i < d_in for i, _ in rows))
        readers = []
        for column in columns:
            demand(type(column) is list and len(column) == 3)
            kind, w, c = column
            demand(kind in ("Q", "K", "OV") and type(w) is list and (kind == "OV" or 1 <= len(w) <= L - at))
            w = word_of(w, L - at if kind == "OV" else len(w), letters)
            demand(kind == "OV" or w[-1] >= stream)
            demand(0 <= number(c) < (d_out if kind == "OV" else d))
            readers.append((kind, w, c))
        return rows, readers

    at = number(at)
    demand(0 <= at <= L)
    minors = [(at, *named(at, rows, columns), None)]
    demand(len(rows) == len(columns) and type(steps) is list and (stream or not steps))
    for step in steps:
        later, sums, columns, rows = fields(step, "boundary", "combinations", "columns", "rows")
        later = number(later)
        demand(at < later <= L)
        at = later
        rows, columns = named(at, rows, columns)
        demand(rows and columns and type(sums) is list and len(sums) == len(rows))
        demand(all(type(line) is list and len(line) == len(columns) for line in sums))
        minors.append((at, rows, columns, np.array([[number(v) for v in line] for line in sums], dtype=object)))

    def following(found, layer, word, moves):
        """The numerators, and by what they have to be divided, one letter on."""
        x, q = found
        if word < stream:
            return x, q
        down, matrices = moves[layer]
        return x @ matrices[word - stream], q * down

    def all_words(forms, length):
        """{word: (numerators of E R_w, denominator)}."""
        q, (start,) = forms[0]
        found = {(): (start, q)}
        for layer in range(length):
            found = {(*w, a): following(x, layer, a, forms[1]["M"]) for w, x in found.items() for a in range(letters)}
        return found

    def equal(first, second):
        return bool((first[0] * second[1] == second[0] * first[1]).all())

    def matched():
        for length in range(L + 1):
            first, second = all_words(ours, length), all_words(theirs, length)
            for w, (x, q) in first.items():
                y, r = second[w]
                readers = [(ours[2], theirs[2], 0)] if length == L else []
                if length < L:
                    readers = [(ours[1][k][length], theirs[1][k][length], h) for k in "QK" for h in range(H)]
                for (a, left), (b, right), h in readers:
                    if not equal((x @ left[h], q * a), (y @ right[h], r * b)):
                        return False
        return True

    def column(at, kind, w, c):
        if kind == "OV":
            x = theirs[2][1][0][:, c]
        else:
            x, w = theirs[1][kind][at + len(w) - 1][1][w[-1] - stream][:, c], w[:-1]
        for offset, a in reversed(list(enumerate(w))):
            if a >= stream:
                x = theirs[1]["M"][at + offset][1][a - stream] @ x
        return x

    def shown(at, rows, columns, sums):
        """Whether the rows are independent (modulo what was known)."""
        if not rows:
            return True
        read = np.stack([column(at, *reader) for reader in columns], axis=1)
        if sums is not None:
            read = read @ sums.T
            if any((x @ read).any() for x, _ in all_words(theirs, at - 1).values()):
                return False
        states = all_words(theirs, at)
        return residue_rank(p, np.stack([states[w][0][i] @ read for i, w in rows])) == len(rows)

    def holds():
        if hashlib.sha256(canonical(target)).hexdigest() != digest or not prime:
            return False
        if max(1, sum(len(rows) for _, rows, _, _ in minors)) != m:
            return False
        if letters**L > 3000:
            raise TooLarge
        return matched() and all(shown(*minor) for minor in minors)

    return holds


def main(paths):
    words = {0: "valid", 1: "INVALID", 2: "MALFORMED", None: "TOO LARGE"}
    found = []
    for path in map(Path, paths):
        try:
            verdict = judge(path.read_bytes(), path.parent)
        except OSError:
            verdict = 2
        found.append(3 if verdict is None else verdict)
        print(f"{words[verdict]:9} {path}", flush=True)
    return next((code for code in (1, 2, 3) if code in found), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
