"""Tied targets decided with certificates, and the second judge as a program of its own."""

import ast
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from judges import confirmed
from safetensors.numpy import save_file

from utfproof.certificates.hosts import flint_matrix
from utfproof.certificates.lower_bounds import span_dimension
from utfproof.certificates.prover import certify_weights
from utfproof.certificates.tied import kernel_basis
from utfproof.constructions import build_host
from utfproof.errors import NotDefined, ResourceLimit, Undecided
from utfproof.exact import rational
from utfproof.shapes import Shape, matching_dimension
from utfproof.weights import write_host

pytestmark = pytest.mark.numerical

TESTS = Path(__file__).parent


def trie_file(folder, dims=(2, 3, 1), scale=1, seed=None, flip=None):
    """The host `commuting-trie` as a looped host's weights; seed: of another basis; flip: the entry of R_V that is changed."""
    shape = Shape(*dims, 1)
    host = build_host("commuting-trie", shape)
    R_Q, R_K, R_V = (np.array([x.to_dense(object) for x in part]) for part in (host.R_Q, host.R_K, host.R_V))
    U, left, right = host.U.to_dense(object), np.eye(host.m, dtype=object), np.eye(host.m, dtype=object)
    source = random.Random(seed)
    for _ in range(0 if seed is None else host.m):
        a, b = source.sample(range(host.m), 2)
        step, back = np.eye(host.m, dtype=object), np.eye(host.m, dtype=object)
        step[a, b], back[a, b] = 1, -1
        left, right = left @ step, back @ right
    tensors = {"R_Q": left @ R_Q, "R_K": left @ R_K, "R_V": left @ R_V @ right * scale, "U": left @ U}
    tensors = {name: np.ascontiguousarray(array.astype(np.int16)) for name, array in tensors.items()}
    if flip is not None:
        tensors["R_V"].reshape(-1)[flip] ^= 1
    save_file(tensors, folder / "trie.safetensors", {"layers": str(dims[1]), "system": "looped-universal"})
    return folder / "trie.safetensors", host.m


def host_file(folder, name, shape, m=None, **options):
    write_host(
        folder / "host.safetensors", build_host(name, shape, m, **options), dtype=options.get("dtype", "float64")
    )
    return folder / "host.safetensors"


def decided(path, **options):
    return certify_weights(path, tied_targets=True, **options)


# --- decisions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dims", "m", "kind", "method"),
    [
        ("printed-looped", (2, 3, 1, 1), None, "rank-deficient", "tied-target"),
        ("printed-looped", (2, 2, 1, 2), 20, "rank-deficient", "tied-target"),
        ("printed-looped", (2, 2, 1, 2), 14, "lower-bound", "span"),
        ("printed-tree-row", (2, 2, 1, 2), None, "rank-deficient", "tied-target"),
        ("printed-single-head", (1, 3, 1, 2), None, "rank-deficient", "tied-target"),
        ("shared-key", (2, 2, 2, 2), None, "lower-bound", "dimension"),
        ("tied", (2, 3, 1, 1), None, "rank-modular", "recompute"),
        ("random-tied", (2, 3, 1, 1), 36, "rank-modular", "recompute"),
        ("random-tied", (2, 3, 1, 1), 35, "rank-deficient", "tied-target"),
        ("random-tied", (2, 3, 1, 1), 28, "rank-deficient", "tied-target"),
        ("random", (2, 3, 1, 1), 27, "lower-bound", "span"),
    ],
)
def test_constructions(name, dims, m, kind, method, tmp_path):
    found = decided(host_file(tmp_path, name, Shape(*dims), m, seed=1), d_in=dims[3])
    assert (found.kind, found.document["evidence"].get("method")) == (kind, method)
    assert found.universal == (kind == "rank-modular")
    assert confirmed(found, tmp_path).code == 0


