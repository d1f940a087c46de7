"""Result files, the tables and the scaling figure: what was measured stands where it belongs, and nowhere else."""

import json
import math
import os
import statistics
from dataclasses import replace

import pytest

from utfproof.cli import app as command_line
from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.training import optimum
from utfproof.training import tables as training_tables
from utfproof.training.presets import PAPER_HOSTS, PAPER_VARIANTS, preset, scaling_presets
from utfproof.training.results import (
    RunResult,
    differences,
    is_complete,
    paper_cells,
    preset_fields,
    read_result,
    read_results,
    result_path,
    run_key,
    write_result,
)
from utfproof.training.tasks import task_baselines

pytest.importorskip("torch")


def run(point, seed=0, steps=None, accuracy=0.9, **changes) -> RunResult:
    """A run of a preset, as if it had been made."""
    done = point.steps if steps is None else steps
    made = RunResult(
        preset=preset_fields(point),
        seed=seed,
        steps=done,
        complete=is_complete(point, done),
        device="cpu",
        dtype="float32",
        engine="paths",
        accuracy=accuracy,
        accuracy_answers=accuracy,
        loss=0.1,
        eval_sequences=1000,
        seconds=1.5,
        parameters=8,
        curve=[(1, 1.5, 0.2), (2, 1.0, 0.4)],
        note="",
    )
    return replace(made, **changes)


@pytest.fixture
def cli(capsys):
    """The command line, and what it prints."""

    def call(*arguments):
        code = command_line.run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


# --- data files -------------------------------------------------------------------------------------------------


def test_a_run_is_read_back_as_written(tmp_path):
    made = run(preset("2-hop/random/residual-norm", m=700), seed=3, note="trial")
    folder = tmp_path / "a" / "b"
    path = write_result(made, folder)
    assert path == result_path(made, folder)
    assert read_result(path) == made
    assert read_results(folder) == [made]
    first = path.read_bytes()
    write_result(made, folder)
    assert path.read_bytes() == first
    assert [p.name for p in folder.iterdir()] == [path.name]  # no temporary file is left


def test_no_folder_no_results(tmp_path):
    assert read_results(tmp_path / "missing") == []
    with pytest.raises(MalformedInput):
        read_results(write_result(run(preset("1-hop/sparse/attention")), tmp_path))


def test_keys():
    base = preset("1-hop/random/attention")
    key = run_key(base, 0, base.steps)
    assert key == run_key(replace(base, name="mine", seed=9), 0, base.steps)
    assert key == run(base, device="cuda", dtype="float64", engine="wide").key
    changed = [
        preset(base.name, m=base.m + 1),
        preset(base.name, positions="learned"),
        preset(base.name, learning_rate=2e-4),
        preset(base.name, steps=base.steps + 1),
        preset(base.name, loss="answer"),
        preset("1-hop/sparse/attention"),
        preset("1-hop/random/residual"),
        preset("1-hop/random/attention", weight_decay=0.0),
        preset("1-hop/random/attention", max_grad_norm=1.0),
    ]
    for name in ("learning_rate", "weight_decay", "init_std", "max_grad_norm"):
        whole, real = (run_key(preset(base.name, **{name: value}), 0, 5) for value in (1, 1.0))
        assert whole == real
    keys = [run_key(point, 0, base.steps) for point in changed]
    keys += [run_key(base, 1, base.steps), run_key(base, 0, 10)]
    assert len({key, *keys}) == len(keys) + 1
    assert "/" not in key
    assert " " not in key


def _document(tmp_path):
    path = write_result(run(preset("1-hop/sparse/attention")), tmp_path)
    return path, json.loads(path.read_text())


