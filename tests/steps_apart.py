"""How far two trainers of one preset come apart, on whatever devices they are."""

import torch

from utfproof.training.loop import Trainer


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.detach(), b.detach().to(a.device)
    return float((a - b).norm() / a.norm().clamp_min(1e-300))


def apart(first: Trainer, second: Trainer, steps: int) -> float:
    """The largest relative difference of losses, gradients and parameters over so many steps of both."""
    gaps = []
    for _ in range(steps):
        first.step(), second.step()
        gaps.append(gap(first.loss, second.loss))
        for name, tensor in first.model.trained.items():
            other = second.model.trained[name]
            gaps += [gap(tensor.grad, other.grad), gap(tensor, other)]
    return float(torch.tensor(gaps, dtype=torch.float64).max())  # NaN, where one of them is
