"""Path space and m-wide on short tasks, seeds side by side, graphs, what is counted; and faults that break the engines."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steps_apart import apart, gap  # noqa: E402

from utfproof.attention import SoftmaxAttention  # noqa: E402
from utfproof.errors import MalformedInput, ResourceLimit  # noqa: E402
from utfproof.ground import compiler  # noqa: E402
from utfproof.training import compiled, kernel, matrices, nested, normed, paths, programs  # noqa: E402
from utfproof.training.loop import Trainer, looked_at  # noqa: E402
from utfproof.training.models import build_model, target_of  # noqa: E402
from utfproof.training.paths import PathEngine  # noqa: E402
from utfproof.training.presets import Preset, preset  # noqa: E402
from utfproof.training.wide import WideEngine  # noqa: E402

SMALL = {"batch": 3, "steps": 60, "warmup": 5, "learning_rate": 0.01, "init_std": 0.3}
HOSTS = ("sparse", "random", "trained", "trained-own-width", "shared-key", "shared-query")


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch, one_thread):
    monkeypatch.setattr(kernel, "_BLOCK", 8)
    monkeypatch.setattr(matrices, "_BANDED", 8)


@pytest.fixture
def no_compiler(monkeypatch):
    """Torch's own operations everywhere."""
    compiler.shared_library.cache_clear()
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    yield
    compiler.shared_library.cache_clear()


def small(name: str, **changes) -> Preset:
    return preset(name, **{**SMALL, **changes})


def short_task(trainer: Trainer) -> Trainer:
    """The same trainer on short sequences."""
    from utfproof.training.tasks import task_named

    short = {"pairs": 8} if trainer.preset.task == "parentheses" else {"length": 24}
    trainer.task = task_named(trainer.preset.task, loss=trainer.preset.loss, **short)
    return trainer


def trainer(chosen: Preset, engine: str, seeds=(3,), **options) -> Trainer:
    return short_task(Trainer(chosen, list(seeds), dtype="float64", engine=engine, **options))


def test_sequence_loss_and_wide_streams_take_the_other_branches():
    chosen = small("parentheses/sparse/attention", head_dim=1, layers=3, loss="sequence")
    first, second = trainer(chosen, "wide"), trainer(chosen, "paths")
    assert not paths.shares_keys(4 * 4, 1)
    assert apart(first, second, 3) < 1e-9


