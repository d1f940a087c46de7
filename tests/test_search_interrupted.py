"""Ctrl-C while a solver of its own searches, and after it."""

import signal
import subprocess
import sys
import threading

import pytest

from utfproof.ground.processes import interruptible

SOLVE_AND_INTERRUPT = """
import signal
from utfproof.search.monomial_host import MonomialGrid, find_host

print(find_host(MonomialGrid(2, 2), 1, engine="cp-sat", seconds=30).status)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
"""


def test_ctrl_c_ends_a_solve():
    main, stopped = threading.main_thread().ident, threading.Event()
    assert main is not None

    def solve():
        signal.pthread_kill(main, signal.SIGINT)  # the solve has begun: whoever waits for it is told
        return stopped.wait(60)

    with pytest.raises(KeyboardInterrupt):
        interruptible(solve, stopped.set)
    assert stopped.is_set()


def test_what_goes_wrong_in_a_solve_is_told():
    assert interruptible(lambda: 7, lambda: None) == 7
    with pytest.raises(MemoryError, match="too large"):
        interruptible(too_large, lambda: None)


def too_large():
    raise MemoryError("too large")


def test_ctrl_c_is_heard_after_a_solve():
    """CP-SAT hands the signal to the system when it has ended, unless it is told not to take it."""
    pytest.importorskip("ortools")
    found = subprocess.run([sys.executable, "-c", SOLVE_AND_INTERRUPT], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.split()) == (0, ["infeasible", "heard"])
