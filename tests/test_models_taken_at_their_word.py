"""What files and configurations say, and what they leave open: no tensor that counts is left out, no field is obeyed that the
library does not obey, nothing is settled that nobody says, and fields of a wrong type are refused in one line."""

import json
import math

import numpy as np
import pytest
from test_import import KNOWN, write
from test_import import transformer_lens as lens

from utfproof.cli.app import run
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.models import import_model
from utfproof.models.facts import KINDS
from utfproof.models.families import families
from utfproof.models.family import HARMLESS

V, D, H, d, P, L = 9, 8, 2, 4, 12, 2


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def layers(pattern, **parts):
    return {pattern.format(layer) + name: draw(*shape) for layer in range(L) for name, shape in parts.items()}


def named(pattern, parts, end=".weight"):
    return {pattern.format(layer) + part + end: draw(D, D) for layer in range(L) for part in parts}


FILES = {
    "llama": named("model.layers.{}.self_attn.", ("q_proj", "k_proj", "v_proj", "o_proj"))
    | {"model.embed_tokens.weight": draw(V, D), "lm_head.weight": draw(V, D)},
    "gpt2": layers("h.{}.attn.", **{"c_attn.weight": (D, 3 * D), "c_proj.weight": (D, D)})
    | {"wte.weight": draw(V, D), "wpe.weight": draw(P, D), "lm_head.weight": draw(V, D)},
    "nanogpt": layers("h.{}.attn.", **{"c_attn.weight": (3 * D, D), "c_proj.weight": (D, D)})
    | {"wte.weight": draw(V, D), "wpe.weight": draw(P, D), "lm_head.weight": draw(V, D)},
    "pytorch": layers("layers.{}.", **{"in_proj_weight": (3 * D, D), "out_proj.weight": (D, D)})
    | {"embed.weight": draw(V, D), "pos.weight": draw(P, D), "head.weight": draw(V, D)},
    "transformer-lens": lens(H=H, L=L, d=d, D=D, V=V, P=P),
    "transformer-lens-bridge": named("blocks.{}.attn.", "qkvo")
    | {"embed.weight": draw(V, D), "pos_embed.weight": draw(P, D), "unembed.weight": draw(V, D)},
    "x-transformers": named("attn_layers.layers.{}.1.", ("to_q", "to_k", "to_v", "to_out"))
    | {"token_emb.emb.weight": draw(V, D), "pos_emb.emb.weight": draw(P, D), "to_logits.weight": draw(V, D)},
}
NANOGPT = {"n_layer": L, "n_head": H, "n_embd": D, "vocab_size": V, "block_size": P, "dropout": 0.0, "bias": True}
LLAMA = {
    "model_type": "llama",
    "num_attention_heads": H,
    "num_key_value_heads": H,
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GPT2 = {"model_type": "gpt2", "n_head": H, "n_layer": L, "n_embd": D, "n_positions": P, "vocab_size": V}
BRIDGE = {
    "n_heads": H,
    "use_attn_scale": True,
    "attn_scale": -1,
    "attention_dir": "causal",
    "positional_embedding_type": "standard",
    "normalization_type": None,
    "use_local_attn": False,
    "attn_scores_soft_cap": -1.0,
}
X_TRANSFORMERS = {
    "attn.heads": H,
    "attn.scale": 0.5,
    "attn.causal": True,
    "attn.max_attend_past": None,
    "attend.softclamp_logits": False,
    "layers.positions": "learned",
    "layers.norms": "Identity",
    "wrapper.position_factor": D**-0.5,
}


@pytest.fixture
def stored(tmp_path):
    """A model of a family, with these changes to its tensors, as a file."""

    def store(family, **changes):
        tensors = {name: a for name, a in {**FILES[family], **changes}.items() if a is not None}
        return write(tmp_path / "m.safetensors", tensors)

    return store


# --- tensors that are left out -------------------------------------------------------------------------------


def idle(last=0.0, prefix="h.{}.mlp.", **more):
    """GPT-2's MLP in every layer of a nanoGPT, its last matrix of this number."""
    out = {}
    for layer in range(L):
        at = prefix.format(layer)
        out |= {f"{at}c_fc.weight": draw(16, D), f"{at}c_fc.bias": draw(16)}
        out |= {f"{at}c_proj.weight": np.full((D, 16), last), f"{at}c_proj.bias": np.zeros(D)}
    return out | more


def test_an_idle_mlp_is_left_out_and_nothing_else(stored):
    model = import_model(stored("nanogpt", **idle()), config=NANOGPT)
    assert len(model.bookkeeping) == 4 * L
    assert all(".mlp." in name for name in model.bookkeeping)


COUNTS = {
    "a linear map before the head": idle(**{"fc.weight": draw(D, D), "fc.bias": draw(D)}),
    "an MLP that is no layer's": idle(prefix="mlp{}."),
    "an MLP at the end": idle(**{"mlp.c_fc.weight": draw(16, D), "mlp.c_proj.weight": np.zeros((D, 16))}),
    "another tensor in an idle MLP": idle(**{"h.0.mlp.shortcut.weight": draw(D, D)}),
    "a second way out of an idle MLP": idle(**{"h.1.mlp.fc2.weight": draw(D, 16)}),
    "a bias of the last matrix alone": idle(**{"h.1.mlp.c_proj.bias": np.eye(D)[0]}),
    "the first matrix alone": {"h.0.mlp.c_fc.weight": draw(16, D)},
    "a last matrix that is not zero": idle(last=1e-300),
    "a bias that attention adds": {"h.0.attn.bias": draw(D)},
    "positions in another order": {"position_ids": np.arange(P)[None, ::-1].copy()},
    "positions that repeat": {"position_ids": np.zeros((1, P), dtype=np.int64)},
    "a number that hides nothing": {"h.0.attn.masked_bias": np.array(-1.0)},
    "a banded mask": {"h.0.attn.bias": (np.tri(P) - np.tri(P, k=-3))[None, None]},
    "a mask that is no mask": {"h.0.attn.bias": np.tri(P)[None, None] * 0.5},
    "an added mask that only dims": {"attn_mask": np.tri(P) - 1},
}


@pytest.mark.parametrize("case", COUNTS)
def test_a_tensor_that_counts_is_refused_by_name(tmp_path, case):
    """Under nanoGPT's own names, all of which start with one module."""
    tensors = {f"transformer.{name}": array for name, array in {**FILES["nanogpt"], **COUNTS[case]}.items()}
    with pytest.raises(MalformedInput) as error:
        import_model(write(tmp_path / "m.safetensors", tensors), "nanogpt", config=NANOGPT)
    changed = [name for name in COUNTS[case] if name in str(error.value)]
    assert changed


def test_an_mlp_of_a_model_without_a_stream_is_not_idle(tmp_path):
    """Its zeros are all that the next layer would see."""
    tensors = {name.replace("in_proj", "self_attn.in_proj"): array for name, array in FILES["pytorch"].items()}
    tensors = {name.replace("out_proj", "self_attn.out_proj"): array for name, array in tensors.items()}
    tensors |= {f"layers.{layer}.linear{i}.weight": np.zeros((D, D)) for layer in range(L) for i in (1, 2)}
    path = write(tmp_path / "m.safetensors", tensors)
    assert len(import_model(path, heads=H, residual=True).bookkeeping) == 2 * L
    with pytest.raises(MalformedInput, match="linear1"):
        import_model(path, heads=H, residual=False)


def test_plain_bookkeeping_is_left_out(stored):
    own = {"h.0.attn.bias": np.tri(P)[None, None], "h.0.attn.masked_bias": np.array(-1e4)}
    buffers = {"position_ids": np.arange(P)[None], "attn_mask": np.where(np.tri(P) > 0, 0.0, -1e9)}
    with pytest.raises(MalformedInput, match="masked_bias is not understood"):  # a buffer of GPT-2, not of nanoGPT
        import_model(stored("nanogpt", **own, **{"x.masked_bias": np.zeros(2)}), config=NANOGPT)
    assert len(import_model(stored("nanogpt", **own, **buffers), config=NANOGPT).bookkeeping) == 4


ROTATED = {
    "its own": (LLAMA, 10000.0, True),
    "of another base than is said": (LLAMA, 5e5, False),
    "of another base that is said": ({**LLAMA, "rope_parameters": {"rope_theta": 5e5}}, 5e5, True),
    "of another base than is assumed": (None, 5e5, False),
    "of the base that is assumed": (None, 10000.0, True),
}


@pytest.mark.parametrize("case", ROTATED)
def test_stored_frequencies_are_those_of_the_base(stored, case):
    config, base, right = ROTATED[case]
    path = stored("llama", **{"model.layers.0.self_attn.rotary_emb.inv_freq": base ** -np.array([0, 0.5])})
    if not right:
        with pytest.raises(MalformedInput, match="inv_freq holds other frequencies than those of base 10000"):
            import_model(path, config=config, heads=H)
        return
    model = import_model(path, config=config, heads=H)
    assert "rotary_base" not in model.unknown
    cos = model.reading.attention.layers[0].rotary.cos
    assert np.allclose(cos[3], np.cos(3 * base ** -np.array([0, 0.5])))


def test_frequencies_of_a_part_of_each_head_are_refused_where_all_of_it_rotates(stored):
    path = stored("llama", **{"model.rotary_emb.inv_freq": np.ones(1)})
    with pytest.raises(MalformedInput, match="all coordinates rotate"):
        import_model(path, config=LLAMA)
    assert import_model(path, heads=H).reading.attention.layers[0].rotary.cos.shape[1] == 1
    with pytest.raises(MalformedInput, match="rotate queries and keys"):
        import_model(path, heads=H, config={"positional_embedding_type": None})


@pytest.mark.parametrize("change", [{}, {"attn_scores_soft_cap": 30.0}, {"positional_embedding_type": "rotary"}])
def test_a_banded_mask_is_refused_whatever_else_attention_does(stored, change):
    band = np.tri(P, dtype=bool) & ~np.tri(P, k=-3, dtype=bool)
    path = stored("transformer-lens", **{"blocks.1.attn.mask": band})
    fields = {**BRIDGE, "n_ctx": P, **change}
    with pytest.raises(MalformedInput, match=r"blocks\.1\.attn\.mask is not the mask"):
        import_model(path, config=fields)
    fields |= {"use_local_attn": True, "window_size": 3, "attn_types": ["global", "local"]}
    assert import_model(path, config=fields).bookkeeping == ("blocks.1.attn.mask",)
    with pytest.raises(MalformedInput, match=r"blocks\.1\.attn\.mask is not the mask"):
        import_model(path, config={**fields, "attn_types": ["local", "global"]})


def test_a_mask_of_a_model_that_looks_both_ways(stored):
    """It counts, but for TransformerLens, which does not use it then."""
    both_ways = {**WHOLE["pytorch"], "causal": False}
    for mask in (np.tri(P, dtype=bool), draw(P, P), np.tri(P, k=1) - 1):
        with pytest.raises(MalformedInput, match=r"mask is (not the|no) mask"):
            import_model(stored("pytorch", mask=mask), config=both_ways)
        fields = {**BRIDGE, "attention_dir": "bidirectional"}
        held = import_model(stored("transformer-lens", **{"blocks.1.attn.mask": mask}), config=fields)
        assert held.bookkeeping == ("blocks.1.attn.mask",)
    for mask in (np.ones((P, P), dtype=bool), np.zeros((P, P))):  # all are seen; none are hidden
        assert import_model(stored("pytorch", mask=mask), config=both_ways).bookkeeping == ("mask",)


# --- fields that the library obeys, and fields that it does not ------------------------------------------------


def test_a_window_is_mistrals_and_not_llamas(stored):
    path = stored("llama")
    for kind, window in (("llama", None), ("mistral", 4)):
        fields = {**LLAMA, "model_type": kind, "sliding_window": 4}
        model = import_model(path, config=fields)
        assert model.reading.attention.layers[0].window == window
        assert model.unknown == ()
    assert "window" in import_model(path, config={**LLAMA, "model_type": "mistral"}).unknown


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attention_bias": False}, "attention_bias says that attention has no biases"),
        ({"model_type": "mistral"}, "as a whole says that attention has no biases"),
        ({"model_type": "mistral", "attention_bias": True}, "as a whole says that attention has no biases"),
    ],
)
def test_biases_that_the_library_does_not_load_are_refused(stored, fields, said):
    path = stored("llama", **{"model.layers.1.self_attn.k_proj.bias": draw(D)})
    with pytest.raises(MalformedInput, match=f"{said}, and model.layers.1.self_attn.k_proj.bias"):
        import_model(path, config={**LLAMA, **fields})
    assert "b_K" in import_model(path, config={**LLAMA, "attention_bias": True}).reading.biases()
    with pytest.raises(MalformedInput, match="no biases"):
        import_model(path, config={name: value for name, value in LLAMA.items() if name != "attention_bias"})