@pytest.mark.parametrize("law", ["signs", "binomial", "uniform"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_random_hosts_of_every_number_format(law, dtype, tmp_path):
    found = decided(host_file(tmp_path, "random-tied", Shape(2, 2, 1, 1), 15, seed=2, law=law, dtype=dtype))
    assert found.document["evidence"]["method"] == "tied-target"
    assert confirmed(found, tmp_path).code == 0


@pytest.mark.parametrize(
    ("dims", "options"),
    [
        ((2, 3, 1), {}),
        ((2, 3, 1), {"seed": 3}),
        ((2, 2, 2), {"scale": 3}),
        ((3, 2, 1), {}),
    ],
)
def test_a_host_below_M_that_serves_all_tied_targets(dims, options, tmp_path):
    """At (2,3,1,1): m = 28 is below M = 36."""
    path, m = trie_file(tmp_path, dims, **options)
    shape = Shape(*dims, 1)
    found = decided(path)
    assert (found.kind, found.universal) == ("tied-kernel", True)
    assert m == found.document["claim"]["rank"] == span_dimension(shape, tied=True)
    assert m < matching_dimension(shape)
    assert "targets: all tied" in confirmed(found, tmp_path).message


def test_the_same_host_with_one_entry_changed_is_refuted(tmp_path):
    refuted = 0
    for at in range(0, 2 * 28 * 28, 181):
        found = decided(trie_file(tmp_path, flip=at)[0])
        assert confirmed(found, tmp_path).code == 0
        refuted += not found.universal
    assert refuted >= 3


def test_weights_of_full_rank_get_the_certificate_for_untied_targets(tmp_path):
    found = decided(host_file(tmp_path, "random", Shape(2, 2, 1, 2), 21))
    assert (found.kind, found.document["claim"]["targets"]) == ("rank-modular", "all untied")
    confirmed(found, tmp_path)
    found = decided(host_file(tmp_path, "random", Shape(2, 2, 1, 2), 19))
    assert (found.kind, found.universal) == ("lower-bound", False)
    assert confirmed(found, tmp_path).code == 0


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(NotDefined, match="d_in = d_out"):
        decided(host_file(tmp_path, "random", Shape(2, 2, 1, 2, 3)))
    with pytest.raises(ResourceLimit):
        decided(host_file(tmp_path, "random", Shape(2, 2, 1, 2)), max_memory=10**4)
    monkeypatch.setattr("utfproof.certificates.tied.KERNEL_ENTRIES", 100)
    with pytest.raises(Undecided, match=r"rank 30 .* span at least 28 dimensions, m = 30"):
        decided(host_file(tmp_path, "random-tied", Shape(2, 3, 1, 1), 30))
    path, _ = trie_file(tmp_path)
    with pytest.raises(Undecided, match="span at least 28"):
        decided(path)


def test_kernel_basis():
    source = random.Random(1)
    for rows, columns, rank in [(3, 5, 3), (4, 4, 2), (5, 3, 3), (2, 6, 1), (3, 4, 0)]:
        left = np.array([[source.randint(-4, 4) for _ in range(rank)] for _ in range(rows)], dtype=object).reshape(
            rows, rank
        )
        right = np.array([[source.randint(-4, 4) for _ in range(columns)] for _ in range(rank)], dtype=object)
        matrix = left.dot(right.reshape(rank, columns)) if rank else np.zeros((rows, columns), dtype=object)
        basis = kernel_basis(flint_matrix(matrix), [Fraction(1)] * columns)
        assert len(basis) == columns - rational.rank(matrix)
        assert not any(matrix.dot(np.array(z, dtype=object)).any() for z in basis)
        assert not basis or rational.rank(np.array(basis, dtype=object)) == len(basis)


# --- the second judge ------------------------------------------------------------------------------------------------------


def test_the_second_checker_imports_nothing_of_the_package():
    for name in ("second_checker.py", "naive.py"):
        tree = ast.parse((TESTS / name).read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module.split(".")[0] for module in imported} <= {
            *sys.stdlib_module_names, "naive", "numpy", "rfc8785", "flint", "mpmath",
        }  # fmt: skip
    code = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r}); import second_checker; "
        f"assert second_checker.main([{str(next((TESTS / 'certificates' / 'valid').glob('*span*.json')))!r}]) == 0; "
        "print([m for m in sys.modules if m.split('.')[0] == 'utfproof'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
