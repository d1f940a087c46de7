"""Hosts with gated MLPs: m grows linearly with L, on inputs with a constant coordinate (docs/proofs/gated-mlp.md).

The same block in every layer keeps q, k, v, o of each head, the output, a coordinate that is 1, and constants. With O the
W_O of a layer one above another, attention copies v to o, and the MLP multiplies o by O W_{Q,K,V} of the next layer, which
gives the next q, k, v, and by the last W_O W_U.

`gated-tied` (Theorem B) keeps one O W_{Q,K,V}. `gated` (Theorem E) has O W_Q of each layer in a shift register. Its keys and
values are O W = P [I; Z] R for each head, P = exp(-lambda N), N the nilpotent shift: R moves to the layer's W_Q or W_O, and the
MLP makes the next P [I; Z] from registers of Z and of the powers of lambda.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from itertools import count
from math import factorial
from typing import Any

import numpy as np

from utfproof.attention import like
from utfproof.constructions.multiplying import Places, Product, copied, multiplier, scaled, selected, times
from utfproof.constructions.record import CONSTANT, Construction
from utfproof.errors import OutsideClass
from utfproof.exact import rational
from utfproof.shapes import Shape
from utfproof.systems import AugmentedTarget, Target, Universal
from utfproof.util.arrays import Array, hstack, is_exact, namespace, to_numpy, transpose, zeros
from utfproof.util.notions import Notion

READERS = "QKV"
CANDIDATES = np.linspace(-2, 2, 65)
"""Values of lambda that are tried in floats; the best conditioned one is taken."""


def gated_dimension(shape: Shape, *, tied: bool = False) -> int:
    """w d_out + 4w + d_out + 1, w = H d; for L >= 2, or tied targets, 3w^2 more; for untied targets (3w^2 - 2wd + w - 1)(L - 2)
    more."""
    w = shape.heads * shape.head_dim
    layers = 2 if tied else shape.layers
    constants = 3 * w**2 + (3 * w**2 - 2 * w * shape.head_dim + w - 1) * (layers - 2) if layers > 1 else 0
    return constants + w * shape.d_out + 4 * w + shape.d_out + 1


@lru_cache(maxsize=8)
def _places(shape: Shape, *, tied: bool) -> Places:
    """Coordinates: "one"; "Q", "K", "V", "O" [w]; "out"; "last" [w, d_out]. By slot: "OQ", "OK", "OV" [w, w], "ZK", "ZV"
    [w - d, w], "powers" [w - 1]; "OK" and "OV" have one slot, which the MLP fills anew."""
    at, w = Places(), shape.heads * shape.head_dim
    for name, sizes in (("one", (1,)), *((x, (w,)) for x in "QKVO"), ("out", (shape.d_out,))):
        at(name, *sizes)
    at("last", w, shape.d_out)
    layers = 2 if tied else shape.layers
    for slot in range(layers - 1):
        for x in READERS if slot == 0 else "Q":
            at(("O" + x, slot), w, w)
    for slot in range(layers - 2):
        at(("ZK", slot), w - shape.head_dim, w)
        at(("ZV", slot), w - shape.head_dim, w)
        at(("powers", slot), w - 1)
    return at


def _products(shape: Shape, at: Places, *, tied: bool) -> list[Product]:
    """What the MLP of every block adds."""
    one, layers = at("one"), 2 if tied else shape.layers
    products, replaced = [times(at("O"), at("last"), at("out"))], [*READERS, "O", "out"]
    if layers > 1:
        products += [times(at("O"), at(("O" + x, 0)), at(x)) for x in READERS]
    if layers > 2:
        replaced += [("OK", 0), ("OV", 0)]
        products += [product for x in "KV" for product in _next(shape, at, x)]
    if not tied:
        registers = [("OQ", s) for s in range(layers - 1)]
        registers += [(name, s) for s in range(layers - 2) for name in ("ZK", "ZV", "powers")]
        replaced += registers
        products += [scaled(at((n, s + 1)), one, at((n, s))) for n, s in registers if (n, s + 1) in at.known]
    return [*products, *(scaled(at(name), one, at(name), -1) for name in replaced)]


def _next(shape: Shape, at: Places, x: str) -> list[Product]:
    """P [I; Z] of the next layer: P[i, k] is power k - i, power 0 is 1."""
    d, to, Z = shape.head_dim, at(("O" + x, 0)), at(("Z" + x, 0))
    powers = np.concatenate([at("one"), at(("powers", 0))])
    i, k = np.triu_indices(len(to))
    top = k < d
    own = to.reshape(len(to), shape.heads, d)[i[top], :, k[top]].reshape(-1)
    i, k, head = i[~top], k[~top], powers[(k - i)[top]].repeat(shape.heads)
    below = Product(powers[k - i].repeat(len(to)), Z[k - d].reshape(-1), to[i].reshape(-1))
    return [scaled(head, at("one"), own), below]


def gated_host(shape: Shape, m: int, *, tied: bool = False, activation: str = "silu") -> Universal:
    """`gated` or `gated-tied`: R_V^h copies v^h to o^h, the MLP multiplies. ResourceLimit where it does not fit."""
    at, H, d = _places(shape, tied=tied), shape.heads, shape.head_dim
    by_head = {name: at(name).reshape(H, d) for name in "QKVO"}
    return Universal(
        shape,
        m,
        tuple(selected(m, by_head["Q"][h], d) for h in range(H)),
        tuple(selected(m, by_head["K"][h], d) for h in range(H)),
        tuple(copied(m, by_head["V"][h], by_head["O"][h]) for h in range(H)),
        selected(m, at("out"), shape.d_out),
        "gated-tied" if tied else "gated",
        mlp=multiplier([_products(shape, at, tied=tied)], m, activation, tied=True),
    )


# --- the embedding ---------------------------------------------------------------------------------------------


def embed_gated(
    shape: Shape, m: int, target: Target, *, tied: bool = False, constant: Array | None = None
) -> tuple[Array, float | None]:
    """E [d_in, m], in the target's arithmetic, and the largest norm of an inverse (None for exact weights and where nothing is
    inverted). constant: c [d_in] with X c = 1, ones if None. OutsideClass for untied targets of `gated-tied`, and for targets
    with absorbed biases."""
    if isinstance(target, AugmentedTarget):
        raise OutsideClass("gated hosts serve targets with values of width head_dim; this one has absorbed biases")
    if tied and not target.tied and shape.layers > 1:
        raise OutsideClass(f"gated-tied at {shape} serves tied targets; this one is untied, use gated")
    at, heads, condition = _places(shape, tied=tied), range(shape.heads), None
    E = zeros(target.W_Q, shape.d_in, m)
    c = zeros(target.W_Q, shape.d_in) + 1 if constant is None else constant

    def hold(name: Any, values: Array) -> None:
        """The same values in each row of the host's input."""
        E[:, at(name).reshape(-1)] = c[:, None] * values.reshape(1, -1)

    weights = [[target.parameters(layer, h) for h in heads] for layer in range(shape.layers)]
    moved = [w_o for *_, w_o in weights[0]]  # W_O of each head, behind the R of its values
    hold("one", c[:1] * 0 + 1)
    for which, x in enumerate(READERS):
        first = hstack([head[which] for head in weights[0]])
        E[:, at(x)] = target.embedding() @ first
        if tied:
            hold(("O" + x, 0), _below(moved) @ first)
    for layer in range(1, 1 if tied else shape.layers):
        outputs = _below(moved)  # [w, D]
        queries, keys, values = ([outputs @ head[which] for head in weights[layer]] for which in range(3))
        moved = [head[3] for head in weights[layer]]
        if layer == 1:
            hold(("OK", 0), hstack(keys))
            hold(("OV", 0), hstack(values))
        else:
            powers, Z, R, worst = _toeplitz([*keys, *values], shape.head_dim)
            hold(("powers", layer - 2), powers)
            hold(("ZK", layer - 2), hstack(Z[: shape.heads]))
            hold(("ZV", layer - 2), hstack(Z[shape.heads :]))
            queries = [query @ transpose(R[h]) for h, query in enumerate(queries)]
            moved = [R[shape.heads + h] @ w_o for h, w_o in enumerate(moved)]
            condition = worst if condition is None or worst is None else max(condition, worst)
        hold(("OQ", layer - 1), hstack(queries))
    hold("last", _below(moved) @ target.unembedding())
    return E, condition