def test_engines_agree_with_the_package_s_own_forward_pass():
    """`systems.Universal.forward` knows nothing of torch modules, tables or counts."""
    chosen = small("2-hop/random/attention", head_dim=3, layers=2)
    model = build_model(chosen, [1], 22, dtype="float64")
    held = trainer(chosen, "paths", seeds=(1,))
    inputs = held.batch(0).inputs
    kernel = SoftmaxAttention(causal=True, scale="1/sqrt(d)")
    x = np.eye(30)[inputs[0, 0].numpy()]
    host = model.host(0)
    E, U = (model[name][0].detach().numpy() for name in ("E", "U"))
    expected = type(host)(host.shape, host.m, host.R_Q, host.R_K, host.R_V, U).forward(x, E, kernel)
    for engine in (PathEngine(model), WideEngine(model)):
        np.testing.assert_allclose(engine.logits(inputs)[0, 0].detach().numpy(), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("variant", ["attention", "residual"])
def test_a_transformer_trained_at_its_own_width_is_a_target(variant):
    chosen = small(f"2-hop/trained-own-width/{variant}", head_dim=3, layers=2, m=7)
    held = trainer(chosen, "paths", seeds=(1,))
    held.step()
    inputs = held.batch(1).inputs
    target = target_of(held.model)
    expected = target.forward(np.eye(30)[inputs[0, 1].numpy()], SoftmaxAttention(causal=True, scale="1/sqrt(d)"))
    np.testing.assert_allclose(held.engine.logits(inputs)[0, 1].detach().numpy(), expected, rtol=1e-9, atol=1e-13)
    with pytest.raises(MalformedInput, match="own width"):
        target_of(trainer(small("2-hop/sparse/attention"), "paths").model)


def test_counting_and_attending_are_one_first_layer():
    model = build_model(small("3-hop/sparse/attention", head_dim=3, layers=2), [0], 22, dtype="float64")
    inputs = trainer(small("3-hop/sparse/attention"), "paths").batch(0).inputs
    counted, attended = (PathEngine(model, counting=flag).logits(inputs).detach() for flag in (True, False))
    assert gap(counted, attended) < 1e-12


def test_only_tokens_that_occur_matter():
    chosen = small("3-hop/random/attention", head_dim=3, layers=2)
    few, all_ids = trainer(chosen, "paths"), trainer(chosen, "paths", fixed=True)
    assert apart(few, all_ids, 3) < 1e-9


@pytest.mark.parametrize("first", [True, False])
def test_a_task_may_mark_as_many_positions_as_it_likes(monkeypatch, first):
    """Fewer in the first batch than in a later one: all count, in steps whose shapes are fixed too, or (where the first has
    equally many in each sequence) the loss is no number. None is left out in silence."""
    chosen = small("parentheses/sparse/attention", heads=2, head_dim=2)

    def steps(fixed):
        held = trainer(chosen, "paths", fixed=fixed)
        honest = held.batch

        def marked(step):
            batch = honest(step)
            more = torch.arange(batch.inputs.shape[2]) < 3 * step + 1
            batch.loss_mask[0, :: 2 if first else 1, more] = True
            return batch

        monkeypatch.setattr(held, "batch", marked)
        return held

    gap = apart(steps(False), steps(True), 3)
    assert gap < 1e-12 if first else gap != gap


def test_looked_at_holds_every_marked_position():
    mask = torch.zeros(1, 3, 9, dtype=torch.bool)
    mask[0, 0, 4] = mask[0, 1, 2] = mask[0, 1, 7] = True
    look = looked_at(mask)
    assert look is not None
    assert look.shape == (1, 3, 2)
    assert look[0, 1].tolist() == [2, 7]
    assert 4 in look[0, 0].tolist()
    assert looked_at(torch.ones_like(mask)) is None


def test_gradients_of_trained_matrices_stay_where_they_are_written():
    """One buffer is the parameter's gradient at every step; a matrix in two products has both in its gradient."""
    held = trainer(small("2-hop/trained/attention", head_dim=3, layers=2), "paths")
    places = [(held.step(), held.model["R_V"].grad.data_ptr())[1] for _ in range(3)]
    assert len(set(places)) == 1
    parameter = torch.randn(1, 1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(2, 1, 3, 3, dtype=torch.float64).unbind(0)
    first, second = matrices.Matrices(parameter).take()[0]
    (first.after(x).sum() + first.after(y).sum() + second.before(x).sum()).backward()
    ones = torch.ones(3, 3, dtype=torch.float64)
    expected = torch.stack([(x + y)[0].T @ ones, ones @ x[0]])
    torch.testing.assert_close(parameter.grad[0, 0], expected, rtol=1e-14, atol=1e-14)


SIDE_BY_SIDE = ["parentheses/random/residual", "2-hop/sparse/attention"]
SIDE_BY_SIDE += [f"2-hop/{host}/residual-norm" for host in ("sparse", "random", "trained")]


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_seeds_side_by_side_are_the_single_runs(name):
    chosen = small(name, heads=2, head_dim=3, layers=2)
    both = trainer(chosen, "paths", seeds=(5, 6))
    singles = [trainer(chosen, "paths", seeds=(seed,)) for seed in (5, 6)]
    for _ in range(5):
        both.step()
        for number, single in enumerate(singles):
            single.step()
            assert gap(single.loss[0], both.loss[number]) < 1e-12
    for name_, tensor in both.model.trained.items():
        for number, single in enumerate(singles):
            assert gap(single.model[name_][0].detach(), tensor[number].detach()) < 1e-10


GAINS = [("2-hop/random/residual-norm", {"norm_gain": True}), ("2-hop/trained/residual-norm", {})]
GAINS += [("parentheses/random/mlp-norm", {"norm_gain": True}), ("parentheses/trained/mlp", {"max_grad_norm": 0.2})]


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize(("name", "changes"), GAINS)
@pytest.mark.parametrize("engine", ["wide", "shared"])
def test_seeds_side_by_side_have_their_own_gains_and_mlps(monkeypatch, engine, name, changes, fault):
    chosen = small(name, heads=2, head_dim=3, layers=2, **changes)
    both, *singles = (trainer(chosen, engine, seeds=seeds) for seeds in ((5, 6), (5,), (6,)))
    part = WideEngine._part
    if fault:  # the first seed's for all
        monkeypatch.setattr(WideEngine, "_part", lambda self, name, number, *place: part(self, name, 0, *place))
    gaps = []
    for _ in range(3):
        both.step()
        for number, single in enumerate(singles):
            single.step()
            gaps.append(gap(single.loss[0], both.loss[number]))
    for place, tensor in both.model.trained.items():
        for number, single in enumerate(singles):
            gaps.append(gap(single.model[place][0].detach(), tensor[number].detach()))
    assert bool(np.max(gaps) < 1e-10) != fault


@pytest.mark.parametrize("most", [0.05, 1e6])
@pytest.mark.parametrize("name", ["parentheses/trained/mlp", "2-hop/random/residual-norm"])
def test_gradients_are_clipped_as_torch_clips_them(name, most):
    """The oracle is torch's function, which Hugging Face's Trainer calls, on the gradients of a step that is not clipped."""
    plain, clipped = (trainer(small(name, layers=2, max_grad_norm=value), "wide") for value in (0.0, most))
    plain.step(), clipped.step()
    norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), most)
    assert (norm > most) == (most < 1)
    assert all(
        gap(a.grad, b.grad) < 1e-14 for a, b in zip(plain.model.parameters(), clipped.model.parameters(), strict=True)
    )


