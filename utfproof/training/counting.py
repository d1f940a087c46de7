"""What order tells nothing: tokens and how often each has occurred so far, and the likeliest answer given these.

For the rule, counts above MOST are one: a key is then seen often enough for its likeliest answer to be known.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from utfproof.training.task import Baseline, Task, drawn_baseline, seeded

if TYPE_CHECKING:
    from torch import Tensor

MOST = 7
"""Counts from here on are alike to the rule."""
SEQUENCES = 10_000
"""Drawn at most; the answers are learned on one half and scored on the other."""
NAME = "counts and token"
_LARGEST = 2**62
"""Keys are kept below this."""


def counted(ids: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of ids [B, n]: the tokens [v] that occur; the place of each id in these [B, n]; how often each token has occurred up
    to there, itself included, at most `most` [B, n, v]."""
    import torch

    tokens, place = ids.unique(return_inverse=True)
    counts = torch.nn.functional.one_hot(place, len(tokens)).cumsum(1).clamp(max=most)
    return tokens, place, counts


def state_key(place: Tensor, counts: Tensor) -> Tensor:
    """Of places [B, n] among v tokens and counts [B, n, v]: a key [B, n], equal exactly where both are."""
    key, size, base = place, counts.shape[-1], int(counts.max()) + 1
    for count in counts.unbind(-1):
        if size * base >= _LARGEST:
            distinct, key = key.unique(return_inverse=True)
            size = len(distinct)
        key, size = key * base + count, size * base
    return key


@cache
def counting_rule(task: Task, sequences: int) -> Baseline:
    """The likeliest answer given the token and the counts of all tokens up to it, on half of `sequences` fresh sequences."""
    import torch

    half = max(1, min(sequences, SEQUENCES) // 2)
    seen, fresh = (task.batch(half, seeded(0, NAME, part)) for part in range(2))
    _, place, counts = counted(torch.cat([seen.inputs, fresh.inputs]), MOST)
    key = state_key(place, counts)
    answers = likeliest(key[:half][seen.scored], seen.targets[seen.scored], key[half:])
    said = f"the likeliest answer given the token and how often each has occurred (up to {MOST})"
    return drawn_baseline(NAME, said, answers, fresh)


def likeliest(keys: Tensor, answers: Tensor, wanted: Tensor) -> Tensor:
    """The likeliest answer to each of the wanted keys (any shape), where answers [k] were seen with keys [k]: the largest
    of equally likely ones; the likeliest of all to a key that was not seen."""
    import torch

    size = int(answers.max()) + 1
    known, which = keys.unique(return_inverse=True)
    pairs, counts = (which * size + answers).unique(return_counts=True)
    # by how often it is the answer; then the largest id
    best = torch.zeros_like(known).scatter_reduce(0, pairs // size, counts * size + pairs % size, "amax") % size
    at = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    return torch.where(known[at] == wanted, best[at], answers.mode().values)
