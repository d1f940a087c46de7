"""Shared attention: what the value path alone costs, where it is no identity of words. (Other claims have `bounds` rows.)"""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.certificates.dimensions import word_family_dimension
from utfproof.claims.bounds import generic_rank, parameter_bound, word_family_rank
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import figures


@check("new:shared-attention/parameter-count")
def parameter_count(run: Run) -> Iterator[Instance | Figure]:
    """The dimension of the family by formula and by exact rank; the bound is the least m that leaves room for it."""
    anchors = [(1, 1, 1, 1), (2, 2, 2, 2)]
    for shape in run.shapes(lambda s: s.head_dim >= s.d_in and s.leaves <= 9, anchors=anchors, largest=60):
        found, bound = generic_rank(word_family_rank, shape), parameter_bound(shape)
        room = 2 * shape.d_in * bound - 1 >= found.value > 2 * shape.d_in * (bound - 1) - 1
        holds = found.value == word_family_dimension(shape) and room
        yield Instance(shape, holds, f"dimension {found.value}, m ≥ {bound}", routes=found.routes, m=bound)
    yield from figures("bound", parameter_bound, ((2, 2, 2, 2), (3, 2, 3, 3)))
