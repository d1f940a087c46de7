"""Baselines of tasks are computed, and presets have what the paper says."""

import itertools
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.shapes import paper_dimension

torch = pytest.importorskip("torch")

from test_tasks import rule, slow_answers, stack_balanced, written  # noqa: E402

from utfproof.training import presets as presets_module  # noqa: E402
from utfproof.training.loop import Trainer  # noqa: E402
from utfproof.training.presets import PRESETS, VARIANTS, preset, scaling_presets  # noqa: E402
from utfproof.training.task import WINDOWS, Baseline, Batch, Kind, Setting, seeded, window_name  # noqa: E402
from utfproof.training.tasks import TASKS, khop, parentheses, task_baselines, task_named  # noqa: E402
from utfproof.training.tasks.khop import answer_laws, k_hop_baselines  # noqa: E402
from utfproof.training.tasks.parentheses import parentheses_baselines  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# --- baselines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hops", "length"), [(1, 8), (2, 8), (3, 9), (4, 9)])
def test_k_hop_baselines_by_enumeration(hops, length):
    """Every string, every rule's best choice found by counting: the same numbers, exactly."""
    n = length - 2
    names = {size: window_name(size) for size in WINDOWS}
    known: dict[str, Counter] = {"position": Counter()}
    known |= {name + more: Counter() for name in names.values() for more in ("", ", no position")}
    ids: Counter = Counter()
    total = 4 * 3 ** (n - 1)
    for first in range(4):
        for steps in itertools.product((1, 2, 3), repeat=n - 1):
            text = [first]
            for step in steps:
                text.append((text[-1] + step) % 4)
            for i, answer in enumerate(slow_answers(text, hops)):
                ids[answer] += 1
                known["position"][(i,), answer] += 1
                for size, name in names.items():
                    window = tuple(text[max(0, i - size + 1) : i + 1])
                    known[name][(i, window), answer] += 1
                    known[name + ", no position"][window, answer] += 1
    found = {rule.name: rule for rule in k_hop_baselines(hops, length)}
    for name, counts in known.items():
        best: dict = {}
        for (context, _), count in counts.items():
            best[context] = max(best.get(context, 0), count)
        right = sum(best.values())
        assert found[name].answers == pytest.approx(right / (total * n), abs=1e-12), name
        assert found[name].accuracy == pytest.approx((right + total) / (total * (n + 1)), abs=1e-12), name
    ids[22] = total
    assert found["majority class"].accuracy == pytest.approx(max(ids.values()) / (total * (n + 1)), abs=1e-12)
    assert found["always blank"].accuracy == pytest.approx(1 / (n + 1))
    assert found["chance"].answers == pytest.approx(1 / 5)


def test_answer_laws_at_full_length():
    """Against the generator, where answers begin to exist and far from there."""
    task = task_named("3-hop")
    batch = task.batch(4000, seeded(6, "law", 0))
    text, answers = batch.inputs[:, 1:], batch.targets[:, 1:]
    laws = list(answer_laws(3, 98))
    for place in (1, 4, 8, 20, 97):
        none, law = laws[place]
        now, before = text[:, place], text[:, place - 1]
        events = {
            "none": answers[:, place] == 21,
            "now": answers[:, place] == now,
            "before": answers[:, place] == before,
        }
        counts = Counter({name: int(event.sum()) for name, event in events.items()})
        counts["other"] = 4000 - sum(counts.values())
        wanted = {"none": none, "now": law[0], "before": law[1], "other": law[2] + law[3]}
        shares = {name: counts[name] / 4000 for name in wanted}
        assert shares == pytest.approx({name: float(p) for name, p in wanted.items()}, abs=0.04), place
    assert law[1] != law[2]  # the one before is told from the others


def test_what_docs_experiments_says_of_copying():
    """Far from the start: 1-hop is the character before with probability 1/2, 2-hop the character itself."""
    _, one = list(answer_laws(1, 98))[-1]
    _, two = list(answer_laws(2, 98))[-1]
    assert one[0] == 0
    assert float(one[1]) == pytest.approx(0.5, abs=1e-9)
    assert float(two[0]) == pytest.approx(0.5, abs=1e-9)
    # attention-only cells that the paper prints, against what one or two characters tell
    cells = [(f"{k}-hop", cell) for k in (1, 2, 3, 4) for cell in paper.SUMMARY_ATTENTION_ONLY[f"{k}-hop"]]
    lines = {f"{k}-hop": 100 * rule(k, "last two characters").accuracy for k in (1, 2, 3, 4)}
    above = [(task, cell) for task, cell in cells if cell > lines[task]]
    assert above == [(task, paper.SUMMARY_ATTENTION_ONLY[task][2]) for task in ("3-hop", "4-hop")]


