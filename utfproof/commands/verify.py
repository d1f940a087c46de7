"""`utfproof verify`: every statement of the paper decided anew and compared with the registry's record."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.cli.options import Output, parallel, written
from utfproof.cli.outcome import Outcome, console
from utfproof.errors import MalformedInput, Refuted
from utfproof.util.files import write_bytes
from utfproof.util.processes import cores, worker_pool
from utfproof.util.progress import stage

SHOWN_IN_FULL = 5
"""So many claims are shown with statement and evidence, more of them as a summary."""


def verify(
    *,
    claim: Annotated[
        list[str] | None,
        typer.Argument(
            help="Claims by id, by the paper's label, or by a pattern such as thm:*/open; all by default.",
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
    from utfproof.reporting.junit import junit_xml
    from utfproof.reporting.page import html_page
    from utfproof.reporting.table import print_claims, print_summary

    for name in claim or ():
        if name.endswith(".json"):  # as after --json, which takes no file
            raise MalformedInput(f"{name} is no claim; --json prints on standard output, -o {name} writes a file")
    chosen = select(claim or [])
    if listing:
        files = {"--grid": grid, "-o": output, "--junit": junit, "--html": html, "--certificates": certificates}
        if given := [name for name, value in files.items() if value is not None]:
            raise MalformedInput(f"{', '.join(given)} would change nothing: --list decides nothing")
        listed = [{"id": entry.id, "recorded": entry.verdict.value} for entry in chosen]
        return Outcome(
            {"listed": listed}, text=lambda: print(*(f"{row['recorded']:18} {row['id']}" for row in listed), sep="\n")
        )
    shapes, count = Grid.parse(grid or DEFAULT_GRID), min(workers or cores(), len(chosen))
    pool = nullcontext() if count <= 1 else worker_pool(count, "choose fewer --workers or a smaller --grid")
    with stage("verify", len(chosen), unit="claims") as doing, pool as executor:
        document, outcomes = verify(chosen, shapes, executor=executor, keep=certificates, progress=doing.advance)
    found = {digest: data for outcome in outcomes for digest, data in outcome.certificates.items()}
    document["certificates"] = {digest: json.loads(data) for digest, data in sorted(found.items())}
    if output is not None:
        write_bytes(output, (json.dumps(document, sort_keys=True, allow_nan=False) + "\n").encode())
    if junit is not None:
        write_bytes(junit, junit_xml(document).encode())
    if html is not None:
        write_bytes(html, html_page(document).encode())
    show = print_claims if len(chosen) <= SHOWN_IN_FULL else print_summary
    broken = [entry["id"] for entry in document["claims"] if not entry["agrees"]]
    failure = Refuted(f"not as recorded: {', '.join(broken)}") if broken else None
    return Outcome(document, text=lambda: show(document, console()), failure=failure)
