"""What the report refuses: results that are malformed or contradict themselves."""

import copy
import json
import re

import pytest
import test_report
from test_report import RESULTS, alone, at, changed, page_of, run, trained, without, words
from test_reporting import claim

from utfproof.cli import app as command_line
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.reporting import report_read
from utfproof.training.results import to_document

folder = test_report.folder
parts = test_report.parts


CONTRADICTIONS = [
    ("verify.json", at("claims", 0, "agrees", False), "does not agree, but nothing speaks against it"),
    ("verify.json", at("claims", 0, "verdict", "open"), "agrees, but the verdict"),
    ("verify.json", at("holds", True), "holds is true"),
    ("verify.json", lambda d: d["claims"].append(d["claims"][0]), "occurs twice"),
    ("verify.json", lambda d: next(iter(d["certificates"].values()))["shape"].update(m=99), "has the digest"),
    ("frontier.json", at("entries", 0, "proved", "m", 10**6), "proved to be needed"),
    ("frontier.json", lambda d: d["entries"][0].update(exact=not d["entries"][0]["exact"]), "exact is"),
    ("frontier.json", lambda d: d["entries"].append(d["entries"][0]), "stands there twice"),
    ("frontier.json", at("entries", 0, "paper", "refuted", True), "refuted is true"),
    ("frontier.json", at("entries", 0, "impossible", {"status": "proof"}), "no m is enough"),
    ("frontier.json", at("entries", 0, "shape", "heads", 0), "heads"),
    ("emulate-tables.json", at("cases", 0, "holds", False), "holds is false"),
    ("emulate-tables.json", at("cases", 0, "comparisons", 3, "relative_error", 0.5), "contradicts itself"),
    ("emulate-tables.json", at("cases", 0, "max_relative_error", 0.5), "largest error"),
    ("emulate-tables.json", at("totals", "broken", 1), "broken is said to be 1"),
    ("emulate-tables.json", at("totals", "runs", 3), "runs is said"),
    ("emulate-tables.json", at("totals", "max_relative_error", 0.5), "its cases give 6.1"),
    ("emulate-tables.json", at("totals", "failed", 1), "refused is said"),
    ("bench-exact-cpu.json", at("results", 0, "median_seconds", "flint", 9.0), "median of flint"),
    ("bench-exact-cpu.json", at("results", 0, "ratios", "flint over our time", 9.0), "flint over our time"),
    ("bench-exact-cpu.json", at("results", 0, "ranks", "flint", 9), "agree is true"),
    (
        "bench-emulate-cpu.json",
        at("results", 0, "contestants", 2, "ratios", "time over target", 0.1),
        "time over target",
    ),
    ("bench-emulate-cpu.json", at("results", 0, "contestants", 2, "tokens_per_second", 1.0), "tokens per second"),
    ("bench-emulate-cpu.json", at("results", 0, "contestants", 2, "name", "target"), "stands there twice"),
    ("bench-certify-cpu.json", at("results", 0, "seconds", "certify", []), "no times"),
    ("bench-certify-cpu.json", at("results", 0, "seconds", "other", [1.0]), "different contestants"),
    (
        "bench-certify-cpu.json",
        lambda d: [d["results"][0][k].update(certify=v) for k, v in (("seconds", [0]), ("median_seconds", 0))],
        "time of certify is 0",
    ),
    ("bench-train.json", at("results", 0, "contestants", 0, "speed over random wide", 40), "the speed of sparse paths"),
    ("bench-train.json", at("results", 0, "contestants", 0, "median_seconds", 0.7), "the median of sparse paths"),
    ("bench-train.json", at("results", 0, "contestants", 0, "seconds", []), "sparse paths has no times"),
]


