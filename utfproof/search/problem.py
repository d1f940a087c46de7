"""What a search asks: is there a host of m dimensions that serves a whole class of targets?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, positive_integer, require_words

FREE = ("E", "U", "E and U")
"""What may depend on the target; what is not free is fixed with the host."""

NOTIONS = (Notion.SHARED_ATTENTION, Notion.ATTENTION_MATCHING)


@dataclass(frozen=True)
class Problem:
    """Shared attention: a fixed host R_V [L, H, m, m] (tied_host: [H, m, m]) such that E R_w U = M_w for every word w of
    length L, for (almost) all targets of the class, with the `free` ones of E [d_in, m] and U [m, d_in] chosen per target.

    notion: attention-matching asks for fixed R_Q, R_K [L, H, m, d] and U besides, such that all logit forms agree too; only E
    is free then. tied_targets: the targets' weights are tied. Raises MalformedInput for d_in != d_out, m < 1, another `free`
    or another notion, ResourceLimit beyond 2^60 words.
    """

    shape: Shape
    m: int
    free: str = "E and U"
    tied_targets: bool = False
    tied_host: bool = False
    notion: Notion = Notion.SHARED_ATTENTION

    def __post_init__(self) -> None:
        if self.shape.d_in != self.shape.d_out:
            raise MalformedInput(f"searches are made for d_in = d_out, got {self.shape}")
        object.__setattr__(self, "m", positive_integer("m", self.m))
        # refused before H^L is computed
        require_words(self.shape)
        if self.free not in FREE:
            raise MalformedInput(f"free is {self.free!r}; choose {', '.join(FREE)}")
        if self.notion not in NOTIONS:
            raise MalformedInput(f"no search for {self.notion}; choose {', '.join(NOTIONS)}")
        if self.notion == Notion.ATTENTION_MATCHING and self.free != "E":
            raise MalformedInput(f"in attention-matching U is fixed with the host: free is {self.free!r}, choose E")

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
            "notion": self.notion.value,
            "free": self.free,
            "targets": self.targets,
            "host": "tied" if self.tied_host else "untied",
        }

    def __str__(self) -> str:
        host = "tied" if self.tied_host else "untied"
        asked = f"{self.free} free" if self.notion == Notion.SHARED_ATTENTION else self.notion.value
        return f"{self.shape}, m = {self.m}, {asked}, {host} host, {self.targets} targets"
