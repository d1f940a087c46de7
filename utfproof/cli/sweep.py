"""`utfproof sweep` and `utfproof collect`: grids of jobs on this machine or a cluster, and their results as a table."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit, emit_table
from utfproof.errors import MalformedInput, install
from utfproof.ground.progress import stage

if TYPE_CHECKING:
    from utfproof.sweeps.executor import Workers
    from utfproof.sweeps.run import Summary

SWEEP_EPILOG = (
    "Examples: utfproof sweep grid.toml -o ranks --workers 4; utfproof sweep grid.toml --scheduler tcp://127.0.0.1:8786"
)
COLLECT_EPILOG = "Example: utfproof collect ranks -o ranks.parquet"
_NAMED = 3
"""Failures named on standard error; failures.jsonl has them all."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    declare.add(app, "sweep", sweep, epilog=SWEEP_EPILOG)
    declare.add(app, "collect", collect, epilog=COLLECT_EPILOG)


def sweep(
    spec: Annotated[Path, typer.Argument(help="FILE.toml: the grids of jobs (docs/sweeps.md).")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the results; named after the sweep by default.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Run on a Dask cluster: its scheduler, such as tcp://host:8786.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Worker processes here; cores divided by --threads by default.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads for linear algebra in each of them; 1 by default.")
    ] = None,
    reuse: Annotated[bool, typer.Option("--reuse", help="Keep results that other code of utfproof computed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count the jobs; run nothing.")] = False,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", help="Memory limit of one job such as 4G; its share of 80 % of RAM by default."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run every job of a grid that has no result yet; run it again to resume after anything.

    Exit 0: every job has a result, whatever it says. 4: some could not be run; they are named. 3: for want of memory alone.
    """
    from utfproof.ground.resources import default_limit
    from utfproof.sweeps.executor import DaskWorkers, LocalWorkers
    from utfproof.sweeps.run import run_sweep
    from utfproof.sweeps.spec import read_spec

    if scheduler is not None and (workers is not None or threads is not None):
        raise MalformedInput(
            "--workers and --threads are about this machine; a cluster's workers are started with their own"
        )
    if scheduler is not None and find_spec("distributed") is None:
        raise MalformedInput(f"--scheduler needs Dask: {install('dask')}")
    limit = options.memory_limit(max_memory)
    asked = read_spec(spec)
    folder = output or Path(asked.name)
    document: dict[str, Any] = {"sweep": asked.name, "repeated": asked.repeated, "folder": str(folder)}
    if dry_run:
        emit({**document, "jobs": len(asked.jobs)}, f"sweep {asked.name}", _asked(asked), as_json=as_json)
        return
    if not folder.absolute().parent.is_dir():
        raise MalformedInput(f"{folder.absolute().parent} is not a folder; make it first")
    place: Workers
    if scheduler is not None:
        place = DaskWorkers(scheduler, note=lambda text: print(f"note: {text}", file=sys.stderr))
    else:
        place = LocalWorkers(workers, 1 if threads is None else threads)
        limit = limit or default_limit() // min(place.workers, len(asked.jobs))
    with stage(f"sweep {asked.name}", len(asked.jobs), unit="jobs") as doing:
        summary = run_sweep(
            asked, folder, place, reuse=reuse, max_memory=limit, started=doing.resume, progress=doing.advance
        )
    rows = {**_asked(asked), **_ran(summary), "results": str(folder / "results.jsonl")}
    emit({**document, **summary.document()}, f"sweep {asked.name}", rows, as_json=as_json)
    _name_failures(summary, folder)
    raise typer.Exit(summary.exit_code)


def _asked(asked: Any) -> dict[str, str]:
    repeated = f", and {asked.repeated} that repeat one of them" if asked.repeated else ""
    return {"jobs": f"{len(asked.jobs)}{repeated}"}


def _ran(summary: Summary) -> dict[str, str]:
    rows = {"finished": f"{summary.finished}, of which {summary.before} before"}
    for (command, verdict), count in sorted(summary.verdicts.items()):
        rows[f"{command}: {verdict}"] = str(count)
    if summary.failures:
        rows["could not be run"] = str(len(summary.failures))
    return rows


def _name_failures(summary: Summary, folder: Path) -> None:
    if not summary.failures:
        return
    named = [f"{job.label}: {reason}" for job, reason, _ in summary.failures[:_NAMED]]
    more = len(summary.failures) - len(named)
    rest = f" (and {more} more)" if more else ""
    print(
        f"utfproof: {len(summary.failures)} of {summary.total} jobs could not be run, see {folder / 'failures.jsonl'}: "
        f"{'; '.join(named)}{rest}",
        file=sys.stderr,
    )


def collect(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep, finished or not.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", writable=True, help="Table to write: .parquet (with pyarrow) or .csv."),
    ] = None,
    timings: Annotated[bool, typer.Option("--timings", help="Add seconds and worker of each job.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Gather the results of a sweep into one table, a row for each job, and count its verdicts.

    Without -o: results.parquet in the folder, or results.csv where pyarrow is not installed.
    """
    from utfproof.sweeps.table import collect as rows_of
    from utfproof.sweeps.table import counts, has_pyarrow, write_table

    rows, total = rows_of(folder, timings=timings)
    path = output or folder / ("results.parquet" if has_pyarrow() else "results.csv")
    write_table(rows, path)
    counted = sorted(counts(rows).items())
    document = {
        "folder": str(folder),
        "jobs": total,
        "finished": len(rows),
        "file": str(path),
        "counts": [
            {"command": command, "subject": subject, "verdict": verdict, "jobs": count}
            for (command, subject, verdict), count in counted
        ],
    }
    emit_table(
        document,
        f"{folder}: {len(rows)} of {total} jobs finished",
        ["jobs", "command", "verdict", "about"],
        [[str(count), command, verdict, subject] for (command, subject, verdict), count in counted],
        notes=[f"written: {path}"],
        as_json=as_json,
    )
