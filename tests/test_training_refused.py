"""What `utfproof train` and `utfproof tables` refuse: foreign results, damaged checkpoints, folders that cannot be."""

import errno
import json
import os
import shlex
import sys
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from utfproof.cli import app as cli  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.ground import files  # noqa: E402
from utfproof.training import checkpoint  # noqa: E402
from utfproof.training import run as runs  # noqa: E402
from utfproof.training.loop import Trainer  # noqa: E402
from utfproof.training.presets import preset  # noqa: E402
from utfproof.training.results import result_path  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

NAME = "parentheses/random/attention"
LONG = "x" * 300
small = partial(preset, NAME, batch=4, steps=2, warmup=1, heads=2, head_dim=3)


def setting(folder, **changes):
    return runs.RunSetting(**{"folder": folder, "results": None, "eval_sequences": 20, **changes})


def refused(capsys, *arguments):
    """The one line of a command that leaves with 2."""
    assert cli.run([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_file_of_another_run_is_no_result_of_this_one(tmp_path):
    results = tmp_path / "results"
    (one,) = runs.run(small(), [0], setting(tmp_path / "run", results=results))
    (other,) = runs.run(small(learning_rate=0.5), [0], setting(tmp_path / "other", results=results))
    result_path(one, results).write_bytes(result_path(other, results).read_bytes())
    with pytest.raises(MalformedInput, match=f"this run's file is called {other.key}"):
        runs.run(small(), [0], setting(tmp_path / "run", results=results))


def test_a_folder_of_results_that_cannot_be_is_refused_before_the_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(Trainer, "step", lambda _: pytest.fail("a step was made"))
    line = refused(capsys, "train", NAME, "--steps", 2, "--batch", 2, "--results", "file/results")
    assert line == f"utfproof: cannot make folder file/results: {tmp_path / 'file'} is no folder"
    monkeypatch.setattr(files.os, "access", lambda *_, **__: False)  # permissions do not bind root
    line = refused(capsys, "train", NAME, "--steps", 2, "--batch", 2, "--results", "new/results")
    assert line == f"utfproof: cannot write into folder new/results: no permission in {tmp_path}"
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_what_tensorboard_wants_is_installed_where_this_python_finds_it(tmp_path, monkeypatch, capsys):
    """A `pip` on the PATH may be another Python's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setattr(Trainer, "step", lambda _: pytest.fail("a step was made"))
    line = refused(capsys, "train", NAME, "--steps", 2, "--batch", 2, "--tensorboard", "board")
    wanted = f"{shlex.quote(sys.executable)} -m pip install tensorboard"
    assert line == f"utfproof: --tensorboard needs TensorBoard: {wanted}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", NAME, "-o", LONG),
        ("train", NAME, "--results", LONG),
        ("tables", "--results", LONG),
        ("tables", "--optimum", LONG),
        ("optimum", "run", "--results", LONG),
        ("figure", "scaling", "-o", "scaling.svg", "--results", LONG),
    ],
    ids=lambda arguments: " ".join(arguments)[:24],
)
def test_a_name_that_nothing_can_have(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, *arguments) == f"utfproof: nothing can be called {LONG}: {os.strerror(errno.ENAMETOOLONG)}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": {"preset": [1]}}, "identity is missing or wrong"),
        ({"identity": {"preset": "text"}}, "identity is missing or wrong"),
        ({"log_bytes": True}, "log_bytes is missing or wrong"),
        ({"log_bytes": -5}, "log_bytes is missing or wrong"),
        ({"seconds": float("nan")}, "seconds is missing or wrong"),
        ({"seconds": -1.0}, "seconds is missing or wrong"),
        ({"seconds": True}, "seconds is missing or wrong"),
        ({"step": float("inf")}, "no checkpoint: step inf"),
        ({"step": 2.5}, "no checkpoint: step 2.5"),
        ({"step": -3}, "no checkpoint: step -3"),
    ],
    ids=str,
)
def test_a_checkpoint_that_says_what_cannot_be(tmp_path, change, said):
    runs.run(small(), [0], setting(tmp_path))
    path = tmp_path / checkpoint.DOCUMENT
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(MalformedInput, match=said):
        runs.run(small(), [0], setting(tmp_path))


def test_a_checkpoint_nested_without_end(tmp_path):
    (tmp_path / checkpoint.DOCUMENT).write_text("[" * 100_000)
    with pytest.raises(MalformedInput, match="is no checkpoint"):
        runs.run(small(), [0], setting(tmp_path))


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
     RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_device_without_memory_is_exit_3(tmp_path, monkeypatch, capsys, error):
    """Of a GPU nothing is known beforehand: other runs may share it."""

    def fail(_):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "step", fail)
    assert cli.run(["train", NAME, "--steps", "2", "--batch", "2"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("utfproof: out of memory")
