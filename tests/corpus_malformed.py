"""The corpus: malformed certificates of ranks and kernels, apart from those that their form rules out (corpus_forms)."""

import functools
import json
import operator
import random
import struct

from make_corpus import BIG, TALL, Cases, added, changed, document, kernel_evidence, proved, sidecar, witness
from sceptic import (
    FIELDS,
    INDEX,
    PERMUTATIONS,
    canonical,
    least_m,
)


def malformed():
    """{name: bytes or (document, sidecar files)}."""
    out = Cases()
    add = out.add
    dims = (2, 1, 1, 1, 1)  # M = 6
    sparse, _ = proved("sparse", dims)
    modular, _ = proved("random", dims, seed=7)
    kernel, _ = proved("printed-looped", dims, 12)
    small = document("rank-deficient", "random", dims, 5, {"method": "dimension"})
    raw = canonical(sparse)

    def text(name, old, new, source=sparse):
        raw = canonical(source)
        old, new = old.encode(), new.encode("utf-8", "surrogatepass")
        assert raw.count(old) == 1, (name, old)
        add(name, raw.replace(old, new))

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
        "float-instead-of-integer": "6.0", "float-with-exponent": "6e0", "exponent": "1E1", "minus-zero": "-0",
        "leading-zero": "06", "plus-sign": "+6", "nan": "NaN", "infinity": "Infinity", "minus-infinity": "-Infinity",
        "huge-exponent": "1e999999999", "hexadecimal": "0x6", "enormous-integer-as-number": "9" * 5000,
        "integer-below-2-to-the-53-as-string": f'"{2**53 - 1}"',
        "string-with-leading-zero": f'"0{2**60}"', "string-with-plus": f'"+{2**60}"',
        "string-with-space": f'" {2**60}"', "string-with-newline": f'"{2**60}\\n"',
        "string-with-underscore": '"1_000_000_000_000_000_000_000"', "string-with-point": f'"{2**60}.0"',
        "string-with-exponent": '"1e30"', "string-minus-zero": '"-0"', "string-two-minus": f'"--{2**60}"',
        "string-arabic-digits": '"' + "\u0666" * 20 + '"', "string-fullwidth-digits": '"' + "\uff16" * 20 + '"',
        "string-superscript-digits": '"' + "\u2076" * 20 + '"', "string-empty": '""',
        "string-with-nul": f'"{2**60}\\u0000"',
    }.items():  # fmt: skip
        text(f"rank-{name}", '"rank":6', f'"rank":{number}')
    for field in FIELDS:
        member = f'"{field}":{sparse["shape"][field]}'
        text(f"shape-{field}-float", member, f"{member}.0")
    add("shape-negative-huge", changed(sparse, "shape", "d_in", str(-(2**60))))

    # fields
    for label, base, path in [
        ("modular-host", modular, ("claim", "host")), ("dimension-host", small, ("claim", "host")),
        ("kernel-host", kernel, ("claim", "host")), ("kernel-evidence", kernel, ("evidence",)),
    ]:  # fmt: skip
        for key in functools.reduce(operator.getitem, path, base).keys() - {"method"}:
            add(f"missing-field-{label}-{key}", changed(base, *path, key, ...))
    add("unknown-field-random-field-in-index-host", added(sparse, "claim", "host", "seed", 0))
    add("unknown-field-rank-in-a-refutation", added(kernel, "claim", "rank", 5))
    add("verdict-flipped-but-rank-kept", changed(sparse, "claim", "verdict", "not universal"))
    text("version-1.0", '"version":1', '"version":1.0')
    add("claim-targets-all-tied", changed(sparse, "claim", "targets", "all tied"))
    add("claim-host-3", changed(sparse, "claim", "host", {}))
    for base, path, values in [
        (sparse, ("version",), [0, 2]),
        (sparse, ("kind",), ["rank-full", "rank_permutation"]),
        (sparse, ("claim", "host", "construction"), ["Sparse", "dense", ""]),
        (modular, ("claim", "host", "seed"), [str(2**64), -1, str(-(2**63) - 1), "7", True, None, str(2**200)]),
        (modular, ("claim", "host", "law"), ["normal", "Uniform", ""]),
        (modular, ("claim", "host", "dtype"), ["float128", "f64", "Float64", "int64"]),
    ]:
        for i, value in enumerate(values):
            add(f"{'unknown' if path[-1] == 'construction' else 'wrong'}-{path[-1]}-{i}", changed(base, *path, value))

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
        "too-long": [*rows, 6], "too-short": rows[:-1], "empty": [], "string": "012345", "with-string": ["0", *rows[1:]],
        "as-object": {str(i): r for i, r in enumerate(rows)},
    }.items():  # fmt: skip
        add(f"inline-array-{attack}", changed(sparse, "evidence", "rows", new))
    text("inline-array-with-float", '"rows":[', '"rows":[0.0,')
    for i, value in enumerate([0, 1, -3, 2**31, 2**31 + 11, str(2**61 - 1)]):
        add(f"modular-prime-out-of-range-{i}", changed(modular, "evidence", "prime", value))
    text("modular-prime-float", '"prime":8388593', '"prime":8388593.0', modular)
    base, _ = witness("random", (1, 1, 1, 1, 1), 5, 101, seed=5)
    rows, inverse = base["evidence"]["rows"], base["evidence"]["inverse"]
    for attack, path_and_value in {
        "rows-decrease": ("rows", rows[::-1]), "rows-repeat": ("rows", [rows[0], rows[0], rows[2]]),
        "rows-too-long": ("rows", [0, 1, 2, 3]), "rows-too-short": ("rows", rows[:2]),
        "inverse-too-short": ("inverse", inverse[:-1]), "inverse-too-long": ("inverse", [*inverse, 0]),
        "inverse-missing": ("inverse", ...), "rows-missing": ("rows", ...),
        "method-recompute": ("method", "recompute"), "prime-out-of-range": ("prime", 2**31 + 11),
    }.items():  # fmt: skip
        add(f"witness-{attack}", changed(base, "evidence", *path_and_value))
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
        "z-triples": ("z", [[*pair, 0] for pair in z]), "z-singles": ("z", [[0], [1]]), "z-unsorted": ("z", z[::-1]),
        "z-position-twice": ("z", [z[0], z[0], z[1]]), "z-zero-value": ("z", [z[0], [z[1][0], 0]]),
        "z-position-M": ("z", [z[0], [6, -1]]), "z-position-negative": ("z", [[-1, 1], *z]),
        "z-position-beyond-2-to-the-64": ("z", [z[0], [str(2**64), 1]]),
        "column-M": ("column", 6), "column-negative": ("column", -1), "column-huge": ("column", str(2**64)),
        "distance-not-lowest": ("distance_squared", [2 * x for x in distance]),
        "distance-q-zero": ("distance_squared", [1, 0]), "distance-q-negative": ("distance_squared", [-1, -2]),
        "distance-one-number": ("distance_squared", [1]), "distance-three": ("distance_squared", [*distance, 1]),
        "distance-zero-over-two": ("distance_squared", [0, 2]),
    }.items():  # fmt: skip
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
        "dtype-int32": {"dtype": "int32"}, "length-too-short": {"length": 4096}, "length-too-long": {"length": 4098},
        "length-huge": {"length": str(2**64 + 4097)}, "unknown-field": {"path": "rows.bin"},
    }.items():  # fmt: skip
        with_sidecar(case, lambda c: c, changes)
    digest = reference("uppercase-digest")["sidecar"].upper()
    add(
        "sidecar-uppercase-digest",
        changed(big, "evidence", "rows", {"dtype": "uint32", "length": 4097, "sidecar": digest}),
        {digest: contents["uppercase-digest"]},
    )
    inside = proved("sparse", BIG)[0]["evidence"]["rows"]["sidecar"]
    for case, path in {
        "path-traversal": "../x", "path-to-the-valid-folder": f"../valid/{inside}", "path-absolute": "/dev/zero",
        "path-of-64-characters": "../valid/../".ljust(64, "0"), "path-with-suffix": f"{inside}.bin",
        "path-empty": "", "path-newline": f"{inside}\n", "path-63-digits": inside[:-1], "path-65-digits": inside + "0",
        "path-with-nul": inside[:63] + "\0", "path-unicode-digits": inside[:63] + "\u0660",
    }.items():  # fmt: skip
        add(f"sidecar-{case}", changed(big, "evidence", "rows", {"dtype": "uint32", "length": 4097, "sidecar": path}))
    short, files = sidecar(rows)
    add("sidecar-for-a-short-array", changed(sparse, "evidence", "rows", short), files)
    add("sidecar-missing-where-inline-is-too-long", changed(big, "evidence", "rows", list(range(4097))))
    return out
