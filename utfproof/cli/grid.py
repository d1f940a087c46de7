"""Jobs as a sweep sees them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from utfproof.jobs.job import Job
from utfproof.jobs.parameters import keys
from utfproof.jobs.registry import job
from utfproof.sweeps.jobs import Context, Found, Key

_TYPES = {"flag": bool, "number": float, "amount": float, "seconds": float, "text": str, "lengths": str}


class JobInSweep:
    """A job class as a command of a sweep."""

    def __init__(self, name: str, kind: type[Job]) -> None:
        self.name, self.kind = name, kind

    @property
    def keys(self) -> Mapping[str, Key]:
        """Its options that say what is run."""
        return {
            name: Key(_TYPES.get(entry.kind, int), entry.default, entry.check)
            for name, entry in keys(self.kind).items()
        }

    @property
    def versions(self) -> dict[str, int | str]:
        """Of the formats that results are written in."""
        from utfproof.certificates.format import VERSION

        return {"result": self.kind.version, **({"certificate": VERSION} if self.kind.certified else {})}

    def prepared(self, given: dict[str, Any], folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """Canonical parameters."""
        return self.kind.prepared(given, folder)

    def result(self, parameters: Mapping[str, Any], context: Context) -> Found:
        """Run it."""
        return self.kind.of(parameters, max_memory=context.max_memory).found(context)


@functools.cache
def in_sweep(name: str) -> JobInSweep:
    """The command of this name; MalformedInput where there is none."""
    return JobInSweep(*job(name))
