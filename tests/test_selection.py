"""Selection matrices against dense matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utfproof.errors import MalformedInput
from utfproof.util.arrays import hstack
from utfproof.util.selection import Partition, SelectionMatrix


@st.composite
def selections(draw, rows=None):
    """A selection matrix between partitions of equal cells (any pairs)."""
    width = draw(st.integers(1, 3)) if rows is None else int(rows.widths[0])
    if rows is None:
        rows = Partition.of_widths([width] * draw(st.integers(1, 5)))
    columns = Partition.of_widths([width] * draw(st.integers(1, 5)))
    pairs = draw(st.lists(st.tuples(st.integers(0, rows.cells - 1), st.integers(0, columns.cells - 1)), max_size=8))
    r = np.array([p[0] for p in pairs], dtype=np.int64)
    c = np.array([p[1] for p in pairs], dtype=np.int64)
    return SelectionMatrix(rows, columns, r, c)


@given(st.data())
def test_products_agree_with_dense(data):
    a = data.draw(selections())
    b = data.draw(selections(rows=a.columns))
    assert np.array_equal((a @ b).to_dense(), a.to_dense() @ b.to_dense())
    assert np.array_equal(a.transposed().to_dense(), a.to_dense().T)
    assert np.array_equal(hstack([a, a]).to_dense(), np.hstack([a.to_dense(), a.to_dense()]))


@given(selections(), st.integers(1, 3))
def test_gather_agrees_with_dense_in_every_arithmetic(matrix, tokens):
    integers = np.arange(tokens * matrix.shape[0]).reshape(tokens, -1) - 3
    expected = integers @ matrix.to_dense()
    assert np.array_equal(integers.astype(float) @ matrix, expected)
    found = integers.astype(object) @ matrix
    assert found.dtype == object
    assert np.array_equal(found, expected)
    torch = pytest.importorskip("torch")
    assert np.array_equal((torch.from_numpy(integers).double() @ matrix).numpy(), expected)


@given(selections())
def test_unit_rows_exist_iff_columns_are_different_unit_vectors(matrix):
    dense = matrix.to_dense()
    units = (dense.sum(axis=0) == 1).all() and (dense.max(axis=0, initial=1) == 1).all()
    rows = matrix.unit_rows()
    if rows is None:
        assert not units or len(np.unique(dense, axis=1).T) < dense.shape[1]
    else:
        assert units
        assert np.array_equal(dense[rows, np.arange(dense.shape[1])], np.ones(dense.shape[1]))
        assert len(set(rows.tolist())) == len(rows)


@given(selections())
def test_two_factors_pick_the_rows_that_are_read_and_no_other(matrix):
    pick, rest = matrix.read_first
    dense = matrix.to_dense()
    assert np.array_equal(pick.to_dense() @ rest.to_dense(), dense)
    assert pick.shape[1] == (dense.sum(axis=1) > 0).sum()


def test_unequal_cells_pair_over_the_smaller_width():
    rows, columns = Partition.of_widths([3]), Partition.of_widths([2, 2])
    matrix = SelectionMatrix(rows, columns, np.array([0]), np.array([1]))
    assert matrix.to_dense().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert matrix.unit_rows() is None


def test_misaligned_products_are_refused_not_wrong():
    wide, narrow = Partition.of_widths([3]), Partition.of_widths([2])
    cut = SelectionMatrix(wide, narrow, np.array([0]), np.array([0]))
    back = SelectionMatrix(narrow, wide, np.array([0]), np.array([0]))
    with pytest.raises(MalformedInput, match="unequal width"):
        _ = cut @ back  # the product is the identity on two of three coordinates: no pair of whole cells says so
    assert np.array_equal((back @ cut).to_dense(), np.eye(2))
    with pytest.raises(MalformedInput, match="cannot multiply"):
        _ = cut @ cut
    with pytest.raises(MalformedInput, match="cannot multiply"):
        _ = np.ones((2, 5)) @ cut
