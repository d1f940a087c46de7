"""Symbolic routes: the determinant polynomial, probabilities, blocks, spanning, null vectors."""

import random
from fractions import Fraction

import flint_modular
import numpy as np
import pytest
from cases import SMALL_SHAPES, TABLE_SHAPES
from test_symbolic import GENERIC, GRID, integers, numeric, random_parameters, values

from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, Refuted
from utfproof.exact import gfp, rational
from utfproof.exact.symbolic import blocks, determinant, generic, lower_bound
from utfproof.exact.symbolic.words import RoutesDisagree
from utfproof.matching import r_all
from utfproof.shapes import Shape, head_words, matching_dimension


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


@pytest.mark.parametrize("dims", [*SMALL_SHAPES, (1, 2, 1, 2, 3), *TABLE_SHAPES.values()])
def test_degree_is_the_sum_of_column_degrees(dims):
    shape = Shape(*dims)
    degrees = determinant.column_degrees(shape)
    assert len(degrees) == matching_dimension(shape)
    assert sum(degrees) == determinant.determinant_degree(shape)


@pytest.mark.parametrize(("dims", "m"), GENERIC)
@pytest.mark.parametrize("tied", [False, True])
def test_columns_are_homogeneous(dims, m, tied, monkeypatch):
    matrix = generic.generic_r_all(Shape(*dims), m, tied=tied)
    assert determinant.homogeneous_columns(matrix) == (True, "")
    right = determinant.column_degrees
    monkeypatch.setattr(determinant, "column_degrees", lambda shape: [*right(shape)[:-1], right(shape)[-1] - 1])
    holds, reason = determinant.homogeneous_columns(matrix)
    assert not holds
    assert f"(0, {matching_dimension(Shape(*dims)) - 1})" in reason


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 2, 1), (2, 1, 1, 1)])
@pytest.mark.parametrize("tied", [False, True])
def test_determinant_in_full(dims, tied):
    shape = Shape(*dims)
    found = determinant.determinant_polynomial(shape, tied=tied)
    assert found.degrees == (determinant.determinant_degree(shape),)
    symbols, M = generic.generic_r_all(shape, tied=tied), matching_dimension(shape)
    rng = random.Random(str(dims))
    for _ in range(2):
        parameters = random_parameters(rng, shape, M, tied)
        matrix = numeric(shape, M, tied)(*parameters)
        value = found.evaluate(symbols.values(*parameters))
        assert value == determinant.integer_determinant(matrix.tolist())
        assert value % 32003 == modular_determinant(matrix, 32003)


def test_a_permutation_sum_without_signs_is_no_determinant(monkeypatch):
    monkeypatch.setattr(determinant, "combinations", lambda *_: ())
    with pytest.raises(RoutesDisagree):
        determinant.determinant_polynomial(Shape(1, 1, 1, 1))


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


# --- blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", SMALL_SHAPES)
@pytest.mark.parametrize("name", ["sparse", "sparse-front", "tied"])
@pytest.mark.parametrize("padding", [0, 2])
def test_repaired_hosts_are_block_diagonal(dims, name, padding):
    shape = Shape(*dims)
    M = matching_dimension(shape)
    matrix = r_all(build_host(name, shape, M + padding)).to_dense(object)
    found = blocks.block_diagonal(matrix)
    assert (found.holds, found.reason) == (True, "")
    assert np.array_equal(matrix[list(found.permutation)], np.eye(M + padding, M, dtype=int))
    sizes = blocks.block_sizes(shape)
    assert [kind for kind, _, _ in sizes] == ["Q", "K", "OV"]
    assert sum(count * width for _, count, width in sizes) == M


def test_block_diagonal_recovers_a_permutation():
    rng = random.Random(4)
    order = list(range(9))
    rng.shuffle(order)
    matrix = [[int(order[row] == column) for column in range(9)] for row in range(9)]
    found = blocks.block_diagonal(matrix)
    assert [order[row] for row in found.permutation] == list(range(9))


def test_printed_tree_is_not_block_diagonal():
    host = build_host("printed-tree-row", Shape(2, 2, 1, 2), 20)
    assert not blocks.block_diagonal(r_all(host).to_dense(object)).holds


# --- spanning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "layers"), [*GRID, (4, 3)])
@pytest.mark.parametrize("order", lower_bound.ORDERS)
def test_spanning(heads, layers, order):
    found = lower_bound.spanning(heads, layers, order=order)
    assert (found.holds, found.difference) == (True, "0")
    assert found.vectors == found.rank == heads**layers


