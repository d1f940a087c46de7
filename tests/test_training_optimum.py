"""The optimum known: trained targets embedded into hosts, and faults that must show."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from utfproof.attention import parse_kernel  # noqa: E402
from utfproof.cli import app as cli  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training import checkpoint, optimum  # noqa: E402
from utfproof.training import loop as runs  # noqa: E402
from utfproof.training.presets import Preset, preset  # noqa: E402

SMALL = {"batch": 8, "steps": 6, "warmup": 2, "learning_rate": 0.01, "init_std": 0.5, "heads": 2, "head_dim": 4}
SHORT = optimum.OptimumSetting(eval_sequences=40)


pytestmark = pytest.mark.usefixtures("one_thread")


def own(variant: str = "attention", **changes) -> Preset:
    return preset(f"parentheses/trained-own-width/{variant}", "theory", **{**SMALL, "length": 6, **changes})


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
    """With learned positions."""
    changes = {**SMALL, "length": 9, "head_dim": 30, "layers": 2}
    return trained(tmp_path_factory.mktemp("hops"), preset("2-hop/trained-own-width/attention", **changes))


# --- embedding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", optimum.HOSTS)
def test_embedded_models_are_the_trained_one(plain, host):
    """Against the target's own forward pass in NumPy, token by token."""
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, host, SHORT)
    batch = source.trainer.batch(0)
    kernel = parse_kernel("scaled+causal", 4, 4)
    for ids, found in zip(batch.inputs, start.engine.logits(batch.inputs).detach().numpy(), strict=True):
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


@pytest.mark.parametrize("host", ["sparse-front", "random"])
def test_positions_are_coordinates_of_the_input(hops, host):
    """The host of setting `paper` at its own m holds the target that reads positions, at every position."""
    source = optimum.read_source(hops)
    assert (source.target.shape.d_in, source.target.shape.d_out) == (30 + 8, 30)
    start, _ = optimum.embedded(source, host, SHORT)
    assert start.model["P"].shape == (8, start.preset.m)
    found = optimum.agreement(source.trainer, start, 10)
    assert found.holds
    assert found.positions == 10 * source.trainer.task.context == 80
    with torch.no_grad():
        start.model["P"][2] += 1e-3
    assert not optimum.agreement(source.trainer, start, 10).holds


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
    line = ["optimum", str(plain), "--hosts", host, "--eval-sequences", "20"]
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
        start.model.trained["E"][1] = float("nan")
    assert not optimum.agreement(source.trainer, start, 10).holds


# --- the document ---------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_repeated(plain, tmp_path, monkeypatch):
    source = optimum.read_source(plain)
    setting = replace(SHORT, folder=tmp_path, hosts=("sparse",))
    first = optimum.run(source, setting)
    made = []
    genuine = optimum.embedded
    monkeypatch.setattr(optimum, "embedded", lambda *a: (made.append(a[1]), genuine(*a))[1])
    assert optimum.run(source, setting) == first
    assert made == []
    more = optimum.run(source, replace(setting, hosts=("sparse", "tied")))
    assert made == ["tied"]
    assert more["hosts"]["sparse"] == first["hosts"]["sparse"]
    assert optimum.read_documents(tmp_path) == [more]


def test_a_stopped_run_keeps_its_hosts(plain, tmp_path, monkeypatch):
    source = optimum.read_source(plain)
    setting = replace(SHORT, folder=tmp_path, hosts=("sparse", "tied"))
    whole = optimum.run(source, replace(setting, folder=tmp_path / "whole"))
    genuine = optimum.embedded

    def stop(source, name, setting):
        if name == "tied":
            raise KeyboardInterrupt
        return genuine(source, name, setting)

    monkeypatch.setattr(optimum, "embedded", stop)
    with pytest.raises(KeyboardInterrupt):
        optimum.run(source, setting)
    monkeypatch.setattr(optimum, "embedded", genuine)
    (half,) = optimum.read_documents(tmp_path)
    assert list(half["hosts"]) == ["sparse"]
    assert optimum.run(source, setting) == whole


def test_hosts_that_do_not_serve_are_said(stream, plain, tmp_path):
    source = optimum.read_source(stream)
    document = optimum.run(source, replace(SHORT, hosts=("sparse", "residual-tree"), folder=None))
    assert set(document["hosts"]) == {"residual-tree"}
    assert "without a residual stream" in document["left_out"]["sparse"]
    document = optimum.run(optimum.read_source(plain), replace(SHORT, hosts=("residual-tree",), folder=None))
    assert set(document["left_out"]) == {"residual-tree"}


# --- what cannot be ------------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_finished_target_are_refused(plain, tmp_path):
    with pytest.raises(MalformedInput, match="holds no checkpoint"):
        optimum.read_source(tmp_path)
    other = trained(tmp_path / "sparse", preset("parentheses/sparse/attention", "theory", **SMALL))
    with pytest.raises(MalformedInput, match="a run of host sparse"):
        optimum.read_source(other)
    document, tensors = checkpoint.load(plain)
    part = tmp_path / "part"
    part.mkdir()
    document["identity"]["preset"]["steps"] = 9
    checkpoint.save(part, tensors, document)
    with pytest.raises(MalformedInput, match="6 of 9 steps; finish it first"):
        optimum.read_source(part)
    document["identity"]["preset"] |= {"steps": 6, "m": 5}
    checkpoint.save(part, tensors, document)
    with pytest.raises(MalformedInput, match="has another shape"):
        optimum.read_source(part)
    del document["identity"]["preset"]["task"]
    checkpoint.save(part, tensors, document)
    with pytest.raises(MalformedInput, match="of no training run"):
        optimum.read_source(part)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "spares"], "host 'spares' is unknown"),
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
        lambda d: d.update(hosts=[1]),
    ],
)
def test_damaged_files_are_refused(plain, tmp_path, change):
    source = optimum.read_source(plain)
    optimum.run(source, replace(SHORT, hosts=("sparse",), folder=tmp_path))
    (path,) = tmp_path.glob("*.json")
    document = json.loads(path.read_text())
    assert optimum.read_documents(tmp_path) == [document]
    path.write_text(json.dumps(damaged(document, change)))
    with pytest.raises(MalformedInput, match=path.name):
        optimum.read_documents(tmp_path)


@pytest.mark.full
def test_commands_from_training_to_tables(tmp_path, capsys):
    folder, results = tmp_path / "own", tmp_path / "optimum"
    fields = [f"--set={name}={value}" for name, value in {**SMALL, "length": 6}.items()]
    training = [
        "train",
        "parentheses/trained-own-width/attention",
        "--setting=theory",
        *fields,
        "--eval-sequences",
        "20",
        "-o",
        str(folder),
    ]
    assert cli.run([*training, "--results", str(tmp_path / "training"), "--json"]) == 0
    line = ["optimum", str(folder), "--hosts", "sparse", "--eval-sequences", "20"]
    assert cli.run([*line, "--results", str(results), "--threads", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "logits differ by at most" in shown
    assert cli.run(["tables", "--results", str(tmp_path / "training")]) == 0
    assert "What fixed hosts hold" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["tables", "--results", str(tmp_path / "training"), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["optimum"]
    assert line["host"] == "sparse"
