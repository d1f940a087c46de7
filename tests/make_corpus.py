"""Regenerates tests/certificates/{valid,invalid,malformed}: `python tests/make_corpus.py [FOLDER]`.

The bytes are the same on every run. No file is kept before `sceptic.judge` has agreed with the folder it is for.
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
from math import gcd
from pathlib import Path

import naive
import numpy as np
from sceptic import (
    DTYPES,
    FIELDS,
    INDEX,
    INVERTIBLE,
    LAWS,
    PERMUTATIONS,
    RANDOM,
    RULES,
    SAFE,
    Stored,
    by_length,
    canonical,
    digest_of,
    dimension,
    identity_host,
    identity_least,
    index_columns,
    judge,
    layout,
    least_m,
    random_integers,
    random_r_all,
    rank_modulo,
    target_line,
    target_table,
    tuples,
)

CORPUS = Path(__file__).parent / "certificates"


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


def statement(kind, notion, host, dims, m, evidence, *, targets="all untied", free=None, rank=None):
    """A certificate of one of the kinds of sections 8 to 10."""
    out = document(kind, None, dims, m, evidence, rank=rank)
    universal = kind != "lower-bound"
    out["claim"] |= {"host": host, "notion": notion, "targets": targets}
    out["claim"]["verdict"] = "universal" if universal else "not universal"
    if free is not None:
        out["claim"]["free"] = free
    return out


def linear(name, dims, m, prime=8388593, **drawn):
    """A certificate of section 8; dims = (H, L, d, d_in, d_in)."""
    H, L, d, d_in, _ = dims
    rank = dimension(*dims) - (d - d_in) * sum(H**t for t in range(1, L + 1))
    found = document("linear-test", name, dims, m, {"method": "recompute", "prime": prime}, rank=rank, **drawn)
    found["claim"]["notion"] = "attention-matching"
    return found


def m_word(word, first=1):
    return [f"M{layer}.{h}" for layer, h in enumerate(word, first)]


def identity(name, dims, m=None):
    """The certificate of section 9 for this construction; dims = (H, L, d, b)."""
    H, L, d, b = dims
    notion, targets, free = RULES[name]
    E, U = {}, {}
    if name == "shared-key":
        q, total = layout(by_length(H, 1, L), lambda w: b)
        k, _ = layout(by_length(H, 0, L), lambda w: b)
        E = {a: [*m_word(w[:-1]), f"A{len(w)}.{w[-1]}"] for w, a in q.items()}
        E |= {total + a: m_word(w) for w, a in k.items()}
    elif name == "shared-query":
        k, total = layout(by_length(H, 1, L), lambda w: b)
        register, _ = layout(naive.words(H, L), lambda w: b)
        for w, a in k.items():
            later = [f"M{layer}.0IT" for layer in range(len(w), L + 1)]
            E[a] = [*m_word(w[:-1]), f"A{len(w)}.{w[-1]}T", *later]
        E |= {total + a: m_word(w) for w, a in register.items()}
    elif name == "register":
        E = {i * b: m_word(w) for i, w in enumerate(naive.words(H, L))}
    elif name == "two-sided":
        half = naive.words(H, L // 2)
        E = {i * b: m_word(w) for i, w in enumerate(half)}
        U = {i * b: m_word(w, L // 2 + 1) for i, w in enumerate(half)}
    else:
        at = 0
        for c in tuples(H, L - 1) if name == "commuting-trie" else []:
            front = [f"M.{h}" for h in range(H) for _ in range(c[h])]
            for g in range(H):
                E[at], E[at + d] = [*front, f"Q.{g}"], [*front, f"K.{g}"]
                at += 2 * d
        for i, c in enumerate(tuples(H - 1, L)):
            E[at + i] = [f"M.{h}" for h in range(H) for _ in range((L - sum(c), *c)[h])]
    least = identity_least(name, H, L, d, b)
    evidence = {"E": [[a, E[a]] for a in sorted(E)]} | (
        {"U": [[a, U[a]] for a in sorted(U)]} if free == "E and U" else {}
    )
    return statement(
        "identity", notion, {"construction": name}, (H, L, d, b, b), least if m is None else m, evidence,
        targets=targets[-1], free=free,
    )  # fmt: skip


def bound(notion, dims, m, *, targets="all untied", free=None, every="host"):
    """A certificate of section 10.1."""
    return statement(
        "lower-bound", notion, {"every": every}, dims, m, {"method": "dimension"}, targets=targets, free=free
    )


def isolating(H, L, d, d_in, tied):
    """Targets of 0 and 1 whose first rows of W_all are all the unit vectors (d_in and d at least L if tied)."""
    found = []
    for which in ("W_Q", "W_K", "W_O"):
        for length in range(1, L + 1) if which != "W_O" else [L]:
            for word in naive.words(H, length):
                for j in range(d_in if which == "W_O" else d):
                    entries = {}
                    steps = list(enumerate(word[: length if which == "W_O" else -1]))
                    for t, h in steps:
                        # tied: coordinate t goes to t + 1 through the t-th of the d inner coordinates
                        layer, here, there, inner = (0, t, t + 1, t) if tied else (t + 1, 0, 0, 0)
                        if which == "W_O" and t == L - 1:
                            there = j
                        entries["W_V", layer, h, here, inner] = 1
                        entries["W_O", layer, h, inner, there] = 1
                    if which != "W_O":
                        layer, here = (0, length - 1) if tied else (length, 0)
                        entries[which, layer, word[-1], here, j] = 1
                    found.append([[*place, v] for place, v in sorted(entries.items())])
    return found


def drawn_targets(count, tied, H, L, d, d_in, seed):
    """Dense targets with small entries."""
    source = random.Random(seed)
    sizes = {"W_K": (d_in, d), "W_O": (d, d_in), "W_Q": (d_in, d), "W_V": (d_in, d)}
    out = []
    for _ in range(count):
        entries = []
        for tensor, (height, width) in sizes.items():
            for layer in [0] if tied else range(1, L + 1):
                for h in range(H):
                    for i in range(height):
                        for j in range(width):
                            if v := source.randint(-3, 3):
                                entries.append([tensor, layer, h, i, j, v])
        out.append(entries)
    return out


def span(dims, m, given, *, targets="all tied", every="host", prime=2**31 - 1):
    """A certificate of section 10.2; dims = (H, L, d, d_in)."""
    evidence = {"method": "span", "prime": prime, "targets": given}
    return statement("lower-bound", "matching", {"every": every}, (*dims, dims[3]), m, evidence, targets=targets)


def null_vector(R, looped, dims, y, s=None):
    """A certificate of section 10.3: R is a list of layers of heads of matrices, y is {position: value}."""
    host = {"R_V": R, "system": "looped-shared-attention-universal" if looped else "shared-attention-universal"}
    evidence = {
        "method": "null-vector",
        "word": written(max(y) if s is None else s),
        "y": [[written(i), written(y[i])] for i in sorted(y)],
    }
    return statement("lower-bound", "shared attention", host, dims, len(R[0][0]), evidence, free="E and U")


def drawn_values(looped, H, L, m, seed, size=3):
    source = random.Random(seed)
    return [
        [[[source.randint(-size, size) for _ in range(m)] for _ in range(m)] for _ in range(H)]
        for _ in range(1 if looped else L)
    ]


def word_kernel(R, looped, H, L):
    """A vector y with sum y_w R_w = 0."""
    products = []
    for word in naive.words(H, L):
        out = np.array(R[0][word[0]], dtype=object)
        for layer, h in enumerate(word[1:], 1):
            out = out.dot(np.array(R[0 if looped else layer][h], dtype=object))
        products.append(out.reshape(-1))
    return kernel_basis(np.array(products, dtype=object).T)[0]


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


IDENTITY_SHAPES = [
    (1, 1, 1, 1), (2, 1, 2, 1), (2, 2, 1, 1), (2, 2, 2, 2), (3, 2, 3, 2), (2, 4, 2, 1), (1, 4, 2, 2), (2, 3, 2, 2),
]  # fmt: skip
SCALAR = ("counting", "commuting-trie")
ATTENTION = ("shared-key", "shared-query")


def scalar_targets(count, H, L):
    """Tied targets with d_in = d = 1."""
    return drawn_targets(count, True, H, L, 1, 1, 7)


def table_of_bounds():
    """{name: (notion, targets, free, dims, the bound on m)} with a row for every line of section 10.1."""
    dims = (2, 2, 2, 2, 2)
    return {
        "matching-untied": ("matching", "all untied", None, dims, 32),
        "matching-untied-single-head": ("matching", "all untied", None, (1, 3, 2, 2, 3), 15),
        "matching-tied": ("matching", "all tied", None, dims, 32),
        "matching-tied-single-layer": ("matching", "all tied", None, (3, 1, 1, 1, 4), 18),
        "shared-untied-E": ("shared attention", "all untied", "E", (2, 3, 1, 2, 2), 16),
        "shared-untied-E-d_out": ("shared attention", "all untied", "E", (2, 3, 1, 2, 5), 40),
        "shared-untied-E-and-U": ("shared attention", "all untied", "E and U", (2, 6, 1, 1, 1), 8),
        "shared-untied-E-and-U-odd": ("shared attention", "all untied", "E and U", (2, 3, 1, 1, 1), 3),
        "shared-tied-E": ("shared attention", "all tied", "E", (2, 6, 1, 1, 1), 7),
        "shared-tied-E-three-heads": ("shared attention", "all tied", "E", (3, 4, 2, 2, 2), 15),
        "shared-tied-E-and-U": ("shared attention", "all tied", "E and U", (2, 6, 1, 1, 1), 3),
        "functional-low-rank": ("functional", "all untied", None, (2, 1, 2, 3, 3), 12),
        "functional-full-rank": ("functional", "all untied", None, (3, 1, 3, 3, 3), 18),
        "functional-one-head": ("functional", "all untied", None, (1, 1, 1, 1, 1), 2),
    }


def more_valid():
    """Of the kinds of sections 8 to 10."""
    out = {}

    def add(name, found):
        assert name not in out, name
        out[name] = (found, {})

    for name in RANDOM:
        for dims, m in [((2, 2, 3, 2, 2), 38), ((2, 2, 3, 2, 2), 41), ((1, 1, 1, 1, 1), 3), ((1, 2, 4, 2, 2), 14)]:
            add(f"linear-{name}-{'h{}-l{}-d{}-in{}-out{}'.format(*dims)}-m{m}", linear(name, dims, m, seed=3))
        for law, dtype in [("signs", "float64"), ("binomial", "float16"), ("uniform", "bfloat16")]:
            for seed in range(50):
                found = linear(name, (2, 1, 3, 1, 1), 11, 10007, seed=seed, law=law, dtype=dtype)
                if judge(canonical(found), CORPUS) == 0:
                    break
            add(f"linear-{name}-{law}-{dtype}", found)

    for name in RULES:
        for dims in IDENTITY_SHAPES:
            H, L, d, b = dims
            if (name in ATTENTION and d < b) or (name in SCALAR and b > 1) or (name == "two-sided" and L % 2):
                continue
            add(f"identity-{name}-h{H}-l{L}-d{d}-in{b}", identity(name, dims))
        dims = (2, 2, 1, 1) if name in SCALAR else (2, 2, 2, 2)
        found = identity(name, dims)
        add(f"identity-{name}-padded", changed(found, "shape", "m", found["shape"]["m"] + 5))
        found = changed(found, "shape", "m", str(2**64))
        found["evidence"]["E"].append([2**53 - 1, []])
        found["evidence"]["E"].append([str(2**60), [found["evidence"]["E"][-2][1][0]] * 3])
        add(f"identity-{name}-m-beyond-2-to-the-64-and-blocks-in-the-padding", found)
    for name in ATTENTION:
        add(f"identity-{name}-two-layers-of-the-paper", identity(name, (4, 2, 24, 4)))
        add(f"identity-{name}-four-layers-of-the-paper", identity(name, (2, 4, 30, 30)))
        found = identity(name, (2, 2, 3, 1))
        for block in found["evidence"]["E"]:
            block[1].reverse()
        add(f"identity-{name}-numbers-in-another-order", found)
        for block in found["evidence"]["E"]:
            block[1] = [x.removesuffix("T") if x.endswith("T") else f"{x}T" for x in block[1]]
        add(f"identity-{name}-numbers-transposed", found)
    found = identity("shared-query", (2, 2, 2, 2))
    for at, block in enumerate(found["evidence"]["E"]):
        block[1][at % 2 : at % 2] = [["M2.0", "M2.0I"], ["M1.0IT", "M1.0T"], ["M1.0T", "M1.0", "M1.0I", "M1.0IT"]][
            at % 3
        ]
    add("identity-shared-query-pairs-that-cancel", found)
    found = identity("shared-query", (2, 2, 2, 1))
    for block in found["evidence"]["E"]:
        block[1] = ["M2.0I", *block[1], "M2.0T"]
    add("identity-shared-query-numbers-that-cancel-from-afar", found)
    add("identity-counting-below-the-looped-bound", identity("counting", (2, 6, 1, 1)))
    add("identity-counting-h3-l5", identity("counting", (3, 5, 1, 1)))
    add("identity-counting-h2-l10", identity("counting", (2, 10, 1, 1)))
    add("identity-commuting-trie-below-M", identity("commuting-trie", (2, 3, 1, 1)))
    add("identity-commuting-trie-d3", identity("commuting-trie", (2, 2, 3, 1)))
    add("identity-register-rank-one-targets", identity("register", (2, 2, 1, 3)))
    add("identity-two-sided-rank-one-targets", identity("two-sided", (2, 4, 1, 2)))
    found = identity("two-sided", (1, 4, 1, 1))
    found["evidence"] = {"E": [[0, ["M3.0", "M1.0T", "M4.0", "M2.0"]]], "U": [[0, []]]}
    add("identity-two-sided-all-numbers-in-E", found)

    for name, (notion, targets, free, dims, least) in table_of_bounds().items():
        for every in ("host", "tied host"):
            found = bound(notion, dims, least - 1, targets=targets, free=free, every=every)
            add(f"bound-{name}-{every.replace(' ', '-')}", found)
    add("bound-matching-untied-m-beyond-2-to-the-53", bound("matching", (2, 50, 3, 2, 2), 2**53))
    add("bound-functional-huge-d", bound("functional", (3, 1, 2**60, 2**61, 2**61), 1))
    add(
        "bound-shared-tied-many-heads",
        bound("shared attention", (2**50, 1, 1, 1, 1), 2**49, targets="all tied", free="E"),
    )

    for tied in (False, True):
        label = "tied" if tied else "untied"
        for H, L, d, d_in in [(2, 2, 2, 2), (2, 2, 2, 3), (1, 3, 3, 3), (2, 1, 1, 1)]:
            M = dimension(H, L, d, d_in, d_in)
            given = isolating(H, L, d, d_in, tied)
            add(
                f"span-{label}-isolating-h{H}-l{L}-d{d}-in{d_in}",
                span((H, L, d, d_in), M - 1, given, targets=f"all {label}"),
            )
    add("span-tied-d-below-L", span((2, 3, 2, 3), 79, drawn_targets(28, True, 2, 3, 2, 3, 1)))
    add("span-tied-commuting-targets", span((2, 3, 1, 1), 27, scalar_targets(32, 2, 3), every="tied host"))
    add("span-untied-drawn", span((2, 2, 1, 1), 15, drawn_targets(30, False, 2, 2, 1, 1, 2), targets="all untied"))
    add("span-prime-three", span((2, 1, 1, 1), 5, isolating(2, 1, 1, 1, True), prime=3))
    given = isolating(2, 1, 1, 1, True)
    add("span-with-an-empty-target", span((2, 1, 1, 1), 5, [*given, []]))
    given = changed(given, 0, 0, 5, str(-(10**30)))
    add("span-with-a-huge-entry", span((2, 1, 1, 1), 5, given))
    add("span-one-target", span((2, 2, 2, 2), 1, drawn_targets(1, True, 2, 2, 2, 2, 3)))

    for looped in (False, True):
        label = "looped" if looped else "unlooped"
        for H, L, m in [(2, 3, 2), (3, 2, 2), (2, 4, 3), (2, 1, 1), (1, 2, 1)]:
            R = drawn_values(looped, H, L, m, 5)
            if (H, L) == (1, 2):
                R = [[[[0]]]] if looped else [[[[0]]], [[[7]]]]
            y = word_kernel(R, looped, H, L)
            dims = (H, L, 1, 1, 1)
            add(f"null-vector-{label}-h{H}-l{L}-m{m}", null_vector(R, looped, dims, y))
        R = drawn_values(looped, 2, 3, 2, 6, 10**20)
        y = word_kernel(R, looped, 2, 3)
        R = [[[[written(x) for x in row] for row in a] for a in layer] for layer in R]
        add(f"null-vector-{label}-huge-entries", null_vector(R, looped, (2, 3, 2, 3, 4), y, min(y)))
    commuting = [[[[1, 0], [0, 2]], [[3, 0], [0, 5]]]]
    add("null-vector-looped-commutator", null_vector(commuting, True, (2, 2, 1, 1, 1), {1: 1, 2: -1}))
    nilpotent = [[[[0, 1], [0, 0]], [[2, 0], [0, 2]]]]
    add("null-vector-looped-of-60-layers", null_vector(nilpotent, True, (2, 60, 1, 1, 1), {3: 1}))
    return out


def more_invalid():
    out = {}

    def add(name, found):
        assert name not in out, name
        out[name] = (found, {})

    dims = (2, 2, 3, 2, 2)  # 38 columns, M = 44
    base = linear("random", dims, 40, seed=3)
    for attack, path_and_value in {
        "rank-is-M": ("claim", "rank", 44),
        "rank-is-m": ("claim", "rank", 40),
        "rank-off-by-one": ("claim", "rank", 37),
        "prime-two": ("evidence", "prime", 2),
        "prime-composite": ("evidence", "prime", 8388593 + 2),
        "m-below-the-columns": ("shape", "m", 37),
    }.items():
        add(f"linear-{attack}", changed(base, *path_and_value))
    add("linear-verdict-flipped", changed(changed(base, "claim", "verdict", "not universal"), "claim", "rank", ...))
    for name in RANDOM:
        for seed in range(500):
            found = linear(name, (1, 1, 2, 1, 1), 4, 3, seed=seed)
            if judge(canonical(found), CORPUS) == 1:
                break
        add(f"linear-{name}-singular-modulo-this-prime", found)
        for seed in range(500):
            found = linear(name, (1, 1, 2, 1, 1), 4, seed=seed, law="signs")
            if judge(canonical(found), CORPUS) == 1:
                break
        add(f"linear-{name}-singular-host", found)

    def altered(base, which, at, change):
        found = copy.deepcopy(base)
        found["evidence"][which][at][1] = change(found["evidence"][which][at][1])
        return found

    for name in RULES:
        dims = (2, 2, 1, 1) if name in SCALAR else (2, 2, 2, 2)
        base = identity(name, dims)
        base["shape"]["m"] += 3
        E = base["evidence"]["E"]
        last = len(E) - 1

        def with_e(attack, new, base=base, name=name):
            add(f"identity-{name}-{attack}", changed(base, "evidence", "E", new))

        def words(new, base=base):
            starts = [start for start, _ in base["evidence"]["E"]]
            return [list(pair) for pair in zip(starts, new, strict=True)]

        held = [word for _, word in E]
        with_e("first-two-words-swapped", words([held[1], held[0], *held[2:]]))
        with_e("last-two-words-swapped", words([*held[:-2], held[-1], held[-2]]))
        with_e("words-rotated", words([*held[1:], held[0]]))
        with_e("without-the-first-block", E[1:])
        with_e("without-the-last-block", E[:-1])
        with_e("no-blocks", [])
        with_e("one-word-everywhere", words([held[0]] * len(held)))
        with_e("last-block-off-by-one", [*E[:-1], [E[-1][0] + 1, E[-1][1]]])
        with_e("all-blocks-off-by-one", [[a + 1, word] for a, word in E])
        with_e("last-block-in-the-padding", [*E[:-1], [base["shape"]["m"] - dims[3], E[-1][1]]])
        with_e("empty-word-last", words([*held[:-1], []]))
        for at in (0, last):
            letter = held[at][0].removesuffix("T")  # ends in its head, 0 or 1
            head = f"{letter[:-1]}{1 - int(letter[-1])}" + "T" * held[at][0].endswith("T")
            add(f"identity-{name}-head-of-a-letter-{at}", altered(base, "E", at, lambda w, head=head: [head, *w[1:]]))
            add(f"identity-{name}-a-letter-less-{at}", altered(base, "E", at, lambda word: word[1:]))
            if held[at] != ["Q.0"]:
                add(f"identity-{name}-a-letter-twice-{at}", altered(base, "E", at, lambda word: [word[0], *word]))
        add(f"identity-{name}-verdict-flipped", changed(base, "claim", "verdict", "not universal"))
        if dims[3] > 1:
            flipped = held[0][-1].removesuffix("T") + "T" * (not held[0][-1].endswith("T"))
            with_e("a-letter-transposed", words([[*held[0][:-1], flipped], *held[1:]]))
            if name != "two-sided":
                with_e("words-reversed", words([word[::-1] for word in held]))
                with_e("numbers-only-in-another-order", words([*held[:-1], held[-1][::-1]]))
            else:
                with_e("layers-of-the-second-half", words([[x.replace("M1", "M2") for x in word] for word in held]))
    two = identity("two-sided", (2, 2, 2, 2))
    E, U = two["evidence"]["E"], two["evidence"]["U"]
    for attack, new in {
        "E-and-U-exchanged": {"E": U, "U": E},
        "U-without-a-block": {"E": E, "U": U[:1]},
        "U-empty": {"E": E, "U": []},
        "U-words-swapped": {"E": E, "U": [[0, U[1][1]], [2, U[0][1]]]},
        "U-off-by-one": {"E": E, "U": [[0, U[0][1]], [3, U[1][1]]]},
        "U-and-E-off-by-one": {"E": [[1, E[0][1]], [3, E[1][1]]], "U": [[1, U[0][1]], [3, U[1][1]]]},
        "all-letters-in-E": {"E": [[a, [*x, "M2.0"]] for a, x in E], "U": [[a, []] for a, _ in U]},
    }.items():
        add(f"identity-two-sided-{attack}", changed(changed(two, "shape", "m", 6), "evidence", new))
    query = identity("shared-query", (2, 2, 2, 2))
    for attack, old, new in [
        ("inverse-not-transposed", "M2.0IT", "M2.0I"),
        ("transpose-for-the-inverse", "M2.0IT", "M2.0T"),
        ("inverse-of-another-layer", "M2.0IT", "M1.0IT"),
        ("inverses-exchanged", "M1.0IT", "M2.0IT"),
        ("A-not-transposed", "A1.0T", "A1.0"),
        ("A-of-another-head", "A2.1T", "A2.0T"),
        ("A-of-another-layer", "A2.1T", "A1.1T"),
    ]:
        found = copy.deepcopy(query)
        for block in found["evidence"]["E"]:
            block[1] = [new if x == old else x for x in block[1]]
        add(f"identity-shared-query-{attack}", found)
    found = copy.deepcopy(query)
    for block in found["evidence"]["E"]:
        if block[1][-2:] == ["M1.0IT", "M2.0IT"]:
            block[1][-2:] = ["M2.0IT", "M1.0IT"]
    add("identity-shared-query-inverses-in-the-wrong-order", found)
    add("identity-shared-query-inverses-for-all-untied-targets", changed(query, "claim", "targets", "all untied"))
    plain = copy.deepcopy(query)
    for block in plain["evidence"]["E"]:
        block[1] = [x for x in block[1] if "I" not in x]
    add("identity-shared-query-no-inverse-for-invertible-targets", plain)
    add("identity-shared-query-no-inverse-for-all-untied-targets", changed(plain, "claim", "targets", "all untied"))
    found = identity("shared-query", (2, 2, 2, 1))
    for block in found["evidence"]["E"]:
        block[1] = [x for x in block[1] if x != "M2.0IT"]
    add("identity-shared-query-an-inverse-dropped-from-numbers", found)
    key = identity("shared-key", (2, 2, 2, 2))
    found = copy.deepcopy(key)
    for block in found["evidence"]["E"]:
        block[1] = [f"{x}T" if x[0] == "A" else x for x in block[1]]
    add("identity-shared-key-A-transposed", found)
    query_first = changed(
        key, "evidence", "E", [[a, word] for a, word in key["evidence"]["E"] if word and word[-1][0] == "A"]
    )
    add("identity-shared-key-queries-only", query_first)
    add(
        "identity-shared-key-host-renamed",
        changed(changed(key, "claim", "host", "construction", "shared-query"), "shape", "m", 26),
    )
    wide = identity("shared-key", (2, 1, 2, 2))
    add("identity-shared-key-another-width", changed(changed(wide, "shape", "d_in", 1), "shape", "d_out", 1))
    add("identity-shared-key-of-numbers-in-another-order-for-matrices", key_of_reversed_words())
    trie = identity("commuting-trie", (2, 2, 2, 1))
    E = trie["evidence"]["E"]
    for attack, change in {
        "Q-and-K-exchanged": lambda word: [x.translate(str.maketrans("QK", "KQ")) for x in word],
        "heads-exchanged": lambda word: [x.translate(str.maketrans("01", "10")) for x in word],
        "weights-for-queries": lambda word: word[:-1] if word[-1][0] == "Q" else word,
        "one-weight-more": lambda word: ["M.0", *word],
    }.items():
        add(f"identity-commuting-trie-{attack}", changed(trie, "evidence", "E", [[a, change(word)] for a, word in E]))
    add("identity-commuting-trie-of-d-two-at-d-one", changed(trie, "shape", "head_dim", 1))
    count = identity("counting", (2, 6, 1, 1))
    add("identity-counting-of-another-depth", changed(count, "shape", "layers", 5))
    add("identity-register-of-another-depth", changed(identity("register", (2, 3, 1, 1), 16), "shape", "layers", 4))

    for name, (notion, targets, free, dims, least) in table_of_bounds().items():
        for attack, m in {"m-at-the-bound": least, "m-huge": 2**80}.items():
            add(f"bound-{name}-{attack}", bound(notion, dims, m, targets=targets, free=free))
        found = bound(notion, dims, least - 1, targets=targets, free=free)
        add(f"bound-{name}-verdict-flipped", changed(found, "claim", "verdict", "universal"))
    dims = (2, 6, 1, 1, 1)
    add(
        "bound-looped-targets-with-the-untied-bound",
        bound("shared attention", dims, 7, targets="all tied", free="E and U"),
    )
    add(
        "bound-looped-targets-with-the-bound-of-one-free",
        bound("shared attention", dims, 6, targets="all tied", free="E and U"),
    )
    add("bound-E-and-U-with-the-bound-of-E", bound("shared attention", dims, 63, free="E and U"))
    add("bound-functional-M-for-the-fibre-bound", bound("functional", (2, 1, 2, 3, 3), 13))

    given = isolating(2, 2, 2, 2, True)
    base = span((2, 2, 2, 2), 31, given)
    for attack, path_and_value in {
        "m-at-the-rank": ("shape", "m", 32),
        "m-huge": ("shape", "m", str(2**70)),
        "prime-two": ("evidence", "prime", 2),
        "prime-composite": ("evidence", "prime", 2**31 - 3),
        "too-few-targets": ("evidence", "targets", given[:15]),
        "half-of-the-targets-twice": ("evidence", "targets", [*given[:14], *given[:14]]),
        "only-empty-targets": ("evidence", "targets", [[]] * 40),
        "one-target": ("evidence", "targets", given[:1]),
    }.items():
        add(f"span-{attack}", changed(base, *path_and_value))
    add("span-verdict-flipped", changed(base, "claim", "verdict", "universal"))
    add("span-commuting-targets-have-no-more", span((2, 3, 1, 1), 28, scalar_targets(60, 2, 3)))
    given = isolating(2, 1, 1, 1, True)
    add("span-a-target-less", span((2, 1, 1, 1), 5, given[1:]))
    add("span-a-target-twice", span((2, 1, 1, 1), 5, [given[1], *given[1:]]))
    add("span-zero-modulo-this-prime", span((2, 1, 1, 1), 5, changed(given, 0, 0, 5, 3), prime=3))
    add(
        "span-of-targets-called-untied",
        span((2, 3, 1, 1), 28, untied_copies(scalar_targets(60, 2, 3), 3), targets="all untied"),
    )

    R = drawn_values(False, 2, 3, 2, 5)
    y = word_kernel(R, False, 2, 3)
    dims = (2, 3, 1, 1, 1)
    base = null_vector(R, False, dims, y)
    absent = next(i for i in range(8) if i not in y)
    for attack, found in {
        "word-outside-y": changed(base, "evidence", "word", absent),
        "y-off-by-one": null_vector(R, False, dims, {i: v + (i == max(y)) for i, v in y.items()}),
        "y-shifted": null_vector(R, False, dims, {(i + 1) % 8: v for i, v in y.items()}),
        "one-entry": null_vector(R, False, dims, {0: 1}),
        "layers-reversed": null_vector(R[::-1], False, dims, y),
        "heads-exchanged": null_vector([layer[::-1] for layer in R], False, dims, y),
        "matrices-transposed": null_vector(
            [[[list(row) for row in zip(*a, strict=True)] for a in layer] for layer in R], False, dims, y
        ),
        "an-entry-changed": changed(base, "claim", "host", "R_V", 1, 0, 0, 0, 9),
        "y-plus-2-to-the-64": null_vector(R, False, dims, {i: v + 2**64 * (i == min(y)) for i, v in y.items()}),
        "verdict-flipped": changed(base, "claim", "verdict", "universal"),
    }.items():
        add(f"null-vector-{attack}", found)
    looped = drawn_values(True, 2, 3, 2, 5)
    add(
        "null-vector-of-the-unlooped-host",
        null_vector(looped, True, dims, word_kernel([looped[0], *R[1:]], False, 2, 3)),
    )
    return out


def untied_copies(targets, L):
    """Tied targets as untied ones whose layers are the same: they span no more."""
    return [
        sorted([tensor, layer, *rest] for tensor, _, *rest in entries for layer in range(1, L + 1))
        for entries in targets
    ]


def key_of_reversed_words():
    """Words in the order that only numbers may have."""
    found = identity("shared-key", (2, 2, 2, 2))
    for block in found["evidence"]["E"]:
        block[1].reverse()
    return found


def more_malformed():
    out = {}

    def add(name, content):
        assert name not in out, name
        out[name] = content if isinstance(content, bytes) else (content, {})

    base = linear("random", (2, 1, 3, 2, 2), 20, seed=3)
    add("linear-notion-matching", changed(base, "claim", "notion", "matching"))
    add("linear-targets-tied", changed(base, "claim", "targets", "all tied"))
    add("linear-rank-missing", changed(base, "claim", "rank", ...))
    add("linear-free", added(base, "claim", "free", "E"))
    add("linear-witness", changed(base, "evidence", "method", "witness"))
    add("linear-method-missing", changed(base, "evidence", "method", ...))
    add("linear-d-below-d_in", changed(base, "shape", "head_dim", 1))
    add("linear-d_in-is-not-d_out", changed(base, "shape", "d_out", 1))
    add("linear-of-sparse", changed(base, "claim", "host", {"construction": "sparse"}))
    add("linear-of-an-identity", changed(base, "claim", "host", {"construction": "register"}))
    add("linear-of-every-host", changed(base, "claim", "host", {"every": "host"}))
    add("linear-prime-out-of-range", changed(base, "evidence", "prime", 2**31))
    add("linear-verdict-flipped-but-rank-kept", changed(base, "claim", "verdict", "not universal"))
    add("linear-weights-not-found", changed(base, "claim", "host", {"system": "universal", "weights": "0" * 64}))
    modular = document("rank-modular", "random", (2, 1, 3, 2, 2), 20, {"method": "recompute", "prime": 3}, rank=16)
    add("rank-modular-called-attention-matching", changed(modular, "claim", "notion", "attention-matching"))
    for name in ("register", "two-sided", "counting", "commuting-trie"):
        add(
            f"rank-deficient-of-{name}",
            document("rank-deficient", name, (2, 2, 1, 1, 1), 3, {"method": "dimension"}),
        )

    for name in RULES:
        dims = (2, 2, 1, 1) if name in SCALAR else (2, 2, 2, 2)
        base = identity(name, dims)
        E = base["evidence"]["E"]
        letter = E[0][1][0]
        rest = E[0][1][1:]

        def attack(case, *path_and_value, base=base, name=name):
            add(f"identity-{name}-{case}", changed(base, *path_and_value))

        attack("m-below-the-least", "shape", "m", base["shape"]["m"] - 1)
        attack("d_out-is-not-d_in", "shape", "d_out", dims[3] + 1)
        if name in ATTENTION:
            attack("d-below-d_in", "shape", "head_dim", 1)
        if name in SCALAR:
            add(f"identity-{name}-d_in-two", changed(changed(base, "shape", "d_in", 2), "shape", "d_out", 2))
        if name == "two-sided":
            attack("odd-L", "shape", "layers", 3)
        for notion in ("matching", "attention-matching", "functional", "shared attention", "Matching", ""):
            if notion != base["claim"]["notion"]:
                found = changed(base, "claim", "notion", notion)
                add(f"identity-{name}-called-{notion.replace(' ', '-')}", found)
                if notion == "shared attention":
                    add(f"identity-{name}-called-shared-attention-with-E-free", added(found, "claim", "free", "E"))
        for targets in ("all untied", "all tied", INVERTIBLE, "almost all untied"):
            if targets not in RULES[name][1]:
                attack(f"targets-{targets.replace(' ', '-')}", "claim", "targets", targets)
        if RULES[name][2] is None:
            add(f"identity-{name}-free-stated", added(base, "claim", "free", "E"))
            add(f"identity-{name}-U-given", added(base, "evidence", "U", []))
        else:
            attack("free-missing", "claim", "free", ...)
            attack("free-U", "claim", "free", "U")
            attack("free-the-other", "claim", "free", "E" if RULES[name][2] == "E and U" else "E and U")
            if RULES[name][2] == "E":
                add(f"identity-{name}-U-given", added(base, "evidence", "U", []))
                both = added(changed(base, "claim", "free", "E and U"), "evidence", "U", [])
                add(f"identity-{name}-U-given-and-free", both)
            else:
                attack("U-missing", "evidence", "U", ...)
                attack("U-overlaps", "evidence", "U", [[0, ["M2.0"]], [1, ["M2.1"]]])
                attack("U-ends-beyond-m", "evidence", "U", [[3, ["M2.0"]]])
                attack("U-with-Q", "evidence", "U", [[0, ["Q2.0"]]])
        add(f"identity-{name}-rank-stated", added(base, "claim", "rank", 8))
        add(f"identity-{name}-unknown-evidence", added(base, "evidence", "method", "words"))
        attack("E-missing", "evidence", "E", ...)
        attack("E-an-object", "evidence", "E", {})
        attack("E-null", "evidence", "E", None)
        attack("start-negative", "evidence", "E", 0, 0, -1)
        attack("start-string", "evidence", "E", 0, 0, "0")
        attack("start-true", "evidence", "E", 1, 0, True)
        attack("block-of-three", "evidence", "E", 0, [0, E[0][1], 1])
        attack("block-of-one", "evidence", "E", 0, [0])
        attack("block-a-word", "evidence", "E", 0, E[0][1])
        attack("word-a-string", "evidence", "E", 0, 1, letter)
        attack("word-null", "evidence", "E", 0, 1, None)
        attack("letter-a-number", "evidence", "E", 0, 1, [0, *rest])
        attack("letter-a-list", "evidence", "E", 0, 1, [[letter], *rest])
        attack("blocks-decrease", "evidence", "E", E[::-1])
        attack("block-twice", "evidence", "E", [E[0], *E])
        attack("block-ends-beyond-m", "evidence", "E", [*E[:-1], [base["shape"]["m"] - dims[3] + 1, E[-1][1]]])
        attack("block-beyond-2-to-the-64", "evidence", "E", [*E, [str(2**64), []]])
        if dims[3] > 1:
            attack("blocks-overlap", "evidence", "E", 1, 0, E[1][0] - 1)
        tied = name in SCALAR
        good = "M." if tied else "M1."
        for case, text in {
            "empty": "", "lower-case": f"{good.lower()}0", "unknown": "B.0" if tied else "B1.0", "no-head": good,
            "head-H": f"{good}2", "head-negative": f"{good}-1", "head-01": f"{good}01", "head-huge": f"{good}{'9' * 5000}",
            "of-the-other-kind": "M1.0" if tied else "M.0", "layer-zero": "M0.0", "layer-L-plus-1": "M3.0",
            "layer-01": "M01.0", "suffix-TT": f"{good}0TT", "suffix-TI": f"{good}0TI", "suffix-t": f"{good}0t",
            "suffix-II": f"{good}0II", "inverse-of-A": f"A{good[1:]}0I", "inverse-of-head-1": f"{good}1I",
            "transposed-Q": f"Q{good[1:]}0T", "trailing-space": f"{good}0 ", "nul": f"{good}0\0",
            "arabic-digit": f"{good}\u0660", "newline": f"{good}0\n", "superscript": f"{good}\u00b2",
        }.items():  # fmt: skip
            attack(f"letter-{case}", "evidence", "E", 0, 1, [text, *rest])
        if name != "shared-query":
            attack("letter-inverse", "evidence", "E", 0, 1, [f"{good}0I", f"{good}0", *E[0][1]])
            attack("letter-inverse-of-the-transpose", "evidence", "E", 0, 1, [f"{good}0IT", *E[0][1]])
        if name != "commuting-trie":
            attack("letter-Q", "evidence", "E", 0, 1, [*E[0][1], f"Q{good[1:]}0"])
        else:
            attack("Q-in-the-middle", "evidence", "E", 0, 1, ["Q.0", "M.0"])
            attack("two-Q", "evidence", "E", 0, 1, ["Q.0", "Q.0"])
            attack("Q-then-K", "evidence", "E", 0, 1, ["Q.0", "K.0"])
    for name in ("sparse", "tied", "random", "printed-looped", "shared", "", None, ["register"]):
        found = changed(identity("register", (2, 2, 1, 1)), "claim", "host", "construction", name)
        label = {"": "empty", None: "null"}.get(name, name) if not isinstance(name, list) else "a-list"
        add(f"identity-of-construction-{label}", found)
    found = changed(identity("shared-key", (2, 1, 1, 1)), "claim", "host", {"system": "universal", "weights": "0" * 64})
    add("identity-of-weights", found)
    add("identity-of-every-host", changed(found, "claim", "host", {"every": "host"}))
    add("identity-host-with-a-seed", added(identity("register", (2, 2, 1, 1)), "claim", "host", "seed", 0))

    base = bound("shared attention", (2, 2, 2, 2, 2), 1, free="E")
    for case, path_and_value in {
        "every-host-plural": ("claim", "host", {"every": "hosts"}),
        "every-null": ("claim", "host", {"every": None}),
        "every-list": ("claim", "host", {"every": ["host"]}),
        "every-and-construction": ("claim", "host", {"construction": "tied", "every": "host"}),
        "every-and-values": ("claim", "host", {"R_V": [], "every": "host"}),
        "of-a-construction": ("claim", "host", {"construction": "tied"}),
        "of-a-system-without-values": ("claim", "host", {"system": "shared-attention-universal"}),
        "of-values-null": ("claim", "host", {"R_V": None, "system": "shared-attention-universal"}),
        "free-missing": ("claim", "free", ...),
        "free-U": ("claim", "free", "U"),
        "free-list": ("claim", "free", ["E"]),
        "free-null": ("claim", "free", None),
        "notion-without-free": ("claim", "notion", "matching"),
        "notion-attention-matching": ("claim", "notion", "attention-matching"),
        "notion-list": ("claim", "notion", ["shared attention"]),
        "targets-invertible": ("claim", "targets", INVERTIBLE),
        "targets-almost-all": ("claim", "targets", "almost all untied"),
        "method-unknown": ("evidence", "method", "dimensions"),
        "method-null-vector": ("evidence", "method", "null-vector"),
        "method-span": ("evidence", {"method": "span", "prime": 3, "targets": [[]]}),
        "evidence-with-a-bound": ("evidence", {"bound": 8, "method": "dimension"}),
        "m-zero": ("shape", "m", 0),
    }.items():
        add(f"bound-{case}", changed(base, *path_and_value))
    add("bound-rank-stated", added(base, "claim", "rank", 8))
    add(
        "bound-rank-stated-and-verdict-flipped",
        added(changed(base, "claim", "verdict", "universal"), "claim", "rank", 8),
    )
    for case, (notion, targets, dims) in {
        "matching-tied-d_in-below-L": ("matching", "all tied", (2, 3, 3, 2, 2)),
        "matching-tied-d-below-L": ("matching", "all tied", (2, 3, 2, 3, 3)),
        "matching-free": ("matching", "all untied", (2, 2, 2, 2, 2)),
        "functional-two-layers": ("functional", "all untied", (2, 2, 1, 2, 2)),
        "functional-d-above-d_in": ("functional", "all untied", (2, 1, 3, 2, 2)),
        "functional-d_in-is-not-d_out": ("functional", "all untied", (2, 1, 1, 2, 3)),
        "functional-tied": ("functional", "all tied", (2, 1, 1, 2, 2)),
        "attention-matching": ("attention-matching", "all untied", (2, 1, 1, 2, 2)),
    }.items():
        add(f"bound-{case}", bound(notion, dims, 1, targets=targets, free="E" if case == "matching-free" else None))

    given = isolating(2, 1, 1, 1, True)  # entries [tensor, 0, h, 0, 0, 1]
    base = span((2, 1, 1, 1), 5, given)
    for case, entry in {
        "too-short": ["W_Q", 0, 0, 0, 0],
        "too-long": ["W_Q", 0, 0, 0, 0, 1, 1],
        "an-object": {"W_Q": 1},
        "tensor-unknown": ["W_E", 0, 0, 0, 0, 1],
        "tensor-null": [None, 0, 0, 0, 0, 1],
        "tensor-list": [["W_Q"], 0, 0, 0, 0, 1],
        "layer-of-an-untied-target": ["W_Q", 1, 0, 0, 0, 1],
        "layer-negative": ["W_Q", -1, 0, 0, 0, 1],
        "head-H": ["W_Q", 0, 2, 0, 0, 1],
        "head-negative": ["W_Q", 0, -1, 0, 0, 1],
        "row-outside": ["W_Q", 0, 0, 1, 0, 1],
        "row-negative": ["W_Q", 0, 0, -1, 0, 1],
        "column-outside": ["W_Q", 0, 0, 0, 1, 1],
        "value-zero": ["W_Q", 0, 0, 0, 0, 0],
        "value-null": ["W_Q", 0, 0, 0, 0, None],
        "value-string": ["W_Q", 0, 0, 0, 0, "1"],
        "value-true": ["W_Q", 0, 0, 0, 0, True],
    }.items():
        add(f"span-entry-{case}", changed(base, "evidence", "targets", 0, [entry]))
    one, two = ["W_K", 0, 0, 0, 0, 1], ["W_Q", 0, 0, 0, 0, 1]
    for case, new in {
        "entries-unsorted": [[two, one]],
        "entry-twice": [[one, one]],
        "no-targets": [],
        "targets-null": None,
        "target-null": [None],
        "target-an-object": [{}],
        "targets-flat": [one],
    }.items():
        add(f"span-{case}", changed(base, "evidence", "targets", new))
    tall = span((1, 1, 2, 1), 2, [[["W_Q", 0, 0, 0, 1, 1]]])
    add("span-entry-of-W_O-with-rows-and-columns-exchanged", changed(tall, "evidence", "targets", 0, 0, 0, "W_O"))
    add("span-prime-missing", changed(base, "evidence", "prime", ...))
    add("span-prime-out-of-range", changed(base, "evidence", "prime", 1))
    add("span-d_in-is-not-d_out", changed(base, "shape", "d_out", 2))
    add("span-functional", changed(base, "claim", "notion", "functional"))
    add("span-shared-attention", added(changed(base, "claim", "notion", "shared attention"), "claim", "free", "E"))
    add("span-targets-called-untied", changed(base, "claim", "targets", "all untied"))
    add("span-of-a-given-host", changed(base, "claim", "host", {"R_V": [], "system": "shared-attention-universal"}))
    untied = span((2, 1, 1, 1), 5, isolating(2, 1, 1, 1, False), targets="all untied")
    add("span-targets-called-tied", changed(untied, "claim", "targets", "all tied"))
    add("span-entry-layer-L-plus-1", changed(untied, "evidence", "targets", 0, 0, 1, 2))

    R = drawn_values(False, 2, 3, 2, 5)
    y = word_kernel(R, False, 2, 3)
    base = null_vector(R, False, (2, 3, 1, 1, 1), y)
    pairs = base["evidence"]["y"]
    for case, path_and_value in {
        "word-H-to-the-L": ("evidence", "word", 8),
        "word-negative": ("evidence", "word", -1),
        "word-a-list": ("evidence", "word", [0, 0, 0]),
        "word-null": ("evidence", "word", None),
        "word-missing": ("evidence", "word", ...),
        "y-empty": ("evidence", "y", []),
        "y-null": ("evidence", "y", None),
        "y-unsorted": ("evidence", "y", pairs[::-1]),
        "y-position-twice": ("evidence", "y", [pairs[0], *pairs]),
        "y-zero-value": ("evidence", "y", 0, 1, 0),
        "y-position-H-to-the-L": ("evidence", "y", [*pairs, [8, 1]]),
        "y-position-negative": ("evidence", "y", [[-1, 1], *pairs]),
        "y-dense": ("evidence", "y", [1, 2, 3]),
        "y-triples": ("evidence", "y", [[0, 1, 1]]),
        "y-4097-entries": ("evidence", "y", [[i, 1] for i in range(4097)]),
        "method-dimension": ("evidence", {"method": "dimension"}),
        "every-host": ("claim", "host", {"every": "host"}),
        "system-looped": ("claim", "host", "system", "looped-shared-attention-universal"),
        "system-universal": ("claim", "host", "system", "universal"),
        "system-null": ("claim", "host", "system", None),
        "system-missing": ("claim", "host", "system", ...),
        "tied-targets": ("claim", "targets", "all tied"),
        "E-free": ("claim", "free", "E"),
        "free-missing": ("claim", "free", ...),
        "m-of-the-shape-above": ("shape", "m", 3),
        "m-of-the-shape-below": ("shape", "m", 1),
        "m-of-the-shape-huge": ("shape", "m", str(2**70)),
        "heads-of-the-shape": ("shape", "heads", 3),
        "layers-of-the-shape": ("shape", "layers", 4),
        "values-null": ("claim", "host", "R_V", None),
        "values-of-a-layer-less": ("claim", "host", "R_V", R[1:]),
        "values-of-a-head-less": ("claim", "host", "R_V", 0, R[0][:1]),
        "values-of-a-row-less": ("claim", "host", "R_V", 0, 0, R[0][0][:1]),
        "values-of-a-row-more": ("claim", "host", "R_V", 2, 1, [*R[2][1], [0, 0]]),
        "values-of-an-entry-less": ("claim", "host", "R_V", 0, 0, 0, [1]),
        "values-with-a-row-null": ("claim", "host", "R_V", 0, 0, 0, None),
        "values-with-an-entry-null": ("claim", "host", "R_V", 0, 0, 0, 0, None),
        "values-with-an-entry-string": ("claim", "host", "R_V", 0, 0, 0, 0, "1"),
        "values-with-an-entry-true": ("claim", "host", "R_V", 0, 0, 0, 0, True),
        "values-flat": ("claim", "host", "R_V", R[0]),
    }.items():
        add(f"null-vector-{case}", changed(base, *path_and_value))
    matching = changed(changed(base, "claim", "notion", "matching"), "claim", "free", ...)
    add("null-vector-called-matching", matching)
    add("null-vector-values-with-a-float", canonical(base).replace(b'"R_V":[[[[', b'"R_V":[[[[1.5,'))
    deep = canonical(base).replace(b'"R_V":[', b'"R_V":[' + b"[" * 5000 + b"]" * 5000 + b",")
    add("null-vector-values-nested-deeply", deep)
    add(
        "identity-word-nested-deeply",
        canonical(identity("register", (2, 1, 1, 1))).replace(b'["M1.0"]', b"[" * 5000 + b"]" * 5000),
    )
    return out


# ----------------------------------------------------------------------------------------------------
# Weights from a file, tied targets and gauges: sections 4.8, 7, 8 and 11


def packed(kind, numbers):
    """Numbers as the bytes of this type; BF16 by truncation of float32."""
    if kind[0] in "IU":
        return b"".join(int(x).to_bytes(int(kind[1:]) // 8, "little", signed=kind[0] == "I") for x in numbers)
    if kind == "BF16":
        return b"".join(struct.pack("<f", x)[2:] for x in numbers)
    return struct.pack(f"<{len(numbers)}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[kind] }", *numbers)


def safetensors(tensors, metadata=None, order=None):
    """A file's bytes. tensors: {name: (type, shape, bytes)}."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name in order or tensors:
        kind, shape, content = tensors[name]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def weights_shapes(tied, dims, m, inner=None):
    H, L, d, _, d_out = dims
    lead = (H,) if tied else (L, H)
    out = {"R_Q": (*lead, m, d), "R_K": (*lead, m, d), "U": (m, d_out)}
    values = {"R_V": (*lead, m, m)} if inner is None else {"R_Vv": (*lead, m, inner), "R_Vo": (*lead, inner, m)}
    return out | values


