"""`utfproof sweep`: grids of jobs on this machine or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.options import memory, parallel, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.util.progress import stage

if TYPE_CHECKING:
    from utfproof.sweeps.run import Summary

_NAMED = 3
"""Failures named on standard error; failures.jsonl has them all."""


def sweep(
    *,
    spec: Annotated[Path, typer.Argument(help="FILE.toml: the grids of jobs (docs/sweeps.md).")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the results; named after the sweep by default.")
    ] = None,
    table: Annotated[Path | None, written("Write a row for each result: .parquet (with pyarrow) or .csv.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on a Dask cluster: its scheduler, such as tcp://host:8786.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes here; cores divided by --threads by default.", parser=parallel, metavar="N"
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads for linear algebra in each of them; 1 by default.", parser=parallel, metavar="N"),
    ] = None,
    reuse: Annotated[bool, typer.Option("--reuse", help="Keep results that other code of utfproof computed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count the jobs; run nothing.")] = False,
    max_memory: Annotated[
        int | None,
        typer.Option(
            help="Memory limit of one job such as 4G; its share of 80 % of RAM by default.",
            parser=memory,
            metavar="SIZE",
        ),
    ] = None,
) -> Outcome:
    """Run every job of a grid; run it again to resume.

    Exit 0: every job has a result, whatever it says. 4: some could not be run; they are named. 3: for want of memory alone.

    Examples: utfproof sweep grid.toml -o ranks --workers 4 --table ranks.parquet; utfproof sweep grid.toml --scheduler
    tcp://127.0.0.1:8786
    """
    from utfproof.sweeps.cluster import DaskWorkers, require_dask
    from utfproof.sweeps.run import run_sweep
    from utfproof.sweeps.spec import read_spec
    from utfproof.sweeps.table import require_table, write_table
    from utfproof.util.resources import default_limit

    if table is not None:
        require_table(table)
    place, asked = DaskWorkers(scheduler, workers=workers, threads=threads), read_spec(spec)
    folder, count = output or Path(asked.name), len(asked.jobs)
    document: dict[str, Any] = {"sweep": asked.name, "repeated": asked.repeated, "folder": str(folder), "jobs": count}
    repeated = f", and {asked.repeated} that repeat one of them" if asked.repeated else ""
    title, rows = f"sweep {asked.name}", {"jobs": f"{count}{repeated}"}
    if dry_run:
        return Outcome(document, title, rows)
    require_dask()
    if not folder.absolute().parent.is_dir():
        raise MalformedInput(f"{folder.absolute().parent} is not a folder; make it first")
    if max_memory is None and scheduler is None:  # a worker's share
        max_memory = default_limit() // min(place.workers, max(count, 1))
    with stage(title, count, unit="jobs") as doing:
        summary = run_sweep(asked, folder, place, reuse=reuse, max_memory=max_memory, progress=doing.advance)
    if table is not None:
        with stage("write the table", count, unit="rows"):
            write_table(summary.lines.values(), table)
        rows["table"] = str(table)
    rows["finished"] = f"{len(summary.lines)}, of which {summary.before} before"
    rows |= {f"{name}: {verdict}": str(count) for (name, verdict), count in sorted(summary.verdicts.items())}
    failure: ResourceLimit | Undecided | None = None
    if summary.failures:
        rows["could not be run"] = str(len(summary.failures))
        failure = (ResourceLimit if summary.exit_code == 3 else Undecided)(_named(summary, folder))
    rows["results"] = str(folder / "results.jsonl")
    return Outcome({**document, **summary.document()}, title, rows, failure=failure)


def _named(summary: Summary, folder: Path) -> str:
    named = [f"{job.label}: {reason}" for job, reason, _ in summary.failures[:_NAMED]]
    more = len(summary.failures) - len(named)
    return (
        f"{len(summary.failures)} of {summary.total} jobs could not be run, see {folder / 'failures.jsonl'}: "
        f"{'; '.join(named)}" + (f" (and {more} more)" if more else "")
    )
