"""Files of tensors: safetensors, and PyTorch's .pt, which torch itself reads with weights_only=True in a process of its own.
Nothing here unpickles anything."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import read_json
from utfproof.ground.resources import require_memory
from utfproof.models.checkpoint import UNREAD
from utfproof.weights import TensorFile, read_tensors

PICKLED = (".pt", ".pth", ".bin", ".ckpt")
SUFFIXES = (".safetensors", *PICKLED)
CHECKPOINT = Path(__file__).with_name("checkpoint.py")
"""The program that reads PyTorch's files."""


def read_file(path: Path | str, max_memory: int | None = None) -> TensorFile:
    """The tensors of a file of either kind, without the prefixes that wrappers put before every name. MalformedInput for other
    kinds and for what does not read."""
    path = Path(path)
    if path.suffix in PICKLED:
        file = _torch(path, max_memory)
    elif path.suffix in (".npz", ".json"):
        raise MalformedInput(f"{path}: a model is read from {', '.join(SUFFIXES)}; save its state dict as safetensors")
    else:
        file = read_tensors(path, max_memory=max_memory, booleans=True)
    for prefix in ("_orig_mod.", "module."):
        if file.tensors and all(name.startswith(prefix) for name in file.tensors):
            tensors = {name[len(prefix) :]: array for name, array in file.tensors.items()}
            types = {name[len(prefix) :]: kind for name, kind in file.types.items()}
            file = TensorFile(file.path, tensors, file.metadata, types)
    return file


def read_config(path: Path | str) -> dict[str, Any]:
    """A configuration in JSON: an object. MalformedInput otherwise."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise MalformedInput(f"{path}: a configuration is a JSON object")
    return found


def _torch(path: Path, max_memory: int | None) -> TensorFile:
    """A PyTorch checkpoint, converted by torch's own restricted reader in another process."""
    try:
        require_memory(4 * path.stat().st_size, f"reading {path}", max_memory)
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    if not path.is_file():
        raise MalformedInput(f"{path} is no regular file")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tensors.safetensors"
        # -P: modules beside the program have names of libraries
        command = [sys.executable, "-P", str(CHECKPOINT), str(path), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not out.is_file():
            raise MalformedInput(f"{path}{_unread(done)}")
        try:
            file = read_tensors(out, booleans=True)
        except MalformedInput as error:
            raise MalformedInput(str(error).replace(str(out), str(path))) from error
    config = json.loads(file.metadata.get("config", "{}"))
    return TensorFile(str(path), file.tensors, {name: _text(value) for name, value in config.items()}, file.types)


def _unread(done: subprocess.CompletedProcess[str]) -> str:
    """Why a checkpoint was not read, from what its reader said."""
    said = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no reason given"]
    if any("No module named 'torch'" in line for line in said):
        return " is a PyTorch file, and torch is not installed; save it as safetensors"
    if done.returncode == UNREAD:
        return f": {said[-1][:300]}"
    return f" does not read ({said[-1][:160]}); save its state dict as safetensors"


def _text(value: Any) -> str:
    """A field as metadata have it: lists and objects in JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
