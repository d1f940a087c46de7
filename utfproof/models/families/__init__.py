"""The families of models that are read: one file each, found by looking into this folder."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from utfproof.models.family import Family


@cache
def families() -> dict[str, Family]:
    """Every family by its name, in alphabetical order of their files."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    found: list[Family] = [import_module(f"{__name__}.{name}").FAMILY for name in names]
    return {family.name: family for family in found}
