"""Runs of `utfproof train`: checkpoints bit for bit, early stopping, refusals, sweeps; and faults that break them."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partialmethod
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save as to_bytes  # noqa: E402

from utfproof.cli import app as cli  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training import checkpoint  # noqa: E402
from utfproof.training import loop as runs  # noqa: E402
from utfproof.training.model import build_model  # noqa: E402
from utfproof.training.presets import Preset, preset  # noqa: E402
from utfproof.training.results import read_results  # noqa: E402
from utfproof.training.step import Trainer, learning_rate  # noqa: E402
from utfproof.util import files  # noqa: E402
from utfproof.util.arrays import whole_products  # noqa: E402

SMALL = {"batch": 4, "steps": 40, "warmup": 5, "learning_rate": 0.01, "init_std": 0.1, "heads": 2, "head_dim": 3}
NAME = "parentheses/random/attention"
RUN_CLI = "import sys; from utfproof.cli import app; sys.exit(app.run(sys.argv[1:]))"
pytestmark = pytest.mark.usefixtures("one_thread")


def small(name: str = NAME, **changes) -> Preset:
    return preset(name, **{**SMALL, **changes})


def setting(folder: Path | None, **changes) -> runs.RunSetting:
    given = {"checkpoint_every": 10, "log_every": 5, "eval_sequences": 20, "results": None, "folder": folder}
    return runs.RunSetting(**{**given, **changes})


def run_one(folder: Path | None, chosen: Preset | None = None, seed: int = 1, **changes):
    return runs.run(chosen or small(), [seed], setting(folder, **changes))[0]


def command_line(*arguments: str) -> int:
    return cli.run(["train", *arguments])


def refused(capsys, *arguments, code: int = 2) -> str:
    """The one line of a command that exits with this code."""
    assert cli.run([str(argument) for argument in arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    return line


# --- models and steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["sparse", "random", "trained", "trained-own-width"])
def test_what_is_trained(host):
    model = build_model(small(f"parentheses/{host}/mlp-norm"), 0, 62)
    whole = {"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias", "gain", "shift"}
    own = {"trained": {"R_Q", "R_K", "R_V"}, "trained-own-width": {"W_Q", "W_K", "W_V", "W_O"}}.get(host)
    assert set(model.trained) == {"E", "U", "P"} | (whole | own if own else set())
    assert set(model.frozen) == (set() if own else whole - {"gain", "shift"})
    assert model["P"].shape == (62, model.preset.m)
    assert float(build_model(preset("2-hop/sparse/attention"), 3, 99)["E"].detach().std()) == pytest.approx(
        0.02, rel=0.03
    )


def test_learning_rate_rises_and_falls_linearly():
    chosen = small(steps=20, warmup=4, learning_rate=1.0)
    rates = [learning_rate(chosen, step) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == [(20 - step) / 16 for step in range(4, 20)]
    assert learning_rate(replace(chosen, decay="constant"), 19) == 1.0
    assert learning_rate(replace(chosen, decay="cosine"), 12) == pytest.approx(0.5)


def test_a_batch_is_scored_where_its_loss_does_not_look_either():
    chosen = small("2-hop/sparse/attention", length=3, loss="answer", init_std=0.3)
    held = Trainer(chosen, 3)
    batch = held.batch(0)
    said = held.engine.logits(batch.inputs).argmax(-1)
    batch.targets[...] = said
    batch.targets[:, 1] = (said[:, 1] + 1) % 30
    held.update(batch)
    assert held.accuracy == 0.5


def test_a_few_steps_learn_something():
    held, losses = Trainer(small("1-hop/sparse/residual-norm", length=8, steps=60), 0), []
    for _ in range(60):
        held.step()
        losses.append(float(held.loss))
    assert losses[-1] < losses[0] - 1


# --- bit for bit ------------------------------------------------------------------------------------------------------


def outcome(folder: Path) -> tuple[list[dict[str, float]], dict[str, bytes]]:
    """The log, and every tensor of the last checkpoint as bytes."""
    found = checkpoint.load(folder)
    assert found is not None
    return found[0].points, {name: t.numpy().tobytes() for name, t in found[1].items()}


def stop_after(steps: int, chosen: Preset, folder: Path) -> None:
    """Run until this step, and no further, as if killed."""

    class Killed(Exception):
        pass

    def kill(tick):
        if tick.done == steps:
            raise Killed

    with pytest.raises(Killed):
        runs.run(chosen, [1], setting(folder), kill)


@pytest.mark.full
@pytest.mark.parametrize("name", [NAME, "parentheses/sparse/mlp-norm", "1-hop/trained/residual"])
@pytest.mark.parametrize("stop", [7, 23])
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path, name, stop):
    chosen = small(name, layers=1)
    run_one(tmp_path / "whole", chosen)
    stop_after(stop, chosen, tmp_path / "parts")
    result = run_one(tmp_path / "parts", chosen)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    again = run_one(tmp_path / "whole", chosen)  # nothing left to do: evaluated only
    assert replace(again, seconds=0) == replace(result, seconds=0)


def forgetful(self, tensors, restore=Trainer.restore):
    """The optimiser's state is dropped."""
    held = self.tensors()
    restore(self, {name: t if name.startswith("parameter") else held[name].clone() for name, t in tensors.items()})


