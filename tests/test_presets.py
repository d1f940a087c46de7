"""Presets have what the paper says, in both settings; baselines are those of slow code; a task stands alone."""

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace

import pytest

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.shapes import paper_dimension

torch = pytest.importorskip("torch")

from fixed_attention import accuracy  # noqa: E402
from test_tasks import stack_balanced, written  # noqa: E402

from utfproof.training import presets as presets_module  # noqa: E402
from utfproof.training.presets import PAPER_HOSTS, PRESETS, SETTINGS, VARIANTS, preset  # noqa: E402
from utfproof.training.step import Trainer  # noqa: E402
from utfproof.training.task import Baseline, Batch, Kind, seeded  # noqa: E402
from utfproof.training.tasks import TASKS, kind_of, task_named  # noqa: E402
from utfproof.training.tasks.khop import REACHED, RULES  # noqa: E402
from utfproof.training.tasks.parentheses import RULES as PARENTHESES  # noqa: E402
from utfproof.training.tasks.parentheses import parentheses_rules, strings  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_cell_of_the_paper_has_a_preset(setting):
    for task, table in paper.ABLATIONS.items():
        row = paper.TABLE_ROWS[task]
        for variant, name in presets_module.PAPER_VARIANTS.items():
            assert len(table[name]) == len(PAPER_HOSTS)
            for host in PAPER_HOSTS:
                cell = PRESETS[setting][f"{task}/{host}/{variant}"]
                assert all(getattr(cell, n) == row[n] for n in ("heads", "layers", "head_dim", "m", "vocabulary"))
                assert cell.m == paper_dimension(cell.shape)
                assert cell.variant == variant
                assert cell.steps == paper.TRAINING_STEPS.get(task, 10_000)
    assert all(name.split("/")[0] == p.task for name, p in PRESETS[setting].items())


def test_the_settings_differ_in_positions_and_the_sparse_host():
    for name, cell in PRESETS["paper"].items():
        theirs = asdict(PRESETS["theory"][name])
        differing = {key: (value, theirs[key]) for key, value in asdict(cell).items() if value != theirs[key]}
        expected = {"setting": ("paper", "theory"), "positions": ("learned", "none")}
        if "/sparse/" in name:
            expected["host"] = ("sparse-front", "sparse")
        assert differing == expected
        assert (cell.weight_decay, cell.norm_gain, cell.max_hops, cell.decay) == (0.01, False, -1, "linear")


def test_other_hosts_have_the_sizes_of_the_theory():
    sizes = {host: [preset(f"{task}/sparse/attention", host=host).m for task in ("parentheses", "4-hop")]
             for host in ("shared-key", "shared-query")}  # fmt: skip
    assert sizes == {"shared-key": [164, 1830], "shared-query": [144, 1380]}
    assert PRESETS["theory"]["2-hop/trained-own-width/attention"].m == 30


def test_overrides():
    name = "2-hop/random/residual-norm"
    assert preset(name, steps=None) == PRESETS["paper"][name]
    assert preset(name, "theory").positions == "none"
    assert preset(name, m=500).m == 500
    assert preset(name, head_dim=8).m == 8 * 28 + 240
    assert preset(name, learning_rate=1) == preset(name, learning_rate=1.0)
    with pytest.raises(MalformedInput, match="near: parentheses/sparse/attention"):
        preset("parentheses/sprase/attention")
    with pytest.raises(MalformedInput, match="setting 'practice' is unknown"):
        preset(name, "practice")


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 3}, {"host": "dense"}, {"steps": 0}, {"batch": 1.5}, {"m": True}, {"norm": 1},
        {"learning_rate": float("nan")}, {"weight_decay": True}, {"weight_decay": 10**400}, {"max_grad_norm": -1.0},
        {"max_grad_norm": "one"}, {"decay": "exponential"}, {"norm_gain": True}, {"positions": "rope"},
        {"task": "17-hop"}, {"loss": "all"}, {"max_hops": 3}, {"min_hops": 3, "max_hops": 2}, {"length": 2},
    ],
)  # fmt: skip
def test_impossible_overrides(wrong):
    with pytest.raises(MalformedInput):
        preset("2-hop/random/attention", **wrong)


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_stored_rules_of_k_hop_are_those_of_drawn_sequences(hops):
    """The likeliest answer given the last characters, renamed by when they appear, as only that matters."""
    batch, found = task_named(f"{hops}-hop").batch(1200, seeded(9, "rules", hops)), defaultdict(Counter)
    majority = Counter(batch.targets.flatten().tolist()).most_common(1)[0][1]
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        text = inputs[1:]
        for place, answer in enumerate(targets[1:]):
            for size in range(1, 6):
                window = text[max(0, place - size + 1) : place + 1][::-1]
                names = {letter: number for number, letter in enumerate(dict.fromkeys(window))}
                found[size, tuple(map(names.get, window))][names.get(answer, answer if answer == 21 else "other")] += 1
    total = batch.targets.numel()
    right = dict.fromkeys(range(1, 6), batch.inputs.shape[0])  # the blanks
    for (size, window), answers in found.items():
        unseen = 4 - len(set(window))  # characters that are not in the window are alike
        right[size] += max([n if a != "other" else n / unseen for a, n in answers.items()])
    reached = dict(zip(RULES, REACHED[hops], strict=True))
    shares = dict(zip(list(RULES)[1:6], [right[size] / total for size in range(1, 6)], strict=True))
    for name, share in {"majority class": majority / total, **shares}.items():
        assert share == pytest.approx(reached[name], abs=0.008), name


