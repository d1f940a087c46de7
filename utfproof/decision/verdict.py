"""Verdicts about a host given as a file, by the notion asked for, with the certificate where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.prover import decide_weights
from utfproof.certificates.scope import scope_of
from utfproof.errors import Undecided
from utfproof.ground.arrays import one_line
from utfproof.ground.notions import Extent, Hosts, Notion, Scope, Targets, Tying
from utfproof.weights import HostFile, StoredHost, stored_host


class HostVerdict(StrEnum):
    """What was decided; OPEN where no procedure can say no."""

    UNIVERSAL = "universal"
    REFUTED = "not universal"
    UNDECIDED = "undecided"
    OPEN = "open"

    @property
    def exit_code(self) -> int:
        """The command line's."""
        return {HostVerdict.UNIVERSAL: 0, HostVerdict.REFUTED: 1}.get(self, 4)


@one_line
@dataclass(frozen=True)
class HostDecision:
    """The verdict about a host; scope: what it is about; reason: why, in one line; certificate: None unless decided."""

    scope: Scope
    verdict: HostVerdict
    certificate: Certificate | None
    reason: str = ""

    @property
    def notion(self) -> Notion:
        """The notion of universality."""
        return self.scope.notion

    @property
    def targets(self) -> Targets:
        """The class of targets, and how much of it."""
        return self.scope.targets

    @property
    def universal(self) -> bool:
        """Certified as universal by the notion."""
        return self.verdict is HostVerdict.UNIVERSAL

    @property
    def residual(self) -> bool:
        """Whether the certificate is about hosts and targets with a residual stream."""
        return self.certificate is not None and shape_of(self.certificate.document).residual


def asked(notion: Notion, stored: StoredHost, tying: Tying = Tying.UNTIED, extent: Extent = Extent.ALL) -> Scope:
    """The question about this very host: these targets, by this notion."""
    return Scope(notion, Targets(extent, tying), Hosts(tied=stored.tied, examined=True))


def decision_of(certificate: Certificate, question: Scope, reason: str = "") -> HostDecision:
    """The decision of a question by a certificate: for the certificate's own targets, which may be more, at the notion asked
    for. Undecided where its scope says nothing of the question."""
    about = scope_of(certificate.document)
    layers = shape_of(certificate.document).layers
    if not about.supports(question, universal=certificate.universal, layers=layers):
        raise Undecided(f"a certificate about '{about}' does not decide '{question}'")
    verdict = HostVerdict.UNIVERSAL if certificate.universal else HostVerdict.REFUTED
    return HostDecision(replace(question, targets=about.targets), verdict, certificate, reason)


def decide_matching(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> HostDecision:
    """Universality by matching, for all untied targets: decided by the exact rank of R_all, or UNDECIDED with the reason.

    Raises MalformedInput for files that hold no host, ResourceLimit before allocating.
    """
    given: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual, "max_memory": max_memory}
    stored = stored_host(host, **given)
    question = asked(Notion.MATCHING, stored)
    try:
        found = decide_weights(stored, witness=witness, device=device, **given)
        return decision_of(found.certificate, question, found.reason)
    except Undecided as error:
        return HostDecision(question, HostVerdict.UNDECIDED, None, str(error))


def decide_tied_targets(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> HostDecision:
    """Universality by matching, for all tied targets. Raises as `decide_matching` does."""
    from utfproof.certificates.tied import certify_tied_weights

    given: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual, "max_memory": max_memory}
    stored = stored_host(host, **given)
    question = asked(Notion.MATCHING, stored, Tying.TIED)
    try:
        return decision_of(certify_tied_weights(stored, **given), question)
    except Undecided as error:
        return HostDecision(question, HostVerdict.UNDECIDED, None, str(error))
