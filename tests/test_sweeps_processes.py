"""Sweeps by worker processes, on the command line, and killed as users and clusters kill."""

import contextlib
import csv
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
import types
from importlib.metadata import version
from pathlib import Path

import pytest
from test_sweeps import SMALL, Here, certify_group, sweep_of

from utfproof.cli.app import run as run_cli
from utfproof.ground.processes import THREAD_VARIABLES
from utfproof.sweeps import executor, table
from utfproof.sweeps.executor import MAX_DEATHS, DaskWorkers, LocalWorkers, WorkersLost
from utfproof.sweeps.jobs import Answer, SweepTask, code_digest, run_task
from utfproof.sweeps.run import run_sweep
from utfproof.sweeps.segments import ResultBatch, run_batch
from utfproof.sweeps.spec import read_spec
from utfproof.sweeps.store import Store

# --- worker processes ----------------------------------------------------------------------------------------------


def deadly(task):
    """Seed 1 kills its process once, seed 2 every time, seed 3 fails; every start leaves a line."""
    seed = task.job.parameters["seed"]
    log = Path(os.environ["SWEEP_LOG"])
    with log.open("a") as stream:
        stream.write(f"{seed}\n")
    if seed == 2 or (seed == 1 and log.read_text().split().count("1") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 3:
        return Answer(task.job.key, failure="too large", resource=True)
    return run_task(task)


@pytest.mark.full
def test_a_dying_worker_costs_only_its_own_job(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "log"))
    sweep = sweep_of(certify_group(seed="0..7"))
    summary = run_sweep(sweep, tmp_path / "s", LocalWorkers(2), function=deadly)
    starts = (tmp_path / "log").read_text().split()
    assert {seed: starts.count(seed) for seed in set(starts)} == {
        **dict.fromkeys("034567", 1), "1": 2, "2": MAX_DEATHS,
    }  # fmt: skip
    assert summary.finished == 6
    assert [(job.parameters["seed"], resource) for job, _, resource in summary.failures] == [(2, False), (3, True)]
    assert "died 3 times" in summary.failures[0][1]
    assert summary.exit_code == 4
    failed = [json.loads(line) for line in (tmp_path / "s" / "failures.jsonl").read_text().splitlines()]
    assert [entry["job"]["parameters"]["seed"] for entry in failed] == [2, 3]
    assert len((tmp_path / "s" / "results.jsonl").read_text().splitlines()) == 6
    again = run_sweep(sweep, tmp_path / "s", Here())  # what failed is missing, so it is tried again
    assert (again.before, again.finished, again.exit_code) == (6, 8, 0)
    assert not (tmp_path / "s" / "failures.jsonl").exists()


def test_a_worker_that_dies_between_two_jobs_is_started_again():
    before = set(multiprocessing.active_children())
    tasks = [SweepTask(job, code_digest()) for job in sweep_of(certify_group(seed="0..2")).jobs]
    answers = LocalWorkers(1).run(tasks)
    first = next(answers)
    (process,) = set(multiprocessing.active_children()) - before
    process.kill()
    process.join()
    rest = list(answers)
    assert [answer.result is not None for answer in (first, *rest)] == [True] * 3
    assert len({answer.worker for answer in (first, *rest)}) == 2
    assert set(multiprocessing.active_children()) <= before


