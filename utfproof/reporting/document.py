"""What each report says of a verify document, said once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from utfproof.claims.theorems import ABSENT, CHECKED

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


def theorem_lines(claim: dict[str, Any]) -> list[str]:
    """The theorems behind a claim, one line for each status, and the parts of the claim that they do not prove."""
    names: dict[str, list[str]] = {}
    for theorem in claim["theorems"]:
        names.setdefault(str(theorem["status"]), []).append(str(theorem["name"]))
    part = f"in part (missing: {claim['theorems_lack']}): " if claim["theorems_lack"] else ""
    lines = []
    for status, members in names.items():
        listed = ", ".join(members)
        if status in CHECKED:
            lines.append(f"machine-checked: {part}{listed} ({status})")
        else:
            lines.append(f"{'' if status == ABSENT else 'NOT machine-checked, '}{status}: {part}{listed}")
    return lines


def verdict_counts(document: dict[str, Any]) -> dict[str, int]:
    """Number of claims of each computed verdict: the known ones in their order, then any other."""
    counts = Counter(str(claim["verdict"]) for claim in document["claims"])
    return {name: counts.pop(name, 0) for name in VERDICTS} | dict(counts)


def sections_of(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Claims by section, sections in the order in which they first occur."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for claim in document["claims"]:
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
    claims = document["claims"]
    verdicts = ", ".join(f"{count} {plain(name)}" for name, count in verdict_counts(document).items() if count)
    broken = sum(bool(claim["problems"]) for claim in claims)
    state = f"{broken} NOT as recorded" if broken else "all as recorded"
    listed = f": {verdicts}" if verdicts else ""
    failing = [claim for claim in claims if claim["verdict"] == "fails as printed"]
    if failing:
        listed += f" ({counted(len(by_cause(failing)), 'cause')})"
    basis = Counter(str(claim["basis"]) for claim in claims)
    return [
        f"{counted(len(claims), 'claim')}{listed}",
        f"{state}{_theorems(claims)}",
        ", ".join(f"{basis[name]} {name}" for name in ("proved", "checked", "cited")),
        f"grid {plain(document.get('grid', ''))}{_notes(claims)}",
    ]


def _notes(claims: list[dict[str, Any]]) -> str:
    """On a grid other than the default one: how many claims looked at none of its shapes."""
    elsewhere = sum(str(claim["grid_note"]).startswith("0 of") for claim in claims)
    return f"; {counted(elsewhere, 'claim')} examined none of its shapes, only their own" if elsewhere else ""


def _theorems(claims: list[dict[str, Any]]) -> str:
    """How many claims have theorems for all sizes, for the summary: the same whether or not they were compiled here."""
    linked = sum(bool(claim["theorems"]) for claim in claims)
    return f"; {linked} with theorems for all sizes (make proofs compiles them)" if linked else ""
