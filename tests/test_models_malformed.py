"""Files of models and hosts that hold something else than they should: one line and exit code 2, never half a reading."""

import ast
import base64
import io
import json
import warnings
import zipfile

import numpy as np
import pytest
from test_import import transformer_lens

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput
from utfproof.models import LayerAttention, ModelAttention, import_model, read_kernel
from utfproof.models.checkpoint import configuration, state_dict
from utfproof.models.exporting import write_arrays, write_module
from utfproof.shapes import Shape
from utfproof.weights import write_host

TENSORS = transformer_lens()

# --- PyTorch's files -----------------------------------------------------------------------------------------


class Tensor:
    """What is asked of a tensor here."""

    def __init__(self, ndim=2):
        self.ndim = ndim

    def detach(self):
        return self


T, OTHER, VECTOR = {"a.weight": Tensor()}, {"a.weight": Tensor()}, {"a": Tensor(1)}
HELD = {
    "alone": T,
    "nested": {"model": T, "epoch": 3},
    "an optimiser beside it": {"state_dict": T, "optimizer": {"state": {0: T}, "param_groups": []}},
    "generators of random numbers beside it": {"model": T, "rng": VECTOR, "loss": Tensor(0)},
    "another that is empty": {"model": T, "state_dict": {}},
}
REFUSED = {
    "two by their usual names": ({"model": T, "state_dict": OTHER}, "'model', 'state_dict'"),
    "a running mean": ({"ema": OTHER, "model": T}, "'ema', 'model'"),
    "vectors under a usual name": ({"model": T, "state_dict": VECTOR}, "'model', 'state_dict'"),
    "tensors beside it": ({"model": T, "head": Tensor()}, "'model', and tensors beside them"),
    "a number as a name": ({5: Tensor(), "5": Tensor()}, "5 is no tensor with a name"),
    "a number among tensors": ({**T, "epoch": 1}, "'epoch' is no tensor"),
    "no dict": ([1, 2], "no state dict"),
    "nothing": ({}, "no state dict"),
}


@pytest.mark.parametrize("case", HELD)
def test_the_state_dict_of_a_checkpoint(case):
    assert state_dict(HELD[case]) is T


@pytest.mark.parametrize("case", REFUSED)
def test_checkpoints_that_do_not_say_which_model(case, capsys):
    held, said = REFUSED[case]
    with pytest.raises(SystemExit):
        state_dict(held)
    assert said in capsys.readouterr().err


def test_the_configuration_of_a_checkpoint(capsys):
    """All of its fields; two configurations are refused."""
    fields = {"n_head": 2, "betas": [0.9, 0.95], "rope": {"base": 3}}
    assert configuration({"model_args": fields, "hyper_parameters": {}}) == fields
    assert configuration([]) == {}
    with pytest.raises(SystemExit):
        configuration({"model_args": fields, "hyper_parameters": fields})
    assert "model_args, hyper_parameters" in capsys.readouterr().err


