"""Models that TransformerLens has built, frozen with their own logits; files, references, commands and live modules."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_import import relative_difference, transformer_lens

from utfproof.cli.app import run
from utfproof.errors import CannotCarry, MalformedInput, ResourceLimit
from utfproof.models import (
    LayerAttention,
    ModelAttention,
    Rotary,
    embed_model,
    from_model,
    from_parts,
    import_model,
    make_module,
    read_kernel,
    write_kernel,
)
from utfproof.models.comparison import Comparison
from utfproof.models.layouts import read_model, recognise, settings_of
from utfproof.weights import TensorFile, read_tensors

FILES = sorted((Path(__file__).parent / "data" / "models").glob("*.safetensors"))


def load(path):
    """(name, tensors, record) of every model of a file."""
    file = read_tensors(path, booleans=True)
    for name, record in json.loads(file.metadata["models"]).items():
        own = {n.split("/", 1)[1]: a for n, a in file.tensors.items() if n.split("/", 1)[0] == name}
        yield f"{path.stem}: {name}", own, record


FROZEN = {name: (tensors, record) for path in FILES for name, tensors, record in load(path)}
REFUSED = {
    "parallel MLP": "it has MLPs",
    **dict.fromkeys(("ALiBi", "ALiBi, six heads", "shortformer"), "positional_embedding_type.* not read; from_parts"),
}
READ = [
    name
    for name, (_, record) in FROZEN.items()
    if not record["refused"] and not record["normalised"] and name.partition(": ")[2] not in REFUSED
]
PLAIN = next(name for name in READ if name.endswith(": plain") and "W_pos" in "".join(FROZEN[name][0]))


def reading(name, **changes):
    """The model of this name, read from its tensors and configuration."""
    tensors, record = FROZEN[name]
    tables = (tensors["frozen.cos"], tensors["frozen.sin"]) if "frozen.cos" in tensors else None
    file = TensorFile(name, {n: a for n, a in tensors.items() if not n.startswith("frozen.")}, {}, {})
    layout = recognise(file)
    return read_model(layout, settings_of(file, layout, {**record["config"], **changes}), tables)


def error(model, name, kernel=None):
    """How far the reading is from the library's own logits."""
    pairs = zip(FROZEN[name][0]["frozen.tokens"], FROZEN[name][0]["frozen.logits"], strict=True)
    return max(relative_difference(model.original(tokens, kernel), logits) for tokens, logits in pairs)


@pytest.mark.parametrize("name", FROZEN)
def test_a_librarys_model_is_read_and_embedded_or_refused_by_name(name):
    record = FROZEN[name][1]
    if name not in READ:
        normalised = record["config"]["normalization_type"] is not None
        reason = "normalises" if normalised else REFUSED.get(name.partition(": ")[2], record["refused"])
        with pytest.raises(MalformedInput, match=reason):
            reading(name)
        return
    found = reading(name)
    assert error(found, name) < 1e-9
    tokens, logits = (FROZEN[name][0][f"frozen.{part}"][0] for part in ("tokens", "logits"))
    embedded = embed_model(found, sequences=[tokens])
    assert embedded.agreement.relative_difference < 1e-9
    kernel = read_kernel(write_kernel(found.kernel), found.shape.heads, found.shape.head_dim)
    outputs = embedded.host.forward(found.one_hots(tokens), embedded.E, kernel)
    assert relative_difference(outputs, logits) < 1e-9


