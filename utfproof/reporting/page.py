"""A verify document as one self-contained page: no network, no fonts or scripts from elsewhere.

The page is complete without scripts; the script (page.js, inlined and named by its hash in the page's own security
policy) folds, filters, sorts and offers certificates for download, byte for byte as `utfproof check` reads them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from utfproof.claims.theorems import file_of
from utfproof.reporting.certificates import Certificates, certificates_of
from utfproof.reporting.document import (
    CAUTION,
    NOTIONS,
    VERDICTS,
    as_recorded,
    broken_claims,
    claims_of,
    counted,
    figure_text,
    plain,
    problems_of,
    sections_of,
    verdict_counts,
)
from utfproof.reporting.mathematics import formulas

if TYPE_CHECKING:
    from utfproof.reporting.pictures import Picture

COLUMNS = {"place": "Claim", "notion": "Notion", "verdict": "Verdict", "instance": "Instances", "evidence": "Evidence"}
"""Columns of the table: what they sort by, and their heading."""

FILTERS = ("verdict", "notion", "category", "evidence")
NONE = "none"
"""How a claim without a notion is filtered."""

_TOGETHER = "\u00a0=\u00a0"
"""An equals sign that no line breaks at."""

_TIMES = "\u00a0×\u00a0"

_CLASS = {"holds": "holds", "holds after repair": "repaired", "fails as printed": "fails", "open": "open"}
_LINK = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]*(#[A-Za-z0-9_.-]*)?")
"""Proof pages that become links: relative paths and nothing else."""


def escape(value: object) -> str:
    """Text for element content and for quoted attributes."""
    return html.escape(plain(value), quote=True)


def prose(value: object) -> str:
    """Escaped text with its formulas as MathML: M_w, R_V^{l,h}, H^{L/2}, 2^53. What is no plain index stays as it is."""
    return formulas(escape(value))


def html_page(document: dict[str, Any], pictures: Sequence[Picture] = (), *, proofs: str = "") -> str:
    """The page. pictures: what `pictures.draw` returns, for one shape or several. proofs: what to put before a claim's
    proof page to make a link of it ("" leaves it relative to where the page lies).

    Raises MalformedInput for a document without its fields or with a certificate that is not the one its digest names.
    """
    claims = claims_of(document)
    certificates = certificates_of(document)
    state = "all claims as recorded" if as_recorded(document) else "NOT as recorded"
    body = [
        '<a class="skip" href="#_claims">Skip to the claims</a>',
        _header(document, certificates, bool(pictures)),
        "<main>",
        '<section id="_notions" aria-labelledby="_notions-heading"><h2 id="_notions-heading">Notions of universality</h2>'
        f"{notions()}</section>",
        '<section id="_claims" aria-labelledby="_claims-heading"><h2 id="_claims-heading">Claims</h2>',
        _form(claims),
        _table(document, certificates, proofs),
        "</section>",
        _pictures(pictures),
        certificates.section(),
        "</main>",
        f"<footer><p>Grid {escape(document.get('grid', ''))}; {_seconds(document.get('seconds', 0))}. "
        "Certificates are checked with <code>utfproof check</code>, which trusts nothing on this page.</p></footer>",
    ]
    return whole_page(f"utfproof: {counted(len(claims), 'claim')}, {state}", part("page.css"), part("page.js"), body)


def whole_page(title: str, style: str, script: str, body: Sequence[str]) -> str:
    """A page of its own, whose policy lets this style and this script run and nothing else; title and body are markup."""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title}</title>",
            f"<style>{style}</style>\n</head>\n<body>",
            *body,
            f"<script>{script}</script>",
            "</body>\n</html>\n",
        ]
    )


def part(name: str) -> str:
    """The text of a style or a script that stands beside this file."""
    return "\n" + files("utfproof.reporting").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _seconds(value: object) -> str:
    return f"{float(str(value)):.3g} s"


# --- head ---------------------------------------------------------------------------------------------------


def _header(document: dict[str, Any], certificates: Certificates, drawn: bool) -> str:
    claims, broken = claims_of(document), broken_claims(document)
    lead = (
        f"{counted(len(claims), 'claim')} about fixed universal transformers, each decided anew on the grid "
        f"<code>{escape(document.get('grid', ''))}</code> and compared with its recorded verdict."
    )
    if broken:
        items = "".join(
            f'<li><a href="{_href(claim)}"><code>{escape(claim["id"])}</code></a> {escape(problems_of(claim)[0])}</li>'
            for claim in broken
        )
        found = f'<div class="alarm" role="note"><p><strong>{len(broken)} not as recorded.</strong></p><ul>{items}</ul></div>'
    elif as_recorded(document):
        found = f'<p class="agreed">{"Every claim is" if claims else "Nothing was examined; nothing is not"} as recorded.</p>'
    else:
        found = '<div class="alarm" role="note"><p><strong>The run as a whole is not as recorded.</strong></p></div>'
    return (
        '<header><p class="eyebrow">utfproof verify</p><h1>What holds, and what was found</h1>'
        f'<p class="lead">{lead}</p>{found}{tally(document, {"certificates": len(certificates)})}'
        f"{_contents(drawn, certificates)}</header>"
    )


def tally(document: dict[str, Any], more: Mapping[str, int]) -> str:
    """How many claims have each verdict, and more counts."""
    cells = [
        f'<div><dt class="verdict {_CLASS.get(name, "other")}">{escape(name)}</dt><dd>{count}</dd></div>'
        for name, count in verdict_counts(document).items()
    ]
    cells += [f"<div><dt>{name}</dt><dd>{count}</dd></div>" for name, count in more.items()]
    return f'<dl class="tally">{"".join(cells)}</dl>'


def _contents(drawn: bool, certificates: Certificates) -> str:
    entries = {"_notions": "Notions", "_claims": "Claims"}
    if drawn:
        entries["_pictures"] = "Hosts in pictures"
    if len(certificates):
        entries["_certificates"] = "Certificates"
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title in entries.items())
    return f'<nav aria-label="Contents">{links}</nav>'


def notions() -> str:
    """Each notion in a line, and what must not be mixed up."""
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{prose(line)}</dd>" for name, line in NOTIONS.items())
    return f'<p class="caution">{escape(CAUTION)}</p><dl class="notions">{entries}</dl>'


# --- claims -------------------------------------------------------------------------------------------------


def _values(claim: dict[str, Any], name: str) -> list[str]:
    """What a claim is filtered by; several for evidence."""
    value = claim[name]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return [NONE if value is None else plain(value)]


def _form(claims: list[dict[str, Any]]) -> str:
    known = {"verdict": list(VERDICTS), "notion": list(NOTIONS)}
    fields = []
    for name in FILTERS:
        counts: dict[str, int] = dict.fromkeys(known.get(name, []), 0)
        for claim in claims:
            for value in dict.fromkeys(_values(claim, name)):
                counts[value] = counts.get(value, 0) + 1
        options = "".join(
            f'<option value="{escape(value)}">{escape(value)} ({count})</option>'
            for value, count in counts.items()
            if count
        )
        fields.append(
            f'<label for="_{name}"><span>{name.capitalize()}</span><select id="_{name}" data-filter="{name}">'
            f'<option value="">any</option>{options}</select></label>'
        )
    orders = "".join(f'<option value="{key}">{escape(title)}</option>' for key, title in _ORDERS.items())
    broken = sum(1 for claim in claims if problems_of(claim))
    return (
        '<form class="filters" role="search" aria-label="Filter the claims">'
        '<label for="_search" class="wide"><span>Search</span>'
        '<input id="_search" type="search" autocomplete="off" spellcheck="false" '
        'placeholder="words in any part of a claim"></label>'
        f'{"".join(fields)}<label for="_sort"><span>Order</span><select id="_sort">{orders}</select></label>'
        f'<label for="_broken" class="check"><input id="_broken" type="checkbox"> only those not as recorded ({broken})</label>'
        '<div class="actions"><button type="reset">Clear</button>'
        '<button type="button" id="_open-all">Open all shown</button>'
        '<button type="button" id="_close-all">Close all</button></div></form>'
        f'<p id="_count" role="status" aria-live="polite">{counted(len(claims), "claim")}</p>'
    )


_ORDERS = {"": "of the paper"} | {
    f"{name}{suffix}": f"{'id' if name == 'place' else title.lower()}, {way}"
    for name, title in COLUMNS.items()
    for suffix, way in (("+", "ascending"), ("-", "descending"))
}


def _table(document: dict[str, Any], certificates: Certificates, proofs: str) -> str:
    head = "".join(f'<th scope="col" data-sort="{name}">{title}</th>' for name, title in COLUMNS.items())
    parts = [
        f'<table class="claims"><caption class="hidden">Claims by section, with verdict and evidence</caption>'
        f"<thead><tr>{head}</tr></thead>"
    ]
    for section, claims in sections_of(document).items():
        parts.append(
            f'<tbody class="section"><tr><th scope="rowgroup" colspan="{len(COLUMNS)}">{escape(section)} '
            f'<span class="quiet">{len(claims)}</span></th></tr></tbody>'
        )
        parts += [_claim(claim, certificates, proofs) for claim in claims]
    return "\n".join([*parts, "</table>"])


def _href(claim: dict[str, Any]) -> str:
    return escape("#" + quote(plain(claim["id"]), safe="/:"))


def _claim(claim: dict[str, Any], certificates: Certificates, proofs: str) -> str:
    problems = problems_of(claim)
    data = "".join(f' data-{name}="{escape(chr(10).join(_values(claim, name)))}"' for name in FILTERS)
    broken = " broken" if problems else ""
    cells = [
        f'<td class="what"><span class="id"><button type="button" class="toggle"><code>{escape(claim["id"])}</code></button> '
        f'<a class="permalink" href="{_href(claim)}" aria-label="Link to {escape(claim["id"])}">#</a></span>'
        f'<span class="statement">{prose(claim["statement"])}</span></td>',
        f'<td data-label="Notion">{escape(claim["notion"] or "–")}</td>',
        f'<td data-label="Verdict">{verdict(claim)}</td>',
        f'<td data-label="Instances" class="at">{_instances_in_short(claim)}</td>',
        f'<td data-label="Evidence" class="quiet">{escape(", ".join(_values(claim, "evidence")))}</td>',
    ]
    return (
        f'<tbody class="claim{broken}" id="{escape(claim["id"])}"{data}><tr class="summary">{"".join(cells)}</tr>'
        f'<tr class="evidence"><td colspan="{len(COLUMNS)}">{_evidence(claim, certificates, proofs)}</td></tr></tbody>'
    )


def _mark(verdict: object) -> str:
    return f'<span class="verdict {_CLASS.get(str(verdict), "other")}">{escape(verdict)}</span>'


def verdict(claim: dict[str, Any]) -> str:
    """The verdict, with a word where it is not as recorded."""
    broken = '<strong class="verdict wrong">not as recorded</strong> ' if problems_of(claim) else ""
    return broken + _mark(claim["verdict"])


def _instances_in_short(claim: dict[str, Any]) -> str:
    lines = [
        f'<span class="line">{word} {escape(claim[name]).replace(" = ", _TOGETHER)}</span>'
        for name, word in (("smallest", "holds at"), ("counterexample", "fails at"))
        if claim[name] is not None
    ]
    return "".join(lines) or "–"


def _evidence(claim: dict[str, Any], certificates: Certificates, proofs: str) -> str:
    parts = []
    problems = problems_of(claim)
    if problems:
        parts.append(f'<div class="alarm"><p><strong>Not as recorded</strong></p>{_list(problems)}</div>')
    parts.append(f'<p class="sentence">{prose(claim["sentence"])}</p>')
    facts = [
        ("Where", escape(claim["place"])),
        ("Scope", prose(claim["scope"])),
        ("Targets", prose(claim["targets"] or "")),
        ("Category", escape(claim["category"])),
        ("Recorded", _mark(claim["recorded"]) if problems else ""),
        ("Proof", _proof(claim["proof"], proofs)),
        ("Theorems", _theorems(claim, proofs)),
        ("Not in the theorems", prose(claim["theorems_lack"] or "")),
        ("Time", _seconds(claim["seconds"])),
    ]
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts if value)
    parts.append(f'<dl class="facts">{rows}</dl>')
    if claim["figures"]:
        figures = "".join(
            f'<tr><th scope="row">{prose(name)}</th><td>{escape(figure_text(value))}</td></tr>'
            for name, value in claim["figures"].items()
        )
        table = f'<table class="figures"><caption>Figures</caption><tbody>{figures}</tbody></table>'
        parts.append(scrolling("Figures", table))
    if claim["instances"]:
        parts.append(scrolling("Instances", _instances(claim["instances"], certificates), "scroll long"))
    return "".join(parts)


def _list(lines: Iterable[object]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def scrolling(name: str, content: str, kind: str = "scroll") -> str:
    """Wide content scrolls by itself, for the keyboard too; the page never does sideways."""
    return f'<div class="{kind}" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>'


def _proof(proof: object, proofs: str) -> str:
    if not proof:
        return ""
    if not _LINK.fullmatch(str(proof)):
        return escape(proof)
    return f'<a href="{escape(proofs + str(proof))}">{escape(proof)}</a>'


def _theorems(claim: dict[str, Any], proofs: str) -> str:
    """Each theorem with a link to its file, and where it stands here."""
    lines = []
    for theorem in claim["theorems"]:
        file = f"proofs/{file_of(str(theorem['name']))}"
        name = f"<code>{escape(theorem['name'])}</code>"
        if _LINK.fullmatch(file):
            name = f'<a href="{escape(proofs + file)}">{name}</a>'
        detail = f" ({escape(theorem['detail'])})" if theorem.get("detail") else ""
        lines.append(f'<span class="line">{name} {escape(theorem["status"])}{detail}</span>')
    return "".join(lines)


def _instances(instances: list[dict[str, Any]], certificates: Certificates) -> str:
    rows = []
    for found in instances:
        part = f' <span class="quiet">{escape(found["part"])}</span>' if found.get("part") else ""
        outcome = str(found["outcome"])
        kind = {"holds": "holds", "fails": "fails"}.get(outcome, "open")
        rows.append(
            f"<tr><td>{escape(found['at'])}{part}</td>"
            f'<td><span class="verdict {kind}">{escape(outcome)}</span></td>'
            f"<td>{prose(found['detail'])}</td><td>{certificates.link(found.get('certificate'))}</td>"
            f'<td class="quiet">{escape(", ".join(map(str, found.get("routes") or ())))}</td></tr>'
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("At", "Outcome", "Detail", "Certificate", "Routes"))
    return (
        f'<table class="instances"><caption>{counted(len(instances), "instance")}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


# --- pictures -----------------------------------------------------------------------------------------------


def _pictures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    groups: dict[tuple[str, str], list[Picture]] = {}
    for picture in pictures:
        groups.setdefault((f"{picture.shape}", picture.construction), []).append(picture)
    selects = []
    for name, index in (("shape", 0), ("construction", 1)):
        values = dict.fromkeys(key[index] for key in groups)
        options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
        selects.append(
            f'<label for="_{name}"><span>{name.capitalize()}</span><select id="_{name}">{options}</select></label>'
        )
    parts = [
        '<section id="_pictures" aria-labelledby="_pictures-heading"><h2 id="_pictures-heading">Hosts in pictures</h2>'
        "<p>Drawn from the matrices themselves. Heads count from 0, layers from 1; colour says what a coordinate of E "
        f'holds.</p><form class="filters" aria-label="Choose the pictures">{"".join(selects)}</form>'
        '<p id="_no-picture" role="status" hidden>This construction is not drawn at this shape.</p>'
    ]
    for (shape, name), members in groups.items():
        rows: dict[str, list[str]] = {}
        for picture in members:
            rows.setdefault(picture.name.split("^")[0].split(",")[0], []).append(_figure(picture))
        figures = "".join(f'<div class="figures">{"".join(row)}</div>' for row in rows.values())
        parts.append(
            f'<div class="host" data-shape="{escape(shape)}" data-construction="{escape(name)}">'
            f"<h3><code>{escape(name)}</code> at {prose(shape)}, m = {members[0].m}</h3>"
            f"{figures}</div>"
        )
    return "\n".join([*parts, "</section>"])


def _figure(picture: Picture) -> str:
    caption = prose(picture.caption.replace(" × ", _TIMES))
    return (
        f'<figure class="{escape(picture.part)}"><figcaption><strong>{prose(picture.name)}</strong> {caption}'
        f"</figcaption>{scrolling(picture.name, picture.svg)}</figure>"
    )
