"""What order tells nothing: the likeliest answer given a token and how often every token has occurred so far.

Counts above MOST are one: a key is then seen often enough for its likeliest answer to be known.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from utfproof.training.task import Baseline, Batch, Task, seeded

if TYPE_CHECKING:
    from torch import Tensor

MOST = 7
"""Counts from here on are alike."""
SEQUENCES = 10_000
"""Drawn at most; the answers are learned on one half and scored on the other."""
NAME = "counts and token"


@cache
def counting_rule(task: Task, sequences: int) -> Baseline:
    """The likeliest answer given the token and the counts of all tokens up to it, on half of `sequences` fresh sequences."""
    half = max(1, min(sequences, SEQUENCES) // 2)
    seen, fresh = (task.batch(half, seeded(0, NAME, part)) for part in range(2))
    right = _answers(task, seen, fresh) == fresh.targets
    accuracy, second = (float(right[mask].double().mean()) for mask in (fresh.scored, fresh.scored_answers))
    said = f"the likeliest answer given the token and how often each has occurred (up to {MOST})"
    return Baseline(NAME, said, accuracy, second, half)


def _answers(task: Task, seen: Batch, fresh: Batch) -> Tensor:
    """Ids [B, n]: the likeliest answers of the sequences that were seen; the likeliest of all to a key that was not."""
    import torch

    asked, size = seen.scored, task.vocabulary
    packed = keys(seen.inputs, task.input_ids)[asked] * size + seen.targets[asked]
    pairs, counts = packed.unique(return_counts=True)
    known, group = (pairs // size).unique(return_inverse=True)
    # by how often it is the answer; then the largest id
    best = torch.zeros_like(known).scatter_reduce(0, group, counts * size + pairs % size, "amax") % size
    wanted = keys(fresh.inputs, task.input_ids)
    at = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    return torch.where(known[at] == wanted, best[at], seen.targets[asked].mode().values)


def keys(inputs: Tensor, ids: tuple[int, ...]) -> Tensor:
    """A number for the token and the counts up to it, at each position [B, n] of sequences of these tokens."""
    import torch

    here = inputs[..., None] == torch.tensor(ids)
    counted = here.cumsum(1).clamp(max=MOST)
    powers = (MOST + 1) ** torch.arange(len(ids))
    return (counted * powers).sum(-1) * len(ids) + here.long().argmax(-1)
