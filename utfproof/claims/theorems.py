"""What this checkout knows of the theorems in proofs/: which of them are compiled, and what each rests on.

`make proofs` compiles the Coq library, asks Coq what every headline theorem rests on, and leaves the answer in
proofs/build/assumptions.json with a digest of the sources and of the statements and definitions that it was compared with. A theorem counts as machine-checked only by that answer: a name in
the registry proves nothing. Where there is no answer for these sources, the theorem is "not built here". Standard
library only, because proofs/check.py uses this file too.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

PROOFS = Path(__file__).parents[2] / "proofs"
"""The Coq library of a checkout; an installed package has none."""
HEADLINES = "headlines.toml"
RESULTS = "build/assumptions.json"
STATEMENTS, DEFINITIONS = "statements.txt", "definitions.txt"
"""The headline theorems, and the definitions that they speak by, as Coq prints them."""

MACHINE = "machine-checked proof"
"""The name of this evidence."""
BUILT, STATED = f"{MACHINE}, built here from these sources", "stated in Coq, not built here"
BROKEN = "theorems that do not stand"
"""What it is in a run: the theorems are compiled here, or not, or one of them is not what it should be."""

CLOSED = "closed under the global context"
"""Coq's words for a theorem that rests on no axiom."""
ABSENT = "not built here"
OPEN = "rests on axioms"
MISSING = "not in the build"


@dataclass(frozen=True)
class Headline:
    """One theorem of headlines.toml. name: File.theorem. labels: the paper's. notions, targets: what it is about, in the
    registry's words. says: the theorem in a sentence. (Claims: `utfproof.claims.links`.)"""

    name: str
    labels: tuple[str, ...]
    notions: tuple[str, ...]
    targets: tuple[str, ...]
    says: str

    @property
    def file(self) -> str:
        """The file that it stands in, relative to the library."""
        return f"theories/{self.name.partition('.')[0]}.v"


def headlines(folder: Path = PROOFS) -> dict[str, Headline]:
    """The theorems of headlines.toml by name, in its order. ValueError where an entry is doubled or lacks a field."""
    found: dict[str, Headline] = {}
    for entry in tomllib.loads((folder / HEADLINES).read_text(encoding="utf-8"))["theorem"]:
        texts = {key: entry.pop(key, None) for key in ("name", "says")}
        lists = {key: tuple(entry.pop(key, ())) for key in ("labels", "notions", "targets")}
        if entry or None in texts.values() or texts["name"].count(".") != 1:
            raise ValueError(f"headlines.toml: {texts['name']} has {', '.join(entry) or 'a field too few'}")
        if texts["name"] in found:
            raise ValueError(f"headlines.toml: {texts['name']} stands there twice")
        found[texts["name"]] = Headline(texts["name"], says=texts["says"], **{key: lists[key] for key in lists})
    return found


def sources(folder: Path = PROOFS, *, pages: bool = True) -> list[Path]:
    """What a build depends on: the theories, the list of theorems and Coq's options; with pages, what it was compared with."""
    compared = [folder / STATEMENTS, folder / DEFINITIONS] if pages else []
    return [*sorted((folder / "theories").glob("*.v")), folder / HEADLINES, folder / "_CoqProject", *compared]


def digest(folder: Path = PROOFS, *, pages: bool = True) -> str:
    """SHA-256 over names and contents of the sources; a page that is missing counts as empty."""
    contents = ((path, path.read_bytes() if path.is_file() else b"") for path in sources(folder, pages=pages))
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path.name}\n" for path, content in contents]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Standing:
    """Where a theorem stands here. status: CLOSED, ABSENT, OPEN or MISSING; the last two break a claim. detail: why."""

    name: str
    status: str
    detail: str = ""

    @property
    def problem(self) -> str | None:
        """What is wrong, in a line; None where nothing is."""
        if self.status in (CLOSED, ABSENT):
            return None
        return f"theorem {self.name}: {self.status}" + (f": {self.detail}" if self.detail else "")


def standing(names: Sequence[str], folder: Path | None = None) -> list[Standing]:
    """Where these theorems stand, by the compiled results alone."""
    folder = PROOFS if folder is None else folder
    built, why = _results(folder)
    if built is None:
        status = MISSING if why.startswith("unreadable") else ABSENT
        return [Standing(name, status, why) for name in names]
    return [_judge(name, built.get(name)) for name in names]


def _judge(name: str, found: Any) -> Standing:
    if not isinstance(found, dict) or not found.get("statement") or not isinstance(found.get("assumptions"), list):
        return Standing(name, MISSING, "the build has no statement of it")
    assumptions = [str(line) for line in found["assumptions"]]
    return Standing(name, OPEN if assumptions else CLOSED, "; ".join(assumptions)[:200])


@lru_cache(maxsize=8)
def _results(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The compiled theorems by name, or None and the reason."""
    if not (folder / HEADLINES).is_file() or not (folder / RESULTS).is_file():
        return None, ""
    try:
        document = json.loads((folder / RESULTS).read_bytes())
        made_from, theorems = document["sources"], dict(document["theorems"])
    except (ValueError, KeyError, TypeError) as error:
        return None, f"unreadable results ({type(error).__name__}); run make proofs"
    if made_from != digest(folder):
        return None, "the build is of other sources; run make proofs"
    return theorems, ""
