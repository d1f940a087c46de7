"""The pytest fixture `decide_construction`, installed with utfproof (docs/your-construction.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from utfproof.testing import ConstructionReport


@pytest.fixture
def decide_construction() -> Callable[..., ConstructionReport]:
    """`utfproof.testing.decide_construction`: a function from a shape to a host, decided by matching on a grid."""
    from utfproof.testing import decide_construction as decide

    return decide
