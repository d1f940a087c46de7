"""`utfproof bench all`: ratios to floors and peers."""

import statistics
import time
from dataclasses import replace

import pytest

from utfproof.benchmarks import ratios
from utfproof.cli.app import run as command_line
from utfproof.errors import MalformedInput

QUICK = ("rank modulo p", "the same work")


def spin(seconds):
    """So much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def table(monkeypatch):
    """Two rows: a rank beside the product, and work that is its own floor, "slow" times as much where that is set."""
    factor = {"slow": 1}

    def make(*_):
        return lambda: spin(0.002 * factor["slow"]), lambda: spin(0.002)

    rank = next(row for row in ratios.ROWS if row.work == "rank modulo p")
    own = ratios.Pairing("the same work", "itself", True, ("once",), ("once",), make)
    monkeypatch.setattr(ratios, "ROWS", [replace(rank, sizes=(64,), tiny=(64,)), own])
    monkeypatch.setattr(ratios, "_SAMPLE", 0.004)
    return factor


def test_what_the_document_says(table):
    document = ratios.run(ratios.RatioSetting(repetitions=3))
    assert [(entry["work"], entry["size"]) for entry in document["results"]] == [(QUICK[0], "64"), (QUICK[1], "once")]
    for entry in document["results"]:
        pairs = entry["processor_seconds"]["alone"]
        assert len(pairs) == 3
        assert entry["ratios"]["alone"] == statistics.median(a / b for a, b in pairs)
    assert 0.7 < document["results"][1]["ratios"]["alone"] < 1.4


def test_what_cannot_run_here_is_absent(table, monkeypatch):
    def make(*_):
        raise ImportError("no g++")

    monkeypatch.setattr(ratios, "ROWS", [*ratios.ROWS, ratios.Pairing("rank", "a peer", True, (1,), (1,), make)])
    document = ratios.run(ratios.RatioSetting(tiny=True))
    assert document["absent"] == {"rank beside a peer": "no g++"}
    assert len(document["results"]) == 2


def test_a_slowdown_is_seen(table):
    before = ratios.run(ratios.RatioSetting(tiny=True, works=("the same work",)))["results"][0]
    table["slow"] = 2
    after = ratios.run(ratios.RatioSetting(tiny=True, works=("the same work",)))["results"][0]
    assert 1.5 < after["ratios"]["alone"] / before["ratios"]["alone"] < 2.7


def test_what_cannot_be_measured_is_one_line(capsys):
    assert command_line(["bench", "all", "--tiny", "--repetitions", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(MalformedInput, match="'nothing' is unknown"):
        ratios.RatioSetting(works=("nothing",)).check()


@pytest.mark.full
@pytest.mark.parametrize("size", ["usual", "tiny"])
def test_rows_can_be_made(tmp_path, size):
    """Each side of the small rows runs."""
    pytest.importorskip("torch")
    for i, (row, at) in enumerate(ratios.RatioSetting(tiny=size == "tiny").rows()):
        if size == "usual" and "FFLAS" not in row.beside and row.work not in ("start of a command",):
            continue
        (folder := tmp_path / str(i)).mkdir()
        try:
            work, beside = row.make(at, folder)
        except ImportError:
            continue
        work()
        beside()