FIELDS = [*RunResult.__dataclass_fields__, "format", "version"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_named(tmp_path, name, cli):
    path, document = _document(tmp_path)
    del document[name]
    path.write_text(json.dumps(document))
    with pytest.raises(MalformedInput, match="no training result" if name in ("format", "version") else name):
        read_results(tmp_path)
    code, out, err = cli("tables", "--results", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert path.name in err


WRONG = {
    "unknown field": {"extra": 1},
    "text for a number": {"accuracy": "0.9"},
    "true for a number": {"seed": True},
    "percent for a fraction": {"accuracy": 99.9},
    "negative accuracy": {"accuracy_answers": -0.1},
    "negative steps": {"steps": -1},
    "no sequences": {"eval_sequences": 0},
    "brief said complete": {"steps": 10},
    "complete said brief": {"complete": False},
    "short points": {"curve": [[1, 2.0]]},
    "words in the curve": {"curve": [[1, 2.0, "x"]]},
    "a step of the curve beyond the run's": {"curve": [[10**9, 2.0, 0.5]]},
    "half a step in the curve": {"curve": [[1.5, 2.0, 0.5]]},
    "more than all right in the curve": {"curve": [[1, 2.0, 1.5]]},
    "more steps than the preset's": {"steps": 10**6, "complete": True},
    "fractional steps": {"steps": 1.5},
    "another format": {"format": "utfproof-certificate"},
    "another version": {"version": 2},
}
WRONG_PRESETS = [
    {"host": "dense"}, {"extra": 1}, {"heads": 0}, {"betas": 0.9}, {"task": "hop"}, {"m": "456"}, {"heads": None},
]  # fmt: skip


@pytest.mark.parametrize("change", [*WRONG.values(), *({"preset": change} for change in WRONG_PRESETS)])
def test_impossible_results_are_refused(tmp_path, change):
    path, document = _document(tmp_path)
    changed = {name: document[name] | value if name == "preset" else value for name, value in change.items()}
    path.write_text(json.dumps({**document, **changed}))
    with pytest.raises(MalformedInput):
        read_result(path)  # whatever its name is


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"accuracy": NaN}', "\x00"])
def test_no_json(tmp_path, text, cli):
    (tmp_path / "x.json").write_text(text)
    code, _, err = cli("tables", "--results", tmp_path)
    assert (code, err.count("\n")) == (2, 1)


def test_not_a_number_is_refused(tmp_path):
    path, _ = _document(tmp_path)
    path.write_text(path.read_text().replace('"loss": 0.1', '"loss": NaN'))
    with pytest.raises(MalformedInput, match="loss"):
        read_results(tmp_path)
    with pytest.raises(MalformedInput):
        write_result(run(preset("1-hop/sparse/attention"), loss=math.inf), tmp_path)


def test_a_repeated_key_is_refused(tmp_path):
    path, _ = _document(tmp_path)
    path.write_text(path.read_text().replace('"loss": 0.1', '"loss": 0.2, "loss": 0.1'))
    with pytest.raises(MalformedInput, match="key 'loss' is repeated"):
        read_results(tmp_path)


def test_a_pipe_among_results_is_named(tmp_path):
    """To read it would wait for ever."""
    os.mkfifo(tmp_path / "pipe.json")
    for read in (read_results, optimum.read_documents):
        with pytest.raises(MalformedInput, match="is no file, where results are"):
            read(tmp_path)


def test_a_copy_is_not_counted_twice(tmp_path):
    path, _ = _document(tmp_path)
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    with pytest.raises(MalformedInput, match=path.name):
        read_results(tmp_path)


# --- the tables -------------------------------------------------------------------------------------------------


def test_printed_numbers_are_the_papers():
    cells = 0
    for part in training_tables.tables({}):
        for row in part.rows:
            for variant, printed in paper.ABLATIONS[row.task].items():
                if row.label == variant or part.title.endswith(variant):
                    assert row.printed == printed
            assert row.measured == (None,) * len(PAPER_HOSTS)
            cells += len(row.printed)
    assert tuple(training_tables.HOSTS) == PAPER_HOSTS
    assert cells == 3 * (2 * 5 + 5 * 5)


def test_every_cell_finds_its_place():
    """Each cell filled alone with a number of its own: it stands in the rows of its task and variant, under its host."""
    for task in paper.ABLATIONS:
        for variant, title in PAPER_VARIANTS.items():
            for host in PAPER_HOSTS:
                cells, further = paper_cells([run(preset(f"{task}/{host}/{variant}"), accuracy=0.321)])
                assert not further
                places = [
                    (part.title, row.task, row.label, column)
                    for part in training_tables.tables(cells)
                    for row in part.rows
                    for column, found in zip(training_tables.HOSTS, row.measured, strict=True)
                    if found is not None
                ]
                summaries = {"attention-only": "Table 1a", "residual and LN": "Table 1b"}
                assert len(places) == 1 + (title in summaries)
                for place, row_task, label, column in places:
                    assert (row_task, column) == (task, host)
                    if place.startswith("Table 1"):
                        assert place.startswith(summaries[title])
                    else:
                        assert label == title


def test_mean_and_deviation_over_seeds():
    values = [0.25, 0.5, 0.625]
    point = preset("2-hop/random/attention")
    cells, _ = paper_cells([run(point, seed=s, accuracy=a) for s, a in enumerate(values)])
    found = cells["2-hop", "random", "attention-only"]
    assert found.mean == statistics.fmean(values)
    assert found.deviation == statistics.stdev(values)
    assert found.accuracy == f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"
    assert found.circumstances == "3 seeds, cpu"
    assert replace(found, dtypes=("float32", "tf32")).circumstances == "3 seeds, cpu, tf32"
    single, _ = paper_cells([run(point, accuracy=0.3)])
    assert single["2-hop", "random", "attention-only"].deviation is None


def test_brief_runs_are_marked_and_give_way():
    name = "parentheses/sparse/attention"
    brief = [run(preset(name, steps=n), accuracy=0.7) for n in (100, 300)]
    cut = run(preset(name), steps=50, accuracy=0.6)
    cells, further = paper_cells([*brief, cut])
    shown = cells["parentheses", "sparse", "attention-only"]
    assert not shown.complete
    assert (shown.steps, shown.accuracy) == (50, "60.0 *")  # the paper's schedule first
    assert len(further) == 2
    cells, further = paper_cells([*brief, cut, run(preset(name), accuracy=0.999), run(preset(name, steps=90_000))])
    shown = cells["parentheses", "sparse", "attention-only"]
    assert (shown.complete, shown.accuracy, shown.steps) == (True, "99.9", 10_000)
    assert len(further) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned"},
        {"loss": "sequence"},
        {"m": 512},
        {"learning_rate": 0.01},
        {"head_dim": 4},
        {"weight_decay": 0.0},
        {"batch": 10},
    ],
)
def test_another_experiment_is_no_cell(changes):
    point = preset("parentheses/random/attention", **changes)
    cells, further = paper_cells([run(point)])
    assert not cells
    assert all(f"{name} {value}" in further[0].differences for name, value in changes.items())
    assert differences(run(point)).keys() >= changes.keys()


