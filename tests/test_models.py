"""Models that the libraries people use have built, frozen with their own logits: each is embedded, or refused by name.

tests/data/models/*.safetensors are written by scripts/freeze_models.py, which also compares live (`make models`).
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, Undecided
from utfproof.models import ImportedModel, LayerAttention, ModelAttention, import_model, read_kernel, write_kernel
from utfproof.models.attention import Rotary
from utfproof.models.comparison import relative_difference
from utfproof.models.exporting import write_arrays
from utfproof.models.families import families
from utfproof.models.importing import recognise
from utfproof.models.reading import read_model
from utfproof.weights import TensorFile, read_tensors

FILES = sorted((Path(__file__).parent / "data" / "models").glob("*.safetensors"))


def load(path):
    """(name, tensors, record) of every model of a file."""
    file = read_tensors(path, booleans=True)
    for name, record in json.loads(file.metadata["models"]).items():
        own = {n.split("/", 1)[1]: a for n, a in file.tensors.items() if n.split("/", 1)[0] == name}
        yield f"{path.stem}: {name}", own, record


FROZEN = {name: (tensors, record) for path in FILES for name, tensors, record in load(path)}
READ = [name for name, (_, record) in FROZEN.items() if not record["refused"]]


def reading(name, **changes):
    """The model of this name, read from its tensors and configuration."""
    tensors, record = FROZEN[name]
    tables = (tensors["frozen.cos"], tensors["frozen.sin"]) if "frozen.cos" in tensors else None
    file = TensorFile(name, {n: a for n, a in tensors.items() if not n.startswith("frozen.")}, {}, {})
    norms = record.get("normalised", False)
    return read_model(file, recognise(file), {**record["config"], **changes}, tables=tables, norms=norms)


def error(model_reading, name):
    """How far the reading is from the library's own logits."""
    tensors = FROZEN[name][0]
    pairs = zip(tensors["frozen.tokens"], tensors["frozen.logits"], strict=True)
    return np.max([relative_difference(model_reading.stages(t)["logits"], logits) for t, logits in pairs])


def test_there_are_enough_of_them():
    versions = [json.loads(read_tensors(path, booleans=True).metadata["versions"]) for path in FILES]
    majors = sorted(v["transformer-lens"].split(".")[0] for v in versions if "transformer-lens" in v)
    assert majors == ["2", "3", "4"]
    assert {"transformers", "x-transformers"} <= {name for v in versions for name in v}
    assert len(FROZEN) >= 60
    assert {record["family"] for _, record in FROZEN.values()} >= families().keys()
    assert sum(path.stat().st_size for path in FILES) < 3e6


@pytest.mark.parametrize("name", FROZEN)
def test_it_is_read_as_its_library_runs_it_or_refused_by_name(name):
    refused = FROZEN[name][1]["refused"]
    if refused:
        with pytest.raises((MalformedInput, Undecided), match=refused):
            reading(name)
    else:
        assert error(reading(name), name) < 1e-9


@pytest.mark.parametrize("name", READ)
def test_a_host_gives_the_librarys_own_logits(name):
    found = reading(name)
    tensors = FROZEN[name][0]
    model = ImportedModel(found, references=tuple(zip(tensors["frozen.tokens"], tensors["frozen.logits"], strict=True)))
    constant = FROZEN[name][1].get("constant", False)
    if constant:
        with pytest.raises(MalformedInput, match="plus_constant"):
            model.embed(sequences=[])
    embedded = model.embed(sequences=[], **({"plus_constant": True} if constant else {}))
    assert embedded.agreement.relative_difference < 1e-9
    assert embedded.verdict.startswith("up to a constant") == constant
    if found.norm is not None:
        return
    kernel = read_kernel(write_kernel(model.attention), found.arrays["W_Q"].shape[1], found.arrays["W_Q"].shape[3])
    tokens = tensors["frozen.tokens"][0]
    outputs = embedded.host.forward(model.one_hots(tokens), embedded.E, kernel)
    assert relative_difference(outputs, tensors["frozen.logits"][0]) < 1e-9