def drawn_weights(tied, dims, m, seed, kinds="F32", inner=None, size=9):
    """{name: (type, shape, bytes)}; kinds: one type, or one for each tensor."""
    source, out = random.Random(seed), {}
    for name, shape in weights_shapes(tied, dims, m, inner).items():
        kind = kinds if type(kinds) is str else kinds[name]
        low = 0 if kind[0] == "U" else -size
        numbers = [source.randint(low, size) for _ in range(int(np.prod(shape)))]
        if kind[0] in "FB":
            numbers = [x / 4 for x in numbers]
        out[name] = (kind, shape, packed(kind, numbers))
    return out


def of_weights(kind, tied, tensors, dims, m, evidence, *, label, rank=None, targets="all untied", raw=None):
    """(document, {file name: content})."""
    found = document(kind, None, dims, m, evidence, rank=rank)
    host = {"system": "looped-universal" if tied else "universal", "weights": digest_of(tensors)}
    found["claim"] |= {"host": host, "targets": targets}
    if kind == "linear-test":
        found["claim"]["notion"] = "attention-matching"
    return found, {f"{label}.safetensors": safetensors(tensors) if raw is None else raw}


RECOMPUTE = {"method": "recompute", "prime": 8388593}


def dense_trie(dims, unimodular=None, kind="I8", scale=1):
    """The host `commuting-trie` as a looped host's tensors; dims = (H, L, d). With a seed, in another basis."""
    H, L, d = dims
    Q, K, V, U = identity_host("commuting-trie", H, L, d, 1)
    m = identity_least("commuting-trie", H, L, d, 1)

    def full(matrix, columns):
        out = np.zeros((m, columns), dtype=object)
        for j, rows in matrix.items():
            for i in rows:
                out[i, j] += 1
        return out

    left = right = np.array([[int(i == j) for j in range(m)] for i in range(m)], dtype=object)
    if unimodular is not None:
        source = random.Random(unimodular)
        for _ in range(m):
            a, b = source.sample(range(m), 2)
            step, back = np.copy(np.eye(m, dtype=int)).astype(object), np.eye(m, dtype=int).astype(object)
            step[a, b], back[a, b] = 1, -1
            left, right = left.dot(step), back.dot(right)
    parts = {
        "R_Q": np.array([left.dot(full(Q(1, h), d)) for h in range(H)]),
        "R_K": np.array([left.dot(full(K(1, h), d)) for h in range(H)]),
        "R_V": np.array([left.dot(full(V(1, h), m)).dot(right) * scale for h in range(H)]),
        "U": left.dot(full(U, 1)),
    }
    return m, {name: (kind, a.shape, packed(kind, list(a.reshape(-1)))) for name, a in parts.items()}


