"""The frontier at a shape: for each question the best lower bound and the smallest dimension reached, by propagation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from utfproof.certificates.checker import CHECKED, CITED, PROVED
from utfproof.certificates.format import Certificate
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.frontiers.bounds import BOUNDS, CERTIFIED, IMPOSSIBLE, LOWER, UPPER, Bound, require_claim
from utfproof.frontiers.paper import Paper, paper_bound
from utfproof.frontiers.questions import ALL, QUESTIONS, Question, bounded_by, implies
from utfproof.frontiers.streams import RESIDUAL_BOUNDS
from utfproof.shapes import Shape
from utfproof.util.notions import Notion
from utfproof.util.results import Result

LARGEST = 2_000_000
"""Certificates that write more numbers than this, or take as much work to check, are not made here."""
FORMULA = "formula"
TRIVIAL = "m ≥ 1"


RESTS_ON = ("", PROVED, CHECKED, CITED)
"""What a number rests on, the weakest last; "" where nothing is claimed."""


@dataclass(frozen=True)
class Side:
    """One side of an entry: the value, and the bound that gives it. status: "certificate" (there is one); "formula" (it would
    be too large); "proof" (a written proof or one in Coq, and no certificate); "m ≥ 1" (nothing is claimed)."""

    value: int
    bound: Bound | None
    status: str

    @property
    def rests_on(self) -> str:
        """`proved`, `checked` or `cited`, as of the bound; "" where nothing is claimed."""
        return "" if self.bound is None else self.bound.rests_on

    def __str__(self) -> str:
        return f"{self.value}{'*' * (self.status == FORMULA)}{'†' * (self.rests_on == CITED)}"


@dataclass(frozen=True)
class FrontierEntry:
    """What is known of the least m for one question at one shape.
    reached is None where no host is known. impossible: why no host of any m will do, where that is so (its value: the m of its
    certificate, where it has one)."""

    shape: Shape
    question: Question
    proved: Side
    reached: Side | None
    paper: Paper | None
    impossible: Side | None = None

    @property
    def exact(self) -> bool:
        """Whether both sides meet."""
        return self.reached is not None and self.proved.value == self.reached.value

    @property
    def paper_refuted(self) -> bool:
        """Whether the paper's dimension lies below what is proved here to be needed, or its bound above what is reached."""
        if self.paper is None or self.question.extent != ALL:
            return False
        if self.paper.side == UPPER:
            return self.paper.value < self.proved.value
        return self.reached is not None and self.reached.value < self.paper.value

    @property
    def numbers(self) -> str:
        """What is proved … what is reached; where they meet one number, with the marks of the weaker side."""
        if self.reached is not None and self.exact:
            return str(max(self.reached, self.proved, key=lambda s: (RESTS_ON.index(s.rests_on), s.status == FORMULA)))
        return f"{self.proved} … {'open' if self.reached is None else self.reached}"

    def cell(self, papers: Sequence[str], none: str = "none") -> str:
        """What is proved and reached, in a cell of a table, with the paper's dimensions; none: where no m will do."""
        if self.impossible is not None:
            return none
        return f"{self.numbers} ({', '.join(papers)})" if papers else self.numbers


