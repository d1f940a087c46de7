"""Every engine against training steps that were written from the paper's text alone: losses, gradients, parameters."""

import itertools
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np
import own_steps
import pytest
from tiers import full_where

torch = pytest.importorskip("torch")

from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training import shared, wide  # noqa: E402
from utfproof.training.loop import ENGINES, Trainer, engine_name  # noqa: E402
from utfproof.training.models import dense  # noqa: E402
from utfproof.training.presets import HOSTS, VARIANTS, preset  # noqa: E402

WITHIN = 1e-12
SMALL = {"batch": 3, "steps": 9, "warmup": 2, "learning_rate": 1e-3, "init_std": 0.3, "heads": 2, "length": 7}
TREES = ("shared-key", "shared-query")
CASES = [
    *((f"parentheses/{host}/{v}", {}) for host in HOSTS[:4] for v in VARIANTS),
    *((f"parentheses/{host}/attention", {"head_dim": 5}) for host in TREES),
    *((f"parentheses/{host}/attention", {"head_dim": 5, "norm": True, "mlp": True}) for host in TREES),
    *(
        ("parentheses/residual-tree/residual", {"norm": norm, "mlp": mlp})
        for norm in (False, True)
        for mlp in (False, True)
    ),
    *((f"3-hop/{host}/{v}", {"layers": 3, "length": 12}) for host in ("sparse", "random", "trained") for v in VARIANTS),
    *((f"1-hop/{host}/{v}", {"layers": 1, "length": 12}) for host in ("sparse", "trained") for v in VARIANTS),
    *((f"parentheses/{host}/{v}", {"positions": "learned"}) for host in HOSTS[:3] for v in ("residual", "mlp-norm")),
    *(
        (f"parentheses/{host}/{v}", {"norm_place": place, "norm_gain": gain})
        for host in HOSTS[:3]
        for v in ("residual-norm", "mlp-norm")
        for place, gain in (("post", False), ("post", True), ("pre", True))
    ),
    ("parentheses/sparse/mlp-norm", {"residual": False}),
    *((f"parentheses/{host}/residual-norm", {"residual": False}) for host in ("sparse", "trained")),
    ("parentheses/sparse/residual-norm", {"residual": False, "norm_place": "post"}),
    ("parentheses/trained/attention", {"betas": (0.8, 0.9), "weight_decay": 0.1}),
    *(
        (f"parentheses/{host}/mlp-norm", {"max_grad_norm": most})
        for host in ("random", "trained")
        for most in (0.1, 1e3)
    ),
    ("parentheses/trained/mlp", {"loss": "sequence"}),
]
QUICK = (*CASES[:10], CASES[-2])


def small(name, **changes):
    point = preset(name, **{**SMALL, "head_dim": 2, **changes})
    return replace(point, mlp_width=7 if point.mlp else 0)


def engines(point):
    """Those that can run it."""
    for engine in ENGINES[1:]:
        with suppress(MalformedInput):
            yield engine_name(point, engine)


def own(held):
    """The model's arrays as they stand before training, the host's among them."""
    values = {name: held.model[name][0].detach().numpy().copy() for name in (*held.model.trained, *held.model.frozen)}
    if held.model.hosts is not None:
        host, (L, H) = held.model.host(0), (held.preset.layers, held.preset.heads)
        maps = [[host.maps(layer, head) for head in range(H)] for layer in range(L)]
        for name, of in {"R_Q": lambda e: e.query, "R_K": lambda e: e.key, "R_V": lambda e: e.value[0]}.items():
            values[name] = np.array([[dense(of(entry)) for entry in row] for row in maps])
    return values


def apart(point, engine, steps=3, by=None):
    """The largest difference between the engine and the steps written out: of losses and gradients relative to their size; of
    parameters relative to one, less what AdamW makes of the gradients' own difference (where a gradient is 0 but for rounding,
    its quotient is rounding too). by: the preset of the steps written out."""
    held = Trainer(point, [2], dtype="float64", engine=engine)
    values, optimiser, gaps = own(held), own_steps.AdamW(by or point), []
    rounding, allowed = (dict.fromkeys(held.model.trained, 0.0) for _ in range(2))
    for step in range(steps):
        batch, rate = held.batch(step), optimiser.rate()
        inputs, targets, mask = (x[0].numpy() for x in (batch.inputs, batch.targets, batch.loss_mask))
        loss, gradients = own_steps.loss_and_gradients(by or point, values, inputs, targets, mask)
        gradients = own_steps.clipped(by or point, {name: gradients[name] for name in held.model.trained})
        optimiser.step(values, gradients)
        held.step()
        gaps.append(abs(loss - float(held.loss)) / loss)
        for name, tensor in held.model.trained.items():
            off = abs(tensor.grad[0].numpy() - gradients[name])
            gaps.append(np.linalg.norm(off) / np.linalg.norm(gradients[name]))
            rounding[name] = np.maximum(rounding[name], off)
            size = np.sqrt(optimiser.second[name] / (1 - point.betas[1] ** (step + 1))) + 1e-8
            allowed[name] += 4 * rate * rounding[name] / size
            gaps.append((abs(tensor[0].detach().numpy() - values[name]) - allowed[name]).max())
    return float(np.max(gaps))


@pytest.mark.parametrize("case", full_where(lambda case: case not in QUICK, CASES), ids=str)
def test_every_engine_takes_the_steps_of_the_text(case):
    point = small(case[0], **case[1])
    found = {engine: apart(point, engine) for engine in engines(point)}
    assert "wide" in found
    assert ("paths" in found) != point.mlp
    assert ("shared" in found) == (point.positions == "none")
    assert all(gap < WITHIN for gap in found.values()), found


