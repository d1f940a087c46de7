"""The dry run of `make gpu`: every part at its smallest size, on the processor."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gpu
import gpu_figures
import pytest
import write_performance

pytestmark = pytest.mark.full
SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu.py"
FILES = ("bench-exact-cpu.json", "bench-emulate-cpu.json", "bench-train-cpu.json", "emulate-many-targets-cpu.json")


def dry_run(folder, *more):
    """From the folder above, which is not the repository."""
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--jobs", "1", "--results", folder.name, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
    return done.returncode, done.stdout


def test_every_part_once(tmp_path):
    code, said = dry_run(tmp_path)
    assert code == 0, said
    assert "cells: 1 without a full run" in said
    assert all(json.loads((tmp_path / name).read_text()) for name in FILES)
    (cell,) = (tmp_path / "training").glob("1-hop-sparse-attention-m456-steps2-seed0-*.json")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    code, said = dry_run(tmp_path)
    assert code == 0, said
    assert said.count(" is there") == len(FILES)
    assert "cells: 0 without a full run" in said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before
    cell.unlink()
    assert "cells: 1 without a full run" in dry_run(tmp_path, "--only", "cells")[1]
    the_page_takes_them_up(tmp_path)


def the_page_takes_them_up(folder):
    """Every measurement under its command; what is missing is named."""

    def section():
        return gpu_figures.on_a_gpu(
            folder, write_performance.engine, write_performance.emulation, device="cpu", tiny=True
        )

    said = section()
    assert said.count("`utfproof ") == len(FILES)
    assert said.count("|---|") >= len(FILES) - 1
    assert "2 targets at (H, L, d, d_in) = (4, 2, 24, 4), context 16" in said
    assert "Not measured yet" not in said
    (folder / FILES[0]).unlink()
    assert "Not measured yet on any GPU: rank modulo p." in section()


def test_a_first_seed_comes_before_further_ones():
    """Unless it takes over ten times as long: one m-wide cell at four hops may not keep all others waiting."""
    order = gpu.cells(False)
    place = {
        (point.name, point.head_dim, seeds): number for number, (point, seeds) in enumerate(order) if point.m == 2280
    }
    assert place["3-hop/random/residual", 30, 1] < place["3-hop/random/residual", 30, 5]
    assert place["3-hop/trained/residual-norm", 30, 1] < place["3-hop/random/attention", 30, 5]
    assert place["3-hop/random/attention", 30, 5] < place["4-hop/trained/mlp", 30, 1]
    assert len(set(order)) == len(order)


def test_a_part_that_fails_is_told(tmp_path, capsys):
    part = gpu.Part("a part", (sys.executable, "-c", "raise SystemExit(2)"), tmp_path / "part.json")
    assert not gpu.run_part(part, time.monotonic() + 60)
    assert "a part: exit 2" in capsys.readouterr().out
    assert not part.output.exists()


@pytest.mark.parametrize("device", ["no-such-device", "cuda"])
def test_a_device_that_is_not_there(tmp_path, device):
    """One line, before anything is run."""
    if device == "cuda" and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is one")
    command = [sys.executable, str(SCRIPT), "--device", device, "--results", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert device in done.stderr
    assert not (tmp_path / "results").exists()


def test_the_end_leaves_a_checkpoint(tmp_path):
    """Also in the background of a shell, whose children ignore an interrupt."""
    command = (
        f"{sys.executable} {SCRIPT} --device cpu --only cells --jobs 1 --hours 0.012 --cells 2-hop/trained/attention"
    )
    done = subprocess.run(
        ["sh", "-c", f"{command} --results {tmp_path} & wait"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2-hop/trained/attention, d = 28, m = 1024: stopped, with a checkpoint" in done.stdout, done
    assert list(tmp_path.rglob("checkpoint.json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--results", "file"), "cannot make folder"),
        (("--results", "file/below"), "cannot make folder"),
        (("--only", "celss"), "--only 'celss' is unknown; choose tests, bench, targets, cells"),
        (("--only", ""), "--only '' is unknown"),
        (("--cells", "5-hop"), "--cells '5-hop' is in no cell's name, such as"),
        (("--tf32",), "dtype tf32 is a GPU's"),
        (("--jobs", "0"), "--jobs must be a positive integer, got 0"),
        (("--hours", "0"), "--hours 0 is not above 0"),
        (("--hours", "nan"), "--hours nan is not above 0"),
        (("--hours", "inf"), "--hours inf is not above 0"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--results", "made", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gpu, "parts", lambda _: pytest.fail("something was run"))
    assert gpu.main() == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_further_seeds_wait_for_the_first(tmp_path, monkeypatch, capsys):
    """Both would train seed 0, in one folder."""
    (point,) = {point for point, _ in gpu.cells(True)}
    alone = (
        f"import os, time; os.mkdir({str(tmp_path / 'held')!r}); time.sleep(0.5); os.rmdir({str(tmp_path / 'held')!r})"
    )
    monkeypatch.setattr(gpu, "cells", lambda _: [(point, 1), (point, 5)])
    monkeypatch.setattr(gpu, "train_command", lambda *_: (sys.executable, "-c", alone))
    assert gpu.run_cells(2, time.monotonic() + 60, tmp_path, True, (), ()) == 0
    assert capsys.readouterr().out.count("done after") == 2


def test_ctrl_c_in_a_terminal_leaves_a_checkpoint(tmp_path):
    """It reaches the whole group at once; a child that is told twice ends without one."""
    arguments = [
        "--device",
        "cpu",
        "--only",
        "cells",
        "--jobs",
        "1",
        "--cells",
        "2-hop/trained/attention",
        "--results",
        ".",
    ]
    command = [sys.executable, str(SCRIPT), *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True, start_new_session=True) as started:
        until = time.monotonic() + 60
        while not list(tmp_path.rglob("log.jsonl")) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(2)
        os.killpg(started.pid, signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert (started.returncode, err.splitlines()[-1]) == (130, "gpu: stopped; the same command goes on")
    assert "stopped, with a checkpoint" in out
    assert list(tmp_path.rglob("checkpoint.json"))
