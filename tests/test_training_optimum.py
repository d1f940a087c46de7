"""The optimum known: trained targets embedded into hosts, trained on from there, and faults that must show."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from utfproof.attention import parse_kernel  # noqa: E402
from utfproof.cli import app as cli  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training import optimum, optimum_table  # noqa: E402
from utfproof.training import run as runs  # noqa: E402
from utfproof.training import tables as training_tables  # noqa: E402
from utfproof.training.loop import Trainer  # noqa: E402
from utfproof.training.presets import Preset, preset  # noqa: E402
from utfproof.training.results import RunResult, is_complete, preset_fields, read_result, run_key  # noqa: E402

SMALL = {"batch": 8, "steps": 6, "warmup": 2, "learning_rate": 0.01, "init_std": 0.5, "heads": 2, "head_dim": 4}
SHORT = optimum.OptimumSetting(steps=3, warmup=1, eval_sequences=40, perturbations=(0.0, 0.1))


pytestmark = pytest.mark.usefixtures("one_thread")


def own(variant: str = "attention", **changes) -> Preset:
    return preset(f"parentheses/trained-own-width/{variant}", **{**SMALL, "length": 6, **changes})


def trained(folder: Path, chosen: Preset) -> Path:
    setting = runs.RunSetting(folder=folder, results=None, eval_sequences=20, log_every=2)
    runs.run(chosen, [3], setting)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("plain"), own())


@pytest.fixture(scope="module")
def stream(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("stream"), own("residual", m=6))


@pytest.fixture(scope="module")
def hops(tmp_path_factory) -> Path:
    chosen = preset("2-hop/trained-own-width/attention", **{**SMALL, "length": 9, "head_dim": 30, "layers": 2})
    return trained(tmp_path_factory.mktemp("hops"), chosen)


# --- embedding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", optimum.HOSTS)
def test_embedded_models_are_the_trained_one(plain, host):
    """Against the target's own forward pass in NumPy, token by token."""
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, host, SHORT)
    batch = source.trainer.batch(0)
    kernel = parse_kernel("scaled+causal", 4, 4)
    for ids, found in zip(batch.inputs[0], start.engine.logits(batch.inputs)[0].detach().numpy(), strict=True):
        expected = source.target.forward(np.eye(4)[ids.numpy()], kernel)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    assert optimum.agreement(source.trainer, start, 30).holds
    assert source.trainer.evaluate(50).accuracy == start.evaluate(50).accuracy


@pytest.mark.parametrize("host", optimum.STREAM_HOSTS)
def test_with_a_residual_stream(stream, host):
    source = optimum.read_source(stream)
    assert source.target.shape.residual
    start, _ = optimum.embedded(source, host, SHORT)
    found = optimum.agreement(source.trainer, start, 30)
    assert found.holds
    assert found.positions == 30
    assert found.different_answers == 0


def test_hop_tasks_look_at_every_position(hops):
    source = optimum.read_source(hops)
    for host in ("sparse", "shared-key"):
        start, _ = optimum.embedded(source, host, SHORT)
        found = optimum.agreement(source.trainer, start, 10)
        assert found.holds
        assert found.positions == 10 * source.trainer.task.context == 80


@pytest.mark.parametrize("host", ["sparse", "random", "shared-key"])
def test_an_embedding_off_by_one_entry_shows(plain, monkeypatch, host, capsys):
    genuine = optimum.embed

    def off(*arguments, **options):
        found = genuine(*arguments, **options)
        E = found.E.copy()
        E[1, int(np.abs(E[1]).argmax())] += 1e-3  # token 1 is "("
        return replace(found, E=E)

    monkeypatch.setattr(optimum, "embed", off)
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, host, SHORT)
    assert not optimum.agreement(source.trainer, start, 30).holds
    line = ["optimum", str(plain), "--hosts", host, "--steps", "0", "--eval-sequences", "20", "--perturbations", "0"]
    assert cli.run([*line, "--results", str(plain / f"off-{host}"), "--json"]) == 1
    assert f"host {host}: logits of the embedded model differ" in capsys.readouterr().err


def test_another_unembedding_shows(plain, monkeypatch):
    monkeypatch.setattr(optimum, "dense", lambda matrix: np.roll(np.asarray(matrix.to_dense(np.float64)), 1, 1))
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, "sparse", SHORT)
    assert not optimum.agreement(source.trainer, start, 30).holds


def test_logits_that_are_no_numbers_do_not_agree(plain):
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, "sparse", SHORT)
    with torch.no_grad():
        start.model.trained["E"][0, 1] = float("nan")
    assert not optimum.agreement(source.trainer, start, 10).holds


