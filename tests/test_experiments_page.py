"""scripts/write_experiments.py: every figure on the page comes from a data file, and a stale page is noticed."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import experiment_choices
import experiment_summary
import pytest
import write_experiments

from utfproof.training.optimum_table import FromScratch, Line, Table

pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The page and its data files, in a folder of their own."""
    folder = tmp_path / "results"
    for name in ("training", "optimum"):
        if (ROOT / "results" / name).is_dir():
            shutil.copytree(ROOT / "results" / name, folder / name)
    for name in write_experiments.BENCH:
        if (ROOT / "results" / name).exists():
            shutil.copy(ROOT / "results" / name, folder)
    for page in ("PAGE", "TABLES"):
        monkeypatch.setattr(write_experiments, page, Path(shutil.copy(getattr(write_experiments, page), tmp_path)))
    assert write_experiments.main(["--results", str(folder)]) == 0
    return folder


def test_the_page_is_what_the_data_say(capsys):
    assert write_experiments.main(["--check"]) == 0, "run python scripts/write_experiments.py"


def changed(path: Path, change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.full
def test_another_figure_in_a_data_file_shows(copy, capsys):
    assert write_experiments.main(["--check", "--results", str(copy)]) == 0
    files = sorted((copy / "training").glob("*.json"))
    for path in files[:: max(1, len(files) // 25)]:
        held = path.read_text()
        changed(path, lambda document: document.update(accuracy=0.123))
        assert write_experiments.main(["--check", "--results", str(copy)]) == 1, path.name
        path.write_text(held)
    for path in (copy / "optimum").glob("*.json"):
        held = path.read_text()
        changed(path, lambda document: next(iter(document["hosts"].values()))["embedded"].update(accuracy=0.123))
        assert write_experiments.main(["--check", "--results", str(copy)]) == 1, path.name
        path.write_text(held)
    assert write_experiments.main(["--check", "--results", str(copy)]) == 0
    assert "experiments-tables.md is not what python scripts/" in capsys.readouterr().err


def test_a_figure_typed_by_hand_shows(copy):
    for path, figure, other in (
        (write_experiments.TABLES, "| measured, % |", "| measured, percent |"),
        (write_experiments.PAGE, " cells ", " places "),
    ):
        held = path.read_text()
        path.write_text(held.replace(figure, other, 1))
        assert write_experiments.main(["--check", "--results", str(copy)]) == 1
        assert write_experiments.main(["--results", str(copy)]) == 0
        assert path.read_text() == held
    before, begin, rest = write_experiments.PAGE.read_text().partition(write_experiments.BEGIN)
    # what stands outside the marks is nobody's but the author's
    write_experiments.PAGE.write_text(f"{before} by hand {begin}{rest}")
    assert write_experiments.main(["--check", "--results", str(copy)]) == 0


def test_without_data_the_page_says_so(copy):
    shutil.rmtree(copy)
    assert write_experiments.main(["--results", str(copy)]) == 0
    assert "None has been run." in write_experiments.TABLES.read_text()
    assert "None of the paper's 75 cells has been run in full." in write_experiments.PAGE.read_text()


def test_conclusions_come_first_and_are_short():
    text = write_experiments.PAGE.read_text()
    assert len(text.splitlines()) <= 250
    assert text.index(write_experiments.BEGIN) < text.index("## How it is run")


def test_a_page_without_marks_is_left_alone(copy):
    write_experiments.PAGE.write_text("no marks")
    with pytest.raises(SystemExit, match="not both marks"):
        write_experiments.main(["--results", str(copy)])
    assert write_experiments.PAGE.read_text() == "no marks"


def test_runs_that_differ_in_positions_stand_side_by_side(copy):
    from utfproof.training.results import differences, read_results

    runs = read_results(copy / "training")
    said = write_experiments.choices_part(runs)
    assert "| 1-hop/sparse/residual-norm | 456 | batch 32" in said
    usual = [run for run in runs if not set(experiment_choices.CHOICES) & set(differences(run))]
    assert write_experiments.choices_part(usual) == ""
    alone = [run for run in runs if set(experiment_choices.CHOICES) & set(differences(run)) == {"positions"}]
    assert write_experiments.choices_part(alone) == ""


def test_what_the_paper_s_code_did_is_weighed_by_pairs(copy):
    from utfproof.training.results import differences, read_results

    runs = read_results(copy / "training")
    (said,) = experiment_choices.of_choices(runs)
    (nearer, pairs) = re.search(r"positions, learned in place of none: nearer in (\d+) of (\d+) pairs", said).groups()
    assert 0 < int(nearer) <= int(pairs)
    worse = [replace(run, accuracy=0.0) if run.preset["positions"] == "learned" else run for run in runs]
    told = re.compile(rf"learned in place of none: nearer in 0 of {pairs} pairs \(\d cells\), within 5 points in 0")
    assert told.search(experiment_choices.of_choices(worse)[0])
    full = [run for run in runs if run.complete and not experiment_choices.FULL & set(differences(run))]
    (whole,) = experiment_choices.of_choices(full)  # pairs at the paper's own setting alone: all are counted as such
    every = re.search(r"evidence: (\d+) pairs of \d cells?, not independent", whole)[1]
    assert int(every) >= 8
    assert f"{every} at the paper's own batch" in whole
    assert f"{every} at the paper's own batch" in said
    assert experiment_choices.of_choices([run for run in runs if write_experiments.is_cell(run)]) == []


def test_a_longer_run_and_one_called_after_another_cell_count_as_what_they_are(copy):
    from utfproof.training.results import read_results, write_result

    def said():
        return write_experiments.conclusions(copy).partition("What a host holds at least")[0]

    before = said()
    runs = read_results(copy / "training")
    run = next(run for run in runs if run.point.name == "3-hop/sparse/attention" and write_experiments.in_full(run))
    longer = {**run.preset, "steps": run.steps + 1}
    for rate in (run.point.learning_rate, 0.5):
        preset = {**longer, "learning_rate": rate}
        write_result(replace(run, preset=preset, steps=run.steps + 1, curve=[]), copy / "training")
    write_result(
        replace(run, preset={**run.preset, "name": "1-hop/random/mlp"}), copy / "training"
    )  # by --task and --host
    assert said() == before
    assert "| 3-hop/sparse/attention | 2280 | learning_rate 0.5 | 60001 |" in write_experiments.measured_part(copy)


def test_points_of_the_scaling_figure_are_told_with_their_spread(copy):
    from utfproof.training.results import read_results

    runs = read_results(copy / "training")
    said = write_experiments.scaling_part(runs)
    assert "utfproof figure scaling --set batch=32" in said
    assert "58.9 ± 0.3 | 5 |" in said
    one_seed = [run for run in runs if run.seed == 0]
    alone = write_experiments.scaling_part(one_seed)
    assert alone.count("\n") == said.count("\n")
    assert "±" not in alone.replace("mean ± sd", "")
    at_home = [run for run in one_seed if run.preset["m"] == 1024 and run.preset["head_dim"] == 28]
    assert write_experiments.scaling_part(at_home) == ""  # nothing was swept
    assert write_experiments.brief_part(at_home) != ""


def test_a_run_that_the_scaling_figure_tells_of_is_not_listed_again(copy):
    from utfproof.training.results import read_results

    runs = read_results(copy / "training")
    kept = [run for run in runs if run.preset["m"] == 56 and run.preset.get("length") == 30]
    assert kept
    assert len(write_experiments.brief_part(kept).splitlines()) > len({run.without_seed for run in kept})
    whole = write_experiments.brief_part(runs)
    assert not any(f"| {run.point.name} | 56 |" in whole for run in kept)


def test_a_factorial_is_told_when_every_combination_was_run(copy):
    from utfproof.training.results import read_results

    home = next(
        run
        for run in read_results(copy / "training")
        if run.point.name == "1-hop/sparse/residual-norm" and write_experiments.is_cell(run)
    )
    runs = []
    for key in itertools.product(*experiment_choices.FACTORS.values()):
        fields = {}
        for name, value in zip(experiment_choices.FACTORS, key, strict=True):
            fields |= experiment_choices.FACTORS[name][value]
        accuracy = 0.5 + 0.2 * ("learned" in key) + 0.1 * ("drawn" in key) * ("constant" in key)
        runs.append(replace(home, preset={**home.preset, **fields}, accuracy=accuracy))
    said = experiment_choices.factorial_part(runs)
    assert "| learned | drawn | constant | 80.0 | -20.0 |" in said
    assert "nearest to the paper's 100.0 is positions learned, hops drawn, decay constant with 80.0 % (50.0 as" in said
    assert "positions learned adds +20.0 to +20.0 points under the 4 combinations of the others." in said
    assert "hops drawn adds +0.0 to +10.0 points under" in said
    against = [
        replace(run, accuracy=run.accuracy - 0.15 * (run.point.positions == "none") * (run.point.max_hops > 0))
        for run in runs
    ]
    told = "hops drawn adds -15.0 to -5.0 points with positions none but +0.0 to +10.0"
    assert told not in experiment_choices.factorial_part(against)  # 0 has no sign
    more = [replace(run, accuracy=run.accuracy + 0.01 * (run.point.max_hops > 0)) for run in against]
    told = "hops drawn adds -14.0 to -4.0 points with positions none but +1.0 to +11.0 points with positions learned."
    assert told in experiment_choices.factorial_part(more)
    assert experiment_choices.factorial_part(runs[1:]) == ""
    assert experiment_choices.factorial_part([*runs[:-1], replace(runs[-1], complete=False)]) == ""


def test_the_gap_is_to_the_best_run_that_was_long_enough():
    def line(host, *runs):
        scratch = tuple(FromScratch(accuracy, steps, 0, "") for accuracy, steps in runs)
        return Line(host, 456, None, 0.97, 0.0, 1.0, (), scratch)

    hosts = (line("sparse", (0.3, 4000), (0.4, 5000), (0.9, 3999)), line("random", (0.9, 10)), line("tied"))
    target = Table("a target", "1-hop", "attention", True, 0.97, 4000, 1000, hosts, ("a rule", 0.5), ())
    _, rows = write_experiments.gaps_part([target])
    assert rows.splitlines()[2:] == [
        "| a target | sparse, m = 456 | 97.0 | 40.0 (best of 2 schedules) | 5000 | 50.0 (a rule) | 57.0 |",
        "| a target | random, tied, m = 456 | 97.0 |  |  | 50.0 (a rule) |  |",
    ]
    assert write_experiments.gaps_part([]) == []
    weak, strong = (replace(line("tied"), embedded=held) for held in (0.5, 0.9))
    weaker = replace(target, title="a weaker target", lines=(weak, replace(line("late"), m=9)))
    stronger = replace(target, lines=(strong,))
    kept = [
        [(found.title, one.host) for one in found.lines] for found in experiment_summary.strongest([weaker, stronger])
    ]
    assert kept == [[("a weaker target", "late")], [("a target", "tied")]]
    shorter = replace(weaker, usual=False)
    assert experiment_summary.strongest([shorter, stronger]) == [shorter, stronger]
    assert experiment_summary.strongest([replace(weaker, lines=(weak,)), stronger]) == [stronger]


def test_rates_stand_side_by_side_and_seeds_are_averaged(copy):
    from utfproof.training.results import read_results

    name = "1-hop/sparse/attention"
    runs = [run for run in read_results(copy / "training") if run.point.name == name and run.complete and not run.seed]
    (sentence,) = write_experiments.of_rates(runs)
    assert sentence.startswith(f"By learning rate, in percent, one seed unless said otherwise: {name} ")
    assert sentence.count("(the paper's)") == 1
    twice = [replace(run, seed=seed) for run in runs if write_experiments.is_cell(run) for seed in (0, 1)]
    assert (
        "(the paper's, 2 seeds)" in write_experiments.of_rates([*twice, *(run for run in runs if run not in twice)])[0]
    )
    rates = [float(rate) for rate in re.findall(r" at (0\.\d+)", sentence)]
    assert rates == sorted(rates)
    assert len(rates) > 2
    usual = next(run for run in runs if write_experiments.is_cell(run))
    assert write_experiments.of_rates([usual]) == []
    assert experiment_choices.best_rates([usual]) == ""
    other = next(run for run in runs if run.point.learning_rate == rates[-1])
    gain = experiment_choices.best_rates([replace(usual, accuracy=0.25), replace(other, accuracy=0.5)])
    assert gain.startswith("Of 1 cell that were trained at other learning rates too, in as many steps, 1 gain over 5")
    assert f"{name}: 25.0 % at 0.0001, the paper's, 50.0 at {rates[-1]:g} (seeds: 1 and 1)." in gain
    assert gain.endswith("The highest rate that was tried is the best in 1 of them.")
    assert "best in 0 of them" in experiment_choices.best_rates(
        [replace(usual, accuracy=0.5), replace(other, accuracy=0.25)]
    )
    assert ", 0 gain over 5" in experiment_choices.best_rates([usual, replace(other, accuracy=usual.accuracy)])
    twice = [replace(usual, accuracy=0.25), replace(usual, accuracy=0.75, seed=1)]
    (mean,) = write_experiments.averaged(twice)
    assert (mean.accuracy, mean.seed) == (0.5, 0)
    assert "50.0 ± 35.4 (2 seeds)" in write_experiments.run_rows(twice)[0]


def test_the_summary_judges_where_the_data_say_so(copy):
    """Each sentence with the fact that it states, with its opposite, and without the data that it needs."""
    from utfproof.training.presets import PRESETS
    from utfproof.training.results import preset_fields, read_results
    from utfproof.training.tasks import task_baselines

    runs = read_results(copy / "training")
    complete = write_experiments.averaged([run for run in runs if write_experiments.is_cell(run) and run.complete])
    cells = {run.point.name: run for run in complete}
    frozen, normed = cells["1-hop/sparse/attention"], cells["1-hop/trained/residual-norm"]
    rules = {"1-hop": task_baselines("1-hop")}

    tasks = experiment_summary.PAPER_TASKS
    every = {
        f"{task}/{host}/{variant}"
        for task, host, variant in itertools.product(
            tasks, experiment_summary.PAPER_HOSTS, experiment_summary.PAPER_VARIANTS
        )
    }
    whole = [replace(normed, preset={**normed.preset, **preset_fields(PRESETS[name])}) for name in sorted(every)]
    assert experiment_summary.of_missing(whole) == ""
    gone = {"1-hop/random/mlp", *(name for name in every if name.startswith("4-hop/") and name.endswith("/mlp-norm"))}
    rest = [run for run in whole if run.point.name not in gone]
    assert experiment_summary.of_missing(rest) == "Not run in full: 1-hop mlp (random); 4-hop mlp-norm."

    falls = replace(frozen, curve=[(100, 1.0, 0.5), (200, 1.0, 0.99), (300, 1.0, 0.3)], accuracy=0.3, seed=2)
    lost = f"{frozen.point.name} (seed 2) has 99.0 at step 200, ends at 30.0."
    assert experiment_summary.of_lost([normed, falls]).endswith(f"of a training batch): {lost}")
    assert experiment_summary.of_lost([normed, replace(falls, accuracy=0.95), replace(falls, curve=[])]) == ""

    averages = partial(experiment_summary.of_averages, rules=rules)
    assert "the 1 cells of frozen hosts without normalisation and MLP: +4.0 to +4.0 points" in averages(
        [frozen, normed]
    )
    assert ": -28.8 to +4.0 points" in averages([frozen, replace(frozen, accuracy=0.0)])
    assert averages([normed]) == ""

    beyond = partial(experiment_summary.of_rules, rules=rules)
    good = [replace(run, accuracy=0.95) for run in (frozen, normed)]
    assert f"{normed.point.name}; all of these have normalisation. The best of these rules looks" in beyond(good[1:])
    assert f"{frozen.point.name}, {normed.point.name}. The best" in beyond(good)
    few = [rule for rule in rules["1-hop"] if not rule.name.startswith("last")]
    assert experiment_summary.of_rules(good, {"1-hop": few}).endswith(f"{frozen.point.name}, {normed.point.name}.")
    assert "0 of 1 cells pass" in beyond([replace(normed, accuracy=0.5)])
    assert beyond([]) == ""

    def target(*accuracies):
        scratch = tuple(FromScratch(accuracy, 10, 0, "") for accuracy in accuracies)
        line = Line("sparse", 456, None, 0.97, 0.0, 1.0, (), scratch)
        return Table("a target", "1-hop", "attention", True, 0.97, 10, 1000, (line,), None, ())

    said = experiment_summary.of_gaps([target(0.4), target(0.96), target()])
    assert said.startswith(
        "Of 2 pairs of a trained target and a fixed host that holds it embedded, 1 hold over 5 points more than training"
    )
    assert (
        "holds 97.0 %, training finds 40.0 (1 seed, the only schedule tried). With 2 of the pairs one schedule" in said
    )
    other = FromScratch(0.3, 10, 0, "learning rate 0.1")
    tables = [
        replace(t, lines=tuple(replace(x, from_scratch=(*x.from_scratch, other)) for x in t.lines))
        for t in [target(0.4)]
    ]
    said = experiment_summary.of_gaps(tables)
    assert "training finds 40.0 (1 seed, the best of 2 schedules). Each was tried at two schedules or more" in said
    assert experiment_summary.of_gaps([target()]) == ""

    combinations = dict.fromkeys(itertools.product(*experiment_choices.FACTORS.values()), 0.5)
    found = experiment_choices.Factorial(normed, {**combinations, ("learned", "k", "linear"): 0.9})
    assert "ends at 50.0 % as the presets read the paper, at 90.0 with positions learned, the nearest" in (
        experiment_summary.of_factorial(found)
    )
    assert experiment_summary.of_factorial(experiment_choices.Factorial(normed, combinations)) == ""
