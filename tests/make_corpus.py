"""Regenerates tests/certificates/{valid,invalid,malformed}: `python tests/make_corpus.py [FOLDER]`.

The bytes are the same on every run. No file is kept before `sceptic.judge` has agreed with the folder it is for.
"""

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
    FIELDS,
    INDEX,
    PERMUTATIONS,
    RANDOM,
    RULES,
    SAFE,
    by_length,
    dimension,
    identity_least,
    index_columns,
    judge,
    layout,
    random_integers,
    random_r_all,
    rank_modulo,
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


class Cases(dict):
    """{name: bytes, or (document, sidecars)}, every name once."""

    def __init__(self, prefix=""):
        self.prefix = prefix

    def add(self, name, content, sidecars=()):
        assert self.prefix + name not in self, name
        self[self.prefix + name] = content if isinstance(content, bytes | tuple) else (content, dict(sidecars))


def sidecar(numbers, size=4):
    """(reference, {digest: content})."""
    content = struct.pack(f"<{len(numbers)}{'H' if size == 2 else 'I'}", *numbers)
    digest = hashlib.sha256(content).hexdigest()
    return {"dtype": f"uint{8 * size}", "length": len(numbers), "sidecar": digest}, {digest: content}


def witnessed(integers, p):
    """Evidence of section 6.2: the first rows that are independent modulo p, and their inverse."""
    from flint import nmod_mat

    m, M = integers.shape
    residues = [[int(x) % p for x in row] for row in integers]
    reduced, rank = nmod_mat(M, m, [residues[i][j] for j in range(M) for i in range(m)], p).rref()
    assert rank == M, (integers.shape, p)
    rows = [next(j for j in range(m) if int(reduced[i, j])) for i in range(M)]
    inverse = nmod_mat(M, M, [x for row in rows for x in residues[row]], p).inv()
    numbers = [int(inverse[a, b]) for a in range(M) for b in range(M)]
    return {"inverse": numbers, "method": "witness", "prime": p, "rows": rows}


def witness(name, dims, m, p, **drawn):
    """(document, sidecars) of section 6.2."""
    M = dimension(*dims)
    options = {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
    matrix, _ = random_integers(name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, m)
    evidence, files = witnessed(matrix, p), {}
    if M * M > 4096:
        evidence["inverse"], files = sidecar(evidence["inverse"], 2 if p < 2**16 else 4)
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
SCALAR = ("counting", "commuting-trie")
ATTENTION = ("shared-key", "shared-query")


def build(folder: Path, beginning: str = "") -> int:
    """Write the three folders anew, all cases or those whose names begin so; returns the number of certificates."""
    import corpus_enclosures as enclosures  # which use what stands above
    import corpus_frontier as least
    import corpus_realization as single
    import corpus_residual as streams
    import corpus_standard as named
    from corpus_identities import more_invalid, more_valid
    from corpus_identities_malformed import more_malformed
    from corpus_malformed import malformed
    from corpus_ranks import invalid, valid
    from corpus_stored import stored_invalid, stored_malformed, stored_valid

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
