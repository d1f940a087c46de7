"""The corpus: valid and invalid identities and lower bounds."""

import copy

from make_corpus import (
    ATTENTION,
    CORPUS,
    SCALAR,
    Cases,
    bound,
    changed,
    drawn_targets,
    drawn_values,
    identity,
    isolating,
    linear,
    null_vector,
    span,
    word_kernel,
    written,
)
from sceptic import (
    RANDOM,
    RULES,
    canonical,
    dimension,
    judge,
)

IDENTITY_SHAPES = [
    (1, 1, 1, 1), (2, 1, 2, 1), (2, 2, 1, 1), (2, 2, 2, 2), (3, 2, 3, 2), (2, 4, 2, 1), (1, 4, 2, 2), (2, 3, 2, 2),
]  # fmt: skip


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
    out = Cases()
    add = out.add
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
    out = Cases()
    add = out.add
    dims = (2, 2, 3, 2, 2)  # 38 columns, M = 44
    base = linear("random", dims, 40, seed=3)
    for attack, path_and_value in {
        "rank-is-M": ("claim", "rank", 44), "rank-is-m": ("claim", "rank", 40),
        "rank-off-by-one": ("claim", "rank", 37), "prime-two": ("evidence", "prime", 2),
        "prime-composite": ("evidence", "prime", 8388593 + 2), "m-below-the-columns": ("shape", "m", 37),
    }.items():  # fmt: skip
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
