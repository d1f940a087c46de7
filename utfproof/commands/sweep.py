"""`utfproof sweep`: grids of jobs on this machine or a cluster."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import argument, memory, option, parallel, written
from utfproof.cli.outcome import Outcome
from utfproof.cli.output import plain
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage

if TYPE_CHECKING:
    from utfproof.sweeps.run import Summary

_NAMED = 3
"""Failures named on standard error; failures.jsonl has them all."""


@command(
    "Examples: utfproof sweep grid.toml -o ranks --workers 4 --table ranks.parquet; "
    "utfproof sweep grid.toml --scheduler tcp://127.0.0.1:8786"
)
def sweep(
    *,
    spec: Annotated[Path, argument("FILE.toml: the grids of jobs (docs/sweeps.md).")],
    output: Annotated[
        Path | None, option("Folder of the results; named after the sweep by default.", "-o", "--output")
    ] = None,
    table: Annotated[Path | None, written("Write a row for each result: .parquet (with pyarrow) or .csv.")] = None,
    scheduler: Annotated[str | None, option("Run on a Dask cluster: its scheduler, such as tcp://host:8786.")] = None,
    workers: Annotated[
        int | None, option("Worker processes here; cores divided by --threads by default.", check=parallel)
    ] = None,
    threads: Annotated[
        int | None, option("Threads for linear algebra in each of them; 1 by default.", check=parallel)
    ] = None,
    reuse: Annotated[bool, option("Keep results that other code of utfproof computed.", "--reuse")] = False,
    dry_run: Annotated[bool, option("Read and count the jobs; run nothing.", "--dry-run")] = False,
    max_memory: Annotated[
        int | None, option("Memory limit of one job such as 4G; its share of 80 % of RAM by default.", parser=memory)
    ] = None,
) -> Outcome:
    """Run every job of a grid that has no result yet; run it again to resume.

    Exit 0: every job has a result, whatever it says. 4: some could not be run; they are named. 3: for want of memory alone.
    """
    from utfproof.ground.resources import default_limit
    from utfproof.sweeps.cluster import DaskWorkers, require_dask
    from utfproof.sweeps.run import run_sweep
    from utfproof.sweeps.spec import read_spec
    from utfproof.sweeps.table import require_table, write_table

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
    rows |= {**_ran(summary), "results": str(folder / "results.jsonl")}
    failed = partial(_name_failures, summary, folder)
    return Outcome({**document, **summary.document()}, title, rows, summary.exit_code, closing=failed)


def _ran(summary: Summary) -> dict[str, str]:
    rows = {"finished": f"{len(summary.lines)}, of which {summary.before} before"}
    for (name, verdict), count in sorted(summary.verdicts.items()):
        rows[f"{name}: {verdict}"] = str(count)
    if summary.failures:
        rows["could not be run"] = str(len(summary.failures))
    return rows


def _name_failures(summary: Summary, folder: Path) -> None:
    if not summary.failures:
        return
    named = [f"{job.label}: {reason}" for job, reason, _ in summary.failures[:_NAMED]]
    more = len(summary.failures) - len(named)
    rest = f" (and {more} more)" if more else ""
    line = (
        f"utfproof: {len(summary.failures)} of {summary.total} jobs could not be run, see {folder / 'failures.jsonl'}: "
        f"{'; '.join(named)}{rest}"
    )
    print(plain(" ".join(line.split())), file=sys.stderr)
