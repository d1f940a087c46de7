"""Verdicts in words: what was decided and why, what it implies and what not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from utfproof.certificates.format import Certificate
from utfproof.certificates.scope import in_words
from utfproof.decision.counterexample import (
    Counterexample,
    TiedCounterexample,
    column_in_words,
    in_decimals,
    written,
)
from utfproof.decision.verdict import HostDecision, HostVerdict
from utfproof.systems import Target
from utfproof.util.notions import Extent, Notion, Tying
from utfproof.util.results import Result
from utfproof.weights import StoredHost


@dataclass(frozen=True, repr=False)
class Findings(Result):
    """All that is known about one host: the decision, and what was worked out beside it. files: what was written, by
    what it holds."""

    stored: StoredHost
    decision: HostDecision
    counterexample: Counterexample | None = None
    tied: TiedCounterexample | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def universal(self) -> bool:
        """Certified as universal by the notion."""
        return self.decision.universal

    @property
    def certificate(self) -> Certificate | None:
        """None unless decided."""
        return self.decision.certificate

    @property
    def target(self) -> Target | None:
        """A target that this host cannot match, where one is named."""
        if self.tied is not None:
            return self.tied.target
        return None if self.counterexample is None else self.counterexample.target

    def rows(self) -> dict[str, Any]:
        """For people."""
        stored, decision = self.stored, self.decision
        rows = {
            "verdict": f"{verdict_in_words(decision)} (targets: {decision.targets})",
            "shape": f"{stored.shape}, m = {stored.m}, M = {stored.M}",
            "why": why(self),
            "means": implies(decision),
            "does not say": does_not_imply(decision),
        }
        if decision.verdict is HostVerdict.REFUTED:
            rows["counterexample"] = "; ".join(counterexample_lines(self))
        for name, path in self.files.items():
            rows["written" if name == "certificate" else f"written ({name})"] = path
        return rows

    def document(self) -> dict[str, Any]:
        """For --json."""
        stored, decision, certificate = self.stored, self.decision, self.certificate
        document: dict[str, Any] = {
            "verdict": verdict_in_words(decision),
            "notion": decision.notion.value,
            "targets": str(decision.targets),
            "scope": str(decision.scope),
            "kind": None if certificate is None else certificate.kind,
            "host": None if certificate is None else certificate.document["claim"].get("host"),
            "shape": stored.shape.document(stored.m),
            "M": stored.M,
            "reason": why(self),
            "implies": implies(decision),
            "does_not_imply": does_not_imply(decision),
            "files": list(self.files.values()),
        }
        if decision.verdict is HostVerdict.REFUTED and decision.targets.tying is Tying.UNTIED:
            found, file = self.counterexample, self.files.get("target")
            document["missed"] = None if found is None else {**found.document(), "file": file}
        return document


def verdict_in_words(decision: HostDecision) -> str:
    """Verdict, notion and class of targets."""
    return f"{decision.verdict} by {decision.notion.value}"


_MEANINGS = {
    (Notion.ATTENTION_MATCHING, HostVerdict.UNIVERSAL): (
        "for {every} some E makes attention logits and outputs agree, so outputs agree for every n and X where attention "
        "depends on the logits alone (no RoPE, no normalised queries or keys)",
        "universality by matching (one E for every attention map), or the precision it takes",
    ),
    (Notion.ATTENTION_MATCHING, HostVerdict.OPEN): (
        "no proof that some E serves every target was found, and none that it cannot: nothing here says no",
        "anything about universality by attention-matching, or functional universality",
    ),
    (Notion.MATCHING, HostVerdict.UNIVERSAL): (
        "for {every} some E makes queries, keys and outputs agree, so outputs agree for every n, X and attention kernel: "
        "universal by attention-matching and functionally as well",
        "the precision it takes, or other classes: other heads, layers and head dimensions, {stream}, "
        "normalisation, MLPs",
    ),
    (Notion.MATCHING, HostVerdict.REFUTED): (
        "{some} has no E that makes its queries, keys and outputs agree with the host's",
        "that the host is not universal by attention-matching or functionally: with another E, which need not match "
        "queries and keys, outputs may still agree",
    ),
    (Notion.MATCHING, HostVerdict.UNDECIDED): (
        "neither that every target is matched nor that some is not was established",
        "anything about the other notions of universality",
    ),
}
"""By notion and verdict: what the verdict says, and what it leaves undecided."""


def _meaning(decision: HostDecision, which: int) -> str:
    targets = decision.targets
    kind = str(replace(targets, extent=Extent.ALL)).removeprefix(f"{Extent.ALL} ")
    group = f"of the class ({kind})"
    whole = targets.extent is Extent.ALL
    return _MEANINGS[decision.notion, decision.verdict][which].format(
        every=f"every target {group}" if whole else f"all targets {group} but a set of measure zero",
        some=f"some target {group}" if whole else f"a set of targets {group} that has positive measure",
        stream="no residual stream" if decision.residual else "residual streams",
    )


def implies(decision: HostDecision) -> str:
    """What the verdict says."""
    return _meaning(decision, 0)


def does_not_imply(decision: HostDecision) -> str:
    """What the verdict leaves undecided."""
    return _meaning(decision, 1)


def why(found: Findings) -> str:
    """The evidence in one line."""
    decision = found.decision
    if decision.certificate is None:
        return decision.reason
    return "; ".join(part for part in (in_words(decision.certificate.document), decision.reason) if part)


def counterexample_lines(found: Findings) -> list[str]:
    """The target that a refuted host cannot match, and how far every E stays from it."""
    if found.decision.targets.tying is Tying.TIED:
        if found.tied is None:
            return ["some weight-tied target is a counterexample; none is named"]
        distance = _distance(found.tied.distance_squared, "|W_all z|", "in the certificate")
        return ["a weight-tied target of integers, in the certificate", distance]
    given, residual = found.counterexample, found.stored.shape.residual
    if given is None:
        if residual:
            return ["some target routed along a head word is a counterexample; none is named"]
        return ["some isolating target (0/1, one nonzero entry in W_all) is a counterexample; none is named"]
    which = "target routed along the word" if residual else "isolating target"
    lines = [f"the {which} of {column_in_words(given.shape, given.column)}"]
    if given.distance_squared is None:
        said = "no E matches it, since m independent columns that do not hold it force E = 0; no distance is known"
        return [*lines, said]
    source = "in the certificate" if given.certified else "from an exact kernel vector, not in the certificate"
    return [*lines, _distance(given.distance_squared, "|W_all z|" if residual else "|z_c|", source)]


def _distance(squared: Fraction, by: str, source: str) -> str:
    return (
        f"every E misses it by at least {by}/|z| = sqrt({_fraction(squared)}) = {in_decimals(squared, 6):.6f} in "
        f"|E R_all - W_all| ({source})"
    )


def _fraction(value: Fraction) -> str:
    numerator, denominator = written(value.numerator), written(value.denominator)
    if len(numerator) + len(denominator) > 60:
        return f"n/q, n of {len(numerator)} and q of {len(denominator)} digits"
    return f"{numerator}/{denominator}"
