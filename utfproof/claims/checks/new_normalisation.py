"""Layer normalisation against hosts that have none: where they fail whatever m is, and the one place where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq, fmpq_poly

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import dense, rank_of_matrix
from utfproof.claims.definition import Watching, given, one_hots, run
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import Grid, array, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KINDS,
    Norm,
    embed_one_layer,
    normalised_forward,
    one_layer_equations,
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


def simple_target(shape: Shape, columns: Sequence[plain.Rows], W_E: Any = None, W_U: Any = None) -> Target:
    """One head with constant logits, W_Q = 0; W_V [D, 1] by layer, W_O = e_1."""
    D = len(columns[0])
    nothing, ones = (array([[[[value]] * D]] * shape.layers) for value in (0, 1))
    out = array([[[[1, *[0] * (D - 1)]]]] * shape.layers)
    return Target(shape, nothing, ones, array([[values] for values in columns]), out, W_E, W_U)


def generic_target(shape: Shape) -> Target:
    """W_V of layer l is (l + 1, 3, 3, ...): nothing cancels."""
    return simple_target(
        shape, [[[layer + 1 if i == 0 else 3] for i in range(shape.d_in)] for layer in range(shape.layers)]
    )


def uniform(n: int, layers: int, heads: int = 1) -> Grid:
    """Every token attends to all alike."""
    return [[[[Fraction(1, n)] * n for _ in range(n)] for _ in range(heads)] for _ in range(layers)]


def vanishes(exact: np.ndarray, balls: np.ndarray) -> Agreed:
    """Whether numbers are zero: exact ones with roots, and balls around the same."""
    return agree(
        {"exact roots": not (exact != 0).any(), "FLINT balls": all(arb(ball).contains(0) for ball in balls.flat)}
    )


def outputs(
    system: Any, x: plain.Rows, grid: Grid, norm: Norm, place: str = "pre", E: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of a normalised model under attention matrices from outside: exact, and in balls."""
    slow = run(system, x, None if E is None else plain.rows(E), given(grid), norm=norm, place=place)
    return normalised_forward(system, array(x), Watching(given(grid)), norm, place, E), array(slow)


# --- a host without normalisation ------------------------------------------------------------------------------


def _sample(shape: Shape) -> tuple[Universal, np.ndarray]:
    """A host without a norm and some E."""
    host = integer_host(shape, matching_dimension(shape), 3)
    return host, array([[i - j + 1 for j in range(host.m)] for i in range(shape.d_in)])


@check("new:normalisation/all-inputs")
def all_inputs(_: Run) -> Iterator[Instance | Figure]:
    """T(2x) - 2 T(x) for one token, exactly and in balls; a host's is zero."""
    for entry, kind in (((1, 1, 1, 1), "rms"), ((1, 1, 1, 2), "rms"), ((1, 1, 1, 2), "layer"), ((1, 2, 1, 2), "rms")):
        shape = residual(*entry)
        target, grid, (host, E) = generic_target(shape), uniform(1, shape.layers), _sample(shape)
        x = array([[2 * j + 1 for j in range(shape.d_in)]])
        once, twice = (host.forward(v, E, Watching(given(grid))) for v in (x, 2 * x))
        # two irrational norms in a row: one layer says it already
        for place in ("pre", "post", "final") if shape.layers == 1 else ("final",):
            for eps in (0, 1):
                norm = Norm(kind, Fraction(eps))
                (first, first_balls), (second, second_balls) = (
                    outputs(target, v.tolist(), grid, norm, place) for v in (x, 2 * x)
                )
                linear = vanishes(second - 2 * first, second_balls - 2 * first_balls)
                holds = not linear.value and bool((twice == 2 * once).all())
                yield Instance(shape, holds, f"{kind}, {place}, eps = {eps}", routes=linear.routes)
    one = residual(1, 1, 1, 1)
    values = [outputs(generic_target(one), [[v]], uniform(1, 1), Norm("rms"))[0][0, 0] for v in (1, 2)]
    yield Figure("RMS before the layer at (1,1,1,1), eps = 0: T(1), T(2)", f"{values[0]}, {values[1]}")


def _shares(share: Fraction, layers: int) -> Grid:
    """Attention of two tokens: in the first layer the first one gives this share to the second."""
    return [[[[1 - share, share], [0, 1]]], *uniform(2, layers - 1)]


@check("new:normalisation/every-attention")
def every_attention(_: Run) -> Iterator[Instance | Figure]:
    """Outputs at three attention rows, exactly and in balls; a sample host's are in arithmetic progression."""
    for place, entry in BEHIND:
        shape = residual(*entry)
        x, (host, E) = one_hots((0, 1), shape.d_in), _sample(shape)
        ours = [host.forward(array(x), E, Watching(given(_shares(a, shape.layers))))[0] for a in SHARES]
        affine = bool((ours[0] + ours[2] == 2 * ours[1]).all())
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            found = [outputs(generic_target(shape), x, _shares(a, shape.layers), norm, place) for a in SHARES]
            low, middle, high = ([rows[0] for rows in pair] for pair in found)
            straight = vanishes(*(a + c - 2 * b for a, b, c in zip(low, middle, high, strict=True)))
            yield Instance(shape, not straight.value and affine, f"{kind}, {place}", routes=straight.routes)


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
    return normalised_forward(first, array(one_hots((0, 1), 2)), Watching(given(grid)), norm, inner)


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
            solved = bool((E @ matrix == one_layer_equations(target, norm)).all())
            same = _same_outputs(host, E, target, norm)
            holds = ranks.value == m and solved and same.value
            yield Instance(shape, holds, kind, routes=(*ranks.routes, *same.routes), m=m)


def _same_outputs(host: Universal, E: np.ndarray, target: Target, norm: Norm) -> Agreed:
    """Host without a norm, target with one before its layer: attention from outside in balls, and the package's from logits."""
    shape, kernel = target.shape, RationalAttention()
    x, grid = one_hots([i % shape.d_in for i in range(3)], shape.d_in), stochastic_grid(shape, 3, 1)
    exact = host.forward(array(x), E, kernel) - normalised_forward(target, array(x), kernel, norm)
    ours = run(host, x, plain.rows(E), given(grid), norm=norm, place="none")
    return vanishes(exact, array(ours) - array(run(target, x, attention=given(grid), norm=norm)))


@check("new:normalisation/positions")
def positions(_: Run) -> Iterator[Instance | Figure]:
    """f(a,1) + f(b,2) - f(a,2) - f(b,1), each token attending to itself; then with pairs."""
    sums = array([[1], [3], [-1], [1]])  # tokens 1 and -1, positions 0 and 2
    shape, norm, one = Shape(1, 1, 1, 4, 1, residual=True), Norm("rms"), array([[1]])
    split = simple_target(shape, [[[1]]], array([[1], [-1], [0], [2]]), one)
    x = [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]
    found = outputs(split, x, [[plain.identity(4)]], norm)
    additive = vanishes(*(f[0] + f[3] - f[1] - f[2] for f in found))
    yield Instance(shape, additive.value, "a sum over token and position?", routes=additive.routes)
    yield Figure("normalised rows (a,1), (a,2), (b,1), (b,2)", ", ".join(str(v) for v in norm(sums)[:, 0]))
    pairs, host = simple_target(shape, [[[1]]], sums, one), build_host("sparse", shape)
    served = _same_outputs(host, embed_one_layer(pairs, norm), pairs, norm)
    yield Instance(shape, served.value, "one one-hot for each pair", routes=served.routes, part="repair", m=host.m)
