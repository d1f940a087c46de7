"""One training step: a fresh batch, the loss where the task looks, gradients, AdamW; and evaluation on fresh sequences.

The learning rate rises linearly over the warm-up steps and then falls to 0 at the last step, linearly unless the preset
says otherwise. The batch of a step depends on the seed and the step alone. On a GPU a step is one CUDA graph.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import require_device, whole_products
from utfproof.ground.resources import keep_freed_memory
from utfproof.training.model import TF32, build_model, is_trained
from utfproof.training.paths import PathEngine
from utfproof.training.presets import Preset
from utfproof.training.task import Batch, seeded
from utfproof.training.wide import WideEngine

if TYPE_CHECKING:
    from torch import Tensor

ENGINES = ("auto", "paths", "wide")
EVALUATION_BATCH = 256
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_CACHED = 400_000
"""Numbers of activations that a CPU takes together m-wide: they stay in its second-level cache."""


class Scores(NamedTuple):
    """Mean loss, accuracy, and the task's second accuracy."""

    loss: float
    accuracy: float
    answers: float


def learning_rate(preset: Preset, step: int) -> float:
    """Of step 0 ... steps - 1: linear warm-up, then linear decay, none (constant), or half a cosine."""
    if step < preset.warmup:
        return preset.learning_rate * (step + 1) / preset.warmup
    left = max(0, preset.steps - step) / max(1, preset.steps - preset.warmup)
    share = {"linear": left, "constant": 1.0, "cosine": (1 - math.cos(math.pi * left)) / 2}[preset.decay]
    return preset.learning_rate * share


def engine_name(preset: Preset, engine: str) -> str:
    """paths or wide; auto: paths wherever it can run. MalformedInput where the engine cannot run."""
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    linear = not (preset.norm or preset.mlp or preset.positions == "learned")
    if engine == "paths" and not linear:
        raise MalformedInput("engine paths has neither normalisation nor MLPs nor learned positions; use --engine wide")
    return ("paths" if linear else "wide") if engine == "auto" else engine


