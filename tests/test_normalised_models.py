"""Models of one layer with norms, in hosts with a norm of their own, against torch's norms and softmax.

scripts/freeze_models.py compares TransformerLens' own (`make models`); here a module with its names is written out in torch.
"""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from utfproof.errors import MalformedInput, OutsideClass  # noqa: E402
from utfproof.models import from_model, from_normalised_model  # noqa: E402
from utfproof.models.comparison import relative_difference  # noqa: E402

FIELDS = {
    "n_layers": 1,
    "n_heads": 2,
    "d_head": 3,
    "d_model": 6,
    "d_vocab": 5,
    "d_vocab_out": 4,
    "n_ctx": 4,
    "eps": 1e-5,
}
FIELDS |= {"attention_dir": "causal", "use_attn_scale": True, "attn_scale": 3**0.5, "use_local_attn": False}
FIELDS |= {"positional_embedding_type": "standard", "attn_scores_soft_cap": -1.0, "attn_only": True}


class Configuration:
    def __init__(self, **fields):
        self.fields = fields

    def to_dict(self):
        return dict(self.fields)


class LayerNorm(torch.nn.Module):
    kind = "layer"

    def __init__(self, eps):
        super().__init__()
        self.eps, self.w, self.b = eps, drawn(6), drawn(6)

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, (6,), self.w, self.b, self.eps)


class RMSNorm(LayerNorm):
    def forward(self, x):
        return torch.nn.functional.rms_norm(x, (6,), self.w, self.eps) + self.b


class RMSNormPre(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, (6,), eps=self.eps)


NORMS = {"LN": LayerNorm, "RMS": RMSNorm, "RMSPre": RMSNormPre}


def drawn(*shape):
    return torch.nn.Parameter(torch.randn(*shape, dtype=torch.float64))


class Part(torch.nn.Module):
    def __init__(self, **tensors):
        super().__init__()
        for name, value in tensors.items():
            setattr(self, name, value)


class OneLayer(torch.nn.Module):
    """TransformerLens' names, torch's norms and softmax."""

    def __init__(self, kind="LN", final=True, seed=0, scale=1.0, layers=1, bias=False):
        super().__init__()
        torch.manual_seed(seed)
        self.cfg = Configuration(**FIELDS | {"normalization_type": kind, "n_layers": layers})
        eps = FIELDS["eps"]
        self.embed, self.pos_embed = Part(W_E=drawn(5, 6)), Part(W_pos=drawn(4, 6))
        self.unembed = Part(W_U=drawn(6, 4), b_U=torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)))
        self.blocks = torch.nn.ModuleList()
        for _ in range(layers):
            attention = {f"W_{c}": drawn(2, 6, 3) for c in "QKV"} | {f"b_{c}": drawn(2, 3) for c in "QKV"}
            attention |= {"W_O": drawn(2, 3, 6), "b_O": drawn(6)}
            self.blocks.append(Part(attn=Part(**attention), ln1=NORMS[kind](eps)))
            with torch.no_grad():
                self.blocks[-1].attn.W_V *= scale
        self.ln_final = NORMS[kind](eps) if final else torch.nn.Identity()
        with torch.no_grad():
            if final and not bias and hasattr(self.ln_final, "b"):
                self.ln_final.b.zero_()
            if not final or bias:
                self.unembed.b_U += 1 + torch.arange(4)

    def forward(self, tokens):
        n = tokens.shape[-1]
        x = self.embed.W_E[tokens] + self.pos_embed.W_pos[:n]
        for block in self.blocks:
            inner, a, out = block.ln1(x), block.attn, block.attn.b_O
            q, k, v = (
                torch.einsum("bnd,hde->bhne", inner, getattr(a, f"W_{c}")) + getattr(a, f"b_{c}")[:, None]
                for c in "QKV"
            )
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            pattern = torch.softmax((q @ k.mT / 3**0.5).masked_fill(hidden, float("-inf")), dim=-1)
            x = x + out + torch.einsum("bhne,hed->bnd", pattern @ v, a.W_O)
        return self.ln_final(x) @ self.unembed.W_U + self.unembed.b_U


