"""Certificates bound to given weights: any number format, tied or not, factored or not, decided and re-checked."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import r_all as naive_r_all

from utfproof import weights
from utfproof.certificates import checker
from utfproof.certificates.prover import certify, certify_weights
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, Undecided
from utfproof.exact import rational
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal
from utfproof.util.arrays import exact
from utfproof.util.laws import LAWS
from utfproof.weights import TensorSource

TYPES = ("float64", "float32", "float16", "bfloat16", "int8")


def save(path, tensors, dtype="float64", metadata=None):
    """Arbitrary tensors, through the writer."""
    sources = {name: TensorSource(np.shape(a), lambda a=a: iter([np.asarray(a)])) for name, a in tensors.items()}
    weights.write_tensors(path, sources, metadata or {}, dtype)
    return path


def random_tensors(rng, shape, m, *, tied=False, inner=None, low=-3, high=4, scale=1.0):
    """Small integers times a power of two: exact in every number format."""
    return host_tensors(lambda *size: rng.integers(low, high, size=size) * scale, shape, m, tied=tied, inner=inner)


def host_tensors(draw, shape, m, *, tied=False, inner=None):
    """A host's tensors, each drawn by its size; inner: R_V as a product through so many coordinates."""
    lead, d = (shape.heads,) if tied else (shape.layers, shape.heads), shape.head_dim
    tensors = {"R_Q": draw(*lead, m, d), "R_K": draw(*lead, m, d), "U": draw(m, shape.d_out)}
    if inner is None:
        return tensors | {"R_V": draw(*lead, m, m)}
    return tensors | {"R_Vv": draw(*lead, m, inner), "R_Vo": draw(*lead, inner, m)}


def true_rank(tensors, shape, m, tied):
    """Exact rank of R_all from the definition, one word at a time."""
    parts = {name: exact(a) for name, a in tensors.items()}
    if "R_Vv" in parts:
        parts["R_V"] = parts.pop("R_Vv") @ parts.pop("R_Vo")
    return rational.rank(naive_r_all(Universal(shape, m, **parts)))


def checked(path, **limits):
    return checker.check_file(path, checker.Options(**limits)).code


@pytest.mark.full
@settings(max_examples=80)
@given(
    H=st.integers(1, 2),
    L=st.integers(1, 2),
    d=st.integers(1, 2),
    d_out=st.integers(1, 2),
    slack=st.integers(-1, 2),
    tied=st.booleans(),
    factored=st.booleans(),
    dtype=st.sampled_from(TYPES),
    bits=st.integers(0, 1),
    witness=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_verdicts_are_the_exact_rank(
    tmp_path_factory, H, L, d, d_out, slack, tied, factored, dtype, bits, witness, seed
):
    shape = Shape(H, L, d, d_out)
    M = matching_dimension(shape)
    m = max(1, M + slack)
    rng = np.random.default_rng(seed)
    scale = 1.0 if dtype == "int8" else 2.0 ** -int(rng.integers(0, 9))
    spread = {"low": 0, "high": 2} if bits else {}  # {0,1} entries are often singular
    tensors = random_tensors(
        rng, shape, m, tied=tied, inner=int(rng.integers(1, m + 1)) if factored else None, scale=scale, **spread
    )
    folder = tmp_path_factory.mktemp("weights")
    path = save(folder / "host.safetensors", tensors, dtype)
    found = certify_weights(path, layers=L, witness=witness)
    found.write(folder / "c.json")
    assert found.universal == (m >= M and true_rank(tensors, shape, m, tied) == M)
    assert checked(folder / "c.json") == 0
    assert checked(folder / "c.json", numpy=True) == 0


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["random", "random-tied"])
@pytest.mark.parametrize("witness", [False, True])
def test_random_hosts_as_files(tmp_path, dtype, name, witness):
    host = build_host(name, Shape(2, 2, 2, 3), dtype=dtype, seed=2)
    weights.write_host(tmp_path / "h.safetensors", host, dtype=dtype)
    found = certify_weights(tmp_path / "h.safetensors", witness=witness)
    found.write(tmp_path / "c.json")
    assert found.universal
    assert checked(tmp_path / "c.json") == 0


@pytest.mark.parametrize("name", ["sparse", "sparse-front", "tied", "printed-tree-row", "printed-looped"])
def test_constructions_as_files(tmp_path, name):
    host = build_host(name, Shape(2, 2, 1, 2), 21)
    weights.write_host(tmp_path / "h.safetensors", host, dtype="int8")
    found = certify_weights(tmp_path / "h.safetensors")
    found.write(tmp_path / "c.json")
    assert found.universal == (not name.startswith("printed"))
    assert checked(tmp_path / "c.json") == 0


