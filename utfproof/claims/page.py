"""What docs/claims.md says of a claim: written from the record by scripts/write_claims.py, and held against it by every run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from utfproof.claims.record import Claim

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
"""Of a checkout; an installed package has none."""


def cell(text: str) -> str:
    """Text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def words(claim: Claim) -> list[str]:
    """The words of the record as the page has them: name, statement, what it is about, verdict."""
    about = "–" if claim.about is None else str(claim.about)
    about = claim.targets if claim.about is None and claim.targets else about
    verdict = f"**{claim.verdict.value}**. {claim.sentence}"
    return [cell(text) for text in (f"`{claim.id}`", f"{claim.statement} *Scope:* {claim.scope}.", about, verdict)]


@lru_cache(maxsize=1)
def _lines() -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    return {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}


def problems(claim: Claim) -> Iterator[str]:
    """Where the page says something else of a claim that it has."""
    line = _lines().get(claim.id)
    if line is not None and not line.startswith("| " + " | ".join(words(claim)) + " |"):
        yield "docs/claims.md says something else of it (python scripts/write_claims.py)"
