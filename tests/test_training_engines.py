"""Both engines against training steps that were written from the paper's text alone: losses, gradients, parameters."""

from dataclasses import replace

import numpy as np
import own_steps
import pytest
from tiers import full_where

torch = pytest.importorskip("torch")

from utfproof.attention import SoftmaxAttention  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training import maps, paths, wide  # noqa: E402
from utfproof.training.maps import Copies, dense, runs_of, times  # noqa: E402
from utfproof.training.model import target_of  # noqa: E402
from utfproof.training.presets import HOSTS, PAPER_HOSTS, VARIANTS, preset  # noqa: E402
from utfproof.training.step import Trainer, engine_name  # noqa: E402
from utfproof.util.selection import Partition, SelectionMatrix  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
WITHIN = 1e-12
SMALL = {"batch": 3, "steps": 9, "warmup": 2, "learning_rate": 1e-3, "init_std": 0.3, "heads": 2, "length": 7}
CASES = [
    *((f"parentheses/{host}/{v}", s, {}) for s in ("paper", "theory") for host in HOSTS for v in VARIANTS),
    *(
        ("parentheses/sparse/attention", "theory", {"head_dim": 5, "host": host})
        for host in ("shared-key", "shared-query")
    ),
    *(("parentheses/sparse/residual", "theory", {"norm": norm, "host": "residual-tree"}) for norm in (False, True)),
    *((f"3-hop/{host}/{v}", "paper", {"layers": 3, "length": 12}) for host in PAPER_HOSTS for v in VARIANTS),
    *((f"3-hop/{host}/residual", "theory", {"layers": 3, "length": 12}) for host in PAPER_HOSTS),
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


def everywhere(batch):
    """Inputs, targets and the loss's mask at every position [B, n]."""
    inputs, targets, mask = (x.numpy() for x in (batch.inputs, batch.targets, batch.loss_mask))
    if batch.look is None:
        return inputs, targets, mask
    whole, asked, rows = np.zeros_like(inputs), np.zeros(inputs.shape, bool), np.arange(len(inputs))[:, None]
    whole[rows, batch.look.numpy()], asked[rows, batch.look.numpy()] = targets, mask
    return inputs, whole, asked


def apart(point, engine, steps=3, by=None):
    """The largest difference between the engine and the steps written out: losses and gradients relative to their size;
    parameters relative to one, less what AdamW makes of the gradients' rounding. by: the preset of the steps written out."""
    held = Trainer(point, 2, dtype="float64", engine=engine)
    values, optimiser, gaps = own(held), own_steps.AdamW(by or point), []
    rounding, allowed = (dict.fromkeys(held.model.trained, 0.0) for _ in range(2))
    for step in range(steps):
        batch, rate = held.batch(step), optimiser.rate()
        arrays = everywhere(batch)
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
        name, setting, move = "3-hop/random/attention", "theory", maps.Maps.move
        monkeypatch.setattr(maps.Maps, "move", lambda self, head, x: move(self, 1 - head, x))
    elif fault == "positions shifted":
        given = wide.WideEngine._input
        monkeypatch.setattr(wide.WideEngine, "_input", lambda self, ids: given(self, ids.roll(1, 1)))
    elif fault == "another epsilon":
        monkeypatch.setattr(wide, "NORM_EPSILON", 1e-4)
    elif fault == "a run off by one":
        right = maps.runs_of
        monkeypatch.setattr(
            maps,
            "runs_of",
            lambda *ones: [(slice(a.start, a.stop - 1), slice(b.start, b.stop - 1)) for a, b in right(*ones)],
        )
    else:
        name, setting, right_pick = "3-hop/sparse/residual", "theory", paths.pick
        monkeypatch.setattr(paths, "pick", lambda x, look: right_pick(x, look).roll(1, -1))
    point = small(name, setting, layers=2, length=12)
    assert max(apart(point, engine, steps=1) for engine in engines(point)) > 1e-9


@pytest.mark.parametrize("setting", ["paper", "theory"])
@pytest.mark.parametrize("variant", ["attention", "residual"])
def test_a_transformer_trained_at_its_own_width_is_a_target(variant, setting):
    """With learned positions of inputs with two ones: the token's, and the position's behind the vocabulary."""
    held = Trainer(small(f"2-hop/trained-own-width/{variant}", setting, layers=2, m=7, length=12), 1, dtype="float64")
    held.step()
    inputs, target = held.batch(1).inputs, target_of(held.model)
    x = np.eye(30)[inputs[1].numpy()]
    x = np.concatenate([x, np.eye(11)], 1) if setting == "paper" else x
    assert (target.shape.d_in, target.shape.d_out) == (x.shape[1], 30)
    expected = target.forward(x, SoftmaxAttention(causal=True, scale="1/sqrt(d)"))
    for engine in (held.engine, wide.WideEngine(held.model, held.task.input_ids)):
        np.testing.assert_allclose(engine.logits(inputs)[1].detach().numpy(), expected, rtol=1e-9, atol=1e-13)
    with pytest.raises(MalformedInput, match="without normalisation and MLPs"):
        target_of(Trainer(small("2-hop/trained-own-width/residual-norm", layers=2), 0).model)


def test_copies_are_the_product():
    rows, columns = Partition.of_widths([2, 3, 2]), Partition.of_widths([3, 2, 2])
    matrix = SelectionMatrix(rows, columns, np.array([1, 0, 0, 2]), np.array([0, 1, 2, 1]))
    x = torch.arange(14.0, dtype=torch.float64).view(2, 7).requires_grad_()
    product = x @ torch.as_tensor(matrix.to_dense(np.float64))
    found = times(x, Copies(runs_of(*matrix.coordinates()), 7))
    assert torch.equal(found, product)
    weights = torch.arange(14.0, dtype=torch.float64).view(2, 7)
    assert torch.equal(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (found, product)))


def test_parts_of_a_batch_add_up(monkeypatch):
    """On a CPU a wide step takes some sequences at a time."""
    from utfproof.training import step

    point = small("2-hop/sparse/mlp-norm", length=12, batch=5)
    whole = Trainer(point, 0, dtype="float64")
    whole.step()
    monkeypatch.setattr(step, "CPU_PART", 2)
    parted = Trainer(point, 0, dtype="float64")
    assert [len(part.inputs) for part in parted._parted(parted.batch(0))] == [2, 2, 1]
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
            self.held.update(self.held._inputs)

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
