"""The dimension bounds: arithmetic below which no host is universal (docs/certificate-format.md section 10.1).

Each row has its proof in docs/proofs; the checker has the same table in code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import comb, isqrt

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined
from utfproof.constructions.counting import commuting_dimension
from utfproof.errors import MalformedInput, Undecided
from utfproof.shapes import (
    Shape,
    geometric,
    matching_dimension,
    positive_integer,
    require_words,
    tied_targets_dimension,
)
from utfproof.util.notions import BOTH_FREE, E_FREE, Notion

ALL_UNTIED = "all untied"
ALL_TIED = "all tied"
GENERIC_UNTIED = "generic untied"
GENERIC_TIED = "generic tied"
"""All but a set of measure zero: what is refuted for these serves almost none of the class."""
BOTH = BOTH_FREE


def _always(_: Shape) -> bool:
    return True


def _square(shape: Shape) -> bool:
    return shape.d_in == shape.d_out


@dataclass(frozen=True)
class DimensionRow:
    """A row of the tables of section 10.1: no host of fewer dimensions than least(shape) serves these targets.

    where: the shapes at which it is proved. page: the proof, in docs/proofs. every: "tied host" where the bound is proved for
    tied hosts only. residual: about shapes with a residual stream, and no others. theorem: the one in proofs/ that says so.
    """

    name: str
    notion: Notion
    targets: str
    free: str | None
    least: Callable[[Shape], int]
    page: str
    where: Callable[[Shape], bool] = _always
    every: str = "host"
    residual: bool = False
    theorem: str = ""

    def applies(self, shape: Shape) -> bool:
        """Whether the bound is proved at this shape; for almost all targets none is but for d_in = d_out."""
        stated = shape.residual is self.residual and (
            _square(shape) or self.targets not in (GENERIC_UNTIED, GENERIC_TIED)
        )
        return stated and self.where(shape)


def least_square_root(count: int) -> int:
    """The least m with m^2 >= count >= 1."""
    return isqrt(count - 1) + 1


def _over(count: int, divisor: int) -> int:
    """count / divisor, rounded up."""
    return -(-count // divisor)


# --- where a bound applies ---------------------------------------------------------------------------------


def _paths(shape: Shape) -> bool:
    """Tied targets can follow every path 1 -> 2 -> ... -> L -> j (docs/proofs/decision-theorem.md, section 5)."""
    return min(shape.head_dim, shape.d_in) >= shape.layers


def _without_paths(shape: Shape) -> bool:
    return not _paths(shape)


def _narrow(shape: Shape) -> bool:
    return _square(shape) and shape.head_dim <= shape.d_in


def _wide(shape: Shape) -> bool:
    deep = shape.layers > 1 and (shape.heads > 1 or shape.residual)
    return _square(shape) and shape.head_dim > shape.d_in and deep


def _at(heads: int, layers: int, width: int = 1) -> Callable[[Shape], bool]:
    return lambda s: (s.heads, s.layers, s.d_in, s.d_out) == (heads, layers, width, width)


# --- formulas ----------------------------------------------------------------------------------------------


def _counts(shape: Shape) -> int:
    return comb(shape.layers + shape.heads - 1, shape.heads - 1)


def _forms(shape: Shape) -> int:
    """Dimension of the logit forms of all heads of a layer: matrices of rank d' = min(d, d_in)."""
    b, d = shape.d_in, min(shape.head_dim, shape.d_in)
    return shape.heads * (2 * d * b - d * d)


def logit_form_dimension(shape: Shape) -> int:
    """Dimension of the logit forms of all layers and heads over fixed generic values (attention-matching-bound.md)."""
    b, d = shape.d_in, min(shape.head_dim, shape.d_in)
    if shape.residual:
        return shape.layers * _forms(shape)
    later = min(shape.heads * d, b)
    return shape.heads * (2 * d * b - d * d + (shape.layers - 1) * (2 * d * later - d * d))


def _logit_forms(shape: Shape) -> int:
    """d_in (m - d_in H^L) >= the dimension of the logit forms; words of H + 1 letters with a residual stream."""
    return shape.d_in * shape.words_at(shape.layers) + _over(logit_form_dimension(shape), shape.d_in)


def _tied_logit_forms(shape: Shape) -> int:
    """d_in (m - outputs) >= H (2 d' d_in - d'^2)."""
    outputs = shape.d_in * shape.leaves if _paths(shape) else _counts(shape)
    return outputs + _over(_forms(shape), shape.d_in)