def test_longer_windows_tell_more():
    """Figures found by others: three characters tell 67.8 % at 1-hop, four 64.1 % at 2-hop with strings of 30."""
    assert rule(1, "last three characters").accuracy == pytest.approx(0.678, abs=1e-3)
    assert rule(2, "last four characters", 30).accuracy == pytest.approx(0.641, abs=2e-3)
    for hops in (1, 2, 4):
        told = [rule(hops, window_name(size)).accuracy for size in WINDOWS]
        assert told == sorted(told)
        assert all(
            rule(hops, window_name(size) + ", no position").accuracy <= told[size - 1] + 1e-12 for size in WINDOWS
        )


def test_the_majority_is_computed():
    rules = {hops: next(r for r in k_hop_baselines(hops) if r.name == "majority class") for hops in (1, 16)}
    assert "one character" in rules[1].rule
    assert "does not exist" in rules[16].rule
    assert rules[16].accuracy > rules[1].accuracy


def test_parentheses_baselines():
    found = {rule.name: rule for rule in parentheses_baselines(40_000)}
    assert found["chance"].accuracy == 0.5
    assert found["counting"].accuracy == pytest.approx(0.93, abs=0.006)
    assert found["counting and both ends"].accuracy == pytest.approx(0.976, abs=0.006)
    assert found["majority class"].sequences == 40_000
    # the same on the sequences themselves, one by one
    text, length = parentheses.strings(4000, 30, seeded(0, "baselines", 0))
    right = Counter()
    for word in written(text, length):
        wanted = stack_balanced(word)
        equal = word.count("(") == word.count(")")
        right["counting"] += equal == wanted
        right["counting and both ends"] += (equal and word[0] == "(" and word[-1] == ")") == wanted
        right["majority class"] += wanted
    few = {rule.name: rule.accuracy for rule in parentheses_baselines(4000)}
    assert {name: few[name] for name in right} == {name: max(n, 4000 - n) / 4000 for name, n in right.items()}


@pytest.mark.parametrize(("word", "majority", "share"), [("(())", "balanced", 1), ("))((", "not balanced", 1)])
def test_parentheses_baselines_follow_the_law(monkeypatch, word, majority, share):
    """A law with one string in it: a typed majority class would not notice."""

    def one_string(size, pairs, generator):
        row = torch.tensor([{"(": 1, ")": 2}[letter] for letter in word])
        return row.expand(size, 4), torch.full((size,), 4)

    monkeypatch.setattr(parentheses, "strings", one_string)
    found = {rule.name: rule for rule in parentheses_baselines.__wrapped__(50)}  # not the cached answer
    assert found["majority class"].rule == f"always {majority}"
    assert found["majority class"].accuracy == share
    assert found["counting"].accuracy == (1 if majority == "balanced" else 0)
    assert found["counting and both ends"].accuracy == 1


# --- presets ----------------------------------------------------------------------------------------------------


def test_every_cell_of_the_paper_has_a_preset():
    for task, table in paper.ABLATIONS.items():
        row = paper.TABLE_ROWS[task]
        for variant, name in presets_module.PAPER_VARIANTS.items():
            assert len(table[name]) == len(presets_module.PAPER_HOSTS)
            for host in presets_module.PAPER_HOSTS:
                cell = PRESETS[f"{task}/{host}/{variant}"]
                assert (cell.heads, cell.layers, cell.head_dim, cell.m) == tuple(
                    row[n] for n in ("heads", "layers", "head_dim", "m")
                )
                assert cell.m == paper_dimension(cell.shape)
                assert cell.vocabulary == task_named(task).vocabulary == row["vocabulary"]
                assert cell.variant == variant
                assert VARIANTS[variant] == {"residual": cell.residual, "norm": cell.norm, "mlp": cell.mlp}
                assert cell.steps == paper.TRAINING_STEPS.get(task, 10_000)
                assert cell.loss == task_named(task).loss  # type: ignore[attr-defined]
                assert (cell.mlp_width > 0) == cell.mlp
    assert all(name == f"{p.task}/{p.host}/{p.variant}" for name, p in PRESETS.items())


def test_smaller_hosts_have_the_sizes_of_the_theory():
    sizes = {name: PRESETS[f"{name}/attention"].m for name in ("parentheses/shared-key", "parentheses/shared-query")}
    assert sizes == {"parentheses/shared-key": 164, "parentheses/shared-query": 144}
    assert (PRESETS["4-hop/shared-key/attention"].m, PRESETS["4-hop/shared-query/attention"].m) == (1830, 1380)
    assert PRESETS["2-hop/trained-own-width/attention"].m == 30


def test_overrides():
    base = preset("2-hop/random/residual-norm")
    assert base is not None
    assert preset("2-hop/random/residual-norm", steps=None) == base
    assert preset("2-hop/random/residual-norm", m=500).m == 500
    assert preset("2-hop/random/residual-norm", head_dim=8).m == 8 * 28 + 240
    wide = preset("2-hop/random/mlp-norm", m=100)
    assert wide.mlp_width == presets_module.MLP_FACTOR * 100
    assert preset("2-hop/random/mlp-norm", mlp_width=7).mlp_width == 7
    assert preset("2-hop/random/residual", betas=[0.8, 0.9]).betas == (0.8, 0.9)


