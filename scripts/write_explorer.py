"""Write docs/frontier-explorer.html: the frontier's numbers at small shapes and at the paper's, with sliders.

python scripts/write_explorer.py
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

from utfproof.reporting.explorer import page
from utfproof.shapes import PAPER_TABLE_SHAPES, EffectiveHeadDimensionWarning, Shape

PAGE = Path(__file__).parents[1] / "docs" / "frontier-explorer.html"
MOST = (4, 5, 4, 4)
"""Ends of the sliders for H, L, d and d_in."""


def content() -> str:
    """The page."""
    warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
    dims = itertools.product(*(range(1, end + 1) for end in MOST))
    shapes = [Shape(*values, residual=residual) for values in dims for residual in (False, True)]
    named = {
        f"{task}: (H, L, d, d_in) = {values}{', with a residual stream' * residual}": Shape(*values, residual=residual)
        for task, values in PAPER_TABLE_SHAPES.items()
        for residual in (False, True)
    }
    return page(shapes, named, MOST)


if __name__ == "__main__":
    PAGE.write_text(content(), encoding="utf-8")
