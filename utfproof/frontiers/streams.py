"""The frontier of residual streams: bounds and hosts over words in the letters 0 (the stream) and 1 ... H.

Proofs: docs/proofs/residual.md for matching, docs/proofs/residual-frontier.md for the rest. d_in = d_out = b
throughout, d' = min(d, b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import comb

from utfproof.certificates.dimensions import (
    DIMENSION_ROWS,
    GENERIC_UNTIED,
    dimension_certificate,
    least_square_root,
    no_tied_host,
)
from utfproof.certificates.prover import certify
from utfproof.frontiers.bounds import CERTIFIED, IMPOSSIBLE, LOWER, PROVED, UPPER, Bound, from_row, identity_bound
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, BOTH, TIED, UNTIED, E, Question
from utfproof.shapes import Shape, geometric, matching_dimension, tied_targets_dimension
from utfproof.util.notions import Notion

PAGE = "docs/proofs/residual.md"
SHARPER = "docs/proofs/sharper-frontier.md"
HERE = "docs/proofs/residual-frontier.md"
TURNED = "docs/proofs/functional-is-attention-matching.md"
Count = Callable[[Shape], int]


def _always(shape: Shape) -> bool:
    return True


def word_count(shape: Shape) -> int:
    """(H+1)^L: words over the letters 0 ... H."""
    return shape.words_at(shape.layers)


def spanned_words(shape: Shape, length: int) -> int:
    """How many words of this length, without the letter 0, tied targets tell apart by any one entry of M_w, or fewer: all that
    are no longer than d', by paths; of the others, by rank-one targets, the counts of letters (b = 1) or of all letters but
    the last, and the last."""
    H, t = shape.heads, length
    if t <= min(shape.head_dim, shape.d_in):
        return int(H**t)
    return comb(t + H - 1, H - 1) if shape.d_in == 1 else H * comb(t + H - 2, H - 1)


def spanned_outputs(shape: Shape) -> int:
    """Dimension that the rows of [M_w]_w span over tied targets, or less: b (1 + S) where L <= d'; C(L+H, H) at b = 1."""
    b, H = shape.d_in, shape.heads
    total = 0
    for t in range(shape.layers + 1):
        short = t <= min(shape.head_dim, b)
        # the first coordinate of the output is a product of numbers
        first = spanned_words(shape, t) if short else comb(t + H - 1, H - 1)
        total += first + (b - 1) * spanned_words(shape, t)
    return total


def spanned_matching(shape: Shape) -> int:
    """The same for W_all: 2dS + b (1 + S) where L <= d'."""
    readers = sum(spanned_words(shape, t) for t in range(shape.layers))
    return 2 * shape.head_dim * shape.heads * readers + spanned_outputs(shape)


def spanned_products(shape: Shape) -> int:
    """Words that tied targets tell apart, or fewer: 1 + S where L <= d'."""
    return sum(spanned_words(shape, t) for t in range(shape.layers + 1))


def _forms(shape: Shape) -> int:
    """Dimension of the logit forms of one head: matrices of rank d'."""
    d, b = min(shape.head_dim, shape.d_in), shape.d_in
    return 2 * d * b - d * d


def tied_output_forms(shape: Shape) -> int:
    """outputs + H (2d' - d'^2/b), rounded up: attention-matching of tied targets, whose forms are those of one layer."""
    return spanned_outputs(shape) - -shape.heads * _forms(shape) // shape.d_in


def _squared(count: Count) -> Count:
    """m^2 >= count, and m^2 > count where b >= 2."""
    return lambda shape: least_square_root(count(shape) + (shape.d_in > 1))


