"""Sweeps on Dask: workers that die, drivers and schedulers that are killed, addresses that are wrong."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_sweeps import Here, certify_group, spec_text, sweep_of

from utfproof.sweeps import cluster
from utfproof.sweeps.cluster import DaskWorkers, WorkersLost
from utfproof.sweeps.jobs import Answer, run_job
from utfproof.sweeps.run import run_sweep
from utfproof.sweeps.spec import read_spec
from utfproof.util.processes import THREAD_VARIABLES

pytest.importorskip("distributed")
CAPPED = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONWARNINGS": "default"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(spec_text(17, shape="[3, 3, 4, 4]"))
    return tmp_path


def start(*arguments):
    command = [sys.executable, "-m", "utfproof", "sweep", "s.toml", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=CAPPED, start_new_session=True, text=True, **pipes)


def stored(folder):
    """Whole lines of results."""
    with contextlib.suppress(OSError):
        return [
            line for line in (folder / "results.jsonl").read_bytes().splitlines(keepends=True) if line[-2:] == b"}\n"
        ]
    return []


def wait_for(condition, process, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(group):
    """Processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found += [path] * (int(fields[2]) == group and fields[0] != "Z")
    return found


def gone(group, seconds=120):
    end = time.monotonic() + seconds
    while alive(group) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(group)


def deadly(job, *more):
    """Seed 1 kills its process once, seed 2 every time, seed 3 fails."""
    seed, log = job.parameters["seed"], Path(os.environ["SWEEP_LOG"])
    with log.open("a") as stream:
        stream.write(f"{seed}\n")
    if seed == 2 or (seed == 1 and log.read_text().split().count("1") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 3:
        return Answer(job.key, failure="too large", resource=True)
    return run_job(job, *more)


@pytest.mark.full
def test_a_dying_worker_costs_only_its_own_job(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(cluster, "run_job", deadly)
    sweep = sweep_of(certify_group(seed="0..7"))
    summary = run_sweep(sweep, tmp_path / "s", DaskWorkers(workers=2))
    failed = {job.parameters["seed"]: reason for job, reason, _ in summary.failures}
    assert failed.keys() >= {2, 3}
    assert "died 3 times" in failed[2]
    assert len(failed) + len(summary.lines) == 8
    assert summary.exit_code == 4
    lines = (tmp_path / "s" / "failures.jsonl").read_text().splitlines()
    assert {json.loads(line)["job"]["parameters"]["seed"] for line in lines} == failed.keys()
    again = run_sweep(sweep, tmp_path / "s", Here())
    assert (again.before, len(again.lines), again.exit_code) == (len(summary.lines), 8, 0)
    assert not (tmp_path / "s" / "failures.jsonl").exists()


@pytest.mark.full
def test_ctrl_c_and_a_killed_driver_cost_only_what_was_running(files):
    process = start("--workers", 2)
    wait_for(lambda: len(stored(files / "s")) >= 3, process)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
    out, err = process.communicate(timeout=300)
    kept = stored(files / "s")
    assert (process.returncode, out) == (130, "")
    assert err == f"utfproof: interrupted: {len(kept)} of 18 finished; run again to resume\n"
    assert gone(process.pid)
    process = start("--workers", 2)
    wait_for(lambda: len(stored(files / "s")) >= len(kept) + 3, process)
    process.kill()
    process.communicate()
    assert gone(process.pid)
    after = stored(files / "s")
    summary = run_sweep(read_spec(files / "s.toml"), files / "s", Here())
    assert (summary.before, len(summary.lines), summary.failures) == (len(after), 18, [])
    run_sweep(read_spec(files / "s.toml"), files / "direct", Here())
    assert (files / "direct" / "results.jsonl").read_bytes() == (files / "s" / "results.jsonl").read_bytes()


@pytest.mark.full
def test_ctrl_c_while_workers_start_leaves_none(files):
    process = start("--workers", 2)
    wait_for(lambda: len(alive(process.pid)) > 1, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert err == "utfproof: interrupted: 0 of 18 finished; run again to resume\n"
    assert gone(process.pid)


class Cluster:
    """A Dask scheduler and workers on loopback, each a process of its own."""

    def __init__(self, folder, workers):
        self.folder, self.processes = folder, []
        where = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where))
        wait_for(lambda: where.exists() and where.read_text().strip(), self.scheduler)
        self.address = json.loads(where.read_text())["address"]
        self.workers = [self.add_worker() for _ in range(workers)]

    def _start(self, kind, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
        with (self.folder / f"{kind}.log").open("a") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=CAPPED, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def add_worker(self):
        where = ("--host", "127.0.0.1", "--local-directory", str(self.folder))
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", *where)

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path):
    (tmp_path / "cluster").mkdir()
    with contextlib.closing(Cluster(tmp_path / "cluster", 2)) as started:
        yield started


@pytest.mark.full
def test_a_cluster_loses_a_worker_then_its_driver_then_its_scheduler(files, dask):
    process = start("--scheduler", dask.address)
    wait_for(lambda: len(stored(files / "s")) >= 3, process)
    dask.workers[0].kill()
    wait_for(lambda: len(stored(files / "s")) >= 6, process)
    process.kill()
    process.communicate()
    kept = stored(files / "s")
    process = start("--scheduler", dask.address)
    wait_for(lambda: len(stored(files / "s")) >= len(kept) + 2, process)
    dask.scheduler.kill()
    out, err = process.communicate(timeout=300)
    kept = stored(files / "s")
    assert (process.returncode, out) == (4, "")
    lost = f"utfproof: lost the Dask scheduler at {dask.address}"
    assert err.splitlines()[-1].startswith(lost)
    assert err.endswith(f": {len(kept)} of 18 finished; run again to resume\n")
    summary = run_sweep(read_spec(files / "s.toml"), files / "s", Here())
    assert (summary.before, len(summary.lines)) == (len(kept), 18)


@pytest.mark.full
def test_a_scheduler_without_workers_ends_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 1.0)
    (tmp_path / "cluster").mkdir()
    lonely = pytest.raises(WorkersLost, match="no worker has joined tcp://")
    with contextlib.closing(Cluster(tmp_path / "cluster", 0)) as dask, lonely as lost:
        run_sweep(sweep_of(certify_group()), tmp_path / "s", DaskWorkers(dask.address))
    assert lost.value.exit_code == 4