def commuting_kernel(H, L, d):
    """Vectors that W_all of every tied target with d_in = 1 annihilates: differences of columns with equal letters."""
    seen, out, position = {}, [], 0
    for part in "QKU":
        for w in naive.words(H, L) if part == "U" else by_length(H, 1, L):
            for j in range(1 if part == "U" else d):
                key = (part, tuple(sorted(w)), j) if part == "U" else (part, tuple(sorted(w[:-1])), w[-1], j)
                if key in seen:
                    out.append({seen[key]: 1, position: -1})
                else:
                    seen[key] = position
                position += 1
    return out


def pairs_of(z):
    return [[written(i), written(z[i])] for i in sorted(z)]


def tied_kernel(dims, label, basis=None, prime=2**31 - 1, **options):
    """A certificate of section 11 about a commuting trie; dims = (H, L, d)."""
    H, L, d = dims
    m, tensors = dense_trie(dims, **options)
    basis = commuting_kernel(H, L, d) if basis is None else basis
    evidence = {"basis": [pairs_of(z) for z in basis], "prime": prime}
    rank = dimension(H, L, d, 1, 1) - len(basis)
    return of_weights(
        "tied-kernel", True, tensors, (*dims, 1, 1), m, evidence, label=label, rank=rank, targets="all tied"
    )


