"""Checkpoints: one safetensors file of parameters and moments, whose metadata hold the run, its step and its log.

It is replaced as a whole, so a kill at any moment leaves the last one.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from utfproof.errors import MalformedInput
from utfproof.training.presets import STRICT, Preset, Whole, read
from utfproof.util.files import atomic_file

if TYPE_CHECKING:
    from torch import Tensor

NAME = "checkpoint.safetensors"


@dataclass(frozen=True, config=STRICT)
class Identity:
    """What a run that goes on must have in common with its checkpoint."""

    preset: Preset
    seed: Whole
    device: str
    dtype: str
    engine: str
    log_every: Whole
    evaluate_every: Whole

    def differences(self, other: Identity) -> list[str]:
        """The fields that differ, those of the preset one by one."""
        mine, theirs = ({**asdict(each), **asdict(each.preset), "preset": None} for each in (self, other))
        return [name for name in mine if mine[name] != theirs[name]]


@dataclass(frozen=True, config=STRICT)
class Saved:
    """A checkpoint without its tensors. points: the log, {"step", "loss", "accuracy"} or {"step", "evaluation"}."""

    identity: Identity
    step: Whole
    seconds: float
    points: list[dict[str, int | float]]


def save(folder: Path, tensors: dict[str, Tensor], saved: Saved) -> None:
    """Write a checkpoint."""
    from safetensors.torch import save as to_bytes

    held = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    with atomic_file(folder / NAME) as stream:
        stream.write(to_bytes(held, metadata={"run": json.dumps(asdict(saved), sort_keys=True)}))
        stream.flush()
        os.fsync(stream.fileno())


def load(folder: Path) -> tuple[Saved, dict[str, Tensor]] | None:
    """The checkpoint in a folder and its tensors, None where there is none. MalformedInput for a damaged one."""
    from safetensors import SafetensorError, safe_open

    path = folder / NAME
    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="pt") as stream:
            text = (stream.metadata() or {})["run"]
            tensors: dict[str, Any] = {key: stream.get_tensor(key) for key in stream.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError) as error:
        raise MalformedInput(f"{path} is no checkpoint: {str(error)[:80]}; remove the folder") from None
    return read(Saved, text, str(path)), tensors
