"""Faults that the claims of Section 4 must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "tied host: keys are read from the query half",
        "utfproof.constructions.tied",
        "        tuple(read(2 * h + 1, reader) for h in heads),",
        "        tuple(read(2 * h, reader) for h in heads),",
        ("sec:optimality/upper-bounds-match",),
    ),
    Fault(
        "shared attention: heads are taken in reverse",
        "utfproof.systems",
        "return self.R_V[head] if self.tied else self.R_V[layer][head]",
        "return self.R_V[head] if self.tied else self.R_V[layer][self.shape.heads - 1 - head]",
        (
            "def:shared-attention",
            "sec:optimality/stronger-model",
            "eq:lower_bound_matching_term",
            "app:lower_bound/two-tokens",
        ),
    ),
    Fault(
        "two-sided: U's words start one layer early",
        "utfproof.constructions.shared_attention",
        "values(word, half + 1)) for i, word",
        "values(word, half)) for i, word",
        (
            "sec:optimality/strictly-stronger",
            "new:shared-attention/even",
            "new:shared-attention/two-layers-of-width-two",
        ),
    ),
    Fault(
        "attention-matching bound: one output column a word",
        "utfproof.certificates.dimensions",
        "lambda s, m: (s.d_in * (m - s.d_in * s.leaves), logit_form_dimension(s))",
        "lambda s, m: (s.d_in * (m - s.leaves), logit_form_dimension(s))",
        (
            "sec:optimality/attention-matching",
            "new:attention-matching-bound",
            "new:attention-matching/single-head",
        ),
    ),
    Fault(
        "dimension bound: depth enters linearly",
        "utfproof.certificates.dimensions",
        "            return m * m, s.leaves",
        "            return m * m, s.layers",
        (
            "thm:lower_bound_utf/untied",
            "thm:lower_bound_utf/looped-host",
            "sec:optimality/exponential",
            "sec:optimality/compression",
            "thm:lower_bound_matching_attention/untied",
            "new:shared-attention/even",
        ),
    ),
    Fault(
        "counting: head 0 fills up to the number of heads",
        "utfproof.constructions.shared_attention",
        "powers((shape.layers - sum(c), *c))) for i, c",
        "powers((shape.layers - len(c), *c))) for i, c",
        (
            "thm:lower_bound_utf/looped-targets",
            "new:looped-shared/E-free",
            "new:looped-shared/two-heads",
        ),
    ),
    Fault(
        "prefix products: words in the wrong order",
        "utfproof.systems",
        "step = namespace(products).stack(by_letter, axis=1)",
        "step = namespace(products).stack(by_letter, axis=0)",
        ("sec:optimality/paths", "app:lower_bound/two-tokens"),
    ),
]
