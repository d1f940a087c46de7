"""Models with norms, in hosts with a norm of their own, against torch's norms and softmax.

A module with TransformerLens' names is written out in torch; tests/data/models holds some of its own.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors import safe_open  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from test_import import relative_difference  # noqa: E402

from utfproof.cli.app import run  # noqa: E402
from utfproof.errors import MalformedInput, OutsideClass, Undecided  # noqa: E402
from utfproof.models import embed_model, embed_normalised, from_model, import_model  # noqa: E402
from utfproof.models.families.transformer_lens import OFF  # noqa: E402
from utfproof.models.norms import OwnNorm, not_served  # noqa: E402

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
FIELDS |= {"output_logits_soft_cap": -1.0, **dict.fromkeys(OFF, False)}


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


class RMSNorm(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps, self.w = eps, drawn(6)

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, (6,), self.w, self.eps)


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


class Model(torch.nn.Module):
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
            for block in self.blocks[1:] if not bias else ():
                for part in (block.attn.b_Q, block.attn.b_K, *([block.ln1.b] if kind == "LN" else [])):
                    part.zero_()
            if layers > 1 and kind == "LN":  # what it writes has mean zero
                self.blocks[0].attn.W_O -= self.blocks[0].attn.W_O.mean(-1, keepdim=True)
                self.blocks[0].attn.b_O -= self.blocks[0].attn.b_O.mean()
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


@pytest.mark.parametrize(("layers", "final"), [(1, True), (1, False), (2, False)])
@pytest.mark.parametrize("kind", NORMS)
def test_models_with_norms_are_carried_and_exported(kind, layers, final, tmp_path):
    """The host with a norm of its own, and its module in torch, give the module's outputs; it has learned positions and biases.
    Another eps in the host alone, or one without its mean taken off, is seen."""
    module = Model(kind, final, layers=layers)
    found = embed_normalised(from_model(module))
    assert found.agreement.relative_difference < 1e-11
    assert "acts as the model, by matching" in found.verdict
    assert "normalises its own rows" in found.verdict
    tokens = np.array([3, 0, 0, 4])
    expected = found.model.outputs(tokens)
    path = found.export(tmp_path / "host.py")
    with torch.no_grad():
        outputs = exported(path)(torch.from_numpy(tokens)).numpy()
    assert relative_difference(outputs, expected) < 1e-11
    rows = found.E[tokens * 4 + np.arange(4)]
    for norm in (replace(found.host.norm, eps=1e-2), replace(found.host.norm, final=not final)):
        other = replace(found.host, norm=norm)
        assert relative_difference(other.forward(rows, found.model.attention), expected) > 1e-4


@pytest.mark.parametrize(("kind", "layers", "final"), [("LN", 1, True), ("LN", 1, False), ("RMS", 2, False)])
def test_one_host_for_several_models(kind, layers, final):
    """The host is fixed: another model of its shape changes E alone, and larger weights are refused."""
    host = embed_normalised(from_model(Model(kind, final, seed=1, scale=20.0, layers=layers))).host
    for seed in (2, 3):
        found = embed_normalised(from_model(Model(kind, final, seed=seed, layers=layers)), host)
        assert found.agreement.relative_difference < 1e-10
        assert all(
            np.array_equal(getattr(found.host.system, p), getattr(host.system, p)) for p in ("R_Q", "R_K", "R_V", "U")
        )
    with pytest.raises(OutsideClass, match="beyond the bound"):
        embed_normalised(from_model(Model(kind, final, scale=1e5, layers=layers)), host)
    with pytest.raises(MalformedInput, match="made for"):
        embed_normalised(from_model(Model("RMSPre", final, layers=layers)), replace(host, theta=1e9, width=7))


def another_norm(module):
    module.blocks[0].ln1 = RMSNorm(1e-5)


def uncentred(module):
    with torch.no_grad():
        module.blocks[0].attn.W_O += 1


def no_first_norm(module):
    module.blocks[0].ln1 = torch.nn.Identity()


def one_head(module):
    module.cfg.fields |= {"n_heads": 1, "d_head": 3}
    for block in module.blocks:
        for name, value in list(block.attn.named_parameters()):
            if name != "b_O":
                setattr(block.attn, name, torch.nn.Parameter(value[:1].detach()))


def no_eps(module):
    module.cfg.fields["eps"] = 0.0
    for norm in (module.blocks[0].ln1, module.ln_final):
        norm.eps = 0.0


def another_eps(module):
    module.ln_final.eps = 0.1


REFUSED = {
    "two layers and a norm at the end": ({"layers": 2}, None, "section 7"),
    "two layers, one head, and a norm at the end": (
        {"layers": 2},
        one_head,
        "section 7: no host for them is known, nor",
    ),
    "two layers with biases": ({"layers": 2, "final": False, "bias": True}, None, "b_Q of layer 1"),
    "two layers that write a mean": ({"layers": 2, "final": False}, uncentred, "centre the writing weights"),
    "three layers": ({"layers": 3, "final": False}, None, "section 7"),
    "a bias after the last norm": ({"bias": True}, None, "b_U"),
    "another norm": ({}, another_norm, "tensor blocks.0.ln1.b is missing"),
    "no norm before the layer": ({}, no_first_norm, "tensor blocks.0.ln1.w is missing"),
    "no eps": ({}, no_eps, "hosts are known for eps > 0 alone"),
    "an eps that the configuration does not say": ({}, another_eps, "another function than its own forward pass"),
}
UNDECIDED = ("two layers, one head, and a norm at the end", "no eps")
"""Neither a host nor its impossibility is known: exit code 4."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    options, change, said = REFUSED[case]
    module = Model(**options)
    if change is not None:
        change(module)
    with pytest.raises(Undecided if case in UNDECIDED else MalformedInput, match=said):
        embed_normalised(from_model(module))