CONTRADICTIONS = {
    "attention_dir": "bidirectional",
    "attn_scale": 7.0,
    "attn_scores_soft_cap": 0.3,
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_a_field_that_says_something_else_changes_the_reading(field):
    assert error(reading(PLAIN, **{field: CONTRADICTIONS[field]}), PLAIN) > 1e-3
    with pytest.raises(MalformedInput, match="use_new_trick"):
        reading(PLAIN, use_new_trick=True)


FAULTS = {
    "causal flipped": LayerAttention(causal=False),
    "window": LayerAttention(window=2),
    "cap": LayerAttention(cap=0.1),
    "bias": LayerAttention(bias=np.eye(16)[None].repeat(8, 0)),
    "rotated": LayerAttention(rotary=Rotary.of_base(16, 1, 3.0, adjacent=True)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_attention_is_seen(fault):
    assert error(reading(PLAIN), PLAIN, ModelAttention((FAULTS[fault],) * 2)) > 1e-4


# --- files, references and commands ----------------------------------------------------------------------------


def weights(name=PLAIN):
    return {n: np.asarray(a) for n, a in FROZEN[name][0].items() if not n.startswith("frozen.")}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The plain model as a file without metadata, its configuration, and less than that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    record = FROZEN[PLAIN][1]
    save_file(weights(), "m.safetensors")
    less = {name: value for name, value in record["config"].items() if name != "output_logits_soft_cap"}
    for name, fields in (("config", record["config"]), ("less", less)):
        (tmp_path / f"{name}.json").write_text(json.dumps(fields))
    return tmp_path


EMBED = ("embed", "sparse", "m.safetensors", "--layout", "auto", "-o", "E.safetensors")
ANSWERS = {
    "nothing": ([], 4, "this reading of the file"),
    "a configuration": (["--config", "config.json"], 0, "this reading of the file"),
    "less than a configuration": (["--config", "less.json"], 4, "cap of outputs"),
    "a contradiction": (
        ["--attention", "softmax", "--config", "config.json"],
        2,
        "--attention says attention_dir bidirectional",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_on_which_evidence_a_file_is_acted_as(stored, case, capsys):
    options, code, said = ANSWERS[case]
    assert run([*EMBED, *options, "--json"]) == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    if case == "nothing":
        assert run([*EMBED, *options]) == code
        assert "--attention causal" in capsys.readouterr().out  # what settles a fact is printed
        assert "assumed" in read_tensors("E.safetensors").metadata


def test_a_file_whose_norm_was_folded_is_recognised(stored):
    tensors = weights()
    for name in tensors:
        if name.endswith(("W_Q", "W_K", "W_V")):
            tensors[name] = tensors[name] - tensors[name].mean(axis=1, keepdims=True)
    save_file(tensors, "m.safetensors")
    with pytest.raises(MalformedInput, match="sum to zero, as folding a LayerNorm leaves them"):
        import_model("m.safetensors")


class Harmful:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.full
def test_pytorch_files(stored, capfd):
    """A state dict is read, alone or nested; for any other the message says what is in the way."""
    torch = pytest.importorskip("torch")
    held = {n: torch.from_numpy(a.copy()) for n, a in weights().items()}
    for saved in (held, {"model": held, "epoch": 3}, {f"module.{n}": a for n, a in held.items()}):
        torch.save(saved, "m.pt")
        assert (import_model("m.pt").arrays["W_Q"] == import_model("m.safetensors").arrays["W_Q"]).all()
    torch.save({"a": Harmful()}, "harmful.pt")
    Path("lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    for name, said in (
        ("harmful.pt", "weights_only=True does not read it"),
        ("lfs.pt", "git lfs pull"),
        ("absent.pt", "cannot"),
    ):
        with pytest.raises(MalformedInput, match=said):
            import_model(name)
    assert "unpickled" not in "".join(capfd.readouterr())


def test_a_tied_host_with_a_stream_cannot_carry_an_untied_model():
    with pytest.raises(CannotCarry):
        embed_model(reading(PLAIN), "tied")


def test_a_model_taken_for_a_target_says_its_layout(stored, capsys):
    assert run(["embed", "sparse", "m.safetensors", "-o", "E.safetensors"]) == 2
    assert "--layout transformer-lens" in capsys.readouterr().err


def test_a_relu_is_beyond_every_host_without_one():
    """docs/embed-your-model.md: if outputs are 2t - 7/10 from k = 3 on, a host's are everywhere, and the model's are not."""
    from fractions import Fraction

    def model(k):
        t = Fraction(k, k + 1)
        return t + max(Fraction(0), t - Fraction(7, 10))

    assert all(model(k) == 2 * Fraction(k, k + 1) - Fraction(7, 10) for k in range(3, 50))
    assert (model(1), 2 * Fraction(1, 2) - Fraction(7, 10)) == (Fraction(1, 2), Fraction(3, 10))


# --- live modules --------------------------------------------------------------------------------------------------

FACTORY = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.unembed = torch.nn.Embedding(4, 6), torch.nn.Linear(6, 3)
        self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.unembed(self.attn(x, x, x, need_weights=False)[0])
def make(path): return Model()
def broken(): raise OSError('nothing there')
def verdict(): import sys; sys.exit(0)
"""


def test_a_module_by_command(stored, capsys):
    """--module makes the live module; whatever the caller's code does, the exit code is no verdict."""
    pytest.importorskip("torch")
    (stored / "live_factory.py").write_text(FACTORY)
    arguments = ["embed", "tied", "m.safetensors", "-o", "E.safetensors", "--json", "--module"]
    assert run([*arguments, "live_factory:make"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "the host acts as the model" in document["verdict"]
    assert "of lengths 1 to 64, with all 4 token ids" in document["verdict"]
    assert document["read_as"]["residual stream"].startswith("no (the module")
    for wrong in ("broken", "verdict", "absent"):
        assert run([*arguments, f"live_factory:{wrong}"]) == 2
    for wrong in ("live_factory", "absent_module:make", "..x:f", "json:"):
        assert run([*arguments, wrong]) == 2
    assert run([*arguments, "live_factory:make", "--attention", "causal"]) == 2
    assert "--attention" in capsys.readouterr().err
    (stored / "stopped.py").write_text("def make(): raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        make_module("stopped:make", stored)


def plain(**changes):
    """A live model of plain PyTorch; changes: what it has beside, or in place of, its own."""
    torch = pytest.importorskip("torch")
    names: dict = {"torch": torch}
    exec(FACTORY, names)
    for name, value in changes.items():
        setattr(names["Model"], name, value)
    return names["Model"]()


FORWARDS = {
    "raises": (lambda self, tokens: 1 / 0, MalformedInput, "does not run on tokens"),
    "leaves": (lambda self, tokens: exec("raise SystemExit(0)"), MalformedInput, "does not run on tokens"),
    "no memory": (lambda self, tokens: exec("raise MemoryError"), ResourceLimit, "out of memory"),
    "no logits": (lambda self, tokens: "logits", MalformedInput, "gives no logits"),
}


@pytest.mark.parametrize("case", FORWARDS)
def test_a_forward_pass_that_fails(case):
    forward, error, said = FORWARDS[case]
    with pytest.raises(error, match=said):
        from_model(plain(forward=forward))


def test_tensors_that_are_not_dense_numbers():
    torch = pytest.importorskip("torch")
    module = plain()
    module.register_buffer("sparse", torch.eye(3).to_sparse())
    with pytest.raises(MalformedInput, match=r"tensor sparse is not stored as dense numbers"):
        from_model(module)
    with pytest.raises(MalformedInput, match=r"takes a torch\.nn\.Module"):
        from_model("module")


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
    with pytest.raises(MalformedInput, match="is read by from_parts"):
        from_model(torch.nn.Linear(2, 2))


def test_a_model_by_its_parts():
    """The comparison with the forward pass decides: a wrong matrix, mask or factor is refused with its first difference."""
    module = plain()
    attn = module.attn
    rows = attn.in_proj_weight.detach().numpy().reshape(3, 1, 2, 3, 6).transpose(0, 1, 2, 4, 3)
    out = attn.out_proj.weight.detach().numpy().reshape(1, 6, 2, 3).transpose(0, 2, 3, 1)
    parts = [module.embedding.weight, *rows, out, module.unembed.weight.T]
    given = {"attention": "softmax", "residual": False, "b_U": module.unembed.bias, "forward": module}
    model = from_parts(*parts, **given)
    assert "acts as the model" in embed_model(model, "tied").verdict
    alone = from_parts(*parts, **given | {"forward": None})
    assert alone.acted_as("matching").startswith("these matrices, by matching; nothing here compares")
    for wrong in ({"attention": "causal"}, {"scale": 1.0}, {"residual": True}, {"b_U": None}):
        with pytest.raises(MalformedInput, match=r"First on 1 tokens|First on \d+ tokens .*: the reading gives"):
            from_parts(*parts, **given | wrong)
    with pytest.raises(MalformedInput, match=r"W_O has shape .*, expected \[1, 2, 3, 6\]"):
        from_parts(*parts[:4], out[:, :1], parts[5], **given)


# --- how outputs are measured ---------------------------------------------------------------------------------


def measured(found, expected, constant=0.0):
    comparison = Comparison(np.full(expected.shape[1], constant))
    comparison.add(np.arange(len(expected)), found, expected)
    return comparison.result()


def test_agreement_is_measured_by_what_moves():
    """A constant, however large, is no measure; one huge row hides no difference in another."""
    expected = np.random.default_rng(0).normal(size=(5, 3))
    off = expected + np.array([0, 1e-6, 0])
    for constant in ([0, 0, 0], [-1e9, 0, 0], [0, 1e3, 0]):
        assert measured(off + constant, expected + constant).relative_difference > 1e-7
    assert measured(np.ones((5, 3)) + 1e-12, np.ones((5, 3))).relative_difference < 1e-11
    assert measured(np.zeros((2, 2)), np.zeros((2, 2))).relative_difference == 0
    huge = expected * np.array([1e12, 1, 1, 1, 1])[:, None]
    assert measured(huge + np.eye(5, 3, k=-3) * 1e-5, huge).first.position == 3
    assert measured(huge * (1 + 1e-13), huge).relative_difference < 1e-11


def test_outputs_beyond_float64_decide_nothing():
    for beyond in (np.inf, np.nan):
        assert measured(np.full((2, 2), beyond), np.ones((2, 2))).decided(1e-8) is None
    with pytest.raises(MalformedInput, match="not finite"):
        measured(np.zeros((1, 1)), np.full((1, 1), np.inf))
    expected = np.where(np.arange(6)[:, None] < 1, 1.2e308, -1.2e308) * np.ones((6, 3))
    assert measured(np.zeros((6, 3)), expected).relative_difference > 0.5
