"""Exported hosts run where only PyTorch and safetensors are, with the same outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import build_host, random_target
from utfproof.errors import MalformedInput
from utfproof.matching import embed
from utfproof.models import import_model
from utfproof.models.exporting import write_module
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.weights import read_tensors

TRAINED = Path(__file__).parent / "data" / "induction.safetensors"
TORCH_NEEDS = (
    "torch",
    "torchgen",
    "functorch",
    "typing_extensions.py",
    "filelock",
    "jinja2",
    "markupsafe",
    "networkx",
    "fsspec",
)
TORCH_NEEDS += (
    "safetensors",
    "packaging",
    "sympy",
    "mpmath",
    "isympy.py",
    "setuptools",
    "_distutils_hack",
    "pkg_resources",
)
"""torch and safetensors, and what they depend on; neither NumPy nor this package."""

RUNNER = """
import importlib.util, json, sys, warnings
sys.path.append(sys.argv[1])
warnings.simplefilter("ignore")  # that NumPy is missing
for absent in ("utfproof", "numpy"):
    if importlib.util.find_spec(absent) is not None:
        sys.exit(f"{absent} can be imported here")
import torch
torch.set_num_threads(1)
results = []
for job in json.load(open(sys.argv[2])):
    spec = importlib.util.spec_from_file_location("exported", job["module"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Host()
    assert isinstance(model, torch.nn.Module)
    x = torch.tensor(job["x"]) if job["tokens"] else torch.tensor(job["x"], dtype=torch.float64)
    with torch.no_grad():
        results.append(model(x).tolist())
print(json.dumps(results))
"""


def alone(tmp_path, jobs):
    """Run exported modules in an interpreter that finds the standard library, torch and safetensors, and nothing else."""
    torch = pytest.importorskip("torch")
    site, packages = Path(torch.__file__).parents[1], tmp_path / "packages"
    packages.mkdir()
    for name in TORCH_NEEDS:
        if (site / name).exists():
            (packages / name).symlink_to(site / name)
    listed, elsewhere = tmp_path / "jobs.json", tmp_path / "elsewhere"
    elsewhere.mkdir()
    listed.write_text(json.dumps(jobs))
    command = [sys.executable, "-I", "-S", "-c", RUNNER, str(packages), str(listed)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [np.array(result) for result in json.loads(done.stdout)]


HOSTS = [  # name, shape, kernel
    ("sparse", Shape(2, 2, 2, 3), SoftmaxAttention(causal=True)),
    ("sparse", Shape(2, 2, 2, 3, 2, residual=True), SoftmaxAttention(scale="1/sqrt(d)")),
    ("sparse-front", Shape(2, 2, 2, 3), SoftmaxAttention(window=2)),
    ("tied", Shape(3, 2, 1, 2), SoftmaxAttention(causal=True, window=3, scale=0.3)),
    ("random", Shape(2, 2, 2, 3, 4, residual=True), SoftmaxAttention(causal=True)),
    ("random-tied", Shape(2, 2, 1, 2), SoftmaxAttention()),
    ("shared-key", Shape(2, 2, 3, 3), SoftmaxAttention(causal=True)),
    ("factored", Shape(1, 2, 1, 2), SoftmaxAttention()),
]


def machine(name, shape):
    """A host and an E: values as two factors for 'factored', with any E at all."""
    if name != "factored":
        host = build_host(name, shape, seed=2)
        return host, np.asarray(embed(host, random_target(shape, 3)).E, dtype=np.float64)
    rng, m = np.random.default_rng(0), 5
    parts = [rng.normal(size=(2, 1, m, k)) / 2 for k in (1, 1, 3)]
    host = Universal(shape, m, *parts, rng.normal(size=(m, 2)), R_Vo=rng.normal(size=(2, 1, 3, m)) / 2)
    return host, rng.normal(size=(2, m))


@pytest.mark.full
def test_modules_run_with_torch_and_safetensors_alone(tmp_path):
    """Tokens, vectors and learned positions; index maps, dense and factored parameters; every mask: one interpreter for all."""
    jobs, expected = [], []
    for number, (name, shape, kernel) in enumerate(HOSTS):
        host, E = machine(name, shape)
        path = tmp_path / f"host{number}.py"
        write_module(path, host, E, kernel, vocabulary=shape.d_in, positions=0)
        tokens = np.random.default_rng(number).integers(0, shape.d_in, 7)
        x = np.random.default_rng(number).normal(size=(2, 5, shape.d_in))
        jobs += [{"module": str(path), "x": tokens.tolist(), "tokens": True}]
        jobs += [{"module": str(path), "x": x.tolist(), "tokens": False}]
        expected += [host.forward(np.eye(shape.d_in)[tokens], E, kernel), host.forward(x, E, kernel)]
    model, kernel = import_model(TRAINED), SoftmaxAttention(causal=True)
    host = build_host("sparse", model.target.shape)
    E, path = embed(host, model.target.augmented()).E, tmp_path / "induction.py"
    write_module(path, host, E, kernel, vocabulary=8, positions=16)
    batch = np.random.default_rng(0).integers(0, 8, (3, 16))
    jobs.append({"module": str(path), "x": batch.tolist(), "tokens": True})
    expected.append(np.stack([model.original(tokens) for tokens in batch]))
    for job, found, wanted in zip(jobs, alone(tmp_path, jobs), expected, strict=True):
        assert found.shape == wanted.shape, job["module"]
        assert np.abs(found - wanted).max() < 1e-11 * np.abs(wanted).max(), job["module"]


@pytest.fixture
def exported(tmp_path):
    """(host, E, module) of a small sparse host, in this interpreter."""
    pytest.importorskip("torch")
    host, E = machine("sparse", Shape(2, 2, 2, 3))
    write_module(tmp_path / "host.py", host, E, SoftmaxAttention(causal=True), vocabulary=3, positions=0)
    return host, E, tmp_path


def load(folder):
    namespace = {"__file__": str(folder / "host.py"), "__name__": "exported"}
    exec(compile((folder / "host.py").read_text(), "host.py", "exec"), namespace)
    return namespace["Host"]()


def outputs(model, x):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(x)).numpy()


def test_the_module_is_one_of_torch(exported):
    import torch

    host, E, folder = exported
    model = load(folder)
    assert isinstance(model, torch.nn.Module)
    assert [name for name, _ in model.named_parameters()] == ["E"]
    x = np.random.default_rng(0).normal(size=(4, 3))
    expected = host.forward(x, E, SoftmaxAttention(causal=True))
    assert np.abs(outputs(model, x) - expected).max() < 1e-13
    other = load(folder)
    other.load_state_dict(model.state_dict())
    assert np.abs(outputs(other.float(), x.astype(np.float32)) - expected).max() < 1e-4
    model(torch.from_numpy(x)).sum().backward()
    assert float(model.E.grad.abs().max()) > 0


def test_the_module_checks_its_tokens(tmp_path):
    torch = pytest.importorskip("torch")
    host, E = machine("sparse", Shape(2, 2, 2, 5))
    write_module(tmp_path / "host.py", host, E, SoftmaxAttention(), vocabulary=2, positions=3)
    model = load(tmp_path)
    assert model(torch.tensor([0, 1, 1])).shape == (3, 5)
    for tokens in ([0, 2], [-1], [0, 0, 0, 0]):
        with pytest.raises(ValueError, match="tokens"):
            model(torch.tensor(tokens))


FAULTS = {
    "a row of E": ("E", lambda a: a[[1, 0, 2]]),
    "places of R_V": ("R_V_0_0_rows", lambda a: a[::-1].copy()),
    "a reader": ("R_Q_1_0_columns", lambda a: a[::-1].copy()),
    "the unembedding": ("U_rows", lambda a: np.roll(a, 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_in_the_file_is_seen(exported, fault):
    """Every kind of tensor counts: the comparison fails when one is changed."""
    host, E, folder = exported
    name, change = FAULTS[fault]
    file = read_tensors(folder / "host.safetensors")
    save_file({**file.tensors, name: change(file.tensors[name])}, folder / "host.safetensors")
    x = np.random.default_rng(0).normal(size=(4, 3))
    assert np.abs(outputs(load(folder), x) - host.forward(x, E, SoftmaxAttention(causal=True))).max() > 1e-6


@pytest.mark.parametrize(("V", "P"), [(1, 0), (3, 0), (2, 1), (0, 2), (3, -1)])
def test_rows_of_e_are_tokens_and_positions(tmp_path, V, P):
    host, E = machine("sparse", Shape(2, 1, 1, 2))
    with pytest.raises(MalformedInput, match="rows of E"):
        write_module(tmp_path / "h.py", host, E, SoftmaxAttention(), vocabulary=V, positions=P)


# --- the command -------------------------------------------------------------------------------------------


def test_export_by_command(tmp_path, capsys):
    E = tmp_path / "E.safetensors"
    assert run(["embed", "random", str(TRAINED), "--seed", "5", "--trials", "2", "-o", str(E)]) == 0
    capsys.readouterr()
    module = tmp_path / "host.py"
    assert run(["export", "random", str(E), "-o", str(module), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["vocabulary"], document["positions"], document["shape"]["m"]) == (8, 16, 264)
    model, tokens = import_model(TRAINED), np.arange(16) % 5
    expected = model.original(tokens)
    pytest.importorskip("torch")
    assert np.abs(outputs(load(tmp_path), tokens) - expected).max() < 1e-9 * np.abs(expected).max()


CONTRADICTIONS = {
    "another host": (["sparse"], "found for the host random"),
    "matrices from outside": (["random", "--attention", "given"], "from outside"),
}


@pytest.fixture(scope="module")
def small_embedding(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    target, E = folder / "t.safetensors", folder / "E.safetensors"
    shape = ["-H", "2", "-L", "1", "-d", "1", "--d-in", "2", "--residual"]
    assert run(["build", "target", *shape, "-o", str(target)]) == 0
    assert run(["embed", "random", str(target), "--seed", "5", "-o", str(E)]) == 0
    return E


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(small_embedding, tmp_path, case, capsys):
    (host, *extra), message = CONTRADICTIONS[case]
    out = tmp_path / "h.py"
    assert run(["export", host, str(small_embedding), "-o", str(out), *extra]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
    assert run(["export", "random", str(small_embedding), "-o", str(out)]) == 0


@pytest.fixture
def two_hosts(tmp_path, monkeypatch):
    """Two hosts of one shape as files, a target, and its E in the first."""
    monkeypatch.chdir(tmp_path)
    shape = ["-H", "2", "-L", "1", "-d", "1", "--d-in", "2", "--residual"]
    assert run(["build", "target", *shape, "-o", "t.safetensors"]) == 0
    for seed in ("1", "2"):
        assert run(["build", "random", *shape, "--seed", seed, "-o", f"host{seed}.safetensors"]) == 0
    assert run(["embed", "host1.safetensors", "t.safetensors", "-o", "E.safetensors"]) == 0
    return tmp_path


def with_metadata(path, **changes):
    """A file E.safetensors with other metadata (None: without that field), under another name."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open("E.safetensors", "numpy") as file:
        arrays, facts = {"E": file.get_tensor("E")}, {**file.metadata(), **changes}
    save_file(arrays, path, {name: value for name, value in facts.items() if value is not None})


def test_an_embedding_is_joined_to_its_own_draw_alone(tmp_path, monkeypatch, capsys):
    """Of a random host too: another seed, the default among them, is no refutation."""
    monkeypatch.chdir(tmp_path)
    assert run(["build", "target", *["-H", "2", "-L", "1", "-d", "1", "--d-in", "2", "-o", "T.safetensors"]]) == 0
    assert run(["embed", "random", "T.safetensors", "--seed", "3", "-o", "E.safetensors"]) == 0
    given = ["random", "--target", "T.safetensors", "--embedding", "E.safetensors", "--context", "4"]
    capsys.readouterr()
    for command in ("emulate", "enclose"):
        for other, message in (
            ([], "seed 3, not 0: say --seed 3"),
            (["--seed", "4"], "seed 3, not 4"),
            (["--seed", "3", "--law", "signs"], "law uniform, not signs"),
            (["--seed", "3", "--m", "11"], "m 8, not 11"),
        ):
            assert run([command, *given, *other]) == 2, other
            assert f"found for random with {message}" in capsys.readouterr().err
        assert run([command, *given, "--seed", "3", *(["--digits", "5"] if command == "enclose" else [])]) == 0


def test_an_embedding_is_joined_to_its_own_host_alone(two_hosts, capsys):
    for command in (["export", "host2.safetensors", "E.safetensors", "-o", "h.py"], *COMPARED):
        assert run(command) == 2, command
        assert "found for a host of digest" in capsys.readouterr().err
    (two_hosts / "copy.safetensors").write_bytes((two_hosts / "host1.safetensors").read_bytes())
    for host in ("host1", "copy"):
        assert run(["export", f"{host}.safetensors", "E.safetensors", "-o", "h.py", "--json"]) == 0
    with_metadata("old.safetensors", host_digest=None)
    assert run(["export", "host2.safetensors", "old.safetensors", "-o", "h.py"]) == 0


COMPARED = [
    [name, "host2.safetensors", "--target", "t.safetensors", "--embedding", "E.safetensors", "--context", "1"]
    for name in ("emulate", "enclose")
]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"residual": "maybe"}, "residual is 'maybe'"),
        ({"vocabulary": "12", "positions": "1"}, "vocabulary 12 and 1 positions"),
        ({"host": "sparse"}, "found for the host sparse"),
    ],
)
def test_metadata_that_contradict_are_malformed(two_hosts, changes, said, capsys):
    with_metadata("other.safetensors", **changes)
    assert run(["export", "host1.safetensors", "other.safetensors", "-o", "h.py"]) == 2
    assert said in capsys.readouterr().err
    assert not (two_hosts / "h.py").exists()


def test_the_smallest_host_is_joined_by_its_digest(two_hosts, capsys):
    assert run(["embed", "least.safetensors", "t.safetensors", "--minimize", "-o", "least-E.safetensors"]) == 0
    assert run(["export", "least.safetensors", "least-E.safetensors", "-o", "h.py"]) == 0


def test_an_export_never_overwrites_its_embedding(small_embedding, capsys):
    before = small_embedding.read_bytes()
    assert run(["export", "random", str(small_embedding), "-o", str(small_embedding.with_suffix(".py"))]) == 2
    assert small_embedding.read_bytes() == before


@pytest.mark.parametrize("name", ["mine.py", "mine.safetensors"])
def test_an_export_never_overwrites_what_it_did_not_write(small_embedding, tmp_path, monkeypatch, capsys, name):
    """The tensors beside a module have a name that nobody typed: a trained model of that name stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"precious")
    command = ["export", "random", str(small_embedding), "-o", "mine.py"]
    assert run(command) == 2
    assert f"{name} is there and was not written by utfproof export" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.glob("mine*")} == {name: b"precious"}
    (tmp_path / name).unlink()
    assert run(command) == 0
    assert run(command) == 0  # its own files it replaces
