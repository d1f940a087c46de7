"""Faults that the claims of the introduction must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "m-bar without the factor 2 of Q and K",
        "utfproof.shapes",
        "    return 2 * H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out",
        "    return H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out",
        ("intro:sparse/heads", "tab:summary_results_combined/dimensions", "sec:experiments/vocabulary"),
    ),
    Fault(
        "M counts Q and K once",
        "utfproof.shapes",
        "    return 2 * shape.head_dim * readers + shape.d_out * shape.words_at(shape.layers)",
        "    return shape.head_dim * readers + shape.d_out * shape.words_at(shape.layers)",
        (
            "intro:looped",
            "intro:sparse/heads",
            "intro:sparse/single-head",
            "intro:random/heads",
            "intro:random/single-head",
            "tab:summary_results_combined/dimensions",
            "fig:scaling_law/standard-width",
        ),
    ),
    Fault(
        "sparse: projections keep the other heads' words",
        "utfproof.constructions.sparse",
        "            kept.append(block_cells(shape, starts, depth, words[letter == head + shape.residual]))",
        "            kept.append(block_cells(shape, starts, depth, words[letter != head + shape.residual]))",
        ("intro:sparse/heads", "fig:overview"),
    ),
    Fault(
        "random weights are the same for every head",
        "utfproof.ground.generator",
        "    for value in (TENSOR_CODES[tensor], layer, head):",
        "    for value in (TENSOR_CODES[tensor], layer, 0):",
        ("intro:random/heads",),
    ),
    Fault(
        "H L words of length L",
        "utfproof.shapes",
        '        return int(require_plain(self, "H^L").heads ** self.layers)',
        '        return int(require_plain(self, "H^L").heads * self.layers)',
        ("intro:lower-bound",),
    ),
    Fault(
        "W_all has a row too many",
        "utfproof.systems",
        "        return eye(self.shape.d_in, self.W_Q) if self.W_E is None else self.W_E",
        "        return eye(self.shape.head_dim, self.W_Q) if self.W_E is None else self.W_E",
        ("intro:embedding-shape",),
    ),
    Fault(
        "the host's forward pass drops the value map",
        "utfproof.systems",
        "for matrix in (*rest, *value[1:]):",
        "for matrix in (*rest[1:], *value[1:]):",
        ("fig:overview",),
    ),
]
