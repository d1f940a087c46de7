"""The corpus of what is named "standard" in place of an array: section 5's rows and section 9.1's embeddings."""

from corpus_identities import IDENTITY_SHAPES
from make_corpus import ATTENTION, Cases, added, changed, document, identity
from sceptic import INVERTIBLE, PERMUTATIONS, canonical, dimension, stream_M, stream_reduced

NAMES = ("register", *ATTENTION)
ROWS_SHAPES = [(1, 1, 1, 1, 1), (1, 5, 2, 1, 3), (2, 1, 1, 4, 2), (2, 3, 2, 1, 1), (3, 2, 1, 2, 5), (4, 5, 1, 1, 1)]


def standard(name, dims, m=None):
    """The certificate with the standard embedding; dims = (H, L, d, b)."""
    return changed(identity(name, dims, m), "evidence", {"E": "standard"})


def single(dims):
    """shared-query at H = d_in = 1, functionally."""
    found = standard("shared-query", dims)
    found["claim"] |= {"notion": "functional", "targets": "all untied"}
    return found


def rows(name, dims, m=None):
    """A certificate of section 5 whose rows are not written out; dims = (H, L, d, d_in, d_out)."""
    M = dimension(*dims)
    return document("rank-permutation", name, dims, M if m is None else m, {"rows": "standard"}, rank=M)


def streamed(dims, m=None):
    """The same for `tied` with a residual stream."""
    H, L, d, _, d_out = dims
    count = stream_reduced(H, L, d, d_out)
    targets = "all tied" if L > 1 else "all untied"
    found = document("rank-permutation", "tied", dims, count if m is None else m, {"rows": "standard"}, rank=count)
    return changed(added(found, "shape", "residual", True), "claim", "targets", targets)


def valid():
    out = Cases("standard-")
    add = out.add
    for name in NAMES:
        for dims in [*IDENTITY_SHAPES, (3, 3, 1, 1), (2, 3, 5, 2), (4, 4, 1, 1), (1, 7, 3, 3)]:
            H, L, d, b = dims
            if name == "register" or d >= b:
                add(f"{name}-h{H}-l{L}-d{d}-in{b}", standard(name, dims))
        found = standard(name, (2, 2, 2, 2))
        add(f"{name}-padded", changed(found, "shape", "m", found["shape"]["m"] + 5))
        add(f"{name}-m-beyond-2-to-the-64", changed(found, "shape", "m", str(2**64)))
    add("register-narrow-heads", standard("register", (2, 3, 1, 3)))
    for layers in (1, 3, 6):
        add(f"shared-query-functional-l{layers}", single((1, layers, 1, 1)))
    for name in PERMUTATIONS:
        for dims in ROWS_SHAPES:
            add(f"rows-{name}-{'h{}-l{}-d{}-in{}-out{}'.format(*dims)}", rows(name, dims))
        add(f"rows-{name}-padded", rows(name, (2, 2, 1, 1, 1), 20))
        add(f"rows-{name}-m-beyond-2-to-the-64", rows(name, (2, 2, 1, 1, 1), 2**64))
    for dims in [(1, 1, 1, 1, 1), (2, 1, 3, 2, 2), (1, 3, 1, 1, 1), (2, 3, 2, 1, 3), (3, 2, 1, 4, 4)]:
        add(f"rows-tied-stream-{'h{}-l{}-d{}-in{}-out{}'.format(*dims)}", streamed(dims))
    add("rows-tied-stream-padded", streamed((2, 2, 1, 1, 1), 60))
    return out


def invalid():
    out = Cases("standard-")
    add = out.add
    base = standard("shared-query", (2, 2, 2, 2))
    add("shared-query-for-all-targets", changed(base, "claim", "targets", "all untied"))
    one = standard("shared-query", (1, 2, 1, 1))
    add("shared-query-for-all-targets-one-head", changed(one, "claim", "targets", "all untied"))
    for name in NAMES:
        found = standard(name, (2, 2, 2, 2))
        add(f"{name}-refuted", changed(found, "claim", "verdict", "not universal"))
    for name in PERMUTATIONS:
        found = rows(name, (2, 2, 1, 1, 1))
        add(f"rows-{name}-rank-one-less", changed(found, "claim", "rank", 15))
        add(f"rows-{name}-rank-m", changed(rows(name, (2, 2, 1, 1, 1), 20), "claim", "rank", 20))
    add("rows-tied-stream-rank-M", changed(streamed((2, 2, 1, 1, 1)), "claim", "rank", stream_M(2, 2, 1, 1, 1)))
    return out


def malformed():
    out = Cases("standard-")
    add = out.add
    for name in NAMES:
        base = standard(name, (2, 2, 2, 2))
        least = base["shape"]["m"]
        for case, path_and_value in {
            "m-below-the-least": ("shape", "m", least - 1),
            "d_out-is-not-d_in": ("shape", "d_out", 3),
            "capital": ("evidence", "E", "Standard"),
            "with-a-space": ("evidence", "E", "standard "),
            "as-a-letter": ("evidence", "E", [[0, ["standard"]]]),
            "targets-tied": ("claim", "targets", "all tied"),
            "notion-matching": ("claim", "notion", "matching"),
            "another-name": ("claim", "host", "construction", "standard"),
        }.items():
            add(f"{name}-{case}", changed(base, *path_and_value))
        add(f"{name}-with-U", added(base, "evidence", "U", "standard"))
        add(f"{name}-with-U-written-out", added(base, "evidence", "U", []))
        add(f"{name}-with-a-stream", added(base, "shape", "residual", True))
        add(f"{name}-twice", canonical(base).replace(b'"E":"standard"', b'"E":"standard","E":"standard"'))
    add("register-for-invertible", changed(standard("register", (2, 2, 1, 1)), "claim", "targets", INVERTIBLE))
    add("shared-key-for-invertible", changed(standard("shared-key", (2, 2, 1, 1)), "claim", "targets", INVERTIBLE))
    narrow = changed(standard("shared-key", (2, 2, 2, 2)), "shape", "head_dim", 1)
    add("shared-key-narrow-heads", narrow)
    two = changed(single((1, 2, 1, 1)), "shape", "heads", 2)
    add("shared-query-functional-two-heads", changed(two, "shape", "m", 100))
    for name in ("counting", "commuting-trie"):
        add(name, standard(name, (2, 2, 1, 1)))
    both = identity("two-sided", (2, 2, 1, 1))
    add("two-sided", changed(both, "evidence", {"E": "standard", "U": "standard"}))
    add("two-sided-E", changed(both, "evidence", "E", "standard"))
    add("two-sided-U", changed(both, "evidence", "U", "standard"))
    for name in PERMUTATIONS:
        base = rows(name, (2, 2, 1, 1, 1))
        for case, path_and_value in {
            "m-below-the-least": ("shape", "m", 15),
            "capital": ("evidence", "rows", "Standard"),
            "as-a-sidecar": ("evidence", "rows", {"dtype": "uint32", "length": 16, "sidecar": "standard"}),
            "targets-tied": ("claim", "targets", "all tied"),
        }.items():
            add(f"rows-{name}-{case}", changed(base, *path_and_value))
    for name in ("random", "printed-looped", "shared-key", "register"):
        add(f"rows-{name}", rows(name, (2, 2, 1, 1, 1), 100))
    add("rows-sparse-with-a-stream", changed(streamed((2, 2, 1, 1, 1)), "claim", "host", "construction", "sparse"))
    add("rows-tied-stream-untied-targets", changed(streamed((2, 2, 1, 1, 1)), "claim", "targets", "all untied"))
    return out
