"""Whole models with MLPs and without norms, by their matrices, in one host with gated MLPs."""

import numpy as np
import pytest

from utfproof import embed_model, from_parts
from utfproof.cli.app import run
from utfproof.errors import MalformedInput, OutsideClass
from utfproof.systems.mlp import MLP

torch = pytest.importorskip("torch")


class Blocks(torch.nn.Module):
    """Two blocks of causal attention and a gated MLP, without norms."""

    def __init__(self, gated=True):
        super().__init__()
        torch.manual_seed(0)
        nn, D, K = torch.nn, 6, 5
        self.wte, self.wpe, self.head = nn.Embedding(4, D), nn.Embedding(5, D), nn.Linear(D, 3)
        self.attn = nn.ModuleList([nn.MultiheadAttention(D, 2, batch_first=True) for _ in range(2)])
        self.up, self.down = (nn.ModuleList([nn.Linear(*size) for _ in range(2)]) for size in ((D, K), (K, D)))
        self.gate = nn.ModuleList([nn.Linear(D, K) for _ in range(2)]) if gated else None

    def forward(self, tokens):
        n = tokens.shape[1]
        x, mask = self.wte(tokens) + self.wpe.weight[:n], torch.ones(n, n, dtype=torch.bool).triu(1)
        for layer, attention in enumerate(self.attn):
            x = x + attention(x, x, x, attn_mask=mask, need_weights=False)[0]
            inner = self.up[layer](x)
            silu = torch.nn.functional.silu
            inner = silu(inner) if self.gate is None else silu(self.gate[layer](x)) * inner
            x = x + self.down[layer](inner)
        return self.head(x)


@pytest.mark.parametrize("gated", [True, False])
def test_a_model_with_mlps_is_acted_as_by_a_gated_host(gated, tmp_path):
    module = Blocks(gated).double()

    def parts(linears):
        weights, biases = zip(*((x.weight.T.detach().numpy(), x.bias.detach().numpy()) for x in linears), strict=True)
        return np.stack(weights), np.stack(biases)

    W_in, b_in = parts(module.up)
    W_out, b_out = parts(module.down)
    gates = dict(zip(("W_gate", "b_gate"), parts(module.gate), strict=True)) if gated else {}
    mlp = MLP("silu", W_in, W_out, b_in=b_in, b_out=b_out, **gates)
    thirds = np.stack(
        [a.in_proj_weight.detach().numpy().reshape(3, 2, 3, 6).transpose(0, 1, 3, 2) for a in module.attn], axis=1
    )
    b_Q, b_K, b_V = np.stack([a.in_proj_bias.detach().numpy().reshape(3, 2, 3) for a in module.attn], axis=1)
    out = np.stack([a.out_proj.weight.detach().numpy().reshape(6, 2, 3).transpose(1, 2, 0) for a in module.attn])
    biases = {
        "b_Q": b_Q,
        "b_K": b_K,
        "b_V": b_V,
        "b_O": [a.out_proj.bias for a in module.attn],
        "b_U": module.head.bias,
    }
    given = {"positions": module.wpe.weight, "forward": module, **biases}
    model = from_parts(module.wte.weight, *thirds, out, module.head.weight.T, mlp=mlp, **given)
    made = embed_model(model, "mlp-8-6")
    assert made.agreement.relative_difference < 1e-11
    assert "acts as the model, by functional" in made.verdict
    with pytest.raises(OutsideClass, match="mlp-8-16"):
        embed_model(model, "sparse")
    with pytest.raises(MalformedInput, match="First on"):
        from_parts(module.wte.weight, *thirds, out, module.head.weight.T, **given)
    made.save(tmp_path / "E.safetensors")
    assert run(["export", "mlp-8-6", str(tmp_path / "E.safetensors"), "-o", str(tmp_path / "host.py")]) == 0
    names = {"__file__": str(tmp_path / "host.py"), "__name__": "exported"}
    exec((tmp_path / "host.py").read_text(), names)
    tokens = torch.tensor([[0, 3, 1, 1, 2]])
    assert (names["Host"]()(tokens) - module(tokens)).abs().max() < 1e-11
