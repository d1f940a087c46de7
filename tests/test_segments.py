"""Large sweeps: batches, segments with digests, archives of certificates, drivers and workers that are killed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from utfproof.cli.app import run as command
from utfproof.errors import MalformedInput, OutputFailed, Stopped
from utfproof.sweeps import run as driver
from utfproof.sweeps import spec
from utfproof.sweeps.executor import MAX_DEATHS, LocalWorkers
from utfproof.sweeps.jobs import run_task
from utfproof.sweeps.run import run_sweep
from utfproof.sweeps.segments import ResultBatch, Segments, run_batch
from utfproof.sweeps.spec import parse_spec
from utfproof.sweeps.table import Results, overview

GROUP = {"command": "certify", "construction": "random", "shape": [[1, 1, 1, 1]], "m": [2, 3]}


class Here:
    """Workers without processes, which keep what they were given."""

    def __init__(self, stop=None):
        self.batches, self.stop = [], stop

    def run(self, items, function=run_task):
        for item in items:
            if len(self.batches) == self.stop:
                raise KeyboardInterrupt
            self.batches.append(item)
            yield function(item)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Eleven jobs are a large sweep here."""
    monkeypatch.setattr(spec, "CHECKED", 10)
    monkeypatch.setattr(driver._Pace, "MOST", 8)


def sweep_of(seeds="0..19", **changes):
    return parse_spec({"sweep": {"name": "s"}, "jobs": [{**GROUP, "seed": seeds, **changes}]}, Path())


def whole(folder):
    return (folder / "results.jsonl").read_bytes()


def test_a_large_sweep_finds_what_a_small_one_does(tmp_path, monkeypatch):
    summary = run_sweep(sweep_of(), tmp_path / "large", here := Here())
    assert (summary.total, summary.finished, summary.before, summary.exit_code) == (40, 40, 0, 0)
    assert max(len(batch.tasks) for batch in here.batches) > 1
    assert len(here.batches) < 40
    monkeypatch.setattr(spec, "CHECKED", 100)
    small = run_sweep(sweep_of(), tmp_path / "small", Here())
    assert small.verdicts == summary.verdicts
    assert whole(tmp_path / "large") == whole(tmp_path / "small")
    assert not (tmp_path / "large" / "results").exists()
    Segments(tmp_path / "large").unpack(tmp_path / "files")
    files = {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "small" / "certificates").iterdir()}
    rows, others = (list(Results(tmp_path / name)) for name in ("large", "small"))
    assert rows == others
    assert overview(rows).rows == 40


def test_what_is_there_is_neither_lost_nor_done_twice(tmp_path):
    with pytest.raises(Stopped, match="finished; run again to resume"):
        run_sweep(sweep_of(), tmp_path / "s", first := Here(stop=2))
    done = sum(len(batch.tasks) for batch in first.batches)
    assert 0 < done < 40
    assert overview(Results(tmp_path / "s")).rows == done
    summary = run_sweep(sweep_of(), tmp_path / "s", second := Here())
    assert (summary.before, summary.finished) == (done, 40)
    keys = [task.key for here in (first, second) for batch in here.batches for task in batch.tasks]
    assert len(keys) == len(set(keys)) == 40
    run_sweep(sweep_of(), tmp_path / "once", Here())
    assert whole(tmp_path / "s") == whole(tmp_path / "once")
    run_sweep(sweep_of(), tmp_path / "s", third := Here())
    assert not third.batches
    assert whole(tmp_path / "s") == whole(tmp_path / "once")


def test_a_sweep_that_grows_and_shrinks(tmp_path):
    run_sweep(sweep_of(), tmp_path / "s", Here())
    summary = run_sweep(sweep_of("10..29"), tmp_path / "s", here := Here())
    assert (summary.before, summary.total) == (20, 40)
    assert sum(len(batch.tasks) for batch in here.batches) == 20
    assert Segments(tmp_path / "s").total() == 40
    run_sweep(sweep_of("10..29"), tmp_path / "other", Here())
    assert whole(tmp_path / "s") == whole(tmp_path / "other")


