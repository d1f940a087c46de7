"""Gauges G in GL_d for hosts whose queries share blocks: the host holds M_w W_Q G and M_w W_K G^-T, with the same logits.

Heads are cut into groups of g = ceil(D / d). The last head of a full group has no query block of its own: it reads u, which
the host holds anyway, and the blocks of its group, and W_Q^h G_h = u + sum of the W_Q^x G_x is solved for the G. With q the
W_Q of the group side by side, q G = u, and G = q^T (q q^T)^-1 u is a rational function of the target.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.record import Forms
from utfproof.errors import OutsideClass, SingularTarget
from utfproof.exact import rational
from utfproof.ground.arrays import Array, eye, hstack, is_exact, namespace, to_numpy, transpose
from utfproof.shapes import Shape
from utfproof.systems import Target

Gauge = tuple[Array, Array]
"""(G, G^-T), each [d, d]."""
_SINGULAR = 1e13
"""Condition number of a float matrix beyond which its inverse says nothing."""


def full_groups(heads: int, size: int) -> list[range]:
    """0 ... size-1, size ... 2 size - 1, and so on, as far as they are full."""
    return [range(start, start + size) for start in range(0, heads - size + 1, size)]


def last_heads(groups: list[range]) -> set[int]:
    """The last head of each group."""
    return {group[-1] for group in groups}


def trivial(target: Target) -> Gauge:
    """G = I."""
    identity = eye(target.shape.head_dim, target.W_Q)
    return identity, identity


def inverse(matrix: Array, what: str) -> tuple[Array, float]:
    """The inverse of a square matrix and its condition number (1 for exact weights). SingularTarget where there is none."""
    if is_exact(matrix):
        found = rational.inverse(matrix)
        if found is None:
            raise SingularTarget(
                f"{what} is singular: this target is one of the null set that this host does not serve"
            )
        return found, 1.0
    values = to_numpy(namespace(matrix).linalg.svd(matrix)[1])
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    if not condition < _SINGULAR:
        raise SingularTarget(f"{what} is singular to working precision (condition number {condition:.2g})")
    return namespace(matrix).linalg.inv(matrix), condition


def solved(target: Target, layer: int, group: range, wanted: Array, before: Array | None = None) -> dict[int, Gauge]:
    """The gauges of a group whose last head h reads `wanted` [D, d] and the others' blocks: W_Q^h G_h - sum_x W_Q^x G_x =
    wanted, up to what `before` [k, D] annihilates from the left. SingularTarget where one of them is not invertible."""
    d, what = target.shape.head_dim, f"of layer {layer + 1}, heads {group[0]} to {group[-1]},"
    q = hstack([target.parameters(layer, head)[0] for head in group])
    if before is not None:
        q, wanted = before @ q, before @ wanted
    if q.shape[0] == q.shape[1]:
        stacked = inverse(q, f"W_Q {what}")[0] @ wanted
    else:
        stacked = transpose(q) @ (inverse(q @ transpose(q), f"W_Q W_Q^T {what}")[0] @ wanted)
    found = {}
    for place, head in enumerate(group):
        block = stacked[place * d : (place + 1) * d]
        G = block if head == group[-1] else -block
        found[head] = (G, transpose(inverse(G, f"the gauge of layer {layer + 1}, head {head},")[0]))
    return found


def require_gauged(name: str, shape: Shape, target: Target) -> None:
    """OutsideClass unless the target is d to d_out wide."""
    if not shape.head_dim <= target.width <= shape.d_out:
        raise OutsideClass(
            f"{name} at {shape} serves targets of width {shape.head_dim} to {shape.d_out} by attention-matching, this one "
            f"has width {target.width}"
        )


def gauged_forms(target: Target, gauges: list[dict[int, Gauge]]) -> Forms:
    """W_Q G and W_K G^-T, [L][H] of [D, d]."""
    queries, keys = (
        [[target.parameters(at, h)[side] @ layer[h][side] for h in sorted(layer)] for at, layer in enumerate(gauges)]
        for side in (0, 1)
    )
    return queries, keys


def condition_of(gauges: list[dict[int, Gauge]]) -> float | None:
    """The largest condition number among float gauges; None for exact ones."""
    conditions = [
        float(np.linalg.cond(to_numpy(G).astype(np.float64)))
        for layer in gauges
        for G, _ in layer.values()
        if not is_exact(G)
    ]
    return max(conditions) if conditions else None
