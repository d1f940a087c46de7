"""Hosts that normalise their own rows: what fixed weights forbid, hosts of two layers, three layers, open cases."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor, isqrt
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.checks.new_normalisation import outputs, residual, simple_target, uniform, vanishes
from utfproof.claims.claim import BESIDE, Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.definition import Watching, balls, given, one_hots, run, value
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import array, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KINDS,
    Norm,
    TwoLayers,
    constant_error,
    constant_host,
    embed_constant,
    embed_final_norm,
    embed_one_layer_host,
    embed_two_layers,
    final_norm_host,
    first_layer_directions,
    normalised_forward,
    one_layer_host,
    shared_scale,
    two_layer_host,
    unit_norm,
)
from utfproof.constructions.random import integer_target
from utfproof.constructions.residual import embed_residual_tree
from utfproof.errors import NotDefined
from utfproof.exact.symbolic.normalisation import Surd
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal

BOUND = 2
"""On the weights of the targets for which a host is made."""


def _target(shape: Shape) -> Target:
    return integer_target(shape, 3, bound=BOUND)


def _served(host: Universal, E: Any, target: Target, norm: Norm, place: str = "pre", n: int = 3) -> Agreed:
    """Equal queries, keys and outputs, host and target both with the norm at this place, attention from outside."""
    x, grid = (
        one_hots([i % target.shape.d_in for i in range(n)], target.shape.d_in),
        stochastic_grid(target.shape, n, 1),
    )
    ours, theirs = Watching(given(grid)), Watching(given(grid))
    exact = normalised_forward(host, array(x), ours, norm, place, E)
    exact = exact - normalised_forward(target, array(x), theirs, norm, place)
    slow = run(host, x, plain.rows(E), given(grid), norm=norm, place=place)
    same = vanishes(exact, array(slow) - array(run(target, x, attention=given(grid), norm=norm, place=place)))
    return Agreed(same.value and ours.seen == theirs.seen, same.routes)


# --- fixed weights are bounded ---------------------------------------------------------------------------------------


@check("new:normalisation/own-norm-bounded")
def own_norm_bounded(_: Run) -> Iterator[Instance | Figure]:
    """The bound of sample hosts, a target beyond it, and one E of the host within it."""
    for entry in ((1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 1, 2)):
        shape = residual(*entry)
        for host in (build_host("sparse", shape), integer_host(shape, matching_dimension(shape), 3)):
            bound = _bound_squared(host)
            E = array([[7 * i - 5 * j + 1 for j in range(host.m)] for i in range(2)])
            for kind in KINDS:
                norm = unit_norm(kind, shape.d_in)
                by_one, _ = _moved(_scaled_target(1), norm)
                size = isqrt(floor(bound / by_one.rational)) + 1  # it moves by `size` times as much
                exact, ball = _moved(_scaled_target(size), norm)
                ((rational,),) = balls([[exact.rational]])
                beyond = agree({"exact roots": exact.rational > bound, "FLINT balls": bool(ball > bound)})
                kept = shape.layers > 1 or bool(_moved(host, norm, E)[1] <= bound)
                detail = f"{kind}: {exact} > {bound}, squared"
                holds = beyond.value and kept and bool(ball.overlaps(rational))
                yield Instance(shape, holds, detail, routes=beyond.routes, m=host.m)


def _bound_squared(host: Universal) -> int:
    """(2 sqrt(m) sum of |R_V U|)^2 <= 4 m H L sum of |R_V U|^2, Frobenius."""
    places = [(layer, head) for layer in range(host.shape.layers) for head in range(host.shape.heads)]
    products = [plain.multiply(value(host, *place), plain.rows(host.U)) for place in places]
    return 4 * host.m * len(places) * sum(int(v) ** 2 for product in products for row in product for v in row)


def _scaled_target(size: int) -> Target:
    """One layer, constant logits, W_V = size (1, 3)^T: more layers and heads can be silent."""
    return simple_target(residual(1, 1, 1, 2), [[[size], [3 * size]]])


def _moved(system: Any, norm: Norm, E: Any = None) -> tuple[Surd, Any]:
    """The squared distance of the outputs at token 0 in the contexts (0, 0) and (0, 1): exact, and in balls."""
    grid = uniform(2, 1, system.shape.heads)
    near, far = (outputs(system, one_hots(tokens, 2), grid, norm, E=E) for tokens in ((0, 0), (0, 1)))
    exact, ball = ((there - here)[0] for here, there in zip(near, far, strict=True))
    return sum((Surd.of(v) * v for v in exact), Surd({})), sum(v * v for v in ball)


@check("new:normalisation/own-norm-equations")
def own_norm_equations(_: Run) -> Iterator[Instance | Figure]:
    """Outputs with the E of the equations, and with the repaired host."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2)):
        shape = residual(*entry)
        target, tree = _target(shape), build_host("sparse", shape)
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            if entry != (1, 1, 1, 1) or kind == "rms":  # LayerNorm of a single entry is zero
                found = _one_token(tree, embed_residual_tree(shape, tree.m, target), target, norm)
                yield Instance(shape, not found.value, f"{kind}, equations", routes=found.routes, m=tree.m)
            host = one_layer_host(shape, BOUND, kind)
            mended = _served(host, embed_one_layer_host(host, target, norm), target, norm)
            detail = f"{kind}, spare coordinates"
            yield Instance(shape, mended.value, detail, routes=mended.routes, part=BESIDE, m=host.m)


