"""Errors from outside: what is not installed, files all or nothing, signals and streams, the page of errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import console
import pytest
import test_errors
from test_errors import CERTIFY, SMALL, SUBPROCESS, content, refused

from utfproof import weights
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, OutputFailed
from utfproof.shapes import Shape
from utfproof.util import files

place = test_errors.place
store = test_errors.store


# --- what is not installed, or not there -----------------------------------------------------------------------------

PACKAGES = ("torch", "matplotlib", "dask", "distributed", "pyarrow")
EXAMPLE = str(Path(__file__).parents[1] / "docs" / "sweep-example.toml")
ABSENT = {
    "certify": ([*CERTIFY, "--device", "cuda"], " -m pip install torch"),
    "emulate": (["emulate", "random", *SMALL, "--precision", "bfloat16"], " -m pip install torch"),
    "train": (["train", "parentheses/sparse/attention"], " -m pip install torch"),
    "train --threads": (["train", "parentheses/sparse/attention", "--threads", 1], " -m pip install torch"),
    "frontier": (["frontier", "--plot", "f.svg"], " -m pip install matplotlib"),
    "sweep": (["sweep", EXAMPLE, "--scheduler", "tcp://127.0.0.1:1"], " -m pip install dask"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_absent_extras(place, capsys, monkeypatch, name):
    """The line says what to install."""
    for package in list(sys.modules):
        if package.partition(".")[0] in PACKAGES:
            monkeypatch.delitem(sys.modules, package)
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    # imported anew without its libraries; afterwards the package's attribute has to be the module that others hold
    if (training := sys.modules.get("utfproof.training")) is not None:
        monkeypatch.setattr(sys.modules["utfproof"], "training", training)
    for module in [m for m in sys.modules if m.startswith("utfproof.training")]:
        monkeypatch.delitem(sys.modules, module)
    arguments, words = ABSENT[name]
    refused(capsys, place, arguments, 2, words)


GPU = {
    "certify": CERTIFY,
    "decide": ["decide", "host.safetensors", "-o", "c.json"],
    "emulate": ["emulate", "random", *SMALL],
    "train": ["train", "parentheses/sparse/attention"],
}


@pytest.mark.parametrize("name", GPU)
def test_no_gpu(place, capsys, name):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    refused(capsys, place, [*GPU[name], "--device", "cuda"], 2, "cuda")


# --- files, all or nothing -------------------------------------------------------------------------------------------


def test_a_target_of_an_earlier_refutation_goes(place, capsys):
    """The certificate is replaced by one that says universal: the missed target beside it would contradict it."""
    shape = Shape(2, 2, 2, 3)
    weights.write_host(place / "printed.safetensors", build_host("printed-tree-row", shape), dtype="int8")
    beside = place / "c.target.safetensors"
    assert run(["decide", "printed.safetensors", "-o", "c.json"]) == 1
    assert beside.exists()
    assert run(["decide", "host.safetensors", "-o", "c.json"]) == 0
    assert not beside.exists()
    # a file that is no target is somebody else's
    beside.write_bytes((place / "E.safetensors").read_bytes())
    assert run(["decide", "host.safetensors", "-o", "c.json"]) == 0
    assert beside.exists()


def _write_half(path, fault):
    with files.atomic_file(path) as stream:
        stream.write(b"half")
        raise fault


def test_an_interrupt_at_any_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    for fault in (KeyboardInterrupt, OSError(28, "No space left on device"), ValueError):
        with pytest.raises((KeyboardInterrupt, OutputFailed, ValueError)):
            _write_half(path, fault)
        assert content(tmp_path) == {"a": b"old"}


def test_links_are_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "a")
    files.write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "real" / "a").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(MalformedInput, match="cannot write"):
        files.require_writable(tmp_path / "loop")


# --- signals and streams, in processes of their own ---------------------------------------------------------------------


STOP_AT_A_PLACE = """
import os, sys, time
from pathlib import Path

place = os.environ.get("UTFPROOF_TEST_PLACE", "")

def stop():
    sys.setprofile(None)
    Path(os.environ["UTFPROOF_TEST_REACHED"], str(os.getpid())).touch()
    while True:
        time.sleep(60)

def imported(event, arguments):
    if event == "import" and arguments[0] == place:
        stop()

