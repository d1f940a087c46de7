"""Determinants of integer matrices, and how often that of R_all vanishes."""

import random
from fractions import Fraction

import pytest

from utfproof.errors import MalformedInput
from utfproof.exact.symbolic import determinant
from utfproof.shapes import Shape


def test_integer_determinant_against_flint():
    from flint import fmpz_mat

    rng = random.Random(9)
    for size in range(1, 8):
        table = [[rng.choice([0, 0, 1, -2, 5]) for _ in range(size)] for _ in range(size)]
        assert determinant.integer_determinant(table) == int(fmpz_mat(table).det())


# --- probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 5, 7, 101])
def test_schwartz_zippel_at_the_smallest_shape(p):
    # columns q, k, R_V u over GF(p), uniform: u = 0 or a uniform third column
    exact = 1 - (1 - Fraction(1, p**3)) * (1 - Fraction(1, p)) * (1 - Fraction(1, p**2)) * (1 - Fraction(1, p**3))
    bound = determinant.schwartz_zippel_bound(Shape(1, 1, 1, 1), p)
    assert exact <= bound == Fraction(4, p)
    assert exact > bound / 4
    with pytest.raises(MalformedInput):
        determinant.schwartz_zippel_bound(Shape(1, 1, 1, 1), 0)
