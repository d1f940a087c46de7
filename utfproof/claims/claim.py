"""What a claim is: a statement, a recorded verdict, and a check that decides the statement again.

The words, the recorded verdict and the shapes to examine are data (utfproof/claims/sections/*.toml); the checks are functions
in utfproof/claims/checks/. A check yields an `Instance` for each place that it examines and a `Figure` for each number that
the record states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from utfproof.claims.grid import Grid
from utfproof.claims.named import CONDITIONS, TABLES
from utfproof.shapes import Shape, matching_dimension
from utfproof.util.notions import Attention, Notion, Scope, Targets

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


LABELS = {
    "asm": Category.DEFINITION,
    "def": Category.DEFINITION,
    "lem": Category.LEMMA,
    "thm": Category.THEOREM,
    "tab": Category.TABLE,
    "fig": Category.FIGURE,
    "sec": Category.REMARK,
    "task": Category.REMARK,
    "new": Category.NEW,
}
"""Beginning of a label -> category, where the record gives none."""


class Verdict(StrEnum):
    """The result of a check. A new statement that fails as recorded here also "fails as printed"."""

    HOLDS = "holds"
    FAILS = "fails as printed"
    REPAIRED = "holds after repair"
    OPEN = "open"


class Evidence(StrEnum):
    """What a verdict rests on. The records use the names in lower case."""

    CERTIFICATE = "exact certificate"
    """The checker recomputes it: ranks, kernels, identities."""
    INEQUALITY = "inequality of a written proof, certified as arithmetic"
    """The checker compares two numbers; a written proof shows that one bounds the other."""
    SYMBOLIC = "symbolic identity"
    GRID = "exhaustive on a grid"
    WRITTEN = "written proof"
    MACHINE = "machine-checked proof"
    ARITHMETIC = "exact arithmetic by two routes"
    SINGLE = "exact arithmetic by one route"
    OPEN = "open: what is known on either side"
    SAMPLED = "sampled float64"
    RECORD = "figures recorded from the paper"


KNOWN = "frontier"
"""The route of an instance that rests on what the frontier knows."""
REPAIR, BESIDE = "repair", "beside"
"""Parts of a claim: the mended statement at the same m; another theorem that holds beside a failing statement."""
OUTCOMES = {True: "holds", False: "fails", None: "open"}


class RoutesDiffer(Exception):
    """Two independent computations of one value gave different results."""


@dataclass(frozen=True)
class Instance:
    """The statement at one place.

    at: a Shape, or text. holds: True, False, or None (undecided). detail: the figures, in a few words. Evidence is a
    `certificate` (the runner runs the checker on it) or two or more `routes`. part: REPAIR or BESIDE. m: embedding
    dimension, that of the certificate if there is one. about: the scope, where it differs from the claim's.
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
        return label(self.at) if self.m is None else f"{label(self.at)}, m = {self.m}"

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: smaller shapes first; places that are no shapes keep their order."""
        if isinstance(self.at, str):
            return (0,)
        s = self.at
        return (matching_dimension(s), s.heads, s.layers, s.head_dim, s.d_in, s.d_out, self.m or 0)


def label(shape: Shape) -> str:
    """(H,L,d,d_in), with d_out where it differs and "residual" for a residual stream."""
    text = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in})"
    text = text if shape.d_in == shape.d_out else f"{text}, d_out = {shape.d_out}"
    return f"{text} residual" if shape.residual else text


@dataclass(frozen=True)
class Agreed:
    """A value on which independent routes agree, and their names."""

    value: Any
    routes: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def at(
        self, place: Shape | str, detail: str = "", *, holds: bool | None = None, part: str = "", m: int | None = None
    ) -> Instance:
        """An instance that rests on these routes. holds: the value itself unless it is given."""
        return Instance(place, bool(self) if holds is None else holds, detail, routes=self.routes, part=part, m=m)


def agree(routes: Mapping[str, Any]) -> Agreed:
    """The value that all routes (name -> result, at least two) computed; RoutesDiffer otherwise."""
    names, values = tuple(routes), list(routes.values())
    if len(names) < 2:
        raise RoutesDiffer(f"one route only: {names}")
    for name, value in zip(names[1:], values[1:], strict=True):
        if value != values[0]:
            raise RoutesDiffer(f"{names[0]} gives {values[0]!s:.120}, {name} gives {value!s:.120}")
    return Agreed(values[0], names)


@dataclass(frozen=True)
class Figure:
    """A number or short text that the record states and the check computes again."""

    name: str
    value: int | float | str | bool


POWER, ASKED = 24, 400
"""A limit on M of at least POWER guards a time that grows like a power of M, a smaller one a time that grows faster. On a
grid that the user names, limits of the first kind rise to ASKED."""


class Run:
    """What a check may ask for: the shapes to examine.

    On the default grid these are the shapes of the grid and the claim's own (anchors). On any other grid they are the
    shapes of that grid; the claim's own only where no shape of the grid can be examined. record: the claim's `shapes`, in
    which `where` names conditions, `anchors` lists shapes (H, L, d, d_in), `tables` adds those of the paper's tables, and
    `largest` limits M on the grid. examined: shapes of the grid that a check asked for. too_large: those that it leaves out.
    """

    def __init__(self, grid: Grid, record: Mapping[str, Any] | None = None) -> None:
        self.grid = grid
        self.record = record or {}
        self.examined: set[Shape] = set()
        self.too_large: set[Shape] = set()

    def shapes(
        self,
        where: Callable[[Shape], bool] = lambda shape: True,
        *,
        anchors: Iterable[tuple[int, ...]] = (),
        largest: int | None = None,
    ) -> list[Shape]:
        """Shapes in order of M: those of the grid that satisfy `where` and have M <= `largest`, and the anchors; all three
        together with what the record says."""
        conditions = [where, *(CONDITIONS[name] for name in self.record.get("where", ()))]
        anchors = [*anchors, *self.record.get("anchors", ()), *(TABLES if self.record.get("tables") else ())]
        largest = self.record.get("largest") if largest is None else largest
        if largest is not None and largest >= POWER and not self.grid.default:
            largest = max(largest, ASKED)
        found: dict[Shape, None] = {}
        for shape in self.grid.shapes():
            if not all(condition(shape) for condition in conditions):
                continue
            if largest is None or matching_dimension(shape) <= largest:
                found[shape] = None
            else:
                self.too_large.add(shape)
        self.examined |= set(found)
        if self.grid.default or not found:
            found |= {Shape(*anchor): None for anchor in anchors}
        return sorted(found, key=lambda shape: Instance(shape, None).order)


Check = Callable[[Run], Iterator[Instance | Figure]]
CHECKS: dict[str, Check] = {}
"""Id of a claim -> its check; filled by the modules of utfproof/claims/checks/."""


def check(*ids: str) -> Callable[[Check], Check]:
    """Register a function as the check of these claims."""

    def register(function: Check) -> Check:
        for name in ids:
            if name in CHECKS:
                raise ValueError(f"claim {name} has two checks")
            CHECKS[name] = function
        return function

    return register


AtShape = Callable[[Shape], Iterator[Instance | Figure]]


def each(*ids: str) -> Callable[[AtShape], AtShape]:
    """Register a function of one shape as the check of these claims, at every shape that their record names."""

    def register(function: AtShape) -> AtShape:
        check(*ids)(lambda run: (found for shape in run.shapes() for found in function(shape)))
        return function

    return register


@dataclass(frozen=True)
class Claim:
    """One entry of the registry.

    id: the paper's label, with "/part" where a statement splits; "new:..." for results beyond the paper. quotation: the
    words of the paper that it is about. about: the scope, for statements about universality. cause: why it fails, in the
    words that failing claims share. proof: a page of docs/proofs. theorems: theorems of proofs/ that support it;
    theorems_lack: the part that they do not prove. shapes: where its check looks (see `Run`). figures, smallest,
    counterexample: recorded on the default grid; a figure with the name of an instance is its detail.
    """

    id: str
    section: str
    place: str
    statement: str
    category: Category
    about: Scope | None
    scope: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    sentence: str
    check: Check
    targets: str | None = None
    quotation: str | None = None
    cause: str | None = None
    proof: str | None = None
    theorems: tuple[str, ...] = ()
    theorems_lack: str | None = None
    shapes: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    smallest: str | None = None
    counterexample: str | None = None

    @property
    def notion(self) -> Notion | None:
        """The notion of universality, if the claim is about one."""
        return None if self.about is None else self.about.notion

    @property
    def label(self) -> str:
        """The paper's label, without the part."""
        return self.id.partition("/")[0]


