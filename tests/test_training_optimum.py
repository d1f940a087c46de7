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


def agree(first, second, sequences) -> bool:
    gap, largest = optimum.difference(first, second, sequences)
    return gap <= optimum.AGREEMENT * largest


# --- embedding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", optimum.HOSTS)
def test_embedded_models_are_the_trained_one(plain, host):
    """Against the target's own forward pass in NumPy, token by token."""
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, host)
    batch = source.trainer.batch(0)
    kernel = parse_kernel("scaled+causal", 4, 4)
    for ids, found in zip(batch.inputs, start.engine.logits(batch.inputs).detach().numpy(), strict=True):
        expected = source.target.forward(np.eye(4)[ids.numpy()], kernel)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    assert agree(source.trainer, start, 30)
    assert source.trainer.evaluate(50).accuracy == start.evaluate(50).accuracy


@pytest.mark.parametrize("host", optimum.STREAM_HOSTS)
def test_with_a_residual_stream(stream, host):
    source = optimum.read_source(stream)
    assert source.target.shape.residual
    start, _ = optimum.embedded(source, host)
    assert agree(source.trainer, start, 30)


@pytest.mark.parametrize("host", ["sparse-front", "random"])
def test_positions_are_coordinates_of_the_input(hops, host):
    """The host of setting `paper` at its own m holds the target that reads positions, at every position."""
    source = optimum.read_source(hops)
    assert (source.target.shape.d_in, source.target.shape.d_out) == (30 + 8, 30)
    start, _ = optimum.embedded(source, host)
    assert start.model["P"].shape == (8, start.preset.m)
    assert agree(source.trainer, start, 10)
    with torch.no_grad():
        start.model["P"][2] += 1e-3
    assert not agree(source.trainer, start, 10)


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
    start, _ = optimum.embedded(source, host)
    assert not agree(source.trainer, start, 30)
    line = ["optimum", str(plain), "--hosts", host, "--eval-sequences", "20"]
    assert cli.run([*line, "--results", str(plain / f"off-{host}"), "--json"]) == 1
    assert f"host {host}: logits of the embedded model differ" in capsys.readouterr().err


def test_another_unembedding_shows(plain, monkeypatch):
    monkeypatch.setattr(optimum, "dense", lambda matrix: np.roll(np.asarray(matrix.to_dense(np.float64)), 1, 1))
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, "sparse")
    assert not agree(source.trainer, start, 30)


def test_logits_that_are_no_numbers_do_not_agree(plain):
    source = optimum.read_source(plain)
    start, _ = optimum.embedded(source, "sparse")
    with torch.no_grad():
        start.model.trained["E"][1] = float("nan")
    assert not agree(source.trainer, start, 10)


# --- the document ---------------------------------------------------------------------------------------------------


def test_a_document_is_read_back(plain, tmp_path):
    found = optimum.optimum(optimum.read_source(plain), ["sparse", "tied"], 20)
    assert list(found.hosts) == ["sparse", "tied"]
    optimum.write_document(found, tmp_path)
    assert optimum.read_documents(tmp_path) == [found]


def test_hosts_that_do_not_serve_are_said(stream, plain):
    found = optimum.optimum(optimum.read_source(stream), ["sparse", "residual-tree"], 20)
    assert set(found.hosts) == {"residual-tree"}
    assert "without a residual stream" in found.left_out["sparse"]
    assert set(optimum.optimum(optimum.read_source(plain), ["residual-tree"], 20).left_out) == {"residual-tree"}


# --- what cannot be ------------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_finished_target_are_refused(plain, tmp_path):
    with pytest.raises(MalformedInput, match="holds no checkpoint"):
        optimum.read_source(tmp_path)
    other = trained(tmp_path / "sparse", preset("parentheses/sparse/attention", "theory", **SMALL))
    with pytest.raises(MalformedInput, match="a run of host sparse"):
        optimum.read_source(other)
    saved, tensors = checkpoint.load(plain)

    def changed(**changes):
        identity = replace(saved.identity, preset=replace(saved.identity.preset, **changes))
        checkpoint.save(tmp_path, tensors, replace(saved, identity=identity))

    changed(steps=9)
    with pytest.raises(MalformedInput, match="6 of 9 steps; finish it first"):
        optimum.read_source(tmp_path)
    changed(m=5)
    with pytest.raises(MalformedInput, match="has another shape"):
        optimum.read_source(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "spares"], "host 'spares' is unknown"),
        (["--eval-sequences", "0"], "--eval-sequences"),
        (["--results", __file__], "is a file; name a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(plain, capsys, arguments, said):
    assert cli.run(["optimum", str(plain), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


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
    assert cli.run([*line, "--results", str(results)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "logits differ by at most" in shown
    assert cli.run(["tables", "--results", str(tmp_path / "training")]) == 0
    assert "What fixed hosts hold" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["tables", "--results", str(tmp_path / "training"), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["optimum"]
    assert list(line["hosts"]) == ["sparse"]
