"""What belongs to the second tier: `make full` and CI run it, `make test` does not.

The first tier takes a newcomer a few minutes with its installation: a test that takes more than about a second of a processor
is marked `full`, unless it is the only guard of what it guards. `exhaustive` is for what takes minutes.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def full_where(slow: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """The values of a parameter, those that are slow in the second tier."""
    return [pytest.param(value, marks=pytest.mark.full) if slow(value) else value for value in values]