def _below(parts: list[Array]) -> Array:
    return namespace(parts[0]).concatenate(parts)


def _power_matrix(base: Any, w: int) -> np.ndarray:
    """exp(base N) [w, w], N the nilpotent shift: base^k / k! on the k-th diagonal; exact for an int."""
    powers = [(Fraction(base) if isinstance(base, int) else base) ** k / factorial(k) for k in range(w)]
    return np.array(
        [[0] * i + powers[: w - i] for i in range(w)], dtype=object if isinstance(base, int) else np.float64
    )


@lru_cache(maxsize=8)
def _candidates(w: int) -> np.ndarray:
    """P^-1 for each of CANDIDATES, [., w, w]."""
    return np.array([_power_matrix(base, w) for base in CANDIDATES])


def _toeplitz(readers: list[Array], d: int) -> tuple[Array, list[Array], list[Array], float | None]:
    """Powers [w - 1] that make one P, and Z [w - d, d] and R [d, d] with P [I; Z] R = A for each A [w, d]; the largest norm of
    an inverse that is taken (None for exact weights), of tops [d, d] of orthonormal bases."""
    w = len(readers[0])
    if is_exact(readers[0]):
        for base in count():
            turned = [_power_matrix(base, w) @ A for A in readers]
            Z = [rational.solve_left(A[:d], A[d:]) for A in turned]
            if all(z is not None for z in Z):
                return _power_matrix(-base, w)[0, 1:], Z, [A[:d] for A in turned], None
    spans = [namespace(A).linalg.svd(A, full_matrices=False)[0] for A in readers]
    tops = np.stack([_candidates(w)[:, :d] @ to_numpy(U) for U in spans])  # [readers, ., d, d]
    least = np.linalg.svd(tops, compute_uv=False)[..., -1].min(axis=0)
    best = float(CANDIDATES[least.argmax()])
    inverse = like(readers[0], _power_matrix(best, w))
    bases = [inverse @ U for U in spans]
    Z = [U[d:] @ namespace(U).linalg.inv(U[:d]) for U in bases]
    powers = like(readers[0], _power_matrix(-best, w)[0, 1:])
    return powers, Z, [(inverse @ A)[:d] for A in readers], 1 / float(least.max())


def _record(name: str, summary: str, targets: str, *, tied: bool) -> Construction:
    return Construction(
        name,
        summary,
        True,
        Notion.FUNCTIONAL if tied else Notion.ATTENTION_MATCHING,  # a change of basis of keys commutes with no rotation
        partial(gated_dimension, tied=tied),
        partial(gated_host, tied=tied),
        targets=targets,
        embed=partial(embed_gated, tied=tied),
        memory=lambda shape, m: 0,  # `multiplier` asks for it
        gated=True,
        inputs=CONSTANT,
        page=f"docs/proofs/gated-mlp.md, Theorem {'B' if tied else 'E'}",
    )


GATED = _record("gated", "gated MLPs: m grows with L, not with H^L; inputs with X c = 1", "all untied", tied=False)
GATED_TIED = _record(
    "gated-tied", "gated MLPs, tied targets: m does not depend on L; inputs with X c = 1", "all tied", tied=True
)
