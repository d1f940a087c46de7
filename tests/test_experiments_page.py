"""scripts/write_experiments.py: every figure on the page comes from a data file, and a stale page is noticed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("write_experiments", ROOT / "scripts" / "write_experiments.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["write_experiments"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path, monkeypatch, script):
    """The page and its data files, in a folder of their own."""
    folder = tmp_path / "results"
    for name in ("training", "optimum"):
        if (ROOT / "results" / name).is_dir():
            shutil.copytree(ROOT / "results" / name, folder / name)
    for name in script.BENCH:
        if (ROOT / "results" / name).exists():
            shutil.copy(ROOT / "results" / name, folder)
    for page in ("PAGE", "TABLES"):
        monkeypatch.setattr(script, page, Path(shutil.copy(getattr(script, page), tmp_path)))
    assert script.main(["--results", str(folder)]) == 0
    return folder


def test_the_page_is_what_the_data_say(script, capsys):
    assert script.main(["--check"]) == 0, "run python scripts/write_experiments.py"


def changed(path: Path, change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.full
def test_another_figure_in_a_data_file_shows(script, copy, capsys):
    assert script.main(["--check", "--results", str(copy)]) == 0
    files = sorted((copy / "training").glob("*.json"))
    for path in files[:: max(1, len(files) // 25)]:
        held = path.read_text()
        changed(path, lambda document: document.update(accuracy=0.123))
        assert script.main(["--check", "--results", str(copy)]) == 1, path.name
        path.write_text(held)
    for path in (copy / "optimum").glob("*.json"):
        held = path.read_text()
        changed(path, lambda document: next(iter(document["hosts"].values()))["embedded"].update(accuracy=0.123))
        assert script.main(["--check", "--results", str(copy)]) == 1, path.name
        path.write_text(held)
    assert script.main(["--check", "--results", str(copy)]) == 0
    assert "run scripts/write_experiments.py" in capsys.readouterr().err


def test_a_figure_typed_by_hand_shows(script, copy):
    for path, figure, other in (
        (script.TABLES, "| measured, % |", "| measured, percent |"),
        (script.PAGE, " cells ", " places "),
    ):
        held = path.read_text()
        path.write_text(held.replace(figure, other, 1))
        assert script.main(["--check", "--results", str(copy)]) == 1
        assert script.main(["--results", str(copy)]) == 0
        assert path.read_text() == held
    before, begin, rest = script.PAGE.read_text().partition(script.BEGIN)
    # what stands outside the marks is nobody's but the author's
    script.PAGE.write_text(f"{before} by hand {begin}{rest}")
    assert script.main(["--check", "--results", str(copy)]) == 0


def test_without_data_the_page_says_so(script, copy):
    shutil.rmtree(copy)
    assert script.main(["--results", str(copy)]) == 0
    assert "None has been run." in script.TABLES.read_text()
    assert "None of the paper's 75 cells has been run in full." in script.PAGE.read_text()


def test_conclusions_come_first_and_are_short(script):
    text = script.PAGE.read_text()
    assert len(text.splitlines()) <= 250
    assert text.index(script.BEGIN) < text.index("## How it is run")


def test_a_page_without_marks_is_left_alone(script, copy):
    script.PAGE.write_text("no marks")
    with pytest.raises(SystemExit, match="not both marks"):
        script.main(["--results", str(copy)])
    assert script.PAGE.read_text() == "no marks"


def test_runs_that_differ_in_positions_stand_side_by_side(script, copy):
    from utfproof.training.results import differences, read_results

    runs = read_results(copy / "training")
    said = script.choices_part(runs)
    assert "| 1-hop/sparse/residual-norm | 456 | batch 32" in said
    usual = [run for run in runs if not set(script.CHOICES) & set(differences(run))]
    assert script.choices_part(usual) == ""
    alone = [run for run in runs if run.preset["positions"] == "learned"]
    assert script.choices_part(alone) == ""


def test_points_of_the_scaling_figure_are_told_with_their_spread(script, copy):
    from utfproof.training.results import read_results

    runs = read_results(copy / "training")
    said = script.scaling_part(runs)
    assert "utfproof figure scaling --set batch=32" in said
    one_seed = [run for run in runs if run.seed == 0]
    assert script.scaling_part(one_seed) == ""
    assert script.brief_part(runs).count("\n") < script.brief_part(one_seed).count("\n") + 5