def test_another_architecture_of_the_same_names_is_refused(stored):
    with pytest.raises(MalformedInput, match="model_type = 'imagegpt': other architectures"):
        import_model(stored("gpt2"), config={**GPT2, "model_type": "imagegpt"})


def test_a_bridge_divides_by_positive_numbers_alone(stored):
    for scale, factor in ((-1, 0.5), (3.0, 1 / 3), (None, 0.5)):
        assert (
            import_model(stored("transformer-lens-bridge"), config={**BRIDGE, "attn_scale": scale}).reading.factors[0]
            == factor
        )
    for scale in (-2, -0.5, 0):
        with pytest.raises(MalformedInput, match=r"attn_scale = .* positive numbers alone"):
            import_model(stored("transformer-lens-bridge"), config={**BRIDGE, "attn_scale": scale})


def test_a_cap_after_alibis_bias_is_refused(stored):
    path = stored("x-transformers", **{"pos_emb.emb.weight": None})
    capped = {"attend.softclamp_logits": True, "attend.logit_softclamp_value": 3.0}
    alibi = {"layers.positions": "alibi", "wrapper.position_factor": 1.0}
    assert import_model(path, config={**X_TRANSFORMERS, **alibi}).reading.attention.layers[0].slopes
    with pytest.raises(MalformedInput, match="softclamp_logits says that logits are capped after ALiBi's bias"):
        import_model(path, config={**X_TRANSFORMERS, **alibi, **capped})
    with pytest.raises(MalformedInput, match="nobody says at which value"):
        import_model(stored("x-transformers"), config={**X_TRANSFORMERS, "attend.softclamp_logits": True})