def test_the_certificate_is_bound_to_the_content(tmp_path):
    shape = Shape(2, 1, 1, 2)
    tensors = random_tensors(np.random.default_rng(1), shape, 8)
    path = save(tmp_path / "h.safetensors", tensors)
    certify_weights(path).write(tmp_path / "c.json")
    assert checked(tmp_path / "c.json") == 0
    # other metadata, other order and another name are the same content
    save(tmp_path / "other-name.safetensors", dict(reversed(tensors.items())), metadata={"note": "x", "layers": "1"})
    path.unlink()
    assert checked(tmp_path / "c.json") == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other-name.safetensors").rename(tmp_path / "elsewhere" / "h.safetensors")
    assert checked(tmp_path / "c.json") == 2
    for place in (tmp_path / "elsewhere", tmp_path / "elsewhere" / "h.safetensors"):
        assert checked(tmp_path / "c.json", weights=(str(place),)) == 0
    # one entry more is other content
    tensors["U"][0, 0] += 1
    save(path, tensors)
    assert checked(tmp_path / "c.json") == 2


def forged(tmp_path, certificate, change):
    """A certificate with one field changed, canonical again."""
    import rfc8785

    document = json.loads(certificate.to_bytes())
    change(document)
    (tmp_path / "forged.json").write_bytes(rfc8785.dumps(document))
    return checked(tmp_path / "forged.json")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda c: c["claim"]["host"].update(weights="0" * 64), 2),
        (lambda c: c["claim"]["host"].update(weights="../h"), 2),
        (lambda c: c["claim"]["host"].update(weights=c["claim"]["host"]["weights"].upper()), 2),
        (lambda c: c["claim"]["host"].update(system="looped-universal"), 2),
        (lambda c: c["claim"]["host"].update(system="target"), 2),
        (lambda c: c["claim"]["host"].update(construction="random"), 2),
        (lambda c: c["claim"]["host"].pop("system"), 2),
        (lambda c: c["shape"].update(m=9), 2),
        (lambda c: c["shape"].update(heads=1), 2),
        (lambda c: c["shape"].update(layers=2), 2),
        (lambda c: c["shape"].update(d_out=1), 2),
        (lambda c: c["shape"].update(d_in=7), 0),  # d_in does not enter R_all
        (lambda c: c["claim"].update(rank=7), 1),
        (lambda c: c["evidence"].update(prime=101), 0),  # another prime under which the rank is full
        (lambda c: c["evidence"].update(prime=9), 1),
        (lambda c: c.update(kind="rank-permutation"), 2),
    ],
)
def test_forgeries(tmp_path, change, code):
    tensors = random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 8)
    certificate = certify_weights(save(tmp_path / "h.safetensors", tensors))
    assert certificate.universal
    assert forged(tmp_path, certificate, change) == code


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_weights_that_are_not_finite(tmp_path, bad, dtype):
    """The prover refuses them by name; the checker rejects a certificate that someone else made of them."""
    tensors = random_tensors(np.random.default_rng(1), Shape(1, 1, 1, 1), 3)
    tensors["R_V"][0, 0, 1, 2] = bad
    path = save(tmp_path / "h.safetensors", tensors, dtype)
    with pytest.raises(MalformedInput, match=r"R_V\[0, 0, 1, 2\] is -?(nan|inf)"):
        certify_weights(path)
    good = random_tensors(np.random.default_rng(1), Shape(1, 1, 1, 1), 3)
    certificate = certify_weights(save(tmp_path / "good.safetensors", good, dtype))
    digest = weights.read_tensors(path).digest()
    assert forged(tmp_path, certificate, lambda c: c["claim"]["host"].update(weights=digest)) == 1


def test_extreme_floats_are_exact(tmp_path):
    """Subnormals and the largest numbers: a rank that floating point cannot see."""
    tiny, huge = 5e-324, 1.7976931348623157e308
    R_Q = np.array([[[[tiny], [0.0], [0.0]]]])
    R_K = np.array([[[[huge], [tiny], [0.0]]]])
    R_V = np.eye(3)[None, None] * huge
    U = np.array([[1.0], [1.0], [2.0**-1074]])
    path = save(tmp_path / "h.safetensors", {"R_Q": R_Q, "R_K": R_K, "R_V": R_V, "U": U})
    found = certify_weights(path)
    found.write(tmp_path / "c.json")
    assert found.universal
    assert checked(tmp_path / "c.json") == 0
    U[2] = 0
    found = certify_weights(save(path, {"R_Q": R_Q, "R_K": R_K, "R_V": R_V, "U": U}))
    found.write(tmp_path / "c.json")
    assert not found.universal
    assert checked(tmp_path / "c.json") == 0


