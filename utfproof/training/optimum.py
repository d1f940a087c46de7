"""What a fixed host holds: a trained target is embedded into it.

Training E and U of a frozen host from N(0, 0.02^2) finds some accuracy; the embedding of a trained target shows one that
the same host has. Learned positions are coordinates of the input: E and P together are the target's embedding.

One JSON for each trained target in results/optimum/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass

from utfproof.errors import MalformedInput, Refuted, ResourceLimit, UtfproofError
from utfproof.matching import embed
from utfproof.shapes import matching_dimension
from utfproof.training import checkpoint
from utfproof.training.maps import dense
from utfproof.training.model import OWN_WIDTH, RESIDUAL_TREE, host_of, target_of
from utfproof.training.presets import STRICT, Positive, Preset, Whole, read
from utfproof.training.results import RunResult, Share, mean_and_spread, percent, run_key, with_seeds
from utfproof.training.step import Trainer
from utfproof.util.files import json_files, make_folder, read_bytes, write_json
from utfproof.util.progress import staged

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.systems import Target

DEFAULT_FOLDER = Path("results/optimum")
HOSTS = ("sparse", "sparse-front", "random", "tied", "shared-key", "shared-query")
STREAM_HOSTS = (RESIDUAL_TREE, "random")
AGREEMENT = 1e-6
"""Largest difference of logits in float64, over the largest logit, that an embedding may show."""


@dataclass(frozen=True, config=STRICT)
class Held:
    """A trained target inside a host: scores of the embedded model, and how its logits differ from the target's."""

    m: Positive
    notion: str
    condition: float | None
    accuracy: Share
    accuracy_answers: Share
    loss: float | None
    largest_difference: float
    largest_logit: float


@dataclass(frozen=True, config=STRICT)
class Optimum:
    """A trained target, the hosts that hold it, and why others do not. Scores are over `eval_sequences` fresh sequences."""

    preset: Preset
    seed: Whole
    eval_sequences: Positive
    accuracy: Share
    accuracy_answers: Share
    loss: float | None
    hosts: dict[str, Held]
    left_out: dict[str, str]
    format: Literal["utfproof-training-optimum"] = "utfproof-training-optimum"

    @property
    def key(self) -> str:
        """The key of the target's run."""
        return run_key(self.preset, self.seed)


class Source(NamedTuple):
    """A finished run of a target at its own width, in float64."""

    trainer: Trainer
    target: Target


def read_source(folder: Path) -> Source:
    """The target of a run's folder (`utfproof train TASK/trained-own-width/VARIANT -o FOLDER`).

    MalformedInput for a folder without checkpoint, another host, and what `target_of` refuses.
    """
    found = checkpoint.load(folder)
    if found is None:
        raise MalformedInput(
            f"{folder} holds no checkpoint; utfproof train TASK/{OWN_WIDTH}/VARIANT -o {folder} makes one"
        )
    saved, tensors = found
    preset = saved.identity.preset
    if preset.host != OWN_WIDTH:
        raise MalformedInput(f"{folder} holds a run of host {preset.host}; expected {OWN_WIDTH}")
    if saved.step != preset.steps:
        raise MalformedInput(f"{folder} holds a run of {saved.step} of {preset.steps} steps; finish it first")
    trainer = Trainer(preset, saved.identity.seed, dtype="float64")
    trainer.set_parameters({n.removeprefix("parameter."): t for n, t in tensors.items() if n.startswith("parameter.")})
    return Source(trainer, target_of(trainer.model))


def embedded(source: Source, name: str, max_memory: int | None = None) -> tuple[Trainer, Embedding]:
    """A trainer (float64) of this host with the E (and P) of the target and the host's own U. UtfproofError where the host is
    not defined here or does not carry the target."""
    target, seed = source.trainer.preset, source.trainer.seed
    if target.residual and name not in STREAM_HOSTS:
        raise MalformedInput(f"host {name} serves untied targets without a residual stream only")
    if not target.residual and name == RESIDUAL_TREE:
        raise MalformedInput(f"host {name} is made for a residual stream, and this target has none")
    preset = target.with_host(name)
    if target.residual:
        preset = replace(preset, m=matching_dimension(replace(target.shape, residual=True)))
    host = host_of(preset, seed, max_memory)
    if host.shape != source.target.shape:  # R_Q, R_K, R_V and U do not depend on d_in
        host = replace(host, shape=source.target.shape)
    found = embed(host, source.target, max_memory=max_memory)
    trainer = Trainer(preset, seed, dtype="float64", max_memory=max_memory)
    rows = np.asarray(found.E)
    positions = {"P": rows[preset.vocabulary :]} if "P" in trainer.model else {}
    trainer.set_parameters({"E": rows[: preset.vocabulary], **positions, "U": dense(host.U)})
    return trainer, found