LISTS = {
    "windows": (
        {"attn_types": ["local", "global"], "use_local_attn": True, "window_size": 2},
        "layer 0: causal, window 2",
    ),
    "slopes": ({"positional_embedding_type": "alibi", "alibi_slopes": [0.5, 0.25]}, "slopes 0.5, 0.25"),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_in_metadata_are_read(tmp_path, case):
    """As checkpoints bring them along: in JSON."""
    fields, said = LISTS[case]
    write_arrays(
        tmp_path / "m.safetensors", TENSORS, {name: json.dumps(value).strip('"') for name, value in fields.items()}
    )
    assert said in import_model(tmp_path / "m.safetensors").reading.attention.words()
    write_arrays(tmp_path / "m.safetensors", TENSORS, {"attn_types": "[" * 10**5})
    with pytest.raises(MalformedInput, match="attn_types"):
        import_model(tmp_path / "m.safetensors")


@pytest.mark.full
def test_checkpoints_by_torch_itself(tmp_path):
    """Two state dicts, none of which is taken; types that are not read, under the name of the file that was given."""
    torch = pytest.importorskip("torch")
    held = {name: torch.from_numpy(array.copy()) for name, array in TENSORS.items()}
    path = tmp_path / "m.pt"
    fields = {"attention_dir": "causal", "attn_types": ["local", "global"], "use_local_attn": True, "window_size": 2}
    torch.save({"model": held, "model_args": fields}, path)
    assert import_model(path).reading.attention.words() == "layer 0: causal, window 2; layer 1: causal"
    for wrong, said in (
        ({"model": held, "state_dict": {name: 0 * array for name, array in held.items()}}, "'model', 'state_dict'"),
        (held | {"embed.W_E": held["embed.W_E"].to(torch.complex64)}, "embed.W_E has type C64"),
    ):
        torch.save(wrong, path)
        with pytest.raises(MalformedInput, match=said) as refusal:
            import_model(path)
        assert str(refusal.value).startswith(f"{path}: ")
        assert "tensors.safetensors" not in str(refusal.value)


# --- other files ---------------------------------------------------------------------------------------------


def archive(path, changes=None, compression=zipfile.ZIP_STORED):
    """An .npz of the model, and further members [(name, bytes)]."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression=compression) as stored:
        warnings.simplefilter("ignore")  # a name that stands there twice
        for name, array in TENSORS.items():
            stored.writestr(f"{name}.npy", npy(array))
        for name, held in changes or ():
            stored.writestr(name, held)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def patched(path, local, value):
    """One byte of every header, local and central, changed."""
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", local + 2)):
        at = data.find(mark)
        while at >= 0:
            data[at + place] = value
            at = data.find(mark, at + 4)
    path.write_bytes(data)


def spoilt(path):
    data = bytearray(path.read_bytes())
    data[200:230] = bytes(b ^ 0xFF for b in data[200:230])
    path.write_bytes(data)


ARCHIVES = {
    "an array alone": (lambda path: path.write_bytes(npy(np.zeros(3))), "no .npz of plain|not an .npz"),
    "a text in it": (lambda path: archive(path, [("readme.txt", "hi")]), "readme.txt is no array"),
    "a name twice": (
        lambda path: archive(path, [("embed.W_E.npy", npy(np.zeros((5, 4))))]),
        "embed.W_E stands there twice",
    ),
    "no array under its name": (lambda path: archive(path, [("x.npy", b"hello")]), "not an .npz"),
    "damaged": (lambda path: (archive(path, None, zipfile.ZIP_LZMA), spoilt(path)), "not an .npz"),
    "packed in an unknown way": (lambda path: (archive(path), patched(path, 8, 99)), "not an .npz"),
    "encrypted": (lambda path: (archive(path), patched(path, 6, 1)), "not an .npz.*encrypted"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_are_not_read(tmp_path, case):
    make, said = ARCHIVES[case]
    path = tmp_path / "m.npz"
    archive(path)
    import_model(path)
    make(path)
    with pytest.raises(MalformedInput, match=said) as refusal:
        import_model(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("shard", ["", ".", "..", "../m.safetensors", "absent.safetensors", 3])
def test_shards_are_files_beside_the_index(tmp_path, shard):
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(MalformedInput):
        import_model(tmp_path / "m.safetensors.index.json")


# --- what is said of models with norms -----------------------------------------------------------------------


def test_models_with_norms_are_not_sent_where_they_are(tmp_path):
    """A reader for models with norms names another reason than that there are norms."""
    strange = {"tower.0.norm.weight": np.ones(4), "tower.0.mix.weight": np.ones((4, 4))}
    write_arrays(tmp_path / "m.safetensors", strange, {})
    with pytest.raises(MalformedInput, match="no layout is recognised"):
        import_model(tmp_path / "m.safetensors", norms=True)
    held = {
        "h.0.attn.c_attn.weight": np.ones((4, 12)),
        "h.0.attn.c_proj.weight": np.ones((4, 4)),
        "wte.weight": np.ones((5, 4)),
        "wpe.weight": np.ones((6, 4)),
        "lm_head.weight": np.ones((5, 4)),
        "h.0.mlp.c_fc.weight": np.ones((4, 4)),
        "h.0.mlp.c_proj.weight": np.ones((4, 4)),
        **{f"{name}.{part}": np.ones(4) for name in ("h.0.ln_1", "h.0.ln_2", "ln_f") for part in ("weight", "bias")},
    }
    write_arrays(tmp_path / "m.safetensors", held, {})
    with pytest.raises(MalformedInput, match=r"h\.0\.mlp\.c_fc\.weight belongs to an MLP"):
        import_model(tmp_path / "m.safetensors", config={"n_head": 2, "layer_norm_epsilon": 1e-5}, norms=True)


# --- stored attention ----------------------------------------------------------------------------------------

LAYER = {"causal": True, "window": None, "cap": None, "slopes": [], "single": False}
TABLES = {"shape": [2, 3, 1], "tables": base64.b64encode(np.ones(6).tobytes()).decode(), "adjacent": False}
GOOD = {
    "plain": LAYER,
    "window": {**LAYER, "window": 3},
    "cap": {**LAYER, "cap": 5},
    "slopes": {**LAYER, "slopes": [0.5, 1]},
    "rotary": {**LAYER, "rotary": TABLES},
}
STORED = {
    "a number": 1,
    "nothing": {},
    "causal": {**LAYER, "causal": "no"},
    "single": {**LAYER, "single": 0},
    "window of text": {**LAYER, "window": "3"},
    "window of 0": {**LAYER, "window": 0},
    "window of true": {**LAYER, "window": True},
    "cap of text": {**LAYER, "cap": "x"},
    "cap of NaN": {**LAYER, "cap": float("nan")},
    "cap of infinity": {**LAYER, "cap": float("inf")},
    "cap of 0": {**LAYER, "cap": 0.0},
    "too few slopes": {**LAYER, "slopes": [0.5]},
    "slopes of text": {**LAYER, "slopes": ["a", "b"]},
    "infinite slopes": {**LAYER, "slopes": [float("inf"), 1]},
    "slopes of no list": {**LAYER, "slopes": "ab"},
    "no tables": {**LAYER, "rotary": {}},
    "short tables": {**LAYER, "rotary": {**TABLES, "tables": "AAAA"}},
    "tables of text": {**LAYER, "rotary": {**TABLES, "tables": "?"}},
    "tables of NaN": {**LAYER, "rotary": {**TABLES, "tables": base64.b64encode(np.full(6, np.nan).tobytes()).decode()}},
    "tables of three": {**LAYER, "rotary": {**TABLES, "shape": [3, 2, 1]}},
    "wide tables": {**LAYER, "rotary": {**TABLES, "shape": [2, 1, 3]}},
    "adjacent": {**LAYER, "rotary": {**TABLES, "adjacent": 1}},
}


@pytest.mark.parametrize("case", STORED)
def test_stored_attention_that_this_package_does_not_write(case):
    with pytest.raises(MalformedInput, match="stored attention"):
        read_kernel(json.dumps([STORED[case]]), 2, 2)
    for layer in GOOD.values():
        read_kernel(json.dumps([layer]), 2, 2)


@pytest.mark.parametrize("text", ["[]", "[", "[1", "[" * 10**5, "[null]"])
def test_stored_attention_that_is_none(text):
    with pytest.raises(MalformedInput, match="stored attention"):
        read_kernel(text, 2, 2)


def test_stored_attention_has_the_hosts_layers(tmp_path):
    host = build_host("sparse", Shape(2, 2, 2, 3))
    for layers in (1, 3):
        with pytest.raises(MalformedInput, match=f"of {layers} layers, 2 expected"):
            write_module(
                tmp_path / "host.py",
                host,
                np.zeros((3, host.m)),
                ModelAttention((LayerAttention(cap=2.0),) * layers),
                vocabulary=3,
                positions=0,
            )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x\\N", "u\\u1", 'a"""b', "q'\"", "n\nl", "x{0}", "\udcff"])
