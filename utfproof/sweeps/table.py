"""Results as rows: a job's parameters and what it found, flat, for Parquet, CSV and tables."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, install
from utfproof.ground.files import atomic_file, write_bytes
from utfproof.sweeps.jobs import canonical
from utfproof.sweeps.store import Store

Row = dict[str, Any]
_SUBJECTS = ("construction", "host", "weights", "claim", "method")
"""Parameters by which results are counted together."""


def collect(folder: Path | str, *, timings: bool = False) -> tuple[list[Row], int]:
    """A row for every result of the sweep in `folder`, in the order of its jobs, and how many jobs there are.

    Columns: key, command, the job's parameters, then the result with nested objects as "report.notion" and lists as JSON
    (parameters that are lists: comma-separated). timings adds seconds and worker, which differ from run to run.
    MalformedInput where there is no sweep.
    """
    store = Store(folder)
    store.head()
    jobs = store.jobs()
    times = store.timings() if timings else {}
    rows = []
    for key, job in jobs:
        found = store.result(key)
        if found is None:
            continue
        row: Row = {"key": key, "command": job["command"]}
        for name, value in job["parameters"].items():
            row[name] = ",".join(map(str, value)) if isinstance(value, list) else value
        row |= {name if name not in row else f"result.{name}": v for name, v in _flat(found["result"]).items()}
        row["files"] = ",".join(entry["file"] for entry in found["files"])
        if timings:
            row["seconds"] = times.get(key, {}).get("seconds")
            row["worker"] = times.get(key, {}).get("worker")
        rows.append(row)
    return rows, len(jobs)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Row:
    flat: Row = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[prefix + name] = canonical(item).decode() if isinstance(item, list) else item
    return flat


def columns(rows: Sequence[Row]) -> list[str]:
    """Every name that occurs, in the order of first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row))


def counts(rows: Sequence[Row]) -> Counter[tuple[str, str, str]]:
    """Results by command, what they are about, and verdict."""
    return Counter((row["command"], _subject(row), str(row["verdict"])) for row in rows)


def _subject(row: Row) -> str:
    return next((str(row[name]) for name in _SUBJECTS if name in row), "")


def has_pyarrow() -> bool:
    """Whether Parquet can be written here."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Rows as .parquet (needs pyarrow) or .csv, all or nothing; MalformedInput for other names."""
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, columns(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_bytes(path, text.getvalue().encode())
        return
    if path.suffix != ".parquet":
        raise MalformedInput(f"a table's file name ends in .parquet or .csv, got {path}")
    if not has_pyarrow():
        raise MalformedInput(f"Parquet needs pyarrow: {install('pyarrow')}, or name a .csv file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: _column(pa, [row.get(name) for row in rows]) for name in columns(rows)}
    with atomic_file(path) as stream:
        pq.write_table(pa.table(arrays), stream)


def _column(pa: Any, values: list[Any]) -> Any:
    """One type a column: truth values, integers, floats, or else text."""
    kinds = {type(value) for value in values if value is not None}
    for allowed, kind in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= allowed:
            return pa.array(values, type=kind)
    return pa.array([None if value is None else str(value) for value in values], type=pa.string())
