"""What makes an m-wide step fast: products by oneDNN, a few sequences at a time, heads that keep coordinates."""

import ctypes
import itertools
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from utfproof.training import loop, matrices, shared, wide  # noqa: E402
from utfproof.training.loop import Trainer  # noqa: E402
from utfproof.training.presets import preset  # noqa: E402

UNIT = 2.0**-24
SHAPES = [((70, 50), (50, 90)), ((3, 40, 64), (64, 33)), ((40, 1, 200), (200, 100))]


@pytest.fixture
def taken(monkeypatch):
    """Shapes of the products that oneDNN gets, whatever their size; skipped where there is none."""
    if not matrices._has_onednn():
        pytest.skip("this build of torch has no oneDNN")
    held, by_onednn = [], matrices._by_onednn
    monkeypatch.setattr(matrices, "_LARGE", 1)
    monkeypatch.setattr(matrices, "_NARROW", 1)
    monkeypatch.setattr(matrices, "_NARROW_GRADIENT", 1)
    monkeypatch.setattr(matrices, "_by_onednn", lambda x, y: held.append((*x.shape, y.shape[1])) or by_onednn(x, y))
    return held


def bound(x, y):
    """Of rounding errors in x @ y, in any order of summation (Higham, Accuracy and Stability, 3.5)."""
    k = x.shape[-1] * UNIT
    return k / (1 - k) * (x.abs().double() @ y.abs().double())


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("layout", ["plain", "transposed", "part"])
def test_values_and_gradients(taken, left, right, layout):
    source = torch.Generator().manual_seed(1)
    x = torch.randn(*left, generator=source)
    y = torch.randn(*right, generator=source)
    if layout == "transposed":
        y = y.t().contiguous().t()
    if layout == "part":
        x = torch.cat([x, x], -1)[..., 3 : 3 + left[-1]]
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    g = torch.randn(*left[:-1], right[1], generator=source)
    found = matrices.product(x, y)
    found.backward(g)
    assert len(taken) == 3
    flat, flat_g = x.detach().flatten(0, -2), g.flatten(0, -2)
    for value, (a, b) in [
        (found.detach(), (x.detach(), y.detach())),
        (x.grad, (g, y.detach().t())),
        (y.grad, (flat.t(), flat_g)),
    ]:
        assert ((value.double() - a.double() @ b.double()).abs() <= bound(a, b)).all()


def test_a_wrong_product_is_seen(taken, monkeypatch):
    """The bound is small enough to see one number left out."""
    x, y = torch.ones(40, 60), torch.ones(60, 40)
    assert ((matrices.product(x, y).double() - x.double() @ y.double()).abs() <= bound(x, y)).all()
    monkeypatch.setattr(matrices, "_by_onednn", lambda x, y: x[:, 1:] @ y[1:])
    assert not ((matrices.product(x, y).double() - x.double() @ y.double()).abs() <= bound(x, y)).any()


@pytest.mark.parametrize("why", ["float64", "narrow", "small", "none there"])
def test_others_stay_where_they_were(monkeypatch, why):
    monkeypatch.setattr(matrices, "_by_onednn", lambda *_: pytest.fail("went to oneDNN"))
    x, y = torch.ones(200, 300), torch.ones(300, 200)
    if why == "float64":
        x, y = x.double(), y.double()
    if why == "narrow":
        y = y[:, :4]
    if why == "small":
        x, y = x[:40, :40], y[:40, :40]
    if why == "none there":
        monkeypatch.setattr(matrices, "_has_onednn", lambda: False)
    assert torch.equal(matrices.product(x, y), x @ y)


@pytest.mark.parametrize("name", ["sparse/mlp", "random/mlp-norm", "trained/mlp", "trained/residual"])
@pytest.mark.parametrize("engine", ["shared", "wide"])
def test_a_step_is_the_same(taken, monkeypatch, one_thread, name, engine):
    """In float64, where both are the same product: what differs is who makes the gradients."""
    chosen = preset(f"parentheses/{name}", batch=3, steps=60, init_std=0.3, m=64, mlp_width=48, heads=2, head_dim=4)

    def gradients():
        held = Trainer(chosen, [3], dtype="float64", engine=engine)
        held.step()
        return [held.loss, *(parameter.grad for parameter in held.model.parameters())]

    plain = gradients()
    assert not taken
    monkeypatch.setattr(matrices, "_is_large", lambda x, y, narrow: True)
    monkeypatch.setattr(matrices, "_by_onednn", lambda x, y: taken.append(x.shape) or x @ y)
    for one, other in zip(plain, gradients(), strict=True):
        assert float((one - other).norm()) <= 1e-12 * float(one.norm())
    assert taken