def test_a_module_of_any_name(tmp_path, name):
    """A file's name stands in the module's text twice: in its docstring and where it is read."""
    host, path = build_host("sparse", Shape(2, 1, 1, 2)), tmp_path / f"{name}.py"
    weights = write_module(path, host, np.zeros((2, host.m)), SoftmaxAttention(), vocabulary=2, positions=0)
    tree = ast.parse(path.read_text())
    assert weights.name in (ast.get_docstring(tree, clean=False) or "")
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert weights.name in constants


# --- hosts ---------------------------------------------------------------------------------------------------


def test_hosts_that_are_not_decided(tmp_path, capsys):
    """No dimensions, and a d_in that contradicts the metadata: exit 2, and no certificate."""
    path, out = tmp_path / "h.safetensors", tmp_path / "h.json"
    parts = {"R_Q": (1, 1, 0, 1), "R_K": (1, 1, 0, 1), "R_V": (1, 1, 0, 0), "U": (0, 2)}
    write_arrays(path, {name: np.zeros(shape) for name, shape in parts.items()}, {"d_in": "2"})
    assert run(["decide", str(path), "-o", str(out)]) == 2
    assert "m >= 1" in capsys.readouterr().err
    write_host(path, build_host("sparse", Shape(1, 1, 1, 4)))
    assert run(["decide", str(path), "--d-in", "3", "-o", str(out)]) == 2
    assert "metadata says d_in 4, 3 was said" in capsys.readouterr().err
    assert not out.exists()
    assert run(["decide", str(path), "--d-in", "4", "-o", str(out)]) == 0
