"""The corpus of what bounds the least m: sections 9 and 10 on the middle layer, on counted halves and on generic targets."""

import copy

import naive
from make_corpus import Cases, added, changed, drawn_targets, identity, isolating, m_word, statement
from sceptic import (
    INVERTIBLE_MIDDLE,
    MORE_RULES,
    canonical,
    factor_degrees,
    identity_least,
    largest_part,
    rational_least,
    rounded_up,
    tuples,
)

UNTIED, TIED = "generic untied", "generic tied"
SHARED = "shared attention"
CYCLE = [[0, 0], [0, 1], [1, 0], [1, 1]]


# --- identities ----------------------------------------------------------------------------------------------------


def path(H):
    return [[(h + 1) // 2, h // 2] for h in range(H)]


def stars(H):
    half = H // 2
    return [[0, h + 1] if h < half else [h - half + 1, 0] for h in range(H)]


def middle(dims, edges, left, right, targets="all untied", m=None):
    """Parts p_i of E's blocks and u_j of U's as words; dims = (H, L, d, b)."""
    H, L, d, b = dims
    k, q = L // 2, largest_part(edges)
    words = naive.words(H, k)
    evidence = {
        "E": [[(n * q + i) * b, [*m_word(w), *left[i]]] for n, w in enumerate(words) for i in sorted(left)],
        "U": [[(n * q + j) * b, [*right[j], *m_word(v, k + 2)]] for n, v in enumerate(words) for j in sorted(right)],
    }
    host = {"construction": "middle", "edges": edges}
    least = identity_least("middle", H, L, d, b, edges)
    return statement(
        "identity", SHARED, host, (*dims, b), least if m is None else m, evidence, targets=targets, free="E and U"
    )


def path_words(H, layer):
    """p_0 = 1 and along the path."""
    c = [f"M{layer}.{h}" for h in range(H)]
    left, right = {0: []}, {}
    for h in range(H):
        i, j = path(H)[h]
        if h % 2 == 0:  # u_j = p_i^-1 c
            right[j] = [*inverse(left[i]), c[h]]
        else:
            left[i] = [c[h], *inverse(right[j])]
    return left, right


def inverse(word):
    return [x[:-1] if x.endswith("I") else f"{x}I" for x in reversed(word)]


def along_path(dims):
    H, L, _, _ = dims
    left, right = path_words(H, L // 2 + 1)
    used = any(x.endswith("I") for word in [*left.values(), *right.values()] for x in word)
    return middle(dims, path(H), left, right, INVERTIBLE_MIDDLE if used else "all untied")


def along_stars(dims):
    H, L, _, _ = dims
    left, right = {0: []}, {0: []}
    for h, (i, j) in enumerate(stars(H)):
        side, at = (right, j) if i == 0 else (left, i)
        side[at] = [f"M{L // 2 + 1}.{h}"]
    return middle(dims, stars(H), left, right)


def polynomial(dims, m=None):
    H, L, d, b = dims
    k = L // 2
    first, second = factor_degrees(H)
    words, q = naive.words(H, k), H // 2 + 1
    evidence = {
        "E": [[n * q + i, [*m_word(w), f"P.{i}"]] for n, w in enumerate(words) for i in range(first + 1)],
        "U": [[n * q + j, [f"U.{j}", *m_word(v, k + 2)]] for n, v in enumerate(words) for j in range(second + 1)],
    }
    least = identity_least("polynomial", H, L, d, b)
    host = {"construction": "polynomial"}
    return statement("identity", SHARED, host, (*dims, b), least if m is None else m, evidence, free="E and U")


def counted_halves(dims, m=None):
    H, L, d, b = dims
    k = rounded_up(L)
    blocks = {}
    for name, length in (("E", k), ("U", L - k)):
        blocks[name] = [
            [at, [f"M.{h}" for h in range(H) for _ in range((length - sum(c), *c)[h])]]
            for at, c in enumerate(tuples(H - 1, k))
            if sum(c) <= length
        ]
    least = identity_least("two-sided-counting", H, L, d, b)
    host = {"construction": "two-sided-counting"}
    return statement(
        "identity", SHARED, host, (*dims, b), least if m is None else m, blocks, targets="all tied", free="E and U"
    )


def single(dims):
    """shared-query at H = d_in = 1, for all targets functionally."""
    found = identity("shared-query", dims)
    found["claim"] |= {"notion": "functional", "targets": "all untied"}
    return found


RATIONALS = {
    "shared-query-groups": (False, [(2, 1, 1, 2), (2, 2, 1, 2), (4, 2, 1, 2), (2, 2, 1, 3), (1, 3, 1, 3), (2, 2, 2, 3),
                                    (3, 2, 2, 5), (2, 2, 2, 2)]),
    "residual-key": (True, [(1, 2, 1, 1), (2, 2, 3, 2), (2, 3, 1, 1)]),
    "residual-query": (True, [(1, 2, 1, 1), (3, 2, 1, 2), (2, 2, 2, 3)]),
    "symmetric-keys": (False, [(2, 2, 2, 1), (3, 2, 2, 1), (4, 2, 5, 1)]),
    "symmetric-keys-deep": (False, [(2, 3, 2, 1), (3, 3, 2, 1), (2, 4, 3, 1)]),
}  # fmt: skip
"""{name: (whether there is a residual stream, dims)}."""


def rational(name, dims, targets=None, more=0):
    H, L, d, b = dims
    stream = RATIONALS[name][0]
    targets = targets or ("all untied" if name == "residual-key" else UNTIED)
    m = rational_least(name, stream, H, L, d, b) + more
    host, evidence = {"construction": name}, {"E": "standard"}
    found = statement("identity", "attention-matching", host, (*dims, b), m, evidence, targets=targets)
    return added(found, "shape", "residual", True) if stream else found


# --- bounds --------------------------------------------------------------------------------------------------------


def bound(notion, dims, m, targets, free=None, every="host"):
    """dims = (H, L, d, d_in)."""
    evidence = {"method": "dimension"}
    return statement("lower-bound", notion, {"every": every}, (*dims, dims[3]), m, evidence, targets=targets, free=free)


def stream(notion, dims, m, every="host"):
    return added(bound(notion, dims, m, UNTIED, None, every), "shape", "residual", True)


def span(notion, dims, m, given, targets, free=None, prime=2**31 - 1):
    evidence = {"method": "span", "prime": prime, "targets": given}
    return statement(
        "lower-bound", notion, {"every": "host"}, (*dims, dims[3]), m, evidence, targets=targets, free=free
    )


BOUNDS = {
    "matching-untied": ("matching", UNTIED, None, (2, 2, 2, 2), 32),
    "matching-tied-paths": ("matching", TIED, None, (2, 2, 2, 2), 32),
    "matching-tied-monomials": ("matching", TIED, None, (2, 3, 1, 1), 28),
    "matching-tied-monomials-d3": ("matching", TIED, None, (3, 2, 3, 1), 78),
    "attention-untied-parentheses": ("attention-matching", UNTIED, None, (4, 2, 24, 4), 97),
    "attention-untied-4-hop": ("attention-matching", UNTIED, None, (2, 4, 30, 30), 1380),
    "attention-untied-side-by-side": ("attention-matching", UNTIED, None, (2, 2, 1, 2), 17),
    "attention-untied-low-rank": ("attention-matching", UNTIED, None, (2, 2, 1, 4), 26),
    "attention-untied-H-d-below-d_in": ("attention-matching", UNTIED, None, (1, 3, 1, 2), 6),
    "attention-untied-H-d-not-divided": ("attention-matching", UNTIED, None, (2, 3, 2, 5), 83),
    "attention-untied-wide": ("attention-matching", UNTIED, None, (2, 2, 5, 1), 9),
    "attention-untied-wide-three-layers": ("attention-matching", UNTIED, None, (2, 3, 2, 1), 15),
    "attention-untied-semistable": ("attention-matching", UNTIED, None, (2, 2, 3, 2), 20),
    "attention-untied-spread-products": ("attention-matching", UNTIED, None, (2, 3, 4, 3), 66),
    "attention-untied-spread-no-further": ("attention-matching", UNTIED, None, (3, 3, 3, 2), 102),
    "attention-untied-spread-of-many-heads": ("attention-matching", UNTIED, None, (5, 2, 3, 2), 100),
    "attention-untied-spread-deeper-and-wider": ("attention-matching", UNTIED, None, (2, 3, 5, 3), 50),
    "attention-untied-spread-values": ("attention-matching", UNTIED, None, (3, 2, 5, 3), 51),
    "attention-tied-numbers": ("attention-matching", TIED, None, (2, 3, 1, 1), 6),
    "attention-tied-paths": ("attention-matching", TIED, None, (2, 2, 2, 2), 12),
    "functional-one-layer": ("functional", UNTIED, None, (2, 1, 1, 2), 7),
    "functional-one-layer-d-above-d_in": ("functional", UNTIED, None, (2, 1, 5, 2), 8),
    "functional-one-layer-tied": ("functional", TIED, None, (2, 1, 1, 2), 7),
    "functional-untied": ("functional", UNTIED, None, (3, 4, 2, 2), 402),
    "functional-untied-low-rank": ("functional", UNTIED, None, (3, 4, 1, 2), 342),
    "functional-tied": ("functional", TIED, None, (3, 4, 2, 2), 15),
    "functional-tied-paths": ("functional", TIED, None, (2, 2, 2, 2), 12),
    "functional-one-head": ("functional", UNTIED, None, (1, 3, 1, 3), 7),
    "shared-E-untied": (SHARED, UNTIED, "E", (2, 3, 1, 2), 16),
    "shared-E-tied-counts": (SHARED, TIED, "E", (3, 4, 2, 2), 15),
    "shared-E-tied-paths": (SHARED, TIED, "E", (2, 2, 2, 2), 8),
    "shared-both-even": (SHARED, UNTIED, "E and U", (2, 4, 1, 1), 4),
    "shared-both-odd": (SHARED, UNTIED, "E and U", (4, 3, 1, 1), 9),
    "shared-both-three-layers": (SHARED, UNTIED, "E and U", (2, 3, 1, 1), 4),
    "shared-both-parameters": (SHARED, UNTIED, "E and U", (9, 1, 1, 1), 5),
    "shared-both-parameters-wide": (SHARED, UNTIED, "E and U", (2, 2, 2, 2), 4),
    "shared-both-wide": (SHARED, UNTIED, "E and U", (2, 4, 1, 2), 5),
    "shared-both-one-word": (SHARED, TIED, "E and U", (1, 5, 3, 3), 3),
    "shared-both-tied": (SHARED, TIED, "E and U", (3, 4, 1, 1), 4),
    "shared-both-tied-paths": (SHARED, TIED, "E and U", (3, 3, 3, 3), 6),
    "attention-all-one-by-one": ("attention-matching", "all untied", None, (1, 1, 2, 1), 3),
    "functional-all-two-heads": ("functional", "all untied", None, (2, 1, 1, 2), 8),
    "functional-all-no-room": ("functional", "all untied", None, (2, 1, 2, 6), 20),
    "functional-all-some-room": ("functional", "all untied", None, (3, 1, 1, 3), 14),
    "shared-all-three-heads": (SHARED, "all untied", "E and U", (3, 1, 1, 1), 3),
}
"""{name: (notion, targets, free, dims, the least m that is not refuted)}."""
STREAMS = {
    "attention": ("attention-matching", (2, 2, 1, 1), 17),
    "attention-divided": ("attention-matching", (1, 2, 1, 2), 13),
    "attention-low-rank": ("attention-matching", (1, 2, 1, 4), 21),
    "attention-low-rank-three-layers": ("attention-matching", (1, 3, 1, 3), 32),
    "attention-wide": ("attention-matching", (1, 2, 3, 1), 7),
    "attention-wide-spread": ("attention-matching", (2, 2, 3, 2), 34),
    "attention-wide-spread-wider": ("attention-matching", (2, 2, 5, 3), 43),
    "functional": ("functional", (2, 3, 1, 1), 53),
    "functional-one-layer": ("functional", (3, 1, 1, 2), 13),
}
"""{name: (notion, dims, the least m that is not refuted)} with a residual stream, almost all untied targets."""
LOOPED = {L: (SHARED, TIED, "E and U", (2, L, 1, 1), 3) for L in (2, 3)}
"""Refuted for tied hosts only."""


def valid():
    out = Cases()
    add = out.add
    for dims in [(1, 1, 1, 1), (2, 3, 1, 1), (3, 1, 2, 2), (3, 3, 1, 1), (4, 3, 1, 1), (5, 3, 1, 1), (3, 3, 3, 2)]:
        label = "h{}-l{}-d{}-in{}".format(*dims)
        add(f"identity-middle-path-{label}", along_path(dims))
        add(f"identity-middle-stars-{label}", along_stars(dims))
    add("identity-middle-stars-of-low-rank", along_stars((3, 3, 1, 2)))
    add("identity-middle-padded", changed(along_path((3, 3, 2, 2)), "shape", "m", 40))
    found = changed(along_path((3, 3, 1, 1)), "shape", "m", 9)
    found["evidence"]["U"].append([7, ["M1.0"]])  # in the padding
    add("identity-middle-blocks-that-are-not-read", found)
    for dims in [(1, 1, 1, 1), (2, 1, 1, 1), (2, 3, 1, 1), (4, 3, 1, 1), (5, 3, 1, 1), (8, 1, 2, 1), (1, 5, 1, 1)]:
        add("identity-polynomial-h{}-l{}-d{}-in{}".format(*dims), polynomial(dims))
    add("identity-polynomial-padded", polynomial((4, 3, 1, 1), 20))
    for dims in [(1, 2, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1), (3, 4, 2, 1), (2, 7, 1, 1), (4, 3, 1, 1)]:
        add("identity-two-sided-counting-h{}-l{}-d{}-in{}".format(*dims), counted_halves(dims))
    found = counted_halves((2, 3, 1, 1), 9)
    found["evidence"]["U"] += [[2, ["M.1"] * 4], [7, []]]  # no word of one letter leads there
    add("identity-two-sided-counting-blocks-that-are-not-read", found)
    for dims in [(1, 1, 1, 1), (1, 4, 2, 1)]:
        add("identity-shared-query-functional-l{}-d{}".format(*dims[1:3]), single(dims))
    for name, (notion, targets, free, dims, least) in BOUNDS.items():
        for every in ("host", "tied host"):
            add(
                f"bound-least-{name}-every-{every.replace(' ', '-')}",
                bound(notion, dims, least - 1, targets, free, every),
            )
    for name, (_, shapes) in RATIONALS.items():
        for dims in shapes:
            label = "h{}-l{}-d{}-in{}".format(*dims)
            add(f"identity-{name}-{label}", rational(name, dims))
            add(
                f"identity-{name}-{label}-tied", rational(name, dims, "all tied" if name == "residual-key" else TIED, 1)
            )
    for name, (notion, dims, least) in STREAMS.items():
        add(f"bound-least-stream-{name}", stream(notion, dims, least - 1))
        add(f"bound-least-stream-{name}-every-tied-host", stream(notion, dims, 1, "tied host"))
    for L, (notion, targets, free, dims, least) in LOOPED.items():
        add(f"bound-least-looped-l{L}", bound(notion, dims, least - 1, targets, free, "tied host"))
    add("bound-least-attention-many-layers", bound("attention-matching", (2, 50, 3, 2), 2**51, UNTIED))
    add("bound-least-functional-huge-d", bound("functional", (3, 5, 2**60, 2**61), 1, TIED))
    add("span-least-E-d1", span(SHARED, (2, 4, 1, 2), 27, drawn_targets(24, True, 2, 4, 1, 2, 1), TIED, "E"))
    add("span-least-E-d2", span(SHARED, (2, 4, 2, 2), 31, drawn_targets(20, True, 2, 4, 2, 2, 1), TIED, "E"))
    add("span-least-E-untied", span(SHARED, (2, 2, 1, 1), 3, drawn_targets(12, False, 2, 2, 1, 1, 2), UNTIED, "E"))
    both = drawn_targets(6, True, 2, 4, 2, 2, 1)
    add("span-least-E-and-U", span(SHARED, (2, 4, 2, 2), 3, both, TIED, "E and U"))
    add("span-least-E-and-U-m2", span(SHARED, (2, 4, 2, 2), 2, both[:3], TIED, "E and U"))
    add("span-least-matching-tied", span("matching", (2, 2, 2, 2), 31, isolating(2, 2, 2, 2, True), TIED))
    add("span-least-matching-untied", span("matching", (2, 1, 1, 1), 5, isolating(2, 1, 1, 1, False), UNTIED))
    return out


def invalid():
    out = Cases()
    add = out.add
    base = along_path((3, 3, 2, 2))
    E, U = base["evidence"]["E"], base["evidence"]["U"]
    for attack, found in {
        "edges-exchanged": changed(base, "claim", "host", "edges", [[1, 0], [0, 0], [1, 1]]),
        "edge-of-another-part": changed(base, "claim", "host", "edges", 2, [0, 1]),
        "sides-exchanged": changed(base, "claim", "host", "edges", [[j, i] for i, j in path(3)]),
        "E-and-U-exchanged": changed(base, "evidence", {"E": U, "U": E}),
        "without-a-part-of-E": changed(base, "evidence", "E", [E[0], *E[2:]]),
        "without-a-part-of-U": changed(base, "evidence", "U", [U[0], *U[2:]]),
        "U-empty": changed(base, "evidence", "U", []),
        "parts-of-E-exchanged": changed(base, "evidence", "E", [[E[0][0], E[1][1]], [E[1][0], E[0][1]], *E[2:]]),
        "targets-all-untied": changed(base, "claim", "targets", "all untied"),
        "verdict-flipped": changed(base, "claim", "verdict", "not universal"),
        "off-by-one": changed(changed(base, "shape", "m", 13), "evidence", "E", [[a + 1, w] for a, w in E]),
    }.items():
        add(f"identity-middle-{attack}", found)
    for name, old, new in [
        ("inverse-dropped", "M2.0I", None),
        ("inverse-of-another-head", "M2.0I", "M2.2I"),
        ("transpose-for-the-inverse", "M2.0I", "M2.0T"),
        ("inverse-transposed", "M2.0I", "M2.0IT"),
    ]:
        found = copy.deepcopy(base)
        for blocks in found["evidence"].values():
            for block in blocks:
                block[1] = [new if x == old else x for x in block[1] if x != old or new is not None]
        add(f"identity-middle-{name}", found)
    reversed_words = copy.deepcopy(base)
    for blocks in reversed_words["evidence"].values():
        for block in blocks:
            block[1].reverse()
    add("identity-middle-words-reversed", reversed_words)
    # the edges of a cycle: c_00 c_11 = c_01 c_10 is no property of all weights
    left, right = {0: [], 1: ["M1.2", "M1.0I"]}, {0: ["M1.0"], 1: ["M1.1"]}
    add("identity-middle-cycle", middle((4, 1, 1, 1), CYCLE, left, right, INVERTIBLE_MIDDLE))
    add("identity-middle-two-heads-on-one-edge", middle((2, 1, 1, 1), [[0, 0], [0, 0]], {0: []}, {0: ["M1.0"]}))
    stars_base = along_stars((4, 3, 1, 1))
    add("identity-middle-no-inverse-for-invertible", changed(stars_base, "claim", "targets", INVERTIBLE_MIDDLE))
    add(
        "identity-middle-path-for-stars",
        changed(changed(stars_base, "claim", "host", "edges", path(4)), "shape", "m", 99),
    )

    base = polynomial((4, 3, 1, 1))
    E, U = base["evidence"]["E"], base["evidence"]["U"]
    for attack, found in {
        "without-a-coefficient": changed(base, "evidence", "E", [E[0], *E[2:]]),
        "coefficients-exchanged": changed(base, "evidence", "E", [[E[0][0], E[1][1]], [E[1][0], E[0][1]], *E[2:]]),
        "U-coefficients-exchanged": changed(base, "evidence", "U", [[U[0][0], U[1][1]], [U[1][0], U[0][1]], *U[2:]]),
        "a-coefficient-twice": changed(base, "evidence", "E", 1, 1, E[0][1]),
        "weights-of-the-middle": changed(base, "evidence", "E", 0, 1, ["M1.0", "M2.0"]),
        "a-weight-more": changed(base, "evidence", "E", 0, 1, ["M1.0", *E[0][1]]),
        "no-coefficient": changed(base, "evidence", "E", 0, 1, ["M1.0"]),
        "U-without-a-block": changed(base, "evidence", "U", U[1:]),
        "verdict-flipped": changed(base, "claim", "verdict", "not universal"),
        "of-another-depth": changed(changed(base, "shape", "layers", 5), "shape", "m", 48),
    }.items():
        add(f"identity-polynomial-{attack}", found)

    base = counted_halves((2, 4, 1, 1), 5)
    E, U = base["evidence"]["E"], base["evidence"]["U"]
    for attack, found in {
        "words-rotated": changed(base, "evidence", "E", [[E[i][0], E[(i + 1) % 3][1]] for i in range(3)]),
        "without-the-first-block": changed(base, "evidence", "E", E[1:]),
        "U-without-the-last-block": changed(base, "evidence", "U", U[:2]),
        "a-weight-more": changed(base, "evidence", "E", 2, 1, ["M.1"] * 3),
        "heads-exchanged": changed(base, "evidence", "U", [[a, w[::-1]] for a, w in [*U[:1], [1, ["M.0"] * 2], U[2]]]),
        "of-another-depth": changed(base, "shape", "layers", 3),
        "off-by-one": changed(base, "evidence", "E", [[a + 1, w] for a, w in E]),
        "verdict-flipped": changed(base, "claim", "verdict", "not universal"),
    }.items():
        add(f"identity-two-sided-counting-{attack}", found)
    base = single((1, 3, 1, 1))
    add("identity-shared-query-functional-words-swapped",
        changed(base, "evidence", "E", [[0, base["evidence"]["E"][1][1]], *base["evidence"]["E"][1:]]))  # fmt: skip
    add("identity-shared-query-functional-verdict-flipped", changed(base, "claim", "verdict", "not universal"))

    for name, (notion, targets, free, dims, least) in BOUNDS.items():
        for attack, m in {"m-at-the-bound": least, "m-huge": 2**80}.items():
            add(f"bound-least-{name}-{attack}", bound(notion, dims, m, targets, free))
        found = bound(notion, dims, least - 1, targets, free)
        add(f"bound-least-{name}-verdict-flipped", changed(found, "claim", "verdict", "universal"))
    for name, (_, shapes) in RATIONALS.items():
        found = rational(name, shapes[0])
        add(f"identity-{name}-verdict-flipped", changed(found, "claim", "verdict", "not universal"))
    for name, (notion, dims, least) in STREAMS.items():
        add(f"bound-least-stream-{name}-m-at-the-bound", stream(notion, dims, least))
    add("bound-least-stream-without-the-stream", bound("attention-matching", (2, 2, 1, 1), 16, UNTIED))
    add("bound-least-wide-for-one-head", bound("attention-matching", (1, 2, 3, 2), 6, UNTIED))
    add("bound-least-semistable-of-too-many-heads", bound("attention-matching", (5, 2, 3, 2), 100, UNTIED))
    add("bound-least-semistable-of-four-layers", bound("attention-matching", (3, 4, 3, 2), 401, UNTIED))
    add("bound-least-semistable-too-wide", bound("attention-matching", (2, 2, 4, 2), 19, UNTIED))
    for L, (notion, targets, free, dims, least) in LOOPED.items():
        add(f"bound-least-looped-l{L}-of-any-host", bound(notion, dims, least - 1, targets, free))
        add(f"bound-least-looped-l{L}-m-at-the-bound", bound(notion, dims, least, targets, free, "tied host"))
    add("bound-least-attention-with-M", bound("attention-matching", (2, 2, 2, 2), 31, UNTIED))
    add("bound-least-functional-with-the-attention-bound", bound("functional", (2, 2, 2, 2), 15, TIED))
    given = drawn_targets(24, True, 2, 4, 1, 2, 1)
    add("span-least-E-m-at-the-rank", span(SHARED, (2, 4, 1, 2), 28, drawn_targets(40, True, 2, 4, 1, 2, 1), TIED, "E"))
    add("span-least-E-too-few-targets", span(SHARED, (2, 4, 1, 2), 27, given[:13], TIED, "E"))
    add("span-least-E-prime-composite", span(SHARED, (2, 4, 1, 2), 27, given, TIED, "E", 2**31 - 3))
    add("span-least-E-of-matching", span(SHARED, (2, 4, 1, 2), 40, drawn_targets(60, True, 2, 4, 1, 2, 1), TIED, "E"))
    both = drawn_targets(6, True, 2, 4, 2, 2, 1)
    add("span-least-E-and-U-m-at-the-root", span(SHARED, (2, 4, 2, 2), 4, both, TIED, "E and U"))
    add("span-least-E-and-U-with-the-bound-of-E", span(SHARED, (2, 4, 2, 2), 15, both, TIED, "E and U"))
    add("span-least-E-and-U-one-target", span(SHARED, (2, 4, 2, 2), 2, both[:1], TIED, "E and U"))
    return out


def malformed():
    out = Cases()
    add = out.add
    base = along_path((3, 3, 2, 2))
    for case, path_and_value in {
        "without-edges": ("claim", "host", "edges", ...),
        "edges-of-a-head-less": ("claim", "host", "edges", path(2)),
        "edges-of-a-head-more": ("claim", "host", "edges", path(4)),
        "edge-of-three": ("claim", "host", "edges", 0, [0, 0, 0]),
        "edge-beyond-H": ("claim", "host", "edges", 0, [4, 0]),
        "even-L": ("shape", "layers", 4),
        "m-below-the-least": ("shape", "m", 11),
        "d_out-is-not-d_in": ("shape", "d_out", 1),
        "d-below-d_in": ("shape", "head_dim", 1),
        "targets-invertible-of-shared-query": ("claim", "targets", "untied with invertible M^(l,0)"),
        "targets-tied": ("claim", "targets", "all tied"),
        "targets-generic": ("claim", "targets", UNTIED),
        "free-E": ("claim", "free", "E"),
        "notion-matching": ("claim", "notion", "matching"),
        "without-U": ("evidence", "U", ...),
        "inverse-of-another-layer": ("evidence", "E", 0, 1, ["M1.0I"]),
        "inverse-of-A": ("evidence", "E", 0, 1, ["A2.0I"]),
        "letter-P": ("evidence", "E", 0, 1, ["P.0"]),
        "letter-Q": ("evidence", "E", 0, 1, ["Q2.0"]),
        "blocks-overlap": ("evidence", "E", 1, 0, 1),
    }.items():
        add(f"identity-middle-{case}", changed(base, *path_and_value))
    add("identity-middle-edges-of-another-construction",
        added(identity("register", (2, 2, 1, 1)), "claim", "host", "edges", path(2)))  # fmt: skip
    base = polynomial((4, 3, 1, 1))
    for case, path_and_value in {
        "three-heads": ("shape", "heads", 3),
        "even-L": ("shape", "layers", 2),
        "m-below-the-least": ("shape", "m", 11),
        "edges": ("claim", "host", {"construction": "polynomial", "edges": path(4)}),
        "invertible": ("claim", "targets", INVERTIBLE_MIDDLE),
        "P-beyond-the-degree": ("evidence", "E", 0, 1, ["M1.0", "P.3"]),
        "U-beyond-the-degree": ("evidence", "U", 0, 1, ["U.2", "M3.0"]),
        "P-before-a-letter": ("evidence", "E", 0, 1, ["P.0", "M1.0"]),
        "U-after-a-letter": ("evidence", "U", 0, 1, ["M3.0", "U.0"]),
        "P-in-U": ("evidence", "U", 0, 1, ["M3.0", "P.0"]),
        "U-in-E": ("evidence", "E", 0, 1, ["U.0", "M1.0"]),
        "P-with-a-layer": ("evidence", "E", 0, 1, ["M1.0", "P1.0"]),
        "P-transposed": ("evidence", "E", 0, 1, ["M1.0", "P.0T"]),
        "P-inverse": ("evidence", "E", 0, 1, ["M1.0", "P.0I"]),
        "P-with-a-leading-zero": ("evidence", "E", 0, 1, ["M1.0", "P.00"]),
    }.items():
        add(f"identity-polynomial-{case}", changed(base, *path_and_value))
    wide = changed(changed(polynomial((2, 1, 2, 1)), "shape", "d_in", 2), "shape", "d_out", 2)
    add("identity-polynomial-d_in-two", wide)
    base = counted_halves((2, 4, 1, 1))
    for case, path_and_value in {
        "one-layer": ("shape", "layers", 1), "m-below-the-least": ("shape", "m", 2),
        "targets-untied": ("claim", "targets", "all untied"), "free-E": ("claim", "free", "E"),
        "letter-with-a-layer": ("evidence", "E", 0, 1, ["M1.0"]), "letter-P": ("evidence", "E", 0, 1, ["P.0"]),
        "inverse": ("evidence", "E", 0, 1, ["M.0I"]),
    }.items():  # fmt: skip
        add(f"identity-two-sided-counting-{case}", changed(base, *path_and_value))
    wide = changed(changed(base, "shape", "d_in", 2), "shape", "d_out", 2)
    add("identity-two-sided-counting-d_in-two", wide)
    base = single((1, 3, 2, 1))
    invertible = "untied with invertible M^(l,0)"
    add("identity-shared-query-functional-for-invertible-targets", changed(base, "claim", "targets", invertible))
    add("identity-shared-query-functional-tied", changed(base, "claim", "targets", "all tied"))
    two = identity("shared-query", (2, 2, 1, 1))
    two["claim"] |= {"notion": "functional", "targets": "all untied"}
    add("identity-shared-query-functional-two-heads", two)
    two = identity("shared-query", (1, 2, 2, 2))
    two["claim"] |= {"notion": "functional", "targets": "all untied"}
    add("identity-shared-query-functional-wide", two)
    key = changed(identity("shared-key", (1, 1, 1, 1)), "claim", "notion", "functional")
    add("identity-shared-key-functional-one-head", key)

    for name, (stream_, shapes) in RATIONALS.items():
        found = rational(name, shapes[0])
        for case, path_and_value in {
            "m-below-the-least": ("shape", "m", found["shape"]["m"] - 1),
            "E-written-out": ("evidence", "E", []),
            "E-Standard": ("evidence", "E", "Standard"),
            "with-U": ("evidence", {"E": "standard", "U": []}),
            "matching": ("claim", "notion", "matching"),
            "functional": ("claim", "notion", "functional"),
            "other-extent": ("claim", "targets", UNTIED if name == "residual-key" else "all untied"),
            "invertible": ("claim", "targets", "untied with invertible M^(l,0)"),
            "d_out-is-not-d_in": ("shape", "d_out", 9),
            "host-with-edges": ("claim", "host", {"construction": name, "edges": path(2)}),
            "another-width": ("shape", "head_dim", 1 if name != "shared-query-groups" and not stream_ else 2**40),
        }.items():
            if (name, case) != ("residual-key", "another-width"):
                add(f"identity-{name}-{case}", changed(found, *path_and_value))
        other = {key: value for key, value in found["shape"].items() if key != "residual"}
        add(f"identity-{name}-of-the-other-stream",
            changed(found, "shape", {**other, "m": 999} if stream_ else {**other, "m": 999, "residual": True}))  # fmt: skip
    add("identity-residual-key-narrow", changed(rational("residual-key", (2, 2, 3, 2)), "shape", "head_dim", 1))
    add(
        "identity-symmetric-keys-three-layers",
        changed(rational("symmetric-keys", (2, 2, 2, 1), None, 90), "shape", "layers", 3),
    )
    add("identity-symmetric-keys-deep-two-layers",
        changed(rational("symmetric-keys-deep", (2, 3, 2, 1), None, 90), "shape", "layers", 2))  # fmt: skip
    add(
        "identity-symmetric-keys-one-head",
        changed(rational("symmetric-keys", (2, 2, 2, 1), None, 90), "shape", "heads", 1),
    )

    base = bound("attention-matching", (2, 2, 2, 2), 10, UNTIED)
    add("bound-least-d_out-is-not-d_in", changed(base, "shape", "d_out", 3))
    add("bound-least-free", added(base, "claim", "free", "E"))
    add("bound-least-null-vector", changed(base, "evidence", {"method": "null-vector", "word": 0, "y": [[0, 1]]}))
    add("bound-least-attention-all-untied", bound("attention-matching", (2, 2, 2, 2), 1, "all untied"))
    add("bound-least-attention-all-tied", bound("attention-matching", (1, 1, 1, 1), 1, "all tied"))
    add(
        "bound-least-stream-all-untied",
        changed(stream("functional", (1, 2, 1, 1), 6), "claim", "targets", "all untied"),
    )
    add("bound-least-stream-tied", changed(stream("functional", (1, 2, 1, 1), 1), "claim", "targets", TIED))
    add("bound-least-stream-d_out-is-not-d_in", changed(stream("functional", (1, 2, 1, 1), 1), "shape", "d_out", 2))
    add("bound-least-matching-tied-without-a-bound", bound("matching", (2, 3, 2, 2), 1, TIED))
    add("bound-least-attention-tied-without-a-bound", bound("attention-matching", (2, 3, 2, 2), 1, TIED))
    add("identity-generic-targets", changed(identity("shared-query", (2, 2, 2, 2)), "claim", "targets", UNTIED))
    given = drawn_targets(3, True, 2, 2, 1, 1, 1)
    add("span-least-attention-matching", span("attention-matching", (2, 2, 1, 1), 1, given, TIED))
    add("span-least-functional", span("functional", (2, 2, 1, 1), 1, given, TIED))
    add("span-least-all-tied", span(SHARED, (2, 2, 1, 1), 1, given, "all tied", "E"))
    add("span-least-called-untied", span(SHARED, (2, 2, 1, 1), 1, given, UNTIED, "E"))
    add("span-least-free-missing", changed(span(SHARED, (2, 2, 1, 1), 1, given, TIED, "E"), "claim", "free", ...))
    add("span-least-d_out-is-not-d_in", changed(span(SHARED, (2, 2, 1, 1), 1, given, TIED, "E"), "shape", "d_out", 2))
    deep = canonical(along_stars((2, 1, 1, 1))).replace(b'"edges":[', b'"edges":[' + b"[" * 3000 + b"]" * 3000 + b",")
    add("identity-middle-edges-nested-deeply", deep)
    assert {"middle", "polynomial", "two-sided-counting"} == set(MORE_RULES)
    return out
