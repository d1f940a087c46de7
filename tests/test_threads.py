"""Threads of linear algebra: as many as a piece is worth, set back afterwards."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from utfproof.ground import threads
from utfproof.ground.threads import SMALL, WORTH, chosen_threads


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


@pytest.mark.parametrize(
    ("limit", "operations", "count"),
    [
        (2, 2 * WORTH, None),
        (2, 2 * WORTH - 1, 1),  # not worth a second one
        (2, SMALL, None),  # the library starts none by itself
        (1, 100 * WORTH, None),  # the user's limit
        (8, 3 * WORTH, 3),
    ],
)
def test_threads_by_size_are_set_back(monkeypatch, limit, operations, count):
    pool = Pool(limit)
    monkeypatch.setattr(threads, "_pools", lambda loaded: [(pool, limit)])
    with suppress(ZeroDivisionError), chosen_threads(operations):
        assert pool.told == ([] if count is None else [count])
        raise ZeroDivisionError
    assert pool.told == ([] if count is None else [count, limit])


SCRIPT = """
import sys
from contextlib import suppress
import numpy as np
import utfproof.exact.gfp.kernels as kernels
from utfproof.ground import threads
from utfproof.exact import gfp
from threadpoolctl import ThreadpoolController

seen = set()
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
print(sorted(seen) == [(1, False), (2, True)] or sorted(seen))
print(pools[0].num_threads)
"""


@pytest.mark.full
def test_the_elimination_gives_large_products_a_second_thread():
    pytest.importorskip("threadpoolctl")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
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
