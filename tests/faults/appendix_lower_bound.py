"""Faults that the claims of Appendix E must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "spanning lemma: I is B",
        "utfproof.exact.symbolic.lower_bound",
        "STAY: Matrix = [[1, 0], [0, 1]]",
        "STAY: Matrix = [[0, 1], [0, 1]]",
        ("asm:matching-attention", "lem:spanning"),
    ),
    Fault(
        "spanning lemma: B exchanges the tokens",
        "utfproof.exact.symbolic.lower_bound",
        "MOVE: Matrix = [[0, 1], [0, 1]]",
        "MOVE: Matrix = [[0, 1], [1, 0]]",
        ("lem:spanning", "lem:spanning/order"),
    ),
    Fault(
        "null vector: products in reverse",
        "utfproof.certificates.lower_bounds",
        "        products = [product @ value for product in products for value in values] if layer else list(values)",
        "        products = [value @ product for product in products for value in values] if layer else list(values)",
        ("thm:lower_bound_matching_attention/untied",),
    ),
    Fault(
        "null vector: a tied host's second layer exchanges its heads",
        "utfproof.certificates.lower_bounds",
        "        values = R_V[layer if len(R_V) > 1 else 0]",
        "        values = R_V[layer if len(R_V) > 1 else 0][:: -1 if layer == 1 else 1]",
        (
            "thm:lower_bound_matching_attention/untied",
            "thm:lower_bound_matching_attention/looped-untied-targets",
        ),
    ),
    Fault(
        "counting host: one step short",
        "utfproof.constructions.shared_attention",
        "    columns = [counts for counts in tuples if sum(counts) < most]",
        "    columns = [counts for counts in tuples if sum(counts) < most - 1]",
        ("thm:lower_bound_matching_attention/looped-remark",),
    ),
    Fault(
        "null-vector lemma: products in reverse",
        "utfproof.exact.symbolic.lower_bound",
        "        products = np.concatenate([np.stack([product @ matrix for matrix in step]) for product in products])",
        "        products = np.concatenate([np.stack([matrix @ product for matrix in step]) for product in products])",
        ("lem:null-vector", "lem:null-vector/trace", "lem:null-vector/any-width"),
    ),
    Fault(
        "two-sided: the second half shifts to the wrong end",
        "utfproof.constructions.shared_attention",
        "    return suffixes, suffixes * shape.heads + head",
        "    return suffixes, suffixes + head * len(suffixes)",
        ("lem:null-vector/sharp",),
    ),
    Fault(
        "shared attention: U transposed",
        "utfproof.systems",
        "        return run_layers(start, self.shape, maps, given) @ U",
        "        return run_layers(start, self.shape, maps, given) @ U.T",
        ("lem:null-vector/U-transposed",),
    ),
    Fault(
        "null-vector lemma: two different layers count as tied",
        "utfproof.exact.symbolic.lower_bound",
        "        return len(set(self.weights)) == 1",
        "        return len(set(self.weights)) <= 2",
        ("lem:null-vector/looped-weights",),
    ),
]
