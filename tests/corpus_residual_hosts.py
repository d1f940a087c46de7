"""Hosts with a residual stream as the corpus needs them, by the definitions of the format page."""

import tempfile
from fractions import Fraction
from itertools import combinations
from math import ceil, floor
from pathlib import Path

import naive
import numpy as np
from corpus_enclosures import drawn_target, enclosure, solved
from corpus_weights import (
    RECOMPUTE,
    of_weights,
    pairs_of,
)
from make_corpus import (
    added,
    document,
    drawn_targets,
    kernel_basis,
    statement,
    witnessed,
    written,
)
from sceptic import (
    RANDOM,
    measured,
    stream_columns,
    stream_dense,
    stream_least,
    stream_M,
    stream_places,
    stream_routed,
    target_rows,
    w_all,
    zero_weights,
)

PRIME = 8388593


def streaming(found):
    """The same with a residual stream."""
    return added(found, "shape", "residual", True)


def stream_document(*arguments, targets="all untied", notion="matching", **options):
    found = streaming(document(*arguments, **options))
    found["claim"] |= {"targets": targets, "notion": notion}
    return found


# --- hosts -----------------------------------------------------------------------------------------------------------


def drawn_of(name, dims, m, **drawn):
    options = {"dtype": "float64", "law": "uniform", "seed": 0} | drawn
    return name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, m


def stream_matrix(name, dims, m, **drawn):
    """R_all in true entries."""
    if name not in RANDOM:
        matrix = np.zeros((m, stream_M(*dims)), dtype=object)
        for c, column in enumerate(stream_columns(name, dims).values()):
            for row, x in column.items():
                matrix[row, c] = x
        return matrix
    integers, factors = stream_dense(drawn_of(name, dims, m, **drawn), dims, m)
    return integers * np.array(factors, dtype=object)


def triangular(dims, m=None):
    columns = list(stream_columns("sparse", dims).values())
    last = {row: c for c, column in enumerate(columns) for row in column}
    rows = [next(row for row in column if last[row] == c) for c, column in enumerate(columns)]
    m = stream_M(*dims) if m is None else m
    return stream_document("rank-triangular", "sparse", dims, m, {"rows": rows}, rank=len(rows))


def permutation(dims, m=None, targets="all tied"):
    """The tied tries, whose reduced columns are unit vectors."""
    H, L, d, _, d_out = dims
    columns, rows = stream_columns("tied", dims), []
    for kind in ("W_Q", "W_K"):
        for t in range(1, L + 1):
            for w in naive.words(H, t):
                rows += [next(iter(columns[kind, tuple(h + 1 for h in w[:-1]), w[-1], j])) for j in range(d)]
    for t in range(L + 1):
        for w in naive.words(H, t):
            letters = tuple(h + 1 for h in w) + (0,) * (L - t)
            rows += [next(iter(columns["U", letters, None, j])) for j in range(d_out)]
    m = stream_least("tied", *dims) if m is None else m
    return stream_document("rank-permutation", "tied", dims, m, {"rows": rows}, rank=len(rows), targets=targets)


def modular(name, dims, m=None, p=PRIME, **drawn):
    M = stream_M(*dims)
    evidence = {"method": "recompute", "prime": p}
    return stream_document("rank-modular", name, dims, m or M, evidence, rank=M, **drawn)


def witness(name, dims, m=None, p=251, **drawn):
    M = stream_M(*dims)
    m = m or M
    evidence = witnessed(stream_dense(drawn_of(name, dims, m, **drawn), dims, m)[0], p)
    return stream_document("rank-modular", name, dims, m, evidence, rank=M, **drawn)


def stream_kernel(z, dims, column):
    """Evidence of method kernel-vector with the routed target of this column."""
    missed = [sum(line[i] * v for i, v in z.items()) for line in stream_routed(dims, column)]
    distance = Fraction(sum(x * x for x in missed), sum(v * v for v in z.values()))
    return {
        "method": "kernel-vector",
        "column": written(column),
        "distance_squared": [written(distance.numerator), written(distance.denominator)],
        "z": pairs_of(z),
    }


def refuting(z, dims):
    """Outputs first, then fewer letters other than 0."""
    places = stream_places(*dims)
    return min(z, key=lambda c: (places[c][0] != "U", sum(a > 0 for a in places[c][1]), c))


def deficient(name, dims, m, z=None, column=None, **drawn):
    z = kernel_basis(stream_matrix(name, dims, m, **drawn))[0] if z is None else z
    evidence = stream_kernel(z, dims, refuting(z, dims) if column is None else column)
    return stream_document("rank-deficient", name, dims, m, evidence, **drawn)


def place_of(dims, *place):
    return stream_places(*dims).index(place)


def repeated(dims, head=0):
    """The outputs of (0, ..., 0, h) and (h, 0, ..., 0)."""
    zeros = (0,) * (dims[1] - 1)
    return {place_of(dims, "U", (*zeros, head + 1), None, 0): 1, place_of(dims, "U", (head + 1, *zeros), None, 0): -1}