def tied_target_evidence(dims, basis, row=0, seed=0, target=None):
    """The first vector of the basis with a drawn target's row that is not zero."""
    H, L, d, d_in, _ = dims
    for drawn in range(seed, seed + 50):
        (entries,) = drawn_targets(1, True, H, L, d, d_in, drawn) if target is None else [target]
        line = target_line(target_table(entries, True, H, L, d, d_in), row, H, L, d, d_in)
        for z in basis:
            if sum(line[i] * v for i, v in z.items()):
                return {"method": "tied-target", "row": row, "target": entries, "z": pairs_of(z)}
    raise AssertionError


def tied_target(name, dims, m=None, row=0, seed=0, **drawn):
    """A certificate of section 7 that refutes this construction for tied targets."""
    m = least_m(name, *dims) if m is None else m
    evidence = tied_target_evidence(dims, kernel_basis(matrix_of(name, dims, m, **drawn)), row, seed)
    return changed(document("rank-deficient", name, dims, m, evidence, **drawn), "claim", "targets", "all tied")


def drawn_gauges(layers, H, d_in, d, seed):
    source = random.Random(seed)
    return [[[[source.randint(-3, 3) for _ in range(d)] for _ in range(d_in)] for _ in range(H)] for _ in range(layers)]


def gauged(name, dims, m, gauge, **drawn):
    found = linear(name, dims, m, **drawn)
    H, L, d, d_in, _ = dims
    return added(found, "evidence", "gauges", drawn_gauges(1 if name == "random-tied" else L, H, d_in, d, gauge))