@pytest.mark.parametrize("fault", [None, "values", "gradient"])
def test_the_steps_are_those_of_the_text_without_compiled_averages(monkeypatch, fault):
    """Averages of many rows, of a GPU, or where there is no compiler."""
    monkeypatch.setattr(shared.compiled, "is_few_averages", lambda A: False)
    function = shared._function()
    if fault is not None:
        place, part = {"values": ("forward", 0), "gradient": ("backward", 1)}[fault]
        right = getattr(function, place)

        def wrong(*arguments):
            found = right(*arguments)
            return 2 * found if place == "forward" else (*found[:part], 1.5 * found[part], *found[part + 1 :])

        monkeypatch.setattr(function, place, staticmethod(wrong))
    cases = [
        ("3-hop/random/mlp", {"layers": 3}),
        ("parentheses/sparse/residual-norm", {}),
        ("parentheses/trained/attention", {}),
    ]
    worst = [apart(small(name, **changes), "shared", steps=2) for name, changes in cases]
    assert all(gap < WITHIN for gap in worst) if fault is None else worst[0] > 1e-6, worst


FAULTS = {
    "another weight decay": ("attention", {"weight_decay": 0.02}),
    "another warm-up": ("attention", {"warmup": 3}),
    "other betas": ("attention", {"betas": (0.9, 0.99)}),
    "a stream that is not there": ("attention", {"residual": True}),
    "LN after the layer": ("residual-norm", {"norm_place": "post"}),
    "gradients clipped": ("attention", {"max_grad_norm": 0.1}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_another_setting_is_seen(fault):
    variant, changes = FAULTS[fault]
    point = small(f"parentheses/random/{variant}")
    assert all(apart(point, engine, by=replace(point, **changes)) > 1e-9 for engine in engines(point))


def no_tie(states_of):
    """Two states that differ taken for one."""

    def found(*arguments):
        states = states_of(*arguments)
        return states._replace(index=states.index.clamp(max=len(states.token) - 2))

    return found


FIRST_MLP = (shared.SharedEngine, "_first_mlp")


@pytest.mark.parametrize(
    ("variant", "place", "fault"),
    [
        ("mlp-norm", (shared, "states_of"), no_tie),
        (
            "mlp-norm",
            (shared, "states_of"),
            lambda old: lambda *a: (s := old(*a))._replace(counts=s.counts.clamp(max=1)),
        ),
        ("mlp-norm", (shared, "reduce"), lambda old: lambda _, counts: torch.stack(counts).amax(0)),
        ("mlp-norm", (shared, "states_of"), lambda old: lambda ids, look: old(ids, None if look is None else look - 1)),
        ("mlp-norm", (wide, "NORM_EPSILON"), lambda old: 2 * old),
        ("mlp-norm", (shared, "NORM_EPSILON"), lambda old: 2 * old),
        ("mlp-norm", FIRST_MLP, lambda old: lambda e, n, p, rows, x: old(e, n, p, rows, x + rows[:1])),
        ("mlp", FIRST_MLP, lambda old: lambda e, n, p, rows, x: old(e, n, p, rows + rows.mean(), x)),
        ("mlp", (shared, "gelu"), lambda old: lambda x: old(x) + 1e-6 * x),
        ("mlp", (shared.SharedEngine, "_outputs"), lambda old: lambda *a: old(*a) * (1 + 1e-6)),
    ],
)
def test_a_fault_in_the_engine_is_seen(monkeypatch, variant, place, fault):
    point = small(f"parentheses/random/{variant}")
    assert apart(point, "shared") < WITHIN
    monkeypatch.setattr(*place, fault(getattr(*place)))
    assert apart(point, "shared") > 1e-9


def test_equal_states_are_computed_once():
    """All positions whose token and proportions of tokens agree, among those that are seen from where the loss looks."""
    ids = torch.tensor([[1, 2, 1, 3], [2, 1, 1, 3], [1, 1, 2, 2]])
    states = shared.states_of(ids, None)
    key = {}
    for i, j in itertools.product(range(3), range(4)):
        before = ids[i, : j + 1].tolist()
        key[i, j] = before[-1], *(Fraction(before.count(token), len(before)) for token in (1, 2, 3))
    assert len(states.token) == len(set(key.values())) == 7
    for a in key:
        for b in key:
            assert (states.index[a] == states.index[b]) == (key[a] == key[b])
    seen = shared.states_of(ids, torch.tensor([[0], [1], [0]]))
    assert len(seen.token) == 3
    wide_ids = torch.arange(30).repeat(2, 1)  # 31^30 counts: keys are made small on the way
    assert len(shared.states_of(wide_ids, None).token) == 30


def test_numbers_below_the_normal_range_are_zero_in_a_step_only():
    """Sharp attention is full of them, and each takes a processor a hundred times as long."""
    from utfproof.training import loop

    def product():
        return (torch.tensor(1e-310, dtype=torch.float64) * 1).item()

    trainer, seen = loop.Trainer(preset("1-hop/sparse/attention", batch=2, length=8), [0]), []
    genuine = trainer.losses
    trainer.losses = lambda *given: (seen.append(product()), genuine(*given))[1]  # type: ignore[method-assign]
    assert product() > 0
    trainer.step()
    trainer.evaluate(2)
    assert seen == [0.0]
    assert product() > 0
    with loop.tiny_is_zero(), loop.tiny_is_zero():
        pass
    assert product() > 0
