"""Shared queries for heads narrower than the output: universal by attention-matching for almost all targets at
m = d_out H^L + 2 d S - d floor(H/g) - d floor(H/g') (S - H)/H, g = ceil(d_out / d), g' = min(g, H), tied, d <= d_out.

A query of d columns holds no whole output, but the queries of g heads together do: one of them needs no block, for it reads
the first d columns of the output and the blocks of the others (docs/proofs/sharper-frontier.md, Theorem B). At d = d_out
this is `shared-query`. Coordinates: docs/certificate-format.md section 9.

The host holds M_w W_Q G and M_w W_K G^-T, with the same logits. For the last head h of a group, W_Q^h G_h = u + sum of the
W_Q^x G_x is solved for the gauges G in GL_d: with q the W_Q of the group side by side, q G = u, and G = q^T (q q^T)^-1 u is a
rational function of the target.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, padded_columns, side_by_side
from utfproof.constructions.record import Construction, Domain, Forms, Identity
from utfproof.constructions.tied import register_pairs, trie_pairs
from utfproof.errors import OutsideClass, SingularTarget
from utfproof.exact import rational
from utfproof.shapes import Shape, geometric
from utfproof.systems import Target, TiedUniversal, prefix_stacks
from utfproof.util.arrays import Array, eye, hstack, is_exact, namespace, to_numpy, transpose
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

NAME = "shared-query-groups"
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


def groups_at(shape: Shape, layer: int) -> list[range]:
    """The full groups of heads at this layer (from 0): of g = ceil(d_out / d), behind the first layer of at most H."""
    size = -(-shape.d_out // shape.head_dim)
    return full_groups(shape.heads, size if layer == 0 else min(size, shape.heads))


def kept_heads(shape: Shape, layer: int) -> list[int]:
    """Heads with a query block of their own at this layer (from 0)."""
    last = last_heads(groups_at(shape, layer))
    return [head for head in range(shape.heads) if head not in last]


def grouped_dimension(shape: Shape) -> int:
    """d_out H^L + 2 d S less d for every head and word that reads others' blocks: least m of this host."""
    saved = len(groups_at(shape, 0)) + len(groups_at(shape, 1)) * geometric(shape.heads, 1, shape.layers - 1)
    return shape.d_out * shape.leaves + shape.head_dim * (2 * shape.word_count - saved)


def _query_starts(shape: Shape) -> list[int]:
    """First coordinate of the query blocks of words of length 1 ... L, and the end."""
    starts = [shape.head_dim * shape.word_count]
    for layer in range(shape.layers):
        starts.append(starts[-1] + shape.head_dim * shape.heads**layer * len(kept_heads(shape, layer)))
    return starts


def _query_block(shape: Shape, layer: int, word: int, head: int) -> int:
    """First coordinate of block (w, head), w the word-th of length `layer`."""
    kept = kept_heads(shape, layer)
    return _query_starts(shape)[layer] + shape.head_dim * (word * len(kept) + kept.index(head))


def grouped_host(shape: Shape, m: int) -> TiedUniversal:
    """`shared-query-groups`: key trie of words 1 ... L, query trie without the last heads, shift register of width d_out."""
    b, d, starts = shape.d_out, shape.head_dim, _query_starts(shape)
    layout, register = Layout(shape, m), starts[-1]

    def queries(head: int) -> tuple[np.ndarray, np.ndarray]:
        """(block (head, w), block w) of the query trie, as coordinates."""
        rows, columns = [], []
        for layer in range(1, shape.layers):
            here, longer = kept_heads(shape, layer - 1), kept_heads(shape, layer)
            words = np.arange(shape.heads ** (layer - 1))
            for last in set(here) & set(longer):
                columns.append(starts[layer - 1] + d * (words * len(here) + here.index(last)))
                front = head * len(words) + words
                rows.append(starts[layer] + d * (front * len(longer) + longer.index(last)))
        empty = np.zeros(0, dtype=np.int64)
        return np.concatenate([empty, *rows]), np.concatenate([empty, *columns])

    def value(head: int) -> SelectionMatrix:
        k_rows, k_columns = trie_pairs(shape, head, 1, shape.layers)
        s_rows, s_columns = register_pairs(shape, head)
        return layout.moved(
            (k_rows * d, k_columns * d, d), (*queries(head), d), (register + s_rows * b, register + s_columns * b, b)
        )

    def query(head: int) -> SelectionMatrix:
        group = next((group for group in groups_at(shape, min(1, shape.layers - 1)) if head == group[-1]), None)
        if group is None:
            return layout.read([_query_block(shape, 0, 0, head)], d, d)
        first = kept_heads(shape, 0)
        return layout.read([register, *(_query_block(shape, 0, 0, x) for x in group if x in first)], d, d)

    return layout.tied(NAME, query, lambda head: layout.read([head * d], d, d), value, register)