# --- training on ---------------------------------------------------------------------------------------------------------


def test_noise_has_the_size_that_is_said():
    values = {"E": torch.randn(1, 4, 30).double(), "U": torch.randn(1, 30, 4).double()}
    small, large = (optimum.perturbed(values, size, 7) for size in (0.01, 0.1))
    for name, value in values.items():
        assert float((small[name] - value).norm() / value.norm()) == pytest.approx(0.01)
        torch.testing.assert_close(10 * (small[name] - value), large[name] - value)


def test_training_on_starts_where_it_says_and_sees_fresh_batches(plain, monkeypatch):
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, "sparse", SHORT)
    seen = []
    genuine = Trainer.batch
    monkeypatch.setattr(Trainer, "batch", lambda self, step: (seen.append(step), genuine(self, step))[1])
    setting = replace(SHORT, dtype="float64")
    part = optimum.train_on(start, 0.0, source, setting)
    assert seen == [6, 7, 8]  # the target was trained on batches 0 ... 5
    assert part["before"]["accuracy"] == start.evaluate(40).accuracy[0]
    assert part["before"]["loss"] == pytest.approx(start.evaluate(40).loss[0])
    assert part["after"] != part["before"]
    assert 0 < part["distance"] < 1
    still = optimum.train_on(start, 0.0, source, replace(setting, steps=0))
    assert still["distance"] == 0
    assert still["after"] == still["before"] == part["before"]
    away = optimum.train_on(start, 0.1, source, replace(setting, steps=0))
    assert away["distance"] == pytest.approx(0.1)


def test_what_is_there_is_not_repeated(plain, tmp_path, monkeypatch):
    source = optimum.read_source(plain)
    setting = replace(SHORT, folder=tmp_path, hosts=("sparse",))
    first = optimum.run(source, setting)
    assert [part["perturbation"] for part in first["hosts"]["sparse"]["trained_on"]] == [0.0, 0.1]
    made = []
    genuine = optimum.train_on
    monkeypatch.setattr(optimum, "train_on", lambda *a: (made.append(a[1]), genuine(*a))[1])
    assert optimum.run(source, setting) == first
    assert made == []
    more = optimum.run(source, replace(setting, perturbations=(0.0, 0.1, 0.2), hosts=("sparse", "tied")))
    assert made == [0.2, 0.0, 0.1, 0.2]
    assert more["hosts"]["sparse"]["trained_on"][:2] == first["hosts"]["sparse"]["trained_on"]
    assert optimum.read_documents(tmp_path) == [more]


def test_a_stopped_run_keeps_its_parts(plain, tmp_path, monkeypatch):
    source = optimum.read_source(plain)
    setting = replace(SHORT, folder=tmp_path, hosts=("sparse", "tied"))
    whole = optimum.run(source, replace(setting, folder=tmp_path / "whole"))
    genuine = optimum.train_on

    def stop(start, size, *rest):
        if size and start.preset.host == "tied":
            raise KeyboardInterrupt
        return genuine(start, size, *rest)

    monkeypatch.setattr(optimum, "train_on", stop)
    with pytest.raises(KeyboardInterrupt):
        optimum.run(source, setting)
    monkeypatch.setattr(optimum, "train_on", genuine)
    (half,) = optimum.read_documents(tmp_path)
    assert len(half["hosts"]["tied"]["trained_on"]) == 1
    assert optimum.run(source, setting) == whole


def test_hosts_that_do_not_serve_are_said(stream, plain, tmp_path):
    source = optimum.read_source(stream)
    document = optimum.run(source, replace(SHORT, hosts=("sparse", "residual-tree"), folder=None, perturbations=()))
    assert set(document["hosts"]) == {"residual-tree"}
    assert "without a residual stream" in document["left_out"]["sparse"]
    document = optimum.run(
        optimum.read_source(plain), replace(SHORT, hosts=("residual-tree",), folder=None, perturbations=())
    )
    assert set(document["left_out"]) == {"residual-tree"}


