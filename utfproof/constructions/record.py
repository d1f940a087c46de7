"""What a construction is: its host, its embedding, its least m, where it is defined, what it serves, and what is known of it.

Each construction's file has its record; the registry (`utfproof.constructions`) holds them all, and whoever needs some of them
asks it by property.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from utfproof.constructions.words import Blocks, Edges
from utfproof.errors import NotDefined
from utfproof.ground.arrays import Array
from utfproof.ground.notions import Notion
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape, require_plain, require_words
from utfproof.systems import SharedAttentionUniversal, Target, Universal

Forms = tuple[list[list[Array]], list[list[Array]]]
"""What queries and keys are of a target's stream: matrices [D, k <= d] by layer and head."""


def everywhere(shape: Shape) -> None:
    """Defined at every shape."""
    return None


@dataclass(frozen=True)
class Identity:
    """What certificates of kind `identity` say of a construction. words: of the blocks of E (and of U where it is free); None
    for an embedding of rational functions, which a checker computes at a drawn target. targets: as such a certificate says
    it, where the record says it in another way. host: the host's name in the format, where that is another one. edges: of the
    middle layer, one for each head. moves: how many moves of blocks a checker follows, where the format has a standard
    embedding."""

    words: Callable[[Shape], tuple[Blocks, Blocks | None]] | None = None
    targets: str = ""
    host: str = ""
    edges: Callable[[Shape], Edges] | None = None
    moves: Callable[[Shape], int] | None = None


@dataclass(frozen=True)
class SharedAttention:
    """A host whose attention comes from outside. free: "E", or "E and U". embed: (E, U), U the host's own where it is fixed.
    canonical: a least host whose products are linear in the target's, or of rank one, is this one up to changes of
    coordinates."""

    free: str
    host: Callable[[Shape, int], SharedAttentionUniversal]
    embed: Callable[[Shape, int, Target], tuple[Array, Array | SelectionMatrix]]
    canonical: bool = False


def index_map_bytes(shape: Shape, cells: int, copies: int | None = None) -> int:
    """About 16 bytes a pair of cells of an index-map host and its R_all; each cell is in as many R_V as its word is long."""
    return 16 * cells * ((min(shape.heads * shape.layers, 2 * shape.layers) if copies is None else copies) + 12)


def cell_per_coordinate(shape: Shape, m: int) -> int:
    """Memory where cells are single coordinates at worst."""
    return index_map_bytes(shape, m)


@dataclass(frozen=True)
class Construction:
    """A recipe for hosts. `notion` is the one under which it serves its targets; None for the printed ones, which serve under
    none of those proved here. targets: which, as a certificate says it. `streams`: also defined with a residual stream.
    embed: E [d_in, m] and the largest condition number met (None where nothing is inverted), where E comes from a formula
    of its own; solve: E with a residual stream, where the matching equations are solved by a formula. forms: what its
    queries and keys are of the target's stream, where they are that. memory: bytes of its index maps and R_all, less 16 m.

    What is known of it: `permutation`, R_all is one at every shape (with a residual stream the columns of tied targets are
    different unit vectors); `rebuilt`, a checker has its matrices by name; `identity`, a checker follows its embedding.
    `shared`: its attention comes from outside.
    """

    name: str
    summary: str
    tied: bool
    notion: Notion | None
    least_m: Callable[[Shape], int]
    index_map: Callable[[Shape, int], Universal] | None = None
    defined: Callable[[Shape], None] = everywhere
    default_m: Callable[[Shape], int] | None = None
    streams: bool = False
    targets: str = "all untied"
    embed: Callable[[Shape, int, Target], tuple[Array, float | None]] | None = None
    solve: Callable[[Shape, int, Target], Array] | None = None
    forms: Callable[[Shape, Target], Forms] | None = None
    memory: Callable[[Shape, int], int] = cell_per_coordinate
    is_random: bool = False
    permutation: bool = False
    rebuilt: bool = False
    identity: Identity | None = None
    shared: SharedAttention | None = None

    def serves_untied(self, shape: Shape) -> bool:
        """Whether untied targets are within reach: not for hosts made for tied ones, nor, with a residual stream from L = 2 on,
        for tied hosts, where the words (0, h) and (h, 0) cannot be told apart."""
        return self.targets != "all tied" and not (self.tied and shape.residual and shape.layers > 1)

    @property
    def is_host(self) -> bool:
        """Whether it has queries and keys of its own: `build_host` makes it, drawn from a seed and a law or by definition."""
        return self.is_random or self.index_map is not None

    @property
    def certified(self) -> bool:
        """Whether a kind of certificate names it."""
        return self.rebuilt or self.identity is not None

    def require(self, shape: Shape) -> None:
        """NotDefined outside its shapes, ResourceLimit where the words of its blocks are beyond any machine."""
        if not self.streams:
            require_plain(shape, self.name)
        self.defined(shape)
        if self.is_host:
            require_words(shape, self.name)

    def require_host(self) -> None:
        """NotDefined, in a sentence, unless it is a host with queries and keys of its own."""
        if self.shared is not None:
            raise NotDefined(f"{self.name} has no queries and keys: its attention matrices come from outside")
