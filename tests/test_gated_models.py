"""One host with gated MLPs for targets with MLPs and biases of many widths: only E changes."""

import numpy as np
import pytest

from utfproof.attention import SoftmaxAttention
from utfproof.constructions.gated_models import embed_gated_model, gated_model_host
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP
from utfproof.weights import read_host, read_tensors, write_host

SHAPE = Shape(2, 2, 2, 4, 3, residual=True)
WIDTH, HIDDEN = 5, 6


def drawn(seed, D, K, *, gated=True, biases=True, activation="silu", shape=SHAPE):
    rng = np.random.default_rng(seed)
    L, H, d = shape.layers, shape.heads, shape.head_dim

    def normal(*sizes):
        return rng.normal(size=sizes) * 0.6

    mlp = {"W_in": normal(L, D, K), "W_out": normal(L, K, D)} | ({"W_gate": normal(L, D, K)} if gated else {})
    further = {}
    if biases:
        mlp |= {"b_in": normal(L, K), "b_out": normal(L, D)} | ({"b_gate": normal(L, K)} if gated else {})
        further = {f"b_{x}": normal(L, H, d) for x in "QKV"}
        further |= {"b_O": normal(L, D), "b_E": normal(D), "b_U": normal(shape.d_out)}
    return BiasedTarget(
        shape,
        *(normal(L, H, D, d) for _ in range(3)),
        normal(L, H, d, D),
        normal(shape.d_in, D),
        normal(D, shape.d_out),
        **further,
        mlp=MLP(activation, **mlp) if K else None,
    )


def test_one_host_file_serves_ten_targets_of_different_widths(tmp_path):
    """Stream widths 1 to 5, MLP widths 0 to 6, gated or not, biases everywhere; the file's digest stays."""
    path, kernel = tmp_path / "host.safetensors", SoftmaxAttention(causal=True)
    write_host(path, gated_model_host(SHAPE, WIDTH, HIDDEN), dtype="int8")
    digest = read_tensors(path).digest()
    X = np.eye(4)[[0, 3, 1, 1, 2]]
    for seed in range(10):
        target = drawn(seed, 1 + seed % 5, (seed * 5) % 7, gated=seed % 3 > 0)
        host = read_host(path, d_in=4)
        found = host.forward(X, embed_gated_model(host, SHAPE, WIDTH, HIDDEN, target), kernel)
        expected = target.forward(X, kernel)
        assert abs(found - expected).max() <= 1e-12 * max(1, abs(expected).max())
        assert read_tensors(path).digest() == digest


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh"])
def test_other_activations_masks_and_real_inputs(activation):
    host = gated_model_host(SHAPE, 3, 4, activation)
    target = drawn(1, 3, 4, activation=activation)
    X = np.random.default_rng(2).normal(size=(4, 4))
    X[:, -1] = 1 - X[:, :-1].sum(axis=1)
    for kernel in (SoftmaxAttention(), SoftmaxAttention(window=2)):
        expected = target.forward(X, kernel)
        found = host.forward(X, embed_gated_model(host, SHAPE, 3, 4, target), kernel)
        assert abs(found - expected).max() <= 1e-11 * max(1, abs(expected).max())


def test_other_inputs_get_other_outputs():
    host, target, kernel = gated_model_host(SHAPE, 3, 4), drawn(1, 3, 4), SoftmaxAttention()
    E, X = embed_gated_model(host, SHAPE, 3, 4, target), np.eye(4)[[0, 1]]
    constant = 2 * X  # X c = 2
    assert abs(host.forward(constant, E, kernel) - host.forward(X, E, kernel)).max() > 1e-3
    changed = drawn(1, 3, 4, biases=False)
    assert abs(host.forward(X, E, kernel) - changed.forward(X, kernel)).max() > 1e-3


@pytest.mark.parametrize(
    "target",
    [
        drawn(0, 6, 4),
        drawn(0, 3, 7),
        drawn(0, 3, 4, activation="gelu"),
        drawn(0, 3, 4, shape=Shape(2, 1, 2, 4, 3, residual=True)),
    ],
)
def test_targets_beyond_the_host_are_refused(target):
    host = gated_model_host(SHAPE, WIDTH, HIDDEN)
    with pytest.raises(OutsideClass, match="this host"):
        embed_gated_model(host, SHAPE, WIDTH, HIDDEN, target)


@pytest.mark.parametrize("dims", [(2, 2, 4, 16, 10), (1, 1, 1, 2, 3), (3, 1, 2, 2, 2)])
def test_the_size_of_the_page(dims):
    (H, L, d, _, out), D, K = dims, 8, 5
    h = H * d
    sizes = [
        4 * h + 3 * K + h * D + 2 * D * K + 2 * h * K + K * D + (D + K) * (3 * h if layer < L else out)
        for layer in range(1, L + 1)
    ]
    assert gated_model_host(Shape(*dims, residual=True), D, K).m == D + out + sum(sizes)
