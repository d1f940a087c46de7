"""Hypothesis profiles: derandomised in CI, no deadline (shared machines are slow now and then). The command line as a
fixture. What was left out, in a line each."""

import json
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

import console
import pytest
from hypothesis import HealthCheck, settings

from utfproof.cli import signals
from utfproof.cli.app import run

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

os.environ.setdefault("UTFPROOF_UTFCHECK", "")
"""No verified checker, whether or not it is built here; tests of it name it."""
os.environ["COLUMNS"] = "80"
"""Whatever the terminal's width; what is about other widths sets its own."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # run in the background of a script: the commands that tests interrupt would be deaf to it
    signal.signal(signal.SIGINT, signal.default_int_handler)

MAKES = {"torch": "make torch"}
"""How a missing package is installed; `make full` installs them all."""


def handlers():
    return [signal.getsignal(number) for number in signals.NUMBERS]


@pytest.fixture(autouse=True)
def signals_as_they_were():
    """A test that runs the entry point here, not `run`, leaves Ctrl-C to the system, and a later one's ends these tests."""
    before = handlers()
    yield
    assert handlers() == before, "this test leaves signals to other handlers than it found"


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run a command in a fresh folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return call


@pytest.fixture
def to_json(cli):
    """By a command's name: run it on FILE with -o c.json --json in a fresh folder: (exit code, document or error)."""

    def command(name):
        def call(path, *options):
            code, out, err = cli(name, path, "-o", "c.json", "--json", *options)
            return code, json.loads(out) if out else err

        return call

    return command


@pytest.fixture
def furnished(tmp_path, monkeypatch):
    """A folder with what a page's commands find in a checkout, and a terminal of 80 columns."""
    console.furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def one_thread():
    """PyTorch on one thread."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_addoption(parser):
    group = parser.getgroup("utfproof")
    group.addoption("--passed-to", metavar="FILE", help="write the names of the tests that passed")
    group.addoption("--passed-in", metavar="FILE", help="leave out the tests that FILE names: another run passed them")


def pytest_configure(config):
    if config.getoption("dist", "no") == "no":  # here tests run, and the options are read
        os.environ.pop("PYTEST_ADDOPTS", None)  # a pytest that a test starts knows none of this one's


def pytest_collection_modifyitems(config, items):
    if path := config.getoption("passed_in"):
        passed = set(Path(path).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no CUDA device")


def why_skipped(report):
    """The reason of a skipped test or file, and what would change it."""
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix(
        "Skipped: "
    )
    missing = re.match(r"could not import '(\w+)", reason)
    return f"{missing[1]} is not installed ({MAKES.get(missing[1], 'make full')})" if missing else reason


def pytest_terminal_summary(terminalreporter, config):
    if path := config.getoption("passed_to"):
        passed = [report.nodeid for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
        Path(path).write_text("".join(f"{name}\n" for name in passed))
    counts = Counter(
        (why_skipped(report), isinstance(report, pytest.CollectReport))
        for report in terminalreporter.stats.get("skipped", [])
    )
    for (reason, whole), count in sorted(counts.items()):
        what = "file" if whole else "test"
        terminalreporter.write_line(f"skipped: {count} {what}{'s' * (count != 1)}: {reason}")
    if "not full" in config.option.markexpr:
        terminalreporter.write_line("the second tier is left out (make full)")