def repetitions(dims):
    """Differences of columns whose words agree when zeros are dropped."""
    out, seen = [], {}
    for c, (kind, w, h, j) in enumerate(stream_places(*dims)):
        key = kind, tuple(a for a in w if a), h, j
        if key in seen:
            out.append({seen[key]: -1, c: 1})
        else:
            seen[key] = c
    return out


def kernel(name, dims, m, basis=None, p=PRIME, **drawn):
    basis = repetitions(dims) if basis is None else basis
    evidence = {"basis": [pairs_of(z) for z in basis], "prime": p}
    rank = stream_M(*dims) - len(basis)
    return stream_document("tied-kernel", name, dims, m, evidence, rank=rank, targets="all tied", **drawn)


def tied_target(name, dims, m, **drawn):
    """The first drawn tied target and kernel vector that do not agree."""
    H, L, d, d_in, _ = dims
    for seed in range(20):
        (entries,) = drawn_targets(1, True, H, L, d, d_in, seed)
        line = target_rows(entries, True, dims, stream_places)()[0]
        for z in kernel_basis(stream_matrix(name, dims, m, **drawn)):
            if sum(line[i] * v for i, v in z.items()):
                evidence = {"method": "tied-target", "row": 0, "target": entries, "z": pairs_of(z)}
                return stream_document("rank-deficient", name, dims, m, evidence, targets="all tied", **drawn)
    raise AssertionError


def linear(name, dims, m=None, gauges=None, **drawn):
    H, L, d, d_in, _ = dims
    rank = stream_M(*dims) - (d - d_in) * H * sum((H + 1) ** t for t in range(L))
    evidence = RECOMPUTE if gauges is None else RECOMPUTE | {"gauges": gauges}
    return stream_document(
        "linear-test", name, dims, m or rank, evidence, rank=rank, notion="attention-matching", **drawn
    )


def bound(dims, m, targets="all untied", every="host"):
    evidence = {"method": "dimension"}
    return streaming(statement("lower-bound", "matching", {"every": every}, dims, m, evidence, targets=targets))


def routed_entries(dims):
    """The routed targets of all columns and all parts of their words, without repetitions, as section 10.2 writes them."""
    found = []
    for kind, w, h, j in stream_places(*dims):
        route = [(t, a - 1) for t, a in enumerate(w, 1) if a]
        for k in range(len(route) + 1):
            for part in combinations(route, k):
                entries = {}
                for t, g in part:
                    entries["W_V", t, g, 0, 0] = 1
                    entries["W_O", t, g, 0, j if kind == "U" and (t, g) == part[-1] else 0] = 1
                if kind != "U":
                    entries[kind, len(w) + 1, h, 0, j] = 1
                target = [[*place, v] for place, v in sorted(entries.items())]
                if target not in found:
                    found.append(target)
    return found


def span(dims, m, given, targets="all untied", prime=2**31 - 1):
    evidence = {"method": "span", "prime": prime, "targets": given}
    return streaming(statement("lower-bound", "matching", {"every": "host"}, dims, m, evidence, targets=targets))


def of_file(kind, tied, tensors, dims, m, evidence, label, **options):
    found, files = of_weights(kind, tied, tensors, dims, m, evidence, label=label, **options)
    return streaming(found), files


def emulation(name, dims, attention, n, digits=20, *, seed=0, tied_target=False, width=None, m=None, step=None,
              verdict=None, **drawn):  # fmt: skip
    """A certificate of kind enclosure with the E that matches, or that rounded."""
    target = drawn_target(dims, seed, width, tied_target)
    weights = zero_weights(dims, target.width)
    for layer in range(dims[1]):
        for h in range(dims[0]):
            for tensor, matrix in zip(("W_Q", "W_K", "W_V", "W_O"), target.parameters(layer, h), strict=True):
                weights[tensor, layer + 1, h] = matrix
    m = stream_least(name, *dims) if m is None else m
    wanted = w_all(weights, stream_places(*dims), target.embedding(), target.unembedding())
    E = solved(stream_matrix(name, dims, m, **drawn), wanted)
    if step is not None:
        E = np.vectorize(lambda x: round(x / step) * step, otypes=[object])(E)
    found, files = enclosure(name, dims, attention, n, digits, seed=seed, width=width, tied_target=tied_target, m=m, E=E,
                             verdict=verdict or "within", **drawn)  # fmt: skip
    found = streaming(found)
    if verdict is None:
        with tempfile.TemporaryDirectory() as folder:
            low, high = measured(found, Path(folder))
        bounds = max(0, ceil(low) - 1), floor(high) + 1
        found["claim"] |= {"verdict": "apart" if bounds[0] else "within", "difference": [written(x) for x in bounds]}
    return found, files
