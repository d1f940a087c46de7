"""Every construction of a host by name: what it is, where it is defined, its least m, and the notion it serves.

sparse, sparse-front      prefix tree, untied           matching
tied                      trie and shift register       matching (tied targets with a residual stream)
shared-key, shared-query  below M, for d >= d_in        attention-matching
random, random-tied       seeded i.i.d. weights         matching, if the rank certificate says so
printed-*                 the paper's, as printed       refuted by matching

sparse, tied, random and random-tied exist with a residual stream too, the others without only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from utfproof.constructions import as_printed, residual, shared_key, shared_query, sparse, tied
from utfproof.constructions.random import random_host, random_target
from utfproof.errors import MalformedInput, NotDefined
from utfproof.generator import check_law
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.shapes import (
    Shape,
    geometric,
    matching_dimension,
    paper_looped_dimension,
    positive_integer,
    require_plain,
    require_words,
    shared_key_dimension,
    shared_query_dimension,
    tied_targets_dimension,
)
from utfproof.systems import Universal

__all__ = [
    "CONSTRUCTIONS",
    "Construction",
    "build_host",
    "construction",
    "dense_bytes",
    "random_target",
    "require_index_memory",
    "resolve_m",
]


def _everywhere(shape: Shape) -> None:
    return None


@dataclass(frozen=True)
class Construction:
    """A recipe for hosts. `notion` is the one under which it serves all untied targets ("almost all" where said);
    None for the printed ones, which serve under none of those proved here. `streams`: also defined with a residual stream."""

    name: str
    summary: str
    paper_label: str
    tied: bool
    notion: Notion | None
    least_m: Callable[[Shape], int]
    index_map: Callable[[Shape, int], Universal] | None = None
    defined: Callable[[Shape], None] = _everywhere
    default_m: Callable[[Shape], int] | None = None
    streams: bool = False

    def serves_untied(self, shape: Shape) -> bool:
        """Whether untied targets are within reach by matching: not for tied hosts with a residual stream from L = 2 on,
        where the words (0, h) and (h, 0) cannot be told apart."""
        return not (self.tied and shape.residual and shape.layers > 1)

    @property
    def is_random(self) -> bool:
        """Drawn from a seed and a law rather than {0,1} by definition."""
        return self.index_map is None


def _single_head_m(shape: Shape) -> int:
    return (shape.layers + 1) * as_printed.block_width(shape)


_ALL = [
    Construction(
        "sparse",
        "prefix-tree projection (thm:sparse_universal_transformer, repaired)",
        "thm:sparse_universal_transformer",
        False,
        Notion.MATCHING,
        matching_dimension,
        sparse.prefix_tree_host,
        streams=True,
    ),
    Construction(
        "sparse-front",
        "prefix tree in depth-first order, chosen subtree moved to the front",
        "thm:designed-R",
        False,
        Notion.MATCHING,
        matching_dimension,
        sparse.front_host,
    ),
    Construction(
        "tied",
        "trie and shift register, weight-tied",
        "thm:looped_sparse_universal_transformer",
        True,
        Notion.MATCHING,
        tied_targets_dimension,
        lambda shape, m: (residual.residual_tied_host if shape.residual else tied.tied_host)(shape, m),
        streams=True,
    ),
    Construction(
        "shared-key",
        "two tries, one key block for all heads; d >= d_in",
        "",
        True,
        Notion.ATTENTION_MATCHING,
        shared_key_dimension,
        shared_key.shared_key_host,
        shared_key.require_wide_heads,
    ),
    Construction(
        "shared-query",
        "key trie and shift register, queries read the output; d >= d_out, targets with invertible M^(l,0)",
        "",
        True,
        Notion.ATTENTION_MATCHING,
        shared_query_dimension,
        shared_query.shared_query_host,
        shared_query.require_wide_heads,
    ),
    Construction(
        "random",
        "i.i.d. weights from a seed",
        "thm:random_universal_transformer",
        False,
        Notion.MATCHING,
        lambda shape: 1,
        default_m=matching_dimension,
        streams=True,
    ),
    Construction(
        "random-tied",
        "i.i.d. weights from a seed, weight-tied",
        "thm:random_looped_universal_transformer",
        True,
        Notion.MATCHING,
        lambda shape: 1,
        default_m=matching_dimension,
        streams=True,
    ),
    Construction(
        "printed-single-head",
        "lem:single_head as printed; H = 1",
        "lem:single_head",
        False,
        None,
        _single_head_m,
        as_printed.single_head_host,
        as_printed.require_single_head,
    ),
    Construction(
        "printed-tree-row",
        "thm:designed-R's formal R_V as printed, acting on rows",
        "thm:designed-R",
        False,
        None,
        matching_dimension,
        lambda shape, m: sparse.printed_tree_host(shape, m, transposed=False),
    ),
    Construction(
        "printed-tree-column",
        "thm:designed-R's formal R_V as printed, acting on columns",
        "thm:designed-R",
        False,
        None,
        matching_dimension,
        lambda shape, m: sparse.printed_tree_host(shape, m, transposed=True),
    ),
    Construction(
        "printed-looped",
        "thm:designed-R-looped as printed, m = (1+S) max{2d, d_in}",
        "thm:designed-R-looped",
        True,
        None,
        paper_looped_dimension,
        as_printed.looped_host,
    ),
]

CONSTRUCTIONS: dict[str, Construction] = {entry.name: entry for entry in _ALL}


def construction(name: str) -> Construction:
    """The construction of that name; MalformedInput listing the known ones otherwise."""
    if name not in CONSTRUCTIONS:
        raise MalformedInput(f"construction {name!r} is unknown; choose {', '.join(CONSTRUCTIONS)}")
    return CONSTRUCTIONS[name]


def resolve_m(entry: Construction, shape: Shape, m: int | None) -> int:
    """The embedding dimension: `m`, or the construction's own. Raises NotDefined outside the construction's shapes and
    for an m below its least one."""
    if not entry.streams:
        require_plain(shape, entry.name)
    entry.defined(shape)
    require_words(shape, entry.name)
    least = entry.least_m(shape)
    if m is None:
        return (entry.default_m or entry.least_m)(shape)
    m = positive_integer("m", m)
    if m < least:
        raise NotDefined(f"{entry.name} at {shape} needs m >= {least}, got {m}")
    return m


def dense_bytes(shape: Shape, m: int, *, tied: bool, itemsize: int = 8) -> int:
    """Bytes of a host's dense parameters."""
    layers = 1 if tied else shape.layers
    return itemsize * (layers * shape.heads * m * (m + 2 * shape.head_dim) + m * shape.d_out)