def environment(task):
    import numpy as np

    a = np.ones((600, 600))
    (a @ a).sum()
    status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else "Threads: 0"
    threads = int(status.split("Threads:")[1].split()[0])
    document = {"cap": [os.environ.get(name) for name in THREAD_VARIABLES], "threads": threads, "verdict": "-"}
    return Answer(task.job.key, result={"result": document})


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_of_a_worker_are_capped(threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    (job,) = sweep_of(certify_group()).jobs
    (answer,) = LocalWorkers(1, threads).run([SweepTask(job, "")], environment)
    found = answer.result["result"]
    assert set(found["cap"]) == {str(threads)}
    assert found["threads"] <= threads + 4  # the pool's own, and the one that watches the driver
    assert os.environ["OMP_NUM_THREADS"] == "5"


def test_workers_and_threads_start_at_one_and_end_somewhere(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text("0"))
    for option in ("--workers", "--threads"):
        for count in (0, 10**8):
            code, _, err = cli("sweep", "s.toml", option, count)
            assert (code, f"{option} must be an integer from 1 to 1024, got {count}" in err) == (2, True)
        code, _, err = cli("sweep", "s.toml", option, 1, "--scheduler", "tcp://127.0.0.1:1")
        assert (code, "are about this machine" in err) == (2, True)


# --- the command line ----------------------------------------------------------------------------------------------


def spec_text(seeds, shape="[2, 2, 2, 3]", construction='"random"', extra=""):
    return (
        f'[sweep]\nname = "s"\n[[jobs]]\ncommand = "certify"\nconstruction = {construction}\nshape = [{shape}]\n'
        f'seed = "0..{seeds}"\n{extra}'
    )


def test_sweep_then_collect(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(3, extra="m = [35, 36]\n"))
    code, out, _ = cli("sweep", "s.toml", "--dry-run", "--json")
    assert (code, json.loads(out)["jobs"], (tmp_path / "s").exists()) == (0, 8, False)
    code, out, err = cli("sweep", "s.toml", "--workers", 2, "--json")
    assert (code, err) == (0, "")
    counted = {entry["verdict"]: entry["jobs"] for entry in json.loads(out)["verdicts"]}
    assert counted == {"universal by matching": 4, "not universal by matching": 4}
    code, out, _ = cli("collect", "s", "-o", "t.csv", "--timings")
    assert code == 0
    assert "8 of 8 jobs finished" in out
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["seed"], row["m"], row["verdict"]) for row in rows] == [
        (str(seed), m, verdict) for seed in range(4) for m, verdict in (("35", "not universal"), ("36", "universal"))
    ]
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert cli("check", "s/certificates")[0] == 0


def test_collect_keeps_notions_and_targets_apart(cli, tmp_path):
    hosts = [
        ("tied", False, None),
        ("tied", True, None),
        ("shared-key", False, None),
        ("shared-key", False, "matching"),
    ]
    groups = [
        {"command": "certify", "construction": name, "shape": [[2, 2, 1, 1]], "residual": stream}
        | ({"notion": notion} if notion else {})
        for name, stream, notion in hosts
    ]
    summary = run_sweep(sweep_of(*groups), tmp_path / "s", Here())
    assert summary.verdicts == {
        ("certify", "universal by matching"): 1,
        ("certify", "universal by matching (all tied)"): 1,
        ("certify", "universal by attention-matching"): 1,
        ("certify", "not universal by matching"): 1,
    }
    counts = json.loads(cli("collect", "s", "--json")[1])["counts"]
    assert {(found["subject"], found["notion"], found["targets"], found["verdict"]) for found in counts} == {
        ("tied", "matching", "all untied", "universal"),
        ("tied", "matching", "all tied", "universal"),
        ("shared-key", "attention-matching", "all untied", "universal"),
        ("shared-key", "matching", "all untied", "not universal"),
    }
    shown = " ".join(cli("collect", "s")[1].split())
    for verdict in (
        "universal by matching (all tied) tied",
        "not universal by matching",
        "universal by attention-matching",
    ):
        assert verdict in shown


def test_collect_names_weights_as_check_does(cli, tmp_path):
    """The whole digest left no room for the counts beside it."""
    cli("build", "random", *["-H", "2", "-L", "1", "-d", "1", "--d-in", "1", "-o", "w.safetensors"])
    (tmp_path / "d.toml").write_text('[sweep]\nname = "d"\n[[jobs]]\ncommand = "decide"\nweights = "w.safetensors"\n')
    assert cli("sweep", "d.toml", "--workers", 1)[0] == 0
    (count,) = json.loads(cli("collect", "d", "--json")[1])["counts"]
    assert len(count["subject"]) == 16
    assert "jobs command verdict about" in " ".join(cli("collect", "d")[1].split())


