"""Reading a verify document (docs/claims.md): what each report needs to know about it, said once.

A claim counts as recorded only if nothing in the document speaks against it: a document that contradicts itself is
reported as broken, never as fine.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from utfproof.errors import MalformedInput

VERDICTS = ("holds", "holds after repair", "fails as printed", "open")
"""In the order in which reports list them."""

NOTIONS = {
    "matching": "one E serves every attention map at once: E·R_all = W_all, queries, keys and outputs agree. "
    "Decided by the rank of R_all.",
    "attention-matching": "the host's attention logits and its outputs agree with the target's, so every attention "
    "matrix does. Implied by matching.",
    "functional": "UTF(X, E) = T(X) for every length n and every X, with softmax of q·k: the paper's definition. "
    "Implied by attention-matching.",
    "shared attention": "attention matrices are supplied from outside and outputs agree; E and U may both depend on "
    "the target: the paper's lower-bound model.",
}
"""Each notion of universality in one line."""

CAUTION = "“Not universal by matching” does not mean “not universal”."

FIELDS = (
    "id",
    "section",
    "place",
    "statement",
    "category",
    "notion",
    "targets",
    "scope",
    "recorded",
    "verdict",
    "agrees",
    "problems",
    "evidence",
    "proof",
    "sentence",
    "figures",
    "smallest",
    "counterexample",
    "instances",
    "seconds",
)
"""What every claim of a verify document has."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def plain(value: object) -> str:
    """Text that terminals, XML and HTML can carry: control characters, bidirectional overrides, lone surrogates and
    noncharacters become U+FFFD; carriage returns become line feeds."""
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", text)


def claims_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The document's claims. MalformedInput where a field is missing, naming it."""
    claims = document.get("claims")
    if not isinstance(claims, list):
        raise MalformedInput("the verify document has no list of claims; make one with utfproof verify --json")
    for number, claim in enumerate(claims):
        missing = [field for field in FIELDS if field not in claim]
        if missing:
            name = claim.get("id", f"number {number}")
            raise MalformedInput(f"claim {name} of the verify document lacks {', '.join(missing)}")
    return claims


def problems_of(claim: dict[str, Any]) -> list[str]:
    """Why this claim is not as recorded, a line each; empty when it is."""
    problems = [str(problem) for problem in claim["problems"]]
    if claim["verdict"] != claim["recorded"] and not any(str(claim["recorded"]) in line for line in problems):
        problems.append(f"the verdict is {claim['verdict']!r}, recorded is {claim['recorded']!r}")
    if claim["agrees"] is not True and not problems:
        problems.append("the run says that this claim does not agree with its record, and gives no reason")
    return problems


def broken_claims(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims that are not as recorded."""
    return [claim for claim in claims_of(document) if problems_of(claim)]


def as_recorded(document: dict[str, Any]) -> bool:
    """Whether everything that was examined is as recorded, by the document's own word and by each claim."""
    return document.get("holds") is True and not broken_claims(document)


def verdict_counts(document: dict[str, Any]) -> dict[str, int]:
    """Number of claims of each computed verdict: the known ones in their order, then any other."""
    counts = Counter(str(claim["verdict"]) for claim in claims_of(document))
    return {name: counts.pop(name, 0) for name in VERDICTS} | dict(counts)


def sections_of(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Claims by section, sections in the order in which they first occur."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for claim in claims_of(document):
        sections.setdefault(str(claim["section"]), []).append(claim)
    return sections


def figure_text(value: object) -> str:
    """A figure for people: Python's own shortest form, true and false for booleans."""
    return str(value).lower() if isinstance(value, bool) else plain(value)


def counted(number: int, noun: str) -> str:
    """ "1 claim", "2 claims"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def summary(document: dict[str, Any]) -> str:
    """One line: how many claims, their verdicts, and whether all are as recorded."""
    claims = claims_of(document)
    verdicts = ", ".join(f"{count} {plain(name)}" for name, count in verdict_counts(document).items() if count)
    broken = broken_claims(document)
    if broken:
        state = f"{len(broken)} NOT as recorded"
    elif as_recorded(document):
        state = "all as recorded"
    else:
        state = "the run as a whole is NOT as recorded"
    listed = f" ({verdicts})" if verdicts else ""
    return f"{counted(len(claims), 'claim')}{listed}, {state}; grid {plain(document.get('grid', ''))}"
