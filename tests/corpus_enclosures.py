"""The corpus's certificates of kind `enclosure` (docs/certificate-format.md section 12), for make_corpus.

Exact embeddings are solved for over the rationals, or multiplied out from the words of section 9; what a certificate states
of a rounded one is measured by the sceptic.
"""

import copy
import hashlib
import random
import tempfile
from fractions import Fraction
from math import ceil, floor, lcm
from pathlib import Path
from types import SimpleNamespace

import naive
import numpy as np
from corpus_weights import drawn_weights, safetensors
from make_corpus import added, changed, identity, matrix_of, written
from sceptic import INDEX, RANDOM, Stored, canonical, digest_of, least_m, measured

from utfproof.attention import PARTS

TINY = (2, 1, 1, 1, 1)


def numbers(values):
    flat = [Fraction(x) for x in np.asarray(values, dtype=object).reshape(-1)]
    q = lcm(*(x.denominator for x in flat))
    return {"denominator": written(q), "numerators": [written(int(x * q)) for x in flat]}


def drawn(source, *sizes):
    """Numbers of at most 2 in steps of 1/8, never 0."""
    out = np.empty(sizes, dtype=object)
    out.reshape(-1)[:] = [Fraction(source.choice([-1, 1]) * source.randint(1, 16), 8) for _ in range(out.size)]
    return out


def drawn_target(dims, seed, width=None, tied=False):
    """A target of this width with small weights, as naive.w_all has it."""
    H, L, d, d_in, d_out = dims
    D = d_in if width is None else width
    source, layers = random.Random(seed), 1 if tied else L
    W = {name: drawn(source, layers, H, D, d) for name in ("W_Q", "W_K", "W_V")}
    W["W_O"] = drawn(source, layers, H, d, D)
    W |= {"W_E": drawn(source, d_in, D)} if D != d_in else {}
    W |= {"W_U": drawn(source, D, d_out)} if D != d_out else {}
    one = np.array([[Fraction(i == j) for j in range(D)] for i in range(D)], dtype=object)

    def parameters(layer, h):
        return tuple(W[name][0 if tied else layer, h] for name in ("W_Q", "W_K", "W_V", "W_O"))

    return SimpleNamespace(
        shape=SimpleNamespace(heads=H, layers=L),
        embedding=lambda: W.get("W_E", one),
        unembedding=lambda: W.get("W_U", one),
        parameters=parameters,
        tensors=W,
        tied=tied,
        width=D,
    )


def solved(R, W):
    """E with E R = W, over the rationals."""
    from flint import fmpq, fmpq_mat

    m, count = R.shape[0], W.shape[0]
    system = np.concatenate([R.T, W.T], axis=1)
    entries = [fmpq(Fraction(x).numerator, Fraction(x).denominator) for x in system.reshape(-1)]
    reduced, rank = fmpq_mat(*system.shape, entries).rref()
    E = np.array([[Fraction(0)] * m for _ in range(count)], dtype=object)
    for i in range(int(rank)):
        pivot = next(j for j in range(m + count) if reduced[i, j] != 0)
        assert pivot < m
        for k in range(count):
            E[k, pivot] = Fraction(int(reduced[i, m + k].p), int(reduced[i, m + k].q))
    return E


def from_words(name, dims, m, target):
    """E of the identity for shared-key or shared-query, multiplied out."""
    from flint import fmpq, fmpq_mat

    b = dims[3]

    def inverse(M):
        found = fmpq_mat(b, b, [fmpq(x.numerator, x.denominator) for x in M.reshape(-1)]).inv()
        return np.array([[Fraction(int(found[i, j].p), int(found[i, j].q)) for j in range(b)] for i in range(b)])

    E = np.array([[Fraction(0)] * m for _ in range(b)], dtype=object)
    for start, word in identity(name, dims[:4])["evidence"]["E"]:
        total = np.array([[Fraction(i == j) for j in range(b)] for i in range(b)], dtype=object)
        for letter in word:
            head = letter.split(".")[1]
            suffix = head.lstrip("0123456789")
            q, k, v, o = target.parameters(int(letter[1:].split(".")[0]) - 1, int(head.removesuffix(suffix)))
            factor = v.dot(o) if letter[0] == "M" else q.dot(k.T)
            factor = inverse(factor) if "I" in suffix else factor
            total = total.dot(factor.T if "T" in suffix else factor)
        E[:, start : start + b] = total
    return E


