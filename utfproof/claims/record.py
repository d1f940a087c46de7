"""What a claim is: a statement in our own words, what was recorded about it, and a check that computes it anew.

A check yields `Instance`s (the statement at one shape: holds, fails, or undecided) and `Figure`s (numbers that are
recorded too). The verdict is computed from the instances and compared with the recorded one; nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from utfproof.claims.computed import UNRECORDED, Computed, Shared, digest
from utfproof.claims.grid import Grid
from utfproof.claims.theorems import MACHINE
from utfproof.ground.notions import Notion, Scope
from utfproof.paper.quotations import Quotation
from utfproof.shapes import Shape

if TYPE_CHECKING:
    from utfproof.certificates.format import Certificate


class Category(StrEnum):
    """What kind of statement it is."""

    DEFINITION = "definition"
    LEMMA = "lemma"
    THEOREM = "theorem"
    REMARK = "remark"
    COUNT = "count"
    FIGURE = "figure"
    TABLE = "table"
    NEW = "new"


LABELLED = {
    **{"asm": Category.DEFINITION, "def": Category.DEFINITION, "lem": Category.LEMMA, "thm": Category.THEOREM},
    **{
        "tab": Category.TABLE,
        "fig": Category.FIGURE,
        "sec": Category.REMARK,
        "task": Category.REMARK,
        "new": Category.NEW,
    },
}
"""What a claim is whose label begins so, where its record says nothing else."""


class Verdict(StrEnum):
    """What was found. "fails as printed" is said of a new statement too, when it fails as recorded here."""

    HOLDS = "holds"
    FAILS = "fails as printed"
    REPAIRED = "holds after repair"
    OPEN = "open"

    def by(self, *evidence: Evidence) -> Found:
        """This verdict, and how it was reached."""
        return self, evidence


class Evidence(StrEnum):
    """How a verdict was reached, each kind under its own name."""

    CERTIFICATE = "exact certificate"
    """The checker recomputes what it says: ranks, kernels, identities."""
    INEQUALITY = "inequality of a written proof, certified as arithmetic"
    """The checker computes two numbers; that one of them bounds the other is proved on a page."""
    SYMBOLIC = "symbolic identity"
    GRID = "exhaustive on a grid"
    WRITTEN = "written proof"
    MACHINE = MACHINE
    ARITHMETIC = "exact arithmetic by two routes"
    SINGLE = "exact arithmetic by one route"
    OPEN = "open: what is known on either side"
    """Bounds of the frontier, or what a search or a proof leaves; nothing more is claimed."""
    SAMPLED = "sampled float64"
    RECORD = "figures recorded from the paper"


Found = tuple[Verdict, tuple[Evidence, ...]]
"""A verdict, and how it was reached."""

TWO_ROUTES = {Evidence.SYMBOLIC, Evidence.GRID, Evidence.ARITHMETIC, Evidence.SAMPLED}
"""Evidence whose instances two routes agree on."""
ONE_ROUTE = {Evidence.SINGLE, Evidence.SAMPLED, Evidence.RECORD}
"""Evidence whose instances have neither a certificate nor a second route."""
UNCERTIFIED = {Evidence.WRITTEN, *ONE_ROUTE}
"""Evidence that rests on a reader, on sampling or on a single computation."""


KNOWN = "frontier"
"""Stands for a route where an instance is what the frontier knows."""
REPAIR, BESIDE, BEYOND = "repair", "beside", "beyond"
"""Parts of a claim: the mended statement, about the same m; another theorem that holds beside a statement that does not, such as
the same at another m; where a bound must no longer refute."""
OUTCOMES = {True: "holds", False: "fails", None: "open"}
"""How an instance comes out, in a word."""


class RoutesDiffer(Exception):
    """Two independent computations of one thing gave different results."""


@dataclass(frozen=True)
class Agreed:
    """A value that independent routes agree on, and their names."""

    value: Any
    routes: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.value)


def agree(routes: Mapping[str, Any]) -> Agreed:
    """The value that all routes (name -> result, at least two) computed; RoutesDiffer otherwise."""
    names, values = tuple(routes), list(routes.values())
    if len(names) < 2:
        raise RoutesDiffer(f"one route only: {names}")
    for name, value in zip(names[1:], values[1:], strict=True):
        if value != values[0]:
            raise RoutesDiffer(f"{names[0]} gives {values[0]!s:.120}, {name} gives {value!s:.120}")
    return Agreed(values[0], names)


def same(routes: Mapping[str, Any]) -> Agreed:
    """Whether all routes computed the same, for a statement that says so; and their names."""
    values = list(routes.values())
    return Agreed(all(value == values[0] for value in values[1:]), tuple(routes))


@dataclass(frozen=True)
class Instance:
    """The statement at one place.

    at: a Shape, or text. holds: True, False, or None (neither shown nor refuted). detail: the figures, in a few words.
    Evidence is a `certificate` (the runner has the independent checker read it) or two or more `routes`. part: "repair" for
    the mended statement beside the printed one, "beyond" for a place where a bound must no longer refute. m: embedding
    dimension, that of the certificate if there is one. about: what this instance is about, where that is not the claim's own
    scope but what it is compared with.
    """

    at: Shape | str
    holds: bool | None
    detail: str = ""
    certificate: Certificate | None = None
    routes: tuple[str, ...] = ()
    part: str = ""
    m: int | None = None
    about: Scope | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """Where, as text."""
        if isinstance(self.at, str):
            return self.at
        text = label(self.at)
        return text if self.m is None else f"{text}, m = {self.m}"

    @property
    def order(self) -> tuple[int, ...]:
        """Smaller instances first; places that are no shapes keep the order they come in."""
        if isinstance(self.at, str):
            return (0,)
        from utfproof.shapes import matching_dimension

        s = self.at
        return (matching_dimension(s), s.heads, s.layers, s.head_dim, s.d_in, s.d_out, self.m or 0)


def label(shape: Shape) -> str:
    """(H,L,d,d_in) in short, and whether there is a residual stream."""
    text = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in})"
    text = text if shape.d_in == shape.d_out else f"{text}, d_out = {shape.d_out}"
    return f"{text} residual" if shape.residual else text


@dataclass(frozen=True)
class Figure:
    """A number or short text that the record states and the check computes anew."""

    name: str
    value: int | float | str | bool


Check = Callable[["Run"], Iterator[Instance | Figure]]


@dataclass(frozen=True)
class Claim:
    """One entry of the registry. id: the paper's label, with "/part" where a statement splits; "new:..." for results
    that the paper does not have. about: the scope, where it is about universality. computed: what the last recorded run
    computed, figures and smallest instances among it. shared: what two routes rest on. quotation: the place of the paper that it is about. proof: a page of docs/proofs where evidence includes a written proof.
    theorem: theorems of proofs/ where it includes a machine-checked one, beside the instances and never in place of them;
    theorems_lack: what of the claim they do not prove (`utfproof.claims.links`)."""

    id: str
    section: str
    place: str
    statement: str
    category: Category
    about: Scope | None
    targets: str | None
    scope: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    sentence: str
    check: Check
    computed: Computed = UNRECORDED
    shared: Shared | None = None
    quotation: Quotation | None = None
    proof: str | None = None
    theorem: tuple[str, ...] = ()
    theorems_lack: str | None = None

    @property
    def notion(self) -> Notion | None:
        """The notion of universality, if the claim is about one."""
        return None if self.about is None else self.about.notion

    @property
    def figures(self) -> Mapping[str, Any]:
        """The recorded figures."""
        return self.computed.figures

    @property
    def smallest(self) -> str | None:
        """The recorded smallest instance that holds."""
        return self.computed.smallest

    @property
    def counterexample(self) -> str | None:
        """The recorded smallest instance that fails."""
        return self.computed.counterexample

    @property
    def words(self) -> str:
        """A digest of everything that stands in the record, `computed` apart."""
        return digest(
            [
                *(self.id, self.section, self.place, self.statement, self.category, self.targets, str(self.about)),
                *(self.scope, self.verdict, self.evidence, self.sentence, self.proof, self.theorem, self.theorems_lack),
            ]
        )

    @property
    def label(self) -> str:
        """The paper's label without the part."""
        return self.id.split("/")[0]


class Run:
    """What a check may ask for: shapes of the grid, with anchors that are examined whatever the grid is."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def shapes(
        self,
        where: Callable[[Shape], bool] = lambda shape: True,
        *,
        anchors: Iterable[tuple[int, ...]] = (),
        largest: int | None = None,
    ) -> list[Shape]:
        """Shapes in order of M: the anchors, and those of the grid that satisfy `where` and have M <= `largest`."""
        from utfproof.shapes import matching_dimension

        found = {Shape(*anchor): None for anchor in anchors}
        for shape in self.grid.shapes():
            if where(shape) and (largest is None or matching_dimension(shape) <= largest):
                found.setdefault(shape)
        return sorted(found, key=lambda shape: Instance(shape, None).order)
