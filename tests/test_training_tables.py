"""Result files, the paper's tables and charts; nothing here needs PyTorch."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path

import pytest

from utfproof.cli import app as command_line
from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.training import optimum, tables
from utfproof.training.presets import PAPER_HOSTS, PAPER_VARIANTS, preset, read
from utfproof.training.results import DEFAULT_FOLDER, RunResult, paper_cells, read_results, run_key, write_result

ROOT = Path(__file__).parents[1]
NAME = "1-hop/sparse/attention"


def run(point=None, seed=0, **changes):
    """A run as `utfproof train` writes it."""
    point = point or preset(NAME)
    usual = {
        "preset": point, "seed": seed, "steps": point.steps, "device": "cpu", "dtype": "float32", "engine": "wide",
        "accuracy": 0.5, "accuracy_answers": 0.5, "loss": 0.1, "eval_sequences": 100, "seconds": 1.0, "parameters": 10,
    }  # fmt: skip
    return RunResult(**{**usual, **changes})


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
    made = run(preset("2-hop/random/residual-norm"), seed=3, note="trial", curve=[(5, 1.5, 0.25)])
    folder = tmp_path / "a" / "b"
    path = write_result(made, folder)
    assert read_results(folder) == [made]
    assert path.name.startswith("paper-2-hop-random-residual-norm-m1024-steps15000-seed3-")
    first = path.read_bytes()
    write_result(made, folder)
    assert path.read_bytes() == first
    assert [p.name for p in folder.iterdir()] == [path.name]  # no temporary file is left
    assert read_results(tmp_path / "missing") == []
    with pytest.raises(MalformedInput, match="is a file"):
        read_results(path)


def pack(path, runs):
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))


def test_lines_count_as_files_do(tmp_path, cli):
    runs = sorted((run(seed=seed) for seed in range(3)), key=lambda one: one.key)
    pack(tmp_path / "packed.jsonl", reversed(runs))
    assert read_results(tmp_path) == runs
    write_result(replace(runs[1], loss=0.5), tmp_path)  # made again: it replaces its line
    assert [one.loss for one in read_results(tmp_path)] == [0.1, 0.5, 0.1]
    assert cli("report", tmp_path, "-o", tmp_path / "page.html")[0] == 0
    assert "3 runs" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("wrong", ["no JSON", "cut", "empty line"])
def test_wrong_lines_are_named(tmp_path, wrong):
    pack(tmp_path / "a.jsonl", [run(), run(seed=1)])
    first, second = (tmp_path / "a.jsonl").read_text().splitlines()
    changes = {"no JSON": f"{first}\nx\n", "cut": f"{first}\n{second[:-9]}", "empty line": f"{first}\n\n{second}\n"}
    (tmp_path / "a.jsonl").write_text(changes[wrong])
    with pytest.raises(MalformedInput, match=r"a.jsonl, line 2"):
        read_results(tmp_path)


def test_a_copy_counts_once(tmp_path):
    pack(tmp_path / "a.jsonl", [run(), run(), run(seed=1)])
    path = write_result(run(), tmp_path)
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    assert read_results(tmp_path) == sorted([run(), run(seed=1)], key=lambda one: one.key)


def test_keys_tell_computations_apart():
    base = preset("1-hop/random/attention")
    key = run_key(base, 0)
    assert key == run(base, device="cuda", dtype="float64").key
    changes = [{"m": base.m + 1}, {"positions": "none"}, {"learning_rate": 2e-4}, {"steps": 5}, {"loss": "answer"},
               {"host": "tied"}, {"residual": True}, {"weight_decay": 0.0}, {"max_grad_norm": 1.0}, {"norm": True}]  # fmt: skip
    keys = [run_key(preset(base.name, **change), 0) for change in changes]
    keys += [run_key(base, 1), run_key(preset(base.name, "theory"), 0)]
    assert len({key, *keys}) == len(keys) + 1


NEEDED = [each.name for each in fields(RunResult) if each.default is MISSING and each.default_factory is MISSING]


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_field_is_named(name):
    document = asdict(run())
    del document[name]
    with pytest.raises(MalformedInput, match=f"file: {name}"):
        read(RunResult, json.dumps(document), "file")


WRONG = [
    {"extra": 1}, {"accuracy": "0.9"}, {"seed": True}, {"accuracy": 99.9}, {"accuracy_answers": -0.1}, {"steps": -1},
    {"eval_sequences": 0}, {"steps": 10**6}, {"curve": [[1, 2.0]]}, {"curve": [[1, 2.0, "x"]]}, {"curve": [[1, 2.0, 1.5]]},
    {"format": "other"}, {"loss": 10**400}, {"seconds": -1.0}, {"preset": None},
]  # fmt: skip
WRONG_PRESETS = [{"host": "dense"}, {"extra": 1}, {"heads": 0}, {"task": "hop"}, {"m": "456"}, {"heads": None}]


@pytest.mark.parametrize("change", [*WRONG, *({"preset": change} for change in WRONG_PRESETS)], ids=str)
def test_impossible_results_are_refused(change):
    document = asdict(run())
    changed = {name: document[name] | value if name == "preset" and value else value for name, value in change.items()}
    with pytest.raises(MalformedInput):
        read(RunResult, json.dumps({**document, **changed}), "file")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"accuracy": NaN}', "\x00"])
def test_no_json(tmp_path, text, cli):
    (tmp_path / "x.json").write_text(text)
    code, _, err = cli("tables", "--results", tmp_path)
    assert (code, err.count("\n")) == (2, 1)


def test_a_pipe_among_results_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")  # to read it would wait for ever
    for read_all in (read_results, optimum.read_documents):
        with pytest.raises(MalformedInput, match="is no file, where results are"):
            read_all(tmp_path)


# --- the tables -------------------------------------------------------------------------------------------------


def test_printed_numbers_are_the_papers():
    cells = 0
    for part in tables.tables({}):
        for row in part.rows:
            for variant, printed in paper.ABLATIONS[row.task].items():
                if row.label == variant or part.title.endswith(variant):
                    assert row.printed == printed
            cells += len(row.printed)
    assert tuple(tables.HOSTS) == PAPER_HOSTS
    assert cells == 3 * (2 * 5 + 5 * 5)


@pytest.mark.parametrize("setting", ["paper", "theory"])
def test_every_cell_finds_its_place(setting):
    for task in paper.ABLATIONS:
        for variant, title in PAPER_VARIANTS.items():
            for host in PAPER_HOSTS:
                results = [run(preset(f"{task}/{host}/{variant}", setting), accuracy=0.321)]
                cells = paper_cells(results, setting)
                assert list(cells) == [(task, host, title)]
                assert cells[task, host, title].accuracies == [0.321]
                assert paper_cells(results, "theory" if setting == "paper" else "paper") == {}


def test_mean_and_deviation_over_seeds_and_marks():
    point = preset("1-hop/random/residual-norm")
    three = [run(point, seed, accuracy=accuracy) for seed, accuracy in enumerate((0.9, 0.95, 1.0))]
    (cell,) = paper_cells(three, "paper").values()
    assert cell.accuracy == "95.0 ± 5.0"
    assert cell.circumstances == "3 seeds, 10000 steps, cpu"
    early = run(point, accuracy=1.0, steps=2500, device="cuda", dtype="tf32")
    (cell,) = paper_cells([early], "paper").values()
    assert (cell.accuracy, cell.complete) == ("100.0 †", True)
    assert cell.circumstances == "1 seed, 2500 steps, cuda, tf32"
    (cell,) = paper_cells([early, *three[1:]], "paper").values()
    assert len(cell.accuracies) == 3  # on another dtype or stopped at 100 %, it is the same cell


def test_brief_runs_are_marked_and_give_way():
    brief = run(preset(NAME, steps=50), accuracy=0.2)
    (cell,) = paper_cells([brief], "paper").values()
    assert cell.accuracy == "20.0 *"
    cells = paper_cells([brief, run(accuracy=0.3)], "paper")
    assert [cell.accuracy for cell in cells.values()] == ["30.0"]


@pytest.mark.parametrize(
    "changes", [{"m": 500}, {"host": "tied"}, {"positions": "none"}, {"length": 30}, {"norm_gain": True}]
)
def test_another_experiment_is_no_cell(changes):
    name = "1-hop/random/residual-norm"
    assert not paper_cells([run(preset(name, **changes))], "paper")


def test_the_committed_cells_by_an_independent_count():
    """Full runs, counted from the files alone: setting, host, shape and schedule as the paper's tables print them."""
    found = defaultdict(list)
    lines = [line for path in (ROOT / DEFAULT_FOLDER).glob("*.jsonl") for line in path.read_text().splitlines()]
    for held in map(json.loads, [*lines, *(path.read_text() for path in (ROOT / DEFAULT_FOLDER).glob("*.json"))]):
        given, row = held["preset"], paper.TABLE_ROWS[held["preset"]["task"]]
        setting = given["setting"]
        host = {"sparse-front": "sparse"}.get(given["host"], given["host"]) if setting == "paper" else given["host"]
        usual = {"weight_decay": 0.01, "decay": "linear", "init_std": 0.02}
        usual |= {"length": 0, "min_hops": -1, "max_hops": -1, "norm_gain": False, "max_grad_norm": 0}
        usual |= {
            "positions": "learned" if setting == "paper" else "none",
            **{n: row[n] for n in ("heads", "head_dim", "m")},
        }
        numbers = paper.OPTIMISATION["parentheses" if given["task"] == "parentheses" else "k-hop"]
        usual |= {"batch": numbers["batch"], "learning_rate": numbers["learning rate"], "warmup": numbers["warm-up"]}
        usual |= {"steps": paper.TRAINING_STEPS.get(given["task"], 10_000)}
        loss = "answer" if given["task"] == "parentheses" else "sequence"
        fits = host in PAPER_HOSTS and given["loss"] == loss
        if fits and all(given[name] == value for name, value in usual.items()):
            flags = tuple(given[name] for name in ("residual", "norm", "mlp"))
            found[setting, given["task"], host, flags].append((held["seed"], held["accuracy"]))
    runs = read_results(ROOT / DEFAULT_FOLDER)
    ours = {}
    for setting in ("paper", "theory"):
        for (task, host, title), cell in paper_cells(runs, setting).items():
            variant = next(name for name, said in PAPER_VARIANTS.items() if said == title)
            point = preset(f"{task}/{host}/{variant}", setting)
            if cell.complete:
                ours[setting, task, host, (point.residual, point.norm, point.mlp)] = list(cell.accuracies)
    assert ours == {key: [accuracy for _, accuracy in sorted(values)] for key, values in found.items()}


