"""The registry of bounds: every lower bound that is proved and every host that is known, with its certificate's maker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS, DimensionRow, dimension_certificate, least_square_root
from utfproof.certificates.format import Certificate
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.certificates.lower_bounds import span_certificate, span_columns, span_dimension
from utfproof.certificates.prover import certify
from utfproof.certificates.scope import scope_of
from utfproof.constructions import construction, pairs
from utfproof.errors import Undecided
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, BOTH, TIED, UNTIED, E, Question
from utfproof.shapes import Shape, linear_test_dimension, matching_dimension
from utfproof.util.notions import Notion

LOWER, UPPER, IMPOSSIBLE = "lower", "upper", "impossible"
COLUMNS_PER_NUMBER = 5
"""So many columns of a permutation count as one number that is written out."""
CERTIFIED, PROVED = "certificate", "proof"
ALL_TARGETS = "docs/proofs/all-targets.md"


@dataclass(frozen=True)
class Bound:
    """One bound on the least m: a lower one ("no host of fewer than value(shape) dimensions") or an upper one (a host of
    value(shape) dimensions), or that no host of any dimension will do.

    question: what it answers, and with it all questions that this implies (upper) or that imply this (lower). applies: the
    shapes where it is proved. place: the page of docs/, or the paper's label. certificate: makes it, given shape and value; it
    fails where the value is not what its arithmetic gives. size: roughly the numbers that its certificate writes, or the
    columns that it eliminates or the moves that its checker follows, in the same measure of work. evidence: "proof" where a
    written proof and computations take the place of a certificate (claim: the registered claim that checks it, if any).
    residual: about shapes with a residual stream, and about no others. arithmetic: its certificate compares numbers; the
    theorem is of a written proof. theorem: the one in proofs/ that proves the bound, for all sizes.
    """

    name: str
    side: str
    question: Question
    value: Callable[[Shape], int]
    applies: Callable[[Shape], bool]
    place: str
    certificate: Callable[[Shape, int], Certificate] | None
    size: Callable[[Shape], int]
    evidence: str = CERTIFIED
    residual: bool = False
    claim: str = ""
    arithmetic: bool = False
    theorem: str = ""

    @property
    def rests_on(self) -> str:
        """As `utfproof check` says it: proved (in Coq), checked (the certificate computes it) or cited (a written proof)."""
        if self.theorem:
            return checker.PROVED
        return checker.CITED if self.arithmetic or self.evidence == PROVED else checker.CHECKED

    @cached_property
    def slug(self) -> str:
        """What names its certificates, in small letters, digits and hyphens."""
        asked = self.question
        words = [self.side, asked.notion.value, asked.free or "", asked.targets, asked.extent, self.name]
        return re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def _square(shape: Shape) -> bool:
    return shape.d_in == shape.d_out


# --- lower bounds ------------------------------------------------------------------------------------------


def _asked(row: DimensionRow) -> Question:
    extent, targets = row.targets.split()
    host = TIED if row.every == "tied host" else ANY
    return Question(row.notion, row.free, targets, ALMOST_ALL if extent == "generic" else ALL, host)


def from_row(row: DimensionRow) -> Bound:
    """The lower bound that a row of the dimension table is."""

    def make(shape: Shape, value: int) -> Certificate:
        return dimension_certificate(
            shape, value - 1, notion=row.notion, targets=row.targets, free=row.free, every=row.every
        )

    return Bound(
        row.name,
        LOWER,
        _asked(row),
        row.least,
        row.applies,
        f"docs/proofs/{row.page}",
        make,
        lambda shape: 1,
        residual=row.residual,
        arithmetic=True,
        theorem=row.theorem,
    )


def _spanned(notion: Notion, free: str | None) -> Bound:
    """What tied targets span where no formula says it (d_in >= 2, and d or d_in below L)."""

    def value(shape: Shape) -> int:
        rank = span_dimension(shape, tied=True, notion=notion, free=free)
        return least_square_root(rank) if free == BOTH else rank

    def applies(shape: Shape) -> bool:
        return _square(shape) and shape.d_in > 1 and min(shape.head_dim, shape.d_in) < shape.layers

    def make(shape: Shape, value: int) -> Certificate:
        return span_certificate(shape, value - 1, tied=True, notion=notion, free=free, generic=True)

    return Bound(
        "span",
        LOWER,
        Question(notion, free, TIED, ALMOST_ALL),
        value,
        applies,
        "docs/proofs/decision-theorem.md" if free != BOTH else "docs/proofs/frontier.md",
        make,
        # elimination: cubic in the columns, about 10^6 at 400
        lambda shape: span_columns(shape, notion, free)[0] ** 3 // 64,
    )


# --- upper bounds ------------------------------------------------------------------------------------------


def identity_bound(name: str, question: Question, place: str, *, label: str = "", residual: bool = False) -> Bound:
    """A construction with an identity certificate."""
    entry = IDENTITIES[name]
    return Bound(
        label or name,
        UPPER,
        question,
        entry.least_m,
        lambda shape: _square(shape) and entry.defined(shape),
        place,
        lambda shape, value: identity_certificate(name, shape, value, tied_targets=question.targets == TIED),
        lambda shape: entry.least_m(shape) // 2,  # a checker follows blocks of E, and at most 2^22 of them
        residual=residual,
    )


def _permutation_size(shape: Shape) -> int:
    """M columns followed."""
    return matching_dimension(shape) // COLUMNS_PER_NUMBER


def _uppers() -> Iterator[Bound]:
    matched, logits, shared = Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.SHARED_ATTENTION
    form = "docs/certificate-format.md"
    page = "docs/proofs/shared-attention.md"
    yield Bound(
        "tied", UPPER, Question(matched, host=TIED), matching_dimension, lambda shape: True, f"{form} §4.3",
        lambda shape, value: certify("tied", shape, value), _permutation_size,
    )  # fmt: skip
    yield identity_bound("commuting-trie", Question(matched, None, TIED, ALL, TIED), f"{form} §9")
    yield identity_bound("shared-key", Question(logits, host=TIED), f"{form} §4.4")
    for targets in (UNTIED, TIED):
        # invertible M^{l,0}: almost all untied targets, and almost all tied ones
        yield identity_bound("shared-query", Question(logits, None, targets, ALMOST_ALL, TIED), f"{form} §4.5")
    for targets in (UNTIED, TIED):
        almost = Question(logits, None, targets, ALMOST_ALL)
        yield identity_bound("shared-query-groups", replace(almost, host=TIED), "docs/proofs/sharper-frontier.md")
    for host in (TIED, ANY):
        yield Bound(
            "products of readers", UPPER, Question(logits, host=host), lambda s: s.word_count + s.leaves,
            lambda s, host=host: s.d_in == s.d_out == 1 < s.heads * s.layers and (s.heads > 1) == (host == TIED),  # type: ignore[misc]
            "docs/proofs/sharper-frontier.md, Theorem E", None, lambda s: 0, PROVED,
        )  # fmt: skip
    for name, theorem in (("sharing", "Sharing.sharing_universal"), ("pairs", "")):
        built = _built(name, Question(logits, host=TIED), "", construction(name).defined, ALL_TARGETS)
        yield replace(built, theorem=theorem)
    for targets in (UNTIED, TIED):
        yield _proved(
            "pairs with more keys", UPPER, Question(logits, None, targets, ALMOST_ALL, TIED),
            lambda s: pairs.dimension(s, pairs.most_keys(s)), lambda s: pairs.defined(s) and pairs.most_keys(s) > 1,
        )  # fmt: skip
    yield _proved(
        "one column a layer", UPPER, Question(logits), lambda s: s.d_in + s.layers + 1,
        lambda s: _square(s) and s.heads == s.head_dim == 1 < s.d_in and s.layers > 2,
    )  # fmt: skip
    yield _proved(
        "dependent keys", UPPER, Question(Notion.FUNCTIONAL, host=TIED), lambda s: 4 * s.heads - (s.heads - 2) // 3,
        lambda s: _square(s) and (s.layers, s.head_dim, s.d_in) == (1, 1, 2) and s.heads > 4,
    )  # fmt: skip
    yield identity_bound("shared-query-functional", Question(Notion.FUNCTIONAL, host=TIED), "docs/proofs/frontier.md",
                    label="shared-query at H = d_in = 1")  # fmt: skip
    yield Bound(
        "linear test", UPPER, Question(logits, host=TIED), linear_test_dimension,
        lambda shape: _square(shape) and shape.head_dim > shape.d_in, f"{form} §8",
        lambda shape, value: certify("random-tied", shape, value, notion=logits),
        lambda shape: linear_test_dimension(shape) ** 3 // 64,
    )  # fmt: skip
    yield identity_bound("register", Question(shared, E, host=TIED), page)
    yield identity_bound("counting", Question(shared, E, TIED, ALL, TIED), page)
    yield identity_bound("two-sided", Question(shared, BOTH), page)


def _proved(
    name: str, side: str, question: Question, value: Callable[[Shape], int], applies: Callable[[Shape], bool]
) -> Bound:
    """A bound that rests on the proof of the page about all targets."""
    return Bound(name, side, question, value, applies, ALL_TARGETS, None, lambda s: 1, PROVED)


def _built(
    name: str, question: Question, claim: str, applies: Callable[[Shape], bool], page: str = "docs/proofs/frontier.md"
) -> Bound:
    """A construction of the registry by a written proof, with a claim that checks it at integer targets, exactly."""
    return Bound(
        name, UPPER, question, construction(name).least_m, applies, page, None, lambda s: 0, PROVED, claim=claim,
    )  # fmt: skip


BOUNDS: tuple[Bound, ...] = (
    *(bound for bound in map(from_row, DIMENSION_ROWS) if not bound.residual),
    *(
        _spanned(notion, free)
        for notion, free in ((Notion.MATCHING, None), *((Notion.SHARED_ATTENTION, f) for f in (E, BOTH)))
    ),
    Bound(
        "one narrow head", LOWER, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL), matching_dimension,
        lambda s: _square(s) and s.heads == s.layers == 1 and s.head_dim < s.d_in, "docs/proofs/approximate.md",
        None, lambda shape: 1, PROVED,
    ),
    _proved(
        "four planes", LOWER, Question(Notion.ATTENTION_MATCHING), lambda s: 13,
        lambda s: _square(s) and (s.heads, s.layers, s.head_dim, s.d_in) == (2, 1, 2, 3),
    ),
    _proved(
        "three heads", LOWER, Question(Notion.FUNCTIONAL), matching_dimension,
        lambda s: _square(s) and (s.heads, s.layers, s.head_dim, s.d_in) == (3, 1, 1, 2),
    ),
    *_uppers(),
)  # fmt: skip
"""Every bound without a residual stream (for the others: streams.py)."""


# --- a certificate says what the bound says ------------------------------------------------------------------


def require_claim(found: Certificate, bound: Bound, shape: Shape, value: int) -> None:
    """Undecided unless this certificate, if valid, is a proof of the bound at this shape and value."""
    document, claim, asked = found.document, found.document["claim"], bound.question
    m = int(document["shape"]["m"])
    fields = {name: int(document["shape"][name]) for name in ("heads", "layers", "head_dim", "d_in", "d_out")}
    faults = []
    streaming = bool(document["shape"].get("residual", False))
    if fields != {name: getattr(shape, name) for name in fields} or streaming != shape.residual:
        faults.append("another shape")
    if claim["verdict"] != ("universal" if bound.side == UPPER else "not universal"):
        faults.append(f"the verdict {claim['verdict']!r}")
    if m != (value - 1 if bound.side == LOWER else value):
        faults.append(f"m = {m}")
    found_scope = scope_of(document)
    if not found_scope.supports(asked.scope, universal=bound.side == UPPER, layers=shape.layers):
        faults.append(str(found_scope))
    if faults:
        raise Undecided(f"{bound.name} at {shape}: the certificate is about {', '.join(faults)}, not {asked}")
