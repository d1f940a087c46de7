"""Weight files: round trips in every format, metadata, refusals, nothing half-written."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from cases import UNEQUAL_SHAPES
from hypothesis import given
from hypothesis import strategies as st
from test_decide import save

from utfproof import weights
from utfproof.constructions import build_host, random_target
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.util.generator import round_to
from utfproof.util.laws import DTYPES, LAWS
from utfproof.weights import TensorSource, read_embedding, read_host, read_target, same_parameters


def target_tensors(L=2, H=2, D=3, d=2):
    return {name: np.zeros((L, H, D, d)) for name in ("W_Q", "W_K", "W_V")} | {"W_O": np.zeros((L, H, d, D))}


def host_tensors(L=2, H=2, m=4, d=1, d_out=2):
    return {
        "R_Q": np.zeros((L, H, m, d)),
        "R_K": np.zeros((L, H, m, d)),
        "R_V": np.zeros((L, H, m, m)),
        "U": np.zeros((m, d_out)),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("width", [None, 5])
def test_targets_round_trip(tmp_path, dtype, tied, width):
    shape = Shape(2, 3, 2, 3)
    target = random_target(shape, 3, width=width, dtype=dtype, tied=tied)
    path = tmp_path / "target.safetensors"
    weights.write_target(path, target, dtype=dtype)
    back = read_target(path)
    assert (back.shape, type(back), back.width) == (shape, type(target), target.width)
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U"):
        ours, theirs = getattr(target, name), getattr(back, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert theirs.dtype == np.float64
            assert np.array_equal(ours.astype(np.float64), theirs)


@pytest.mark.parametrize(
    "name", ["sparse", "tied", "shared-key", "shared-query", "random", "random-tied", "printed-looped"]
)
@pytest.mark.parametrize("dims", [(2, 2, 3, 2), *UNEQUAL_SHAPES])
def test_hosts_round_trip(tmp_path, name, dims):
    shape = Shape(*dims)
    if name == "shared-query" and shape.head_dim < shape.d_out:
        pytest.skip("not defined here")
    host = build_host(name, shape)
    path = tmp_path / "host.safetensors"
    weights.write_host(path, host, dtype="float64" if name.startswith("random") else "int8")
    back = read_host(path)
    assert same_parameters(back, host)
    assert back.construction == ("" if name.startswith("random") else name)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_hosts_in_every_format_are_read_exactly(tmp_path, law, dtype):
    host = build_host("random", Shape(2, 1, 1, 2), law=law, dtype=dtype)
    path = tmp_path / "host.safetensors"
    weights.write_host(path, host, dtype=dtype)
    assert np.array_equal(read_host(path).R_V, host.R_V.astype(np.float64))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_bfloat16_bits(tmp_path_factory, values):
    values = np.array(values)
    values = values[np.abs(values) < 1e38]
    rounded = round_to(values, "bfloat16")
    path = save(tmp_path_factory.mktemp("w") / "x.safetensors", {"E": rounded[None]}, dtype="bfloat16")
    assert np.array_equal(read_embedding(path)[0], rounded.astype(np.float64))


def test_the_library_reads_what_is_written(tmp_path):
    from safetensors.numpy import load_file

    target = random_target(Shape(2, 2, 2, 3), 0)
    weights.write_target(tmp_path / "t.safetensors", target, dtype="float32")
    assert np.array_equal(load_file(tmp_path / "t.safetensors")["W_Q"], target.W_Q.astype(np.float32))


def test_same_weights_same_bytes(tmp_path):
    target = random_target(Shape(2, 2, 2, 3), 0)
    for name in "ab":
        weights.write_target(tmp_path / name, target, metadata={"b": "1", "a": "2"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_without_metadata_are_read_where_unambiguous(tmp_path):
    path = save(tmp_path / "t.safetensors", target_tensors())
    assert read_target(path).shape == Shape(2, 2, 2, 3)
    path = save(tmp_path / "h.safetensors", host_tensors())
    host = read_host(path)
    assert (type(host), host.shape, host.m) == (Universal, Shape(2, 2, 1, 2), 4)
    assert read_host(path, d_in=5).shape == Shape(2, 2, 1, 5, 2)
    tied = {name: array[0] if array.ndim == 4 else array for name, array in host_tensors().items()}
    path = save(tmp_path / "lh.safetensors", tied)
    with pytest.raises(MalformedInput, match="pass --layers"):
        read_host(path)
    host = read_host(path, layers=3)
    assert (host.tied, host.shape.layers) == (True, 3)
    assert read_host(save(path, tied, metadata={"layers": "5"})).shape.layers == 5
    looped = {name: array[0] for name, array in target_tensors().items()}
    assert read_target(save(path, looped), layers=2).tied


def test_d_in_of_zero_is_refused(tmp_path):
    with pytest.raises(MalformedInput, match="d_in must be a positive integer, got 0"):
        read_host(save(tmp_path / "h.safetensors", host_tensors()), d_in=0)


def test_factored_values_are_read(tmp_path):
    tensors = host_tensors()
    del tensors["R_V"]
    tensors |= {"R_Vv": np.ones((2, 2, 4, 3)), "R_Vo": np.ones((2, 2, 3, 4))}
    host = read_host(save(tmp_path / "h.safetensors", tensors))
    assert [factor.shape for factor in host.maps(0, 0).value] == [(4, 3), (3, 4)]


def without(tensors, *names):
    return {name: a for name, a in tensors.items() if name not in names}


TARGET_REFUSALS = [
    (without(target_tensors(), "W_O"), {}, "tensor W_O is missing; found W_K, W_Q, W_V"),
    (target_tensors() | {"b_Q": np.zeros(2)}, {}, "b_Q has shape"),
    (target_tensors(), {"system": "universal"}, "metadata says system 'universal', expected target"),
    (target_tensors(), {"system": "looped-target"}, "metadata says 'looped-target' but W_Q has 4 axes"),
    (target_tensors(), {"layers": "3"}, "W_Q has 2 layers, 3 were said"),
    (target_tensors(), {"layers": "two"}, "metadata field layers is 'two'"),
    (target_tensors() | {"W_K": np.zeros((2, 2, 3, 1))}, {}, "W_K has shape"),
    (target_tensors() | {"W_E": np.zeros((7, 4))}, {}, "W_E has shape"),
    (target_tensors() | {"W_E": np.zeros(7)}, {}, "W_E has 1 axes, expected 2"),
    (target_tensors() | {"W_Q": np.zeros((3, 2))}, {}, "W_Q has 2 axes, expected 4"),
    (
        target_tensors() | {"W_V": np.full((2, 2, 3, 2), np.nan)},
        {},
        r"W_V\[0, 0, 0, 0\] is nan; weights must be finite",
    ),
    (target_tensors(H=0), {}, "heads must be a positive integer"),
]


@pytest.mark.parametrize(("tensors", "metadata", "message"), TARGET_REFUSALS)
def test_bad_targets_are_refused(tmp_path, tensors, metadata, message):
    path = save(tmp_path / "t.safetensors", tensors, metadata=metadata)
    with pytest.raises(MalformedInput, match=message) as caught:
        read_target(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


HOST_REFUSALS = [
    (without(host_tensors(), "U"), {}, "tensor U is missing"),
    (without(host_tensors(), "R_V") | {"R_Vv": np.zeros((2, 2, 4, 1))}, {}, "tensor R_Vo is missing"),
    (host_tensors() | {"U": np.zeros((5, 2))}, {}, "U has shape"),
    (host_tensors() | {"U": np.zeros(5)}, {}, "U has 1 axes"),
    (host_tensors() | {"R_V": np.zeros((2, 2, 4, 3))}, {}, r"R_V\[0, 0\] has shape"),
    (host_tensors(), {"system": "target"}, "expected universal or looped-universal"),
    (host_tensors(d_out=2, m=20), {"construction": "sparse", "d_in": "2"}, "weights differ from it"),
    (host_tensors(d_out=2, m=4), {"construction": "sparse"}, "needs m >= 20, got 4"),
    (host_tensors(), {"d_in": "x"}, "metadata field d_in"),
]


@pytest.mark.parametrize(("tensors", "metadata", "message"), HOST_REFUSALS)
def test_bad_hosts_are_refused(tmp_path, tensors, metadata, message):
    path = save(tmp_path / "h.safetensors", tensors, metadata=metadata)
    with pytest.raises(MalformedInput, match=message):
        read_host(path)


def raw_file(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a safetensors file"),
        (b"\x80\x04K\x01.", "is not a safetensors file"),
        (struct.pack("<Q", 2**40), "is not a safetensors file"),
        (
            raw_file({"E": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}),
            "is not a safetensors file",
        ),
        (
            raw_file({"E": {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
            "is not a safetensors file",
        ),
        (
            raw_file({"E": {"dtype": "BOOL", "shape": [1, 1], "data_offsets": [0, 1]}}, bytes(1)),
            "has type BOOL",
        ),
        (
            raw_file({"E": {"dtype": "I64", "shape": [1, 1], "data_offsets": [0, 8]}}, b"\xff" * 7 + b"\x7f"),
            "beyond 2",
        ),
        (raw_file({"E": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "E has 1 axes"),
    ],
)
def test_broken_files_are_refused(tmp_path, content, message):
    path = tmp_path / "E.safetensors"
    path.write_bytes(content)
    with pytest.raises(MalformedInput, match=message):
        read_embedding(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(MalformedInput, match=r"cannot read .*nothing.*No such file"):
        read_target(tmp_path / "nothing.safetensors")
    with pytest.raises(MalformedInput, match="cannot read"):
        read_target(tmp_path)
    with pytest.raises(MalformedInput, match=r"folder .* does not exist"):
        weights.write_embedding(tmp_path / "no" / "E.safetensors", np.zeros((1, 1)))
    with pytest.raises(MalformedInput, match="it is a folder"):
        weights.write_embedding(tmp_path, np.zeros((1, 1)))


def test_reading_is_guarded(tmp_path):
    path = save(tmp_path / "t.safetensors", target_tensors(D=30))
    with pytest.raises(ResourceLimit, match="reading"):
        read_target(path, max_memory=1000)


def test_links_and_devices(tmp_path):
    (tmp_path / "link").symlink_to("E.safetensors")
    weights.write_embedding(tmp_path / "link", np.ones((1, 1)))
    assert (tmp_path / "link").is_symlink()
    assert read_embedding(tmp_path / "E.safetensors").tolist() == [[1.0]]
    with pytest.raises(MalformedInput, match="it is a device or a pipe"):
        weights.write_embedding("/dev/null", np.ones((1, 1)))
    assert not Path("/dev/null").is_file()


def test_nothing_is_left_of_a_failed_write(tmp_path):
    path = tmp_path / "E.safetensors"
    weights.write_embedding(path, np.ones((1, 2)))
    before = path.read_bytes()

    def broken():
        yield np.ones(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.write_tensors(path, {"E": TensorSource((1, 2), broken)}, {}, "float64")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["E.safetensors"]


def test_metadata_that_are_null_are_refused(tmp_path):
    """The library reads them, and nothing that needs a name in them could go on."""
    header = json.dumps({"__metadata__": None, "U": {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]}}).encode()
    path = tmp_path / "null.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(MalformedInput, match="__metadata__ is null, expected an object of texts"):
        weights.read_tensors(path)
