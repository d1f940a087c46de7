"""Verdicts about a host given as a file, by the notion asked for, with the certificate where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from utfproof.arrays import one_line
from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.prover import decide_weights
from utfproof.errors import Undecided
from utfproof.notions import Notion
from utfproof.weights import HostFile


class Verdict(StrEnum):
    """What was decided; OPEN where no procedure can say no."""

    UNIVERSAL = "universal"
    REFUTED = "not universal"
    UNDECIDED = "undecided"
    OPEN = "open"

    @property
    def exit_code(self) -> int:
        """The command line's."""
        return {Verdict.UNIVERSAL: 0, Verdict.REFUTED: 1}.get(self, 4)


@one_line
@dataclass(frozen=True)
class Decision:
    """The verdict about a host; reason: why, in one line; certificate: None unless decided."""

    notion: Notion
    verdict: Verdict
    targets: str
    certificate: Certificate | None
    reason: str = ""

    @property
    def universal(self) -> bool:
        """Certified as universal by the notion."""
        return self.verdict is Verdict.UNIVERSAL

    @property
    def residual(self) -> bool:
        """Whether the certificate is about hosts and targets with a residual stream."""
        return self.certificate is not None and shape_of(self.certificate.document).residual


def decision_of(certificate: Certificate, notion: Notion | None = None, reason: str = "") -> Decision:
    """The decision that a certificate is. notion: one that the certificate's own implies, where asked for."""
    claim = certificate.document["claim"]
    verdict = Verdict.UNIVERSAL if certificate.universal else Verdict.REFUTED
    return Decision(notion or Notion(claim["notion"]), verdict, claim["targets"], certificate, reason)


def decide_matching(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> Decision:
    """Universality by matching, for all untied targets: decided by the exact rank of R_all, or UNDECIDED with the reason.

    Raises MalformedInput for files that hold no host, ResourceLimit before allocating.
    """
    try:
        found = decide_weights(
            host,
            layers=layers,
            d_in=d_in,
            residual=residual,
            witness=witness,
            device=device,
            max_memory=max_memory,
        )
    except Undecided as error:
        return Decision(Notion.MATCHING, Verdict.UNDECIDED, "all untied", None, str(error))
    return decision_of(found.certificate, reason=found.reason)


def decide_tied_targets(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> Decision:
    """Universality by matching, for all tied targets. Raises as `decide_matching` does."""
    from utfproof.certificates.tied import certify_tied_weights

    try:
        found = certify_tied_weights(host, layers=layers, d_in=d_in, residual=residual, max_memory=max_memory)
    except Undecided as error:
        return Decision(Notion.MATCHING, Verdict.UNDECIDED, "all tied", None, str(error))
    return decision_of(found)
