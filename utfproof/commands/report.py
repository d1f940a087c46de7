"""`utfproof report`: a folder of results as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import MaxMemory, argument, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.files import write_bytes
from utfproof.ground.resources import default_limit, limits

if TYPE_CHECKING:
    from utfproof.reporting.gather import Gathered


@command("Example: utfproof report results -o report.html")
def report(
    *,
    folder: Annotated[Path, argument("Folder of results, with its subfolders.", metavar="DIR")],
    output: Annotated[Path | None, written("Page to write; report.html by default.", "-o", "--output")] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Gather a folder of results in one self-contained HTML page.

    Results are those of verify, frontier, bench, train, optimum and sweeps, outputs of commands, certificates, and CSV files.
    Files are known by their content; others are listed as not shown. Exit 0: the page is written,
    even where it says that a result is invalid. 2: a result lacks what its kind has.
    """
    from utfproof.reporting.gather import KINDS, gather
    from utfproof.reporting.report import report_page, sections_of_report

    path = Path("report.html") if output is None else output
    if not path.absolute().parent.is_dir():
        raise MalformedInput(f"{path.absolute().parent} is not a folder; make it first")
    with limits(
        max_memory or default_limit(), what=f"reading {folder}"
    ):  # packed results can be larger than what holds them
        found = gather(folder, skip=path)
    _require_no_result(path, found, folder)
    parts = sections_of_report(found)
    page = report_page(found, parts).encode()
    write_bytes(path, page)
    document: dict[str, Any] = {
        "page": str(path),
        "bytes": len(page),
        "files": {kind: [source.name for source in found.of(kind)] for kind in KINDS},
        "not_shown": [source.name for source in found.sources if not source.kind],
        "sections": [
            {"title": part.title, "lines": [{"fine": fine, "text": text} for fine, text in part.lines]}
            for part in parts
        ],
    }
    rows = {"page": f"{path}, {len(page):,} bytes"}
    if skipped := [f"{source.name} ({source.why})" for source in found.sources if not source.kind]:
        more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
        rows["skipped"] = f"{', '.join(skipped[:5])}{more}"
    for part in parts:
        rows[part.title] = "\n".join(f"{'' if fine else 'INVALID: '}{text}" for fine, text in part.lines)
    return Outcome(document, f"report {folder}", rows)


def _require_no_result(path: Path, found: Gathered, folder: Path) -> None:
    """MalformedInput where the page would take the place of a file of the folder that is no page."""
    if path.suffix == ".json":
        raise MalformedInput(f"{path} ends in .json; name the page FILE.html")
    for source in found.sources:
        if path.exists() and (folder / source.name).exists() and path.samefile(folder / source.name):
            raise MalformedInput(f"writing {path} would overwrite a file of {folder}; choose another name")
