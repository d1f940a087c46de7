"""The folder of a large sweep: results in segments, one for each batch of jobs, with an index by key.

sweep.json              name, the digest of the code that the results come from, version 2 of the layout
results.db              SQLite: `segments` (results as compressed lines, their SHA-256, seconds), `results` (key: segment, line)
certificates/N.zip      certificates and sidecars of segment N, whose size and SHA-256 the index has
results.jsonl           all results in order, once a run has come to its end
failures.jsonl          jobs that could not be run, with the reason

A segment is kept all or nothing: its archive is written whole, then its rows in one transaction. What a killed driver left
without a row is taken away; a segment whose archive is gone, or of another size, is forgotten and its jobs run again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, OutputFailed
from utfproof.ground.files import atomic_file, make_folder, write_bytes
from utfproof.sweeps.jobs import Answer, SweepJob, SweepTask, canonical, run_task, verdict_of
from utfproof.sweeps.store import Folder

_TABLES = """
CREATE TABLE IF NOT EXISTS segments(
    number INTEGER PRIMARY KEY, jobs INTEGER, sha256 TEXT, lines BLOB, seconds BLOB, worker TEXT, size INTEGER, archive TEXT);
CREATE TABLE IF NOT EXISTS results(
    key BLOB PRIMARY KEY, segment INTEGER, line INTEGER, verdict TEXT, position INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_segment ON results(segment);
"""
_ARCHIVE = re.compile(r"[0-9]{6,}\.zip|\.[0-9]{6,}\.zip\.[0-9a-f]+")
"""An archive, and what was to become one."""
_CACHED = 4  # segments that are held unpacked while results are read in order


@dataclass(frozen=True)
class Segment:
    """What a batch came to: keys and verdicts in order, the results as compressed lines, their files as a ZIP archive (empty
    where there are none), seconds of each; failures: of jobs that could not be run."""

    keys: tuple[str, ...]
    verdicts: tuple[str, ...]
    lines: bytes
    archive: bytes
    seconds: tuple[float, ...]
    worker: str
    failures: tuple[Answer, ...]


@dataclass(frozen=True)
class ResultBatch:
    """Jobs on their way to a worker together."""

    tasks: tuple[SweepTask, ...]

    @property
    def key(self) -> str:
        """Of its first job."""
        return self.tasks[0].key

    @property
    def size(self) -> int:
        """How many jobs it has."""
        return len(self.tasks)

    def parts(self) -> list[ResultBatch]:
        """Batches of one job each."""
        return [ResultBatch((task,)) for task in self.tasks]

    def failed(self, reason: str) -> Segment:
        """What is said where no worker could run it."""
        return packed([task.failed(reason) for task in self.tasks])


def run_batch(batch: ResultBatch) -> Segment:
    """Run the jobs of a batch, one after another."""
    return packed([run_task(task) for task in batch.tasks])


def packed(answers: Sequence[Answer]) -> Segment:
    """Answers as a segment."""
    whole = [answer for answer in answers if answer.result is not None]
    archive = io.BytesIO()
    names: set[str] = set()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for answer in whole:
            for name, data in answer.files.items():
                if name not in names:  # sidecars by their digest may be of several jobs
                    names.add(name)
                    file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)
    return Segment(
        tuple(answer.key for answer in whole),
        tuple(verdict_of(answer.result) for answer in whole if answer.result is not None),
        zlib.compress(b"".join(canonical(answer.result) + b"\n" for answer in whole), 1),
        archive.getvalue() if names else b"",
        tuple(round(answer.seconds, 6) for answer in whole),
        whole[0].worker if whole else "",
        tuple(answer for answer in answers if answer.result is None),
    )


class Segments(Folder):
    """One such folder."""

    version = 2

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder)
        self.first = self.position = 0  # places in the order of results: those of this run come after all earlier ones
        self._db: sqlite3.Connection | None = None

    @property
    def db(self) -> sqlite3.Connection:
        """The index; MalformedInput where it cannot be read."""
        if self._db is None:
            path = self.folder / "results.db"
            try:
                self._db = sqlite3.connect(path)
                self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_TABLES}")
            except sqlite3.Error as error:
                raise MalformedInput(f"{path} is not the index of a sweep: {error}") from error
        return self._db

    @contextmanager
    def opened(self, name: str, code: str, *, jobs: int, reuse: bool = False) -> Iterator[None]:
        """Make or resume the folder; one driver at a time. jobs: how many there are, at most. Raises as `Store.opened` does."""
        self.make()
        with self.locked():
            self.agree(name, code, reuse)
            self.make(self.certificates)
            self._write_head({**self.head_of(name), "code": code, "jobs": jobs})
            try:
                self._forget_what_is_not_whole()
                (last,) = self.db.execute("SELECT coalesce(max(position), -1) FROM results").fetchone()
                self.first = self.position = last + 1
                yield
            except sqlite3.Error as error:  # the disk is full, say
                raise OutputFailed(f"cannot write {self.folder / 'results.db'}: {error}") from error
            finally:
                self.close()

    def _write_head(self, head: dict[str, Any]) -> None:
        write_bytes(self.folder / "sweep.json", canonical(head) + b"\n")

    def close(self) -> None:
        """Give the index back."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _forget_what_is_not_whole(self) -> None:
        known = {}
        for number, size in self.db.execute("SELECT number, size FROM segments").fetchall():
            path = self._archive(number)
            if size and (not path.is_file() or path.stat().st_size != size):
                with self.db:
                    self.db.execute("DELETE FROM results WHERE segment = ?", (number,))
                    self.db.execute("DELETE FROM segments WHERE number = ?", (number,))
            elif size:
                known[path.name] = size
        archives = [path for path in self.certificates.iterdir() if _ARCHIVE.fullmatch(path.name)]
        for path in [*archives, *self.folder.glob(".*.json*.*")]:  # of a driver that was killed
            if path.name not in known:
                path.unlink(missing_ok=True)

    def _archive(self, number: int) -> Path:
        return self.certificates / f"{number:06d}.zip"

    def count(self) -> int:
        """Results that there are."""
        return int(self.db.execute("SELECT count(*) FROM results").fetchone()[0])

    def found(self, jobs: Sequence[SweepJob]) -> list[str | None]:
        """The verdict of each of these jobs, None where it has to be run; they come next in the order of results, from
        `position` on."""
        verdicts: list[str | None] = []
        first, self.position = self.position, self.position + len(jobs)
        with self.db:
            for place, job in enumerate(jobs, start=first):
                key = bytes.fromhex(job.key)
                row = self.db.execute("SELECT verdict FROM results WHERE key = ?", (key,)).fetchone()
                verdicts.append(None if row is None else row[0])
                if row is not None:
                    self.db.execute("UPDATE results SET position = ? WHERE key = ?", (place, key))
        return verdicts

    def keep(self, segment: Segment, positions: Sequence[int]) -> None:
        """Write a segment whose jobs have these places in the order of results."""
        if not segment.keys:
            return
        (number,) = self.db.execute("SELECT coalesce(max(number), 0) + 1 FROM segments").fetchone()
        if segment.archive:
            write_bytes(self._archive(number), segment.archive)
        digests = (_sha256(segment.lines), _sha256(segment.archive) if segment.archive else "")
        seconds = zlib.compress(json.dumps(segment.seconds).encode())
        row = (
            number,
            len(segment.keys),
            digests[0],
            segment.lines,
            seconds,
            segment.worker,
            len(segment.archive),
            digests[1],
        )
        lines = range(len(segment.keys))
        with self.db:
            self.db.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            self.db.executemany(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?)",
                zip(
                    map(bytes.fromhex, segment.keys),
                    [number] * len(lines),
                    lines,
                    segment.verdicts,
                    positions,
                    strict=True,
                ),
            )

    def lines(self) -> Iterator[tuple[bytes, float, str]]:
        """Every result in the order of the last run's jobs: line, seconds and worker. MalformedInput where a segment is not
        what its digest says."""
        unpacked: dict[int, tuple[list[bytes], list[float], str]] = {}
        order = "SELECT segment, line FROM results ORDER BY position"
        for number, line in self.db.execute(order):
            if number not in unpacked:
                if len(unpacked) >= _CACHED:
                    unpacked.pop(next(iter(unpacked)))
                unpacked[number] = self._unpacked(number)
            found, seconds, worker = unpacked[number]
            yield found[line], seconds[line], worker

    def _unpacked(self, number: int) -> tuple[list[bytes], list[float], str]:
        query = "SELECT sha256, lines, seconds, worker FROM segments WHERE number = ?"
        digest, lines, seconds, worker = self.db.execute(query, (number,)).fetchone()
        if _sha256(lines) != digest:
            raise MalformedInput(
                f"segment {number} of {self.folder} is damaged; remove the folder and run the sweep again"
            )
        return zlib.decompress(lines).splitlines(keepends=True), json.loads(zlib.decompress(seconds)), worker

    def results(self) -> Iterator[tuple[dict[str, Any], float | None, str | None]]:
        """Every result in order, with seconds and worker."""
        return ((json.loads(line), seconds, worker) for line, seconds, worker in self.lines())

    def total(self) -> int:
        """How many jobs there are; while a run lasts, at most."""
        return int(self.head()["jobs"])

    def compile(self, failures: Sequence[tuple[SweepJob, str]]) -> None:
        """results.jsonl in the order of the jobs, and failures.jsonl where there are any. Results that the sweep does not ask
        for any more are forgotten; their segments stay."""
        with self.db:
            self.db.execute("DELETE FROM results WHERE position < ?", (self.first,))
        self._write_head({**self.head(), "jobs": self.position - self.first})
        with atomic_file(self.folder / "results.jsonl") as stream:
            for line, _, _ in self.lines():
                stream.write(line)
        self.write_failures(failures)

    def unpack(self, place: Path) -> int:
        """Every certificate and sidecar as a file in `place`; how many. MalformedInput for an archive that is damaged."""
        make_folder(place)
        number = 0
        for segment, digest in self.db.execute("SELECT number, archive FROM segments WHERE size > 0 ORDER BY number"):
            path = self._archive(segment)
            data = path.read_bytes() if path.is_file() else b""
            if _sha256(data) != digest:
                raise MalformedInput(f"{path} is damaged or gone; run the sweep again")
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    write_bytes(place / Path(name).name, archive.read(name))
                    number += 1
        return number


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
