"""The report's part about verify documents: every claim as a square, and the claims that are not simply so, in words."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.forms import Each, conform
from utfproof.reporting.certificates import certificates_of
from utfproof.reporting.document import (
    NOTIONS,
    VERDICTS,
    claims_of,
    counted,
    machine_checked,
    plain,
    problems_of,
    sections_of,
    summary,
    verdict_counts,
)
from utfproof.reporting.documents import VERIFIED
from utfproof.reporting.page import _CLASS, escape, notions, prose, tally, verdict
from utfproof.reporting.report_parts import Markup, Section, alarm, folded, paragraph, table
from utfproof.reporting.report_read import Source, refuse
from utfproof.reporting.svg import svg

CELL, ACROSS = 15, 22
"""Side of a claim's square, and squares in a row."""


def check(source: Source) -> None:
    """MalformedInput unless the document is whole and says one thing: claims agree exactly where nothing speaks against them,
    the run holds exactly where all agree, no claim occurs twice, and certificates have the digests that name them."""
    document = source.document
    # what certificates hold is the business of the checker
    conform(document, {**VERIFIED, "certificates?": Each({})}, source.name)
    for claim in claims_of(document):
        against = problems_of({**claim, "agrees": True})  # what speaks against it but its own word
        if claim["agrees"] == bool(against):
            state = "agrees" if claim["agrees"] else "does not agree"
            why = against[0] if against else "nothing speaks against it"
            refuse(source.name, f"claim {plain(claim['id'])[:80]} {state}, but {plain(why)[:160]}")
    if document["holds"] != all(claim["agrees"] for claim in document["claims"]):
        refuse(source.name, f"holds is {str(document['holds']).lower()}, and the claims say otherwise")
    twice = [name for name, count in Counter(claim["id"] for claim in document["claims"]).items() if count > 1]
    if twice:
        refuse(source.name, f"claim {plain(twice[0])[:80]} occurs twice")
    certificates_of(document)


def check_together(sources: Sequence[Source]) -> None:
    """MalformedInput where two documents give one claim different verdicts."""
    seen: dict[str, tuple[str, str]] = {}
    for source in sources:
        for claim in source.document["claims"]:
            verdict, where = seen.setdefault(claim["id"], (claim["verdict"], source.name))
            if verdict != claim["verdict"]:
                raise MalformedInput(
                    f"{where} and {source.name} contradict each other: claim {plain(claim['id'])[:80]} is {verdict!r} in "
                    f"one and {claim['verdict']!r} in the other; keep one of them"
                )


def verify_section(sources: Sequence[Source]) -> Section | None:
    """The section, None without such documents."""
    if not sources:
        return None
    for source in sources:
        check(source)
    check_together(sources)
    lines, body = [], [notions()]
    for source in sources:
        document = source.document
        lines.append((bool(document["holds"]), "; ".join(summary(document))))
        body.append(_one(source))
    return Section("claims", "What holds", "".join(body), tuple(lines))


def _one(source: Source) -> str:
    document = source.document
    claims = document["claims"]
    broken = [f"{claim['id']}: {problems_of(claim)[0]}" for claim in claims if problems_of(claim)]
    checked = sum(machine_checked(claim) for claim in claims)
    counts = {"with machine-checked theorems": checked, "certificates": len(document.get("certificates") or {})}
    return (
        f"<h3>{escape(source.name)}</h3>"
        + paragraph(f"{counted(len(claims), 'claim')} decided on the grid {document['grid']}. A square is a claim.")
        + alarm([f"Not as recorded: {line}" for line in broken])
        + tally(document, counts)
        + _overview(document)
        + _by_notion(claims)
        + "".join(_listed(claims, verdict) for verdict in ("fails as printed", "holds after repair", "open", "holds"))
    )


def _listed(claims: list[dict[str, Any]], verdict: str) -> str:
    """The claims of one verdict; those that fail stand open."""
    members = [claim for claim in claims if claim["verdict"] == verdict]
    if not members:
        return ""
    shown = table(f"Claims: {verdict}", _HEAD, map(_row, members), long=True)
    return folded(f"{verdict}: {counted(len(members), 'claim')}", shown, shown=verdict == "fails as printed")


