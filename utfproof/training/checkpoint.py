"""Checkpoints: one safetensors file of parameters and moments, and one JSON that names it. A kill at any moment leaves the
last pair whole: tensors are written under a new name, then the JSON is replaced, then older tensors go."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import atomic_file, read_bytes

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "utfproof-training-checkpoint"
VERSION = 1
DOCUMENT = "checkpoint.json"


def save(folder: Path, tensors: dict[str, Tensor], step: int, document: dict[str, Any]) -> None:
    """Write a checkpoint of so many steps; `document` is kept beside the tensors."""
    from safetensors.torch import save as to_bytes

    name = f"step-{step:09d}.safetensors"
    held = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    data = to_bytes(held, metadata={"format": FORMAT, "step": str(step)})
    _write(folder / name, data)
    mark = hashlib.sha256(data).hexdigest()
    whole = {"format": FORMAT, "version": VERSION, "step": step, "tensors": name, "sha256": mark, **document}
    _write(folder / DOCUMENT, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """All or nothing, and on the disk: what it replaces is removed next."""
    with atomic_file(path) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """(document, tensors) of the checkpoint in a folder, None where there is none. MalformedInput for a damaged one."""
    from safetensors import SafetensorError, safe_open

    path = folder / DOCUMENT
    if not path.exists():
        return None
    try:
        document = json.loads(read_bytes(path))
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ValueError(f"format {document['format']}, version {document['version']}")
        step, name = document["step"], str(document["tensors"])
        if type(step) is not int or step < 0:
            raise ValueError(f"step {str(step)[:40]}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedInput(f"{path} is no checkpoint: {error}") from None
    try:
        with open(folder / name, "rb") as held:
            # checkpoints of old have no mark
            if document.get("sha256") not in (None, hashlib.file_digest(held, "sha256").hexdigest()):
                raise MalformedInput(
                    f"{folder / name} is damaged: its SHA-256 is not what {path} says; remove the folder"
                )
        with safe_open(str(folder / name), framework="pt") as stream:
            if (stream.metadata() or {}).get("step") != str(step):
                raise MalformedInput(f"{folder / name} does not belong to step {step} of {path}")
            return document, {key: stream.get_tensor(key) for key in stream.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MalformedInput(f"cannot read the checkpoint {folder / name}: {error}") from None
