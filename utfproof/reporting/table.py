"""The claims for terminals: a summary, or every claim with its evidence. Data is never read as markup."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from utfproof.reporting.document import (
    VERDICTS,
    by_cause,
    counted,
    plain,
    sections_of,
    summary,
    theorem_lines,
    verdict_counts,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {"holds": "green", "holds after repair": "cyan", "fails as printed": "yellow", "open": "magenta"}
BROKEN = "bold red"
SCREEN = 79
"""Columns of a line of the summary, whatever the terminal has."""
REST = "all with statements and evidence: --html FILE.html; one: verify NAME"
SHORT = {"holds after repair": "after repair", "fails as printed": "fails"}
"""Verdicts as heads of columns."""


def summary_lines(document: dict[str, Any]) -> list[Text]:
    """How many claims, their verdicts and whether all are as recorded; red where they are not."""
    style = "bold" if document["holds"] else BROKEN
    return [_text(line, style) for line in summary(document)]


def problem_lines(document: dict[str, Any]) -> list[Text]:
    """A heading for each claim that is not as recorded, then its problems, a line each."""
    lines = []
    for claim in document["claims"]:
        if claim["problems"]:
            lines.append(_text(f"{claim['id']}: not as recorded", BROKEN))
            lines += [_text(f"  - {problem}") for problem in claim["problems"]]
    return lines


def summary_table(document: dict[str, Any]) -> list[str]:
    """Verdicts by section, a line each, and their sums; the same at every width of a terminal."""
    sections = sections_of(document)
    width = max((len(name) for name in sections), default=0)
    others = [name for name in verdict_counts(document) if name not in VERDICTS]
    names = [*VERDICTS, *others]

    def line(name: str, counts: dict[str, int]) -> str:
        cells = [str(counts.get(verdict) or "·").rjust(len(SHORT.get(verdict, verdict))) for verdict in names]
        return f"{plain(name):{width}}  {'  '.join(cells)}"

    lines = [f"{'':{width}}  {'  '.join(SHORT.get(verdict, verdict) for verdict in names)}"]
    lines += [line(name, dict(Counter(str(claim["verdict"]) for claim in claims))) for name, claims in sections.items()]
    return [*lines, line("all", verdict_counts(document))]


def exception_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What fails as printed, by cause, and what is open: a line each with the smallest counterexample; text and style."""
    lines: list[tuple[str, str]] = []
    for verdict in VERDICTS[2:]:
        claims = [claim for claim in document["claims"] if claim["verdict"] == verdict]
        if verdict == VERDICTS[2]:
            causes = by_cause(claims)
            heading = f"{verdict}: {counted(len(causes), 'cause')}, {counted(len(claims), 'claim')}"
        else:
            causes, heading = {"": claims}, f"{verdict} ({len(claims)})"
        if claims:
            lines += [("", ""), (heading, STYLES[verdict])]
        for cause, members in causes.items():
            if cause and members[0]["cause"]:
                lines.append((f"  {plain(cause)}"[:SCREEN], "bold"))
            for claim in members:
                name, place = plain(claim["id"]), claim["counterexample"] if verdict == VERDICTS[2] else None
                told = f"    {name}" if place is None else f"    {name}  at {plain(place)}"
                lines.append((told if len(told) <= SCREEN else f"    {name}", ""))
    return lines


def print_summary(document: dict[str, Any], console: Console) -> None:
    """Verdicts by section, what fails or is open, what is not as recorded, the summary line, and where the rest is."""
    for line in summary_table(document):
        console.print(_text(line), soft_wrap=True)
    for text, style in exception_lines(document):
        console.print(_text(text, style), soft_wrap=True)
    for problem in problem_lines(document):
        console.print(problem, soft_wrap=True)
    console.print()
    for found in summary_lines(document):
        console.print(found, soft_wrap=True)
    console.print(_text(REST, "dim"), soft_wrap=True)


def print_claims(document: dict[str, Any], console: Console) -> None:
    """Every claim with its statement and evidence, the problems of broken claims, then the summary lines."""
    from rich.padding import Padding

    for claim in document["claims"]:
        head, *details = claim_lines(claim)
        console.print(head, overflow="fold")
        for line in details:
            console.print(Padding(line, (0, 0, 0, 2)), overflow="fold")
        console.print()
    for line in [*problem_lines(document), *summary_lines(document)]:
        console.print(line, overflow="fold")


def claim_lines(claim: dict[str, Any]) -> list[Text]:
    """Name and verdict; statement; notion and instances; evidence."""
    from rich.text import Text

    head = Text("  ").join(
        [
            _text(claim["id"], "bold"),
            _text(claim["verdict"], STYLES.get(str(claim["verdict"]), "bold")),
            *([_text("BROKEN", BROKEN)] if claim["problems"] else []),
        ]
    )
    places = (
        ("", "notion"),
        ("smallest instance computed: ", "smallest"),
        ("smallest that fails: ", "counterexample"),
        ("", "grid_note"),
    )
    known = "; ".join(f"{words}{plain(claim[name])}" for words, name in places if claim[name])
    shown = [known, ", ".join(map(str, claim["evidence"])), *theorem_lines(claim)]
    return [head, _text(claim["statement"]), *(_text(line, "dim") for line in shown if line)]


def _text(value: object, style: str = "") -> Text:
    from rich.text import Text

    return Text(plain(value).replace("\t", " "), style=style)
