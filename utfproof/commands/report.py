"""`utfproof report`: a folder of results as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import argument, written
from utfproof.cli.outcome import Outcome
from utfproof.cli.registry import forms
from utfproof.errors import MalformedInput
from utfproof.ground.files import write_bytes

if TYPE_CHECKING:
    from utfproof.reporting.report_read import Gathered, Source
    from utfproof.reporting.report_training import Training
    from utfproof.training.results import RunResult


@command("Example: utfproof report results -o report.html; without a folder it says how to fill one")
def report(
    *,
    folder: Annotated[
        Path | None, argument("Folder of results, with its subfolders; without one: how to fill one.", metavar="DIR")
    ] = None,
    output: Annotated[Path | None, written("Page to write; report.html by default.", "-o", "--output")] = None,
) -> Outcome:
    """Gather results of verify, frontier, emulate, bench and train into one self-contained HTML page with figures.

    Files are known by their content; others are listed on the page as not understood. Exit 0: the page is written, whatever it
    says. 2: a result is malformed or contradicts itself.
    """
    if folder is None:
        if output is not None:
            raise MalformedInput("-o names the page of a folder: utfproof report DIR -o PAGE.html")
        return _how()
    from utfproof.reporting.report import report_page, sections_of_report
    from utfproof.reporting.report_read import KINDS, gather

    path = Path("report.html") if output is None else output
    if not path.absolute().parent.is_dir():
        raise MalformedInput(f"{path.absolute().parent} is not a folder; make it first")
    found = gather(folder, skip=path, forms=forms())
    _require_no_result(path, found, folder)
    parts = sections_of_report(found, training_of(found))
    page = report_page(found, parts).encode()
    write_bytes(path, page)
    kinds = {kind: [source.name for source in found.of(kind)] for kind in KINDS}
    others = [source.name for source in found.sources if source.kind is None]
    document: dict[str, Any] = {
        "page": str(path),
        "bytes": len(page),
        "files": kinds,
        "not_understood": others,
        "sections": [
            {"title": part.title, "lines": [{"as_it_should_be": fine, "text": text} for fine, text in part.lines]}
            for part in parts
        ],
    }
    rows = {"page": f"{path}, {len(page):,} bytes"}
    for part in parts:
        rows[part.title] = "\n".join(f"{'' if fine else 'NOT as it should be: '}{text}" for fine, text in part.lines)
    for kind in ("weights", "table"):
        if kinds[kind]:
            what, _, why = KINDS[kind].partition(": ")
            rows[what] = f"{len(kinds[kind])}; {why}"
    if others:
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        rows["not understood"] = f"{', '.join(others[:5])}{more}"
    return Outcome(document, f"report {folder}", rows)


def _require_no_result(path: Path, found: Gathered, folder: Path) -> None:
    """MalformedInput where the page would take the place of a file of the folder that is no page."""
    if path.suffix == ".json":
        raise MalformedInput(f"{path} ends in .json; name the page FILE.html")
    for source in found.sources:
        if path.exists() and (folder / source.name).exists() and path.samefile(folder / source.name):
            raise MalformedInput(f"writing {path} would overwrite a file of {folder}; choose another name")


def _how() -> Outcome:
    """How to fill a folder."""
    from utfproof.reporting.report import COMMANDS

    commands = [(line.format(folder="results"), purpose) for line, purpose in COMMANDS]

    def show() -> None:
        print("A report is made of a folder of results. Any of these fill one; the order is free:\n")
        print("  mkdir -p results")
        for line, purpose in commands:
            print(f"  {line}\n      {purpose}")
        print("\nThen: utfproof report results -o report.html")

    return Outcome({"commands": [{"command": line, "purpose": purpose} for line, purpose in commands]}, text=show)


# --- training ------------------------------------------------------------------------------------------------


def training_of(found: Gathered) -> Training | None:
    """The training runs of a folder as the page shows them; None without runs. MalformedInput for a file that is no whole
    result, and for two files of one run."""
    sources = found.of("training")
    if not sources:
        return None
    from utfproof.reporting.report_training import Curve, Training
    from utfproof.training.presets import SETTINGS
    from utfproof.training.results import paper_cells
    from utfproof.training.tables import HOSTS, document, tables
    from utfproof.training.tasks import kind_of

    results = _results(sources)
    curves = tuple(
        Curve(
            run.preset["task"], run.preset["host"], run.variant, run.preset["m"], run.seed, run.steps, run.complete,
            run.accuracy, tuple(run.curve),
        )
        for run in results
    )  # fmt: skip
    rules = {task: kind_of(task).baselines(0) for task in dict.fromkeys(run.preset["task"] for run in results)}
    shown: dict[str, Any] = {"tables": [], "baselines": {}, "further": []}
    for setting in SETTINGS:
        if any(run.setting == setting for run in results):
            cells, further = paper_cells(results, setting)
            part = document(tables(cells), rules, further)
            for table in part["tables"]:
                table["title"] += f", setting {setting}"
            shown["tables"] += part["tables"]
            shown["further"] += part["further"]
            shown["baselines"] = part["baselines"]
    return Training(HOSTS, shown, curves)


def _results(sources: list[Source]) -> list[RunResult]:
    from utfproof.training.results import from_document

    seen: dict[str, str] = {}
    results = []
    for source in sources:
        result = from_document(source.document, source.name)
        if result.key in seen:
            raise MalformedInput(f"{seen[result.key]} and {source.name} are one run; remove the copy")
        seen[result.key] = source.name
        results.append(result)
    return results
