"""Shapes, words, canonical order, dimension formulas."""

import itertools

import numpy as np
import pytest
from cases import PAPER_M_BAR, SMALL_SHAPES, TABLE_SHAPES, grid
from hypothesis import given
from hypothesis import strategies as st

from utfproof import shapes
from utfproof.errors import MalformedInput
from utfproof.paper import formulas
from utfproof.shapes import Shape

FIELDS = ("heads", "layers", "head_dim", "d_in", "d_out")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("bad", [0, -1, True, False, 1.0, 2.5, "2", None, np.float64(3), np.bool_(True), float("nan")])
def test_nonsense_is_refused_by_name(field, bad):
    values = dict.fromkeys(FIELDS, 2)
    values[field] = bad
    if field == "d_out" and bad is None:  # the documented default
        assert Shape(**values).d_out == 2
        return
    with pytest.raises(MalformedInput, match=f"{field} must be a positive integer"):
        Shape(**values)


def test_numpy_integers_are_integers():
    shape = Shape(np.int64(2), np.int32(3), np.uint8(1), 4)
    assert shape == Shape(2, 3, 1, 4)
    assert all(type(getattr(shape, field)) is int for field in FIELDS)


def test_wide_heads_warn_with_the_effective_dimension():
    with pytest.warns(shapes.EffectiveHeadDimensionWarning, match="effective head dimension is 2"):
        Shape(1, 1, 3, 2)


@pytest.mark.parametrize("name", TABLE_SHAPES)
def test_paper_tables(name):
    shape = Shape(*TABLE_SHAPES[name])
    assert shapes.paper_dimension(shape) == PAPER_M_BAR[name] == shapes.matching_dimension(shape)
    assert shapes.paper_looped_dimension(shape) < shapes.matching_dimension(shape)


def test_figures_of_the_frontier():
    parentheses, four_hop = Shape(4, 2, 24, 4), Shape(2, 4, 30, 30)
    assert shapes.paper_looped_dimension(parentheses) == 1008
    assert shapes.linear_test_dimension(parentheses) == 624
    assert (shapes.shared_key_dimension(parentheses), shapes.shared_query_dimension(parentheses)) == (
        164,
        144,
    )
    assert (shapes.shared_key_dimension(four_hop), shapes.shared_query_dimension(four_hop)) == (1830, 1380)


@pytest.mark.parametrize("shape", grid(layers=4, largest=10**6), ids=str)
def test_formulas_count_words(shape):
    H, L, d, d_in = shape.heads, shape.layers, shape.head_dim, shape.d_in
    S = sum(1 for t in range(1, L + 1) for _ in shapes.head_words(H, t))
    leaves = sum(1 for _ in shapes.head_words(H, L))
    assert (shape.word_count, shape.leaves) == (S, leaves)
    assert shapes.matching_dimension(shape) == 2 * d * S + d_in * leaves
    assert formulas.printed_random_count(shape) == d * S + d_in * leaves
    assert H * formulas.printed_looped_random_count(shape) == 2 * d * S + H * d_in * leaves
    assert shapes.linear_test_dimension(shape) == (d + d_in) * S + d_in * leaves
    assert shapes.shared_key_dimension(shape) == d_in * (1 + 2 * S)
    assert shapes.shared_query_dimension(shape) == d_in * (S + leaves)
    assert shapes.paper_looped_dimension(shape) == (1 + S) * max(2 * d, d_in)
    expected = (L + 1) * max(2 * d, d_in) if H == 1 else sum(H**t * 2 * H * d for t in range(L)) + leaves * d_in
    assert shapes.paper_dimension(shape) == expected


def test_output_width_counts_output_columns_only():
    assert shapes.matching_dimension(Shape(2, 2, 1, 2, 5)) == 2 * 6 + 5 * 4
    assert shapes.linear_test_dimension(Shape(2, 2, 3, 2, 5)) == (3 + 2) * 6 + 5 * 4


@given(st.integers(1, 5), st.integers(0, 4), st.data())
def test_words_are_numbered_lexicographically(alphabet, length, data):
    listed = list(shapes.head_words(alphabet, length))
    assert listed == sorted(itertools.product(range(alphabet), repeat=length))
    index = data.draw(st.integers(0, len(listed) - 1))
    assert shapes.word_at(index, length, alphabet) == listed[index]


@pytest.mark.parametrize("dims", SMALL_SHAPES)
def test_canonical_column_order(dims):
    shape = Shape(*dims)
    expected = [
        (kind, word, j)
        for kind in "QK"
        for length in range(1, shape.layers + 1)
        for word in itertools.product(range(shape.heads), repeat=length)
        for j in range(shape.head_dim)
    ]
    expected += [
        ("OV", word, j)
        for word in itertools.product(range(shape.heads), repeat=shape.layers)
        for j in range(shape.d_out)
    ]
    found = [shapes.column_at(shape, c) for c in range(shapes.matching_dimension(shape))]
    assert [tuple(c) for c in found] == expected
    assert [shapes.column_index(shape, c) for c in found] == list(range(len(expected)))


@pytest.mark.parametrize(
    "call",
    [
        lambda s: shapes.column_at(s, -1),
        lambda s: shapes.column_at(s, 8),
        lambda s: shapes.column_index(s, shapes.Column("Q", (0, 0), 0)),
        lambda s: shapes.column_index(s, shapes.Column("Q", (0,), 1)),
        lambda s: shapes.column_index(s, shapes.Column("OV", (2,), 0)),
        lambda s: shapes.word_at(2, 1, 2),
        lambda s: shapes.head_words(2, -1),
        lambda s: shapes.head_words(0, 1),
    ],
)
def test_out_of_range_is_refused(call):
    with pytest.raises(MalformedInput):
        call(Shape(2, 1, 1, 2))
