"""Tensors in safetensors files, whatever they mean: mapped when they are read, streamed when they are written.

Reading goes through the safetensors library's checks and never unpickles anything. Writing streams one matrix at a time, with
the header's keys sorted, so that the same tensors give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedFile, MalformedInput
from utfproof.util.files import atomic_file, require_regular
from utfproof.util.resources import require_memory

_NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
}
_SAFETENSORS_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8"}


_PART = 1 << 20
"""Entries looked at together where a whole matrix is passed over: a few megabytes."""


@dataclass(frozen=True)
class TensorFile:
    """Tensors by name (NumPy, mapped from the file and read-only; bfloat16 widened to float32, which is exact) and the
    file's metadata. stamp: of the file when it was opened (`require_unchanged`)."""

    path: str
    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]
    types: dict[str, str]
    stamp: tuple[int, ...] = ()

    def refuse(self, problem: str) -> MalformedFile:
        """The error to raise about this file."""
        return MalformedFile(f"{self.path}: {problem}")

    def digest(self, residual: bool = False) -> str:
        """SHA-256 of the canonical content: names, types, shapes and data, whatever the metadata and the layout, and a last
        line if there is a residual stream (docs/certificate-format.md section 4.8). Computed once."""
        sha = self._digest.copy()
        if residual:
            sha.update(b"residual true\n")
        return sha.hexdigest()

    @cached_property
    def _digest(self) -> Any:
        sha = hashlib.sha256()
        for name in sorted(self.tensors):
            array, kind = self.tensors[name], self.types[name]
            sha.update(f"{name} {kind} {','.join(map(str, array.shape))}\n".encode())
            for part in _parts(array):
                stored = (part.view("<u4") >> 16).astype("<u2") if kind == "BF16" else part
                sha.update(stored.view(np.uint8).data)
        return sha

    def require_unchanged(self) -> None:
        """MalformedInput where the file was written to since it was opened. A file that took its place does not count: what
        was opened is still what is mapped."""
        try:
            now = _stamp(os.stat(self.path))
        except OSError:
            return
        if self.stamp and now[0] == self.stamp[0] and now != self.stamp:
            raise self.refuse("the file changed while it was being read; run the command again")


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """All entries in order, a few at a time."""
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, _PART):
        yield flat[start : start + _PART]


def read_tensors(path: Path | str, *, max_memory: int | None = None, booleans: bool = False) -> TensorFile:
    """All tensors of a safetensors file, mapped. MalformedInput for anything else, or for a type that is no number (booleans:
    masks are read too)."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        require_regular(path)
        stamp = _stamp(path.stat())
        with safe_open(path, framework="numpy"):  # the library's own checks of the header and the length
            pass
        with path.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header = json.loads(stream.read(length))
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except MalformedInput:
        raise
    except (SafetensorError, ValueError, struct.error) as error:
        raise MalformedInput(f"{path} is not a safetensors file: {error}; write it with safetensors") from error
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
    metadata = header.pop("__metadata__", {})
    if metadata is None:  # which the library takes
        raise MalformedInput(f"{path}: __metadata__ is null, expected an object of texts; leave it out or write {{}}")
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    widened = sum(2 * (e["data_offsets"][1] - e["data_offsets"][0]) for _, e in entries if e["dtype"] == "BF16")
    require_memory(widened, f"reading {path}", max_memory)
    tensors, types = {}, {}
    for name, entry in entries:
        types[name] = kind = entry["dtype"]
        stored = {"BF16": "<u2", **_NUMPY_TYPES, **({"BOOL": "bool"} if booleans else {})}.get(kind)
        if stored is None:
            raise MalformedInput(f"{path}: tensor {name} has type {kind}; floats or integers are expected")
        count = (entry["data_offsets"][1] - entry["data_offsets"][0]) // np.dtype(stored).itemsize
        array = np.frombuffer(data, dtype=stored, count=count, offset=8 + length + entry["data_offsets"][0])
        if not array.flags.aligned:
            array = array.copy()
        if kind == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = array.reshape(entry["shape"])
    return TensorFile(str(path), tensors, metadata, types, stamp)


def require_finite(file: TensorFile, name: str) -> None:
    """MalformedInput for NaN and infinities, with the first index."""
    array = file.tensors[name]
    if array.dtype.kind == "f" and not all(np.isfinite(part).all() for part in _parts(array)):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise file.refuse(f"{name}{list(index)} is {array[index]}; weights must be finite")


def as_float64(file: TensorFile, name: str) -> np.ndarray:
    """A tensor as float64, exactly. MalformedInput for NaN, infinities (first index said), integers beyond 2^53 and types
    that are no real numbers."""
    array = file.tensors[name]
    if array.dtype.kind not in "fiub":
        raise file.refuse(f"tensor {name} has type {array.dtype}; floats or integers are expected")
    require_finite(file, name)
    if array.dtype.kind != "f" and array.size and (int(array.max()) > 2**53 or int(array.min()) < -(2**53)):
        raise file.refuse(f"{name} holds integers beyond 2^53, which float64 cannot hold")
    return array.astype(np.float64, copy=False)


def floats(file: TensorFile, max_memory: int | None) -> dict[str, np.ndarray]:
    """All tensors as float64. Raises as `as_float64` does, and ResourceLimit before converting them."""
    require_memory(8 * sum(array.size for array in file.tensors.values()), f"reading {file.path}", max_memory)
    return {name: as_float64(file, name) for name in file.tensors}


# --- writing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorSource:
    """A tensor to write: its shape, and a function that yields its matrices in order."""

    shape: tuple[int, ...]
    parts: Callable[[], Iterator[np.ndarray]]


def _stored(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
        if (bits & 0xFFFF).any():
            raise MalformedInput("values are not bfloat16; round them first")
        return (bits >> 16).astype("<u2").tobytes()
    little = np.dtype(dtype).newbyteorder("<")
    return np.ascontiguousarray(array).astype(little, copy=False).tobytes()


def write_tensors(path: Path | str, tensors: dict[str, TensorSource], metadata: dict[str, str], dtype: str) -> None:
    """A safetensors file, one matrix in memory at a time; all tensors have one dtype."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    offset = 0
    for name in sorted(tensors):
        count = int(np.prod(tensors[name].shape, dtype=object))
        header[name] = {
            "dtype": _SAFETENSORS_TYPES[dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + count * itemsize],
        }
        offset += count * itemsize
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            for part in tensors[name].parts():
                stream.write(_stored(part, dtype))
