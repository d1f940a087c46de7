"""What a transformer reaches whose heads attend to everything alike: a baseline between counting and attention.

Without positions that is all that attention can do which does not look at content. The stream is then linear in the tokens:
after L layers a position holds the L-fold causal mean of the one-hot tokens, with a residual stream every mean up to that, and
E, U and whatever stands between them are one matrix behind it. So the best such model is a softmax regression, a convex
problem: no training can miss it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from utfproof.training.task import Baseline, Batch, Task, drawn_baseline, seeded

if TYPE_CHECKING:
    from torch import Tensor

RIDGE = 1e-6
"""Weight of the squared matrix beside the mean loss: it makes the optimum one point."""
STEPS = 60
"""Of Newton's method, at most."""
FITTED, SCORED = 30_000, 100_000
"""Answers that it is fitted on, and scored on, at most."""
SEQUENCES = 10_000
"""Of either, at most."""
NAMES = {False: "fixed attention", True: "fixed attention, residual"}
"""By whether there is a residual stream."""


@cache
def fixed_attention_rules(task: Task, layers: int, answers: int) -> list[Baseline]:
    """The best fixed attention of so many layers, without and with a residual stream: fitted on fresh sequences, scored on
    `answers` answers of others (at most SCORED)."""
    per_sequence = int(task.batch(1, seeded(0, "fixed attention", 0)).scored.sum())
    fitted, scored = (max(1, min(SEQUENCES, min(answers, most) // per_sequence)) for most in (FITTED, SCORED))
    seen, fresh = (task.batch(size, seeded(0, "fixed attention", part)) for part, size in enumerate((fitted, scored)))
    return [_rule(task.input_ids, layers, residual, seen, fresh) for residual in NAMES]


def _rule(ids: tuple[int, ...], layers: int, residual: bool, seen: Batch, fresh: Batch) -> Baseline:
    chosen = seen.loss_mask
    known, targets = seen.targets[chosen].unique(return_inverse=True)
    matrix = softmax_regression(means(seen.inputs, ids, layers, residual)[chosen], targets, len(known))
    answers = known[(means(fresh.inputs, ids, layers, residual) @ matrix).argmax(-1)]
    said = f"the best readout of {'the tokens and all means up to ' if residual else ''}their {layers}-fold causal mean"
    return drawn_baseline(NAMES[residual], said, answers, fresh)


def means(inputs: Tensor, ids: tuple[int, ...], layers: int, residual: bool) -> Tensor:
    """The `layers`-fold causal mean of one-hot tokens [B, n, tokens], float64; with a residual stream the tokens and all means
    side by side [B, n, (layers + 1) tokens]."""
    import torch

    x = (inputs[..., None] == torch.tensor(ids)).double()
    lengths = torch.arange(1, inputs.shape[1] + 1, dtype=torch.float64)[:, None]
    found = [x]
    for _ in range(layers):
        found.append(found[-1].cumsum(1) / lengths)
    return torch.cat(found, -1) if residual else found[-1]


def softmax_regression(features: Tensor, targets: Tensor, classes: int) -> Tensor:
    """The matrix [F, classes] whose softmax(features @ matrix) has the least mean cross-entropy, RIDGE added: by Newton's
    method, float64, until the gradient is rounding alone."""
    import torch

    # in coordinates in which the features are orthonormal the problem is well conditioned
    values, basis = torch.linalg.eigh(features.T @ features / len(features))
    kept = values > 1e-10 * values[-1]
    whitening = basis[:, kept] / values[kept].sqrt()
    white = features @ whitening
    width, count = white.shape[1], len(features)
    wanted = torch.nn.functional.one_hot(targets, classes).double()
    matrix = torch.zeros(width, classes, dtype=torch.float64)

    def loss(at: Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(white @ at, targets) + RIDGE * at.square().sum())

    for _ in range(STEPS):
        shares = (white @ matrix).softmax(-1)
        gradient = white.T @ (shares - wanted) / count + 2 * RIDGE * matrix
        if gradient.abs().max() < 1e-12:
            break
        curvature = 2 * RIDGE * torch.eye(width * classes, dtype=torch.float64).view(width, classes, width, classes)
        for one in range(classes):
            for other in range(one + 1):
                weights = shares[:, one] * (float(one == other) - shares[:, other]) / count
                block = white.T @ (weights[:, None] * white)
                curvature[:, one, :, other] += block
                if one != other:
                    curvature[:, other, :, one] += block
        flat = curvature.view(width * classes, -1)
        step = torch.linalg.solve(flat, gradient.flatten()).view(width, classes)
        scale, before = 1.0, loss(matrix)
        while loss(matrix - scale * step) > before and scale > 1e-6:
            scale /= 2
        matrix -= scale * step
    return whitening @ matrix
