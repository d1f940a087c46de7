"""Tied targets decided with certificates, gauges of the linear test, and the second judge as a program of its own."""

import ast
import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import corpus_weights
import make_corpus as corpus
import numpy as np
import pytest
import sceptic
from judges import verdict_on

from utfproof.certificates import checker
from utfproof.certificates.linear_test import drawn_gauges, linear_test_weights, test_columns, test_matrix
from utfproof.certificates.lower_bounds import span_dimension
from utfproof.certificates.tied import certify_tied, certify_tied_weights, kernel_basis, span_upper_bound
from utfproof.errors import NotDefined, ResourceLimit, Undecided
from utfproof.exact import gfp, rational
from utfproof.shapes import Shape, matching_dimension
from utfproof.weights import read_tensors

pytestmark = pytest.mark.numerical

TESTS = Path(__file__).parent


def confirmed(certificate, folder, code=0):
    """The checker's verdict and the second judge's must be `code`."""
    verdict = verdict_on(certificate, folder)
    assert (verdict.code, sceptic.judge((folder / "certificate.json").read_bytes(), folder)) == (code, code), verdict
    return verdict


def trie_file(folder, dims=(2, 3, 1), **options):
    m, tensors = corpus_weights.dense_trie(dims, **options)
    path = folder / "trie.safetensors"
    path.write_bytes(corpus_weights.safetensors(tensors, {"layers": str(dims[1]), "system": "looped-universal"}))
    return path, m


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
        ("commuting-trie", (2, 3, 1, 1), 28, "identity", None),
        ("tied", (2, 3, 1, 1), None, "rank-permutation", None),
        ("random-tied", (2, 3, 1, 1), 36, "rank-modular", "recompute"),
        ("random-tied", (2, 3, 1, 1), 35, "rank-deficient", "tied-target"),
        ("random-tied", (2, 3, 1, 1), 28, "rank-deficient", "tied-target"),
        ("random", (2, 3, 1, 1), 27, "lower-bound", "span"),
    ],
)
def test_constructions(name, dims, m, kind, method, tmp_path):
    found = certify_tied(name, Shape(*dims), m, seed=1)
    assert (found.kind, found.document["evidence"].get("method")) == (kind, method)
    assert found.universal == (kind in ("identity", "rank-permutation", "rank-modular"))
    confirmed(found, tmp_path)


