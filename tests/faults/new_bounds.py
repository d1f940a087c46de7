"""Faults that the claims about functional and attention-matching bounds must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "fibre bound: a factor 2 is missing",
        "utfproof.certificates.dimensions",
        "return shape.heads * (b * b + 2 * d * b - d * d)",
        "return shape.heads * (b * b + d * b - d * d)",
        ("new:fibre/bound", "new:fibre/against-looped-bound", "new:fibre/seven-all-targets", "new:fibre/diagonal"),
    ),
    Fault(
        "fibre bound, formula: a factor 2 is missing",
        "utfproof.claims.bounds",
        "    return ceil(Fraction(shape.heads * (a * a + 2 * d * a - d * d), a))",
        "    return ceil(Fraction(shape.heads * (a * a + d * a - d * d), a))",
        ("new:fibre/bound", "new:fibre/seven", "new:fibre/seven-all-targets", "new:one-by-one/functional"),
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
        "utfproof.claims.bounds",
        "    later = min(shape.heads * narrow, shape.d_in)",
        "    later = narrow",
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
        "s.d_in**2 * s.leaves + s.word_count * (2 * s.head_dim",
        "s.d_in**2 * s.leaves + s.layers * s.heads * (2 * s.head_dim",
        ("new:attention-matching/optimum",),
    ),
]
