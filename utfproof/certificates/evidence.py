"""What the evidence of each kind shows, in words: of a construction, and of stored weights."""

from __future__ import annotations

from typing import Any

from utfproof.certificates.format import shape_of
from utfproof.certificates.identities import identity_evidence
from utfproof.shapes import matching_dimension


def of_construction(document: dict[str, Any]) -> str:
    """The evidence of a certificate about a construction; a miss, which has a distance, is put in words by who knows it."""
    kind, claim, evidence = document["kind"], document["claim"], document["evidence"]
    shown = {
        "identity": identity_evidence,
        "linear-test": lambda _: (
            f"the test matrix has full rank {claim['rank']} modulo the prime {evidence['prime']}, to be recomputed"
        ),
        "rank-triangular": lambda _: "R_all is triangular with unit diagonal, in the rows and order given",
        "rank-permutation": lambda _: (
            f"the {claim['rank']} columns of R_all for words without the stream's letter are different unit vectors, and the "
            "others repeat them"
            if document["shape"].get("residual")
            else "R_all is a permutation matrix (columns are different unit vectors)"
        ),
        "rank-modular": lambda _: (
            f"rank R_all = {claim['rank']} modulo the prime {evidence['prime']}, {_how(evidence)}"
        ),
    }.get(kind, lambda _: "m is below M, the number of columns of R_all")
    return f"{kind}: {shown(document)}"


def of_weights(document: dict[str, Any]) -> str:
    """The evidence of a certificate about stored weights."""
    kind, claim, evidence = document["kind"], document["claim"], document["evidence"]
    method, m, M = evidence.get("method"), document["shape"]["m"], matching_dimension(shape_of(document))
    if kind == "rank-modular":
        how = _how(evidence)
        return f"rank R_all = M = {M} modulo the prime {evidence['prime']}, so over the rationals ({kind}, {how})"
    if kind == "linear-test":
        return (
            f"the linear test's {claim['rank']} columns are independent modulo the prime {evidence['prime']} "
            f"({kind}, to be recomputed)"
        )
    if kind == "identity":
        return f"{identity_evidence(document)} ({kind})"
    if kind == "rank-deficient" and method == "dimension":
        return f"m = {m} is below M = {M}, the number of columns of R_all ({kind})"
    if kind == "tied-kernel":
        return (
            f"rank R_all = {claim['rank']} of {M}, and W_all z = 0 for every tied target and each of "
            f"{len(evidence['basis'])} vectors z that span its kernel ({kind})"
        )
    if method == "tied-target":
        return f"R_all z = 0 but W_all z is not zero for a tied target and an integer vector z ({kind})"
    if kind == "lower-bound":
        reduced = "2dS + d_out (1 + S)" if document["shape"].get("residual") else "M"
        how = f"m is below {reduced}" if method == "dimension" else "tied targets span more dimensions than m"
        return f"no host of dimension m = {m} matches all tied targets: {how} ({kind})"
    if kind == "rank-deficient" and "z" in evidence:
        return f"R_all z = 0 for an integer vector z with {len(evidence['z'])} nonzero entries ({kind})"
    return f"{kind}, {method}" if method else str(kind)


def _how(evidence: dict[str, Any]) -> str:
    return "with the inverse of a minor as witness" if evidence["method"] == "witness" else "to be recomputed"