MIXED = {"R_Q": "F32", "R_K": "I8", "R_V": "F16", "U": "F64", "R_Vv": "BF16", "R_Vo": "U8"}


def stored_valid():
    out = {}

    def add(name, found):
        assert name not in out, name
        out[name] = found if type(found) is tuple else (found, {})

    dims, M = (2, 1, 1, 1, 1), 6
    for kind in ("F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"):
        label = f"weights-modular-{kind}"
        add(label, of_weights("rank-modular", False, drawn_weights(False, dims, 7, 1, kind), dims, 7, RECOMPUTE,
                              label=label, rank=M))  # fmt: skip
    dims, M = (2, 2, 1, 2, 2), 20
    for tied in (False, True):
        system = "looped" if tied else "unlooped"
        for inner in (None, 21):
            label = f"weights-modular-{system}" + ("-factored" if inner else "")
            tensors = drawn_weights(tied, dims, 21, 3, MIXED, inner)
            add(label, of_weights("rank-modular", tied, tensors, dims, 21, RECOMPUTE, label=label, rank=M))
        small = (1, 2, 1, 1, 1)
        label = f"weights-kernel-{system}"
        for kinds in ("I8", MIXED):
            for inner in (None, 2):
                label = f"weights-kernel-{system}-{'mixed' if kinds is MIXED else kinds}" + (
                    "-factored" if inner else ""
                )
                tensors = drawn_weights(tied, small, 4, 4, kinds, inner)
                integers, factors = Stored(tensors, tied, small, 4).integers()
                z = kernel_basis(integers * np.array(factors, dtype=object))[0]
                add(label, of_weights("rank-deficient", tied, tensors, small, 4, kernel_evidence(z), label=label))
        label = f"weights-dimension-{system}"
        tensors = drawn_weights(tied, dims, 3, 5, "F16")
        add(label, of_weights("rank-deficient", tied, tensors, dims, 3, {"method": "dimension"}, label=label))
        wide = (2, 2, 3, 2, 2)
        for gauges in (None, drawn_gauges(1 if tied else 2, 2, 2, 3, 1)):
            label = f"weights-linear-{system}" + ("-gauged" if gauges else "")
            tensors = drawn_weights(tied, wide, 39, 6, "I8")
            evidence = RECOMPUTE | ({"gauges": gauges} if gauges else {})
            add(label, of_weights("linear-test", tied, tensors, wide, 39, evidence, label=label, rank=38))
        label = f"weights-tied-target-{system}"
        tensors = drawn_weights(tied, (2, 2, 1, 1, 1), 14, 8, MIXED)
        integers, factors = Stored(tensors, tied, (2, 2, 1, 1, 1), 14).integers()
        evidence = tied_target_evidence((2, 2, 1, 1, 1), kernel_basis(integers * np.array(factors, dtype=object)))
        add(label, of_weights("rank-deficient", tied, tensors, (2, 2, 1, 1, 1), 14, evidence, label=label,
                              targets="all tied"))  # fmt: skip
    tiny = (1, 1, 1, 1, 1)
    tensors = drawn_weights(False, tiny, 3, 11, "F32")
    label = "weights-witness"
    matrix, _ = Stored(tensors, False, tiny, 3).integers()
    from flint import nmod_mat

    inverse = nmod_mat(3, 3, [int(x) % 101 for x in matrix.reshape(-1)], 101).inv()
    numbers = [int(inverse[a, b]) for a in range(3) for b in range(3)]
    evidence = {"inverse": numbers, "method": "witness", "prime": 101, "rows": [0, 1, 2]}
    add(label, of_weights("rank-modular", False, tensors, tiny, 3, evidence, label=label, rank=3))
    label = "weights-metadata-and-another-order"
    tensors = drawn_weights(False, tiny, 3, 12, "F32")
    raw = safetensors(tensors, {"system": "anything", "d_in": "7"}, ["U", "R_V", "R_K", "R_Q"])
    add(label, of_weights("rank-modular", False, tensors, tiny, 3, RECOMPUTE, label=label, rank=3, raw=raw))
    label = "weights-subnormal-and-huge-entries"
    tensors = drawn_weights(False, tiny, 3, 13, "F64")
    tensors["R_Q"] = ("F64", (1, 1, 3, 1), packed("F64", [2.0**-1074, -(2.0**1023), 3 * 2.0**-1060]))
    add(label, of_weights("rank-modular", False, tensors, tiny, 3, RECOMPUTE, label=label, rank=3))

    for name, dims, m in [
        ("printed-looped", (2, 3, 1, 1, 1), None),
        ("printed-looped", (2, 2, 1, 2, 2), 20),
        ("printed-looped", (2, 2, 2, 2, 2), None),
        ("shared-key", (2, 2, 2, 2, 2), None),
        ("shared-query", (2, 2, 2, 1, 1), 17),
        ("printed-tree-row", (2, 2, 1, 2, 2), None),
        ("printed-tree-column", (2, 2, 1, 1, 1), 30),
        ("printed-single-head", (1, 2, 2, 2, 2), None),
    ]:
        label = f"tied-target-{name}-" + "h{}-l{}-d{}-in{}-out{}".format(*dims) + ("" if m is None else f"-m{m}")
        add(label, tied_target(name, dims, m))
    add("tied-target-last-row", tied_target("printed-looped", (2, 2, 1, 3, 3), 22, row=2))
    for name in RANDOM:
        for law, dtype in (("uniform", "float64"), ("binomial", "bfloat16")):
            add(
                f"tied-target-{name}-{law}-{dtype}", tied_target(name, (1, 2, 1, 1, 1), 4, seed=3, law=law, dtype=dtype)
            )
    found = tied_target("printed-looped", (2, 2, 1, 1, 1))
    found["evidence"]["target"] = [[*entry[:5], str(entry[5] * 10**20)] for entry in found["evidence"]["target"]]
    add("tied-target-huge-entries", found)
    # nobody has to walk 2^50 words
    z, reader = [[0, 1], [1, -1]], [["W_Q", 0, 0, 0, 0, 1]]
    evidence = {"method": "tied-target", "row": 0, "target": reader, "z": z}
    found = document("rank-deficient", "printed-looped", (2, 2, 1, 1, 1), 14, evidence)
    column_pairs = index_columns("printed-looped", 2, 2, 1, 1, 1)[1]
    same = next((a, b) for b in range(len(column_pairs)) for a in range(b) if column_pairs[a] == column_pairs[b])
    found["evidence"] = tied_target_evidence((2, 2, 1, 1, 1), [{same[0]: 1, same[1]: -1}])
    add("tied-target-two-equal-columns", changed(found, "claim", "targets", "all tied"))

    for dims in [(2, 2, 1), (2, 3, 1), (3, 2, 1), (2, 2, 2)]:
        label = "tied-kernel-h{}-l{}-d{}".format(*dims)
        add(label, tied_kernel(dims, label))
    add("tied-kernel-another-basis-of-coordinates", tied_kernel((2, 2, 1), "tied-kernel-unimodular", unimodular=1,
                                                                kind="I32"))  # fmt: skip
    add("tied-kernel-scaled-values", tied_kernel((2, 3, 1), "tied-kernel-scaled", kind="F16", scale=0.5))
    basis = commuting_kernel(2, 3, 1)
    mixed = [dict(basis[0])]
    for k, z in enumerate(basis[1:], 2):
        total = dict(mixed[-1])
        for i, v in z.items():
            total[i] = total.get(i, 0) + v * (10**40 if k == 3 else k)
        mixed.append({i: v for i, v in total.items() if v})
    add("tied-kernel-combined-vectors", tied_kernel((2, 3, 1), "tied-kernel-combined", mixed, kind="I16"))

    for name in RANDOM:
        for dims, m in [((2, 2, 3, 2, 2), 38), ((1, 1, 1, 1, 1), 3), ((1, 2, 4, 2, 2), 14), ((2, 2, 2, 2, 2), 34)]:
            for gauge in range(20):
                found = gauged(name, dims, m, gauge, seed=3)
                if judge(canonical(found), CORPUS) == 0:
                    break
            add(f"linear-gauged-{name}-{'h{}-l{}-d{}-in{}-out{}'.format(*dims)}", found)
    found = gauged("random", (2, 1, 2, 1, 1), 9, 2, seed=3)
    found["evidence"]["gauges"][0][1] = [[str(10**30), -7]]
    add("linear-gauged-huge-entries", found)
    found["evidence"]["gauges"] = [[[[1, 0]], [[1, 0]]]]
    add("linear-gauged-by-the-default", copy.deepcopy(found))
    # a host whose first query coordinate is always zero: only another gauge tells
    tensors = drawn_weights(False, (1, 1, 2, 1, 1), 5, 14, "I8")
    numbers = [x if i % 2 else 0 for i, x in enumerate(random.Random(1).choices(range(1, 9), k=10))]
    tensors["R_Q"] = ("I8", (1, 1, 5, 2), packed("I8", numbers))
    label = "weights-linear-first-query-coordinate-zero"
    evidence = RECOMPUTE | {"gauges": [[[[0, 1]]]]}
    add(label, of_weights("linear-test", False, tensors, (1, 1, 2, 1, 1), 5, evidence, label=label, rank=4))
    return out


