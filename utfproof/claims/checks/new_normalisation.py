"""Layer normalisation: hosts that have none, and hosts of two and three layers that normalise their own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq, fmpq_poly

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import ExactKernel, dense, rank_of_matrix
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import array, one_hots, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KINDS,
    Norm,
    TwoLayers,
    embed_one_layer,
    embed_two_layers,
    first_layer_directions,
    normalised_forward,
    one_layer_equations,
    shared_scale,
    two_layer_host,
    unit_norm,
)
from utfproof.constructions.random import integer_target
from utfproof.exact.symbolic.normalisation import Surd
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal

BEHIND = (("final", (1, 1, 1, 2)), ("post", (1, 1, 1, 2)), ("pre", (1, 2, 1, 2)))
"""Places of a norm that something attended to goes through, and shapes."""
SHARES = (Fraction(0), Fraction(1, 2), Fraction(1))


def residual(*entry: int) -> Shape:
    """A shape with a residual stream."""
    return Shape(*entry, residual=True)


def generic_target(shape: Shape) -> Target:
    """One head with constant logits, W_Q = 0; W_V of layer l is (l + 1, 3, 3, ...), W_O = e_1: nothing cancels."""
    L, D = shape.layers, shape.d_in
    nothing, ones = (array([[[[value]] * D]] * L) for value in (0, 1))
    values = array([[[[layer + 1 if i == 0 else 3] for i in range(D)]] for layer in range(L)])
    return Target(shape, nothing, ones, values, array([[[[1, *[0] * (D - 1)]]]] * L))


def balls(matrix: Any) -> plain.Rows:
    """Rationals as FLINT's balls; zeros stay integers, so that products skip them."""
    return [[_ball(v) if v else 0 for v in row] for row in plain.rows(matrix)]


def _ball(value: Any) -> Any:
    return value if isinstance(value, arb) else arb(fmpq(value.numerator, value.denominator))


def run(
    system: Universal | Target,
    x: plain.Rows,
    E: Any = None,
    attention: plain.Attention = plain.rational_attention,
    *,
    norm: Norm,
    place: str = "pre",
) -> plain.Rows:
    """`plain.forward` with this norm at `place`, in balls of 300 bits."""

    def normalised(row: list[Any]) -> list[Any]:
        mean = sum(row, arb(0)) / len(row) if norm.kind == "layer" else 0
        centred = [v - mean for v in row]
        square = sum((v * v for v in centred), arb(0)) / len(row) + _ball(norm.eps)
        return [v / square.sqrt() for v in centred]

    def normed(state: plain.Rows, here: str) -> plain.Rows:
        return [normalised(row) for row in state] if here == place else state

    with ctx.workprec(300):
        return plain.forward(system, x, E, attention, lift=balls, normed=normed)


def vanishes(exact: np.ndarray, balls: np.ndarray) -> Agreed:
    """Whether numbers are zero: exact ones with roots, and balls around the same."""
    return agree(
        {"exact roots": not (exact != 0).any(), "FLINT balls": all(arb(ball).contains(0) for ball in balls.flat)}
    )


# --- a host without normalisation ------------------------------------------------------------------------------


@check("new:normalisation/all-inputs")
def all_inputs(_: Run) -> Iterator[Instance | Figure]:
    """T(2x) - 2 T(x) for one token, exactly and in balls; a host's is zero."""

    def outputs(target: Target, x: np.ndarray, norm: Norm, place: str = "pre") -> tuple[np.ndarray, np.ndarray]:
        alone = plain.given([[[[1]]]] * target.shape.layers)
        slow = run(target, x.tolist(), attention=alone, norm=norm, place=place)
        return normalised_forward(target, x, ExactKernel(alone), norm, place), array(slow)

    for entry, kind in (((1, 1, 1, 1), "rms"), ((1, 1, 1, 2), "rms"), ((1, 1, 1, 2), "layer"), ((1, 2, 1, 2), "rms")):
        shape = residual(*entry)
        target, host = generic_target(shape), integer_host(shape, matching_dimension(shape), 3)
        E = array([[i - j + 1 for j in range(host.m)] for i in range(shape.d_in)])
        x = array([[2 * j + 1 for j in range(shape.d_in)]])
        once, twice = (host.forward(v, E, RationalAttention()) for v in (x, 2 * x))
        # two irrational norms in a row: one layer says it already
        for place in ("pre", "post", "final") if shape.layers == 1 else ("final",):
            for eps in (0, 1):
                norm = Norm(kind, Fraction(eps))
                (first, first_balls), (second, second_balls) = (outputs(target, v, norm, place) for v in (x, 2 * x))
                linear = vanishes(second - 2 * first, second_balls - 2 * first_balls)
                holds = not linear.value and bool((twice == 2 * once).all())
                yield Instance(shape, holds, f"{kind}, {place}, eps = {eps}", routes=linear.routes)
    one = residual(1, 1, 1, 1)
    values = [outputs(generic_target(one), array([[v]]), Norm("rms"))[0][0, 0] for v in (1, 2)]
    yield Figure("RMS before the layer at (1,1,1,1), eps = 0: T(1), T(2)", f"{values[0]}, {values[1]}")


