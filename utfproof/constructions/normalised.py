"""Layer and RMS normalisation in residual targets and hosts, exactly, and hosts that keep up with it where any can.

A `Norm` nu acts on rows: RMS x / sqrt(mean x^2 + eps), or LayerNorm, the same after subtracting the mean; gains and
biases belong to the matrices around it. It stands before each layer, X <- X + sum_h A^h nu(X) M^h ("pre"), after
it, X <- nu(X + sum_h A^h X M^h) ("post"), or once before the output ("final"); a host's own nu averages over its m
coordinates. Inputs are one-hot tokens, so W_E or E has one row per token. docs/proofs/normalisation.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel
from utfproof.constructions.sparse import prefix_tree_host
from utfproof.errors import MalformedInput, NotDefined, OutsideClass
from utfproof.exact.symbolic.normalisation import Surd, four_squares, root_parts, square_factor
from utfproof.ground.arrays import Array
from utfproof.shapes import Shape, matching_dimension
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


def _one_layer(shape: Shape) -> None:
    if shape.layers != 1:
        raise NotDefined(f"the norm of a token's row is known beforehand in the first layer only, {shape} has more")
    if not shape.residual:
        raise NotDefined(f"normalised models are written out with a residual stream, {shape} has none")


def _one_layer_parts(target: Target, norm: Norm) -> tuple[Array, Array, list[Array]]:
    """nu(W_E) W_Q and nu(W_E) W_K by head, side by side; W_E W_U; nu(W_E) M^h W_U by head."""
    _one_layer(target.shape)
    rows, out = target.embedding(), target.unembedding()
    inner, heads = norm(rows), [target.parameters(0, h) for h in range(target.shape.heads)]
    values = [inner @ target.value_form(0, h) @ out for h in range(target.shape.heads)]
    return np.concatenate([inner @ h[i] for i in (0, 1) for h in heads], axis=1), rows @ out, values


def one_layer_equations(target: Target, norm: Norm) -> Array:
    """W_all [d_in, M_res] for L = 1, norm before the layer."""
    readers, stream, values = _one_layer_parts(target, norm)
    return np.concatenate([readers, stream, *values], axis=1)


def embed_one_layer(target: Target, norm: Norm, ratio: Any = 1) -> Array:
    """E [d_in, M_res] with which the residual prefix tree, without a norm, gives a target with a norm before its layer. ratio:
    of what the heads read."""
    readers, stream, values = _one_layer_parts(target, norm)
    return np.concatenate([ratio * readers, stream - ratio * sum(values), *(ratio * v for v in values)], axis=1)


def one_layer_host(shape: Shape, bound: int, kind: str) -> Universal:
    """A host for L = 1 that normalises its own rows: the residual tree with readers and values scaled by theta and four
    spare coordinates that nothing reads, m = M_res + 4; mirrored, 2m, for LayerNorm. It serves targets whose weights are
    at most `bound` in absolute value (W_E = W_U = I)."""
    _one_layer(shape)
    M, H, d, w = matching_dimension(shape), shape.heads, shape.head_dim, shape.d_in
    theta = _root_above(Fraction(2 * H * d * w**2 * bound**2 + (H + H**2) * w**3 * (d * bound**2) ** 2, M))
    return constant_host(prefix_tree_host(shape, M), theta, kind)


def embed_one_layer_host(host: Universal, target: Target, norm: Norm) -> Array:
    """E [d_in, m] for `one_layer_host`: every row has the same root mean square kappa, by its spare coordinates.

    OutsideClass where no power of two up to 2^64 leaves room for them: the weights exceed the bound of the host.
    """
    m = _own_width(host, norm)
    theta = max(abs(v) for v in np.ravel(host.maps(0, 0).query)) * host.m // m
    return _fitted(
        host, norm, lambda kappa: embed_one_layer(target, norm, Fraction(kappa, theta)), lambda k: m * (k**2 - norm.eps)
    )


def _fitted(host: Universal, norm: Norm, rows: Callable[[int], Array], length: Callable[[int], Any]) -> Array:
    """E of the first power of two, kappa, whose rows are no longer than the root of length(kappa): filled up to that."""
    for kappa in (2**power for power in range(65)):
        used = rows(kappa)
        spare = [length(kappa) - sum(v * v for v in row) for row in used]
        if min(spare) >= 0:
            return _completed(_own_width(host, norm), norm, used, spare)
    raise OutsideClass(
        f"the weights of this target are too large for the host at {host.shape}, whose own rows are normalised"
    )


def _own_width(host: Universal, norm: Norm) -> int:
    """m before mirroring."""
    return host.m // 2 if norm.kind == "layer" else host.m


def _completed(m: int, norm: Norm, used: Array, spare: Iterable[Any]) -> Array:
    """E [d_in, m]: what is used, four squares that sum to what is spare, zeros; (E, -E) for LayerNorm."""
    squares = np.array([four_squares(v) for v in spare], dtype=object)
    zeros = np.zeros((len(used), m - used.shape[1] - 4), dtype=object)
    E = np.concatenate([used, squares, zeros], axis=1)
    return np.concatenate([E, -E], axis=1) if norm.kind == "layer" else E


def _units(m: int, row: int, column: int, count: int, width: int, factor: Any) -> Array:
    """[m, width] with `factor` times an identity of this size at (row, column)."""
    out = np.zeros((m, width), dtype=object)
    out[np.arange(row, row + count), np.arange(column, column + count)] = factor
    return out


def final_norm_host(shape: Shape, bound: int, norm: Norm) -> Universal:
    """A host for L = 1 with its norm at the end ("final"; "post" is the same there), eps > 0: alpha y in d_in coordinates
    that U reads, then a part that depends on the token only. m = d_in r^2, twice that mirrored. For weights up to `bound`."""
    _one_layer(shape)
    if norm.eps <= 0 or shape.d_in != shape.d_out:
        raise NotDefined(
            f"the host with a norm at the end needs eps > 0 and d_in = d_out, not eps = {norm.eps} at {shape}"
        )
    H, d, D = shape.heads, shape.head_dim, shape.d_in
    r = isqrt((D + 2 * d * H + D * H + 3) // D) + 1
    m, start = D * r**2, D + 2 * d * H
    theta = _root_above(Fraction(H * D * (d * bound**2) ** 2) / norm.eps)
    queries = [_units(m, D + h * d, 0, d, d, 1) for h in range(H)]
    keys = [_units(m, D + (H + h) * d, 0, d, d, 1) for h in range(H)]
    values = [_units(m, start + h * D, 0, D, m, theta) for h in range(H)]
    host = Universal(shape, m, [queries], [keys], [values], _units(m, 0, 0, D, D, Fraction(1, r)))
    return _mirrored_for(norm.kind, host)


def embed_final_norm(host: Universal, target: Target, norm: Norm) -> Array:
    """E [d_in, m] for `final_norm_host` and a target with W_E = W_U = I. OutsideClass where its weights are too large."""
    D, m = host.shape.d_in, _own_width(host, norm)
    r, heads = isqrt(m // D), [target.parameters(0, h) for h in range(host.shape.heads)]
    theta = max(np.ravel(host.maps(0, 0).value[0])) * host.m // m
    centre = _centre(D, norm)
    forms = [target.value_form(0, h) @ centre for h in range(host.shape.heads)]

    def rows(kappa: int) -> Array:
        program = [*(h[0] for h in heads), *(h[1] for h in heads), *(Fraction(kappa * r, theta) * v for v in forms)]
        return np.concatenate([kappa * r * centre, *program], axis=1)

    stream = sum(v * v for v in r * centre[0])
    return _fitted(host, norm, rows, lambda kappa: m * norm.eps * (kappa**2 - 1) + kappa**2 * stream)


def _mirrored_for(kind: str, host: Universal) -> Universal:
    """The host, for LayerNorm on rows (z, -z), 2m wide: their mean is zero, so LayerNorm does to them what RMS does to z."""
    if kind != "layer":
        return host

    def read(matrix: Array) -> Array:
        return Fraction(1, 2) * np.concatenate([matrix, -matrix], axis=0)

    queries, keys, values = (
        [[read(matrix) for matrix in row] for row in grid] for grid in (host.R_Q, host.R_K, host.R_V)
    )
    values = [[np.concatenate([matrix, -matrix], axis=1) for matrix in row] for row in values]
    return Universal(host.shape, 2 * host.m, queries, keys, values, read(host.U))


def _root_above(value: Fraction) -> int:
    """An integer whose square exceeds value."""
    return isqrt(int(value)) + 1


# --- two layers: an isometric image of the target's stream ---------------------------------------------------


class TwoLayers:
    """Widths and scales of the two-layer host at one shape, for weights at most `bound` in absolute value, and one norm.

    The stream is alpha y T + s: T [D, image] is an isometry with columns W_Q^2, W_K^2, M^2, I over `scale` and a completion; s
    depends on the token only and holds what layer 1 needs, times kappa / theta, and four spare coordinates. NotDefined for
    other shapes, and for eps = 0.
    """

    def __init__(self, shape: Shape, bound: int, norm: Norm) -> None:
        if shape.layers != 2 or shape.d_in != shape.d_out or not shape.residual:
            raise NotDefined(f"the isometric host has two layers, a residual stream and d_in = d_out, not {shape}")
        if norm.eps <= 0:
            raise NotDefined("the isometric host needs eps > 0: without it no token's row can hold anything constant")
        self.shape, self.bound, self.norm = shape, bound, norm
        H, d, D = shape.heads, shape.head_dim, shape.d_in
        self.read = 2 * d * H + D * (H + 1)
        self.image = self.read + 4 * D
        program = 2 * d * H + H * (self.image + (norm.kind == "layer"))
        # m = D r^2 before mirroring, so that sqrt(m / D) is rational
        ratio = isqrt((self.image + program + 3) // D) + 1
        self.width, self.alpha = D * ratio**2, KAPPA * ratio
        # squared lengths of the readers and value forms of every target of the class
        readers, forms = 2 * d * H * bound**2, D * H * (d * bound**2) ** 2
        self.scale = _root_above(Fraction(D * (readers + forms + 1)))
        # squared length of what depends on the token only
        self.room = self.width * norm.eps * (KAPPA**2 - 1)
        self.theta = _root_above(Fraction(KAPPA**2 * D * (readers + 2 * self.alpha**2 * forms)) / self.room)


def two_layer_host(plan: TwoLayers) -> Universal:
    """The host: m = D r^2 (2 D r^2 mirrored, for LayerNorm). It normalises its own rows before each layer."""
    s, t, D, d = plan.shape, plan.image, plan.shape.d_in, plan.shape.head_dim
    H, m = s.heads, plan.width
    layer_norm = plan.norm.kind == "layer"
    start = t + 2 * d * H  # of the first head's block in the program
    block = t + layer_norm
    identity = plan.read - D  # the columns of T that hold I

    def reader(first: int, factor: Any) -> Array:
        return _units(m, first, 0, d, d, factor)

    back = Fraction(plan.scale * KAPPA, plan.alpha)
    queries = [[reader(t + h * d, plan.theta) for h in range(H)], [reader(h * d, back) for h in range(H)]]
    keys = [[reader(t + (H + h) * d, plan.theta) for h in range(H)], [reader((H + h) * d, back) for h in range(H)]]
    first = [_units(m, start + h * block, 0, t, m, plan.theta) for h in range(H)]
    places = [2 * d * H + h * D for h in range(H)]
    second = [_units(m, p, identity, D, m, KAPPA) for p in places]
    U = _units(m, identity, 0, D, D, Fraction(plan.scale, plan.alpha))
    if not layer_norm:
        return Universal(s, m, queries, keys, [first, second], U)
    centre = _centre(D, plan.norm)
    for h, p in enumerate(places):
        second[h][p : p + D, identity : identity + D] = KAPPA * centre
    host = _mirrored_for("layer", Universal(s, m, queries, keys, [first, second], U))
    # the mean of the target's row is the mean of the host's, which its LayerNorm does not see
    for h, p in enumerate(places):
        host.R_V[0][h][start + h * block + t] += Fraction(plan.theta, 2)
        host.R_V[0][h][m + start + h * block + t] -= Fraction(plan.theta, 2)
        host.R_V[1][h][p : p + D] += Fraction(plan.scale * KAPPA, 2 * D)
        host.R_V[1][h][m + p : m + p + D] -= Fraction(plan.scale * KAPPA, 2 * D)
    host.U[:] += Fraction(1, 2 * m * plan.alpha)
    return host


def _centre(D: int, norm: Norm) -> Array:
    """The matrix that takes the mean off a row for LayerNorm, I for RMS."""
    mean = Fraction(norm.kind == "layer", D)
    return np.array([[int(i == j) - mean for j in range(D)] for i in range(D)], dtype=object)


def embed_two_layers(plan: TwoLayers, target: Target) -> Array:
    """E [d_in, m] of the two-layer host for a target with W_E = W_U = I. OutsideClass for weights beyond the bound."""
    D, H, m = plan.shape.d_in, plan.shape.heads, plan.width
    if target.W_E is not None or target.W_U is not None:
        raise OutsideClass("the isometric host is written out for targets that embed and unembed by the identity")
    weights = (v for name in ("W_Q", "W_K", "W_V", "W_O") for v in np.ravel(getattr(target, name)))
    if max(abs(v) for v in weights) > plan.bound:
        raise OutsideClass(f"a weight of this target exceeds the bound {plan.bound} of the host")
    layer_norm = plan.norm.kind == "layer"
    eye, centre = np.eye(D, dtype=int).astype(object), _centre(D, norm=plan.norm)
    heads = [[target.parameters(layer, h) for h in range(H)] for layer in (0, 1)]
    columns = [*(h[0] for h in heads[1]), *(h[1] for h in heads[1])]
    columns += [target.value_form(1, h) for h in range(H)]
    read = Fraction(1, plan.scale) * np.concatenate([*columns, eye], axis=1)
    completion = square_factor(eye - read @ read.T)
    T = centre @ np.concatenate([read, completion], axis=1)
    program = [*(h[0] for h in heads[0]), *(h[1] for h in heads[0])]
    for h in range(H):
        form = target.value_form(0, h)
        program.append(plan.alpha * form @ T)
        if layer_norm:
            program.append(plan.alpha * form @ np.full((D, 1), Fraction(1, D), dtype=object))
    rows = Fraction(KAPPA, plan.theta) * centre @ np.concatenate(program, axis=1)
    spare = (plan.room - sum(v * v for v in row) for row in rows)
    E = _completed(m, plan.norm, np.concatenate([plan.alpha * T, rows], axis=1), spare)
    return E + np.full((D, 2 * m), Fraction(plan.alpha, D), dtype=object) if layer_norm else E


# --- a large constant coordinate: hosts with a norm, targets without ------------------------------------------


def constant_host(host: Universal, rho: int, kind: str) -> Universal:
    """The residual host with four more coordinates that nothing reads or writes, readers and values times rho, m + 4; mirrored
    for LayerNorm. With `embed_constant` its normalised rows, times rho, are nearly the rows themselves."""
    m = host.m + 4

    def wider(matrix: Any, columns: int, factor: int) -> Array:
        inner = factor * _exact(matrix)
        return np.pad(inner, ((0, 4), (0, columns - inner.shape[1])))

    def grid(kind: int, columns: int) -> list[list[Array]]:
        found = [[_exact(host.maps(layer, h)[kind]) for h in range(shape.heads)] for layer in range(shape.layers)]
        return [[wider(v[0] if kind == 2 else v, columns, rho) for v in row] for row in found]

    shape = host.shape
    wide = Universal(
        shape, m, grid(0, shape.head_dim), grid(1, shape.head_dim), grid(2, m), wider(host.U, shape.d_out, 1)
    )
    return _mirrored_for(kind, wide)


def embed_constant(E: Array, rho: int, norm: Norm) -> Array:
    """E with the four constants, whose squares sum to m (rho^2 - eps), m = E's width + 4; mirrored for LayerNorm."""
    m = E.shape[1] + 4
    return _completed(m, norm, E, [m * (rho**2 - norm.eps)] * len(E))


def constant_error(host: Universal, E: Array, rho: int) -> Fraction:
    """A bound on the Euclidean distance of each output row from that of the host without normalisation, for all attention
    matrices and one-hot contexts: |U| r^3 v / (2 m rho^2) sum_{l<L} (1+v)^{L-1+2l}, with r the longest row of E, v the
    largest sum over heads of |R_V| in a layer (Frobenius norms), m = host.m + 4."""

    def length(matrix: Any) -> Fraction:
        return Fraction(isqrt(int(sum(v * v for v in np.ravel(_exact(matrix))) * 10**24) + 1) + 1, 10**12)

    shape = host.shape
    r = max(length(row) for row in E)
    sums = [sum(length(host.maps(layer, h).value[0]) for h in range(shape.heads)) for layer in range(shape.layers)]
    v, L = Fraction(max(sums)), shape.layers
    growth = sum((1 + v) ** (L - 1 + 2 * layer) for layer in range(L))
    return length(host.U) * r**3 * v * growth / (2 * (host.m + 4) * rho**2)


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