@pytest.mark.parametrize("name", ["parentheses/trained-own-width/attention", "4-hop/shared-key/attention"])
def test_hosts_that_the_paper_does_not_have_are_listed_apart(name):
    cells, further = paper_cells([run(preset(name))])
    assert not cells
    assert [item.name for item in further] == [name]


@pytest.mark.parametrize(
    "changes", [{"host": "tied"}, {"host": "random-tied"}, {"host": "sparse-front"}, {"norm": True}]
)
def test_a_run_that_has_no_preset_of_its_name_is_held_against_the_task_s_setting(changes):
    point = preset("parentheses/sparse/attention", **changes)
    whole, brief, other = (
        run(preset(point.name, **changes, **more)) for more in ({}, {"steps": 2}, {"batch": 4, "learning_rate": 0.5})
    )
    assert (differences(whole), whole.complete) == ({}, True)
    assert (differences(brief), brief.complete) == ({"steps": 2}, False)
    assert differences(other) == {"batch": 4, "learning_rate": 0.5}
    assert paper_cells([whole, brief, other])[0] == {}


def test_what_most_cells_share_is_said_once():
    names = [f"1-hop/{host}/attention" for host in PAPER_HOSTS]
    runs = [run(preset(name)) for name in names[:2]] + [run(preset(names[2], steps=20), device="cuda")]
    cells, _ = paper_cells(runs)
    assert training_tables.coverage(cells) == "2 of the paper's 75 cells have been run in full"
    said = [part.circumstances for part in training_tables.tables(cells)]
    assert said[4] == "measured: 1 seed, cpu; 1 seed, 20 steps, cuda: attention-only (fully trained)"
    assert [bool(line) for line in said] == [True, False, False, False, True, False, False]


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_no_number_of_the_tables_is_cut(tmp_path, cli, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    points = [preset("4-hop/random/attention"), preset("1-hop/sparse/attention", m=500)]
    for point in points:
        for seed, accuracy in enumerate((0.4321, 0.4123)):
            write_result(run(point, seed, accuracy=accuracy), tmp_path)
    _, out, _ = cli("tables", "--results", tmp_path, "--sequences", 2000)
    first = out.partition("Table 1b")[0]
    assert {"39.4", "35.2", "42.2", "95.6", "45.3", "parentheses"} <= set(first.split())
    assert "42.2 ± 1.4" in first
    assert "\nm 500:\n  1-hop/sparse/attention  42.2 ± 1.4, 2 seeds, cpu\n" in out


def test_tables_command(tmp_path, cli):
    code, out, err = cli("tables", "--results", tmp_path, "--sequences", 2000)
    assert (code, err) == (0, "")
    for part in training_tables.tables({}):
        assert part.title in out
    assert out.count("baselines, parentheses") == 1
    assert out.count("baselines, 4-hop") == 1
    assert "seed" not in out.replace("over the seeds", "")
    for seed, accuracy in enumerate((0.4321, 0.4323)):
        write_result(run(preset("4-hop/random/mlp-norm", steps=20), seed, accuracy=accuracy), tmp_path)
    _, out, _ = cli("tables", "--results", tmp_path, "--sequences", 2000, "--markdown")
    assert (
        "| MLP and LN | 82.8 |  | 70.9 | 43.2 ± 0.0 * | 100.0 |  |  | 45.3 |\n\nMeasured: 2 seeds, 20 steps, cpu.\n"
        in out
    )
    assert out.startswith("None of the paper's 75 cells has been run in full.")
    _, out, _ = cli("tables", "--results", tmp_path, "--sequences", 2000, "--json")
    document = json.loads(out)
    rows = {(part["title"], row["label"]): row for part in document["tables"] for row in part["rows"]}
    cell = rows["Table 4b: 4-hop", "MLP and LN"]["cells"]["random"]
    assert cell["paper_percent"] == 70.9
    assert (cell["measured"]["accuracies"], cell["measured"]["complete"]) == ([0.4321, 0.4323], False)
    others = [c for row in rows.values() for c in row["cells"].values() if c is not cell]
    assert all(other["measured"] is None for other in others)
    assert set(document["baselines"]) == set(paper.ABLATIONS)


def test_tables_of_no_folder(tmp_path, cli, monkeypatch):
    code, _, err = cli("tables", "--results", tmp_path / "missing")
    assert (code, err.count("\n")) == (2, 1)
    monkeypatch.chdir(tmp_path)  # the default folder may be missing: nothing was measured
    assert cli("tables", "--sequences", 2000, "--json")[0] == 0
    assert cli("tables", "--json", "--markdown")[0] == 2
    assert cli("tables", "--sequences", 0)[0] == 2


def test_baseline_lines_say_what_is_exact():
    exact = training_tables.Rule("chance", "", 0.25, 0.2, 0.0, 0)
    counted = training_tables.Rule("counting", "", 0.931, 0.931, 0.0005, 500)
    assert training_tables.baseline_line("2-hop", [exact]) == "baselines, 2-hop: chance 25.0 (exact)"
    line = training_tables.baseline_line("parentheses", [exact, counted])
    assert "counting 93.1 (500 sequences, standard error at most 0.05; exact: chance)" in line
    line = training_tables.baseline_line("2-hop", [exact, exact, exact, replace(counted, sequences=90), counted])
    assert "(exact but for counting, counting: 90 to 500 sequences, standard error at most 0.05)" in line


# --- the figure -------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw the figure of some runs and return the figure and its points."""
    pytest.importorskip("matplotlib")
    from utfproof.training import figure

    kept = []
    original = figure.write_figure
    monkeypatch.setattr(figure, "write_figure", lambda *given: (kept.append(given[0]), original(*given)))

    def draw(results, name="scaling.svg", setting=None):
        points = figure.plot_scaling(results, tmp_path / name, setting)
        assert (tmp_path / name).stat().st_size > 0
        return kept[-1], points

    return draw


def _texts(axes):
    return [text.get_text() for text in axes.texts]


def test_empty_panels_say_so(drawn):
    picture, points = drawn([])
    assert points == []
    assert len(picture.axes) == 3
    assert all("nothing measured" in _texts(axes) for axes in picture.axes)


def test_points_stand_in_their_panels(drawn):
    runs = []
    for panel in ("m-bar", "Hd", "ratio"):
        for number, point in enumerate(scaling_presets(panel)):
            runs += [run(point, seed=s, accuracy=0.1 * number + 0.01 * s) for s in range(5)]
    runs = list({made.key: made for made in runs}.values())  # the paper's point is in two sweeps
    picture, points = drawn(runs, "scaling.png")
    wanted = {panel: sorted(p.m for p in scaling_presets(panel)) for panel in ("m-bar", "Hd", "ratio")}
    assert {panel: sorted(p.m for p in points if p.panel == panel) for panel in wanted} == wanted
    for point in points:
        assert len(point.measured.accuracies) == 5
        assert point.measured.deviation == pytest.approx(statistics.stdev([0.0, 0.01, 0.02, 0.03, 0.04]))
    for axes in picture.axes:
        assert "nothing measured" not in _texts(axes)
        (bars,) = axes.containers
        assert bars.has_yerr
    heights = [segment[1][1] - segment[0][1] for segment in picture.axes[0].containers[0][2][0].get_segments()]
    assert heights == pytest.approx([200 * statistics.stdev([0.0, 0.01, 0.02, 0.03, 0.04])] * len(heights))


def test_the_data_fill_the_axis_and_rules_are_lines_or_named_at_its_edge(drawn):
    rules = {r.name: 100 * r.accuracy for r in task_baselines("2-hop") if "no position" not in r.name}
    between = rules["last five characters"]
    points = scaling_presets("Hd")
    runs = [run(point, seed=s, accuracy=0.6 + 0.02 * n + 0.01 * s) for n, point in enumerate(points) for s in range(2)]
    picture, _ = drawn(runs)
    for axes in picture.axes:
        low, high = axes.get_ylim()
        assert 58 < low < 60 < 69 < high < 71  # 60 to 69 %, and deviations
        across = {line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"}
        assert across == {reached for reached in rules.values() if low <= reached <= high} >= {between}
        assert any(text.startswith("below: last four characters, ") for text in _texts(axes))
        assert not any(text.startswith("above") for text in _texts(axes))
    picture, _ = drawn([run(points[0], accuracy=0.5)])
    assert any(text.startswith("above: last ") and text.endswith("52.2") for text in _texts(picture.axes[0]))


def test_other_experiments_stay_out_of_the_figure(drawn):
    others = [
        run(preset("3-hop/random/attention")),
        run(preset("2-hop/random/attention", positions="learned")),
        run(preset("2-hop/random/attention", layers=4)),
        run(preset("2-hop/shared-key/attention")),
        run(preset("2-hop/trained-own-width/attention")),
        run(preset("2-hop/random/attention", m=4000)),
    ]
    assert drawn(others)[1] == []


def test_an_experiment_of_another_setting_has_a_figure_of_its_own(drawn):
    from utfproof.training.figure import scaling_points

    name, setting = "2-hop/random/residual-norm", {"length": 30, "batch": 32}
    runs = [run(preset(name)), run(preset(name, **setting)), run(preset(name, length=30))]
    assert [len(scaling_points(runs, chosen)) for chosen in ({}, setting, {"length": 30}, {"length": 31})] == [
        2,
        2,
        2,
        0,
    ]
    picture, points = drawn(runs, setting=setting)
    assert [point.panel for point in points] == ["m-bar", "ratio"]
    assert picture._suptitle.get_text() == "changed: batch 32, length 30"
    with pytest.raises(MalformedInput, match="depth"):
        scaling_points(runs, {"depth": 3})
    with pytest.raises(MalformedInput, match="head_dim"):
        scaling_points(runs, {"head_dim": 3})
    assert scaling_points(runs, {"batch": runs[0].point.batch}) == scaling_points(runs, {})  # the paper's own
    for impossible in ({"length": "abc"}, {"positions": "foo"}, {"task": "1-hop"}, {"norm": True}, {"seed": 3}):
        with pytest.raises(MalformedInput, match=next(iter(impossible))):
            scaling_points(runs, impossible)


def test_brief_points_are_told_apart(drawn):
    name = "2-hop/random/attention"
    picture, points = drawn([run(preset(name)), run(preset(name, steps=10), seed=1)])
    assert {(p.measured.steps, p.measured.complete) for p in points} == {(15_000, True), (10, False)}
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert sum("brief" in label for label in labels) == 1


def test_figure_command(tmp_path, cli):
    pytest.importorskip("matplotlib")
    write_result(run(preset("2-hop/sparse/residual-norm")), tmp_path)
    picture = tmp_path / "p.svg"
    code, out, _ = cli("figure", "scaling", "--results", tmp_path, "-o", picture, "--json")
    assert code == 0
    assert [point["panel"] for point in json.loads(out)["points"]] == ["m-bar", "ratio"]
    assert picture.read_text().startswith("<?xml")
    code, out, _ = cli("figure", "scaling", "--results", tmp_path, "-o", picture)
    assert "nothing measured" in out
    for wrong in (
        ["figure", "loss", "-o", picture],
        ["figure", "scaling", "-o", tmp_path / "p.txt7"],
        ["figure", "scaling", "--results", tmp_path / "none", "-o", picture],
        ["figure", "scaling", "-o", tmp_path / "none" / "p.png"],
    ):
        code, _, err = cli(*wrong)
        assert (code, err.count("\n")) == (2, 1)