_HEAD = ("claim", "verdict", "notion", "what was found", "where")


def _row(claim: dict[str, Any]) -> tuple[object, ...]:
    where = [
        f"{word} {claim[key]}" for key, word in (("smallest", "holds at"), ("counterexample", "fails at")) if claim[key]
    ]
    return (
        Markup(f"<code>{escape(claim['id'])}</code>"),
        Markup(verdict(claim)),
        claim["notion"] or "–",
        Markup(
            f'<span class="line">{prose(claim["statement"])}</span><span class="quiet">{prose(claim["sentence"])}</span>'
        ),
        "; ".join(where) or "–",
    )


# --- squares -------------------------------------------------------------------------------------------------


def _overview(document: dict[str, Any]) -> str:
    rows = []
    for name, claims in sections_of(document).items():
        said = verdict_counts({"claims": claims})
        text = ", ".join(f"{count} {verdict}" for verdict, count in said.items() if count)
        rows.append(
            f'<div class="row"><dt>{prose(name)} <span class="quiet">{len(claims)}</span></dt>'
            f"<dd>{squares(claims, f'{plain(name)}: {text}')}</dd></div>"
        )
    key = "".join(
        f'<li><svg class="swatch" aria-hidden="true" viewBox="0 0 {CELL} {CELL}" width="{CELL}" height="{CELL}">'
        f"{_square(0, 0, verdict, '', False)}</svg><span>{verdict}</span></li>"
        for verdict in VERDICTS
    )
    return (
        f'<figure class="chart squares"><figcaption>Verdicts by section of the paper</figcaption>'
        f'<ul class="legend">{key}</ul><dl class="squares">{"".join(rows)}</dl></figure>'
    )


def squares(claims: Sequence[dict[str, Any]], title: str) -> str:
    """A square for each claim, told apart by form as well as by colour; framed where it is not as recorded."""
    body = []
    for index, claim in enumerate(claims):
        x, y = index % ACROSS * CELL, index // ACROSS * CELL
        body.append(
            _square(x, y, claim["verdict"], f"{plain(claim['id'])}: {claim['verdict']}", bool(problems_of(claim)))
        )
    across, down = min(len(claims), ACROSS), -(-len(claims) // ACROSS)
    return svg(max(across, 1) * CELL, max(down, 1) * CELL, title, body)


def _square(x: int, y: int, verdict: str, title: str, broken: bool) -> str:
    left, top, side = x + 1.5, y + 1.5, CELL - 3
    box = f'x="{left}" y="{top}" width="{side}" height="{side}"'
    inner = {
        "holds": f'<rect {box} fill="currentColor"/>',
        "holds after repair": f'<rect {box} fill="none" stroke="currentColor" stroke-width="1.4"/>'
        f'<path d="M{left} {top}v{side}h{side}z" fill="currentColor"/>',
        "fails as printed": f'<path d="M{left + 1} {top + 1}l{side - 2} {side - 2}m0 -{side - 2}l-{side - 2} {side - 2}" '
        'stroke="currentColor" stroke-width="2.6" fill="none"/>',
        "open": f'<rect {box} fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.5 1.7"/>',
    }[verdict]
    whole = f'x="{x}" y="{y}" width="{CELL}" height="{CELL}"'
    frame = f'<rect class="wrong" {whole} fill="none" stroke="currentColor" stroke-width="2"/>'
    told = f"<title>{html.escape(title)}{' (NOT as recorded)' * broken}</title>" if title else ""
    return f'<g class="{_CLASS[verdict]}">{told}{inner}{frame if broken else ""}</g>'


def _by_notion(claims: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys([*(n for n in NOTIONS), *(c["notion"] or "no notion" for c in claims)]))
    found = Counter((claim["notion"] or "no notion", claim["verdict"]) for claim in claims)
    rows = [(name, *(found[name, verdict] for verdict in VERDICTS)) for name in names]
    return table("Claims by notion of universality", ("notion", *VERDICTS), rows)
