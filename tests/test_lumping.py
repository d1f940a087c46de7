"""Hosts on classes of their coordinates, against the hosts themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utfproof.attention import RationalAttention, SeededAttention
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.emulation import lumping
from utfproof.emulation.compare import random_input, relative_error
from utfproof.emulation.engines import Engine, Placement
from utfproof.emulation.lumping import lumped
from utfproof.errors import NotDefined
from utfproof.ground.arrays import exact, to_numpy
from utfproof.ground.selection import SelectionMatrix, uniform
from utfproof.matching import Embedder, r_all, suffix_stacks
from utfproof.shapes import Shape
from utfproof.systems import TiedUniversal, Universal

SHAPES = [(2, 2, 2, 2), (2, 3, 1, 2), (3, 2, 2, 1), (1, 3, 2, 2), (2, 3, 1, 1)]
KERNEL = RationalAttention(causal=True)


def index_map_hosts():
    """Every construction of index maps at every shape that it knows."""
    for name in CONSTRUCTIONS:
        for numbers in SHAPES:
            for residual in (False, True):
                try:
                    host = build_host(name, Shape(*numbers, residual=residual))
                except NotDefined:
                    continue
                if isinstance(getattr(host, "U", None), SelectionMatrix) and hasattr(host, "R_Q") and host.mlp is None:
                    yield pytest.param(host, id=f"{name}-{','.join(map(str, numbers))}{'-residual' * residual}")


HOSTS = list(index_map_hosts())


def same(host, seed=0, found=None):
    """Whether the host on its classes computes what the host does, of some rational E and X."""
    rng = np.random.default_rng(seed)
    E = exact(rng.integers(-3, 4, (host.shape.d_in, host.m)))
    x = exact(rng.integers(-2, 3, (3, host.shape.d_in)))
    found = lumped(host) if found is None else found
    return (found.forward(x, found.taken(E), KERNEL) == host.forward(x, E, KERNEL)).all()


def random_host(data, tied):
    """Few coordinates, so that many of them are alike or dead; a map may send one to two places."""
    shape = Shape(2, 2, 1, 2, residual=data.draw(st.booleans()))
    m = 5

    def index_map(columns):
        ones = data.draw(st.sets(st.tuples(st.integers(0, m - 1), st.integers(0, columns - 1)), max_size=m + 2))
        cells = np.array(sorted(ones), dtype=np.int64).reshape(-1, 2).T
        return SelectionMatrix(uniform(m, 1), uniform(columns, 1), *cells)

    grids = [[[index_map(columns) for _ in range(2)] for _ in range(1 if tied else 2)] for columns in (1, 1, m)]
    parts = [grid[0] if tied else grid for grid in grids]
    return (TiedUniversal if tied else Universal)(shape, m, *parts, index_map(2))


@pytest.mark.parametrize("host", HOSTS)
def test_a_lumped_host_is_the_host(host):
    assert same(host)


@settings(max_examples=40)
@given(st.data(), st.booleans(), st.integers(0, 9))
def test_any_index_maps(data, tied, seed):
    host = random_host(data, tied)
    if (found := lumped(host)) is not None:
        assert same(host, seed, found)


@pytest.mark.parametrize("host", HOSTS)
def test_classes_are_what_the_equations_tell_apart(host):
    """A second route: rows of the dense suffix stack S_l, which holds all that reads the stream before layer l. Both share the
    index maps' coordinates."""
    found = lumped(host)
    widths = [found.maps(layer, 0).query.shape[0] for layer in range(host.shape.layers)] + [found.U.shape[0]]
    for stack in suffix_stacks(host):
        dense = stack.columns.to_dense()
        rows = dense[dense.any(axis=1)]
        assert widths[stack.layer] == (len(np.unique(rows, axis=0)) if stack.layer else len(rows))
    assert np.array_equal(r_all(found).to_dense(), r_all(host).to_dense()[found.kept])


def test_streams_shrink_from_layer_to_layer():
    found = lumped(build_host("sparse", Shape(2, 4, 12, 12)))
    assert [found.maps(layer, 0).query.shape[0] for layer in range(4)] == [912, 432, 192, 72]
    assert found.U.shape == (12, 12)
    assert found.averaged == [2 * 12, 2 * 192, 2 * 72, 2 * 12]  # layer 1 averages X itself


def test_coordinates_that_are_read_twice():
    host = build_host("tied", Shape(2, 2, 2, 2))
    cells = (np.repeat(c, 2) for c in (host.U.row_cells, host.U.column_cells))
    twice = replace(host, U=SelectionMatrix(host.U.rows, host.U.columns, *cells))
    found = lumped(twice)
    assert np.array_equal(r_all(found).to_dense(), r_all(twice).to_dense()[found.kept])
    assert lumped(build_host("random", Shape(2, 2, 2, 2))) is None


@pytest.mark.parametrize("reader", range(7))
def test_a_reader_that_is_not_asked_is_noticed(monkeypatch, reader):
    """R_Q, R_K and R_V of both heads, and the residual stream: without one, coordinates that differ are taken for alike."""
    host, classes = build_host("sparse", Shape(2, 3, 2, 3, residual=True)), lumping._classes

    def coarser(readers, apart=False):
        if len(found := readers.columns.offsets) > 4:
            widths = [2] * 4 + [(len(found) - 9) // 3] * 3
            left = np.cumsum([0, *widths])[reader]
            keep = (readers.column_cells < left) | (readers.column_cells >= left + widths[reader])
            readers = replace(readers, row_cells=readers.row_cells[keep], column_cells=readers.column_cells[keep])
        return classes(readers, apart=apart)

    assert same(host)
    monkeypatch.setattr(lumping, "_classes", coarser)
    assert not same(host)


def swapped(matrix):
    """The matrix with the columns of its first two ones exchanged."""
    columns = matrix.column_cells.copy()
    columns[[0, 1]] = columns[[1, 0]]
    return replace(matrix, column_cells=columns)


@pytest.mark.parametrize("tensor", ["kept", "R_Q", "R_V", "U", "passed"])
def test_a_lumped_host_that_is_wrong_is_noticed(tensor):
    host = build_host("sparse", Shape(2, 2, 2, 2, residual=True))
    found = lumped(host)
    value = getattr(found, tensor)
    if tensor == "kept":
        wrong = np.roll(value, 1)
    elif tensor == "U":
        wrong = swapped(value)
    elif tensor == "passed":
        wrong = [swapped(value[0]), *value[1:]]
    else:
        wrong = [(swapped(value[0][0]), *value[0][1:]), *value[1:]]
    assert not same(host, found=replace(found, **{tensor: wrong}))


@pytest.mark.numerical
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", ["sparse", "tied"])
@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_engine_runs_what_the_full_pass_runs(name, residual, device):
    """In floats, for one E and for a batch, whatever E is."""
    if device != "cpu":
        pytest.importorskip("torch")
    place = Placement(device)
    shape = Shape(2, 3, 2, 3, residual=residual)
    host, kernel = build_host(name, shape), SeededAttention()
    engine = Engine(Embedder(host), "index-map", place)
    E = np.random.default_rng(0).normal(size=(2, shape.d_in, host.m))
    x = np.stack([random_input(shape, 9, trial) for trial in range(2)])
    found = to_numpy(engine.run(place.array(x), engine.prepare(E), kernel))
    assert relative_error(found, host.forward(x, E, kernel)) < 1e-14
