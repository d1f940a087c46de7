"""`utfproof report`: a folder of results as tables on one page. Files are known by their content; one function a section.

A JSON or JSON Lines file of a kind in SIGNS, or a CSV file, is shown; every other file is listed as not shown, with the reason.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.reporting.document import counted, plain, summary
from utfproof.reporting.page import render
from utfproof.util.files import read_bytes

SIGNS = {
    "verify": {"claims", "grid", "holds"},
    "frontier": {"entries", "bounds", "sides"},
    "bench": {"benchmark", "results"},
    "training": {"preset", "curve", "accuracy"},
    "optimum": {"preset", "hosts", "left_out"},
    "sweep": {"key", "job", "result"},
    "certificate": {"kind", "claim", "evidence"},
    "check": {"exit_code", "results"},
    "verdict": {"verdict"},
    "outcome": {"outcome"},
}
"""Kind -> keys of its document, of each line where there are many. The first that fits counts."""


@dataclass(frozen=True)
class Source:
    """A file. name: its path inside the folder; kind: of SIGNS, or "csv", "" where it is not shown; why: the reason."""

    name: str
    size: int
    kind: str = ""
    document: Any = None
    why: str = ""

    @property
    def each(self) -> list[Any]:
        """Its documents: one, or one a line."""
        return self.document if isinstance(self.document, list) else [self.document]


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


def gather(folder: Path, *, skip: Path | None = None) -> list[Source]:
    """Read a folder and its subfolders, without hidden files and `skip`, the page to be written.

    MalformedInput where it is not a folder or nothing in it can be shown.
    """
    if not folder.is_dir():
        raise MalformedInput(f"{folder} is not a folder; docs/sweeps.md lists the commands that fill one")
    found = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and not path.is_dir() and (skip is None or path.absolute() != skip.absolute()):
            found.append(read_source(path, str(path.relative_to(folder))))
    if not any(source.kind for source in found):
        raise MalformedInput(f"{folder} holds no results; docs/sweeps.md lists the commands that make them")
    return found


def read_source(path: Path, name: str) -> Source:
    """One file."""
    if not path.is_file():
        return Source(name, 0, why="no regular file")
    size = path.stat().st_size
    if path.suffix not in (".json", ".jsonl", ".csv"):
        return Source(name, size, why="neither JSON nor CSV")
    data = read_bytes(path)
    try:
        if path.suffix == ".csv":
            lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
            return Source(name, size, "csv", list(csv.reader(lines)))
        lined = path.suffix == ".jsonl"
        document = [json.loads(line) for line in data.splitlines() if line.strip()] if lined else json.loads(data)
    except (ValueError, RecursionError) as error:
        return Source(name, size, why=f"damaged: {' '.join(str(error).split())[:80]}")
    parts = document if lined else [document]
    kinds = (kind for kind, keys in SIGNS.items() if all(isinstance(p, dict) and keys <= p.keys() for p in parts))
    kind = next(kinds, "") if parts else ""
    return Source(name, size, kind, document if kind else None, "" if kind else "JSON of no known kind")


def sections_of_report(sources: Sequence[Source]) -> list[Section]:
    """The sections that the folder has results for, and the list of its files.

    MalformedInput, naming the files, where a document lacks what its kind has.
    """
    made = []
    for kinds, make in MAKERS.items():
        chosen = [source for source in sources if source.kind in kinds]
        if not chosen:
            continue
        try:
            made.append(make(chosen))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            names = ", ".join(source.name for source in chosen[:3])
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise MalformedInput(
                f"{names}: not whole documents of {kinds[0]} ({what}); run the command again or remove the file"
            ) from error
    return [*made, files(sources)]


def report_page(folder: Path, sections: Sequence[Section]) -> str:
    """The page of these sections."""
    return render("report.html", folder=str(folder), sections=sections)


def claims(sources: list[Source]) -> Section:
    """Verdicts by section of the paper, and every claim in a table."""
    made = Section("claims", "Claims")
    for source in sources:
        document, found = source.document, source.document["claims"]
        against = [f"{claim['id']}: {problem}" for claim in found for problem in claim["problems"][:1]]
        made.problems += against
        made.lines.append((document["holds"] is True and not against, "; ".join(summary(document))))
        counts = Counter((claim["section"], claim["verdict"]) for claim in found)
        made.tables.append(
            Table(f"{source.name}: verdicts by section", ("section", "verdict", "claims"), table_of(counts))
        )
        rows = [(claim["id"], claim["verdict"], claim["statement"], claim["sentence"]) for claim in found]
        made.tables.append(Table(f"{source.name}: claims", ("claim", "verdict", "statement", "what was found"), rows))
    return made


def table_of(counts: Counter[tuple[str, str]]) -> list[tuple[object, ...]]:
    """Rows of a counter of pairs."""
    return [(*pair, count) for pair, count in counts.items()]


def frontier(sources: list[Source]) -> Section:
    """The least m of each question at a shape."""
    made = Section("frontier", "How small a host can be")
    rows: list[tuple[object, ...]] = []
    for source in sources:
        for entry in source.document["entries"]:
            shape = ", ".join(f"{value}" for value in entry["shape"].values())
            names = ("notion", "extent", "targets", "host", "free")
            question = ", ".join(str(entry[name]) for name in names if entry.get(name))
            proved, reached = entry["proved"]["m"], (entry["reached"] or {}).get("m")
            if reached is not None and proved > reached:
                made.problems.append(f"{source.name}: {question} at {shape}: {proved} needed and {reached} reached")
            rows.append((question, shape, proved, reached, (entry["paper"] or {}).get("m", "")))
    exact = sum(row[2] == row[3] for row in rows)
    made.lines.append((not made.problems, f"{counted(len(rows), 'question')} at a shape, {exact} settled"))
    made.tables.append(Table("The least m", ("question", "H, L, d, d_in, d_out", "needed", "reached", "paper"), rows))
    return made


def bench(sources: list[Source]) -> Section:
    """Ratios of `bench all`: processor time over that of the operation or library named."""
    made = Section("bench", "Ratios of times")
    for source in sources:
        results = source.document["results"]
        rows = [(row["work"], row["size"], row["beside"], f"{float(row['ratios']['alone']):.2f}") for row in results]
        made.lines.append((True, f"{source.name}: {counted(len(rows), 'ratio')}"))
        made.tables.append(Table(source.name, ("work", "size", "compared with", "ratio"), rows))
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

    runs = [read(RunResult, json.dumps(held), source.name) for source in sources for held in source.each]
    results = {run.key: run for run in runs}.values()
    made = Section("training", "Training", lines=[(True, counted(len(results), "run"))])
    for setting in SETTINGS:
        if cells := paper_cells(results, setting):
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
        counts = Counter((line["job"]["command"], told(line["result"])) for line in source.each)
        made.lines.append((True, f"{source.name}: {counted(len(source.each), 'job')}"))
        made.tables.append(Table(source.name, ("command", "result", "jobs"), table_of(counts)))
    return made


def outputs(sources: list[Source]) -> Section:
    """Certificates, which the page does not check, and what single commands printed with --json."""
    made = Section("outputs", "Certificates and results of single commands")
    made.lines.append((True, f"{counted(len(sources), 'file')}; certificates are not checked by this page"))
    rows = []
    for source in sources:
        document = source.document
        if document.get("exit_code") not in (None, 0):
            made.lines.append((False, f"{source.name}: {told(document)}"))
        about = document["claim"] if source.kind == "certificate" else document
        rows.append((source.name, document.get("kind", ""), told(about)))
    made.tables.append(Table("Results", ("file", "kind", "result"), rows))
    return made


def told(document: dict[str, Any]) -> str:
    """A document's verdict in a few words."""
    if isinstance(document.get("results"), list):
        states = Counter(plain(entry["status"]) for entry in document["results"])
        return ", ".join(f"{count} {state}" for state, count in states.items()) or "nothing checked"
    names = ("verdict", "outcome", "notion", "targets", "holds")
    return ", ".join(plain(document[name]) for name in names if document.get(name) is not None) or "–"


def files(sources: Sequence[Source]) -> Section:
    """Every file: what it is, or why it is not shown."""
    shown = sum(bool(source.kind) for source in sources)
    made = Section("files", "Files", [(True, f"{counted(shown, 'file')} shown, {len(sources) - shown} not shown")])
    rows = [(s.name, s.kind or f"not shown: {s.why}", f"{s.size:,}") for s in sources]
    made.tables.append(Table("All files", ("file", "what it is", "bytes"), rows))
    return made


MAKERS: dict[tuple[str, ...], Callable[[list[Source]], Section]] = {
    ("verify",): claims,
    ("frontier",): frontier,
    ("bench",): bench,
    ("csv",): csv_tables,
    ("training",): training,
    ("optimum",): optimum,
    ("sweep",): sweeps,
    ("certificate", "check", "verdict", "outcome"): outputs,
}
"""Kinds -> the function that makes their section."""
