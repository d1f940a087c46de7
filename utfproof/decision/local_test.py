"""The local test: at a solution for one target, are all nearby targets reached too, by attention-matching?

Attention-matching leaves every head a gauge G (d x d, invertible): E R_w R_Q = M_w W_Q G, E R_w R_K = M_w W_K G^{-T},
E R_w U = M_w. Where the Jacobian of these d_in M equations in (E, all G) has full rank, the implicit function theorem solves
them for every target in a neighbourhood. Below full rank nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, Refuted
from utfproof.exact import rational
from utfproof.ground.arrays import exact, is_exact
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all, require_same_class, w_all
from utfproof.shapes import ColumnGroup, column_groups, head_words, require_plain
from utfproof.systems import Target, Universal, prefix_products


@dataclass(frozen=True)
class LocalTest:
    """rank of the Jacobian [d_in M, d_in m + L H d^2] against its equations; gauges [L][H] of the solution.

    Where they are equal, attention-matching reaches all targets near this one.
    """

    rank: int
    equations: int
    unknowns: int
    gauges: tuple[tuple[np.ndarray, ...], ...]
    jacobian: np.ndarray


def local_test(host: Universal, target: Target, E: Any, *, max_memory: int | None = None) -> LocalTest:
    """The local test at the exact solution E [d_in, m] of this target, over the rationals.

    Raises MalformedInput for inexact input or shapes that differ, Refuted where E is no solution up to gauges, ResourceLimit
    before allocating.
    """
    require_same_class(host, target)
    require_plain(host.shape, "the local test")
    shape, E = host.shape, exact(np.asarray(E))
    if not is_exact(target.W_Q):
        raise MalformedInput("the local test is over the rationals: give a target with exact weights (exact_target)")
    d, heads, layers = shape.head_dim, shape.heads, shape.layers
    matrix = r_all(host)
    matrix = matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else exact(np.asarray(matrix))
    right = w_all(target)
    equations, unknowns = right.size, E.size + layers * heads * d * d
    require_memory(96 * equations * unknowns, f"the Jacobian at {shape}, m = {host.m},", max_memory)
    reached = E @ matrix
    outputs = column_groups(shape)[-1].start
    if not (reached[:, outputs:] == right[:, outputs:]).all():
        raise Refuted("E does not give the target's outputs M_w, so it is no solution at which to test")
    gauges = tuple(tuple(_gauge(target, reached, layer, head) for head in range(heads)) for layer in range(layers))
    columns = [np.kron(np.eye(shape.d_in, dtype=object), matrix.T)]
    for layer in range(layers):
        for head in range(heads):
            columns.append(_gauge_columns(target, gauges[layer][head], layer, head, right.shape))
    jacobian = np.concatenate(columns, axis=1)
    return LocalTest(rational.rank(jacobian), equations, unknowns, gauges, jacobian)


def _reader_columns(groups: list[ColumnGroup], kind: str, layer: int, heads: int, head: int) -> list[slice]:
    """The column blocks that this head reads, word by word, as queries or keys."""
    group = next(g for g in groups if g.kind == kind and g.length == layer + 1)
    starts = [group.start + (w * heads + head) * group.width for w in range(group.words // heads)]
    return [slice(start, start + group.width) for start in starts]


def _blocks(target: Target, layer: int, head: int, kind: str, matrix: np.ndarray) -> np.ndarray:
    """The columns of one reader for all prefixes, stacked: [H^layer * d_in, d]."""
    places = _reader_columns(column_groups(target.shape), kind, layer, target.shape.heads, head)
    return np.concatenate([matrix[:, place] for place in places])


def _gauge(target: Target, reached: np.ndarray, layer: int, head: int) -> np.ndarray:
    """G [d, d] with E R_w R_Q = M_w W_Q G and E R_w R_K = M_w W_K G^{-T} for all prefixes w; Refuted if there is none."""
    w_q, w_k, _, _ = target.parameters(layer, head)
    prefixes = prefix_products(target, layer)
    queries, keys = (np.concatenate([prefix @ reader for prefix in prefixes]) for reader in (w_q, w_k))
    own_queries, own_keys = (_blocks(target, layer, head, kind, reached) for kind in ("Q", "K"))
    gauge = rational.solve_left(queries.T, own_queries.T)
    inverse = None if gauge is None else rational.inverse(gauge)
    if gauge is None or inverse is None or not (keys @ inverse == own_keys).all():
        raise Refuted(
            f"E does not match the logits of layer {layer + 1}, head {head}, up to an invertible gauge (or the target's "
            "queries have rank below d there): no point at which to test"
        )
    return gauge.T


def _gauge_columns(target: Target, gauge: np.ndarray, layer: int, head: int, size: tuple[int, ...]) -> np.ndarray:
    """Derivatives of E R_w R_Q - M_w W_Q G and E R_w R_K - M_w W_K G^{-T} in the entries of G: [d_in M, d^2]."""
    shape = target.shape
    d = shape.head_dim
    w_q, w_k, _, _ = target.parameters(layer, head)
    dual = rational.inverse(gauge)
    assert dual is not None  # _gauge gives invertible ones
    dual = dual.T
    groups, prefixes = column_groups(shape), prefix_products(target, layer)
    out = np.zeros((d * d, *size), dtype=object)
    for index, (p, q) in enumerate(head_words(d, 2)):
        unit = np.zeros((d, d), dtype=object)
        unit[p, q] = 1
        changes = (("Q", -(w_q @ unit)), ("K", w_k @ dual @ unit.T @ dual))
        for kind, change in changes:
            for prefix, place in zip(prefixes, _reader_columns(groups, kind, layer, shape.heads, head), strict=True):
                out[index][:, place] = prefix @ change
    return out.reshape(d * d, -1).T