def test_each_model_s_gradients_are_clipped_by_their_own_norm():
    chosen = small("parentheses/trained/attention", layers=2, max_grad_norm=0.05)
    both, second = trainer(chosen, "paths", seeds=(5, 6)), trainer(chosen, "paths", seeds=(6,))
    for held in (both, second):
        held.step()
    for name, tensor in second.model.trained.items():
        assert gap(tensor.grad[0], both.model.trained[name].grad[1]) < 1e-12
    squares = [sum(float((tensor.grad[s] ** 2).sum()) for tensor in both.model.trained.values()) for s in (0, 1)]
    assert squares == pytest.approx([0.05**2] * 2, rel=1e-4)


BY_THREADS = [
    ("parentheses/random/attention", "wide", {"batch": 64, "m": 256}),
    ("parentheses/random/mlp", "shared", {"batch": 64, "m": 600}),
    ("parentheses/random/residual", "shared", {"batch": 64, "m": 600}),
    ("2-hop/random/attention", "paths", {"batch": 16, "m": 128}),
    ("2-hop/random/residual-norm", "paths", {"batch": 64, "m": 128}),
    ("2-hop/trained/residual-norm", "paths", {"batch": 64, "m": 128}),
]


def of_several_threads(name, engine, changes, runs=3):
    """E and U after three steps in float32 on two threads, as often as said."""
    chosen = preset(name, steps=60, heads=2, head_dim=4, **changes)
    found = []
    for _ in range(runs):
        held = Trainer(chosen, [3], engine=engine)
        for _ in range(3):
            held.step()
        found.append([held.model[place].detach().clone() for place in "EU"])
    return found


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "engine", "changes"), BY_THREADS)
def test_two_threads_add_up_in_one_order(two_threads, name, engine, changes):
    first, *others = of_several_threads(name, engine, changes)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


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

    for name, value in {
        "CUDAGraph": Graph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: contextlib.nullcontext(),
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)

    def as_on_a_gpu(held: Trainer) -> Trainer:
        Graph.held = held
        held.on_gpu = held.fixed = True
        for group in held.optimizer.param_groups:
            group["lr"] = torch.zeros((), dtype=torch.float64)
        return held

    return as_on_a_gpu


@pytest.mark.parametrize("forget", [False, True])
def test_steps_as_a_graph_are_the_same_steps(graphs_on_the_cpu, monkeypatch, forget):
    chosen = small("2-hop/random/attention", head_dim=3, layers=2)
    plain, graphed = trainer(chosen, "paths", fixed=True), graphs_on_the_cpu(trainer(chosen, "paths"))
    if forget:  # the trial steps before capture would count
        monkeypatch.setattr(Trainer, "restore", lambda *_: None)
    assert (apart(plain, graphed, 4) < 1e-12) != forget


# --- planted faults ----------------------------------------------------------------------------------------------------


def differs(chosen: Preset, steps: int = 2) -> bool:
    return apart(trainer(chosen, "wide"), trainer(chosen, "paths"), steps) > 1e-6


@pytest.mark.parametrize("name", ["2-hop/sparse/attention", "2-hop/random/residual", "2-hop/trained/attention"])
def test_a_swapped_head_is_seen(name, monkeypatch):
    attend = PathEngine._attend

    def swapped(self, stream, here, look, queries, keys, outputs):
        return attend(self, stream, here, look, queries.flip(1), keys.flip(1), outputs)

    chosen = small(name, head_dim=3, layers=2)
    assert not differs(chosen)
    monkeypatch.setattr(PathEngine, "_attend", swapped)
    assert differs(chosen)


def test_a_mask_off_by_one_is_seen(no_compiler, monkeypatch):
    pieces = kernel._pieces
    monkeypatch.setattr(kernel, "_pieces", lambda *a: [p._replace(hidden=p.hidden.roll(1, -1)) for p in pieces(*a)])
    assert differs(small("2-hop/sparse/attention", head_dim=3, layers=2))


