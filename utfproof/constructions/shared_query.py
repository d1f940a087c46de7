"""Shared queries: universal by attention-matching for almost all targets, tied; queries are read from the outputs.

`shared-query`, d >= d_out, m = d_out (S + H^L): the query of every head is "the output as if all later heads were head 0", so
queries need no room of their own; keys undo it. It serves targets with invertible M^{l,0}.

`shared-query-groups`, d <= d_out, m = d_out H^L + 2 d S - d floor(H/g) - d floor(H/g') (S - H)/H, g = ceil(d_out / d),
g' = min(g, H): a query of d columns holds no whole output, but those of g heads together do. The last head of a group reads
the first d columns of the output and the blocks of the others (docs/proofs/sharper-frontier.md, Theorem B). The host holds
M_w W_Q G and M_w W_K G^-T, with the same logits. For the last head h of a group, W_Q^h G_h = u + sum of the W_Q^x G_x is solved
for the gauges G in GL_d: with q the W_Q of the group side by side, q G = u, and G = q^T (q q^T)^-1 u.

Both are one host; at d = d_out they agree. Coordinates: docs/certificate-format.md sections 4.5 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from utfproof.constructions.layout import Layout, Move, register, trie
from utfproof.constructions.record import Construction, Domain, Readers
from utfproof.errors import OutsideClass, SingularTarget, Undecided
from utfproof.exact import rational
from utfproof.shapes import Shape, geometric, shared_query_dimension
from utfproof.systems import Target, Universal
from utfproof.util.arrays import Array, exact, hstack, is_exact, namespace, to_numpy, transpose
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

NAME, GROUPS = "shared-query", "shared-query-groups"
_SINGULAR = 1e13
"""Condition number of a float matrix beyond which its inverse says nothing."""


def groups_at(shape: Shape, layer: int) -> list[range]:
    """The full groups of heads at this layer (from 0): of g = ceil(d_out / d), behind the first layer of at most H."""
    size = -(-shape.d_out // shape.head_dim)
    size = size if layer == 0 else min(size, shape.heads)
    return [range(start, start + size) for start in range(0, shape.heads - size + 1, size)]


def kept_heads(shape: Shape, layer: int) -> list[int]:
    """Heads with a query block of their own at this layer (from 0): all but the last of each group."""
    last = {group[-1] for group in groups_at(shape, layer)}
    return [head for head in range(shape.heads) if head not in last]


def grouped_dimension(shape: Shape) -> int:
    """d_out H^L + 2 d S less d for every head and word that reads others' blocks: least m of this host for d <= d_out."""
    saved = len(groups_at(shape, 0)) + len(groups_at(shape, 1)) * geometric(shape.heads, 1, shape.layers - 1)
    return shape.d_out * shape.leaves + shape.head_dim * (2 * shape.word_count - saved)


def shared_query_host(shape: Shape, m: int, name: str = NAME) -> Universal:
    """Key trie of words 1 ... L, query trie without the last heads, both of width min(d, d_out), and a shift register of width
    d_out."""
    b, k, d, H, L = shape.d_out, min(shape.head_dim, shape.d_out), shape.head_dim, shape.heads, shape.layers
    kept = [kept_heads(shape, layer) for layer in range(L)]
    starts = list(accumulate((k * H**t * len(heads) for t, heads in enumerate(kept)), initial=k * shape.word_count))
    layout, outputs = Layout(shape, m), starts[-1]

    def queries(head: int) -> Move:
        """Block (head, w) and block w of the query trie."""
        rows, columns = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for layer in range(1, L):
            here, longer, words = kept[layer - 1], kept[layer], np.arange(H ** (layer - 1))
            for reader in [reader for reader in here if reader in longer]:
                columns.append(starts[layer - 1] + k * (words * len(here) + here.index(reader)))
                front = head * len(words) + words
                rows.append(starts[layer] + k * (front * len(longer) + longer.index(reader)))
        return np.concatenate(rows), np.concatenate(columns), k

    def query(head: int) -> SelectionMatrix:
        group = next((group for group in groups_at(shape, min(1, L - 1)) if head == group[-1]), None)
        read = [head] if group is None else [x for x in group if x in kept[0]]
        blocks = [starts[0] + k * kept[0].index(x) for x in read]
        return layout.read(blocks if group is None else [outputs, *blocks], k, d)

    return layout.tied(
        name,
        query,
        lambda head: layout.read([head * k], k, d),
        lambda head: layout.moved(trie(shape, head, 1, L, 0, k), queries(head), register(shape, head, outputs, b)),
        outputs,
    )


