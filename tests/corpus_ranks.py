"""The corpus: valid and invalid certificates of ranks and kernels."""

import copy
import struct
from fractions import Fraction

from make_corpus import (
    BIG,
    TALL,
    Cases,
    added,
    changed,
    document,
    index_matrix,
    kernel_basis,
    kernel_evidence,
    matrix_of,
    proved,
    sidecar,
    witness,
    written,
)
from sceptic import (
    DTYPES,
    INDEX,
    LAWS,
    PERMUTATIONS,
    RANDOM,
    index_columns,
    least_m,
    random_integers,
    rank_modulo,
)


def kernel_modulo(matrix, p):
    """An integer vector, not zero modulo p, that an integer matrix maps to zero modulo p."""
    from flint import nmod_mat

    rows, columns = matrix.shape
    basis, nullity = nmod_mat(rows, columns, [int(x) % p for x in matrix.reshape(-1)], p).nullspace()
    assert nullity
    return {i: v for i in range(columns) if (v := int(basis[i, 0]))}


WIDE = (16, 2, 7, 2, 2)  # M = 4320, many blocks


def valid():
    """{name: (document, sidecars)}."""
    out = Cases()
    add = out.add

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
    out = Cases()
    add = out.add
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
        "row-repeated": [rows[0], rows[0], *rows[2:]], "row-off-by-one": [*rows[:7], rows[7] + 1, *rows[8:]],
        "row-negative": [rows[0] - M, *rows[1:]], "row-minus-one": [*rows[:-1], -1], "row-beyond-m": [*rows[:-1], M],
        "row-2-to-the-32-too-large": [rows[0] + 2**32, *rows[1:]],
        "row-2-to-the-64-too-large": [str(rows[0] + 2**64), *rows[1:]], "all-rows-zero": [0] * M,
    }.items():  # fmt: skip
        add(f"permutation-{attack}", changed(base, "evidence", "rows", new))
    padded, _ = proved("sparse", dims, 27)
    add("permutation-row-in-the-padding", changed(padded, "evidence", "rows", [*rows[:-1], 26]))
    tied, _ = proved("tied", dims)
    add("permutation-rows-of-another-construction", changed(base, "evidence", "rows", tied["evidence"]["rows"]))
    add("permutation-host-renamed", changed(base, "claim", "host", "construction", "sparse-front"))
    other, _ = proved("sparse", (2, 1, 2, 2, 6))  # M is 20, too
    add("permutation-shape-with-the-same-M", changed(base, "shape", other["shape"]))
    for attack, rank in {
        "below-M": M - 1, "above-M": M + 1, "zero": 0, "negative": -M, "half": M // 2, "huge": str(2**80),
        "plus-2-to-the-64": str(M + 2**64),
    }.items():  # fmt: skip
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
        "composite-prime": 8388593 + 2, "prime-two": 2, "prime-even": 2**23, "prime-carmichael": 561,
        "prime-square": 4093**2, "prime-pseudoprime-2": 2047, "prime-pseudoprime-2-3": 1373653,
        "prime-pseudoprime-2-3-5": 25326001, "prime-product-of-large": 46337 * 46327, "prime-nine": 9,
    }.items():  # fmt: skip
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
