"""`utfproof report`: what is on the page comes from the files, contradictions are refused, and the page in a real browser."""

from __future__ import annotations

import copy
import hashlib
import html
import itertools
import json
import math
import os
import re
import shlex
import shutil
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import BrowserMissing, open_browser
from test_reporting import HOSTILE, WIDER, claim, hostile, sample

from utfproof.cli import app as command_line
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.frontier.table import frontier, shapes
from utfproof.jobs.frontier import _document as frontier_document
from utfproof.jobs.report import training_of
from utfproof.reporting import report, report_charts, report_emulation, report_read
from utfproof.reporting.document import plain
from utfproof.training.presets import preset
from utfproof.training.results import RunResult, preset_fields, to_document, write_result

RESULTS = Path(__file__).parents[1] / "results"
BENCHES = ("bench-certify-cpu.json", "bench-emulate-cpu.json", "bench-exact-cpu.json")


# --- a folder ------------------------------------------------------------------------------------------------


def trained(name="1-hop/sparse/attention", seed=0, **fields):
    chosen = preset(name)
    steps = fields.pop("steps", chosen.steps)
    made = RunResult(
        preset_fields(chosen), seed, steps, steps >= chosen.steps, "cpu", "float32", "paths", 0.8125, 0.75, 0.5, 1000, 60.0,
        1234, [(steps // 4, 1.5, 0.25), (steps // 2, 1.0, 0.5), (steps, 0.5, 0.8)],
    )  # fmt: skip
    return replace(made, **fields)


@pytest.fixture(scope="module")
def parts():
    """Documents by file name: a run of each command."""
    grid = shapes(range(1, 4), range(1, 4), 1, 1)
    texts = {"frontier.json": frontier_document(frontier(grid), [], None)}
    texts["verify.json"] = sample()
    texts["emulate-tables.json"] = json.loads((RESULTS / "emulate-tables-cpu.json").read_text())
    for name in BENCHES:
        texts[name] = json.loads((RESULTS / name).read_text())
    step = {"seconds": [2.0, 1.0, 3.0], "median_seconds": 2.0, "multiplications": 1000, "m": 456}
    texts["bench-train.json"] = {
        "benchmark": "train",
        "setting": {"variant": "attention", "device": "cpu", "dtype": "float32", "threads": 1},
        "results": [
            {
                "task": "1-hop",
                "batch": 8,
                "context": 99,
                "contestants": [
                    {**step, "name": "random wide", "speed over random wide": 1.0},
                    {
                        **step,
                        "name": "sparse paths",
                        "seconds": [0.5],
                        "median_seconds": 0.5,
                        "speed over random wide": 4.0,
                    },
                ],
            }
        ],
    }
    return texts


@pytest.fixture
def folder(tmp_path, parts):
    """A folder with all of them, runs in a subfolder, and files that are none."""
    place = tmp_path / "found"
    place.mkdir()
    for name, document in parts.items():
        (place / name).write_text(json.dumps(document))
    for run in (trained(), trained(seed=1, accuracy=0.9), trained("2-hop/random/residual-norm", steps=40)):
        write_result(run, place / "training")
    (place / "notes.txt").write_text("a note")
    (place / "other.json").write_text('{"study": "slack", "rows": []}')
    (place / ".hidden.json").write_text("{")
    return place


def alone(place, parts, name):
    """A folder with one of the documents."""
    (place / "found").mkdir()
    (place / "found" / name).write_text(json.dumps(parts[name]))
    return place / "found"


def page_of(place):
    found = report_read.gather(place)
    return report.report_page(found, report.sections_of_report(found, training_of(found)))


def changed(place, name, change):
    """The file with a change made to its document."""
    path = place / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def run(*arguments):
    return command_line.run(["report", *map(str, arguments)])


def words(text):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text)))


# --- numbers come from the files -----------------------------------------------------------------------------


def test_every_kind_is_on_the_page(folder):
    text = page_of(folder)
    assert re.findall(r'<section id="_(\w+)"', text) == [
        "claims",
        "frontier",
        "emulation",
        "bench",
        "training",
        "files",
    ]
    said = words(text)
    assert "13 claims" in said
    assert "1 NOT as recorded" in said
    assert "496 emulations, 0 beyond" in said
    assert "3 training runs, 1 of them brief" in said
    assert "85.6 ± 6.2 (2 seeds" in said  # 0.8125 and 0.9
    assert "other.json JSON with study, rows" in said
    assert "notes.txt no JSON" in said
    assert ".hidden.json" not in said


