"""`utfproof report`: what a folder holds is shown, and what contradicts itself is called invalid."""

import copy
import json
import os
from pathlib import Path

import pytest
from test_reporting import HOSTILE, Tags, sample

from utfproof.certificates.prover import certify
from utfproof.cli.app import run
from utfproof.reporting.report import gather, report_page, sections_of_report
from utfproof.shapes import Shape

RESULTS = Path(__file__).parents[1] / "results"
SHAPE = {"heads": 1, "layers": 1, "head_dim": 1, "d_in": 1, "d_out": 1}
EMULATION = {"verdict": "outputs agree", "host": "tied", "shape": SHAPE, "notion": "matching", "holds": True}
ENTRY = {"shape": SHAPE, "notion": "matching", "free": None, "targets": "untied", "extent": "all", "host": "any",
         "exact": True, "proved": {"m": 3}, "reached": {"m": 3}, "paper": None}  # fmt: skip
FRONTIER = {"entries": [ENTRY, {**ENTRY, "shape": {**SHAPE, "layers": 2}}], "bounds": [], "sides": {}}
BENCH = {"benchmark": "all", "results": [{"work": "w", "size": "1", "beside": "b", "ratios": {"alone": 2.0}}]}


def changed(document, *path, value):
    document = copy.deepcopy(document)
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return document


def lines(folder):
    """Every line of the summary by section."""
    return [(part.name, fine, text) for part in sections_of_report(gather(folder)) for fine, text in part.lines]


@pytest.fixture
def folder(tmp_path):
    def put(**documents):
        (tmp_path / "in").mkdir(exist_ok=True)
        for name, document in documents.items():
            (tmp_path / "in" / f"{name}.json").write_text(json.dumps(document))
        return tmp_path / "in"

    return put


def test_every_kind_is_shown(folder):
    certificate = json.loads(certify("tied", Shape(1, 1, 1, 1)).to_bytes())
    check = {"exit_code": 0, "results": [{"path": "a", "status": "valid"}]}
    place = folder(v=sample(), e=EMULATION, f=FRONTIER, b=BENCH, c=certificate, k=check, x={"other": 1})
    (place / "notes.txt").write_text("text")
    found = gather(place)
    assert {s.name: s.kind for s in found} == {
        "v.json": "verify", "e.json": "verdict", "f.json": "frontier", "b.json": "bench", "c.json": "certificate",
        "k.json": "check", "x.json": "", "notes.txt": "",
    }  # fmt: skip
    assert {name for name, *_ in lines(place)} == {"claims", "frontier", "bench", "outputs", "files"}
    page = report_page(place, sections_of_report(found))
    assert "new:shared-key" in page


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("frontier", changed(FRONTIER, "entries", 0, "proved", "m", value=4)),
        ("claims", sample()),
        ("outputs", {"exit_code": 1, "results": [{"path": "a", "status": "invalid"}]}),
    ],
)
def test_what_is_not_as_it_should_be_is_called_so(name, document, folder):
    assert [section for section, fine, _ in lines(folder(a=document)) if not fine] == [name]


@pytest.mark.parametrize("document", [changed(FRONTIER, "entries", value=[{}]), {**BENCH, "results": [{}]}])
def test_documents_that_lack_fields_are_refused(document, folder, capsys):
    assert run(["report", str(folder(a=document)), "-o", str(folder() / "r.html")]) == 2
    assert "a.json: not whole documents" in capsys.readouterr().err


# --- the page ------------------------------------------------------------------------------------------------


def test_texts_are_never_markup(folder):
    emulation = changed(EMULATION, "notion", value=HOSTILE)
    bench = changed(BENCH, "results", 0, "work", value=HOSTILE)
    found = gather(folder(a=emulation, b=bench, c={"verdict": HOSTILE}))
    tags = Tags(report_page(Path("f"), sections_of_report(found)))
    assert not tags.named("img")
    assert len(tags.named("script")) == 1
    assert not [name for _, attributes in tags.found for name in attributes if name.startswith("on")]
    assert not [a for _, a in tags.found if "src" in a or a.get("xlink:href", "#")[0] != "#"]


@pytest.mark.full
def test_every_result_of_the_project_is_understood(tmp_path, capsys):
    """And the cells are those that `tables` counts."""
    pytest.importorskip("torch")
    out = tmp_path / "r.html"
    assert run(["report", str(RESULTS), "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["not_shown"] == []
    assert all(line["fine"] for part in document["sections"] for line in part["lines"])
    assert run(["tables", "--results", str(RESULTS / "training"), "--json"]) == 0
    told = {f"{name}: {text}" for name, text in json.loads(capsys.readouterr().out)["coverage"].items()}
    shown = next(part["lines"] for part in document["sections"] if part["title"] == "Training")
    assert {line["text"] for line in shown[1:]} <= told


def test_the_command(folder, tmp_path, capsys):
    place = folder(a=EMULATION)
    assert run(["report", str(place), "-o", str(tmp_path / "r.html")]) == 0
    assert run(["report", str(place), "-o", str(place / "a.json")]) == 2
    assert run(["report", str(tmp_path / "nothing")]) == 2
    (tmp_path / "empty").mkdir()
    assert run(["report", str(tmp_path / "empty")]) == 2
    assert run(["report"]) == 2


def test_what_is_skipped_is_named_in_a_line(folder, capsys):
    place = folder(a=EMULATION)
    (place / "notes.txt").write_text("x")
    os.mkfifo(place / "pipe.json")  # to read it would wait for ever
    (place / "figures.csv").write_text("# source: a table\na,b\n1,2\n")
    assert run(["report", str(place), "-o", str(place.parent / "page.html")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "skipped notes.txt (neither JSON nor CSV), pipe.json (no regular file)" in shown
    assert "1 table" in shown