@pytest.mark.parametrize(
    ("option", "said"), [({"emb_dim": 4}, "embeddings of another width"), ({"tie_embedding": True}, "tie_embedding")]
)
def test_what_x_transformers_does_around_its_layers_is_refused_for_what_it_is(option, said):
    library = pytest.importorskip("x_transformers")
    from utfproof import from_model

    decoder = library.Decoder(dim=D, depth=1, heads=H, attn_dim_head=d, custom_layers=("a",))
    with pytest.raises(MalformedInput, match=said):
        from_model(library.TransformerWrapper(num_tokens=V, max_seq_len=P, attn_layers=decoder, **option))


# --- what is left open, and what a whole configuration settles -------------------------------------------------

OPEN = {
    "llama": {"causal", "scale", "positions", "norm", "cap", "window", "rotary_base", "rotary_dim", "adjacent"},
    "gpt2": {"causal", "scale", "norm", "cap", "window", "head_order"},
    "nanogpt": {"causal", "scale", "norm", "cap", "window", "head_order"},
    "pytorch": {"causal", "norm", "window"},
    "transformer-lens": {"causal", "scale", "positions", "norm", "cap", "window"},
    "transformer-lens-bridge": {"causal", "scale", "positions", "norm", "cap", "window"},
    "x-transformers": {"causal", "scale", "positions", "norm", "cap", "window"},
}
"""Facts that tensors of these names alone do not show."""
WHOLE = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "nanogpt": NANOGPT,
    "pytorch": {"heads": H, "residual": True, "causal": True, "window": None, "normalization_type": None},
    "transformer-lens": BRIDGE,
    "transformer-lens-bridge": BRIDGE,
    "x-transformers": X_TRANSFORMERS,
}
"""What the libraries' own configurations hold of them."""


