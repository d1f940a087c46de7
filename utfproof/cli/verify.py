"""`utfproof verify`: every statement of the paper decided anew and compared with the registry's record."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.cli import declare, options
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, together, write_bytes
from utfproof.ground.processes import worker_pool
from utfproof.ground.progress import stage

if TYPE_CHECKING:
    from concurrent.futures import Executor

EPILOG = 'Example: utfproof verify "thm:designed-R*" --grid "H=1..2,L=1..3,d=1..2,d_in=1..3" --html claims.html'
SHOWN_IN_FULL = 5
"""So many claims are shown with statement and evidence, more of them as a summary."""
PICTURE_SHAPE = (2, 2, 1, 2)
"""(H, L, d, d_in) drawn in the page unless the shape options say otherwise."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "verify", command, epilog=EPILOG)


def command(
    claims: Annotated[
        list[str] | None, typer.Argument(help="Claims by id, by the paper's label, or by a prefix ending in *; all.")
    ] = None,
    grid: Annotated[str, typer.Option("--grid", help="Shapes on which claims are decided.")] = DEFAULT_GRID,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Also write the JSON document here.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", writable=True, help="JUnit XML, a test case for each claim.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", writable=True, help="One self-contained page: claims, evidence, pictures.")
    ] = None,
    certificates: Annotated[
        Path | None, typer.Option("--certificates", help="Existing folder in which to leave every certificate.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every claim with its statement, verdict, instances and evidence.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Worker processes; as many as cores unless said otherwise.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Name the claims with their recorded verdicts and leave.")
    ] = False,
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide the claims and compare each verdict with the recorded one.

    Prints the verdicts by section and what fails or is open; up to five claims, or with --full all of them, with statement and
    evidence. The shape options choose the pictures of --html. Exit 0: every claim is as recorded. 1: some are not; they are
    named.
    """
    from utfproof.claims.registry import select
    from utfproof.claims.runner import verify

    chosen = select(_no_files(claims or []))
    if listing:
        if any(given is not None for given in (junit, html, output, certificates)):
            raise MalformedInput("--list decides nothing: leave out --junit, --html, --output and --certificates")
        for entry in chosen:
            print(f"{entry.verdict.value:18} {entry.id}")
        return
    shapes = Grid.parse(grid)
    require_writable(junit, html, output)
    pictures = _pictures(html, (heads, layers, head_dim, d_in))
    count = _worker_count(workers, len(chosen))
    with (
        stage("verify", len(chosen), unit="claims") as doing,
        _executor(count) as executor,
    ):
        document, outcomes = verify(chosen, shapes, executor=executor, keep=certificates, progress=doing.advance)
    found = {digest: data for outcome in outcomes for digest, data in outcome.certificates.items()}
    document["certificates"] = {digest: json.loads(data) for digest, data in sorted(found.items())}
    with together():
        _write_reports(document, junit, html, output, pictures)
    if as_json:
        print(_dumps(document))
    else:
        _print_claims(document, full=full or len(chosen) <= SHOWN_IN_FULL)
    broken = [entry["id"] for entry in document["claims"] if not entry["agrees"]]
    if broken:
        print(f"utfproof: not as recorded: {', '.join(broken)}", file=sys.stderr)
        raise typer.Exit(1)


def _no_files(names: list[str]) -> list[str]:
    """The names of claims; MalformedInput for a file among them, as after `--json`, which takes none."""
    for name in names:
        if name.endswith(".json"):
            raise MalformedInput(f"{name} is no claim; --json prints on standard output, -o {name} writes a file")
    return names


def _worker_count(workers: int | None, jobs: int) -> int:
    if workers is not None and workers < 1:
        raise MalformedInput(f"--workers must be a positive integer, got {workers}")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available if workers is None else workers, jobs)


def _executor(count: int) -> AbstractContextManager[Executor | None]:
    """`count` worker processes; none for one worker."""
    return nullcontext() if count <= 1 else worker_pool(count, "choose fewer --workers or a smaller --grid")


def _pictures(html: Path | None, given: tuple[int | None, ...]) -> Any:
    """What the page draws; None without a page. MalformedInput for shape options without one."""
    if html is None:
        if any(value is not None for value in given):
            raise MalformedInput("the shape options choose the pictures of --html, which is not given")
        return None
    from utfproof.reporting.pictures import draw
    from utfproof.shapes import Shape

    if any(value is not None for value in given):
        H, L, d, width = given
        shape = options.required_shape(H, L, d, width, None)
    else:
        shape = Shape(*PICTURE_SHAPE)
    return draw(shape)


def _dumps(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, allow_nan=False)


def _write_reports(
    document: dict[str, Any], junit: Path | None, html: Path | None, json_file: Path | None, pictures: Any
) -> None:
    if json_file is not None:
        write_bytes(json_file, (_dumps(document) + "\n").encode())
    if junit is not None:
        from utfproof.reporting.junit import junit_xml

        write_bytes(junit, junit_xml(document).encode())
    if html is not None:
        from utfproof.reporting.page import html_page

        write_bytes(html, html_page(document, pictures).encode())


def _print_claims(document: dict[str, Any], *, full: bool) -> None:
    from rich.console import Console

    from utfproof.reporting.table import print_claims, print_summary

    console = Console(highlight=False)
    if full:
        print_claims(document, console)
    else:
        print_summary(document, console)
