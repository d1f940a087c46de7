"""What is trained, the optimiser, checkpoints to the bit, `utfproof train` and the sweep's jobs; and faults that break them."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from utfproof.cli import app as cli  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.ground.arrays import whole_products  # noqa: E402
from utfproof.training import checkpoint  # noqa: E402
from utfproof.training import run as runs  # noqa: E402
from utfproof.training.loop import Trainer, engine_name, learning_rate, parallel_seeds  # noqa: E402
from utfproof.training.models import build_model, host_of  # noqa: E402
from utfproof.training.presets import PRESETS, VARIANTS, Preset, preset  # noqa: E402
from utfproof.training.results import read_results  # noqa: E402

SMALL = {"batch": 4, "steps": 40, "warmup": 5, "learning_rate": 0.01, "init_std": 0.1, "heads": 2, "head_dim": 3}
NAME = "parentheses/random/attention"
RUN_CLI = """
import sys
from utfproof.cli import app
sys.exit(app.run(sys.argv[1:]))
"""


pytestmark = pytest.mark.usefixtures("one_thread")


def small(name: str = NAME, **changes) -> Preset:
    return preset(name, **{**SMALL, **changes})


def setting(folder: Path, **changes) -> runs.RunSetting:
    given = {"checkpoint_every": 10, "log_every": 5, "eval_sequences": 20, "results": None, "folder": folder}
    return runs.RunSetting(**{**given, **changes})


def command_line(*arguments: str) -> int:
    return cli.run(["train", *arguments])


# --- models -------------------------------------------------------------------------------------------------------------

VARIANT_TENSORS = {
    "attention": set(),
    "residual": set(),
    "residual-norm": {"gain", "shift"},
    "mlp": {"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"},
    "mlp-norm": {"gain", "shift", "mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"},
}


@pytest.mark.parametrize("variant", VARIANT_TENSORS)
@pytest.mark.parametrize("host", ["sparse", "random", "trained", "trained-own-width"])
def test_what_is_trained_and_what_is_frozen(host, variant):
    chosen = small(f"parentheses/{host}/{variant}")
    model = build_model(chosen, [0], 6, dtype="float64")
    extra = VARIANT_TENSORS[variant]
    own = {"trained": {"R_Q", "R_K", "R_V"}, "trained-own-width": {"W_Q", "W_K", "W_V", "W_O"}}.get(host, set())
    if own:
        assert set(model.trained) == {"E", "U"} | own | extra
        assert not model.frozen
    else:
        assert set(model.trained) == {"E", "U"}
        assert set(model.frozen) == extra - {"gain", "shift"}
    before = {name: tensor.clone() for name, tensor in {**model.frozen, **model.trained}.items()}
    held = Trainer(chosen, [0], dtype="float64")
    assert held.engine.name == ("shared" if "mlp" in variant else "paths")
    for _ in range(2):
        held.step()
    for name, tensor in held.model.frozen.items():
        assert torch.equal(tensor, before[name])
    for name, tensor in held.model.trained.items():
        assert not torch.equal(tensor, before[name]), name
    assert torch.isfinite(held.loss).all()


def test_initial_values_are_normal_and_the_same_whatever_runs_beside_them():
    chosen = small(init_std=0.02, m=500)
    alone, together = build_model(chosen, [4], 6), build_model(chosen, [3, 4], 6)
    for name in ("E", "U"):
        values = alone[name].detach()
        assert torch.equal(values[0], together[name][1].detach())
        assert float(values.std()) == pytest.approx(0.02, rel=0.1)
        assert abs(float(values.mean())) < 0.02 * 4 / math.sqrt(values.numel())
    assert not torch.equal(together["E"][0], together["E"][1])
    first, second = together.host(0), together.host(1)
    assert not (first.R_V == second.R_V).all()
    assert abs(first.R_V).max() <= 1 / math.sqrt(500)


def test_sparse_hosts_with_a_stream_beside_them_and_made_for_one_are_told_apart():
    plain, tree = preset("1-hop/sparse/residual"), preset("1-hop/residual-tree/residual")
    assert plain.m == 456
    assert tree.m > plain.m
    assert not host_of(plain, 0).shape.residual
    assert host_of(tree, 0).shape.residual


def test_every_preset_has_an_engine():
    for chosen in PRESETS.values():
        assert engine_name(chosen, "auto") == ("shared" if chosen.mlp else "paths")
    learned = {variant: preset(f"1-hop/sparse/{variant}", positions="learned") for variant in VARIANTS}
    chosen = {variant: engine_name(found, "auto") for variant, found in learned.items()}
    assert chosen == {v: "paths" if v in ("attention", "residual") else "wide" for v in VARIANTS}
    assert not parallel_seeds(PRESETS["1-hop/random/attention"], "cpu", "auto")
    assert parallel_seeds(PRESETS["1-hop/random/attention"], "cuda", "auto")
    assert not parallel_seeds(PRESETS["1-hop/random/mlp"], "cuda", "auto")


# --- the optimiser --------------------------------------------------------------------------------------------------------


def test_learning_rate_rises_and_falls_linearly():
    chosen = small(steps=20, warmup=4, learning_rate=1.0)
    rates = [learning_rate(chosen, step) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    steps = [a - b for a, b in itertools.pairwise(rates[4:])]
    assert all(step == pytest.approx(1 / 16) for step in steps)
    assert rates[-1] == pytest.approx(1 / 16)
    assert learning_rate(replace(chosen, steps=2), 1) == 0.5
    flat, cosine = replace(chosen, decay="constant"), replace(chosen, decay="cosine")
    assert [learning_rate(flat, step) for step in (3, 10, 19)] == [1, 1, 1]
    assert [learning_rate(cosine, step) for step in (1, 4, 12, 20)] == pytest.approx([0.5, 1, 0.5, 0])


def test_evaluation_counts_what_is_scored():
    held = Trainer(small("2-hop/random/attention"), [0], dtype="float64")
    scores = held.evaluate(300)  # two batches, the second smaller
    assert scores == held.evaluate(300)
    right = scored = answers = asked = 0
    from utfproof.training.task import seeded

    for number, size in enumerate((256, 44)):
        batch = held.task.batch(size, seeded(0, "evaluation", number, "cpu"))
        hit = held.engine.logits(batch.inputs[None])[0].argmax(-1) == batch.targets
        right, scored = right + int((hit & batch.scored).sum()), scored + int(batch.scored.sum())
        answers, asked = answers + int((hit & batch.scored_answers).sum()), asked + int(batch.scored_answers.sum())
    assert scores.accuracy == [right / scored]
    assert scores.answers == [answers / asked]


def test_a_few_steps_learn_something():
    held = Trainer(small("2-hop/sparse/attention", steps=60, batch=16, layers=1), [0])
    losses = []
    for _ in range(60):
        held.step()
        losses.append(float(held.loss))
    assert losses[-1] < losses[0] - 1


# --- to the bit -----------------------------------------------------------------------------------------------------------


def outcome(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """The log, and every tensor of the last checkpoint, as bytes."""
    found = checkpoint.load(folder)
    assert found is not None
    return (folder / runs.LOG).read_bytes(), {name: t.numpy().tobytes() for name, t in found[1].items()}


def stop_after(steps: int, chosen: Preset, folder: Path, **changes) -> None:
    """Run until this step, and no further, as if killed."""

    class Killed(Exception):
        pass

    def kill(tick):
        if tick.done == steps:
            raise Killed

    with pytest.raises(Killed):
        runs.run(chosen, [1], setting(folder, **changes), kill)


@pytest.mark.full
@pytest.mark.parametrize("name", [NAME, "parentheses/sparse/mlp-norm", "1-hop/trained/residual"])
@pytest.mark.parametrize("stop", [7, 23])
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path, name, stop):
    chosen = small(name, layers=1)
    runs.run(chosen, [1], setting(tmp_path / "whole"))
    stop_after(stop, chosen, tmp_path / "parts")
    result = runs.run(chosen, [1], setting(tmp_path / "parts"))[0]
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    again = runs.run(chosen, [1], setting(tmp_path / "whole"))[0]  # nothing left to do: evaluated only
    assert replace(again, seconds=0) == replace(result, seconds=0)


def forgetful(self, tensors, restore=Trainer.restore):
    """The optimizer's state is dropped."""
    held = self.tensors()
    restore(self, {name: t if name.startswith("parameter") else held[name].clone() for name, t in tensors.items()})


