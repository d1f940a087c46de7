"""The corpus: certificates of hosts in files, of tied targets and of linear tests."""

import copy
import hashlib
import json
import random
import struct

import numpy as np
from corpus_weights import (
    MIXED,
    RECOMPUTE,
    commuting_kernel,
    dense_trie,
    drawn_gauges,
    drawn_weights,
    gauged,
    of_weights,
    packed,
    pairs_of,
    safetensors,
    tied_kernel,
    tied_target,
    tied_target_evidence,
)
from make_corpus import (
    CORPUS,
    Cases,
    added,
    changed,
    document,
    kernel_basis,
    kernel_evidence,
    matrix_of,
    proved,
)
from sceptic import (
    RANDOM,
    Stored,
    canonical,
    digest_of,
    index_columns,
    judge,
)


def stored_valid():
    out = Cases()
    add = out.add
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
    out = Cases()
    add = out.add
    tiny = (1, 1, 1, 1, 1)

    def modular(label, tensors, dims=tiny, m=3, tied=False, rank=3, evidence=RECOMPUTE):
        add(label, of_weights("rank-modular", tied, tensors, dims, m, evidence, label=label, rank=rank))

    singular = drawn_weights(False, tiny, 3, 21, "F32")
    singular["R_K"] = singular["R_Q"]
    modular("weights-digest-of-another-file", singular)
    for kind, bits in {
        "F64": (2047 << 52) + 1, "F32": (255 << 23) + 1, "F16": (31 << 10) + 1, "BF16": (255 << 7) + 1,
    }.items():  # fmt: skip
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
    out = Cases()
    add = out.add
    tiny = (1, 1, 1, 1, 1)
    seeds = iter(range(100, 200))

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
        "upper-case": digest_of(drawn_weights(False, tiny, 3, 1)).upper(), "short": "0" * 63, "long": "0" * 65,
        "list": ["0" * 64], "null": None, "path": "../valid/".ljust(64, "0"), "newline": "0" * 63 + "\n",
        "zero": "0" * 64,
    }.items():  # fmt: skip
        file(f"digest-{case}", change=lambda found, value=value: changed(found, "claim", "host", "weights", value))
    for case, value in {
        "unknown": "random", "shared": "shared-attention-universal", "null": None, "list": ["universal"],
    }.items():  # fmt: skip
        file(f"system-{case}", change=lambda found, value=value: changed(found, "claim", "host", "system", value))
    file("system-missing", change=lambda found: changed(found, "claim", "host", "system", ...))
    file("host-with-a-seed", change=lambda found: added(found, "claim", "host", "seed", 0))
    file("host-with-a-construction", change=lambda found: added(found, "claim", "host", "construction", "random"))

    base = tied_target("printed-looped", (2, 2, 1, 1, 1))
    entries = base["evidence"]["target"]
    for case, path_and_value in {
        "row-d_in": ("evidence", "row", 1),
        "row-negative": ("evidence", "row", -1),
        "row-missing": ("evidence", "row", ...),
        "target-missing": ("evidence", "target", ...),
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
        "vector-empty": ("evidence", "basis", [z, []]),
        "vector-unsorted": ("evidence", "basis", [z[::-1]]),
        "vector-position-M": ("evidence", "basis", [[*z, [16, 1]]]),
        "vector-zero-value": ("evidence", "basis", [[z[0], [z[1][0], 0]]]),
        "vector-4097-entries": ("evidence", "basis", [[[i, 1] for i in range(4097)]]),
        "prime-out-of-range": ("evidence", "prime", 2**31),
        "of-an-index-host": ("claim", "host", {"construction": "printed-looped"}),
        "of-commuting-trie": ("claim", "host", {"construction": "commuting-trie"}),
        "d_out-is-not-d_in": ("shape", "d_out", 2),
    }.items():
        add(f"tied-kernel-{case}", changed(base, *path_and_value), files)

    base = gauged("random", (2, 2, 2, 1, 1), 30, 1, seed=3)
    gauges = base["evidence"]["gauges"]
    for case, path_and_value in {
        "empty": ([],), "of-a-layer-less": (gauges[1:],), "of-a-head-less": (0, gauges[0][:1]),
        "of-a-row-more": (0, 0, [[1, 0], [0, 1]]), "transposed": (0, 0, [[1], [0]]), "of-an-entry-less": (0, 0, 0, [1]),
    }.items():  # fmt: skip
        add(f"linear-gauges-{case}", changed(base, "evidence", "gauges", *path_and_value))
    add("linear-gauges-per-layer-of-a-tied-host", changed(base, "claim", "host", "construction", "random-tied"))
    add("linear-gauges-with-a-float", canonical(base).replace(b'"gauges":[[[[', b'"gauges":[[[[1.5,'))
    return out