def scaled(document, host, factor):
    """An emulation in which one run of a host has another error, and everything else says so."""
    case = next(case for case in document["cases"] if case["host"] == host and not case["refused"])
    case["comparisons"][0]["relative_error"] = factor
    case["max_relative_error"] = document["totals"]["max_relative_error"] = factor
    case["holds"] = factor <= case["comparisons"][0]["bound"]
    document["totals"]["broken"] = int(not case["holds"])


def slower(document):
    entry = document["results"][0]["contestants"][1]
    for key in ("median_seconds", "best_seconds", "tokens_per_second"):
        entry[key] *= 2 if key != "tokens_per_second" else 0.5
    entry["seconds"] = [2 * t for t in entry["seconds"]]
    entry["ratios"] = {k: v for k, v in entry["ratios"].items() if k == "time over target"}
    entry["ratios"]["time over target"] *= 2
    for other in document["results"][0]["contestants"]:
        other["ratios"].pop("time over random m-wide", None)


def larger(document):
    entry = next(
        e for e in document["entries"] if e["reached"] and e["notion"] == "functional" and e["shape"]["layers"] == 3
    )
    entry["reached"]["m"], entry["exact"] = 7654, False
    entry["written_proof_only"] = entry["paper"] = None


def reworded(document):
    document["claims"][2]["sentence"] = "Here is another finding."


def exact_time(document):
    entry = document["results"][1]
    entry["seconds"]["product"], entry["median_seconds"]["product"] = [7.77], 7.77


def certified(document):
    document["results"][0]["seconds"]["certify"] = [4.321]
    document["results"][0]["median_seconds"]["certify"] = 4.321


@pytest.mark.parametrize(
    ("name", "change", "seen"),
    [
        ("emulate-tables.json", lambda d: scaled(d, "sparse", 0.00321), "0.00321"),
        ("bench-emulate-cpu.json", slower, "80"),
        ("bench-exact-cpu.json", exact_time, "7.77 s"),
        ("bench-certify-cpu.json", certified, "4.32 s"),
        ("bench-train.json", lambda d: d["results"][0].update(task="9-hop"), "9-hop"),
        ("frontier.json", larger, "7654"),
        ("verify.json", reworded, "Here is another finding."),
        ("verify.json", lambda d: d.update(grid="H=5..5,L=1"), "H=5..5,L=1"),
    ],
)
def test_a_planted_figure_is_on_the_page(tmp_path, parts, name, change, seen):
    folder = alone(tmp_path, parts, name)
    before = words(page_of(folder)).split()
    changed(folder, name, change)
    after = words(page_of(folder)).split()
    count = len(seen.split())
    before, after = (
        sum(" ".join(tokens[k : k + count]).strip("();,:") == seen for k in range(len(tokens)))
        for tokens in (before, after)
    )
    assert after > before


def test_a_planted_accuracy_is_on_the_page(folder):
    path = next((folder / "training").glob("2-hop*"))
    assert "12.3 *" not in words(page_of(folder))
    changed(folder / "training", path.name, lambda d: d.update(accuracy=0.123))
    assert "12.3 *" in words(page_of(folder))


def test_a_bound_that_is_broken_is_said(folder):
    changed(folder, "emulate-tables.json", lambda d: scaled(d, "tied", 0.5))
    said = words(page_of(folder))
    assert "496 emulations, 1 beyond" in said
    assert (
        "tied at (4, 2, 24, 4) (emulate-tables.json): outputs differ in 1 of 32 runs".replace(" 24", "\xa024") or said
    )
    assert "NOT as it should be" in said
    assert "class=not><strong>Emulation" in page_of(folder)


