"""A large sweep of the cheapest jobs that is killed three ways and run again to its end, and what it took.

python scripts/measure_sweep.py [--jobs 20000] [--folder DIR] [-o FILE]

Certificates of random hosts at (1, 1, 1, 1), one seed each. The scheduler of a Dask cluster is killed, a worker of the next
cluster and the driver on it, then a worker process of a sweep on this machine and its driver, all with SIGKILL and at equal
steps; the last run ends. Then the folder is read: every key once, every certificate in its archive under its digest, as many
rows in the table. Leaves with 1 where that is not so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

SPEC = """
[sweep]
name = "million"
[[jobs]]
command = "certify"
construction = "random"
shape = [[1, 1, 1, 1]]
seed = "0..{last}"
"""
RUNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Dask", ("scheduler",)),
    ("Dask", ("worker", "driver")),
    ("local", ("worker", "driver")),
    ("local", ()),
)
"""Where each run works, and what of it is killed; a run without a scheduler or a driver is at its end."""
CAPPED = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
CHECKED = 200
"""Certificates, evenly spread, that the checker is given."""


class Watch:
    """Processor time and memory of processes and all that they start, looked at five times a second."""

    def __init__(self) -> None:
        self.roots: list[int] = []
        self.seconds: dict[tuple[int, float], float] = {}
        self.largest = self.together = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.ended.wait(0.2):
            together = 0
            for process in self.processes():
                with suppress(psutil.Error), process.oneshot():
                    times, resident = process.cpu_times(), process.memory_info().rss
                    self.seconds[process.pid, process.create_time()] = times.user + times.system
                    self.largest, together = max(self.largest, resident), together + resident
            self.together = max(self.together, together)

    def processes(self) -> Iterator[psutil.Process]:
        """Those that live."""
        for root in list(self.roots):
            with suppress(psutil.Error):
                yield (process := psutil.Process(root))
                yield from process.children(recursive=True)

    def document(self) -> dict[str, Any]:
        """What was seen; shared pages are counted for each process that has them."""
        return {
            "processor seconds": round(sum(self.seconds.values()), 2),
            "largest process, MB": round(self.largest / 1e6),
            "all processes together, MB": round(self.together / 1e6),
        }


def started(watch: Watch, log: Path, *command: str) -> subprocess.Popen[bytes]:
    """A process whose words go to the log."""
    with log.open("ab") as stream:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=stream, stderr=stream, env=CAPPED)
    watch.roots.append(process.pid)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    process.kill()
    process.wait()


@contextmanager
def cluster(place: str, watch: Watch, folder: Path) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The options of the sweep, and the processes of its cluster by what they are; none on this machine."""
    if place == "local":
        yield ["--workers", "2"], {}
        return
    where, log = folder / "scheduler.json", folder / "dask.log"
    where.unlink(missing_ok=True)
    here = ("--host", "127.0.0.1", "--no-dashboard")
    scheduler = started(
        watch, log, "distributed.cli.dask_scheduler", *here, "--port", "0", "--scheduler-file", str(where)
    )
    while not (where.exists() and where.read_text().strip()):
        time.sleep(0.1)
    address = json.loads(where.read_text())["address"]
    options = ("--nworkers", "2", "--nthreads", "1", "--local-directory", str(folder))
    workers = started(watch, log, "distributed.cli.dask_worker", address, *here, *options)
    try:
        yield ["--scheduler", address], {"scheduler": scheduler, "worker": workers}
    finally:
        for process in (workers, scheduler):
            ended(process)


def results(folder: Path) -> int:
    """Results in the index, 0 where there is none yet."""
    with (
        suppress(sqlite3.Error),
        sqlite3.connect(f"file:{folder / 'results.db'}?mode=ro", uri=True, timeout=60) as index,
    ):
        return int(index.execute("SELECT coalesce(sum(jobs), 0) FROM segments").fetchone()[0])
    return 0


def killed(victim: str, driver: subprocess.Popen[bytes], processes: dict[str, Any]) -> None:
    """SIGKILL to the driver, the scheduler, or one process that runs jobs."""
    if victim != "worker":
        (driver if victim == "driver" else processes[victim]).kill()
        return
    parent = processes.get("worker", driver)
    children = psutil.Process(parent.pid).children(recursive=True)
    max(children, key=lambda child: sum(child.cpu_times()[:2])).kill()


def run(place: str, victims: Sequence[str], marks: Iterator[int], folder: Path) -> dict[str, Any]:
    """One run of the sweep, with what is killed when the index has as many results as the next mark says."""
    before, begun, store = results(folder / "million"), time.monotonic(), folder / "million"
    kills = {}
    with Watch() as watch, cluster(place, watch, folder) as (options, processes):
        driver = started(
            watch, folder / "sweep.log", "utfproof", "sweep", str(folder / "s.toml"), "-o", str(store), *options
        )
        for victim in victims:
            mark = next(marks)
            while (there := results(store)) < mark:
                assert driver.poll() is None, (folder / "sweep.log").read_text()[-2000:]
                time.sleep(0.2)
            killed(victim, driver, processes)
            kills[victim] = there
            print(f"{place}: {victim} killed at {there}", flush=True)
        code = driver.wait()
        time.sleep(1)  # what a driver starts ends with it
    after = results(store)
    print(f"{place}: ended with {code} at {after} after {time.monotonic() - begun:.0f} s", flush=True)
    return {
        "place": place,
        "killed at": kills,
        "exit code of the driver": code,
        "results": after,
        "seconds": round(time.monotonic() - begun, 1),
        **watch.document(),
        "processor milliseconds a job": round(1e3 * sum(watch.seconds.values()) / (after - before), 3),
    }


