"""The checker's arithmetic at its extremes, and what it does with randomness: each line here kills a mutant."""

import json
import math
from array import array
from bisect import bisect_left
from types import SimpleNamespace

import corpus
import judges
import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from test_decide import save

from utfproof import weights
from utfproof.certificates import checker, checker_numpy
from utfproof.certificates.prover import certify, certify_weights
from utfproof.shapes import Shape, matching_dimension
from utfproof.util.laws import LAWS

PRIMES = (3, 101, 65521, 65537, 2097143, 2**31 - 1)


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("terms", [1, 2, 65, 2280])
def test_slots_hold_the_longest_sums(p, terms):
    """All entries p-1, all coefficients the largest: the packed combination is the plain one."""
    packing = checker.Packing(p, terms)
    row = array(checker.U32, [p - 1] * 5)
    for coefficient in (packing.half, -packing.half):
        total = packing.biases(5) + sum(coefficient * packing.pack(row) for _ in range(terms))
        assert packing.unpack(total, 5).tolist() == [terms * coefficient * (p - 1) % p] * 5


@pytest.mark.parametrize(("dims", "m"), [((2, 2, 1, 2, 2), 20), ((1, 1, 3, 2, 5), 11), ((3, 1, 2, 1, 1), 13)])
def test_callers_ask_for_enough_terms(monkeypatch, dims, m):
    """Every combination that the checker forms has at most the terms its packing was made for."""

    class Counting(checker.Packing):
        def __init__(self, p, terms):
            super().__init__(p, terms)
            made.append((self, terms))

        def balanced(self, numbers):
            found = super().balanced(numbers)
            longest[id(self)] = max(longest.get(id(self), 0), len(found))
            return found

    made, longest = [], {}
    monkeypatch.setattr(checker, "Packing", Counting)
    claim = checker.Claim(checker.KINDS["rank-modular"], checker.Shape(*dims, m), "random", "float64", "uniform", 1)
    host = checker.RandomHost(claim)
    M = claim.shape.columns
    checker.rank_reaches(checker.dense_matrix(host, 101), 101, M)
    assert longest
    for packing, terms in made:
        assert longest.get(id(packing), 0) <= terms


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("p", [3, 2**31 - 1])
def test_no_probe_reaches_into_the_next(p, residual, monkeypatch):
    """All entries and all probes p - 1: a probe's part of the sums is what it gives alone."""
    s = checker.Shape(2, 3, 2, 3, 3, 5, residual)
    full = SimpleNamespace(s=s, rows=lambda code, layer, head, columns, p=0: [[p - 1] * columns] * s.m)
    full.units = lambda code: 1
    layered, seen = checker.layered, []

    def alone(s, z, system):
        together = layered(s, z, system)
        (_, packed), *_ = z
        slot = (packed // (p - 1) - 1 & 1 - packed // (p - 1)).bit_length() - 1  # the lowest bit but that of the first
        one = layered(s, [(place, value % 2**slot) for place, value in z], system)
        assert [value % 2**slot for _, value in z] == [p - 1] * s.columns
        assert all(value < 2**slot for value in one.values())
        seen.append({at: together[at] % 2**slot for at in together} == one)
        return together

    monkeypatch.setattr(checker, "layered", alone)
    monkeypatch.setattr(checker, "uniform", lambda p, count: array(checker.U32, [p - 1] * count))
    rows = array(checker.U32, [0] * s.columns)
    with pytest.raises(checker.Stop):
        checker.require_inverse(full, p, rows, array(checker.U32, [0] * s.columns**2), False)
    assert seen == [True]


def test_probes_are_uniform_fresh_and_drawn_last(tmp_path, monkeypatch):
    """M draws for each of k probes, below p and as often each, after every file has been read."""
    certify("random", Shape(2, 2, 2, 3), witness=True).write(tmp_path / "c.json")
    p = json.loads((tmp_path / "c.json").read_bytes())["evidence"]["prime"]
    events = []
    draw, read = checker.uniform, checker.read_regular
    monkeypatch.setattr(checker, "uniform", lambda *asked: events.append(asked) or draw(*asked))
    monkeypatch.setattr(checker, "read_regular", lambda *a, **k: events.append("read") or read(*a, **k))
    assert checker.check_file(tmp_path / "c.json").code == 0
    first = events.index((p, 36))
    assert "read" in events[:first]
    k = len(events) - first
    assert p**k >= 2**100 > p ** (k - 1)
    assert events[first:] == [(p, 36)] * k
    counts = np.bincount(draw(3, 30_000), minlength=3)
    assert len(counts) == 3
    assert counts.min() > 9_500  # six standard deviations
    assert len(draw(2**31 - 1, 5)) == 5


def held(numbers, p):
    """As the NumPy part holds residues."""
    return checker_numpy.reduced(np.array(numbers, dtype=np.float64), p)


@pytest.mark.parametrize("witness", [False, True])
@pytest.mark.parametrize("shape", [Shape(2, 2, 3, 2), Shape(1, 2, 2, 3, residual=True)], ids=str)
def test_slabs_of_any_size_give_the_same_verdict(shape, witness, tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    certify("random", shape, matching_dimension(shape) + 1, dtype="float32", witness=witness).write(path)
    limits = checker.Options(numpy=True)
    for name, size in (("SLAB", 40), ("CHUNK", 5), ("PANEL", 4)):
        monkeypatch.setattr(checker_numpy, name, size)
    assert checker.check_file(path, limits).code == 0
    # a fault: every chunk is the first one
    right = checker_numpy.drawn
    monkeypatch.setattr(checker_numpy, "drawn", lambda *given: lambda start, stop: right(*given)(0, stop - start))
    assert checker.check_file(path, limits).code == 1


@pytest.mark.parametrize("p", [65521, 65537, 2097143, 4194301, 4194319, 2**31 - 1])
def test_numpy_products_are_exact(p, monkeypatch):
    rng = np.random.default_rng(p)
    a = np.concatenate([rng.integers(0, p, (2, 50)), np.full((1, 50), p - 1)])
    b = np.concatenate([rng.integers(0, p, (50, 2)), np.full((50, 1), p - 1)], axis=1)
    expected = (a.astype(object) @ b.astype(object)) % p
    for terms in (2**21, 7, 1):
        monkeypatch.setattr(checker_numpy, "EXACT_TERMS", terms)
        monkeypatch.setattr(checker_numpy, "EXACT", terms * p**2)
        assert np.array_equal(checker_numpy.product(held(a, p), held(b, p), p) % p, expected)


STORED = [*checker.FLOATS, *checker.INTEGERS]


@pytest.mark.parametrize("p", [3, 65521, 2**31 - 1])
@pytest.mark.parametrize("dtype", STORED)
def test_stored_residues_are_the_checkers_own(dtype, p):
    """Every bit pattern of 16 bits, drawn ones of 32 and 64, signs and subnormals among them; and which are finite."""
    size = array(checker.Tensor(dtype, ()).code).itemsize
    raw = np.random.default_rng(p).integers(0, 256, 2**16 * size, dtype=np.uint8)
    if size == 2:
        raw = np.arange(2**16, dtype="<u2").view(np.uint8)
    raw = np.concatenate([raw, np.zeros(size, np.uint8), np.full(size, 255, np.uint8), np.eye(1, size, 0, np.uint8)[0]])
    tensor = checker.Tensor(dtype, (raw.size // size, 1), raw.tobytes())
    if dtype in checker.FLOATS:
        with pytest.raises(checker.Stop, match="not finite"):
            checker.require_finite({"U": tensor})
        bits = raw.view(checker_numpy.FLOATS[dtype][0])
        top = 2 ** (8 * size - 1 - checker.FLOATS[dtype][1]) - 1
        held = bits[(bits >> np.uint64(checker.FLOATS[dtype][1]).astype(bits.dtype) & bits.dtype.type(top)) != top]
        tensor = checker.Tensor(dtype, (len(held), 1), held.tobytes())
        checker.require_finite({"U": tensor})
    host = SimpleNamespace(tensors={"U": tensor}, tied=False)
    rows = [x % p for (x,) in checker.WeightsHost.stored(host, "U", 1, 0, tensor.sizes[0], 1, p)]
    found = checker_numpy.residues(host, p, "U", 1, 0)
    assert np.abs(found).max() <= (p + 1) // 2
    assert (found[:, 0] % p).tolist() == rows


@given(
    p=st.sampled_from([3, 101, 65521, 2**31 - 1]), rows=st.integers(1, 90), columns=st.integers(1, 90),
    rank=st.integers(0, 90), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_ranks_with_numpy_are_the_checkers_own(p, rows, columns, rank, seed):
    rng = np.random.default_rng(seed)
    rank = min(rank, rows, columns)
    a = rng.integers(0, p, (rows, rank)).astype(object) @ rng.integers(0, p, (rank, columns)).astype(object) % p
    a = a.astype(np.int64).reshape(rows, columns)
    a[:, rng.random(columns) < 0.1] = 0
    lists = [array(checker.U32, row) for row in a.tolist()]
    missed = bisect_left(range(columns + 2), True, key=lambda wanted: not checker.rank_reaches([*lists], p, wanted))
    for wanted in {missed - 1, missed, 0, columns + 1}:
        reached = wanted < missed
        assert checker.rank_reaches([*lists], p, wanted) == checker_numpy.rank_reaches(held(a, p), p, wanted) == reached


def test_numpy_products_reduce_in_time():
    """2^21 + 3 terms of the largest size: past 2^51 without the cut."""
    n, p = 2**21 + 3, 65521
    half = (p - 1) // 2
    assert (
        checker_numpy.product(np.full((1, n), float(half)), np.full((n, 1), float(half)), p)[0, 0] % p
        == n * half**2 % p
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("law", LAWS)
@given(m=st.sampled_from([1, 3, 4, 16, 64, 1000]), tops=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_both_roundings_agree(dtype, law, m, tops):
    """Ties included: at m = 4, 16, 64 the unit is a power of two and numerators of 25 bits tie."""
    claim = checker.Claim(checker.KINDS["rank-modular"], checker.Shape(1, 1, 1, 1, 1, m), "random", dtype, law, 0)
    host = checker.RandomHost(claim)
    ties = [(2**31 + 2**k + j) << 32 for k in (0, 7, 8, 9, 20, 24) for j in (-1, 0, 1)]
    x = [*tops, *ties]
    if law == "uniform":
        plain = [host.rounded(2 * (t >> 32) + 1 - 2**32) for t in x]
    elif law == "signs":
        plain = [host.rounded(1 - 2 * (t >> 63)) for t in x]
    else:
        plain = [host.rounded(t.bit_count() - 32) for t in x]
    fast = checker_numpy.integers(host, np.array(x, dtype=np.uint64))
    assert fast.tolist() == plain


# --- kernel vectors: units of their own for each matrix --------------------------------------------------------------


def mixed(path, tensors, types):
    """A safetensors file whose tensors have types of their own."""
    import struct

    codes = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8"}
    header, data = {}, b""
    for name in sorted(tensors):
        raw = np.ascontiguousarray(tensors[name]).astype(types[name]).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": codes[types[name]], "shape": list(tensors[name].shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@given(
    types=st.fixed_dictionaries(
        dict.fromkeys(("R_Q", "R_K", "R_V", "U"), st.sampled_from(["float64", "float32", "float16", "int8"]))
    ),
    layers=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_kernel_vectors_with_mixed_types(tmp_path_factory, types, layers, seed):
    """K repeats Q, up to a factor: z spans columns of matrices with different units, at every depth."""
    rng, m = np.random.default_rng(seed), 2 * layers + 1
    tensors = {"R_Q": rng.integers(1, 3, (layers, 1, m, 1)), "R_V": rng.integers(-2, 3, (layers, 1, m, m))}
    tensors |= {"R_K": tensors["R_Q"] * 2, "U": rng.integers(-2, 3, (m, 1))}
    folder = tmp_path_factory.mktemp("mixed")
    found = certify_weights(mixed(folder / "h.safetensors", tensors, types))
    found.write(folder / "c.json")
    assert not found.universal
    assert checker.check_file(folder / "c.json").code == 0
    document = json.loads(found.to_bytes())
    if document["evidence"]["method"] == "kernel-vector":
        z = document["evidence"]["z"]
        z[0][1] += 1 if z[0][1] != -1 else 2
        (folder / "c.json").write_bytes(rfc8785.dumps(document))
        assert checker.check_file(folder / "c.json").code == 1


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("law", ["signs", "binomial"])
@pytest.mark.parametrize("name", ["random", "random-tied"])
def test_kernel_vectors_of_singular_random_hosts(tmp_path, dtype, law, name):
    """Deep words have their own powers of the unit; tiny hosts under coarse laws are singular often enough."""
    refuted = 0
    for seed in range(60):
        found = certify(name, Shape(1, 2, 1, 1), seed=seed, law=law, dtype=dtype)
        found.write(tmp_path / "c.json")
        assert checker.check_file(tmp_path / "c.json").code == 0
        refuted += not found.universal
    assert law == "binomial" or refuted > 3


# --- weights files ---------------------------------------------------------------------------------------------------


def small_host(rng, m=5, d_v=None, dtype=np.float64):
    tensors = {
        "R_Q": rng.integers(1, 9, (1, 2, m, 1)),
        "R_K": rng.integers(1, 9, (1, 2, m, 1)),
        "U": rng.integers(1, 9, (m, 1)),
    }
    if d_v is None:
        tensors["R_V"] = rng.integers(1, 9, (1, 2, m, m))
    else:
        tensors |= {"R_Vv": rng.integers(1, 9, (1, 2, m, d_v)), "R_Vo": rng.integers(1, 9, (1, 2, d_v, m))}
    return {name: a.astype(dtype) for name, a in tensors.items()}


def repointed(folder, certificate, digest):
    """A certificate that speaks of other weights."""
    document = json.loads(certificate.to_bytes())
    document["claim"]["host"]["weights"] = digest
    (folder / "c.json").write_bytes(rfc8785.dumps(document))
    return checker.check_file(folder / "c.json")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_not_a_number_anywhere_is_invalid(tmp_path, dtype, bad):
    """Also where the method reads no entry (m < M), or not that one."""
    rng = np.random.default_rng(0)
    for m in (5, 6):  # M = 6: below, and a kernel vector of two equal columns of head 0
        good = small_host(rng, m)
        good["R_K"][0, 0] = good["R_Q"][0, 0]
        certificate = certify_weights(save(tmp_path / "good.safetensors", good, dtype))
        assert not certificate.universal
        poisoned = {name: a.copy() for name, a in good.items()}
        poisoned["R_V"][0, 1, 2, 3] = bad
        path = save(tmp_path / "bad.safetensors", poisoned, dtype)
        verdict = repointed(tmp_path, certificate, weights.read_tensors(path).digest())
        assert (verdict.code, verdict.message) == (1, "R_V has an entry that is not finite")


def test_factors_of_width_zero(tmp_path):
    """R_V is zero, and so is the first column of outputs. The package refuses such files, the format does not."""
    path = save(tmp_path / "h.safetensors", small_host(np.random.default_rng(0), 6, d_v=0))
    claim = checker.Claim(checker.KINDS["rank-deficient"], checker.Shape(2, 1, 1, 1, 1, 6))
    host = {"system": "universal", "weights": checker.read_weights(str(path), claim)[0]}
    found = corpus.document("rank-deficient", host, (2, 1, 1, 1, 1), 6, corpus.kernel_evidence({4: 1}))
    assert judges.confirmed(found, tmp_path).code == checker.VALID
    wrong = corpus.changed(found, "evidence", corpus.kernel_evidence({3: 1}))
    assert judges.confirmed(wrong, tmp_path).code == checker.INVALID


def test_neighbours_do_not_disturb(tmp_path):
    certificate = certify_weights(save(tmp_path / "m-host.safetensors", small_host(np.random.default_rng(0), 6)))
    certificate.write(tmp_path / "c.json")
    (tmp_path / "a-large.safetensors").write_bytes(bytes(3_000_000))
    (tmp_path / "b-broken.safetensors").write_bytes(b"x")
    (tmp_path / "c-odd.safetensors").write_bytes(b'\x10\0\0\0\0\0\0\0{"\\ud800": null}')
    (tmp_path / "d-folder.safetensors").mkdir()
    (tmp_path / "e-dangling.safetensors").symlink_to("nowhere")
    limits = checker.Options(weights=(str(tmp_path / "missing"),))
    assert checker.check_file(tmp_path / "c.json", limits).code == 0
    (tmp_path / "m-host.safetensors").unlink()
    assert checker.check_file(tmp_path / "c.json", limits).code == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(extra=header["U"]),
        lambda header: header["U"].update(shape=[6.0, 1]),
        lambda header: header["U"].update(shape=[True, 6]),
        lambda header: header["U"].update(data_offsets=[0, 48]),
        lambda header: header["U"].update(data_offsets=[-8, 40]),
        lambda header: header["U"].update(dtype="BOOL"),
        lambda header: header["U"].update(dtype="F32"),
        lambda header: header.pop("U"),
    ],
)
def test_improper_headers_are_no_weights(tmp_path, change):
    path = save(tmp_path / "h.safetensors", small_host(np.random.default_rng(0), 6))
    certify_weights(path).write(tmp_path / "c.json")
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    assert checker.check_file(tmp_path / "c.json").code == 2


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
def test_integers_of_64_bits_everywhere(tmp_path, dtype):
    """Extremes, on NumPy and on a torch device."""
    import struct

    pytest.importorskip("torch")
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    header, data = {}, b""
    for name, sizes in {"R_K": (1, 1, 3, 1), "R_Q": (1, 1, 3, 1), "R_V": (1, 1, 3, 3), "U": (3, 1)}.items():
        raw = rng.integers(info.min, info.max, sizes, dtype=dtype, endpoint=True).tobytes()
        kind = "U64" if dtype == "uint64" else "I64"
        header[name] = {"dtype": kind, "shape": list(sizes), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (tmp_path / "h.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    here = certify_weights(tmp_path / "h.safetensors", witness=True)
    there = certify_weights(tmp_path / "h.safetensors", witness=True, device="cpu:0")
    assert here.to_bytes() == there.to_bytes()
    here.write(tmp_path / "c.json")
    assert checker.check_file(tmp_path / "c.json").code == 0


@pytest.mark.parametrize("residual", [False, True])
def test_all_heads_of_sparse_at_once(residual):
    """As head by head, by the host's definition."""
    host = checker.Sparse(checker.Shape(2, 3, 2, 3, 1, 99, residual))
    runs = {block: (block, 0, width) for block, (_, width) in host.blocks.items()}
    for layer in range(1, 4):
        assert host.act(layer, runs) == checker.IndexHost.act(host, layer, runs)
