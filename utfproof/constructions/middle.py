"""Odd L = 2k+1 in the shared-attention model with E and U both free: a bilinear map in the middle layer.

k letters go into E's register, k into U's, and the middle layer holds a bilinear map B: R^s x R^t -> R^H, one matrix B_h per
head. Then m = d_in H^k max(s, t), and a target is served as soon as its middle layer's weights (c_0, ..., c_{H-1}) are B(p, u).

| map | s, t | reaches |
|---|---|---|
| path | ceil((H+1)/2), floor((H+1)/2) | almost all c: those without a lone zero inside |
| two-stars | ceil(H/2)+1, floor(H/2)+1 | all c, exactly |
| polynomial | as path, H even or H = 1 mod 4 | all c, over the reals |

thm:lower_bound_utf asks for m >= H^(L/2); path meets its ceiling at (H, L) = (3, 3) with m = 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.constructions.record import Construction, Domain, Identity, SharedAttention, equal_widths, scalar
from utfproof.constructions.shared_attention import (
    around_a_layer,
    suffix_products,
)
from utfproof.constructions.words import Blocks, Edges, embedded, factor_words, values
from utfproof.errors import NotDefined, OutsideClass
from utfproof.ground.arrays import Array
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape, head_words, positive_integer
from utfproof.systems import SharedAttentionUniversal, Target, prefix_products

ALL, INVERTIBLE = "all untied", "untied with invertible M^(k+1,h)"
"""Targets of hosts whose words have no inverses, and of the others."""
Factors = tuple[list[Any], list[Any]]
"""p [s] and u [t]."""


@dataclass(frozen=True, eq=False)
class Bilinear:
    """A bilinear map B: R^s x R^t -> R^H, component h being p^T B_h u.

    matrices: B_h as integers [H, s, t]. solve: (p, u) with B(p, u) = c in floats, where p and u are not words in c.
    """

    name: str
    matrices: np.ndarray
    solve: Callable[[Sequence[float]], Factors] | None = None

    @property
    def heads(self) -> int:
        """H."""
        return int(self.matrices.shape[0])

    @property
    def size(self) -> int:
        """max(s, t): coordinates of one block."""
        return int(max(self.matrices.shape[1:]))

    def __call__(self, p: Sequence[Any], u: Sequence[Any]) -> list[Any]:
        """B(p, u) [H]."""
        return [
            sum((p[i] * u[j] for i, j in zip(*np.nonzero(matrix), strict=True)), start=0 * p[0])
            for matrix in self.matrices
        ]


def _units(places: Sequence[tuple[int, int]], size: tuple[int, int]) -> np.ndarray:
    """Matrix units [H, s, t], one place each."""
    out = np.zeros((len(places), *size), dtype=np.int64)
    for head, place in enumerate(places):
        out[head][place] = 1
    return out


# --- a path ------------------------------------------------------------------------------------------------


def path_bilinear(heads: int) -> Bilinear:
    """B_h = p_i u_j along the H edges of a path p_0 u_0 p_1 u_1 ...: i = ceil(h/2), j = floor(h/2).

    It reaches c unless some entry other than the first and last is zero between two nonzero ones.
    """
    H = positive_integer("heads", heads)
    places = [((h + 1) // 2, h // 2) for h in range(H)]
    return Bilinear("path", _units(places, (H // 2 + 1, (H + 1) // 2)))


# --- two stars ---------------------------------------------------------------------------------------------


def two_stars_bilinear(heads: int) -> Bilinear:
    """Star p_0 with leaves u_1 ... u_floor(H/2), star u_0 with leaves p_1 ... p_ceil(H/2): with p_0 = u_0 = 1 the leaves are
    c itself."""
    H = positive_integer("heads", heads)
    half = H // 2
    places = [(0, h + 1) if h < half else (h - half + 1, 0) for h in range(H)]
    return Bilinear("two-stars", _units(places, (H - half + 1, half + 1)))


# --- multiplication of polynomials --------------------------------------------------------------------------


def polynomial_bilinear(heads: int) -> Bilinear:
    """Multiplication of polynomials with s + t - 1 = H coefficients in the product; onto over the reals because one
    factor has even degree. NotDefined for H = 3 mod 4, where both degrees would be odd."""
    H = positive_integer("heads", heads)
    if H % 4 == 3:
        raise NotDefined(f"polynomial needs H even or H = 1 mod 4 (a factor of even degree), got {H}")
    s, t = H // 2 + 1, (H + 1) // 2
    matrices = np.zeros((H, s, t), dtype=np.int64)
    for i in range(s):
        for j in range(t):
            matrices[i + j, i, j] = 1

    return Bilinear("polynomial", matrices, lambda c: _factor_real(np.array([float(x) for x in c]), s, t))


def _factor_real(c: np.ndarray, s: int, t: int) -> Factors:
    """Real p of degree < s and u of degree < t with product c, coefficients ascending; one of s-1, t-1 is even.

    Roots at infinity (leading zeros of c) count as linear factors. Floats.
    """
    zero = np.zeros(1)
    if not c.any():
        return list(np.resize(zero, s)), list(np.resize(zero, t))
    degree = int(np.flatnonzero(c)[-1])
    infinite = len(c) - 1 - degree
    roots = np.roots(c[: degree + 1][::-1])  # of a real matrix: exact conjugate pairs, exactly real otherwise
    pairs = [np.array([abs(z) ** 2, -2 * z.real, 1.0]) for z in roots if z.imag > 0]
    linear = [np.array([1.0, 0.0])] * infinite + [np.array([-z.real, 1.0]) for z in roots if z.imag == 0]
    swap = (s - 1) % 2 == 1
    even = (t if swap else s) - 1
    chosen = [pairs.pop() for _ in range(min(len(pairs), even // 2))]
    chosen += [linear.pop() for _ in range(even - 2 * len(chosen))]

    def product(factors: list[np.ndarray], length: int) -> np.ndarray:
        out = np.ones(1)
        for factor in factors:
            out = np.convolve(out, factor)
        # each factor was padded to its full degree, so the length is exact
        assert len(out) == length
        return out

    first = product(chosen, even + 1)
    second = product([*pairs, *linear], len(c) - even)
    scale = float(c[degree])
    p, u = (second, first) if swap else (first, second)
    return list(scale * p), list(u)


# --- hosts -------------------------------------------------------------------------------------------------


def middle_dimension(shape: Shape, bilinear: Bilinear) -> int:
    """d_in H^k max(s, t), L = 2k+1."""
    return shape.d_in * int(shape.heads ** (shape.layers // 2)) * bilinear.size


def middle_host(shape: Shape, bilinear: Bilinear, m: int) -> SharedAttentionUniversal:
    """The untied host of blocks of max(s, t) parts of d_in coordinates around the middle layer, whose R_V^h is B_h, part by
    part (block 0 is the only one that lives there)."""
    k, size = shape.layers // 2, bilinear.size * shape.d_in
    require_memory(8 * shape.layers * shape.heads * m * m, f"{bilinear.name} at {shape}, m = {m},")
    part = np.eye(shape.d_in, dtype=np.int64)
    middle = [np.kron(matrix, part) for matrix in bilinear.matrices]
    return around_a_layer(shape, m, size, k, middle)


def embed_middle(shape: Shape, bilinear: Bilinear, m: int, target: Target) -> tuple[Array, Array]:
    """(E [d_in, m], U [m, d_in]): part i of block w of E is W_E M_w p_i, part j of block v of U is u_j M_v W_U, with
    B(p, u) = the middle layer's weights.

    By the words of the identity, in the target's arithmetic; for `polynomial` by factors in float64. Raises OutsideClass where
    a weight of the middle layer that has to be inverted is singular, or the target is too wide.
    """
    if bilinear.solve is None:
        return embedded(shape, m, target, lambda at: middle_words(at, edges_of(bilinear)))
    if target.width != 1:
        raise OutsideClass(f"{bilinear.name} at {shape} serves targets of width 1, this one has width {target.width}")
    k, size = shape.layers // 2, bilinear.size
    p, u = bilinear.solve([float(target.value_form(k, head)[0, 0]) for head in range(shape.heads)])
    E, U = np.zeros((1, m)), np.zeros((m, 1))
    for w, product in enumerate(prefix_products(target, k)):
        E[0, w * size : w * size + len(p)] = [float(product[0, 0]) * value for value in p]
    for v, product in enumerate(suffix_products(target, k + 1)):
        U[v * size : v * size + len(u), 0] = [value * float(product[0, 0]) for value in u]
    return E, U


# --- words and records ---------------------------------------------------------------------------------------


def edges_of(bilinear: Bilinear) -> Edges:
    """The places of a bilinear map whose matrices are matrix units."""
    places = []
    for matrix in bilinear.matrices:
        [i], [j] = matrix.nonzero()
        places.append((int(i), int(j)))
    return places


def middle_words(shape: Shape, edges: Edges) -> tuple[Blocks, Blocks]:
    """Part i of block w of E: M_w p_i; part j of block v of U: u_j M_v. The weights of layer k+1 are p_i u_j."""
    k, b = shape.layers // 2, shape.d_in
    size = b * (1 + max(max(edge) for edge in edges))
    left, right = factor_words(edges, [f"M{k + 1}.{head}" for head in range(shape.heads)])
    words = list(enumerate(head_words(shape.heads, k)))
    return (
        [(n * size + i * b, [*values(w), *left[i]]) for n, w in words for i in sorted(left)],
        [(n * size + j * b, [*right[j], *values(v, k + 2)]) for n, v in words for j in sorted(right)],
    )


def polynomial_words(shape: Shape) -> tuple[Blocks, Blocks]:
    """Part i of block w of E: M_w P.i; part j of block v of U: U.j M_v."""
    k = shape.layers // 2
    left, right = shape.heads // 2, (shape.heads - 1) // 2
    words = list(enumerate(head_words(shape.heads, k)))
    return (
        [(n * (left + 1) + i, [*values(w), f"P.{i}"]) for n, w in words for i in range(left + 1)],
        [(n * (left + 1) + j, [f"U.{j}", *values(v, k + 2)]) for n, v in words for j in range(right + 1)],
    )


ODD = "d_in = d_out and an odd number of layers"


def _odd(shape: Shape) -> bool:
    return equal_widths(shape) and shape.layers % 2 == 1


def _record(
    name: str,
    summary: str,
    bilinear: Callable[[int], Bilinear],
    domain: Domain,
    identity: Identity,
    targets: str = ALL,
) -> Construction:
    return Construction(
        name,
        summary,
        False,
        Notion.SHARED_ATTENTION,
        lambda shape: middle_dimension(shape, bilinear(shape.heads)),
        domain=domain,
        targets=targets,
        identity=identity,
        shared=SharedAttention(
            "E and U",
            lambda shape, m: middle_host(shape, bilinear(shape.heads), m),
            lambda shape, m, target: embed_middle(shape, bilinear(shape.heads), m, target),
            length=lambda shape: shape.layers // 2,
        ),
    )


def _edged(bilinear: Callable[[int], Bilinear]) -> Identity:
    """Which targets it serves depends on whether inverses occur; the certificate says."""

    def edges(shape: Shape) -> Edges:
        return edges_of(bilinear(shape.heads))

    return Identity(lambda shape: middle_words(shape, edges(shape)), ALL, "middle", edges)


MIDDLE_PATH = _record(
    "middle-path",
    "odd L, E and U free: a path in the middle layer; almost all targets from H = 3 on",
    path_bilinear,
    Domain(f"{ODD}, and d >= d_in from H = 3 on", lambda s: _odd(s) and (s.head_dim >= s.d_in or s.heads <= 2)),
    _edged(path_bilinear),
    INVERTIBLE,
)

MIDDLE_STARS = _record(
    "middle-stars",
    "odd L, E and U free: two stars in the middle layer",
    two_stars_bilinear,
    Domain(ODD, _odd),
    _edged(two_stars_bilinear),
)

POLYNOMIAL = _record(
    "polynomial",
    "odd L, d_in = 1, E and U free: multiplication of polynomials in the middle layer",
    polynomial_bilinear,
    Domain("d_in = d_out = 1, odd L and H not 3 mod 4", lambda s: scalar(s) and _odd(s) and s.heads % 4 != 3),
    Identity(polynomial_words),
)
