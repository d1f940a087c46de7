"""The report's part about what has no chart: certificates, sweeps, and what other commands printed, a line each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from utfproof.certificates.forms import CERTIFICATES
from utfproof.errors import MalformedInput
from utfproof.ground.forms import NUMBER, Either, conform
from utfproof.reporting.document import counted, plain
from utfproof.reporting.documents import COMMANDS
from utfproof.reporting.page import escape
from utfproof.reporting.report_parts import Markup, Section, paragraph, shape_text, table

FEWEST = 2
"""Fields that a document shares with what a command prints, at least, before it is taken for that."""
_SAYS = ("verdict", "outcome", "result", "says", "holds", "least_m", "finished", "jobs", "file", "page")
"""What a line tells of a document: the first of these that it has."""


def command_of(document: dict[str, Any], forms: Mapping[str, Any] = COMMANDS) -> str | None:
    """The command that prints such a document: all its fields are that command's, none that it always has is missing."""
    found = []
    choices = (
        (name, one) for name, form in forms.items() for one in (form.forms if isinstance(form, Either) else [form])
    )
    for name, form in choices:
        known = {field.rstrip("?") for field in form}
        needed = {field for field in form if not field.endswith("?")}
        if len(document) >= FEWEST and document.keys() <= known and needed <= document.keys() and _fits(document, form):
            found.append((len(needed), name))
    return max(found)[1] if found else None


def is_certificate(document: dict[str, Any]) -> bool:
    """Whether a document has the form of a certificate of its kind; whether it is valid is the checker's business."""
    form = CERTIFICATES.get(str(document.get("kind")))
    return document.get("format") == "utfproof-certificate" and form is not None and _fits(document, form)


_JOB = {"key": str, "job": {"command": str}}
_LINES = {
    "sweep": {**_JOB, "result": {}},
    "sweep-failures": {**_JOB, "reason": str},
    "sweep-jobs": _JOB,
    "sweep-times": {"key": str, "seconds": NUMBER, "worker": str},
}
"""Files of a sweep by the form of their lines, the most special first."""


def lines_of(data: bytes) -> tuple[str, list[dict[str, Any]]] | None:
    """Which of a sweep's files of lines this is, and its lines; None where they are something else."""
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    kinds = (kind for kind, form in _LINES.items() if lines and all(_fits(line, form) for line in lines))
    found = next(kinds, None)
    return None if found is None else (found, lines)


def sweep_file(document: dict[str, Any]) -> str | None:
    """Whether a document is a sweep's head, or the result of one job."""
    if document.get("format") == "utfproof-sweep":
        return "sweep-head" if _fits(document, {"name": str}) else None
    return "sweep-result" if _fits(document, {**_LINES["sweep"], "files": [{"file": str}]}) else None


def _fits(document: Any, form: Any) -> bool:
    try:
        conform(document, form, "")
    except MalformedInput:
        return False
    return True


def others_section(of: Callable[[str], list[Any]], forms: Mapping[str, Any] = COMMANDS) -> Section | None:
    """The section of what has no chart, None without any; `of`: the files of a kind; forms: of what commands print."""
    certificates, outputs = of("certificate"), of("output")
    body, lines = _sweeps(of)
    if certificates:
        body += table(f"Certificates: {counted(len(certificates), 'file')}", ("file", "kind", "what it says", "shape"),
                      [_certificate(source) for source in certificates], long=True)  # fmt: skip
        body += paragraph(
            "What a certificate says holds where utfproof check accepts it; this page has not checked it."
        )
        lines.append((True, f"{counted(len(certificates), 'certificate')}, to be checked with utfproof check"))
    if outputs:
        told = [
            (
                _code(source.name),
                f"utfproof {command_of(source.document, forms)}",
                _told(source.document),
                _shape(source.document),
            )
            for source in outputs
        ]
        body += table(
            f"What commands printed: {counted(len(outputs), 'file')}", ("file", "command", "it says", "shape"), told
        )
        lines.append((True, f"{counted(len(outputs), 'output')} of single commands"))
        lines += [
            (False, f"{plain(source.name)}: a check found {_told(source.document)}")
            for source in outputs
            if source.document.get("exit_code")
        ]
    if not lines:
        return None
    return Section("others", "Certificates, sweeps and single results", body, tuple(lines))


def _sweeps(of: Callable[[str], list[Any]]) -> tuple[str, list[tuple[bool, str]]]:
    """Tables and lines of sweeps: gathered results, those of single jobs that are not among them, and what has none.
    MalformedInput where a job has two results."""
    body, lines = "", []
    results: dict[str, Any] = {}
    for source in of("sweep"):
        body += _jobs(plain(source.name), source.document)
        lines.append((True, f"a sweep of {counted(len(source.document), 'job')}"))
        results |= {job["key"]: job["result"] for job in source.document}
    gathered, single = set(results), {}
    for source in of("sweep-result"):
        key, result = source.document["key"], source.document["result"]
        if results.setdefault(key, result) != result:
            raise MalformedInput(f"{source.name} contradicts another file's result of the same job; make them again")
        single[key] = source.document
    left = [job for key, job in single.items() if key not in gathered]
    if left:
        body += _jobs("Results of a sweep that is not gathered yet", left)
        lines.append((True, f"{counted(len(left), 'result')} of single jobs of a sweep"))
    for source in of("sweep-jobs"):
        have = sum(job["key"] in results for job in source.document)
        lines.append((True, f"{have} of the {counted(len(source.document), 'job')} in {source.name} have a result"))
    for source in of("sweep-failures"):
        reason = plain(source.document[0]["reason"])
        lines.append((False, f"{counted(len(source.document), 'job')} in {source.name} could not be run: {reason}"))
    return body, lines


def _jobs(title: str, jobs: list[dict[str, Any]]) -> str:
    counts = Counter((job["job"]["command"], _told(job["result"])) for job in jobs)
    rows = [(command, told, count) for (command, told), count in sorted(counts.items())]
    return table(f"{title}: {counted(len(jobs), 'job')}", ("command", "result", "jobs"), rows)


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
    if "exit_code" in document:  # of `check`
        states = Counter(plain(result["status"]) for result in document["results"])
        return ", ".join(f"{count} {status}" for status, count in states.items()) or "nothing checked"
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