# --- what queries and keys are -------------------------------------------------------------------------------------


def _outputs(target: Target) -> list[Array]:
    """Y_l W_U [D, d_out] for l = 1 ... L, Y_l = M^{l,0} M^{l+1,0} ... M^{L,0}."""
    found = [target.unembedding()]
    for layer in reversed(range(target.shape.layers)):
        found.insert(0, target.value_form(layer, 0) @ found[0])
    return found[:-1]


def _condition(matrix: Array) -> float:
    values = to_numpy(namespace(matrix).linalg.svd(matrix)[1])
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def query_readers(shape: Shape, target: Target) -> Readers:
    """Y_l W_U and (A^{l,h})^T Z_l with (Y_l W_U) Z_l^T = I, [D, d_out], and the largest condition number of the Y_l W_U.

    Raises SingularTarget naming the layer (from 1) of a singular M^{l,0}, OutsideClass when the width D exceeds d_out or W_U
    has rank below D, Undecided when floats cannot tell.
    """
    D, heads = target.width, range(shape.heads)
    if shape.d_out < D:
        raise OutsideClass(
            f"shared-query at {shape} serves targets of width at most d_out = {shape.d_out} by attention-matching, "
            f"this one has width {D}; use a host that is universal by matching (sparse, tied, random)"
        )
    for layer in range(shape.layers):
        # floats are dyadic rationals: whether M^(l,0) is singular is decided exactly
        _, _, w_v, w_o = (exact(part) for part in target.parameters(layer, 0))
        if rational.rank(w_v @ w_o) < D:
            raise SingularTarget(
                f"shared-query serves targets with invertible M^(l,0) = W_V W_O of head 0 in every layer, by "
                f"attention-matching; M^({layer + 1},0) of this target is singular; use shared-key"
            )
    if rational.rank(exact(target.unembedding())) < D:
        raise OutsideClass(
            "shared-query needs an unembedding W_U of rank D: its queries are outputs, and this W_U loses part of them"
        )
    queries = _outputs(target)
    keys = [
        [transpose(target.attention_form(layer, head)) @ dual for head in heads]
        for layer, dual in enumerate(map(_dual, queries))
    ]
    condition = None if is_exact(queries[0]) else max(map(_condition, queries))
    return Readers([[query for _ in heads] for query in queries], keys, condition)


def _dual(query: Array) -> Array:
    """Z [D, d_out] with query @ Z^T = I, for a query matrix of full row rank."""
    if is_exact(query):
        inverted = rational.inverse(query @ transpose(query))
        assert inverted is not None  # a product of invertible forms and a W_U of rank D
        return inverted @ query
    linalg = namespace(query).linalg
    # the pseudoinverse; for square matrices the inverse is the better conditioned way to it
    try:
        return transpose(linalg.inv(query) if query.shape[0] == query.shape[1] else linalg.pinv(query))
    except (np.linalg.LinAlgError, RuntimeError) as error:
        raise Undecided(
            "shared-query: M^(l,0)...M^(L,0) W_U of this target is invertible but singular to working precision; "
            "use shared-key, or exact weights"
        ) from error


