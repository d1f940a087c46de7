"""Modules and files of models that hold something else than they should: one line and exit code 2, never half a reading."""

import json

import pytest
from test_import import transformer_lens

from utfproof.errors import MalformedInput
from utfproof.models import import_model
from utfproof.models.checkpoint import configuration, state_dict
from utfproof.models.exporting import write_arrays

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
