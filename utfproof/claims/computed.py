"""What the last recorded run computed, claim by claim: computed.json, written by `python scripts/write_claims.py --computed`.

Figures, smallest instances, the certificates' scopes and how many instances came out which way are nobody's to type: they are
recorded here by a run, and every later run must compute them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("computed.json")
SHARED = Path(__file__).with_name("routes.json")
"""What two routes rest on and share, claim by claim: written by the same run from the source (`utfproof.claims.independence`)."""


@dataclass(frozen=True)
class Computed:
    """One claim's part. words: a digest of its record, so that no word changes without a run. smallest, counterexample: labels
    of the smallest instance that holds or fails. certificates: what they say (`scope.signature`), and how many say it. routes: names of
    the second routes. outcomes: how many instances came out which way, on the default grid."""

    words: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    smallest: str | None = None
    counterexample: str | None = None
    certificates: Mapping[str, int] = field(default_factory=dict)
    routes: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def named_routes(self) -> set[str]:
        """The names of routes that are held against each other."""
        return {name for pair in self.routes for name in pair.split(" = ") if " = " in pair}


@dataclass(frozen=True)
class Shared:
    """What a claim's routes rest on. routes: each one's modules of the package, and libraries. given: modules that made what two
    routes are both given. shared: functions of the package that two routes of one comparison both reach beside that."""

    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


UNRECORDED = Computed()
"""Of a claim that no run has computed yet."""


def digest(words: Sequence[Any]) -> str:
    """Of the words of a record."""
    return hashlib.sha256(json.dumps(words, ensure_ascii=False).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def recorded() -> dict[str, Computed]:
    """Every claim's part, by id."""
    if not FILE.is_file():
        return {}
    listed = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Computed(**{**entry, "routes": tuple(entry["routes"])}) for name, entry in listed.items()}


def write(parts: Mapping[str, Computed]) -> None:
    """Record them, in the order given."""
    _write(FILE, parts)
    recorded.cache_clear()


def _write(path: Path, parts: Mapping[str, Any]) -> None:
    """A claim a line, so that what changes in one changes a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(part), ensure_ascii=False)}" for name, part in parts.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@lru_cache(maxsize=1)
def recorded_routes() -> dict[str, Shared]:
    """Of every claim with two routes, by id."""
    listed = json.loads(SHARED.read_text(encoding="utf-8")) if SHARED.is_file() else {}
    return {
        name: Shared({k: tuple(v) for k, v in entry["routes"].items()}, tuple(entry["given"]), tuple(entry["shared"]))
        for name, entry in listed.items()
    }


def write_routes(parts: Mapping[str, Shared]) -> None:
    """Record them."""
    _write(SHARED, parts)
    recorded_routes.cache_clear()
