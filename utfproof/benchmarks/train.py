"""Training steps in path space and m-wide, side by side: the same preset, batch and parameters, one run.

| contestant | what runs |
|---|---|
| sparse paths, random paths | streams over the tokens that occur; activations are never m wide |
| sparse wide, random wide | the host's own matrices on activations of width m (sparse: masks for R_V) |

A step is batch, forward, backward and AdamW. Contestants take turns; medians, and ratios of medians; processor time beside
elapsed time on the CPU, which with one thread a busy machine disturbs least. Multiplications of a step
are counted by formula (`multiplications`), those of matrix products only.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from utfproof.benchmarks.timing import Seconds, check_counts, check_device, circumstances, timed, waiting
from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.training.presets import HOSTS as ALL_HOSTS
from utfproof.training.presets import PRESETS, VARIANTS

if TYPE_CHECKING:
    from utfproof.training.loop import Trainer
    from utfproof.training.task import Batch

HOSTS = ("sparse", "random")
REFERENCE = "random wide"
"""What times are divided into: the dense m-wide step; and, like for like, the m-wide step of the same host."""
_SAMPLE = 0.5
"""Seconds that a repetition lasts at least."""


@dataclass(frozen=True)
class TrainSetting:
    """What to measure: every host m-wide and in path space; with MLPs, which path space has not, m-wide with equal states once.
    batch: of all tasks, the preset's by default."""

    tasks: tuple[str, ...] = tuple(paper.TABLE_ROWS)
    hosts: tuple[str, ...] = HOSTS
    variant: str = "attention"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 2
    repetitions: int = 3
    batch: int | None = None
    seed: int = 0
    max_memory: int | None = None

    def check(self) -> None:
        """MalformedInput for what cannot be measured."""
        known = list(dict.fromkeys(point.task for point in PRESETS.values()))
        if unknown := sorted(set(self.tasks) - set(known)):
            raise MalformedInput(f"task {unknown[0]!r} is unknown; choose {', '.join(known)}")
        if (unknown := sorted(set(self.hosts) - set(ALL_HOSTS))) or not self.hosts:
            raise MalformedInput(f"host {unknown[0] if unknown else ''!r} is unknown; choose {', '.join(ALL_HOSTS)}")
        if self.variant not in VARIANTS:
            raise MalformedInput(f"variant {self.variant!r} is unknown; choose {', '.join(VARIANTS)}")
        check_counts(self.threads, self.repetitions)
        if self.batch is not None and self.batch < 1:
            raise MalformedInput(f"batch starts at 1, got {self.batch}")
        check_device(self.device)


def run(setting: TrainSetting, progress: Any = None) -> dict[str, Any]:
    """The document of one comparison."""
    import torch

    setting.check()
    before = torch.get_num_threads()
    torch.set_num_threads(setting.threads)
    try:
        about = circumstances()
        if setting.device != "cpu":
            about["accelerator"] = torch.cuda.get_device_name()
        results = [_one_task(task, setting, progress) for task in setting.tasks]
    finally:
        torch.set_num_threads(before)
    names = ("variant", "device", "dtype", "threads", "repetitions", "batch", "seed")
    return {
        "benchmark": "train",
        "setting": {name: getattr(setting, name) for name in names},
        **about,
        "results": results,
    }


def _one_task(task: str, setting: TrainSetting, progress: Any) -> dict[str, Any]:
    trainers = _trainers(task, setting)
    calls, losses, wait = {}, {}, waiting(setting.device)
    for name, trainer in trainers.items():  # the first step starts threads and maps work space
        trainer.step()
        losses[name] = float(trainer.loss[0])
        calls[name] = int(_SAMPLE / max(timed(trainer.step, 1, wait).elapsed, 1e-9)) + 1
    times: dict[str, list[Seconds]] = {name: [] for name in trainers}
    for _ in range(setting.repetitions):
        for name, trainer in trainers.items():
            times[name].append(timed(trainer.step, calls[name], wait))
        if progress is not None:
            progress()
    entries = _entries(trainers, losses, times)
    first = next(iter(trainers.values()))
    shape = first.preset.shape
    return {
        "task": task,
        "dimensions": [shape.heads, shape.layers, shape.head_dim, shape.d_in],
        "batch": first.preset.batch,
        "context": first.task.context,
        "contestants": entries,
    }


def _trainers(task: str, setting: TrainSetting) -> dict[str, Trainer]:
    """By host and engine: the engine of its own choice, and the m-wide one."""
    from utfproof.training.loop import Trainer
    from utfproof.training.presets import preset

    trainers: dict[str, Trainer] = {}
    for host, engine in product(dict.fromkeys(setting.hosts), ("auto", "wide")):
        chosen = preset(f"{task}/{host}/{setting.variant}", batch=setting.batch)
        options: dict[str, Any] = {
            "device": setting.device,
            "dtype": setting.dtype,
            "engine": engine,
            "max_memory": setting.max_memory,
        }
        trainer = Trainer(chosen, [setting.seed], **options)
        trainers[f"{host} {trainer.engine.name}"] = trainer
    return trainers