def test_exact_factors_and_their_rounded_product(tmp_path):
    """mathematics section 2: the factors decide 12 of 36, the product rounded to float32 has full rank by noise only."""
    shape, m, rng = Shape(2, 2, 2, 3), 36, np.random.default_rng(0)
    tensors = random_tensors(rng, shape, m, inner=2)
    for name in ("R_Vv", "R_Vo"):
        tensors[name] = rng.normal(size=tensors[name].shape).astype(np.float32)
    found = certify_weights(save(tmp_path / "factors.safetensors", tensors, "float32"))
    found.write(tmp_path / "c.json")
    assert not found.universal
    assert checked(tmp_path / "c.json") == 0
    product = np.matmul(tensors.pop("R_Vv"), tensors.pop("R_Vo"), dtype=np.float32)
    rounded = certify_weights(save(tmp_path / "product.safetensors", tensors | {"R_V": product}, "float32"))
    assert rounded.universal


def test_deficient_modulo_primes_is_undecided_not_wrong(tmp_path, monkeypatch):
    """Where no exact relation is found behind a deficient rank, nothing is claimed; the command says so and exits 4."""
    shape, m = Shape(2, 2, 2, 2), 32
    tensors = random_tensors(np.random.default_rng(0), shape, m)
    tensors["R_Q"][0, 1] = tensors["R_Q"][0, 0]
    path = save(tmp_path / "h.safetensors", tensors)
    assert not certify_weights(path).universal
    monkeypatch.setattr("utfproof.certificates.rank.find_relation", lambda *_, **__: None)
    with pytest.raises(Undecided, match="which proves nothing"):
        certify_weights(path)
    assert run(["decide", str(path), "-o", str(tmp_path / "c.json"), "--json"]) == 4
    assert {p.name for p in tmp_path.iterdir()} == {"h.safetensors"}