def test_collect_writes_parquet_with_types(cli, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    groups = [certify_group(seed=[1, 2**64 - 1]), {"command": "emulate", "host": "sparse", **SMALL, "context": "1,7"}]
    run_sweep(sweep_of(*groups), tmp_path / "s", Here())
    code, out, _ = cli("collect", "s", "--json")
    assert (code, json.loads(out)["file"]) == (0, "s/results.parquet")
    read = pq.read_table(tmp_path / "s" / "results.parquet")
    kinds = {name: str(read.schema.field(name).type) for name in ("heads", "seed", "witness", "verdict")}
    assert kinds == {"heads": "int64", "seed": "string", "witness": "bool", "verdict": "string"}
    assert str(read.schema.field("report.max_relative_error").type) == "double"
    assert read.column("context").to_pylist()[2] == "1,7"


def test_collect_without_pyarrow_and_without_a_sweep(cli, tmp_path, monkeypatch):
    run_sweep(sweep_of(certify_group()), tmp_path / "s", Here())
    monkeypatch.setattr(table, "has_pyarrow", lambda: False)
    code, out, _ = cli("collect", "s", "--json")
    assert (code, json.loads(out)["file"]) == (0, "s/results.csv")
    for arguments, message in (
        (["s", "-o", "t.parquet"], "needs pyarrow"),
        (["s", "-o", "t.txt"], "ends in .parquet or .csv"),
        (["nothing"], "cannot read nothing/sweep.json"),
    ):
        code, out, err = cli("collect", *arguments)
        assert (code, message in err, err.count("\n")) == (2, True, 1)


def test_failures_set_the_exit_code_and_are_named(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(4, shape="[2, 4, 8, 8]"))
    code, _, err = cli("sweep", "s.toml", "--workers", 1, "--max-memory", "1M")
    assert code == 3
    assert "5 of 5 jobs could not be run, see s/failures.jsonl" in err
    assert "(and 2 more)" in err
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == b""


# --- kills, as a user and a cluster deal them -----------------------------------------------------------------------

CAPPED = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONWARNINGS": "default"}


def start_sweep(folder, *arguments):
    command = [sys.executable, "-m", "utfproof", "sweep", "s.toml", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=CAPPED,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(folder):
    """Results on disk, with the moment each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "results").glob("[0-9a-f]*.json")}


def wait_for_results(folder, count, process, seconds=1200):
    end = time.monotonic() + seconds
    while len(finished(folder)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{len(finished(folder))} of {count} results"
        time.sleep(0.01)


def members(group):
    """Processes of a process group, without those that only wait to be collected."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def gone(group, seconds=300):
    end = time.monotonic() + seconds
    while members(group):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def content(folder):
    """What must be the same everywhere: the results and every certificate."""
    files = {path.name: path.read_bytes() for path in (folder / "certificates").iterdir()}
    return (folder / "results.jsonl").read_bytes(), files


def finish(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return out


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_and_a_killed_driver_cost_only_what_was_running(tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(17, shape="[3, 3, 4, 4]"))
    process = start_sweep(tmp_path, "--workers", 2)
    wait_for_results(tmp_path / "s", 3, process)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
    out, err = process.communicate(timeout=600)
    kept = finished(tmp_path / "s")
    assert (process.returncode, out) == (130, "")
    assert err == f"utfproof: interrupted: {len(kept)} of 18 finished; run again to resume\n"
    assert gone(process.pid)
    assert not list((tmp_path / "s").rglob(".*.json*"))

    process = start_sweep(tmp_path, "--workers", 2)
    wait_for_results(tmp_path / "s", len(kept) + 3, process)
    process.kill()
    process.communicate()
    assert gone(process.pid)  # its workers end too
    after = finished(tmp_path / "s")
    assert kept.items() <= after.items()

    summary = run_sweep(read_spec(tmp_path / "s.toml"), tmp_path / "s", Here())
    assert (summary.before, summary.finished) == (len(after), 18)
    assert after.items() <= finished(tmp_path / "s").items()
    run_sweep(read_spec(tmp_path / "s.toml"), tmp_path / "direct", Here())
    assert content(tmp_path / "direct") == content(tmp_path / "s")


class Cluster:
    """A Dask scheduler and workers on loopback, each a process of its own."""

    def __init__(self, folder, workers):
        self.folder, self.processes = folder, []
        where = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where))
        end = time.monotonic() + 600
        while not where.exists() or not where.read_text().strip():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)
        self.address = json.loads(where.read_text())["address"]
        self.workers = [self.add_worker() for _ in range(workers)]

    def _start(self, kind, *arguments):
        # python -m runs the package's own command line; no dashboard, nothing beyond loopback
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
        with (self.folder / f"{kind}.log").open("a") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=CAPPED, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def add_worker(self):
        return self._start(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", "--death-timeout", "60",
            "--local-directory", str(self.folder),
        )  # fmt: skip

    def log(self):
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "cluster").mkdir()
    started = Cluster(tmp_path / "cluster", 2)
    yield started
    started.close()


