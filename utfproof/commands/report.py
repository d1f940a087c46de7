"""`utfproof report`: a folder of results as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import MaxMemory, argument, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.files import write_bytes
from utfproof.ground.resources import default_limit, limits


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
    from utfproof.reporting.report import gather, report_page, sections_of_report

    path = Path("report.html") if output is None else output
    if path.suffix in (".json", ".jsonl", ".csv"):
        raise MalformedInput(f"{path} ends in {path.suffix}, as results do; name the page FILE.html")
    with limits(
        max_memory or default_limit(), what=f"reading {folder}"
    ):  # packed results can be larger than what holds them
        sources = gather(folder, skip=path)
    parts = sections_of_report(sources)
    page = report_page(folder, parts).encode()
    write_bytes(path, page)
    left = {source.name: source.why for source in sources if not source.kind}
    document: dict[str, Any] = {
        "page": str(path),
        "bytes": len(page),
        "files": {source.name: source.kind for source in sources},
        "not_shown": list(left),
        "sections": [
            {"title": part.title, "lines": [{"fine": fine, "text": text} for fine, text in part.lines]}
            for part in parts
        ],
    }
    rows = {"page": f"{path}, {len(page):,} bytes"}
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        rows["skipped"] = f"{', '.join(f'{name} ({why})' for name, why in [*left.items()][:5])}{more}"
    for part in parts:
        rows[part.title] = "\n".join(f"{'' if fine else 'INVALID: '}{text}" for fine, text in part.lines)
    return Outcome(document, f"report {folder}", rows)
