"""A host of the least dimension for one target, over the rationals, and the exact test that it matches the target.

Coordinates of the host are states of the target: rows W_E[i] M_w chosen by `least_dimension`. A state that is none of them
is written through those that later readers can tell apart (docs/proofs/least-host-of-one-target.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.rational import from_flint
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, LeastHost, forms, least_dimension
from utfproof.systems import Target, Universal

MAX_BITS = 2 * 10**9
"""Bits of all the numbers of a host that is still computed exactly, estimated from its target's (250 MB)."""


def least_host(target: Target | Forms, least: LeastHost | None = None) -> tuple[Universal, np.ndarray]:
    """(host, E): a host of the least m and the E [d_in, m] with E R_all = W_all exactly, verified before it is returned.
    Entries are ints and Fractions. Where the least m is the target's width, the target itself is the host.

    least: found by `least_dimension` for these forms, where it is known already. Raises ResourceLimit before numbers are
    computed that are too long.
    """
    held = target if isinstance(target, Forms) else forms(target)
    least = least_dimension(held) if least is None else least
    found = held if least.m == held.width else _built(least)
    if found is not held and not match(found, held):
        raise AssertionError("the host of least dimension does not match its target")
    grids = (found.W_Q, found.W_K, found.M)
    R_Q, R_K, R_V = (np.array([[from_flint(x) for x in row] for row in grid], dtype=object) for grid in grids)
    return Universal(found.shape, found.width, R_Q, R_K, R_V, from_flint(found.W_U)), from_flint(found.W_E)


def _require_size(least: LeastHost) -> None:
    """ResourceLimit where solving for dependent states gives numbers that are too long: a solution of r equations has numbers
    of about r times as many bits as its entries."""

    def longest(matrix: Any) -> int:
        return max((int(x.p).bit_length() + int(x.q).bit_length() for x in matrix.entries()), default=0)

    bits = 0
    for at, columns in zip(least.boundaries, least.columns, strict=True):
        bits += at.rows.nrows() * len(at.active) ** 2 * (longest(at.active_rows) + longest(columns))
    bits *= least.target.shape.heads
    if bits > MAX_BITS:
        raise ResourceLimit(
            f"an exact host of dimension {least.m} for this target may need {bits:.2g} bits, the limit is {MAX_BITS:.2g}; "
            "--within finds a smaller host in float64"
        )


def _built(least: LeastHost) -> Forms:
    """The host of least dimension: E, R_Q, R_K, R_V and U as forms."""
    from flint import fmpq_mat

    _require_size(least)
    target, m = least.target, least.m
    states = [boundary.rows for boundary in least.boundaries]

    def padded(matrix: Any) -> Any:
        return linear.stacked([matrix, fmpq_mat(m - matrix.nrows(), matrix.ncols())])

    def written(at: int, rows: Any) -> Any:
        """States [k, D] of a boundary in the host's coordinates [k, m]."""
        active, columns = least.boundaries[at].active, least.columns[at]
        seen = least.boundaries[at].active_rows * columns
        chosen = linear.independent_columns(seen)
        found = linear.coefficients(linear.columns_of(seen, chosen), rows * linear.columns_of(columns, chosen))
        return found * fmpq_mat(len(active), m, [int(i == place) for place in active for i in range(m)])

    layers = range(target.shape.layers)
    W_Q, W_K = ([[padded(states[i] * W) for W in grid[i]] for i in layers] for grid in (target.W_Q, target.W_K))
    M = [[padded(written(i + 1, states[i] * form)) for form in target.M[i]] for i in layers]
    return Forms(target.shape, written(0, target.W_E), W_Q, W_K, M, padded(states[-1] * target.W_U), m)


def match(first: Forms, second: Forms) -> bool:
    """Whether these have the same W_all, over the rationals: a host as forms (E, R_Q, R_K, R_V, U) and its target, say.

    They run side by side on pairs (E R_w | W_E M_w): a basis of the span of the pairs of each word length is enough, because a
    matching equation is linear in them, so nothing grows with the number of words. MalformedInput where shapes differ.
    """
    if first.shape != second.shape:
        raise MalformedInput(f"shapes differ: {first.shape} and {second.shape}")

    def split() -> tuple[Any, Any]:
        columns = range(pairs.ncols())
        return linear.columns_of(pairs, columns[: first.width]), linear.columns_of(pairs, columns[first.width :])

    pairs = linear.side_by_side([first.W_E, second.W_E])
    for layer in range(first.shape.layers):
        pairs = linear.rows_of(pairs, linear.independent_rows(pairs))
        ours, theirs = split()
        moved = [pairs] if first.shape.residual else []
        for head in range(first.shape.heads):
            if ours * first.W_Q[layer][head] != theirs * second.W_Q[layer][head]:
                return False
            if ours * first.W_K[layer][head] != theirs * second.W_K[layer][head]:
                return False
            moved.append(linear.side_by_side([ours * first.M[layer][head], theirs * second.M[layer][head]]))
        pairs = linear.stacked(moved)
    ours, theirs = split()
    return bool(ours * first.W_U == theirs * second.W_U)
