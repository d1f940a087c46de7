"""`utfproof verify`: every statement of the paper decided anew and compared with the registry's record."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.cli.options import Output, parallel, written
from utfproof.cli.outcome import Outcome, console
from utfproof.errors import MalformedInput, Refuted
from utfproof.ground.files import write_bytes
from utfproof.ground.processes import cores, worker_pool
from utfproof.ground.progress import stage

if TYPE_CHECKING:
    from concurrent.futures import Executor

SHOWN_IN_FULL = 5
"""So many claims are shown with statement and evidence, more of them as a summary."""


def verify(
    *,
    claim: Annotated[
        list[str] | None,
        typer.Argument(
            help="Claims by id, by the paper's label, or by a prefix ending in *; each of them by default.",
            metavar="[CLAIMS]...",
        ),
    ] = None,
    grid: Annotated[str | None, typer.Option(help=f"Shapes on which claims are decided ({DEFAULT_GRID}).")] = None,
    output: Output = None,
    junit: Annotated[Path | None, written("JUnit XML, a test case for each claim.")] = None,
    html: Annotated[Path | None, written("One self-contained page: claims and evidence, searchable.")] = None,
    certificates: Annotated[
        Path | None, typer.Option(help="Existing folder in which to leave every certificate.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; as many as cores by default.", parser=parallel, metavar="N")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Name the claims with their recorded verdicts and leave.")
    ] = False,
) -> Outcome:
    """Decide the paper's claims anew, beside the recorded verdicts.

    Up to five claims are shown with statement and evidence. Exit 0: every claim is as recorded. 1: some are not.

    Example: utfproof verify "thm:designed-R*" --grid "H=1..2,L=1..3,d=1..2,d_in=1..3" --html claims.html
    """
    from utfproof.claims.registry import select
    from utfproof.claims.runner import verify

    chosen = select(_no_files(claim or []))
    if listing:
        deciding = {
            "--grid": grid,
            "--output": output,
            "--junit": junit,
            "--html": html,
            "--certificates": certificates,
        }
        if given := [name for name, value in deciding.items() if value is not None]:
            raise MalformedInput(f"{', '.join(given)} would change nothing: --list decides nothing")
        lines = [f"{entry.verdict.value:18} {entry.id}" for entry in chosen]
        listed = [{"id": entry.id, "recorded": entry.verdict.value} for entry in chosen]
        return Outcome({"listed": listed}, text=lambda: print("\n".join(lines)))
    shapes = Grid.parse(grid or DEFAULT_GRID)
    count = min(workers or cores(), len(chosen))
    with stage("verify", len(chosen), unit="claims") as doing, _executor(count) as executor:
        document, outcomes = verify(chosen, shapes, executor=executor, keep=certificates, progress=doing.advance)
    found = {digest: data for outcome in outcomes for digest, data in outcome.certificates.items()}
    document["certificates"] = {digest: json.loads(data) for digest, data in sorted(found.items())}
    _write_reports(document, junit, html, output)
    show = partial(_print_claims, document, full=len(chosen) <= SHOWN_IN_FULL)
    broken = [entry["id"] for entry in document["claims"] if not entry["agrees"]]
    failure = Refuted(f"not as recorded: {', '.join(broken)}") if broken else None
    return Outcome(document, text=show, failure=failure)


def _no_files(names: list[str]) -> list[str]:
    """The names of claims; MalformedInput for a file among them, as after `--json`, which takes none."""
    for name in names:
        if name.endswith(".json"):
            raise MalformedInput(f"{name} is no claim; --json prints on standard output, -o {name} writes a file")
    return names


def _executor(count: int) -> AbstractContextManager[Executor | None]:
    """`count` worker processes; none for one worker."""
    return nullcontext() if count <= 1 else worker_pool(count, "choose fewer --workers or a smaller --grid")


def _dumps(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, allow_nan=False)


def _write_reports(document: dict[str, Any], junit: Path | None, html: Path | None, json_file: Path | None) -> None:
    if json_file is not None:
        write_bytes(json_file, (_dumps(document) + "\n").encode())
    if junit is not None:
        from utfproof.reporting.junit import junit_xml

        write_bytes(junit, junit_xml(document).encode())
    if html is not None:
        from utfproof.reporting.page import html_page

        write_bytes(html, html_page(document).encode())


def _print_claims(document: dict[str, Any], *, full: bool) -> None:
    from utfproof.reporting.table import print_claims, print_summary

    if full:
        print_claims(document, console())
    else:
        print_summary(document, console())