@pytest.mark.parametrize("family", FILES)
def test_what_nobody_says_is_open_and_a_whole_configuration_closes_it(stored, family, tmp_path, capsys):
    path, out = stored(family), tmp_path / "E.safetensors"
    said = {"residual": True} if family == "pytorch" else {}
    assert set(import_model(path, family, heads=H, **said).unknown) == OPEN[family]
    assert import_model(path, family, config=WHOLE[family]).unknown == ()
    (tmp_path / "config.json").write_text(json.dumps(WHOLE[family]))
    command = ["embed", "sparse", str(path), "--layout", family, "-o", str(out)]
    stream = ["--residual"] if said else []
    assert run([*command, "--heads", str(H), *stream]) == 4
    assert "assumed: nobody says" in capsys.readouterr().out
    assert run([*command, "--config", str(tmp_path / "config.json")]) == 0


def test_a_rotation_that_is_said_otherwise(stored):
    """Each fact by its own field: the others stay open."""
    path = stored("llama")
    for field, value, fact in (
        ("rope_theta", 5e5, "rotary_base"),
        ("rotary_dim", 2, "rotary_dim"),
        ("rotary_adjacent_pairs", True, "adjacent"),
        ("normalization_type", None, "norm"),
        ("attn_scores_soft_cap", -1, "cap"),
        ("attention_dir", "causal", "causal"),
    ):
        usual = import_model(path, heads=H)
        model = import_model(path, heads=H, config={field: value})
        assert set(usual.unknown) - set(model.unknown) == {fact}
        if fact in ("rotary_base", "rotary_dim", "adjacent"):
            tokens = np.arange(8)
            assert np.abs(usual.original(tokens) - model.original(tokens)).max() > 1e-6


