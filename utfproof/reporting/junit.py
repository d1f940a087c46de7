"""JUnit XML of a verify document, for continuous integration: a test case for each claim."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from utfproof.reporting.document import counted, figure_text, plain, sections_of, theorem_lines


def junit_xml(document: dict[str, Any]) -> str:
    """The document as JUnit XML: a suite for each section, a test case for each claim.

    A claim that is not as recorded is a failure; one that is open, as recorded, is skipped. A claim that fails as printed,
    as recorded, passes: its output begins with that verdict. Characters that XML cannot carry are replaced."""
    claims = document["claims"]
    failures = sum(bool(claim["problems"]) for claim in claims)
    root = ET.Element("testsuites", {"name": "utfproof verify", **_counts(claims, failures)})
    root.set("time", _seconds(document.get("seconds", 0)))
    for section, members in sections_of(document).items():
        failed = sum(bool(claim["problems"]) for claim in members)
        suite = ET.SubElement(root, "testsuite", {"name": plain(section), **_counts(members, failed)})
        suite.set("time", _seconds(sum(float(claim["seconds"]) for claim in members)))
        for claim in members:
            suite.append(_case(claim))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(claims: list[dict[str, Any]], failures: int) -> dict[str, str]:
    return {
        "tests": str(len(claims)),
        "failures": str(failures),
        "errors": "0",
        "skipped": str(sum(map(_is_open, claims))),
    }


def _is_open(claim: dict[str, Any]) -> bool:
    return claim["verdict"] == "open" and not claim["problems"]


def _seconds(value: object) -> str:
    return f"{float(str(value)):.3f}"


def _case(claim: dict[str, Any]) -> ET.Element:
    case = ET.Element(
        "testcase", classname=plain(claim["section"]), name=plain(claim["id"]), time=_seconds(claim["seconds"])
    )
    described = [
        (name, claim[name])
        for name in ("verdict", "basis", "recorded", "notion", "targets", "category", "smallest", "counterexample")
        if claim[name] is not None
    ]
    properties = ET.SubElement(case, "properties")
    figures = [(f"figure: {key}", value) for key, value in claim["figures"].items()]
    theorems = [(f"theorem: {found['name']}", found["status"]) for found in claim["theorems"]]
    for name, value in [*described, *figures, *theorems]:
        ET.SubElement(properties, "property", name=plain(name), value=figure_text(value))
    problems = [plain(problem) for problem in claim["problems"]]
    if problems:
        failure = ET.SubElement(case, "failure", type="not as recorded", message=problems[0])
        failure.text = "\n".join(problems)
    if _is_open(claim):
        ET.SubElement(case, "skipped", message="open: neither proved nor refuted")
    ET.SubElement(case, "system-out").text = plain(_account(claim))
    return case


def _account(claim: dict[str, Any]) -> str:
    lines = [
        f"{str(claim['verdict']).upper()} (recorded: {claim['recorded']})",
        str(claim["statement"]),
        f"scope: {claim['scope']}",
        *([f"cause: {claim['cause']}"] if claim["cause"] else []),
        *([f"grid: {claim['grid_note']}"] if claim["grid_note"] else []),
        f"notion: {claim['notion'] or 'none'}",
        f"evidence: {', '.join(map(str, claim['evidence']))}",
        *theorem_lines(claim),
        str(claim["sentence"]),
        *(f"{name}: {figure_text(value)}" for name, value in claim["figures"].items()),
        f"{counted(len(claim['instances']), 'instance')} examined",
    ]
    return "\n".join(lines)
