"""Shared-query shift register for d >= d_out: universal by attention-matching for almost all targets (those with
invertible M^{l,0}) at m = d_out (S + H^L), tied.

The query of every head is "the output as if all later heads were head 0", so queries need no room of their own; keys
undo it. Only for attention that depends on q k^T alone. Coordinates: docs/certificate-format.md section 4.5.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from utfproof.arrays import Array, is_exact, namespace, transpose, zeros
from utfproof.constructions.sparse import pieces, uniform
from utfproof.constructions.tied import register_pairs, trie_pairs
from utfproof.errors import NotDefined, OutsideClass, SingularTarget
from utfproof.exact import rational
from utfproof.selection import SelectionMatrix
from utfproof.shapes import Shape
from utfproof.systems import LoopedUniversal, Target, prefix_products


def require_wide_heads(shape: Shape) -> None:
    """NotDefined unless d >= d_out."""
    if shape.head_dim < shape.d_out:
        raise NotDefined(
            f"shared-query needs head_dim >= d_out (queries carry whole outputs), got {shape.head_dim} < {shape.d_out}"
        )


def shared_query_host(shape: Shape, m: int) -> LoopedUniversal:
    """`shared-query`: key trie of words 1 ... L, shift register of words of length L, blocks of width d_out."""
    require_wide_heads(shape)
    b = shape.d_out
    unit = gcd(b, shape.head_dim, m)
    cells, reader, output = uniform(m, unit), uniform(shape.head_dim, unit), uniform(b, unit)
    register = shape.word_count * b

    def route(head: int) -> SelectionMatrix:
        k_rows, k_columns = trie_pairs(shape, head, 1, shape.layers)
        s_rows, s_columns = register_pairs(shape, head)
        rows = np.concatenate([k_rows, shape.word_count + s_rows])
        columns = np.concatenate([k_columns, shape.word_count + s_columns])
        return pieces(cells, cells, rows * b, columns * b, b, unit)

    def read(start: int) -> SelectionMatrix:
        return pieces(cells, reader, np.array([start]), np.array([0]), b, unit)

    heads = range(shape.heads)
    return LoopedUniversal(
        shape,
        m,
        tuple(read(register) for _ in heads),
        tuple(read(h * b) for h in heads),
        tuple(route(h) for h in heads),
        pieces(cells, output, np.array([register]), np.array([0]), b, unit),
        "shared-query",
    )


def embed_shared_query(shape: Shape, m: int, target: Target) -> Array:
    """E [d_in, m]: leaf v = W_E M_v W_U, key block (w,h) = W_E M_w (A^{l,h})^T Z_l with (Y_l W_U) Z_l^T = I and
    Y_l = M^{l,0} M^{l+1,0} ... M^{L,0}.

    Raises SingularTarget naming the layer (from 1) of a singular M^{l,0}, and OutsideClass when the width D exceeds
    d_out or W_U has rank below D.
    """
    D = target.width
    if shape.d_out < D:
        raise OutsideClass(
            f"shared-query at {shape} serves targets of width at most d_out = {shape.d_out} by attention-matching, "
            f"this one has width {D}; use a host that is universal by matching (sparse, tied, random)"
        )
    duals = _query_duals(shape, target)
    E = zeros(target.W_Q, shape.d_in, m)
    start = 0
    for length in range(shape.layers):
        prefixes = prefix_products(target, length)
        for w in range(shape.heads**length):
            for head in range(shape.heads):
                form = transpose(target.attention_form(length, head))
                E[:, start : start + shape.d_out] = prefixes[w] @ form @ duals[length]
                start += shape.d_out
    outputs = prefix_products(target, shape.layers) @ target.unembedding()
    for v in range(shape.leaves):
        E[:, start : start + shape.d_out] = outputs[v]
        start += shape.d_out
    return E


def _query_duals(shape: Shape, target: Target) -> list[Array]:
    """Z_l [D, d_out] for l = 1 ... L: (Y_l W_U) Z_l^T = I."""
    for layer in range(shape.layers):
        if _singular(target.value_form(layer, 0)):
            raise SingularTarget(
                f"shared-query serves targets with invertible M^(l,0) = W_V W_O of head 0 in every layer, by "
                f"attention-matching; M^({layer + 1},0) of this target is singular"
                + ("" if is_exact(target.W_Q) else " to working precision")
                + "; use shared-key"
            )
    query = target.unembedding()
    if _singular(query):
        raise OutsideClass(
            "shared-query needs an unembedding W_U of rank D: its queries are outputs, and this W_U loses part of them"
        )
    duals: list[Array] = []
    for layer in reversed(range(shape.layers)):
        query = target.value_form(layer, 0) @ query  # Y_l W_U [D, d_out]
        duals.append(_dual(query))
    return duals[::-1]


def _dual(query: Array) -> Array:
    """Z [D, d_out] with query @ Z^T = I, for a query matrix of full row rank."""
    if is_exact(query):
        inverted = rational.inverse(query @ transpose(query))
        assert inverted is not None  # a product of invertible forms and a W_U of rank D
        return inverted @ query
    if _singular(query):
        raise SingularTarget(
            "shared-query, by attention-matching: M^(l,0)...M^(L,0) W_U of this target is singular to working precision; "
            "use shared-key"
        )
    linalg = namespace(query).linalg
    # the pseudoinverse; for square matrices the inverse is the better conditioned way to it
    return transpose(linalg.inv(query) if query.shape[0] == query.shape[1] else linalg.pinv(query))


def _singular(matrix: Array) -> bool:
    """Row-rank deficient: exactly for exact matrices, to working precision for floats."""
    rows = matrix.shape[0]
    if is_exact(matrix):
        return rational.rank(matrix) < rows
    values = namespace(matrix).linalg.svd(matrix)[1]
    epsilon = float(namespace(matrix).finfo(matrix.dtype).eps)
    return bool(values[-1] <= 8 * max(matrix.shape) * epsilon * values[0])