def _one_token(host: Universal, E: Any, target: Target, norm: Norm) -> Agreed:
    """Whether host and target, both normalised, give the same output for each single token."""
    exact, slow = [], []
    for x in plain.identity(target.shape.d_in):
        grid = uniform(1, 1, target.shape.heads)
        ours, theirs = outputs(host, [x], grid, norm, E=E), outputs(target, [x], grid, norm)
        exact.append(ours[0] - theirs[0])
        slow.append(ours[1] - theirs[1])
    return vanishes(np.array(exact), np.array(slow))


@check("new:normalisation/final-norm")
def final_norm(_: Run) -> Iterator[Instance | Figure]:
    """Queries, keys and outputs, with the norm after the layer and at the end."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2)):
        shape = residual(*entry)
        for kind in KINDS:
            norm = Norm(kind, Fraction(1, 3))
            host = final_norm_host(shape, BOUND, norm)
            E = embed_final_norm(host, _target(shape), norm)
            for place in ("post", "final"):
                found = _served(host, E, _target(shape), norm, place)
                yield Instance(shape, found.value, f"{kind}, {place}", routes=found.routes, m=host.m)


# --- two layers and three --------------------------------------------------------------------------------------------


@check("new:normalisation/two-layers")
def two_layers(_: Run) -> Iterator[Instance | Figure]:
    """Queries, keys and outputs."""
    for entry in ((1, 2, 1, 1), (1, 2, 1, 2), (2, 2, 1, 2)):
        shape = residual(*entry)
        for kind in KINDS if entry != (2, 2, 1, 2) else ("rms",):  # a second and more; the others say it
            norm = unit_norm(kind, shape.d_in)
            plan = TwoLayers(shape, BOUND, norm)
            host = two_layer_host(plan)
            found = _served(host, embed_two_layers(plan, _target(shape)), _target(shape), norm, n=2)
            yield Instance(shape, found.value, f"{kind}: outputs", routes=found.routes, m=host.m)
            if entry == (1, 2, 1, 2):
                yield Figure(f"m at (1,2,1,2), {'RMS' if kind == 'rms' else 'LayerNorm'}", host.m)


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
        span = _directions(target)
        if 0 not in traces and len(traces) == shape.heads and span.value == shape.d_in:
            return target, span
    raise AssertionError("generic targets are easily found")


def _directions(target: Target) -> Agreed:
    return rank_of_matrix(first_layer_directions(target, unit_norm("rms", target.shape.d_in)))


# --- targets without a norm ------------------------------------------------------------------------------------------


@check("new:normalisation/large-constant")
def large_constant(_: Run) -> Iterator[Instance | Figure]:
    """The squared error for two sizes of the constant, in balls."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (1, 2, 1, 1)):
        shape = residual(*entry)
        free, target = build_host("sparse", shape), _target(shape)
        E = embed_residual_tree(shape, free.m, target)
        x, attention = one_hots([i % shape.d_in for i in range(2)], shape.d_in), given(stochastic_grid(shape, 2, 1))
        wanted = array(balls(run(free, x, plain.rows(E), attention)))
        for kind in KINDS:
            norm, errors, holds = Norm(kind, Fraction(1, 4)), [], True
            for rho in (10**4, 10**5):
                host, wide = constant_host(free, rho, kind), plain.rows(embed_constant(E, rho, norm))
                missed = array(run(host, x, wide, attention, norm=norm)) - wanted
                squares = [sum(v * v for v in row) for row in missed]
                ((bound,),) = balls([[constant_error(free, E, rho) ** 2]])
                holds &= all(bool(square <= bound) for square in squares) and any(
                    bool(square > 0) for square in squares
                )
                errors.append(max(squares))
            # squared errors: 10^4 for a tenfold constant, to a hundredth
            falls = bool(9900 * errors[1] < errors[0]) and bool(errors[0] < 10100 * errors[1])
            yield Instance(shape, holds and falls, f"{kind}: within the bound at two sizes", m=host.m)


# --- open ------------------------------------------------------------------------------------------------------------


def _undefined(shape: Shape, norm: Norm) -> bool:
    """Whether the isometric host is refused here."""
    try:
        TwoLayers(shape, 1, norm)
    except NotDefined:
        return True
    return False


@check("new:normalisation/zero-eps")
def zero_eps(_: Run) -> Iterator[Instance | Figure]:
    """The room that eps leaves, and that the construction refuses eps = 0."""
    shape = residual(1, 2, 1, 2)
    rooms = [TwoLayers(shape, 1, Norm("rms", eps)).room for eps in (Fraction(1, 2), Fraction(1, 8))]
    yield Figure("room at (1,2,1,2) for eps = 1/2, 1/8", f"{rooms[0]}, {rooms[1]}")
    holds = None if _undefined(shape, Norm("rms")) else True
    yield Instance(shape, holds, "the isometric host is not defined")


@check("new:normalisation/single-head")
def single_head(_: Run) -> Iterator[Instance | Figure]:
    """The rank of the first layer's directions, and that the construction refuses three layers."""
    told = []
    for entry in ((1, 3, 2, 2), (1, 3, 3, 3)):
        shape = residual(*entry)
        ranks = [_directions(integer_target(shape, seed)) for seed in range(4)]
        most = max(found.value for found in ranks)
        told.append(f"{most} of {shape.d_in}")
        undecided = _undefined(shape, unit_norm("rms", shape.d_in)) and most < shape.d_in
        yield Instance(shape, None if undecided else False, f"directions: {told[-1]}", routes=ranks[0].routes)
    yield Figure("directions at (1,3,2,2), (1,3,3,3)", ", ".join(told))