def parameter_count(shape: Shape, layers: int) -> int:
    """2bm - b^2 - 1 >= L H (2d'b - d'^2): E and U free, targets of so many layers with weights of their own (tied: 1)."""
    b = shape.d_in
    return -(-(b * b + 1 + layers * shape.heads * _forms(shape)) // (2 * b))


def _bound(
    name: str,
    side: str,
    question: Question,
    value: Count,
    applies: Callable[[Shape], bool] = _always,
    place: str = HERE,
    claim: str = "",
) -> Bound:
    """A bound by a written proof."""
    return Bound(name, side, question, value, applies, place, None, lambda shape: 1, PROVED, residual=True, claim=claim)


def _constructed(name: str, question: Question, value: Count, letters: Count, claim: str) -> Bound:
    """A construction with a rank certificate; the work is what its R_all holds."""

    def work(shape: Shape) -> int:
        return matching_dimension(shape) + shape.d_out * int(letters(shape) ** shape.layers)

    return Bound(
        name, UPPER, question, value, _always, PAGE, lambda shape, m: certify(name, shape, m), work, CERTIFIED,
        residual=True, claim=claim,
    )  # fmt: skip


def _from_rows() -> Iterator[Bound]:
    """Lower bounds with certificates. The one that holds for every m is written for m = M_res."""
    claims = {UNTIED: "new:residual/decision", TIED: "new:residual/tied-targets"}
    for bound in map(from_row, DIMENSION_ROWS):
        if bound.residual:
            matched = bound.question.notion is Notion.MATCHING
            yield replace(bound, claim=claims[bound.question.targets]) if matched else bound
    yield Bound(
        "equal columns", IMPOSSIBLE, Question(Notion.MATCHING, None, UNTIED, ALMOST_ALL, TIED), matching_dimension,
        lambda shape: no_tied_host(shape, GENERIC_UNTIED), PAGE,
        lambda shape, m: dimension_certificate(shape, m, targets=GENERIC_UNTIED, every="tied host"), lambda shape: 1, CERTIFIED,
        residual=True, claim="new:residual/tied-host",
    )  # fmt: skip


def _lowers() -> Iterator[Bound]:
    matched, logits, functional, shared = (
        Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL, Notion.SHARED_ATTENTION
    )  # fmt: skip

    def row(name: str, notion: Notion, free: str | None, targets: str, *rest: object) -> Bound:
        return _bound(name, LOWER, Question(notion, free, targets, ALMOST_ALL), *rest)  # type: ignore[arg-type]

    yield from _from_rows()
    yield row("tied words", matched, None, TIED, spanned_matching)
    yield row("words", shared, E, UNTIED, lambda s: s.d_in * word_count(s))
    yield row("tied words", shared, E, TIED, spanned_outputs)
    yield row("words", shared, BOTH, UNTIED, _squared(word_count))
    yield row("tied words", shared, BOTH, TIED, _squared(spanned_products))
    yield row("parameter count", shared, BOTH, UNTIED, lambda s: parameter_count(s, s.layers))
    yield row("parameter count", shared, BOTH, TIED, lambda s: parameter_count(s, 1))
    for targets in (UNTIED, TIED):
        yield row("the word 0...0", shared, BOTH, targets, lambda s: s.d_in)
    yield row("logit forms", logits, None, TIED, tied_output_forms)
    # all models ask for E R_w U = M_w, the functional one of almost all targets
    for question in (
        Question(shared, BOTH, UNTIED, ALMOST_ALL, TIED),
        Question(functional, None, UNTIED, ALMOST_ALL, TIED),
    ):
        yield _bound(
            "equal columns", IMPOSSIBLE, question, matching_dimension, lambda s: s.layers > 1,
            HERE if question.free else TURNED, "new:residual/tied-host",
        )  # fmt: skip


def _uppers() -> Iterator[Bound]:
    matched, logits = Notion.MATCHING, Notion.ATTENTION_MATCHING

    tied = {"targets": TIED, "extent": ALL, "host": TIED}
    yield _constructed(
        "sparse", Question(matched, host=ANY), matching_dimension, lambda s: 2 * s.heads + 1, "new:residual/unimodular"
    )
    yield _constructed(
        "tied", Question(matched, **tied), tied_targets_dimension, lambda s: s.letters, "new:residual/tied-targets"
    )
    yield identity_bound("residual-key", Question(logits), SHARPER, residual=True)
    shared = Notion.SHARED_ATTENTION  # the outputs of the prefix tree, and of its trie
    yield _bound("output tree", UPPER, Question(shared, E), lambda s: s.d_in * word_count(s))
    yield _bound("output trie", UPPER, Question(shared, E, **tied), lambda s: s.d_in * geometric(s.heads, 0, s.layers))


RESIDUAL_BOUNDS: tuple[Bound, ...] = (*_lowers(), *_uppers())
"""Every bound at shapes with a residual stream."""
