"""Layer and RMS normalisation in residual targets and hosts, exactly, and hosts for one and two layers.

A `Norm` nu acts on rows: RMS x / sqrt(mean x^2 + eps), or LayerNorm, the same after subtracting the mean; gains and
biases belong to the matrices around it. It stands before each layer, X <- X + sum_h A^h nu(X) M^h ("pre"), after
it, X <- nu(X + sum_h A^h X M^h) ("post"), or once before the output ("final"); a host's own nu averages over its m
coordinates. Inputs are one-hot tokens, so W_E or E has one row per token. docs/proofs/normalisation.md has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel
from utfproof.errors import MalformedInput, NotDefined, OutsideClass
from utfproof.exact.symbolic.normalisation import Surd, four_squares, root_parts, square_factor
from utfproof.ground.arrays import Array
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

KINDS = ("rms", "layer")
PLACES = ("none", "pre", "post", "final")
KAPPA = 2
"""Ratio of the host's root mean square to the target's in the hosts of two layers; any number above 1 does."""


@dataclass(frozen=True)
class Norm:
    """nu on rows of exact numbers. kind: "rms" or "layer"; eps >= 0 is added to the mean square. MalformedInput otherwise."""

    kind: str
    eps: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise MalformedInput(f"a norm is one of {', '.join(KINDS)}, not {self.kind!r}")
        object.__setattr__(self, "eps", Fraction(self.eps))
        if self.eps < 0:
            raise MalformedInput(f"eps must not be negative, got {self.eps}")

    def centred(self, row: Any) -> list[Any]:
        """The row, less its mean for LayerNorm."""
        if self.kind == "rms":
            return list(row)
        mean = sum(row[1:], row[0]) * Fraction(1, len(row))
        return [v - mean for v in row]

    def mean_square(self, row: Any) -> Fraction:
        """Mean square of the centred row plus eps. NotDefined where it is not rational."""
        centred = self.centred(row)
        total = sum((Surd.of(v) * v for v in centred), Surd({})).rational
        return total / len(centred) + self.eps

    def __call__(self, x: Array) -> Array:
        """nu of every row of x [n, width]. NotDefined for a row of zeros when eps = 0."""
        out = np.empty(x.shape, dtype=object)
        for i, row in enumerate(x):
            square = self.mean_square(row)
            if square == 0:
                raise NotDefined("a row of zeros has no normalisation when eps = 0")
            c, r = root_parts(square)
            inverse: Any = 1 / c if r == 1 else Surd({r: 1 / (c * r)})
            for j, value in enumerate(self.centred(row)):
                out[i, j] = value * inverse
        return out


def unit_norm(kind: str, d_in: int) -> Norm:
    """The norm whose eps > 0 makes the root mean square of a one-hot row of d_in entries 1 (2 for d_in = 1 and RMS)."""
    if d_in == 1:
        return Norm(kind, Fraction(3 if kind == "rms" else 1))
    square = Fraction(1, d_in) if kind == "rms" else Fraction(d_in - 1, d_in**2)
    return Norm(kind, 1 - square)


def normalised_forward(
    system: Target | Universal,
    x: Array,
    kernel: AttentionKernel,
    norm: Norm,
    place: str = "pre",
    E: Array | None = None,
) -> Array:
    """A residual target, or a residual host with its E, with `norm` at `place`: x [n, d_in] -> [n, d_out], exact.

    MalformedInput for an unknown place. The kernel sees the queries and keys of normalised rows where place is "pre".
    """
    if place not in PLACES:
        raise MalformedInput(f"a norm stands at one of {', '.join(PLACES)}, not {place!r}")
    positions = np.arange(x.shape[-2])
    state, output = (x @ system.embedding(), system.unembedding()) if isinstance(system, Target) else (x @ E, None)
    for layer in range(system.shape.layers):
        inner = norm(state) if place == "pre" else state
        after = state
        for head in range(system.shape.heads):
            if isinstance(system, Target):
                query, key, *value = system.parameters(layer, head)
            else:
                query, key, value = (_exact(system.maps(layer, head)[i]) for i in range(3))
            term = kernel(inner @ query, inner @ key, positions, layer=layer, head=head) @ inner
            for matrix in value:
                term = term @ matrix
            after = after + term
        state = norm(after) if place == "post" else after
    if place == "final":
        state = norm(state)
    return state @ (_exact(system.U) if isinstance(system, Universal) else output)


def _exact(matrix: Any) -> Any:
    """A selection matrix as an object array; tuples entry by entry."""
    if isinstance(matrix, tuple):
        return [_exact(entry) for entry in matrix]
    return matrix.to_dense(object) if hasattr(matrix, "to_dense") else matrix


# --- one layer: the norm is a property of the token ----------------------------------------------------------


def one_layer_equations(target: Target, norm: Norm) -> list[Array]:
    """The blocks of W_all [d_in, M_res] for L = 1, norm before the layer: nu(W_E) W_Q and nu(W_E) W_K by head, the stream
    W_E W_U, nu(W_E) M^h W_U by head. NotDefined for other shapes."""
    shape = target.shape
    if shape.layers != 1 or not shape.residual:
        raise NotDefined(
            f"the norm of a token's row is known beforehand in the first layer of a residual stream only, not at {shape}"
        )
    rows, out = target.embedding(), target.unembedding()
    inner, heads = norm(rows), [target.parameters(0, h) for h in range(shape.heads)]
    values = [inner @ target.value_form(0, h) @ out for h in range(shape.heads)]
    return [*(inner @ h[i] for i in (0, 1) for h in heads), rows @ out, *values]


def embed_one_layer(target: Target, norm: Norm) -> Array:
    """E [d_in, M_res] with which the residual prefix tree, without a norm, gives a target with a norm before its layer."""
    blocks, heads = one_layer_equations(target, norm), target.shape.heads
    blocks[2 * heads] = blocks[2 * heads] - sum(blocks[2 * heads + 1 :])
    return np.concatenate(blocks, axis=1)


# --- two layers, RMS: an isometric image of the target's stream ----------------------------------------------


def _units(m: int, row: int, column: int, count: int, width: int, factor: Any) -> Array:
    """[m, width] with `factor` times an identity of this size at (row, column)."""
    out = np.zeros((m, width), dtype=object)
    out[np.arange(row, row + count), np.arange(column, column + count)] = factor
    return out


def _root_above(value: Fraction) -> int:
    """An integer whose square exceeds value."""
    return isqrt(int(value)) + 1


class TwoLayers:
    """Widths and scales of the two-layer host at one shape, for weights at most `bound` in absolute value, and one RMS norm.

    The stream is alpha y T + s: T [D, image] is an isometry with columns W_Q^2, W_K^2, M^2, I over `scale` and a completion; s
    depends on the token only and holds what layer 1 needs, times kappa / theta, and four spare coordinates. NotDefined for
    other shapes, and for eps = 0.
    """

    def __init__(self, shape: Shape, bound: int, norm: Norm) -> None:
        if shape.layers != 2 or shape.d_in != shape.d_out or not shape.residual or norm.kind != "rms":
            raise NotDefined(
                f"the isometric host has two layers, a residual stream, d_in = d_out and RMS, not {shape}, {norm.kind}"
            )
        if norm.eps <= 0:
            raise NotDefined("the isometric host needs eps > 0: without it no token's row can hold anything constant")
        self.shape, self.bound, self.norm = shape, bound, norm
        H, d, D = shape.heads, shape.head_dim, shape.d_in
        self.read = 2 * d * H + D * (H + 1)
        self.image = self.read + 4 * D
        program = 2 * d * H + H * self.image
        # m = D r^2, so that sqrt(m / D) is rational
        ratio = isqrt((self.image + program + 3) // D) + 1
        self.width, self.alpha = D * ratio**2, KAPPA * ratio
        # squared lengths of the readers and value forms of every target of the class
        readers, forms = 2 * d * H * bound**2, D * H * (d * bound**2) ** 2
        self.scale = _root_above(Fraction(D * (readers + forms + 1)))
        # squared length of what depends on the token only
        self.room = self.width * norm.eps * (KAPPA**2 - 1)
        self.theta = _root_above(Fraction(KAPPA**2 * D * (readers + 2 * self.alpha**2 * forms)) / self.room)


def two_layer_host(plan: TwoLayers) -> Universal:
    """The host: m = D r^2. It normalises its own rows before each layer."""
    shape, t, D, d = plan.shape, plan.image, plan.shape.d_in, plan.shape.head_dim
    H, m = shape.heads, plan.width
    identity = plan.read - D  # the columns of T that hold I

    def reader(first: int, factor: Any) -> Array:
        return _units(m, first, 0, d, d, factor)

    back = Fraction(plan.scale * KAPPA, plan.alpha)
    queries = [[reader(t + h * d, plan.theta) for h in range(H)], [reader(h * d, back) for h in range(H)]]
    keys = [[reader(t + (H + h) * d, plan.theta) for h in range(H)], [reader((H + h) * d, back) for h in range(H)]]
    first = [_units(m, t + 2 * d * H + h * t, 0, t, m, plan.theta) for h in range(H)]
    second = [_units(m, 2 * d * H + h * D, identity, D, m, KAPPA) for h in range(H)]
    U = _units(m, identity, 0, D, D, Fraction(plan.scale, plan.alpha))
    return Universal(shape, m, queries, keys, [first, second], U)


def embed_two_layers(plan: TwoLayers, target: Target) -> Array:
    """E [d_in, m] of the two-layer host for a target with W_E = W_U = I. OutsideClass for weights beyond the bound."""
    D, heads = plan.shape.d_in, range(plan.shape.heads)
    if target.W_E is not None or target.W_U is not None:
        raise OutsideClass("the isometric host is written out for targets that embed and unembed by the identity")
    weights = (v for name in ("W_Q", "W_K", "W_V", "W_O") for v in np.ravel(getattr(target, name)))
    if max(abs(v) for v in weights) > plan.bound:
        raise OutsideClass(f"a weight of this target exceeds the bound {plan.bound} of the host")
    eye = np.eye(D, dtype=int).astype(object)
    readers = [[target.parameters(layer, h)[i] for i in (0, 1) for h in heads] for layer in (0, 1)]
    forms = [[target.value_form(layer, h) for h in heads] for layer in (0, 1)]
    read = Fraction(1, plan.scale) * np.concatenate([*readers[1], *forms[1], eye], axis=1)
    T = np.concatenate([read, square_factor(eye - read @ read.T)], axis=1)
    program = np.concatenate([*readers[0], *(plan.alpha * form @ T for form in forms[0])], axis=1)
    rows = Fraction(KAPPA, plan.theta) * program
    # four coordinates whose squares fill every row up to one length
    spare = np.array([four_squares(plan.room - sum(v * v for v in row)) for row in rows], dtype=object)
    used = np.concatenate([plan.alpha * T, rows, spare], axis=1)
    return np.concatenate([used, np.zeros((D, plan.width - used.shape[1]), dtype=object)], axis=1)


# --- three layers: what an isometric image would have to do -------------------------------------------------------


def first_layer_directions(target: Target, norm: Norm) -> Array:
    """(nu(w_j) - nu(w_0)) M^{1,h} [.., D]: the directions in which attention moves the stream after layer 1. Three layers need
    them to span R^D for the obstruction."""
    inner = norm(target.embedding())
    moved = [(inner[1:] - inner[:1]) @ target.value_form(0, h) for h in range(target.shape.heads)]
    return np.concatenate(moved, axis=0)


def shared_scale(host: Universal, target: Target) -> Any:
    """The polynomial (fmpq_poly) whose nonzero roots kappa make kappa tr(M^{2,h}) an eigenvalue of R_V^{2,h} for every head h
    (d = 1); a constant where there are none, and then no E matches this target by a host that normalises its own rows."""
    from flint import fmpq, fmpq_mat, fmpq_poly

    found = fmpq_poly([0])
    for h in range(host.shape.heads):
        entries = [Fraction(v) for v in np.ravel(_exact(host.maps(1, h).value[0]))]
        matrix = fmpq_mat(host.m, host.m, [fmpq(v.numerator, v.denominator) for v in entries])
        trace = int(np.trace(target.value_form(1, h)))
        found = found.gcd(matrix.charpoly()(fmpq_poly([0, trace])))
    while found and found[0] == 0:
        found = fmpq_poly(found.coeffs()[1:])
    return found
