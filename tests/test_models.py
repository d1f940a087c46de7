"""Models that TransformerLens has built, frozen with their own logits; files, references, commands and live modules."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_import import KNOWN, relative_difference, transformer_lens

from utfproof.cli.app import run
from utfproof.errors import CannotCarry, MalformedInput, ResourceLimit
from utfproof.models import LayerAttention, embed_model, from_model, from_parts
from utfproof.models.attention import ModelAttention, read_kernel, write_kernel
from utfproof.models.comparison import Comparison
from utfproof.models.families import BUFFERS, read_arrays, recognise
from utfproof.models.modules import make_module
from utfproof.models.reading import Reading, biased_target
from utfproof.weights import TensorFile, read_tensors

FILES = sorted((Path(__file__).parent / "data" / "models").glob("*.safetensors"))


def load(path):
    """(name, tensors, record) of every model of a file."""
    file = read_tensors(path, booleans=True)
    for name, record in json.loads(file.metadata["models"]).items():
        own = {n.split("/", 1)[1]: a for n, a in file.tensors.items() if n.split("/", 1)[0] == name}
        yield f"{path.stem}: {name}", own, record


FROZEN = {name: (tensors, record) for path in FILES for name, tensors, record in load(path)}
UNKNOWN = ("ALiBi", "ALiBi, six heads", "shortformer", "ALiBi both ways", "capped outputs")
"""Models that compute what `reading` leaves out."""
READ = [
    name
    for name, (_, record) in FROZEN.items()
    if not record["refused"]
    and name.partition(": ")[2] not in UNKNOWN
    and record["config"]["positional_embedding_type"] != "rotary"
]
PLAIN = next(name for name in READ if name.endswith(": plain") and "W_pos" in "".join(FROZEN[name][0]))


def reading(name):
    """The matrices of this model by their names, with the attention that its configuration says."""
    tensors, record = FROZEN[name]
    config = record["config"]
    file = TensorFile(name, {n: a for n, a in tensors.items() if not n.startswith("frozen.")}, {}, {})
    title = recognise(file)[0].title
    arrays = read_arrays(file, config["n_heads"], BUFFERS)
    bridge, (L, H, _, d) = title.endswith("(TransformerBridge)"), arrays["W_Q"].shape
    causal = config["attention_dir"] == "causal"
    scaled_ = bridge or config["use_attn_scale"]
    factor = 1 / (config["attn_scale"] if config["attn_scale"] not in (None, -1) else d**0.5) if scaled_ else 1.0
    cap = config.get("attn_scores_soft_cap")
    kinds = config.get("attn_types") or ["local"] * L
    by_layer = []
    for kind in kinds:
        window = config["window_size"] if causal and config["use_local_attn"] and kind == "local" else None
        by_layer.append(LayerAttention(causal, window, cap if cap and cap > 0 else None))
    factors = [factor / (i + 1 if config["scale_attn_by_inverse_layer_idx"] else 1) for i in range(L)]
    found = biased_target(arrays, np.array(factors)[:, None].repeat(H, 1), stream=True)
    return Reading(title, found, ModelAttention(tuple(by_layer)), len(arrays["W_E"]), len(arrays["W_pos"]))


def error(model, name):
    """How far the reading is from the library's own logits."""
    pairs = zip(FROZEN[name][0]["frozen.tokens"], FROZEN[name][0]["frozen.logits"], strict=True)
    return max(relative_difference(model.original(tokens), logits) for tokens, logits in pairs)


@pytest.mark.parametrize("name", READ)
def test_a_librarys_model_is_read_and_embedded(name):
    found = reading(name)
    assert error(found, name) < 1e-9
    tokens, logits = (FROZEN[name][0][f"frozen.{part}"][0] for part in ("tokens", "logits"))
    embedded = embed_model(found, sequences=[tokens])
    assert embedded.agreement.relative_difference < 1e-9
    kernel = read_kernel(write_kernel(found.kernel), found.shape.heads, found.shape.head_dim, found.shape.layers)
    outputs = embedded.host.forward(found.one_hots(tokens), embedded.E, kernel)
    assert relative_difference(outputs, logits) < 1e-9


@pytest.mark.parametrize(
    "name", [name for name in FROZEN if name.endswith((": LayerNorm", " MLP", "normalised queries"))]
)
def test_a_librarys_model_with_norms_or_mlps_is_refused_by_the_names_of_tensors(name):
    with pytest.raises(MalformedInput, match=r"normalises|MLP"):
        reading(name)


