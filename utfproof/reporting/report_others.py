"""The report's part about what has no chart: certificates, sweeps, and what other commands printed, a line each."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.reporting.certificate_forms import CERTIFICATES
from utfproof.reporting.document import counted, plain
from utfproof.reporting.documents import COMMANDS
from utfproof.reporting.forms import conform
from utfproof.reporting.page import escape
from utfproof.reporting.report_parts import Markup, Section, paragraph, shape_text, table

FEWEST = 2
"""Fields that a document shares with what a command prints, at least, before it is taken for that."""
_SAYS = ("verdict", "outcome", "result", "says", "holds", "least_m", "finished", "jobs", "file", "page")
"""What a line tells of a document: the first of these that it has."""


def command_of(document: dict[str, Any]) -> str | None:
    """The command that prints such a document: all its fields are that command's, none that it always has is missing."""
    found = []
    for name, form in COMMANDS.items():
        known = {field.rstrip("?") for field in form}
        needed = {field for field in form if not field.endswith("?")}
        if len(document) >= FEWEST and document.keys() <= known and needed <= document.keys() and _fits(document, form):
            found.append((len(needed), name))
    return max(found)[1] if found else None


def is_certificate(document: dict[str, Any]) -> bool:
    """Whether a document has the form of a certificate of its kind; whether it is valid is the checker's business."""
    form = CERTIFICATES.get(str(document.get("kind")))
    return document.get("format") == "utfproof-certificate" and form is not None and _fits(document, form)


def jobs_of(data: bytes) -> list[dict[str, Any]] | None:
    """The lines of a sweep's results.jsonl; None where they are something else."""
    form = {"key": str, "job": {"command": str}, "result": {}}
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    return lines if lines and all(_fits(line, form) for line in lines) else None


def _fits(document: Any, form: Any) -> bool:
    try:
        conform(document, form, "")
    except MalformedInput:
        return False
    return True


def others_section(certificates: list[Any], sweeps: list[Any], outputs: list[Any]) -> Section | None:
    """The section of these files (name and document each), None without any."""
    if not certificates and not sweeps and not outputs:
        return None
    body, lines = "", []
    if certificates:
        body += table(f"Certificates: {counted(len(certificates), 'file')}", ("file", "kind", "what it says", "shape"),
                      [_certificate(source) for source in certificates], long=True)  # fmt: skip
        body += paragraph(
            "What a certificate says holds where utfproof check accepts it; this page has not checked it."
        )
        lines.append((True, f"{counted(len(certificates), 'certificate')}, to be checked with utfproof check"))
    for source in sweeps:
        counts = Counter((job["job"]["command"], _told(job["result"])) for job in source.document)
        rows = [(command, told, count) for (command, told), count in sorted(counts.items())]
        body += table(
            f"{plain(source.name)}: {counted(len(source.document), 'job')}", ("command", "result", "jobs"), rows
        )
        lines.append((True, f"a sweep of {counted(len(source.document), 'job')}"))
    if outputs:
        told = [(_code(source.name), f"utfproof {command_of(source.document)}", _told(source.document), _shape(source.document))
                for source in outputs]  # fmt: skip
        body += table(
            f"What commands printed: {counted(len(outputs), 'file')}", ("file", "command", "it says", "shape"), told
        )
        lines.append((True, f"{counted(len(outputs), 'output')} of single commands"))
    return Section("others", "Certificates, sweeps and single results", body, tuple(lines))


def _code(name: str) -> Markup:
    return Markup(f"<code>{escape(name)}</code>")


def _certificate(source: Any) -> tuple[Any, ...]:
    document = source.document
    claim = document["claim"]
    return (
        _code(source.name),
        document["kind"],
        f"{claim['verdict']}, {claim['notion']}, {claim['targets']}",
        _shape(document),
    )


def _told(document: dict[str, Any]) -> str:
    name = next((name for name in _SAYS if name in document), None)
    if name is None:
        return "–"
    value = document[name]
    said = str(value).lower() if isinstance(value, bool) else plain(value)
    return said if name in _SAYS[:4] else f"{name.replace('_', ' ')}: {said}"


def _shape(document: dict[str, Any]) -> str:
    shape = document.get("shape")
    if not isinstance(shape, dict) or "d_out" not in shape:
        return "–"
    return shape_text(shape) + (f", m = {shape['m']}" if "m" in shape else "")