CONTRADICTIONS = {
    "attention_dir": lambda c: {"attention_dir": "bidirectional" if c["attention_dir"] == "causal" else "causal"},
    "attn_scale": lambda c: {"attn_scale": 2 * float(c["attn_scale"])},
    "positional_embedding_type": lambda c: {"positional_embedding_type": "alibi"},
    "attn_scores_soft_cap": lambda c: {"attn_scores_soft_cap": 0.3},
}
"""A configuration that says something else than the model does: the library's logits show it."""


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_a_field_that_says_something_else_changes_the_reading(field):
    name = next(n for n in READ if n.endswith(": plain") and "W_pos" in "".join(FROZEN[n][0]))
    change = CONTRADICTIONS[field](FROZEN[name][1]["config"])
    assert error(reading(name, **change), name) > 1e-3


@pytest.mark.parametrize("family", sorted({record["family"] for _, record in FROZEN.values()}))
def test_a_field_that_nobody_knows_is_refused_by_name(family):
    name = next(n for n in READ if FROZEN[n][1]["family"] == family)
    with pytest.raises(MalformedInput, match="use_new_trick"):
        reading(name, use_new_trick=True)


FAULTS = {
    "causal flipped": lambda a: LayerAttention(not a.causal, a.window, a.cap, a.slopes, a.single, a.rotary),
    "window off by one": lambda a: LayerAttention(a.causal, (a.window or 3) - 1, a.cap, a.slopes, a.single, a.rotary),
    "cap": lambda a: LayerAttention(a.causal, a.window, 0.1, a.slopes, a.single, a.rotary),
    "slopes dropped": lambda a: LayerAttention(a.causal, a.window, a.cap, (0.3,) * 8, a.single, a.rotary),
    "rotation the other way": lambda a: LayerAttention(
        a.causal, a.window, a.cap, a.slopes, a.single, Rotary.of_base(16, 1, 3.0, adjacent=True)
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_attention_is_seen(fault):
    name = next(n for n in READ if n.endswith(": plain"))
    found = reading(name)
    layers = tuple(map(FAULTS[fault], found.attention.layers))
    tokens, logits = (FROZEN[name][0][f"frozen.{part}"][0] for part in ("tokens", "logits"))
    assert relative_difference(found.stages(tokens, ModelAttention(layers))["logits"], logits) > 1e-4


# --- files and commands --------------------------------------------------------------------------------------

PLAIN = next(name for name in READ if name.endswith(": plain") and "W_pos" in "".join(FROZEN[name][0]))


def weights(name=PLAIN):
    return {n: np.asarray(a) for n, a in FROZEN[name][0].items() if not n.startswith("frozen.")}


@pytest.fixture
def stored(tmp_path):
    """The plain model as a file without metadata, its configuration, its reference, and a reference of another model."""
    tensors, record = FROZEN[PLAIN]
    write_arrays(tmp_path / "m.safetensors", weights(), {})
    (tmp_path / "config.json").write_text(json.dumps(record["config"]))
    reference = {"tokens": tensors["frozen.tokens"], "logits": tensors["frozen.logits"]}
    write_arrays(tmp_path / "ref.safetensors", reference, {})
    write_arrays(tmp_path / "other.safetensors", reference | {"logits": 1.1 * reference["logits"]}, {})
    return tmp_path


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 4, "this reading of the file"),
        (["--config", "config.json"], 0, "this reading of the file"),
        (["--reference", "ref.safetensors"], 0, "the host acts as the model"),
        (["--config", "config.json", "--reference", "ref.safetensors"], 0, "the host acts as the model"),
        (["--attention", "softmax", "--reference", "ref.safetensors"], 2, "other outputs than the reference"),
        (["--reference", "other.safetensors"], 2, "other outputs than the reference"),
        (["--attention", "softmax", "--config", "config.json"], 2, "--attention says mask False"),
    ],
)
def test_who_says_that_the_host_acts_as_the_model(stored, options, code, said, capsys):
    options = [str(stored / o) if "." in o else o for o in options]
    out = stored / "E.safetensors"
    assert (
        run(["embed", "sparse", str(stored / "m.safetensors"), "--layout", "auto", "-o", str(out), *options, "--json"])
        == code
    )
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    if code == 4:
        document = json.loads(printed.out)
        assert set(document["unknown"]) == {"causal", "scale", "positions", "norm", "cap", "window"}
        assert "assumed" in read_tensors(out).metadata
        assert document["read_as"]["mask"].endswith("(assumed: nobody says)")


