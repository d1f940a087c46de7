"""The dimension bounds: arithmetic below which no host is universal (docs/certificate-format.md section 10.1).

Each row has its proof in docs/proofs; the checker has the same table in code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import comb, isqrt

from utfproof.constructions.commuting import commuting_dimension
from utfproof.ground.notions import Notion
from utfproof.shapes import (
    Shape,
    geometric,
    matching_dimension,
    require_words,
    tied_targets_dimension,
)

ALL_UNTIED = "all untied"
ALL_TIED = "all tied"
GENERIC_UNTIED = "generic untied"
GENERIC_TIED = "generic tied"
"""All but a set of measure zero: what is refuted for these serves almost none of the class."""
THREE_PAGE = "three-dimensions-do-not-suffice.md"
RESIDUAL_PAGE = "residual.md"
SHARPER_PAGE = "sharper-frontier.md"
WIDE_PAGE = "wide-heads.md"
FUNCTIONAL_PAGE = "functional-is-attention-matching.md"


@dataclass(frozen=True)
class DimensionRow:
    """A row of the tables of section 10.1: no host of dimension m serves these targets if a < b for (a, b) = sides(shape, m).

    every: "tied host" where the bound is proved for tied hosts only. page: its proof in docs/proofs. residual: speaks of
    shapes with a residual stream, and of no others.
    """

    name: str
    notion: Notion
    targets: str
    free: str | None
    sides: Callable[[Shape, int], tuple[int, int]]
    what: str
    applies: Callable[[Shape], bool] = lambda shape: True
    every: str = "host"
    page: str = "decision-theorem.md"
    residual: bool = False

    def least(self, shape: Shape) -> int:
        """The least m that the row allows at a shape to which it applies."""
        require_words(shape)
        high = 1
        while self._refuted(shape, high):
            high *= 2
        low = high // 2  # refuted, or 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._refuted(shape, middle) else (low, middle)
        return high

    def _refuted(self, shape: Shape, m: int) -> bool:
        have, needed = self.sides(shape, m)
        return have < needed


def least_square_root(count: int) -> int:
    """The least m with m^2 >= count >= 1."""
    return isqrt(count - 1) + 1


def _square(shape: Shape) -> bool:
    return shape.d_in == shape.d_out


def _paths(shape: Shape) -> bool:
    """Tied targets can follow every path 1 -> 2 -> ... -> L -> j (docs/proofs/decision-theorem.md, section 5)."""
    return min(shape.head_dim, shape.d_in) >= shape.layers


def _counts(shape: Shape) -> int:
    return comb(shape.layers + shape.heads - 1, shape.heads - 1)


def _fibre(shape: Shape) -> int:
    d, b = min(shape.head_dim, shape.d_in), shape.d_in
    return shape.heads * (b * b + 2 * d * b - d * d)


def logit_form_dimension(shape: Shape) -> int:
    """Dimension of the logit forms of all layers and heads over fixed generic values (attention-matching-bound.md)."""
    b, d = shape.d_in, min(shape.head_dim, shape.d_in)
    later = min(shape.heads * d, b)
    return shape.heads * (2 * d * b - d * d + (shape.layers - 1) * (2 * d * later - d * d))


def _side_by_side(shape: Shape, m: int) -> tuple[int, int]:
    """d <= d_in: d_in m and d_in^2 H^L + 2 d d_in S - d^2 (H + d_in (S - H) / r), r = min(H d, d_in).
    With a residual stream d_in (m - d_in (H+1)^L) and H (2 d d_in - d^2) (1 + q + ... + q^(L-1)), both times the denominator
    of q^(L-1), where q = H+1 or, if that is less, d_in / (d_in - H d)."""
    b, d, H = shape.d_in, shape.head_dim, shape.heads
    words, forms = shape.words_at(shape.layers), H * (2 * d * b - d * d)
    if shape.residual:
        up, down = (H + 1, 1) if (H + 1) * d >= b else (b, b - H * d)
        room = sum(up**t * down ** (shape.layers - 1 - t) for t in range(shape.layers))
        return b * (m - b * words) * int(down ** (shape.layers - 1)), forms * room
    # of the readers behind each word in front: forms of rank d, of size min(H d, d_in)
    later = b * d * (2 * H - 1) if H * d < b else forms
    return b * m, b * b * words + forms + geometric(H, 1, shape.layers - 1) * later


def _spread(shape: Shape, m: int) -> tuple[int, int]:
    """d > d_in, t = floor((d - d_in)/2): d_in m and d_in^2 (H^L + H (K_0 + ... + K_{L-1})) - H t (d - t) (K_1 + ... + K_{L-1}),
    K_q words of length q whose generic products of value matrices are spread. With a residual stream words in H+1 letters."""
    H, b, letters = shape.heads, shape.d_in, shape.letters
    t = (shape.head_dim - b) // 2
    later = 0
    for q in range(1, shape.layers):
        halves = min(letters ** (q // 2), b) * min(letters ** (q - q // 2), b)
        later += halves if q > 1 else min(letters, b * b)
    words = shape.words_at(shape.layers)
    return b * m, b * b * (words + H * (1 + later)) - H * t * (shape.head_dim - t) * later


def word_family_dimension(shape: Shape) -> int:
    """Dimension of the family (M_w)_w, |w| = L, at head dimension >= d_in: d_in^2 (LH - L + 1)."""
    return int(shape.d_in**2 * (shape.layers * (shape.heads - 1) + 1))


def _separate_paths(shape: Shape) -> int:
    """L >= 2: dimension of the outputs near a tied target whose stream is carried by head 0 (docs/proofs/frontier.md)."""
    d, b = min(shape.head_dim, shape.d_in), shape.d_in
    return (shape.heads - 1) * d * (b - 1) + 2 * b * d - d * d - b


MATCHED, SHARED = Notion.MATCHING, Notion.SHARED_ATTENTION
FIBRE_PAGE, SHARED_PAGE, FRONTIER_PAGE = "fibre-dimension.md", "shared-attention.md", "frontier.md"
BOTH = "E and U"
SPREAD = "d_in m and d_in^2 (words + H (K_0 + ... + K_{L-1})) - H t (d - t) (K_1 + ... + K_{L-1})"


def _rows() -> Iterator[DimensionRow]:
    row = DimensionRow
    of_m, of_square = "m and ", "m^2 and "
    for untied, tied in ((ALL_UNTIED, ALL_TIED), (GENERIC_UNTIED, GENERIC_TIED)):
        generic = untied == GENERIC_UNTIED
        square: Callable[[Shape], bool] = _square if generic else lambda shape: True

        def leaves(s: Shape, m: int) -> tuple[int, int]:
            return m * m, s.leaves

        def counted(s: Shape, m: int) -> tuple[int, int]:
            return m * m, _counts(s)

        def paths(s: Shape, square: Callable[[Shape], bool] = square) -> bool:
            return square(s) and _paths(s)

        def no_paths(s: Shape, square: Callable[[Shape], bool] = square, generic: bool = generic) -> bool:
            return square(s) and not (generic and _paths(s))

        yield row("M", MATCHED, untied, None, lambda s, m: (m, matching_dimension(s)), of_m + "M", square)
        yield row("M", MATCHED, tied, None, lambda s, m: (m, matching_dimension(s)), of_m + "M", paths)
        yield row("words", SHARED, untied, "E", lambda s, m: (m, s.d_out * s.leaves), of_m + "d_out H^L", square,
                  page=SHARED_PAGE)  # fmt: skip
        yield row("counts", SHARED, tied, "E", lambda s, m: (m, _counts(s)), of_m + "C(L+H-1, H-1)", no_paths,
                  page=SHARED_PAGE)  # fmt: skip
        yield row("words", SHARED, untied, BOTH, leaves, of_square + "H^L", square, page=SHARED_PAGE)
        yield row("counts", SHARED, tied, BOTH, counted, of_square + "C(L+H-1, H-1)", no_paths, page=SHARED_PAGE)
    yield row(
        "fibre dimension", Notion.FUNCTIONAL, ALL_UNTIED, None, lambda s, m: (s.d_in * m, _fibre(s)),
        "d_in m and H (d_in^2 + 2 d d_in - d^2)", lambda s: s.layers == 1 and s.head_dim <= s.d_in == s.d_out,
        page=FIBRE_PAGE,
    )  # fmt: skip
    yield row(
        "no room to share", Notion.FUNCTIONAL, ALL_UNTIED, None, lambda s, m: (m, matching_dimension(s)), "m and M",
        lambda s: _square(s) and s.layers == 1
        and (s.head_dim * (s.heads + 1) <= s.d_in or (s.heads, s.head_dim, s.d_in) == (2, 1, 2)), page=SHARPER_PAGE,
    )  # fmt: skip
    yield row(
        "one by one", Notion.ATTENTION_MATCHING, ALL_UNTIED, None, lambda s, m: (m, 3), "m and 3",
        lambda s: (s.heads, s.layers, s.d_in, s.d_out) == (1, 1, 1, 1), page=FIBRE_PAGE,
    )  # fmt: skip
    yield row("three heads", SHARED, ALL_UNTIED, BOTH, lambda s, m: (m, 3), "m and 3",
              lambda s: (s.heads, s.layers, s.d_in, s.d_out) == (3, 1, 1, 1), page=SHARED_PAGE)  # fmt: skip
    # those of the second table alone
    u, t = GENERIC_UNTIED, GENERIC_TIED
    yield row("monomials", MATCHED, t, None, lambda s, m: (m, commuting_dimension(s)),
              "m and 2dH C(L-1+H, H) + C(L+H-1, H-1)", lambda s: _square(s) and s.d_in == 1 and not _paths(s),
              page=FRONTIER_PAGE)  # fmt: skip
    yield row("logit forms", Notion.ATTENTION_MATCHING, u, None,
              lambda s, m: (s.d_in * (m - s.d_in * s.leaves), logit_form_dimension(s)),
              "d_in (m - d_in H^L) and the dimension of the logit forms", _square,
              page="attention-matching-bound.md")  # fmt: skip
    yield row("side by side", Notion.ATTENTION_MATCHING, u, None, _side_by_side,
              "d_in m and d_in^2 H^L + 2 d d_in S - d^2 (H + d_in (S - H) / r)",
              lambda s: _square(s) and s.head_dim <= s.d_in, page=SHARPER_PAGE)  # fmt: skip
    yield row("one more", Notion.ATTENTION_MATCHING, u, None,
              lambda s, m: (m, s.d_in * (s.leaves + s.layers * s.heads) + 1), "m and d_in (H^L + L H) + 1",
              lambda s: _square(s) and s.head_dim > s.d_in and min(s.heads, s.layers) > 1, page=WIDE_PAGE)  # fmt: skip
    yield row("spread products", Notion.ATTENTION_MATCHING, u, None, _spread, SPREAD,
              lambda s: _square(s) and s.head_dim > s.d_in and min(s.heads, s.layers) > 1, page=WIDE_PAGE)  # fmt: skip
    yield row("tied logit forms", Notion.ATTENTION_MATCHING, t, None,
              lambda s, m: (s.d_in * (m - (s.d_in * s.leaves if _paths(s) else _counts(s))),
                            _fibre(s) - s.heads * s.d_in**2),
              "d_in (m - outputs) and H (2 d' d_in - d'^2)",
              lambda s: _square(s) and (_paths(s) or s.d_in == 1), page=FRONTIER_PAGE)  # fmt: skip
    yield row("separate paths", Notion.FUNCTIONAL, t, None, lambda s, m: (s.d_in * m, _separate_paths(s)),
              "d_in m and the dimension of the outputs along separate paths", lambda s: _square(s) and s.layers > 1,
              page=FRONTIER_PAGE)  # fmt: skip
    for targets in (u, t):
        yield row("one word", SHARED, targets, BOTH, lambda s, m: (m, min(s.head_dim, s.d_in)),
                  "m and the rank of one product", _square, page=FRONTIER_PAGE)  # fmt: skip
    yield row("one token", Notion.FUNCTIONAL, t, None, lambda s, m: (m, s.d_in), "m and d_in", _square,
              page=FRONTIER_PAGE)  # fmt: skip
    yield row("paths", SHARED, t, "E", lambda s, m: (m, s.d_in * s.leaves), "m and d_in H^L",
              lambda s: _square(s) and _paths(s))  # fmt: skip
    yield row("paths", SHARED, t, BOTH, lambda s, m: (m * m, s.leaves), "m^2 and H^L",
              lambda s: _square(s) and _paths(s), page=FRONTIER_PAGE)  # fmt: skip
    yield row("odd depth", SHARED, u, BOTH, lambda s, m: (m * m, s.leaves + 1), "m^2 and H^L + 1",
              lambda s: _square(s) and s.d_in == 1 and s.heads > 1 and s.layers % 2 == 1, page=THREE_PAGE)  # fmt: skip
    yield row("wide targets", SHARED, u, BOTH, lambda s, m: (m * m, s.leaves + 1), "m^2 and H^L + 1",
              lambda s: _square(s) and s.d_in > 1 and max(s.heads, s.head_dim) > 1, page=SHARED_PAGE)  # fmt: skip
    yield row("parameter count", SHARED, u, BOTH, lambda s, m: (2 * s.d_in * m - 1, word_family_dimension(s)),
              "2 d_in m - 1 and d_in^2 (L(H-1) + 1)", lambda s: _square(s) and s.head_dim >= s.d_in,
              page=SHARED_PAGE)  # fmt: skip
    yield row("three dimensions", SHARED, u, BOTH, lambda s, m: (m, 4), "m and 4",
              lambda s: (s.heads, s.layers, s.d_in, s.d_out) == (2, 3, 1, 1), page=THREE_PAGE)  # fmt: skip
    yield row("two dimensions", SHARED, t, BOTH, lambda s, m: (m, 3), "m and 3",
              lambda s: s.layers in (2, 3) and (s.heads, s.d_in, s.d_out) == (2, 1, 1), "tied host",
              THREE_PAGE)  # fmt: skip


def _residual_rows() -> Iterator[DimensionRow]:
    """Those proved with a residual stream, of which `_rows` knows nothing."""

    def every(s: Shape) -> bool:
        return s.residual

    def square(s: Shape) -> bool:
        return s.residual and _square(s)

    def paths(s: Shape) -> bool:
        return square(s) and _paths(s)

    def narrow(s: Shape) -> bool:
        return square(s) and s.head_dim <= s.d_in

    def wide(s: Shape) -> bool:
        return square(s) and s.head_dim > s.d_in and s.layers > 1

    def forms(s: Shape, m: int) -> tuple[int, int]:
        b, d = s.d_in, min(s.head_dim, s.d_in)
        return b * (m - b * s.words_at(s.layers)), s.layers * s.heads * (2 * d * b - d * d)

    for name, sides, what, applies, page in (
        ("side by side", _side_by_side, "d_in (m - d_in (H+1)^L) and H (2 d d_in - d^2) (1 + q + ... + q^(L-1))", narrow,
         SHARPER_PAGE),
        ("logit forms", forms, "d_in (m - d_in (H+1)^L) and L H (2 d' d_in - d'^2)", square, "residual-frontier.md"),
        ("one more", lambda s, m: (m, s.d_in * (s.words_at(s.layers) + s.layers * s.heads) + 1),
         "m and d_in ((H+1)^L + L H) + 1", wide, WIDE_PAGE),
        ("spread products", _spread, SPREAD, wide, WIDE_PAGE),
    ):  # fmt: skip
        yield DimensionRow(name, Notion.ATTENTION_MATCHING, GENERIC_UNTIED, None, sides, what, applies, page=page)
    for targets, applies in ((ALL_UNTIED, every), (GENERIC_UNTIED, square)):
        yield DimensionRow("M", MATCHED, targets, None, lambda s, m: (m, matching_dimension(s)), "m and M", applies,
                           page=RESIDUAL_PAGE)  # fmt: skip
    for targets in (ALL_TIED, GENERIC_TIED):
        yield DimensionRow("words without 0", MATCHED, targets, None, lambda s, m: (m, tied_targets_dimension(s)),
                           "m and 2dS + d_out (1 + S)", paths, page=RESIDUAL_PAGE)  # fmt: skip


def _plain(row: DimensionRow) -> DimensionRow:
    """The same row, for shapes without a residual stream."""
    return replace(row, applies=lambda shape: not shape.residual and row.applies(shape))


def _functional(rows: tuple[DimensionRow, ...]) -> Iterator[DimensionRow]:
    """What holds by attention-matching for almost all targets holds functionally (functional-is-attention-matching.md), and
    so do the bounds that ask for the outputs E R_w U = M_w alone."""
    for row in rows:
        outputs = (row.notion, row.free) == (SHARED, "E")
        if row.targets in (GENERIC_UNTIED, GENERIC_TIED) and (outputs or row.notion is Notion.ATTENTION_MATCHING):
            yield replace(row, notion=Notion.FUNCTIONAL, free=None, page=FUNCTIONAL_PAGE)


_PROVED = (*map(_plain, _rows()), *(replace(row, residual=True) for row in _residual_rows()))
DIMENSION_ROWS: tuple[DimensionRow, ...] = (*_PROVED, *_functional(_PROVED))
"""Every bound by the arithmetic of section 10.1."""


def no_tied_host(shape: Shape, targets: str) -> bool:
    """Whether no tied host of any dimension matches all, or almost all, untied targets: with a residual stream from L = 2 on,
    where it has equal columns for the words (0, ..., 0, h) and (h, 0, ..., 0) and the targets have not."""
    if not shape.residual or shape.layers < 2:
        return False
    return targets == ALL_UNTIED or (targets == GENERIC_UNTIED and _square(shape))
