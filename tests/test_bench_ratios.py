"""`utfproof bench all`: ratios to floors and peers, and a slowdown that is seen, whether it is in the code or in the record."""

import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from utfproof.benchmarks import ratios
from utfproof.cli.app import run as command_line
from utfproof.errors import MalformedInput

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "results" / "bench-tiny"
QUICK = ("rank modulo p", "the same work")


def spin(seconds):
    """So much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def table(monkeypatch):
    """Two rows, in this process: a rank beside the product, and work that is its own floor; and what was made of each."""
    made, factor = [], {"slow": 1}

    def make(_, folder):
        made.append(folder)
        return lambda: spin(0.002 * factor["slow"]), lambda: spin(0.002)

    rank = next(row for row in ratios.ROWS if row.work == "rank modulo p")
    own = ratios.Pairing("the same work", "itself", True, ("once",), ("once",), make)
    monkeypatch.setattr(ratios, "ROWS", [replace(rank, sizes=(64,), tiny=(64,)), own])
    monkeypatch.setattr(ratios, "_SAMPLE", 0.004)
    monkeypatch.setattr(ratios, "run", lambda setting: setting.check() or ratios.measure(setting, ratios._measured))
    return made, factor


def recorded_in(folder, document):
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(document))
    return folder


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
        raise ratios.Unavailable("no g++")

    monkeypatch.setattr(ratios, "ROWS", [*ratios.ROWS, ratios.Pairing("rank", "a peer", True, (1,), (1,), make)])
    document = ratios.run(ratios.RatioSetting(tiny=True))
    assert document["absent"] == {"rank beside a peer": "no g++"}
    assert len(document["results"]) == 2


def test_a_slowdown_is_seen_and_noise_is_not(table, tmp_path, capsys):
    """Planted in the code: twice the work. It is measured ROUNDS times, and the row that is as before once."""
    made, factor = table
    folder = recorded_in(tmp_path / "tiny", ratios.run(ratios.RatioSetting(tiny=True)))
    compare = ["bench", "all", "--tiny", "--against", str(folder)]
    assert command_line(compare) == 0
    capsys.readouterr()
    made.clear()
    factor["slow"] = 2
    assert command_line([*compare, "-o", str(tmp_path / "slow.json")]) == 1
    assert "the same work, once:" in capsys.readouterr().err
    assert len(made) == ratios.ROUNDS
    worse = json.loads((tmp_path / "slow.json").read_text())["worse"]
    slow = next(entry for entry in worse if entry["work"] == "the same work")
    assert 1.5 < slow["ratio"] / slow["recorded"] < 2.7


def test_a_row_that_is_slow_once_is_not_worse(table, monkeypatch):
    def entry(ratio):
        return {"work": "w", "size": "1", "beside": "b", "ratios": {"alone": ratio}}

    found = iter([[entry(2.0)], [entry(1.2)]])
    monkeypatch.setattr(ratios, "run", lambda _: {"results": next(found)})
    document = ratios.run_against(ratios.RatioSetting(tiny=True), {("w", "1", "b"): 1.0})
    assert (document["worse"], document["results"]) == ([], [entry(1.2)])


@pytest.mark.parametrize("fault", ["nothing there", "other rows", "no pairs", "no json"])
def test_no_comparison_is_one_line(table, tmp_path, capsys, fault):
    folder = recorded_in(tmp_path / "tiny", {"benchmark": "all", "kernel": "Zen", "results": []})
    if fault == "nothing there":
        (folder / "run.json").unlink()
    elif fault == "no json":
        (folder / "run.json").write_text("{")
    more = ["--repetitions", "0"] if fault == "no pairs" else []
    assert command_line(["bench", "all", "--tiny", "--against", str(folder), *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(MalformedInput, match="'nothing' is unknown"):
        ratios.RatioSetting(works=("nothing",)).check()


def test_every_kernel_on_record_has_every_row():
    """What CI holds runs against: the sizes that `--tiny` measures now."""
    asked = {(row.work, str(size), row.beside) for row, size in ratios.RatioSetting(tiny=True).rows()}
    documents = [json.loads(path.read_text()) for path in RECORDED.iterdir()]
    assert {"Haswell", "SkylakeX"} <= {document["kernel"] for document in documents}
    for document in documents:
        assert {(e["work"], e["size"], e["beside"]) for e in document["results"]} == asked


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
        except ratios.Unavailable:
            continue
        work()
        beside()