# --- what cannot be ------------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_finished_target_are_refused(plain, tmp_path):
    with pytest.raises(MalformedInput, match="holds no checkpoint"):
        optimum.read_source(tmp_path)
    other = trained(tmp_path / "sparse", preset("parentheses/sparse/attention", **SMALL))
    with pytest.raises(MalformedInput, match="a run of host sparse"):
        optimum.read_source(other)
    document = json.loads((plain / "checkpoint.json").read_text())
    part = tmp_path / "part"
    part.mkdir()
    (part / document["tensors"]).write_bytes((plain / document["tensors"]).read_bytes())
    document["identity"]["preset"]["steps"] = 9
    (part / "checkpoint.json").write_text(json.dumps(document))
    with pytest.raises(MalformedInput, match="6 of 9 steps; finish it first"):
        optimum.read_source(part)
    document["identity"]["preset"] |= {"steps": 6, "m": 5}
    (part / "checkpoint.json").write_text(json.dumps(document))
    with pytest.raises(MalformedInput, match="of another shape"):
        optimum.read_source(part)
    del document["identity"]["preset"]["task"]
    (part / "checkpoint.json").write_text(json.dumps(document))
    with pytest.raises(MalformedInput, match="of no training run"):
        optimum.read_source(part)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "spares"], "host 'spares' is unknown"),
        (["--steps", "-1"], "steps must be"),
        (["--perturbations", "0,much"], "not comma-separated numbers"),
        (["--perturbations", "-1"], "not all numbers from 0 on"),
        (["--eval-sequences", "0"], "eval_sequences must be"),
        (["--threads", "0"], "--threads must be"),
        (["--results", __file__], "is a file; name a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(plain, capsys, arguments, said):
    assert cli.run(["optimum", str(plain), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def damaged(document, change):
    copy = json.loads(json.dumps(document))
    change(copy)
    return copy


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=2),
        lambda d: d.pop("hosts"),
        lambda d: d.update(key="other"),
        lambda d: d.update(seed=4),
        lambda d: d["preset"].update(length=7),
        lambda d: d["trained"].update(accuracy=1.5),
        lambda d: d["hosts"]["sparse"].pop("m"),
        lambda d: d["hosts"]["sparse"]["embedded"].update(accuracy="high"),
        lambda d: d["hosts"]["sparse"]["agreement"].pop("largest_logit"),
        lambda d: d["hosts"]["sparse"]["trained_on"][0].pop("steps"),
        lambda d: d["hosts"]["sparse"]["trained_on"][0]["after"].update(accuracy=None),
        lambda d: d.update(hosts=[1]),
    ],
)
def test_damaged_files_are_refused(plain, tmp_path, change):
    source = optimum.read_source(plain)
    optimum.run(source, replace(SHORT, hosts=("sparse",), folder=tmp_path, perturbations=(0.0,), steps=0))
    (path,) = tmp_path.glob("*.json")
    document = json.loads(path.read_text())
    assert optimum.read_documents(tmp_path) == [document]
    path.write_text(json.dumps(damaged(document, change)))
    with pytest.raises(MalformedInput, match=path.name):
        optimum.read_documents(tmp_path)


# --- tables ---------------------------------------------------------------------------------------------------------------


def scratch(point: Preset, accuracy: float, seed: int = 0, steps: int | None = None) -> RunResult:
    done = point.steps if steps is None else steps
    complete = is_complete(point, done)
    places = {"device": "cpu", "dtype": "float32", "engine": "paths"}
    scores = {"accuracy": accuracy, "accuracy_answers": accuracy, "loss": 0.1, "eval_sequences": 10}
    return RunResult(
        preset=preset_fields(point),
        seed=seed,
        steps=done,
        complete=complete,
        **places,
        **scores,
        seconds=1.0,
        parameters=1,
    )


