"""Verdicts about a stored host, by the notion asked for, with the certificate where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.prover import certify, certify_weights
from utfproof.certificates.scope import scope_of
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import NotDefined, Undecided
from utfproof.util.arrays import one_line
from utfproof.util.notions import Extent, Hosts, Notion, Scope, Targets, Tying
from utfproof.weights import StoredHost, read_host


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


def asked(notion: Notion, host: StoredHost, tying: Tying = Tying.UNTIED, extent: Extent = Extent.ALL) -> Scope:
    """The question about this very host: these targets, by this notion."""
    return Scope(notion, Targets(extent, tying), Hosts(tied=host.tied, examined=True))


def decision_of(certificate: Certificate, question: Scope, reason: str = "") -> HostDecision:
    """The decision of a question by a certificate: for the certificate's own targets, which may be more, at the notion asked
    for. Undecided where the certificate's scope does not cover the question."""
    about = scope_of(certificate.document)
    layers = shape_of(certificate.document).layers
    if not about.supports(question, universal=certificate.universal, layers=layers):
        raise Undecided(f"a certificate about '{about}' does not decide '{question}'")
    verdict = HostVerdict.UNIVERSAL if certificate.universal else HostVerdict.REFUTED
    return HostDecision(replace(question, targets=about.targets), verdict, certificate, reason)


def _decided(question: Scope, prove: Callable[[], Certificate]) -> HostDecision:
    """The decision by what `prove` returns, UNDECIDED with the reason where it raises Undecided."""
    try:
        return decision_of(prove(), question)
    except Undecided as error:
        return HostDecision(question, HostVerdict.UNDECIDED, None, str(error))


def decide_matching(
    host: StoredHost, *, witness: bool = False, device: str = "cpu", max_memory: int | None = None
) -> HostDecision:
    """Universality by matching, for all untied targets: decided by the exact rank of R_all, or UNDECIDED with the reason.

    Raises MalformedInput for weights that are not finite, ResourceLimit before allocating.
    """

    return _decided(
        asked(Notion.MATCHING, host),
        lambda: certify_weights(host, witness=witness, device=device, max_memory=max_memory),
    )


def decide_tied_targets(host: StoredHost, *, max_memory: int | None = None) -> HostDecision:
    """Universality by matching, for all tied targets. Raises as `decide_matching` does."""
    question = asked(Notion.MATCHING, host, Tying.TIED)
    return _decided(question, lambda: certify_weights(host, tied_targets=True, max_memory=max_memory))


def decide_attention_matching(
    host: StoredHost, *, witness: bool = False, device: str = "cpu", max_memory: int | None = None
) -> HostDecision:
    """Universality by attention-matching, for all untied targets: UNIVERSAL with a certificate, else OPEN.

    Yes comes from the linear test (d >= d_in = d_out), from the identity of a named construction, or from matching, which
    implies it. No procedure here says no.
    Raises MalformedInput for weights that are not finite, ResourceLimit before allocating.
    """
    question = asked(Notion.ATTENTION_MATCHING, host)
    try:
        found = certify_weights(host, notion=Notion.ATTENTION_MATCHING, device=device, max_memory=max_memory)
        return decision_of(found, question)
    except (Undecided, NotDefined) as error:
        untested = str(error)
    named = _by_identity(host, max_memory)
    if named is not None:
        return named
    matching = decide_matching(host, witness=witness, device=device, max_memory=max_memory)
    if matching.universal:
        assert matching.certificate is not None
        return decision_of(matching.certificate, question, "universal by matching, which implies attention-matching")
    if matching.verdict is HostVerdict.REFUTED:
        other = "not universal by matching, which does not decide it"
    else:
        other = f"undecided by matching ({matching.reason})"
    return HostDecision(question, HostVerdict.OPEN, None, f"{untested}; {other}")


def _by_identity(host: StoredHost, max_memory: int | None) -> HostDecision | None:
    """The identity certificate of the construction that the file names; `read_host` compares the weights entry by entry."""
    name = host.file.metadata.get("construction", "")
    if name not in CONSTRUCTIONS or CONSTRUCTIONS[name].notion is not Notion.ATTENTION_MATCHING:
        return None
    try:
        found = certify(name, read_host(host).shape, host.m, max_memory=max_memory)
        if not found.universal:
            return None
        almost = asked(Notion.ATTENTION_MATCHING, host, extent=Extent.ALMOST_ALL)
        return decision_of(
            found, almost, f"the weights are those of the construction {name}, which the certificate names"
        )
    except (Undecided, NotDefined):
        return None
