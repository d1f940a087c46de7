"""Faults that the claims of Section 2 must notice: in the forward passes, the attention, and the hosts."""

from planting import Fault

SYSTEMS = "utfproof.systems"
SPARSE = "utfproof.constructions.sparse"
FAULTS = [
    Fault(
        "softmax normalised over queries",
        "utfproof.attention.arithmetic",
        "    return weights, weights.sum(axis=-1, keepdims=True)",
        "    return weights, weights.sum(axis=-2, keepdims=True)",
        ("def:softmax",),
    ),
    Fault(
        "queries and keys of a target swapped",
        SYSTEMS,
        "return HeadMaps(w_q, w_k, (w_v, w_o))",
        "return HeadMaps(w_k, w_q, (w_v, w_o))",
        ("def:transformer", "def:universal-transformer/uniform-in-n", "sec:constructing/masking"),
    ),
    Fault(
        "the second head left out of the sum",
        SYSTEMS,
        "        for term in terms[1:]:",
        "        for term in terms[2:]:",
        ("def:transformer", "def:utf-model", "def:universal-transformer", "def:looped-utf"),
    ),
    Fault(
        "keys of a looped host from the last head on",
        SYSTEMS,
        "return HeadMaps(self.R_Q[head], self.R_K[head], tuple(f[head] for f in factors))",
        "return HeadMaps(self.R_Q[head], self.R_K[-1 - head], tuple(f[head] for f in factors))",
        ("def:looped-utf", "thm:looped_sparse_universal_transformer/m-bar-at-least-M"),
    ),
    Fault(
        "the embedding's columns in reverse",
        "utfproof.matching.solving",
        "E[:, _index(self.unit_rows, right)] = right\n",
        "E[:, _index(self.unit_rows, right)] = right[:, ::-1]\n",
        (
            "sec:preliminaries/description",
            "def:universal-transformer/uniform-in-n",
            "sec:constructing/masking",
            "fig:E-block",
        ),
    ),
    Fault(
        "projections onto the blocks of the other heads",
        SPARSE,
        "words[letter == head + shape.residual]",
        "words[letter != head + shape.residual]",
        (
            "def:universal-transformer",
            "def:universal-transformer/uniform-in-n",
            "def:utf-model/not-in-its-own-class",
            "thm:sparse_universal_transformer/single-head",
            "thm:sparse_universal_transformer/least-single-head",
            "lem:single_head/statement",
        ),
    ),
]
