"""What a search asks: is there a host of m dimensions that serves a whole class of targets?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.shapes import Shape, positive_integer, require_words
from utfproof.util.notions import Notion

FREE = ("E", "E and U")
"""What may depend on the target; what is not free is fixed with the host."""


@dataclass(frozen=True)
class Problem:
    """Shared attention: a fixed host R_V [L, H, m, m] (tied_host: [H, m, m]) such that E R_w U = M_w for every word w of
    length L, for almost all targets of the class, with E [d_in, m], or E and U [m, d_in], chosen per target.

    tied_targets: the targets' weights are tied. Raises MalformedInput for d_in != d_out, m < 1 or another `free`,
    ResourceLimit beyond 2^60 words.
    """

    shape: Shape
    m: int
    free: str = "E and U"
    tied_targets: bool = False
    tied_host: bool = False

    def __post_init__(self) -> None:
        if self.shape.d_in != self.shape.d_out:
            raise MalformedInput(f"searches are made for d_in = d_out, got {self.shape}")
        object.__setattr__(self, "m", positive_integer("m", self.m))
        require_words(self.shape)  # refused before H^L is computed
        if self.free not in FREE:
            raise MalformedInput(f"free is {self.free!r}; choose {', '.join(FREE)}")

    @property
    def host_layers(self) -> int:
        """Layers of the host with matrices of their own: 1 when tied."""
        return 1 if self.tied_host else self.shape.layers

    @property
    def targets(self) -> str:
        """The class of targets, as certificates name it."""
        return "all tied" if self.tied_targets else "all untied"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        names = ("heads", "layers", "head_dim", "d_in")
        return {
            "shape": {name: getattr(self.shape, name) for name in names},
            "m": self.m,
            "notion": Notion.SHARED_ATTENTION.value,
            "free": self.free,
            "targets": self.targets,
            "host": "tied" if self.tied_host else "untied",
        }

    def __str__(self) -> str:
        host = "tied" if self.tied_host else "untied"
        return f"{self.shape}, m = {self.m}, {self.free} free, {host} host, {self.targets} targets"