def _side_by_side(shape: Shape) -> int:
    """d <= d_in: d_in m >= d_in^2 H^L + 2 d d_in S - d^2 (H + d_in (S - H) / r), r = min(H d, d_in).
    With a residual stream d_in (m - d_in (H+1)^L) >= H (2 d d_in - d^2) (1 + q + ... + q^(L-1)), where q = H+1 or, if that is
    less, d_in / (d_in - H d)."""
    b, d, H = shape.d_in, shape.head_dim, shape.heads
    words, forms = shape.words_at(shape.layers), H * (2 * d * b - d * d)
    if shape.residual:
        up, down = (H + 1, 1) if (H + 1) * d >= b else (b, b - H * d)
        room = sum(up**t * down ** (shape.layers - 1 - t) for t in range(shape.layers))
        return b * words + _over(forms * room, b * int(down ** (shape.layers - 1)))
    # of the readers behind each word in front: forms of rank d, of size min(H d, d_in)
    later = b * d * (2 * H - 1) if H * d < b else forms
    return _over(b * b * words + forms + geometric(H, 1, shape.layers - 1) * later, b)


def _spread(shape: Shape) -> int:
    """d > d_in, t = floor((d - d_in)/2): d_in m >= d_in^2 (H^L + H (K_0 + ... + K_{L-1})) - H t (d - t) (K_1 + ... + K_{L-1}),
    K_q words of length q whose generic products of value matrices are spread. With a residual stream words in H+1 letters."""
    H, b, letters = shape.heads, shape.d_in, shape.letters
    t = (shape.head_dim - b) // 2
    later = 0
    for q in range(1, shape.layers):
        halves = min(letters ** (q // 2), b) * min(letters ** (q - q // 2), b)
        later += halves if q > 1 else min(letters, b * b)
    words = shape.words_at(shape.layers)
    return _over(b * b * (words + H * (1 + later)) - H * t * (shape.head_dim - t) * later, b)


def word_family_dimension(shape: Shape) -> int:
    """Dimension of the family (M_w)_w, |w| = L, at head dimension >= d_in: d_in^2 (LH - L + 1)."""
    return int(shape.d_in**2 * (shape.layers * (shape.heads - 1) + 1))


def _separate_paths(shape: Shape) -> int:
    """L >= 2: d_in m >= the dimension of the outputs near a tied target whose stream is carried by head 0
    (docs/proofs/frontier.md)."""
    d, b = min(shape.head_dim, shape.d_in), shape.d_in
    return _over((shape.heads - 1) * d * (b - 1) + 2 * b * d - d * d - b, b)


def _one_more(shape: Shape) -> int:
    return int(shape.d_in * (shape.words_at(shape.layers) + shape.layers * shape.heads) + 1)


def _root(count: Callable[[Shape], int]) -> Callable[[Shape], int]:
    return lambda shape: least_square_root(count(shape))


# --- the table ---------------------------------------------------------------------------------------------

MATCHED, LOGITS, SHARED, FUNCTION = (
    Notion.MATCHING,
    Notion.ATTENTION_MATCHING,
    Notion.SHARED_ATTENTION,
    Notion.FUNCTIONAL,
)
DECISION_PAGE, SHARED_PAGE, FRONTIER_PAGE = "decision-theorem.md", "shared-attention.md", "frontier.md"
THREE_PAGE, RESIDUAL_PAGE, WIDE_PAGE = "three-dimensions-do-not-suffice.md", "residual.md", "wide-heads.md"
SHARPER_PAGE, FORMS_PAGE, FIBRE_PAGE = "sharper-frontier.md", "attention-matching-bound.md", "fibre-dimension.md"
FUNCTIONAL_PAGE, STREAM_PAGE = "functional-is-attention-matching.md", "residual-frontier.md"
ALL_PAGE = "all-targets.md"


def _rows() -> Iterator[DimensionRow]:
    row, u, t = DimensionRow, GENERIC_UNTIED, GENERIC_TIED
    for untied, tied in ((ALL_UNTIED, ALL_TIED), (u, t)):
        counted = _without_paths if tied is t else _always
        yield row("M", MATCHED, untied, None, matching_dimension, DECISION_PAGE)
        yield row("M", MATCHED, tied, None, matching_dimension, DECISION_PAGE, _paths)
        yield row("words", SHARED, untied, E_FREE, lambda s: s.d_out * s.leaves, SHARED_PAGE)
        yield row("counts", SHARED, tied, E_FREE, _counts, SHARED_PAGE, counted)
        yield row("words", SHARED, untied, BOTH, _root(lambda s: s.leaves), SHARED_PAGE)
        yield row("counts", SHARED, tied, BOTH, _root(_counts), SHARED_PAGE, counted)
    yield row("fibre dimension", FUNCTION, ALL_UNTIED, None, _side_by_side, FIBRE_PAGE,
              lambda s: s.layers == 1 and _narrow(s))  # fmt: skip
    yield row("no room to share", FUNCTION, ALL_UNTIED, None, matching_dimension, SHARPER_PAGE,
              lambda s: _square(s) and s.layers == 1
              and (s.head_dim * (s.heads + 1) <= s.d_in or (s.heads, s.head_dim, s.d_in) == (2, 1, 2)))  # fmt: skip
    yield row("narrow heads", LOGITS, ALL_UNTIED, None, matching_dimension, ALL_PAGE,
              lambda s: _square(s) and 2 * s.head_dim <= s.d_in and (s.heads > 1 or s.layers == 1))  # fmt: skip
    yield row("one by one", LOGITS, ALL_UNTIED, None, lambda s: 3, FIBRE_PAGE, _at(1, 1))
    yield row("three heads", SHARED, ALL_UNTIED, BOTH, lambda s: 3, SHARED_PAGE, _at(3, 1))
    # those of the second table alone
    yield row("monomials", MATCHED, t, None, commuting_dimension, FRONTIER_PAGE,
              lambda s: not _paths(s) and s.d_in == 1)  # fmt: skip
    yield row("logit forms", LOGITS, u, None, _logit_forms, FORMS_PAGE)
    yield row("side by side", LOGITS, u, None, _side_by_side, SHARPER_PAGE, _narrow)
    yield row("one more", LOGITS, u, None, _one_more, WIDE_PAGE, _wide)
    yield row("spread products", LOGITS, u, None, _spread, WIDE_PAGE, _wide)
    yield row("tied logit forms", LOGITS, t, None, _tied_logit_forms, FRONTIER_PAGE, lambda s: _paths(s) or s.d_in == 1)
    yield row("separate paths", FUNCTION, t, None, _separate_paths, FRONTIER_PAGE, lambda s: s.layers > 1)
    for targets in (u, t):
        yield row("one word", SHARED, targets, BOTH, lambda s: min(s.head_dim, s.d_in), FRONTIER_PAGE)
    yield row("one token", FUNCTION, t, None, lambda s: s.d_in, FRONTIER_PAGE)
    yield row("paths", SHARED, t, E_FREE, lambda s: s.d_in * s.leaves, DECISION_PAGE, _paths)
    yield row("paths", SHARED, t, BOTH, _root(lambda s: s.leaves), FRONTIER_PAGE, _paths)
    yield row("odd depth", SHARED, u, BOTH, _root(lambda s: s.leaves + 1), THREE_PAGE,
              lambda s: s.d_in == 1 and s.heads > 1 and s.layers % 2 == 1)  # fmt: skip
    yield row("wide targets", SHARED, u, BOTH, _root(lambda s: s.leaves + 1), SHARED_PAGE,
              lambda s: s.d_in > 1 and max(s.heads, s.head_dim) > 1)  # fmt: skip
    yield row("parameter count", SHARED, u, BOTH, lambda s: _over(word_family_dimension(s) + 1, 2 * s.d_in), SHARED_PAGE,
              lambda s: s.head_dim >= s.d_in)  # fmt: skip
    yield row("three dimensions", SHARED, u, BOTH, lambda s: 4, THREE_PAGE, _at(2, 3))
    yield row(
        "two dimensions", SHARED, t, BOTH, lambda s: 3, THREE_PAGE, lambda s: _at(2, 2)(s) or _at(2, 3)(s), "tied host"
    )


def _residual_rows() -> Iterator[DimensionRow]:
    """Those proved with a residual stream, of which `_rows` knows nothing."""
    for name, least, page, applies in (
        ("side by side", _side_by_side, SHARPER_PAGE, _narrow),
        ("logit forms", _logit_forms, STREAM_PAGE, _always),
        ("one more", _one_more, WIDE_PAGE, _wide),
        ("spread products", _spread, WIDE_PAGE, _wide),
    ):
        yield DimensionRow(name, LOGITS, GENERIC_UNTIED, None, least, page, applies, residual=True)
    for untied, tied in ((ALL_UNTIED, ALL_TIED), (GENERIC_UNTIED, GENERIC_TIED)):
        yield DimensionRow("M", MATCHED, untied, None, matching_dimension, RESIDUAL_PAGE, residual=True)
        yield DimensionRow("words without 0", MATCHED, tied, None, tied_targets_dimension, RESIDUAL_PAGE,
                           lambda s: _square(s) and _paths(s), residual=True)  # fmt: skip


def _functional(rows: tuple[DimensionRow, ...]) -> Iterator[DimensionRow]:
    """What holds by attention-matching for almost all targets holds functionally (functional-is-attention-matching.md), and
    so do the bounds that ask for the outputs E R_w U = M_w alone."""
    for row in rows:
        outputs = (row.notion, row.free) == (SHARED, E_FREE)
        if row.targets in (GENERIC_UNTIED, GENERIC_TIED) and (outputs or row.notion is LOGITS):
            yield replace(row, notion=FUNCTION, free=None, page=FUNCTIONAL_PAGE)


_PROVED = (*_rows(), *_residual_rows())
_THEOREMS = {
    ("M", ALL_UNTIED, None, False): "Decision.matching_lower_bound",
    ("M", ALL_TIED, None, False): "Decision.tied_targets_lower_bound",
    ("M", ALL_UNTIED, None, True): "ResidualDecision.res_lower_bound",
    ("narrow heads", ALL_UNTIED, None, False): "NarrowHeads.narrow_least",
    ("words", ALL_UNTIED, E_FREE, False): "SharedBounds.fixed_unembedding_bound",
    ("words", ALL_UNTIED, BOTH, False): "SharedBounds.free_bound",
}
"""By name, targets, what is free, and the residual stream."""
DIMENSION_ROWS: tuple[DimensionRow, ...] = tuple(
    replace(row, theorem=_THEOREMS.get((row.name, row.targets, row.free, row.residual), ""))
    for row in (*_PROVED, *_functional(_PROVED))
)
"""Every bound by the arithmetic of section 10.1."""


def no_tied_host(shape: Shape, targets: str) -> bool:
    """Whether no tied host of any dimension matches all, or almost all, untied targets: with a residual stream from L = 2 on,
    where it has equal columns for the words (0, ..., 0, h) and (h, 0, ..., 0) and the targets have not."""
    untied = targets == ALL_UNTIED or (targets == GENERIC_UNTIED and _square(shape))
    return untied and shape.residual and shape.layers > 1


# --- certificates ------------------------------------------------------------------------------------------


def dimension_bound(
    shape: Shape, *, notion: Notion | str, targets: str = ALL_UNTIED, free: str | None = None, every: str = "host"
) -> int:
    """The best bound: no host (every: or "tied host") of fewer dimensions is universal. MalformedInput where none is proved."""
    require_words(shape)
    asked = (notion, targets, free)
    found = [
        row.least(shape)
        for row in DIMENSION_ROWS
        if (row.notion, row.targets, row.free) == asked and row.applies(shape) and row.every in ("host", every)
    ]
    if not found:
        said = f"{notion}, targets {targets!r}" + (f", free {free!r}" if free else "")
        raise MalformedInput(f"no dimension bound is proved for {said} at {shape}, d_out = {shape.d_out}")
    return max(found)


def dimension_certificate(
    shape: Shape,
    m: int,
    *,
    notion: Notion | str = Notion.MATCHING,
    targets: str = ALL_UNTIED,
    free: str | None = None,
    every: str = "host",
) -> Certificate:
    """No host (every="host" or "tied host") of embedding dimension m or less is universal, by the dimension argument.

    free: "E" or "E and U" for shared attention. Raises Undecided where m is not below the bound, MalformedInput where no
    bound is proved.
    """
    m, notion = positive_integer("m", m), Notion(notion)
    if every not in ("host", "tied host"):
        raise MalformedInput(f"every is 'host' or 'tied host', got {every!r}")
    never = notion is MATCHED and every == "tied host" and no_tied_host(shape, targets)
    least = 0 if never else dimension_bound(shape, notion=notion, targets=targets, free=free, every=every)
    if m >= least and not never:
        raise Undecided(f"m = {m} is not below the bound {least} at {shape}: nothing follows")
    evidence = {"method": "dimension"}
    return certificate("lower-bound", shape, m, {"every": every}, evidence, notion=notion, targets=targets, free=free)


class ByEveryHost:
    """Below M no host at all is universal by matching: for constructions whose matrices no checker rebuilds."""

    def can(self, host: Examined) -> bool:
        named = host.entry is not None and host.entry.is_host and not (host.entry.rebuilt or host.entry.inputs)
        return named and host.notion is Notion.MATCHING and host.m < host.M

    def build(self, host: Examined) -> Certificate:
        return dimension_certificate(host.shape, host.m)
