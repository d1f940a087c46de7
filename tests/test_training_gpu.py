"""Training steps on a GPU against the same steps on the CPU: every host and variant, as captured graphs, seeds side by side."""

import pytest

torch = pytest.importorskip("torch")

from steps_apart import apart, gap  # noqa: E402

from utfproof.ground.arrays import whole_products  # noqa: E402
from utfproof.training import loop  # noqa: E402
from utfproof.training.loop import Trainer, engine_name  # noqa: E402
from utfproof.training.presets import HOSTS, PRESETS, preset  # noqa: E402
from utfproof.training.task import Batch  # noqa: E402

pytestmark = pytest.mark.gpu

SMALL = {"batch": 3, "steps": 60, "warmup": 5, "learning_rate": 0.01, "init_std": 0.3, "length": 12}
STEPS = 4
CLOSE = 2**-53 / loop.EPSILON
"""Of STEPS steps in float64: sums are taken in other orders; what that makes of a gradient near 0 AdamW divides by EPSILON."""

CELLS = [(name, {}) for name in PRESETS if name.startswith("2-hop/") and name.split("/")[1] in HOSTS]
CHANGES = [
    ("parentheses/random/residual-norm", {}),
    ("parentheses/trained/mlp", {"loss": "sequence"}),
    ("2-hop/random/residual-norm", {"positions": "learned"}),
    ("2-hop/trained/mlp-norm", {"positions": "learned"}),
    ("2-hop/trained/residual-norm", {"norm_place": "post"}),
    ("2-hop/sparse/residual-norm", {"norm_gain": True}),
    ("2-hop/trained/residual", {"max_grad_norm": 0.1}),
    ("2-hop/sparse/attention", {"grow_from": 4}),
    ("2-hop/random/attention", {"min_hops": 0, "max_hops": 4}),
]


@pytest.fixture(autouse=True)
def single_rates(monkeypatch):
    """Learning rates as AdamW's kernel takes them on a GPU: in single precision."""
    rate = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda *given: float(torch.tensor(rate(*given))))


def there(batch):
    """The batch on the GPU."""
    return Batch(**{key: tensor.cuda() for key, tensor in vars(batch).items()})


def on_both(name, changes, engine="auto"):
    """A trainer on each device; both take the batches of the CPU's generators."""
    narrow = {"head_dim": 30 if "/shared-" in name else 3}
    chosen = preset(name, **SMALL, **narrow, **changes)
    cpu, gpu = (Trainer(chosen, [3, 4], device=to, dtype="float64", engine=engine) for to in ("cpu", "cuda"))
    drawn = cpu.batch
    gpu.batch = lambda step: there(drawn(step))
    return cpu, gpu


@pytest.mark.parametrize(("name", "changes"), [*CELLS, *CHANGES], ids=lambda value: str(value))
def test_the_same_steps_on_both(name, changes):
    cpu, gpu = on_both(name, changes)
    assert apart(cpu, gpu, STEPS) < CLOSE
    replayed = gpu.engine.name != "shared" and not gpu.preset.grow_from
    assert (gpu._graph is not None) == replayed


@pytest.mark.parametrize(
    "name", [name for name, _ in CELLS if engine_name(preset(name), "auto") == "paths" or name.endswith("mlp")]
)
def test_m_wide_steps_are_the_same_too(name):
    assert apart(*on_both(name, {}, "wide"), STEPS) < CLOSE


def test_a_step_that_is_not_the_same_is_seen(monkeypatch):
    """The trial steps before a capture would count if they were not undone."""
    cpu, gpu = on_both("2-hop/random/attention", {})
    monkeypatch.setattr(gpu, "restore", lambda _: None)
    assert apart(cpu, gpu, STEPS) > 1e4 * CLOSE


def test_steps_go_on_from_a_checkpoint():
    whole, first, rest = (on_both("2-hop/random/residual-norm", {})[1] for _ in range(3))
    for trainer, steps in ((whole, 6), (first, 3)):
        for _ in range(steps):
            trainer.step()
    rest.step()  # captured before it is told where to go on
    rest.restore(first.tensors())
    rest.done = first.done
    for _ in range(3):
        rest.step()
    assert all(gap(tensor, rest.tensors()[name]) < CLOSE for name, tensor in whole.tensors().items())


@pytest.mark.parametrize("name", ["2-hop/random/attention", "2-hop/trained/mlp"])
def test_tf32_rounds_where_asked_and_nowhere_else(name):
    """Relative to float64: 2^-24 a number in float32, 2^-11 with TF32."""
    chosen = preset(name, **SMALL)
    dtypes = ("float64", "float32", "tf32")
    exact, single, rounded = (Trainer(chosen, [3], device="cuda", dtype=dtype, engine="wide") for dtype in dtypes)
    batch = exact.batch(0)
    with whole_products(tf32=True):  # as a process may have it
        for trainer in (exact, single, rounded):
            trainer.update(batch)
    whole, tf32 = (gap(exact.model["E"].grad, trainer.model["E"].grad.double()) for trainer in (single, rounded))
    assert whole < 2**-16 < tf32 < 2**-5


def test_scores_of_fresh_sequences():
    cpu, gpu = on_both("2-hop/trained/residual-norm", {})
    drawn = list(cpu.evaluation_batches(20))
    gpu.evaluation_batches = lambda _: map(there, drawn)
    for own, other in zip(cpu.evaluate(20), gpu.evaluate(20), strict=True):
        assert own == pytest.approx(other, rel=CLOSE)
