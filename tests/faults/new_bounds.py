"""Faults that the claims about functional and attention-matching bounds must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "fibre bound: a factor 2 is missing",
        "utfproof.certificates.dimensions",
        "    words, forms = shape.words_at(shape.layers), H * (2 * d * b - d * d)",
        "    words, forms = shape.words_at(shape.layers), H * (d * b - d * d)",
        (
            "new:fibre/bound",
            "new:fibre/against-looped-bound",
            "new:fibre/seven",
            "new:one-by-one/functional",
        ),
    ),
    Fault(
        "no room to share: one dimension of it",
        "utfproof.certificates.dimensions",
        'lambda s, m: (m, matching_dimension(s)), "m and M",\n        lambda s: _square(s) and s.layers == 1',
        'lambda s, m: (m, matching_dimension(s) - 1), "m and M",\n        lambda s: _square(s) and s.layers == 1',
        ("new:fibre/seven-all-targets",),
    ),
    Fault(
        "seven dimensions: both keys are divided by lambda",
        "utfproof.claims.small_models",
        "k1[i] / factor_mu",
        "k1[i] / factor_lambda",
        ("new:fibre/seven",),
    ),
    Fault(
        "two dimensions: the query is not divided by b",
        "utfproof.claims.small_models",
        "    return [[Fraction(a, b), b]] if b else",
        "    return [[Fraction(a), b]] if b else",
        ("new:one-by-one/functional",),
    ),
    Fault(
        "sparse: leaves read by U start at the root",
        "utfproof.constructions.sparse",
        "    leaves = starts[-1] + np.arange(shape.words_at(shape.layers))",
        "    leaves = starts[0] + np.arange(shape.words_at(shape.layers))",
        ("new:one-by-one/attention-matching",),
    ),
    Fault(
        "attention-matching bound: later layers see one head's rows",
        "utfproof.certificates.dimensions",
        "    later = min(shape.heads * d, b)",
        "    later = d",
        ("new:attention-matching-bound",),
    ),
    Fault(
        "shared-key dimension: key trie without its leaves",
        "utfproof.shapes",
        "max(shape.d_in, shape.d_out) * inner + shape.d_out * shape.leaves",
        "max(shape.d_in, shape.d_out) * inner",
        ("new:frontier/functional", "new:frontier/attention-matching"),
    ),
    Fault(
        "side by side: one form for each layer only",
        "utfproof.certificates.dimensions",
        "    return b * m, b * b * words + forms + geometric(H, 1, shape.layers - 1) * later",
        "    return b * m, b * b * words + forms + (shape.layers - 1) * later",
        ("new:attention-matching/optimum", "new:functional/attention-matching"),
    ),
]
