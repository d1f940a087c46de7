"""One host with gated MLPs for targets with MLPs and biases of many widths: only E changes."""

import numpy as np
import pytest

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import CONSTRUCTIONS, build_host, construction
from utfproof.constructions.random import random_target
from utfproof.errors import MalformedInput, NotDefined, OutsideClass
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP
from utfproof.weights import read_host, read_target, read_tensors, write_host

SHAPE = Shape(2, 2, 2, 4, 3, residual=True)
NAME = "mlp-5-6"


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
    write_host(path, build_host(NAME, SHAPE), dtype="int8")
    digest = read_tensors(path).digest()
    X = np.eye(4)[[0, 3, 1, 1, 2]]
    for seed in range(10):
        target = drawn(seed, 1 + seed % 5, (seed * 5) % 7, gated=seed % 3 > 0)
        host = read_host(path, d_in=4)
        found = host.forward(X, embed(host, target).E, kernel)
        expected = target.forward(X, kernel)
        assert abs(found - expected).max() <= 1e-12 * max(1, abs(expected).max())
        assert read_tensors(path).digest() == digest


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh"])
def test_other_activations_masks_and_real_inputs(activation):
    host = build_host(f"mlp-3-4-{activation}", SHAPE)
    target = drawn(1, 3, 4, activation=activation)
    X = np.random.default_rng(2).normal(size=(4, 4))
    X[:, -1] = 1 - X[:, :-1].sum(axis=1)
    for kernel in (SoftmaxAttention(), SoftmaxAttention(window=2)):
        expected = target.forward(X, kernel)
        found = host.forward(X, embed(host, target).E, kernel)
        assert abs(found - expected).max() <= 1e-11 * max(1, abs(expected).max())


def test_other_inputs_get_other_outputs():
    host, target, kernel = build_host("mlp-3-4", SHAPE), drawn(1, 3, 4), SoftmaxAttention()
    E, X = embed(host, target).E, np.eye(4)[[0, 1]]
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
    ],
)
def test_targets_beyond_the_host_are_refused(target):
    with pytest.raises(OutsideClass, match="this host"):
        embed(build_host(NAME, SHAPE), target)


def test_other_shapes_hosts_and_names_are_refused():
    with pytest.raises(MalformedInput, match="differ in layers"):
        embed(build_host(NAME, SHAPE), drawn(0, 3, 4, shape=Shape(2, 1, 2, 4, 3, residual=True)))
    with pytest.raises(OutsideClass, match="such as mlp-8-16"):
        embed(build_host("sparse", SHAPE), drawn(0, 3, 4))
    with pytest.raises(NotDefined, match="residual stream only"):
        build_host(NAME, SHAPE.without_residual())
    for name in ("mlp", "mlp-0-3", "mlp-3", "mlp-3-4-tanh", "mlp-03-4"):
        assert name not in CONSTRUCTIONS
        with pytest.raises(MalformedInput, match="mlp-D-K serves"):
            construction(name)


def test_targets_of_attention_alone_and_more_dimensions():
    """A target without MLPs and biases is served too, and coordinates beyond the least m stay zero."""
    target = random_target(SHAPE, 3, width=4)
    host = build_host("mlp-4-0", SHAPE, construction("mlp-4-0").least_m(SHAPE) + 2)
    E, X, kernel = embed(host, target).E, np.eye(4)[[0, 3, 2]], SoftmaxAttention(causal=True)
    assert not E[:, -2:].any()
    expected = target.forward(X, kernel)
    assert abs(host.forward(X, E, kernel) - expected).max() <= 1e-12 * abs(expected).max()


def by_hand(tensors, x):
    """The target's forward pass under causal softmax, from its file's tensors, row by row."""

    def softmax(z):
        e = np.exp(z - z.max())
        return e / e.sum()

    y = x @ tensors["W_E"] + tensors["b_E"]
    for layer in range(tensors["W_Q"].shape[0]):
        q, k, v = (
            np.einsum("nD,hDd->hnd", y, tensors[f"W_{x}"][layer]) + tensors[f"b_{x}"][layer][:, None] for x in "QKV"
        )
        out = y + tensors["b_O"][layer]
        for h, i in np.ndindex(*q.shape[:2]):
            out[i] += softmax(k[h, : i + 1] @ q[h, i]) @ v[h, : i + 1] @ tensors["W_O"][layer][h]
        gate, into = (
            out @ tensors[f"mlp.silu.W_{x}"][layer] + tensors[f"mlp.silu.b_{x}"][layer] for x in ("gate", "in")
        )
        y = (
            out
            + (gate / (1 + np.exp(-gate)) * into) @ tensors["mlp.silu.W_out"][layer]
            + tensors["mlp.silu.b_out"][layer]
        )
    return y @ tensors["W_U"] + tensors["b_U"]


def test_the_commands_build_embed_emulate_and_export(tmp_path, capsys):
    """And the exported module agrees with a forward pass written here."""
    import importlib.util

    torch = pytest.importorskip("torch")
    words = ["-H", "2", "-L", "2", "-d", "2", "--d-in", "4", "--d-out", "3", "--residual"]
    host, path, E, module = (
        str(tmp_path / name) for name in ("h.safetensors", "t.safetensors", "E.safetensors", "m.py")
    )
    assert run(["build", NAME, *words, "-o", host]) == 0
    assert run(["build", "target", *words, "--width", "5", "--hidden", "6", "--seed", "2", "-o", path]) == 0
    assert run(["embed", host, path, "-o", E]) == 0
    causal = ["--attention", "causal", "--context", "7"]
    assert run(["emulate", host, "--target", path, *causal, "--tolerance", "1e-12"]) == 0
    assert run(["emulate", NAME, "--target", path, *causal]) == 4  # no bound, and no tolerance
    assert "undecided" in capsys.readouterr().out
    assert run(["certify", NAME, *words, "-o", str(tmp_path / "c.json")]) == 4
    assert run(["embed", "sparse", path, "-o", str(tmp_path / "F.safetensors")]) == 1
    assert run(["build", NAME, *words, "--hidden", "3", "-o", host]) == 2
    X = np.eye(4)[[0, 3, 1, 1, 2]]
    expected = by_hand(read_tensors(path).tensors, X)
    target = read_target(path)
    assert abs(target.forward(X, SoftmaxAttention(causal=True)) - expected).max() < 1e-12
    capsys.readouterr()
    assert run(["export", host, E, "-o", module]) == 0
    spec = importlib.util.spec_from_file_location("exported", module)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    net = exported.Host().double()
    outputs = net(torch.from_numpy(X)).detach().numpy()
    assert abs(outputs - expected).max() < 1e-12 * max(1, abs(expected).max())


@pytest.mark.parametrize("dims", [(2, 2, 4, 16, 10), (1, 1, 1, 2, 3), (3, 1, 2, 2, 2)])
def test_the_size_of_the_page(dims):
    (H, L, d, _, out), D, K = dims, 8, 5
    h = H * d
    sizes = [
        4 * h + 3 * K + h * D + 2 * D * K + 2 * h * K + K * D + (D + K) * (3 * h if layer < L else out)
        for layer in range(1, L + 1)
    ]
    assert build_host(f"mlp-{D}-{K}", Shape(*dims, residual=True)).m == D + out + sum(sizes)
