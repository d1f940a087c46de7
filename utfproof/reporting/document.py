"""Reading a verify document: what each report needs to know about it, said once.

A claim counts as recorded only if nothing in the document speaks against it: a document that contradicts itself is
reported as broken, never as fine.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from utfproof.claims.theorems import ABSENT, CHECKED, SOUND
from utfproof.errors import MalformedInput

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def plain(value: object) -> str:
    """Text that terminals, XML and HTML can carry: control characters, bidirectional overrides, lone surrogates and
    noncharacters become U+FFFD; carriage returns become line feeds."""
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", text)


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
    "cause",
    "grid_note",
    "agrees",
    "problems",
    "evidence",
    "basis",
    "proof",
    "theorems",
    "theorems_lack",
    "sentence",
    "figures",
    "smallest",
    "counterexample",
    "instances",
    "seconds",
)
"""What every claim of a verify document has."""


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


def theorem_names(claim: dict[str, Any]) -> list[str]:
    """The theorems behind a claim in one line that does not depend on what was compiled here, and what of it they prove; those
    that do not stand as they should, as `theorem_lines` has them."""
    sound = [str(theorem["name"]) for theorem in claim["theorems"] if theorem["status"] in SOUND]
    part = _part(claim)
    broken = {**claim, "theorems": [t for t in claim["theorems"] if t["status"] not in SOUND]}
    return [*([f"for all sizes: {part}{', '.join(sound)}"] if sound else []), *theorem_lines(broken)]


def _part(claim: dict[str, Any]) -> str:
    return f"in part (missing: {claim['theorems_lack']}): " if claim["theorems_lack"] else ""


def theorem_lines(claim: dict[str, Any]) -> list[str]:
    """The theorems behind a claim, a line for each way in which they stand here, and what of the claim they do not prove."""
    names: dict[str, list[str]] = {}
    for theorem in claim["theorems"]:
        names.setdefault(str(theorem["status"]), []).append(str(theorem["name"]))
    part = _part(claim)
    lines = []
    for status, members in names.items():
        listed = ", ".join(members)
        if status in CHECKED:
            lines.append(f"machine-checked: {part}{listed} ({status})")
        else:
            lines.append(f"{'' if status == ABSENT else 'NOT machine-checked, '}{status}: {part}{listed}")
    return lines


def machine_checked(claim: dict[str, Any]) -> bool:
    """Whether every theorem behind a claim, one at least, is compiled here and rests on no axiom but those allowed."""
    return bool(claim["theorems"]) and all(theorem["status"] in CHECKED for theorem in claim["theorems"])


def problems_of(claim: dict[str, Any]) -> list[str]:
    """Why this claim is not as recorded, a line each; empty when it is."""
    problems = [str(problem) for problem in claim["problems"]]
    named = any(str(claim["recorded"]) in line for line in problems)
    if claim["verdict"] != claim["recorded"] and claim["grid_note"] is None and not named:
        problems.append(f"the verdict is {claim['verdict']!r}, recorded is {claim['recorded']!r}")
    for theorem in claim["theorems"]:
        named = any(str(theorem["name"]) in line for line in problems)
        if theorem["status"] not in SOUND and not named:
            problems.append(f"theorem {theorem['name']}: {theorem['status']}")
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


def by_cause(claims: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Claims that fail, by the cause that their records name; a claim without one is a cause of its own."""
    causes: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        causes.setdefault(str(claim["cause"] or claim["id"]), []).append(claim)
    return dict(sorted(causes.items(), key=lambda item: -len(item[1])))


def counted(number: int, noun: str) -> str:
    """ "1 claim", "2 claims"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def summary(document: dict[str, Any]) -> list[str]:
    """How many claims and their verdicts; whether all are as recorded, and how many have theorems; how many are
    proved, checked and cited; the grid: a line each."""
    claims = claims_of(document)
    verdicts = ", ".join(f"{count} {plain(name)}" for name, count in verdict_counts(document).items() if count)
    broken = broken_claims(document)
    if broken:
        state = f"{len(broken)} NOT as recorded"
    elif as_recorded(document):
        state = "all as recorded"
    else:
        state = "the run as a whole is NOT as recorded"
    listed = f": {verdicts}" if verdicts else ""
    failing = [claim for claim in claims if claim["verdict"] == VERDICTS[2]]
    if failing:
        listed += f" ({counted(len(by_cause(failing)), 'cause')})"
    return [
        f"{counted(len(claims), 'claim')}{listed}",
        f"{state}{_theorems(claims)}",
        ", ".join(f"{count} {name}" for name, count in basis_counts(claims).items()),
        f"grid {plain(document.get('grid', ''))}{_notes(claims)}",
    ]


def basis_counts(claims: list[dict[str, Any]]) -> dict[str, int]:
    """Number of claims that are proved in Coq here, checked by computing, and cited from written proofs."""
    counts = Counter(str(claim["basis"]) for claim in claims)
    return {name: counts[name] for name in ("proved", "checked", "cited")}


def _notes(claims: list[dict[str, Any]]) -> str:
    """On a grid other than the default one: how many claims looked at none of its shapes."""
    elsewhere = sum(str(claim["grid_note"]).startswith("0 of") for claim in claims)
    return f"; {counted(elsewhere, 'claim')} examined none of its shapes, only their own" if elsewhere else ""


def _theorems(claims: list[dict[str, Any]]) -> str:
    """How many claims have theorems for all sizes, for the summary: the same whether or not they were compiled here."""
    linked = sum(bool(claim["theorems"]) for claim in claims)
    return f"; {linked} with theorems for all sizes (make proofs compiles them)" if linked else ""