def drawn_anew(self, step, batch=Trainer.batch):
    """As if the state of the random numbers were not restored: the stream of batches starts over."""
    return batch(self, step - 20)


def not_cut_back(self, path, size, header, init=runs._Log.__init__):
    """The log has a line for step 25, the checkpoint is of step 20."""
    init(self, path, path.stat().st_size if path.exists() else size, header)


@pytest.mark.parametrize(
    ("owner", "name", "fault", "stop"),
    [
        (Trainer, "restore", forgetful, 23),
        (Trainer, "batch", drawn_anew, 23),
        (runs._Log, "__init__", not_cut_back, 27),
    ],
)
def test_a_run_that_goes_on_wrongly_is_seen(tmp_path, monkeypatch, owner, name, fault, stop):
    chosen = small()
    runs.run(chosen, [1], setting(tmp_path / "whole"))
    stop_after(stop, chosen, tmp_path / "parts")
    monkeypatch.setattr(owner, name, fault)
    runs.run(chosen, [1], setting(tmp_path / "parts"))
    assert outcome(tmp_path / "parts")[0] != outcome(tmp_path / "whole")[0]


@pytest.mark.full
def test_a_killed_process_goes_on_to_the_bit(tmp_path):
    """kill -9 of `utfproof train`, and the same command again."""
    arguments = ["train", NAME, "--steps", "150", "--batch", "4", "--seed", "1", "--threads", "1", "--set", "m=60"]
    arguments += ["--eval-sequences", "20", "--log-every", "5", "--checkpoint-every", "10", "--json"]

    def where(name):
        return ["--results", str(tmp_path / name), "-o", str(tmp_path / name / "run")]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_CLI, *arguments, *where("parts")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = tmp_path / "parts" / "run" / checkpoint.DOCUMENT
    deadline = time.monotonic() + 600
    while not seen.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    assert 0 < json.loads(seen.read_bytes())["step"] < 150
    for name in ("parts", "whole"):
        assert command_line(*arguments[1:], *where(name)) == 0
    assert outcome(tmp_path / "parts" / "run") == outcome(tmp_path / "whole" / "run")
    (first,), (second,) = (read_results(tmp_path / name) for name in ("parts", "whole"))
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert first.steps == 150
    assert not first.complete


