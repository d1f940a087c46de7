"""Theorem E of docs/proofs/sharper-frontier.md: products of readers take all values, and hosts that serve all targets."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from logit_equations import misses

from utfproof.attention import SoftmaxAttention
from utfproof.claims.checks.new_all_targets import target_of
from utfproof.errors import NotDefined
from utfproof.frontiers.interval import interval
from utfproof.frontiers.product_host import (
    defined,
    dimension,
    embed,
    product_host,
    reader_matrices,
    solve_products,
)
from utfproof.frontiers.questions import ALL, ALMOST_ALL, Question
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape
from utfproof.systems import Target

pytestmark = pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
DIMS = [(2, 1, 1, 1), (3, 1, 1, 1), (5, 1, 2, 1), (1, 2, 1, 1), (1, 3, 1, 1), (2, 2, 1, 1), (3, 2, 3, 1), (2, 3, 1, 1)]


def values_drawn(rng, count):
    """Numbers of all sizes, small integers, and few that are not 0."""
    drawn = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4)
    return [drawn, rng.integers(-2, 3, count).astype(float), drawn * rng.integers(0, 2, count)][rng.integers(3)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_products_take_all_values(count):
    q, k = (matrix.astype(float) for matrix in reader_matrices(count))
    rng = np.random.default_rng(count)
    for _ in range(300):
        wanted = values_drawn(rng, count)
        z = solve_products(wanted)
        assert np.abs((q @ z) * (k @ z) - wanted).max() <= 1e-7 * max(1, np.abs(wanted).max()), wanted


def test_one_product_has_one_sign():
    with pytest.raises(NotDefined, match="one sign"):
        reader_matrices(1)
    with pytest.raises(NotDefined):
        product_host(Shape(1, 1, 1, 1))
    assert not any(map(defined, [Shape(2, 2, 1, 2), Shape(2, 2, 1, 1, residual=True)]))


def test_the_quartic():
    """P(t_0) <= 0 exactly, and at a solution of (6) with y != 0 t = y^2 is a root."""
    rng = np.random.default_rng(3)

    def quartic(t, a, b, c):
        return 4 * t * t * (t + a) * (t + c) - (t * t + (2 * b + a + c) * t - b * b) ** 2

    for _ in range(300):
        x, y, z = (Fraction(int(n), 7) for n in rng.integers(-20, 21, 3))
        a, b, c = x * (x - 2 * y), y * (x + y + z), z * (z + 2 * y)
        t = max(Fraction(0), -a, -c)
        assert quartic(t, a, b, c) <= 0 <= quartic(10**6, a, b, c)
        assert quartic(y * y, a, b, c) == 0
        assert y * y >= t  # no root is lost below t_0
        assert quartic(y * y, a, b + 1, c) != 0 or y == 0 or b + 1 == b


def drawn_target(shape, rng):
    """Any target, with vanishing values and forms among them."""
    L, H, d = shape.layers, shape.heads, shape.head_dim
    sizes = [(L, H, 1, d), (L, H, 1, d), (L, H, 1, d), (L, H, d, 1)]
    return Target(shape, *(values_drawn(rng, int(np.prod(size))).clip(-3, 3).reshape(size) for size in sizes))


@pytest.mark.parametrize("dims", DIMS)
def test_hosts_of_products(dims):
    """Softmax outputs at any targets within 1e-9, the equations exactly at targets made from their z; faults are seen."""
    shape, rng = Shape(*dims), np.random.default_rng(1)
    host = product_host(shape)
    assert host.m == dimension(shape) == shape.word_count + shape.leaves
    assert host.tied == (shape.heads > 1)
    kernel = SoftmaxAttention(scale=1.0)
    x = rng.uniform(-1, 1, (6, 1))
    to_float = dataclasses.replace(
        host, **{name: np.array(getattr(host, name), dtype=float) for name in ("R_Q", "R_K", "R_V", "U")}
    )
    for _ in range(12):
        target = drawn_target(shape, rng)
        theirs = target.forward(x, kernel)
        ours = to_float.forward(x, embed(target).astype(float), kernel)
        assert np.abs(ours - theirs).max() <= 1e-9 * max(1, np.abs(theirs).max())
    one = shape.heads == 1
    z = exact(rng.integers(-3, 4, (1, shape.layers) if one else (shape.layers, shape.heads)))
    target = target_of(shape, z, exact(rng.integers(1, 2 if one else 4, (shape.layers, shape.heads))))
    given = iter(z)
    E = embed(target, lambda _: next(given))
    assert misses(host, target, E) == []
    for place in range(host.m):
        spoilt = E.copy()
        spoilt[0, place] += 1
        assert misses(host, target, spoilt) != []


def test_the_frontier_of_numbers_is_closed_for_all_targets():
    """d = d_in = 1: S + H^L, functionally and by attention-matching, but by attention-matching at one head and one layer."""
    for H in range(1, 5):
        for L in range(1, 5):
            shape = Shape(H, L, 1, 1)
            for notion in (Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL):
                for extent in (ALL, ALMOST_ALL):
                    known = interval(shape, Question(notion, extent=extent))
                    alone = (H, L, notion, extent) == (1, 1, Notion.ATTENTION_MATCHING, ALL)
                    assert known.closed
                    assert known.lower == (3 if alone else dimension(shape))
