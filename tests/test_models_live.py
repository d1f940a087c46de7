"""Live modules, and functions that make them, which do something else than they should: one line and exit code 2; and those
whose configuration, outputs or number types are unusual, which are read."""

import functools
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from test_import import transformer_lens

from utfproof import from_model
from utfproof.cli.app import run
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.models import make_module
from utfproof.models.foreign import widened

# --- factories --------------------------------------------------------------------------------------------

FACTORIES = {
    "import leaves with 0": ("import sys; sys.exit(0)", "make", "sys.exit(0)"),
    "import leaves with 1": ("raise SystemExit(1)", "make", "sys.exit(1)"),
    "the function leaves": ("import sys\ndef make(): sys.exit(0)", "make", "sys.exit(0)"),
    "a syntax error": ("def make(: pass", "make", "SyntaxError"),
    "import raises": ("1/0", "make", "ZeroDivisionError"),
    "an exception of its own": ("class Odd(BaseException): pass\ndef make(): raise Odd", "make", "Odd"),
    "a verdict": ("from utfproof.errors import Refuted\ndef make(): raise Refuted('no')", "make", "Refuted"),
    "no signature": ("make = dict", "make", "failed"),
    "no module": ("def make(*, path=None): return 5", "make", "got int"),
}


@pytest.mark.parametrize("case", FACTORIES)
def test_factories_that_make_no_module(tmp_path, monkeypatch, capsys, case):
    """Whatever the caller's code does, the exit code is 2 and no verdict."""
    pytest.importorskip("torch")
    text, name, said = FACTORIES[case]
    place = f"factory_{list(FACTORIES).index(case)}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{place}.py").write_text(text)
    assert run(["embed", "sparse", "m", "-o", "E.safetensors", "--module", f"{place}:{name}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_names_of_factories(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("..x:f", ".x:f", "no.such:f", ":f", "json:"):
        assert run(["embed", "sparse", "m", "-o", "E.safetensors", "--module", name]) == 2
        assert "--module" in capsys.readouterr().err
    (tmp_path / "stopped.py").write_text("def make(): raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        make_module("stopped:make", tmp_path)


def plain(**changes):
    """A live model of plain PyTorch; changes: what it has beside, or in place of, its own."""
    torch = pytest.importorskip("torch")

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.unembed = torch.nn.Embedding(4, 6), torch.nn.Linear(6, 3)
            self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, tokens):
            x = self.embedding(tokens)
            return self.unembed(x + self.attn(x, x, x, need_weights=False)[0])

    for name, value in changes.items():
        setattr(Plain, name, value)
    return Plain()


def raising(error):
    def forward(self, tokens):
        raise error

    return forward


ERRORS = (ZeroDivisionError, NameError, OSError, Exception, StopIteration, SystemExit, KeyError)


@pytest.mark.parametrize("error", ERRORS)
def test_a_forward_pass_that_fails(error):
    with pytest.raises(MalformedInput, match="does not run on tokens"):
        from_model(plain(forward=raising(error("boom"))))


def test_a_forward_pass_that_needs_too_much_memory():
    with pytest.raises(ResourceLimit, match="out of memory"):
        from_model(plain(forward=raising(MemoryError())))


@pytest.mark.parametrize("given", [(), None, "logits", ([],)])
def test_a_forward_pass_without_logits(given):
    with pytest.raises(MalformedInput, match="gives no logits"):
        from_model(plain(forward=lambda self, tokens: given))


def test_tensors_that_are_not_dense_numbers():
    torch = pytest.importorskip("torch")
    for name, value in {"sparse": torch.eye(3).to_sparse(), "lazy": None}.items():
        module = plain()
        if name == "lazy":
            module.lazy = torch.nn.LazyLinear(3)
        else:
            module.register_buffer(name, value)
        with pytest.raises(MalformedInput, match=rf"tensor {name}\S* is not stored as dense numbers"):
            from_model(module)
    module = plain()
    module.unembed.weight = torch.nn.Parameter(module.unembed.weight.to(torch.complex64))
    with pytest.raises(MalformedInput, match=r"unembed\.weight has type complex64"):
        from_model(module)


def nano(config=None, outputs="nanoGPT"):
    """Attention alone under nanoGPT's names. outputs: as nanoGPT gives them, of all positions, or for tokens alone."""
    torch = pytest.importorskip("torch")
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            q, k, v = (y.view(*x.shape[:2], 2, 4).transpose(1, 2) for y in self.c_attn(x).split(8, 2))
            return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))

    class Nano(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.wte, self.wpe = nn.Embedding(5, 8), nn.Embedding(6, 8)
            self.h = nn.ModuleList(nn.ModuleDict({"attn": Attention()}) for _ in range(2))
            self.lm_head = nn.Linear(8, 5, bias=False)
            for part in self.parameters():
                nn.init.normal_(part, std=0.6)
            if config is not None:
                self.config = config

        def logits(self, tokens):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.h:
                x = x + block["attn"](x)
            return self.lm_head(x)

        def forward(self, tokens, targets=None):
            found = self.logits(tokens)
            return found if outputs == "all" else (found if targets is not None else found[:, -1:], None)

    class Alone(Nano):
        def forward(self, tokens):
            return self.logits(tokens)

    return Alone() if outputs == "alone" else Nano()


@dataclass(slots=True)
class Slots:
    n_head: int = 2
    block_size: int = 6


class Fields:
    n_head = 2
    block_size = 6

    @property
    def computed(self):
        return 3


CONFIGS = {
    "namespace": SimpleNamespace(n_head=2, block_size=6),
    "dict": {"n_head": 2, "block_size": 6},
    "slots": Slots(),
    "a class's own": Fields(),
}


@pytest.mark.parametrize("config", CONFIGS)
def test_configurations_of_live_modules(config):
    torch = pytest.importorskip("torch")
    assert from_model(nano(CONFIGS[config])).positions == 6
    wrapped = from_model(torch.nn.DataParallel(nano(CONFIGS[config])))
    assert wrapped.target.shape.heads == 2
    wrong = nano({**CONFIGS["dict"], "n_head": 4})
    with pytest.raises(MalformedInput, match="another function"):
        from_model(wrong)


@pytest.mark.parametrize("outputs", ["nanoGPT", "all", "alone"])
def test_nanogpts_that_give_all_positions(outputs):
    model = from_model(nano(CONFIGS["dict"], outputs))
    assert model.agreement.relative_difference < 1e-12
    assert from_model(nano(None, outputs), heads=2).positions == 6
    with pytest.raises(MalformedInput, match="number of heads"):
        from_model(nano(None, outputs))


def separate(config=None):
    """Four linears as Llama has them, and a rotation that nobody would expect: none."""
    torch = pytest.importorskip("torch")
    nn, module = torch.nn, plain()
    module.embed_tokens, module.lm_head = nn.Embedding(4, 6), nn.Linear(6, 3, bias=False)
    module.self_attn = nn.ModuleDict({f"{name}_proj": nn.Linear(6, 6, bias=False) for name in "qkvo"})
    del module.attn, module.embedding, module.unembed
    if config is not None:
        module.config = config
    return module


SEPARATE = {
    "nothing said": (separate, {}, "number of heads"),
    "configuration beside it": (separate, {"config": {"num_attention_heads": 3}}, "does not run"),
    "dict": (lambda: separate({"num_attention_heads": 3}), {}, "does not run"),
    "namespace": (lambda: separate(SimpleNamespace(num_attention_heads=3)), {}, "does not run"),
}


@pytest.mark.parametrize("case", SEPARATE)
def test_llamas_names_without_its_configuration(case):
    make, given, said = SEPARATE[case]
    with pytest.raises(MalformedInput, match=said):
        from_model(make(), **given)


def test_names_of_a_family_without_its_parts():
    """TransformerLens' names in a module that has no cfg."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    module.embed, module.unembed = torch.nn.Module(), torch.nn.Module()
    module.blocks = torch.nn.ModuleList([torch.nn.ModuleDict({"attn": torch.nn.Module()})])
    places = {"embed": module.embed, "unembed": module.unembed, "blocks.0.attn": module.blocks[0]["attn"]}
    for name, array in transformer_lens().items():
        place, _, last = name.rpartition(".")
        if place in places:
            places[place].register_buffer(last, torch.from_numpy(array.copy()))
    with pytest.raises(MalformedInput, match=r"has tensors as TransformerLens .* has, and not its parts"):
        from_model(module)


# --- functions in float64 ------------------------------------------------------------------------------------


def test_decorated_functions_are_widened_within_their_decorators():
    """As transformers decorates its attention: the decorator's own work is kept, since it may change what is given."""
    torch = pytest.importorskip("torch")

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return 2 * function(*args, **kwargs)

        return wrapper

    names = {"torch": torch, "twice": twice}
    text = "def inner(x): return x.to(torch.float32)\n@twice\ndef outer(x, *, more=1.5): return inner(x.float()) + float(more)"
    exec(text, names)
    third = torch.tensor(1 / 3, dtype=torch.float64)
    assert float(names["outer"](third)) != 2 * (1 / 3 + 1.5)
    assert float(widened(names["outer"], "inner")(third)) == 2 * (1 / 3 + 1.5)


LIBRARY = {
    "llama": {"attn_implementation": "eager"},
    "gpt2": {"attn_implementation": "eager", "reorder_and_upcast_attn": True},
}


@pytest.mark.full
@pytest.mark.parametrize("family", LIBRARY)
def test_attention_of_transformers_that_computes_in_float32(family):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if family == "llama":
        sizes = {
            "vocab_size": 5,
            "hidden_size": 8,
            "intermediate_size": 4,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        }
        module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **LIBRARY[family]))
        blocks, stem, norms = module.model.layers, module.model, ("input_layernorm", "post_attention_layernorm", "norm")
    else:
        sizes = {"vocab_size": 5, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 6}
        module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **LIBRARY[family]))
        blocks, stem, norms = module.transformer.h, module.transformer, ("ln_1", "ln_2", "ln_f")
    for block in blocks:
        block.mlp = torch.nn.Threshold(torch.inf, 0.0)
        for name in norms[:2]:
            setattr(block, name, torch.nn.Identity())
    setattr(stem, norms[2], torch.nn.Identity())
    for part in module.parameters():
        torch.nn.init.normal_(part, std=0.6)
    assert from_model(module).agreement.relative_difference < 1e-11