def test_ctrl_c_leaves_a_checkpoint_and_one_line(tmp_path, monkeypatch, capsys):
    arguments = [NAME, "--steps", "30", "--batch", "4", "--set", "m=60", "--eval-sequences", "20", "--log-every", "5"]
    arguments += ["--results", str(tmp_path / "results"), "-o", str(tmp_path / "run")]
    step = Trainer.step

    def interrupted(self):
        step(self)
        if self.done == 13:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert command_line(*arguments) == 130
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "after step 13" in lines[0]
    monkeypatch.undo()
    assert json.loads((tmp_path / "run" / checkpoint.DOCUMENT).read_bytes())["step"] == 13
    assert not (tmp_path / "results").exists()
    assert command_line(*arguments) == 0
    runs.run(preset(NAME, steps=30, batch=4, m=60), [0], setting(tmp_path / "whole", checkpoint_every=1000))
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_ctrl_c_is_heard_until_the_result_is_there(tmp_path, monkeypatch):
    """After the last step, and while the result is measured: no further seed is begun, and nothing is done twice."""
    step, evaluate = Trainer.step, Trainer.evaluate

    def interrupted(self, *arguments, function, at):
        found = function(self, *arguments)
        if self.done == at:
            signal.raise_signal(signal.SIGINT)
        return found

    given = setting(None, runs=tmp_path / "runs", results=tmp_path / "results")
    for name, function in (("step", step), ("evaluate", evaluate)):
        monkeypatch.setattr(Trainer, name, partialmethod(interrupted, function=function, at=40))
        with pytest.raises(runs.Interrupted, match="after step 40"):
            runs.run(small(), [0, 1], given)
        monkeypatch.undo()
        assert [path.name.split("-")[-2] for path in (tmp_path / "runs").iterdir()] == ["seed0"]
        assert not (tmp_path / "results").exists()
    assert [result.seed for result in runs.run(small(), [0, 1], given)] == [0, 1]


