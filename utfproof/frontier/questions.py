"""What "universal" can mean for the least m, and which meaning implies which.

The frontier is propagated along these implications and nowhere by hand: a host that answers a question answers every weaker
one, so a dimension that is reached is reached for the weaker question, and a bound that is proved holds for the stronger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from utfproof.notions import Notion
from utfproof.shapes import Shape

ALL, ALMOST_ALL = "all", "almost all"
UNTIED, TIED, ANY = "untied", "tied", "any"
E, BOTH = "E", "E and U"


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

    def __str__(self) -> str:
        free = f", {self.free} free" if self.free else ""
        host = ", tied host" if self.host == TIED else ""
        return f"{self.notion.value}{free}: {self.extent} {self.targets} targets{host}"


_Model = tuple[Notion, str | None]
_MODELS: tuple[_Model, ...] = (
    (Notion.MATCHING, None),
    (Notion.ATTENTION_MATCHING, None),
    (Notion.FUNCTIONAL, None),
    (Notion.SHARED_ATTENTION, E),
    (Notion.SHARED_ATTENTION, BOTH),
)
_WEAKER: dict[_Model, set[_Model]] = {
    _MODELS[0]: set(_MODELS),
    _MODELS[1]: {_MODELS[1], _MODELS[2], _MODELS[3], _MODELS[4]},  # outputs agree word by word: E R_w U = M_w
    _MODELS[2]: {_MODELS[2]},
    _MODELS[3]: {_MODELS[3], _MODELS[4]},
    _MODELS[4]: {_MODELS[4]},
}
"""What a model implies, itself included. Functional agreement with softmax says nothing of attention from outside."""

QUESTIONS: tuple[Question, ...] = tuple(
    Question(notion, free, targets, extent, host)
    for (notion, free), targets, extent, host in product(_MODELS, (UNTIED, TIED), (ALL, ALMOST_ALL), (ANY, TIED))
)
"""All of them, by model, targets, extent and host."""


def implies(strong: Question, weak: Question, shape: Shape) -> bool:
    """Whether every host that answers `strong` at this shape answers `weak`.

    At L = 1 there is nothing to tie. Above, tied targets are a set of measure zero among the untied ones: a host of all
    untied targets serves them, one of almost all need not.
    """
    if (weak.notion, weak.free) not in _WEAKER[strong.notion, strong.free]:
        return False
    if strong.extent == ALMOST_ALL and weak.extent == ALL:
        return False
    if shape.layers == 1:
        return True
    if strong.host == ANY and weak.host == TIED:
        return False
    if strong.targets == weak.targets:
        return True
    return strong.targets == UNTIED and strong.extent == ALL
