"""Shared-query shift register for d >= d_out: universal by attention-matching for almost all targets (those with
invertible M^{l,0}) at m = d_out (S + H^L), tied.

The query of every head is "the output as if all later heads were head 0", so queries need no room of their own; keys
undo it. Only for attention that depends on q k^T alone. Coordinates: docs/certificate-format.md section 4.5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from utfproof.constructions.layout import Layout, padded_columns, side_by_side
from utfproof.constructions.record import Construction, Domain, Forms, Identity
from utfproof.constructions.tied import register_pairs, trie_pairs
from utfproof.errors import OutsideClass, SingularTarget, Undecided
from utfproof.exact import rational
from utfproof.shapes import Shape, shared_query_dimension
from utfproof.systems import Target, TiedUniversal, prefix_stacks
from utfproof.util.arrays import Array, exact, is_exact, namespace, to_numpy, transpose
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix


def shared_query_host(shape: Shape, m: int) -> TiedUniversal:
    """`shared-query`: key trie of words 1 ... L, shift register of words of length L, blocks of width d_out."""
    b, d, words = shape.d_out, shape.head_dim, shape.word_count
    layout, register = Layout(shape, m), words * b

    def value(head: int) -> SelectionMatrix:
        k_rows, k_columns = trie_pairs(shape, head, 1, shape.layers)
        s_rows, s_columns = register_pairs(shape, head)
        rows, columns = np.concatenate([k_rows, words + s_rows]), np.concatenate([k_columns, words + s_columns])
        return layout.moved((rows * b, columns * b, b))

    return layout.tied(
        "shared-query",
        lambda _: layout.read([register], b, d),
        lambda head: layout.read([head * b], b, d),
        value,
        register,
    )


def embed_shared_query(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [d_in, m], and the largest condition number of the Y_l W_U inverted on the way (None for exact weights).

    Leaf v = W_E M_v W_U, key block (w,h) = W_E M_w (A^{l,h})^T Z_l with (Y_l W_U) Z_l^T = I and
    Y_l = M^{l,0} M^{l+1,0} ... M^{L,0}. Raises SingularTarget naming the layer (from 1) of a singular M^{l,0}, OutsideClass
    when the width D exceeds d_out or W_U has rank below D, Undecided when floats cannot tell.
    """
    D = target.width
    if shape.d_out < D:
        raise OutsideClass(
            f"shared-query at {shape} serves targets of width at most d_out = {shape.d_out} by attention-matching, "
            f"this one has width {D}; use a host that is universal by matching (sparse, tied, random)"
        )
    duals, condition = query_duals(shape, target)
    *stacks, last = prefix_stacks(target)
    parts = []
    for layer, stack in enumerate(stacks):
        forms = [transpose(target.attention_form(layer, head)) @ duals[layer] for head in range(shape.heads)]
        parts.append(side_by_side(stack, forms))
    return padded_columns([*parts, side_by_side(last, [target.unembedding()])], m), condition


def query_duals(shape: Shape, target: Target) -> tuple[list[Array], float | None]:
    """Z_l [D, d_out] for l = 1 ... L with (Y_l W_U) Z_l^T = I, and the largest condition number of the Y_l W_U."""
    for layer in range(shape.layers):
        # floats are dyadic rationals: whether M^(l,0) is singular is decided exactly
        _, _, w_v, w_o = (exact(part) for part in target.parameters(layer, 0))
        if rational.rank(w_v @ w_o) < target.width:
            raise SingularTarget(
                f"shared-query serves targets with invertible M^(l,0) = W_V W_O of head 0 in every layer, by "
                f"attention-matching; M^({layer + 1},0) of this target is singular; use shared-key"
            )
    query = target.unembedding()
    if rational.rank(exact(query)) < target.width:
        raise OutsideClass(
            "shared-query needs an unembedding W_U of rank D: its queries are outputs, and this W_U loses part of them"
        )
    duals: list[Array] = []
    conditions: list[float] = []
    for layer in reversed(range(shape.layers)):
        query = target.value_form(layer, 0) @ query  # Y_l W_U [D, d_out]
        if not is_exact(query):
            values = to_numpy(namespace(query).linalg.svd(query)[1])
            conditions.append(float(values[0] / values[-1]) if values[-1] > 0 else float("inf"))
        duals.append(_dual(query))
    return duals[::-1], max(conditions) if conditions else None


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


def query_forms(shape: Shape, target: Target) -> Forms:
    """What the host's queries and keys are of the target's stream: Y_l W_U and A^T Z_l, [D, d_out]."""
    duals, heads = query_duals(shape, target)[0], range(shape.heads)
    queries, keys = [], []
    query = target.unembedding()
    for layer in reversed(range(shape.layers)):
        query = target.value_form(layer, 0) @ query
        queries.append([query for _ in heads])
        keys.append([transpose(target.attention_form(layer, head)) @ duals[layer] for head in heads])
    return queries[::-1], keys[::-1]


SHARED_QUERY = Construction(
    "shared-query",
    "key trie and shift register, queries read the output; d >= d_out, targets with invertible M^(l,0)",
    True,
    Notion.ATTENTION_MATCHING,
    shared_query_dimension,
    shared_query_host,
    Domain("head_dim >= d_out (queries carry whole outputs)", lambda shape: shape.head_dim >= shape.d_out),
    targets="untied with invertible M^(l,0)",
    embed=embed_shared_query,
    forms=query_forms,
    rebuilt=True,
    identity=Identity(),
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
    identity=Identity("shared-query"),
)