# --- gauges ---------------------------------------------------------------------------------------------------------


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


def layer_gauges(shape: Shape, target: Target) -> list[dict[int, Gauge]]:
    """(G, G^-T) of every layer and head. SingularTarget where the target is one of the null set that is not served."""
    if not shape.head_dim <= target.width <= shape.d_out:
        raise OutsideClass(
            f"{NAME} at {shape} serves targets of width {shape.head_dim} to {shape.d_out} by attention-matching, this one "
            f"has width {target.width}"
        )
    found: list[dict[int, Gauge]] = []
    query = target.unembedding()
    for layer in reversed(range(shape.layers)):
        query = target.value_form(layer, 0) @ query  # Y_l W_U [D, d_out]
        gauges = {head: trivial(target) for head in range(shape.heads)}
        for group in groups_at(shape, layer):
            before = None
            if shape.head_dim * len(group) < target.width:  # one group of all heads: modulo what all values annihilate
                outputs = [target.parameters(layer - 1, head)[3] for head in range(shape.heads)]  # W_O [d, D]
                before = namespace(outputs[0]).concatenate(outputs)
            gauges |= solved(target, layer, group, query[:, : shape.head_dim], before)
        found.append(gauges)
    return found[::-1]


def read_forms(shape: Shape, target: Target) -> Forms:
    """What the host's queries and keys are of the target's stream."""
    return gauged_forms(target, layer_gauges(shape, target))


def embed_grouped_query(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [d_in, m], and the largest condition number of the gauges (None for exact weights).

    Register block w: W_E M_w W_U; key block (w,h): W_E M_w W_K G^-T; query block (w,h): W_E M_w W_Q G. Where a last head has a
    block of its own at layer 1 it holds what is missing. Raises SingularTarget, OutsideClass for a width below d.
    """
    gauges = layer_gauges(shape, target)
    queries, keys = gauged_forms(target, gauges)
    products = list(prefix_stacks(target))
    parts = [side_by_side(products[layer], keys[layer]) for layer in range(shape.layers)]
    extra = last_heads(groups_at(shape, 1)) - last_heads(groups_at(shape, 0)) if shape.layers > 1 else set()
    for layer in range(shape.layers):
        readers = [queries[layer][h] for h in kept_heads(shape, layer)]
        if layer == 0:
            query = target.unembedding()
            for t in reversed(range(shape.layers)):
                query = target.value_form(t, 0) @ query
            for head in extra:  # one group of all heads behind the first layer
                others = [queries[0][x] for x in range(shape.heads) if x != head]
                readers[head] = queries[0][head] - query[:, : shape.head_dim] - sum(others)
        if readers:
            parts.append(side_by_side(products[layer], readers))
    parts.append(side_by_side(products[shape.layers], [target.unembedding()]))
    return padded_columns(parts, m), condition_of(gauges)


SHARED_QUERY_GROUPS = Construction(
    NAME,
    "key trie and shift register, one head of each group of ceil(d_out/d) reads the output; d <= d_out, almost all targets",
    True,
    Notion.ATTENTION_MATCHING,
    grouped_dimension,
    grouped_host,
    Domain("head_dim <= d_out (else: shared-query)", lambda shape: shape.head_dim <= shape.d_out),
    targets="generic untied",
    embed=embed_grouped_query,
    forms=read_forms,
    identity=Identity(tied_too=True),
)
