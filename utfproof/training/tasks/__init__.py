"""The tasks of the paper's experiments (Section 5.1), generated on the device that trains.

A batch depends on the state of its generator only, and `seeded` makes that state from (seed, stream, step) alone: a
resumed run sees the same batches to the bit. CPU and CUDA generators give different numbers for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from utfproof.errors import MalformedInput
from utfproof.ground.generator import check_seed, mix

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LOSSES = ("answer", "sequence")
_MASK32 = 2**32 - 1


@dataclass(frozen=True)
class Batch:
    """Sequences and what is asked of them, all [B, n] on one device."""

    inputs: Tensor
    """int64 token ids."""
    targets: Tensor
    """int64 token ids wanted at the same positions."""
    loss_mask: Tensor
    """bool: the positions that the loss averages over."""
    scored: Tensor
    """bool: the positions that the accuracy averages over."""
    scored_answers: Tensor
    """bool: the positions of a second accuracy (k-hop: without the blank; parentheses: the same as `scored`)."""


class Task(Protocol):
    """A task: a name, a vocabulary (d_in = d_out), a context length n and a generator of batches."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def context(self) -> int: ...

    @property
    def input_ids(self) -> tuple[int, ...]:
        """The ids that inputs may hold, in increasing order."""
        ...

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh sequences on the generator's device."""
        ...


def _parentheses(**options: Any) -> Task:
    from utfproof.training.tasks.parentheses import Parentheses

    return Parentheses(**options)


def _k_hop(hops: int) -> Callable[..., Task]:
    def make(**options: Any) -> Task:
        from utfproof.training.tasks.khop import KHop

        return KHop(**{"min_hops": hops, "max_hops": hops, **options})

    return make


MOST_HOPS = 16
"""The largest query of a k-hop task."""

TASKS: dict[str, Callable[..., Task]] = {
    "parentheses": _parentheses,
    **{f"{hops}-hop": _k_hop(hops) for hops in range(1, MOST_HOPS + 1)},
}


def task_named(name: str, **options: Any) -> Task:
    """The task of that name; options are the fields of `Parentheses` or `KHop`. MalformedInput for unknown ones."""
    if name not in TASKS:
        raise MalformedInput(f"task {name!r} is unknown; choose parentheses, 1-hop, ... {MOST_HOPS}-hop")
    try:
        return TASKS[name](**options)
    except TypeError as error:
        raise MalformedInput(f"task {name}: {error}") from None


def stream_seed(seed: int, stream: str, step: int) -> int:
    """64 bits for (seed, stream, step): one word for each step whose low half never repeats within a stream.

    The CPU generator keeps the low 32 bits of its seed only, so these are a permutation of the step, masked by the key of
    (seed, stream).
    """
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= _MASK32:
        raise MalformedInput(f"step must be an integer from 0 to 2^32 - 1, got {step!r}")
    key = mix(check_seed(seed))
    for byte in stream.encode():
        key = mix(key + byte + 1)
    low = step
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):  # each step is invertible modulo 2^32
        low = ((low ^ (low >> shift)) * factor) & _MASK32
    return (key & ~_MASK32) | (low ^ (key & _MASK32))


def seeded(seed: int, stream: str, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one step: its numbers depend on (seed, stream, step) and the kind of device only."""
    import torch

    return torch.Generator(device=device).manual_seed(stream_seed(seed, stream, step))


def check_loss(loss: str) -> str:
    """`loss` if it is known; MalformedInput otherwise."""
    if loss not in LOSSES:
        raise MalformedInput(f"loss {loss!r} is unknown; choose {' or '.join(LOSSES)}")
    return loss


def check_size(size: int) -> int:
    """`size` of a batch if it is positive; MalformedInput otherwise."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise MalformedInput(f"a batch has at least one sequence, got size {size!r}")
    return size
