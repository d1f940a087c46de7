"""One training step: a fresh batch, the loss where the task looks, gradients, AdamW; and evaluation on fresh sequences.

The learning rate rises linearly over the warm-up steps and then falls to 0 at the last step, linearly unless the preset
says otherwise. The batch of a step depends on the seed and the step alone. On a GPU a step is one CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from utfproof.errors import MalformedInput
from utfproof.training.model import TF32, build_model
from utfproof.training.paths import PathEngine
from utfproof.training.presets import Preset
from utfproof.training.task import Batch, seeded
from utfproof.training.wide import WideEngine
from utfproof.util.arrays import require_device, whole_products

if TYPE_CHECKING:
    from torch import Tensor

ENGINES = ("auto", "paths", "wide")
EVALUATION_BATCH = 256
CPU_PART = 32
"""Sequences that a CPU takes together: activations of more do not stay in its caches."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


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
        self.preset, self.seed, self.device, self.dtype = preset, seed, device, dtype
        self.task, self.scored_task = preset.make_task(), preset.make_task(scored=True)
        self.on_gpu = torch.device(device).type == "cuda"
        chosen = PathEngine if engine_name(preset, engine) == "paths" else WideEngine
        self.model = build_model(preset, seed, self.task.context, device=device, dtype=dtype, max_memory=max_memory)
        self.engine: PathEngine | WideEngine = chosen(self.model, self.task.input_ids)
        self.optimizer = self._optimizer()
        self.done = 0
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
        batch = self.batch(self.done)
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

    def update(self, batch: Batch) -> None:
        """Loss, gradients and AdamW."""
        import torch

        self.optimizer.zero_grad()  # in a captured graph too, whose own memory the gradients are then
        marked, scored = batch.loss_mask.sum(), batch.scored.sum()
        self.loss.zero_(), self.accuracy.zero_()
        with tiny_is_zero(), whole_products(tf32=self.dtype == TF32):
            for part in self._parted(batch):
                nll, right = self.outcomes(part)
                loss = (nll * part.loss_mask).sum() / marked
                loss.backward()
                self.loss += loss.detach()
                self.accuracy += (right & part.scored).sum()
            if self.preset.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.preset.max_grad_norm)
            self.optimizer.step()
        self.accuracy /= scored

    def outcomes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and whether the likeliest answer is the target, [B, k] each."""
        import torch

        logits = self.engine.logits(batch.inputs, batch.look)
        nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")
        return nll, logits.detach().argmax(-1) == batch.targets

    def _parted(self, batch: Batch) -> Iterator[Batch]:
        """Parts of a batch that are taken together, one on a GPU."""
        size = len(batch.inputs) if self.on_gpu else CPU_PART
        for start in range(0, len(batch.inputs), size):
            fields = vars(batch).items()
            yield Batch(**{name: None if held is None else held[start : start + size] for name, held in fields})

    def _replay(self, batch: Batch) -> None:
        """The step as a CUDA graph, captured at the first step."""
        import torch

        if self._inputs is None:
            self._inputs = batch
            self._graph = self._captured(torch.cuda.CUDAGraph())
        for name, tensor in vars(batch).items():
            if tensor is not None:
                getattr(self._inputs, name).copy_(tensor)
        self._graph.replay()

    def _captured(self, graph: Any) -> Any:
        """`update` of the held inputs as a graph; the trial steps before capture are undone."""
        import torch

        assert self._inputs is not None
        before = {name: tensor.clone() for name, tensor in self.tensors().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.update(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.restore(before)
        with torch.cuda.graph(graph):
            self.update(self._inputs)
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
        self.set_tensors(self.tensors(), tensors)

    def set_parameters(self, values: dict[str, Any]) -> None:
        """Set the trained parameters. MalformedInput where one is missing or does not fit."""
        import torch

        held = {name: parameter.detach() for name, parameter in self.model.trained.items()}
        self.set_tensors(held, {name: torch.as_tensor(value).to(held["E"]) for name, value in values.items()})

    @staticmethod
    def set_tensors(held: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        """Copy tensors into those of the same names."""
        import torch

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
                for part in self._parted(batch):
                    nll, right = self.outcomes(part)
                    parts = [(nll.double() * part.loss_mask).sum(), part.loss_mask.sum()]
                    for mask in (part.scored, part.scored_answers):
                        parts += [(right & mask).sum(), mask.sum()]
                    sums += torch.stack([number.double() for number in parts]).cpu()
        return Scores(*(sums[::2] / sums[1::2]).tolist())


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
