"""Planted faults: each breaks the code that a claim rests on, and each must be seen."""

import dataclasses

import numpy as np
import pytest

from utfproof import systems
from utfproof.attention import parse_kernel
from utfproof.constructions import build_host, random_target
from utfproof.emulation.compare import compare, random_input, relative_error
from utfproof.matching import embed, equations, r_all, w_all
from utfproof.shapes import Shape
from utfproof.util.selection import SelectionMatrix

pytestmark = pytest.mark.numerical

SHAPE = Shape(2, 2, 2, 3)


def transposed_values(host):
    return dataclasses.replace(host, R_V=[[v.transposed() for v in row] for row in host.R_V])


def swapped_heads(host):
    return dataclasses.replace(host, R_V=[row[::-1] for row in host.R_V])


def dropped_query_block(host):
    first = host.R_Q[1][0]
    cut = SelectionMatrix(first.rows, first.columns, first.row_cells[1:], first.column_cells[1:])
    return dataclasses.replace(host, R_Q=[host.R_Q[0], (cut, host.R_Q[1][1])])


def keys_read_queries(host):
    return dataclasses.replace(host, R_K=host.R_Q)


def forgotten_projection(host):
    identity = host.R_V[0][0]
    full = np.arange(identity.rows.cells)
    everything = SelectionMatrix(identity.rows, identity.columns, full, full)
    return dataclasses.replace(host, R_V=[(everything, everything), host.R_V[1]])


def leaves_from_one_side(host):
    u = host.U
    return dataclasses.replace(host, U=SelectionMatrix(u.rows, u.columns, u.row_cells[:2], u.column_cells[:2]))


HOST_FAULTS = [
    swapped_heads,
    dropped_query_block,
    keys_read_queries,
    forgotten_projection,
    leaves_from_one_side,
]


@pytest.mark.parametrize("fault", HOST_FAULTS, ids=lambda f: f.__name__)
def test_a_broken_host_fails_with_the_right_embedding(fault):
    """The embedding of the true host, run on the broken one: outputs differ, by far more than rounding."""
    host, target = build_host("sparse", SHAPE), random_target(SHAPE, 1, law="signs")
    E, kernel, x = embed(host, target).E, parse_kernel("scaled", 2, 2), random_input(SHAPE, 7, 0)
    broken = fault(host)
    assert relative_error(host.forward(x, E, kernel), target.forward(x, kernel)) < 1e-13
    assert relative_error(broken.forward(x, E, kernel), target.forward(x, kernel)) > 1e-3
    assert not np.allclose(E @ r_all(broken).to_dense(float), w_all(target))


@pytest.mark.parametrize("fault", [dropped_query_block, keys_read_queries, forgotten_projection, leaves_from_one_side])
def test_a_broken_host_loses_its_permutation(fault):
    assert r_all(fault(build_host("sparse", SHAPE))).unit_rows() is None


def test_a_diagonal_projection_cannot_show_a_transpose_but_the_trie_does():
    """Why the faults above are not run with transposed R_V: projections are symmetric; the tied host is not."""
    sparse = build_host("sparse", SHAPE)
    assert r_all(transposed_values(sparse)).unit_rows() is not None
    tied = build_host("tied", SHAPE)
    broken = dataclasses.replace(tied, R_V=[v.transposed() for v in tied.R_V])
    assert r_all(broken).unit_rows() is None


def test_a_tied_flag_ignored_is_caught():
    """A tied target run as if each layer had the weights of another head order."""
    target = random_target(SHAPE, 0, tied=True)
    untied = systems.Target(SHAPE, *(np.stack([a, a[::-1]]) for a in (target.W_Q, target.W_K, target.W_V, target.W_O)))
    kernel, x = parse_kernel("softmax", 2, 2), random_input(SHAPE, 5, 0)
    host = build_host("tied", SHAPE)
    assert relative_error(host.forward(x, embed(host, target).E, kernel), target.forward(x, kernel)) < 1e-13
    assert not np.array_equal(w_all(target), w_all(untied))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("causal", "softmax"),
        ("softmax", "scaled"),
        ("window:2", "window:3"),
        ("alibi", "softmax"),
        ("rope", "softmax"),
    ],
)
def test_a_wrong_kernel_is_caught(wrong, right):
    host, target = build_host("sparse", SHAPE), random_target(SHAPE, 1, law="signs")
    E, x = embed(host, target).E, random_input(SHAPE, 6, 0)
    found = host.forward(x, E, parse_kernel(wrong, 2, 2))
    assert relative_error(found, target.forward(x, parse_kernel(right, 2, 2))) > 1e-4


def test_single_precision_sneaking_in_is_caught():
    host, target = build_host("sparse", SHAPE), random_target(SHAPE, 1)
    E = embed(host, target).E.astype(np.float32).astype(np.float64)
    kernels = [("scaled", parse_kernel("scaled", 2, 2))]
    assert compare(host, [target], kernels, [9]).holds
    report = compare(host, [target], kernels, [9], embedding=E)
    assert not report.holds
    assert report.max_relative_error > 1e-9


def test_a_nan_does_not_pass():
    host, target = build_host("sparse", SHAPE), random_target(SHAPE, 1)
    E = embed(host, target).E
    E[0, 0] = np.nan
    report = compare(host, [target], [("softmax", parse_kernel("softmax", 2, 2))], [3], embedding=E)
    assert not report.holds


def test_word_order_matters(monkeypatch):
    """W_all with its words reversed no longer solves the equations of the true R_all."""
    host, target = build_host("sparse", SHAPE), random_target(SHAPE, 1)
    true = w_all(target)

    def reversed_words(model):
        H = model.shape.heads
        for length, products in enumerate(systems.prefix_stacks(model)):
            order = [sum(d * H**k for k, d in enumerate(np.unravel_index(i, (H,) * length))) for i in range(H**length)]
            yield products[order] if length else products

    monkeypatch.setattr(equations, "prefix_stacks", reversed_words)
    wrong = w_all(target)
    assert not np.array_equal(true, wrong)
    E, kernel, x = embed(host, target).E, parse_kernel("softmax", 2, 2), random_input(SHAPE, 5, 0)
    assert relative_error(host.forward(x, E, kernel), target.forward(x, kernel)) > 1e-3
