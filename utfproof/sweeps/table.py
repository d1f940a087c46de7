"""Results as rows: a job's parameters and what it found, flat, for Parquet, CSV and tables."""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, install
from utfproof.ground.files import atomic_file
from utfproof.sweeps.jobs import canonical, question
from utfproof.sweeps.store import Store

Row = dict[str, Any]
_PART = 50_000  # rows of a table that are held at once
_SUBJECTS = ("construction", "host", "weights", "claim", "method")
"""Parameters by which results are counted together."""
_DIGEST = re.compile(r"([0-9a-f]{16})[0-9a-f]{48}")
"""Of weights; its beginning names them, as in what `check` prints."""


class Results(Iterable[Row]):
    """A row for every result of the sweep in `folder`, in the order of its jobs, read anew each time; never held all at once.

    Columns: key, command, the job's parameters, then the result with nested objects as "report.notion" and lists as JSON
    (parameters that are lists: comma-separated). timings adds seconds and worker, which differ from run to run.
    MalformedInput where there is no sweep.
    """

    def __init__(self, folder: Path | str, *, timings: bool = False) -> None:
        self.timings = timings
        self.store = Store(folder)
        _, _, self.total = self.store.head()

    def __iter__(self) -> Iterator[Row]:
        for found, seconds, worker in self.store.results():
            row: Row = {"key": found["key"], "command": found["job"]["command"]}
            for name, value in found["job"]["parameters"].items():
                row[name] = ",".join(map(str, value)) if isinstance(value, list) else value
            row |= {name if name not in row else f"result.{name}": v for name, v in _flat(found["result"]).items()}
            row["files"] = ",".join(entry["file"] for entry in found["files"])
            if self.timings:
                row |= {"seconds": seconds, "worker": worker}
            yield row


@dataclass
class Overview:
    """What a first reading of results finds: how many there are, their counts by command, subject, verdict, notion and targets
    (these two "" where the verdict is not about universality), and every column in the order of first occurrence with the
    types of its values."""

    rows: int = 0
    counts: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)
    columns: dict[str, set[type]] = field(default_factory=dict)


def overview(rows: Iterable[Row]) -> Overview:
    """The rows, read once."""
    found = Overview()
    for row in rows:
        found.rows += 1
        found.counts[row["command"], _subject(row), str(row["verdict"]), *question(row["command"], row)] += 1
        for name, value in row.items():
            kinds = found.columns.setdefault(name, set())
            if value is not None:
                kinds.add(type(value))
    return found


def _cell(value: Any) -> Any:
    """For CSV: text that a spreadsheet would run as a formula gets a quote, control characters are written out."""
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _flat(value: Mapping[str, Any], prefix: str = "") -> Row:
    flat: Row = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[prefix + name] = canonical(item).decode() if isinstance(item, list) else item
    return flat


def _subject(row: Row) -> str:
    named = next((str(row[name]) for name in _SUBJECTS if name in row), "")
    digest = _DIGEST.fullmatch(named)
    return digest[1] if digest else named


def has_pyarrow() -> bool:
    """Whether Parquet can be written here."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_table(rows: Iterable[Row], path: Path, known: Overview) -> None:
    """Rows as .parquet (needs pyarrow) or .csv, all or nothing; MalformedInput for other names."""
    if path.suffix == ".csv":
        with atomic_file(path) as stream:
            writer = csv.DictWriter(codecs.getwriter("utf-8")(stream), list(known.columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        return
    if path.suffix != ".parquet":
        raise MalformedInput(f"a table's file name ends in .parquet or .csv, got {path}")
    if not has_pyarrow():
        raise MalformedInput(f"Parquet needs pyarrow: {install('pyarrow')}, or name a .csv file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _type(pa, kinds)) for name, kinds in known.columns.items()])
    with atomic_file(path) as stream, pq.ParquetWriter(stream, schema) as writer:
        waiting = iter(rows)
        while part := list(itertools.islice(waiting, _PART)):
            arrays = {
                column.name: _column(pa, column.type, [row.get(column.name) for row in part]) for column in schema
            }
            writer.write_table(pa.table(arrays, schema=schema))
        if not known.rows:
            writer.write_table(schema.empty_table())


def _type(pa: Any, kinds: set[type]) -> Any:
    """One type a column: truth values, integers, floats, or else text."""
    for allowed, kind in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= allowed:
            return kind
    return pa.string()


def _column(pa: Any, kind: Any, values: list[Any]) -> Any:
    if kind == pa.string():
        values = [None if value is None else str(value) for value in values]
    return pa.array(values, type=kind)
