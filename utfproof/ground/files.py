"""Writing files so that a crash or Ctrl-C leaves nothing half-written: a temporary file beside the target, then rename."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from utfproof.errors import MalformedInput, OutputFailed, ResourceLimit

LARGEST = 2**30
"""Bytes of one JSON or TOML document that are read."""
_DEVICE_FAILED = {
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENXIO", "ESTALE") if hasattr(errno, name)
}
"""The name was right, and the disk would not take the data."""


def require_writable(*paths: Path | str | None) -> None:
    """MalformedInput, before any work, for files that could not be written: no folder, a folder itself, no permission.

    None stands for an output that nobody asked for.
    """
    for given in paths:
        if given is None:
            continue
        try:
            path = _place(given)
        except OSError as error:  # a name that is too long, a loop of links
            raise MalformedInput(f"cannot write {given}: {error.strerror or error}") from error
        if not _allowed(path.parent, os.W_OK | os.X_OK):
            raise MalformedInput(f"cannot write {path}: no permission in folder {path.parent}")


def _allowed(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _place(given: Path | str) -> Path:
    """Where a file would be written: a link's target; MalformedInput where nothing can be."""
    path = Path(given)
    if not path.name:  # "" and "."
        raise MalformedInput(f"cannot write {str(given)!r}: name a file")
    if path.is_symlink():  # it stays one: its target is replaced
        path = Path(os.path.realpath(path))
        if path.is_symlink():
            raise MalformedInput(f"cannot write {given}: the link leads to itself")
    if path.is_dir():
        raise MalformedInput(f"cannot write {path}: it is a folder; name a file")
    if path.exists() and not path.is_file():
        raise MalformedInput(f"cannot write {path}: it is a device or a pipe; name a file")
    if not path.parent.is_dir():
        raise MalformedInput(f"cannot write {path}: folder {path.parent} does not exist")
    if path.exists() and not _allowed(path, os.W_OK):
        raise MalformedInput(f"cannot write {path}: it is there and may not be changed")
    return path


@contextmanager
def atomic_file(path: Path | str) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` only when the block ends well; what was there stays until then.

    MalformedInput for a path that cannot be written, OutputFailed where the disk does not take the data.
    """
    try:
        place = _place(path)
        # named before it is made: an interrupt finds it wherever it comes
        temporary = place.parent / f".{os.fsdecode(os.fsencode(place.name)[:100])}.{secrets.token_hex(6)}"
        waiting = _waiting.get()
        if waiting is not None:
            waiting.append((temporary, place))
        try:
            with temporary.open("xb") as stream:
                yield stream
            if waiting is None:
                temporary.replace(place)
        finally:
            if waiting is None:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(path, error) from error


_waiting: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("waiting", default=None)
"""Files of a block that appear together: temporary name and place."""


@contextmanager
def together() -> Iterator[None]:
    """The files written in this block appear when it ends well: all of them, or none. Errors as of `atomic_file`."""
    files: list[tuple[Path, Path]] = []
    token = _waiting.set(files)
    try:
        yield
        for temporary, place in files:
            try:
                temporary.replace(place)
            except OSError as error:
                raise _failure(place, error) from error
    finally:
        _waiting.reset(token)
        for temporary, _ in files:
            temporary.unlink(missing_ok=True)


def _failure(path: Path | str, error: OSError) -> MalformedInput | OutputFailed:
    kind = OutputFailed if error.errno in _DEVICE_FAILED else MalformedInput
    return kind(f"cannot write {path}: {error.strerror or error}")


def write_bytes(path: Path | str, data: bytes) -> None:
    """`data` under `path`, all or nothing."""
    with atomic_file(path) as stream:
        stream.write(data)


def write_json(path: Path | str, document: Any) -> None:
    """A document as a data file that a person may read too, all or nothing; the same bytes for the same numbers."""
    write_bytes(path, (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def require_folder(place: Path | str) -> None:
    """MalformedInput, before any work, where `make_folder` would fail or nothing could be written into the folder."""
    path = Path(place).absolute()
    near = next(folder for folder in (path, *path.parents) if folder.exists() or folder.is_symlink())
    if not near.is_dir():
        raise MalformedInput(f"cannot make folder {place}: {near} is no folder")
    if not _allowed(near, os.W_OK | os.X_OK):
        raise MalformedInput(f"cannot write into folder {place}: no permission in {near}")


def make_folder(place: Path | str, *, parents: bool = False) -> None:
    """Make a folder where there is none (parents: and those above it); MalformedInput where that cannot be."""
    try:
        Path(place).mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise MalformedInput(f"cannot make folder {place}: {error.strerror or error}") from error


def read_json(path: Path | str) -> Any:
    """The document of a JSON file, or MalformedInput saying why there is none; a repeated key is refused."""
    return _parse(read_bytes(path), str(path))


def read_json_lines(path: Path | str) -> list[tuple[str, Any]]:
    """(source, document) of each line of a JSON Lines file; source: file and line. Errors as of `read_json`."""
    lines = ((f"{path}, line {number}", line) for number, line in enumerate(read_bytes(path).splitlines(), 1))
    return [(source, _parse(line, source)) for source, line in lines]


def _parse(data: bytes, source: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is repeated")
        return found

    try:
        document = json.loads(data, object_pairs_hook=unique)
        require_text(document, data)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"{source} is no JSON: {error}") from None
    return document


def require_text(document: Any, data: bytes) -> None:
    """ValueError for half of a character: JSON can escape a lone surrogate, but nothing can write it."""
    if b"\\ud" in data.lower():
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"it holds half of a character, \\u{ord(error.object[error.start]):04x}") from None


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


def json_files(folder: Path | str, suffix: str = ".json") -> list[Path]:
    """Files of a folder with this suffix, in order; nothing where there is none. MalformedInput for what is no file: to read a
    pipe would wait for ever."""
    found = sorted(Path(folder).glob(f"*{suffix}"))
    if strange := [path for path in found if not path.is_file()]:
        raise MalformedInput(f"{strange[0]} is no file, where results are kept as files")
    return found