@pytest.mark.parametrize("fixed", [False, True])
def test_a_batch_is_scored_where_its_loss_does_not_look_either(fixed):
    chosen = small("2-hop/sparse/attention", length=3, loss="answer", init_std=0.3)
    held = Trainer(chosen, [3], engine="paths", fixed=fixed)
    batch = held.batch(0)
    assert batch.scored.sum() == 2 * batch.loss_mask.sum()
    said = held.engine.logits(batch.inputs).argmax(-1)
    batch.targets[...] = said
    batch.targets[..., 1] = (said[..., 1] + 1) % 30
    held.update(batch)
    assert held.accuracy == 0.5


# --- runs and results -------------------------------------------------------------------------------------------------------


def test_runs_are_not_repeated_and_brief_ones_are_marked(tmp_path):
    chosen = small()
    given = setting(None, runs=tmp_path / "runs", results=tmp_path / "results")
    first = runs.run(chosen, [0, 1], given)
    assert [result.seed for result in first] == [0, 1]
    assert not any(result.complete for result in first)
    assert [point[0] for point in first[0].curve] == list(range(5, 41, 5))
    ticks = []
    assert runs.run(chosen, [0, 1], given, ticks.append) == first
    assert not ticks
    runs.run(chosen, [0, 1, 2], given, ticks.append)
    assert {tick.seeds for tick in ticks} == {(2,)}
    assert len(read_results(tmp_path / "results")) == 3
    with pytest.raises(MalformedInput, match="RUNDIR of its own"):
        runs.run(chosen, [5, 6], setting(tmp_path / "one"))


def test_seeds_together_give_a_result_each(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "parallel_seeds", lambda *_: True)
    both = runs.run(small(), [0, 1], setting(tmp_path / "both", dtype="float64"))
    monkeypatch.undo()
    for result in both:
        (alone,) = runs.run(small(), [result.seed], setting(tmp_path / f"seed {result.seed}", dtype="float64"))
        assert alone.loss == pytest.approx(result.loss, rel=1e-9)
        assert alone.accuracy == result.accuracy


def test_a_folder_of_another_run_is_refused(tmp_path):
    runs.run(small(steps=10), [1], setting(tmp_path))
    with pytest.raises(MalformedInput, match="learning_rate differs"):
        runs.run(small(steps=10, learning_rate=0.02), [1], setting(tmp_path))
    with pytest.raises(MalformedInput, match="seeds differs"):
        runs.run(small(steps=10), [2], setting(tmp_path))


def test_one_process_at_a_time_goes_on_with_a_run(tmp_path):
    from utfproof.ground.files import require_alone

    (tmp_path / runs.LOG).write_bytes(b"")
    with open(tmp_path / runs.LOG, "rb") as held:
        require_alone(held, "free")
        with pytest.raises(MalformedInput, match="another process goes on with the run in"):
            runs.run(small(steps=10), [1], setting(tmp_path))
    assert len(runs.run(small(steps=10), [1], setting(tmp_path))) == 1