@dataclass(repr=False)
class Frontier(Result):
    """Entries; the certificate of every side that has one is made on request."""

    entries: list[FrontierEntry]

    @cached_property
    def certified(self) -> dict[str, tuple[Bound, Shape, int]]:
        """What each certificate is for, by file name: the sides whose status is "certificate"."""
        found: dict[str, tuple[Bound, Shape, int]] = {}
        for entry in self.entries:
            for side in (entry.proved, entry.reached, entry.impossible):
                if side is not None and side.bound is not None and side.status == CERTIFIED:
                    found.setdefault(file_name(side.bound, entry.shape), (side.bound, entry.shape, side.value))
        return found

    @cached_property
    def certificates(self) -> dict[str, Certificate]:
        """All of them, made when first asked for. Raises Undecided, NotDefined or MalformedInput where a bound's value is not
        what its certificate gives: that is a fault of the registry."""
        return {name: _made(*what) for name, what in self.certified.items()}

    @cached_property
    def of(self) -> dict[Question, list[FrontierEntry]]:
        """Entries by question, both in the order in which they were asked."""
        found: dict[Question, list[FrontierEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.question, []).append(entry)
        return found

    def at(self, shape: Shape, question: Question) -> FrontierEntry:
        """The entry of that shape and question; MalformedInput where there is none."""
        for entry in self.of.get(question, []):
            if entry.shape == shape:
                return entry
        raise MalformedInput(f"no entry for {question} at {shape}")

    @property
    def sides(self) -> list[Side]:
        """What is proved and what is reached, of every entry."""
        return [side for entry in self.entries for side in (entry.proved, entry.reached) if side is not None]

    def rows(self) -> dict[str, Any]:
        """What is proved … what is reached, by question and shape."""
        return {f"{entry.question} at {entry.shape}": entry.cell([]) for entry in self.entries}

    def write(self, folder: Path) -> list[Path]:
        """Every certificate, in an existing folder."""
        if not folder.is_dir():
            raise MalformedInput(f"{folder} is not a folder; make it first")
        return [path for name, found in self.certificates.items() for path in found.write(folder / name)]


def shapes(
    heads: Iterable[int], layers: Iterable[int], head_dim: int, d_in: int, *, residual: bool = False
) -> list[Shape]:
    """The grid, heads first."""
    return [Shape(h, length, head_dim, d_in, residual=residual) for h, length in product(heads, layers)]


def file_name(bound: Bound, shape: Shape) -> str:
    """One name for each bound and shape."""
    return f"{bound.slug}-h{shape.heads}-l{shape.layers}-d{shape.head_dim}-in{shape.d_in}{'-residual' * shape.residual}.json"


def frontier(
    grid: Shape | Sequence[Shape],
    *,
    notions: Sequence[Notion | str] = tuple(Notion),
    largest: int = LARGEST,
    bounds: Sequence[Bound] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Frontier:
    """How small a universal transformer can be: entries for every shape and every question of these notions.

    Numbers come first, their certificates when they are asked for.

    Every number comes from a bound that has a certificate, or a proof alone, or whose certificate exceeds `largest`
    numbers: `Side.status`. `Side.rests_on` says what it rests on. MalformedInput unless d_in = d_out.

    >>> from utfproof import Shape, frontier
    >>> least = frontier(Shape(2, 2, 1, 1), notions=["matching"]).entries[0]
    >>> least.proved.value, least.reached.value
    (16, 16)
    """
    grid = [grid] if isinstance(grid, Shape) else grid
    bounds = (*BOUNDS, *RESIDUAL_BOUNDS) if bounds is None else bounds
    notions = [Notion.asked(notion) for notion in notions]
    found = Frontier([])
    bearing: dict[tuple[Question, int, bool], Bearing] = {}
    for shape in grid:
        if shape.d_in != shape.d_out:
            raise MalformedInput(f"the frontier is for d_in = d_out, got {shape}, d_out = {shape.d_out}")
        known = _known(shape, largest, bounds)
        for question in QUESTIONS:
            if question.notion in notions:
                at = question, shape.layers, shape.residual
                if at not in bearing:
                    bearing[at] = _bearing(question, shape, bounds)
                found.entries.append(_entry(shape, question, known, bearing[at]))
        advance()
    return found


def _known(shape: Shape, largest: int, bounds: Sequence[Bound]) -> dict[int, Side]:
    """What each bound that applies says at this shape, by its index."""
    known = {}
    for i, bound in enumerate(bounds):
        if bound.residual != shape.residual or not bound.applies(shape):
            continue
        size = bound.size(shape)
        if bound.name == "span" and size > largest:
            continue  # its value is what the certificate's elimination finds
        status = CERTIFIED if size <= largest else FORMULA
        known[i] = Side(bound.value(shape), bound, status if bound.evidence == CERTIFIED else bound.evidence)
    return known


Bearing = tuple[list[int], list[int], list[int]]
"""Indices of the bounds that speak of a question: from below, from above, and that no host will do."""


def _bearing(question: Question, shape: Shape, bounds: Sequence[Bound]) -> Bearing:
    """Those of any shape of as many layers: nothing else of it decides what implies what."""
    here = [(i, bound) for i, bound in enumerate(bounds) if bound.residual == shape.residual]
    return (
        [i for i, bound in here if bound.side == LOWER and bounded_by(question, bound.question, shape.layers)],
        [i for i, bound in here if bound.side == UPPER and implies(bound.question, question, shape.layers)],
        [i for i, bound in here if bound.side == IMPOSSIBLE and implies(question, bound.question, shape.layers)],
    )


def _entry(shape: Shape, question: Question, known: dict[int, Side], bearing: Bearing) -> FrontierEntry:
    below, above, never = ([known[i] for i in indices if i in known] for indices in bearing)

    def best(sides: Sequence[Side], sign: int) -> Side | None:
        """The strongest; of equals one with a certificate, then one about this very notion."""

        def order(side: Side) -> tuple[int, bool, bool]:
            about = side.bound is not None and side.bound.question.notion is question.notion
            return sign * side.value, side.status != CERTIFIED, not about

        return min(sides, key=order, default=None)

    proved = best([side for side in below if side.value > 1], -1) or Side(1, None, TRIVIAL)
    reached = best(above, 1)
    impossible = best(never, 0)
    if impossible is not None and reached is not None:
        raise Undecided(f"no m is enough, and {reached.value} is, for {question}: one of the two is wrong")
    return FrontierEntry(shape, question, proved, reached, paper_bound(question, shape), impossible)


def _made(bound: Bound, shape: Shape, value: int) -> Certificate:
    if bound.certificate is None:
        raise ResourceLimit(f"{bound.name} at {shape} has no certificate")
    made = bound.certificate(shape, value)
    require_claim(made, bound, shape, value)
    return made


# --- reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrontierGroup:
    """Questions whose entries agree at every shape of the grid."""

    title: str
    questions: tuple[Question, ...]


def groups(found: Frontier) -> list[FrontierGroup]:
    """Questions of one model and class of targets, merged where extents or hosts make no difference."""

    def told(entry: FrontierEntry) -> tuple[Any, ...]:
        marks = [side.rests_on == CITED for side in (entry.proved, entry.reached) if side is not None]
        return (
            entry.shape,
            entry.proved.value,
            entry.reached and entry.reached.value,
            marks,
            entry.impossible is not None,
        )

    rows = {question: [told(entry) for entry in entries] for question, entries in found.of.items()}
    merged: list[list[Question]] = []
    for question, row in rows.items():
        for members in merged:
            first = members[0]
            same = (first.notion, first.free, first.targets) == (question.notion, question.free, question.targets)
            if same and rows[first] == row:
                members.append(question)
                break
        else:
            merged.append([question])
    return [FrontierGroup(_title(members), tuple(members)) for members in merged]


def _title(members: list[Question]) -> str:
    first = members[0]
    free = f", {first.free} free" if first.free else ""
    variants: dict[str, list[str]] = {}
    for question in members:
        variants.setdefault(question.extent, []).append(question.host)
    hosts = {"any": "any host", "tied": "tied host"}
    kinds = {tuple(v) for v in variants.values()}
    if len(kinds) == 1:
        said = f"{' or '.join(variants)}; {' or '.join(hosts[h] for h in kinds.pop())}"
    else:
        said = "; ".join(f"{extent}, {' or '.join(hosts[h] for h in v)}" for extent, v in variants.items())
    return f"{first.notion.value}{free} — {first.targets} targets ({said})"