def test_tables_set_runs_from_scratch_beside_the_optimum(plain, tmp_path):
    source = optimum.read_source(plain)
    document = optimum.run(source, replace(SHORT, hosts=("sparse",), folder=tmp_path))
    beside = preset("parentheses/sparse/attention", **{**SMALL, "length": 6, "init_std": 0.02})
    made = [
        scratch(beside, 0.61),
        scratch(beside, 0.62, seed=1),
        scratch(replace(beside, steps=5), 0.99),
        scratch(replace(beside, length=0), 0.98),
        scratch(replace(beside, init_std=0.5), 0.97),
        scratch(replace(beside, host="random"), 0.96),
        scratch(replace(beside, m=beside.m + 1), 0.95),
    ]
    (table,) = optimum_table.optimum_tables([document], made)
    (line,) = table.lines
    other = "batch 8, learning rate 0.01, warmup 2"  # than the paper's
    assert [(run.accuracy, run.seed, run.other) for run in line.from_scratch] == [(0.61, 0, other), (0.62, 1, other)]
    assert line.embedded == table.trained == document["trained"]["accuracy"]
    text = optimum_table.markdown([table])
    assert f"61.5 ± 0.7 (6 steps, {other})" in text
    assert "| trained on | noise 0.1 |" in text
    assert "trained on for 3 steps, learning rate 0.01" in text
    longer = optimum.run(source, replace(SHORT, hosts=("sparse",), folder=tmp_path, steps=4, perturbations=(0.1,)))
    (twice,) = optimum_table.optimum_tables([longer], made)
    assert "(3 steps, learning rate 0.01); " in optimum_table.cells(twice)[0][6]
    assert "for 4 steps, learning rate 0.01: sparse" in optimum_table.notes(twice)[1]
    slower = scratch(replace(beside, learning_rate=0.5, batch=9), 0.5)
    (table,) = optimum_table.optimum_tables([document], [slower])
    assert table.lines[0].from_scratch[0].other == "batch 9, learning rate 0.5, warmup 2"
    usual = scratch(replace(beside, learning_rate=0.001, batch=1000, warmup=50), 0.5)
    (table,) = optimum_table.optimum_tables([document], [usual])
    assert optimum_table.cells(table)[0][-1] == "50.0 (6 steps)"
    assert optimum_table.optimum_tables([{**document, "hosts": {}}], made) == []
    assert optimum_table.held([table, twice]) == {}  # another length and shape than the paper's
    at_home = [replace(table, usual=True, lines=(replace(line, embedded=share),)) for share in (0.7, 0.9, 0.8)]
    assert optimum_table.held(at_home) == {("parentheses", "attention-only"): 0.9}
    trained = replace(line, embedded=0.7, from_scratch=(replace(line.from_scratch[0], accuracy=0.95),))
    found_by_training = replace(table, usual=True, lines=(trained,))
    assert optimum_table.held([*at_home, found_by_training]) == {("parentheses", "attention-only"): 0.95}


def test_the_papers_tables_show_what_hosts_hold():
    """The committed target of parentheses is at the paper's setting, those of 3-hop on shorter strings are not."""
    found = optimum_table.optimum_tables(optimum.read_documents(Path(__file__).parents[1] / "results" / "optimum"), [])
    assert {table.usual for table in found if "length" in table.title} == {False}
    known = optimum_table.held(found)
    assert known["parentheses", "attention-only"] == max(
        line.embedded for table in found if table.usual and table.task == "parentheses" for line in table.lines
    )
    rows = [row for part in training_tables.tables({}, known) for row in part.rows]
    assert {(row.task, row.held) for row in rows if row.held is not None} >= {
        ("parentheses", known["parentheses", "attention-only"])
    }


def test_hop_tables_have_the_baseline_of_their_length(hops, tmp_path):
    document = optimum.run(optimum.read_source(hops), replace(SHORT, hosts=("sparse",), folder=None, perturbations=()))
    (table,) = optimum_table.optimum_tables([document], [])
    from utfproof.training.tasks.khop import k_hop_baselines

    assert table.baseline is not None
    assert table.baseline[1] == max(rule.accuracy for rule in k_hop_baselines(2, 9))
    assert table.baseline[1] != max(rule.accuracy for rule in k_hop_baselines(2, 100))


