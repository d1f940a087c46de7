"""Trained models from their own files: a residual induction model in two layouts, refusals, planted faults."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.matching import embed
from utfproof.models import (
    compare,
    import_model,
    random_sequences,
)
from utfproof.weights import read_embedding, read_tensors

pytestmark = pytest.mark.numerical

ROOT = Path(__file__).parents[1]
TRAINED = Path(__file__).parent / "data" / "induction.safetensors"
"""Written by `python scripts/train_induction.py --out tests/data/induction.safetensors` (seed 0, default settings)."""
CAUSAL = SoftmaxAttention(causal=True)
KNOWN = {
    "attention_dir": "causal",
    "window": "none",
    "attn_scores_soft_cap": "none",
    "output_logits_soft_cap": "-1.0",
    "normalization_type": "none",
    "positional_embedding_type": "standard",
    "use_attn_scale": "true",
}
"""Metadata that leave nothing open on which the outputs of a TransformerLens model depend."""


def relative_difference(found, expected):
    """max |Z - Y| / max |Y|, absolute where Y is zero."""
    scale = float(np.max(np.abs(expected), initial=0.0))
    return float(np.max(np.abs(found - expected), initial=0.0)) / (scale or 1.0)


def write(path, tensors, **metadata):
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path, metadata)
    return path


def transformer_lens(seed=0, H=2, L=2, d=3, D=5, V=4, P=6, G=None):
    """Random tensors under TransformerLens' names; G: heads of keys and values, grouped."""
    rng = np.random.default_rng(seed)
    draw = lambda *s: rng.normal(size=s) / np.sqrt(D)  # noqa: E731
    tensors = {"embed.W_E": draw(V, D), "unembed.W_U": draw(D, V), "unembed.b_U": draw(V)}
    if P:
        tensors["pos_embed.W_pos"] = draw(P, D)
    mark, shared = ("_", G) if G else ("", H)
    for layer in range(L):
        sizes = {"W_Q": (H, D, d), "W_O": (H, d, D), "b_Q": (H, d), "b_O": (D,)}
        sizes |= {mark + "W_K": (shared, D, d), mark + "W_V": (shared, D, d)}
        sizes |= {mark + "b_K": (shared, d), mark + "b_V": (shared, d)}
        tensors |= {f"blocks.{layer}.attn.{name}": draw(*size) for name, size in sizes.items()}
    return tensors


def multihead(seed=0, L=2, D=6, V=4, P=5):
    """Random tensors under the names of a plain PyTorch model."""
    rng = np.random.default_rng(seed)
    draw = lambda *s: rng.normal(size=s) / np.sqrt(D)  # noqa: E731
    tensors = {"embedding.weight": draw(V, D), "unembed.weight": draw(V, D), "unembed.bias": draw(V)}
    if P:
        tensors["pos.weight"] = draw(P, D)
    for layer in range(L):
        at = f"layers.{layer}.attn."
        tensors |= {at + "in_proj_weight": draw(3 * D, D)}
        tensors |= {at + "in_proj_bias": draw(3 * D), at + "out_proj.weight": draw(D, D), at + "out_proj.bias": draw(D)}
    return tensors


def difference(model, host, *, target=None, count=6):
    """Largest relative difference of the model as it was and the host whose E comes from its target (or from another)."""
    found = embed(host, (target or model.target).augmented())
    return compare(model, host, found.E, random_sequences(model, count, 0)).relative_difference


# --- the trained model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def induction():
    return import_model(TRAINED)


@pytest.fixture(scope="module")
def induction_tl(tmp_path_factory):
    """The same model under TransformerLens' names and axes: [H, D, d], [H, d, D], [H, d]."""
    file = read_tensors(TRAINED)
    held = {name: np.array(array) for name, array in file.tensors.items()}
    tensors = {"embed.W_E": held["embedding.weight"], "pos_embed.W_pos": held["pos.weight"]}
    tensors |= {"unembed.W_U": held["unembed.weight"].T, "unembed.b_U": held["unembed.bias"]}
    for layer in range(2):
        at, to = f"layers.{layer}.attn.", f"blocks.{layer}.attn."
        for place, kind in enumerate("QKV"):
            weight = held[f"{at}in_proj_weight"].reshape(3, 2, 12, 24)[place]
            tensors[f"{to}W_{kind}"] = weight.swapaxes(1, 2)
            tensors[f"{to}b_{kind}"] = held[f"{at}in_proj_bias"].reshape(3, 2, 12)[place]
        tensors[f"{to}W_O"] = held[f"{at}out_proj.weight"].T.reshape(2, 12, 24)
        tensors[f"{to}b_O"] = held[f"{at}out_proj.bias"]
    return write(tmp_path_factory.mktemp("tl") / "tl.safetensors", tensors, **KNOWN, heads="2", residual="true")


