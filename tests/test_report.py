"""`utfproof report`: what is on the page comes from the files, contradictions are refused, and the page in a real browser."""

import copy
import html
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_reporting import sample

from utfproof.cli import app as command_line
from utfproof.commands.frontier import _document as frontier_document
from utfproof.commands.report import training_of
from utfproof.errors import MalformedInput
from utfproof.frontier.table import frontier, shapes
from utfproof.reporting import report, report_charts, report_emulation, report_read
from utfproof.training.presets import preset
from utfproof.training.results import RunResult, preset_fields, write_result

RESULTS = Path(__file__).parents[1] / "results"
OUTPUTS = Path(__file__).parent / "data" / "outputs"
BENCHES = ("bench-certify-cpu.json", "bench-emulate-cpu.json", "bench-exact-cpu.json")


# --- a folder ------------------------------------------------------------------------------------------------


def trained(name="1-hop/sparse/attention", seed=0, **fields):
    whole = preset(name, "theory").steps
    steps = fields.pop("steps", whole)
    made = RunResult(
        preset_fields(preset(name, "theory", steps=steps)), seed, steps, steps >= whole, "cpu", "float32", "paths", 0.8125,
        0.75, 0.5, 1000, 60.0, 1234, [(steps // 4, 1.5, 0.25), (steps // 2, 1.0, 0.5), (steps, 0.5, 0.8)],
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
    texts["bench-train.json"] = json.loads((OUTPUTS / "bench-train.json").read_text())
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
    entry["paper"] = None


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


@pytest.mark.parametrize("name", ["bench-exact-cuda.json", "bench-emulate-cuda.json"])
def test_times_of_a_gpu_are_named_as_such(tmp_path, name):
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / name).write_text((RESULTS / name).read_text())
    text = page_of(folder)
    assert "(cuda)" in words(text[: text.index("<main")])
    assert "NVIDIA H200" in words(text)


def test_a_check_that_failed_is_not_as_it_should_be(tmp_path, capsys):
    for name in ("tied", "sparse"):
        command_line.run(
            ["certify", name, "-H", "2", "-L", "2", "-d", "1", "--d-in", "2", "-o", f"{tmp_path}/{name}.json"]
        )
    wrong = tmp_path / "wrong.json"
    wrong.write_text((tmp_path / "tied.json").read_text().replace('"tied"', '"sparse"'))
    (tmp_path / "found").mkdir()
    for names, said in ((["tied", "sparse"], "all as it should be"), (["tied", "wrong"], "NOT as it should be")):
        capsys.readouterr()
        command_line.run(["check", *(f"{tmp_path}/{name}.json" for name in names), "--json"])
        (tmp_path / "found" / "checked.json").write_text(capsys.readouterr().out)
        assert said in words(page_of(tmp_path / "found"))
    assert "checked.json: a check found 1 valid, 1 invalid" in words(page_of(tmp_path / "found"))


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
    assert re.search(r"undecided: the bound says nothing, it is 1 or more, in \d of 6 runs", said)
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
    assert "undecided: an output is beyond the run's numbers, in 1 of 32 runs" in said
    assert "0 beyond the bound" in said
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
    """A change that sets what stands at a path; `...` takes it away."""
    *way, last, value = path

    def change(document):
        for key in way:
            document = document[key]
        document[last] = value
        if value is ...:
            del document[last]

    return change


def without(*path):
    return at(*path, ...)