# --- the commands -----------------------------------------------------------------------------------------------


def test_tables_command(tmp_path, cli):
    for setting in ("paper", "theory"):
        point = preset("1-hop/random/residual-norm", setting)
        for seed in range(2):
            write_result(run(point, seed, accuracy=0.9 + seed / 20), tmp_path)
    code, out, _ = cli("tables", "--results", tmp_path)
    assert code == 0
    assert "96.1 / 92.5 ± 3.5" in out
    assert "2 seeds, 10000 steps, cpu: 1-hop random" in out
    assert "Measured without positions" in out
    code, out, _ = cli("tables", "--results", tmp_path, "--json")
    document = json.loads(out)
    assert document["tables"][1]["rows"][1]["cells"]["random"]["measured"]["mean"] == 0.925


def test_tables_fit_100_columns_with_all_results(cli, monkeypatch):
    monkeypatch.chdir(ROOT)
    code, out, _ = cli("tables")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100, max(out.splitlines(), key=len)


def test_tables_elsewhere_name_the_folder_and_need_no_pytorch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from utfproof.cli import app; sys.exit(app.run(['tables']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"there is no folder {DEFAULT_FOLDER} here" in done.stderr


def test_what_hosts_hold_stands_beside_what_training_finds():
    documents = optimum.read_documents(ROOT / "results" / "optimum")
    rows = list(optimum.rows(documents, read_results(ROOT / DEFAULT_FOLDER)))
    (row,) = (
        row
        for row in rows
        if row[0].startswith("theory: 2-hop, residual, width 30") and row[1:3] == ["random, m = 2266", "99.3"]
    )
    assert row[3].endswith("(15000 steps, rate 0.01)")
    assert float(row[3].split()[0]) < 54


def test_charts_show_the_runs_that_are_cells():
    pytest.importorskip("matplotlib")
    from utfproof.reporting import charts

    cell = run(preset("1-hop/random/residual-norm"), curve=[(1, 3.0, 0.1), (2, 2.0, 0.2)])
    other = run(preset("1-hop/random/residual-norm", m=500), seed=7, curve=cell.curve)
    drawn = charts.curves([cell, other])
    assert "random, paper, seed 0" in drawn
    assert "seed 7" not in drawn
    assert "2-hop, MLP, trained" in charts.variants([cell])
    point = preset("2-hop/random/residual-norm")
    swept = [run(point), run(point, seed=1), run(replace(point, m=512)), run(preset(point.name, length=30))]
    drawn = charts.scaling(swept)
    assert "m = m̄, d swept, paper" in drawn
    assert "m swept, paper" in drawn
    assert "m = H d" not in drawn
