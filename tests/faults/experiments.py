"""Faults for the claims about the paper's own numbers and sentences: one number or sentence altered each."""

from planting import Fault

PAPER = "utfproof.paper.tables"
FAULTS = [
    Fault(
        "attention-only, 2-hop is harder than 1-hop",
        PAPER,
        '"2-hop": (33.2, 30.5, 51.8)',
        '"2-hop": (23.2, 20.5, 51.8)',
        ("sec:experiments/more-depth",),
    ),
    Fault(
        "frozen MLPs cost the random host nothing",
        PAPER,
        '"MLP and LN": (100.0, 66.2, 100.0)',
        '"MLP and LN": (100.0, 86.2, 100.0)',
        ("sec:experiments/frozen-mlp",),
    ),
    Fault(
        "the query token is a label",
        PAPER,
        '"right parenthesis", "query token")',
        '"right parenthesis", "first label")',
        ("sec:experiments/vocabulary-of-parentheses",),
    ),
    Fault(
        "another gain of the default initialisation",
        "utfproof.claims.experiments_said",
        "        gain = Fraction(2, 1 + 5)",
        "        gain = Fraction(2, 1 + 3)",
        ("sec:experiments/initialisation",),
    ),
    Fault(
        "an odd number of parentheses",
        PAPER,
        "MOST_PARENTHESES = 60",
        "MOST_PARENTHESES = 61",
        ("sec:experiments/lengths",),
    ),
    Fault(
        "an example without equal neighbours",
        PAPER,
        'TWO_HOP_INPUT = "aabccabca"',
        'TWO_HOP_INPUT = "cabcabcab"',
        ("task:two-hop-example/neighbours",),
    ),
    Fault(
        "85 % is near-perfect",
        PAPER,
        "NEAR_PERFECT = 95.0",
        "NEAR_PERFECT = 85.0",
        ("intro:near-perfect",),
    ),
    Fault(
        "printed m of the 1-hop task",
        PAPER,
        '"vocabulary": 30, "m": 456}',
        '"vocabulary": 30, "m": 465}',
        ("tab:summary_results_combined/dimensions", "sec:experiments/vocabulary"),
    ),
    Fault(
        "hyperparameter table with another head dimension",
        PAPER,
        'HYPERPARAMETERS_PARENTHESES = {"heads": 4, "layers": 2, "head_dim": 24',
        'HYPERPARAMETERS_PARENTHESES = {"heads": 4, "layers": 2, "head_dim": 42',
        ("tab:hyperparameters/shapes",),
    ),
    Fault(
        "caption with other depths",
        PAPER,
        'LAYERS_PER_HOP = {"1-hop": 2,',
        'LAYERS_PER_HOP = {"1-hop": 3,',
        ("tab:hyperparameters/shapes",),
    ),
    Fault(
        "a summary cell altered",
        PAPER,
        '    "3-hop": (39.2, 32.6, 99.5),\n',
        '    "3-hop": (39.2, 36.2, 99.5),\n',
        ("tab:ablation_results/agree-with-summary",),
    ),
    Fault(
        "2-hop with residual altered to be consistent",
        PAPER,
        "(53.8, 54.3, 58.4)",
        "(54.8, 54.3, 58.4)",
        ("sec:experiments/consistently-exceeds",),
    ),
    Fault(
        "the sentence weakened to 'at times'",
        PAPER,
        'CONSISTENTLY = "never below"',
        'CONSISTENTLY = "at times above"',
        ("sec:experiments/consistently-exceeds",),
    ),
    Fault("the guessing level lowered", PAPER, "GUESSING = 20.0", "GUESSING = 5.0", ("sec:experiments/guessing",)),
    Fault(
        "a residual and LN cell of the sparse host",
        PAPER,
        'SUMMARY_RESIDUAL_LN = {\n    "parentheses": (100.0, 100.0, 93.0),\n    "1-hop": (100.0, 96.1',
        'SUMMARY_RESIDUAL_LN = {\n    "parentheses": (100.0, 100.0, 93.0),\n    "1-hop": (99.0, 96.1',
        ("sec:experiments/residual-ln-sparse", "tab:ablation_results/agree-with-summary"),
    ),
    Fault(
        "the stated range of the random hosts",
        PAPER,
        "RANDOM_RANGE = (85.7, 96.1)",
        "RANDOM_RANGE = (87.5, 96.1)",
        ("sec:experiments/residual-ln-random",),
    ),
    Fault(
        "robustness on parentheses",
        PAPER,
        "(100.0, 95.4, 100.0)",
        "(99.0, 95.4, 100.0)",
        ("sec:experiments/parentheses-robust",),
    ),
    Fault(
        "1-hop attention-only above its normalised cell",
        PAPER,
        '        "residual and LN": (100.0, 92.6, 100.0),\n        "MLP": (56.9',
        '        "residual and LN": (100.0, 2.6, 100.0),\n        "MLP": (56.9',
        ("sec:experiments/normalisation-helps",),
    ),
    Fault(
        "the example's output altered", PAPER, 'TWO_HOP_OUTPUT = "c"', 'TWO_HOP_OUTPUT = "b"', ("task:two-hop-example",)
    ),
    Fault(
        "the hop lands on the occurrence itself",
        "utfproof.claims.experiments",
        "        place = earlier + 1\n",
        "        place = earlier\n",
        ("task:two-hop-example",),
    ),
    Fault(
        "the standard width is m-bar",
        PAPER,
        'STANDARD_PARAMETRISATION = "m = H d"',
        'STANDARD_PARAMETRISATION = "m = m-bar"',
        ("fig:scaling_law/standard-width",),
    ),
]
