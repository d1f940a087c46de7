"""`utfproof collect`: the results of a sweep as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from utfproof.cli.command import command
from utfproof.cli.options import argument, option, written
from utfproof.cli.outcome import Outcome
from utfproof.ground.progress import stage


@command("Example: utfproof collect ranks -o ranks.parquet")
def collect(
    *,
    folder: Annotated[Path, argument("Folder of a sweep, finished or not.")],
    output: Annotated[
        Path | None, written("Table to write: .parquet (with pyarrow) or .csv.", "-o", "--output")
    ] = None,
    certificates: Annotated[Path | None, option("Folder to write every certificate to, for utfproof check.")] = None,
    timings: Annotated[bool, option("Add seconds and worker of each job.", "--timings")] = False,
) -> Outcome:
    """Gather the results of a sweep into one table, and count its verdicts.

    The table has a row for each job. Without -o: results.parquet in the folder, or results.csv where pyarrow is not installed.
    """
    from utfproof.sweeps.jobs import named
    from utfproof.sweeps.table import Results, has_pyarrow, overview, write_table

    rows = Results(folder, timings=timings)
    with stage("read results"):
        known = overview(rows)
    path = output or folder / ("results.parquet" if has_pyarrow() else "results.csv")
    with stage("write the table", known.rows, unit="rows"):
        write_table(rows, path, known)
    if certificates is not None:
        rows.store.unpack(certificates)
    counted, total = sorted(known.counts.items()), rows.total
    names = ("command", "subject", "verdict", "notion", "targets")
    return Outcome(
        {
            "folder": str(folder),
            "jobs": total,
            "finished": known.rows,
            "file": str(path),
            "counts": [
                {k: v for k, v in zip(names, what, strict=True) if v or k == "subject"} | {"jobs": count}
                for what, count in counted
            ],
        },
        f"{folder}: {known.rows} of {total} jobs finished",
        header=("jobs", "command", "verdict", "about"),
        lines=[[str(count), command, named(*said), subject] for (command, subject, *said), count in counted],
        notes=[f"written: {path}"],
    )