FAULTS = {
    "causal flipped": LayerAttention(causal=False),
    "window": LayerAttention(window=2),
    "cap": LayerAttention(cap=0.1),
    "bias": LayerAttention(bias=np.eye(16)[None].repeat(8, 0)),
    "rotated": LayerAttention(rope_base=100.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_attention_is_seen(fault):
    assert error(replace(reading(PLAIN), attention=ModelAttention((FAULTS[fault],) * 2)), PLAIN) > 1e-4


# --- files, references and commands ----------------------------------------------------------------------------


def weights(name=PLAIN):
    return {n: np.asarray(a) for n, a in FROZEN[name][0].items() if not n.startswith("frozen.")}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The plain model as a file without metadata."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    save_file(weights(), "m.safetensors")
    return tmp_path


EMBED = ("embed", "sparse", "m.safetensors", "-o", "E.safetensors")


@pytest.mark.parametrize("case", ["nothing", "metadata", "a contradiction"])
def test_on_which_evidence_a_file_is_acted_as(stored, case, capsys):
    if case != "nothing":
        save_file(weights(), "m.safetensors", KNOWN)
    options = ["--attention", "softmax"] if case == "a contradiction" else []
    code = {"nothing": 4, "metadata": 0, "a contradiction": 2}[case]
    assert run([*EMBED, *options, "--json"]) == code
    printed = capsys.readouterr()
    said = "--attention says attention_dir bidirectional" if options else "this reading of the file"
    assert said in printed.out + printed.err
    if case == "nothing":
        assert run([*EMBED]) == code
        assert "--attention" in capsys.readouterr().out  # what settles a fact is printed
        assert "assumed" in read_tensors("E.safetensors").metadata


def test_a_tied_host_with_a_stream_cannot_carry_an_untied_model():
    with pytest.raises(CannotCarry):
        embed_model(reading(PLAIN), "tied")


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
    assert document["read_as"]["residual stream"] == "no (measured)"
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
    "no attention": (lambda self, tokens: self.embedding(tokens), MalformedInput, "no attention was seen"),
    "no logits": (
        lambda self, tokens: self.attn(*[self.embedding(tokens)] * 3) and "logits",
        MalformedInput,
        "gives no logits",
    ),
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


def test_what_is_of_no_family():
    with pytest.raises(MalformedInput, match="is read by from_parts"):
        from_model(pytest.importorskip("torch").nn.Linear(2, 2))


def rotated(x):
    """[B, n, H, 6] turned by positions, coordinates 2i and 2i + 1 together, base 100."""
    import torch

    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None, None] * 100.0 ** (-torch.arange(3, dtype=x.dtype) / 3)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(-2)


def hidden(z, window=99):
    import torch

    distance = torch.arange(z.shape[-1])[:, None] - torch.arange(z.shape[-1])
    return z.masked_fill((distance < 0) | (distance >= window), float("-inf"))


def alibi(z):
    import torch

    distance = torch.arange(z.shape[-1])[:, None] - torch.arange(z.shape[-1])
    return hidden(z / 2 - torch.tensor([0.5, 0.1])[:, None, None] * distance)


MEASURED = {  # what queries and keys, then logits go through, and how it is said
    "window": (lambda x: x, lambda z: hidden(z, 5), "window 5"),
    "cap": (lambda x: x, lambda z: hidden(2 * (z / 2).tanh()), "logits capped at 2"),
    "bias": (lambda x: x, alibi, "a bias for each pair"),
}


def lens(turn, logits):
    """TransformerLens' names with grouped keys, as tensors and as a module; each head's logits are what it computes."""
    torch = pytest.importorskip("torch")
    stored = {n: torch.from_numpy(a) for n, a in transformer_lens(H=2, G=1, d=6, D=5, P=0).items()}

    class Lens(torch.nn.Module):
        def forward(self, tokens):
            x = stored["embed.W_E"][tokens]
            for layer in range(2):
                w = {n.split(".attn.")[1]: t for n, t in stored.items() if n.startswith(f"blocks.{layer}.")}
                q = torch.einsum("bnD,hDd->bnhd", x, w["W_Q"]) + w["b_Q"]
                k, v = (torch.einsum("bnD,hDd->bnhd", x, w[f"_W_{c}"]) + w[f"_b_{c}"] for c in "KV")
                k, v = (part.repeat(1, 1, 2, 1) for part in (k, v))
                pattern = logits(torch.einsum("bihd,bjhd->bhij", turn(q), turn(k))).softmax(-1)
                x = x + torch.einsum("bhij,bjhd,hdD->biD", pattern, v, w["W_O"]) + w["b_O"]
            return x @ stored["unembed.W_U"] + stored["unembed.b_U"]

        def state_dict(self):
            return stored

    return stored, Lens()


@pytest.mark.parametrize("case", MEASURED)
def test_what_a_live_model_does_to_its_logits_is_measured(case):
    turn, logits, words = MEASURED[case]
    found = from_model(lens(turn, logits)[1])
    assert words in found.facts["attention"]
    assert embed_model(found).agreement.relative_difference < 1e-10


def test_rotations_of_a_whole_model_are_passed_to_from_parts():
    stored, module = lens(rotated, lambda z: hidden(0.3 * z))
    with pytest.raises(MalformedInput, match=r"differ by.*Rotations by positions are read in the first layer alone"):
        from_model(module)
    w = {name: [stored[f"blocks.{i}.attn.{name}"] for i in range(2)] for name in ("W_Q", "_W_K", "_W_V", "W_O")}
    b = {
        name.strip("_"): [stored[f"blocks.{i}.attn.{name}"] for i in range(2)]
        for name in ("b_Q", "_b_K", "_b_V", "b_O")
    }
    parts = stored["embed.W_E"], *w.values(), stored["unembed.W_U"]
    given = {**b, "b_U": stored["unembed.b_U"], "scale": 0.3, "forward": module}
    found = from_parts(*parts, **given, attention=LayerAttention(causal=True, rope_base=100.0))
    made = embed_model(found, "sparse")
    assert made.agreement.relative_difference < 1e-10
    kernel = read_kernel(write_kernel(made.kernel), 2, 6, 2)
    assert kernel.layers[0].rope_base == 100


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
    assert measured(huge + np.eye(5, 3, k=-3) * 1e-5, huge).first.startswith("5 tokens [0, 1, 2, 3, 4], position 3")
    assert measured(huge * (1 + 1e-13), huge).relative_difference < 1e-11


def test_outputs_beyond_float64_decide_nothing():
    for beyond in (np.inf, np.nan):
        assert measured(np.full((2, 2), beyond), np.ones((2, 2))).decided(1e-8) is None
    with pytest.raises(MalformedInput, match="not finite"):
        measured(np.zeros((1, 1)), np.full((1, 1), np.inf))
    expected = np.where(np.arange(6)[:, None] < 1, 1.2e308, -1.2e308) * np.ones((6, 3))
    assert measured(np.zeros((6, 3)), expected).relative_difference > 0.5