MALFORMED = [
    ("verify.json", without("claims", 0, "statement"), "lacks statement"),
    ("verify.json", without("claims"), "lacks claims"),
    ("verify.json", at("claims", 3), ""),
    ("verify.json", at("claims", 0, "verdict", "maybe"), "expected one of"),
    ("frontier.json", at("entries", 0, "proved", "m", "4"), "expected a whole number"),
    ("frontier.json", at("entries", 0, "notion", "magic"), "expected one of"),
    ("frontier.json", at("entries", {}), "expected a list"),
    ("emulate-tables.json", at("cases", 0, "comparisons", []), "no runs"),
    ("emulate-tables.json", at("cases", 0, "comparisons", 0, "bound", True), "expected a number"),
    ("emulate-tables.json", at("totals", None), "expected an object"),
    ("bench-exact-cpu.json", without("results", 0, "ranks"), "lacks ranks"),
    ("bench-emulate-cpu.json", at("setting", 3), "expected an object"),
    ("bench-certify-cpu.json", at("results", 0, "median_seconds", "certify", -1), "median"),
    ("bench-certify-cpu.json", at("results", 0, "shape", 3), "expected text"),
    ("bench-certify-cpu.json", at("results", 0, "seconds", [1.0]), "expected an object"),
    ("bench-certify-cpu.json", at("results", 0, "median_seconds", "certify", "fast"), "expected a number"),
    ("bench-train.json", at("results", 0, "contestants", 0, "speed over random wide", "fast"), "expected a number"),
    ("bench-train.json", at("results", 0, "contestants", 0, "seconds", ["a"]), "expected a number"),
]


@pytest.mark.parametrize(("name", "change", "said"), CONTRADICTIONS + MALFORMED)
def test_contradictory_and_malformed_documents_are_refused(tmp_path, parts, capsys, name, change, said):
    folder = alone(tmp_path, parts, name)
    changed(folder, name, change)
    page = tmp_path / "page.html"
    assert run(folder, "-o", page) == 2
    error = capsys.readouterr().err
    assert said in error
    assert name in error or (name == "verify.json" and (name, change, said) in CONTRADICTIONS)
    assert len(error.splitlines()) == 1
    assert not page.exists()


def test_truncated_and_impossible_files_are_refused(folder, capsys):
    whole = (folder / "frontier.json").read_bytes()
    (folder / "frontier.json").write_bytes(whole[:-9])
    assert run(folder, "-o", folder.parent / "p.html") == 2
    assert "frontier.json is no JSON" in capsys.readouterr().err
    (folder / "frontier.json").write_bytes(whole.replace(b'"m": 3', b'"m": NaN', 1))
    assert run(folder, "-o", folder.parent / "p.html") == 2
    assert "NaN is no JSON number" in capsys.readouterr().err
    (folder / "frontier.json").write_bytes(b'{"entries": ' + b"[" * 100_000)
    assert run(folder, "-o", folder.parent / "p.html") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    (folder / "frontier.json").unlink()
    (folder / "scribble.json").write_text("{")
    assert "scribble.json no JSON" in words(page_of(folder))


def test_two_documents_that_contradict_each_other_are_refused(folder, parts):
    other = {"grid": "g", "holds": True, "seconds": 1, "claims": [claim("def:utf", verdict="open")]}
    (folder / "again.json").write_text(json.dumps(other))
    with pytest.raises(MalformedInput, match=r"again\.json and verify\.json contradict each other: claim def:utf"):
        page_of(folder)
    (folder / "again.json").unlink()
    lower = copy.deepcopy(parts["frontier.json"])
    entry = lower["entries"][0]
    entry["proved"]["m"] = entry["reached"]["m"] = 10**6
    entry["paper"] = None
    (folder / "more.json").write_text(json.dumps(lower))
    with pytest.raises(MalformedInput, match="contradict each other about matching"):
        page_of(folder)


def test_two_frontiers_that_agree_are_one(folder, parts):
    before = words(page_of(folder))
    (folder / "more.json").write_text(json.dumps(parts["frontier.json"]))
    count = re.compile(r"\d+ questions about the least m, \d+ of them")
    assert count.findall(words(page_of(folder))) == count.findall(before)


def test_training_runs_are_read_as_tables_reads_them(folder, capsys):
    path = next((folder / "training").glob("1-hop*"))
    changed(folder / "training", path.name, at("accuracy", 1.5))
    assert run(folder, "-o", folder.parent / "p.html") == 2
    assert "accuracy 1.5 is out of range" in capsys.readouterr().err
    changed(folder / "training", path.name, at("accuracy", 0.5))
    (folder / "copy.json").write_text(json.dumps(to_document(trained())))
    with pytest.raises(MalformedInput, match="are one run"):
        page_of(folder)