def stored_invalid():
    out = {}

    def add(name, found):
        assert name not in out, name
        out[name] = found if type(found) is tuple else (found, {})

    tiny = (1, 1, 1, 1, 1)

    def modular(label, tensors, dims=tiny, m=3, tied=False, rank=3, evidence=RECOMPUTE):
        add(label, of_weights("rank-modular", tied, tensors, dims, m, evidence, label=label, rank=rank))

    singular = drawn_weights(False, tiny, 3, 21, "F32")
    singular["R_K"] = singular["R_Q"]
    modular("weights-digest-of-another-file", singular)
    for kind, bits in {
        "F64": (2047 << 52) + 1,
        "F32": (255 << 23) + 1,
        "F16": (31 << 10) + 1,
        "BF16": (255 << 7) + 1,
    }.items():
        for attack, pattern in (("nan", bits), ("infinity", bits - 1)):
            tensors = drawn_weights(False, tiny, 3, 22, kind)
            form, shape, data = tensors["U"]
            size = len(data) // 3
            for sign in (0, 1):
                content = data[:-size] + (pattern + (sign << 8 * size - 1)).to_bytes(size, "little")
                modular(
                    f"weights-{attack}-{kind}-{'minus' if sign else 'plus'}", tensors | {"U": (form, shape, content)}
                )
    tensors = drawn_weights(False, tiny, 2, 23, "F32")
    tensors["R_V"] = ("F32", (1, 1, 2, 2), tensors["R_V"][2][:-4] + packed("F32", [float("nan")]))
    label = "weights-nan-refuted"
    add(label, of_weights("rank-deficient", False, tensors, tiny, 2, {"method": "dimension"}, label=label))
    tensors = drawn_weights(False, tiny, 4, 24)
    modular("weights-m-of-the-shape-below", tensors)
    modular("weights-m-of-the-shape-above", tensors, m=5)
    modular("weights-another-head-dimension", tensors, (1, 1, 2, 1, 1), 5, rank=5)
    modular("weights-another-output-width", tensors, (1, 1, 1, 1, 2), 4, rank=4)
    modular("weights-more-layers", tensors, (1, 2, 1, 1, 1), 5, rank=5)
    modular("weights-looped-called-unlooped", drawn_weights(True, tiny, 3, 25))
    modular("weights-unlooped-called-looped", drawn_weights(False, tiny, 3, 25), tied=True)
    tensors = drawn_weights(False, tiny, 3, 26)
    modular("weights-transposed-shape", tensors | {"U": ("F32", (1, 3), tensors["U"][2])})
    modular("weights-flat-shape", tensors | {"U": ("F32", (3,), tensors["U"][2])})
    modular("weights-of-eight-axes", tensors | {"U": ("F32", (3, 1, 1, 1, 1, 1, 1, 1), tensors["U"][2])})
    modular("weights-scalar", tensors | {"U": ("F32", (), tensors["U"][2][:4])})
    modular("weights-empty-tensor", tensors | {"U": ("F32", (3, 0), b"")})
    modular("weights-composite-prime", tensors, evidence=RECOMPUTE | {"prime": 8388595})
    modular("weights-rank-below-M", tensors, rank=2)
    good = drawn_weights(False, tiny, 3, 27, inner=2)
    modular("weights-factors-of-other-widths", good | {"R_Vo": ("F32", (1, 1, 1, 3), good["R_Vo"][2][:12])})
    low = drawn_weights(True, (2, 2, 1, 1, 1), 16, 28, "I8", inner=1)
    modular("weights-factors-of-low-rank", low, (2, 2, 1, 1, 1), 16, True, 16)
    small = (1, 2, 1, 1, 1)
    tensors = drawn_weights(False, small, 4, 29, MIXED)
    integers, factors = Stored(tensors, False, small, 4).integers()
    assert len(set(factors)) > 1
    z = kernel_basis(integers)[0]
    label = "weights-kernel-of-the-integers-only"
    add(label, of_weights("rank-deficient", False, tensors, small, 4, kernel_evidence(z), label=label))
    z = kernel_basis(integers * np.array(factors, dtype=object))[0]
    form, shape, data = tensors["U"]
    label = "weights-kernel-of-a-file-changed-in-one-bit"
    tensors["U"] = (form, shape, data[:-1] + bytes([data[-1] ^ 128]))
    add(label, of_weights("rank-deficient", False, tensors, small, 4, kernel_evidence(z), label=label))
    tensors = drawn_weights(False, tiny, 3, 30)
    label = "weights-dimension-m-at-M"
    add(label, of_weights("rank-deficient", False, tensors, tiny, 3, {"method": "dimension"}, label=label))

    dims = (2, 3, 1, 1, 1)
    base = tied_target("printed-looped", dims)
    (annihilated,) = commuting_kernel(2, 3, 1)[:1]
    for attack, path_and_value in {
        "target-empty": ("evidence", "target", []),
        "target-of-one-entry": ("evidence", "target", [["W_V", 0, 0, 0, 0, 1]]),
        "z-not-in-the-kernel": ("evidence", "z", [[0, 1]]),
        "z-that-all-tied-targets-annihilate": ("evidence", "z", pairs_of(annihilated)),
        "z-a-sum-of-two-columns": ("evidence", "z", [[0, 1], [1, 1]]),
        "z-value-off": ("evidence", "z", 0, 1, base["evidence"]["z"][0][1] + 9),
        "z-plus-2-to-the-64": ("evidence", "z", 0, 1, str(base["evidence"]["z"][0][1] + 2**64)),
        "verdict-flipped": ("claim", "verdict", "universal"),
        "of-another-host": ("claim", "host", "construction", "tied"),
    }.items():
        found = changed(base, *path_and_value)
        if attack == "verdict-flipped":
            found = added(found, "claim", "rank", 36)
        if attack == "of-another-host":
            found["shape"]["m"] = 36
        add(f"tied-target-{attack}", found)
    base = tied_target("printed-looped", (2, 2, 1, 3, 3), 22)
    add("tied-target-of-another-row", changed(changed(base, "evidence", "row", 2), "evidence", "target",
                                              [entry for entry in base["evidence"]["target"] if entry[3] != 2]))  # fmt: skip

    dims, M = (2, 3, 1), 36
    basis = commuting_kernel(*dims)

    def kernel(attack, new, change=None, **options):
        label = f"tied-kernel-{attack}"
        found, files = tied_kernel(dims, label, new, **options)
        add(label, (change(found) if change else found, files))

    kernel("a-vector-less", basis[:-1], kind="I16")
    kernel("a-vector-twice", [*basis[:-1], basis[0]], kind="I32")
    kernel("a-vector-more", [*basis, {basis[0] and 0: 1, 5: 3}], kind="I64")
    kernel("dependent-vectors", [*basis[:-1], basis[0] | {i: 2 * v for i, v in basis[0].items()}], kind="U8")
    kernel(
        "dependent-modulo-this-prime-only",
        [{i: v * 101 for i, v in basis[0].items()}, *basis[1:]],
        prime=101,
        kind="F32",
    )
    kernel("not-in-the-kernel", [*basis[:-1], {0: 1}], kind="F64")
    kernel("sign-flipped", [{i: abs(v) for i, v in basis[0].items()}, *basis[1:]], kind="BF16")
    kernel("off-by-one", [{i: v + (v == 1) for i, v in basis[0].items()}, *basis[1:]], kind="U16")
    kernel("composite-prime", basis, prime=2**31 - 3, kind="U32")
    kernel("prime-two", basis, prime=2, kind="U64")
    kernel("rank-is-M", basis, lambda found: changed(found, "claim", "rank", M), kind="F16")
    kernel("rank-off-by-one", basis, lambda found: changed(found, "claim", "rank", 27), scale=2)
    refuting = ("claim", "verdict", "not universal")
    kernel("verdict-flipped", basis, lambda found: changed(changed(found, *refuting), "claim", "rank", ...), scale=3)
    kernel(
        "z-not-for-all-targets", [{i: v * (10**20 if v > 0 else 1) for i, v in basis[0].items()}, *basis[1:]], scale=4
    )
    kernel("in-the-kernel-modulo-2-to-the-127-minus-1-only",
           [{i: v + (2**127 - 1) * (v == 1) for i, v in basis[0].items()}, *basis[1:]], scale=5)  # fmt: skip
    # a host in which z is in the kernel, but not every tied target annihilates it
    m, tensors = dense_trie((2, 2, 1))
    form, shape, data = tensors["R_Q"]
    tensors["R_Q"] = (form, shape, data[: len(data) // 2] * 2)  # both heads read the same queries
    integers, _ = Stored(tensors, True, (2, 2, 1, 1, 1), m).integers()
    vectors = kernel_basis(integers)
    evidence = {"basis": [pairs_of(z) for z in vectors], "prime": 2**31 - 1}
    label = "tied-kernel-of-a-host-that-tied-targets-refute"
    add(label, of_weights("tied-kernel", True, tensors, (2, 2, 1, 1, 1), m, evidence, label=label,
                          rank=16 - len(vectors), targets="all tied"))  # fmt: skip
    # column 0 of R_all is zero, and W_all z vanishes modulo 2^127 - 1 only
    tensors = drawn_weights(True, tiny, 2, 41, "I8")
    tensors["R_Q"] = ("I8", (1, 2, 1), bytes(2))
    for label, value in (
        ("tied-kernel-zero-modulo-2-to-the-127-minus-1-only", 2**127 - 1),
        ("tied-kernel-zero-modulo-2-to-the-521-minus-1-only", 2**521 - 1),
        ("tied-kernel-of-a-column-that-targets-need", 1),
    ):
        evidence = {"basis": [pairs_of({0: value})], "prime": 101}
        add(label, of_weights("tied-kernel", True, tensors, tiny, 2, evidence, label=label, rank=2, targets="all tied"))
    # a host of smaller rank: its kernel is larger than the vectors say
    m, tensors = dense_trie((2, 2, 1), scale=7)
    form, shape, data = tensors["U"]
    tensors["U"] = (form, shape, bytes(len(data)))
    evidence = {"basis": [pairs_of(z) for z in commuting_kernel(2, 2, 1)], "prime": 2**31 - 1}
    label = "tied-kernel-of-a-host-without-outputs"
    add(label, of_weights("tied-kernel", True, tensors, (2, 2, 1, 1, 1), m, evidence, label=label, rank=15,
                          targets="all tied"))  # fmt: skip
    for name in RANDOM:
        evidence = {"basis": [pairs_of(z) for z in commuting_kernel(2, 2, 1)], "prime": 2**31 - 1}
        found = document("tied-kernel", name, (2, 2, 1, 1, 1), 16, evidence, rank=15, seed=1)
        add(f"tied-kernel-{name}", changed(found, "claim", "targets", "all tied"))
        z = kernel_basis(matrix_of(name, (1, 1, 1, 1, 1), 2, seed=1))
        found = document("tied-kernel", name, (1, 1, 1, 1, 1), 2, {"basis": [pairs_of(z[0])], "prime": 2**31 - 1}, rank=2,
                         seed=1)  # fmt: skip
        add(f"tied-kernel-{name}-below-the-span", changed(found, "claim", "targets", "all tied"))

    base = gauged("random", (2, 2, 3, 2, 2), 40, 1, seed=3)
    gauges = base["evidence"]["gauges"]
    for attack, matrix in {
        "zero": [[0, 0, 0], [0, 0, 0]],
        "of-rank-one": [[1, 2, 3], [2, 4, 6]],
        "zero-modulo-the-prime": [[8388593, 0, 0], [0, 1, 0]],
    }.items():
        add(f"linear-gauge-{attack}", changed(base, "evidence", "gauges", 1, 0, matrix))
    add("linear-gauge-zero-everywhere", changed(base, "evidence", "gauges", [[[[0] * 3] * 2] * 2] * 2))
    add("linear-gauged-rank-is-M", changed(base, "claim", "rank", 44))
    add("linear-gauged-m-below-the-columns", changed(base, "shape", "m", 37))
    add("linear-gauged-composite-prime", changed(base, "evidence", "prime", 8388595))
    tensors = drawn_weights(False, (1, 1, 2, 1, 1), 5, 14, "I8")
    tensors["R_Q"] = ("I8", (1, 1, 5, 2), packed("I8", [1, 0, 2, 0, 3, 0, 1, 0, 5, 0]))
    label = "weights-linear-gauge-reads-zero"
    evidence = RECOMPUTE | {"gauges": [[[[0, 1]]]]}
    add(label, of_weights("linear-test", False, tensors, (1, 1, 2, 1, 1), 5, evidence, label=label, rank=4))
    assert gauges
    return out


def stored_malformed():
    out = {}
    tiny = (1, 1, 1, 1, 1)
    seeds = iter(range(100, 200))

    def add(name, content, files=()):
        assert name not in out, name
        out[name] = content if isinstance(content, bytes) else (content, dict(files))

    def file(attack, alter=None, tensors=None, change=None):
        """A proper certificate beside an altered file."""
        held = drawn_weights(False, tiny, 3, next(seeds)) if tensors is None else tensors
        label = f"weights-{attack}"
        found, files = of_weights("rank-modular", False, held, tiny, 3, RECOMPUTE, label=label, rank=3)
        if alter is not None:
            files = {name: alter(held, content) for name, content in files.items()}
        add(label, change(found) if change else found, {name: raw for name, raw in files.items() if raw is not None})

    def header(raw):
        length = struct.unpack("<Q", raw[:8])[0]
        return json.loads(raw[8 : 8 + length]), raw[8 + length :]

    def rewritten(change):
        def alter(held, raw):
            table, data = header(raw)
            table, data = change(table, data)
            text = table if isinstance(table, bytes) else json.dumps(table).encode()
            return struct.pack("<Q", len(text)) + text + data

        return alter

    def entry(name, **fields):
        return rewritten(lambda table, data: (table | {name: table[name] | fields}, data))

    file("missing", lambda held, raw: None)
    file("truncated", lambda held, raw: raw[:-1])
    file("truncated-by-an-entry", lambda held, raw: raw[:-4])
    file("truncated-in-the-header", lambda held, raw: raw[:40])
    file("of-seven-bytes", lambda held, raw: raw[:7])
    file("empty-file", lambda held, raw: b"")
    file("extended", lambda held, raw: raw + b"\0")
    file("one-bit-changed", lambda held, raw: raw[:-1] + bytes([raw[-1] ^ 1]))
    file("header-length-zero", lambda held, raw: bytes(8) + raw[8:])
    file("header-length-huge", lambda held, raw: b"\xff" * 8 + raw[8:])
    file("header-length-beyond-the-end", lambda held, raw: struct.pack("<Q", len(raw)) + raw[8:])
    file("header-length-byte-order", lambda held, raw: raw[:8][::-1] + raw[8:])
    file("header-no-json", rewritten(lambda table, data: (b"R_Q", data)))
    file("header-an-array", rewritten(lambda table, data: ([table], data)))
    file("header-nested-deeply", rewritten(lambda table, data: (b"[" * 100_000, data)))
    file("header-not-utf-8", rewritten(lambda table, data: (b'{"\xff":1}', data)))
    file("tensor-twice", rewritten(
        lambda table, data: (json.dumps(table)[:-1].encode() + b',"U":' + json.dumps(table["U"]).encode() + b"}", data)
    ))  # fmt: skip
    file(
        "gap", rewritten(lambda table, data: (table | {"U": table["U"] | {"data_offsets": [64, 76]}}, data + bytes(4)))
    )
    file("overlap", entry("U", data_offsets=[0, 12]))
    file("offsets-negative", entry("R_Q", data_offsets=[-12, 0]))
    file("offsets-exchanged", entry("U", data_offsets=[72, 60]))
    file("offsets-three", entry("U", data_offsets=[60, 72, 72]))
    file("offsets-beyond-the-end", entry("U", data_offsets=[60, 2**62]))
    file("shape-larger-than-the-data", entry("U", shape=[4, 1]))
    file("shape-huge", entry("U", shape=[2**31, 2**33]))
    file("shape-negative", entry("U", shape=[-3, -1]))
    file("shape-of-nine-axes", entry("U", shape=[3] + [1] * 8))
    file("shape-null", entry("U", shape=None))
    file("shape-true", entry("U", shape=[3, True]))
    file("type-unknown", entry("U", dtype="F8"))
    file("type-bool", entry("U", dtype="BOOL"))
    file("type-of-another-width", entry("U", dtype="F64"))
    file("type-null", entry("U", dtype=None))
    file("tensor-field-unknown", entry("U", zzz=1))
    file("tensor-null", rewritten(lambda table, data: (table | {"U": None}, data)))
    file("signed-for-unsigned", tensors=drawn_weights(False, tiny, 3, next(seeds), "I8"), alter=rewritten(
        lambda table, data: ({name: held | {"dtype": "U8"} for name, held in table.items()}, data)
    ))  # fmt: skip
    good = drawn_weights(False, tiny, 3, next(seeds))
    file("another-tensor-too", tensors=good | {"W_Q": ("F32", (1,), bytes(4))})
    file(
        "with-R_V-and-its-factors",
        tensors=good | {"R_Vv": ("F32", (1, 1, 3, 0), b""), "R_Vo": ("F32", (1, 1, 0, 3), b"")},
    )
    for name in good:
        file(f"without-{name}", tensors={key: held for key, held in good.items() if key != name})
    file("with-one-factor", tensors={("R_Vv" if name == "R_V" else name): held for name, held in good.items()})
    file("no-tensors", tensors={})
    raw = safetensors(good)
    for case, value in {
        "of-the-bytes": hashlib.sha256(raw).hexdigest(),
        "upper-case": digest_of(drawn_weights(False, tiny, 3, 1)).upper(),
        "short": "0" * 63,
        "long": "0" * 65,
        "list": ["0" * 64],
        "null": None,
        "path": "../valid/".ljust(64, "0"),
        "newline": "0" * 63 + "\n",
        "zero": "0" * 64,
    }.items():
        file(f"digest-{case}", change=lambda found, value=value: changed(found, "claim", "host", "weights", value))
    for case, value in {
        "unknown": "random",
        "shared": "shared-attention-universal",
        "null": None,
        "list": ["universal"],
    }.items():
        file(f"system-{case}", change=lambda found, value=value: changed(found, "claim", "host", "system", value))
    file("system-missing", change=lambda found: changed(found, "claim", "host", "system", ...))
    file("host-with-a-seed", change=lambda found: added(found, "claim", "host", "seed", 0))
    file("host-with-a-construction", change=lambda found: added(found, "claim", "host", "construction", "random"))
    file("kind-permutation", change=lambda found: changed(changed(found, "kind", "rank-permutation"), "evidence",
                                                          {"rows": [0, 1, 2]}))  # fmt: skip
    file("targets-all-tied", change=lambda found: changed(found, "claim", "targets", "all tied"))

    base = tied_target("printed-looped", (2, 2, 1, 1, 1))
    entries = base["evidence"]["target"]
    for case, path_and_value in {
        "row-d_in": ("evidence", "row", 1),
        "row-negative": ("evidence", "row", -1),
        "row-null": ("evidence", "row", None),
        "row-missing": ("evidence", "row", ...),
        "target-missing": ("evidence", "target", ...),
        "target-null": ("evidence", "target", None),
        "target-in-a-list": ("evidence", "target", [entries]),
        "target-unsorted": ("evidence", "target", entries[::-1]),
        "target-entry-twice": ("evidence", "target", [entries[0], *entries]),
        "target-entry-zero": ("evidence", "target", 0, 5, 0),
        "target-entry-of-layer-one": ("evidence", "target", 0, 1, 1),
        "target-entry-outside": ("evidence", "target", 0, 3, 1),
        "target-entry-of-W_E": ("evidence", "target", 0, 0, "W_E"),
        "z-empty": ("evidence", "z", []),
        "z-position-M": ("evidence", "z", [[16, 1]]),
        "z-missing": ("evidence", "z", ...),
        "all-untied": ("claim", "targets", "all untied"),
        "method-kernel-vector": ("evidence", "method", "kernel-vector"),
        "d_out-is-not-d_in": ("shape", "d_out", 2),
    }.items():
        add(f"tied-target-{case}", changed(base, *path_and_value))
    add("tied-target-with-a-column", added(base, "evidence", "column", 0))
    kernel, _ = proved("printed-looped", (2, 2, 1, 1, 1))
    add("kernel-vector-for-tied-targets", changed(kernel, "claim", "targets", "all tied"))
    small = document("rank-deficient", "random", (2, 1, 1, 1, 1), 5, {"method": "dimension"})
    add("dimension-for-tied-targets", changed(small, "claim", "targets", "all tied"))
    add("tied-target-4097-entries", changed(base, "evidence", "z", [[i, 1] for i in range(4097)]))

    base, files = tied_kernel((2, 2, 1), "tied-kernel-file")
    z = base["evidence"]["basis"][0]
    for case, path_and_value in {
        "basis-empty": ("evidence", "basis", []),
        "basis-null": ("evidence", "basis", None),
        "basis-an-object": ("evidence", "basis", {}),
        "basis-flat": ("evidence", "basis", z),
        "basis-missing": ("evidence", "basis", ...),
        "vector-empty": ("evidence", "basis", [z, []]),
        "vector-null": ("evidence", "basis", [None]),
        "vector-unsorted": ("evidence", "basis", [z[::-1]]),
        "vector-position-M": ("evidence", "basis", [[*z, [16, 1]]]),
        "vector-zero-value": ("evidence", "basis", [[z[0], [z[1][0], 0]]]),
        "vector-4097-entries": ("evidence", "basis", [[[i, 1] for i in range(4097)]]),
        "prime-missing": ("evidence", "prime", ...),
        "prime-out-of-range": ("evidence", "prime", 2**31),
        "rank-missing": ("claim", "rank", ...),
        "all-untied": ("claim", "targets", "all untied"),
        "attention-matching": ("claim", "notion", "attention-matching"),
        "of-an-index-host": ("claim", "host", {"construction": "printed-looped"}),
        "of-commuting-trie": ("claim", "host", {"construction": "commuting-trie"}),
        "of-every-host": ("claim", "host", {"every": "host"}),
        "d_out-is-not-d_in": ("shape", "d_out", 2),
    }.items():
        add(f"tied-kernel-{case}", changed(base, *path_and_value), files)
    add("tied-kernel-with-a-method", added(base, "evidence", "method", "recompute"), files)

    base = gauged("random", (2, 2, 2, 1, 1), 30, 1, seed=3)
    gauges = base["evidence"]["gauges"]
    for case, path_and_value in {
        "null": (None,),
        "empty": ([],),
        "of-a-layer-less": (gauges[1:],),
        "of-a-head-less": (0, gauges[0][:1]),
        "of-a-row-more": (0, 0, [[1, 0], [0, 1]]),
        "transposed": (0, 0, [[1], [0]]),
        "of-an-entry-less": (0, 0, 0, [1]),
        "with-null": (0, 0, 0, 0, None),
        "with-true": (0, 0, 0, 0, True),
        "with-a-string": (0, 0, 0, 0, "1"),
        "flat": (gauges[0],),
        "an-object": ({},),
    }.items():
        add(f"linear-gauges-{case}", changed(base, "evidence", "gauges", *path_and_value))
    add("linear-gauges-per-layer-of-a-tied-host", changed(base, "claim", "host", "construction", "random-tied"))
    add("linear-gauges-with-a-float", canonical(base).replace(b'"gauges":[[[[', b'"gauges":[[[[1.5,'))
    modular, _ = proved("random", (2, 1, 1, 1, 1), seed=7)
    add("modular-with-gauges", added(modular, "evidence", "gauges", [[[[1]], [[1]]]]))
    return out


def build(folder: Path, beginning: str = "") -> int:
    """Write the three folders anew, all cases or those whose names begin so; returns the number of certificates."""
    import corpus_enclosures as enclosures  # which use what stands above
    import corpus_frontier as least
    import corpus_realization as single
    import corpus_residual as streams
    import corpus_standard as named

    expected = {"valid": 0, "invalid": 1, "malformed": 2}
    count = 0
    modules = (enclosures, least, streams, single, named)
    tables = [
        (valid, more_valid, stored_valid, *(module.valid for module in modules)),
        (invalid, more_invalid, stored_invalid, *(module.invalid for module in modules)),
        (malformed, more_malformed, stored_malformed, *(module.malformed for module in modules)),
    ]
    for (name, code), parts in zip(expected.items(), tables, strict=True):
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        table = {case: content for part in parts for case, content in part().items()}
        for case, content in table.items():
            if not case.startswith(beginning):
                continue
            raw, files = (content, {}) if isinstance(content, bytes) else (encoded(content[0]), content[1])
            for file, data in files.items():
                (place / (file if "." in file else f"{file}.bin")).write_bytes(data)
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
    print(build(target, *sys.argv[2:]), "certificates in", target)