def difference(first: Trainer, second: Trainer, sequences: int) -> tuple[float, float]:
    """(largest difference of logits, largest logit) of two trainers of the same task and seed on the sequences of
    `Trainer.evaluate`; infinite where a logit is no number."""
    import torch

    gaps, sizes = [0.0], [0.0]
    with torch.no_grad():
        for batch in first.evaluation_batches(sequences):
            ours, theirs = (trainer.engine.logits(batch.inputs, batch.look) for trainer in (first, second))
            gaps.append(float((ours - theirs).abs().max()))
            sizes.append(float(ours.abs().max()))
    return (max(gaps), max(sizes)) if all(map(math.isfinite, gaps)) else (math.inf, max(sizes))


def optimum(
    source: Source, hosts: Sequence[str] = (), sequences: int = 10_000, max_memory: int | None = None
) -> Optimum:
    """Embed the target into these hosts (all that serve such targets by default) and measure them.

    Refuted where the logits of an embedded model are not the target's; MalformedInput for an unknown host.
    """
    if unknown := sorted(set(hosts) - {*HOSTS, *STREAM_HOSTS}):
        raise MalformedInput(f"host {unknown[0]!r} is unknown; choose {', '.join((*HOSTS, RESIDUAL_TREE))}")
    held, left_out = {}, {}
    names = hosts or (STREAM_HOSTS if source.target.shape.residual else HOSTS)
    for name in staged("optimum", names, len(names), unit="hosts"):
        try:
            trainer, found = embedded(source, name, max_memory)
        except MemoryError:
            raise ResourceLimit(f"host {name} of this target does not fit into memory") from None
        except UtfproofError as error:
            left_out[name] = str(error)
            continue
        gap, largest = difference(source.trainer, trainer, sequences)
        if not gap <= AGREEMENT * max(largest, 1e-300):
            raise Refuted(f"host {name}: logits of the embedded model differ from the target's by {gap:.3g}")
        about = (trainer.preset.m, found.notion.value, _finite(found.condition))
        held[name] = Held(*about, **_scores(trainer, sequences), largest_difference=gap, largest_logit=largest)
    preset, seed = source.trainer.preset, source.trainer.seed
    return Optimum(preset, seed, sequences, **_scores(source.trainer, sequences), hosts=held, left_out=left_out)


def _scores(trainer: Trainer, sequences: int) -> dict[str, Any]:
    found = trainer.evaluate(sequences)
    return {"accuracy": found.accuracy, "accuracy_answers": found.answers, "loss": _finite(found.loss)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# --- files and their table -------------------------------------------------------------------------------------------


def write_document(found: Optimum, folder: Path) -> None:
    """Write the target's file, all or nothing. The folder is made where it is missing."""
    make_folder(folder, parents=True)
    write_json(folder / f"{found.key}.json", asdict(found))


def read_documents(folder: Path | str = DEFAULT_FOLDER) -> list[Optimum]:
    """All files of a folder, in order of their names; none where the folder does not exist. MalformedInput for others."""
    return [read(Optimum, read_bytes(path), str(path)) for path in json_files(folder)]


HEADER = ["target", "host", "holds", "training finds"]
REMARK = (
    "holds: accuracy of an embedded trained target, in percent; training finds: the best schedule of at least as many steps "
    "from N(0, 0.02²) in the same host and setting."
)
_SAME = ("task", "heads", "layers", "head_dim", "residual", "norm", "mlp", "loss", "positions", "length", "min_hops")
"""Fields in which a run from scratch equals the target's."""


def rows(documents: Sequence[Optimum], runs: Sequence[RunResult]) -> Iterator[list[str]]:
    """The table's rows: what each host holds beside what training from scratch finds in it."""
    groups = with_seeds(run for run in runs if run.preset.init_std == 0.02)
    for found in documents:
        target = found.preset
        length = f", length {target.length}" if target.length else ""
        words = f"{target.setting}: {target.task}, {target.variant}, width {target.m}{length}"
        for name, held in found.hosts.items():
            scratch = {
                sum(run.accuracy for run in group) / len(group): group
                for group in groups
                if all(getattr(group[0].preset, field) == getattr(target, field) for field in _SAME)
                and (group[0].preset.host, group[0].preset.m) == (name, held.m)
                and group[0].steps >= target.steps
            }
            told = "–"
            if scratch:
                best = scratch[max(scratch)]
                schedule = f"{best[0].steps} steps, rate {best[0].preset.learning_rate:g}"
                told = f"{mean_and_spread([run.accuracy for run in best])} ({schedule})"
            yield [words, f"{name}, m = {held.m}", percent(held.accuracy), told]