def test_single_emulations_and_residual_streams(folder, capsys):
    pytest.importorskip("torch")  # for bfloat16
    (folder / "emulate-tables.json").unlink()
    shape = ["-H", "2", "-L", "2", "-d", "2", "--d-in", "3", "--json"]
    for name, more in (("fine", []), ("tight", ["--tolerance", "1e-30"]), ("low", ["--precision", "bfloat16"])):
        command_line.run(["emulate", "sparse", *shape, *more])
        (folder / f"{name}.json").write_text(capsys.readouterr().out)
    command_line.run(["emulate", "printed-tree-row,sparse", *shape])
    (folder / "sweep.json").write_text(capsys.readouterr().out)
    command_line.run(["frontier", "--heads", "2", "--layers", "1..2", "-d", "2", "--d-in", "2", "--residual", "--json"])
    (folder / "streams.json").write_text(capsys.readouterr().out)
    said = words(page_of(folder))
    assert "sparse at (2, 2, 2, 3) (tight.json): outputs differ in 6 of 6 runs" in said
    assert "1 host could not carry a target" in said
    assert re.search(r"bound 1 or more in \d runs: says nothing there", said)
    assert "d = 2, d in = 2, with a residual stream" in said
    assert "no m" in said
    changed(folder, "tight.json", at("holds", True))
    with pytest.raises(MalformedInput, match=r"tight\.json contradicts itself: holds is true"):
        page_of(folder)
    changed(folder, "tight.json", without("engine"))
    with pytest.raises(MalformedInput, match=r"tight\.json lacks engine"):
        page_of(folder)


def test_errors_that_are_no_numbers(folder):
    def broken(document):
        case = document["cases"][0]
        case["comparisons"][0]["relative_error"] = case["max_relative_error"] = document["totals"][
            "max_relative_error"
        ] = None
        case["holds"], document["totals"]["broken"] = False, 1

    changed(folder, "emulate-tables.json", broken)
    said = words(page_of(folder))
    assert "outputs differ in 1 of 32 runs" in said
    assert "nan" in said
    changed(folder, "emulate-tables.json", at("cases", 0, "max_relative_error", 0.1))
    with pytest.raises(MalformedInput, match="no finite error"):
        page_of(folder)


# --- pictures, read back -------------------------------------------------------------------------------------


MARK = re.compile(
    r'<(?:circle cx="([\d.]+)" cy="([\d.]+)"|path d="M([\d.]+) ([\d.]+)[^"]*")[^>]*><title>([^<]*)</title>'
)


def places(text):
    """(title, x, y) of every mark that has a tooltip; x and y where its path begins."""
    return [(html.unescape(title), float(a or c), float(b or d)) for a, b, c, d, title in MARK.findall(text)]


def frontier_faults(text, parts):
    """Marks of the frontier that do not lie on a logarithmic scale, and numbers of the document without a mark."""
    figures = re.findall(
        r'<figure class="chart plot"><figcaption>(?:matching|attention|functional|shared).*?</figure>', text
    )
    reached = set()
    for drawing in figures:
        marks = [(int(m[3]), int(m[1]), int(m[2]), y) for t, _, y in places(drawing)
                 if (m := re.match(r"H = (\d+), L = (\d+): m = (\d+) reached", t))]  # fmt: skip
        reached |= {(h, length, m) for m, h, length, _ in marks}
        circles = sorted({(math.log(m), y) for m, h, _, y in marks if h == 1})
        if len(circles) > 2:
            slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in itertools.pairwise(circles)]
            if max(slopes) - min(slopes) > 0.05 * abs(slopes[0]) or slopes[0] >= 0:
                yield "scale", slopes
    wanted = {(e["shape"]["heads"], e["shape"]["layers"], e["reached"]["m"]) for e in parts["entries"] if e["reached"]}
    if reached != wanted:
        yield "missing", wanted ^ reached


def test_marks_of_the_frontier_are_its_numbers(folder, parts, monkeypatch):
    assert list(frontier_faults(page_of(folder), parts["frontier.json"])) == []
    monkeypatch.setattr(report_charts.Axis, "share", lambda self, v: (v - self.low) / (self.high - self.low))
    assert list(frontier_faults(page_of(folder), parts["frontier.json"]))


def test_squares_are_the_claims(folder, parts):
    text = page_of(folder)
    body = text[text.index('<dl class="squares">') :]
    classes = re.findall(r'<g class="(\w+)"><title>([^<]*)</title>', body)
    verdicts = {"holds": "holds", "repaired": "holds after repair", "fails": "fails as printed", "open": "open"}
    assert sorted((html.unescape(t).replace(" (NOT as recorded)", ""), verdicts[c]) for c, t in classes) == sorted(
        (f"{c['id']}: {c['verdict']}", c["verdict"]) for c in parts["verify.json"]["claims"]
    )
    assert sum("NOT as recorded" in t for _, t in classes) == 1


