"""Threads of linear algebra: what a piece is worth, what the machine has left, and all set back afterwards."""

import os
import subprocess
import sys

import pytest

from utfproof.ground import threads
from utfproof.ground.threads import WORTH, ThreadReading, Threads, available, chosen_threads


@pytest.mark.parametrize(
    ("cores", "idle", "own", "free"),
    [
        (2, 1.0, 1.0, 2),  # nobody else
        (2, 0.0, 1.0, 1),  # one busy process beside this one
        (2, 0.0, 0.5, 1),  # three of them: half a core is left
        (2, 0.0, 2.0, 2),  # both cores are this process's own
        (2, 0.9, 0.9, 2),  # a little noise
        (2, 0.5, 1.0, 1),  # a core that is idle half of the time is not idle
        (8, 4.0, 1.0, 5),
        (8, 70.0, 1.0, 8),  # a container that sees its host's idle cores
    ],
)
def test_cores_that_others_leave(cores, idle, own, free):
    assert (
        available(ThreadReading(10.0, 100.0, 5.0), ThreadReading(10.5, 100.0 + idle / 2, 5.0 + own / 2), cores) == free
    )


@pytest.mark.parametrize(("load", "free"), [(0.1, 2), (1.0, 2), (1.5, 1), (9.0, 1)])
def test_the_load_average_where_the_system_tells_no_more(monkeypatch, load, free):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert available(ThreadReading(10.0, None, 5.0), ThreadReading(10.5, None, 5.0), 2) == free


def test_cores_are_those_of_the_control_group(monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    assert threads.cores() == 16
    for text, count in (("max 100000", 16), ("200000 100000", 2), ("50000 100000", 1), ("nonsense", 16)):
        (tmp_path / "cpu.max").write_text(text)
        assert threads.cores() == count


class Pool:
    """A library that counts what it is told."""

    def __init__(self, count):
        self.num_threads, self.told = count, []

    def set_num_threads(self, count):
        self.told.append(count)


@pytest.fixture
def machine(monkeypatch):
    """A process with pools of `limit` threads on a machine whose idle cores are said: (pool, set the idle cores)."""
    clock = {"now": 0.0, "idle": 0.0, "rate": 1.0}

    def now():
        clock["now"] += 1.0
        clock["idle"] += clock["rate"]
        return ThreadReading(clock["now"], clock["idle"], clock["now"])

    def make(limit, cores=2):
        pool = Pool(limit)
        monkeypatch.setattr(threads, "_pools", lambda: [pool])
        monkeypatch.setattr(threads, "cores", lambda: cores)
        monkeypatch.setattr(ThreadReading, "now", staticmethod(now))
        monkeypatch.setattr(threads, "THREADS", Threads())
        return pool, lambda idle: clock.update(rate=idle)

    return make


@pytest.mark.parametrize(
    ("limit", "idle", "operations", "count"),
    [
        (2, 1.0, 2 * WORTH, 2),
        (2, 1.0, 2 * WORTH - 1, 1),  # not worth a second one
        (2, 0.0, 100 * WORTH, 1),  # no core for it
        (1, 1.0, 100 * WORTH, 1),  # the user's limit
        (8, 7.0, 3 * WORTH, 3),
        (8, 3.0, 100 * WORTH, 4),
    ],
)
def test_threads_by_size_and_load(machine, limit, idle, operations, count):
    _, set_idle = machine(limit, cores=8 if limit == 8 else 2)
    set_idle(idle)
    assert threads.THREADS.worth(operations) == count


def test_what_was_chosen_is_set_back(machine):
    pool, _ = machine(2)
    with chosen_threads(threads.SMALL + 1):
        assert pool.told == [1]
    assert pool.told == [1, 2]
    with pytest.raises(ZeroDivisionError), chosen_threads(threads.SMALL + 1):
        raise ZeroDivisionError
    assert pool.told == [1, 2, 1, 2]
    with chosen_threads(threads.SMALL):
        pass
    with chosen_threads(100 * WORTH):
        pass
    assert pool.told == [1, 2, 1, 2]  # nothing to set


SCRIPT = """
import sys
import numpy as np
import utfproof.exact.gfp.kernels as kernels
from utfproof.ground import threads
from utfproof.exact import gfp
from threadpoolctl import ThreadpoolController

free, seen = int(sys.argv[1]), set()
threads.cores = lambda: 2
threads.available = lambda before, after, count: free
threads.THREADS.reading = threads.ThreadReading(0.0, 0.0, 0.0)
pools = ThreadpoolController().select(user_api="blas").lib_controllers
plain = kernels.np.matmul

class Watched:
    def __getattr__(self, name):
        return getattr(np, name)
    def matmul(self, a, b, *more):
        if a.size * b.shape[1] > threads.SMALL:
            seen.add((pools[0].num_threads, a.size * b.shape[1] >= 2 * threads.WORTH))
        return plain(a, b, *more)

kernels.np = Watched()
print(gfp.rank(np.random.default_rng(0).integers(0, 1000, (1200, 1200)).astype(float), 2097143))
print(sorted(seen) == ([(1, False), (1, True)] if free == 1 else [(1, False), (2, True)]) or sorted(seen))
print(pools[0].num_threads)
"""


@pytest.mark.full
@pytest.mark.parametrize("free", [1, 2])
def test_the_elimination_takes_what_is_left(free):
    """Products that are worth it get a second thread on an idle machine, none do on a busy one."""
    pytest.importorskip("threadpoolctl")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(free)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["1200", "True", "2"]


def test_idle_threads_wait_passively(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    threads.wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "26")
    threads.wait_passively()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "26"  # the user's own choice


def test_the_command_line_asks_for_it():
    code = (
        "import os\nfrom utfproof.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "passive", done.stderr
