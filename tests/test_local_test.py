"""The local test: its Jacobian against finite differences in rationals, its refusals, and what full rank promises."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from utfproof.claims.small_models import seven_dimension_embedding, seven_dimension_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.decision.local_test import local_test
from utfproof.errors import MalformedInput, Refuted
from utfproof.exact import rational
from utfproof.matching import embed, r_all, w_all
from utfproof.shapes import Shape, column_groups
from utfproof.systems import prefix_products

pytestmark = pytest.mark.numerical


def residual(host, target, E, gauges):
    """The equations' left side minus right side, flattened, for any E and gauges."""
    shape = host.shape
    matrix = r_all(host)
    matrix = matrix.to_dense(object) if hasattr(matrix, "to_dense") else matrix
    right = w_all(target).copy()
    for group in column_groups(shape)[:-1]:
        layer = group.length - 1
        for w, prefix in enumerate(prefix_products(target, layer)):
            for head in range(shape.heads):
                w_q, w_k, _, _ = target.parameters(layer, head)
                G = gauges[layer][head]
                reader = w_q @ G if group.kind == "Q" else w_k @ rational.inverse(G).T
                start = group.start + (w * shape.heads + head) * group.width
                right[:, start : start + group.width] = prefix @ reader
    return (E @ matrix - right).reshape(-1)


def gauged(host, target, E, gauge):
    """The same target seen through one gauge for all heads, and an E for it: E R_Q = W_Q G."""
    shape = host.shape
    dual = rational.inverse(gauge).T
    changed = replace(target, W_Q=target.W_Q @ gauge, W_K=target.W_K @ dual)
    return embed(host, changed).E, tuple(tuple(gauge for _ in range(shape.heads)) for _ in range(shape.layers))


GAUGE = np.array([[2, 1], [1, 1]], dtype=object)


@pytest.mark.parametrize("place", [(2, 1, 2, 2), (2, 2, 2, 3), (1, 2, 2, 3)])
def test_jacobian_is_the_derivative(place):
    shape = Shape(*place)
    host = build_host("tied", shape)
    target = next(
        found
        for found in (integer_target(shape, seed) for seed in range(50))
        if all(
            rational.rank(np.concatenate([p @ found.parameters(layer, h)[0] for p in prefix_products(found, layer)]))
            == shape.head_dim
            for layer in range(shape.layers)
            for h in range(shape.heads)
        )
    )
    E, gauges = gauged(host, target, None, GAUGE)
    assert not residual(host, target, E, gauges).any()
    found = local_test(host, target, E)
    assert found.rank == found.equations
    assert all((g == GAUGE).all() for row in found.gauges for g in row)
    # a step along every unknown: the error of the linear prediction is quadratic in the step
    rng = np.random.default_rng(0)
    direction = rng.integers(-2, 3, found.unknowns)
    d = shape.head_dim

    def moved(step):
        e = E + step * direction[: E.size].reshape(E.shape)
        gs, place = [], E.size
        for layer in range(shape.layers):
            row = []
            for head in range(shape.heads):
                row.append(gauges[layer][head] + step * direction[place : place + d * d].reshape(d, d))
                place += d * d
            gs.append(row)
        return residual(host, target, e, gs)

    linear = found.jacobian @ direction.astype(object)
    errors = [max(abs(v) for v in moved(step) - step * linear) for step in (Fraction(1, 1000), Fraction(1, 2000))]
    assert errors[0] > 0
    assert Fraction(39, 10) < errors[0] / errors[1] < Fraction(41, 10)


def test_seven_dimensions_reach_nearby_targets_and_a_repeated_reader_does_not():
    host = seven_dimension_host()
    target, E = next(
        (target, E)
        for target in (integer_target(host.shape, seed, bound=3) for seed in range(60))
        if (E := seven_dimension_embedding(target)) is not None
    )
    found = local_test(host, target, np.array(E, dtype=object))
    assert found.rank == found.equations
    twin = replace(host, R_K=[[host.R_K[0][0], host.R_K[0][0]]])
    with pytest.raises(Refuted, match="up to an invertible gauge"):
        local_test(twin, target, np.array(E, dtype=object))


def test_refusals():
    shape = Shape(2, 1, 1, 2)
    host, target = build_host("tied", shape), integer_target(shape, 1)
    E = embed(host, target).E
    with pytest.raises(Refuted, match="outputs"):
        local_test(host, target, E + 1)
    with pytest.raises(MalformedInput, match="exact weights"):
        local_test(host, replace(target, W_Q=target.W_Q.astype(float)), E)
    with pytest.raises(MalformedInput, match="head_dim"):
        local_test(build_host("tied", Shape(2, 1, 2, 2)), target, E)