@pytest.mark.full
def test_commands_from_training_to_tables(tmp_path, capsys):
    folder, results = tmp_path / "own", tmp_path / "optimum"
    fields = [f"--set={name}={value}" for name, value in {**SMALL, "length": 6}.items()]
    training = [
        "train",
        "parentheses/trained-own-width/attention",
        *fields,
        "--eval-sequences",
        "20",
        "-o",
        str(folder),
    ]
    assert cli.run([*training, "--results", str(tmp_path / "training"), "--json"]) == 0
    line = ["optimum", str(folder), "--hosts", "sparse", "--steps", "2", "--eval-sequences", "20"]
    assert cli.run([*line, "--results", str(results), "--threads", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "logits differ by at most" in shown
    assert "from a perturbation of 0.01, 2 steps" in shown
    for form in ([], ["--markdown"]):
        assert cli.run(["tables", "--results", str(tmp_path / "training"), "--sequences", "50", *form]) == 0
        assert "The optimum known: parentheses" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["tables", "--results", str(tmp_path / "training"), "--sequences", "50", "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["optimum"]
    assert table["lines"][0]["host"] == "sparse"
    assert cli.run(["tables", "--optimum", str(tmp_path / "nowhere")]) == 2


# --- lengths and training that diverges ------------------------------------------------------------------------------------


def test_lengths_belong_to_the_run():
    plain, short = preset("2-hop/sparse/attention"), preset("2-hop/sparse/attention", length=20)
    assert short.make_task().context == 19
    assert plain.make_task().context == 99
    assert preset("parentheses/sparse/attention", length=5).make_task().context == 12
    assert "length" not in preset_fields(plain)  # files and keys from before lengths could be chosen stay as they are
    assert run_key(plain, 0, 5) != run_key(short, 0, 5)
    assert run_key(plain, 0, 5) == run_key(preset_fields(plain), 0, 5)
    for wrong in (-1, 1.5, True):
        with pytest.raises(MalformedInput, match="length"):
            preset("2-hop/sparse/attention", length=wrong)


def test_strings_grow_to_their_length_over_half_of_the_steps():
    plain, growing = (preset("2-hop/sparse/attention", **{**SMALL, "length": 20, "steps": 10, **g}) for g in GROWING)
    lengths = [growing.make_task(step=step).context + 1 for step in range(10)]
    assert lengths == [4, 7, 10, 13, 16, 20, 20, 20, 20, 20]
    assert {growing.make_task().context, growing.make_task(scored=True).context} == {19}
    assert [Trainer(growing, [0]).batch(step).inputs.shape[-1] + 1 for step in range(10)] == lengths
    assert plain.make_task(step=0).context == 19
    assert "grow_from" not in preset_fields(plain)
    assert run_key(plain, 0, 5) != run_key(growing, 0, 5)
    trainer, again = Trainer(growing, [0]), Trainer(growing, [0])
    for _ in range(6):
        trainer.step()
    again.restore({name: tensor.clone() for name, tensor in trainer.tensors().items()})
    again.done = 6
    assert trainer.batch(6).inputs.equal(again.batch(6).inputs)  # nothing but the step tells the length
    with pytest.raises(MalformedInput, match="grow_from"):
        preset("2-hop/sparse/attention", length=20, grow_from=21)


GROWING = ({}, {"grow_from": 4})


def test_a_length_is_written_and_read_back(tmp_path):
    chosen = preset("parentheses/sparse/attention", **{**SMALL, "length": 3})
    runs.run(chosen, [0], runs.RunSetting(folder=tmp_path / "run", results=tmp_path, eval_sequences=10))
    (path,) = tmp_path.glob("*.json")
    assert read_result(path).preset["length"] == 3
    document = json.loads(path.read_text())
    for wrong in (0, None):  # 0 would give another key to the same run
        path.write_text(json.dumps({**document, "preset": {**document["preset"], "length": wrong}}))
        with pytest.raises(MalformedInput):
            read_result(path)


def test_training_that_diverges_ends_in_one_line(tmp_path, capsys):
    fields = [f"--set={name}={value}" for name, value in {**SMALL, "learning_rate": 1e30, "steps": 8}.items()]
    line = ["train", "parentheses/sparse/attention", *fields, "--log-every", "2", "--checkpoint-every", "4", "--json"]
    code = cli.run([*line, "--results", str(tmp_path / "results"), "-o", str(tmp_path / "run")])
    shown = capsys.readouterr()
    assert code == 1
    assert shown.err.count("\n") == 1
    assert "training diverged, no result is written" in shown.err
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "run" / "checkpoint.json").exists()


def test_runs_of_another_experiment_are_not_from_scratch_and_schedules_are_told_apart():
    from utfproof.training.optimum_table import _from_scratch

    target = preset("1-hop/trained-own-width/attention")
    point = preset("1-hop/sparse/attention")
    other = [{"min_hops": 0, "max_hops": 16}, {"positions": "learned"}, {"length": 9}, {"loss": "answer"}]
    made = [scratch(replace(point, **changes), 0.9) for changes in other]
    assert _from_scratch(target, "sparse", point.m, made) == []
    schedules = [{}, {"decay": "constant"}, {"weight_decay": 0.5}, {"warmup": 7}, {"grow_from": 5}]
    found = _from_scratch(target, "sparse", point.m, [scratch(replace(point, **changes), 0.5) for changes in schedules])
    said = {"", "decay constant", "weight decay 0.5", "warmup 7", "grow from 5"}
    assert {run.other for run in found} == said
    weak, long = scratch(replace(point, steps=target.steps + 1), 0.3), scratch(replace(point, steps=target.steps), 0.9)
    short = scratch(replace(point, steps=target.steps - 1), 0.99)
    found = _from_scratch(target, "sparse", point.m, [weak, long, short])  # the best may be none of the longest
    assert [run.accuracy for run in found] == [0.9, 0.3]
    normed = preset("1-hop/trained-own-width/residual-norm")
    post = scratch(preset("1-hop/sparse/residual-norm", norm_place="post"), 0.9)
    assert _from_scratch(normed, "sparse", post.point.m, [post]) == []
