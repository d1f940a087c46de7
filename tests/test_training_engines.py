"""Both engines against training steps that were written from the paper's text alone: losses, gradients, parameters."""

from dataclasses import replace

import numpy as np
import own_steps
import pytest
from tiers import full_where

torch = pytest.importorskip("torch")

from utfproof.attention import SoftmaxAttention  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.ground.selection import Partition, SelectionMatrix  # noqa: E402
from utfproof.training import model as models  # noqa: E402
from utfproof.training import paths, wide  # noqa: E402
from utfproof.training.model import copied_runs, dense, target_of  # noqa: E402
from utfproof.training.presets import HOSTS, VARIANTS, preset  # noqa: E402
from utfproof.training.step import Trainer, engine_name, looked_at  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
WITHIN = 1e-12
SMALL = {"batch": 3, "steps": 9, "warmup": 2, "learning_rate": 1e-3, "init_std": 0.3, "heads": 2, "length": 7}
MODELS = HOSTS[:4]
CASES = [
    *((f"parentheses/{host}/{v}", s, {}) for s in ("paper", "theory") for host in MODELS for v in VARIANTS),
    *((f"parentheses/{host}/attention", "theory", {"head_dim": 5}) for host in ("shared-key", "shared-query")),
    *(("parentheses/residual-tree/residual", "theory", {"norm": norm}) for norm in (False, True)),
    *((f"3-hop/{host}/{v}", "paper", {"layers": 3, "length": 12}) for host in MODELS[:3] for v in VARIANTS),
    *((f"3-hop/{host}/residual", "theory", {"layers": 3, "length": 12}) for host in MODELS[:3]),
    ("1-hop/sparse/residual", "theory", {"layers": 1, "length": 12}),
    ("parentheses/random/residual-norm", "paper", {"norm_gain": True}),
    ("parentheses/sparse/mlp-norm", "paper", {"residual": False}),
    ("parentheses/trained/attention", "paper", {"weight_decay": 0.1}),
    ("parentheses/trained/mlp", "paper", {"max_grad_norm": 0.1}),
    ("parentheses/sparse/residual", "theory", {"max_grad_norm": 1e3}),
    ("parentheses/trained/attention", "paper", {"loss": "sequence"}),
    ("2-hop/sparse/attention", "paper", {"host": "tied", "length": 12, "layers": 2}),
]
QUICK = (CASES[0], CASES[7], CASES[12], CASES[20], CASES[-2])


def small(name, setting="paper", **changes):
    return preset(name, setting, **{**SMALL, "head_dim": 2, **changes})


def engines(point):
    return ["wide"] if engine_name(point, "auto") == "wide" else ["wide", "paths"]


def own(held):
    """The model's arrays before training, the host's among them."""
    values = {name: held.model[name].detach().numpy().copy() for name in (*held.model.trained, *held.model.frozen)}
    if held.model.host is not None:
        host, (L, H) = held.model.host, (held.preset.layers, held.preset.heads)
        maps = [[host.maps(layer, head) for head in range(H)] for layer in range(L)]
        for name, of in {"R_Q": lambda e: e.query, "R_K": lambda e: e.key, "R_V": lambda e: e.value[0]}.items():
            values[name] = np.array([[dense(of(entry)) for entry in row] for row in maps])
    return values


def apart(point, engine, steps=3, by=None):
    """The largest difference between the engine and the steps written out: losses and gradients relative to their size;
    parameters relative to one, less what AdamW makes of the gradients' rounding. by: the preset of the steps written out."""
    held = Trainer(point, 2, dtype="float64", engine=engine)
    values, optimiser, gaps = own(held), own_steps.AdamW(by or point), []
    rounding, allowed = (dict.fromkeys(held.model.trained, 0.0) for _ in range(2))
    for step in range(steps):
        batch, rate = held.batch(step), optimiser.rate()
        arrays = (x.numpy() for x in (batch.inputs, batch.targets, batch.loss_mask))
        loss, gradients = own_steps.loss_and_gradients(by or point, values, *arrays)
        gradients = own_steps.clipped(by or point, {name: gradients[name] for name in held.model.trained})
        optimiser.step(values, gradients)
        held.step()
        gaps.append(abs(loss - float(held.loss)) / loss)
        for name, tensor in held.model.trained.items():
            off = abs(tensor.grad.numpy() - gradients[name])
            gaps.append(np.linalg.norm(off) / np.linalg.norm(gradients[name]))
            rounding[name] = np.maximum(rounding[name], off)
            size = np.sqrt(optimiser.second[name] / (1 - 0.999 ** (step + 1))) + 1e-8
            allowed[name] += 4 * rate * rounding[name] / size
            gaps.append((abs(tensor.detach().numpy() - values[name]) - allowed[name]).max())
    return float(np.max(gaps))


