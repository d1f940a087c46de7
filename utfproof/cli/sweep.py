"""`utfproof sweep` and `utfproof collect`: grids of jobs on this machine or a cluster, and their results as a table."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.cli.grid import in_sweep
from utfproof.cli.output import plain
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written

if TYPE_CHECKING:
    from utfproof.sweeps.cluster import DaskWorkers
    from utfproof.sweeps.run import Summary

_NAMED = 3
"""Failures named on standard error; failures.jsonl has them all."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Limited, Job, order=200):
    """Run every job of a grid that has no result yet; run it again to resume after anything.

    Exit 0: every job has a result, whatever it says. 4: some could not be run; they are named. 3: for want of memory alone.
    """

    examples = (
        "Examples: utfproof sweep grid.toml -o ranks --workers 4; "
        "utfproof sweep grid.toml --scheduler tcp://127.0.0.1:8786"
    )
    spec: Path = argument(..., "FILE.toml: the grids of jobs (docs/sweeps.md).")
    output: Path | None = option(None, "Folder of the results; named after the sweep by default.", "-o", "--output")
    scheduler: str | None = option(None, "Run on a Dask cluster: its scheduler, such as tcp://host:8786.")
    workers: int | None = option(None, "Worker processes here; cores divided by --threads by default.", kind="parallel")
    threads: int | None = option(None, "Threads for linear algebra in each of them; 1 by default.", kind="parallel")
    reuse: bool = option(False, "Keep results that other code of utfproof computed.")
    dry_run: bool = option(False, "Read and count the jobs; run nothing.")
    max_memory: str | None = shared(
        "max_memory", help="Memory limit of one job such as 4G; its share of 80 % of RAM by default."
    )

    def run(self) -> Outcome:
        from utfproof.sweeps.run import run_sweep
        from utfproof.sweeps.spec import read_spec

        place = self._place()
        asked = read_spec(self.spec, in_sweep)
        folder = self.output or Path(asked.name)
        document: dict[str, Any] = {
            "sweep": asked.name,
            "repeated": None if asked.is_large else asked.repeated,
            "folder": str(folder),
        }
        title = f"sweep {asked.name}"
        if self.dry_run:
            return Outcome({**document, "jobs": _count(asked)}, title, _asked(asked))
        if not folder.absolute().parent.is_dir():
            raise MalformedInput(f"{folder.absolute().parent} is not a folder; make it first")
        with stage(title, _count(asked), unit="jobs") as doing:
            summary = run_sweep(
                asked,
                folder,
                place,
                find=in_sweep,
                reuse=self.reuse,
                max_memory=self._share(place, _count(asked)),
                progress=doing.advance,
            )
        rows = {**_asked(asked), **_ran(summary), "results": str(folder / "results.jsonl")}
        failed = partial(_name_failures, summary, folder)
        return Outcome({**document, **summary.document()}, title, rows, summary.exit_code, closing=failed)

    def _place(self) -> DaskWorkers:
        """Where jobs run."""
        from utfproof.sweeps.cluster import DaskWorkers

        return DaskWorkers(self.scheduler, workers=self.workers, threads=self.threads, note=_note)

    def _share(self, place: Any, jobs: int) -> int | None:
        """Bytes for one job: a worker's share here; what a cluster's workers have is theirs."""
        from utfproof.ground.resources import default_limit

        if self.limit is not None or self.scheduler is not None:
            return self.limit
        return default_limit() // min(place.workers, max(jobs, 1))


def _note(text: str) -> None:
    print(f"note: {plain(text)}", file=sys.stderr, flush=True)


def _count(asked: Any) -> int:
    """Jobs, or of a large sweep combinations: what of them repeats others is seen when it is planned."""
    return asked.size if asked.is_large else len(asked.jobs)


def _asked(asked: Any) -> dict[str, str]:
    if asked.is_large:
        return {"jobs": f"up to {asked.size}, planned while others run"}
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
    line = (
        f"utfproof: {len(summary.failures)} of {summary.total} jobs could not be run, see {folder / 'failures.jsonl'}: "
        f"{'; '.join(named)}{rest}"
    )
    print(plain(" ".join(line.split())), file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Collect(Job, order=210, name="collect"):
    """Gather the results of a sweep into one table, a row for each job, and count its verdicts.

    Without -o: results.parquet in the folder, or results.csv where pyarrow is not installed.
    """

    examples = "Example: utfproof collect ranks -o ranks.parquet"
    folder: Path = argument(..., "Folder of a sweep, finished or not.")
    output: Path | None = written(None, "Table to write: .parquet (with pyarrow) or .csv.")
    certificates: Path | None = option(None, "Folder to write every certificate to, for utfproof check.")
    timings: bool = option(False, "Add seconds and worker of each job.")

    def run(self) -> Outcome:
        from utfproof.sweeps.jobs import named
        from utfproof.sweeps.table import Results, has_pyarrow, overview, write_table

        rows = Results(self.folder, timings=self.timings)
        with stage("read results"):
            known = overview(rows)
        path = self.output or self.folder / ("results.parquet" if has_pyarrow() else "results.csv")
        with stage("write the table", known.rows, unit="rows"):
            write_table(rows, path, known)
        if self.certificates is not None:
            rows.store.unpack(self.certificates)
        counted, total = sorted(known.counts.items()), rows.total
        names = ("command", "subject", "verdict", "notion", "targets")
        return Outcome(
            {
                "folder": str(self.folder),
                "jobs": total,
                "finished": known.rows,
                "file": str(path),
                "counts": [
                    {k: v for k, v in zip(names, what, strict=True) if v or k == "subject"} | {"jobs": count}
                    for what, count in counted
                ],
            },
            f"{self.folder}: {known.rows} of {total} jobs finished",
            header=("jobs", "command", "verdict", "about"),
            lines=[[str(count), command, named(*said), subject] for (command, subject, *said), count in counted],
            notes=[f"written: {path}"],
        )
