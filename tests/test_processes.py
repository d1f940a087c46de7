"""Cores, and threads of linear algebra that sleep when idle."""

import os
import signal
import subprocess
import sys

import pytest

from utfproof.util import processes


def test_cores_are_those_of_the_control_group(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    assert processes.cores() == 16
    for text, count in (("max 100000", 16), ("200000 100000", 2), ("50000 100000", 1), ("nonsense", 16)):
        (tmp_path / "cpu.max").write_text(text)
        assert processes.cores() == count


def test_idle_threads_wait_passively(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    processes.wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "26")
    processes.wait_passively()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "26"  # the user's own choice


def test_the_command_line_asks_for_it():
    code = (
        "import os\nfrom utfproof.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "passive", done.stderr


DEFERRED = """
import os, signal, subprocess, sys
from utfproof.util.processes import interrupts_deferred
SLEEP = [sys.executable, "-c", "input(); print('unharmed')"]
try:
    with interrupts_deferred():
        child = subprocess.Popen(SLEEP, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.kill(os.getpid(), signal.SIGINT)
        child.send_signal(signal.SIGINT)
        print("the block ends")
    print("lost")
except KeyboardInterrupt:
    print("interrupted", child.communicate(b"\\n")[0])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []) == set())
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs masks of signals")
def test_ctrl_c_while_workers_start_ends_the_driver_alone():
    done = subprocess.run([sys.executable, "-c", DEFERRED], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["the block ends", "interrupted b'unharmed\\n'", "True"], done.stderr
