"""mlp-tree-K: one host for MLPs of K hidden units and streams of any width."""

import numpy as np
import pytest
from test_gated_models import drawn

from utfproof.attention import SoftmaxAttention
from utfproof.constructions import build_host, construction
from utfproof.constructions.mlp_tree import stages
from utfproof.errors import MalformedInput, OutsideClass
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.weights import read_host, read_tensors, write_host

SHAPE = Shape(2, 2, 2, 4, 3, residual=True)


def test_m_is_that_of_the_page():
    for H, L, d, out, K in [(2, 2, 4, 10, 16), (1, 1, 1, 1, 1), (3, 3, 2, 2, 2)]:
        a = (1 + H) * (1 + K)
        expected = a**L * out + ((1 + H) * K + 2 * H * d) * (a**L - 1) // (a - 1)
        assert stages(Shape(H, L, d, 16, out, residual=True), K)[0][0] == expected
    assert construction("mlp-tree-16").least_m(Shape(2, 2, 4, 16, 10, residual=True)) == 29338


def test_one_host_file_serves_streams_of_any_width(tmp_path):
    path, X = tmp_path / "host.safetensors", np.eye(4)[[0, 3, 1, 1, 2]]
    write_host(path, build_host("mlp-tree-2", SHAPE), dtype="int8")
    digest = read_tensors(path).digest()
    for seed, width in enumerate((1, 2, 3, 5, 8, 13, 21, 4, 4, 4)):
        target, host = drawn(seed, width, seed % 3, gated=seed % 2 > 0), read_host(path, d_in=4)
        for kernel in (SoftmaxAttention(causal=True), SoftmaxAttention(window=2)):
            expected = target.forward(X, kernel)
            found = host.forward(X, embed(host, target).E, kernel)
            assert abs(found - expected).max() <= 1e-12 * max(1, abs(expected).max())
        assert read_tensors(path).digest() == digest


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_other_gates_and_three_layers(activation):
    shape = Shape(1, 3, 1, 4, 2, residual=True)
    host, X = build_host(f"mlp-tree-1-{activation}", shape), np.eye(4)[[0, 3, 1]]
    target = drawn(5, 6, 1, activation=activation, shape=shape)
    expected = target.forward(X, SoftmaxAttention())
    assert abs(host.forward(X, embed(host, target).E, SoftmaxAttention()) - expected).max() <= 1e-11
    with pytest.raises(OutsideClass, match="widths of any size and 1"):
        embed(host, drawn(5, 6, 2, activation=activation, shape=shape))
    with pytest.raises(OutsideClass, match="activation"):
        embed(host, drawn(5, 6, 1, shape=shape))
    with pytest.raises(MalformedInput):
        construction("mlp-tree-0")


def test_biases_reach_the_outputs():
    host, kernel, X = build_host("mlp-tree-2", SHAPE), SoftmaxAttention(), np.eye(4)[[0, 1]]
    found = host.forward(X, embed(host, drawn(1, 3, 2)).E, kernel)
    assert abs(found - drawn(1, 3, 2, biases=False).forward(X, kernel)).max() > 1e-3


def test_without_gates_pairs_of_functionals_share_their_units(tmp_path):
    """26 842 where the gated host has 29 338; ten targets of one file, d_out odd, kinks of both signs."""
    name = "mlp-tree-2-relu-ungated"
    assert construction("mlp-tree-16-relu-ungated").least_m(Shape(2, 2, 4, 16, 10, residual=True)) == 26842
    path, X = tmp_path / "host.safetensors", np.eye(4)[[0, 3, 1, 1, 2]]
    write_host(path, build_host(name, SHAPE), dtype="int8")
    for seed, width in enumerate((1, 2, 3, 5, 8, 13, 21, 4, 4, 4)):
        target, host = drawn(seed, width, seed % 3, gated=False, activation="relu"), read_host(path, d_in=4)
        kernel = SoftmaxAttention(causal=True)
        expected = target.forward(X, kernel)
        found = host.forward(X, embed(host, target).E, kernel)
        assert abs(found - expected).max() <= 1e-12 * max(1, abs(expected).max())
    with pytest.raises(OutsideClass, match="without gates"):
        embed(host, drawn(1, 3, 2, activation="relu"))
    with pytest.raises(MalformedInput):
        construction("mlp-tree-2-silu-ungated")
