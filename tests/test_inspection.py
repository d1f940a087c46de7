"""What `inspect` says of a model's attention: planted ranks, dead and repeated heads, compositions, by dense products."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_import import TRAINED, transformer_lens, write

from utfproof.cli.app import run
from utfproof.errors import MalformedInput
from utfproof.models.families import read_attention
from utfproof.models.inspection import heads_of, inspect_model
from utfproof.models.tensors import Claims
from utfproof.weights import TensorFile

H, L, d, D, V = 3, 2, 2, 7, 5


def file(tensors, name="model"):
    return TensorFile(name, tensors, {}, dict.fromkeys(tensors, "F64"))


@pytest.fixture
def planted():
    """Head 0.1 writes nothing, 0.2 has the queries and keys of 0.0, 1.0 has queries of rank 1, and 1.2 reads nothing that 0.0
    writes through its queries."""
    tensors = transformer_lens(H=H, L=L, d=d, D=D, V=V)
    first, second = ({n: tensors[f"blocks.{at}.attn.{n}"] for n in ("W_Q", "W_K", "W_V", "W_O")} for at in range(2))
    first["W_V"][1] = 0
    for name in ("W_Q", "W_K"):
        first[name][2] = first[name][0]
    second["W_Q"][0] = np.outer(second["W_Q"][0][:, 0], [1, 2])
    written = np.linalg.svd(first["W_O"][0])[2][2:]  # rows that no output of head 0.0 meets
    second["W_Q"][2] = written[:2].T
    return tensors


def test_planted_structure_is_found(planted):
    found = inspect_model(file(planted), None)
    heads = {head["head"]: head for head in found["heads"]}
    assert [name for name, head in heads.items() if head["dead"]] == ["0.1"]
    assert heads["0.2"]["repeats_queries_keys"] == "0.0"
    assert heads["0.2"]["repeats_values_outputs"] is None
    assert (heads["1.0"]["rank_QK"], heads["1.0"]["rank_OV"], heads["1.1"]["rank_QK"]) == (1, 2, 2)
    zero = [row["kind"] + row["reader"] + row["writer"] for row in found["composition"] if row["score"] < 1e-14]
    assert zero == ["Q1.20.0"]
    assert found["least_m"]["stream, untied"] == 2 * d * H * (1 + 4) + D * 16
    assert found["least_m"]["logits, untied"] == 2 * d * H * (1 + 4) + V * 16


def test_scores_are_those_of_dense_products(planted):
    heads = heads_of(read_attention(Claims(file(planted)), None))
    found = inspect_model(file(planted), None)["composition"]
    scores = {(row["kind"], row["reader"], row["writer"]): row["score"] for row in found}
    (_, _, v, o), (q, k, _, _) = heads[0, 2], heads[1, 1]
    OV, QK = v @ o, q @ k.T
    norm = np.linalg.norm
    assert np.isclose(scores["Q", "1.1", "0.2"], norm(OV @ QK) / norm(OV) / norm(QK))
    assert np.isclose(scores["K", "1.1", "0.2"], norm(OV @ QK.T) / norm(OV) / norm(QK))
    W_V, W_O = heads[1, 1][2:]
    assert np.isclose(scores["V", "1.1", "0.2"], norm(OV @ W_V @ W_O) / norm(OV) / norm(W_V @ W_O))


def separate(parts, at="layers.0."):
    names = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    return {at + name: part.transpose(0, 2, 1).reshape(-1, D) for name, part in zip(names, parts, strict=True)}


@pytest.mark.parametrize("names", ["separate", "grouped", "fused", "by head", "Conv1D"])
def test_matrices_are_found_by_the_names_of_libraries(names):
    rng = np.random.default_rng(0)
    G = 1 if names == "grouped" else H
    q, k, v = (rng.normal(size=(count, D, d)) for count in (H, G, G))
    W_O = rng.normal(size=(H, d, D))
    tensors = separate((q, k, v))
    rows, out = list(tensors.values()), W_O.transpose(2, 0, 1).reshape(D, H * d)
    if names == "by head":
        fused = np.stack([x.transpose(0, 2, 1) for x in (q, k, v)], axis=1).reshape(-1, D)
        tensors = {"layers.0.query_key_value.weight": fused, "layers.0.dense.weight": out}
    elif names in ("fused", "Conv1D"):
        tensors = {"h.0.attn.c_attn.weight": np.concatenate(rows), "h.0.attn.c_proj.weight": out}
        if names == "Conv1D":
            tensors = {name: array.T for name, array in tensors.items()}
    else:
        tensors["layers.0.o_proj.weight"] = out
    found = read_attention(Claims(file(tensors)), H)
    for name, wanted in zip(("W_Q", "W_K", "W_V", "W_O"), (q, k, v, W_O), strict=True):
        assert np.array_equal(found[name][0], wanted)


def test_what_is_not_read_is_said():
    with pytest.raises(MalformedInput, match="pass --heads"):
        inspect_model(file({f"a.{x}_proj.weight": np.ones((2, 2)) for x in "qkvo"}), None)
    with pytest.raises(MalformedInput, match="no attention is found"):
        inspect_model(file({"a.weight": np.ones((2, 2))}), 2)
    with pytest.raises(MalformedInput, match="does not fit 4 heads"):
        inspect_model(file(separate([np.ones((3, D, 2))] * 3) | {"layers.0.o_proj.weight": np.ones((D, 6))}), 4)


def test_the_command_names_obstacles_and_claims_nothing(tmp_path, capsys):
    path = write(
        tmp_path / "m.safetensors",
        transformer_lens() | {"blocks.0.ln1.w": np.ones(5), "blocks.0.mlp.W_in": np.ones((5, 9))},
    )
    assert run(["inspect", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {entry["what"] for entry in document["obstacles"]} == {"norms", "MLPs", "biases", "depth and vocabulary"}
    assert run(["inspect", str(TRAINED), "--heads", "2"]) == 0
    out = capsys.readouterr().out
    assert "264" in out
    assert "acts as" not in out
    assert run(["inspect", str(TRAINED)]) == 0  # its metadata say the number of heads
    save_file(load_file(TRAINED), tmp_path / "bare.safetensors")
    assert run(["inspect", str(tmp_path / "bare.safetensors")]) == 2
    assert run(["inspect", str(tmp_path / "absent.safetensors")]) == 2


def test_masks_and_biases_of_norms_are_no_biases_of_attention():
    names = ["transformer.h.0.attn.bias", "transformer.h.0.ln_1.bias", "transformer.h.0.mlp.c_fc.bias"]
    tensors = {name: np.ones((1, 1, 4, 4) if "attn" in name else 8) for name in names}
    tensors |= {f"transformer.h.0.attn.{x}_proj.weight": np.eye(8) for x in "qkvo"}
    found = inspect_model(file(tensors), 2)
    assert {entry["what"] for entry in found["obstacles"]} == {"norms", "MLPs"}
