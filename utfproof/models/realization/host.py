"""A host of the least dimension for one target, over the rationals, and the exact test that a host matches a target.

Coordinates of the host are states of the target: rows W_E[i] M_w chosen by `hankel.staircase`. A state that is none of them
is written through those that later readers can tell apart (docs/proofs/least-host-of-one-target.md).
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.rational import from_flint, to_flint
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Boundary, Forms, LeastHost, Staircase, forms, least_dimension
from utfproof.systems import Target, Universal
from utfproof.util.arrays import exact
from utfproof.util.selection import SelectionMatrix

MAX_BITS = 2 * 10**9
"""Bits of all the numbers of a host that is still computed exactly, estimated from its target's (250 MB)."""


class _Written:
    """Writes states of a boundary in the host's coordinates."""

    def __init__(self, boundary: Boundary, columns: Any, m: int) -> None:
        seen = boundary.active_rows * columns
        chosen = linear.independent_columns(seen)
        self.readers = linear.columns_of(columns, chosen)
        self.basis = linear.columns_of(seen, chosen)
        self.active, self.m = boundary.active, m

    def __call__(self, states: Any) -> np.ndarray:
        """States [k, D] as object rows [k, m]."""
        found = from_flint(linear.coefficients(self.basis, states * self.readers))
        out = _zeros(states.nrows(), self.m)
        out[:, self.active] = found
        return out


def _zeros(*shape: int) -> np.ndarray:
    out = np.empty(shape, dtype=object)
    out[...] = 0
    return out


def least_host(target: Target | Forms, least: LeastHost | None = None) -> tuple[Universal, np.ndarray]:
    """(host, E): a host of the least m and the E [d_in, m] with E R_all = W_all exactly, verified before it is returned.
    Entries are ints and Fractions. Where the least m is the target's width, the target itself is the host.

    least: found by `least_dimension` for these forms, where it is known already. Raises ResourceLimit before numbers are
    computed that are too long.
    """
    held = target if isinstance(target, Forms) else forms(target)
    least = least_dimension(held) if least is None else least
    if least.m == held.width:
        return _itself(held)  # R_Q = W_Q and so on: the matching equations are identities
    host, E = _built(least)
    if not matches(host, E, held):
        raise AssertionError("the host of least dimension does not match its target")
    return host, E


def _itself(target: Forms) -> tuple[Universal, np.ndarray]:
    grids = (target.W_Q, target.W_K, target.M)
    R_Q, R_K, R_V = (np.array([[from_flint(x) for x in row] for row in grid], dtype=object) for grid in grids)
    host = Universal(target.shape, target.width, R_Q, R_K, R_V, from_flint(target.W_U))
    return host, from_flint(target.W_E)


def _bits(matrix: Any) -> int:
    return max((int(x.p).bit_length() + int(x.q).bit_length() for x in matrix.entries()), default=0)


def _require_size(stairs: Staircase) -> None:
    """ResourceLimit where solving for dependent states gives numbers that are too long: a solution of r equations has numbers
    of about r times as many bits as its entries."""
    bits = 0
    for at, columns in zip(stairs.boundaries, stairs.columns, strict=True):
        bits += at.rows.nrows() * len(at.active) ** 2 * (_bits(at.active_rows) + _bits(columns))
    if bits * stairs.target.shape.heads > MAX_BITS:
        raise ResourceLimit(
            f"the numbers of an exact host for this target may need {bits:.2g} bits a head, the limit for all heads is "
            f"{MAX_BITS:.2g}; --within finds a smaller host in float64"
        )


def _built(least: LeastHost) -> tuple[Universal, np.ndarray]:
    stairs, m = least.staircase, least.m
    _require_size(stairs)
    target = stairs.target
    shape = target.shape
    L, H, d = shape.layers, shape.heads, shape.head_dim
    written = [_Written(b, c, m) for b, c in zip(stairs.boundaries, stairs.columns, strict=True)]
    R_Q, R_K = _zeros(L, H, m, d), _zeros(L, H, m, d)
    R_V, U = _zeros(L, H, m, m), _zeros(m, shape.d_out)
    for layer in range(L):
        states = stairs.boundaries[layer].rows
        count = states.nrows()
        for head in range(H):
            R_Q[layer, head, :count] = from_flint(states * target.W_Q[layer][head])
            R_K[layer, head, :count] = from_flint(states * target.W_K[layer][head])
            R_V[layer, head, :count] = written[layer + 1](states * target.M[layer][head])
    last = stairs.boundaries[L].rows
    U[: last.nrows()] = from_flint(last * target.W_U)
    return Universal(shape, m, R_Q, R_K, R_V, U), written[0](target.W_E)


def _product(*factors: Any) -> Any:
    """The product of a host's parameters as a FLINT matrix."""
    held = (x.to_dense(object) if isinstance(x, SelectionMatrix) else exact(x) for x in factors)
    return reduce(mul, map(to_flint, held))


def matches(host: Universal, E: np.ndarray, target: Target | Forms) -> bool:
    """Whether E R_all = W_all, over the rationals, for any host; floats are the dyadic rationals that they are.

    Host and target run side by side on pairs (E R_w | W_E M_w): a basis of the span of the pairs of each word length is
    enough, because a matching equation is linear in them, so nothing grows with the number of words. Raises MalformedInput
    where shapes differ.
    """
    held = target if isinstance(target, Forms) else forms(target)
    shape = host.shape
    if held.shape != shape:
        raise MalformedInput(f"host and target differ: host {shape}, target {held.shape}")
    if tuple(E.shape) != (shape.d_in, host.m):
        raise MalformedInput(f"E has shape {list(E.shape)}, expected {[shape.d_in, host.m]}")
    pairs = linear.side_by_side([_product(E), held.W_E])
    m = host.m

    def split(both: Any) -> tuple[Any, Any]:
        columns = range(both.ncols())
        return linear.columns_of(both, columns[:m]), linear.columns_of(both, columns[m:])

    for layer in range(shape.layers):
        pairs = linear.rows_of(pairs, linear.independent_rows(pairs))
        ours, theirs = split(pairs)
        moved = [pairs] if shape.residual else []
        for head in range(shape.heads):
            query, key, value = host.maps(layer, head)
            if ours * _product(query) != theirs * held.W_Q[layer][head]:
                return False
            if ours * _product(key) != theirs * held.W_K[layer][head]:
                return False
            moved.append(linear.side_by_side([ours * _product(*value), theirs * held.M[layer][head]]))
        pairs = linear.stacked(moved)
    ours, theirs = split(pairs)
    return bool(ours * _product(host.U) == theirs * held.W_U)
