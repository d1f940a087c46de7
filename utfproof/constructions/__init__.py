"""The registry: every construction of a host by name. Each one's record is in its own file (`record.Construction`), with
all that is known of it; the page "What became of the paper" has the table. Whoever needs some of them asks by property."""

from __future__ import annotations

from collections import UserDict

from utfproof.constructions import (
    as_printed,
    counting,
    gated,
    gated_models,
    mlp_tree,
    pairs,
    random,
    residual_key,
    shared_attention,
    shared_key,
    shared_query,
    sharing,
    sparse,
    tied,
)
from utfproof.constructions.random import random_host, random_target
from utfproof.constructions.record import Construction
from utfproof.errors import MalformedInput, choose
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.util.laws import check_law
from utfproof.util.resources import require_memory

__all__ = [
    "CONSTRUCTIONS",
    "Construction",
    "build_host",
    "construction",
    "dense_bytes",
    "host_of_shape",
    "hosts",
    "random_target",
]


_ALL = (
    sparse.SPARSE,
    sparse.SPARSE_FRONT,
    tied.TIED,
    counting.COMMUTING_TRIE,
    shared_key.SHARED_KEY,
    shared_query.SHARED_QUERY,
    shared_query.SHARED_QUERY_GROUPS,
    residual_key.RESIDUAL_KEY,
    random.RANDOM,
    random.RANDOM_TIED,
    as_printed.SINGLE_HEAD,
    sparse.TREE_ROW,
    sparse.TREE_COLUMN,
    as_printed.LOOPED,
    shared_attention.REGISTER,
    shared_attention.TWO_SIDED,
    counting.COUNTING,
    shared_query.FUNCTIONAL,
    sharing.SHARING,
    pairs.PAIRS,
    gated.GATED,
    gated.GATED_TIED,
)


def _family(name: str) -> Construction | None:
    """The host of a name with numbers, such as mlp-5-6; None for other names."""
    return gated_models.family(name) or mlp_tree.family(name)


class _Registry(UserDict[str, Construction]):
    """Constructions by name. A name such as mlp-5-6 says the widths that a host of its family serves."""

    def __missing__(self, name: str) -> Construction:
        found = _family(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.data or (isinstance(name, str) and _family(name) is not None)


CONSTRUCTIONS = _Registry({entry.name: entry for entry in _ALL})


def hosts(*, printed: bool = True, drawn: bool = True) -> list[str]:
    """Names of the hosts that `build_host` makes: of attention alone, with queries and keys of their own. printed: with the
    paper's own, which serve under no notion proved here; drawn: with those whose weights are drawn from a seed."""
    return [
        entry.name
        for entry in CONSTRUCTIONS.values()
        if entry.is_host
        and not entry.inputs
        and (printed or entry.notion is not None)
        and (drawn or not entry.is_random)
    ]


def construction(name: str) -> Construction:
    """The construction of that name; MalformedInput listing the known ones otherwise."""
    if name not in CONSTRUCTIONS:
        known = choose(name, CONSTRUCTIONS)
        raise MalformedInput(f"construction {name!r} is unknown; {known}; {gated_models.FAMILY}")
    return CONSTRUCTIONS[name]


def dense_bytes(shape: Shape, m: int, *, tied: bool, itemsize: int = 8) -> int:
    """Bytes of a host's dense parameters, MLPs apart."""
    layers = 1 if tied else shape.layers
    return itemsize * (layers * shape.heads * m * (m + 2 * shape.head_dim) + m * shape.d_out)


def host_of_shape(name: str, shape: Shape, m: int, *, max_memory: int | None = None) -> Universal:
    """The {0,1} host of that name whose own shape is this; `build_host` takes the targets' shape."""
    return build_host(name, construction(name).target_shape(shape), m, max_memory=max_memory)


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

    >>> from utfproof import Shape, build_host
    >>> build_host("sparse", Shape(2, 3, 2, 3)).m
    80
    """
    entry = construction(name)
    check_law(law)
    m = entry.dimension(shape, m)
    entry.require_host()
    if entry.index_map is not None:
        require_memory(entry.memory(shape, m) + 16 * m, f"{name} as index maps at {shape}, m = {m},", max_memory)
        return entry.index_map(shape, m)
    require_memory(dense_bytes(shape, m, tied=entry.tied), f"{name} at {shape}, m = {m},", max_memory)
    return random_host(shape, m, seed=seed, law=law, dtype=dtype, tied=entry.tied)
