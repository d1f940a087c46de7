"""What "universal" can mean, and which meaning implies which: the one lattice that every verdict, certificate and bound uses.

A `Scope` says which notion, which targets, which hosts, what E and U may depend on and which attention maps. A host that
serves one scope serves every scope that it implies; what is refuted for one scope is refuted for every scope that implies it.
"Not universal by matching" does not mean "not universal".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Notion(StrEnum):
    """What the embedding E must achieve for every target of the class."""

    MATCHING = "matching"
    """One E serves every attention map: queries, keys and outputs agree (E R_all = W_all)."""
    ATTENTION_MATCHING = "attention-matching"
    """The host's attention logits and outputs agree with the target's."""
    FUNCTIONAL = "functional"
    """UTF(X, E) = T(X) for all n and X: the paper's definition."""
    SHARED_ATTENTION = "shared attention"
    """Outputs agree when attention matrices are supplied from outside: the paper's lower-bound model."""

    @property
    def sense(self) -> str:
        """As a verdict names it: "universal by matching", "universal in the functional sense"."""
        return "in the functional sense" if self is Notion.FUNCTIONAL else f"by {self.value}"

    @property
    def word(self) -> str:
        """One word of a command line, such as shared-attention."""
        return self.value.replace(" ", "-")

    @classmethod
    def asked(cls, text: str) -> Notion:
        """From its word, or its value; ValueError for anything else. Documents have the value alone."""
        return next((notion for notion in cls if text == notion.word), None) or cls(text)


class Extent(StrEnum):
    """How many targets of a class: all; all but a set of measure zero; or those that were examined."""

    ALL = "all"
    ALMOST_ALL = "almost all"
    SOME = "some"


class Tying(StrEnum):
    """Whether all layers of a target have the same weights ("looped" in the paper)."""

    UNTIED = "untied"
    TIED = "tied"


class Attention(StrEnum):
    """Which attention maps a statement is about."""

    ANY = "any map of queries and keys"
    LOGITS = "maps of logits and positions"
    SOFTMAX = "softmax"
    RATIONAL = "rational maps of the logits"
    GIVEN = "matrices from outside"


WITH = ("biases", "learned positions", "any width")
"""What makes a class of targets larger; targets without it are among those with it."""
ALMOST_EVERYWHERE = frozenset({"invertible M^(l,0)", "invertible M^(k+1,h)"})
"""Conditions that almost all targets satisfy, untied or tied."""
_CONDITIONED = re.compile(r"(untied|tied) with (invertible .*)")
_TARGETS = re.compile(
    r"(?P<extent>all|almost all|generic|some) (?P<tying>untied|tied)"
    r"(?:, with (?P<also>.+?))?(?:, if (?P<only>.+))?"
)


@dataclass(frozen=True)
class Targets:
    """A class of targets, and how much of it: for example "almost all untied", "all untied, with biases, if L = 2".

    also: what of `WITH` they may have. only: conditions that they satisfy, so that the class is smaller.
    """

    extent: Extent
    tying: Tying
    also: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> Targets:
        """From the words of a claim or of a certificate. ValueError where they are not understood."""
        if text == "this one":
            return Targets(Extent.SOME, Tying.UNTIED, frozenset({"any width"}))
        if conditioned := _CONDITIONED.fullmatch(text):
            return Targets(Extent.ALL, Tying(conditioned[1]), only=frozenset({conditioned[2]}))
        found = _TARGETS.fullmatch(text)
        if found is None:
            raise ValueError(
                f"targets {text!r} are not understood; expected 'all|almost all|some untied|tied[, with …][, if …]'"
            )
        also = frozenset(found["also"].split(" and ")) if found["also"] else frozenset()
        if unknown := also - set(WITH):
            raise ValueError(f"targets {text!r}: {', '.join(sorted(unknown))} is none of {', '.join(WITH)}")
        extent = Extent.ALMOST_ALL if found["extent"] == "generic" else Extent(found["extent"])
        only = frozenset(found["only"].split(" and ")) if found["only"] else frozenset()
        return Targets(extent, Tying(found["tying"]), also, only)

    def __str__(self) -> str:
        text = f"{self.extent} {self.tying}"
        text += f", with {' and '.join(sorted(self.also, key=WITH.index))}" if self.also else ""
        return text + (f", if {' and '.join(sorted(self.only))}" if self.only else "")

    def implies(self, weak: Targets, layers: int = 2) -> bool:
        """Whether serving these is serving the weaker ones.

        At L = 1 there is nothing to tie. Above, tied targets are a set of measure zero among the untied ones, as are targets
        without biases among those with: whoever serves all serves them, whoever serves almost all need not.
        """
        if weak.extent is Extent.SOME:
            return self == weak or (self.extent is Extent.ALL and self._holds(weak, layers) and self.only <= weak.only)
        if self.extent is Extent.SOME or not self._holds(weak, layers):
            return False
        if self.extent is Extent.ALL:
            missing = self.only - weak.only
            # a condition that holds almost everywhere: the rest of the class has measure zero
            return not missing or (weak.extent is Extent.ALMOST_ALL and missing <= ALMOST_EVERYWHERE)
        same = layers == 1 or self.tying is weak.tying
        return weak.extent is Extent.ALMOST_ALL and same and self.also == weak.also and self.only <= weak.only

    def _holds(self, weak: Targets, layers: int) -> bool:
        """Whether the whole class of `self`, its conditions apart, holds that of `weak`. Conditions that hold almost everywhere
        do so among untied targets and among tied ones."""
        tying = layers == 1 or self.tying is Tying.UNTIED or weak.tying is Tying.TIED
        return tying and self.also >= weak.also