@pytest.mark.parametrize("family", ["nanogpt", "gpt2", "pytorch"])
def test_positions_that_no_tensor_holds_are_open(stored, family):
    name = {"pytorch": "pos.weight"}.get(family, "wpe.weight")
    path, said = stored(family, **{name: None}), {"residual": True} if family == "pytorch" else {}
    model = import_model(path, family, heads=H, **said)
    assert "positions" in model.unknown
    assert model.reading.assumptions["positions"] == "none (assumed: nobody says)"
    fields = {"positional_embedding_type": None}
    assert "positions" not in import_model(path, family, heads=H, config=fields, **said).unknown
    if family != "pytorch":
        with pytest.raises(MalformedInput, match="says learned positions, and no tensor holds them"):
            import_model(path, family, config=WHOLE[family])


# --- fields of a wrong type ------------------------------------------------------------------------------------

NONSENSE = ["sideways", "2", "", [], ["z"], [1, "b"], {}, {"a": 1}, math.nan, math.inf, -math.inf, 10**400, 1e301, -7.5]
TRUTHS = [True, False]
SETTINGS = {
    "transformer-lens": [
        {"positional_embedding_type": "rotary"},
        {"positional_embedding_type": "alibi"},
        {"use_local_attn": True, "window_size": 2},
    ],
    "transformer-lens-bridge": [{"positional_embedding_type": "rotary"}],
    "x-transformers": [
        {"layers.positions": "rotary"},
        {"layers.positions": "alibi"},
        {"attend.softclamp_logits": True, "attend.logit_softclamp_value": 2.0},
    ],
}
TEXTS = {"ln_final", "layers.rel_pos", "layers.rotary_pos_emb"}
"""Fields that are names of classes."""
NEGATIVE = {"attn_scale": "transformer-lens", "attn.scale": "x-transformers", "attend.scale": "x-transformers"}
NEGATIVE |= {"scale": "pytorch", "layers.norm_offset": "x-transformers", "wrapper.position_factor": "x-transformers"}
"""Fields that may be any number, and whose they are."""


