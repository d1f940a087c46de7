"""Every construction: definitions against slow ones, ranks on the grid, sparsity, padding, where it is defined."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from cases import (
    MATCHING,
    PRINTED,
    PRINTED_TREE_RANKS,
    SHARED,
    SMALL_SHAPES,
    TABLE_SHAPES,
    UNEQUAL_SHAPES,
    WIDE_SHAPES,
    grid,
)
from naive import dense, host_matrices, prefix_tree, trie_and_register
from naive import r_all as naive_r_all

from utfproof.certificates import checker
from utfproof.constructions import CONSTRUCTIONS, build_host, construction, hosts
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension, paper_looped_dimension

FORMAT = (Path(__file__).parents[1] / "docs" / "certificate-format.md").read_text()


def defined(names, shapes):
    """(name, dimensions) wherever the construction exists."""
    pairs = []
    for name, dims in itertools.product(names, shapes):
        try:
            construction(name).dimension(Shape(*dims))
        except NotDefined:
            continue
        pairs.append((name, dims))
    return pairs


@pytest.mark.parametrize("name", MATCHING)
def test_permutation_on_the_whole_grid(name):
    """mathematics section 4, exhaustively for H <= 4, L <= 5, d <= 3, d_in <= 5, M <= 3000: R_all at m = M is a
    permutation matrix."""
    shapes = grid()
    assert len(shapes) > 190
    for shape in shapes:
        host = build_host(name, shape)
        M = matching_dimension(shape)
        rows = r_all(host).unit_rows()
        assert host.m == M, shape
        assert rows is not None, shape
        assert sorted(rows.tolist()) == list(range(M)), shape


INDEX_MAPS = hosts(drawn=False)


@pytest.mark.parametrize(("name", "dims"), defined(INDEX_MAPS, [*SMALL_SHAPES, *WIDE_SHAPES, *UNEQUAL_SHAPES]))
@pytest.mark.parametrize("padding", [0, 3])
def test_backward_r_all_is_the_definition(name, dims, padding):
    shape = Shape(*dims)
    host = build_host(name, shape, construction(name).dimension(shape) + padding)
    assert np.array_equal(r_all(host).to_dense(object), naive_r_all(host))


@pytest.mark.parametrize("dims", [*SMALL_SHAPES, *UNEQUAL_SHAPES])
def test_sparse_and_tied_are_as_described(dims):
    shape = Shape(*dims)
    H, L, d, d_out = shape.heads, shape.layers, shape.head_dim, shape.d_out
    R_Q, R_K, R_V, U = prefix_tree(H, L, d, d_out)
    table, found_U = host_matrices(build_host("sparse", shape))
    assert np.array_equal(found_U, U)
    for layer in range(1, L + 1):
        for h in range(H):
            expected = (R_Q[layer - 1][h], R_K[layer - 1][h], R_V[layer - 1][h])
            for kind, matrix in zip("QKV", expected, strict=True):
                assert np.array_equal(table[kind, layer, h], matrix)
    R_Q, R_K, R_V, U = trie_and_register(H, L, d, d_out)
    host = build_host("tied", shape)
    assert np.array_equal(dense(host.U), U)
    for h in range(H):
        for found, matrix in zip((host.R_Q[h], host.R_K[h], host.R_V[h]), (R_Q[h], R_K[h], R_V[h]), strict=True):
            assert np.array_equal(dense(found), matrix)


@pytest.mark.parametrize(
    ("name", "dims"), defined([*MATCHING, *SHARED], [*TABLE_SHAPES.values(), *WIDE_SHAPES, (1, 3, 2, 2)])
)
def test_entries_are_bits_and_at_most_m_per_matrix(name, dims):
    shape = Shape(*dims)
    host = build_host(name, shape)
    for layer in range(shape.layers):
        for head in range(shape.heads):
            query, key, (value,) = host.maps(layer, head)
            for matrix in (query, key, value, host.U):
                assert matrix.nonzeros <= host.m
                rows, columns = matrix.coordinates()
                assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == matrix.nonzeros


@pytest.mark.parametrize("dims", PRINTED_TREE_RANKS)
def test_the_printed_tree_copies_each_block_into_its_child_and_nothing_else(dims):
    """R_V^{l,h} from the text: ones from each block of depth l - 1 to its child h, as far as both reach; or its transpose."""
    shape = Shape(*dims)
    H, L = shape.heads, shape.layers
    blocks, end = {}, 0
    for depth in range(L + 1):
        width = shape.d_in if depth == L else 2 * H * shape.head_dim
        for word in itertools.product(range(H), repeat=depth):
            blocks[word], end = (end, width), end + width
    rows, columns = (build_host(f"printed-tree-{name}", shape) for name in ("row", "column"))
    for layer, head in itertools.product(range(L), range(H)):
        wanted = np.zeros((end, end), dtype=int)
        for word in itertools.product(range(H), repeat=layer):
            (parent, wide), (child, narrow) = blocks[word], blocks[*word, head]
            for i in range(min(wide, narrow)):
                wanted[parent + i, child + i] = 1
        assert np.array_equal(rows.maps(layer, head).value[0].to_dense(int), wanted)
        assert np.array_equal(columns.maps(layer, head).value[0].to_dense(int), wanted.T)


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 3, 2, 3), (2, 1, 1, 2), (2, 2, 1, 5), (3, 2, 2, 1)])
def test_printed_hosts_of_equal_blocks_read_where_the_text_says(dims):
    """One head: readers at B_l, a left shift, U at B_{L+1}. Looped: R_Q^h = R_V^h U_Q, R_K^h = R_V^h U_K, U at the root."""
    shape = Shape(*dims)
    d, L, b = shape.head_dim, shape.layers, max(2 * shape.head_dim, shape.d_in)

    def parts(host, layer, head):
        maps = host.maps(layer, head)
        return [matrix.to_dense(int) for matrix in (maps.query, maps.key, maps.value[0])]

    looped = build_host("printed-looped", shape)
    one = np.eye(looped.m, dtype=int)
    for head in range(shape.heads):
        query, key, value = parts(looped, 0, head)
        assert np.array_equal(query, value @ one[:, :d])
        assert np.array_equal(key, value @ one[:, d : 2 * d])
    assert np.array_equal(looped.U.to_dense(int), one[:, : shape.d_in])
    if shape.heads == 1:
        single = build_host("printed-single-head", shape)
        one = np.eye(single.m, dtype=int)
        for layer in range(L):
            query, key, value = parts(single, layer, 0)
            assert np.array_equal(query, one[:, layer * b : layer * b + d])
            assert np.array_equal(key, one[:, layer * b + d : layer * b + 2 * d])
            assert np.array_equal(value, np.eye(single.m, k=-b, dtype=int))
        assert np.array_equal(single.U.to_dense(int), one[:, L * b : L * b + shape.d_in])


@pytest.mark.parametrize("dims", PRINTED_TREE_RANKS)
@pytest.mark.parametrize("name", ["printed-tree-row", "printed-tree-column"])
def test_printed_tree_ranks(name, dims):
    shape = Shape(*dims)
    rank, M = PRINTED_TREE_RANKS[dims]
    assert matching_dimension(shape) == M
    assert rational.rank(r_all(build_host(name, shape)).to_dense(object)) == rank


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 1, 2, 3), (1, 3, 2, 3), (1, 2, 1, 4)])
def test_printed_single_head_never_has_full_rank(dims):
    """It fails already at L = 1: U reads zero after the shift."""
    shape = Shape(*dims)
    host = build_host("printed-single-head", shape)
    assert host.m == (shape.layers + 1) * max(2 * shape.head_dim, shape.d_in) >= matching_dimension(shape)
    matrix = r_all(host).to_dense(object)
    assert rational.rank(matrix) < matching_dimension(shape)
    if shape.layers == 1:
        assert not matrix[:, -shape.d_out :].any()


@pytest.mark.parametrize("shape", grid(3, 3, 2, 4, 400), ids=str)
def test_printed_looped_fails_everywhere(shape):
    host = build_host("printed-looped", shape)
    assert host.m == paper_looped_dimension(shape)
    assert rational.rank(r_all(host).to_dense(object)) < matching_dimension(shape)


@pytest.mark.parametrize("name", INDEX_MAPS)
def test_padding_adds_zero_coordinates(name):
    where = {
        "printed-single-head": Shape(1, 2, 3, 2),
        "shared-query-groups": Shape(2, 2, 2, 3),
        "sharing": Shape(2, 2, 2, 3),
        "pairs": Shape(2, 1, 7, 7),
        "commuting-trie": Shape(2, 2, 2, 1),
        "shared-query-functional": Shape(1, 2, 3, 1),
        "residual-key": Shape(2, 2, 3, 2, residual=True),
    }
    shape = where.get(name, Shape(2, 2, 3, 2))
    plain = build_host(name, shape)
    padded = build_host(name, shape, plain.m + 5)
    before, after = r_all(plain).to_dense(), r_all(padded).to_dense()
    assert np.array_equal(after[: plain.m], before)
    assert not after[plain.m :].any()
    with pytest.raises(NotDefined, match=f"needs m >= {plain.m}, got {plain.m - 1}"):
        build_host(name, shape, plain.m - 1)


@pytest.mark.parametrize(
    ("name", "dims", "message"),
    [
        ("shared-key", (2, 2, 2, 3), "needs head_dim >= d_in"),
        ("shared-query", (2, 2, 2, 3), "needs head_dim >= d_out"),
        ("shared-query", (2, 2, 3, 2, 4), "needs head_dim >= d_out"),
        ("printed-single-head", (2, 2, 2, 2), "needs H = 1"),
    ],
)
def test_undefined_shapes_are_refused(name, dims, message):
    with pytest.raises(NotDefined, match=message):
        build_host(name, Shape(*dims))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: build_host("sparce", Shape(2, 2, 2, 2)), MalformedInput),
        (lambda: build_host("sparse", Shape(2, 2, 2, 2), 0), MalformedInput),
        (lambda: build_host("sparse", Shape(2, 2, 2, 2), True), MalformedInput),
        (lambda: build_host("random", Shape(2, 2, 2, 2), law="gauss"), MalformedInput),
        (lambda: build_host("random", Shape(2, 2, 2, 2), seed=-1), MalformedInput),
        (lambda: build_host("random", Shape(2, 4, 30, 30), max_memory=10**8), ResourceLimit),
        (lambda: build_host("sparse", Shape(4, 12, 64, 128)), ResourceLimit),
        (lambda: build_host("tied", Shape(10, 1000, 1, 1)), ResourceLimit),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("name", ["random", "random-tied"])
def test_random_hosts_repeat(name):
    shape = Shape(2, 2, 1, 2)
    first, again = build_host(name, shape, seed=5), build_host(name, shape, seed=5)
    other = build_host(name, shape, seed=6)
    assert np.array_equal(first.R_V, again.R_V)
    assert not np.array_equal(first.R_V, other.R_V)
    assert first.m == matching_dimension(shape)
    lead = (2,) if name == "random-tied" else (2, 2)
    assert first.R_V.shape == (*lead, first.m, first.m)


@pytest.mark.parametrize("name", PRINTED)
def test_printed_constructions_claim_no_notion(name):
    assert CONSTRUCTIONS[name].notion is None


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_checkers_and_the_format_know_what_the_registry_says(name):
    """Which matrices a checker has by name, which of them are permutations, which embeddings it follows; the page says them."""
    entry = CONSTRUCTIONS[name]
    named = entry.identity or name
    assert entry.rebuilt == (name in {*checker.INDEX_HOSTS, *checker.RANDOM})
    assert entry.permutation == (name in checker.PERMUTATIONS)
    assert bool(entry.identity) == (named in checker.IDENTITIES)
    assert not entry.certified or f"`{named}`" in FORMAT
