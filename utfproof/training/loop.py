"""Training: one step of AdamW on the loss where the task looks, and evaluation on fresh sequences.

The learning rate rises linearly over the warm-up steps, from 1/warmup of its height, and falls to 0 at the last step, linearly
unless said otherwise.
The batch of a step depends on the seed and the step alone, so that nothing but parameters and moments has to be kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import require_device, whole_products
from utfproof.ground.resources import keep_freed_memory, require_memory
from utfproof.training.models import TF32, TRAINED, Model, build_model, is_trained
from utfproof.training.paths import PathEngine
from utfproof.training.shared import SharedEngine, shared_rows
from utfproof.training.task import Batch, seeded
from utfproof.training.wide import WideEngine

if TYPE_CHECKING:
    from torch import Tensor

    from utfproof.training.presets import Preset
    from utfproof.training.task import Task

ENGINES = ("auto", "paths", "shared", "wide")
EPSILON = 1e-8
"""Of AdamW, as in torch."""
EVALUATION_BATCH = 256
_CACHED = 400_000
"""Numbers of states that are taken together m-wide on a CPU: they stay in the second-level cache."""
_TOKEN = 2 * 8 + 3
"""Bytes of a position of a batch: two ids and three marks."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """On this thread numbers below the normal range count as 0: attention that has become sharp is full of them, and a
    processor takes a hundred times as long over each. Threads that torch has started before are not reached."""
    import torch

    already = not (torch.tensor(1e-310, dtype=torch.float64) * 1).item()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


class Scores(NamedTuple):
    """Of each model [S]: mean loss, accuracy, and the task's second accuracy."""

    loss: list[float]
    accuracy: list[float]
    answers: list[float]


def learning_rate(preset: Preset, step: int) -> float:
    """Of step 0 ... steps - 1: linear warm-up, then linear decay, none (constant), or half a cosine."""
    if step < preset.warmup:
        return preset.learning_rate * (step + 1) / preset.warmup
    left = max(0, preset.steps - step) / max(1, preset.steps - preset.warmup)
    share = {"linear": left, "constant": 1.0, "cosine": (1 - math.cos(math.pi * left)) / 2}[preset.decay]
    return preset.learning_rate * share


def engine_name(preset: Preset, engine: str) -> str:
    """paths, shared or wide. Left open: paths wherever it can run, but for LN with learned positions, where a stream has a
    coefficient for each of these and its variance costs their square; m-wide then, with equal states computed once (shared)
    where no learned positions tell them apart. MalformedInput where the engine cannot run."""
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    if engine == "paths" and preset.mlp:
        raise MalformedInput("engine paths has no MLPs: they are not linear; use --engine shared or wide")
    learned = preset.positions == "learned"
    if engine == "shared" and learned:
        raise MalformedInput("engine shared has no learned positions: they tell all states apart; use --engine wide")
    if engine == "auto":
        if preset.mlp or (preset.norm and learned):
            return "wide" if learned else "shared"
        return "paths"
    return engine


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """The batches of several seeds side by side, [S, B, n] each."""
    import torch

    return Batch(**{name: torch.stack([getattr(batch, name) for batch in batches]) for name in vars(batches[0])})


def parted(batch: Batch, size: int) -> Iterator[Batch]:
    """Batches [S, B, n] of `size` sequences at a time, the last ones fewer."""
    for start in range(0, batch.inputs.shape[1], size):
        yield Batch(**{name: tensor[:, start : start + size] for name, tensor in vars(batch).items()})


def looked_at(mask: Tensor, most: int | None = None) -> Tensor | None:
    """Positions [S, B, k] of every sequence that hold all the marked ones of mask [S, B, n] (others too where a sequence has
    fewer than k), or None where k would be more than half of n. most: k, where it is known beforehand."""
    n = mask.shape[-1]
    k = int(mask.sum(-1).max()) if most is None else most
    if k == 0 or 2 * k > n:
        return None
    if k == 1:
        return mask.byte().argmax(-1, keepdim=True)
    return mask.byte().argsort(dim=-1, descending=True, stable=True)[..., :k].sort(-1).values


