"""Two heads, odd depth L = 2k+1, any width, shared attention with E and U both free: m = 2^k (d_in + 1), almost all targets.

In the middle layer R^0 = I and R^1 = N, with ones below the diagonal, of size d_in + 1. For a target whose M_0 is invertible
there put M = M_1 M_0^{-1} and let v be a vector whose powers S = (v, Mv, ..., M^{d_in-1} v) are a basis:

    E = (v, Mv, ..., M^{d_in} v),   U = S^{-1} M_0 above a row of zeros,

so that E U = M_0 and E N U = M S S^{-1} M_0 = M_1. The k letters before stand in E's register and the k behind in U's, as in
`two-sided`. At L = 1, d_in + 1 is the least m for almost all targets (parameter count; docs/search.md).
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.record import Construction, Domain, SharedAttention
from utfproof.constructions.shared_attention import (
    around_a_layer,
    suffix_products,
)
from utfproof.errors import OutsideClass
from utfproof.exact import rational
from utfproof.ground.arrays import Array, exact, zeros
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal, Target, prefix_products

NAME = "krylov"


def krylov_dimension(shape: Shape) -> int:
    """2^k (d_in + 1), L = 2k+1."""
    return int(2 ** (shape.layers // 2)) * (shape.d_in + 1)


def krylov_host(shape: Shape, m: int) -> SharedAttentionUniversal:
    """`krylov` (untied): blocks of d_in + 1 coordinates around the middle layer."""
    k, size = shape.layers // 2, shape.d_in + 1
    require_memory(16 * shape.layers * m * m, f"{NAME} at {shape}, m = {m},")
    return around_a_layer(shape, m, size, k, [np.eye(size, k=-head, dtype=np.int64) for head in range(2)])


def embed_krylov(shape: Shape, m: int, target: Target) -> tuple[Array, Array]:
    """(E [d_in, m], U [m, d_in]), exact. OutsideClass where the middle layer's M_0 is singular, no power basis is found
    (M_1 M_0^{-1} is derogatory) or the target is not of width d_in."""
    b, k = shape.d_in, shape.layers // 2
    if target.width != b:
        raise OutsideClass(f"{NAME} at {shape} serves targets of width {b}, this one has width {target.width}")
    first, second = (exact(np.asarray(target.value_form(k, head))) for head in range(2))
    inverse = rational.inverse(first)
    if inverse is None:
        raise OutsideClass(f"{NAME} serves targets whose M^({k + 1},0) is invertible; this one's is singular")
    ratio = second @ inverse
    for point in range(1, 2 * b + 2):
        powers = [exact(np.array([[point**i] for i in range(b)]))]
        for _ in range(b):
            powers.append(ratio @ powers[-1])
        solution = rational.inverse(np.hstack(powers[:b]))
        if solution is not None:
            break
    else:
        raise OutsideClass(f"{NAME}: no basis of powers of M^({k + 1},1) / M^({k + 1},0) was found for this target")
    left = np.hstack(powers)
    right = np.vstack([solution @ first, exact(np.zeros((1, b), dtype=np.int64))])
    E, U = zeros(left, b, m), zeros(left, m, b)
    size = b + 1
    for w, product in enumerate(prefix_products(target, k)):
        E[:, w * size : (w + 1) * size] = exact(np.asarray(product)) @ left
    for v, product in enumerate(suffix_products(target, k + 1)):
        U[v * size : (v + 1) * size] = right @ exact(np.asarray(product))
    return E, U


KRYLOV = Construction(
    NAME,
    "two heads, odd L, d >= d_in, E and U free: powers of the middle layer's quotient; almost all targets",
    False,
    Notion.SHARED_ATTENTION,
    krylov_dimension,
    domain=Domain(
        "two heads, an odd number of layers and d_in = d_out <= d",
        lambda s: s.heads == 2 and s.layers % 2 == 1 and s.d_in == s.d_out <= s.head_dim,
    ),
    targets="generic untied",
    shared=SharedAttention("E and U", krylov_host, embed_krylov, length=lambda shape: shape.layers // 2),
)
