"""scripts/gpu.py on the CPU: the order of the cells, what is left out, interruptions, refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import gpu  # noqa: E402

from utfproof.paper import tables as paper  # noqa: E402
from utfproof.training.presets import PRESETS  # noqa: E402
from utfproof.training.results import read_results  # noqa: E402
from utfproof.weights import read_tensors  # noqa: E402

TINY = ["--device", "cpu", "--tiny", "--jobs", "2", "--cells", "1-hop/sparse/residual-norm,1-hop/trained/residual-norm"]


def test_cells_are_in_order_of_value():
    cells = list(gpu.cells())
    assert len(cells) == len(set(cells)) == 75 + 5 * 3 * 4
    assert {name for name, _ in cells} <= set(PRESETS["paper"])
    first = cells[: 2 * 3 * len(paper.ABLATIONS)]
    assert {name.split("/")[2] for name, _ in first} == {"residual-norm", "attention"}
    assert all(seed == 0 for _, seed in cells[:75])
    assert {name.split("/")[1] for name, _ in cells[75:]} == {"random"}


@pytest.mark.full
def test_cells_are_trained_once(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = [*TINY, "--results", str(tmp_path / "results")]
    assert gpu.main(arguments) == 0
    assert "2 of the paper's 75 cells and 0 further seeds" in capfd.readouterr().out
    assert len(read_results(tmp_path / "results")) == 2
    assert gpu.main([*arguments, "--list"]) == 0
    assert capfd.readouterr().out.startswith("0 of the paper's 75 cells and 0 further seeds")


def test_missing_cells_are_listed_in_order_without_a_gpu(tmp_path, capsys):
    assert gpu.main(["--list", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "75 of the paper's 75 cells and 60 further seeds without a full run"
    assert said[1:] == [f"{name}, seed {seed}" for name, seed in gpu.cells()]


def step_of(path):
    return json.loads(read_tensors(path).metadata["run"])["step"]


@pytest.mark.full
def test_ctrl_c_and_the_end_of_the_time_leave_a_checkpoint_to_go_on_from(tmp_path, monkeypatch, capfd):
    script = Path(gpu.__file__)
    words = [sys.executable, str(script), "--device", "cpu", "--cells", "1-hop/sparse/attention", "--jobs", "1"]
    process = subprocess.Popen(
        [*words, "--results", str(tmp_path / "results")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/lock")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "stopped, with a checkpoint" in out
    (path,) = tmp_path.glob("runs/*/checkpoint.safetensors")
    before = step_of(path)
    monkeypatch.chdir(tmp_path)
    assert gpu.main([*words[2:], "--results", str(tmp_path / "results"), "--hours", "0.006"]) == 0
    assert "stopped, with a checkpoint" in capfd.readouterr().out
    assert step_of(path) > before
    assert not read_results(tmp_path / "results")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "no-such-device"], "no-such-device"),
        (["--device", "cpu", "--jobs", "0"], "--jobs 0"),
        (["--device", "cpu", "--hours", "nan"], "--hours nan"),
        (["--device", "cpu", "--tf32"], "tf32 needs a GPU"),
        (["--device", "cpu", "--cells", "5-hop"], "--cells 5-hop is in no cell's name"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert gpu.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_run_that_fails_is_told(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu.subprocess, "Popen", lambda *_, **__: SimpleNamespace(wait=lambda left: 3))
    assert gpu.main([*TINY, "--results", str(tmp_path / "results")]) == 1
    assert "failed, exit 3" in capfd.readouterr().out