@pytest.mark.parametrize("case", full_where(lambda case: case not in QUICK, CASES), ids=str)
def test_every_engine_takes_the_steps_of_the_text(case):
    name, setting, changes = case
    point = small(name, setting, **changes)
    found = {engine: apart(point, engine) for engine in engines(point)}
    linear = setting == "theory" and not (point.norm or point.mlp)
    assert ("paths" in found) == linear
    assert all(gap < WITHIN for gap in found.values()), found


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("attention", {"weight_decay": 0.02}),
        ("attention", {"warmup": 3}),
        ("attention", {"residual": True}),
        ("residual", {"norm": True}),
        ("attention", {"max_grad_norm": 0.1}),
    ],
)
def test_another_setting_is_seen(variant, changes):
    point = small(f"parentheses/random/{variant}", "theory")
    assert all(apart(point, engine, by=replace(point, **changes)) > 1e-9 for engine in engines(point))


@pytest.mark.parametrize(
    "fault", ["a swapped head", "positions shifted", "another epsilon", "a run off by one", "U's row"]
)
def test_a_fault_in_the_engine_is_seen(monkeypatch, fault):
    name, setting = "3-hop/sparse/residual-norm", "paper"
    if fault == "a swapped head":
        name, setting, move = "3-hop/random/attention", "theory", models.FrozenMaps.move
        monkeypatch.setattr(models.FrozenMaps, "move", lambda self, head, x: move(self, 1 - head, x))
    elif fault == "positions shifted":
        rows = wide.rows_of
        monkeypatch.setattr(wide, "rows_of", lambda E, ids: rows(E, ids.roll(1, 1)))
    elif fault == "another epsilon":
        monkeypatch.setattr(wide, "NORM_EPSILON", 1e-4)
    elif fault == "a run off by one":
        right = models.copied_runs
        monkeypatch.setattr(
            models,
            "copied_runs",
            lambda m: [(slice(a.start, a.stop - 1), slice(b.start, b.stop - 1)) for a, b in right(m)],
        )
    else:
        name, setting, right_pick = "3-hop/sparse/residual", "theory", paths.pick
        monkeypatch.setattr(paths, "pick", lambda x, look: right_pick(x, look).roll(1, -1))
    point = small(name, setting, layers=2, length=12)
    assert max(apart(point, engine, steps=1) for engine in engines(point)) > 1e-9


@pytest.mark.parametrize("variant", ["attention", "residual"])
def test_a_transformer_trained_at_its_own_width_is_a_target(variant):
    held = Trainer(small(f"2-hop/trained-own-width/{variant}", "theory", layers=2, m=7, length=12), 1, dtype="float64")
    held.step()
    inputs, target = held.batch(1).inputs, target_of(held.model)
    expected = target.forward(np.eye(30)[inputs[1].numpy()], SoftmaxAttention(causal=True, scale="1/sqrt(d)"))
    for engine in (held.engine, wide.WideEngine(held.model)):
        np.testing.assert_allclose(engine.logits(inputs)[1].detach().numpy(), expected, rtol=1e-9, atol=1e-13)
    with pytest.raises(MalformedInput, match="--setting theory"):
        target_of(Trainer(small("2-hop/trained-own-width/attention", layers=2), 0).model)


def test_runs_of_copies_are_the_matrix():
    rows, columns = Partition.of_widths([2, 3, 2]), Partition.of_widths([3, 2, 2])
    matrix = SelectionMatrix(rows, columns, np.array([1, 0, 0, 2]), np.array([0, 1, 2, 1]))
    x = torch.arange(14.0).view(2, 7)
    found = torch.zeros(2, 7)
    for source, place in copied_runs(matrix):
        found[:, place] += x[:, source]
    assert torch.equal(found, x @ torch.as_tensor(matrix.to_dense(np.float32)))