@pytest.mark.parametrize("order", lower_bound.ORDERS)
def test_spanning_faults(order, monkeypatch):
    monkeypatch.setattr(lower_bound, "MOVE", [[0, 1], [1, 0]])
    assert lower_bound.spanning(2, 1, order=order).holds
    found = lower_bound.spanning(2, 2, order=order)
    assert not found.holds
    assert found.difference == "v^(s)_h = 1 at s = (0, 0), h = (1, 1)"
    monkeypatch.setattr(lower_bound, "MOVE", [[1, 0], [1, 0]])
    assert not lower_bound.spanning(2, 2, order=order).holds


NULL = [(2, 2, 1), (2, 3, 1), (2, 3, 2), (3, 2, 2), (2, 4, 3), (4, 2, 3), (3, 3, 5), (2, 5, 5)]


@pytest.mark.parametrize(("heads", "layers", "m"), NULL)
@pytest.mark.parametrize("tied", [False, True])
def test_null_vector(heads, layers, m, tied):
    R = values(heads, layers, m, tied=tied)
    found = lower_bound.null_vector(R, heads, layers, tied=tied)
    A = lower_bound.word_products(R, heads, layers, tied=tied)
    assert A.shape == (heads**layers, m * m)
    assert any(found.y)
    assert not np.array(found.y, dtype=object).dot(A).any()
    products = [
        int(np.prod([found.weights[layer][head] for layer, head in enumerate(word)]))
        for word in head_words(heads, layers)
    ]
    assert sum(products) == 1
    assert found.pairing == sum(a * b for a, b in zip(found.y, products, strict=True)) != 0
    assert found.rank <= m * m < heads**layers
    # b raises the rank: it is no combination of A's columns
    b = np.array(products, dtype=object)[:, None]
    assert rational.rank(np.concatenate([A, b], axis=1)) == found.rank + 1


@pytest.mark.parametrize(("heads", "layers", "m"), [(2, 2, 2), (1, 3, 1), (2, 3, 3), (3, 2, 3)])
def test_no_null_vector_from_the_bound_on(heads, layers, m):
    assert lower_bound.null_vector(values(heads, layers, m), heads, layers) is None


def test_null_vector_at_a_chosen_word():
    R = values(2, 3, 2, seed=3)
    first = lower_bound.null_vector(R, 2, 3)
    for word in head_words(2, 3):
        coefficient = first.y[4 * word[0] + 2 * word[1] + word[2]]
        if coefficient:
            found = lower_bound.null_vector(R, 2, 3, word=word)
            assert (found.word, found.pairing) == (word, coefficient)
            assert found.tied_target == (len(set(word)) == 1)
        else:
            with pytest.raises(MalformedInput):
                lower_bound.null_vector(R, 2, 3, word=word)


def test_counting_host_has_no_tied_witness():
    # R^1 = I, R^2 = shift, m = 7: words with equal counts agree, constant words stand alone; 49 < 64
    shift = np.eye(7, k=1, dtype=int)
    R = np.stack([np.eye(7, dtype=int), shift])
    found = lower_bound.null_vector(R, 2, 6, tied=True)
    assert found.rank == 7
    assert not found.tied_target
    assert found.y[0] == found.y[-1] == 0


def test_null_vector_faults():
    R = values(2, 3, 2, seed=1)
    found = lower_bound.null_vector(R, 2, 3)
    grid = [[matrix.tolist() for matrix in layer] for layer in R]
    assert lower_bound.relation_pairing(grid, found.y, found.weights) == found.pairing
    changed = list(found.y)
    changed[0] += 1
    other = [[[[x + 1 for x in row] for row in matrix] for matrix in layer] for layer in grid]
    zero_weights = [(0, 0)] * 3
    for bad in (
        (grid, changed, found.weights),
        (grid, [0] * 8, found.weights),
        (grid, found.y, zero_weights),
        (other, found.y, found.weights),
        (grid[::-1], found.y, found.weights),
        ([layer[::-1] for layer in grid], found.y, found.weights),
        ([[list(map(list, zip(*x, strict=True))) for x in layer] for layer in grid], found.y, found.weights),
    ):
        with pytest.raises(RoutesDisagree):
            lower_bound.relation_pairing(*bad)
