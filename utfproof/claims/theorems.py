"""What this checkout knows of the theorems in proofs/: which of them are compiled, and what each rests on.

`make proofs` compiles the Coq library, asks Coq what every headline theorem rests on, and leaves the answer in
proofs/build/assumptions.json with a digest of the sources and of the statements and definitions that it was compared with. A
theorem counts as machine-checked only by that answer: a name in the registry proves nothing. Where there is no answer for
these sources, the theorem is "not built here". proofs/softmax is a library of its own, upon the other: its theorems may rest
on the axioms of mathcomp-analysis, and on no other. Standard library only, because proofs/check.py uses this file too.
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

SOFTMAX = "softmax"
"""The folder of the library with the real exponential; its files are named after it."""
AXIOMS = (
    "boolp.constructive_indefinite_description : forall (A : Type) (P : A -> Prop), (exists x : A, P x) -> {x : A | P x}",
    "boolp.functional_extensionality_dep : forall (A : Type) (B : A -> Type) (f g : forall x : A, B x), "
    "(forall x : A, f x = g x) -> f = g",
    "boolp.propositional_extensionality : forall P Q : Prop, P <-> Q -> P = Q",
)
"""Those of mathcomp-analysis, as Print Assumptions says them."""

MACHINE = "machine-checked proof"
"""The name of this evidence."""
BUILT, STATED = f"{MACHINE}, built here from these sources", "stated in Coq, not built here"
BROKEN = "theorems that do not stand"
"""What it is in a run: the theorems are compiled here, or not, or one of them is not what it should be."""

CLOSED = "closed under the global context"
"""Coq's words for a theorem that rests on no axiom."""
DECLARED = "upon the axioms of mathcomp-analysis alone"
CHECKED = (CLOSED, DECLARED)
"""Where a theorem is machine-checked."""
ABSENT = "not built here"
SOUND = (*CHECKED, ABSENT)
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
        """The file that it stands in, relative to proofs/."""
        return file_of(self.name)


def file_of(name: str) -> str:
    """The file of a theorem, File.name, relative to proofs/."""
    file = name.partition(".")[0]
    return f"{SOFTMAX}/theories/{file}.v" if file.lower().startswith(SOFTMAX) else f"theories/{file}.v"


def libraries(folder: Path = PROOFS) -> list[Path]:
    """The library in a folder, and the one upon it, if there is one."""
    upon = folder / SOFTMAX
    return [folder, upon] if (upon / HEADLINES).is_file() else [folder]


def allowed(folder: Path) -> tuple[str, ...]:
    """The axioms that the theorems of a library may rest on."""
    return AXIOMS if folder.name == SOFTMAX else ()


def headlines(folder: Path = PROOFS) -> dict[str, Headline]:
    """The theorems of a library's headlines.toml by name, in order. ValueError where one is double or lacks a field."""
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


def all_headlines(folder: Path = PROOFS) -> dict[str, Headline]:
    """Those of both libraries."""
    return {name: entry for library in libraries(folder) for name, entry in headlines(library).items()}


def sources(folder: Path = PROOFS, *, pages: bool = True) -> list[Path]:
    """What a build depends on: the theories, the list of theorems and Coq's options; with pages, what it was compared with;
    and all of the library below."""
    below = sources(folder.parent, pages=pages) if folder.name == SOFTMAX else []
    compared = [folder / STATEMENTS, folder / DEFINITIONS] if pages else []
    own = [*sorted((folder / "theories").glob("*.v")), folder / HEADLINES, folder / "_CoqProject"]
    return [*below, *own, *compared]


def digest(folder: Path = PROOFS, *, pages: bool = True) -> str:
    """SHA-256 over names and contents of the sources; a page that is missing counts as empty."""
    contents = ((path, path.read_bytes() if path.is_file() else b"") for path in sources(folder, pages=pages))
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path.name}\n" for path, content in contents]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Standing:
    """The state of a theorem here. status: CLOSED, DECLARED, ABSENT, OPEN or MISSING (the last two break a claim)."""

    name: str
    status: str
    detail: str = ""

    @property
    def problem(self) -> str | None:
        """What is wrong, in a line; None where nothing is."""
        if self.status in SOUND:
            return None
        return f"theorem {self.name}: {self.status}" + (f": {self.detail}" if self.detail else "")


def standing(names: Sequence[str], folder: Path | None = None) -> list[Standing]:
    """Where these theorems stand, by the compiled results alone."""
    return [_judge(name, ((PROOFS if folder is None else folder) / file_of(name)).parents[1]) for name in names]


def _judge(name: str, library: Path) -> Standing:
    built, why = _results(library)
    if built is None:
        return Standing(name, MISSING if why.startswith("unreadable") else ABSENT, why)
    found = built.get(name)
    if not isinstance(found, dict) or not found.get("statement") or not isinstance(found.get("assumptions"), list):
        return Standing(name, MISSING, "the build has no statement of it")
    rests = [str(line) for line in found["assumptions"]]
    if not rests or set(rests) <= set(allowed(library)):
        return Standing(name, DECLARED if rests else CLOSED)
    return Standing(name, OPEN, "; ".join(rests)[:200])


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