@pytest.mark.parametrize(("positions", "known"), [(0, True), (2, False), (3, True)])
def test_impossible_from_contexts_of_three_rows_on(positions, known):
    """The proof compares two rows in a third one's context; without learned positions contexts are as long as one likes."""
    arrays = {"W_Q": np.ones((3, 2, 2, 1)), "W_E": np.eye(3, 2), "W_pos": np.ones((positions, 2))}
    why, impossible = not_served(OwnNorm("rms", 1e-5, final=False), arrays, shortformer=False)
    assert (impossible, "matches almost none" in why, "contexts too short" in why) == (known, known, not known)


def test_a_host_without_a_norm_refuses_models_with_one():
    with pytest.raises(MalformedInput, match="normalization_type"):
        embed_model(from_model(Model()))


# --- by command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """model.safetensors, config.json and ref.safetensors of a model with a LayerNorm before its layer and at the end."""
    monkeypatch.chdir(tmp_path)
    module, tokens = Model(), np.random.default_rng(0).integers(0, 5, (3, 4))
    save_file({name: value.numpy() for name, value in module.state_dict().items()}, "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(module.cfg.to_dict()))
    with torch.no_grad():
        logits = module(torch.from_numpy(tokens)).numpy()
    save_file({"tokens": tokens, "logits": logits}, "ref.safetensors")
    save_file({"tokens": tokens, "logits": logits + 1e-6}, "wrong.safetensors")
    return tokens, logits


FILE = ["embed", "own-norm", "model.safetensors", "--layout", "auto", "-o", "E.safetensors"]
ANSWERS = {
    "with its outputs": (["--config", "config.json", "--reference", "ref.safetensors"], 0, "acts as the model"),
    "with its configuration": (["--config", "config.json"], 0, "acts as this reading of the file"),
    "with other outputs": (["--config", "config.json", "--reference", "wrong.safetensors"], 2, "other outputs"),
    "with nothing": ([], 2, "normalises"),
    "with a dimension": (["--config", "config.json", "--m", "9"], 2, "--m would change nothing"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_on_whose_word_a_stored_model_acts(stored, case, capsys):
    options, code, said = ANSWERS[case]
    assert run([*FILE, *options, *(["--json"] if code == 0 else [])]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_a_stored_model_is_exported_under_both_kinds_of_names(stored, tmp_path, capsys):
    """The module, and the tensors under TransformerLens' names read by this package, give the model's logits; a token of the
    latter is a token at a position."""
    tokens, logits = stored
    assert run([*FILE, "--config", "config.json"]) == 0
    assert run(["export", "own-norm", "E.safetensors", "-o", "host.py"]) == 0
    with torch.no_grad():
        assert relative_difference(exported(tmp_path / "host.py")(torch.from_numpy(tokens)).numpy(), logits) < 1e-11
    assert run(["export", "own-norm", "E.safetensors", "-o", "lens.safetensors", "--layout", "transformer-lens"]) == 0
    again = import_model("lens.safetensors", "transformer-lens")
    found = np.stack([again.original(row * 4 + np.arange(4)) for row in tokens])
    assert relative_difference(found, logits) < 1e-11


def test_a_bias_after_the_last_norm_is_a_constant_beside_the_host(tmp_path, monkeypatch, capsys):
    """Only where it is asked for, and the verdict says so; both exports hold it, and the host without it is another model."""
    monkeypatch.chdir(tmp_path)
    module, tokens = Model(bias=True), np.array([3, 0, 0, 4])
    found = embed_normalised(from_model(module), plus_constant=True)
    assert found.verdict.startswith("up to a constant of the outputs")
    expected = found.model.outputs(tokens)
    bare = found.host.forward(found.E[tokens * 4 + np.arange(4)], found.model.attention)
    assert relative_difference(bare, expected) > 0.1
    assert embed_normalised(from_model(Model()), plus_constant=True).verdict.startswith("the host acts as the model")
    save_file({name: value.numpy() for name, value in module.state_dict().items()}, "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(module.cfg.to_dict()))
    config = ["--config", "config.json"]
    assert run([*FILE, *config]) == 2
    assert "--plus-constant" in capsys.readouterr().err
    assert run([*FILE, *config, "--plus-constant", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["up_to_a_constant"]
    assert document["verdict"].startswith("up to a constant of the outputs")
    assert run(["export", "own-norm", "E.safetensors", "-o", "host.py"]) == 0
    with torch.no_grad():
        outputs = exported(tmp_path / "host.py")(torch.from_numpy(tokens)).numpy()
    assert relative_difference(outputs, expected) < 1e-11
    assert run(["export", "own-norm", "E.safetensors", "-o", "lens.safetensors", "--layout", "transformer-lens"]) == 0
    lens = import_model("lens.safetensors", "transformer-lens")
    assert relative_difference(lens.original(tokens * 4 + np.arange(4)), expected) < 1e-11
    command = ["emulate", "own-norm", "--target", "model.safetensors", *config, "--context", "1,4", "--trials", "2"]
    assert run([*command, "--embedding", "E.safetensors"]) == 0
    assert "up to a constant" in capsys.readouterr().out
    with safe_open("E.safetensors", "numpy") as file:
        arrays, facts = {"E": file.get_tensor("E")}, file.metadata()
    constant = json.loads(facts["constant"])
    for wrong, code in (([c + 1e-3 for c in constant], 1), (constant[:-1], 2), ("none", 2), ([1e999, 0, 0, 0], 2)):
        save_file(arrays, "other.safetensors", {**facts, "constant": json.dumps(wrong)})
        assert run([*command, "--embedding", "other.safetensors"]) == code
    assert run(["embed", "sparse", "model.safetensors", "-o", "E.safetensors", "--plus-constant"]) == 2


CONTRADICTIONS = {
    "m": "7",
    "theta": "-1.0",
    "bound": "0.0",
    "layers": "2",
    "eps": "none",
    "kind": "batch",
    "positions": "3",
    "vocabulary": "6",
    "width": "5",
    "final": "false",
    "constant": "[0.5]",
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_metadata_that_contradict_are_refused(stored, name, capsys):
    """A host is rebuilt from the metadata alone, so what cannot be true of it is refused."""
    assert run([*FILE, "--config", "config.json"]) == 0
    with safe_open("E.safetensors", "numpy") as file:
        arrays, facts = {"E": file.get_tensor("E")}, file.metadata()
    save_file(arrays, "other.safetensors", {**facts, name: CONTRADICTIONS[name]})
    assert run(["export", "own-norm", "other.safetensors", "-o", "host.py"]) == 2
    assert "metadata" in capsys.readouterr().err
    assert run(["export", "sparse", "E.safetensors", "-o", "host.py"]) == 2


EMULATED = {
    "found here": ([], 0, "acts as this reading of the file"),
    "from a file": (["--embedding", "E.safetensors"], 0, "acts as this reading of the file"),
    "another one": (["--embedding", "other.safetensors"], 1, "the outputs differ"),
    "beyond float64": (["--embedding", "huge.safetensors"], 4, "undecided"),
    "another kind of attention": (["--embedding", "both.safetensors"], 2, "both.safetensors is for"),
    "too long": (["--context", "5"], 2, "5 tokens"),
    "with heads": (["--heads", "2"], 2, "--heads would change nothing"),
    "with a kernel": (["--attention", "softmax"], 2, "--attention would change nothing"),
}


@pytest.mark.parametrize("case", EMULATED)
def test_the_host_beside_the_model_by_command(stored, case, capsys):
    assert run([*FILE, "--config", "config.json"]) == 0
    with safe_open("E.safetensors", "numpy") as file:
        E, facts = file.get_tensor("E"), file.metadata()
    save_file({"E": np.ascontiguousarray(E[::-1])}, "other.safetensors", facts)
    save_file({"E": E}, "both.safetensors", {**facts, "attention": "softmax"})
    save_file({"E": np.full_like(E, 1e308)}, "huge.safetensors", facts)
    options, code, said = EMULATED[case]
    command = ["emulate", "own-norm", "--target", "model.safetensors", "--config", "config.json", "--context", "1,4"]
    capsys.readouterr()
    assert run([*command, "--trials", "3", *options, "--json"]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    if code == 0:
        found = json.loads(captured.out)
        assert all(error < 1e-11 for error in found["errors"].values())
        assert list(found["errors"]) == ["1", "4"]
    assert run(["emulate", "sparse", "-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "--config", "config.json"]) == 2
