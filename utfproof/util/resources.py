"""Limits on memory and time: enforced by the system, and estimated beforehand where one product of sizes says it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import decimal

LIBRARIES = 12 * 2**20
"""About what SciPy's linear algebra holds once it is loaded."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@lru_cache(maxsize=1)
def default_limit() -> int:
    """80 % of RAM, or of the control group's limit where that is lower, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        total = min(total, decimal(Path("/sys/fs/cgroup/memory.max").read_text().strip(), 20) or total)
    return int(0.8 * total)


def parse_bytes(text: str) -> int:
    """'512M', '4G', '4GiB', '123456' as bytes; MalformedInput otherwise."""
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([KMGT]?)(?:i?B)?\s*", text, flags=re.IGNORECASE)
    if match is None:
        raise MalformedInput(f"memory limit {text[:30]!r} is not a size; write for example 512M or 4G")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])


def show_bytes(count: int) -> str:
    """A byte count for people, in binary units."""
    if count.bit_length() > 100:
        return f"2^{(count * count).bit_length() // 2} B"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def held_memory() -> int:
    """Bytes that the process holds now, files mapped into it not counted; 0 where the system does not say."""
    return _status_bytes("RssAnon")


def _status_bytes(name: str) -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def require_memory(needed: int, what: str, limit: int | None = None) -> None:
    """Raise ResourceLimit when `needed` bytes for `what`, beside what the process holds already, exceed the limit (default
    80 % of RAM): guards one after the other add up."""
    allowed = default_limit() if limit is None else limit
    held = held_memory()
    if needed + held > allowed:
        raise ResourceLimit(
            f"{what} needs about {show_bytes(needed)} beside the {show_bytes(held)} in use, the limit is "
            f"{show_bytes(allowed)}; choose a smaller shape or raise --max-memory"
        )


@contextmanager
def limits(max_memory: int | None = None, max_seconds: float | None = None, what: str = "this") -> Iterator[None]:
    """Have the system enforce limits on a block: `max_memory` bytes held by the process, `max_seconds` of the clock.

    None: no limit of that sort. The block runs in the main thread where there is a time limit. A single call into C ends
    before its time limit is noticed. Raises ResourceLimit with the figure.
    """
    try:
        with _data_limited(max_memory), _timed(max_seconds, what):
            yield
    except MemoryError as error:
        if max_memory is None:
            raise
        raise ResourceLimit(
            f"{what} needs more than the limit of {show_bytes(max_memory)}; choose a smaller input or raise --max-memory"
        ) from error


@contextmanager
def _data_limited(max_memory: int | None) -> Iterator[None]:
    """RLIMIT_DATA, which counts what is reserved: what is reserved now and not used is allowed beside the limit."""
    if max_memory is None or not sys.platform.startswith("linux"):
        yield
        return
    import resource

    reserved = _status_bytes("VmData")
    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = max_memory + max(reserved - held_memory(), 0)
    known = [limit for limit in (wanted, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def _timed(seconds: float | None, what: str) -> Iterator[None]:
    """A timer of the system; an outer timer goes on afterwards."""
    if seconds is None:
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise ResourceLimit(
            f"{what} took more than the limit of {seconds:g} s; choose a smaller input or raise --max-seconds"
        )

    handler = signal.signal(signal.SIGALRM, stop)
    began, (left, _) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3))
