"""The folder of a sweep.

sweep.json       name of the sweep, and digest of the code that computes it
results.jsonl    a line for each result; in the order of the sweep file once a run has come to its end
files/           certificates and other files that jobs write, named by the job's key
failures.jsonl   jobs that could not be run, with the reason; the next run tries them again
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.sweeps.jobs import Answer, SweepJob, canonical, sha256
from utfproof.util.files import make_folder, read_json, require_alone, require_writable, write_bytes, write_json

_FILE = re.compile(r"[0-9a-f]{64}[.a-z0-9-]*")
"""Names of files that jobs write: digests, never a path."""


class Folder:
    """One such folder."""

    def __init__(self, place: Path | str) -> None:
        self.place = Path(place)
        self.lines, self.files = self.place / "results.jsonl", self.place / "files"

    @contextmanager
    def opened(self, name: str, code: str, *, reuse: bool = False) -> Iterator[None]:
        """Make or resume the folder; one driver at a time.

        Raises MalformedInput when the folder holds another sweep's results, or those of other code unless `reuse`.
        """
        make_folder(self.place)
        make_folder(self.files)
        require_writable(lock := self.place / ".lock", self.lines)
        with lock.open("ab") as held:
            require_alone(held, f"another sweep is running in folder {self.place}; wait for it")
            self._agree(name, code, reuse)
            write_json(self.place / "sweep.json", {"name": name, "code": code})
            yield

    def _agree(self, name: str, code: str, reuse: bool) -> None:
        head = self.place / "sweep.json"
        if not head.exists():
            if self.lines.exists():
                raise MalformedInput(f"folder {self.place} has results and no sweep.json; choose another")
            return
        found = read_json(head)
        if not isinstance(found, dict) or found.get("name") != name:
            raise MalformedInput(f"folder {self.place} belongs to another sweep than {name!r}; choose another")
        if found.get("code") != code and not reuse:
            raise MalformedInput(
                f"the results in {self.place} come from other code of utfproof; choose another folder to compute them "
                "anew, or pass --reuse to keep them"
            )

    def known(self) -> dict[str, dict[str, Any]]:
        """The stored results by key: lines of a job of their own key, whose files are there unchanged."""
        found = {}
        for text in self.lines.read_bytes().splitlines() if self.lines.exists() else ():
            try:
                line = json.loads(text)
                whole = line["key"] == sha256(canonical(line["job"])) and "verdict" in line["result"]
                if whole and all(self._has(entry) for entry in line["files"]):
                    found[line["key"]] = line
            except (ValueError, KeyError, TypeError):  # the end of a driver that was killed
                continue
        return found

    def _has(self, entry: dict[str, str]) -> bool:
        path = self.files / entry["file"]
        return bool(_FILE.fullmatch(entry["file"])) and path.is_file() and sha256(path.read_bytes()) == entry["sha256"]

    def keep(self, answer: Answer) -> None:
        """Write the files of a result, then its line."""
        for name, data in answer.files.items():
            write_bytes(self.files / name, data)
        with self.lines.open("ab") as stream:
            stream.write(b"\n" + canonical(answer.line) + b"\n")  # after a line that a killed driver left unfinished

    def finish(self, found: Sequence[dict[str, Any]], failures: Sequence[tuple[SweepJob, str]]) -> None:
        """Write the results in this order, and failures.jsonl where there are any."""
        write_bytes(self.lines, b"".join(canonical(line) + b"\n" for line in found))
        lines = (canonical({"key": job.key, "job": job.document, "reason": reason}) for job, reason in failures)
        write_bytes(self.place / "failures.jsonl", b"".join(line + b"\n" for line in lines))
        if not failures:
            (self.place / "failures.jsonl").unlink()
