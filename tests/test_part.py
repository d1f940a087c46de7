"""The first layer's attention of a real model, on chosen tokens: what is read, what is refused, and what is handed on."""

import importlib.util

import numpy as np
import pytest

from utfproof import embed_model, emulate
from utfproof.cli.app import run
from utfproof.errors import MalformedInput
from utfproof.models import from_model
from utfproof.models.inspection import inspect_model
from utfproof.models.modules import live_tensors

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
V, D, H, P, TOKENS = 80, 16, 4, 6, [3, 5, 8, 13, 21, 34]
SMALL = {"vocab_size": V, "hidden_size": D, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": H}


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_hand(q, k, v):
    """A window, ALiBi that falls by its own slope, einsum, and a softmax in float32."""
    n = q.shape[-2]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]
    logits = torch.einsum("bhid,bhjd->bhij", q, k) / 3 - slopes * distance
    logits = logits.masked_fill((distance < 0) | (distance > 2), float("-inf"))
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(logits, -1, dtype=torch.float32).to(v.dtype), v)


def capped(q, k, v):
    logits = 5.0 * torch.tanh(q @ k.transpose(-1, -2) / 5.0)
    return torch.softmax(logits, -1) @ v


def by_einsum(q, k, v):
    n = q.shape[-2]
    logits = torch.einsum("bhid,bhjd->bhij", q, k).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
    return torch.einsum("b h i j, b h j d -> b h i d", logits.softmax(-1), v)


def by_hand_products(q, k, v):
    return ((q[..., None, :] * k[..., None, :, :]).sum(-1).softmax(-1)[..., None] * v[..., None, :, :]).sum(-2)


def sink(q, k, v):
    logits = q @ k.transpose(-1, -2)
    return torch.softmax(torch.cat([logits, torch.zeros_like(logits[..., :1])], -1), -1)[..., :-1] @ v


def striped(q, k, v):
    n = q.shape[-2]
    mask = (torch.arange(n)[:, None] - torch.arange(n)) % 2 == 0
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Attention(nn.Module):
    def __init__(self, function, heads=H):
        super().__init__()
        self.qkv, self.out, self.function = nn.Linear(D, 3 * D), nn.Linear(D, D), function
        self.heads = heads

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).split(D, -1))
        return self.out(self.function(q, k, v).transpose(1, 2).flatten(-2))


class Model(nn.Module):
    """nanoGPT-like: two layers with norms and MLPs. trap: what it does to its first rows, against all expectations."""

    def __init__(self, function=fused, trap=lambda x, tokens: x, heads=H):
        super().__init__()
        torch.manual_seed(0)
        self.wte, self.wpe, self.head = nn.Embedding(V, D), nn.Embedding(P + 2, D), nn.Linear(D, V)
        self.attn = nn.ModuleList([Attention(function, heads) for _ in range(2)])
        self.norm, self.mlp, self.trap = (
            nn.LayerNorm(D),
            nn.Sequential(nn.Linear(D, 9), nn.GELU(), nn.Linear(9, D)),
            trap,
        )

    def forward(self, tokens):
        x = self.trap(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])), tokens)
        for attention in self.attn:
            x = x + attention(self.norm(x))
            x = x + self.mlp(self.norm(x))
        return self.head(x)


def part(model, **where):
    return from_model(model, tokens=TOKENS, positions=P, **where)


def own_activations(model, spot, tokens):
    seen = []
    handle = spot.register_forward_hook(lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out))
    with torch.no_grad():
        model(tokens)
    handle.remove()
    return seen[0]


def exported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Host()


@pytest.mark.parametrize(
    ("function", "words"), [(fused, "causal"), (by_hand, "window 3"), (capped, "capped at 5"), (striped, "a bias")]
)
def test_the_exported_host_gives_the_modules_own_activations(function, words, tmp_path):
    model = Model(function).double()
    found = part(model, upto="attn.0")
    assert words in found.facts["attention"]
    for host in ("sparse", "random"):
        made = embed_model(found, host)
        assert made.agreement.relative_difference < 1e-10
        assert f"at most {P} of {len(TOKENS)} tokens" in made.verdict
        made.export(tmp_path / f"{host}.py")
        tokens = torch.tensor(TOKENS)[torch.randint(0, len(TOKENS), (8, P))]
        own = own_activations(model, model.attn[0], tokens)
        tolerance = 1e-10 if function is not by_hand else 1e-6  # the module's own softmax is in float32
        assert (exported(tmp_path / f"{host}.py")(tokens) - own).abs().max() < tolerance * own.abs().max()
    assert ("softmax in float64" in found.witness) == (function is by_hand)