@pytest.mark.parametrize("fault", ["archive gone", "archive short", "stray archive"])
def test_archives_that_are_not_whole_are_made_again(tmp_path, fault):
    run_sweep(sweep_of(), tmp_path / "s", Here())
    before = whole(tmp_path / "s")
    path = sorted((tmp_path / "s" / "certificates").iterdir())[1]
    lost = len(zipfile.ZipFile(path).namelist())
    if fault == "archive gone":
        path.unlink()
    elif fault == "archive short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        (path.parent / "000999.zip").write_bytes(b"PK")
        lost = 0
    summary = run_sweep(sweep_of(), tmp_path / "s", Here())
    assert summary.before == 40 - lost
    assert whole(tmp_path / "s") == before
    assert not (path.parent / "000999.zip").exists()


@pytest.mark.parametrize("fault", ["lines", "archive", "index"])
def test_damage_is_one_line(tmp_path, fault, capsys):
    run_sweep(sweep_of(), tmp_path / "s", Here())
    path = tmp_path / "s" / "results.db"
    if fault == "index":
        path.write_bytes(b"no database at all" * 100)
    elif fault == "lines":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE segments SET lines = (SELECT lines FROM segments WHERE number = 2) WHERE number = 1")
    else:
        first = sorted((tmp_path / "s" / "certificates").iterdir())[0]
        data = bytearray(first.read_bytes())
        data[40] ^= 1
        first.write_bytes(data)
    arguments = ["collect", str(tmp_path / "s"), "-o", str(tmp_path / "t.csv")]
    more = ["--certificates", str(tmp_path / "files")] if fault == "archive" else []
    (tmp_path / "files").mkdir()
    assert command([*arguments, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "damaged" in line or "not the index of a sweep" in line


@pytest.mark.parametrize("name", ["certificates/own.json", "certificates/000001.zip", "results.jsonl", "results.db"])
@pytest.mark.parametrize("seeds", ["0..0", "0..19"])
def test_a_folder_of_other_things_keeps_them(tmp_path, name, seeds):
    """A run replaces files of these names, or clears them up: it does not begin where others have put theirs."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("of somebody else")
    with pytest.raises(MalformedInput, match="is no sweep's: it has "):
        run_sweep(sweep_of(seeds), tmp_path, Here())
    assert path.read_text() == "of somebody else"


def test_files_beside_the_archives_stay(tmp_path):
    run_sweep(sweep_of(), tmp_path, Here())
    own, left = tmp_path / "certificates" / "README", tmp_path / "certificates" / ".000009.zip.0a1b"
    own.mkdir()
    left.write_text("half")
    assert run_sweep(sweep_of(), tmp_path, Here()).before == 40
    assert own.is_dir()
    assert not left.exists()


def test_a_full_disk_is_no_mistake_of_the_program(tmp_path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Segments, "keep", full)
    with pytest.raises(OutputFailed, match=r"cannot write .*results\.db: database or disk is full"):
        run_sweep(sweep_of(), tmp_path, Here())


def test_planned_while_it_runs(tmp_path):
    """Batches are made when there is room for them: never more in the air than workers hold."""
    sweep, planned = sweep_of("0..199"), []
    jobs = sweep.planned

    def watched():
        for job in jobs():
            planned.append(job.key)
            yield job

    object.__setattr__(sweep, "planned", watched)
    ahead = []

    class Slow(Here):
        def run(self, items, function=run_task):
            for found in super().run(items, function):
                ahead.append(len(planned) - sum(len(batch.tasks) for batch in self.batches))
                yield found

    run_sweep(sweep, tmp_path / "s", Slow())
    assert len(planned) == 400
    assert max(ahead) <= 16


def test_wrong_values_are_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr(spec, "CHECKED", 20)
    with pytest.raises(MalformedInput, match="'nonsense' is unknown"):
        sweep_of(construction=["random", "nonsense"])
    with pytest.raises(MalformedInput, match="witness belongs to"):
        sweep_of(construction=["random", "tied"], witness=[False, True])


def test_a_folder_keeps_its_layout(tmp_path, monkeypatch):
    """A small sweep's folder that grows stays one with a file for each result, and is read as before."""
    monkeypatch.setattr(spec, "CHECKED", 100)
    run_sweep(sweep_of("0..2"), tmp_path / "s", Here())
    monkeypatch.setattr(spec, "CHECKED", 10)
    summary = run_sweep(sweep_of(), tmp_path / "s", Here())
    assert (summary.before, summary.finished) == (6, 40)
    assert len(list((tmp_path / "s" / "results").iterdir())) == 40
    assert overview(Results(tmp_path / "s")).rows == 40


def deadly(batch):
    """Die of the job with seed 7."""
    if any(task.job.parameters["seed"] == 7 for task in batch.tasks):
        os._exit(1)
    return run_batch(batch)


@pytest.mark.full
def test_a_worker_that_dies_costs_one_job(tmp_path):
    jobs = list(sweep_of(m=3).planned())
    from utfproof.sweeps.jobs import SweepTask, code_digest

    batches = [
        ResultBatch(tuple(SweepTask(job, code_digest()) for job in part)) for part in (jobs[:5], jobs[5:9], jobs[9:12])
    ]
    segments = list(LocalWorkers(2).run(batches, deadly))
    assert sorted(key for segment in segments for key in segment.keys) == sorted(
        job.key for job in jobs[:12] if job.parameters["seed"] != 7
    )
    (answer,) = (answer for segment in segments for answer in segment.failures)
    assert answer.key == jobs[7].key
    assert f"died {MAX_DEATHS} times" in answer.failure


DRIVER = """
import sys
from pathlib import Path
from utfproof.sweeps import run, spec
from utfproof.sweeps.executor import LocalWorkers
spec.CHECKED, run._Pace.MOST = 10, 20
if __name__ == "__main__":
    asked = spec.parse_spec({{"sweep": {{"name": "s"}}, "jobs": [{group!r}]}}, Path())
    run.run_sweep(asked, Path(sys.argv[1]), LocalWorkers(2))
"""


@pytest.mark.full
def test_a_driver_that_is_killed(tmp_path):
    """SIGKILL in the middle, twice: the third run ends with every result once, the same bytes as undisturbed."""
    (tmp_path / "drive.py").write_text(DRIVER.format(group={**GROUP, "seed": "0..499"}))
    drive = [sys.executable, str(tmp_path / "drive.py")]
    folder, before = tmp_path / "s", 0
    for _ in range(2):
        process = subprocess.Popen([*drive, str(folder)])
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
            if (folder / "results.db").exists() and len(list((folder / "certificates").glob("0*.zip"))) > before + 3:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
        before = len(list((folder / "certificates").glob("0*.zip")))
    assert subprocess.run([*drive, str(folder)], check=False).returncode == 0
    assert subprocess.run([*drive, str(tmp_path / "once")], check=False).returncode == 0
    assert whole(folder) == whole(tmp_path / "once")
    with sqlite3.connect(folder / "results.db") as db:
        assert db.execute("SELECT count(*), count(DISTINCT key) FROM results").fetchone() == (1000, 1000)
        assert db.execute("SELECT sum(jobs) FROM segments").fetchone() == (1000,)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(
        '[sweep]\nname = "s"\n[[jobs]]\ncommand = "certify"\nconstruction = "random"\nshape = [[1, 1, 1, 1]]\nm = [2, 3]\n'
        'seed = "0..9"\n'
    )
    assert command(["sweep", "s.toml", "--dry-run"]) == 0
    assert "up to 20, planned while others run" in capsys.readouterr().out
    assert command(["sweep", "s.toml", "--workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 20
    assert command(["collect", "s", "-o", "t.csv", "--certificates", "files", "--timings"]) == 0
    assert "20 of 20 jobs finished" in capsys.readouterr().out
    assert len(Path("t.csv").read_text().splitlines()) == 21
    assert command(["check", "files"]) == 0
