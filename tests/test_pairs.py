"""`pairs`: two heads that share keys and mix one more, for all targets (docs/proofs/all-targets.md, Theorem S)."""

import itertools

import numpy as np
import pytest

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import build_host, construction
from utfproof.constructions.pairs import mixed_readers
from utfproof.constructions.random import random_target
from utfproof.errors import NotDefined, OutsideClass, Undecided
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.systems import Target


def low(b, rank, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(b, rank)) @ rng.normal(size=(rank, b))


def ones(b, count, start=0, shift=0):
    A = np.zeros((b, b))
    for i in range(start, start + count):
        A[i, i + shift] = 1
    return A


def degenerate(b, d):
    """Forms of full rank, equal, transposed, opposite, nilpotent, deficient and zero, and the family of the proof's repair."""
    full, bad = low(b, d, 1), ones(b, d - 3, 1)
    bad[d - 2, 0] = 1
    return {
        "generic": (full, low(b, d, 2)),
        "equal": (full, full),
        "transposed": (full, full.T),
        "opposite": (ones(b, d), -ones(b, d)),
        "nilpotent": (ones(b, d - 1, 0, 1), ones(b, d - 1, 0, 1).T),
        "far apart": (ones(b, d), ones(b, d, b - d)),
        "symmetric": (full @ full.T, full @ full.T),
        "zero and full": (0 * full, full),
        "full and zero": (full, 0 * full),
        "full and rank one": (full, low(b, 1, 3)),
        "deficient and full": (low(b, d - 1, 4), full),
        "both deficient": (low(b, d - 1, 5), low(b, d - 1, 6)),
        "rank one": (low(b, 1, 7), low(b, 1, 8)),
        "one entry": (ones(b, 1), -ones(b, 1)),
        "all g in T": (ones(b, 1), bad),
        "all g in T, rank d - 1": (ones(b, 1), ones(b, d - 1)),
        "zero": (0 * full, 0 * full),
    }


@pytest.mark.parametrize(("d", "b"), [(7, 7), (9, 10), (11, 13)])
def test_every_pair_of_forms_has_such_factors(d, b):
    shared = 2 * d - b - 1
    for name, forms in degenerate(b, d).items():
        (X0, Y0, X1, Y1), size = mixed_readers(forms, d)
        scale = max(1.0, float(np.linalg.norm(forms[0])), float(np.linalg.norm(forms[1])))
        near = 1e-8 * scale * max(1, size) ** 2
        for form, X, Y in zip(forms, (X0, X1), (Y0, Y1), strict=True):
            assert X.shape == Y.shape == (b, d)
            assert abs(X @ Y.T - form).max() < near, name
        assert abs(Y0[:, :shared] - Y1[:, :shared]).max() < near, name
        assert abs(Y0[:, shared] - X0[:, 0] - X1[:, 2]).max() < near, name
        assert abs(Y1[:, shared] - X0[:, 1] - X1[:, 3]).max() < near, name


def target_of(shape, forms, seed):
    """A target with these forms (by layer and head) and drawn values."""
    d, b = shape.head_dim, shape.d_in
    drawn = random_target(shape, seed)
    W_Q, W_K = (np.zeros((shape.layers, 2, b, d)) for _ in range(2))
    for place in np.ndindex(shape.layers, 2):
        U, s, V = np.linalg.svd(forms[place[0]][place[1]])
        W_Q[place], W_K[place] = U[:, :d] * s[:d], V[:d].T
    return Target(shape, W_Q, W_K, drawn.W_V, drawn.W_O)


@pytest.mark.parametrize("first", ["generic", "equal", "full and zero", "deficient and full", "all g in T"])
def test_the_equations_hold_word_by_word(first):
    """E R_w U = M_w, and the products of queries and keys of any two words are the target's."""
    shape, cases = Shape(2, 2, 9, 10), degenerate(10, 9)
    host = build_host("pairs", shape, construction("pairs").least_m(shape) + 1)
    target = target_of(shape, [cases[first], cases["opposite"]], 3)
    E = embed(host, target).E
    maps = [
        [part.to_dense(float) for part in (host.maps(0, h).query, host.maps(0, h).key, host.maps(0, h).value[0])]
        for h in (0, 1)
    ]
    ours, theirs = [E], [np.eye(10)]
    for layer in range(2):
        for h, i, j in itertools.product((0, 1), range(len(ours)), range(len(ours))):
            found = ours[i] @ maps[h][0] @ (ours[j] @ maps[h][1]).T
            assert np.allclose(found, theirs[i] @ target.attention_form(layer, h) @ theirs[j].T, atol=1e-7)
        ours = [x @ maps[h][2] for x in ours for h in (0, 1)]
        theirs = [x @ target.value_form(layer, h) for x in theirs for h in (0, 1)]
    for x, y in zip(ours, theirs, strict=True):
        assert np.allclose(x @ host.U.to_dense(float), y, atol=1e-9)
    x = np.random.default_rng(1).normal(size=(6, 10)) / 3
    kernel = SoftmaxAttention(causal=True)
    assert np.allclose(host.forward(x, E, kernel), target.forward(x, kernel), atol=1e-8)
    E[:, 0] += 0.1
    assert not np.allclose(host.forward(x, E, kernel), target.forward(x, kernel), atol=1e-8)


def test_its_size_its_shapes_and_what_it_refuses():
    entry = construction("pairs")
    for dims, m in (((2, 2, 28, 30), 375), ((2, 3, 28, 30), 835), ((2, 1, 7, 7), 34)):
        assert entry.least_m(Shape(*dims)) == m
    for dims in ((3, 1, 7, 7), (2, 1, 6, 6), (2, 1, 8, 9), (2, 1, 8, 7), (2, 1, 7, 7, 8)):
        with pytest.raises(NotDefined):
            build_host("pairs", Shape(*dims))
    shape = Shape(2, 1, 7, 7)
    with pytest.raises(OutsideClass):
        embed(build_host("pairs", shape), random_target(shape, width=8))
    with pytest.raises(Undecided, match="use the host sharing"):  # heads of sizes 1e16 apart: no digits are left
        mixed_readers((1e8 * low(7, 7, 1), 1e-8 * low(7, 7, 2)), 7)


@pytest.mark.full
def test_the_table_shapes_are_emulated_by_name(tmp_path, capsys):
    words = ["pairs", "-H", "2", "-L", "2", "-d", "28", "--d-in", "30"]
    assert run(["emulate", *words, "--attention", "causal", "--context", "16", "--tolerance", "1e-8"]) == 0
    assert "375" in capsys.readouterr().out
    assert run(["build", *words, "-o", str(tmp_path / "host.safetensors")]) == 0
    assert run(["certify", *words, "-o", str(tmp_path / "c.json")]) == 4