def test_onednn_is_given_matrices_without_gaps(taken, monkeypatch, one_thread):
    """A narrow part of another matrix meets its slowest kernel: 240 ms in place of 0.3 for 45 by 16, 27 times a whole step."""
    given, ask = [], torch.ops.mkldnn._linear_pointwise
    spy = lambda x, weight, *rest: given.append(weight) or ask(x, weight, *rest)  # noqa: E731
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", spy)
    x, y = torch.rand(12672, 45), torch.rand(45, 32)[:, :16]
    torch.testing.assert_close(matrices.product(x, y), x @ y)
    Trainer(preset("2-hop/random/residual-norm", batch=8, steps=60, m=80, head_dim=16), [3], engine="paths").step()
    assert len(given) > 10
    assert all(weight.is_contiguous() or weight.t().is_contiguous() for weight in given)


@pytest.mark.parametrize("fault", [None, "means of parts"])
@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}, {"loss": "sequence"}])
def test_sequences_may_be_taken_a_few_at_a_time(monkeypatch, one_thread, changes, fault):
    chosen = preset(
        "parentheses/sparse/residual-norm", batch=7, steps=60, init_std=0.3, heads=2, head_dim=4, m=64, **changes
    )
    losses = Trainer.losses
    if fault:
        monkeypatch.setattr(Trainer, "losses", lambda self, batch, marked: losses(self, batch))

    def steps(cached):
        monkeypatch.setattr(loop, "_CACHED", cached)
        held = Trainer(chosen, [3, 4], dtype="float64", engine="wide")
        held.step(), held.step()
        return held, [held.loss, held.accuracy, *(parameter.grad for parameter in held.model.parameters())]

    whole, all_at_once = steps(10**9)
    assert whole.together("wide", 7, 62) == 7
    few, by_parts = steps(3 * 62 * 64)
    assert few.together("wide", 7, 62) == 3
    gaps = [float((one - other).norm() / one.norm()) for one, other in zip(all_at_once, by_parts, strict=True)]
    assert all(gap <= 1e-12 for gap in gaps) == (fault is None)


@pytest.mark.parametrize("multiple", [64, 1])
def test_few_numbers_of_rows_are_asked_of_onednn(taken, monkeypatch, one_thread, multiple):
    """Batches have any number of different states; oneDNN keeps kernels for every number of rows that it is asked for."""
    monkeypatch.setattr(shared, "_ROWS", multiple)
    chosen = preset("parentheses/trained/mlp", batch=40, steps=60, heads=2, head_dim=4, m=64, mlp_width=48)
    held, counts = Trainer(chosen, [3], engine="shared"), set()
    for _ in range(6):
        batch = held.batch(held.done)
        counts.add(len(shared.states_of(batch.inputs[0], loop.looked_at(batch.loss_mask)[0]).token))
        held.step()
    assert len(counts) > 3
    rows = {side for shape in taken for side in (shape[0], shape[-2]) if side > 64}
    assert all(number % 64 == 0 for number in rows) == (multiple == 64)
    assert len(rows) < len(counts) or multiple == 1


PAGE_FAULTS = """
import resource, sys
from utfproof.ground.resources import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def blocks():
    return [b"x" * (24 << 20) for _ in range(4)]
blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_kept():
    """Four blocks of 24 MiB, freed and taken again: their pages are there, or are all mapped anew."""
    with_it, without = (
        int(subprocess.run([sys.executable, "-c", PAGE_FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("keep", "not")
    )
    assert 10 * with_it < without


@pytest.mark.parametrize("mask", ["", "0", "1", "0110", "1101", "10101"])
def test_runs_are_where_a_mask_is_not_zero(mask):
    values = torch.tensor([float(digit) for digit in mask])
    runs = wide._runs(values)
    covered = [place for run in runs for place in range(run.start, run.stop)]
    assert covered == np.flatnonzero(values.numpy()).tolist()
    assert all(one.stop < other.start for one, other in itertools.pairwise(runs))
