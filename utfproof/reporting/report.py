"""`utfproof report`: a folder of results as tables on one page. One function a section."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.reporting.document import claims_of, counted, plain, problems_of, summary
from utfproof.reporting.gather import KINDS, Gathered, Source
from utfproof.reporting.page import render


@dataclass(frozen=True)
class Table:
    """Rows of text; the template escapes them."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Section:
    """A part of the page. lines: its summary, each with whether all is as it should be; problems: what is not."""

    name: str
    title: str
    lines: list[tuple[bool, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def sections_of_report(found: Gathered) -> list[Section]:
    """The sections that the folder has results for, and the list of its files.

    MalformedInput, naming the kind, where a document lacks what its kind has.
    """
    makers: dict[str, Callable[[list[Source]], Section]] = {
        "verify": claims,
        "frontier": frontier,
        "bench": bench,
        "table": csv_tables,
        "training": training,
        "optimum": optimum,
        "sweep": sweeps,
        "check": outputs,
        "output": outputs,
        "certificate": certificates,
    }
    made = []
    for kind, make in makers.items():
        if sources := found.of(kind):
            try:
                made.append(make(sources))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                names = ", ".join(source.name for source in sources[:3])
                what = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
                raise MalformedInput(
                    f"{names}: not whole documents of {kind} ({what}); run the command again or remove the file"
                ) from error
    return [*made, files(found)]


def report_page(found: Gathered, sections: Sequence[Section]) -> str:
    """The page of these sections."""
    return render("report.html", folder=found.folder, sections=sections)


def claims(sources: list[Source]) -> Section:
    """Verdicts by section of the paper, and every claim in a table."""
    made = Section("claims", "Claims")
    seen: dict[str, tuple[str, str]] = {}
    for source in sources:
        document = source.document
        against = [f"{claim['id']}: {problems_of(claim)[0]}" for claim in claims_of(document) if problems_of(claim)]
        for claim in claims_of(document):
            verdict, where = seen.setdefault(claim["id"], (claim["verdict"], source.name))
            if verdict != claim["verdict"]:
                against.append(f"{claim['id']} is {verdict!r} in {where} and {claim['verdict']!r} in {source.name}")
        made.problems += against
        made.lines.append((document["holds"] is True and not against, "; ".join(summary(document))))
        counts = Counter((claim["section"], claim["verdict"]) for claim in claims_of(document))
        made.tables.append(
            Table(f"{source.name}: verdicts by section", ("section", "verdict", "claims"), table_of(counts))
        )
        rows = [(claim["id"], claim["verdict"], claim["statement"], claim["sentence"]) for claim in document["claims"]]
        made.tables.append(Table(f"{source.name}: claims", ("claim", "verdict", "statement", "what was found"), rows))
    return made


def table_of(counts: Counter[tuple[str, str]]) -> list[tuple[object, ...]]:
    """Rows of a counter of pairs."""
    return [(*pair, count) for pair, count in counts.items()]


def frontier(sources: list[Source]) -> Section:
    """The least m of each question at a shape."""
    made = Section("frontier", "How small a host can be")
    rows: dict[tuple[str, str], tuple[object, ...]] = {}
    for source in sources:
        for entry in source.document["entries"]:
            key = question(entry), shape_text(entry["shape"])
            proved, reached = entry["proved"]["m"], (entry["reached"] or {}).get("m")
            if reached is not None and proved > reached:
                made.problems.append(f"{source.name}: {key[0]} at {key[1]}: {proved} needed and {reached} reached")
            if key in rows and rows[key][2:4] != (proved, reached):
                made.problems.append(f"{key[0]} at {key[1]}: {source.name} and another file differ")
            rows[key] = (*key, proved, reached, (entry["paper"] or {}).get("m", ""))
    exact = sum(row[2] == row[3] for row in rows.values())
    made.lines.append((not made.problems, f"{counted(len(rows), 'question')} at a shape, {exact} settled"))
    made.tables.append(
        Table("The least m", ("question", "(H, L, d, d_in)", "needed", "reached", "paper"), [*rows.values()])
    )
    return made


def shape_text(shape: dict[str, Any]) -> str:
    """(H, L, d, d_in), with d_out where it differs and the residual stream where there is one."""
    text = ", ".join(str(shape[name]) for name in ("heads", "layers", "head_dim", "d_in"))
    out = "" if shape["d_out"] == shape["d_in"] else f", d_out {shape['d_out']}"
    return f"({text}){out}{', residual' if shape.get('residual') else ''}"


def question(entry: dict[str, Any]) -> str:
    """Notion, targets and hosts of an entry in words."""
    extent = "all" if entry["extent"] == "all" else "almost all"
    host = ", tied host" if entry["host"] == "tied" else ""
    free = f", {entry['free']} free" if entry.get("free") else ""
    return f"{entry['notion']}, {extent} {entry['targets']} targets{host}{free}"


def bench(sources: list[Source]) -> Section:
    """Ratios of `bench all`: processor time over that of the operation or library named."""
    made = Section("bench", "Ratios of times")
    for source in sources:
        results = source.document["results"]
        rows = [
            (row["work"], row["size"], row["beside"], *(f"{float(ratio):.2f}" for ratio in row["ratios"].values()))
            for row in results
        ]
        made.lines.append((True, f"{source.name}: {counted(len(rows), 'ratio')}"))
        made.tables.append(Table(source.name, ("work", "size", "compared with", *results[0]["ratios"]), rows))
    return made


def csv_tables(sources: list[Source]) -> Section:
    """CSV files as they are; lines that begin with # are their sources."""
    made = Section("tables", "Tables", lines=[(True, counted(len(sources), "table"))])
    made.tables += [Table(source.name, source.document[0], source.document[1:]) for source in sources]
    return made


def training(sources: list[Source]) -> Section:
    """The paper's tables beside measured cells, for each setting."""
    from utfproof.training.presets import SETTINGS, read
    from utfproof.training.results import RunResult, paper_cells
    from utfproof.training.tables import HOSTS, coverage, row_cells, tables

    results = {}
    for source in sources:
        for held in source.document if isinstance(source.document, list) else [source.document]:
            run = read(RunResult, json.dumps(held), source.name)
            results[run.key] = run
    made = Section("training", "Training", lines=[(True, counted(len(results), "run"))])
    for setting in SETTINGS:
        if cells := paper_cells(results.values(), setting):
            made.lines.append((True, f"{setting}: {coverage(cells)}"))
            for part in tables(cells):
                rows = [row_cells(row, {})[:-1] for row in part.rows]
                caption = f"{part.title}, {setting} setting: accuracy in %, paper / measured"
                made.tables.append(Table(caption, ("", *HOSTS.values()), rows))
    return made


def optimum(sources: list[Source]) -> Section:
    """Trained models as embeddings of hosts."""
    from utfproof.training.optimum import Optimum
    from utfproof.training.presets import read

    rows = []
    for source in sources:
        found = read(Optimum, json.dumps(source.document), source.name)
        for host, held in found.hosts.items():
            rows.append((found.key, host, held.m, *(f"{100 * each.accuracy:.1f}" for each in (found, held))))
    made = Section("optimum", "Trained models embedded in hosts")
    made.lines.append((True, f"{counted(len(sources), 'trained model')}"))
    made.tables.append(Table("Accuracy in %", ("model", "host", "m", "model's own", "as embedding"), rows))
    return made


def sweeps(sources: list[Source]) -> Section:
    """Results of sweeps, counted by command."""
    made = Section("sweeps", "Sweeps")
    for source in sources:
        counts = Counter((line["job"]["command"], told(line["result"])) for line in source.document)
        made.lines.append((True, f"{source.name}: {counted(len(source.document), 'job')}"))
        made.tables.append(Table(source.name, ("command", "result", "jobs"), table_of(counts)))
    return made


def outputs(sources: list[Source]) -> Section:
    """What single commands printed with --json."""
    made = Section("outputs", "Results of single commands")
    made.lines.append((True, counted(len(sources), "output") + " of single commands"))
    for source in sources:
        if source.document.get("exit_code") not in (None, 0):
            made.lines.append((False, f"{source.name}: {told(source.document)}"))
    made.tables.append(Table("Outputs", ("file", "result"), [(s.name, told(s.document)) for s in sources]))
    return made


def certificates(sources: list[Source]) -> Section:
    """What certificates claim; the page checks none."""
    made = Section("certificates", "Certificates")
    made.lines.append((True, f"{counted(len(sources), 'certificate')}, not checked by this page"))
    rows = [(s.name, s.document["kind"], told(s.document["claim"])) for s in sources if "claim" in s.document]
    made.tables.append(Table("Certificates", ("file", "kind", "claim"), rows))
    return made


def told(document: dict[str, Any]) -> str:
    """A document's verdict in a few words."""
    if "exit_code" in document and isinstance(document.get("results"), list):
        states = Counter(plain(entry["status"]) for entry in document["results"])
        return ", ".join(f"{count} {state}" for state, count in states.items()) or "nothing checked"
    names = ("verdict", "outcome", "notion", "targets", "holds")
    return ", ".join(plain(document[name]) for name in names if document.get(name) is not None) or "–"


def files(found: Gathered) -> Section:
    """Every file: what it is, or why it is not shown."""
    shown = [(s.name, KINDS[s.kind], f"{s.size:,}", s.digest[:16]) for s in found.sources if s.kind]
    left = [(s.name, s.why, f"{s.size:,}") for s in found.sources if not s.kind]
    made = Section("files", "Files", lines=[(True, f"{counted(len(shown), 'file')} shown, {len(left)} not shown")])
    made.tables.append(Table("Shown", ("file", "what it is", "bytes", "SHA-256 begins"), shown))
    if left:
        made.tables.append(Table("Not shown: only the kinds above are", ("file", "why", "bytes"), left))
    return made
