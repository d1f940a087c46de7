"""The corpus: malformed identities and lower bounds, apart from those that their form rules out (corpus_forms)."""

from make_corpus import (
    ATTENTION,
    SCALAR,
    Cases,
    added,
    bound,
    changed,
    document,
    drawn_values,
    identity,
    isolating,
    linear,
    null_vector,
    span,
    word_kernel,
)
from sceptic import (
    INVERTIBLE,
    RULES,
    canonical,
)


def more_malformed():
    out = Cases()
    add = out.add
    base = linear("random", (2, 1, 3, 2, 2), 20, seed=3)
    add("linear-d-below-d_in", changed(base, "shape", "head_dim", 1))
    add("linear-d_in-is-not-d_out", changed(base, "shape", "d_out", 1))
    add("linear-of-sparse", changed(base, "claim", "host", {"construction": "sparse"}))
    add("linear-of-an-identity", changed(base, "claim", "host", {"construction": "register"}))
    add("linear-prime-out-of-range", changed(base, "evidence", "prime", 2**31))
    add("linear-verdict-flipped-but-rank-kept", changed(base, "claim", "verdict", "not universal"))
    add("linear-weights-not-found", changed(base, "claim", "host", {"system": "universal", "weights": "0" * 64}))
    for name in ("register", "two-sided", "counting", "commuting-trie"):
        add(
            f"rank-deficient-of-{name}",
            document("rank-deficient", name, (2, 2, 1, 1, 1), 3, {"method": "dimension"}),
        )

    for name in RULES:
        dims = (2, 2, 1, 1) if name in SCALAR else (2, 2, 2, 2)
        base = identity(name, dims)
        E = base["evidence"]["E"]
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
        for notion in ("matching", "attention-matching", "functional", "shared attention"):
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
        attack("start-negative", "evidence", "E", 0, 0, -1)
        attack("start-string", "evidence", "E", 0, 0, "0")
        attack("block-of-three", "evidence", "E", 0, [0, E[0][1], 1])
        attack("block-of-one", "evidence", "E", 0, [0])
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
    for name in ("sparse", "tied", "random", "printed-looped", "shared", ""):
        found = changed(identity("register", (2, 2, 1, 1)), "claim", "host", "construction", name)
        add(f"identity-of-construction-{name or 'empty'}", found)

    base = bound("shared attention", (2, 2, 2, 2, 2), 1, free="E")
    for case, path_and_value in {
        "every-host-plural": ("claim", "host", {"every": "hosts"}),
        "every-and-values": ("claim", "host", {"R_V": [], "every": "host"}),
        "of-a-system-without-values": ("claim", "host", {"system": "shared-attention-universal"}),
        "free-missing": ("claim", "free", ...),
        "notion-without-free": ("claim", "notion", "matching"),
        "notion-attention-matching": ("claim", "notion", "attention-matching"),
        "method-unknown": ("evidence", "method", "dimensions"),
        "method-null-vector": ("evidence", "method", "null-vector"),
        "method-span": ("evidence", {"method": "span", "prime": 3, "targets": [[]]}),
    }.items():
        add(f"bound-{case}", changed(base, *path_and_value))
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
        "too-short": ["W_Q", 0, 0, 0, 0], "too-long": ["W_Q", 0, 0, 0, 0, 1, 1],
        "tensor-unknown": ["W_E", 0, 0, 0, 0, 1], "layer-of-an-untied-target": ["W_Q", 1, 0, 0, 0, 1],
        "layer-negative": ["W_Q", -1, 0, 0, 0, 1], "head-H": ["W_Q", 0, 2, 0, 0, 1],
        "head-negative": ["W_Q", 0, -1, 0, 0, 1], "row-outside": ["W_Q", 0, 0, 1, 0, 1],
        "row-negative": ["W_Q", 0, 0, -1, 0, 1], "column-outside": ["W_Q", 0, 0, 0, 1, 1],
        "value-zero": ["W_Q", 0, 0, 0, 0, 0], "value-string": ["W_Q", 0, 0, 0, 0, "1"],
    }.items():  # fmt: skip
        add(f"span-entry-{case}", changed(base, "evidence", "targets", 0, [entry]))
    one, two = ["W_K", 0, 0, 0, 0, 1], ["W_Q", 0, 0, 0, 0, 1]
    for case, new in {"entries-unsorted": [[two, one]], "entry-twice": [[one, one]], "no-targets": []}.items():
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
        "word-missing": ("evidence", "word", ...),
        "y-empty": ("evidence", "y", []),
        "y-unsorted": ("evidence", "y", pairs[::-1]),
        "y-position-twice": ("evidence", "y", [pairs[0], *pairs]),
        "y-zero-value": ("evidence", "y", 0, 1, 0),
        "y-position-H-to-the-L": ("evidence", "y", [*pairs, [8, 1]]),
        "y-position-negative": ("evidence", "y", [[-1, 1], *pairs]),
        "y-triples": ("evidence", "y", [[0, 1, 1]]),
        "y-4097-entries": ("evidence", "y", [[i, 1] for i in range(4097)]),
        "method-dimension": ("evidence", {"method": "dimension"}),
        "every-host": ("claim", "host", {"every": "host"}),
        "system-looped": ("claim", "host", "system", "looped-shared-attention-universal"),
        "system-missing": ("claim", "host", "system", ...),
        "tied-targets": ("claim", "targets", "all tied"),
        "E-free": ("claim", "free", "E"),
        "free-missing": ("claim", "free", ...),
        "m-of-the-shape-above": ("shape", "m", 3),
        "m-of-the-shape-below": ("shape", "m", 1),
        "m-of-the-shape-huge": ("shape", "m", str(2**70)),
        "heads-of-the-shape": ("shape", "heads", 3),
        "layers-of-the-shape": ("shape", "layers", 4),
        "values-of-a-layer-less": ("claim", "host", "R_V", R[1:]),
        "values-of-a-head-less": ("claim", "host", "R_V", 0, R[0][:1]),
        "values-of-a-row-less": ("claim", "host", "R_V", 0, 0, R[0][0][:1]),
        "values-of-a-row-more": ("claim", "host", "R_V", 2, 1, [*R[2][1], [0, 0]]),
        "values-of-an-entry-less": ("claim", "host", "R_V", 0, 0, 0, [1]),
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
