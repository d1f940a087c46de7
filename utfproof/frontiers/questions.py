"""What "universal" can mean for the least m, and which meaning implies which.

The frontier is propagated along these implications and nowhere by hand: a host that answers a question answers every weaker
one, so a dimension that is reached is reached for the weaker question, and a bound that is proved holds for the stronger one.
Bounds go one arrow further (`bounded_by`): a functional host of more than a null set of targets matches attention for more
than a null set of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

from utfproof.util.notions import BOTH_FREE, E_FREE, MODELS, Extent, Hosts, Notion, Scope, Targets, Tying

ALL, ALMOST_ALL = Extent.ALL.value, Extent.ALMOST_ALL.value
UNTIED, TIED, ANY = Tying.UNTIED.value, Tying.TIED.value, "any"
E, BOTH = E_FREE, BOTH_FREE


@dataclass(frozen=True)
class Question:
    """The least m of a host that serves these targets.

    free: "E" or "E and U" for shared attention, else None. targets: "untied" or "tied" (looped). extent: "all" of them, or
    "almost all" (all but a set of measure zero). host: "any", or "tied" (looped).
    """

    notion: Notion
    free: str | None = None
    targets: str = UNTIED
    extent: str = ALL
    host: str = ANY

    @cached_property
    def scope(self) -> Scope:
        """The same for `utfproof.util.notions`, whose lattice decides what implies what."""
        targets = Targets(Extent(self.extent), Tying(self.targets))
        return Scope(self.notion, targets, Hosts(tied=self.host == TIED), self.free)

    def __str__(self) -> str:
        free = f", {self.free} free" if self.free else ""
        host = ", tied host" if self.host == TIED else ""
        return f"{self.notion.value}{free}: {self.extent} {self.targets} targets{host}"


QUESTIONS: tuple[Question, ...] = tuple(
    Question(notion, free, targets, extent, host)
    for (notion, free), targets, extent, host in product(MODELS, (UNTIED, TIED), (ALL, ALMOST_ALL), (ANY, TIED))
)
"""All of them, by model, targets, extent and host."""


@cache
def implies(strong: Question, weak: Question, layers: int) -> bool:
    """Whether every host of so many layers that answers `strong` answers `weak` (`utfproof.util.notions.Scope.implies`)."""
    return strong.scope.implies(weak.scope, layers)


@cache
def bounded_by(question: Question, proved: Question, layers: int) -> bool:
    """Whether a lower bound for `proved` is one for `question`.

    Where `question` implies it; and, for almost all targets, where attention-matching would: a functional host serves almost
    each of its targets by attention-matching, with its heads renamed (docs/proofs/functional-is-attention-matching.md),
    which may leave a tied host untied. The bounds for almost all targets, "one narrow head" apart, hold for hosts that serve
    more than a null set.
    """
    if implies(question, proved, layers):
        return True
    if question.notion is not Notion.FUNCTIONAL or proved.extent == ALL:
        return False
    for targets in (UNTIED, TIED):
        served = Question(Notion.FUNCTIONAL, None, targets, ALMOST_ALL)
        matched = replace(served, notion=Notion.ATTENTION_MATCHING)
        if implies(question, served, layers) and implies(matched, proved, layers):
            return True
    return False