@check("new:normalisation/tokens")
def tokens(_: Run) -> Iterator[Instance | Figure]:
    """The quadratic under the root in the share of a token; its discriminant and greatest common divisors."""
    for place, entry in BEHIND:
        target = generic_target(residual(*entry))
        for kind in KINDS:
            norm = unit_norm(kind, target.shape.d_in)
            rows = [_first_layer(target, share, norm, place) for share in SHARES]
            own, other = (_quadratic([norm.mean_square(row[token]) for row in rows]) for token in (0, 1))
            c, b, a = own.coeffs()
            simple = agree(
                {"discriminant": b * b != 4 * a * c, "common factor": own.gcd(own.derivative()).degree() == 0}
            )
            constant, high = (array(norm.centred(row[0])) for row in (rows[0], rows[2]))
            if place == "pre":
                constant, high = (row @ target.value_form(1, 0) for row in (constant, high))
            numerators = [fmpq_poly([_rational(v), _rational(w - v)]) for v, w in zip(constant, high, strict=True)]
            # some output coordinate keeps the root; before a second layer token 1 has another one
            alive = any(n and n.gcd(own).degree() == 0 for n in numerators)
            alive &= place != "pre" or own.gcd(other).degree() == 0
            told = ", ".join(map(str, own.coeffs()))
            yield Instance(target.shape, simple.value and alive, f"{kind}, {place}: {told}", routes=simple.routes)
            if (place, kind) == ("final", "rms"):
                yield Figure("under the root, RMS at the end", told)


def _first_layer(target: Target, share: Fraction, norm: Norm, place: str) -> np.ndarray:
    """The stream of both tokens behind the first layer, where both give this share to token 1."""
    tensors = (getattr(target, name)[:1] for name in ("W_Q", "W_K", "W_V", "W_O"))
    first = Target(residual(1, 1, target.shape.head_dim, target.shape.d_in), *tensors)
    grid, inner = [[[[1 - share, share]] * 2]], "pre" if place == "pre" else "none"
    return normalised_forward(first, array(one_hots((0, 1), 2)), ExactKernel(plain.given(grid)), norm, inner)


def _rational(value: Any) -> Any:
    found = Surd.of(value).rational
    return fmpq(found.numerator, found.denominator)


def _quadratic(values: Sequence[Fraction]) -> Any:
    """The polynomial with these values at 0, 1/2 and 1."""
    low, middle, high = map(_rational, values)
    return fmpq_poly([low, 4 * middle - high - 3 * low, 2 * (low + high - 2 * middle)])


# --- one layer: the norm of a token is known beforehand ----------------------------------------------------------


@check("new:normalisation/one-layer")
def one_layer(_: Run) -> Iterator[Instance | Figure]:
    """Rank, equations, queries, keys and outputs."""
    for entry in [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2), (1, 1, 2, 2), (2, 1, 2, 3)]:
        shape = residual(*entry)
        host, target, m = build_host("sparse", shape), integer_target(shape, 4), matching_dimension(shape)
        matrix = dense(r_all(host))
        ranks = rank_of_matrix(matrix)
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            E = embed_one_layer(target, norm)
            solved = bool((E @ matrix == np.concatenate(one_layer_equations(target, norm), axis=1)).all())
            same = _same_outputs(host, E, target, norm)
            holds = ranks.value == m and solved and same.value
            yield Instance(shape, holds, kind, routes=(*ranks.routes, *same.routes), m=m)


