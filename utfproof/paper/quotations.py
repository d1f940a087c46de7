"""The places of the paper that claims speak about: a short quotation each, and where it stands.

The paper's text is not part of this repository. quotations.json has its SHA-256, the quotations, and for each the position
in the text with its white space collapsed; `python scripts/pin_quotations.py` writes the positions, and the tests compare
them with the text where the environment variable UTFPROOF_PAPER names it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("quotations.json")


@dataclass(frozen=True)
class Quotation:
    """claim: whose. text: a line or a formula of the paper's source, white space collapsed. at: its position. section: the
    title of the section it stands in. digest: of claim, position and text."""

    claim: str
    text: str
    at: int
    section: str
    digest: str

    @property
    def sound(self) -> bool:
        """Whether the digest is that of the rest."""
        return self.digest == seal(self.claim, self.at, self.text)


@dataclass(frozen=True)
class Sentence:
    """A sentence of the paper that can be checked. claims: those that decide it; why: why none does, if none does."""

    text: str
    at: int
    claims: tuple[str, ...]
    why: str | None


def collapse(text: str) -> str:
    """White space collapsed, so that a quotation may run over line ends."""
    return " ".join(text.split())


def seal(claim: str, at: int, text: str) -> str:
    """What ties a quotation to its claim and its place."""
    return hashlib.sha256(f"{claim}\n{at}\n{text}".encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The file, parsed."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def section_at(position: int, starts: list[list[Any]]) -> str:
    """The title of the section in which a position lies; starts: [position, title] in order."""
    titles = [title for start, title in starts if start <= position]
    return str(titles[-1]) if titles else "front matter"


@lru_cache(maxsize=1)
def quotations() -> dict[str, Quotation]:
    """Every quotation by claim."""
    found = document()
    return {
        claim: Quotation(claim, entry["text"], entry["at"], section_at(entry["at"], found["sections"]), entry["digest"])
        for claim, entry in found["quotations"].items()
    }


def sentences() -> list[Sentence]:
    """Every checkable sentence of the paper, in its order: those that claims quote, and those that are listed beside."""
    held = document()
    found = {entry["text"]: Sentence(**{**entry, "claims": tuple(entry["claims"])}) for entry in held["sentences"]}
    quoting: dict[str, list[str]] = {}
    for claim, entry in held["quotations"].items():
        if entry["text"] not in found:
            quoting.setdefault(entry["text"], []).append(claim)
    for text, claims in quoting.items():
        found[text] = Sentence(text, held["quotations"][claims[0]]["at"], tuple(claims), None)
    return sorted(found.values(), key=lambda entry: entry.at)


def write(made: Mapping[str, Any]) -> None:
    """The file anew, an entry a line."""

    def block(value: Any) -> str:
        if isinstance(value, str):
            return json.dumps(value)
        named = [f"{json.dumps(key)}: " for key in value] if isinstance(value, Mapping) else [""] * len(value)
        entries = value.values() if isinstance(value, Mapping) else value
        lines = [name + json.dumps(entry, ensure_ascii=False) for name, entry in zip(named, entries, strict=True)]
        return "\n".join(["{" if isinstance(value, Mapping) else "[", ",\n".join(lines), "}" if named[0] else "]"])

    text = ",\n".join(f"{json.dumps(key)}: {block(value)}" for key, value in made.items())
    FILE.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