def workers_of(results):
    """Process ids of the workers that finished jobs."""
    return {entry["worker"].rpartition(":")[2] for entry in Store(results).timings().values()}


def survive(folder, cluster, total, *, worker_at, driver_at, replace):
    """A sweep on a cluster that loses a worker, then its driver, and is run again to the end: (jobs left to the last run,
    seconds of both runs together)."""
    begun = time.monotonic()
    process = start_sweep(folder, "--scheduler", cluster.address, "-o", "dask")
    wait_for_results(folder / "dask", worker_at, process)
    victim = next(worker for worker in cluster.workers if str(worker.pid) in workers_of(folder / "dask"))
    assert victim.poll() is None
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    if replace:
        cluster.workers.append(cluster.add_worker())
    wait_for_results(folder / "dask", driver_at, process)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = finished(folder / "dask")
    assert driver_at <= len(kept) < total
    assert not (folder / "dask" / "results.jsonl").exists()
    out = json.loads(finish(start_sweep(folder, "--scheduler", cluster.address, "-o", "dask", "--json")))
    assert (out["before"], out["finished"], out["failures"]) == (len(kept), total, [])
    assert kept.items() <= finished(folder / "dask").items()  # none of them was run again
    assert workers_of(folder / "dask") == {str(worker.pid) for worker in cluster.workers}
    return total - len(kept), time.monotonic() - begun


@pytest.mark.full
def test_a_dask_cluster_gives_the_same_bytes_through_two_kills(tmp_path, cluster):
    (tmp_path / "s.toml").write_text(spec_text(29, shape="[3, 3, 4, 4]"))
    survive(tmp_path, cluster, 30, worker_at=5, driver_at=12, replace=False)
    run_sweep(read_spec(tmp_path / "s.toml"), tmp_path / "here", Here())
    assert content(tmp_path / "dask") == content(tmp_path / "here")


@pytest.mark.full
def test_a_killed_scheduler_costs_only_what_was_running(tmp_path, cluster, monkeypatch):
    monkeypatch.setitem(CAPPED, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "3s")  # how long the driver waits for it
    (tmp_path / "s.toml").write_text(spec_text(17, shape="[3, 3, 4, 4]"))
    process = start_sweep(tmp_path, "--scheduler", cluster.address)
    wait_for_results(tmp_path / "s", 3, process)
    cluster.scheduler.kill()
    out, err = process.communicate(timeout=600)
    kept = finished(tmp_path / "s")
    assert (process.returncode, out) == (4, "")
    last = err.splitlines()[-1]
    assert (
        last
        == f"utfproof: lost the Dask scheduler at {cluster.address}: {len(kept)} of 18 finished; run again to resume"
    )
    summary = run_sweep(read_spec(tmp_path / "s.toml"), tmp_path / "s", Here())
    assert (summary.before, summary.finished) == (len(kept), 18)
    assert kept.items() <= finished(tmp_path / "s").items()
    run_sweep(read_spec(tmp_path / "s.toml"), tmp_path / "direct", Here())
    assert content(tmp_path / "direct") == content(tmp_path / "s")


