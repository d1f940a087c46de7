"""The paper's own numbers, and the sentences about them as conditions: what the claims of Section 5 compare.

Accuracies are in percent, as printed: sparse, random, fully trained. Source: "Fixed Universal Transformers",
tab:summary_results_combined, tab:ablation_results, tab:induction_head_1hop, tab:induction_head_3_4_hop,
tab:hyperparameters_*, and the text of Section 5 and Appendix G.
"""

from __future__ import annotations

VARIANTS = ("attention-only", "residual", "residual and LN", "MLP", "MLP and LN")

SUMMARY_ATTENTION_ONLY = {
    "parentheses": (100.0, 94.4, 100.0),
    "1-hop": (30.2, 29.4, 8.4),
    "2-hop": (33.2, 30.5, 51.8),
    "3-hop": (39.2, 32.6, 99.5),
    "4-hop": (39.4, 35.2, 95.6),
}
SUMMARY_RESIDUAL_LN = {
    "parentheses": (100.0, 100.0, 93.0),
    "1-hop": (100.0, 96.1, 100.0),
    "2-hop": (100.0, 85.7, 100.0),
    "3-hop": (100.0, 92.6, 100.0),
    "4-hop": (100.0, 89.2, 100.0),
}
ABLATIONS = {
    "parentheses": {
        "attention-only": (100.0, 94.4, 100.0),
        "residual": (100.0, 95.4, 100.0),
        "residual and LN": (100.0, 100.0, 93.0),
        "MLP": (100.0, 100.0, 100.0),
        "MLP and LN": (100.0, 100.0, 94.4),
    },
    "1-hop": {
        "attention-only": (30.2, 29.4, 8.4),
        "residual": (42.1, 5.5, 67.5),
        "residual and LN": (100.0, 96.1, 100.0),
        "MLP": (61.0, 51.3, 100.0),
        "MLP and LN": (100.0, 96.0, 100.0),
    },
    "2-hop": {
        "attention-only": (33.2, 30.5, 51.8),
        "residual": (53.8, 54.3, 58.4),
        "residual and LN": (100.0, 85.7, 100.0),
        "MLP": (54.6, 54.1, 100.0),
        "MLP and LN": (100.0, 66.2, 100.0),
    },
    "3-hop": {
        "attention-only": (39.2, 32.6, 99.5),
        "residual": (53.6, 43.9, 99.9),
        "residual and LN": (100.0, 92.6, 100.0),
        "MLP": (56.9, 57.5, 100.0),
        "MLP and LN": (100.0, 98.7, 100.0),
    },
    "4-hop": {
        "attention-only": (39.4, 35.2, 95.6),
        "residual": (43.9, 41.6, 97.9),
        "residual and LN": (100.0, 89.2, 100.0),
        "MLP": (44.7, 48.8, 97.4),
        "MLP and LN": (82.8, 70.9, 100.0),
    },
}

TABLE_ROWS = {
    "parentheses": {"heads": 4, "layers": 2, "head_dim": 24, "vocabulary": 4, "m": 1024},
    "1-hop": {"heads": 2, "layers": 2, "head_dim": 28, "vocabulary": 30, "m": 456},
    "2-hop": {"heads": 2, "layers": 3, "head_dim": 28, "vocabulary": 30, "m": 1024},
    "3-hop": {"heads": 2, "layers": 4, "head_dim": 30, "vocabulary": 30, "m": 2280},
    "4-hop": {"heads": 2, "layers": 4, "head_dim": 30, "vocabulary": 30, "m": 2280},
}
"""Shapes and embedding dimensions as the captions give them."""
OTHER_CAPTIONS = {
    "tab:ablation_results": {
        "parentheses": {"heads": 4, "layers": 2, "head_dim": 24, "m": 1024},
        "2-hop": {"heads": 2, "layers": 3, "head_dim": 28, "m": 1024},
    },
    "tab:induction_head_1hop": {"1-hop": {"heads": 2, "layers": 2, "head_dim": 28, "m": 456}},
    "tab:induction_head_3_4_hop": {
        "3-hop": {"heads": 2, "layers": 4, "head_dim": 30, "m": 2280},
        "4-hop": {"heads": 2, "layers": 4, "head_dim": 30, "m": 2280},
    },
    "fig:scaling_law": {"2-hop": {"heads": 2, "layers": 3}},
}
"""What the captions of the tables behind the first and of the scaling figure say of the same shapes."""
_BY_SHAPE = {(r["heads"], r["layers"], r["head_dim"], r["vocabulary"]): task for task, r in TABLE_ROWS.items()}
PAPER_TABLE_SHAPES: dict[str, tuple[int, int, int, int]] = {task: shape for shape, task in _BY_SHAPE.items()}
"""(H, L, d, d_in) of the paper's experiments (tab:summary_results_combined); 3-hop shares the shape of 4-hop."""

HYPERPARAMETERS_PARENTHESES = {"heads": 4, "layers": 2, "head_dim": 24, "vocabulary": 4, "m": 1024}
HYPERPARAMETERS_K_HOP = {"heads": 2, "vocabulary": 30, "character tokens": 4}

GUESSING = 20.0
"""What the text says random guessing reaches on the induction-head tasks, in percent."""
RANDOM_RANGE = (85.7, 96.1)
"""What the text says the random hosts reach on the induction-head tasks with residual and LN."""
ROBUST_PARENTHESES = 100.0
"""What the text says the sparse host reaches in every variant on parentheses."""
RANDOM_PARENTHESES = {"attention-only": 94.4, "residual and LN": 100.0, "MLP": 100.0, "MLP and LN": 100.0}
"""What the text says of the random host on parentheses."""
LAYERS_PER_HOP = {"1-hop": 2, "2-hop": 3, "3-hop": 4, "4-hop": 4}
"""Depths as the caption of tab:summary_results_combined lists them."""

TWO_HOP_INPUT = "aabccabca"
TWO_HOP_OUTPUT = "c"
"""The worked example of the k-hop task: the output at the last position."""
TRAINING_STEPS = {"1-hop": 10_000, "2-hop": 15_000, "3-hop": 60_000, "4-hop": 60_000}
OPTIMISATION = {
    "parentheses": {"learning rate": 1e-3, "warm-up": 50, "steps": 10_000, "batch": 1000},
    "k-hop": {"learning rate": 1e-4, "warm-up": 1000, "batch": 128},
}
"""tab:hyperparameters_parenthesis_balancing and tab:hyperparameters_k-hop; the steps of k-hop are TRAINING_STEPS."""