@pytest.mark.parametrize(
    "address", ["", "tls://h:1", "ucx://h:1", "http://h:1", "localhost", "tcp://:8786", "h:x", "tcp://h:99999"]
)
def test_an_address_of_another_form_is_refused_at_once(cli, tmp_path, address):
    (tmp_path / "s.toml").write_text(spec_text(1))
    code, out, err = cli("sweep", "s.toml", "--scheduler", address)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected tcp://HOST:PORT" in err


@pytest.mark.parametrize("speaks", [b"", b"SSH-2.0-OpenSSH\r\n", None])
def test_a_port_without_a_scheduler_is_refused_soon(cli, tmp_path, monkeypatch, speaks):
    """A silent server, another protocol, and no server at all."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1.0)
    (tmp_path / "s.toml").write_text(spec_text(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        opened = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    opened.append(server.accept()[0])
                    opened[-1].sendall(speaks)

        if speaks is None:
            server.close()
        else:
            threading.Thread(target=serve, daemon=True).start()
        code, out, err = cli("sweep", "s.toml", "--scheduler", f"127.0.0.1:{port}")
    for stream in opened:
        stream.close()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert f"no Dask scheduler answers at 127.0.0.1:{port}" in err


@pytest.mark.parametrize("option", ["--workers", "--threads"])
def test_workers_and_threads_are_counts_of_this_machine(cli, tmp_path, option):
    (tmp_path / "s.toml").write_text(spec_text(1))
    for value in ("0", "2000"):
        assert cli("sweep", "s.toml", option, value)[0] == 2
    code, _, err = cli("sweep", "s.toml", "--scheduler", "h:1", option, "2")
    assert (code, "are about this machine" in err) == (2, True)


def test_without_dask_a_sweep_is_one_line(cli, tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(spec_text(1))
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, err = cli("sweep", "s.toml")
    assert (code, out, " -m pip install dask" in err) == (2, "", True)
