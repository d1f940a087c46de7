"""`utfproof decide`: five sources of hosts, and what is said about each."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import test_decide
from naive import w_all as naive_w_all
from test_decide import checked, exact_r_all, random_tensors, save

from utfproof import weights
from utfproof.cli.app import run
from utfproof.constructions import build_host
from utfproof.exact import rational
from utfproof.shapes import Shape
from utfproof.util.arrays import exact

decide = test_decide.decide


def nearest_squared(matrix, column):
    """min |e_c - y R_all|^2 over rational y, exactly: 1 - b G^{-1} b^T with b the column of a row basis, G its Gram."""
    rows = []
    for i in range(len(matrix)):
        if rational.rank(matrix[[*rows, i]]) > len(rows):
            rows.append(i)
    if not rows:
        return Fraction(1)
    basis = matrix[rows]
    inverse = rational.inverse(basis @ basis.T)
    return Fraction(1 - basis[:, column] @ inverse @ basis[:, column])


def refuted(decide, path, *options, named=True):
    """The document of a refutation, after all that it promises is checked against definitions."""
    code, document = decide(path, *options)
    assert code == 1
    assert document["verdict"] == "not universal by matching"
    assert "not universal by attention-matching or functionally" in document["does_not_imply"]
    assert checked("c.json") == 0
    missed = document["missed"]
    if not named:
        assert missed is None
        assert not Path("c.target.safetensors").exists()
        return document
    matrix = exact_r_all(path)
    target = weights.read_target("c.target.safetensors")
    W = naive_w_all(target)
    expected = np.zeros_like(W)
    expected[0, missed["column"]] = 1
    assert (W == expected).all()
    nearest = nearest_squared(matrix, missed["column"])
    assert nearest > 0  # no E at all
    if missed["distance_squared"] is not None:
        bound = Fraction(*map(int, missed["distance_squared"]))
        assert 0 < bound <= nearest
        assert missed["distance"] ** 2 <= nearest
        assert abs(missed["distance"] - float(bound) ** 0.5) < 1e-9
        z = dict(json.loads(Path("c.json").read_text())["evidence"].get("z", []))
        if len(z) and len(matrix.T) - rational.rank(matrix) == 1:
            assert bound == nearest  # one kernel vector, up to scale: the bound is the distance
    return document


@pytest.mark.parametrize("name", ["sparse", "sparse-front", "tied", "random", "random-tied"])
def test_source_constructions(decide, tmp_path, name):
    host = build_host(name, Shape(2, 2, 1, 2))
    weights.write_host(tmp_path / "h.safetensors", host, dtype="float64" if name.startswith("random") else "int8")
    code, document = decide("h.safetensors")
    assert (code, document["verdict"]) == (0, "universal by matching")
    assert "functionally as well" in document["implies"]
    assert "missed" not in document
    assert not list(tmp_path.glob("*.target.safetensors"))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("printed-tree-row", (2, 2, 1, 2)),
        ("printed-tree-column", (2, 2, 1, 2)),
        ("printed-looped", (2, 1, 1, 2)),
        ("printed-looped", (2, 2, 1, 2)),
        ("printed-single-head", (1, 2, 1, 2)),
    ],
)
def test_source_constructions_as_printed(decide, tmp_path, name, place):
    weights.write_host(tmp_path / "h.safetensors", build_host(name, Shape(*place)), dtype="int8")
    refuted(decide, "h.safetensors")


def torch_host(H, L, d, m, d_in, dtype):
    """Linear layers of their default initialisation, one per head and use; rows are tokens, so weights are transposed."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def grid(columns):
        made = [[torch.nn.Linear(m, columns, bias=False).weight.T for _ in range(H)] for _ in range(L)]
        return torch.stack([torch.stack(row) for row in made]).detach().to(dtype).contiguous()

    tensors = {"R_Q": grid(d), "R_K": grid(d), "R_V": grid(m)}
    tensors["U"] = torch.nn.Linear(m, d_in, bias=False).weight.T.detach().to(dtype).contiguous()
    return tensors


