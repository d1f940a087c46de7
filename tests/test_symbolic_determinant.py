"""The determinant polynomial of R_all: along lines, and how often it vanishes."""

import random
from fractions import Fraction

import flint_modular
import numpy as np
import pytest
from test_symbolic import integers, numeric

from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, Refuted
from utfproof.exact import gfp
from utfproof.exact.symbolic import determinant
from utfproof.shapes import Shape, matching_dimension


def dense_parameters(host):
    """(R_Q, R_K, R_V, U) of an index-map host as exact arrays."""
    layers = range(1 if host.tied else host.shape.layers)

    def grid(pick):
        heads = range(host.shape.heads)
        table = [[pick(host.maps(layer, head)).to_dense(object) for head in heads] for layer in layers]
        return np.array(table[0] if host.tied else table, dtype=object)

    grids = [grid(lambda e: e.query), grid(lambda e: e.key), grid(lambda e: e.value[0])]
    return [*grids, host.U.to_dense(object)]


def modular_determinant(matrix, p):
    """Another engine altogether."""
    return flint_modular.determinant(gfp.residues_of_integers(np.array(matrix, dtype=object), p), p)


# --- the determinant polynomial ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 1), (2, 2, 1, 2), (1, 3, 2, 3)])
@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_determinant_on_a_line_from_the_sparse_host(dims, name):
    shape = Shape(*dims)
    M = matching_dimension(shape)
    host = build_host(name, shape, M)
    start = dense_parameters(host)
    evaluate = numeric(shape, M, host.tied)
    rng = random.Random(f"{dims}{name}")
    direction = [integers(rng, *a.shape) for a in start]
    degree = determinant.determinant_degree(shape)
    found = determinant.line_polynomial(determinant.along_line(evaluate, start, direction), degree)
    assert found.constant in (1, -1)
    assert found.degree == degree
    # homogeneous: the leading coefficient is the determinant at the direction itself
    assert found.coefficients[-1] == determinant.integer_determinant(evaluate(*direction).tolist()) != 0
    with pytest.raises(Refuted):
        determinant.line_polynomial(determinant.along_line(evaluate, start, direction), degree - 1)
    loose = determinant.line_polynomial(determinant.along_line(evaluate, start, direction), degree + 2)
    assert loose.coefficients == found.coefficients
    p, t = 32003, 1234
    assert found(t) % p == modular_determinant(determinant.along_line(evaluate, start, direction)(t), p)


def test_line_polynomials_of_small_matrices():
    found = determinant.line_polynomial(lambda t: [[t, 1], [1, t]], 2)
    assert found.coefficients == (-1, 0, 1)
    assert not set(found.fresh) & {0, 1, -1}
    assert determinant.line_polynomial(lambda t: [[t, t], [1, 1]], 3).coefficients == ()
    assert determinant.line_polynomial(lambda t: [[t, t], [1, 1]], 3).degree == -1
    with pytest.raises(Refuted):
        determinant.line_polynomial(lambda t: [[2 ** abs(t)]], 3)
    with pytest.raises(Refuted):
        determinant.line_polynomial(lambda t: [[t * (t - 1) // 2]], 2)


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
