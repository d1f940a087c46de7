"""`refute-lower`: hosts of the shared-attention model, refuted with a target that no E and U serve, or left open."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from naive import w_all as naive_w_all
from naive import words
from test_decide import checked, save
from tiers import full_where

from utfproof import weights
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.constructions.counting import counting_host
from utfproof.constructions.shared_attention import two_sided_host
from utfproof.decision.shared import read_shared_host, refute_shared
from utfproof.errors import ResourceLimit
from utfproof.exact import rational
from utfproof.shapes import Shape
from utfproof.util.arrays import exact


@pytest.fixture
def refute(to_json):
    """Run `utfproof refute-lower FILE -o c.json --json` in a fresh folder: (exit code, document or error)."""
    return to_json("refute-lower")


def products(R_V, L):
    """All R_w of length L, exactly, one word at a time."""
    R_V = exact(np.asarray(R_V, dtype=np.float64))
    tied, H = R_V.ndim == 3, R_V.shape[-3]
    out = []
    for word in words(H, L):
        product = None
        for layer, h in enumerate(word):
            step = R_V[h] if tied else R_V[layer, h]
            product = step if product is None else product @ step
        out.append(product)
    return out


def served(R_V, L, target):
    """Whether some matrix X, of any rank, has <R_w, X> = M_w[0, 0] for all words: needed for E and U to exist (d_in = 1)."""
    W = exact(naive_w_all(target))
    H = target.shape.heads
    outputs = W[0, -(H**L) * target.shape.d_out :: target.shape.d_out]
    rows = np.stack([p.reshape(-1) for p in products(R_V, L)], axis=1)
    return rational.rank(np.concatenate([rows, outputs[None]])) == rational.rank(rows)


@pytest.mark.parametrize(
    "dtype", full_where(lambda dtype: dtype != "bfloat16", ["float64", "float32", "bfloat16", "int8"])
)
@pytest.mark.parametrize(
    ("H", "L", "m", "tied"), [(2, 4, 3, False), (2, 5, 4, True), (3, 3, 5, False), (3, 2, 2, True)]
)
def test_below_the_bound_every_host_is_refuted(refute, tmp_path, dtype, H, L, m, tied):
    rng = np.random.default_rng(0)
    lead = (H,) if tied else (L, H)
    R_V = rng.integers(-3, 4, size=(*lead, m, m)) * (1.0 if dtype == "int8" else 0.125)
    save(tmp_path / "h.safetensors", {"R_V": R_V}, dtype)
    options = ["--layers", str(L)] if tied else []
    code, document = refute("h.safetensors", *options)
    assert (code, document["free"], document["targets"]) == (1, "E and U", "all untied")
    assert document["verdict"] == "not universal in the shared-attention model"
    assert checked("c.json") == 0
    target = weights.read_target("c.target.safetensors")
    assert not served(R_V, L, target)
    assert naive_w_all(target)[:, : -(H**L)].any() == np.False_
    # the certificate's vector annihilates the true products, with the word in its support
    evidence = json.loads(Path("c.json").read_text())["evidence"]
    y = {i: int(v) for i, v in evidence["y"]}
    total = sum(products(R_V, L)[i] * Fraction(v) for i, v in y.items())
    assert not total.any()
    assert y[words(H, L).index(tuple(document["word"]))]


def test_float_weights_keep_all_their_digits(refute, tmp_path):
    R_V = np.random.default_rng(0).normal(size=(3, 2, 2, 2)).astype(np.float32)
    save(tmp_path / "h.safetensors", {"R_V": R_V}, "float32")
    assert refute("h.safetensors")[0] == 1
    host = read_shared_host("h.safetensors")
    assert (exact(R_V.astype(np.float64)) * 2**host.shift == host.R_V).all()
    assert checked("c.json") == 0
    assert not served(R_V, 3, weights.read_target("c.target.safetensors"))


def test_at_the_bound_it_is_open(refute, tmp_path):
    """The two-sided register serves all targets at m^2 = H^L; random values there are independent as well."""
    host = two_sided_host(Shape(2, 4, 1, 1), 4)
    R_V = np.array([[host.value(layer, h).to_dense(np.int8) for h in range(2)] for layer in range(4)])
    for values in (R_V, np.random.default_rng(0).integers(-3, 4, size=(4, 2, 4, 4))):
        save(tmp_path / "h.safetensors", {"R_V": values}, "int8")
        code, err = refute("h.safetensors")
        assert code == 4
        assert "open in the shared-attention model: m^2 = 16 is not below H^L = 16" in err
        assert len(err.splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"h.safetensors"}


def test_special_values_are_refuted_beyond_the_bound(refute, tmp_path):
    """Counting commutes, so R_01 = R_10; a repeated head; both with m^2 above H^L."""
    host = counting_host(Shape(2, 2, 1, 1), 3)
    R_V = np.array([host.value(0, h).to_dense(np.int8) for h in range(2)])
    save(tmp_path / "h.safetensors", {"R_V": R_V}, "int8")
    code, document = refute("h.safetensors", "--layers", "2")
    assert (code, document["words"]) == (1, 4)
    assert not served(R_V, 2, weights.read_target("c.target.safetensors"))
    rng = np.random.default_rng(0)
    R_V = rng.integers(-3, 4, size=(2, 2, 6, 6))
    save(tmp_path / "r.safetensors", {"R_V": R_V}, "int8")
    assert refute("r.safetensors")[0] == 4
    R_V[1, 1] = R_V[1, 0]
    save(tmp_path / "r.safetensors", {"R_V": R_V}, "int8")
    assert refute("r.safetensors")[0] == 1
    assert checked("c.json") == 0


def test_whole_hosts_and_factors(refute, tmp_path):
    """R_Q, R_K and U say the class of targets and are otherwise left out; factors are multiplied exactly."""
    weights.write_host(tmp_path / "h.safetensors", build_host("random", Shape(2, 4, 2, 3), 3))
    code, document = refute("h.safetensors")
    assert (code, document["unused"]) == (1, ["R_Q", "R_K", "U"])
    assert (document["shape"]["d_in"], document["shape"]["head_dim"]) == (3, 2)
    target = weights.read_target("c.target.safetensors")
    assert (target.shape.d_in, target.shape.head_dim) == (3, 2)
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=s).astype(np.float32) for s in ((4, 2, 6, 1), (4, 2, 1, 6)))
    save(tmp_path / "f.safetensors", {"R_Vv": left, "R_Vo": right}, "float32")
    code, document = refute("f.safetensors")
    assert code == 1  # m^2 = 36 > 16, but products of rank one: R_w = v (...) o, one pair of first and last factor each
    assert checked("c.json") == 0
    R_V = exact(left.astype(np.float64)) @ exact(right.astype(np.float64))
    host = read_shared_host("f.safetensors")
    assert (host.R_V == R_V * 2**host.shift).all()


def test_too_large_for_a_null_vector(refute, tmp_path, monkeypatch):
    monkeypatch.setattr("utfproof.decision.shared.NULL_WORK", 50)
    R_V = np.random.default_rng(0).integers(-3, 4, size=(4, 2, 3, 3))
    save(tmp_path / "h.safetensors", {"R_V": R_V}, "int8")
    code, document = refute("h.safetensors")
    assert (code, document["method"], document["word"]) == (1, "dimension", None)
    assert checked("c.json") == 0
    assert not Path("c.target.safetensors").exists()
    R_V = np.random.default_rng(0).integers(-3, 4, size=(4, 2, 4, 4))
    save(tmp_path / "h.safetensors", {"R_V": R_V}, "int8")
    with pytest.raises(ResourceLimit, match="looked for up to 50"):
        refute_shared(read_shared_host("h.safetensors"))


V = np.ones((2, 2, 2, 2))


@pytest.mark.parametrize(
    ("tensors", "metadata", "options", "code", "message"),
    [
        ({"W": V}, {}, [], 2, "tensor R_V is missing"),
        ({"R_V": V, "W": V}, {}, [], 2, "tensor W is not understood"),
        ({"R_V": V[0, 0]}, {}, [], 2, "R_V has 2 axes"),
        ({"R_V": V[0]}, {}, [], 2, "pass --layers"),
        ({"R_V": V[0]}, {}, ["--layers", "0"], 2, "layers must be a positive integer"),
        ({"R_V": V[0]}, {"layers": "3"}, ["--layers", "2"], 2, "metadata says 3 layers, 2 were said"),
        ({"R_V": V}, {}, ["--layers", "3"], 2, "R_V has 2 layers, 3 were said"),
        ({"R_V": V}, {"layers": "5"}, [], 2, "R_V has 2 layers, 5 were said"),
        ({"R_V": V[..., :1]}, {}, [], 2, "values must be square matrices"),
        ({"R_Vv": V[..., :1], "R_Vo": V}, {}, [], 2, "values must be square matrices"),
        ({"R_Vv": V}, {}, [], 2, "tensor R_Vo is missing"),
        ({"R_V": V * np.nan}, {}, [], 2, "R_V[0, 0, 0, 0] is nan"),
        ({"R_V": V}, {"system": "looped-universal"}, [], 2, "but R_V has 4 axes"),
        ({"R_V": V}, {"system": "target"}, [], 2, "metadata says system 'target'"),
        ({"R_V": V}, {}, ["--d-in", "0"], 2, "--d-in must be a positive integer"),
        ({"R_V": V[0]}, {}, ["--layers", "100"], 3, "head words"),
        ({"R_V": V[0]}, {}, ["--layers", "1000000000"], 3, "head words"),
        ({"R_V": V}, {}, ["--max-memory", "10"], 3, "the limit is"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(refute, tmp_path, tensors, metadata, options, code, message):
    save(tmp_path / "h.safetensors", tensors, metadata=metadata)
    found, err = refute("h.safetensors", *options)
    assert found == code
    assert message in err
    assert len(err.splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"h.safetensors"}


def test_words_for_people(refute, tmp_path, capsys):
    save(tmp_path / "h.safetensors", {"R_V": np.eye(2)[None] * np.array([1, 2, 3])[:, None, None]}, "int8")
    assert run(["refute-lower", "h.safetensors", "--layers", "2", "-o", "c.json"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "not universal in the shared-attention model (E and U both free, targets: all untied)" in said
    assert Path("c.target.safetensors").exists()
    assert run(["refute-lower", "--help"]) == 0
    assert "Example" in capsys.readouterr().out