def test_looked_at_holds_every_marked_position():
    mask = torch.tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 1]]).bool()
    look = looked_at(mask)
    assert look is not None
    assert look.shape == (2, 2)
    assert mask.gather(1, look).sum() == mask.sum()
    assert looked_at(torch.ones(2, 3).bool()) is None
    assert looked_at(mask[:1]).tolist() == [[1]]


def test_parts_of_a_batch_add_up(monkeypatch):
    """On a CPU a wide step takes some sequences at a time."""
    from utfproof.training import step

    point = small("2-hop/sparse/mlp-norm", length=12, batch=5)
    whole = Trainer(point, 0, dtype="float64")
    whole.step()
    monkeypatch.setattr(step, "_CACHED", 2 * 11 * point.m)
    parted = Trainer(point, 0, dtype="float64")
    assert parted._together("wide") == 2
    parted.step()
    assert float(parted.loss) == pytest.approx(float(whole.loss), rel=1e-12)
    assert float(parted.accuracy) == float(whole.accuracy)
    assert torch.allclose(parted.model["E"], whole.model["E"], rtol=1e-9, atol=1e-12)


def test_engine_names():
    assert engine_name(small("2-hop/sparse/attention"), "auto") == "wide"
    assert engine_name(small("2-hop/sparse/attention", "theory"), "auto") == "paths"
    with pytest.raises(MalformedInput, match="use --engine wide"):
        engine_name(small("2-hop/sparse/attention"), "paths")
    with pytest.raises(MalformedInput, match="engine 'shared' is unknown"):
        engine_name(small("2-hop/sparse/attention"), "shared")


def test_numbers_below_the_normal_range_are_zero_in_a_step_only():
    held = Trainer(small("parentheses/sparse/attention"), 0)
    held.step()
    assert (torch.tensor(1e-310, dtype=torch.float64) * 1).item() > 0


# --- CUDA graphs, without a GPU ------------------------------------------------------------------------------------


@pytest.fixture
def graphs_on_the_cpu(monkeypatch):
    """Stand-ins for CUDA's graphs: capturing runs nothing that lasts, replaying runs the step."""
    import contextlib

    class Graph:
        held = None

        def replay(self):
            self.held.update(self.held._inputs, self.held._most)

    class Stream:
        def wait_stream(self, other):
            pass

    @contextlib.contextmanager
    def capture(graph):
        before = {name: tensor.clone() for name, tensor in Graph.held.tensors().items()}
        yield
        Graph.held.restore(before)

    stand_ins = {"CUDAGraph": Graph, "Stream": Stream, "current_stream": Stream, "graph": capture}
    for name, value in {**stand_ins, "stream": lambda _: contextlib.nullcontext()}.items():
        monkeypatch.setattr(torch.cuda, name, value)

    def as_on_a_gpu(held):
        Graph.held, held.on_gpu = held, True
        for group in held.optimizer.param_groups:
            group["lr"] = torch.zeros((), dtype=torch.float64)
        return held

    return as_on_a_gpu


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("name", ["2-hop/random/residual-norm", "parentheses/sparse/attention"])
def test_steps_as_a_graph_are_the_same_steps(graphs_on_the_cpu, monkeypatch, name, forget):
    point = small(name, layers=2, length=12)
    plain, graphed = (Trainer(point, 1, dtype="float64") for _ in range(2))
    graphs_on_the_cpu(graphed)
    if forget:  # the trial steps before capture would count
        monkeypatch.setattr(Trainer, "restore", lambda *_: None)
    for _ in range(3):
        plain.step(), graphed.step()
    gap = float((plain.model["E"] - graphed.model["E"]).detach().abs().max())
    assert (gap < 1e-12) != forget


def test_a_graph_leaves_no_position_out(graphs_on_the_cpu):
    """A later batch that marks more positions than the first gives NaN, never a wrong loss."""
    point = small("parentheses/sparse/attention")
    held = graphs_on_the_cpu(Trainer(point, 1))
    held.step()
    drawn = held.batch(1)
    drawn.loss_mask[0, :3] = True
    held.batch = lambda _: drawn
    held.step()
    assert torch.isnan(held.loss)
