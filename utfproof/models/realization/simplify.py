"""What may be changed in a target without changing its outputs, exactly: dead heads, and the factors of the logits.

Both give a target that is easier to match. A host that matches the changed target has the outputs of the target itself, but
need not match it.
"""

from __future__ import annotations

from typing import Any

from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, LeastHost, least_dimension, replaced, zero_like


def without_dead_heads(target: Forms, least: LeastHost | None = None) -> tuple[Forms, list[tuple[int, int]]]:
    """(the target with W_Q, W_K and M of its dead heads set to zero, these heads as (layer, head) from 0).

    A head is dead when nothing reads what it writes: every row that reaches it, times M^{l,h}, times every later reader is
    zero. Its queries and keys then play no part in any output, whatever the attention map; without them further heads may be
    dead. least: what `least_dimension` found for the target, where it is known already. The target itself where none is dead.
    """
    dead: list[tuple[int, int]] = []
    while True:
        found = least_dimension(target) if dead or least is None else least
        fresh = [pair for pair in found.dead_heads if pair not in dead]
        if not fresh:
            return target, sorted(dead)
        dead += fresh
        names = ("W_Q", "W_K", "M")
        target = replaced(target, **{name: _cleared(getattr(target, name), fresh) for name in names})


def _cleared(grid: list[list[Any]], heads: list[tuple[int, int]]) -> list[list[Any]]:
    return [
        [zero_like(x) if (layer, head) in heads else x for head, x in enumerate(row)] for layer, row in enumerate(grid)
    ]


def reached(target: Forms) -> list[Any]:
    """Per boundary 0 ... L a basis [k, D] of the states W_E M_w, |w| = l, themselves."""
    rows = linear.rows_of(target.W_E, linear.independent_rows(target.W_E))
    found = [rows]
    for layer in range(target.shape.layers):
        parts = [rows] if target.shape.residual else []
        parts += [rows * form for _, form in target.letters(layer)]
        everything = linear.stacked(parts)
        rows = linear.rows_of(everything, linear.independent_rows(everything))
        found.append(rows)
    return found


def with_short_logits(target: Forms) -> Forms:
    """The same target with each head's W_Q and W_K exchanged for factors of its logits with as few columns as there are, the
    others zero: B W_Q' (B W_K')^T = B W_Q W_K^T B^T on the states B that reach the head, so attention that depends on the
    logits alone, and with it the output, is the same. The target itself where no head's are longer than that."""
    changed = False
    states = reached(target)
    W_Q = [list(row) for row in target.W_Q]
    W_K = [list(row) for row in target.W_K]
    for layer in range(target.shape.layers):
        rows = states[layer]
        if rows.nrows() == 0:
            continue
        for head in range(target.shape.heads):
            query, key = rows * W_Q[layer][head], rows * W_K[layer][head]
            logits = query * key.transpose()
            chosen = linear.independent_columns(logits)
            present = max(len(linear.independent_columns(x)) for x in (query, key))
            if len(chosen) == present:
                continue
            changed = True
            left = linear.columns_of(logits, chosen)
            # logits = left right^T: rows that are a basis determine the coefficients
            basis = linear.independent_rows(left)
            right = (
                linear.coefficients(linear.rows_of(left, basis).transpose(), linear.rows_of(logits, basis).transpose())
                if chosen
                else zero_like(left)
            )
            W_Q[layer][head] = _lifted(rows, left, target.shape.head_dim)
            W_K[layer][head] = _lifted(rows, right, target.shape.head_dim)
    return replaced(target, W_Q=W_Q, W_K=W_K) if changed else target


def _lifted(rows: Any, values: Any, head_dim: int) -> Any:
    """A matrix W [D, head_dim] with rows W = values [k, r] in its first r columns, for independent rows [k, D]."""
    from flint import fmpq_mat

    chosen = linear.independent_columns(rows)
    out = fmpq_mat(rows.ncols(), head_dim)
    if values.ncols() == 0:
        return out
    solved = linear.columns_of(rows, chosen).solve(values)
    for i, row in enumerate(chosen):
        for j in range(values.ncols()):
            out[row, j] = solved[i, j]
    return out