@pytest.mark.parametrize("family", FILES)
def test_no_field_of_a_wrong_type_is_taken(family, stored):
    """Every field of the family that counts, with every value of no sense: one line that names the field."""
    path, table = stored(family), families()[family].config
    for setting in [{}, *SETTINGS.get(family, [])]:
        for name, meaning in table.items():
            if meaning is HARMLESS:
                continue
            values = [
                *NONSENSE,
                *(TRUTHS if KINDS.get(meaning.fact, (None, ""))[1] not in ("", "true or false") else []),
            ]
            for value in values:
                if (value == -7.5 and NEGATIVE.get(name) == family) or (name in TEXTS and isinstance(value, str)):
                    continue
                if isinstance(value, bool) and meaning.only is not None and meaning.fact in ("causal", "local"):
                    continue
                _refused(path, family, {**setting, name: value}, name)


def _refused(path, family, config, name):
    residual = True if family == "pytorch" and "residual" not in config else None
    with pytest.raises(UtfproofError) as error:
        import_model(path, family, config=config, heads=None if "heads" in config else H, residual=residual)
    said = str(error.value)
    assert name in said, (config, said)
    assert "\n" not in said


ODD = [
    ("llama", {"rope_theta": None}),
    ("llama", {"rope_theta": math.nan}),
    ("llama", {"rope_theta": 0}),
    ("llama", {"rope_theta": -1.0}),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": None}}),
    ("llama", {"rope_parameters": {"rope_theta": "x"}}),
    ("llama", {"sliding_window": "4096"}),
    ("llama", {"sliding_window": 2.5}),
    ("llama", {"sliding_window": 0}),
    ("transformer-lens", {"rotary_dim": 40, "positional_embedding_type": "rotary"}),
    ("transformer-lens", {"rotary_dim": 3, "positional_embedding_type": "rotary"}),
    ("transformer-lens", {"rotary_dim": -2}),
    ("transformer-lens", {"alibi_slopes": [1.0], "positional_embedding_type": "alibi"}),
    ("transformer-lens", {"attn_types": True}),
    ("x-transformers", {"attn.max_attend_past": True}),
]


@pytest.mark.parametrize(("family", "fields"), ODD)
def test_fields_of_no_sense_are_refused_by_command_in_one_line(stored, tmp_path, capsys, family, fields):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(fields))
    command = ["embed", "sparse", str(stored(family)), "--layout", family, "--heads", str(H), "-o", str(tmp_path / "E")]
    assert run([*command, "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert next(iter(fields)) in error


def test_a_rotation_without_a_base_leaves_it_open(stored):
    model = import_model(stored("llama"), config={**LLAMA, "rope_parameters": {"rope_type": "default"}})
    assert model.unknown == ("rotary_base",)


def test_metadata_of_a_wrong_type(tmp_path, capsys):
    path = write(tmp_path / "m.safetensors", FILES["pytorch"], heads="2", residual="true", window="x")
    assert run(["embed", "sparse", str(path), "--layout", "pytorch", "-o", str(tmp_path / "E")]) == 2
    assert "metadata field window = 'x'" in capsys.readouterr().err
    write(path, lens(), **{**KNOWN, "attn_scores_soft_cap": "high"})
    with pytest.raises(MalformedInput, match="metadata field attn_scores_soft_cap = 'high'"):
        import_model(path)