def read(entry: Mapping[str, Any], section: str, check: Check) -> Claim:
    """A claim from its entry in a section's TOML file. ValueError names the claim and what is wrong with its record."""
    name = str(entry.get("id", "without an id"))
    prefix = name.partition(":")[0]
    scope = ("notion", "hosts", "free", "attention")
    fields = {key: value for key, value in entry.items() if key not in scope}
    try:
        if unknown := sorted(set(fields) - set(Claim.__dataclass_fields__)):
            raise ValueError(f"unknown keys {', '.join(unknown)}")
        evidence = tuple(Evidence[kind.upper()] for kind in entry["evidence"])
        if ("proof" in entry) != (Evidence.WRITTEN in evidence):
            raise ValueError("evidence 'written' and a proof page belong together")
        if Evidence.MACHINE in evidence:
            raise ValueError("evidence 'machine' comes from `theorems`, not from `evidence`")
        if "category" not in entry and prefix not in LABELS:
            raise ValueError(f"no category, and labels in {prefix!r} have none by default")
        if ("quotation" in entry) == (prefix == "new"):
            raise ValueError("a claim of the paper needs a quotation; a new one has none")
        fields["evidence"] = (*evidence, Evidence.MACHINE) if "theorems" in entry else evidence
        fields["category"] = Category(entry["category"]) if "category" in entry else LABELS[prefix]
        fields["verdict"] = Verdict(entry["verdict"])
        fields["theorems"] = tuple(entry.get("theorems", ()))
        fields["proof"] = f"docs/proofs/{entry['proof']}.md" if "proof" in entry else None
        return Claim(**fields, section=section, about=_scope(entry), check=check)
    except (KeyError, ValueError) as error:
        raise ValueError(f"claim {name}: {error}") from error


def _scope(entry: Mapping[str, Any]) -> Scope | None:
    if "notion" not in entry:
        if "targets" in entry:
            Targets.parse(entry["targets"])
        return None
    attention = Attention(entry["attention"]) if "attention" in entry else None
    return Scope.of(Notion(entry["notion"]), entry["targets"], entry.get("hosts", "any"), entry.get("free"), attention)
