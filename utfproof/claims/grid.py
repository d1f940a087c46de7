"""Grids of shapes, written "H=1..2,L=1..3,d=1..2,d_in=1..3"; a single number and lists joined by + are understood too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import Shape, span

DEFAULT_GRID = "H=1..3,L=1..3,d=1..2,d_in=1..3"
NAMES = ("H", "L", "d", "d_in")
MAX_SHAPES = 100_000


@dataclass(frozen=True)
class Grid:
    """All combinations of the given heads, layers, head dimensions and input widths."""

    heads: tuple[int, ...]
    layers: tuple[int, ...]
    head_dims: tuple[int, ...]
    d_ins: tuple[int, ...]
    text: str

    @staticmethod
    def parse(text: str = DEFAULT_GRID) -> Grid:
        """A grid from its text; MalformedInput naming what is wrong, ResourceLimit above MAX_SHAPES shapes."""
        ranges: dict[str, tuple[int, ...]] = {}
        for part in text.replace(" ", "").split(","):
            name, separator, values = part.partition("=")
            if not separator or name not in NAMES or name in ranges:
                raise MalformedInput(
                    f"grid {text!r} is not understood at {part!r}; expected something like {DEFAULT_GRID!r}, "
                    f"each of {', '.join(NAMES)} once"
                )
            ranges[name] = _values(text, part, values)
        missing = [name for name in NAMES if name not in ranges]
        if missing:
            raise MalformedInput(f"grid {text!r} lacks {', '.join(missing)}; expected for example {DEFAULT_GRID!r}")
        size = 1
        for values_of in ranges.values():
            size *= len(values_of)
        if size > MAX_SHAPES:
            raise ResourceLimit(f"grid {text!r} has {size} shapes, more than {MAX_SHAPES}; choose a smaller one")
        return Grid(ranges["H"], ranges["L"], ranges["d"], ranges["d_in"], text)

    @property
    def default(self) -> bool:
        """Whether it is the default grid, on which verdicts, figures and smallest instances are recorded."""
        return self.text == DEFAULT_GRID

    def shapes(self) -> Iterator[Shape]:
        """Every shape of the grid."""
        for values in itertools.product(self.heads, self.layers, self.head_dims, self.d_ins):
            yield Shape(*values)


def _values(text: str, part: str, values: str) -> tuple[int, ...]:
    found: set[int] = set()
    for piece in values.split("+"):
        first, last = span(piece) or (0, 0)
        if first < 1 or last >= 10**6:
            raise MalformedInput(
                f"grid {text!r} is not understood at {part!r}; expected positive integers, as in H=1..3"
            )
        if last < first:
            raise MalformedInput(f"grid {text!r} has an empty range at {part!r}; write the smaller number first")
        if last - first >= MAX_SHAPES:
            raise ResourceLimit(f"grid {text!r} has more than {MAX_SHAPES} values at {part!r}; choose a smaller one")
        found.update(range(first, last + 1))
    return tuple(sorted(found))