def save_torch(tensors, path):
    from safetensors.torch import save_file

    save_file(tensors, path)
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_source_pytorch_modules(decide, dtype):
    torch = pytest.importorskip("torch")
    path = save_torch(torch_host(2, 2, 1, 20, 2, getattr(torch, dtype)), "h.safetensors")
    code, document = decide(path)
    assert (code, document["verdict"]) == (0, "universal by matching")
    path = save_torch(torch_host(2, 2, 1, 19, 2, getattr(torch, dtype)), "n.safetensors")
    document = refuted(decide, path)
    assert "m = 19 is below M = 20" in document["reason"]
    assert document["missed"]["in_certificate"] is False


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_source_factored_heads(decide, tmp_path, dtype):
    """Exact factors decide; their product rounded is of full rank by rounding only."""
    torch = pytest.importorskip("torch")
    shape, m, rng = Shape(2, 2, 2, 3), 36, np.random.default_rng(0)
    tensors = random_tensors(rng, shape, m, inner=2)
    kind = getattr(torch, dtype)
    parts = {n: torch.from_numpy(rng.normal(size=tensors[n].shape)).to(kind) for n in ("R_Vv", "R_Vo")}
    rest = {n: torch.from_numpy(tensors[n]).to(kind) for n in ("R_Q", "R_K", "U")}
    refuted(decide, save_torch(rest | parts, "f.safetensors"))
    product = parts["R_Vv"] @ parts["R_Vo"]
    code, document = decide(save_torch(rest | {"R_V": product}, "p.safetensors"))
    assert (code, document["verdict"]) == (0, "universal by matching")
    assert run(["decide", "p.safetensors", "-o", "c.json"]) == 0


def test_factors_that_suffice(decide, tmp_path):
    shape, m = Shape(2, 1, 1, 2), 8
    for inner, expected in ((1, 1), (2, 0)):
        tensors = random_tensors(np.random.default_rng(3), shape, m, inner=inner)
        save(tmp_path / "f.safetensors", tensors, "float32")
        if expected:
            refuted(decide, "f.safetensors")
        else:
            assert decide("f.safetensors")[0] == 0


DEFECTS = {
    "repeated head": lambda t: [t[n].__setitem__((0, 1), t[n][0, 0]) for n in ("R_Q", "R_K", "R_V")],
    "repeated queries": lambda t: t["R_Q"].__setitem__((1, 1), t["R_Q"][1, 0]),
    "keys that are queries": lambda t: t["R_K"].__setitem__((0, 0), t["R_Q"][0, 0]),
    "zeroed R_V": lambda t: t["R_V"].__setitem__((0, 0), 0),
    "rank-one R_Q": lambda t: t["R_Q"].__setitem__((1, 0, slice(None), 1), 2 * t["R_Q"][1, 0, :, 0]),
    "shared R_V": lambda t: t["R_V"].__setitem__((1, 1), t["R_V"][1, 0]),
    "zero column of U": lambda t: t["U"].__setitem__((slice(None), 1), 0),
}


@pytest.mark.full
@pytest.mark.parametrize("defect", DEFECTS)
def test_source_planted_defects(decide, tmp_path, defect):
    tensors = random_tensors(np.random.default_rng(5), Shape(2, 2, 2, 2), 32)
    path = save(tmp_path / "good.safetensors", tensors, "float32")
    assert decide(path)[0] == 0
    DEFECTS[defect](tensors)
    refuted(decide, save(tmp_path / "h.safetensors", tensors, "float32"))


def test_a_row_too_few(decide, tmp_path):
    tensors = random_tensors(np.random.default_rng(5), Shape(2, 2, 2, 2), 31)
    document = refuted(decide, save(tmp_path / "h.safetensors", tensors, "int8"))
    assert "m = 31 is below M = 32" in document["reason"]


