"""Faults that the claims about bounds that are attained must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "narrow heads: each head's forms lie apart",
        "utfproof.certificates.dimensions",
        "    later = b * d * (2 * H - 1) if H * d < b",
        "    later = b * d * (2 * H - 2) if H * d < b",
        ("new:narrow-heads/bound",),
    ),
    Fault(
        "shared queries in groups: one block too few",
        "utfproof.constructions.shared_query_groups",
        "    saved = len(groups_at(shape, 0))",
        "    saved = 1 + len(groups_at(shape, 0))",
        ("new:narrow-heads/host", "thm:looped_sparse_universal_transformer/almost-all"),
    ),
    Fault(
        "residual stream: the word 0 ... 0 counts as a reader",
        "utfproof.certificates.dimensions",
        "        room = sum(up**t * down ** (shape.layers - 1 - t) for t in range(shape.layers))",
        "        room = sum(up**t * down ** (shape.layers - 1 - t) for t in range(1, shape.layers))",
        ("new:residual/outputs",),
    ),
    Fault(
        "residual stream, narrow heads: rows of the stream's block that every head leaves",
        "utfproof.certificates.dimensions",
        "else (b, b - H * d)",
        "else (b, b - H * d - 1)",
        ("new:residual/outputs",),
    ),
    Fault(
        "one layer: room at equality",
        "utfproof.certificates.dimensions",
        "(s.head_dim * (s.heads + 1) <= s.d_in or",
        "(s.head_dim * (s.heads + 1) < s.d_in or",
        ("new:one-layer/all-targets",),
    ),
    Fault(
        "wide heads: the bound may be reached",
        "utfproof.certificates.dimensions",
        "s.d_in * (s.leaves + s.layers * s.heads) + 1)",
        "s.d_in * (s.leaves + s.layers * s.heads))",
        ("new:wide-heads/bound",),
    ),
    Fault(
        "wide heads: more spread products than matrices have dimensions",
        "utfproof.certificates.dimensions",
        "later += halves if q > 1 else min(letters, b * b)",
        "later += halves if q > 1 else letters",
        ("new:wide-heads/bound",),
    ),
    Fault(
        "wide heads with a residual stream: the words of one that has none",
        "utfproof.certificates.dimensions",
        "    H, b, letters = shape.heads, shape.d_in, shape.letters",
        "    H, b, letters = shape.heads, shape.d_in, shape.heads",
        ("new:wide-heads/stream",),
    ),
    Fault(
        "symmetric keys: the diagonal is saved too",
        "utfproof.constructions.symmetric_keys",
        "(H * (e - 1) - e * (e - 1) // 2)",
        "(H * (e - 1) - e * (e + 1) // 2)",
        ("new:wide-heads/hosts",),
    ),
]
