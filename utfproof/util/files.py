"""Reading files that a user names, and writing files so that a crash or Ctrl-C leaves nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from utfproof.errors import MalformedInput, OutputFailed, ResourceLimit

LARGEST = 2**30
"""Bytes of one JSON or TOML document that are read."""
_DEVICE_FAILED = {
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENXIO", "ESTALE") if hasattr(errno, name)
}
"""The name was right, and the disk would not take the data."""


# --- writing ----------------------------------------------------------------------------------------------------


def require_writable(*paths: Path | str | None) -> None:
    """MalformedInput, before any work, for files that could not be written: no folder, a folder itself, no permission.

    None: no output was asked for.
    """
    for given in paths:
        if given is not None and not _allowed((path := _place(given)).parent, os.W_OK | os.X_OK):
            raise MalformedInput(f"cannot write {path}: no permission in folder {path.parent}")


def _allowed(path: Path | str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _place(given: Path | str) -> Path:
    """Where a file would be written: a link's target; MalformedInput where nothing can be."""
    if not Path(given).name:  # "" and "."
        raise MalformedInput(f"cannot write {str(given)!r}: name a file")
    try:
        path = Path(given).resolve() if Path(given).is_symlink() else Path(given)  # a link stays one
        if path.is_symlink():  # Python 3.13 and later return a loop unresolved
            raise MalformedInput(f"cannot write {given}: a loop of links; name a file")
        if path.is_dir():
            raise MalformedInput(f"cannot write {path}: it is a folder; name a file")
        if path.exists() and not path.is_file():
            raise MalformedInput(f"cannot write {path}: it is a device or a pipe; name a file")
        if not path.parent.is_dir():
            raise MalformedInput(f"cannot write {path}: folder {path.parent} does not exist")
        if path.exists() and not _allowed(path, os.W_OK):
            raise MalformedInput(f"cannot write {path}: it is there and may not be changed")
    except (OSError, RuntimeError) as error:  # a name that is too long, a loop of links
        raise MalformedInput(f"cannot write {given}: {getattr(error, 'strerror', None) or error}") from error
    return path


@contextmanager
def atomic_file(path: Path | str) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` only when the block ends well; what was there stays until then.

    MalformedInput for a path that cannot be written, OutputFailed where the disk does not take the data.
    """
    place = _place(path)
    # named before it is made: an interrupt finds it wherever it comes
    temporary = place.parent / f".{os.fsdecode(os.fsencode(place.name)[:100])}.{secrets.token_hex(6)}"
    try:
        try:
            with temporary.open("xb") as stream:
                yield stream
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        kind = OutputFailed if error.errno in _DEVICE_FAILED else MalformedInput
        raise kind(f"cannot write {path}: {error.strerror or error}") from error


def write_bytes(path: Path | str, data: bytes) -> None:
    """`data` under `path`, all or nothing."""
    with atomic_file(path) as stream:
        stream.write(data)


def write_json(path: Path | str, document: Any) -> None:
    """A document as a data file that a person may read too, all or nothing; the same bytes for the same numbers."""
    write_bytes(path, (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def make_folder(place: Path | str, *, parents: bool = False) -> None:
    """Make a folder where there is none (parents: and those above it); MalformedInput where that cannot be, or nothing could
    be written into it."""
    try:
        Path(place).mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise MalformedInput(f"cannot make folder {place}: {error.strerror or error}") from error
    if not _allowed(place, os.W_OK | os.X_OK):
        raise MalformedInput(f"cannot write into folder {place}: no permission")


def require_alone(stream: IO[bytes], busy: str) -> None:
    """Lock an open file until it is closed or the process ends, however it does. MalformedInput(busy) where another one has it
    locked; nothing where the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise MalformedInput(busy) from None


# --- reading ----------------------------------------------------------------------------------------------------


def require_regular(path: Path | str) -> int:
    """The size of a regular file, in bytes; MalformedInput for a pipe, which could be read for ever, a device or a folder.

    OSError where there is no such file.
    """
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        raise MalformedInput(f"cannot read {path}: it is no regular file; name one")
    return status.st_size


def read_bytes(path: Path | str) -> bytes:
    """Content of a regular file of at most LARGEST bytes, or MalformedInput or ResourceLimit saying why not."""
    try:
        if (size := require_regular(path)) > LARGEST:
            raise ResourceLimit(f"{path} has {size} bytes; at most {LARGEST} are read")
        return Path(path).read_bytes()
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path | str) -> Any:
    """The document of a JSON file, or MalformedInput saying why there is none."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, MalformedInput):
            raise
        raise MalformedInput(f"{path} is no JSON: {error}") from None


def json_files(folder: Path | str, suffix: str = ".json") -> list[Path]:
    """Files of a folder with this suffix, in order; nothing where there is none. MalformedInput for what is no file: to read a
    pipe would wait for ever."""
    found = sorted(Path(folder).glob(f"*{suffix}"))
    if strange := [path for path in found if not path.is_file()]:
        raise MalformedInput(f"{strange[0]} is no file, where results are kept as files")
    return found
