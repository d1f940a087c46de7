"""One fixed host for Llama-like models: its error, its limits, and modules as transformers builds them."""

import hashlib
import types
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from utfproof.constructions.llama import Block, LlamaClass, LlamaLike, inverse_root_units, llama_host
from utfproof.errors import MalformedInput, OutsideClass, ResourceLimit
from utfproof.models.llama import embed_llama

SMALL = LlamaClass(heads=2, layers=1, head_dim=2, width=4, hidden=3, vocabulary=3, eps=1e-4, bound=8.0)


def random_target(members, rng):
    def normal(*shape):
        return rng.standard_normal(shape) / np.sqrt(shape[0])

    D, d, K = members.width, members.head_dim, members.hidden
    blocks = [
        Block([(normal(D, d), normal(D, d), normal(D, d), normal(d, D)) for _ in range(members.heads)],
              normal(D, K), normal(D, K), normal(K, D))
        for _ in range(members.layers)
    ]  # fmt: skip
    W_E = rng.standard_normal((members.vocabulary, D))
    return LlamaLike(W_E, blocks, normal(D, members.vocabulary), members.eps, members.attention)


def digest(host):
    held = hashlib.sha256()
    for block in host.blocks:
        for matrix in (*(part for head in block.heads for part in head), block.gate, block.factor, block.out):
            held.update(matrix.toarray().tobytes())
    return held.hexdigest()


@pytest.mark.parametrize(("least", "largest"), [(1e-6, 1e6), (1e-2, 3.0)])
def test_the_inverse_root_is_a_sum_of_units(least, largest):
    units, constant, slope = inverse_root_units(least, largest)
    s = np.geomspace(least, largest, 500)
    z = np.outer(s, units[:, 0]) + units[:, 1]
    assert np.abs(((z * expit(z)) @ units[:, 2] + constant + slope * s) * np.sqrt(s) - 1).max() < 1e-12


def test_one_host_serves_ten_targets_at_every_length():
    host, rng = llama_host(SMALL), np.random.default_rng(0)
    before = digest(host)
    for _ in range(10):
        target = random_target(SMALL, rng)
        model = host.embed(target)
        for n in (1, 2, 40):
            tokens = rng.integers(0, 3, n)
            expected = target.outputs(tokens)
            assert np.abs(model.outputs(tokens) - expected).max() < 1e-11 * np.abs(expected).max()
    assert digest(host) == before


def test_the_error_falls_as_one_over_rho_squared():
    target, tokens = random_target(SMALL, np.random.default_rng(1)), np.array([0, 2, 1, 1, 0])
    errors = []
    for rho in (1e2, 1e3, 1e4):
        found = llama_host(SMALL, rho).embed(target).outputs(tokens)
        errors.append(np.abs(found - target.outputs(tokens)).max())
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("sizes", [(2, 1, 2, 4, 3, 3), (1, 3, 4, 8, 5, 70), (2, 2, 4, 8, 16, 5)])
def test_width_and_depth_are_those_of_the_page(sizes):
    H, L, d, D, K, V = sizes
    host = llama_host(LlamaClass(*sizes))
    assert host.m == 4 + D + max(4 * H * d, 2 * K + K * D, V) + L * (4 * H * d * D + 3 * D * K) + D * V
    assert len(host.blocks) == 8 * L + 3


def test_targets_beyond_the_bound_and_of_other_sizes_are_refused():
    host, rng = llama_host(SMALL), np.random.default_rng(2)
    target = random_target(SMALL, rng)
    with pytest.raises(OutsideClass, match="W_E has the norm"):
        host.embed(replace(target, embedding=100 * target.embedding))
    with pytest.raises(OutsideClass, match="sizes"):
        host.embed(random_target(replace(SMALL, layers=2), rng))
    with pytest.raises(OutsideClass, match="eps"):
        host.embed(replace(target, eps=0.5))
    with pytest.raises(MalformedInput, match="eps > 0"):
        llama_host(replace(SMALL, eps=0.0))
    with pytest.raises(ResourceLimit):
        llama_host(replace(SMALL, width=10**6, hidden=10**6))


torch = pytest.importorskip("torch")
nn = torch.nn
V, D, H, G, K, d = 7, 8, 4, 2, 6, 4
CONFIG = {"num_attention_heads": H, "num_key_value_heads": G, "num_hidden_layers": 2, "rms_norm_eps": 1e-6}


def turned(x, base):
    """Coordinates i and i + d/2 turn together."""
    n, half = x.shape[-2], x.shape[-1] // 2
    angle = torch.arange(n)[:, None].double() * base ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(D, H * d, bias=False), nn.Linear(H * d, D, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(D, G * d, bias=False) for _ in range(2))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, d)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (part.repeat_interleave(H // G, 1) for part in (k, v))
        out = nn.functional.scaled_dot_product_attention(turned(q, 100.0), turned(k, 100.0), v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(D, K, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(K, D, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(D, eps=1e-6) for _ in range(2))

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Names as in transformers, computed by hand."""

    def __init__(self, **fields):
        super().__init__()
        torch.manual_seed(3)
        self.config = types.SimpleNamespace(**{**CONFIG, "rope_theta": 100.0, **fields})
        self.model = nn.Module()
        self.model.embed_tokens, self.model.norm = nn.Embedding(V, D), nn.RMSNorm(D, eps=1e-6)
        self.model.layers = nn.ModuleList(Layer() for _ in range(2))
        self.lm_head = nn.Linear(D, V, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" in name:
                nn.init.uniform_(parameter, 0.5, 1.5)

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


def test_a_module_runs_inside_the_host():
    made = embed_llama(Llama(), context=20)
    assert made.from_module < 1e-10
    assert made.from_reading < 1e-11
    assert "not proved" in str(made)
    again = embed_llama(Llama(), made.host, context=5)
    assert again.host is made.host


def test_a_module_that_computes_something_else_is_refused():
    with pytest.raises(MalformedInput, match="read as another function"):
        embed_llama(Llama(rope_theta=10000.0))
    with pytest.raises(MalformedInput, match="silu"):
        embed_llama(Llama(hidden_act="gelu"))
    with pytest.raises(MalformedInput, match="rotations"):
        embed_llama(Llama(rope_parameters={"rope_type": "llama3", "rope_theta": 100.0}))
    biased = Llama()
    biased.model.layers[0].mlp.up_proj = nn.Linear(D, K)
    with pytest.raises(MalformedInput, match=r"up_proj.bias is not read"):
        embed_llama(biased)
    with pytest.raises(MalformedInput, match="has not the parts"):
        embed_llama(nn.Linear(3, 3))


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_a_model_by_the_librarys_own_constructor(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "hidden_size": D, "intermediate_size": K, "max_position_embeddings": 64}
    config = getattr(transformers, f"{name}Config")(
        **sizes, **CONFIG, **({"sliding_window": 5} if name == "Mistral" else {})
    )
    made = embed_llama(getattr(transformers, f"{name}ForCausalLM")(config), context=40)
    assert made.from_reading < 1e-11
    assert made.from_module < 1e-5  # the library computes norms and rotations in float32