def _entries(
    trainers: dict[str, Trainer], losses: dict[str, float], times: dict[str, list[Seconds]]
) -> list[dict[str, Any]]:
    """What was measured of each, and its ratios to those that it is compared with."""
    entries = []
    for name, trainer in trainers.items():
        median = _median(times[name], "elapsed")
        entry: dict[str, Any] = {
            "name": name,
            "host": trainer.preset.host,
            "engine": trainer.engine.name,
            "m": trainer.preset.m,
            "first_loss": losses[name],
            "seconds": [sample.elapsed for sample in times[name]],
            "median_seconds": median,
            "median_processor_seconds": None if trainer.on_gpu else _median(times[name], "processor"),
            "steps_per_second": 1 / median,
            "multiplications": multiplications(trainer),
        }
        for reference in dict.fromkeys((REFERENCE, f"{name.split()[0]} wide")):
            if reference not in times:
                continue
            entry["speed over " + reference] = _median(times[reference], "elapsed") / median
            if not trainer.on_gpu:
                used = max(_median(times[name], "processor"), 1e-9)
                entry["less processor time than " + reference] = _median(times[reference], "processor") / used
            least = multiplications(trainers[reference])
            entry["fewer multiplications than " + reference] = least / entry["multiplications"]
        entries.append(entry)
    return entries


def _median(samples: list[Seconds], which: str) -> float:
    return statistics.median(getattr(sample, which) for sample in samples)


# --- counting --------------------------------------------------------------------------------------------------------


def multiplications(trainer: Trainer) -> int:
    """Multiplications of one step's matrix products, forward and backward, for one model without positions.

    A product x y counts once forward, and once backward for each of x and y that has a gradient.
    """
    from utfproof.training.loop import looked_at

    batch = trainer.batch(0)
    v = len(trainer.task.input_ids) if trainer.fixed else len(batch.inputs.unique())
    look = looked_at(batch.seen)
    looks = (batch.inputs if look is None else look).shape[-1]
    if trainer.engine.name != "paths":
        return _wide(trainer, batch, looks)
    return _tables(trainer, v) + _streams(trainer, v, looks)


def _wide(trainer: Trainer, batch: Batch, looks: int) -> int:
    """m-wide, every token or every state once. A frozen matrix's products count without those for its own gradient."""
    from utfproof.training.loop import looked_at
    from utfproof.training.shared import shared_rows

    model, preset = trainer.model, trainer.preset
    H, L, d, m, n = preset.heads, preset.layers, preset.head_dim, model.m, trainer.task.context
    tokens, frozen, shared = preset.batch * n, model.hosts is not None, trainer.engine.name == "shared"
    passes, inner = (2, m) if frozen else (3, 2 * d if "W_V" in model else m)
    v = len(batch.inputs.unique())
    rows = shared_rows(batch.inputs[0], looked_at(batch.seen[0]), L) if shared else [tokens] * L
    reads = preset.residual or not trainer.engine.folds  # type: ignore[union-attr]
    total = 3 * preset.batch * looks * m * model.shape.d_out * reads
    for layer, count in enumerate(rows):
        by_number = shared and not layer
        read = v if by_number else rows[0] if shared and layer == 1 else tokens
        part = trainer.engine._layers[0][layer] if frozen else None  # type: ignore[union-attr]
        width = m if part is None else part.last - part.first
        maps = H if part is None else sum(value.dim() == 2 for value in part.values)
        total += passes * read * width * 2 * H * d
        total += passes * (v if by_number else count) * m * inner * maps
        mixes = by_number and preset.mlp and preset.norm_place == "pre"
        mixed = (H + (mixes and preset.residual)) * v
        kept = None if part is None else part.kept
        moved = H * m if kept is None else sum(run.stop - run.start for runs in kept for run in runs)
        reached = mixed * count * m * (preset.residual or preset.norm or not mixes)
        total += 3 * (H * v * v * d + reached) if by_number else 3 * count * n * (H * d + moved)
        total += preset.mlp and _mlp(trainer, layer, count, passes, mixes * mixed)
    return total


def _mlp(trainer: Trainer, layer: int, count: int, passes: int, mixed: int) -> int:
    """One layer's on so many rows. Where states are shared, the rows that the first ones are mixed of go through its first
    matrix, and U through the last layer's second."""
    preset, m, w, out = trainer.preset, trainer.model.m, trainer.preset.mlp_width, trainer.model.shape.d_out
    first = last = passes * count * m * w
    if mixed:
        first = passes * (mixed + ("gain" in trainer.model)) * m * w + 3 * count * mixed * w
    if trainer.engine.folds and layer == preset.layers - 1:  # type: ignore[union-attr]
        last = passes * (w + 1) * m * out + 3 * count * w * out
    return first + last


