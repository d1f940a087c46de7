"""Checkpoints: one safetensors file of parameters and moments, whose metadata hold the run, its step and its log.

It is replaced as a whole, so a kill at any moment leaves the last one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import atomic_file
from utfproof.ground.forms import ANY, NUMBER, WHOLE, Each, conform

if TYPE_CHECKING:
    from torch import Tensor

NAME = "checkpoint.safetensors"
_FORM = {
    "identity": {"preset": Each(ANY), "setting": str, "seed": WHOLE},
    "step": WHOLE,
    "seconds": NUMBER,
    "points": [{"step": WHOLE, "loss?": NUMBER, "accuracy?": NUMBER, "evaluation?": NUMBER}],
}


def save(folder: Path, tensors: dict[str, Tensor], document: dict[str, Any]) -> None:
    """Write a checkpoint; `document` has identity, step, seconds and points."""
    from safetensors.torch import save as to_bytes

    held = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    with atomic_file(folder / NAME) as stream:
        stream.write(to_bytes(held, metadata={"run": json.dumps(document, sort_keys=True)}))
        stream.flush()
        os.fsync(stream.fileno())


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """(document, tensors) of the checkpoint in a folder, None where there is none. MalformedInput for a damaged one."""
    from safetensors import SafetensorError, safe_open

    path = folder / NAME
    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="pt") as stream:
            document = json.loads((stream.metadata() or {})["run"])
            tensors = {key: stream.get_tensor(key) for key in stream.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise MalformedInput(f"{path} is no checkpoint: {str(error)[:80]}; remove the folder") from None
    conform(document, _FORM, str(path))
    return document, tensors