def test_damaged_checkpoints_are_refused(tmp_path):
    runs.run(small(steps=10), [1], setting(tmp_path))
    document = json.loads((tmp_path / checkpoint.DOCUMENT).read_bytes())
    tensors = tmp_path / document["tensors"]
    content = tensors.read_bytes()
    tensors.write_bytes(content[:200])
    with pytest.raises(MalformedInput, match="is damaged: its SHA-256"):
        runs.run(small(steps=10), [1], setting(tmp_path))
    old = {name: value for name, value in document.items() if name != "sha256"}  # of a version without it
    (tmp_path / checkpoint.DOCUMENT).write_text(json.dumps(old))
    with pytest.raises(MalformedInput, match="cannot read the checkpoint"):
        runs.run(small(steps=10), [1], setting(tmp_path))
    tensors.write_bytes(content)
    (tmp_path / checkpoint.DOCUMENT).write_text(json.dumps({**document, "step": 5}))
    with pytest.raises(MalformedInput, match="does not belong to step 5"):
        runs.run(small(steps=10), [1], setting(tmp_path))
    (tmp_path / checkpoint.DOCUMENT).write_text("{")
    with pytest.raises(MalformedInput, match="no checkpoint"):
        runs.run(small(steps=10), [1], setting(tmp_path))
    for name, wrong in (("identity", None), ("identity", 3), ("log_bytes", "4"), ("seconds", None)):
        damaged = {**document, name: wrong} if wrong is not None else {k: v for k, v in document.items() if k != name}
        (tmp_path / checkpoint.DOCUMENT).write_text(json.dumps(damaged))
        with pytest.raises(MalformedInput, match=f"{name} is missing or wrong"):
            runs.run(small(steps=10), [1], setting(tmp_path))
    (tmp_path / checkpoint.DOCUMENT).write_text(json.dumps(document))
    tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(MalformedInput, match="is damaged: its SHA-256"):
        runs.run(small(steps=10), [1], setting(tmp_path))
    tensors.write_bytes(content)
    log = (tmp_path / runs.LOG).read_bytes()
    for right, wrong in ((b'"step": ', b'"step"? '), (b'"step"', b'"stop"'), (b'"step": 5', b'"step": ""')):
        (tmp_path / runs.LOG).write_bytes(log.replace(right, wrong))
        with pytest.raises(MalformedInput, match="has a damaged line"):
            runs.run(small(steps=10), [1], setting(tmp_path))
    (tmp_path / runs.LOG).write_bytes(b"")
    with pytest.raises(MalformedInput, match="shorter than its checkpoint"):
        runs.run(small(steps=10), [1], setting(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([NAME, "--set", "seed=3"], "train` has --seed"),
        ([NAME, "--set", "residual=2"], "residual is true or false, got 2"),
        ([NAME, "--set", "norm=yes"], "norm is true or false, got 'yes'"),
        (["parentheses/sparse/attentoin"], "near: parentheses/sparse/attention"),
        ([NAME, "--set", "nonsense"], "NAME=VALUE"),
        ([NAME, "--set", "mm=3"], "no field mm"),
        ([NAME, "--set", "m=60", "--set", "m=61"], "--set names m twice"),
        ([NAME, "--learning-rate", "1", "--set", "learning_rate=2"], "named by --learning-rate and by --set"),
        ([NAME, "--engine", "narrow"], "engine 'narrow'"),
        (["parentheses/sparse/mlp", "--engine", "paths"], "not linear"),
        ([NAME, "--device", "cuda:7"], "cuda"),
        ([NAME, "--dtype", "float8"], "dtype"),
        ([NAME, "--dtype", "tf32"], "dtype tf32 is a GPU's; on device 'cpu' choose float32"),
        ([NAME, "--seeds", "0"], "--seeds"),
        ([NAME, "--checkpoint-every", "0"], "checkpoint_every"),
        ([NAME, "--set", "host=shared-key", "--set", "m=3"], "m >= "),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert command_line(*arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert said in lines[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["4-hop/sparse/attention", "--set", "layers=60"],
        ["parentheses/sparse/attention", "--set", "layers=25"],
        ["parentheses/sparse/attention", "--batch", "1000000000000"],
    ],
)
def test_what_no_memory_holds_is_one_line_and_exit_3(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert command_line(*arguments) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "E and U at m = " in line
    assert not list(tmp_path.iterdir())


def test_train_speaks_to_people_and_machines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["2-hop/sparse/attention", "--steps", "4", "--batch", "2", "--set", "m=400", "--set", "head_dim=3"]
    arguments += ["--eval-sequences", "10", "--seeds", "2"]
    assert command_line(*arguments) == 0
    said = capsys.readouterr().out
    assert "a brief run" in said
    assert "over 2 seeds" in said
    assert command_line(*arguments, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    assert len(list((tmp_path / "results" / "training").glob("*.json"))) == 2


def test_a_panel_of_the_scaling_figure_is_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["train", "2-hop/random/attention", "--scaling", "Hd", "--set", "length=6", "--set", "layers=1"]
    line += ["--steps", "1", "--batch", "2", "--eval-sequences", "2", "--results", "r", "--threads", "1", "--json"]
    assert cli.run(line) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["preset"]["m"] for point in points] == [56, 112, 224, 448, 1024]
    assert len(list((tmp_path / "r").glob("*.json"))) == 5
    assert cli.run([*line, "-o", "here"]) == 2
    assert "leave out -o" in capsys.readouterr().err
    assert cli.run([*line[:3], "width"]) == 2
    assert "choose m-bar, Hd, ratio, all" in capsys.readouterr().err


def test_a_sweep_can_train(tmp_path):
    from utfproof.jobs.job import Context
    from utfproof.jobs.parameters import keys
    from utfproof.jobs.train import Train

    given = {name: None if p.default is ... else p.default for name, p in keys(Train).items()}
    given |= {"preset": NAME, "steps": 5, "batch": 2, "eval_sequences": 10}
    ((parameters, files),) = Train.prepared(given, tmp_path)
    assert parameters["m"] == PRESETS[NAME].m
    assert parameters["engine"] == "paths"
    assert not files
    first, logs = Train.of(parameters).found(Context("key"))
    assert first["verdict"].startswith("accuracy 0.")
    assert "seconds" not in first
    assert Train.of(parameters).found(Context("key")) == (first, logs)
    assert list(logs) == ["key.jsonl"]
    with pytest.raises(MalformedInput, match="unknown"):
        list(Train.prepared({**parameters, "preset": "parentheses"}, tmp_path))


def test_the_default_law_of_linear_layers_is_the_one_that_is_claimed():
    """sec:experiments/initialisation, against torch itself: all weights within the bound, and up to it."""
    from utfproof.claims.checks.experiments_said import linear_bound_squared

    for m in (456, 1024):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            weights = torch.nn.Linear(m, 500).weight
        largest = float(weights.detach().abs().max())
        assert 0.999 < largest / float(linear_bound_squared(m)) ** 0.5 <= 1 + 1e-6


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_tf32_only_where_asked(monkeypatch, dtype):
    """In steps and in the evaluation, whatever the process has set, which is as before afterwards."""
    flags, seen = torch.backends.cuda.matmul, []
    held = Trainer(small("2-hop/random/attention"), [0])
    held.dtype = dtype
    look = held.look
    monkeypatch.setattr(held, "look", lambda batch: (seen.append(flags.allow_tf32), look(batch))[1])
    with whole_products(tf32=dtype != "tf32"):
        held.step()
        held.evaluate(3)
        assert flags.allow_tf32 == (dtype != "tf32")
    assert seen == [dtype == "tf32"] * 2


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9 has one name for it"
)
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("new", ["none", "ieee", "tf32"])
def test_whole_products_where_a_process_uses_torchs_newer_name(old, new):
    """Both names set, torch refuses to read the old one: inside, products are as asked; afterwards, as the newer name says."""
    flags, shared = torch.backends.cuda.matmul, torch.backends
    try:
        flags.allow_tf32, shared.fp32_precision, flags.fp32_precision = old, "tf32", new
        before = flags.fp32_precision
        for tf32, word in ((False, "ieee"), (True, "tf32")):
            with whole_products(tf32=tf32):
                assert (flags.allow_tf32, flags.fp32_precision) == (tf32, word)
            assert flags.fp32_precision == before
    finally:
        flags.allow_tf32 = False
        shared.fp32_precision = flags.fp32_precision = "none"
