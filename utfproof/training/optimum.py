"""What a fixed host holds: a trained target is embedded into it.

Training E and U of a frozen host from N(0, 0.02^2) finds some accuracy; the embedding of a trained target shows one that
the same host has. Learned positions are coordinates of the input: E and P together are the target's embedding.

One JSON for each trained target in results/optimum/, written after every host: finished hosts are not repeated.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit, UtfproofError
from utfproof.ground.files import json_files, make_folder, read_json, write_json
from utfproof.ground.forms import NUMBER, WHOLE, Each, Maybe, conform
from utfproof.matching import embed
from utfproof.shapes import matching_dimension
from utfproof.systems import Target
from utfproof.training import checkpoint
from utfproof.training.maps import dense
from utfproof.training.model import OWN_WIDTH, RESIDUAL_TREE, host_of, target_of
from utfproof.training.presets import SETTINGS, Preset, default_m, field_names
from utfproof.training.results import preset_fields, run_key
from utfproof.training.step import Scores, Trainer

if TYPE_CHECKING:
    from utfproof.matching import Embedding

FORMAT = "utfproof-training-optimum"
VERSION = 1
DEFAULT_FOLDER = Path("results/optimum")
HOSTS = ("sparse", "sparse-front", "random", "tied", "shared-key", "shared-query")
STREAM_HOSTS = (RESIDUAL_TREE, "random")
AGREEMENT = 1e-6
"""Largest difference of logits in float64, over the largest logit, that an embedding may show."""
_HUGE = sys.float_info.max
"""What stands for infinity and NaN, which JSON does not have."""


@dataclass(frozen=True)
class OptimumSetting:
    """hosts None: all that are defined for the target. eval_sequences: for accuracies, and for the agreement of logits."""

    hosts: tuple[str, ...] | None = None
    eval_sequences: int = 10_000
    folder: Path | None = DEFAULT_FOLDER
    max_memory: int | None = None

    def hosts_of(self, source: ResultSource) -> tuple[str, ...]:
        """The hosts asked for, or all that there are for such a target."""
        return self.hosts or (STREAM_HOSTS if source.preset.residual else HOSTS)

    def check(self) -> None:
        """MalformedInput naming the field that cannot be."""
        if self.eval_sequences < 1:
            raise MalformedInput(f"eval_sequences must be an integer from 1 on, got {self.eval_sequences}")
        if unknown := sorted(set(self.hosts or ()) - {*HOSTS, *STREAM_HOSTS}):
            raise MalformedInput(f"host {unknown[0]!r} is unknown; choose {', '.join((*HOSTS, RESIDUAL_TREE))}")


@dataclass(frozen=True)
class ResultSource:
    """A finished run of a target at its own width: its preset, seed, and the target as trained."""

    preset: Preset
    seed: int
    trainer: Trainer
    target: Target

    @property
    def key(self) -> str:
        """The key of the run."""
        return run_key(self.preset, self.seed)


def read_source(folder: Path) -> ResultSource:
    """The target of a run's folder (`utfproof train TASK/trained-own-width/VARIANT -o FOLDER`), in float64.

    MalformedInput for a folder without checkpoint, another host, and what `target_of` refuses.
    """
    found = checkpoint.load(folder)
    if found is None:
        raise MalformedInput(
            f"{folder} holds no checkpoint; utfproof train TASK/{OWN_WIDTH}/VARIANT -o {folder} makes one"
        )
    document, tensors = found
    try:
        held = document["identity"]
        values = {name: value for name, value in held["preset"].items() if name in field_names()}
        preset, seed = Preset(**{**values, "name": "", "setting": held["setting"]}), int(held["seed"])
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedInput(f"{folder} holds a checkpoint of no training run: {error}") from None
    if preset.host != OWN_WIDTH:
        raise MalformedInput(f"{folder} holds a run of host {preset.host}; expected {OWN_WIDTH}")
    if document["step"] != preset.steps:
        raise MalformedInput(f"{folder} holds a run of {document['step']} of {preset.steps} steps; finish it first")
    trainer = Trainer(preset, seed, dtype="float64")
    trainer.set_parameters({n.removeprefix("parameter."): t for n, t in tensors.items() if n.startswith("parameter.")})
    return ResultSource(preset, seed, trainer, target_of(trainer.model))


# --- hosts ---------------------------------------------------------------------------------------------------


def host_preset(source: Preset, name: str) -> Preset:
    """The preset of this host: the source's task and shape, the host's least m."""
    m = default_m(name, source.heads, source.layers, source.head_dim, source.vocabulary)
    if source.residual and name != RESIDUAL_TREE:
        m = matching_dimension(replace(source.shape, residual=True))
    return replace(source, name=f"{source.task}/{name}/{source.variant}", host=name, m=m)


def embedded(source: ResultSource, name: str, setting: OptimumSetting) -> tuple[Trainer, Embedding]:
    """A trainer (float64) of this host with the E (and P) of the target and the host's own U. UtfproofError where the host is
    not defined here or does not carry the target."""
    preset = host_preset(source.preset, name)
    if source.preset.residual and name not in STREAM_HOSTS:
        raise MalformedInput(f"host {name} serves untied targets without a residual stream only")
    if not source.preset.residual and name == RESIDUAL_TREE:
        raise MalformedInput(f"host {name} is made for a residual stream, and this target has none")
    host = host_of(preset, source.seed, setting.max_memory)
    if host.shape != source.target.shape:  # R_Q, R_K, R_V and U do not depend on d_in
        host = replace(host, shape=source.target.shape)
    found = embed(host, source.target, max_memory=setting.max_memory)
    trainer = Trainer(preset, source.seed, dtype="float64", max_memory=setting.max_memory)
    rows = np.asarray(found.E)
    positions = {"P": rows[preset.vocabulary :]} if "P" in trainer.model else {}
    trainer.set_parameters({"E": rows[: preset.vocabulary], **positions, "U": dense(host.U)})
    return trainer, found


@dataclass(frozen=True)
class OptimumAgreement:
    """Of two models on the same sequences: the largest difference of logits, the largest logit, how many of the positions
    asked have another most likely answer, and how many there are."""

    largest_difference: float
    largest_logit: float
    different_answers: int
    positions: int

    @property
    def holds(self) -> bool:
        """Whether logits differ by rounding only."""
        largest = self.largest_logit
        return math.isfinite(largest) and self.largest_difference <= AGREEMENT * max(largest, 1e-300)


def agreement(first: Trainer, second: Trainer, sequences: int) -> OptimumAgreement:
    """Logits of two trainers of the same task and seed on fresh sequences, those of `Trainer.evaluate`."""
    import torch

    difference = largest = 0.0
    different = positions = 0
    with torch.no_grad():
        for batch in first.evaluation_batches(sequences):
            ours, theirs = (trainer.engine.logits(batch.inputs, batch.look) for trainer in (first, second))
            gap = float((ours - theirs).abs().max())
            difference = max(difference, gap) if math.isfinite(gap) else _HUGE
            largest = max(largest, float(ours.abs().max()))
            different += int((ours.argmax(-1) != theirs.argmax(-1)).sum())
            positions += batch.targets.numel()
    return OptimumAgreement(difference, largest, different, positions)


def scores_document(scores: Scores) -> dict[str, float | None]:
    """Of one model; None for a loss that is not finite."""
    document = {"loss": scores.loss, "accuracy": scores.accuracy, "accuracy_answers": scores.answers}
    return {name: value if math.isfinite(value) else None for name, value in document.items()}


# --- the whole ------------------------------------------------------------------------------------------------


def run(source: ResultSource, setting: OptimumSetting, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """The document of this target: every host with its accuracy and agreement. Hosts that the folder's file has
    are kept; the file is written after each new one."""
    setting.check()
    path = None if setting.folder is None else setting.folder / f"{source.key}.json"
    document = read_document(path) if path is not None and path.exists() else _new_document(source)
    for name in setting.hosts_of(source):
        _add(document, name, source, setting)
        if path is not None:
            make_folder(path.parent, parents=True)
            write_json(path, check_document(document, "the result to write"))
        if progress is not None:
            progress(name)
    return document


def _new_document(source: ResultSource) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "key": source.key,
        "preset": preset_fields(source.preset, source.seed),
        "setting": source.preset.setting,
        "seed": source.seed,
        "trained": {},
        "hosts": {},
        "left_out": {},
    }


def _add(document: dict[str, Any], name: str, source: ResultSource, setting: OptimumSetting) -> None:
    """Put what is missing for one host into the document."""
    trained = document["trained"]
    if trained.get("eval_sequences") != setting.eval_sequences:
        scores = scores_document(source.trainer.evaluate(setting.eval_sequences))
        trained.update(scores, eval_sequences=setting.eval_sequences)
    if document["hosts"].get(name, {}).get("eval_sequences") == setting.eval_sequences:
        return
    try:
        start, embedding = embedded(source, name, setting)
    except MemoryError:
        raise ResourceLimit(f"host {name} of this target does not fit into memory") from None
    except UtfproofError as error:
        document["left_out"][name] = str(error)
        return
    document["left_out"].pop(name, None)
    document["hosts"][name] = {
        "m": start.preset.m,
        "notion": embedding.notion.value,
        "method": embedding.method,
        "condition": _number(embedding.condition),
        "embedding_residual": _number(embedding.misfit),
        "eval_sequences": setting.eval_sequences,
        "embedded": scores_document(start.evaluate(setting.eval_sequences)),
        "agreement": asdict(agreement(source.trainer, start, setting.eval_sequences)),
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


# --- files ------------------------------------------------------------------------------------------------------


def read_document(path: Path) -> dict[str, Any]:
    """One file. MalformedInput with its name and what is wrong."""
    return check_document(read_json(path), str(path))


def read_documents(folder: Path | str = DEFAULT_FOLDER) -> list[dict[str, Any]]:
    """All files of a folder, in order of their names; none where the folder does not exist."""
    found = []
    for path in json_files(folder):
        document = read_document(path)
        if path.stem != document["key"]:
            raise MalformedInput(f"{path}: this file is called {document['key']}.json; rename it, or remove a copy")
        found.append(document)
    return found


_SCORES = {"loss": Maybe(NUMBER), "accuracy": NUMBER, "accuracy_answers": NUMBER}
_FORM = {
    "key": str,
    "preset": {"task": str, "m": WHOLE, "steps": WHOLE},
    "setting?": tuple(SETTINGS),
    "seed": WHOLE,
    "trained": {"accuracy?": NUMBER, "eval_sequences?": WHOLE},
    "hosts": Each(
        {
            "m": WHOLE,
            "condition": Maybe(NUMBER),
            "embedded": _SCORES,
            "agreement": {"largest_difference": NUMBER, "largest_logit": NUMBER},
            "eval_sequences": WHOLE,
        }
    ),
    "left_out": Each(str),
}


def check_document(document: Any, source: str) -> dict[str, Any]:
    """The document, if it has what the tables read. MalformedInput, naming `source`, otherwise."""
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise MalformedInput(f"{source} is no result of optimum (format {FORMAT}, version {VERSION})")
    conform(document, _FORM, source)
    for scores in (document["trained"], *(host["embedded"] for host in document["hosts"].values())):
        if not 0 <= scores.get("accuracy", 0) <= 1:
            raise MalformedInput(f"{source}: accuracy {scores['accuracy']} is not from 0 to 1")
    try:
        key = run_key(document["preset"], document["seed"], document.get("setting", "theory"))
    except KeyError as error:
        raise MalformedInput(f"{source}: the preset lacks {error}") from None
    if document["key"] != key:
        raise MalformedInput(f"{source}: key is {document['key']!r}, which the preset and seed contradict")
    return document
