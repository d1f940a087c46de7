"""What long commands show meanwhile: on a terminal, in a log, and nothing elsewhere."""

import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest

from utfproof.cli.app import run
from utfproof.constructions import build_host, random_target
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.util.progress import listening, stage, staged

SMALL = ["--heads", "2", "--layers", "2", "--head-dim", "2", "--d-in", "3"]


class Recorder:
    def __init__(self):
        self.stages = []

    def begin(self, stage):
        self.stages.append(stage)

    def end(self, stage):
        stage.note = "ended"


def test_stages_are_silent_without_a_listener_and_end_with_an_error():
    with stage("a", 3) as doing:
        doing.advance()
    assert doing.done == 1
    recorder = Recorder()
    with listening(recorder):
        assert list(staged("b", "xyz", 3)) == ["x", "y", "z"]
        with pytest.raises(KeyError), stage("c"):
            raise KeyError
    assert [(s.name, s.done, s.note) for s in recorder.stages] == [("b", 3, "ended"), ("c", 0, "ended")]


SLOW = (
    "import time\nfrom utfproof.cli.entry import watched\nfrom utfproof.util.progress import stage\n"
    "with watched({mode!r}):\n"
    "    with stage('first thing', 8, unit='pieces') as doing:\n"
    "        for _ in range(8):\n            time.sleep(0.25)\n            doing.advance()\n"
    "    with stage('second thing'):\n        time.sleep(0.1)\n"
    "print('result')\n"
)


def on_a_terminal(program):
    """What a program writes to a pseudo-terminal that is its standard error, and to its standard output, a pipe."""
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        drawn = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            drawn += piece
        output = process.stdout.read()
    os.close(leader)
    return drawn.decode(), output.decode()


def test_a_terminal_sees_what_how_far_and_how_long_still():
    drawn, output = on_a_terminal(SLOW.format(mode="auto"))
    assert output == "result\n"
    assert "first thing" in drawn
    assert re.search(r"[3-7]/8 pieces", drawn)
    assert re.search(r"0:00:0\d", drawn)


def test_plain_is_a_line_for_each_stage_and_none_is_nothing():
    modes = ("plain", "auto", "none")  # side by side: each sleeps for two seconds
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SLOW.format(mode=mode)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for mode in modes
    ]
    said = dict(zip(modes, [process.communicate() for process in running], strict=True))
    assert [process.returncode for process in running] == [0, 0, 0]
    assert [output for output, _ in said.values()] == ["result\n"] * 3
    far = r"(\[ +\d\.\d s\] \.\.\. first thing: [3-8] of 8 pieces\n)+"
    expected = r"\[ +0\.\d s\] first thing, 8 pieces\n" + far + r"\[ +[2-9]\.\d s\] second thing\n"
    assert re.fullmatch(expected, said["plain"][1]), said["plain"][1]
    assert said["auto"][1] == said["none"][1] == ""


# --- commands ------------------------------------------------------------------------------------------------

COMMANDS = {
    "verify": (["verify", "intro:embedding-shape", "--workers", "1"], ["verify, 1 claim"]),
    "certify": (["certify", "random", *SMALL, "-o", "c.json"], []),
    "check": (["check", "host.json"], []),
    "decide": (["decide", "host.safetensors", "-o", "d.json"], []),
    "embed": (["embed", "tied", "target.safetensors", "-o", "E.safetensors"], []),
    "embed --minimize": (
        ["embed", "least.safetensors", "target.safetensors", "--minimize", "-o", "E.safetensors"],
        ["least m for this target", "host of that size"],
    ),
    "emulate": (["emulate", "tied", *SMALL, "--context", "3"], ["emulate tied, 2 runs"]),
    "enclose": (
        ["enclose", "tied", *SMALL, "--context", "2", "--digits", "9"],
        ["enclosure with 100 bits"],
    ),
    "frontier": (["frontier", "-H", "1..2", "-L", "1"], ["frontier, 2 shapes"]),
    "search": (["search", "exhaustive", "-H", "1", "-L", "1", "--m", "1"], ["search exhaustive, at most 600 s"]),
    "sweep": (["sweep", "grid.toml", "--workers", "1"], ["sweep grid, 1 job"]),
    "report": (["report", "."], []),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(["build", "random", *SMALL, "-o", "host.safetensors"])
    run(["build", "target", *SMALL, "-o", "target.safetensors"])
    run(["certify", "tied", *SMALL, "-o", "host.json"])
    (tmp_path / "grid.toml").write_text(
        '[sweep]\nname = "grid"\n\n[[jobs]]\ncommand = "certify"\nconstruction = "tied"\nshape = [[1, 1, 1, 1]]\n'
    )
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tells_its_stages_to_a_log(place, capsys, name):
    arguments, expected = COMMANDS[name]
    if name == "sweep":
        pytest.importorskip("distributed")
    capsys.readouterr()
    run([*arguments, "--progress", "plain"])
    printed = capsys.readouterr()
    told = [line for line in printed.err.splitlines() if line.startswith("[")]
    assert all(re.fullmatch(r"\[ *\d+\.\d s\] .+", line) for line in told)
    assert told[0].endswith(f"] {'search exhaustive' if name == 'search' else arguments[0]}")
    for words in expected:
        assert any(words in line for line in told), told
    run(arguments)
    assert "[" not in capsys.readouterr().err  # no terminal, nothing


def test_large_linear_algebra_has_stages(monkeypatch):
    for module in ("exact.gfp.elimination", "exact.gfp.functions", "exact.lifting", "matching.equations", "matching.modular",
                   "matching.floats"):  # fmt: skip
        monkeypatch.setattr(f"utfproof.{module}.LARGE", 0)
    from utfproof import certify

    shape, recorder = Shape(3, 3, 2, 2), Recorder()
    with listening(recorder):
        certify("random", shape, witness=True)
        certify("random", shape, m=209)
        embed(build_host("random", shape), random_target(shape, 1))
    names = {found.name for found in recorder.stages}
    assert {"R_all", "inverse modulo 127", "R_all modulo 127", "elimination modulo 127"} <= names
    assert {"singular values of R_all", "solve for E"} <= names
    for found in recorder.stages:
        if found.name.startswith("elimination") and found.total == 100:
            assert 0 <= found.done <= 101
    layers = [found for found in recorder.stages if found.name == "R_all"]
    assert all(found.done == found.total == 3 for found in layers)


def test_elimination_s_share_is_that_of_its_work():
    """100 % of the operations that were announced are counted, whatever the matrix's form."""
    from utfproof.exact.gfp import elimination

    for m, n in ((700, 700), (900, 500), (500, 900)):
        recorder, matrix = Recorder(), np.random.default_rng(0).integers(0, 65521, (m, n)).astype(float)
        with pytest.MonkeyPatch.context() as patch, listening(recorder):
            patch.setattr(elimination, "LARGE", 0)
            elimination.Elimination(matrix, 65521)
        (found,) = recorder.stages
        assert 60 < found.done <= 101, (m, n, found.done)