def test_bars_are_logarithms_of_ratios():
    drawn = report_charts.bars([report_charts.Bar(n, v) for n, v in (("a", 2), ("b", 8), ("c", 0.5), ("d", 1))], "t")
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)]
    (x0, a), (x1, b), (x2, c), _ = bars
    assert b == pytest.approx(3 * a, rel=0.01)
    assert c == pytest.approx(a, rel=0.01)
    assert x0 == x1 == pytest.approx(x2 + c, abs=0.02)


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([1, 1], True),
        ([3], False),
        ([0, 0], False),
        ([1e-300, 1e299], True),
        ([0.0], True),
        ([1, 8], True),
        ([-1, 5], False),
    ],
)
def test_axes_hold_their_values(values, log):
    axis = report_charts.Axis.of(values, log=log)
    assert all(0 <= axis.share(v) <= 1 for v in values if not log or v > 0)
    ticks = axis.ticks()
    assert len(ticks) <= 14
    assert all(axis.low <= t <= axis.high for t in ticks)
    assert ticks == sorted(set(ticks))


def test_points_below_the_diagonal_are_never_thinned_out(monkeypatch, parts):
    monkeypatch.setattr(report_emulation, "MOST_MARKS", 5)
    document = copy.deepcopy(parts["emulate-tables.json"])
    source = report_read.Source("e.json", 0, "", "emulation", document)
    few = len(places(report_emulation.emulation_section([source]).body))
    assert 20 <= few < 120
    scaled(document, "sparse", 0.5)
    assert any("error 0.5" in title for title, _, _ in places(report_emulation.emulation_section([source]).body))


# --- what is refused -----------------------------------------------------------------------------------------


def at(*path):
    """A change that sets what stands at a path."""
    *way, last, value = path

    def change(document):
        for key in way:
            document = document[key]
        document[last] = value

    return change


def without(*path):
    *way, last = path

    def change(document):
        for key in way:
            document = document[key]
        del document[last]

    return change


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
    ("bench-train.json", at("results", 0, "contestants", 1, "speed over random wide", 40), "the speed of sparse paths"),
    ("bench-train.json", at("results", 0, "contestants", 1, "median_seconds", 0.7), "the median of sparse paths"),
    ("bench-train.json", at("results", 0, "contestants", 1, "seconds", []), "sparse paths has no times"),
]


@pytest.mark.parametrize(("name", "change", "said"), CONTRADICTIONS)
def test_contradictory_documents_are_refused(tmp_path, parts, capsys, name, change, said):
    folder = alone(tmp_path, parts, name)
    changed(folder, name, change)
    page = tmp_path / "page.html"
    assert run(folder, "-o", page) == 2
    error = capsys.readouterr().err
    assert said in error
    assert name in error or name == "verify.json"
    assert len(error.splitlines()) == 1
    assert not page.exists()


MALFORMED = [
    ("verify.json", without("claims", 0, "statement"), "lacks statement"),
    ("verify.json", without("claims"), "lacks claims"),
    ("verify.json", at("claims", 3), None),
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
    ("bench-train.json", at("results", 0, "contestants", 1, "speed over random wide", "fast"), "expected a number"),
    ("bench-train.json", at("results", 0, "contestants", 0, "seconds", ["a"]), "expected a number"),
]


@pytest.mark.parametrize(("name", "change", "said"), MALFORMED)
def test_malformed_known_files_are_refused(tmp_path, parts, capsys, name, change, said):
    folder = alone(tmp_path, parts, name)
    changed(folder, name, change)
    page = tmp_path / "page.html"
    assert run(folder, "-o", page) == 2
    error = capsys.readouterr().err
    assert name in error
    assert said is None or said in error
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
    assert "is no fraction" in capsys.readouterr().err
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
        "slack": None, "sweep": None, "search": None, "impossible": "derivation",
    }  # fmt: skip
    met = set()
    for path in sorted(RESULTS.glob("*.json")):
        begins = path.name.split("-")[0]
        if begins in beginnings:
            expected = "output" if path.stem == "search-cpu" else beginnings[begins]  # what search open prints
            assert report_read.kind_of(json.loads(path.read_text())) == expected, path.name
            met.add(beginnings[begins])
    assert met >= {"bench", "emulation", None}


