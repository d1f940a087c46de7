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
from utfproof.cli import options
from utfproof.cli.output import progress
from utfproof.errors import MalformedInput
from utfproof.files import require_writable, write_bytes
from utfproof.processes import worker_pool

if TYPE_CHECKING:
    from concurrent.futures import Executor

EPILOG = 'Example: utfproof verify "thm:designed-R*" --grid "H=1..2,L=1..3,d=1..2,d_in=1..3" --html claims.html'
PICTURE_SHAPE = (2, 2, 1, 2)
"""(H, L, d, d_in) drawn in the page unless the shape options say otherwise."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", epilog=EPILOG)(command)


def command(
    claims: Annotated[
        list[str] | None, typer.Argument(help="Claims by id, by the paper's label, or by a prefix ending in *; all.")
    ] = None,
    grid: Annotated[str, typer.Option("--grid", help="Shapes on which claims are decided.")] = DEFAULT_GRID,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, or in the FILE.json named after it.")
    ] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="JUnit XML, a test case for each claim.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="One self-contained page: claims, evidence, pictures.")
    ] = None,
    certificates: Annotated[
        Path | None, typer.Option("--certificates", help="Existing folder in which to leave every certificate.")
    ] = None,
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
) -> None:
    """Decide the claims and compare each verdict with the recorded one; the shape options choose the page's pictures.

    Exit 0: every claim is as recorded. 1: some are not; they are named.
    """
    from utfproof.claims.registry import select
    from utfproof.claims.runner import verify

    names, json_file = _split_json_file(claims or [], as_json)
    chosen = select(names)
    if listing:
        if any(output is not None for output in (junit, html, json_file, certificates)):
            raise MalformedInput("--list decides nothing: leave out --junit, --html, --json FILE and --certificates")
        for entry in chosen:
            print(f"{entry.verdict.value:18} {entry.id}")
        return
    shapes = Grid.parse(grid)
    require_writable(junit, html, json_file)
    pictures = _pictures(html, (heads, layers, head_dim, d_in))
    count = _worker_count(workers, len(chosen))
    with (
        progress("claims", len(chosen), enabled=True) as advance,
        _executor(count) as executor,
    ):
        document, outcomes = verify(chosen, shapes, executor=executor, keep=certificates, progress=advance)
    found = {digest: data for outcome in outcomes for digest, data in outcome.certificates.items()}
    document["certificates"] = {digest: json.loads(data) for digest, data in sorted(found.items())}
    _write_reports(document, junit, html, json_file, pictures)
    if as_json and json_file is None:
        print(_dumps(document))
    elif not as_json:
        _print_table(document)
    broken = [entry["id"] for entry in document["claims"] if not entry["agrees"]]
    if broken:
        print(f"utfproof: not as recorded: {', '.join(broken)}", file=sys.stderr)
        raise typer.Exit(1)


def _split_json_file(names: list[str], as_json: bool) -> tuple[list[str], Path | None]:
    """`--json FILE.json` puts FILE among the arguments: no claim's id ends so."""
    files = [name for name in names if name.endswith(".json")]
    if not as_json or not files:
        return names, None
    if len(files) > 1:
        raise MalformedInput(f"--json takes one file, got {', '.join(files)}")
    return [name for name in names if not name.endswith(".json")], Path(files[0])


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


def _print_table(document: dict[str, Any]) -> None:
    from rich.console import Console

    from utfproof.reporting.table import print_claims

    print_claims(document, Console(highlight=False))