class Looked(NamedTuple):
    """At k positions of every sequence: logits [S, B, k, d_out], the others [S, B, k]."""

    logits: Tensor
    targets: Tensor
    loss_mask: Tensor
    scored: Tensor
    scored_answers: Tensor


class Trainer:
    """Models of some seeds of one preset, their optimiser and engine. `done` counts steps.

    fixed: nothing of a step's shape depends on its batch, as a captured graph needs (always so on a GPU): the rows of all
    ids that inputs may hold are used, and where all sequences of the first batch have equally many marked positions, one that
    has more makes the loss NaN.
    Raises MalformedInput for what cannot run, ResourceLimit before allocating.
    """

    def __init__(
        self,
        preset: Preset,
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        dtype: str = "float32",
        engine: str = "auto",
        fixed: bool | None = None,
        max_memory: int | None = None,
    ) -> None:
        import torch

        require_device(device)
        keep_freed_memory()
        self.preset, self.device, self.dtype = preset, device, dtype
        self.task: Task = preset.make_task()
        self.scored_task: Task = preset.make_task(scored=True)
        self.on_gpu = torch.device(device).type == "cuda"
        self.fixed = self.on_gpu and not preset.grow_from if fixed is None else fixed
        name = engine_name(preset, engine)
        self._require_least_memory(len(seeds), max_memory)
        if name != "paths":
            self._require_memory_of_a_step(name, seeds[0], max_memory)
        self.model: Model = build_model(
            preset, seeds, self.task.context, device=device, dtype=dtype, max_memory=max_memory
        )
        self.engine: PathEngine | WideEngine = (
            PathEngine(self.model, max_memory=max_memory)
            if name == "paths"
            else {"shared": SharedEngine, "wide": WideEngine}[name](self.model)
        )
        self.done = 0
        self.first_batch = 0  # of the stream of training batches
        self._most: int | None = None
        self._ids = torch.tensor(self.task.input_ids, device=device)
        self._graph: Any = None
        self.optimizer = self._optimizer()
        kept = torch.float64 if dtype == "float64" else torch.float32
        self.loss = torch.zeros(len(seeds), device=device, dtype=kept)
        self.accuracy = torch.zeros(len(seeds), device=device, dtype=kept)

    def _require_least_memory(self, seeds: int, max_memory: int | None) -> None:
        """ResourceLimit where E and U, their gradients and moments, and the batches alone take too much for any engine."""
        preset, size = self.preset, 8 if self.dtype == "float64" else 4
        numbers = 4 * size * 2 * preset.m * preset.vocabulary
        tokens = _TOKEN * preset.batch * self.task.context
        what = f"E and U at m = {preset.m} with {preset.batch} sequences of {self.task.context} tokens"
        require_memory(seeds * (numbers + tokens), what, max_memory)

    def _require_memory_of_a_step(self, engine: str, seed: int, max_memory: int | None) -> None:
        """ResourceLimit where an m-wide step takes too much; with equal states once, as on the first batch."""
        preset, context = self.preset, self.task.context
        rows = [self.together(engine, preset.batch, context) * context] * preset.layers
        if engine == "shared":
            batch = self.task.batch(preset.batch, seeded(seed, "train", 0, self.device))
            rows = shared_rows(batch.inputs, looked_at(batch.loss_mask), preset.layers)
        needed = wide_memory(preset, context, self.dtype, rows)
        require_memory(needed, f"a step of {preset.batch} sequences m-wide, m = {preset.m},", max_memory)

    def _optimizer(self) -> Any:
        """AdamW with its state made at once: a captured graph may make none."""
        import torch

        rate: Any = torch.zeros((), device=self.device) if self.on_gpu else 0.0
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=rate,
            betas=self.preset.betas,
            eps=EPSILON,
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
        """The batches of this step, one for each seed, [S, B, n]."""
        seeds, task = self.model.seeds, self.task
        if self.preset.grow_from:
            task = self.preset.make_task(step=step)
        return stack_batches([task.batch(self.preset.batch, seeded(s, "train", step, self.device)) for s in seeds])

    def step(self) -> None:
        """One step on fresh data; afterwards `loss` and `accuracy` [S] are those of its batch before the step."""
        batch = self.batch(self.first_batch + self.done)
        rate = learning_rate(self.preset, self.done)
        for group in self.optimizer.param_groups:
            if self.on_gpu:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        # the number of equal states, and a length that grows, are the batch's own
        if self.on_gpu and self.engine.name != "shared" and not self.preset.grow_from:
            self._replay(batch)
        else:
            self.update(batch)
        self.done += 1

    def update(self, batch: Batch) -> None:
        """Loss, gradients and AdamW, for batches [S, B, n]."""
        self.optimizer.zero_grad()  # in a captured graph too, whose own memory the gradients are then
        marked, scored, size = batch.loss_mask.sum((1, 2)), 0, self.together(self.engine.name, *batch.inputs.shape[1:])
        self.loss.zero_(), self.accuracy.zero_()
        with tiny_is_zero(), whole_products(tf32=self.dtype == TF32):
            for part in parted(batch, size):
                losses, looked = self.losses(part, marked)
                losses.sum().backward()
                self.loss += losses.detach()
                self.accuracy += _right(looked).sum((1, 2))
                scored = scored + looked.scored.sum((1, 2))
            self._clip()
            self.optimizer.step()
        self.accuracy /= scored

    def _clip(self) -> None:
        """Scale each model's gradients down to the preset's `max_grad_norm`, as torch's clip_grad_norm_ does for one model."""
        import torch

        if not self.preset.max_grad_norm:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients])
        scale = (self.preset.max_grad_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))

    def together(self, engine: str, batch: int, context: int) -> int:
        """Sequences of a batch that are taken together: m-wide on a CPU, with a frozen host, those whose states stay in its
        cache, else all. Gradients of trained matrices would have to be added up, and equal states be computed, once a part."""
        preset = self.preset
        if engine != "wide" or self.fixed or self.on_gpu or is_trained(preset.host):
            return batch
        return min(batch, max(1, _CACHED // (context * preset.m)))

    def losses(self, batch: Batch, marked: Tensor | None = None) -> tuple[Tensor, Looked]:
        """Mean losses [S] at the marked positions, and what they were computed from; marked [S]: how many these are, where the
        batch is a part of a larger one, of whose means these are shares."""
        looked = self.look(batch)
        nll = _nll(looked.logits, looked.targets)
        weight = looked.loss_mask.to(nll.dtype)
        losses = (nll * weight).sum((1, 2)) / (weight.sum((1, 2)) if marked is None else marked)
        part = looked.logits.shape[2] < batch.inputs.shape[2]
        if part and self.fixed and self._most is not None:  # never silently: positions left out would be a wrong loss
            import torch

            left_out = (batch.seen.sum(-1) > self._most).any()
            losses = torch.where(left_out, torch.full_like(losses, float("nan")), losses)
        return losses, looked

    def look(self, batch: Batch) -> Looked:
        """Logits and targets where they are wanted, or at all positions where that is about as cheap."""
        mask = batch.seen
        if self.fixed and self._most is None:
            marked = mask.sum(-1)  # where sequences differ, later ones may have more
            self._most = int(marked.max()) if bool((marked == marked.max()).all()) else mask.shape[-1]
        look = looked_at(mask, self._most if self.fixed else None)
        logits = self.engine.logits(batch.inputs, look, self._ids if self.fixed else None)
        others = (batch.targets, batch.loss_mask, batch.scored, batch.scored_answers)
        return Looked(logits, *(x if look is None else x.gather(2, look) for x in others))

    def _replay(self, batch: Batch) -> None:
        """The step as a captured graph: captured at the first, replayed from then on."""
        import torch

        if self._graph is None:
            self._inputs = batch
            self._graph = self._captured(torch.cuda.CUDAGraph())
        for name in vars(batch):
            getattr(self._inputs, name).copy_(getattr(batch, name))
        self._graph.replay()

    def _captured(self, graph: Any) -> Any:
        """`update` of the held inputs as a graph; the trial steps before capture are undone."""
        import torch

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
        for name in sorted(self.model.trained):
            parameter = self.model.trained[name]
            found[f"parameter.{name}"] = parameter.detach()
            found.update({f"{moment}.{name}": self.optimizer.state[parameter][moment] for moment in MOMENTS})
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave. MalformedInput where a tensor is missing or does not fit."""
        import torch

        held = self.tensors()
        if wrong := sorted(set(held) ^ set(tensors)):
            state = "missing" if wrong[0] in held else "unknown"
            raise MalformedInput(f"the checkpoint does not fit this run: {wrong[0]} is {state}")
        with torch.no_grad():
            for name, tensor in held.items():
                if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
                    raise MalformedInput(f"the checkpoint does not fit this run: {name} is of another shape or dtype")
                tensor.copy_(tensors[name])

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def evaluation_batches(self, sequences: int) -> Iterator[Batch]:
        """The fresh sequences of each seed that `evaluate` uses, [S, B, n] at a time."""
        for number, start in enumerate(range(0, sequences, EVALUATION_BATCH)):
            size = min(EVALUATION_BATCH, sequences - start)
            seeds = self.model.seeds
            yield stack_batches(
                [self.scored_task.batch(size, seeded(s, "evaluation", number, self.device)) for s in seeds]
            )

    def evaluate(self, sequences: int) -> Scores:
        """Loss and accuracies over fresh sequences, the same ones for every step at which it is asked."""
        import torch

        S = len(self.model.seeds)
        sums = torch.zeros(6, S, dtype=torch.float64)
        fixed, self.fixed = self.fixed, False
        try:
            with torch.no_grad(), tiny_is_zero(), whole_products(tf32=self.dtype == TF32):
                for batch in self.evaluation_batches(sequences):
                    looked = self.look(batch)
                    nll = _nll(looked.logits, looked.targets).double() * looked.loss_mask
                    right = looked.logits.argmax(-1) == looked.targets
                    masks = (looked.scored, looked.scored_answers)
                    parts = [nll.sum((1, 2)), looked.loss_mask.sum((1, 2))]
                    for mask in masks:
                        parts += [(right & mask).sum((1, 2)), mask.sum((1, 2))]
                    sums += torch.stack([part.double().cpu() for part in parts])
        finally:
            self.fixed = fixed
        shares = sums[::2] / sums[1::2]
        return Scores(*(row.tolist() for row in shares))


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    import torch

    flat = logits.reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, targets.reshape(-1), reduction="none").view(targets.shape)


def _right(looked: Looked) -> Tensor:
    """Which of the scored positions have the right answer, [S, B, k]."""
    return (looked.logits.detach().argmax(-1) == looked.targets) & looked.scored


def parallel_seeds(preset: Preset, device: str, engine: str) -> bool:
    """Whether several seeds run side by side: on a GPU in path space, where one model leaves most of it idle, but for
    m-wide trained transformers, which fill it."""
    return device != "cpu" and engine_name(preset, engine) == "paths" and preset.host != TRAINED


def wide_memory(preset: Preset, context: int, dtype: str, rows: Sequence[int]) -> int:
    """Bytes that one m-wide step keeps for its gradients, about: activations of so many rows of each layer, attention, inner
    MLPs."""
    H, m = preset.heads, preset.m
    each = m * (3 + H + 2 * preset.norm) + 3 * preset.mlp * preset.mlp_width + 3 * H * context
    return {"float64": 8, "bfloat16": 2}.get(dtype, 4) * each * sum(rows)


def threads() -> int:
    """Threads of torch's linear algebra; the last bits of float sums may depend on them."""
    import torch

    return int(torch.get_num_threads()) or (os.cpu_count() or 1)
