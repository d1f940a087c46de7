"""The notions of universality. Every verdict, certificate and message names its own.

matching implies attention-matching implies functional; no implication goes the other way.
"Not universal by matching" does not mean "not universal".
"""

from __future__ import annotations

from enum import StrEnum


class Notion(StrEnum):
    """What the embedding E must achieve for every target of the class."""

    MATCHING = "matching"
    """One E serves every attention map: queries, keys and outputs agree (E R_all = W_all)."""
    ATTENTION_MATCHING = "attention-matching"
    """The host's attention logits and outputs agree with the target's."""
    FUNCTIONAL = "functional"
    """UTF(X, E) = T(X) for all n and X: the paper's definition."""
    SHARED_ATTENTION = "shared attention"
    """Outputs agree when attention matrices are supplied from outside: the paper's lower-bound model."""
