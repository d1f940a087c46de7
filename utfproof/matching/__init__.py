"""The matching equations E R_all = W_all: both sides, isolating targets, and solving for the embedding E.

By the decision theorem a host is universal *by matching* (for all untied targets) iff rank R_all = M. `embed` solves
for one target. For the two hosts below M it fills in E by formula instead, and says *by attention-matching*.
"""

from utfproof.matching.equations import (
    distance_bound,
    exact_target,
    isolating_target,
    r_all,
    refuting_column,
    w_all,
)
from utfproof.matching.floats import Embedding, FloatSolver
from utfproof.matching.solving import Embedder, embed, require_same_class

__all__ = [
    "Embedder",
    "Embedding",
    "FloatSolver",
    "distance_bound",
    "embed",
    "exact_target",
    "isolating_target",
    "r_all",
    "refuting_column",
    "require_same_class",
    "w_all",
]
