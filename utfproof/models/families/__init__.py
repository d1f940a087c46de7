"""The families of models that are read: one file each, found by looking into this folder. Adding one touches its file only."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from utfproof.models.family import Family


@cache
def families() -> dict[str, Family]:
    """Every family by its name, in alphabetical order of their files."""
    found = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        family = import_module(f"{__name__}.{module}").FAMILY
        found[family.name] = family
    return found
