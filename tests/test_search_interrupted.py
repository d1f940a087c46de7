"""Ctrl-C while a solver of its own searches, and after it."""

import signal
import subprocess
import sys
import threading
import types

import pytest

from utfproof.search.monomial_host import _solved

SOLVE_AND_INTERRUPT = """
import signal
from ortools.sat.python import cp_model
from utfproof.search.monomial_host import _solved

model, solver = cp_model.CpModel(), cp_model.CpSolver()
model.add(model.new_bool_var("") == 1)
print(solver.status_name(_solved(solver, model)))
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
"""


def test_ctrl_c_ends_a_solve():
    main, stopped = threading.main_thread().ident, threading.Event()
    assert main is not None

    def solve(model):
        signal.pthread_kill(main, signal.SIGINT)  # the solve has begun: whoever waits for it is told
        return stopped.wait(60)

    solver = types.SimpleNamespace(parameters=types.SimpleNamespace(), solve=solve, stop_search=stopped.set)
    with pytest.raises(KeyboardInterrupt):
        _solved(solver, None)
    assert stopped.is_set()


def test_ctrl_c_is_heard_after_a_solve():
    """CP-SAT hands the signal to the system when it has ended, unless it is told not to take it."""
    pytest.importorskip("ortools")
    found = subprocess.run([sys.executable, "-c", SOLVE_AND_INTERRUPT], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.split()) == (0, ["OPTIMAL", "heard"])
