"""`utfproof report`: a folder of results as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import MaxMemory, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.util.files import write_bytes
from utfproof.util.resources import default_limit, limits


def report(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder of results, with its subfolders.", metavar="DIR")],
    output: Annotated[Path, written("Page to write.", "-o", "--output")] = Path("report.html"),
    max_memory: MaxMemory = None,
) -> Outcome:
    """Gather a folder of results in one self-contained HTML page.

    Results are those of verify, frontier, bench, train, optimum and sweeps, outputs of commands, certificates, and CSV files.
    Files are known by their content; others are listed as not shown. Exit 0: the page is written,
    even where it says that a result is invalid. 2: a result lacks what its kind has.

    Example: utfproof report results -o report.html
    """
    from utfproof.reporting.report import gather, report_page, sections_of_report

    if output.suffix in (".json", ".jsonl", ".csv"):
        raise MalformedInput(f"{output} ends in {output.suffix}, as results do; name the page FILE.html")
    # packed results can be larger than what holds them
    with limits(max_memory or default_limit(), what=f"reading {folder}"):
        sources = gather(folder, skip=output)
    parts = sections_of_report(sources)
    page = report_page(folder, parts).encode()
    write_bytes(output, page)
    left = {source.name: source.why for source in sources if not source.kind}
    document: dict[str, Any] = {
        "page": str(output),
        "bytes": len(page),
        "files": {source.name: source.kind for source in sources},
        "not_shown": list(left),
        "sections": [
            {"title": part.title, "lines": [{"fine": fine, "text": text} for fine, text in part.lines]}
            for part in parts
        ],
    }
    rows = {"page": f"{output}, {len(page):,} bytes"}
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        rows["skipped"] = f"{', '.join(f'{name} ({why})' for name, why in [*left.items()][:5])}{more}"
    for part in parts:
        rows[part.title] = "\n".join(f"{'' if fine else 'INVALID: '}{text}" for fine, text in part.lines)
    return Outcome(document, f"report {folder}", rows)
