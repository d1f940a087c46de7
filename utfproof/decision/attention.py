"""Universality by attention-matching of a stored host: what can be proved, and what stays open.

Yes comes from the linear test (d >= d_in = d_out), from matching, which implies it, or from the identity of a named
construction. No procedure here says no.
"""

from __future__ import annotations

from utfproof.certificates.linear_test import linear_test_weights
from utfproof.certificates.prover import certify
from utfproof.constructions import CONSTRUCTIONS
from utfproof.decision.verdict import HostDecision, HostVerdict, asked, decide_matching, decision_of
from utfproof.errors import NotDefined, Undecided
from utfproof.ground.notions import Extent, Notion
from utfproof.weights import StoredHost, read_host


def decide_attention_matching(
    host: StoredHost, *, witness: bool = False, device: str = "cpu", max_memory: int | None = None
) -> HostDecision:
    """Universality by attention-matching, for all untied targets: UNIVERSAL with a certificate, else OPEN.

    Raises MalformedInput for weights that are not finite, ResourceLimit before allocating.
    """
    question = asked(Notion.ATTENTION_MATCHING, host)
    try:
        return decision_of(linear_test_weights(host, device=device, max_memory=max_memory), question)
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
