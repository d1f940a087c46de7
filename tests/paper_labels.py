"""Every labelled statement, figure and table of the paper, and the unlabelled ones by where they stand: each must be in the
registry. Keys are the paper's labels, or names of our own in the same style where it has none."""

LABELS = [
    # Section 1
    "intro:sparse",
    "intro:random",
    "intro:lower-bound",
    "intro:looped",
    "intro:near-perfect",
    "intro:embedding-shape",
    "fig:overview",
    # Section 2: definitions
    "def:transformer",
    "def:universal-transformer",
    "def:utf-model",
    "def:looped-utf",
    "sec:preliminaries",
    # Section 3
    "thm:sparse_universal_transformer",
    "thm:looped_sparse_universal_transformer",
    "thm:random_universal_transformer",
    "thm:random_looped_universal_transformer",
    "eq:m-bar",
    "eq:m-bar-loop",
    "sec:constructing",
    # Section 4 and Appendix E
    "thm:lower_bound_utf",
    "thm:lower_bound_matching_attention",
    "sec:optimality",
    "def:shared-attention",
    "asm:matching-attention",
    "eq:lower_bound_matching_term",
    "lem:spanning",
    "lem:null-vector",
    # Section 5, Appendices F and G
    "tab:summary_results_combined",
    "tab:ablation_results",
    "fig:scaling_law",
    "tab:hyperparameters",
    "sec:experiments",
    "task:two-hop-example",
    # Appendix A
    "lem:unroll",
    "lem:eqatt",
    "lem:equal-io",
    "lem:single_head",
    "lem:multiunroll",
    "lem:multieqatt",
    "lem:equal-io-multi",
    "thm:designed-R",
    "fig:E-block",
    # Appendix B
    "thm:random-R",
    "eq:multi-head-stacked",
    # Appendices C, D
    "thm:designed-R-looped",
    "lem:looped-routing",
    "thm:looped_random-R",
]
