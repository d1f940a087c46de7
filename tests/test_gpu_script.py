"""scripts/gpu.py on the CPU: the order of the cells, what is left out, interruptions, refusals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import gpu  # noqa: E402

from utfproof.paper import tables as paper  # noqa: E402
from utfproof.training.presets import PRESETS  # noqa: E402
from utfproof.training.results import read_results  # noqa: E402

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
    assert "2 cells without a full run" in capfd.readouterr().out
    assert len(read_results(tmp_path / "results")) == 2
    assert gpu.main(arguments) == 0
    assert "0 cells without a full run" in capfd.readouterr().out


@pytest.mark.full
def test_a_terminal_s_ctrl_c_leaves_a_checkpoint(tmp_path):
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
    assert list(tmp_path.glob("runs/*/checkpoint.safetensors"))


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
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 3))
    assert gpu.main([*TINY, "--results", str(tmp_path / "results")]) == 1
    assert "failed, exit 3" in capfd.readouterr().out
