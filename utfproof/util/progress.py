"""What a long computation is doing: stages with a name, a size, and how much is done. Silent unless somebody listens.

The code that works says `with stage("elimination", total=steps) as doing: ... doing.advance()`; the command line shows it.
Worker processes have no listener.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
LARGE = 3e8
"""Operations of dense linear algebra, some tenths of a second, from which a piece of work is a stage of its own."""


@dataclass(eq=False)
class Stage:
    """One piece of work.

    total: how many steps it has, None if unknown; unit: of the steps; whole: the command itself, shown where nothing better
    is.
    """

    name: str
    total: float | None = None
    unit: str = ""
    done: float = 0
    whole: bool = False
    note: str = ""

    def advance(self, steps: float = 1) -> None:
        """So much more is done."""
        self.done += steps

    def reach(self, done: float, note: str = "", total: float | None = None) -> None:
        """So much is done by now; note: a few words beside the bar."""
        self.done, self.note = done, note
        if total is not None:
            self.total = total


_listener: ContextVar[Any] = ContextVar("listener", default=None)
"""Who shows stages: begin(stage) and end(stage). It may look at a stage's numbers whenever it likes."""


@contextmanager
def listening(listener: Any) -> Iterator[None]:
    """The stages of this block are shown by `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def stage(
    name: str,
    total: float | None = None,
    *,
    unit: str = "",
    whole: bool = False,
    large: bool = True,
) -> Iterator[Stage]:
    """A stage of the work; `advance` or `reach` say how far it is. large=False: too small to be shown."""
    listener = _listener.get()
    made = Stage(name, total, unit, whole=whole)
    if listener is None or not large:
        yield made
        return
    listener.begin(made)
    try:
        yield made
    finally:
        listener.end(made)


def staged(name: str, items: Iterable[T], total: int, *, unit: str = "", large: bool = True) -> Iterator[T]:
    """The items, one step each."""
    with stage(name, total, unit=unit, large=large) as doing:
        for item in items:
            yield item
            doing.advance()