def questions(count, seed=0):
    """Sequences a f(a) b f(b) ... and the places whose answer stands in the context, written apart from the script."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        f = rng.integers(0, 8, 8)
        asked = rng.integers(0, 8, 9)
        tokens = np.stack([asked, f[asked]], axis=1).reshape(-1)
        places = [2 * i for i in range(1, 8) if asked[i] in asked[:i]]
        yield tokens[:16], places, tokens[1:17]


def test_it_is_a_residual_model_with_biases_and_positions(induction):
    shape = induction.target.shape
    assert (shape.heads, shape.layers, shape.head_dim, shape.residual) == (2, 2, 12, True)
    assert (induction.vocabulary, induction.positions, shape.d_in, shape.d_out) == (8, 16, 24, 8)
    assert all(np.abs(induction.target.bias(name)).min() > 0 for name in ("b_Q", "b_K", "b_V", "b_O", "b_U"))
    assert float(read_tensors(TRAINED).metadata["accuracy"]) > 0.95


@pytest.mark.full
@pytest.mark.parametrize("name", ["sparse", "random"])
def test_a_fixed_host_does_induction(induction, name):
    """Accuracy above 95 % where attention can do it, by the model and by the host, whose outputs agree on every test input."""
    host = build_host(name, induction.target.shape)
    E = embed(host, induction.target.augmented()).E
    right, total, sequences = np.zeros(2), 0, []
    for tokens, places, answers in questions(70):
        outputs = induction.original(tokens), host.forward(induction.one_hots(tokens), E, CAUSAL)
        right += [(out.argmax(axis=1) == answers)[places].sum() for out in outputs]
        total += len(places)
        sequences.append(tokens)
    assert total > 180
    assert (right / total > 0.95).all()
    agreement = compare(induction, host, E, sequences + random_sequences(induction, 30, 3))
    assert agreement.relative_difference < 1e-8
    assert agreement.positions > 1300


def test_torch_itself_gives_the_same_outputs(induction):
    """nn.MultiheadAttention in float64, not this package's idea of it."""
    torch = pytest.importorskip("torch")

    model = pytest.importorskip("train_induction").make(TRAINED).double()
    for tokens in random_sequences(induction, 12, 1):
        with torch.no_grad():
            expected = model(torch.from_numpy(tokens)[None])[0].numpy()
        found = induction.original(tokens)
        assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("host", ["sparse", "random"])