def test_a_block_that_is_too_narrow_is_seen(no_compiler, monkeypatch):
    blocks = kernel.blocks
    monkeypatch.setattr(kernel, "blocks", lambda *which: [(a, b, max(1, w - 1)) for a, b, w in blocks(*which)])
    assert differs(small("2-hop/sparse/attention", head_dim=3, layers=2))


def test_engines_agree_where_few_rows_are_compiled_code_s(monkeypatch):
    monkeypatch.setattr(compiled, "_LARGE", 1)
    for chosen in (small(f"2-hop/{host}/attention", head_dim=3, layers=2) for host in ("random", "trained")):
        assert apart(trainer(chosen, "wide"), trainer(chosen, "paths"), 2) < 1e-9


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("positions", [1, 2, 5, 99])
def test_blocks_hold_every_row_once_and_all_it_sees(positions, repeat):
    cut = kernel.blocks(positions, repeat, on_cpu=True)
    rows = [row for start, end, _ in cut for row in range(start, end)]
    assert rows == list(range(positions * repeat))
    assert all((end - 1) // repeat < width <= positions for _, end, width in cut)
    assert kernel.seen(positions, positions, repeat, True, True) <= positions**2 * repeat


@pytest.mark.parametrize("fault", ["epsilon", "another place", "a detached Gram matrix", "the last LN left out"])
def test_a_wrong_layer_normalisation_is_seen(monkeypatch, fault):
    chosen = small("2-hop/random/residual-norm", head_dim=3, layers=2)
    assert not differs(chosen)
    scale, apply, times_ = normed._scale, paths.normalised, paths.normalised_times
    if fault == "epsilon":
        monkeypatch.setattr(normed, "_scale", lambda half, p: (scale(half, p) ** -2 + 1e-3).rsqrt())
    elif fault == "another place":
        monkeypatch.setattr(normed, "_scale", lambda half, p: scale(half, p).roll(1, 1))
    elif fault == "a detached Gram matrix":
        monkeypatch.setattr(paths, "normalised", lambda p, gram, ones: apply(p, gram.detach(), ones))
    else:
        monkeypatch.setattr(paths, "normalised_times", lambda p, gram, matrix, ones: times_(p, 0 * gram, matrix, ones))
    assert differs(chosen)


def test_a_shift_that_is_not_added_is_seen(monkeypatch):
    chosen = small("2-hop/trained/residual-norm", head_dim=3, layers=2)
    apply = paths.normalised

    def without(p, gram, ones):
        found = apply(p, gram, ones).clone()
        found[..., -1] = 0
        return found

    assert not differs(chosen, 3)
    monkeypatch.setattr(paths, "normalised", without)
    assert differs(chosen, 3)


def test_a_variance_below_zero_by_rounding_is_zero():
    p = torch.tensor([[[[1.0, -1.0]]]], dtype=torch.float32)
    gram = torch.tensor([[[1.0, 1.0], [1.0, 1.0 - 1e-6]]])
    found = normed.normalised(p, gram, False)
    assert torch.isfinite(found).all()
    assert found[0, 0, 0, 0] == pytest.approx(1e-5**-0.5, rel=1e-3)


def test_counts_off_by_one_are_seen(monkeypatch):
    by_counts = paths._by_counts

    def later(here, counts, queries, keys):
        return by_counts(here, counts - 0.5 * here, queries, keys)

    monkeypatch.setattr(paths, "_by_counts", later)
    assert differs(small("2-hop/sparse/attention", head_dim=3, layers=2))


def test_heads_of_a_prefix_tree_add_where_they_move(monkeypatch):
    """Beside a residual stream: H^l streams, not (H + 1)^l; not so in other trees. What rests before the last layer is seen."""
    chosen = small("2-hop/sparse/residual", head_dim=3, layers=2)
    move = programs.heads_that_move
    for host, variant in (("sparse", "residual"), ("residual-tree", "residual"), ("shared-key", "attention")):
        tree = small(f"parentheses/{host}/{variant}", head_dim=5, heads=2, layers=2, residual=True)
        assert programs.IndexProgram(build_model(tree, [0], 22)).nested == (host == "sparse")
    assert not differs(chosen)
    monkeypatch.setattr(programs, "heads_that_move", lambda host: np.ones_like(move(host)))
    assert differs(chosen)


NESTED_FAULTS = {
    "epsilon": lambda p: p.setattr(nested, "NORM_EPSILON", 1e-3),
    "a mean left out": lambda p: p.setattr(
        nested.PositionScales,
        "measure",
        lambda *a, f=nested.PositionScales.measure: (lambda scale, mean: (scale, 0 * mean))(*f(*a)),
    ),
    "what rests forgotten": lambda p: p.setattr(
        nested.PositionScales, "_rest", property(lambda _: 0.0, lambda *_: None), raising=False
    ),
    "no scale in the first layer": lambda p: p.setattr(
        nested.Tables,
        "_replace",
        lambda t, scales, moments, f=nested.Tables._replace: f(t, scales=scales**0, moments=moments),
    ),
    "a coordinate in another word": lambda p: p.setattr(
        nested, "word_maps", lambda *a, f=nested.word_maps: [level[::-1] for level in f(*a)]
    ),
}


@pytest.mark.parametrize(("module", "host"), [(normed, "random"), (nested, "sparse")])
def test_half_of_a_symmetric_gradient_is_seen(module, host, monkeypatch):
    monkeypatch.setattr(module, "mirror", lambda total: None)
    assert differs(small(f"2-hop/{host}/residual-norm", head_dim=3, layers=2))


@pytest.mark.parametrize("fault", NESTED_FAULTS)
def test_a_wrong_normalisation_of_nested_streams_is_seen(fault, monkeypatch):
    chosen = small("2-hop/sparse/residual-norm", head_dim=3, layers=3)
    held = trainer(chosen, "paths")
    assert isinstance(held.engine.program, nested.NestedNormedProgram)
    assert apart(trainer(chosen, "wide"), held, 2) < 1e-12
    NESTED_FAULTS[fault](monkeypatch)
    assert differs(chosen)


def test_nested_streams_are_for_layer_normalisation_before_layers_without_gains():
    for changes in ({"norm_place": "post"}, {"norm_gain": True}, {"positions": "learned"}, {"host": "random"}):
        chosen = small("2-hop/sparse/residual-norm", head_dim=3, layers=2, **changes)
        assert not nested.is_nested(build_model(chosen, [0], 22))


def test_words_in_the_wrong_order_are_seen(monkeypatch):
    meet = programs._meet

    def reversed_words(forth, back, out):
        found = meet(forth, back, out)
        return found.view(1, 2, 2, -1, out).transpose(1, 2).reshape(found.shape)

    monkeypatch.setattr(programs, "_meet", reversed_words)
    assert differs(small("2-hop/random/attention", head_dim=3, layers=2))


def test_a_wrong_gradient_is_seen(monkeypatch):
    take = programs._take
    monkeypatch.setattr(programs, "_take", lambda x, table: take(x, table) * (1 if x.requires_grad else 1.001))
    chosen = small("2-hop/sparse/attention", head_dim=3, layers=2)
    first, second = trainer(chosen, "wide"), trainer(chosen, "paths")
    first.step(), second.step()
    assert gap(first.model["E"].grad, second.model["E"].grad) > 1e-6


def test_position_left_out_is_seen(monkeypatch):
    import utfproof.training.loop as loop

    chosen = small("parentheses/sparse/attention", heads=2, head_dim=2)
    monkeypatch.setattr(loop, "looked_at", lambda mask, most=None: mask.byte().argmax(-1, keepdim=True) - 1)
    wrong = trainer(chosen, "paths")
    wrong.step()
    monkeypatch.undo()
    right = trainer(chosen, "paths")
    right.step()
    assert not gap(right.loss, wrong.loss) < 1e-6


# --- what cannot be --------------------------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(MalformedInput, match="not linear"):
        Trainer(small("2-hop/sparse/mlp-norm", head_dim=2), [0], engine="paths")
    with pytest.raises(MalformedInput, match="not linear"):
        PathEngine(build_model(small("parentheses/sparse/mlp", head_dim=2), [0], 20))
    with pytest.raises(MalformedInput, match="engine"):
        Trainer(small("2-hop/sparse/attention"), [0], engine="narrow")
    with pytest.raises(MalformedInput, match="residual stream"):
        Trainer(small("2-hop/residual-tree/residual", residual=False), [0])
    with pytest.raises(ResourceLimit):
        Trainer(small("4-hop/random/attention"), [0], max_memory=10**6)
    with pytest.raises(ResourceLimit, match="m-wide"):
        Trainer(small("4-hop/trained/attention", batch=10**6), [0], engine="wide")
    with pytest.raises(MalformedInput, match="at least one"):
        Trainer(small("4-hop/sparse/attention"), [])
    with pytest.raises(MalformedInput, match="dtype"):
        Trainer(small("4-hop/sparse/attention"), [0], dtype="float8")
