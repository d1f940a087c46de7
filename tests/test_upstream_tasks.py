"""The tasks' sequences against those of the public generators that the paper builds on: frozen statistics, ours drawn anew.

tests/data/upstream-tasks.json was written by scripts/upstream_statistics.py, which runs the public code as it is.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import upstream_statistics

torch = pytest.importorskip("torch")

from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.training.loop import Trainer  # noqa: E402
from utfproof.training.presets import preset, upstream_fields  # noqa: E402
from utfproof.training.results import run_key  # noqa: E402
from utfproof.training.task import seeded  # noqa: E402
from utfproof.training.tasks import khop, parentheses, task_named  # noqa: E402

FROZEN = json.loads((Path(__file__).parent / "data" / "upstream-tasks.json").read_text())
SIGMAS = 5
"""Some thirty comparisons with fixed seeds: five standard errors are not met by chance."""


def differing(ours, theirs):
    """Statistics that lie further apart than their standard errors explain."""
    found = []
    for name, (mean, error) in ours.items():
        other, its_error = theirs[name]
        if abs(mean - other) > SIGMAS * math.hypot(error, its_error) + 1e-12:
            found.append((name, mean, other))
    return found


def parentheses_rows(size):
    batch = task_named("parentheses").batch(size, seeded(1, "upstream", 0))
    return np.concatenate([batch.inputs.numpy(), batch.targets[:, -1:].numpy()], 1)


def k_hop_rows(hops, size):
    batch = task_named(f"{hops}-hop").batch(size, seeded(hops, "upstream", 0))
    text = batch.inputs[:, 1:].numpy() - khop.FIRST_CHARACTER
    return text, batch.targets[:, 1:].numpy() - khop.FIRST_CHARACTER


def test_parentheses_are_drawn_by_the_public_law():
    assert differing(upstream_statistics.of_parentheses(parentheses_rows(20_000)), FROZEN["parentheses"]) == []


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_k_hop_is_drawn_by_the_public_law(hops):
    assert differing(upstream_statistics.of_k_hop(*k_hop_rows(hops, 3000)), FROZEN["k-hop"][str(hops)]) == []


def test_other_laws_are_told_apart():
    """Planted: flips forgotten, one hop in place of two, strings whose neighbours may be equal."""
    rows = parentheses_rows(20_000)
    keep = (rows == 3).argmax(1) % 2 == 0
    assert differing(upstream_statistics.of_parentheses(rows[keep]), FROZEN["parentheses"])
    assert differing(upstream_statistics.of_k_hop(*k_hop_rows(1, 3000)), FROZEN["k-hop"]["2"])
    text, answers = k_hop_rows(2, 3000)
    text[:, 50] = text[:, 49]
    assert differing(upstream_statistics.of_k_hop(text, answers), FROZEN["k-hop"]["2"])
    text, length = parentheses.strings(20_000, 29, seeded(1, "upstream", 0))
    assert abs(float(length.double().mean()) - FROZEN["parentheses"]["length"][0]) > 0.3


def test_a_preset_can_follow_the_public_code():
    point = preset("1-hop/sparse/attention", **upstream_fields("1-hop/sparse/attention"), batch=4, length=10)
    trainer = Trainer(point, [0])
    asked = torch.cat([trainer.batch(step).inputs[..., 0].reshape(-1) for step in range(40)])
    assert set(asked.tolist()) == set(range(17))
    scored = next(trainer.evaluation_batches(8))  # accuracy is that of the cell: at one hop
    assert set(scored.inputs[..., 0].reshape(-1).tolist()) == {1}
    assert point.positions == "learned"
    point = preset("parentheses/random/mlp", **upstream_fields("parentheses/random/mlp"))
    assert (point.decay, point.max_grad_norm) == ("cosine", 1.0)
    plain = preset("1-hop/sparse/attention")
    assert run_key(plain, 0, plain.steps) != run_key(
        preset("1-hop/sparse/attention", min_hops=0, max_hops=16), 0, plain.steps
    )


@pytest.mark.parametrize(
    "hops",
    [
        {"min_hops": 0},
        {"max_hops": 3},
        *({"min_hops": a, "max_hops": b} for a, b in ((3, 2), (0, 17), (-2, 1), (0.0, 1))),
    ],
)
def test_impossible_hops_are_refused(hops):
    with pytest.raises(MalformedInput, match="hops"):
        preset("1-hop/sparse/attention", **hops).make_task()
    with pytest.raises(MalformedInput, match="hops"):
        preset("parentheses/sparse/attention", min_hops=0, max_hops=1)