def stochastic(source, L, H, n):
    """Matrices with nonnegative rational rows that sum to 1."""
    out = np.empty((L, H, n, n), dtype=object)
    for place in np.ndindex(L, H, n):
        row = [source.randint(0, 3) for _ in range(n - 1)]
        out[place] = [Fraction(x, 3 * n) for x in [*row, 3 * n - sum(row)]]
    return out


def enclosure(name, dims, attention, n, digits=30, *, seed=0, width=None, tied_target=False, m=None, step=None, E=None,
              verdict=None, weights=None, **options):  # fmt: skip
    """(document, files). step: E is rounded to multiples of it. E: any, in place of the exact one. weights: (label, tensors,
    tied) of a file. verdict "equal" asks for nothing to be measured."""
    H, L, _, d_in, _ = dims
    target, source = drawn_target(dims, seed, width, tied_target), random.Random(1000 + seed)
    X = drawn(source, n, d_in) / 2
    files, host = {}, {"construction": name}
    if weights is not None:
        label, tensors, tied = weights
        host = {"system": "looped-universal" if tied else "universal", "weights": digest_of(tensors)}
        files = {f"{label}.safetensors": safetensors(tensors)}
        integers, factors = Stored(tensors, tied, dims, m).integers()
        R = integers * np.array(factors, dtype=object)
    elif name in RANDOM:
        host |= {"dtype": "float64", "law": "uniform", "seed": 0} | options
        host["seed"] = written(host["seed"])
    m = least_m(name, *dims) if m is None else m
    if E is None:
        if name in ("shared-key", "shared-query"):
            E = from_words(name, dims, m, target)
        else:
            R = R if weights is not None else matrix_of(name, dims, m, **options)
            E = solved(R, naive.w_all(target))
            # zero rows of a padded host
            E = np.concatenate([E, np.array([[Fraction(0)] * (m - E.shape[1])] * d_in, dtype=object)], axis=1)
    if step is not None:
        E = np.vectorize(lambda x: round(x / step) * step, otypes=[object])(E)
    claim = {
        "host": host,
        "notion": "one emulation",
        "targets": "this one",
        "attention": attention,
        "context": n,
        "verdict": verdict or "within",
    }
    if verdict != "equal":
        claim |= {"digits": digits, "difference": [0, 1]}
    tensors = {tensor: numbers(values) for tensor, values in target.tensors.items()}
    evidence = {
        "E": numbers(E),
        "X": numbers(X),
        "method": "rational" if attention == "given" else "interval",
        "target": tensors | {"system": "looped-target" if tied_target else "target", "width": target.width},
    }
    if attention == "given":
        evidence["attention"] = numbers(stochastic(source, L, H, n))
    shape = dict(zip(("heads", "layers", "head_dim", "d_in", "d_out", "m"), (*dims, m), strict=True))
    out = {
        "format": "utfproof-certificate",
        "version": 1,
        "kind": "enclosure",
        "shape": shape,
        "claim": claim,
        "evidence": evidence,
    }
    if verdict is None:
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                (Path(folder) / file).write_bytes(content)
            low, high = measured(out, Path(folder))
        bounds = max(0, ceil(low) - 1), floor(high) + 1
        claim |= {"verdict": "apart" if bounds[0] else "within", "difference": [written(x) for x in bounds]}
    return out, files


def of_file(label, tied, dims, m, seed, attention, n, kinds="F32", inner=None, **options):
    tensors = drawn_weights(tied, dims, m, seed, kinds, inner)
    return enclosure(None, dims, attention, n, m=m, weights=(label, tensors, tied), **options)


def by_digests(found):
    """The same with a claim that names the target, E and X."""
    held = copy.deepcopy(found)
    for name in ("E", "X", "target"):
        held["claim"][name] = hashlib.sha256(canonical(held["evidence"][name])).hexdigest()
    return held


