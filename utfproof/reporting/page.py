"""HTML pages by Jinja2 templates. Every text is escaped; a page loads nothing and works without its script."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from utfproof.reporting.document import (
    CAUTION,
    NOTIONS,
    VERDICTS,
    figure_text,
    plain,
    sections_of,
    summary,
    theorem_lines,
    verdict_counts,
)
from utfproof.reporting.mathematics import formulas

CLASSES = {"holds": "holds", "holds after repair": "repaired", "fails as printed": "fails", "open": "open"}
"""CSS class of each verdict."""
MOST_SHOWN = 20_000
"""Characters of a certificate that the page shows; larger ones are named by their digest."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with the filters that they use."""
    made = Environment(
        loader=PackageLoader("utfproof.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    made.filters |= {"prose": prose, "value": figure_text, "one_line": plain}
    made.globals |= {"verdict_class": lambda verdict: CLASSES.get(str(verdict), "other")}
    return made


def prose(text: object) -> Markup:
    """Escaped text with its indices set as MathML."""
    return Markup(formulas(str(escape(plain(text)))))


def render(template: str, **context: Any) -> str:
    """A whole page. Only the page's own script may run."""
    made = environment()
    script = made.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = made.get_template("style.css").render()
    return made.get_template(template).render(
        style=Markup(style), script=Markup(script), script_digest=digest, **context
    )


def html_page(document: dict[str, Any]) -> str:
    """The claims of a verify document on one page that can be searched and filtered."""
    certificates = {
        digest: json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for digest, content in (document.get("certificates") or {}).items()
    }
    shown = {digest: text for digest, text in certificates.items() if len(text) <= MOST_SHOWN}
    return render(
        "claims.html",
        document=document,
        summary=summary(document),
        fine=document["holds"],
        broken=[claim for claim in document["claims"] if claim["problems"]],
        counts=verdict_counts(document),
        sections=sections_of(document),
        choices=choices(document),
        theorem_lines=theorem_lines,
        notions=NOTIONS,
        caution=CAUTION,
        certificates=shown,
        left_out=len(certificates) - len(shown),
    )


def choices(document: dict[str, Any]) -> dict[str, list[str]]:
    """Values that claims can be filtered by."""
    claims = document["claims"]
    found = {str(claim["notion"] or "none") for claim in claims}
    return {
        "verdict": [name for name in VERDICTS if any(claim["verdict"] == name for claim in claims)],
        "notion": [name for name in (*NOTIONS, "none") if name in found],
        "evidence": sorted({str(kind) for claim in claims for kind in claim["evidence"]}),
    }
