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
        "        return b * b * words + (2 * d * b - d * d) * (words - 1)",
        "        return b * b * words + (2 * d * b - d * d) * (words - 2)",
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
        "symmetric keys: the diagonal is saved too",
        "utfproof.constructions.symmetric_keys",
        "(H * (e - 1) - e * (e - 1) // 2)",
        "(H * (e - 1) - e * (e + 1) // 2)",
        ("new:wide-heads/hosts",),
    ),
]