def require_index_memory(name: str, shape: Shape, m: int, limit: int | None) -> None:
    """ResourceLimit before an index-map host and its R_all are built: about 16 bytes a pair of cells, and each cell
    in as many R_V as its word is long."""
    words, letters = geometric(shape.letters, 0, shape.layers - 1), shape.letters
    cells = m if name not in ("sparse", "tied") else 2 * shape.heads * words + letters**shape.layers
    copies = 1 if name == "sparse-front" else min(shape.heads * shape.layers, 2 * shape.layers)
    if shape.residual and name == "sparse":  # R_all: each zero of a word reads every letter
        copies += (2 * shape.heads + 1) ** shape.layers // letters**shape.layers
    working = 16 * cells * (copies + 12) + 16 * m
    require_memory(working, f"{name} as index maps at {shape}, m = {m},", limit)


def build_host(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    max_memory: int | None = None,
) -> Universal:
    """The host of that name: SelectionMatrix parameters, or NumPy arrays for the random ones.

    m defaults to the construction's own dimension (M for random hosts); a larger m pads with zeros. seed, law and dtype
    matter to random hosts only. Raises MalformedInput, NotDefined, or ResourceLimit before allocating.
    """
    entry = construction(name)
    check_law(law)
    m = resolve_m(entry, shape, m)
    if entry.index_map is not None:
        require_index_memory(name, shape, m, max_memory)
        return entry.index_map(shape, m)
    require_memory(dense_bytes(shape, m, tied=entry.tied), f"{name} at {shape}, m = {m},", max_memory)
    return random_host(shape, m, seed=seed, law=law, dtype=dtype, tied=entry.tied)