def _tables(trainer: Trainer, v: int) -> int:
    """Of the program: E R_w R_Q, E R_w R_K and E R_w U."""
    from utfproof.training.nested import NestedNormedProgram
    from utfproof.training.programs import DenseProgram, IndexProgram

    model, program = trainer.model, trainer.engine.program  # type: ignore[union-attr]
    shape, m, letters, out = model.shape, model.m, model.letters, model.shape.d_out
    H, L, d = shape.heads, shape.layers, shape.head_dim
    if isinstance(program, NestedNormedProgram):
        members, v, program = program._members.numel(), v + 1, program.index
        total = 2 * (v * v + v) * members
    elif model.norm:
        return _normed_tables(trainer, v)
    else:
        total = 0
    if isinstance(program, IndexProgram):
        total += 3 * v * out * sum(size * count for size, count in program._buckets)
        return total + (0 if program._order is not None else 2 * program._mix.numel() * v * out)
    if isinstance(program, DenseProgram):
        split = program.split(v)
        met = m * v * out * letters**L
        readers = v * m * 2 * H * d * sum(letters**layer for layer in range(L))
        return 2 * readers + 2 * (program.output_multiplications(v, split) - met) + 3 * met
    for layer in range(L):
        rows = v * letters**layer
        total += 3 * rows * m * 2 * H * d
        if layer + 1 == L and "W_V" not in model and rows > out:
            return total + 3 * H * m * m * out + 3 * rows * m * out * letters
        total += 3 * rows * H * m * (2 * d if "W_V" in model else m)
    return total + 3 * v * letters**L * m * out


def _normed_tables(trainer: Trainer, v: int) -> int:
    """With LN: rows through every layer, and a Gram matrix for each LN but the first."""
    model = trainer.model
    maps = trainer.engine.program._frozen  # type: ignore[union-attr]
    H, L, d, m = model.shape.heads, model.shape.layers, model.shape.head_dim, model.m
    trained, total = model.hosts is None, 0
    for layer, (c, read) in enumerate(_rows(trainer, v)):
        total += 2 * c * c * m * (layer > 0)
        if layer == L:
            return total + 3 * read * m * model.shape.d_out
        total += (3 if trained else 2) * read * m * 2 * H * d
        if not trained:
            total += 2 * read * m * m * sum(value.shape[1] > 1 for value in maps[layer]._values)
        else:
            total += 3 * read * m * H * (2 * d if "W_V" in model else m)
    raise AssertionError("there is an LN before U")


def _rows(trainer: Trainer, v: int) -> list[tuple[int, int]]:
    """Rows of the stream before each layer and before U, and rows that are read there: with LN these may be one more."""
    model, found = trainer.model, []
    nested = trainer.engine._nested  # type: ignore[union-attr]
    for layer in range(model.shape.layers + 1):
        read = v + (layer > 0 and "shift" in model)
        found.append((v, read))
        v = (read if model.norm_place == "post" else v) * (model.residual and not nested) + read * model.shape.heads
    return found


def _streams(trainer: Trainer, v: int, looks: int) -> int:
    """Of attention on streams and of reading outputs from them."""
    from utfproof.training import kernel
    from utfproof.training.matrices import symmetric_entries
    from utfproof.training.paths import shares_keys

    nested, ones = trainer.engine._nested, trainer.engine._ones  # type: ignore[union-attr]
    v += ones
    model, preset = trainer.model, trainer.preset
    H, L, d, out = preset.heads, preset.layers, preset.head_dim, model.shape.d_out
    B, n, cpu = preset.batch, trainer.task.context, not trainer.on_gpu
    k = looks if L == 1 else n

    def form(c: int) -> int:
        """p G p^T and its gradients, at one position."""
        return c * c + symmetric_entries(c, cpu)

    total = 3 * H * v * v * d + 2 * B * k * v * H * v  # the first layer: tokens' logits, read by one-hot rows
    rows = _rows(trainer, v)
    if ones:  # of words of each length, those alive and those that rest: the longest are alive where the loss looks
        measured = [(2 * B * n, c) for c, _ in rows[:-1]] + [(B * looks, rows[-1][0])]
        total += sum(positions * (form(c) + 3 * c) for positions, c in measured) - B * looks * v * out  # tokens stand
    for layer in range(1, L):
        k = looks if layer == L - 1 else n
        c, w = rows[layer]
        if model.norm and not ones:
            total += B * n * form(c)
        if shares_keys(w, d):
            pairs = kernel.seen(k, n, H, cpu, k == n)
            total += 3 * H * w * w * d + 3 * B * k * w * H * w + 3 * B * pairs * 2 * w
            continue
        total += 3 * B * (k + n) * w * H * d
        early = layer == L - 1 and out < w and not model.norm and not nested
        width = d + (out if early else w)
        total += 3 * B * H * kernel.seen(k, n, 1, cpu, k == n) * width
        if early:
            total += 3 * B * n * w * H * out
            return total + (3 * B * k * w * out if preset.residual else 0)
    c = sum(c for c, _ in rows) if nested else rows[L][0]
    return total + 3 * B * looks * c * out + (B * looks * form(c) if model.norm and not ones else 0)
