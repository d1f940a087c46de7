"""Training steps on a GPU against the same steps on the CPU, for hosts and variants in both settings."""

import pytest

torch = pytest.importorskip("torch")

from utfproof.training import step  # noqa: E402
from utfproof.training.presets import HOSTS, SETTINGS, VARIANTS, preset  # noqa: E402
from utfproof.training.step import Trainer  # noqa: E402
from utfproof.training.task import Batch  # noqa: E402

pytestmark = pytest.mark.gpu
SMALL = {"batch": 3, "steps": 60, "warmup": 5, "learning_rate": 0.01, "init_std": 0.3, "length": 12, "head_dim": 3}
CELLS = [(f"2-hop/{host}/{v}", s, {}) for s in SETTINGS for host in HOSTS for v in VARIANTS]
CELLS += [("parentheses/random/residual-norm", "paper", {}), ("parentheses/trained/mlp", "paper", {"loss": "sequence"})]
CELLS += [("2-hop/sparse/residual-norm", "paper", {"norm_gain": True, "max_grad_norm": 0.1})]
STEPS = 4
CLOSE = 2**-53 / 1e-8
"""Sums are taken in other orders; AdamW divides that by its epsilon where a gradient is near 0."""


@pytest.fixture(autouse=True)
def single_rates(monkeypatch):
    """Learning rates as AdamW's kernel takes them on a GPU: in single precision."""
    rate = step.learning_rate
    monkeypatch.setattr(step, "learning_rate", lambda *given: float(torch.tensor(rate(*given))))


def on_both(name, setting="paper", **changes):
    """A trainer on each device; both take the batches of the CPU's generators."""
    chosen = preset(name, setting, **SMALL, **changes)
    cpu, gpu = (Trainer(chosen, 3, device=to, dtype="float64") for to in ("cpu", "cuda"))
    drawn = cpu.batch
    gpu.batch = lambda number: Batch(
        **{key: None if held is None else held.cuda() for key, held in vars(drawn(number)).items()}
    )
    return cpu, gpu


def gap(cpu, gpu):
    theirs = gpu.tensors()
    return max(float((tensor - theirs[name].cpu()).abs().max()) for name, tensor in cpu.tensors().items())


@pytest.mark.parametrize(("name", "setting", "changes"), CELLS, ids=str)
def test_the_same_steps_on_both(name, setting, changes):
    cpu, gpu = on_both(name, setting, **changes)
    for _ in range(STEPS):
        cpu.step(), gpu.step()
        assert float(cpu.loss) == pytest.approx(float(gpu.loss), rel=1e-6)
    assert gap(cpu, gpu) < 100 * CLOSE


def test_a_step_that_is_not_the_same_is_seen():
    cpu, gpu = on_both("2-hop/sparse/residual-norm")
    cpu.step()
    assert gap(cpu, gpu) > 100 * CLOSE


def test_steps_go_on_from_a_checkpoint():
    _, whole = on_both("2-hop/random/residual-norm")
    _, parts = on_both("2-hop/random/residual-norm")
    for _ in range(4):
        whole.step()
    for _ in range(2):
        parts.step()
    held = {name: tensor.clone() for name, tensor in parts.tensors().items()}
    _, again = on_both("2-hop/random/residual-norm")
    again.restore(held)
    again.done = 2
    for _ in range(2):
        again.step()
    assert max(float((t - again.tensors()[name]).abs().max()) for name, t in whole.tensors().items()) < CLOSE
