"""Files of tensors: safetensors, alone or sharded behind an index, .npz without pickle, and PyTorch's .pt, which torch itself
reads with weights_only=True in a process of its own. Nothing here unpickles anything."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, UtfproofError
from utfproof.ground.files import read_json
from utfproof.ground.resources import require_memory
from utfproof.models.checkpoint import UNREAD
from utfproof.weights import TensorFile, read_tensors

SUFFIXES = (".safetensors", ".safetensors.index.json", ".npz", ".pt", ".pth", ".bin", ".ckpt")
CHECKPOINT = Path(__file__).with_name("checkpoint.py")
"""The program that reads PyTorch's files."""
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, TypeError, OverflowError)
"""What reading an archive raises: RuntimeError for one that is encrypted or packed in an unknown way."""


def read_file(path: Path | str, max_memory: int | None = None) -> TensorFile:
    """The tensors of a file of any of these kinds, without the prefixes that wrappers put before every name.
    MalformedInput for other kinds and for what does not read."""
    path = Path(path)
    if path.name.endswith(".index.json"):
        file = _sharded(path, max_memory)
    elif path.suffix == ".npz":
        file = _archive(path, max_memory)
    elif path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        file = _torch(path, max_memory)
    else:
        file = read_tensors(path, max_memory=max_memory, booleans=True)
    for prefix in ("_orig_mod.", "module."):
        if file.tensors and all(name.startswith(prefix) for name in file.tensors):
            file = _renamed(file, {name: name[len(prefix) :] for name in file.tensors})
    return file


def _renamed(file: TensorFile, names: dict[str, str]) -> TensorFile:
    return TensorFile(
        file.path,
        {names[name]: array for name, array in file.tensors.items()},
        file.metadata,
        {names[name]: kind for name, kind in file.types.items()},
    )


def read_config(path: Path | str) -> dict[str, Any]:
    """A configuration in JSON: an object. MalformedInput otherwise."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise MalformedInput(f"{path}: a configuration is a JSON object")
    return found


def _sharded(path: Path, max_memory: int | None) -> TensorFile:
    """The shards that an index names, which stand beside it."""
    shards = read_config(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise MalformedInput(f"{path}: weight_map, from tensors to files, is missing")
    tensors: dict[str, np.ndarray] = {}
    types: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name in sorted(set(shards.values())):
        if not name or Path(name).name != name:
            raise MalformedInput(f"{path}: the shard {name!r} is not a file beside the index")
        part = read_tensors(path.with_name(name), max_memory=max_memory, booleans=True)
        twice = tensors.keys() & part.tensors.keys()
        if twice:
            raise MalformedInput(f"{path}: tensor {min(twice)} stands in two shards")
        tensors |= part.tensors
        types |= part.types
        metadata |= part.metadata
    if tensors.keys() != shards.keys():
        raise MalformedInput(f"{path}: index and shards differ at tensor {min(tensors.keys() ^ shards.keys())}")
    return TensorFile(str(path), tensors, metadata, types)


def _archive(path: Path, max_memory: int | None) -> TensorFile:
    """The arrays of an .npz; objects are never unpickled."""
    kinds = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8", "b1": "BOOL"}
    try:
        require_memory(4 * path.stat().st_size, f"reading {path}", max_memory)
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            tensors = _members(path, archive)
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    except (*DAMAGED, ValueError) as error:
        if isinstance(error, UtfproofError):
            raise
        raise MalformedInput(f"{path} is not an .npz of plain arrays: {error}") from error
    for name, array in tensors.items():
        if array.dtype.kind not in "fiub":
            raise MalformedInput(f"{path}: {name} has type {array.dtype}; floats or integers are expected")
    return TensorFile(str(path), tensors, {}, {n: kinds.get(a.dtype.str[1:], "F64") for n, a in tensors.items()})


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """The arrays of an archive by their names, no name twice."""
    tensors: dict[str, np.ndarray] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            raise MalformedInput(f"{path}: {name} is no array (.npy), and leaving it out would change the model")
        if name in tensors:
            raise MalformedInput(f"{path}: array {name} stands there twice")
        with archive.open(member) as stream:
            tensors[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return tensors


def _torch(path: Path, max_memory: int | None) -> TensorFile:
    """A PyTorch checkpoint, converted by torch's own restricted reader in another process."""
    try:
        require_memory(4 * path.stat().st_size, f"reading {path}", max_memory)
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tensors.safetensors"
        command = [
            sys.executable,
            "-P",
            str(CHECKPOINT),
            str(path),
            str(out),
        ]  # -P: modules beside it have names of libraries
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
    return (
        f": torch.load with weights_only=True does not read it ({said[-1][:160]}); save its state dict as safetensors"
    )


def _text(value: Any) -> str:
    """A field as metadata have it: lists and objects in JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