def log_lost(folder, load=checkpoint.load):
    """The log of the steps before the checkpoint is dropped."""
    found = load(folder)
    return found and (replace(found[0], points=[]), found[1])


@pytest.mark.parametrize(
    ("owner", "name", "fault", "stop"),
    [
        (Trainer, "restore", forgetful, 23),
        (Trainer, "batch", lambda self, step, batch=Trainer.batch: batch(self, step - 20), 23),
        (runs.checkpoint, "load", log_lost, 27),
    ],
    ids=["moments dropped", "batches start over", "log lost"],
)
def test_a_run_that_goes_on_wrongly_is_seen(tmp_path, monkeypatch, owner, name, fault, stop):
    run_one(tmp_path / "whole")
    stop_after(stop, small(), tmp_path / "parts")
    monkeypatch.setattr(owner, name, fault)
    run_one(tmp_path / "parts")
    monkeypatch.undo()
    assert outcome(tmp_path / "parts")[0] != outcome(tmp_path / "whole")[0]


@pytest.mark.full
def test_a_killed_process_goes_on_to_the_bit(tmp_path):
    """kill -9 of `utfproof train`, and the same command again."""
    arguments = ["train", NAME, "--steps", "150", "--batch", "4", "--seed", "1", "--threads", "1", "--set", "m=60"]
    arguments += ["--eval-sequences", "20", "--log-every", "5", "--checkpoint-every", "10", "--json"]

    def where(name):
        return ["--results", str(tmp_path / name), "-o", str(tmp_path / name / "run")]

    process = subprocess.Popen(
        [sys.executable, "-c", RUN_CLI, *arguments, *where("parts")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = tmp_path / "parts" / "run" / checkpoint.NAME
    deadline = time.monotonic() + 600
    while not seen.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    assert 0 < checkpoint.load(seen.parent)[0].step < 150
    for name in ("parts", "whole"):
        assert command_line(*arguments[1:], *where(name)) == 0
    assert outcome(tmp_path / "parts" / "run") == outcome(tmp_path / "whole" / "run")
    (first,), (second,) = (read_results(tmp_path / name) for name in ("parts", "whole"))
    assert replace(first, seconds=0) == replace(second, seconds=0)


def test_ctrl_c_leaves_a_checkpoint_and_one_line(tmp_path, monkeypatch, capsys):
    arguments = [NAME, "--steps", "30", "--batch", "4", "--set", "m=60", "--eval-sequences", "20", "--log-every", "5"]
    arguments += ["--results", str(tmp_path / "results"), "-o", str(tmp_path / "run")]
    step = Trainer.step

    def interrupted(self):
        step(self)
        if self.done == 13:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert "after step 13" in refused(capsys, "train", *arguments, code=130)
    monkeypatch.undo()
    assert not list(tmp_path.rglob("results/**/*.json"))
    assert command_line(*arguments) == 0
    run_one(tmp_path / "whole", preset(NAME, steps=30, batch=4, m=60), 0, checkpoint_every=1000)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_ctrl_c_is_heard_until_the_result_is_there(tmp_path, monkeypatch):
    """After the last step, and while the result is measured: no further seed is begun, and nothing is done twice."""

    def interrupted(self, *arguments, function, at):
        found = function(self, *arguments)
        if self.done == at:
            signal.raise_signal(signal.SIGINT)
        return found

    given = setting(None, runs=tmp_path / "runs", results=tmp_path / "results")
    for name, function in (("step", Trainer.step), ("evaluate", Trainer.evaluate)):
        monkeypatch.setattr(Trainer, name, partialmethod(interrupted, function=function, at=40))
        with pytest.raises(runs.Interrupted, match="after step 40"):
            runs.run(small(), [0, 1], given)
        monkeypatch.undo()
        assert len(list((tmp_path / "runs").iterdir())) == 1
        assert not list(tmp_path.rglob("results/**/*.json"))
    assert [result.seed for result in runs.run(small(), [0, 1], given)] == [0, 1]


@pytest.mark.parametrize("host", ["sparse", "random"])
def test_seeds_together_end_as_each_alone(tmp_path, host):
    chosen, seeds = small(f"1-hop/{host}/residual-norm", length=8, steps=12), [3, 4, 5]
    ends = {}
    for together in (1, 2):
        given = setting(None, runs=tmp_path / str(together), together=together)
        found = runs.run(chosen, seeds, given)
        assert [result.seed for result in found] == seeds
        folders = [given.folder_of(chosen, seed) for seed in seeds]
        ends[together] = [replace(result, seconds=0) for result in found], [outcome(folder) for folder in folders]
    assert ends[1] == ends[2]
    assert len({result.loss for result in ends[1][0]}) == 3


def test_ctrl_c_leaves_a_checkpoint_of_every_seed(tmp_path, monkeypatch):
    step, given = Trainer.step, setting(None, runs=tmp_path, together=2)

    def interrupted(self):
        step(self)
        if (self.seed, self.done) == (1, 7):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", interrupted)
    with pytest.raises(runs.Interrupted):
        runs.run(small(), [1, 2, 3], given)
    monkeypatch.undo()
    assert [checkpoint.load(given.folder_of(small(), seed))[0].step for seed in (1, 2)] == [7, 7]
    assert not given.folder_of(small(), 3).exists()


# --- early stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [None, 13])
def test_three_evaluations_in_a_row_at_100_percent_stop_a_run(tmp_path, monkeypatch, stop):
    """At steps 2, 4, ... the accuracy is 1, 1, 0.9, 1, 0.9996, 1: the run ends at step 12, also when it was resumed."""
    values, real = [1, 1, 0.9, 1, 0.9996, 1], Trainer.evaluate

    def evaluate(self, sequences):
        found = real(self, 20)
        return found._replace(accuracy=values[self.done // 2 - 1]) if sequences == runs.STOPPING_SEQUENCES else found

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    chosen = small(steps=40)
    result = run_one(tmp_path, chosen, evaluate_every=2)
    assert (result.steps, result.stopped_early) == (12, True)
    again = run_one(tmp_path, chosen, evaluate_every=2)
    assert replace(again, seconds=0) == replace(result, seconds=0)


# --- runs and results ---------------------------------------------------------------------------------------------------


def test_runs_are_not_repeated_and_brief_ones_are_marked(tmp_path):
    given = setting(None, runs=tmp_path / "runs", results=tmp_path / "results")
    first = runs.run(small(), [0, 1], given)
    assert [(result.seed, result.preset.setting, result.complete) for result in first] == [
        (s, "paper", False) for s in (0, 1)
    ]
    assert [point[0] for point in first[0].curve] == list(range(5, 41, 5))
    ticks = []
    assert runs.run(small(), [0, 1], given, ticks.append) == first
    assert not ticks
    runs.run(small(), [0, 1, 2], given, ticks.append)
    assert {tick.seed for tick in ticks} == {2}
    assert len(read_results(tmp_path / "results")) == 3
    with pytest.raises(MalformedInput, match="a RUNDIR each"):
        runs.run(small(), [5, 6], setting(tmp_path / "one"))


def test_a_folder_of_another_run_is_refused(tmp_path):
    run_one(tmp_path, small(steps=10))
    with pytest.raises(MalformedInput, match="learning_rate differs"):
        run_one(tmp_path, small(steps=10, learning_rate=0.02))
    with pytest.raises(MalformedInput, match="seed differs"):
        run_one(tmp_path, small(steps=10), 2)
    with open(tmp_path / runs.LOCK, "rb") as held:
        files.require_alone(held, "free")
        with pytest.raises(MalformedInput, match="another process continues the run in"):
            run_one(tmp_path, small(steps=10))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": None}, "identity"),
        ({"identity": {"preset": "text"}}, "identity.preset"),
        ({"seconds": True}, "seconds"),
        ({"step": 2.5}, "step"),
        ({"step": -1}, "step"),
        ({"points": [{"step": ""}]}, "points.0.step"),
    ],
    ids=str,
)
def test_a_damaged_checkpoint_is_refused(tmp_path, change, said):
    run_one(tmp_path, small(steps=2))
    saved, tensors = checkpoint.load(tmp_path)
    text = json.dumps({**asdict(saved), **change})
    (tmp_path / checkpoint.NAME).write_bytes(to_bytes(tensors, metadata={"run": text}))
    with pytest.raises(MalformedInput, match=said):
        run_one(tmp_path, small(steps=2))
    path = tmp_path / checkpoint.NAME
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(MalformedInput, match="is no checkpoint"):
        run_one(tmp_path, small(steps=2))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([NAME, "--set", "seed=3"], "train` has --seed"),
        ([NAME, "--set", "residual=2"], "residual should be a valid boolean, got 2"),
        (["parentheses/sparse/attentoin"], "near: parentheses/sparse/attention"),
        ([NAME, "--set", "nonsense"], "NAME=VALUE"),
        ([NAME, "--set", "mm=3"], "no field mm"),
        ([NAME, "--set", "m=60", "--set", "m=61"], "--set names m twice"),
        ([NAME, "--batch", "1", "--set", "batch=2"], "named by --batch and by --set"),
        ([NAME, "--engine", "narrow"], "engine 'narrow'"),
        ([NAME, "--engine", "paths"], "use --engine wide"),
        ([NAME, "--setting", "practice"], "choose paper, theory"),
        ([NAME, "--device", "cuda:7"], "cuda"),
        ([NAME, "--dtype", "float8"], "dtype"),
        ([NAME, "--dtype", "tf32"], "dtype tf32 needs a GPU; on device 'cpu' choose float32"),
        ([NAME, "--checkpoint-every", "0"], "--checkpoint-every"),
        ([NAME, "--set", "host=shared-key", "--set", "m=3"], "m >= "),
        ([NAME, "-o", "x" * 300], os.strerror(errno.ENAMETOOLONG)),
        (
            [NAME, "--steps", "2", "--batch", "2", "--results", "/dev/null/results"],
            "cannot make folder /dev/null/results",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "train", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_wrong_name_is_refused_without_pytorch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "near: 1-hop/sparse/attention" in refused(capsys, "train", "1-hop/sparce/attention")


@pytest.mark.parametrize(
    "arguments",
    [["4-hop/sparse/attention", "--set", "layers=60"], ["parentheses/sparse/attention", "--batch", "1000000000000"]],
)
def test_what_no_memory_holds_is_one_line_and_exit_3(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert "memory" in refused(capsys, "train", *arguments, code=3)


def test_a_loss_that_is_not_finite_ends_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "train", NAME, "--steps", 3, "--batch", 2, "--set", "init_std=1e30", "--set", "m=60", code=1)
    assert "is not finite after step" in line
    assert not list(tmp_path.rglob("results/**/*.json"))


def test_train_speaks_to_people_and_machines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["2-hop/sparse/attention", "--steps", "4", "--batch", "2", "--set", "m=400", "--set", "head_dim=3"]
    arguments += ["--seeds", "2", "--eval-sequences", "10", "--log-every", "1"]
    assert command_line(*arguments, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [(run["seed"], run["setting"]) for run in document["runs"]] == [(0, "paper"), (1, "paper")]
    assert command_line(*arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a brief run" in shown
    assert "paper, positions learned" in shown
    assert "sparse-front" in shown
    assert "over 2 seeds" in shown
    assert len(list((tmp_path / "results" / "training").glob("paper-*.json"))) == 2


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_tf32_only_where_asked(monkeypatch, dtype):
    """In steps and in the evaluation, whatever the process has set, which is as before afterwards."""
    flags, seen = torch.backends.cuda.matmul, []
    held = Trainer(small("2-hop/random/attention", length=8), 0)
    held.dtype = dtype
    outcomes = held.outcomes
    monkeypatch.setattr(held, "outcomes", lambda batch: (seen.append(flags.allow_tf32), outcomes(batch))[1])
    with whole_products(tf32=dtype != "tf32"):
        held.step()
        held.evaluate(3)
        assert flags.allow_tf32 == (dtype != "tf32")
    assert set(seen) == {dtype == "tf32"}


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: x")]
)
def test_a_device_without_memory_is_exit_3(tmp_path, monkeypatch, capsys, error):
    def fail(_):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "step", fail)
    assert refused(capsys, "train", NAME, "--steps", 2, "--batch", 2, code=3).startswith("utfproof: out of memory")
