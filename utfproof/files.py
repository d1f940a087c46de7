"""Writing files so that a crash or Ctrl-C leaves nothing half-written: a temporary file beside the target, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from utfproof.errors import MalformedInput


@contextmanager
def atomic_file(path: Path | str) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` only when the block ends well. MalformedInput if it cannot be written."""
    path = Path(path)
    try:
        if path.is_symlink():  # it stays one: its target is replaced
            path = Path(os.path.realpath(path))
        if path.is_dir():
            raise MalformedInput(f"cannot write {path}: it is a folder; name a file")
        if path.exists() and not path.is_file():
            raise MalformedInput(f"cannot write {path}: it is a device or a pipe; name a file")
        if not path.parent.is_dir():
            raise MalformedInput(f"cannot write {path}: folder {path.parent} does not exist")
    except OSError as error:
        raise MalformedInput(f"cannot write {path}: {error.strerror or error}") from error
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            yield stream.file
            stream.flush()
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise MalformedInput(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path | str, data: bytes) -> None:
    """`data` under `path`, all or nothing."""
    with atomic_file(path) as stream:
        stream.write(data)


def read_bytes(path: Path | str) -> bytes:
    """Content of a file, or MalformedInput saying why not."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MalformedInput(f"cannot read {path}: {error.strerror or error}") from error