@pytest.mark.exhaustive
def test_a_large_sweep_killed_three_ways(tmp_path):
    """Scheduler, workers and drivers, on a cluster and here: the script holds the folder against what was asked for."""
    pytest.importorskip("distributed")
    script = Path(__file__).parent.parent / "scripts" / "measure_sweep.py"
    assert (
        subprocess.run([sys.executable, script, "--jobs", "12000", "--folder", tmp_path / "s"], check=False).returncode
        == 0
    )


@pytest.mark.exhaustive
def test_five_hundred_certificates_on_a_cluster(tmp_path, cluster):
    """The figures go to the file named by SWEEP_FIGURES, where it is set."""
    text = spec_text(124, shape="[3, 3, 4, 4], [2, 4, 8, 8]", construction='["random", "random-tied"]')
    (tmp_path / "s.toml").write_text(text)
    seconds = {}
    for name, place in (("local", ["--workers", 2]), ("dask", ["--scheduler", cluster.address])):
        begun = time.monotonic()
        out = json.loads(finish(start_sweep(tmp_path, *place, "-o", name + "-whole", "--json")))
        seconds[name] = round(time.monotonic() - begun, 2)
        assert (out["jobs"], out["finished"]) == (500, 500)
    left, both = survive(tmp_path, cluster, 500, worker_at=100, driver_at=250, replace=True)
    same = content(tmp_path / "local-whole") == content(tmp_path / "dask-whole") == content(tmp_path / "dask")
    assert same
    certificates = sorted((tmp_path / "dask" / "certificates").iterdir())
    assert len(certificates) == 500
    checked = certificates[::20]  # recomputing a rank takes the checker longer than it took the prover
    assert run_cli(["check", *map(str, checked), "--numpy"]) == 0
    if os.environ.get("SWEEP_FIGURES"):
        work = sum(entry["seconds"] for entry in Store(tmp_path / "local-whole").timings().values())
        figures = {
            "sweep": "500 certificates: random and random-tied, 125 seeds each at (H, L, d, d_in) = (3,3,4,4) and (2,4,8,8)",
            "jobs": 500,
            "workers": 2,
            "threads_per_worker": 1,
            "seconds": {"local": seconds["local"], "dask": seconds["dask"], "dask with both kills": round(both, 2)},
            "seconds_of_work_local": round(work, 2),
            "kills": {"worker (SIGKILL) after": 100, "driver (SIGKILL) after": 250, "jobs left to the next run": left},
            "every_job_finished": True,
            "byte_identical": same,
            "certificates": {"written": len(certificates), "checked": len(checked), "valid": len(checked)},
            "cores": os.cpu_count(),
            "load_average_at_the_end": round(os.getloadavg()[1], 1),
            "versions": {"python": platform.python_version(), "distributed": version("distributed")},
        }
        Path(os.environ["SWEEP_FIGURES"]).write_text(json.dumps(figures, indent=2) + "\n")