def _same_outputs(host: Universal, E: np.ndarray, target: Target, norm: Norm) -> Agreed:
    """Host without a norm, target with one before its layer: attention from outside in balls, and the package's from logits."""
    shape, kernel = target.shape, RationalAttention()
    x, grid = one_hots([i % shape.d_in for i in range(3)], shape.d_in), stochastic_grid(shape, 3, 1)
    exact = host.forward(array(x), E, kernel) - normalised_forward(target, array(x), kernel, norm)
    ours = run(host, x, plain.rows(E), plain.given(grid), norm=norm, place="none")
    return vanishes(exact, array(ours) - array(run(target, x, attention=plain.given(grid), norm=norm)))


# --- hosts that normalise their own rows ------------------------------------------------------------------------

BOUND = 2
"""On the weights of the targets for which a host is made."""


def _served(host: Universal, E: Any, target: Target, norm: Norm) -> Agreed:
    """Equal queries, keys and outputs, host and target both with the norm before each layer, attention from outside."""
    x, grid = one_hots((0, 1 % target.shape.d_in), target.shape.d_in), stochastic_grid(target.shape, 2, 1)
    ours, theirs = ExactKernel(plain.given(grid)), ExactKernel(plain.given(grid))
    exact = normalised_forward(host, array(x), ours, norm, E=E) - normalised_forward(target, array(x), theirs, norm)
    slow = run(host, x, plain.rows(E), plain.given(grid), norm=norm)
    same = vanishes(exact, array(slow) - array(run(target, x, attention=plain.given(grid), norm=norm)))
    return Agreed(same.value and ours.seen == theirs.seen, same.routes)


@check("new:normalisation/two-layers")
def two_layers(_: Run) -> Iterator[Instance | Figure]:
    """Queries, keys and outputs."""
    for entry in ((1, 2, 1, 1), (1, 2, 1, 2), (2, 2, 1, 2)):
        shape = residual(*entry)
        target, norm = integer_target(shape, 3, bound=BOUND), unit_norm("rms", shape.d_in)
        plan = TwoLayers(shape, BOUND, norm)
        host = two_layer_host(plan)
        found = _served(host, embed_two_layers(plan, target), target, norm)
        yield Instance(shape, found.value, "queries, keys and outputs", routes=found.routes, m=host.m)
        if entry == (1, 2, 1, 2):
            yield Figure("m at (1,2,1,2)", host.m)


@check("new:normalisation/three-layers")
def three_layers(_: Run) -> Iterator[Instance | Figure]:
    """No common scale of sample hosts and targets, and one of a target with itself; the hypothesis on directions."""
    for entry, m in (((2, 3, 1, 2), 4), ((2, 3, 1, 2), 9), ((3, 3, 1, 3), 6)):
        shape = residual(*entry)
        target, span = _spanning_target(shape)
        values = [[target.value_form(layer, h) for h in range(shape.heads)] for layer in range(shape.layers)]
        itself = Universal(shape, target.width, target.W_Q, target.W_K, values, array(plain.identity(target.width)))
        none, own = (shared_scale(host, target).degree() for host in (integer_host(shape, m, 3), itself))
        holds = span.value == shape.d_in and none <= 0 < own
        yield Instance(shape, holds, "no common scale", routes=span.routes, m=m)


def _spanning_target(shape: Shape) -> tuple[Target, Agreed]:
    """An integer target whose M^{2,h} have nonzero, different traces and whose first layer moves the stream everywhere, and the
    rank of these moves."""
    for seed in range(100):
        target = integer_target(shape, seed, bound=5)
        traces = {abs(np.trace(target.value_form(1, h))) for h in range(shape.heads)}
        span = rank_of_matrix(first_layer_directions(target, unit_norm("rms", shape.d_in)))
        if 0 not in traces and len(traces) == shape.heads and span.value == shape.d_in:
            return target, span
    raise AssertionError("generic targets are easily found")
