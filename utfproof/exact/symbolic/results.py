"""What a symbolic check reports, and how its two routes are held against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utfproof.errors import Undecided
from utfproof.exact.symbolic.words import Polynomial, show, subtract

ROUTES = ("SymPy", "plain integers")


class RoutesDisagree(Undecided):
    """Two computations of the same object differ: a defect of the software, never a verdict."""


@dataclass(frozen=True)
class IdentityResult:
    """An identity, checked. `terms`: words (or monomials) compared; `difference`: "0", or where and by how much the
    first failing comparison fails; `routes`: the computations that agreed on every term."""

    statement: str
    holds: bool
    terms: int
    difference: str
    routes: tuple[str, ...] = ROUTES


Sides = Mapping[str, tuple[Polynomial, Polynomial]]
"""Named comparisons: the left and the right side of each, as integer combinations of words."""


def decide(statement: str, first: Sides, second: Sides, routes: Sequence[str] = ROUTES) -> IdentityResult:
    """The verdict on all comparisons, once both routes give the same two sides of each.

    Raises RoutesDisagree naming the first comparison in which they differ.
    """
    if list(first) != list(second):
        raise RoutesDisagree(f"{statement}: the routes compare different things, {list(first)} and {list(second)}")
    terms, difference = 0, "0"
    for label, (left, right) in first.items():
        for side, ours, theirs in (("left", left, second[label][0]), ("right", right, second[label][1])):
            if ours != theirs:
                raise RoutesDisagree(
                    f"{statement}: {routes[0]} and {routes[1]} differ on the {side} side of {label}: "
                    f"{show(subtract(ours, theirs))}"
                )
        terms += len(left.keys() | right.keys())
        gap = subtract(left, right)
        if gap and difference == "0":
            difference = f"{label}: {show(gap)}"
    if terms == 0:
        raise RoutesDisagree(f"{statement}: nothing was compared")
    return IdentityResult(statement, difference == "0", terms, difference, tuple(routes))
