"""`utfproof report`: a folder of results on one page. One function a section; charts where matplotlib is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from utfproof.certificates.results import contradiction, needs_certificate
from utfproof.errors import MalformedInput
from utfproof.reporting.charts import available, bars
from utfproof.reporting.document import claims_of, counted, plain, problems_of, summary
from utfproof.reporting.gather import KINDS, Gathered, Source
from utfproof.reporting.page import render
from utfproof.reporting.report_section import Section, Table


def sections_of_report(found: Gathered) -> list[Section]:
    """The sections that the folder has results for, and the list of its files.

    MalformedInput, naming the kind, where a document lacks what its kind has.
    """
    from utfproof.reporting.report_runs import emulation, frontier, optimum, training

    makers: dict[str, Callable[[list[Source]], Section]] = {
        "verify": claims,
        "frontier": frontier,
        "emulation": emulation,
        "bench": bench,
        "table": csv_tables,
        "training": training,
        "optimum": optimum,
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
    return [*made, *others(found), files(found)]


def report_page(found: Gathered, sections: Sequence[Section]) -> str:
    """The page of these sections."""
    return render("report.html", folder=found.folder, sections=sections)


# --- claims --------------------------------------------------------------------------------------------------


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


# --- bench ---------------------------------------------------------------------------------------------------


def bench(sources: list[Source]) -> Section:
    """Ratios of `bench all`."""
    made = Section("bench", "Ratios of times", text="Processor time over that of the operation or library named.")
    for source in sources:
        rows, drawn = [], {}
        for row in source.document["results"]:
            ratios = list(row["ratios"].values())
            name = f"{row['work']}, {row['size']} / {row['beside']}"
            drawn[name] = float(ratios[0])
            rows.append((row["work"], row["size"], row["beside"], *(f"{float(ratio):.2f}" for ratio in ratios)))
        worse = source.document.get("worse") or []
        made.problems += [f"{row['work']}, {row['size']}: slower than recorded" for row in worse]
        made.lines.append((not worse, f"{source.name}: {counted(len(rows), 'ratio')}"))
        if drawn and available():
            made.charts.append((source.name, bars(drawn, "ratio")))
        head = ("work", "size", "compared with", "ratio", "beside busy processes")
        made.tables.append(Table(source.name, head, rows))
    return made


def csv_tables(sources: list[Source]) -> Section:
    """CSV files as they are; lines that begin with # are their sources."""
    made = Section("tables", "Tables", lines=[(True, counted(len(sources), "table"))])
    made.tables += [Table(source.name, source.document[0], source.document[1:]) for source in sources]
    return made


# --- certificates, sweeps, single outputs --------------------------------------------------------------------


def others(found: Gathered) -> Iterable[Section]:
    """Sweeps, verdicts that commands printed, checks and certificates, each compared with the certificates beside it."""
    made = Section("others", "Certificates, sweeps and single results")
    made.text = "A verdict that differs from its certificate's own claim is invalid."
    for source in found.of("sweep"):
        invalid = [f"{source.name}: {why}" for line in source.document for why in against_certificate(line, found)]
        counts = Counter((line["job"]["command"], told(line["result"])) for line in source.document)
        text = f"{source.name}: {counted(len(source.document), 'job')}, {len(invalid)} invalid"
        made.lines.append((not invalid, text))
        made.problems += invalid[:20]
        made.tables.append(Table(source.name, ("command", "result", "jobs"), table_of(counts)))
    rows = []
    for source in [*found.of("output"), *found.of("check")]:
        invalid = against_named_files(source.document, found)
        failed = source.document.get("exit_code") not in (None, 0)
        made.problems += [f"{source.name}: {why}" for why in invalid]
        rows.append((source.name, "invalid" if invalid else told(source.document)))
        if invalid or failed:
            made.lines.append((False, f"{source.name}: {'invalid' if invalid else told(source.document)}"))
    if rows:
        made.lines.append((True, counted(len(rows), "output") + " of single commands"))
        made.tables.append(Table("Outputs", ("file", "result"), rows))
    if certificates := found.of("certificate"):
        made.lines.append((True, f"{counted(len(certificates), 'certificate')}, not checked by this page"))
        claimed = [
            (s.name, s.document["kind"], told(s.document["claim"])) for s in certificates if "claim" in s.document
        ]
        made.tables.append(Table("Certificates", ("file", "kind", "claim"), claimed))
    return [made] if made.lines else []


def against_certificate(line: dict[str, Any], found: Gathered) -> list[str]:
    """Why a sweep's result is invalid: its certificate is missing, or claims something else."""
    key, result = str(line["key"]), line["result"]
    if not needs_certificate(result, line["job"]):
        return []
    digests = [entry.get("sha256") for entry in line.get("files") or [] if entry.get("file") == f"{key}.json"]
    certificate = found.certificates.get(str(digests[0])) if digests else None
    why = (
        "its certificate is missing" if certificate is None else differs(result, certificate, line["job"]["parameters"])
    )
    return [f"job {key[:16]}: {why}"] if why else []


def differs(result: dict[str, Any], certificate: dict[str, Any], parameters: dict[str, Any]) -> str:
    """How a result contradicts a certificate, "" where it does not."""
    try:
        return contradiction(result, certificate, parameters)
    except (KeyError, TypeError, AttributeError):
        return "it or its certificate lacks what its kind has"


def against_named_files(document: dict[str, Any], found: Gathered) -> list[str]:
    """Why the verdict that a command printed is invalid: the certificate of this name claims something else."""
    if "verdict" not in document or "kind" not in document:
        return []
    names = {str(name).rpartition("/")[2] for name in document.get("files") or []}
    beside = [s for s in found.of("certificate") if s.name.rpartition("/")[2] in names]
    parameters = document.get("shape") or {}
    return [f"{s.name}: {why}" for s in beside if (why := differs(document, s.document, parameters))]


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