def test_folders_that_hold_nothing(tmp_path, monkeypatch):
    with pytest.raises(MalformedInput, match="is no folder"):
        report_read.gather(tmp_path / "none")
    with pytest.raises(MalformedInput, match="no results that are understood"):
        report_read.gather(tmp_path)
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(MalformedInput, match="no results that are understood"):
        report_read.gather(tmp_path)
    monkeypatch.setattr(report_read, "MOST_BYTES", 1)
    with pytest.raises(ResourceLimit, match=r"a\.json has 2 bytes"):
        report_read.gather(tmp_path)
    monkeypatch.setattr(report_read, "MOST_FILES", 0)
    with pytest.raises(ResourceLimit, match="more than 0 files"):
        report_read.gather(tmp_path)


def test_a_sweeps_folder_is_understood_whole(tmp_path, monkeypatch, capsys):
    """Finished, in the middle, with jobs that could not be run, and contradicting itself; weights and tables beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(
        "[sweep]\nname = 's'\n[[jobs]]\ncommand = 'certify'\nconstruction = 'tied'\n"
        "shape = [[1, 1, 1, 1]]\nresidual = [false, true]\n"
    )
    assert command_line.run(["sweep", "s.toml", "--workers", "1"]) == 0
    assert command_line.run(["collect", "s", "-o", "s/table.csv"]) == 0
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1"]
    assert command_line.run(["build", "tied", *shape, "-o", "s/tied.safetensors"]) == 0

    def report():
        capsys.readouterr()
        assert command_line.run(["report", "s", "-o", "r.html", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        lines = [line for part in document["sections"] for line in part["lines"]]
        return document, {line["text"]: line["as_it_should_be"] for line in lines}

    document, lines = report()
    assert document["not_understood"] == []
    assert [
        len(document["files"][kind]) for kind in ("sweep", "sweep-result", "sweep-jobs", "sweep-head", "sweep-times")
    ] == [1, 2, 1, 1, 1]
    assert (document["files"]["weights"], document["files"]["table"]) == (["tied.safetensors"], ["table.csv"])
    assert set(lines) == {
        "a sweep of 2 jobs",
        "2 of the 2 jobs in jobs.jsonl have a result",
        "2 certificates, to be checked with utfproof check",
    }
    assert all(lines.values())
    results = sorted((tmp_path / "s" / "results").iterdir())
    changed = json.loads(results[0].read_text())
    changed["result"]["verdict"] = "not universal"
    kept = results[0].read_text()
    results[0].write_text(json.dumps(changed))
    assert command_line.run(["report", "s", "-o", "r.html"]) == 2
    assert "another file's result of the same job" in capsys.readouterr().err
    results[0].write_text(kept)
    results[1].unlink()
    job = json.loads((tmp_path / "s" / "jobs.jsonl").read_text().splitlines()[0])
    (tmp_path / "s" / "results.jsonl").unlink()
    (tmp_path / "s" / "failures.jsonl").write_text(json.dumps({**job, "reason": "out of memory"}) + "\n")
    _, lines = report()
    assert lines["1 result of single jobs of a sweep"]
    assert lines["1 of the 2 jobs in jobs.jsonl have a result"]
    assert not lines["1 job in failures.jsonl could not be run: out of memory"]


def test_weights_alone_are_named_and_not_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "broken.safetensors").write_bytes(b"{}")
    assert command_line.run(["report", "w", "-o", "r.html"]) == 2
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1"]
    assert command_line.run(["build", "tied", *shape, "-o", "w/tied.safetensors"]) == 0
    capsys.readouterr()
    assert command_line.run(["report", "w", "-o", "r.html"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "weights 1; utfproof decide, embed and emulate read them; not shown" in said
    assert "not understood broken.safetensors" in said


def test_kinds_are_known_by_content():
    beginnings = {
        "bench": "bench", "emulate": "emulation", "verify": "verify", "frontier": "frontier",
        "sweep": None,
    }  # fmt: skip
    met = set()
    for path in sorted(RESULTS.glob("*.json")):
        begins = path.name.split("-")[0]
        if begins in beginnings:
            assert report_read.kind_of(json.loads(path.read_text())) == beginnings[begins], path.name
            met.add(beginnings[begins])
    assert met >= {"bench", "emulation"}
