"""Faults that the claims of Section 3 must notice: in dimensions, constructions, generators, masks and certificates."""

from planting import Fault

SHAPES = "utfproof.shapes"
PRINTED = "utfproof.paper.formulas"
LOOPED = "thm:looped_sparse_universal_transformer"
RANDOM_LOOPED = "thm:random_looped_universal_transformer"
SPARSE = "thm:sparse_universal_transformer"
FAULTS = [
    Fault(
        "side by side: the later layers' readers count half",
        "utfproof.certificates.dimensions",
        "    return b * m, b * b * words + forms + geometric(H, 1, shape.layers - 1) * later",
        "    return b * m, b * b * words + forms + geometric(H, 1, shape.layers - 1) * later // 2",
        (
            "thm:looped_sparse_universal_transformer/more-layers",
            "thm:looped_sparse_universal_transformer/attention-matching",
            "thm:random_looped_universal_transformer/more-layers",
            "new:attention-matching/optimum",
        ),
    ),
    Fault(
        "m-bar of several heads loses a layer",
        SHAPES,
        "return 2 * H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out",
        "return 2 * H * (H ** (L - 1) - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out",
        (
            "eq:m-bar/heads",
            f"{SPARSE}/heads",
            f"{SPARSE}/far-fewer",
            "sec:constructing/minimal-dimension",
            "thm:random_universal_transformer",
        ),
    ),
    Fault(
        "m-bar of several heads one too large",
        SHAPES,
        "return 2 * H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out",
        "return 2 * H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out + 1",
        ("eq:m-bar/heads", f"{SPARSE}/least-heads"),
    ),
    Fault(
        "m-bar of one head without the output block",
        SHAPES,
        "return (shape.layers + 1) * max(2 * shape.head_dim, shape.d_out)",
        "return shape.layers * max(2 * shape.head_dim, shape.d_out)",
        ("eq:m-bar/single-head", f"{SPARSE}/single-head", f"{SPARSE}/least-single-head", "eq:m-bar-loop"),
    ),
    Fault(
        "looped m-bar without the root block",
        SHAPES,
        "return (1 + shape.word_count) * max(2 * shape.head_dim, shape.d_out)",
        "return shape.word_count * max(2 * shape.head_dim, shape.d_out)",
        (
            "eq:m-bar-loop",
            f"{LOOPED}/proof",
            f"{LOOPED}/m-bar-at-least-M",
            f"{LOOPED}/wide-heads",
            f"{LOOPED}/one-layer",
            f"{LOOPED}/open",
            f"{RANDOM_LOOPED}/proof",
            f"{RANDOM_LOOPED}/m-bar-at-least-M",
            f"{RANDOM_LOOPED}/linear-test",
            f"{RANDOM_LOOPED}/one-layer",
            f"{RANDOM_LOOPED}/open",
        ),
    ),
    Fault(
        "a fibre as large as if gauges did not count",
        "utfproof.claims.constructing_looped",
        "    needed = H * (d_in * d_in - (d_in - d) * (d_in - d))",
        "    needed = H * d_in * d_in",
        (f"{LOOPED}/one-layer", f"{RANDOM_LOOPED}/one-layer"),
    ),
    Fault(
        "a projection that repeats its last blocks",
        "utfproof.constructions.sparse",
        "diagonal = np.concatenate(kept)",
        "diagonal = np.concatenate([*kept, kept[-1]])",
        (f"{SPARSE}/binary", f"{SPARSE}/nonzeros"),
    ),
    Fault(
        "ones counted a cell at a time",
        "utfproof.ground.selection",
        "return int(self.pair_widths.sum())",
        "return len(self.row_cells)",
        (
            f"{SPARSE}/binary",
            f"{SPARSE}/nonzeros",
            f"{LOOPED}/binary",
            "thm:designed-R/width-map",
            "thm:designed-R/sum-across-prefixes",
        ),
    ),
    Fault(
        "the projection looks at the letter before",
        "utfproof.constructions.sparse",
        "letter = words // shape.words_at(depth - layer) % shape.letters",
        "letter = words // shape.words_at(depth - layer + 1) % shape.letters",
        (
            f"{SPARSE}/heads",
            f"{SPARSE}/proof",
            "sec:constructing/construction",
            "thm:designed-R/statement",
            "thm:designed-R/unembedding-identity",
            "thm:designed-R/selector-identity",
            "thm:designed-R/annihilates",
            "thm:designed-R/recursive",
            "thm:designed-R/formal-row",
            "thm:designed-R/formal-column",
        ),
    ),
    Fault(
        "the shared-key query block with the first head's form",
        "utfproof.constructions.shared_key",
        'words = [[*values(word[:-1]), f"A{len(word)}.{word[-1]}"] for',
        'words = [[*values(word[:-1]), f"A{len(word)}.{word[0]}"] for',
        (f"{SPARSE}/far-fewer", "sec:constructing/minimal-dimension", f"{LOOPED}/wide-heads"),
    ),
    Fault(
        "a shift register that drops the first letter",
        "utfproof.constructions.tied",
        "return head * (shape.leaves // shape.heads) + words // shape.heads, words",
        "return head * (shape.leaves // shape.heads) + words % (shape.leaves // shape.heads), words",
        (
            f"{LOOPED}/proof",
            f"{LOOPED}/m-bar-at-least-M",
            "sec:constructing/theta-dimension/heads",
            "sec:constructing/masking",
        ),
    ),
    Fault(
        "every head drawn like the first",
        "utfproof.certificates.sources",
        "self.seed, tensor, self.m, columns, law=self.law, dtype=self.dtype, layer=layer, head=head, part=part\n",
        "self.seed, tensor, self.m, columns, law=self.law, dtype=self.dtype, layer=layer, head=0, part=part\n",
        (
            "thm:random_universal_transformer",
            f"{RANDOM_LOOPED}/proof",
            f"{RANDOM_LOOPED}/m-bar-at-least-M",
            f"{RANDOM_LOOPED}/linear-test",
            "sec:constructing/almost-all",
        ),
    ),
    Fault(
        "R_all routed by the first head only",
        "utfproof.matching.equations",
        "for matrix in reversed(entry.value):",
        "for matrix in reversed(maps[0].value):",
        ("sec:constructing/non-degeneracy", "def:looped-utf", "thm:designed-R/formal-row"),
    ),
    Fault(
        "a causal mask that shows later keys",
        "utfproof.attention.causal",
        "return distance >= 0",
        "return distance <= 0",
        ("sec:constructing/masking",),
    ),
    Fault(
        "a window one token too wide",
        "utfproof.attention.window",
        "return np.abs(distance) < self.value",
        "return np.abs(distance) <= self.value",
        ("sec:constructing/masking",),
    ),
    Fault(
        "looped matrices counted for each layer",
        PRINTED,
        'MATRICES_LOOPED = "3 H + 1"',
        'MATRICES_LOOPED = "3 H L + 1"',
        ("sec:constructing/matrix-count",),
    ),
    Fault(
        "the smaller of d and d_in in the order of m",
        PRINTED,
        "return constant * shape.heads**shape.layers * max(shape.head_dim, shape.d_in)",
        "return constant * shape.heads**shape.layers * min(shape.head_dim, shape.d_in)",
        ("sec:constructing/theta-dimension/heads", "sec:constructing/theta-dimension/single-head"),
    ),
    Fault(
        "a constant that is too small", PRINTED, "ENOUGH = 5", "ENOUGH = 2", ("sec:constructing/theta-dimension/heads",)
    ),
    Fault(
        "two dimensions a layer",
        PRINTED,
        "ENOUGH_A_LAYER = 3",
        "ENOUGH_A_LAYER = 2",
        ("sec:constructing/theta-dimension/single-head",),
    ),
]