TWO, WIDE = (2, 2, 1, 2, 2), (2, 2, 2, 2, 2)
ROUNDED = Fraction(1, 3**25)  # weights are dyadic, so that rounding to this changes them


def valid():
    out = {
        "sparse-softmax": enclosure("sparse", TWO, "softmax", 3),
        "sparse-causal": enclosure("sparse", (2, 1, 1, 2, 3), "causal", 3, 40, seed=1),
        "sparse-scaled": enclosure("sparse", (2, 1, 3, 1, 1), "scaled", 3, seed=2),
        "sparse-window": enclosure("sparse", (1, 2, 1, 2, 1), "window:2", 4, seed=3),
        "sparse-alibi": enclosure("sparse", (3, 1, 1, 1, 1), "alibi", 3, seed=4),
        "sparse-rope": enclosure("sparse", (1, 2, 2, 2, 2), "rope", 3, seed=5),
        "sparse-front": enclosure("sparse-front", (2, 2, 1, 1, 2), "scaled+causal", 3, seed=6, width=3),
        "tied": enclosure("tied", WIDE, "scaled+causal+window:2+alibi+rope", 3, 100, seed=7),
        "tied-padded-for-a-looped-target": enclosure("tied", (2, 2, 1, 1, 1), "causal+window:3", 4, seed=8, m=18,
                                                     tied_target=True),
        "shared-key": enclosure("shared-key", (2, 2, 3, 2, 2), "alibi", 3, seed=9),
        "shared-query": enclosure("shared-query", (2, 2, 2, 2, 2), "causal+alibi", 3, seed=10),
        "random": enclosure("random", (2, 1, 1, 2, 2), "causal", 3, seed=11, m=8),
        "random-with-rope": enclosure("random", (1, 1, 2, 1, 1), "rope", 3, 100, seed=12, m=5, law="signs"),
        "random-tied": enclosure("random-tied", (1, 2, 1, 1, 1), "softmax", 2, seed=13, m=6, law="binomial",
                                 dtype="float32"),
        "random-of-a-larger-m": enclosure("random", (1, 1, 1, 2, 1), "scaled", 2, seed=1, m=4, dtype="bfloat16"),
        "rounded-sparse": enclosure("sparse", (2, 2, 1, 1, 1), "causal+alibi", 3, step=ROUNDED, width=2, seed=14),
        "rounded-tied": enclosure("tied", (2, 1, 2, 2, 2), "scaled+rope", 3, 60, step=ROUNDED, seed=15),
        "rounded-random": enclosure("random", (2, 1, 1, 1, 1), "window:1", 2, 40, seed=16, m=6, step=ROUNDED),
        "rounded-within": enclosure("random", (2, 1, 1, 1, 1), "softmax", 2, 6, seed=17, m=6, step=ROUNDED),
        "rounded-random-tied": enclosure("random-tied", (1, 2, 2, 1, 1), "rope", 3, seed=18, m=9, step=ROUNDED),
        "shared-key-with-rope": enclosure("shared-key", (2, 1, 2, 1, 1), "rope", 3, 20, seed=19),
        "shared-query-with-rope": enclosure("shared-query", (1, 2, 2, 1, 1), "causal+rope", 3, 20, seed=20),
        "one-token": enclosure("tied", TINY, "softmax", 1, seed=21),
        "one-digit": enclosure("tied", TINY, "alibi", 2, 1, seed=22),
        "a-thousand-digits": enclosure("tied", TINY, "scaled+alibi", 2, 1000, seed=23),
        "window-beyond-the-context": enclosure("tied", TINY, "window:999999999999999999", 2, seed=24),
        "equal-sparse": enclosure("sparse", (2, 2, 1, 1, 2), "given", 3, seed=25, verdict="equal"),
        "equal-tied-for-a-looped-target": enclosure("tied", (2, 2, 1, 1, 1), "given", 2, seed=26, tied_target=True,
                                                    verdict="equal"),
        "equal-random": enclosure("random", (1, 2, 1, 1, 1), "given", 2, seed=27, m=5, verdict="equal"),
        "equal-shared-key": enclosure("shared-key", (2, 1, 1, 1, 1), "given", 3, seed=28, verdict="equal"),
        "given-apart": enclosure("tied", TINY, "given", 2, 20, seed=29, step=Fraction(1, 81)),
        "given-within": enclosure("sparse", TINY, "given", 2, 3, seed=30, step=ROUNDED),
    }  # fmt: skip
    for part in PARTS:  # those that have no case above
        name, _, value = part.name.partition(":")
        if f"sparse-{name}" not in out:
            out[f"sparse-{name}"] = enclosure("sparse", (2, 1, 2, 1, 1), f"{name}:2" if value else name, 3, seed=33)
    for name, dims in (("printed-single-head", (1, 2, 1, 1, 2)), ("printed-tree-row", (2, 2, 1, 1, 1)),
                       ("printed-tree-column", (2, 2, 1, 1, 1)), ("printed-looped", (2, 2, 1, 1, 1))):  # fmt: skip
        E = drawn(random.Random(7), dims[3], least_m(name, *dims))
        out[name] = enclosure(name, dims, "softmax", 2, 12, seed=31, E=E)
        out[f"given-{name}"] = enclosure(name, dims, "given", 2, 12, seed=32, E=E)
    mixed = {"R_Q": "F16", "R_K": "I8", "R_V": "F64", "R_Vv": "F64", "R_Vo": "BF16", "U": "U8"}
    for label, found in {
        "weights": ((False, TINY, 6, 51, "causal", 2), {"kinds": mixed}),
        "weights-looped-factored": ((True, (1, 2, 1, 1, 1), 6, 52, "softmax", 2), {"kinds": mixed, "inner": 6}),
        "weights-rounded": ((False, TINY, 7, 53, "scaled+alibi", 2), {"step": ROUNDED}),
        "weights-equal": ((True, TINY, 6, 54, "given", 2), {"verdict": "equal"}),
    }.items():
        out[label] = of_file(f"enclosure-{label}", *found[0], **found[1])
    base, _ = out["one-token"]
    out["numbers-not-in-lowest-terms"] = changed(base, "evidence", "X", {"denominator": 64, "numerators": [32]}), {}
    # the exact difference itself as a bound
    halves = halved_host()
    out["given-apart-from-the-lower-bound-on"] = changed(halves, "claim", "difference", [5, 6]), {}
    out["given-apart-up-to-the-upper-bound"] = changed(halves, "claim", "difference", [4, 5]), {}
    for name in ("rounded-sparse", "rounded-random", "weights-rounded", "given-apart"):
        found, files = out[name]
        a, b = map(int, found["claim"]["difference"])
        for case, bounds in {"wider": [a - 3, b + 10**9], "ten-times": [1, 10 * b]}.items():
            out[f"{name}-{case}"] = changed(found, "claim", "difference", [written(x) for x in bounds]), files
        at_most = changed(changed(found, "claim", "difference", [0, written(b)]), "claim", "verdict", "within")
        out[f"{name}-at-most"] = at_most, files
    # another input, and other weights with the embedding that belongs to them
    base, _ = out["sparse-softmax"]
    out["sparse-of-another-input"] = changed(base, "evidence", "X", "numerators", 1, 5000), {}
    out["sparse-read-depth-first"] = enclosure("sparse-front", TWO, "softmax", 3)
    for name in ("sparse-softmax", "given-apart", "equal-sparse", "weights"):
        document, files = out[name]
        out[f"{name}-by-digests"] = by_digests(document), files
    return {f"enclosure-{name}": found for name, found in out.items()}


