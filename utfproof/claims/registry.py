"""The registry: every claim by its id, read from the TOML file of its section and joined to its check."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from utfproof.claims import checks
from utfproof.claims.bounds import bounded
from utfproof.claims.claim import CHECKS, Check, Claim, read
from utfproof.claims.decisions import certified
from utfproof.errors import MalformedInput, choose

FOLDER = Path(__file__).with_name("sections")
SECTIONS = (
    "introduction",
    "preliminaries",
    "constructing",
    "optimality",
    "experiments",
    "appendix_universal",
    "appendix_random",
    "appendix_looped",
    "appendix_lower_bound",
    "new_matching",
    "new_bounds",
    "new_gated",
    "new_shared_attention",
    "new_residual",
    "new_trained_models",
)
"""TOML files in the order of the paper; results beyond the paper by topic."""


@lru_cache(maxsize=1)
def all_claims() -> dict[str, Claim]:
    """Every claim by id, in the order of the paper. ValueError for a record that is malformed, double or without a check."""
    for module in pkgutil.iter_modules(checks.__path__):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    found: dict[str, Claim] = {}
    for name in SECTIONS:
        section = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        for entry in section["claim"]:
            if entry["id"] in found:
                raise ValueError(f"claim {entry['id']} is registered twice")
            check = _check_of(entry)
            found[entry["id"]] = read(entry, section["title"], check)
    if extra := sorted(set(CHECKS) - set(found)):
        raise ValueError(f"checks without a claim: {', '.join(extra)}")
    return found


def _check_of(entry: dict[str, Any]) -> Check:
    """The check of a record, by its rows (which are taken out of it) or by its id."""
    tables = [key for key in ("certify", "bounds") if key in entry]
    if len(tables) + (entry["id"] in CHECKS) != 1:
        raise ValueError(
            f"claim {entry['id']} needs `certify`, `bounds` or a check in utfproof/claims/checks: one of them"
        )
    if not tables:
        return CHECKS[entry["id"]]
    rows = entry.pop(tables[0])
    return certified(rows) if tables == ["certify"] else bounded(rows, entry)


def select(names: Sequence[str]) -> list[Claim]:
    """The claims named: by id, by the paper's label (all its parts) or by a pattern such as "thm:*/open"; all for no names.

    MalformedInput for a name that fits none.
    """
    known = all_claims()
    chosen: set[str] = set() if names else set(known)
    for name in names:
        fits = {entry.id for entry in known.values() if name in (entry.id, entry.label) or fnmatchcase(entry.id, name)}
        if not fits:
            near = choose(name, [*known, *{entry.label for entry in known.values()}]).partition("?")
            hint = f"{near[0]}? " if near[1] else ""
            raise MalformedInput(f"no claim is called {name!r}; {hint}`utfproof verify --list` names them all")
        chosen |= fits
    return [entry for entry in known.values() if entry.id in chosen]
