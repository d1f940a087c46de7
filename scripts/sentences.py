"""Sentences of the pages that people read through: at most 35 words each, at most 18 on average.

python scripts/sentences.py [PAGE …]   (README and the guides unless pages are named)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST, MEAN = 35, 18
NOT_GUIDES = ("proofs/", "api/", "certificate-format.md")


def guides() -> list[Path]:
    """README, CONTRIBUTING and the pages of docs/ but proofs, API and format."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    read = [page for page in pages if not str(page.relative_to(ROOT / "docs")).startswith(NOT_GUIDES)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *read]


def sentences(markdown: str) -> list[str]:
    """Sentences outside code, tables and headings; a formula or a piece of code counts as one word."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1`*$", "\n", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#| {4}).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([*-]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = [part for block in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.?!])[)*\"]*\s+", block)]
    return [part.strip() for part in parts if re.search(r"\w", part)]


def faults(name: str, markdown: str) -> list[str]:
    """What is too long on a page, a line each."""
    lengths = {sentence: len(re.findall(r"[\w’'\-./]*\w[\w’'\-./]*", sentence)) for sentence in sentences(markdown)}
    found = [f"{name}: {words} words: {text[:90]}…" for text, words in lengths.items() if words > LONGEST]
    mean = sum(lengths.values()) / max(len(lengths), 1)
    return found + [f"{name}: {mean:.1f} words a sentence, over {MEAN}"] * (mean > MEAN)


def main(named: list[str]) -> int:
    """Print what is too long. Exit code 1 if anything is."""
    pages = [Path(name).resolve() for name in named] or guides()
    found = [line for page in pages for line in faults(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