@pytest.mark.parametrize("law", ["signs", "binomial", "uniform"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_random_hosts_of_every_number_format(law, dtype, tmp_path):
    found = certify_tied("random-tied", Shape(2, 2, 1, 1), 15, seed=2, law=law, dtype=dtype)
    assert found.document["evidence"]["method"] == "tied-target"
    confirmed(found, tmp_path)


@pytest.mark.parametrize(
    ("dims", "options"),
    [
        ((2, 3, 1), {}),
        ((2, 3, 1), {"kind": "I32", "unimodular": 3}),
        ((2, 2, 2), {"kind": "F16", "scale": 0.5}),
        ((3, 2, 1), {}),
    ],
)
def test_a_host_below_M_that_serves_all_tied_targets(dims, options, tmp_path):
    """At (2,3,1,1): m = 28 is below M = 36."""
    path, m = trie_file(tmp_path, dims, **options)
    shape = Shape(*dims, 1)
    found = certify_tied_weights(path)
    assert (found.kind, found.universal) == ("tied-kernel", True)
    assert m == found.document["claim"]["rank"] == span_upper_bound(shape) == span_dimension(shape, tied=True)
    assert m < matching_dimension(shape)
    assert "targets: all tied" in confirmed(found, tmp_path).message


def test_the_same_host_with_one_entry_changed_is_refuted(tmp_path):
    m, tensors = corpus_weights.dense_trie((2, 3, 1))
    refuted = 0
    for at in range(0, 2 * m * m, 181):
        kind, shape, data = tensors["R_V"]
        path = tmp_path / "other.safetensors"
        path.write_bytes(
            corpus_weights.safetensors(
                tensors | {"R_V": (kind, shape, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])},
                {"layers": "3", "system": "looped-universal"},
            )
        )
        found = certify_tied_weights(path)
        confirmed(found, tmp_path)
        refuted += not found.universal
    assert refuted >= 3


def test_weights_of_full_rank_get_the_certificate_for_untied_targets(tmp_path):
    tensors = corpus_weights.drawn_weights(False, (2, 2, 1, 2, 2), 21, 3)
    path = tmp_path / "full.safetensors"
    path.write_bytes(corpus_weights.safetensors(tensors))
    found = certify_tied_weights(path)
    assert (found.kind, found.document["claim"]["targets"]) == ("rank-modular", "all untied")
    confirmed(found, tmp_path)
    tensors = corpus_weights.drawn_weights(False, (2, 2, 1, 2, 2), 19, 3, corpus_weights.MIXED, inner=19)
    path.write_bytes(corpus_weights.safetensors(tensors))
    found = certify_tied_weights(path)
    assert (found.kind, found.universal) == ("lower-bound", False)
    confirmed(found, tmp_path)


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(NotDefined, match="d_in = d_out"):
        certify_tied("random", Shape(2, 2, 1, 2, 3))
    with pytest.raises(ResourceLimit):
        certify_tied("random", Shape(2, 5, 8, 2), max_memory=10**5)
    monkeypatch.setattr("utfproof.certificates.tied.KERNEL_ENTRIES", 100)
    with pytest.raises(Undecided, match="span between 28 and 28 dimensions, m = 30 and R_all has rank 30"):
        certify_tied("random-tied", Shape(2, 3, 1, 1), 30)
    path, _ = trie_file(tmp_path)
    with pytest.raises(Undecided, match="span between 28 and 28"):
        certify_tied_weights(path)


@pytest.mark.parametrize(
    "dims", [(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1), (2, 2, 2, 1), (3, 2, 1, 1), (2, 3, 1, 2), (2, 2, 1, 2)]
)
def test_bounds_of_the_span(dims):
    shape = Shape(*dims)
    found = span_dimension(shape, tied=True)
    assert found <= span_upper_bound(shape) <= matching_dimension(shape)
    assert dims[3] > 1 or found == span_upper_bound(shape)


def test_kernel_basis():
    source = random.Random(1)
    for rows, columns, rank in [(3, 5, 3), (4, 4, 2), (5, 3, 3), (2, 6, 1), (3, 4, 0)]:
        left = np.array([[source.randint(-4, 4) for _ in range(rank)] for _ in range(rows)], dtype=object).reshape(
            rows, rank
        )
        right = np.array([[source.randint(-4, 4) for _ in range(columns)] for _ in range(rank)], dtype=object)
        matrix = left.dot(right.reshape(rank, columns)) if rank else np.zeros((rows, columns), dtype=object)
        basis = kernel_basis(matrix)
        assert len(basis) == columns - rational.rank(matrix)
        assert not any(matrix.dot(np.array(z, dtype=object)).any() for z in basis)
        assert not basis or rational.rank(np.array(basis, dtype=object)) == len(basis)


# --- the identity of polynomials -------------------------------------------------------------------------------------------


def annihilated(dims, count=80):
    """Vectors with W_all z = 0 for all tied targets: the kernel of the rows of many."""
    H, L, d, d_in = dims
    rows = [
        row
        for t in corpus.drawn_targets(count, True, H, L, d, d_in, 11)
        for row in sceptic.target_rows(t, True, (*dims, d_in), sceptic.plain_places)()
    ]
    return [{i: v for i, v in enumerate(z) if v} for z in kernel_basis(np.array(rows, dtype=object))]


@pytest.mark.parametrize("dims", [(2, 3, 1, 1), (2, 4, 1, 2), (2, 2, 2, 1)])
def test_identities_beyond_one_dimension(dims):
    """The checker's evaluation modulo a prime and the sceptic's expansion agree; one wrong digit is seen."""
    H, L, d, d_in = dims
    basis = annihilated(dims)
    assert basis
    M = matching_dimension(Shape(*dims))
    claim = checker.Claim(
        checker.KINDS["tied-kernel"], checker.Shape(H, L, d, d_in, d_in, M), "random", targets="all tied"
    )
    for z in basis[:3]:
        for change in (0, 1):
            entries = [(i, v + change * (i == min(z))) for i, v in sorted(z.items()) if v + change * (i == min(z))]
            target, q = checker.random_tied_target(claim.shape)
            vectors = checker.TargetVectors(target, True, q)
            zero = not checker.layered(claim.shape, checker.by_layer(claim.shape, entries), vectors)
            assert zero == (change == 0)
            if L < 4:
                assert sceptic.vanishes(entries, sceptic.plain_places(*dims, d_in), d, d_in) == zero


# --- gauges ----------------------------------------------------------------------------------------------------------------


def test_gauged_columns_are_those_of_the_definition():
    """Prover, checker and sceptic form the same matrix, up to the order of the columns."""
    dims, m, p = (2, 2, 3, 2, 2), 5, 10007
    shape = Shape(*dims)
    for tied in (False, True):
        name = "random-tied" if tied else "random"
        gauges = drawn_gauges(shape, tied, 7)
        integers = sceptic.random_integers(tied, "float64", "uniform", 9, *dims, m)[0]
        held = [[np.array(c.tolist(), dtype=object) for c in layer] for layer in gauges]
        expected = sceptic.tested(integers, dims, held) % p
        centred = gfp.residues(integers, p)
        assert ((test_matrix(centred, shape, p, gauges) - expected.astype(float)) % p == 0).all()
        default = np.array([[[[1, 0, 0], [0, 1, 0]]] * 2] * len(gauges))
        assert (test_matrix(centred, shape, p, default) == test_matrix(centred, shape, p, None)).all()
        assert test_matrix(centred, shape, p, None).shape[1] == len(test_columns(shape)) == expected.shape[1]
        claim = checker.Claim(
            checker.KINDS["linear-test"], checker.Shape(*dims, m), name, "float64", "uniform", 9, tied=tied
        )
        rows = checker.dense_matrix(checker.dense_host(claim), p, claim.shape.d_in, gauges.tolist())
        assert sorted(zip(*rows, strict=True)) == sorted(tuple(map(int, column)) for column in expected.T)


def test_the_prover_finds_a_gauge_where_the_default_one_fails(tmp_path):
    tensors = corpus_weights.drawn_weights(False, (2, 1, 2, 1, 1), 8, 14, "I8")
    kind, shape, data = tensors["R_Q"]
    path = tmp_path / "host.safetensors"
    path.write_bytes(corpus_weights.safetensors(tensors))
    found = linear_test_weights(path)
    assert "gauges" not in found.document["evidence"]
    confirmed(found, tmp_path)
    zeroed = bytes(x if i % 2 else 0 for i, x in enumerate(data))  # the first coordinate of every query
    path.write_bytes(corpus_weights.safetensors(tensors | {"R_Q": (kind, shape, zeroed)}))
    found = linear_test_weights(path)
    assert np.shape(found.document["evidence"]["gauges"]) == (1, 2, 1, 2)
    confirmed(found, tmp_path)
    without = dataclasses.replace(found, document=json.loads(json.dumps(found.document)))
    del without.document["evidence"]["gauges"]
    confirmed(without, tmp_path, 1)
    path.write_bytes(corpus_weights.safetensors(tensors | {"R_Q": (kind, shape, bytes(len(data)))}))
    with pytest.raises(Undecided, match="or 3 drawn ones"):
        linear_test_weights(path)


def test_a_gauged_embedding_serves_every_logit():
    """Why the rank suffices, at a host that the default gauge does not settle: logits and outputs are the target's, exactly."""
    H, L, d, d_in = 2, 2, 3, 2
    dims, m = (H, L, d, d_in, d_in), 38
    gauges = corpus_weights.drawn_gauges(L, H, d_in, d, 4)
    integers = sceptic.random_integers(False, "float64", "signs", 5, *dims, m)[0]
    held = [[np.array(c, dtype=object) for c in layer] for layer in gauges]
    (entries,) = corpus.drawn_targets(1, False, H, L, d, d_in, 8)
    W = {}
    for tensor, layer, h, i, j, v in entries:
        size = (d, d_in) if tensor == "W_O" else (d_in, d)
        W.setdefault((tensor, layer, h), np.zeros(size, dtype=object))[i, j] = v
    product = {(): np.eye(d_in, dtype=int).astype(object)}
    words = sceptic.by_length(H, 1, L)
    for w in words:
        product[w] = product[w[:-1]].dot(W["W_V", len(w), w[-1]]).dot(W["W_O", len(w), w[-1]])
    form = {(layer, h): W["W_Q", layer, h].dot(W["W_K", layer, h].T) for layer in (1, 2) for h in range(H)}
    right = [product[w[:-1]].dot(form[len(w), w[-1]]) for w in words]
    right += [product[w[:-1]].dot(held[len(w) - 1][w[-1]]) for w in words]
    right += [product[w] for w in words if len(w) == L]
    E = rational.solve_left(sceptic.tested(integers, dims, held), np.concatenate(right, axis=1))
    assert E is not None
    read = E.dot(integers)
    half = d * len(words)
    for at, w in enumerate(words):
        for other, v in enumerate(words):
            if len(w) == len(v) and w[-1] == v[-1]:
                query = read[:, at * d : at * d + d]
                key = read[:, half + other * d : half + other * d + d]
                assert (query.dot(key.T) == product[w[:-1]].dot(form[len(w), w[-1]]).dot(product[v[:-1]].T)).all()
    assert (read[:, 2 * half :] == np.concatenate([product[w] for w in words if len(w) == L], axis=1)).all()


# --- the second judge ------------------------------------------------------------------------------------------------------


def test_the_sceptic_imports_nothing_of_the_package():
    for name in ("sceptic.py", "naive.py"):
        tree = ast.parse((TESTS / name).read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module.split(".")[0] for module in imported} <= {
            *sys.stdlib_module_names, "naive", "numpy", "rfc8785", "flint", "mpmath",
        }  # fmt: skip
    code = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r}); import sceptic; "
        f"assert sceptic.main([{str(next((TESTS / 'certificates' / 'valid').glob('span-*.json')))!r}]) == 0; "
        "print([m for m in sys.modules if m.split('.')[0] == 'utfproof'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_sceptic_on_the_command_line(tmp_path):
    folder = TESTS / "certificates"
    valid, invalid, malformed = (
        next((folder / name).glob("weights-*.json")) for name in ("valid", "invalid", "malformed")
    )

    def run(*paths):
        done = subprocess.run(
            [sys.executable, str(TESTS / "sceptic.py"), *map(str, paths)], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, [line.split()[0] for line in done.stdout.splitlines()]

    assert run(valid, invalid, malformed) == (1, ["valid", "INVALID", "MALFORMED"])
    assert run(valid, malformed, tmp_path / "nowhere") == (2, ["valid", "MALFORMED", "MALFORMED"])
    assert run(valid) == (0, ["valid"])


def test_stored_weights_are_read_alike():
    """The sceptic's integers of a file are the package's tensors, for every type."""
    for kind in ("F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"):
        path = corpus.CORPUS / "valid" / f"weights-modular-{kind}.safetensors"
        tensors = sceptic.tensors_of(path.read_bytes())
        ours = read_tensors(path)
        assert ours.digest() == sceptic.digest_of(tensors)
        for name, (form, shape, data) in tensors.items():
            assert shape == ours.tensors[name].shape
            assert [float(x) for x in sceptic.entries_of(form, data)] == ours.tensors[name].reshape(-1).astype(
                float
            ).tolist()
