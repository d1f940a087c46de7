"""Models from files: safetensors, and PyTorch's .pt with weights_only=True."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.files import read_json
from utfproof.ground.resources import require_memory
from utfproof.models.attention import attention_kernel
from utfproof.models.layouts import FAMILIES, LAYOUTS, read_model, recognise, settings_of
from utfproof.models.reading import Reading
from utfproof.models.settings import CONFIG
from utfproof.models.tensors import layer_prefixes
from utfproof.weights import TensorFile, read_tensors

ANY_FAMILY = "auto"
PICKLED = (".pt", ".pth", ".bin", ".ckpt")
SUFFIXES = (".safetensors", *PICKLED)
NESTED = ("state_dict", "model_state_dict", "model")
"""Keys under which checkpoints hold the state dict."""


def layouts() -> tuple[str, ...]:
    """The names of all families, and `auto`, which finds the one whose names the file has."""
    return (ANY_FAMILY, *FAMILIES)


def import_model(
    path: Path | str,
    layout: str = ANY_FAMILY,
    *,
    attention: str | None = None,
    heads: int | None = None,
    residual: bool | None = None,
    config: Mapping[str, Any] | None = None,
    max_memory: int | None = None,
) -> Reading:
    """The model of a file in this layout.

    attention: whom a position sees (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    config: its configuration, every field of which must be known. Nothing here compares the reading with the model.
    Raises MalformedInput with the tensor or the field.
    """
    if layout not in layouts():
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(layouts())}")
    file = read_file(path, max_memory)
    found = recognise(file, None if layout == ANY_FAMILY else layout)
    settings = settings_of(file, found, config)
    if attention is not None:
        kernel = attention_kernel(attention)
        settings.say("attention_dir", "causal" if kernel.causal else "bidirectional", "--attention")
        settings.say("window_size", kernel.window or 0, "--attention")
    if heads is not None:
        settings.say("n_heads", heads, "--heads")
    if residual is not None:
        settings.say("residual", residual, "--residual" if residual else "--no-residual")
    return read_model(found, settings)


def refuse_models(path: Path | str, max_memory: int | None = None) -> None:
    """MalformedInput for a file that is no target of the package's own layout and looks like a model, saying of which."""
    path = Path(path)
    if not path.is_file() or not path.name.endswith(SUFFIXES):
        return
    if path.suffix == ".safetensors":
        try:
            file = read_tensors(path, max_memory=max_memory, booleans=True)
        except MalformedInput:
            return
        if "W_O" in file.tensors:
            return
    file = read_file(path, max_memory)
    for layout in LAYOUTS:
        if layer_prefixes(file, layout.marks):
            raise file.refuse(f"this file looks like {layout.title}: say --layout {layout.family}, or --layout auto")


def read_config(path: Path | str) -> dict[str, Any]:
    """A configuration in JSON: an object. MalformedInput otherwise."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise MalformedInput(f"{path}: a configuration is a JSON object, {CONFIG}")
    return found


def read_file(path: Path | str, max_memory: int | None = None) -> TensorFile:
    """The tensors of a file of either kind, without the prefixes that wrappers put before every name. MalformedInput for other
    kinds and for files that do not read."""
    path = Path(path)
    if path.suffix in PICKLED:
        file = _torch(path, max_memory)
    elif path.suffix in (".npz", ".json"):
        raise MalformedInput(f"{path}: a model is read from {', '.join(SUFFIXES)}; save its state dict as safetensors")
    else:
        file = read_tensors(path, max_memory=max_memory, booleans=True)
    for prefix in ("_orig_mod.", "module."):
        if file.tensors and all(name.startswith(prefix) for name in file.tensors):
            tensors = {name.removeprefix(prefix): array for name, array in file.tensors.items()}
            types = {name.removeprefix(prefix): kind for name, kind in file.types.items()}
            file = TensorFile(file.path, tensors, file.metadata, types)
    return file


def _torch(path: Path, max_memory: int | None) -> TensorFile:
    """A PyTorch checkpoint, as torch reads it without running any code."""
    try:
        require_memory(4 * path.stat().st_size, f"reading {path}", max_memory)
        with path.open("rb") as stream:
            start = stream.read(40)
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    if start.startswith(b"version https://git-lfs"):
        raise MalformedInput(f"{path}: it is a Git LFS pointer, not the file itself: run git lfs pull")
    try:
        import torch
    except ImportError as error:
        raise MalformedInput(f"{path} is a PyTorch file, and torch is not installed; save it as safetensors") from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        line = " ".join(str(error).split())[:300]
        raise MalformedInput(
            f"{path}: torch.load with weights_only=True does not read it; save its state dict as safetensors ({line})"
        ) from error
    held = [found[key] for key in NESTED if isinstance(found, dict) and isinstance(found.get(key), dict)]
    if len(held) > 1 or not isinstance(found, dict):
        raise MalformedInput(f"{path}: it holds {len(held) or 'no'} state dicts: save the one that is meant, alone")
    tensors: dict[str, np.ndarray] = {}
    for name, value in (held[0] if held else found).items():
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
            raise MalformedInput(f"{path}: {name!r} is no dense tensor; save the state dict alone")
        wide = value.float() if value.dtype == torch.bfloat16 else value
        tensors[str(name)] = wide.detach().numpy().copy()
    said = found.get("model_args") or found.get("hyper_parameters") if held else None
    metadata = {str(k): v if isinstance(v, str) else json.dumps(v, default=str) for k, v in (said or {}).items()}
    return TensorFile(str(path), tensors, metadata, {name: str(array.dtype) for name, array in tensors.items()})