@pytest.mark.parametrize("witness", [False, True])
@pytest.mark.parametrize("last", [127, 127 * 113, 0])
def test_determinants_that_small_primes_divide(tmp_path, last, witness):
    """det R_all is 127, 127 * 113, or 3 * 5 * ... * 127 in the end: full rank, whichever prime shows it."""
    odd = [p for p in range(3, 128) if all(p % q for q in range(2, p))]
    parts = [last, 1, 1, 1] if last else [int(np.prod(odd[i::4], dtype=object)) for i in range(4)]
    first, second, third, fourth = (np.zeros((1, 1, 3, n)) for n in (1, 1, 3, 1))
    first[..., 0, 0], second[..., 1, 0], third[..., 2, 0], fourth[..., 0, 0] = parts
    path = tmp_path / "h.safetensors"
    save(path, {"R_Q": first, "R_K": second, "R_V": third, "U": fourth[0, 0]})
    certificate = certify_weights(path, witness=witness)
    assert certificate.universal
    assert (certificate.document["evidence"]["prime"] > 127) == (not last)
    certificate.write(tmp_path / "c.json")
    assert checker.check_file(tmp_path / "c.json").code == 0


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensors = random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 8)
    save(tmp_path / "h.safetensors", tensors)
    assert run(["decide", "h.safetensors", "-o", "c.json"]) == 0
    assert "universal by matching" in capsys.readouterr().out
    tensors["R_K"] = tensors["R_Q"]
    save(tmp_path / "bad.safetensors", tensors)
    assert run(["decide", "bad.safetensors", "-o", "bad.json", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "not universal by matching"
    assert run(["check", "."]) == 0
    save(tmp_path / "narrow.safetensors", random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 7))
    assert run(["decide", "narrow.safetensors", "-o", "narrow.json"]) == 1
    assert run(["check", "narrow.json"]) == 0
    assert run(["decide", "missing.safetensors", "-o", "x.json"]) == 2
    assert run(["decide", "h.safetensors", "-o", "x.txt"]) == 2
    assert not (tmp_path / "x.txt").exists()


@pytest.mark.parametrize("device", ["cpu:0", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("witness", [False, True])
def test_torch_gives_the_same_bytes(tmp_path, device, witness):
    """cpu:0 is torch's name of the CPU: the code that runs on a GPU, without one."""
    pytest.importorskip("torch")
    shape = Shape(2, 2, 2, 2)
    for dtype in ("float64", "bfloat16"):
        path = tmp_path / f"{dtype}.safetensors"
        weights.write_host(path, build_host("random", shape, dtype=dtype), dtype=dtype)
        there = certify_weights(path, witness=witness, device=device)
        assert there.to_bytes() == certify_weights(path, witness=witness).to_bytes()
        for law in LAWS:
            drawn = certify("random-tied", shape, dtype=dtype, law=law, witness=witness, device=device)
            assert drawn.to_bytes() == certify("random-tied", shape, dtype=dtype, law=law, witness=witness).to_bytes()
            assert drawn.sidecars == certify("random-tied", shape, dtype=dtype, law=law, witness=witness).sidecars


# --- the command: five sources of hosts, and what is said about each ------------------------------------------


@pytest.fixture
def decide(to_json):
    """Run `utfproof decide FILE -o c.json --json` in a fresh folder: (exit code, document)."""
    return to_json("decide")


def exact_r_all(path, layers=None):
    host = weights.read_host(path, layers=layers)
    parts = {n: None if getattr(host, n) is None else getattr(host, n) for n in ("R_Q", "R_K", "R_V", "R_Vo", "U")}
    if isinstance(host.U, np.ndarray):
        parts = {n: None if a is None else exact(a) for n, a in parts.items()}
    return naive_r_all(Universal(host.shape, host.m, **parts))


# --- by attention-matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "place", "m", "kind"),
    [
        ("random", (2, 1, 3, 2), 14, "linear-test"),
        ("random-tied", (2, 2, 2, 1), 22, "linear-test"),
        ("shared-key", (2, 2, 2, 2), None, "identity"),
        ("shared-query", (2, 2, 2, 2), None, "identity"),
        ("random", (2, 1, 1, 2), 8, "rank-modular"),
    ],
)
def test_attention_matching_is_proved(decide, tmp_path, name, place, m, kind):
    weights.write_host(tmp_path / "h.safetensors", build_host(name, Shape(*place), m), dtype="float64" if m else "int8")
    code, document = decide("h.safetensors", "--notion", "attention-matching")
    assert (code, document["verdict"], document["kind"]) == (0, "universal by attention-matching", kind)
    assert "universality by matching" in document["does_not_imply"]
    assert checked("c.json") == 0
    assert decide("h.safetensors")[0] == (0 if kind == "rank-modular" else 1)


def test_attention_matching_stays_open_below_the_linear_test(decide, tmp_path):
    shape = Shape(2, 2, 2, 2)
    weights.write_host(
        tmp_path / "h.safetensors", build_host("random", shape, matching_dimension(shape) - 4, law="signs")
    )
    code, document = decide("h.safetensors", "--notion", "attention-matching")
    assert (code, document["verdict"]) == (4, "open by attention-matching")
    assert "not universal by attention-matching" not in json.dumps(document)
    assert {p.name for p in tmp_path.iterdir()} == {"h.safetensors"}


def test_unknown_devices_are_refused():
    pytest.importorskip("torch")
    with pytest.raises(MalformedInput, match="device 'nonsense' is not available here"):
        certify("random", Shape(1, 1, 1, 1), device="nonsense")


def test_a_host_is_opened_once(decide, tmp_path, monkeypatch):
    path = save(tmp_path / "h.safetensors", random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 8))
    opened = []
    real = weights.read_tensors
    monkeypatch.setattr(weights, "read_tensors", lambda *a, **k: opened.append(a) or real(*a, **k))
    for options in ((), ("--tied-targets",), ("--notion", "attention-matching")):
        opened.clear()
        decide(path, *options)
        assert [Path(a[0]) for a in opened].count(path) == 1, options


@pytest.mark.parametrize("options", [(), ("--tied-targets",)])
def test_a_file_that_changes_meanwhile_gives_no_verdict(decide, tmp_path, monkeypatch, options):
    path = save(tmp_path / "h.safetensors", random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 8))
    real = weights.TensorFile.digest

    def digest(file, *more):
        found = real(file, *more)
        with path.open("r+b") as stream:  # one bit of the last weight, in place
            stream.seek(-1, 2)
            stream.write(b"\x01")
        os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(weights.TensorFile, "digest", digest)
    code, err = decide(path, *options)
    assert (code, "changed while it was being read" in err) == (2, True)
    assert not Path("c.json").exists()
