"""Hosts with gated MLPs by name: exact over the rationals, in floats beside a forward pass written apart, and refusals."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from test_proof_gated_mlp import GATES, run_target, signed, softmax

from utfproof.attention import GivenAttention, RationalAttention, SoftmaxAttention, parse_kernel
from utfproof.cli.app import run
from utfproof.constructions import build_host, construction
from utfproof.constructions.gated import embed_gated, gated_host
from utfproof.constructions.random import random_target
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.errors import MalformedInput, OutsideClass, ResourceLimit
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.util.arrays import exact
from utfproof.weights import read_target

SHAPES = [
    (2, 3, 1, 2),
    (2, 2, 2, 3),
    (1, 4, 1, 1),
    (3, 2, 1, 2),
    (2, 1, 2, 2),
    (2, 2, 3, 2),
    (1, 1, 1, 1),
    (2, 2, 1, 2, 3),
]
NAMES = ("gated", "gated-tied")


def rational_target(shape, seed, tied):
    rng = np.random.default_rng(seed)
    sizes = {"W_Q": (4, 2), "W_K": (4, 2)}
    drawn = random_target(shape, seed, width=sizes["W_Q"][0] if shape.d_in != shape.d_out else None, tied=tied)
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    parts = {name: getattr(drawn, name) for name in names}
    return replace(
        drawn,
        **{name: exact(rng.integers(-3, 4, array.shape)) for name, array in parts.items() if array is not None},
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", SHAPES)
def test_hosts_are_exact_over_the_rationals(name, dims):
    """relu, any attention matrices (signed, rows not 1), any inputs whose rows sum to 1."""
    shape, tied, rng = Shape(*dims), name == "gated-tied", np.random.default_rng(1)
    host = gated_host(shape, construction(name).dimension(shape), tied=tied, activation="relu")
    for seed in range(3):
        target = rational_target(shape, seed, tied)
        E, _ = embed_gated(shape, host.m, target, tied=tied)
        X = exact(rng.integers(-3, 4, (3, shape.d_in)))
        X[:, 0] = 1 - X[:, 1:].sum(axis=1)
        kernel = GivenAttention(exact(rng.integers(-2, 3, (shape.layers, shape.heads, 3, 3))))
        assert (host.forward(X, E, kernel) == target.forward(X, kernel)).all()
        if shape.d_in > 1:
            wrong = host.forward(2 * X, E, kernel) != target.forward(2 * X, kernel)
            assert wrong.any() or not target.forward(X, kernel).any()


@pytest.mark.parametrize("law", TARGET_LAWS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", [(2, 3, 2, 3), (3, 2, 1, 2)])
def test_degenerate_targets_are_served(name, dims, law):
    shape = Shape(*dims)
    host = build_host(name, shape)
    target = draw_target(shape, 3, law, tied=name == "gated-tied")
    E = embed(host, target).E
    X = np.eye(shape.d_in)[[0, 1, 1, 0]]
    kernel = SoftmaxAttention(causal=True)
    expected = target.forward(X, kernel)
    assert abs(host.forward(X, E, kernel) - expected).max() <= 1e-10 * max(1, abs(expected).max())


def test_one_basis_for_all_layers_would_not_serve_these_targets():
    """d = 1, H = 2: what the heads read excludes each choice of a common P, layer after layer."""
    shape = Shape(2, 3, 1, 2)
    target = rational_target(shape, 5, False)
    for layer in range(3):
        values = ([1, 0], [1, 0]), ([0, 1], [1, 0]), ([1, -1], [1, -1])
        target.W_O[layer] = exact(np.eye(2, dtype=int)[:, None])
        target.W_V[layer] = exact(np.array(values[layer]))[..., None]
    for served in (target, replace(target, W_K=0 * target.W_K, W_O=target.W_O * 0)):
        for exactly in (True, False):
            served = served if exactly else as_floats(served)
            host = gated_host(shape, construction("gated").dimension(shape), activation="relu")
            E, X = embed_gated(shape, host.m, served)[0], np.eye(2, dtype=int)[[0, 1, 1]]
            X = exact(X) if exactly else X.astype(float)
            kernel = RationalAttention()
            missed = host.forward(X, E, kernel) - served.forward(X, kernel)
            assert abs(missed).max() <= (0 if exactly else 1e-11)


def as_floats(target):
    return replace(target, **{f"W_{x}": getattr(target, f"W_{x}").astype(float) for x in "QKVO"})


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("attention", [softmax, signed])
@pytest.mark.parametrize("L", [1, 2, 5, 20])
def test_a_forward_pass_written_apart_agrees(L, activation, attention):
    """The host's own matrices, multiplied here; the target by the pass of the proof's test."""
    shape = Shape(2, L, 1, 2)
    host = gated_host(shape, construction("gated").dimension(shape), activation=activation)
    W = {x: np.random.default_rng(7).normal(size=(L, 2, *((1, 2) if x == "O" else (2, 1)))) / 2 for x in "QKVO"}
    target = replace(random_target(shape, 0), **{f"W_{x}": array for x, array in W.items()})
    E, X = embed_gated(shape, host.m, target)[0], np.eye(2)[[0, 1, 1, 0, 0]]
    y, mlp = X @ E, host.mlp.arrays
    g = GATES[activation]
    for _ in range(L):
        heads = [
            (host.R_Q[h].to_dense(float), host.R_K[h].to_dense(float), host.R_V[h].to_dense(float)) for h in (0, 1)
        ]
        y = y + sum(attention((y @ q) @ (y @ k).T) @ y @ v for q, k, v in heads)
        y = y + (g(y @ mlp["W_gate"]) * (y @ mlp["W_in"])) @ mlp["W_out"]
    assert np.allclose(y @ host.U.to_dense(float), run_target(W, X, attention), rtol=1e-11, atol=1e-12)


def test_the_figures_of_the_page():
    assert construction("gated").dimension(Shape(2, 20, 1, 2)) == 189
    assert {construction("gated-tied").dimension(Shape(2, L, 1, 2)) for L in (1, 2, 5, 300)} == {27}
    assert construction("gated").dimension(Shape(2, 4, 30, 30)) == 27_389


def test_twenty_layers_agree_under_causal_softmax(capsys):
    """By the command, to 1e-12; 2^20 words are never formed."""
    line = "emulate gated -H 2 -L 20 -d 1 --d-in 2 --attention causal --context 1,7,64 --tolerance 1e-12 --json"
    assert run(line.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["shape"]["m"] == 189
    assert document["rests_on"] == "tolerance"
    assert document["inputs"] == "inputs whose rows sum to 1, such as one-hot tokens"
    tied = line.replace("gated", "gated-tied").replace("-L 20", "-L 100")
    assert run(tied.split()) == 0
    assert json.loads(capsys.readouterr().out)["shape"]["m"] == 27


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2", 4, "neither a bound nor a tolerance"),
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2 --inputs uniform", 2, "choose --inputs one-hot or sum-one"),
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2 --residual", 2, "without a residual stream only"),
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2 --engine index-map", 2, "has MLPs: use m-wide"),
        ("emulate gated-tied -H 2 -L 3 -d 2 --d-in 2 --inputs sum-one --attention rope --tolerance 1e-12", 0, "agree"),
        ("emulate gated -H 2 -L 3 -d 2 --d-in 2 --inputs sum-one --attention given --tolerance 1e-12", 0, "agree"),
        ("emulate gated -H 2 -L 3 -d 2 --d-in 2 --attention rope --tolerance 1", 2, "matches attention logits only"),
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2 --precision float32 --tolerance 1e-4", 0, "agree"),
        ("emulate gated -H 2 -L 2 -d 1 --d-in 2 --precision float32 --tolerance 1e-12", 1, "DIFFER"),
        ("emulate gated-tied -H 2 -L 2 -d 1 --d-in 2 --tolerance 1e-12", 0, "1 tied target"),
        ("certify gated -H 2 -L 2 -d 1 --d-in 2 -o OUT/c.json", 0, "every X with rows that sum to 1"),
        ("certify gated -H 2 -L 3 -d 1 --d-in 2 --notion matching -o OUT/c.json", 4, "--notion attention-matching"),
        (
            "certify gated-tied -H 2 -L 2 -d 1 --d-in 2 -o OUT/c.json",
            0,
            "targets: all tied), on inputs with rows that sum",
        ),
        (
            "certify mlp-tree-2 -H 2 -L 2 -d 1 --d-in 2 --residual -o OUT/c.json",
            4,
            "docs/proofs/gated-mlp.md, Theorem D",
        ),
    ],
)
def test_verdicts_of_commands(line, code, said, tmp_path, capsys):
    assert run(line.replace("OUT", str(tmp_path)).split()) == code
    out = capsys.readouterr()
    assert said in " ".join((out.out + out.err).split())


def test_embedded_exported_and_run(tmp_path, capsys):
    """One host file for two targets; the exported module gives each target's outputs."""
    torch = pytest.importorskip("torch")
    at = str(tmp_path)
    shape = "-H 2 -L 3 -d 2 --d-in 4"
    assert run(f"build gated {shape} -o {at}/host.safetensors".split()) == 0
    before = (tmp_path / "host.safetensors").read_bytes()
    for seed in (1, 2):
        assert run(f"build target {shape} --width 5 --seed {seed} -o {at}/T.safetensors".split()) == 0
        assert run(f"embed {at}/host.safetensors {at}/T.safetensors -o {at}/E.safetensors".split()) == 0
        emulate = f"emulate {at}/host.safetensors --target {at}/T.safetensors --embedding {at}/E.safetensors"
        assert run(f"{emulate} --tolerance 1e-12".split()) == 0
        assert run(emulate.split()) == 2
        assert "without --tolerance" in capsys.readouterr().err
    assert before == (tmp_path / "host.safetensors").read_bytes()
    assert run(f"export {at}/host.safetensors {at}/E.safetensors -o {at}/module.py".split()) == 0
    spec = importlib.util.spec_from_file_location("exported", tmp_path / "module.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = read_target(tmp_path / "T.safetensors")
    found = module.Host()(torch.tensor([0, 3, 1, 1])).detach().numpy()
    expected = target.forward(np.eye(4)[[0, 3, 1, 1]], SoftmaxAttention(causal=True))
    assert np.allclose(found, expected, atol=1e-12)


def test_a_changed_mlp_is_no_gated_host(tmp_path):
    shape = Shape(2, 2, 1, 2)
    host = build_host("gated", shape)
    W_out = host.mlp.W_out.copy()
    W_out[0, 0] += 1
    faulty = replace(host, mlp=replace(host.mlp, W_out=W_out))
    with pytest.raises(MalformedInput, match="carries the name gated"):
        embed(faulty, random_target(shape, 0))
    with pytest.raises(MalformedInput, match="carries the name gated"):
        embed(replace(host, mlp=replace(host.mlp, activation="relu")), random_target(shape, 0))
    with pytest.raises(MalformedInput, match="carries the name gated"):
        embed(replace(host, mlp=None), random_target(shape, 0))


def test_other_targets_are_refused():
    shape = Shape(2, 2, 1, 2)
    with pytest.raises(OutsideClass, match=r"gated-tied .* serves tied targets"):
        embed(build_host("gated-tied", shape), random_target(shape, 0))
    with pytest.raises(ResourceLimit, match="hidden units"):
        build_host("gated", Shape(2, 6, 40, 40))


def test_kernels_that_look_at_positions():
    """Theorem E changes bases of keys, so its host serves maps of logits and positions; rotations need Theorem B's."""
    shape = Shape(2, 3, 2, 3)
    X = np.eye(3)[[0, 2, 2, 1]]
    for name in NAMES:
        host, target = build_host(name, shape), draw_target(shape, 5, "signs", tied=name == "gated-tied")
        E = embed(host, target).E
        for attention in ("rope", "scaled+alibi+causal", "window:2"):
            kernel = parse_kernel(attention, 2, 2)
            found, expected = host.forward(X, E, kernel), target.forward(X, kernel)
            error = np.abs(found - expected).max() / np.abs(expected).max()
            assert error > 1e-6 if (name, attention) == ("gated", "rope") else error < 1e-12
