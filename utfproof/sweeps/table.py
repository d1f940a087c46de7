"""Results as rows: a job's parameters and what it found, flat, for Parquet and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, install
from utfproof.sweeps.jobs import canonical
from utfproof.util.files import atomic_file, require_writable

Row = dict[str, Any]


def require_table(path: Path) -> None:
    """MalformedInput, before any work, for a name or a format that `write_table` cannot serve."""
    if path.suffix not in (".csv", ".parquet"):
        raise MalformedInput(f"a table's file name ends in .parquet or .csv, got {path}")
    require_writable(path)
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise MalformedInput(f"Parquet needs pyarrow: {install('pyarrow')}, or name a .csv file") from error


def row_of(line: Mapping[str, Any]) -> Row:
    """One result: key, command, the job's parameters, then the result, nested objects as "report.notion", lists as JSON."""
    row: Row = {"key": line["key"], "command": line["job"]["command"], **_flat(line["job"]["parameters"])}
    row |= {name if name not in row else f"result.{name}": value for name, value in _flat(line["result"]).items()}
    return row | {"files": ",".join(entry["file"] for entry in line["files"])}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Row:
    flat: Row = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[prefix + name] = canonical(item).decode() if isinstance(item, list) else item
    return flat


def write_table(lines: Iterable[Mapping[str, Any]], path: Path) -> None:
    """A row for each result as .parquet or .csv, all or nothing. Parquet: a column of mixed types becomes text."""
    rows = [row_of(line) for line in lines]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_file(path) as stream:
        if path.suffix == ".csv":
            text = io.TextIOWrapper(stream, "utf-8", newline="")
            writer = csv.DictWriter(text, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
            text.flush()
            text.detach()
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: _column(pa, [row.get(name) for row in rows]) for name in columns}), stream)


def _column(pa: Any, values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _cell(value: Any) -> Any:
    """For CSV: text that a spreadsheet would run as a formula gets a quote, control characters are written out."""
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
