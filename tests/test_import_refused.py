"""Importing models: what is refused, the command, the smallest host."""

import json

import numpy as np
import pytest
import test_import
from test_import import KNOWN, TRAINED, multihead, transformer_lens, without, write

from utfproof.cli.app import run
from utfproof.errors import MalformedInput
from utfproof.models import import_model
from utfproof.models.attention import layer_attention
from utfproof.weights import read_embedding, read_tensors

induction = test_import.induction


pytestmark = pytest.mark.numerical


# --- refusals ----------------------------------------------------------------------------------------------

REFUSED = {
    "blocks.0.ln1.w": "normalises",
    "blocks.1.ln2.b": "normalises",
    "ln_final.w": "normalises",
    "blocks.0.attn.q_norm.w": "normalises",
    "layers.0.norm1.weight": "normalises",
    "norm.weight": "normalises",
    "layer_norm.weight": "normalises",
    "layernorm_embedding.weight": "normalises",
    "final_layernorm.weight": "normalises",
    "model.input_layernorm.weight": "normalises",
    "blocks.0.mlp.W_in": "MLP",
    "layers.0.fc1.weight": "MLP",
    "layers.0.linear1.weight": "MLP",
    "layers.1.linear2.bias": "MLP",
    "layers.0.ff.weight": "MLP",
    "blocks.0.mlp.experts.0.W_in.weight": "MLP",
    "rope.freqs": "rotate",
    "blocks.0.attn.rel_pos_bias.weight": "relative",
    "relative_attention_bias.weight": "relative",
    "blocks.0.attn.alibi": "relative",
    "layers.0.attn.bias_k": "attention to no token",
    "blocks.0.attn.sinks": "attention to no token",
    "layers.0.attn.lora_A.weight": "merge",
    "scale_of_something": "not understood",
    "blocks.0.attn.W_X": "not understood",
}
"""A tensor that is left over, and the reason."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("layout", ["transformer-lens", "pytorch"])
def test_what_cannot_be_carried_is_refused_by_name(tmp_path, name, layout):
    tensors = transformer_lens() if layout == "transformer-lens" else multihead()
    path = write(tmp_path / "m.safetensors", tensors | {name: np.ones((2, 2))}, heads="2", residual="true")
    with pytest.raises(MalformedInput, match=f"{REFUSED[name]}") as refusal:
        import_model(path)
    assert name in str(refusal.value)


METADATA = {
    "normalization_type": "LNPre",
    "positional_embedding_type": "sinusoidal",
    "attn_only": "false",
    "output_logits_soft_cap": "50.0",
    "use_qk_norm": "true",
    "parallel_attn_mlp": "true",
    "attention_dir": "sideways",
    "residual": "false",
}


@pytest.mark.parametrize("name", METADATA)
def test_what_only_metadata_show_is_refused_too(tmp_path, name):
    path = write(tmp_path / "m.safetensors", transformer_lens(), **{name: METADATA[name]})
    with pytest.raises(MalformedInput, match=name):
        import_model(path)
    harmless = {"normalization_type": "None", "positional_embedding_type": "standard", "attn_only": "True"}
    import_model(write(path, transformer_lens(), **harmless))


def changed(tensors, name, array):
    return {**tensors, name: np.asarray(array)}


TL, MHA = transformer_lens(), multihead()
MALFORMED = [
    (without(TL, "embed.W_E"), {}, "no embedding is found"),
    (without(TL, "blocks.1.attn.W_V"), {}, "blocks.1.attn.W_V is missing"),
    (without(TL, "blocks.0.attn.W_Q"), {}, "numbered|is missing|not understood"),
    (changed(TL, "blocks.1.attn.W_O", np.ones((2, 5, 3))), {}, "blocks.1.attn.W_O has shape"),
    (changed(TL, "blocks.0.attn.b_Q", np.ones(6)), {}, "blocks.0.attn.b_Q has shape"),
    (changed(TL, "pos_embed.W_pos", np.ones((6, 4))), {}, "pos_embed.W_pos has shape"),
    (changed(TL, "embed.W_E", np.ones((0, 5))), {}, "embed.W_E has shape .* none of them empty"),
    (
        changed(TL, "pos_embed.W_pos", np.ones((0, 5))),
        {},
        "pos_embed.W_pos has shape .* none of them empty",
    ),
    (changed(TL, "unembed.W_U", np.full((5, 4), np.nan)), {}, "must be finite"),
    (TL, {"residual": False}, "--no-residual"),
    (TL, {"heads": 3}, "3 heads were given, the tensors have 2"),
    (transformer_lens(H=3, G=2), {}, "do not divide"),
    ({"a.b": np.ones((2, 2))}, {}, "no attention is found"),
    (
        {f"a.{x}_proj.weight": np.ones((2, 2)) for x in "qkvo"},
        {"heads": 1, "residual": True},
        "do not say what the model computes: pass --module",
    ),
    (MHA, {"residual": True}, "pass --heads"),
    (MHA, {"heads": 2}, "--residual or --no-residual"),
    (MHA, {"heads": 4, "residual": True}, "in_proj_weight has shape .* does not fit 4 heads: pass --heads"),
    (without(MHA, "unembed.weight"), {"heads": 2, "residual": True}, "no unembedding is found"),
    (
        {**MHA, "lm_head.weight": np.ones((4, 6))},
        {"heads": 2, "residual": True},
        "several tensors could be meant",
    ),
    (
        changed(MHA, "layers.1.attn.in_proj_weight", np.ones((6, 6))),
        {"heads": 2, "residual": True},
        "has shape",
    ),
    (without(MHA, "layers.0.attn.out_proj.weight"), {"heads": 2, "residual": True}, "is missing"),
    (
        {k.replace("layers.1", "layers.2"): v for k, v in MHA.items()},
        {"heads": 2, "residual": True},
        "without a gap",
    ),
    (
        {k.replace("layers.1.attn", "layers.1.cross"): v for k, v in MHA.items()},
        {"heads": 2, "residual": True},
        "unclear",
    ),
]


@pytest.mark.parametrize(("tensors", "said", "message"), MALFORMED)
def test_malformed_models(tmp_path, tensors, said, message):
    with pytest.raises(MalformedInput, match=message):
        import_model(write(tmp_path / "m.safetensors", tensors), **said)


def test_masks_are_read_and_have_to_be_the_mask(tmp_path):
    path, n = tmp_path / "m.safetensors", 6
    causal = np.tril(np.ones((n, n), dtype=bool))
    additive = np.where(causal, 0.0, -np.inf)
    local = np.triu(causal, -1)  # the own token and the one before
    for mask in (causal, ~causal, additive, causal.astype(np.int8)):
        write(path, {**TL, "blocks.0.attn.mask": mask, "blocks.0.attn.IGNORE": np.array(-np.inf, dtype=np.float32)})
        import_model(path)
    write(path, {**TL, "blocks.1.attn.mask": local})
    with pytest.raises(MalformedInput, match=r"blocks\.1\.attn\.mask is not the mask"):
        import_model(path)
    import_model(path, attention="causal+window:2")
    write(path, {**TL, "blocks.1.attn.mask": causal[:, :3]})
    with pytest.raises(MalformedInput, match=r"blocks\.1\.attn\.mask is not the mask"):
        import_model(path)


@pytest.mark.parametrize("attention", ["scaled", "causal+alibi", "rope", "given", "nonsense", "scaled+causal"])
def test_kernels_that_models_do_not_take(attention):
    with pytest.raises(MalformedInput, match="attention"):
        layer_attention(attention)


# --- the command -------------------------------------------------------------------------------------------


def test_a_difference_beyond_the_tolerance_exits_1_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "E.safetensors"
    arguments = ["embed", "random", str(TRAINED), "-o", str(out), "--json", "--trials", "3"]
    assert run([*arguments, "--tolerance", "1e-17"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["agrees"], document["file"]) == (False, None)
    assert not out.exists()
    assert run([*arguments, "--tolerance", "0"]) == 2


@pytest.mark.parametrize(
    "extra",
    [["--tolerance", "1e-3"], ["--trials", "2"], ["--attention", "causal"]],
)
def test_options_of_models_are_refused_for_targets(tmp_path, extra, capsys):
    target, out = tmp_path / "t.safetensors", tmp_path / "E.safetensors"
    assert run(["build", "target", "-H", "2", "-L", "1", "-d", "1", "--d-in", "2", "-o", str(target)]) == 0
    assert run(["embed", "sparse", str(target), "-o", str(out), *extra]) == 2
    assert extra[0] in capsys.readouterr().err
    assert run(["embed", "sparse", str(target), "-o", str(out)]) == 0
    assert read_tensors(out).metadata["heads"] == "2"


# --- the smallest host -------------------------------------------------------------------------------------


def test_minimize_a_model(induction, tmp_path, capsys):
    host, out = (tmp_path / name for name in ("host.safetensors", "E.safetensors"))
    arguments = ["embed", str(host), str(TRAINED), "--minimize", "-o", str(out), "--json"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["least"]["m"] == 25 == read_embedding(out).shape[1]
    assert document["relative_difference"] < 1e-11
    # it carries this model, and not the same model with one bias changed
    assert run(["embed", str(host), str(TRAINED), "-o", str(out), "--trials", "3"]) == 0
    other = dict(read_tensors(TRAINED).tensors)
    other["layers.0.attn.out_proj.bias"] = other["layers.0.attn.out_proj.bias"] + np.arange(24, dtype=np.float32)
    path = write(tmp_path / "other.safetensors", other, heads="2", residual="true")
    assert run(["embed", str(host), str(path), "-o", str(out)]) == 1
    assert "cannot carry" in capsys.readouterr().err


def test_a_host_that_is_too_small_says_by_how_much(tmp_path, capsys):
    path = write(tmp_path / "m.safetensors", transformer_lens(D=4, d=2, P=2), **KNOWN)
    host, out = tmp_path / "host.safetensors", tmp_path / "E.safetensors"
    arguments = ["embed", str(host), str(path), "--minimize", "-o", str(out), "--json"]
    assert run(arguments) == 0
    least = json.loads(capsys.readouterr().out)["least"]["m"]
    assert run([*arguments, "--m", str(least - 1)]) == 1
    assert f"its least m is {least}" in capsys.readouterr().err


def test_the_smallest_host_within_a_tolerance_by_command(tmp_path, capsys):
    """It is written with what is proven, and never said to match; none that is close enough exits 1."""
    write(tmp_path / "m.safetensors", transformer_lens(), attention_dir="causal")
    files = [str(tmp_path / name) for name in ("host.safetensors", "m.safetensors", "E.safetensors")]
    command = ["embed", *files[:2], "--minimize", "-o", files[2], "--json", "--within"]
    assert run([*command, "0.5"]) in (0, 4)
    found = json.loads(capsys.readouterr().out)
    assert found["within"]["proven"] <= 0.5
    assert found["within"]["m"] < found["least"]["m"]
    stored = read_tensors(files[2])
    assert "notion" not in stored.metadata
    assert stored.tensors["E"].shape[1] == found["within"]["m"]
    assert run([*command, "1e-30"]) == 1
    assert "proven within 1e-30" in capsys.readouterr().err
    assert run([*command, "0.5", "--m", "3"]) == 2
    assert run([*command[:5], "-o", files[2], "--within", "0.5"]) == 2


@pytest.mark.parametrize("wrong", ["sparse", "same", "source"])
def test_minimize_never_overwrites(tmp_path, wrong, capsys):
    path, out = write(tmp_path / "m.safetensors", transformer_lens(P=0)), tmp_path / "E.safetensors"
    before = path.read_bytes()
    host = {"sparse": "sparse", "same": str(out), "source": str(path)}[wrong]
    arguments = ["embed", host, str(path), "-o", str(out)]
    assert run([*arguments, "--minimize"]) == 2
    assert path.read_bytes() == before
    assert not out.exists()