def group_readers(shape: Shape, target: Target) -> Readers:
    """W_Q G and W_K G^-T, [D, d], and the largest condition number of the gauges (None for exact weights).

    SingularTarget where the target is one of the null set that is not served, OutsideClass for a width below d or above d_out.
    """
    if not shape.head_dim <= target.width <= shape.d_out:
        raise OutsideClass(
            f"{GROUPS} at {shape} serves targets of width {shape.head_dim} to {shape.d_out} by attention-matching, this one "
            f"has width {target.width}"
        )
    heads, conditions = range(shape.heads), [1.0]
    queries, keys = (
        [[target.parameters(layer, head)[side] for head in heads] for layer in range(shape.layers)] for side in (0, 1)
    )
    for layer, output in enumerate(_outputs(target)):
        for group in groups_at(shape, layer):
            before = None
            if shape.head_dim * len(group) < target.width:  # one group of all heads: modulo what all values annihilate
                outputs = [target.parameters(layer - 1, head)[3] for head in heads]  # W_O [d, D]
                before = namespace(outputs[0]).concatenate(outputs)
            for head, gauge, dual, condition in _gauges(target, layer, group, output[:, : shape.head_dim], before):
                queries[layer][head] = queries[layer][head] @ gauge
                keys[layer][head] = keys[layer][head] @ dual
                conditions.append(condition)
    return Readers(queries, keys, None if is_exact(target.W_Q) else max(conditions))


def _gauges(
    target: Target, layer: int, group: range, wanted: Array, before: Array | None
) -> Iterator[tuple[int, Array, Array, float]]:
    """(head, G, G^-T, condition number) of a group whose last head h reads `wanted` [D, d] and the others' blocks: W_Q^h G_h -
    sum_x W_Q^x G_x = wanted, up to what `before` [k, D] annihilates from the left. SingularTarget where there is none."""
    d, what = target.shape.head_dim, f"of layer {layer + 1}, heads {group[0]} to {group[-1]},"
    q = hstack([target.parameters(layer, head)[0] for head in group])
    if before is not None:
        q, wanted = before @ q, before @ wanted
    if q.shape[0] == q.shape[1]:
        stacked = _inverse(q, f"W_Q {what}")[0] @ wanted
    else:
        stacked = transpose(q) @ (_inverse(q @ transpose(q), f"W_Q W_Q^T {what}")[0] @ wanted)
    for place, head in enumerate(group):
        block = stacked[place * d : (place + 1) * d]
        G = block if head == group[-1] else -block
        inverse, condition = _inverse(G, f"the gauge of layer {layer + 1}, head {head},")
        yield head, G, transpose(inverse), condition


def _inverse(matrix: Array, what: str) -> tuple[Array, float]:
    """The inverse of a square matrix and its condition number (1 for exact weights). SingularTarget where there is none."""
    if is_exact(matrix):
        found = rational.inverse(matrix)
        if found is None:
            raise SingularTarget(
                f"{what} is singular: this target is one of the null set that this host does not serve"
            )
        return found, 1.0
    condition = _condition(matrix)
    if not condition < _SINGULAR:
        raise SingularTarget(f"{what} is singular to working precision (condition number {condition:.2g})")
    return namespace(matrix).linalg.inv(matrix), condition


SHARED_QUERY = Construction(
    NAME,
    "key trie and shift register, queries read the output; d >= d_out, targets with invertible M^(l,0)",
    True,
    Notion.ATTENTION_MATCHING,
    shared_query_dimension,
    shared_query_host,
    Domain("head_dim >= d_out (queries carry whole outputs)", lambda shape: shape.head_dim >= shape.d_out),
    targets="untied with invertible M^(l,0)",
    readers=query_readers,
    rebuilt=True,
    identity=NAME,
)

FUNCTIONAL = replace(
    SHARED_QUERY,
    name="shared-query-functional",
    summary="shared-query at H = d_in = 1, where it serves all targets functionally",
    notion=Notion.FUNCTIONAL,
    targets="all untied",
    # where a target with a singular M^{l,0} is zero
    domain=Domain("H = d_in = 1 and head_dim >= d_out", lambda s: s.heads == s.d_in == 1 and s.head_dim >= s.d_out),
    rebuilt=False,
)

SHARED_QUERY_GROUPS = Construction(
    GROUPS,
    "key trie and shift register, one head of each group of ceil(d_out/d) reads the output; d <= d_out, almost all targets",
    True,
    Notion.ATTENTION_MATCHING,
    grouped_dimension,
    partial(shared_query_host, name=GROUPS),
    Domain("head_dim <= d_out (else: shared-query)", lambda shape: shape.head_dim <= shape.d_out),
    targets="generic untied",
    readers=group_readers,
    identity=GROUPS,
    tied_too=True,
)