def test_the_first_attention_is_found_without_a_name():
    assert from_model(Model(), tokens=torch.tensor(TOKENS).numpy(), positions=1, part="attention").shape.d_in == len(
        TOKENS
    )
    assert part(Model(), layer=0, part="attention").facts["part"] == "the attention output at attn.0 of Model"


@pytest.mark.parametrize(
    ("model", "where", "reason"),
    [
        (Model(), {"upto": "attn.1"}, "2 attentions are computed"),
        (Model(), {"upto": "attn.0.qkv"}, "0 attentions are computed"),
        (Model(), {"upto": "attn.0.attn"}, "close are attn.0"),
        (Model(), {"layer": 1, "part": "attention"}, "only the attention of layer 0"),
        (Model(), {"upto": "mlp"}, "holds more than the attention's"),
        (Model(sink), {}, "attention to no token"),
        (Model(trap=lambda x, _: x + x.roll(1, 1)), {}, "differ by"),
        (Model(trap=lambda x, t: x * (1.5 if t.shape[1] == 5 else 1)), {}, "differ by"),
        (Model(trap=lambda x, t: torch.where((t[:, :1] == 8)[..., None], x.flip(-1), x)), {}, "differ by"),
        (Model(by_hand_products), {}, "no attention was seen.*write its products so"),
        (nn.Sequential(nn.Embedding(V, D), nn.Linear(D, V)), {}, "no attention was seen"),
    ],
)
def test_what_is_no_function_of_single_rows_is_refused(model, where, reason):
    with pytest.raises(MalformedInput, match=reason):
        part(model, **where)


@pytest.mark.parametrize("function", [fused, by_einsum, capped])
@pytest.mark.parametrize(("heads", "positions"), [(H, 1), (D, 1), (D, 3), (1, 2)])
def test_axes_of_size_1_are_seen(function, heads, positions):
    """torch computes no batched product for an einsum with such an axis."""
    found = from_model(Model(function, heads=heads), tokens=TOKENS, positions=positions)
    assert found.shape.head_dim == D // heads
    for host in ("sparse", "random"):
        assert embed_model(found, host).agreement.relative_difference < 1e-10


@pytest.mark.parametrize("tokens", [[], [1, 1], [-1], [0.5]])
def test_tokens_are_different_ids(tokens):
    with pytest.raises(MalformedInput, match="different token ids"):
        from_model(Model(), tokens=tokens, positions=2)


def make():
    return Model()


def test_commands_embed_and_export_a_part(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path.parent))
    E, module = tmp_path / "E.safetensors", tmp_path / "layer0.py"
    (tmp_path / "any").touch()
    given = ["--module", f"{__name__}:make", "--tokens", "3,5,8..13", "--positions", str(P)]
    assert run(["embed", "sparse", str(tmp_path / "any"), *given, "-o", str(E)]) == 0
    assert f"sequences of at most {P} of 8 tokens" in " ".join(capsys.readouterr().out.split())
    assert run(["export", "sparse", str(E), "-o", str(module)]) == 0
    tokens = torch.tensor([[3, 5, 8, 13, 9, 12]])
    model = Model().double()
    assert (exported(module)(tokens) - own_activations(model, model.attn[0], tokens)).abs().max() < 1e-10
    with pytest.raises(ValueError, match="not among the ids"):
        exported(module)(tokens + 1)
    assert run(["embed", "sparse", str(tmp_path / "any"), *given[:2], "--positions", "3", "-o", str(E)]) == 2