def test_no_scheduler_and_no_dask_are_one_line(cli, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    (tmp_path / "s.toml").write_text(spec_text(1))

    def refuse(address, **_):
        raise OSError(f"Timed out trying to connect to {address} after 30 s")

    monkeypatch.setattr(distributed, "Client", refuse)
    code, out, err = cli("sweep", "s.toml", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in err
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, err = cli("sweep", "s.toml", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, " -m pip install dask" in err) == (2, True)


def test_what_a_cluster_is_sent_is_small_and_runs_as_it_is():
    """A scheduler keeps its last messages: a batch is bytes there, no objects."""
    tasks = [SweepTask(job, code_digest()) for job in sweep_of(certify_group(seed="0..999")).jobs]
    seen = []

    class Future:
        status = "finished"

        def __init__(self, function, *arguments):
            seen.append(arguments)
            self.result = lambda: function(*arguments)

    client = types.SimpleNamespace(
        submit=lambda *arguments, **_: Future(*arguments), nthreads=lambda: {}, status="running"
    )
    completed = type("Completed", (list,), {"add": list.append, "__next__": list.pop})()
    waiting = executor._Waiting([ResultBatch(tuple(tasks))])
    assert list(DaskWorkers("tcp://here:1")._run(client, completed, waiting, len_of)) == [1000]
    ((data,),) = seen
    assert isinstance(data, bytes)
    assert len(data) < 80_000
    assert executor.run_sent(executor.sent(run_batch, ResultBatch((tasks[0],)))).keys == (tasks[0].key,)


def len_of(batch):
    return len(batch.tasks)


def test_what_a_cluster_gives_up_is_named():
    task = types.SimpleNamespace(job=types.SimpleNamespace(key="k"))
    workers = DaskWorkers("tcp://here:1")
    lost = workers._answer(types.SimpleNamespace(status="cancelled"), task)
    killed = workers._answer(
        types.SimpleNamespace(status="error", exception=lambda: type("KilledWorker", (Exception,), {})("x")), task
    )
    assert "the scheduler at tcp://here:1 gave it up (cancelled)" in lost
    assert "died again and again" in killed
    fetched = workers._answer(types.SimpleNamespace(status="finished", result=lambda: 1 / 0), task)
    assert "its result was lost: ZeroDivisionError" in fetched


@pytest.mark.parametrize("status", ["running", "closed"])
def test_a_lost_scheduler_ends_the_run_with_what_there_is(tmp_path, monkeypatch, status):
    """The first job is done when the scheduler goes; then its answers fail, or asking it anything does."""
    done = []

    class Future:
        def __init__(self, status, answer=None):
            self.status, self.result = status, lambda: answer

    class Client:
        loop, status = None, "running"

        def nthreads(self):
            if done and status == "running":
                raise OSError("closed")
            return {}

        def submit(self, function, task, **_):
            if not done:
                return Future("finished", function(task))
            self.status = status
            return Future("cancelled")

        def close(self, timeout):
            done.append("closed")

        def scheduler_info(self):
            return {"workers": {"w": {}}}

    class Completed(list):
        add = list.append

        def __next__(self):
            done.append(self[0])
            return self.pop(0)

    monkeypatch.setattr(executor, "_WINDOW", 1)
    monkeypatch.setattr(executor, "_LOOK_SECONDS", -1.0)
    workers = DaskWorkers("tcp://here:1")
    monkeypatch.setattr(workers, "_connect", lambda: (Client(), lambda loop: Completed()))
    sweep = sweep_of(certify_group(seed="0..4"))
    with pytest.raises(
        WorkersLost, match=r"lost the Dask scheduler at tcp://here:1.*: 1 of 5 finished; run again"
    ) as lost:
        run_sweep(sweep, tmp_path, workers)
    assert lost.value.exit_code == 4
    assert done[-1] == "closed"


def test_searches_are_jobs(cli, tmp_path):
    """A grid of numerical searches: found with an exact verification at m = 2, not found at m = 1."""
    Path("s.toml").write_text(
        '[sweep]\nname = "s"\n[[jobs]]\ncommand = "search"\nheads = 2\nlayers = 2\nm = [1, 2]\nrestarts = 4\n'
    )
    code, _, _ = cli("sweep", "s.toml", "-o", "s", "--workers", "1")
    assert code == 0
    lines = [json.loads(line) for line in Path("s/results.jsonl").read_text().splitlines()]
    assert [line["result"]["verdict"] for line in lines] == ["not found", "found"]
    Path("bad.toml").write_text(
        '[sweep]\nname = "b"\n[[jobs]]\ncommand = "search"\nheads = 2\nlayers = 2\nm = 2\nfree = "V"\n'
    )
    code, _, err = cli("sweep", "bad.toml", "-o", "b")
    assert code == 2
    assert "free 'V' is unknown" in err