def test_the_command_on_both_layouts(induction_tl, tmp_path, host, capsys):
    for path, layout in ((TRAINED, "pytorch"), (induction_tl, "transformer-lens")):
        out = tmp_path / f"{layout}.safetensors"
        assert run(["embed", host, str(path), "-o", str(out), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["agrees"]
        assert document["relative_difference"] < 1e-11
        assert document["shape"] == {
            "heads": 2,
            "layers": 2,
            "head_dim": 12,
            "d_in": 24,
            "d_out": 8,
            "residual": True,
            "m": 264,
        }
        assert read_embedding(out).shape == (24, 264)
        assert read_tensors(out).metadata["positions"] == "16"
    first, second = (read_embedding(tmp_path / f"{name}.safetensors") for name in ("pytorch", "transformer-lens"))
    assert np.abs(first - second).max() < 1e-12 * np.abs(first).max()


@pytest.mark.full
def test_the_script_runs(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "t.safetensors"
    command = [sys.executable, str(ROOT / "scripts" / "train_induction.py"), "--out", str(out), "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = import_model(out)
    assert difference(model, build_host("sparse", model.target.shape)) < 1e-12


# --- planted faults: an importer with any of these is caught by the comparison ------------------------------


def shifted_positions(target):
    W_E = target.W_E.copy()
    W_E[8:] = np.roll(W_E[8:], 1, axis=0)
    return replace(target, W_E=W_E)


def turned(array):
    """Each head's [d, D] read as [D, d] and turned: W_O transposed."""
    L, H, d, D = array.shape
    return array.reshape(L, H, D, d).swapaxes(-1, -2)


FAULTS = {
    "b_Q dropped": lambda t: replace(t, b_Q=None),
    "b_V dropped": lambda t: replace(t, b_V=None),
    "b_O dropped": lambda t: replace(t, b_O=None),
    "b_U dropped": lambda t: replace(t, b_U=None),
    "b_O twice": lambda t: replace(t, b_O=2 * t.b_O),
    "position row off by one": shifted_positions,
    "positions dropped": lambda t: replace(t, W_E=np.concatenate([t.W_E[:8], 0 * t.W_E[8:]])),
    "scale folded twice": lambda t: replace(t, W_Q=t.W_Q / np.sqrt(12), b_Q=t.b_Q / np.sqrt(12)),
    "scale not folded into b_Q": lambda t: replace(t, b_Q=t.b_Q * np.sqrt(12)),
    "W_O transposed": lambda t: replace(t, W_O=turned(t.W_O)),
    "head order of W_O swapped": lambda t: replace(t, W_O=t.W_O[:, ::-1]),
    "layers swapped": lambda t: replace(t, W_Q=t.W_Q[::-1], b_Q=t.b_Q[::-1]),
    "queries and keys swapped": lambda t: replace(t, W_Q=t.W_K, W_K=t.W_Q, b_Q=t.b_K, b_K=t.b_Q),
    "constant on the position rows": lambda t: replace(t, constant=1 - t.constant),
    "constant on all rows": lambda t: replace(t, constant=np.ones(24)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(induction, fault):
    host = build_host("sparse", induction.target.shape)
    target = FAULTS[fault](induction.target)
    if fault == "constant on the position rows":  # X c = 1 there too: another right choice, no fault
        assert difference(induction, host, target=target) < 1e-12
    else:
        assert difference(induction, host, target=target) > 1e-4


# --- layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["softmax", "causal", "window:2", "causal+window:3"])
@pytest.mark.parametrize("P", [0, 6])
def test_transformer_lens_names(tmp_path, attention, P):
    model = import_model(write(tmp_path / "m.safetensors", transformer_lens(P=P)), attention=attention)
    assert model.positions == P
    for name in ("sparse", "random"):
        assert difference(model, build_host(name, model.target.shape)) < 1e-9


def test_transformer_lens_against_torch(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = transformer_lens(3, H=4, G=2)
    model = import_model(write(tmp_path / "m.safetensors", tensors))
    t = {name: torch.from_numpy(array) for name, array in tensors.items()}
    tokens = np.array([3, 0, 0, 1, 2])
    x = t["embed.W_E"][tokens] + t["pos_embed.W_pos"][:5]
    for layer in range(2):
        w = {name.rsplit(".", 1)[1]: v for name, v in t.items() if name.startswith(f"blocks.{layer}.")}
        out = x + w["b_O"]
        for h in range(4):
            q, k = x @ w["W_Q"][h] + w["b_Q"][h], x @ w["_W_K"][h // 2] + w["_b_K"][h // 2]
            v = x @ w["_W_V"][h // 2] + w["_b_V"][h // 2]
            z = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            out = out + z @ w["W_O"][h]
        x = out
    expected = (x @ t["unembed.W_U"] + t["unembed.b_U"]).numpy()
    assert np.abs(model.original(tokens) - expected).max() < 1e-13


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("P", [0, 5])
def test_multihead_names(tmp_path, residual, P):
    path = write(tmp_path / "m.safetensors", multihead(P=P))
    model = import_model(path, heads=3, residual=residual)
    assert (model.target.shape.residual, model.target.shape.head_dim) == (residual, 2)
    assert model.positions == P
    for name in ("sparse", "random"):
        assert difference(model, build_host(name, model.target.shape)) < 1e-9


def without(tensors, name):
    return {k: v for k, v in tensors.items() if k != name}