class Trainer:
    """A model, its optimiser and engine. `done` counts steps; `loss` and `accuracy` are those of the last batch.
    MalformedInput for what cannot run."""

    def __init__(
        self,
        preset: Preset,
        seed: int,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        engine: str = "auto",
        max_memory: int | None = None,
    ) -> None:
        import torch

        require_device(device)
        keep_freed_memory()
        self.preset, self.seed, self.device, self.dtype = preset, seed, device, dtype
        self.task, self.scored_task = preset.make_task(), preset.make_task(scored=True)
        self.on_gpu = torch.device(device).type == "cuda"
        name = engine_name(preset, engine)
        self.model = build_model(preset, seed, self.task.context, device=device, dtype=dtype, max_memory=max_memory)
        self.engine: PathEngine | WideEngine = (
            PathEngine(self.model, self.task.input_ids) if name == "paths" else WideEngine(self.model)
        )
        self.optimizer = self._optimizer()
        self.done = 0
        self.first_batch = 0  # of the stream of training batches
        self.loss = torch.zeros((), device=device, dtype=torch.float64)
        self.accuracy = torch.zeros((), device=device, dtype=torch.float64)
        self._graph: Any = None
        self._inputs: Batch | None = None

    def _optimizer(self) -> Any:
        """AdamW with its state made at once: a captured graph may make none."""
        import torch

        rate: Any = torch.zeros((), device=self.device) if self.on_gpu else 0.0
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=rate,
            weight_decay=self.preset.weight_decay,
            fused=True,
            capturable=self.on_gpu,
        )
        for parameter in self.model.parameters():
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }
        return optimizer

    # --- one step ---------------------------------------------------------------------------------------------------

    def batch(self, step: int) -> Batch:
        """The batch of this step."""
        return self.task.batch(self.preset.batch, seeded(self.seed, "train", step, self.device))

    def step(self) -> None:
        """One step on fresh data; afterwards `loss` and `accuracy` are those of its batch before the step."""
        batch = self.batch(self.first_batch + self.done)
        rate = learning_rate(self.preset, self.done)
        for group in self.optimizer.param_groups:
            if self.on_gpu:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self.on_gpu:
            self._replay(batch)
        else:
            self.update(batch)
        self.done += 1

    def update(self, batch: Batch, most: int | None = None) -> None:
        """Loss, gradients and AdamW. most: positions looked at in a sequence, where it must not depend on the batch."""
        import torch

        self.optimizer.zero_grad()  # in a captured graph too, whose own memory the gradients are then
        marked, scored = batch.loss_mask.sum(), batch.scored.sum()
        self.loss.zero_(), self.accuracy.zero_()
        with tiny_is_zero(), whole_products(tf32=self.dtype == TF32):
            for part in parted(batch, self._together(self.engine.name)):
                looked = self.look(part, most)
                loss = (looked.nll() * looked.loss_mask).sum() / marked
                loss.backward()
                self.loss += loss.detach()
                self.accuracy += (looked.right() & looked.scored).sum()
            if self.preset.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.preset.max_grad_norm)
            self.optimizer.step()
        self.accuracy /= scored

    def _together(self, engine: str) -> int:
        """Sequences that are taken together: m-wide on a CPU, with a frozen host, those that stay in its cache; else all."""
        preset = self.preset
        if engine != "wide" or self.on_gpu or is_trained(preset.host):
            return preset.batch
        return min(preset.batch, max(1, _CACHED // (self.task.context * preset.m)))

    def look(self, batch: Batch, most: int | None = None) -> Looked:
        """Logits and targets where they are wanted, or at all positions where that is about as cheap."""
        look = looked_at(batch.seen, most)
        others = (batch.targets, batch.loss_mask, batch.scored, batch.scored_answers)
        return Looked(
            self.engine.logits(batch.inputs, look), *(x if look is None else x.gather(1, look) for x in others)
        )

    def _replay(self, batch: Batch) -> None:
        """The step as a CUDA graph, captured at the first step. MalformedInput where a later batch would not fit it."""
        import torch

        if self._inputs is None:
            self._inputs, marked = batch, batch.seen.sum(-1)
            alike = bool((marked == marked[0]).all())
            self._most = int(marked[0]) if alike else batch.inputs.shape[1]  # else sequences differ: look everywhere
            self._graph = self._captured(torch.cuda.CUDAGraph())
        for name, tensor in vars(batch).items():
            getattr(self._inputs, name).copy_(tensor)
        self._graph.replay()
        # never silently: a position that is left out would be a wrong loss
        left_out = (batch.seen.sum(-1) > self._most).any()
        self.loss.masked_fill_(left_out, float("nan"))

    def _captured(self, graph: Any) -> Any:
        """`update` of the held inputs as a graph; the trial steps before capture are undone."""
        import torch

        assert self._inputs is not None
        before = {name: tensor.clone() for name, tensor in self.tensors().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.update(self._inputs, self._most)
        torch.cuda.current_stream().wait_stream(side)
        self.restore(before)
        with torch.cuda.graph(graph):
            self.update(self._inputs, self._most)
        return graph

    # --- what a checkpoint holds -------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step changes: parameters and AdamW's moments, by name."""
        found = {}
        for name, parameter in sorted(self.model.trained.items()):
            found[f"parameter.{name}"] = parameter.detach()
            found.update({f"{moment}.{name}": self.optimizer.state[parameter][moment] for moment in MOMENTS})
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave. MalformedInput where a tensor is missing or does not fit."""
        import torch

        held = self.tensors()
        if wrong := sorted(set(held) ^ set(tensors)):
            state = "missing" if wrong[0] in held else "unknown"
            raise MalformedInput(f"the checkpoint does not fit this run: {wrong[0]} is {state}; remove the folder")
        with torch.no_grad():
            for name, tensor in held.items():
                if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
                    raise MalformedInput(
                        f"the checkpoint does not fit this run: {name} has another shape or dtype; remove the folder"
                    )
                tensor.copy_(tensors[name])

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def evaluation_batches(self, sequences: int) -> Iterator[Batch]:
        """The fresh sequences that `evaluate` uses, the same at every step."""
        for number, start in enumerate(range(0, sequences, EVALUATION_BATCH)):
            size = min(EVALUATION_BATCH, sequences - start)
            yield self.scored_task.batch(size, seeded(self.seed, "evaluation", number, self.device))

    def evaluate(self, sequences: int) -> Scores:
        """Loss and accuracies over fresh sequences."""
        import torch

        sums = torch.zeros(6, dtype=torch.float64)
        with torch.no_grad(), tiny_is_zero(), whole_products(tf32=self.dtype == TF32):
            for batch in self.evaluation_batches(sequences):
                for part in parted(batch, self._together(self.engine.name)):
                    looked = self.look(part)
                    parts = [(looked.nll().double() * looked.loss_mask).sum(), looked.loss_mask.sum()]
                    for mask in (looked.scored, looked.scored_answers):
                        parts += [(looked.right() & mask).sum(), mask.sum()]
                    sums += torch.stack([number.double() for number in parts]).cpu()
        return Scores(*(sums[::2] / sums[1::2]).tolist())


class Looked(NamedTuple):
    """At k positions of every sequence: logits [B, k, d_out], the others [B, k]."""

    logits: Tensor
    targets: Tensor
    loss_mask: Tensor
    scored: Tensor
    scored_answers: Tensor

    def nll(self) -> Tensor:
        """Cross-entropy [B, k]."""
        import torch

        return torch.nn.functional.cross_entropy(self.logits.transpose(1, 2), self.targets, reduction="none")

    def right(self) -> Tensor:
        """Whether the likeliest answer is the target [B, k]."""
        return self.logits.detach().argmax(-1) == self.targets


def looked_at(mask: Tensor, most: int | None = None) -> Tensor | None:
    """Positions [B, k] of every sequence that hold all the marked ones of mask [B, n] (others too where a sequence has
    fewer than k), or None where k would be more than half of n. most: k, where it is known beforehand."""
    n = mask.shape[-1]
    k = int(mask.sum(-1).max()) if most is None else most
    if k == 0 or 2 * k > n:
        return None
    if k == 1:
        return mask.byte().argmax(-1, keepdim=True)
    return mask.byte().argsort(dim=-1, descending=True, stable=True)[..., :k].sort(-1).values


def parted(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of `size` sequences, the last one smaller."""
    for start in range(0, len(batch.inputs), size):
        yield Batch(**{name: tensor[start : start + size] for name, tensor in vars(batch).items()})


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """Numbers below the normal range count as 0 on this thread: sharp attention is full of them, and a processor takes a
    hundred times as long over each."""
    import torch

    already = not (torch.tensor(1e-310, dtype=torch.float64) * 1).item()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


def threads() -> int:
    """Threads of torch's linear algebra; the last bits of float sums may depend on them."""
    import torch

    return int(torch.get_num_threads()) or (os.cpu_count() or 1)