def test_stored_rules_of_parentheses_are_those_of_fresh_sequences():
    size = 4000
    text, length = strings(size, 30, seeded(5, "rules", 0))
    wanted = torch.tensor([stack_balanced(word) for word in written(text, length)])
    found = {"majority class": float(wanted.double().mean())}
    found |= {name: float((said == wanted).double().mean()) for name, said in parentheses_rules(text, length).items()}
    for name in found:
        share = PARENTHESES[name][1]
        assert found[name] == pytest.approx(share, abs=4 * (share * (1 - share) / size) ** 0.5), name


@pytest.mark.full
@pytest.mark.parametrize("task", ["parentheses", "1-hop", "2-hop", "3-hop", "4-hop"])
def test_stored_fixed_attention_is_the_regression(task):
    stored = {rule.name: rule.accuracy for rule in kind_of(task).baselines(0)}
    layers = paper.TABLE_ROWS[task]["layers"]
    sequences = (6000, 4000) if task == "parentheses" else (150, 300)
    for name, residual in (("fixed attention", False), ("fixed attention, residual", True)):
        assert accuracy(task_named(task), layers, residual, *sequences) == pytest.approx(stored[name], abs=0.025), name


# --- tasks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """The token before, of seven; a task that is no part of the package."""

    length: int = 9
    loss: str = "sequence"
    name = "before"
    vocabulary = 8
    input_ids = tuple(range(7))

    @property
    def context(self):
        return self.length

    def batch(self, size, generator):
        inputs = torch.randint(0, 7, (size, self.length), generator=generator)
        everywhere = torch.ones_like(inputs, dtype=torch.bool)
        targets = torch.nn.functional.pad(inputs[:, :-1], (1, 0), value=7)
        return Batch(inputs, targets, everywhere, everywhere, everywhere)


BEFORE_SETTING = {"heads": 2, "layers": 1, "head_dim": 3, "steps": 4, "batch": 5, "learning_rate": 1e-3, "warmup": 1}
BEFORE = Kind("before", Before, lambda length: [Baseline("chance", "a guess", 1 / 7)], setting=BEFORE_SETTING)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_task_stands_alone(monkeypatch, setting):
    """Its own vocabulary, loss, length and presets: registered, it trains, and nothing of another task comes in."""
    with pytest.raises(MalformedInput, match=r"task 'before' is unknown; choose parentheses, 1-hop, ... 16-hop$"):
        task_named("before")
    monkeypatch.setitem(TASKS, "before", BEFORE)
    cells = presets_module._cells(setting)
    assert [name for name in cells if "before/random" in name] == [f"before/random/{variant}" for variant in VARIANTS]
    cell = cells["before/random/attention"]
    assert (cell.vocabulary, cell.loss, cell.m) == (8, "sequence", paper_dimension(cell.shape))
    trained = Trainer(replace(cell, length=6), 0)
    assert trained.batch(0).inputs.shape == (5, 6)
    trained.step()
    assert torch.isfinite(trained.loss)
    with pytest.raises(ValueError, match="for a k-hop task"):
        replace(cell, min_hops=0, max_hops=1)


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if kind.setting])
def test_inputs_hold_the_ids_that_are_said(name):
    task = task_named(name)
    found = torch.cat([task.batch(200, seeded(0, "ids", step)).inputs for step in range(3)]).unique()
    assert tuple(found.tolist()) == task.input_ids
    several = task_named("1-hop", min_hops=0, max_hops=2)
    assert tuple(several.batch(100, seeded(0, "ids", 0)).inputs.unique().tolist()) == several.input_ids