def test_a_row_too_few_when_large_names_a_target_without_a_distance(decide, tmp_path, monkeypatch):
    monkeypatch.setattr("utfproof.decision.counterexample.CHEAP_KERNEL_ENTRIES", 10)
    tensors = random_tensors(np.random.default_rng(5), Shape(2, 2, 1, 1), 13)
    document = refuted(decide, save(tmp_path / "h.safetensors", tensors, "int8"))
    assert document["missed"]["distance_squared"] is None
    tensors["U"][:] = 0  # rank below m: the independent rows are gone, a kernel vector is looked for
    refuted(decide, save(tmp_path / "h.safetensors", tensors, "int8"))
    monkeypatch.setattr("utfproof.decision.counterexample.find_relation", lambda *_, **__: None)
    Path("c.target.safetensors").unlink()
    refuted(decide, "h.safetensors", named=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--notion", "functional"], "notion 'functional' cannot be decided for given weights"),
        (["--notion", "attention-matching", "--tied-targets"], "--tied-targets is about matching; leave out --notion"),
        (["--layers", "3"], "has 2 layers, 3 were said"),
    ],
)
def test_bad_options_get_one_line_and_nothing_is_written(decide, tmp_path, options, message):
    tensors = random_tensors(np.random.default_rng(1), Shape(2, 2, 1, 1), 15)
    save(tmp_path / "h.safetensors", tensors)
    code, err = decide("h.safetensors", *options)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"h.safetensors"}


def test_integers_beyond_float64_are_decided_exactly(decide):
    from safetensors.numpy import save_file

    tensors = random_tensors(np.random.default_rng(1), Shape(2, 1, 1, 2), 8)
    tensors = {n: a.astype(np.int64) for n, a in tensors.items()}
    tensors["U"][0, 0] = 2**60
    save_file(tensors, "h.safetensors")
    code, document = decide("h.safetensors")
    assert code == 0
    tensors["R_K"] = tensors["R_Q"]
    save_file(tensors, "h.safetensors")
    code, document = decide("h.safetensors")
    assert (code, document["verdict"]) == (1, "not universal by matching")


def test_tied_targets(decide, tmp_path):
    """Repeated values of layer 2 repeat outputs of untied and of tied targets; a full rank serves both; m < M neither."""
    shape = Shape(2, 2, 2, 2)
    tensors = random_tensors(np.random.default_rng(1), shape, 32)
    path = save(tmp_path / "h.safetensors", tensors, "int8")
    code, document = decide(path, "--tied-targets")
    assert (code, document["targets"]) == (0, "all untied")
    tensors["R_V"][1, 1] = tensors["R_V"][1, 0]
    path = save(tmp_path / "h.safetensors", tensors, "int8")
    code, document = decide(path, "--tied-targets")
    assert (code, document["targets"], document["verdict"]) == (1, "all tied", "not universal by matching")
    assert checked("c.json") == 0
    target = weights.read_target("c.target.safetensors")
    assert target.tied
    matrix, W = exact_r_all(path), exact(naive_w_all(target))
    assert rational.rank(np.concatenate([matrix, W])) > rational.rank(matrix)
    Path("c.target.safetensors").unlink()
    path = save(tmp_path / "n.safetensors", random_tensors(np.random.default_rng(1), shape, 31), "int8")
    code, document = decide(path, "--tied-targets")
    assert (code, document["kind"]) == (1, "lower-bound")
    assert not Path("c.target.safetensors").exists()


def test_tied_targets_need_less_than_rank_m(decide, tmp_path):
    """(2,2,1,1): outputs of tied targets are equal for words of equal letters, so values that commute serve them at m = 15."""
    shape = Shape(2, 2, 1, 1)
    tensors = random_tensors(np.random.default_rng(2), shape, 15, tied=True)
    path = save(tmp_path / "r.safetensors", tensors, "int8")
    assert decide(path, "--layers", "2", "--tied-targets")[0] == 1
    tensors["R_V"] = np.stack([np.diag(np.arange(1, 16)), np.diag(np.arange(1, 16) ** 2 % 17)])
    path = save(tmp_path / "h.safetensors", tensors, "int8")
    assert decide(path, "--layers", "2")[0] == 1
    code, document = decide(path, "--layers", "2", "--tied-targets")
    assert (code, document["kind"], document["targets"]) == (0, "tied-kernel", "all tied")
    assert "(tied)" in document["implies"]
    assert checked("c.json") == 0