# --- the command ---------------------------------------------------------------------------------------------


def test_command(folder, capsys):
    page = folder / "report.html"
    assert run(folder, "-o", page) == 0
    first = page.read_bytes()
    assert "not understood" in capsys.readouterr().out
    assert run(folder, "-o", page, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert page.read_bytes() == first, "the page is no part of itself"
    assert document["not_understood"] == ["notes.txt", "other.json"]
    assert document["files"]["verify"] == ["verify.json"]
    assert document["bytes"] == len(first)
    for wrong in ([folder, "-o", folder / "verify.json"], [folder, "-o", folder / "no" / "p.html"], ["-o", page]):
        assert run(*wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_a_folder_it_says_what_to_run(capsys):
    import typer.main

    assert run() == 0
    said = capsys.readouterr().out
    group = typer.main.get_command(command_line.application())
    commands = [line.strip() for line in said.splitlines() if line.strip().startswith("utfproof ")]
    assert len(commands) == len(report.COMMANDS)
    for line in commands:
        arguments = shlex.split(line.split(" > ")[0])[1:]
        found, context = group, typer.Context(group)
        while hasattr(found, "get_command"):
            found = found.get_command(context, arguments.pop(0))
            assert found is not None, line
        found.make_context("x", arguments)  # every option exists
    assert run("--json") == 0
    assert len(json.loads(capsys.readouterr().out)["commands"]) == len(commands)


# --- hostile text --------------------------------------------------------------------------------------------


def hostile_folder(place):
    attacked = hostile()
    for number, entry in enumerate(attacked["claims"]):
        entry["id"] = f"{HOSTILE} {number}"
        entry["notion"] = HOSTILE
        entry["verdict"] = entry["recorded"] = "open"
    attacked["claims"][0]["id"] = "x" * 3000
    attacked["holds"], attacked["grid"] = False, HOSTILE
    (place / "verify.json").write_text(json.dumps(attacked))
    text = HOSTILE.replace("\ud800", "")

    def emulation(document):
        document["cases"][0].update(host=text, target_law=text)
        document["cases"][1]["comparisons"][0]["attention"] = text
        refused = next(case for case in document["cases"] if case["refused"])
        refused["refused"] = text

    def bench(document):
        document["processor"] = document["setting"]["device"] = text
        document["results"][0]["shape"] = document["results"][0]["contestants"][3]["name"] = text
        document["results"][0]["absent"] = {text: text}

    changed(place, "emulate-tables.json", emulation)
    changed(place, "bench-emulate-cpu.json", bench)
    changed(place, "bench-certify-cpu.json", at("results", 0, "shape", text))
    changed(place, "bench-train.json", at("results", 0, "task", text))
    changed(place, "frontier.json", at("entries", 0, "paper", "label", text))
    for path in (place / "training").glob("2-hop*"):
        changed(place / "training", path.name, at("device", text))
    (place / "<img src=x onerror=hit()>.txt").write_text("")
    (place / "odd.json").write_text(json.dumps({text: 1}))
    return place


class Elements(HTMLParser):
    """Names and attributes of all elements."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def markup_faults(text):
    found = Elements(text).found
    allowed = {"html", "head", "meta", "title", "style", "body", "a", "header", "main", "footer", "nav", "section", "div", "p",
               "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure",
               "figcaption", "details", "summary", "code", "strong", "span", "sub", "sup", "button", "script", "svg", "g",
               "path", "rect", "circle", "text", "tspan", "math", "msub", "msup", "msubsup", "mi", "mn", "mo", "mrow",
               "mtext"}  # fmt: skip
    faults = [tag for tag, _ in found if tag not in allowed]
    faults += [
        name for _, attrs in found for name in attrs if name.startswith("on") or name in ("src", "style", "srcset")
    ]
    faults += [value for _, attrs in found if not (value := attrs.get("href", "#")).startswith("#")]
    return faults + ["script"] * (sum(tag == "script" for tag, _ in found) - 1)


def test_hostile_text_stays_text(folder, monkeypatch):
    text = page_of(hostile_folder(folder))
    assert markup_faults(text) == []
    assert html.escape(plain(HOSTILE), quote=True).split("^")[0] in text
    from utfproof.reporting import report_parts

    monkeypatch.setattr(report_parts, "prose", plain)
    assert markup_faults(page_of(folder))


def test_the_page_is_self_contained(folder):
    text = page_of(folder)
    assert markup_faults(text) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\")|@import|url\(", text) == []
    assert "default-src 'none'" in text
    ids = [attrs["id"] for _, attrs in Elements(text).found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"][1:] for tag, attrs in Elements(text).found if tag == "a"}
    assert targets <= set(ids)


# --- in a browser --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    try:
        with open_browser() as opened:
            yield opened
    except BrowserMissing as missing:
        if os.environ.get("UTFPROOF_REQUIRE_BROWSER"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def show(browser, tmp_path):
    """Write a page and open it."""

    def opened(text, *, width=1280, dark=False):
        path = tmp_path / "page.html"
        path.write_bytes(text.encode())
        browser.window(width, dark=dark)
        browser.console()
        browser.open(path.as_uri())

    return opened


TAB, ENTER = "\ue004", "\ue007"
PAPER = "return getComputedStyle(document.body).backgroundColor"
FOCUS = """
    const e = document.activeElement;
    return e === document.body ? '' : e.id || e.getAttribute('href') || e.tagName + ':' + e.textContent.trim().slice(0, 30)"""


def appended(monkeypatch, part, text):
    original = report._part
    monkeypatch.setattr(report, "_part", lambda name: original(name) + (text if name == part else ""))


def test_the_console_is_free_of_errors(browser, show, folder, monkeypatch):
    show(page_of(folder))
    assert browser.console() == []
    assert browser.run("return document.querySelectorAll('main svg').length") > 40
    appended(monkeypatch, "report.js", "nothing();")
    show(page_of(folder))
    assert browser.console()


def test_keyboard(browser, show, folder):
    show(page_of(folder))
    links = [f"#_{name}" for name in ("claims", "frontier", "emulation", "bench", "training", "files")]
    met = []
    for _ in range(2 + len(links)):
        browser.press(TAB)
        met.append(browser.run(FOCUS))
    assert met == ["#_main", "_theme", *links]
    wanted = browser.run("""
        return [...document.querySelectorAll('main :is(a[href], button, summary, [tabindex="0"])')].filter(
          e => e.getClientRects().length && !e.closest('details:not([open]) > :not(summary)')).length""")
    orders = []
    for _ in range(wanted):
        browser.press(TAB)
        orders.append(
            browser.run("const b = document.activeElement.getBoundingClientRect(); return [b.top + scrollY, b.left]")
        )
    inside = "return document.activeElement.closest('main') !== null"
    assert browser.run(inside)
    assert len({tuple(place) for place in orders}) == wanted, "each one once"
    browser.press(TAB)
    assert not browser.run(inside), "and no others"
    browser.run("document.querySelector('figure summary').focus()")
    for expected in (True, False):
        browser.press(ENTER)
        assert browser.run("return document.activeElement.parentElement.open") is expected
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    unnamed = browser.run("""
        return [...document.querySelectorAll('button, summary, [role=region], svg[role=img]')].filter(e =>
          !e.textContent.trim() && !e.getAttribute('aria-label')).length""")
    assert unnamed == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_sideways_scrolling(browser, show, folder, width, monkeypatch):
    unfolded = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
    pages = [page_of(folder), page_of(hostile_folder(folder))]
    for text in pages:
        show(text, width=width)
        browser.run(unfolded)
        assert browser.run("return innerWidth") == width
        assert browser.run(WIDER) == []
    if width == 390:
        appended(monkeypatch, "report.css", "ul.state { min-width: 900px; }")
        show(page_of(folder), width=width)
        assert browser.run(WIDER)


def test_light_and_dark(browser, show, folder):
    text = page_of(folder)
    show(text)
    light = browser.run(PAPER)
    show(text, dark=True)
    dark = browser.run(PAPER)
    assert dark != light
    label = "return document.querySelector('#_theme').textContent"
    assert browser.run(label) == "Light page"
    browser.run("document.querySelector('#_theme').focus()")
    browser.press(ENTER)
    assert (browser.run(PAPER), browser.run(label)) == (light, "Dark page")
    browser.press(" ")
    assert (browser.run(PAPER), browser.run(label)) == (dark, "Light page")
    show(text)
    browser.run("document.querySelector('#_theme').click()")
    assert browser.run(PAPER) == dark
    browser.window(1280, dark=True)
    browser.window(1280)
    assert browser.run(PAPER) == dark, "what was chosen stays"
    assert browser.console() == []


CONTRAST = """
    const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(
      v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const over = (c) => (Math.max(light(c), paper) + .05) / (Math.min(light(c), paper) + .05);
    const text = [...document.querySelectorAll('body *')].map(e => over(getComputedStyle(e).color));
    const marks = [...document.querySelectorAll('svg :is(circle, path, rect)')].map(e => getComputedStyle(e).stroke).filter(
      c => c.startsWith('rgb('));
    return [Math.min(...text), Math.min(...marks.map(over))]"""


def test_colours_have_contrast(browser, show, folder, monkeypatch):
    """WCAG's 4.5 to 1 for texts and 3 to 1 for marks, light and dark, by the system's choice and by the button."""
    text = page_of(folder)
    for dark, press in ((False, False), (True, False), (False, True), (True, True)):
        show(text, dark=dark)
        if press:
            browser.run("document.querySelector('#_theme').click()")
        texts, marks = browser.run(CONTRAST)
        assert texts >= 4.5
        assert marks >= 3
    appended(monkeypatch, "report.css", "table.data td { color: #999; }")
    show(page_of(folder))
    assert browser.run(CONTRAST)[0] < 4.5


MISPLACED = """
    const found = [];
    for (const drawing of document.querySelectorAll('figure.plot svg[role=img]')) {
      const box = drawing.getBoundingClientRect();
      const texts = [...drawing.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
      for (const [index, [said, t]] of texts.entries()) {
        if (t.left < box.left - 1 || t.right > box.right + 1 || t.top < box.top - 1 || t.bottom > box.bottom + 1)
          found.push('clipped: ' + said);
        for (const [other, o] of texts.slice(0, index))
          if (Math.min(t.right, o.right) - Math.max(t.left, o.left) > 1
              && Math.min(t.bottom, o.bottom) - Math.max(t.top, o.top) > 5)
            found.push(said + ' on ' + other);
      }
    }
    return found"""


def test_labels_are_whole_and_apart(browser, show, tmp_path, monkeypatch):
    """On the page of the project's own results: no label leaves its drawing, and none lies on another one."""
    show(page_of(RESULTS))
    assert browser.run(MISPLACED) == []
    monkeypatch.setattr(report_charts, "label_width", lambda label: 10.0)
    show(page_of(RESULTS))
    assert browser.run(MISPLACED)


HIDDEN = """
    return [...document.querySelectorAll('details > :not(summary) td')].filter(e => !e.checkVisibility(
      {contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true})).length"""


def test_paper(browser, show, folder):
    show(page_of(folder), dark=True)
    assert browser.run(HIDDEN) > 0
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run(HIDDEN) == 0
        assert browser.run("return getComputedStyle(document.querySelector('#_theme')).display") == "none"
        assert browser.run("return getComputedStyle(document.querySelector('td')).color") == "rgb(0, 0, 0)"
        clipped = browser.run("""
            return [...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length""")
        assert clipped == 0
    finally:
        browser.devtools("Emulation.setEmulatedMedia", media="")
    for _ in range(50):  # the page is told of it a little later
        if browser.run(HIDDEN):
            break
        time.sleep(0.05)
    assert browser.run(HIDDEN) > 0, "folded again afterwards"
    printed = browser.devtools("Page.printToPDF", printBackground=False)
    assert len(printed["data"]) > 100_000


def test_without_scripts(browser, show, folder):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(page_of(folder))
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        assert browser.run("return document.querySelector('#_theme').getClientRects().length") == 0
        assert browser.run("return document.querySelectorAll('main > section').length") == 6
        browser.devtools("Emulation.setEmulatedMedia", media="print")
        assert browser.run(HIDDEN) == 0
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        browser.devtools("Emulation.setEmulatedMedia", media="")


def test_hostile_text_is_inert(browser, show, folder, monkeypatch):
    from utfproof.reporting import report_parts

    place = hostile_folder(folder)
    show(page_of(place))
    faults = """
        return [window.hit ?? 0, document.querySelectorAll('img, iframe, object').length,
          document.querySelectorAll('script').length - 1]"""
    assert browser.run(faults) == [0, 0, 0]
    assert browser.console() == []
    monkeypatch.setattr(report_parts, "prose", plain)
    show(page_of(place))
    hit, *others = browser.run(faults)
    assert hit == 0, "the policy is the second line"
    assert any(others)


def test_formulas_are_drawn_by_the_browser_itself(show, browser):
    """Indices stand below the line of their base and exponents above it, smaller than it; nothing is loaded."""
    from utfproof.reporting.mathematics import formulas

    css = (Path(report.__file__).parent / "report.css").read_text()
    show(f"<!doctype html><meta charset=utf-8><style>{css}</style><p>{formulas('x R_V^{l,h} M_w H^L (a+b)_h')}</p>")
    where = browser.run(
        "return [...document.querySelectorAll('msub, msup, msubsup')].map(e => [e.localName,"
        " ...[...e.children].map(c => { const r = c.getBoundingClientRect(); return [r.top, r.bottom]; })])"
    )
    assert [name for name, *_ in where] == ["msubsup", "msub", "msup", "msub"]
    for name, base, *scripts in where:
        for script in scripts:
            assert script[1] - script[0] < base[1] - base[0]
        if name != "msup":
            assert scripts[0][1] > base[1]
        if name != "msub":
            assert scripts[-1][0] < base[0]
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_files_that_are_no_documents_are_told_apart(tmp_path):
    """What commands write beside documents; a file that only bears the ending is not understood."""
    digest = hashlib.sha256(b"numbers").hexdigest()
    log = '{"device": "cpu", "preset": {}, "seeds": [0]}'
    wanted = {
        f"{digest}.bin": (b"numbers", "sidecar"),
        f"{digest[::-1]}.bin": (b"numbers", None),
        "log.jsonl": (log.encode(), "unfinished"),
        "checkpoint.json": (b'{"format": "utfproof-training-checkpoint"}', "unfinished"),
        "derivation.json": (b'{"format": "utfproof-nullstellensatz"}', "derivation"),
        "results.db": (b"SQLite format 3\0...", "archive"),
        "000001.zip": (b"PK\x03\x04...", "archive"),
        "other.zip": (b"no archive", None),
        "a.png": (b"\x89PNG...", "picture"),
        "b.png": (b"no picture", None),
        "c.html": (b"<!doctype html><p>", "page"),
        "d.py": (b"print()", None),
        "e.py": (b'"""A fixed transformer with one embedding, as a plain torch.nn.Module: it', "module"),
    }
    for name, (content, _) in wanted.items():
        (tmp_path / name).write_bytes(content)
    found = report_read.gather(tmp_path)
    assert {source.name: source.kind for source in found.sources} == {name: kind for name, (_, kind) in wanted.items()}


def test_what_other_commands_write_is_understood(tmp_path, monkeypatch, capsys):
    """Certificates, outputs of single commands, a sweep's lines; what has a wrong form is no certificate."""
    monkeypatch.chdir(tmp_path)
    for source in (Path(__file__).parent / "data" / "outputs").glob("*.json"):
        shutil.copy(source, tmp_path / source.name)
    assert command_line.run(["certify", "tied", *["-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "-o", "c.json"]]) == 0
    job = {"key": "k", "job": {"command": "certify", "parameters": {}}, "result": {"verdict": "universal"}, "files": []}
    (tmp_path / "results.jsonl").write_text(f"{json.dumps(job)}\n{json.dumps(job)}\n")
    (tmp_path / "odd.json").write_text(
        json.dumps({**json.loads((tmp_path / "c.json").read_text()), "shape": {"m": "x"}})
    )
    (tmp_path / "broken.jsonl").write_text("{}\n{")
    capsys.readouterr()
    assert command_line.run(["report", ".", "-o", "r.html", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"]["certificate"] == ["c.json"]
    assert document["files"]["sweep"] == ["results.jsonl"]
    assert {"train.json", "refute-lower.json", "search-numerical.json"} <= set(document["files"]["output"])
    assert set(document["not_understood"]) == {"broken.jsonl", "odd.json"}
    page_text = (tmp_path / "r.html").read_text()
    assert "rank-permutation" in page_text
    assert "utfproof refute-lower" in page_text
    assert markup_faults(page_text) == []
