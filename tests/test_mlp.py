"""MLPs of targets and hosts: numbers by a forward pass written apart, exact and torch arrays, and what is refused."""

from fractions import Fraction
from math import erf, exp, sqrt, tanh

import numpy as np
import pytest

from utfproof.attention import SoftmaxAttention
from utfproof.certificates.prover import certify_weights
from utfproof.constructions import build_host
from utfproof.emulation.enclosure import enclose
from utfproof.errors import MalformedInput, NotDefined, OutsideClass
from utfproof.matching import r_all
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP, MULTIPLYING
from utfproof.util.arrays import exact
from utfproof.weights import read_host, same_parameters, write_host

SCALARS = {
    "relu": lambda z: max(z, 0.0),
    "silu": lambda z: z / (1 + exp(-z)),
    "gelu": lambda z: z * (1 + erf(z / sqrt(2))) / 2,
    "gelu-tanh": lambda z: z / 2 * (1 + tanh(sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
}
L, D, K = 2, 3, 4


def drawn(gated=True, biases=True, lead=(L,), seed=1, activation="silu"):
    rng = np.random.default_rng(seed)
    sizes = {"W_in": (D, K), "W_out": (K, D)}
    sizes |= {"W_gate": (D, K)} if gated else {}
    if biases:
        sizes |= {"b_in": (K,), "b_out": (D,)} | ({"b_gate": (K,)} if gated else {})
    return MLP(activation, **{name: rng.normal(size=(*lead, *shape)) for name, shape in sizes.items()})


def by_hand(mlp, row, layer):
    """MLP of one row, number by number."""

    def entry(name, *at):
        array = getattr(mlp, name)
        return 0.0 if array is None else float((array if mlp.tied else array[layer])[at])

    g, out = SCALARS[mlp.activation], [entry("b_out", j) for j in range(D)]
    for k in range(K):
        inner = sum(row[i] * entry("W_in", i, k) for i in range(D)) + entry("b_in", k)
        gate = sum(row[i] * entry("W_gate", i, k) for i in range(D)) + entry("b_gate", k)
        hidden = g(inner) if mlp.W_gate is None else g(gate) * inner
        out = [value + hidden * entry("W_out", k, j) for j, value in enumerate(out)]
    return out


@pytest.mark.parametrize("activation", MULTIPLYING)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("biases", "lead"), [(True, (L,)), (False, ())])
def test_an_mlp_is_what_its_formula_says(activation, gated, biases, lead):
    torch = pytest.importorskip("torch")
    mlp = drawn(gated, biases, lead, activation=activation)
    x = np.random.default_rng(2).normal(size=(5, D)) * 3
    for layer in range(L):
        expected = [by_hand(mlp, row, layer) for row in x]
        assert np.allclose(mlp(x, layer), expected, rtol=1e-13, atol=1e-13)
        assert np.allclose(mlp.changed(torch.as_tensor)(torch.as_tensor(x), layer), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", MULTIPLYING)
def test_two_units_multiply(activation):
    a, b = np.random.default_rng(3).normal(size=(2, 1000, 1)) * 10
    mlp = MLP(activation, np.array([[0, 0], [1, 1]]), np.array([[0, 1], [0, -1]]), np.array([[1, -1], [0, 0]]))
    assert np.allclose(mlp(np.hstack([a, b]), 0)[:, 1:], a * b, rtol=1e-14, atol=1e-13)


def test_relu_is_exact_and_others_are_refused_for_exact_numbers():
    x = exact(np.array([[1, -2, 3]]))
    for activation in MULTIPLYING:
        mlp = drawn(activation=activation).changed(lambda array: exact(np.round(4 * array) / 4))
        if activation == "relu":
            assert all(isinstance(value, int | Fraction) for value in mlp(x, 0).reshape(-1))
        else:
            with pytest.raises(NotDefined, match="use relu"):
                mlp(x, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"activation": "tanh"}, "activation 'tanh' is unknown"),
        ({"W_out": np.zeros((L, D, K))}, "W_out has shape"),
        ({"b_in": np.zeros(K)}, "b_in has shape"),
        ({"W_gate": None}, "b_gate without W_gate"),
        ({"W_in": np.zeros(3)}, "W_in is no array"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, reason):
    whole = drawn()
    with pytest.raises(MalformedInput, match=reason):
        MLP(**{"activation": whole.activation, **whole.arrays, **change})


def biased(mlp, residual=True, width=D):
    shape, rng = Shape(2, L, 1, 4, 4, residual=residual), np.random.default_rng(4)
    sizes = {"W_Q": (width, 1), "W_K": (width, 1), "W_V": (width, 1), "W_O": (1, width)}
    weights = {name: rng.normal(size=(L, 2, *size)) / 4 for name, size in sizes.items()}
    ends = {"W_E": rng.normal(size=(4, width)), "W_U": rng.normal(size=(width, 4))}
    return BiasedTarget(shape, **weights, **ends, b_O=rng.normal(size=(L, width)), mlp=mlp)


def test_a_target_with_an_mlp_layer_by_layer():
    mlp = drawn()
    target, x = biased(mlp), np.eye(4)[[0, 3, 1]]
    stream = x @ target.W_E
    for layer in range(L):
        moved = stream + target.b_O[layer]
        for head in range(2):
            scores = (stream @ target.W_Q[layer, head]) @ (stream @ target.W_K[layer, head]).T
            weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            moved = moved + weights @ stream @ target.W_V[layer, head] @ target.W_O[layer, head]
        stream = moved + np.array([by_hand(mlp, row, layer) for row in moved])
    assert np.allclose(target.forward(x, SoftmaxAttention()), stream @ target.W_U, atol=1e-12)


def test_targets_with_mlps_are_never_read_as_targets_without():
    with pytest.raises(OutsideClass, match="this target has MLPs"):
        biased(drawn()).augmented()
    with pytest.raises(MalformedInput, match="have a residual stream"):
        biased(drawn(), residual=False)
    with pytest.raises(MalformedInput, match="expected"):
        biased(drawn(), width=D + 1)


def small_host(activation="silu", residual=False):
    shape, rng = Shape(2, L, 1, 2, residual=residual), np.random.default_rng(5)
    Q, K_, V = (rng.normal(size=(2, D, size)) for size in (1, 1, D))
    return Universal(shape, D, Q, K_, V, rng.normal(size=(D, 2)), mlp=drawn(activation=activation))


def test_hosts_with_mlps_have_no_equations(tmp_path):
    """R_all of their attention alone says nothing about them, so nothing that rests on it takes them."""
    host = small_host()
    target = build_host("random", Shape(2, L, 1, 2))
    with pytest.raises(NotDefined, match="has MLPs; R_all"):
        r_all(host)
    with pytest.raises(NotDefined, match="has MLPs; an enclosure"):
        enclose(host, target, np.zeros((2, D)), np.eye(2), SoftmaxAttention(), 5)
    write_host(tmp_path / "host.safetensors", host)
    with pytest.raises(MalformedInput, match="this host has MLPs"):
        certify_weights(tmp_path / "host.safetensors")


@pytest.mark.parametrize("activation", MULTIPLYING)
def test_hosts_with_mlps_are_written_and_read(tmp_path, activation):
    path, host = tmp_path / "host.safetensors", small_host(activation)
    write_host(path, host)
    again = read_host(path, layers=L, d_in=2)
    assert again.mlp.activation == activation
    assert same_parameters(host, again)
    x, E = np.eye(2)[[0, 1, 1]], np.ones((2, D))
    assert (again.forward(x, E, SoftmaxAttention()) == host.forward(x, E, SoftmaxAttention())).all()
    other = small_host("gelu" if activation == "relu" else "relu")
    assert not same_parameters(host, other)
