"""The registry: every construction of a host by name. Each one's record stands in its own file (`record.Construction`).

sparse, sparse-front      prefix tree, untied           matching
tied                      trie and shift register       matching (tied targets with a residual stream)
commuting-trie            d_in = 1, tied targets        matching
shared-key, shared-query  below M, for d >= d_in        attention-matching
shared-query-groups       the same for d <= d_in        attention-matching, almost all targets
symmetric-keys(-deep)     d_in = 1, d >= 2              attention-matching, almost all targets
residual-key, -query      with a residual stream only   attention-matching
random, random-tied       seeded i.i.d. weights         matching, if the rank certificate says so
printed-*                 the paper's, as printed       refuted by matching

sparse, tied, random and random-tied exist with a residual stream too.
"""

from __future__ import annotations

from utfproof.constructions import (
    as_printed,
    commuting,
    random,
    residual,
    residual_outputs,
    shared_key,
    shared_query,
    shared_query_groups,
    sparse,
    symmetric_keys,
)
from utfproof.constructions.random import random_host, random_target
from utfproof.constructions.record import Construction
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.generator import check_law
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape, geometric, positive_integer, require_plain, require_words
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


_ALL = (
    sparse.SPARSE,
    sparse.SPARSE_FRONT,
    residual.TIED,
    commuting.COMMUTING_TRIE,
    shared_key.SHARED_KEY,
    shared_query.SHARED_QUERY,
    shared_query_groups.SHARED_QUERY_GROUPS,
    symmetric_keys.SYMMETRIC_KEYS,
    symmetric_keys.SYMMETRIC_KEYS_DEEP,
    residual_outputs.RESIDUAL_KEY,
    residual_outputs.RESIDUAL_QUERY,
    random.RANDOM,
    random.RANDOM_TIED,
    as_printed.SINGLE_HEAD,
    sparse.TREE_ROW,
    sparse.TREE_COLUMN,
    as_printed.LOOPED,
)

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
