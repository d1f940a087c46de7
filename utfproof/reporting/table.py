"""The claims as a table for terminals, wide or narrow. Data is never read as markup."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from utfproof.claims.theorems import BROKEN as UNSOUND
from utfproof.claims.theorems import BUILT, STATED
from utfproof.reporting.document import (
    VERDICTS,
    as_recorded,
    by_cause,
    claims_of,
    counted,
    plain,
    problems_of,
    sections_of,
    summary,
    theorem_names,
    verdict_counts,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NARROW = 130
"""Below this many columns of the terminal the table stacks its fields."""

STYLES = {"holds": "green", "holds after repair": "cyan", "fails as printed": "yellow", "open": "magenta"}
BROKEN = "bold red"
SCREEN = 79
"""Columns of a line of the summary, whatever the terminal has."""
REST = "all with statements and evidence: --full, or --html FILE.html; one: verify NAME"
SHORT = {"holds after repair": "after repair", "fails as printed": "fails"}
"""Verdicts as heads of columns."""


def claims_table(document: dict[str, Any], *, narrow: bool = False) -> Table:
    """A rich table of the claims: id, statement, notion, verdict, instances and evidence, or (narrow) the same in three
    columns, for 80 characters. Raises MalformedInput for a document without its fields."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_lines=False, pad_edge=False, leading=1 if narrow else 0, expand=True)
    if narrow:
        table.add_column("claim", ratio=6, overflow="fold")
        table.add_column("verdict, notion", min_width=18, overflow="fold")
        table.add_column("instances, evidence", ratio=4, overflow="fold")
    else:
        longest = max((len(str(claim["id"])) for claim in claims_of(document)), default=0)
        table.add_column("claim", min_width=min(longest, 36), overflow="fold")
        table.add_column("statement", ratio=2, overflow="fold")
        table.add_column("notion", min_width=18, overflow="fold")
        table.add_column("verdict", min_width=18, overflow="fold")
        table.add_column("instances", ratio=1, overflow="fold")
        table.add_column("evidence", ratio=1, overflow="fold")
    for claim in claims_of(document):
        cells = [
            _name(claim),
            _text(claim["statement"]),
            _notion(claim),
            _verdict(claim),
            _instances(claim),
            _evidence(claim),
        ]
        if narrow:
            cells = [_stack(cells[0], cells[1]), _stack(cells[3], cells[2]), _stack(cells[4], cells[5])]
        table.add_row(*cells)
    return table


def summary_lines(document: dict[str, Any]) -> list[Text]:
    """How many claims, their verdicts and whether all are as recorded; red where they are not."""
    style = "bold" if as_recorded(document) else BROKEN
    return [_text(line, style) for line in summary(document)]


def problem_lines(document: dict[str, Any]) -> list[Text]:
    """A heading for each claim that is not as recorded, then its problems, a line each."""
    lines = []
    for claim in claims_of(document):
        problems = problems_of(claim)
        if problems:
            lines.append(_text(f"{claim['id']}: not as recorded", BROKEN))
            lines += [_text(f"  - {problem}") for problem in problems]
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
        claims = [claim for claim in claims_of(document) if claim["verdict"] == verdict]
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
    """The table in the console's width, the problems of broken claims below it, then the summary line."""
    console.print(claims_table(document, narrow=console.width < NARROW))
    lines = problem_lines(document)
    for line in lines:
        console.print(line, overflow="fold")
    if lines:
        console.print()
    for line in summary_lines(document):
        console.print(line, overflow="fold")


def _text(value: object, style: str = "") -> Text:
    from rich.text import Text

    return Text(plain(value).replace("\t", " "), style=style)


def _stack(*parts: Text) -> Text:
    from rich.text import Text

    return Text("\n").join(part for part in parts if part.plain)


def _name(claim: dict[str, Any]) -> Text:
    return _text(claim["id"], "bold")


def _notion(claim: dict[str, Any]) -> Text:
    return _text(claim["notion"] or "–", "" if claim["notion"] else "dim")


def _verdict(claim: dict[str, Any]) -> Text:
    verdict = _text(claim["verdict"], STYLES.get(str(claim["verdict"]), "bold"))
    return _stack(_text("BROKEN", BROKEN), verdict) if problems_of(claim) else verdict


def _instances(claim: dict[str, Any]) -> Text:
    parts = []
    if claim["smallest"] is not None:
        parts.append(_text(f"holds at {claim['smallest']}"))
    if claim["counterexample"] is not None:
        parts.append(_text(f"fails at {claim['counterexample']}"))
    if claim["grid_note"]:
        parts.append(_text(claim["grid_note"]))
    return _stack(*parts)


def _evidence(claim: dict[str, Any]) -> Text:
    lines = theorem_names(claim)  # they say more than the name of the evidence does
    kinds = [str(kind) for kind in claim["evidence"] if not lines or kind not in (BUILT, STATED, UNSOUND)]
    return _stack(_text(", ".join(kinds), "dim"), *(_text(line, "dim") for line in lines))