def test_near_names():
    with pytest.raises(MalformedInput, match="parentheses/sparse/attention"):
        preset("parentheses/sprase/attention")


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 3},
        {"name": "x"},
        {"host": "dense"},
        {"steps": 0},
        {"batch": 1.5},
        {"m": True},
        {"learning_rate": float("nan")},
        {"betas": (0.9, 1.0)},
        {"betas": (0.9,)},
        {"weight_decay": True},
        {"weight_decay": 10**400},
        {"max_grad_norm": -1.0},
        {"max_grad_norm": "one"},
        {"decay": "exponential"},
        {"norm_gain": True},
        {"norm_place": "post"},
        {"norm": True, "norm_gain": 1},
        {"norm": True, "norm_place": "middle"},
        {"positions": "rope"},
        {"task": "17-hop"},
        {"loss": "all"},
    ],
)
def test_impossible_overrides(wrong):
    with pytest.raises(MalformedInput):
        preset("2-hop/random/attention", **wrong)


def test_scaling_sweeps():
    for point in scaling_presets("m-bar"):
        assert point.m == paper_dimension(point.shape)
    for point in scaling_presets("Hd"):
        assert point.m == point.heads * point.head_dim
    ratios = [point.m / 1024 for point in scaling_presets("ratio")]
    assert (min(ratios), max(ratios)) == (0.5, 2.0)
    assert all((point.heads, point.layers) == (2, 3) for panel in ("m-bar", "Hd") for point in scaling_presets(panel))
    with pytest.raises(MalformedInput):
        scaling_presets("width")
    every = scaling_presets("all", "2-hop/random/attention", length=30)
    assert len(every) == len(set(every)) == 6 + 5 + 8 - 1
    assert {(point.length, point.variant) for point in every} == {(30, "attention")}
    for wrong, said in (
        ({"m": 5}, "leave out m"),
        ({"task": "1-hop"}, "2-hop"),
        ({"host": "shared-key"}, "hosts sparse"),
    ):
        with pytest.raises(MalformedInput, match=said):
            scaling_presets("ratio", "2-hop/random/attention", **wrong)


def test_names_of_tasks():
    assert list(TASKS)[:2] == ["parentheses", "1-hop"]
    assert khop.KHop(2, 2).name == "2-hop"
    assert khop.KHop(1, 4).name == "1-4-hop"


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


BEFORE = Kind("before", Before, lambda sequences, length: [Baseline("chance", "a guess", 1 / 7, 1 / 7)], exact=True,
              setting=Setting(2, 1, 3, steps=4, batch=5, learning_rate=1e-3, warmup=1))  # fmt: skip


def test_a_task_stands_alone(monkeypatch):
    """Its own vocabulary, loss, length and presets: registered, it trains, and nothing of another task comes in."""
    with pytest.raises(MalformedInput, match=r"task 'before' is unknown; choose parentheses, 1-hop, ... 16-hop$"):
        task_named("before")
    assert presets_module.cells_of(replace(BEFORE, setting=None)) == {}
    with pytest.raises(MalformedInput, match="task 'before' is unknown"):
        presets_module.cells_of(BEFORE)
    monkeypatch.setitem(TASKS, "before", BEFORE)
    cells = presets_module.cells_of(BEFORE)
    assert [name for name in cells if "random" in name] == [f"before/random/{variant}" for variant in VARIANTS]
    cell = cells["before/random/attention"]
    assert (cell.vocabulary, cell.loss, cell.m) == (8, "sequence", paper_dimension(cell.shape))
    trained = Trainer(replace(cell, length=6), [0])
    assert trained.model["E"].shape == (1, 8, cell.m)
    assert trained.batch(0).inputs.shape == (1, 5, 6)
    trained.step()
    assert torch.isfinite(trained.loss).all()
    assert task_baselines("before")[0].accuracy == 1 / 7
    with pytest.raises(MalformedInput, match="belong together, to k-hop tasks"):
        replace(cell, min_hops=0, max_hops=1)


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if kind.setting])
def test_inputs_hold_the_ids_that_are_said(name):
    task = task_named(name)
    found = torch.cat([task.batch(200, seeded(0, "ids", step)).inputs for step in range(3)]).unique()
    assert tuple(found.tolist()) == task.input_ids


def test_queries_of_several_kinds_are_inputs_all():
    task = task_named("1-hop", min_hops=0, max_hops=2)
    found = task.batch(100, seeded(0, "ids", 0)).inputs.unique()
    assert tuple(found.tolist()) == task.input_ids == (0, 1, 2, 17, 18, 19, 20)