def mixed_inputs(model):
    """Mixtures of tokens, and of positions, that are no one-hots: [batch, n, V + P]; tokens' weights sum to 1."""
    rng = np.random.default_rng(4)
    tokens = rng.random((3, 7, model.vocabulary)) - 0.2
    return np.concatenate([tokens / tokens.sum(-1, keepdims=True), rng.normal(size=(3, 7, model.positions))], axis=-1)


def test_a_reference_of_inputs(stored, capsys):
    """Real inputs, logits written again from the tensors alone; a fault in one logit, and every wrong shape, is refused."""
    model, tensors = import_model(stored / "m.safetensors"), weights()
    inputs = mixed_inputs(model)
    logits = np.stack([plain_logits(tensors, x) for x in inputs])
    path, E = stored / "inputs.safetensors", stored / "E.safetensors"
    command = [
        "embed",
        "sparse",
        str(stored / "m.safetensors"),
        "--layout",
        "auto",
        "-o",
        str(E),
        "--reference",
        str(path),
    ]
    for batch in (slice(None), 0):
        write_arrays(path, {"inputs": inputs[batch], "logits": logits[batch]}, {})
        assert run([*command, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["verdict"].endswith("compared with the outputs in inputs.safetensors")
        assert document["relative_difference"] < 1e-9
    E.unlink()
    off, wide = logits.copy(), np.concatenate([inputs, inputs[..., :1]], axis=-1)
    off[2, 3, 1] += 1e-4
    for held, said in (
        ({"inputs": inputs, "logits": off}, "other outputs than the reference"),
        ({"inputs": wide, "logits": logits}, r"expected floats [n, 12] or [batch, n, 12]"),
        ({"inputs": inputs[..., :5], "logits": logits}, "5 columns for tokens, then 7 for positions"),
        ({"inputs": inputs.astype(np.int64), "logits": logits}, "inputs are int64"),
        ({"inputs": inputs[None], "logits": logits}, "expected floats"),
        ({"inputs": inputs[:0], "logits": logits[:0]}, "not empty"),
        ({"inputs": inputs, "logits": logits[:2]}, "logits has shape [2, 7, 5], expected [3, 7, 5]"),
        ({"inputs": inputs, "logits": logits[..., :2]}, "logits has shape [3, 7, 2]"),
        ({"inputs": 2 * inputs, "logits": logits}, "sums to 2 over the 5 columns of tokens, expected 1"),
        ({"inputs": inputs + np.inf, "logits": logits}, "inputs"),
        ({"inputs": inputs}, "inputs and logits, found inputs"),
        ({"inputs": inputs, "tokens": np.zeros((3, 4), dtype=np.int64), "logits": logits}, "or inputs and logits"),
    ):
        write_arrays(path, held, {})
        assert run(command) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "inputs.safetensors" in error
        assert len(error.strip().splitlines()) == 1
        assert not E.exists()


def plain_logits(tensors, x):
    """Logits of a causal TransformerLens model of inputs [n, V + P], from its tensors, head by head."""
    V, n = len(tensors["embed.W_E"]), len(x)
    stream = x[:, :V] @ tensors["embed.W_E"] + x[:, V:] @ tensors["pos_embed.W_pos"]
    layer = 0
    while f"blocks.{layer}.attn.W_Q" in tensors:
        W, before = {k: tensors[f"blocks.{layer}.attn.{k}"].astype(float) for k in _HEADS}, stream
        for h in range(len(W["W_Q"])):
            q, k, v = (before @ W[f"W_{c}"][h] + W[f"b_{c}"][h] for c in "QKV")
            scores = np.where(np.tri(n, dtype=bool), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
            pattern = np.exp(scores - scores.max(axis=1, keepdims=True))
            stream = stream + pattern / pattern.sum(axis=1, keepdims=True) @ v @ W["W_O"][h]
        stream, layer = stream + W["b_O"], layer + 1
    return stream @ tensors["unembed.W_U"] + tensors["unembed.b_U"]


_HEADS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


def test_weights_that_a_folded_norm_leaves_are_recognised(stored):
    """Columns that sum to zero: refused where nobody says that there is no norm, read where somebody does."""
    path, tensors = stored / "centred.safetensors", weights()
    for name, array in tensors.items():
        if name.endswith((".W_Q", ".W_K", ".W_V")):
            tensors[name] = array - array.mean(axis=1, keepdims=True)
    write_arrays(path, tensors, {})
    with pytest.raises(MalformedInput, match="sum to zero"):
        import_model(path)
    assert import_model(path, config=FROZEN[PLAIN][1]["config"]).unknown == ()


def test_a_live_module_is_compared_with_its_own_forward_pass():
    """Open facts are settled by the module's outputs; what its tensors do not show is refused with the stage that differs."""
    torch = pytest.importorskip("torch")
    from utfproof import from_model

    class Live(torch.nn.Module):
        def __init__(self, trick=""):
            super().__init__()
            self.embedding, self.unembed = torch.nn.Embedding(4, 6), torch.nn.Linear(6, 3)
            self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)
            self.trick = trick

        def forward(self, tokens):
            x = self.embedding(tokens)
            x = torch.nn.functional.layer_norm(x, (6,)) if self.trick == "norm" else x
            out = self.attn(x, x, x, need_weights=False)[0]
            x = x + (torch.relu(out) if self.trick == "relu" else out)
            return self.unembed(x).tanh() if self.trick == "tanh" else self.unembed(x)

    torch.manual_seed(0)
    module = Live()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = from_model(module)
    assert model.unknown == ()
    assert (model.reading.stream, model.reading.attention.layers[0].causal) == (True, False)
    embedded = model.embed("sparse")
    assert "acts as the model" in str(embedded)
    assert embedded.agreement.relative_difference < 1e-12
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    for trick, stage in (("norm", "input of layer 0"), ("relu", "logits"), ("tanh", "logits")):
        with pytest.raises(MalformedInput, match=f"differ first at the {stage}, by"):
            from_model(Live(trick))
    with pytest.raises(MalformedInput, match=r"takes a torch\.nn\.Module"):
        from_model("module")
    with pytest.raises(MalformedInput, match="outside"):
        from_model(module, example_inputs=[[7]])


def test_a_mask_of_no_entries_says_nothing(stored):
    """As newer libraries store it."""
    path = stored / "m.safetensors"
    write_arrays(path, weights() | {"blocks.0.attn.mask": np.zeros((0, 0), dtype=bool)}, {})
    assert "causal" in import_model(path).unknown


SLOW = pytest.mark.exhaustive  # torch is loaded in another process


@pytest.mark.parametrize(
    "kind", ["npz", "sharded", "compiled", pytest.param("pt", marks=SLOW), pytest.param("nested pt", marks=SLOW)]
)
def test_kinds_of_files(stored, kind):
    tensors = weights()
    expected = import_model(stored / "m.safetensors").target.W_Q
    path = stored / f"m.{kind.split()[-1]}"
    if kind == "npz":
        np.savez(path, **tensors)
    elif kind == "sharded":
        names, path = sorted(tensors), stored / "m.safetensors.index.json"
        for number, part in enumerate((names[:9], names[9:])):
            write_arrays(stored / f"m{number}.safetensors", {n: tensors[n] for n in part}, {})
        shards = {n: f"m{int(i >= 9)}.safetensors" for i, n in enumerate(names)}
        path.write_text(json.dumps({"weight_map": shards}))
    elif kind == "compiled":
        path = stored / "compiled.safetensors"
        write_arrays(path, {f"_orig_mod.{n}": a for n, a in tensors.items()}, {})
    else:
        torch = pytest.importorskip("torch")
        held = {n: torch.from_numpy(a.copy()) for n, a in tensors.items()}
        torch.save({"model": held, "epoch": 3} if kind == "nested pt" else held, path)
    assert (import_model(path).target.W_Q == expected).all()


class Harmful:
    def __reduce__(self):
        return print, ("unpickled",)


@SLOW
def test_nothing_is_unpickled_from_a_checkpoint(stored, capfd):
    torch = pytest.importorskip("torch")
    torch.save({"a": Harmful()}, stored / "harmful.pt")
    with pytest.raises(MalformedInput, match="weights_only"):
        import_model(stored / "harmful.pt")
    assert "unpickled" not in "".join(capfd.readouterr())


def test_files_that_are_not_read(stored, capfd):
    np.savez(stored / "objects.npz", a=np.array([Harmful()], dtype=object), allow_pickle=True)
    (stored / "bad.npz").write_bytes(b"PK\x03\x04nothing")
    (stored / "m.safetensors.index.json").write_text('{"weight_map": {"a": "../m.safetensors"}}')
    for name in ("objects.npz", "bad.npz", "m.safetensors.index.json", "absent.pt", "absent.npz"):
        with pytest.raises(MalformedInput):
            import_model(stored / name)
    assert "unpickled" not in "".join(capfd.readouterr())


def test_a_relu_is_beyond_every_host_without_one():
    """docs/embed-your-model.md: if outputs are 2t - 7/10 from k = 3 on, a host's are everywhere, and the model's are not."""
    from fractions import Fraction

    def model(k):
        t = Fraction(k, k + 1)
        return t + max(Fraction(0), t - Fraction(7, 10))

    assert all(model(k) == 2 * Fraction(k, k + 1) - Fraction(7, 10) for k in range(3, 50))
    assert (model(1), 2 * Fraction(1, 2) - Fraction(7, 10)) == (Fraction(1, 2), Fraction(3, 10))


def test_exports_are_read_back(stored):
    """A residual host under TransformerLens' names, causal and both ways, is the same model again, and nothing is left open."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.exporting import transformer_lens_tensors

    model = import_model(stored / "m.safetensors", reference=stored / "ref.safetensors")
    embedded = model.embed("sparse")
    for causal in (True, False):
        kernel = SoftmaxAttention(causal=causal)
        tensors, metadata = transformer_lens_tensors(
            embedded.host, embedded.E, kernel, vocabulary=model.vocabulary, positions=model.positions
        )
        path = stored / "back.safetensors"
        write_arrays(path, tensors, metadata)
        back = import_model(path)
        assert back.unknown == ()
        tokens = np.array([0, 3, 1, 1, 2])
        expected = embedded.host.forward(model.one_hots(tokens), embedded.E, kernel)
        assert relative_difference(back.original(tokens), expected) < 1e-12
        for field, value in {"attention_dir": "causal" if not causal else "bidirectional"}.items():
            write_arrays(path, tensors, {**metadata, field: value})
            other = import_model(path)
            assert relative_difference(other.original(tokens), expected) > 1e-3
        write_arrays(path, tensors, metadata)
        with pytest.raises(MalformedInput, match="--attention says"):
            import_model(path, attention="softmax" if causal else "causal")


def test_a_tied_host_with_a_stream_cannot_carry_an_untied_model():
    from utfproof.errors import CannotCarry
    from utfproof.matching import embed

    target = reading(PLAIN).target().augmented()
    with pytest.raises(CannotCarry):
        embed(build_host("tied", target.shape), target)


def test_a_module_by_command(stored, monkeypatch, capsys):
    """--module makes the live module; what it shows by itself is not said again."""
    pytest.importorskip("torch")
    monkeypatch.chdir(stored)
    monkeypatch.syspath_prepend(str(stored))
    (stored / "live_factory.py").write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.embedding, self.unembed = torch.nn.Embedding(4, 6), torch.nn.Linear(6, 3)\n"
        "        self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)\n"
        "    def forward(self, tokens):\n"
        "        x = self.embedding(tokens)\n"
        "        return self.unembed(self.attn(x, x, x, need_weights=False)[0])\n"
        "def make(path):\n"
        "    torch.manual_seed(0)\n"
        "    return Model()\n"
        "def broken():\n"
        "    raise OSError('nothing there')\n"
    )
    arguments = ["embed", "tied", "m.safetensors", "-o", "E.safetensors", "--json", "--module"]
    assert run([*arguments, "live_factory:make"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "the host acts as the model" in document["verdict"]
    assert document["read_as"]["residual stream"].startswith("no (the module")
    for wrong in ("live_factory:broken", "live_factory:absent", "live_factory", "absent_module:make"):
        assert run([*arguments, wrong]) == 2
    assert run([*arguments, "live_factory:make", "--attention", "causal"]) == 2
    assert "--attention" in capsys.readouterr().err


def test_linears_instead_of_conv1d_are_told_apart_by_their_shapes():
    """nanoGPT has GPT-2's names with weights [out, in]: the same model transposed, recognised, with the same logits."""
    name = next(n for n in READ if n.endswith(": GPT-2"))
    tensors, record = FROZEN[name]
    turned = {n: a.T if n.endswith(("c_attn.weight", "c_proj.weight")) else a for n, a in tensors.items()}
    file = TensorFile(name, {n: a for n, a in turned.items() if not n.startswith("frozen.")}, {}, {})
    assert recognise(file).name == "nanogpt"
    fields = {"n_layer": 2, "n_head": 2, "n_embd": 6, "block_size": 7, "vocab_size": 5, "bias": True, "dropout": 0.0}
    assert error(read_model(file, recognise(file), fields), name) < 1e-9
    with pytest.raises(MalformedInput, match="n_head"):
        read_model(file, recognise(file), {**fields, "n_head": 4})
    assert record["family"] == "gpt2"


def test_a_model_taken_for_a_target_says_its_layout(stored, capsys):
    np.savez(stored / "m.npz", **weights())
    for name in ("m.safetensors", "m.npz"):
        assert run(["embed", "sparse", str(stored / name), "-o", str(stored / "E.safetensors")]) == 2
        assert "--layout transformer-lens" in capsys.readouterr().err


ROUND_TRIPS = {
    "plain": PLAIN,
    "other attention in layers": next(n for n in READ if n.endswith(": local in one layer")),
    "rotated": next(n for n in READ if n.endswith(": rotary, adjacent, in part")),
    "ALiBi": next(n for n in READ if n.endswith(": ALiBi")),
    "capped": next(n for n in READ if n.endswith(": capped logits")),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
@pytest.mark.parametrize("host", ["sparse", "random"])
def test_an_exported_module_is_read_back(name, host, tmp_path):
    """The live module, its buffers and the constants in its text are the same model again, and a host carries that too; one
    number of its tensors, or a constant that contradicts them, is seen."""
    pytest.importorskip("torch")
    from utfproof.models import from_model

    tensors = FROZEN[ROUND_TRIPS[name]][0]
    embedded = ImportedModel(reading(ROUND_TRIPS[name])).embed(host)
    path = embedded.export(tmp_path / "host.py")

    def load(text):
        names = {"__file__": str(path), "__name__": "exported"}
        exec(compile(text, "host.py", "exec"), names)
        return names["Host"]()

    back = from_model(load(path.read_text()))
    assert back.agreement.relative_difference < 1e-11
    assert (back.vocabulary, back.positions) == (embedded.model.vocabulary, embedded.model.positions)
    assert back.reading.stream == embedded.model.reading.stream
    for tokens, logits in zip(tensors["frozen.tokens"], tensors["frozen.logits"], strict=True):
        assert relative_difference(back.original(tokens), logits) < 1e-9
    text = path.read_text()
    for old, new in (("POSITIONS = 5, ", "POSITIONS = 4, "), ("RESIDUAL, TIED = 2, 2,", "RESIDUAL, TIED = 3, 2,")):
        assert old in text
        with pytest.raises(MalformedInput, match=r"E has|is missing"):
            from_model(load(text.replace(old, new)))


def test_an_exported_module_without_a_stream_is_embedded_again(tmp_path):
    """Tied and factored hosts too; the second host acts as the first host's module."""
    torch = pytest.importorskip("torch")
    from utfproof.attention import SoftmaxAttention
    from utfproof.models import from_model
    from utfproof.models.exporting import write_module
    from utfproof.shapes import Shape
    from utfproof.systems import Universal

    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(2, 2, 3, k)) / 2 for k in (1, 1, 2)]
    factored = Universal(Shape(2, 2, 1, 4, 3), 3, *parts, rng.normal(size=(3, 3)), R_Vo=rng.normal(size=(2, 2, 2, 3)))
    write_module(tmp_path / "host.py", factored, rng.normal(size=(4, 3)), SoftmaxAttention(), vocabulary=4, positions=0)
    names = {"__file__": str(tmp_path / "host.py"), "__name__": "exported"}
    exec(compile((tmp_path / "host.py").read_text(), "host.py", "exec"), names)
    module = names["Host"]()
    model = from_model(module)
    for host in ("sparse", "tied"):
        assert "acts as the model" in model.embed(host).verdict
    with torch.no_grad():
        module.R_V_1_0_left[0, 0] += 1  # another module, read as it is now
    again = from_model(module)
    tokens = np.array([0, 1, 3, 2])
    assert relative_difference(again.outputs(tokens), model.original(tokens)) > 1e-3
    module.E = torch.nn.Parameter(module.E[:3])
    with pytest.raises(MalformedInput, match="E has 3 rows"):
        from_model(module)


NEW_FAMILY = """
from utfproof.models.family import EMBEDDED, Family, harmless, linears, sets

FAMILY = Family(
    name="newcomer",
    title="a family that nobody knew",
    layer=linears("ask", "show", "pass", "write"),
    outer=EMBEDDED,
    outer_names={"W_E": (r"words\\.weight",), "W_pos": (r"places\\.weight",), "W_U": (r"answer\\.weight",), "b_U": ()},
    marks=(("ask.weight", "show.weight", "pass.weight", "write.weight"),),
    config={"heads": sets("heads"), "direction": sets("causal", {"left": True, "both": False}), **harmless("author")},
    settled={"stream": True, "scale": "1/sqrt(d)", "positions": "learned", "norm": "none", "cap": 0.0, "window": 0},
)
"""


def test_a_family_is_one_file(tmp_path, monkeypatch, capsys):
    """A file that is put into the folder of families, and nothing else, lets a model of that family be read, refused by field,
    and embedded by command; its outputs are those of the same tensors under TransformerLens' names."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "newcomer.py").write_text(NEW_FAMILY)
    package = sys.modules["utfproof.models.families"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setitem(sys.modules, "utfproof.models.families.newcomer", None)
    del sys.modules["utfproof.models.families.newcomer"]
    families.cache_clear()
    try:
        known = reading(PLAIN)
        arrays, tensors = known.arrays, {}
        names = {"Q": "ask", "K": "show", "V": "pass"}
        for layer in range(len(arrays["W_Q"])):
            for part, name in names.items():
                weights = arrays[f"W_{part}"][layer]
                tensors[f"step.{layer}.{name}.weight"] = weights.transpose(0, 2, 1).reshape(-1, weights.shape[1])
                tensors[f"step.{layer}.{name}.bias"] = arrays[f"b_{part}"][layer].reshape(-1)
            tensors[f"step.{layer}.write.weight"] = arrays["W_O"][layer].reshape(-1, arrays["W_O"].shape[3]).T
            tensors[f"step.{layer}.write.bias"] = arrays["b_O"][layer]
        tensors |= {"words.weight": arrays["W_E"], "places.weight": arrays["W_pos"]}
        tensors |= {"answer.weight": arrays["W_U"].T, "answer.bias": arrays["b_U"]}
        path = tmp_path / "new.safetensors"
        write_arrays(path, tensors, {})
        fields = {"heads": int(arrays["W_Q"].shape[1]), "direction": "left", "author": "somebody"}
        assert error(import_model(path, config=fields).reading, PLAIN) < 1e-12
        assert error(import_model(path, config={**fields, "direction": "both"}).reading, PLAIN) > 1e-3
        for changed, said in ({"direction": "right"}, "field direction"), ({"dropout": 1}, "field dropout"):
            with pytest.raises(MalformedInput, match=said):
                import_model(path, config={**fields, **changed})
        (tmp_path / "config.json").write_text(json.dumps(fields))
        command = ["embed", "sparse", str(path), "--layout", "auto", "--config", str(tmp_path / "config.json")]
        assert run([*command, "-o", str(tmp_path / "E.safetensors")]) == 0
        assert "a family that nobody knew" in capsys.readouterr().out
    finally:
        families.cache_clear()
