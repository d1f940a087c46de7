"""The folder of a sweep.

results.db       SQLite: results as compressed lines, their certificates and sidecars by SHA-256, seconds and worker of each
results.jsonl    all results in the order of the sweep file, once a run has come to its end
failures.jsonl   jobs that could not be run, with the reason; the next run tries them again

Answers of a batch are written in one transaction. A stored result counts only if its key, its files and its verdict agree
with each other.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from utfproof.certificates.results import contradiction, needs_certificate
from utfproof.errors import MalformedInput, OutputFailed
from utfproof.ground.files import atomic_file, make_folder, require_alone, require_writable, write_bytes
from utfproof.sweeps.jobs import Answer, SweepJob, canonical, sha256

APPLICATION, VERSION = 0x75746670, 3
_TABLES = f"""
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};
CREATE TABLE IF NOT EXISTS sweep(name TEXT, code TEXT, jobs INTEGER);
CREATE TABLE IF NOT EXISTS results(key TEXT PRIMARY KEY, position INTEGER, line BLOB, seconds REAL, worker TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files(sha256 TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID;
"""
_FILE = re.compile(r"[0-9a-f]{64}\.(json|bin)")
"""Names of certificates and sidecars: digests, never a path."""


class Contradiction(Exception):
    """Why a stored result is not believed."""


class Store:
    """One such folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "results.db"
        self.first = self.position = 0  # places in the order of results; those of this run follow all earlier ones

    # --- a run ---

    @contextmanager
    def opened(self, name: str, code: str, *, jobs: int, reuse: bool = False) -> Iterator[None]:
        """Make or resume the folder; one driver at a time. jobs: how many there are, at most.

        Raises MalformedInput when the folder holds another sweep's results, those of other code (unless `reuse`), or other
        files under these names; OutputFailed when the disk does not take the data.
        """
        make_folder(self.folder)
        require_writable(lock := self.folder / ".lock")
        with lock.open("ab") as stream:
            require_alone(stream, f"another sweep is running in folder {self.folder}; wait for it")
            self._agree(name, code, reuse)
            try:
                self.db = sqlite3.connect(self.path)
                self.db.executescript(_TABLES)
                with self.db:
                    self.db.execute("DELETE FROM sweep")
                    self.db.execute("INSERT INTO sweep VALUES (?, ?, ?)", (name, code, jobs))
                (last,) = self.db.execute("SELECT coalesce(max(position), -1) FROM results").fetchone()
                self.first = self.position = last + 1
                for left in ("results.jsonl", "failures.jsonl"):
                    (self.folder / left).unlink(missing_ok=True)
                yield
            except sqlite3.Error as error:
                raise OutputFailed(f"cannot write {self.path}: {error}") from error
            finally:
                self.close()

    def _agree(self, name: str, code: str, reuse: bool) -> None:
        if not self.path.exists():
            strange = ("results.jsonl", "failures.jsonl", "sweep.json")
            for path in (self.folder / own for own in strange):
                if path.exists():
                    raise MalformedInput(
                        f"folder {self.folder} has {path.name} and no results.db, so it is not a sweep's folder; choose another"
                    )
            return
        found, stored, _ = self.head()
        self.close()
        if found != name:
            raise MalformedInput(f"folder {self.folder} belongs to sweep {found!r}, not {name!r}; choose another")
        if stored != code and not reuse:
            raise MalformedInput(
                f"the results in {self.folder} come from other code of utfproof; choose another folder to compute them "
                "anew, or pass --reuse to keep them"
            )

    def head(self) -> tuple[str, str, int]:
        """Name, digest of the code, and number of jobs; MalformedInput where the folder has no such database."""
        if not self.path.is_file():
            raise MalformedInput(
                f"{self.folder} is not a sweep's folder: it has no results.db; utfproof sweep FILE.toml -o {self.folder} "
                "makes it"
            )
        self.close()
        with self._readable():
            self.db = sqlite3.connect(self.path)
            kind = [self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            row = self.db.execute("SELECT name, code, jobs FROM sweep").fetchone() if kind[0] == APPLICATION else None
            if row is None or kind[1] != VERSION:
                raise MalformedInput(f"{self.path} is not the database of a sweep of version {VERSION}; choose another")
            return str(row[0]), str(row[1]), int(row[2])

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error) as error:
            raise MalformedInput(f"{self.path} is damaged ({error}); remove it and run the sweep again") from error

    def close(self) -> None:
        """Close the database."""
        with suppress(AttributeError):
            self.db.close()

    def __del__(self) -> None:
        self.close()

    def known(self, job: SweepJob) -> dict[str, Any] | None:
        """The stored result of this job, None where it has to be run. The job comes next in the order of results."""
        row = self.db.execute("SELECT line FROM results WHERE key = ?", (job.key,)).fetchone()
        self.position += 1
        if row is None:
            return None
        try:
            found = json.loads(zlib.decompress(row[0]))
            self.require_whole(found, job.key)
        except (Contradiction, ValueError, KeyError, TypeError, zlib.error):
            return None
        self.db.execute("UPDATE results SET position = ? WHERE key = ?", (self.position - 1, job.key))
        return dict(found)

    def keep(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Write results with their places in the order, and the files that they name, in one transaction."""
        with self.db:
            for position, answer in answers:
                for data in answer.files.values():
                    row = (sha256(data), zlib.compress(data, 1))
                    self.db.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", row)
                line = zlib.compress(canonical(answer.result), 1)
                values = (answer.key, position, line, round(answer.seconds, 6), answer.worker)
                self.db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", values)

    def finish(self, failures: Sequence[tuple[SweepJob, str]]) -> None:
        """Forget results that the sweep does not ask for any more; write results.jsonl, and failures.jsonl where there are
        any."""
        with self.db:
            self.db.execute("DELETE FROM results WHERE position < ?", (self.first,))
            self.db.execute("UPDATE sweep SET jobs = ?", (self.position - self.first,))
        with atomic_file(self.folder / "results.jsonl") as stream:
            for (line,) in self.db.execute("SELECT line FROM results ORDER BY position"):
                stream.write(zlib.decompress(line) + b"\n")
        if failures:
            lines = (canonical({"key": job.key, "job": job.document, "reason": reason}) for job, reason in failures)
            write_bytes(self.folder / "failures.jsonl", b"".join(line + b"\n" for line in lines))

    # --- results ---

    def results(self) -> Iterator[tuple[dict[str, Any], float, str]]:
        """Every result in order, with seconds and worker. MalformedInput for one that is damaged, or that contradicts its
        certificate."""
        self.head()
        with self._readable():
            rows = self.db.execute("SELECT key, line, seconds, worker FROM results ORDER BY position")
            for key, line, seconds, worker in rows:
                try:
                    found = json.loads(zlib.decompress(line))
                    self.require_whole(found, key)
                except (Contradiction, ValueError, KeyError, TypeError) as error:
                    raise MalformedInput(
                        f"{self.path}: result {str(key)[:16]} {error if isinstance(error, Contradiction) else 'is damaged'}; "
                        "run the sweep again"
                    ) from error
                yield found, seconds, worker

    def require_whole(self, result: Mapping[str, Any], key: str) -> None:
        """Contradiction unless the result is this job's, its files are stored, and its verdict is its certificate's."""
        if result["key"] != key or sha256(canonical(result["job"])) != key:
            raise Contradiction("belongs to another job")
        found, certificate = result["result"], None
        for entry in result["files"]:
            if not _FILE.fullmatch(entry["file"]):
                raise Contradiction(f"names a file {entry['file'][:80]!r}, which no job writes")
            data = self.file(entry["sha256"])
            if data is None:
                raise Contradiction(f"lacks its file {entry['file']}")
            if entry["file"] == f"{key}.json":
                certificate = json.loads(data)
        if certificate is None:
            if needs_certificate(found, result["job"]):
                raise Contradiction("has a verdict without its certificate")
            return
        if why := contradiction(found, certificate, result["job"]["parameters"]):
            raise Contradiction(why)

    def file(self, digest: str) -> bytes | None:
        """A certificate or sidecar by its digest; None where it is missing or damaged."""
        row = self.db.execute("SELECT data FROM files WHERE sha256 = ?", (digest,)).fetchone()
        try:
            data = b"" if row is None else zlib.decompress(row[0])
        except zlib.error:
            return None
        return data if sha256(data) == digest else None

    def unpack(self, place: Path) -> int:
        """Write every certificate and sidecar to `place`; how many."""
        make_folder(place)
        names: set[str] = set()
        for found, _, _ in self.results():
            for entry in found["files"]:
                if entry["file"] not in names:
                    names.add(entry["file"])
                    write_bytes(place / entry["file"], self.file(entry["sha256"]) or b"")
        return len(names)