def exported(path):
    names = {"__file__": str(path), "__name__": "exported"}
    exec(compile(path.read_text(), path.name, "exec"), names)
    return names["Host"]()


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("kind", NORMS)
def test_one_layer_with_norms_is_carried_and_exported(kind, final, tmp_path):
    """The host with a norm of its own, and its module in torch, give the module's outputs; it has learned positions and biases.
    Another eps in the host alone, or one without its mean taken off, is seen."""
    module = OneLayer(kind, final)
    found = from_normalised_model(module).embed()
    assert found.agreement.relative_difference < 1e-11
    assert "acts as the model, by matching" in found.verdict
    assert "normalises its own rows" in found.verdict
    tokens = np.array([3, 0, 0, 4])
    expected = found.model.forward(tokens)
    path = found.export(tmp_path / "host.py")
    with torch.no_grad():
        outputs = exported(path)(torch.from_numpy(tokens)).numpy()
    assert relative_difference(outputs, expected) < 1e-11
    rows = found.E[found.model.index(tokens)]
    for norm in (replace(found.host.norm, eps=1e-2), replace(found.host.norm, final=not final)):
        other = replace(found.host, norm=norm)
        assert relative_difference(other.forward(rows, found.model.reading.attention), expected) > 1e-4
    with pytest.raises(MalformedInput, match="not read back"):
        from_model(exported(path))


@pytest.mark.parametrize("final", [True, False])
def test_one_host_for_several_models(final):
    """The host is fixed: another model of its shape changes E alone, and larger weights are refused."""
    host = from_normalised_model(OneLayer("LN", final, seed=1, scale=20.0)).embed().host
    for seed in (2, 3):
        found = from_normalised_model(OneLayer("LN", final, seed=seed)).embed(host)
        assert found.agreement.relative_difference < 1e-11
        assert all(
            np.array_equal(getattr(found.host.system, p), getattr(host.system, p)) for p in ("R_Q", "R_K", "R_V", "U")
        )
    with pytest.raises(OutsideClass, match="beyond the bound"):
        from_normalised_model(OneLayer("LN", final, scale=1e5)).embed(host)
    with pytest.raises(MalformedInput, match="made for"):
        from_normalised_model(OneLayer("RMS", final)).embed(replace(host, theta=1e9))


def test_the_hosts_root_mean_square_is_the_models():
    """What the construction rests on: after the layer it is kappa times the model's, row by row."""
    found = from_normalised_model(OneLayer("RMS")).embed()
    model, host, tokens = found.model, found.host, np.array([1, 2, 2, 0])
    at, stream = model.index(tokens), found.E[model.index(tokens)]
    queries, keys, values = model.layer()
    own, inner = model.rows()[at], host.norm(stream)
    for h in range(2):
        pattern = model.reading.attention(queries[h][at], keys[h][at], np.arange(4), layer=0, head=h)
        own, stream = own + pattern @ values[h][at], stream + pattern @ inner @ host.system.R_V[0][h]
    assert np.allclose(host.norm.size(stream), 2 * model.norm.size(own), rtol=1e-12, atol=0)


def another_norm(module):
    module.blocks[0].ln1 = RMSNorm(1e-5)


def no_first_norm(module):
    module.blocks[0].ln1 = torch.nn.Identity()


def no_eps(module):
    module.cfg.fields["eps"] = 0.0


def another_eps(module):
    module.ln_final.eps = 0.1


REFUSED = {
    "two layers and a norm at the end": ({"layers": 2}, None, "section 7"),
    "two layers": ({"layers": 2, "final": False}, None, "section 6"),
    "three layers": ({"layers": 3, "final": False}, None, "section 7"),
    "a bias after the last norm": ({"bias": True}, None, "b_U"),
    "another norm": ({}, another_norm, "blocks.0.ln1 is a RMSNorm"),
    "no norm before the layer": ({}, no_first_norm, "blocks.0.ln1 is a Identity"),
    "no eps": ({}, no_eps, "needs eps > 0"),
    "an eps that the configuration does not say": ({}, another_eps, "another function than its own forward pass"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    options, change, said = REFUSED[case]
    module = OneLayer(**options)
    if change is not None:
        change(module)
    with pytest.raises(MalformedInput, match=said):
        from_normalised_model(module)


def test_the_plain_reader_refuses_norms():
    with pytest.raises(MalformedInput, match="normalization_type"):
        from_model(OneLayer())
    with pytest.raises(MalformedInput, match="live HookedTransformer"):
        from_normalised_model(torch.nn.Linear(2, 2))
