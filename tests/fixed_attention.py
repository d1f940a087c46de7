"""What a model reaches whose heads attend to everything alike, without positions: the program behind the stored baselines.

The stream is then linear in the tokens: after L layers a position holds the L-fold causal mean of the one-hot tokens, with a
residual stream every mean up to that. The best such model is a softmax regression, a convex problem.
"""

import torch

from utfproof.training.task import seeded

RIDGE, STEPS = 1e-6, 60


def accuracy(task, layers, residual, fitted, scored):
    """Fitted on so many fresh sequences, scored on others."""
    seen, fresh = (task.batch(size, seeded(0, "fixed attention", part)) for part, size in enumerate((fitted, scored)))
    known, targets = seen.targets[seen.loss_mask].unique(return_inverse=True)
    features = asked(seen, means(seen.inputs, task.input_ids, layers, residual))[seen.loss_mask]
    matrix = softmax_regression(features, targets, len(known))
    answers = known[(asked(fresh, means(fresh.inputs, task.input_ids, layers, residual)) @ matrix).argmax(-1)]
    return float((answers == fresh.targets)[fresh.scored].double().mean())


def asked(batch, x):
    """x [B, n, w] at the positions that the batch asks, [B, k, w]."""
    return x if batch.look is None else x.gather(1, batch.look[..., None].expand(-1, -1, x.shape[-1]))


def means(inputs, ids, layers, residual):
    """The `layers`-fold causal mean of one-hot tokens [B, n, tokens], float64; with a residual stream the tokens and all means
    side by side [B, n, (layers + 1) tokens]."""
    x = (inputs[..., None] == torch.tensor(ids)).double()
    lengths = torch.arange(1, inputs.shape[1] + 1, dtype=torch.float64)[:, None]
    found = [x]
    for _ in range(layers):
        found.append(found[-1].cumsum(1) / lengths)
    return torch.cat(found, -1) if residual else found[-1]


def softmax_regression(features, targets, classes):
    """The matrix [F, classes] whose softmax(features @ matrix) has the least mean cross-entropy, RIDGE added: by Newton's
    method, float64, until the gradient is rounding alone."""
    # in coordinates in which the features are orthonormal the problem is well conditioned
    values, basis = torch.linalg.eigh(features.T @ features / len(features))
    kept = values > 1e-10 * values[-1]
    whitening = basis[:, kept] / values[kept].sqrt()
    white = features @ whitening
    width, count = white.shape[1], len(features)
    wanted = torch.nn.functional.one_hot(targets, classes).double()
    matrix = torch.zeros(width, classes, dtype=torch.float64)

    def loss(at):
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