def test_a_part_is_emulated_with_its_biases(tmp_path, capsys):
    found = part(Model())
    assert np.any(found.target.b_U)
    report = emulate("sparse", found.target, attention=["causal"], contexts=[1, P])
    assert report.holds
    assert report.report.max_relative_error < 1e-12
    (tmp_path / "any").touch()
    given = [
        "--module",
        f"{__name__}:make",
        "--tokens",
        "3,5,8..13",
        "--positions",
        str(P),
        "--target",
        str(tmp_path / "any"),
    ]
    for host in ("sparse", "random"):
        assert run(["emulate", host, *given, "--attention", "causal", "--context", "1,4"]) == 0
        assert "outputs agree" in capsys.readouterr().out
    assert run(["emulate", "sparse", *given[:2], *given[-2:], "--positions", "3"]) == 2
    assert run(["emulate", "sparse", *given[:-2], "-H", "2", "-L", "1", "-d", "1", "--d-in", "2"]) == 2


# --- the matrix of docs/embed-your-model.md: models by the constructors of transformers ----------------------------------

GQA = {**SMALL, "num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
DYNAMIC = {"max_position_embeddings": 4, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}
GPT2 = {"vocab_size": V, "n_embd": D, "n_layer": 2, "n_head": H}
NEO = {
    "hidden_size": D,
    "num_layers": 2,
    "num_heads": H,
    "attention_types": [[["local", "global"], 1]],
    "window_size": 3,
}
FALCON = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H}
BLOOM = {"vocab_size": V, "hidden_size": D, "n_layer": 2, "n_head": H}
EAGER = {"attn_implementation": "eager"}
OSS = {**GQA, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
VIT = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "image_size": 8, "patch_size": 4}
MODELS = [  # class, configuration, its fields, and why the attention of its first layer is refused
    ("GPT2LMHeadModel", "GPT2Config", GPT2, ""),
    ("GPT2LMHeadModel", "GPT2Config", {**GPT2, "scale_attn_weights": False}, ""),
    ("GPT2LMHeadModel", "GPT2Config", {**GPT2, "n_head": D, "scale_attn_by_inverse_layer_idx": True, **EAGER}, ""),
    ("GPTNeoForCausalLM", "GPTNeoConfig", {**NEO, "vocab_size": V, "max_position_embeddings": 20}, ""),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SMALL, "use_parallel_residual": False}, ""),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SMALL, **EAGER}, ""),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SMALL, "rotary_pct": 1.0, "attention_bias": False}, ""),
    ("LlamaForCausalLM", "LlamaConfig", {**GQA, "attention_bias": True}, ""),
    ("LlamaForCausalLM", "LlamaConfig", {**GQA, "head_dim": 2, **EAGER}, ""),
    ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "tie_word_embeddings": True, "rope_parameters": YARN}, ""),
    ("LlamaForCausalLM", "LlamaConfig", {**SMALL, **DYNAMIC}, "differ by"),
    ("MistralForCausalLM", "MistralConfig", {**SMALL, "num_key_value_heads": 1, "sliding_window": 3}, ""),
    ("GemmaForCausalLM", "GemmaConfig", {**SMALL, "num_key_value_heads": 1, "head_dim": 6}, ""),
    ("Gemma2ForCausalLM", "Gemma2Config", {**GQA, "head_dim": 6, "sliding_window": 4}, ""),
    ("Gemma2ForCausalLM", "Gemma2Config", {**GQA, "head_dim": 6, "attn_logit_softcapping": 0.3, **EAGER}, ""),
    ("Gemma3ForCausalLM", "Gemma3TextConfig", {**GQA, "head_dim": 6, "sliding_window": 4}, ""),
    ("Qwen2ForCausalLM", "Qwen2Config", GQA, ""),
    ("Qwen3ForCausalLM", "Qwen3Config", {**GQA, "head_dim": 6}, ""),
    ("FalconForCausalLM", "FalconConfig", {**FALCON, "alibi": True, "multi_query": False}, ""),
    ("FalconForCausalLM", "FalconConfig", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, ""),
    ("BloomForCausalLM", "BloomConfig", BLOOM, r"holds more than the attention's.*self_attention\.dense"),
    ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 2}, ""),
    ("OPTForCausalLM", "OPTConfig", {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": D}, ""),
    ("PhiForCausalLM", "PhiConfig", {**GQA, "partial_rotary_factor": 0.5}, ""),
    ("Olmo2ForCausalLM", "Olmo2Config", GQA, ""),
    ("MptForCausalLM", "MptConfig", {"vocab_size": V, "d_model": D, "n_heads": H, "n_layers": 2}, ""),
    ("GptOssForCausalLM", "GptOssConfig", OSS, "attention to no token"),
    ("ViTModel", "ViTConfig", VIT, "does not run on token"),
]


def built(name, config, fields):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    return getattr(transformers, name)(getattr(transformers, config)(**fields))


@pytest.mark.full
@pytest.mark.parametrize(("name", "config", "fields", "refused"), MODELS)
def test_models_by_the_constructors_of_transformers(name, config, fields, refused):
    """The whole model is refused, its first attention is embedded or refused, and its attention is inspected."""
    model = built(name, config, fields)
    with pytest.raises(MalformedInput, match=r"normalis|MLP|to no token|does not run on token|no embedding is found"):
        from_model(model)
    made = inspect_model(live_tensors(model), fields.get("n_head", H))
    assert made["shape"]["layers"] == 2
    assert not any(head["dead"] for head in made["heads"])
    if refused:
        with pytest.raises(MalformedInput, match=refused):
            part(model, layer=0, part="attention")
    else:
        runs_inside_hosts(name, model)


def runs_inside_hosts(name, model, **where):
    """50 tokens at 16 positions in both hosts, beside the library's own activations."""
    model, rng = model.double().eval(), np.random.default_rng(0)
    ids = rng.permutation(V)[:50]
    found = from_model(model, tokens=ids, positions=16, **where)
    spot = model.get_submodule(found.title.split()[4])
    numbers = rng.integers(0, 50, (8, 16))
    own = own_activations(model, spot, torch.from_numpy(ids[numbers])).numpy()
    tolerance = 1e-6 if "its own are in float32" in found.witness else 1e-10
    for host in ("sparse", "random"):
        made = embed_model(found, host)
        mine = np.stack([made.host.forward(found.one_hots(row), made.E, made.kernel) for row in numbers])
        error = np.abs(mine - own).max() / np.abs(own).max()
        print(f"{name} {found.facts['attention']}, {host}: {made.agreement.relative_difference:.1e}, {error:.1e}")
        assert made.agreement.relative_difference < 1e-10
        assert error < tolerance


@pytest.mark.full
def test_a_residual_stream_inside_an_attention_is_left_out_by_upto():
    runs_inside_hosts(
        "Bloom", built("BloomForCausalLM", "BloomConfig", BLOOM), upto="transformer.h.0.self_attention.dense"
    )


def test_the_first_of_layers_of_pytorch():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.out = nn.Embedding(V, D), nn.Linear(D, V)
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, 24, batch_first=True), 2)

        def forward(self, tokens):
            return self.out(self.layers(self.embedding(tokens)))

    found = part(Layers())
    assert "both ways" in found.facts["attention"]
    assert embed_model(found).agreement.relative_difference < 1e-10


@pytest.mark.full
def test_a_bridge_of_transformer_lens_whole_and_in_part():
    pytest.importorskip("transformer_lens")
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    sizes = {"n_layers": 2, "d_model": 8, "n_ctx": 16, "d_head": 4, "n_heads": 2, "d_vocab": V}

    def boot(**more):
        return TransformerBridge.boot_native(TransformerBridgeConfig(**{**sizes, **more}))

    for more in ({}, {"attn_scores_soft_cap": 0.5}, {"n_key_value_heads": 1}):
        assert embed_model(from_model(boot(attn_only=True, normalization_type=None, **more))).agrees
    model = boot(normalization_type="LN", act_fn="gelu", d_mlp=16)
    for upto in (None, "blocks.0.hook_attn_out"):
        found = from_model(model, tokens=range(50), positions=16, upto=upto)
        for host in ("sparse", "random"):
            assert embed_model(found, host).agreement.relative_difference < 1e-10
    with pytest.raises(MalformedInput, match=r"normalises.*first layer"):
        from_model(model)
