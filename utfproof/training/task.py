"""What a task is: a generator of batches, and its entry in the registry.

A batch depends only on its generator, and `seeded` makes that from (seed, stream, step): a resumed run sees the same
batches. CPU and CUDA generators give different numbers for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.util.generator import mix
from utfproof.util.laws import check_seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LOSSES = ("answer", "sequence")
_MASK32 = 2**32 - 1


@dataclass(frozen=True)
class Batch:
    """Sequences and what is asked of them, all on one device. n tokens a sequence, k positions that are asked."""

    inputs: Tensor
    """int64 token ids [B, n]."""
    targets: Tensor
    """int64 token ids wanted there [B, k]."""
    loss_mask: Tensor
    """bool [B, k]: the positions that the loss averages over."""
    scored: Tensor
    """bool [B, k]: the positions that the accuracy averages over."""
    scored_answers: Tensor
    """bool [B, k]: the positions of a second accuracy (k-hop: without the blank; parentheses: the same as `scored`)."""
    look: Tensor | None = None
    """int64 [B, k]: the positions that are asked; None: all n, in order."""


class Task(Protocol):
    """A task: a name, a vocabulary (d_in = d_out), a context length n and a generator of batches."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def loss(self) -> str:
        """Where the loss looks, of LOSSES."""
        ...

    @property
    def context(self) -> int: ...

    @property
    def input_ids(self) -> tuple[int, ...]:
        """The ids that inputs may hold, in increasing order."""
        ...

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh sequences on the generator's device."""
        ...


@dataclass(frozen=True)
class Baseline:
    """What a simple rule reaches: a name, the rule in words, and its accuracy as a fraction."""

    name: str
    rule: str
    accuracy: float


@dataclass(frozen=True)
class Kind:
    """A task as it is registered, by the name that presets and runs know.

    make: builds the task from keyword options. baselines: what simple rules reach, for a length (0: the usual one).
    length: the option of `make` that a preset's `length` sets; options: others that presets have fields for.
    setting: fields of a preset: shape, optimiser, m unless it is the paper's m-bar; None for a task without presets.
    """

    name: str
    make: Callable[..., Task]
    baselines: Callable[[int], list[Baseline]]
    length: str = "length"
    options: tuple[str, ...] = ()
    setting: Mapping[str, Any] | None = None


def paper_setting(task: str, optimisation: str) -> dict[str, Any] | None:
    """The fields of a preset that the paper gives for a task: shape, m and optimiser. None where it trains none."""
    if task not in paper.TABLE_ROWS:
        return None
    row, numbers = paper.TABLE_ROWS[task], paper.OPTIMISATION[optimisation]
    return {
        **{name: row[name] for name in ("heads", "layers", "head_dim", "m")},
        "steps": int(numbers.get("steps", paper.TRAINING_STEPS.get(task, 0))),
        "batch": int(numbers["batch"]),
        "learning_rate": float(numbers["learning rate"]),
        "warmup": int(numbers["warm-up"]),
    }


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
