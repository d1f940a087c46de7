"""What a search may use: time, looked at in every loop that can be long, and memory, where tables grow as it goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

from utfproof.ground.resources import default_limit, held_memory


class OutOfBudget(Exception):
    """The search ends here, undecided. what: was spent."""

    what = "time"


class OutOfMemory(OutOfBudget):
    """The same, of memory."""

    what = "memory"


@dataclass(frozen=True)
class Budget:
    """deadline: of time.monotonic(); memory: bytes that the process may hold, None for 80 % of RAM."""

    deadline: float = inf
    memory: int | None = None

    @classmethod
    def lasting(cls, seconds: float, memory: int | None = None) -> Budget:
        """So many seconds from now on."""
        return cls(time.monotonic() + seconds, memory)

    @property
    def left(self) -> float:
        """Seconds, not below zero."""
        return max(0.0, self.deadline - time.monotonic())

    def look(self) -> None:
        """Raise OutOfBudget when the time is over."""
        if time.monotonic() > self.deadline:
            raise OutOfBudget("budget spent")

    def weigh(self, more: int = 0) -> None:
        """Raise OutOfBudget when the process holds too much, or would with so many bytes more. Slower than `look`: it asks the
        system."""
        if held_memory() + more > (default_limit() if self.memory is None else self.memory):
            raise OutOfMemory("memory spent")


UNLIMITED = Budget()
