"""What a construction is: its host, its embedding, its least m, where it is defined, what it serves, and what is known of it.

Each construction's file has its record; the registry (`utfproof.constructions`) holds them all, and whoever needs some of them
asks it by property.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from utfproof.errors import NotDefined, ResourceLimit
from utfproof.shapes import Shape, positive_integer, require_plain, require_shape, require_words
from utfproof.systems import SharedAttentionUniversal, Target, Universal
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix

MOST_COUNTED = 2**14
CONSTANT = "inputs whose rows sum to 1, such as one-hot tokens"
"""Where hosts with gated MLPs serve their targets."""


class Readers(NamedTuple):
    """What a host's queries and keys are of the target's stream: matrices [D, k <= d] by layer and head. condition: the largest
    condition number or norm of what was inverted or factored; None where nothing was."""

    queries: list[list[Array]]
    keys: list[list[Array]]
    condition: float | None = None


@dataclass(frozen=True)
class Domain:
    """The shapes that a construction is defined at. text: in words; holds: whether a shape is one. stream: with a residual
    stream only."""

    text: str = "every shape"
    holds: Callable[[Shape], bool] = lambda shape: True
    stream: bool = False


EVERYWHERE = Domain()


@dataclass(frozen=True)
class SharedAttention:
    """A host whose attention comes from outside. free: "E", or "E and U". embed: (E, U), U the host's own where it is fixed.
    length: letters of the longest word that numbers a block, L by default."""

    free: str
    host: Callable[[Shape, int], SharedAttentionUniversal]
    embed: Callable[[Shape, int, Target], tuple[Array, Array | SelectionMatrix]]
    length: Callable[[Shape], int] | None = None


def index_map_bytes(shape: Shape, cells: int, copies: int | None = None) -> int:
    """About 16 bytes a pair of cells of an index-map host and its R_all; each cell, a coordinate at worst, is in as many R_V as
    its word is long."""
    return 16 * cells * ((min(shape.heads * shape.layers, 2 * shape.layers) if copies is None else copies) + 12)


@dataclass(frozen=True)
class Construction:
    """A recipe for hosts. `notion` is the one under which it serves its targets; None for the printed ones, which serve under
    none of those proved here. targets: which, as a certificate says it. `streams`: also defined with a residual stream.
    readers: what its queries and keys are of the target's stream, if they are not the target's own: E solves the matching
    equations for them. embed: E [d_in, m] and a condition number, where E comes from a formula of its own. memory: bytes of its
    index maps and R_all, less 16 m.

    What is known of it: `permutation`, R_all is one at every shape (with a residual stream the columns of tied targets are
    different unit vectors); `rebuilt`, a checker has its matrices by name; `identity`, the name by which certificates of
    that kind follow its embedding, `tied_too` for its tied targets as well; `gated`, certificates of
    kind `gated-identity` name it. `shared`: its attention comes from outside.
    `counted`: its blocks are numbered by how often letters occur. `inputs`: the inputs it serves its targets on, if not all
    real ones; such a host has MLPs, and no R_all. `models`: it serves targets with MLPs and biases; from the host's shape, the
    targets'. `page`: its proof, where no certificate names it.
    """

    name: str
    summary: str
    tied: bool
    notion: Notion | None
    least_m: Callable[[Shape], int]
    index_map: Callable[[Shape, int], Universal] | None = None
    domain: Domain = EVERYWHERE
    default_m: Callable[[Shape], int] | None = None
    streams: bool = False
    targets: str = "all untied"
    readers: Callable[[Shape, Target], Readers] | None = None
    embed: Callable[[Shape, int, Target], tuple[Array, float | None]] | None = None
    memory: Callable[[Shape, int], int] = index_map_bytes
    is_random: bool = False
    permutation: bool = False
    rebuilt: bool = False
    identity: str = ""
    tied_too: bool = False
    gated: bool = False
    shared: SharedAttention | None = None
    counted: bool = False
    inputs: str = ""
    models: Callable[[Shape], Shape] | None = None
    page: str = "docs/proofs"

    def serves_untied(self, shape: Shape) -> bool:
        """Whether untied targets are within reach: not for hosts made for tied ones, nor, with a residual stream from L = 2 on,
        for tied hosts, where the words (0, h) and (h, 0) cannot be told apart."""
        return self.targets != "all tied" and not (self.tied and shape.residual and shape.layers > 1)

    def target_shape(self, shape: Shape) -> Shape:
        """The targets' shape at a host of this shape."""
        return shape if self.models is None else self.models(shape)

    @property
    def is_host(self) -> bool:
        """Whether it has queries and keys of its own: `build_host` makes it, drawn from a seed and a law or by definition."""
        return self.is_random or self.index_map is not None

    @property
    def certified(self) -> bool:
        """Whether a kind of certificate names it."""
        return self.rebuilt or self.gated or bool(self.identity)

    def defined(self, shape: Shape) -> bool:
        """Whether it is defined at this shape."""
        if (shape.residual and not self.streams) or (self.domain.stream and not shape.residual):
            return False
        return self.domain.holds(shape)

    def require(self, shape: Shape) -> None:
        """NotDefined outside its shapes, ResourceLimit where its blocks are too many for any machine."""
        if not self.streams:
            require_plain(shape, self.name)
        if self.domain.stream and not shape.residual:
            raise NotDefined(f"{self.name} is defined with a residual stream only (--residual), got {shape}")
        if not self.domain.holds(shape):
            raise NotDefined(f"{self.name} needs {self.domain.text}, got {shape}")
        if self.counted and shape.layers + shape.heads > MOST_COUNTED:
            raise ResourceLimit(
                f"{self.name} at {shape} is made for L + H up to {MOST_COUNTED}; choose a smaller shape"
            )
        if self.inputs:  # no blocks by words
            return
        if self.shared is None or self.shared.length is None:
            require_words(shape, self.name, 0 if self.counted and not self.is_host else None)
        else:
            require_words(shape, self.name, self.shared.length(shape))

    def dimension(self, shape: Shape, m: int | None = None) -> int:
        """The embedding dimension: `m`, or the construction's own. Raises NotDefined outside the construction's shapes and
        for an m below its least one, ResourceLimit where index maps of that size do not fit in memory."""
        require_shape(shape)
        self.require(shape)
        least = self.least_m(shape)
        if m is None:
            return (self.default_m or self.least_m)(shape)
        m = positive_integer("m", m)
        if m < least:
            raise NotDefined(f"{self.name} at {shape} needs m >= {least}, got {m}")
        if self.shared is not None:
            require_memory(16 * m + least * (60 * shape.heads + 200), f"{self.name} at {shape}, m = {m},")
        return m

    def require_host(self) -> None:
        """NotDefined, in a sentence, unless it is a host with queries and keys of its own."""
        if self.shared is not None:
            raise NotDefined(f"{self.name} has no queries and keys: its attention matrices come from outside")