def called(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name == name and code.co_filename.endswith(file):
        stop()

if ":" in place:
    file, name = place.split(":")
    sys.setprofile(called)
elif place:
    sys.addaudithook(imported)
"""
"""A sitecustomize module: the process says when it comes to a place, the import of a module or the call of a function, and
waits there. A signal meets it at that place, however slow or fast the machine is."""


def start(folder, arguments, place, reached):
    """A command with its own temporary folder, in a session of its own; it stops at `place`; then `reached` has a file."""
    for path in (folder / "tmp", folder / "work", reached):
        path.mkdir()
    (reached.parent / "sitecustomize.py").write_text(STOP_AT_A_PLACE)
    return subprocess.Popen(
        [sys.executable, "-m", "utfproof", *map(str, arguments)],
        cwd=folder / "work",
        env={
            **SUBPROCESS,
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": str(reached.parent),
            "UTFPROOF_TEST": str(folder),
            "UTFPROOF_TEST_PLACE": place,
            "UTFPROOF_TEST_REACHED": str(reached),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=listen,
    )


def listen():
    """Signals as a person's terminal gives them: whoever runs the tests may have them ignored (`&` in a script, nohup)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def until(condition, process):
    """Wait for it, as long as the process lives."""
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"ended before it came to its place: {process.communicate()[1]}")
        time.sleep(0.02)


def relatives(folder):
    """Processes that were started for this folder and live."""
    mark, found = f"UTFPROOF_TEST={folder}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes() and (entry / "stat").read_text().split()[2] != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


DENSE = ["certify", "random", *SMALL, "-o", "c.json"]
VERIFY = ["verify", "--workers", 2, "--html", "v.html"]
AT_WORK = "elimination.py:_eliminate"
SIGNALS = {
    "Ctrl-C while loading": (DENSE, "numpy", signal.SIGINT, 130, "interrupted"),
    "Ctrl-C between the two": (DENSE, "app.py:run", signal.SIGINT, 130, "interrupted"),
    "Ctrl-C while the command line is read": (DENSE, "typer/main.py:__call__", signal.SIGINT, 130, "interrupted"),
    "Ctrl-C at work": (DENSE, AT_WORK, signal.SIGINT, 130, "interrupted"),
    "SIGTERM while loading": (DENSE, "numpy", signal.SIGTERM, 143, "terminated"),
    "SIGTERM at work": (DENSE, AT_WORK, signal.SIGTERM, 143, "terminated"),
    "the terminal goes": (DENSE, AT_WORK, signal.SIGHUP, 129, "the terminal was closed"),
    "Ctrl-C with workers": (VERIFY, "runner.py:_decide_by_id", signal.SIGINT, 130, "interrupted"),
    "SIGTERM with workers": (VERIFY, "runner.py:_decide_by_id", signal.SIGTERM, 143, "terminated"),
}


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", SIGNALS)
def test_signals(tmp_path, tmp_path_factory, name):
    """One line, no traceback, no file of any kind, and no process that lives on."""
    arguments, place, number, code, words = SIGNALS[name]
    reached = tmp_path_factory.mktemp("place") / "reached"
    process = start(tmp_path, arguments, place, reached)
    until(lambda: len(list(reached.iterdir())) == (2 if "workers" in name else 1), process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=600)
    for _ in range(600):
        if not relatives(tmp_path):
            break
        time.sleep(0.1)
    assert relatives(tmp_path) == []
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert lines == [f"utfproof: {words}; nothing half-written is left"]
    # Python may end itself by the signal, which shells report as the same 130
    assert process.returncode in ((code, -number) if number == signal.SIGINT else (code,))
    assert content(tmp_path) == {"tmp": None, "work": None}


STREAMS = {
    "standard output closed": (">&-", 74, "Bad file descriptor"),
    "standard output full": (">/dev/full", 74, "No space left on device"),
    "all streams closed": ("<&- >&- 2>&-", 74, ""),
    "a reader that leaves": ("| true", 141, ""),
    "both to a reader that leaves": ("2>&1 | true", 141, ""),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams(tmp_path, name):
    """The certificate is written all the same: only the showing of it failed."""
    redirection, code, words = STREAMS[name]
    command = f'"{sys.executable}" -m utfproof certify tied {" ".join(SMALL)} -o c.json {redirection}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=SUBPROCESS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == bool(words)
    assert json.loads((tmp_path / "c.json").read_bytes())["kind"] == "rank-permutation"
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


# --- the page ----------------------------------------------------------------------------------------------------


def test_the_lines_that_the_page_shows(tmp_path, capsys, monkeypatch):
    """docs/errors.md: what its commands say on standard error is what it shows below them, "..." for what a machine holds."""
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs" / "errors.md"
    said, shown = [], 0
    for block in console.blocks(page.read_text(), "errors.md"):
        if block.is_console:
            for command in console.commands(block):
                assert run(command.words[1:]) == command.code
                said += [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
        else:
            assert len(block.lines) == len(said)
            for line, found in zip(block.lines, said, strict=True):
                assert re.fullmatch(re.escape(line).replace(r"\.\.\.", r"\S+ \S+"), found), found
            said, shown = [], shown + 1
    assert shown == 3
    assert not said