def halved_host():
    """One token: the output is X E R U, off by 1/2 exactly."""
    base = enclosure("tied", (1, 1, 1, 1, 1), "given", 1, 1, seed=33, verdict="equal")[0]
    E = [Fraction(int(x), int(base["evidence"]["E"]["denominator"])) for x in base["evidence"]["E"]["numerators"]]
    base["evidence"]["X"] = numbers([Fraction(1)])
    base["evidence"]["E"] = numbers([*E[:2], E[2] + Fraction(1, 2)])
    base["claim"] |= {"verdict": "apart", "digits": 1, "difference": [4, 6]}
    return base


def invalid():
    found = valid()
    out = {}

    def add(name, base, *changes, files=None):
        document, held = found[f"enclosure-{base}"]
        for change in changes:
            document = changed(document, *change)
        assert name not in out, name
        out[name] = document, held if files is None else files

    for base in ("rounded-sparse", "rounded-random", "rounded-random-tied", "weights-rounded", "given-apart"):
        claim = found[f"enclosure-{base}"][0]["claim"]
        a, b = map(int, claim["difference"])
        for case, bounds in {"too-narrow-above": [a - 7, a], "too-narrow-below": [b, b + 7], "ten-times": [10 * a, 10 * b],
                             "a-tenth": [a // 10, a // 10 + 1]}.items():  # fmt: skip
            add(f"{base}-{case}", base, ("claim", "difference", [written(x) for x in bounds]))
        add(f"{base}-within-a-unit", base, ("claim", "difference", [0, 1]), ("claim", "verdict", "within"))
        add(f"{base}-at-most-less", base, ("claim", "difference", [0, written(a)]), ("claim", "verdict", "within"))
        add(f"{base}-said-to-be-within", base, ("claim", "verdict", "within"))
        add(f"{base}-a-digit-more", base, ("claim", "digits", claim["digits"] + 1))
    for base in ("sparse-softmax", "random", "tied", "equal-sparse", "equal-random", "weights", "weights-equal"):
        numerators = found[f"enclosure-{base}"][0]["evidence"]["E"]["numerators"]
        place = max(range(len(numerators)), key=lambda i: abs(int(numerators[i])))
        # 10^40 as the common denominator: one part in 10^12 of one entry
        q = int(found[f"enclosure-{base}"][0]["evidence"]["E"]["denominator"])
        finer = [int(x) * 10**12 for x in numerators]
        finer[place] += finer[place] // 10**12
        E = {"denominator": written(q * 10**12), "numerators": [written(x) for x in finer]}
        add(f"{base}-E-off-by-a-part-in-10-to-the-12", base, ("evidence", "E", E))
        first, second = (i for i in (0, len(numerators) - 1))
        add(f"{base}-E-with-two-entries-exchanged", base, ("evidence", "E", "numerators", first, numerators[second]),
            ("evidence", "E", "numerators", second, numerators[first]))  # fmt: skip
        for tensor in ("W_Q", "W_V"):
            if base.startswith(("equal", "weights-equal")) and tensor == "W_Q":
                continue  # queries play no part
            entry = int(found[f"enclosure-{base}"][0]["evidence"]["target"][tensor]["numerators"][0])
            add(f"{base}-{tensor}-off", base, ("evidence", "target", tensor, "numerators", 0, entry + 1))
        add(f"{base}-E-halved", base, ("evidence", "E", "denominator", written(2 * q)))
    for base, other in (("rounded-sparse", "softmax"), ("rounded-tied", "rope"),
                        ("rounded-tied", "scaled"), ("rounded-random", "softmax"), ("shared-query-with-rope", "rope"),
                        ("weights-rounded", "scaled")):  # fmt: skip
        add(f"{base}-as-{other}", base, ("claim", "attention", other))
    add("sparse-as-sparse-front", "sparse-softmax", ("claim", "host", "construction", "sparse-front"))
    add("sparse-as-tied", "sparse-softmax", ("claim", "host", "construction", "tied"))
    add("sparse-as-printed-tree-row", "sparse-softmax", ("claim", "host", "construction", "printed-tree-row"))
    add("random-of-another-seed", "random", ("claim", "host", "seed", 1))
    add("random-of-another-law", "random", ("claim", "host", "law", "signs"))
    add("random-of-another-dtype", "random", ("claim", "host", "dtype", "float32"))
    add("random-tied-untied", "random-tied", ("claim", "host", "construction", "random"))
    add("within-said-to-be-apart", "sparse-softmax", ("claim", "verdict", "apart"))
    add("exact-said-to-be-at-least-a-unit-apart", "sparse-softmax", ("claim", "verdict", "apart"),
        ("claim", "difference", [1, 2]))  # fmt: skip
    add("given-exact-said-to-be-at-least-a-unit-apart", "given-within", ("claim", "verdict", "apart"),
        ("claim", "difference", [1, 2]))  # fmt: skip
    add("rounded-within-more-digits", "rounded-within", ("claim", "digits", 30))
    apart, _ = found["enclosure-given-apart"]
    claim = {key: value for key, value in apart["claim"].items() if key not in ("digits", "difference")}
    out["given-apart-said-to-be-equal"] = apart | {"claim": claim | {"verdict": "equal"}}, {}
    halves = halved_host()
    out["given-apart-above-the-difference"] = changed(halves, "claim", "difference", [6, 7]), {}
    out["given-apart-below-the-difference"] = changed(halves, "claim", "difference", [3, 4]), {}
    for label, kind, entry in (("nan", "F32", b"\0\0\xc0\x7f"), ("infinity", "F16", b"\0\x7c")):
        tensors = drawn_weights(False, TINY, 6, 55, kind)
        form, sizes, data = tensors["R_K"]
        tensors["R_K"] = form, sizes, entry + data[len(entry) :]
        document, _ = found["enclosure-weights"]
        document = changed(document, "claim", "host", "weights", digest_of(tensors))
        out[f"weights-with-{label}"] = document, {f"enclosure-weights-with-{label}.safetensors": safetensors(tensors)}
    tensors = drawn_weights(False, TINY, 7, 56)
    document = changed(found["enclosure-weights"][0], "claim", "host", "weights", digest_of(tensors))
    out["weights-of-another-m"] = document, {"enclosure-weights-of-another-m.safetensors": safetensors(tensors)}
    # what is written down is true, but not of what the claim names
    equal = by_digests(found["enclosure-equal-sparse"][0])
    for part in ("E", "X", "target"):
        wrong = found["enclosure-equal-sparse"][0]["evidence"]["method"]
        out[f"another-{part}-named"] = changed(equal, "claim", part, hashlib.sha256(wrong.encode()).hexdigest()), {}
    zeroed = copy.deepcopy(equal)
    for held in (
        zeroed["evidence"]["E"],
        *(zeroed["evidence"]["target"][name] for name in ("W_Q", "W_K", "W_V", "W_O")),
    ):
        held["numerators"] = [0] * len(held["numerators"])
    out["zeroed-target-and-E"] = zeroed, {}
    scaled = copy.deepcopy(equal)  # the same numbers, written otherwise
    X = scaled["evidence"]["X"]
    scaled["evidence"]["X"] = {"denominator": 2 * X["denominator"], "numerators": [2 * x for x in X["numerators"]]}
    out["another-way-to-write-X"] = scaled, {}
    return {f"enclosure-{name}": content for name, content in out.items()}


def malformed():
    out = {}
    base, _ = enclosure("tied", TINY, "causal", 2, seed=40)
    given, _ = enclosure("tied", TINY, "given", 2, seed=40, verdict="equal")
    rounded, _ = enclosure("tied", TINY, "given", 2, 9, seed=40, step=Fraction(1, 81))
    wide, _ = enclosure("tied", (1, 1, 1, 2, 1), "softmax", 1, seed=41, width=3)

    def add(name, document, *path_and_value):
        assert name not in out, name
        out[name] = changed(document, *path_and_value), {}

    for name in ("digits", "difference"):
        add(f"{name}-missing", base, "claim", name, ...)
    for case, value in {
        "unknown": "linear", "empty": "", "twice": "causal+causal", "out-of-order": "causal+scaled",
        "softmax-and-more": "softmax+causal", "given-and-more": "given+causal", "upper-case": "Causal",
        "window-without-a-number": "window", "window-empty": "window:", "window-zero": "window:0",
        "window-with-a-zero-in-front": "window:02", "window-negative": "window:-2", "window-of-a-fraction": "window:2.5",
        "window-of-19-digits": "window:" + "9" * 19, "window-twice": "window:2:3", "causal-with-a-number": "causal:2",
        "space": "causal + alibi", "plus-in-front": "+causal", "plus-at-the-end": "causal+",
        "rope-of-odd-head-dim": "rope", "given-without-matrices": "given", "newline": "causal\n",
    }.items():  # fmt: skip
        add(f"attention-{case}", base, "claim", "attention", value)
    for case, value in {"zero": 0, "more": 3, "fewer": 1}.items():
        add(f"context-{case}", base, "claim", "context", value)
    add("digits-zero", base, "claim", "digits", 0)
    for case, value in {
        "empty": [], "single": [0], "triple": [0, 1, 2], "negative": [-1, 1], "of-nothing": [0, 0],
        "reversed": [1, 0], "equal-ends": [5, 5],
    }.items():  # fmt: skip
        add(f"difference-{case}", base, "claim", "difference", value)
    for case, value in {"universal": "universal", "not-universal": "not universal", "equal": "equal"}.items():
        add(f"verdict-{case}", base, "claim", "verdict", value)
    add("method-rational", base, "evidence", "method", "rational")
    out["with-attention-matrices"] = added(base, "evidence", "attention", given["evidence"]["attention"]), {}
    for case, value in {"zero": 0, "negative": -8}.items():
        add(f"denominator-{case}", base, "evidence", "E", "denominator", value)
    numerators = base["evidence"]["E"]["numerators"]
    for case, value in {"empty": [], "fewer": numerators[1:], "more": [*numerators, 0]}.items():
        add(f"numerators-{case}", base, "evidence", "E", "numerators", value)
    for tensor in ("W_Q", "W_K", "W_V", "W_O"):
        add(f"{tensor}-of-an-entry-more", base, "evidence", "target", tensor, "numerators", [1, 1, 1])
    add("X-of-another-context", base, "evidence", "X", "numerators", [1, 1, 1])
    deep, _ = enclosure("tied", (1, 2, 1, 1, 1), "softmax", 1, seed=42)
    add("system-looped-with-every-layer", deep, "evidence", "target", "system", "looped-target")
    for case, value in {"zero": 0, "two": 2}.items():
        add(f"width-{case}", base, "evidence", "target", "width", value)
    add("W_E-missing", wide, "evidence", "target", "W_E", ...)
    add("W_U-missing", wide, "evidence", "target", "W_U", ...)
    add("W_E-transposed-in-size", wide, "evidence", "target", "W_E", "numerators", [1] * 9)
    add("d_in-changed", base, "shape", "d_in", 2)
    add("d_out-changed", base, "shape", "d_out", 2)
    add("m-changed", base, "shape", "m", 7)
    add("heads-changed", base, "shape", "heads", 1)
    add("layers-changed", base, "shape", "layers", 2)
    add("m-below-the-least", base, "shape", "m", 5)
    add("host-register", base, "claim", "host", "construction", "register")
    add("host-with-a-seed", base, "claim", "host", {"construction": "tied", "seed": 0})
    add("weights-missing", base, "claim", "host", {"system": "universal", "weights": "0" * 64})
    add("given-method-interval", given, "evidence", "method", "interval")
    add("given-without-attention", given, "evidence", "attention", ...)
    add("given-as-softmax", given, "claim", "attention", "softmax")
    out["equal-with-digits"] = added(given, "claim", "digits", 30), {}
    out["equal-with-a-difference"] = added(added(given, "claim", "difference", [0, 1]), "claim", "digits", 1), {}
    add("given-within-without-digits", rounded, "claim", "digits", ...)
    matrices = given["evidence"]["attention"]
    q = matrices["denominator"]
    for case, value in {
        "row-above-one": [q, 1, 0, q], "row-below-one": [q - 1, 0, 0, q], "negative-entry": [q + 1, -1, 0, q],
        "zero-row": [0, 0, 0, q],
    }.items():  # fmt: skip
        add(f"given-{case}", given, "evidence", "attention", "numerators", [*value, *matrices["numerators"][4:]])
    add("given-of-a-head-less", given, "evidence", "attention", "numerators", matrices["numerators"][4:])
    assert {"tied"} <= set(INDEX)
    named = by_digests(base)
    for part in ("E", "X", "target"):
        digest = named["claim"][part]
        add(f"without-a-digest-of-{part}", named, "claim", part, ...)
        add(f"digest-of-{part}-with-63-digits", named, "claim", part, digest[:-1])
        add(f"digest-of-{part}-with-a-capital", named, "claim", part, "A" + digest[1:])
        out[f"digest-of-{part}-alone"] = added(base, "claim", part, digest), {}
    return {f"enclosure-{name}": content for name, content in out.items()}
