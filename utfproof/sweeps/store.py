"""The folder of a sweep of few jobs; `segments` has that of many. Every file in it is written whole, under a temporary name,
and then renamed.

sweep.json              name, and the digest of the code that the results come from
jobs.jsonl              key and job, a line each, in the order of the sweep file
results/KEY.json        the result of one job
certificates/           KEY.json and sidecars (verify: certificates by their own digest)
results.jsonl           all results in order, once a run has come to its end
failures.jsonl          jobs that could not be run, with the reason; they are missing, so the next run tries them again
timings.jsonl           seconds and worker of each job, in the order they finished
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import atomic_file, make_folder, read_bytes, require_alone, require_writable, write_bytes
from utfproof.sweeps.jobs import Answer, SweepJob, canonical

FORMAT = "utfproof-sweep"
OWN = (
    "results", "certificates", "results.db", "jobs.jsonl", "results.jsonl", "failures.jsonl", "timings.jsonl"
)  # fmt: skip
"""What a sweep's folder has beside its head: a run replaces them, or clears them up."""


class Folder:
    """What folders of sweeps have in common: a head, a lock, and what could not be run."""

    version = 1

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.certificates = self.folder / "certificates"

    def make(self, *places: Path) -> None:
        """Make the folder and these in it; MalformedInput where that cannot be."""
        for place in (self.folder, *places):
            make_folder(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One driver at a time; the lock is given up with the process, however it ends."""
        require_writable(lock := self.folder / ".lock")
        with lock.open("ab") as stream:
            require_alone(stream, f"another sweep is running in folder {self.folder}; wait for it")
            yield

    def agree(self, name: str, code: str, reuse: bool) -> None:
        """MalformedInput when the folder holds another sweep's results, or (unless `reuse`) those of other code, or what a
        sweep would take for its own."""
        if not (self.folder / "sweep.json").exists():
            for path in (self.folder / own for own in OWN):
                if any(path.iterdir()) if path.is_dir() else path.exists():
                    raise MalformedInput(
                        f"folder {self.folder} is no sweep's: it has {path.name}, and sweep.json is missing; choose another"
                    )
            return
        found = self.head()
        if found["name"] != name:
            raise MalformedInput(
                f"folder {self.folder} belongs to sweep {found['name']!r}, not {name!r}; choose another"
            )
        if found["code"] != code and not reuse:
            raise MalformedInput(
                f"the results in {self.folder} come from other code of utfproof; choose another folder to compute them "
                "anew, or pass --reuse to keep them"
            )

    def head_of(self, name: str) -> dict[str, Any]:
        """What sweep.json begins with."""
        return {"format": FORMAT, "version": self.version, "name": name}

    def head(self) -> dict[str, Any]:
        """sweep.json; MalformedInput where there is none."""
        path = self.folder / "sweep.json"
        data = read_bytes(path)
        try:
            found = json.loads(data)
            if (
                self.head_of(str(found["name"])) == {k: found[k] for k in ("format", "version", "name")}
                and found["code"]
            ):
                return dict(found)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(f"{path} is not the head of a sweep") from error
        raise MalformedInput(f"{path} is not the head of a sweep of version {self.version}")

    def begin(self) -> None:
        """What only the end of a run makes is taken away."""
        for name in ("results.jsonl", "failures.jsonl"):
            (self.folder / name).unlink(missing_ok=True)

    def write_failures(self, failures: Sequence[tuple[SweepJob, str]]) -> None:
        """failures.jsonl, where there are any."""
        if failures:
            lines = (_line({"key": job.key, "job": job.document, "reason": reason}) for job, reason in failures)
            write_bytes(self.folder / "failures.jsonl", b"".join(lines))


class Store(Folder):
    """A folder with a file for each result."""

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder)
        self.place = self.folder / "results"

    @contextmanager
    def opened(self, name: str, jobs: Sequence[SweepJob], code: str, *, reuse: bool = False) -> Iterator[None]:
        """Make or resume the folder for these jobs; one driver at a time. MalformedInput when it holds another sweep's
        results, or (unless `reuse`) those of other code."""
        self.make()
        with self.locked():
            self.agree(name, code, reuse)
            self.make(self.place, self.certificates)
            for place in (self.folder, self.place, self.certificates):  # what a killed driver was about to write
                for left in place.glob(".*.json*.*"):
                    left.unlink(missing_ok=True)
            write_bytes(self.folder / "sweep.json", _line({**self.head_of(name), "code": code}))
            listing = (_line({"key": job.key, "job": job.document}) for job in jobs)
            write_bytes(self.folder / "jobs.jsonl", b"".join(listing))
            yield

    def jobs(self) -> list[tuple[str, dict[str, Any]]]:
        """Key and job of every line of jobs.jsonl."""
        path = self.folder / "jobs.jsonl"
        data = read_bytes(path)
        try:
            lines = [json.loads(line) for line in data.splitlines()]
            return [(str(line["key"]), dict(line["job"])) for line in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(f"{path} is not a list of jobs") from error

    def result(self, key: str) -> dict[str, Any] | None:
        """The result of a job, if it is there whole with its certificates; None means that it has to be run."""
        try:
            found = json.loads((self.place / f"{key}.json").read_bytes())
            if found["key"] != key or hashlib.sha256(canonical(found["job"])).hexdigest() != key:
                return None
            if not isinstance(found["result"]["verdict"], str) or not all(
                self._whole(entry) for entry in found["files"]
            ):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found

    def _whole(self, entry: dict[str, str]) -> bool:
        path = self.certificates / entry["file"]
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == entry["sha256"]

    def keep(self, answer: Answer) -> None:
        """Write a result: its files first, so that a result is never without them."""
        assert answer.result is not None
        for name, data in answer.files.items():
            write_bytes(self.certificates / name, data)
        write_bytes(self.place / f"{answer.key}.json", _line(answer.result))
        self._time(answer)

    def _time(self, answer: Answer) -> None:
        line = _line({"key": answer.key, "seconds": round(answer.seconds, 6), "worker": answer.worker})
        with (self.folder / "timings.jsonl").open("a+b") as stream:
            size = stream.seek(0, 2)
            if size:
                stream.seek(size - 1)
                if stream.read(1) != b"\n":  # a driver was killed in mid-line
                    line = b"\n" + line
            stream.write(line)

    def timings(self) -> dict[str, dict[str, Any]]:
        """Seconds and worker by key; lines that are not whole are left out."""
        found = {}
        with suppress(OSError):
            for line in (self.folder / "timings.jsonl").read_bytes().splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    found[str(entry["key"])] = entry
        return found

    def compile(self, jobs: Sequence[SweepJob], failures: Sequence[tuple[SweepJob, str]]) -> None:
        """results.jsonl in the order of the jobs, and failures.jsonl where there are any."""
        failed = {job.key for job, _ in failures}
        with atomic_file(self.folder / "results.jsonl") as stream:
            for job in jobs:
                if job.key not in failed:
                    stream.write((self.place / f"{job.key}.json").read_bytes())
        self.write_failures(failures)

    def results(self) -> Iterator[tuple[dict[str, Any], float | None, str | None]]:
        """Every result in the order of jobs.jsonl, with seconds and worker."""
        times = self.timings()
        for key, _ in self.jobs():
            found = self.result(key)
            if found is not None:
                entry = times.get(key, {})
                yield found, entry.get("seconds"), entry.get("worker")

    def unpack(self, place: Path) -> int:
        """Copy every certificate and sidecar to `place`; how many."""
        make_folder(place)
        files = sorted(path for path in self.certificates.glob("*") if path.is_file())
        for path in files:
            write_bytes(place / path.name, path.read_bytes())
        return len(files)

    def total(self) -> int:
        """How many jobs there are."""
        return len(self.jobs())


def _line(document: dict[str, Any]) -> bytes:
    return canonical(document) + b"\n"
