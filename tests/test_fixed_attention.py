"""The best model whose attention looks at nothing: its features are those of real hosts, its optimum is one."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from utfproof.training.fixed_attention import (  # noqa: E402
    NAMES,
    fixed_attention_rules,
    means,
    softmax_regression,
)
from utfproof.training.models import build_model  # noqa: E402
from utfproof.training.presets import preset  # noqa: E402
from utfproof.training.task import seeded  # noqa: E402
from utfproof.training.tasks import task_baselines, task_named  # noqa: E402
from utfproof.training.wide import WideEngine  # noqa: E402


@pytest.mark.parametrize("variant", ["attention", "residual"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_host_without_queries_reads_the_means(variant, layers):
    """Logits of the m-wide engine of a transformer whose queries are 0: the features times one matrix, written out here."""
    point = preset(f"1-hop/trained/{variant}", heads=2, layers=layers, m=6, head_dim=3, length=9, init_std=1.0)
    model = build_model(point, [3], 8, dtype="float64")
    with torch.no_grad():
        model.trained["R_Q"].zero_()
    task = point.make_task()
    inputs = task.batch(4, seeded(0, "x", 0)).inputs
    ids = list(task.input_ids)
    with torch.no_grad():
        logits = WideEngine(model).logits(inputs[None])[0]
        moved = model["R_V"][0].sum(1)  # both heads attend alike
        powers = [torch.eye(6, dtype=torch.float64)]  # coefficients of the powers of the mean
        for layer in range(layers):
            through = [power @ moved[layer] for power in powers]
            stay = powers if point.residual else [torch.zeros(6, 6, dtype=torch.float64)] * len(powers)
            powers = [a + b for a, b in zip([*stay, 0 * powers[0]], [0 * powers[0], *through], strict=True)]
        kept = powers if point.residual else powers[-1:]
        matrix = torch.cat([model["E"][0][ids] @ power @ model["U"][0] for power in kept])
        found = means(inputs, task.input_ids, layers, point.residual) @ matrix
    assert (found - logits).abs().max() < 1e-12 * logits.abs().max()


def test_the_optimum_is_where_no_other_search_finds_less():
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(400, 5, generator=generator, dtype=torch.float64)
    features = torch.cat([features, features[:, :1] + features[:, 1:2]], 1)  # one that says nothing new
    targets = (features[:, 0] + torch.randn(400, generator=generator, dtype=torch.float64) > 0).long() + (
        features[:, 2] > 1
    ).long()
    matrix = softmax_regression(features, targets, 3)
    loss = torch.nn.functional.cross_entropy
    best = float(loss(features @ matrix, targets))
    other = torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([other], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(features @ other, targets)
        value.backward()
        return value

    optimizer.step(closure)
    assert best == pytest.approx(float(closure().detach()), abs=2e-5)
    assert not torch.allclose(
        (features @ matrix).softmax(-1), torch.full((400, 3), 1 / 3, dtype=torch.float64), atol=0.1
    )


def test_what_tokens_alone_tell_is_found():
    """At 1-hop the first answer is always the blank: the readout has it right, with a residual stream all the more."""
    task = task_named("1-hop", length=12)
    plain, residual = fixed_attention_rules(task, 2, 3000)
    assert (plain.name, residual.name) == tuple(NAMES.values())
    assert plain.sequences == residual.sequences == 3000 // 11
    exact = {rule.name: rule.accuracy for rule in task_baselines("1-hop", 0, 12)}
    assert NAMES[True] not in exact  # nothing is drawn where only what is exact is asked for
    assert plain.accuracy > exact["always blank"] + 0.15
    assert residual.accuracy > max(plain.accuracy, exact["last character"] - 0.03)


def test_tasks_that_the_paper_does_not_train_have_none():
    assert not {rule.name for rule in task_baselines("5-hop", 500, 8)} & set(NAMES.values())
    rules = {rule.name: rule for rule in task_baselines("parentheses", 3000)}
    assert 0.5 < rules[NAMES[False]].accuracy < rules["counting"].accuracy
    assert rules[NAMES[True]].sequences == 3000


def test_both_rules_are_the_same_again():
    task = task_named("2-hop", length=10)
    first = fixed_attention_rules(task, 3, 900)
    fixed_attention_rules.cache_clear()
    assert fixed_attention_rules(replace(task), 3, 900) == first