def archived(store: Path) -> dict[str, str]:
    """SHA-256 of every file in the archives by name; a name twice is a fault."""
    found: dict[str, str] = {}
    for path in sorted((store / "certificates").iterdir()):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                assert name not in found, f"{name} is in two archives"
                found[name] = hashlib.sha256(archive.read(name)).hexdigest()
    return found


def read(folder: Path) -> dict[str, Any]:
    """What is on disk, held against what the sweep asks for."""
    from utfproof.sweeps.spec import read_spec

    store = folder / "million"
    asked = [job.key for job in read_spec(folder / "s.toml").planned()]
    with sqlite3.connect(store / "results.db") as index:
        stored, different = index.execute("SELECT count(*), count(DISTINCT key) FROM results").fetchone()
    files, keys, wrong = archived(store), [], 0
    digest = hashlib.sha256()
    with (store / "results.jsonl").open("rb") as stream:
        for line in stream:
            digest.update(line)
            found = json.loads(line)
            keys.append(found["key"])
            wrong += any(files.get(entry["file"]) != entry["sha256"] for entry in found["files"])
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    return {
        "rows of the index": stored,
        "different keys": different,
        "results computed and kept": results(store),
        "lines of results.jsonl": len(keys),
        "in the order asked for": keys == asked,
        "SHA-256 of results.jsonl": digest.hexdigest(),
        "certificates": len(files),
        "results whose certificate is not the one named": wrong,
        "MB on disk": round(size / 1e6),
    }


def checked(folder: Path) -> dict[str, int]:
    """Certificates evenly spread over the archives, as the checker finds them."""
    archives = sorted((folder / "million" / "certificates").iterdir())
    with tempfile.TemporaryDirectory() as name:
        for i in range(CHECKED):
            with zipfile.ZipFile(archives[i * len(archives) // CHECKED]) as archive:
                archive.extract(archive.namelist()[i % len(archive.namelist())], name)
        given = len(list(Path(name).iterdir()))
        code = subprocess.run(
            [sys.executable, "-m", "utfproof", "check", name], capture_output=True, check=False
        ).returncode
    return {"given to the checker": given, "its exit code": code}


def table(folder: Path) -> dict[str, Any]:
    """The table as `collect` writes it, counted."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / "table.parquet"
    with Watch() as watch:
        begun = time.monotonic()
        code = started(
            watch, folder / "sweep.log", "utfproof", "collect", str(folder / "million"), "-o", str(path)
        ).wait()
        seconds = time.monotonic() - begun
    assert code == 0, (folder / "sweep.log").read_text()[-2000:]
    keys = pq.read_table(path, columns=["key"])["key"]
    return {
        "rows": len(keys),
        "different keys": len(pc.unique(keys)),
        "MB": round(path.stat().st_size / 1e6),
        "seconds": round(seconds, 1),
        **watch.document(),
    }


def measure(jobs: int, folder: Path) -> dict[str, Any]:
    """All runs, and what they came to."""
    (folder / "s.toml").write_text(SPEC.format(last=jobs - 1))
    steps = sum(len(victims) for _, victims in RUNS) + 1
    marks = iter([jobs * (i + 1) // steps for i in range(steps)])
    load = os.getloadavg()[0]
    found = [run(place, victims, marks, folder) for place, victims in RUNS]
    return {
        "jobs": jobs,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load average {load:.0f} at the start",
        "versions": {"python": platform.python_version()},
        "runs": found,
        "processor seconds": round(sum(entry["processor seconds"] for entry in found), 1),
        "all processes together, MB": max(entry["all processes together, MB"] for entry in found),
        "folder": read(folder),
        "checked": checked(folder),
        "table": table(folder),
    }


def right(document: dict[str, Any]) -> bool:
    """Whether nothing was lost and nothing is there twice."""
    folder, jobs = document["folder"], document["jobs"]
    counts = [folder[name] for name in ("rows of the index", "different keys", "results computed and kept")]
    counts += [folder["lines of results.jsonl"], folder["certificates"], document["table"]["rows"]]
    counts.append(document["table"]["different keys"])
    codes = [entry["exit code of the driver"] for entry in document["runs"]]
    asked = [4 if "scheduler" in victims else -signal.SIGKILL if "driver" in victims else 0 for _, victims in RUNS]
    whole = folder["in the order asked for"] and not folder["results whose certificate is not the one named"]
    return counts == [jobs] * len(counts) and codes == asked and whole and document["checked"]["its exit code"] == 0


def main() -> int:
    """Measure, and write the document where asked to."""
    parser = argparse.ArgumentParser(description="A large sweep, killed three ways.")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="emptied first and left; a temporary one by default")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="utfproof-sweep-"))).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    document = measure(arguments.jobs, folder)
    text = json.dumps(document, indent=1) + "\n"
    print(text, end="")
    if arguments.output is not None:
        arguments.output.write_text(text)
    if arguments.folder is None:
        shutil.rmtree(folder)
    return 0 if right(document) else 1


if __name__ == "__main__":
    sys.exit(main())
