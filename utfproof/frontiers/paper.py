"""What the paper says of the least m, for comparison. Its statements are about all targets."""

from __future__ import annotations

from dataclasses import dataclass

from utfproof.certificates.dimensions import least_square_root
from utfproof.frontiers.bounds import LOWER, UPPER
from utfproof.frontiers.questions import ANY, BOTH, TIED, Question
from utfproof.shapes import Shape, paper_dimension, paper_looped_dimension
from utfproof.util.notions import Notion


@dataclass(frozen=True)
class Paper:
    """A dimension that the paper says to suffice (side "upper") or to be needed ("lower"), and its label."""

    side: str
    value: int
    label: str

    def __str__(self) -> str:
        return f"{'≤' if self.side == UPPER else '≥'} {self.value}"


def paper_bound(question: Question, shape: Shape) -> Paper | None:
    """The paper's bound for this question; None where it has none (it has no residual streams). The lower bound is stated at
    d_in = 1, and for looped hosts with looped targets as well; the upper bounds for untied and for looped transformers (whose
    displayed equations are the untied targets')."""
    if shape.residual:
        return None
    if question.notion is Notion.SHARED_ATTENTION:
        untold = question.targets == TIED and question.host == ANY
        if question.free == BOTH and shape.d_in == 1 and not untold:
            return Paper(LOWER, least_square_root(shape.leaves), "thm:lower_bound_utf")
        return None
    untied = "thm:designed-R" if question.notion is Notion.MATCHING else "thm:sparse_universal_transformer"
    looped = (
        "thm:designed-R-looped" if question.notion is Notion.MATCHING else "thm:looped_sparse_universal_transformer"
    )
    if question.notion is Notion.ATTENTION_MATCHING:
        return None
    if question.host == ANY:
        return Paper(UPPER, paper_dimension(shape), untied)
    return Paper(UPPER, paper_looped_dimension(shape), looped)