@dataclass(frozen=True)
class Hosts:
    """Which hosts: any, or tied ones (the same weights in every layer). examined: the very host that stands there, of which a
    refutation says nothing about others."""

    tied: bool = False
    examined: bool = False

    @staticmethod
    def parse(text: str) -> Hosts:
        """From "any", "tied", "examined" or "tied examined"; ValueError for anything else."""
        known = {str(hosts): hosts for hosts in (Hosts(t, e) for t in (False, True) for e in (False, True))}
        if text not in known:
            raise ValueError(f"hosts {text!r} are none of {', '.join(known)}")
        return known[text]

    def __str__(self) -> str:
        return " ".join(["tied"] * self.tied + ["examined"] * self.examined) or "any"

    def implies(self, weak: Hosts, layers: int = 2) -> bool:
        """Whether a host of this kind is one of that kind."""
        return (self.tied or not weak.tied or layers == 1) and (self.examined or not weak.examined)


E_FREE, BOTH_FREE = "E", "E and U"
"""What may depend on the target with attention from outside."""

_Model = tuple[Notion, str | None]
MODELS: tuple[_Model, ...] = (
    (Notion.MATCHING, None),
    (Notion.ATTENTION_MATCHING, None),
    (Notion.FUNCTIONAL, None),
    (Notion.SHARED_ATTENTION, E_FREE),
    (Notion.SHARED_ATTENTION, BOTH_FREE),
)
"""Every notion, with what is free."""
_WEAKER: dict[_Model, set[_Model]] = {
    MODELS[0]: set(MODELS),
    MODELS[1]: {MODELS[1], MODELS[2], MODELS[3], MODELS[4]},  # outputs agree word by word: E R_w U = M_w
    MODELS[2]: {MODELS[2]},
    MODELS[3]: {MODELS[3], MODELS[4]},
    MODELS[4]: {MODELS[4]},
}
"""What a model implies, itself included. Functional agreement with softmax says nothing of attention from outside."""
USUAL = {
    Notion.MATCHING: Attention.ANY,
    Notion.ATTENTION_MATCHING: Attention.LOGITS,
    Notion.FUNCTIONAL: Attention.SOFTMAX,
    Notion.SHARED_ATTENTION: Attention.GIVEN,
}
"""The attention maps that a notion is about by default."""
_LESS = {
    Attention.ANY: set(Attention),
    Attention.LOGITS: set(Attention) - {Attention.ANY},
    Attention.SOFTMAX: {Attention.SOFTMAX},
    Attention.RATIONAL: {Attention.RATIONAL},
    Attention.GIVEN: {Attention.GIVEN},
}


@dataclass(frozen=True)
class Scope:
    """What a statement about universality is about. free: "E" or "E and U" for shared attention, else None."""

    notion: Notion
    targets: Targets
    hosts: Hosts = Hosts()
    free: str | None = None
    attention: Attention | None = None

    def __post_init__(self) -> None:
        if (self.free is not None) != (self.notion is Notion.SHARED_ATTENTION) or self.free not in (
            None,
            E_FREE,
            BOTH_FREE,
        ):
            raise ValueError(
                f"{self.notion.value} with {self.free!r} free: 'E' or 'E and U' with shared attention alone"
            )
        if self.attention is None:
            object.__setattr__(self, "attention", USUAL[self.notion])

    @classmethod
    def of(
        cls,
        notion: Notion,
        targets: str,
        hosts: str = "any",
        free: str | None = None,
        attention: Attention | None = None,
    ) -> Scope:
        """With targets and hosts in words; ValueError where they are not understood."""
        return cls(notion, Targets.parse(targets), Hosts.parse(hosts), free, attention)

    def __str__(self) -> str:
        free = f", {self.free} free" if self.free else ""
        usual = "" if self.attention is USUAL[self.notion] else f", {self.attention}"
        hosts = {"any": "", "tied": ", tied host", "examined": ", this host", "tied examined": ", this tied host"}
        return f"{self.notion.value}{free}{usual}: {self.targets} targets{hosts[str(self.hosts)]}"

    def implies(self, weak: Scope, layers: int = 2) -> bool:
        """Whether every host that serves `self` serves `weak`, at this many layers."""
        assert self.attention is not None
        return (
            (weak.notion, weak.free) in _WEAKER[self.notion, self.free]
            and weak.attention in _LESS[self.attention]
            and self.targets.implies(weak.targets, layers)
            and self.hosts.implies(weak.hosts, layers)
        )

    def supports(self, wanted: Scope, *, universal: bool, layers: int = 2) -> bool:
        """Whether what is known of `self` decides `wanted`: served, for what it implies; refuted, for what implies it."""
        return self.implies(wanted, layers) if universal else wanted.implies(self, layers)
