"""The host `sharing`: its sets of heads, its factors of every kind of form, the host beside a forward pass written apart."""

import json

import numpy as np
import pytest
from test_proof_gated_mlp import run_target, softmax

from utfproof.attention import SoftmaxAttention
from utfproof.cli.app import run
from utfproof.constructions import build_host, construction
from utfproof.constructions.random import random_target
from utfproof.constructions.sharing import shared_heads, shared_readers
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.errors import NotDefined, OutsideClass
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.systems import Target
from utfproof.util.arrays import exact

SHAPES = [(2, 1, 2, 3), (3, 2, 3, 4), (3, 1, 2, 2), (5, 1, 4, 5), (2, 2, 4, 5), (4, 1, 6, 7)]


@pytest.mark.parametrize("dims", [*SHAPES, (7, 1, 9, 10), (2, 2, 28, 30)])
def test_no_head_is_in_too_many_sets(dims):
    """The hypothesis of Theorem P, and the m that follows."""
    shape = Shape(*dims)
    H, L, d, b = dims
    sets = shared_heads(shape)
    for g in range(2, H + 1):
        for head in range(H):
            assert sum(head in heads for heads in sets if len(heads) >= g) <= max(0, g * d - (g - 1) * b)
    words = sum(H**t for t in range(L))
    m = (2 * H * d - sum(len(heads) - 1 for heads in sets)) * words + b * H**L
    assert construction("sharing").dimension(shape) == m


def test_the_figures_of_the_page():
    assert construction("sharing").dimension(Shape(2, 2, 28, 30)) == 378
    assert construction("sharing").dimension(Shape(2, 1, 2, 3)) == 13
    for dims in [(3, 2, 2, 2), (2, 4, 5, 5)]:  # at d = b every head shares every column, as shared-key does with keys
        assert construction("sharing").dimension(Shape(*dims)) == construction("shared-key").dimension(Shape(*dims))


def forms_of(kind, H, d, b, rng):
    low = [rng.normal(size=(b, d)) @ rng.normal(size=(d, b)) for _ in range(H)]
    return {
        "generic": low,
        "equal": [low[0]] * H,
        "opposite": [(-1) ** h * low[0] for h in range(H)],
        "zero": [0 * low[0]] * H,
        "zero but one": [low[0], *([0 * low[0]] * (H - 1))],
        "deficient": [np.outer(form[0], form[:, 0]) for form in low],
        "meeting": [np.eye(b)[:, h : h + 1] @ np.ones((1, b)) for h in range(H)] if b >= H else low,
        "units": [np.diag([float((i + h) % b < d) for i in range(b)]) for h in range(H)],
    }[kind]


@pytest.mark.parametrize(
    "kind", ["generic", "equal", "opposite", "zero", "zero but one", "deficient", "meeting", "units"]
)
@pytest.mark.parametrize("dims", SHAPES)
def test_factors_share_columns_for_every_form(dims, kind):
    shape, rng = Shape(*dims), np.random.default_rng(1)
    forms = forms_of(kind, shape.heads, shape.head_dim, shape.d_in, rng)
    X, Y = shared_readers(shape, forms)
    for form, left, right in zip(forms, X, Y, strict=True):
        assert np.allclose(left @ right.T, form, atol=1e-10 * max(1, abs(form).max()))
        assert np.linalg.cond(left) < 1e7
    different = {tuple(np.round(column, 12)) for left in X for column in left.T}
    saved = sum(len(heads) - 1 for heads in shared_heads(shape))
    assert len(different) <= shape.heads * shape.head_dim - saved


@pytest.mark.parametrize("law", TARGET_LAWS)
@pytest.mark.parametrize("dims", [(2, 3, 2, 3), (3, 2, 2, 2)])
def test_hosts_act_as_targets_on_real_inputs(dims, law):
    shape = Shape(*dims)
    host, target = build_host("sharing", shape), draw_target(shape, 4, law)
    E = embed(host, target).E
    X = np.random.default_rng(2).normal(size=(6, shape.d_in))
    W = {x: getattr(target, f"W_{x}") for x in "QKVO"}
    heads = range(shape.heads)
    readers = [(host.R_Q[h].to_dense(float), host.R_K[h].to_dense(float), host.R_V[h].to_dense(float)) for h in heads]
    y = X @ E
    for _ in range(shape.layers):
        y = sum(softmax((y @ q) @ (y @ k).T) @ y @ v for q, k, v in readers)
    expected = run_target(W, X, softmax)
    assert abs(y @ host.U.to_dense(float) - expected).max() <= 1e-9 * max(1, abs(expected).max())


def test_narrower_targets_and_refusals():
    shape = Shape(2, 2, 3, 4)
    host = build_host("sharing", shape)
    narrow = random_target(shape, 1, width=2)
    X = np.eye(4)[[0, 3, 2]]
    kernel = SoftmaxAttention(causal=True)
    assert np.allclose(host.forward(X, embed(host, narrow).E, kernel), narrow.forward(X, kernel), atol=1e-12)
    with pytest.raises(OutsideClass, match="width at most d_out = 4"):
        embed(host, random_target(shape, 1, width=5))
    drawn = random_target(shape, 1)
    precise = Target(shape, *(exact(getattr(drawn, f"W_{x}")) for x in "QKVO"))
    with pytest.raises(NotDefined, match="bases in floats"):
        embed(host, precise)
    for dims in [(2, 2, 1, 2), (1, 2, 2, 2), (2, 2, 3, 2)]:
        with pytest.raises(NotDefined, match="needs d_out < 2 head_dim"):
            build_host("sharing", Shape(*dims))


def test_emulated_within_its_bound(capsys):
    line = "emulate sharing -H 2 -L 2 -d 2 --d-in 3 --inputs uniform --attention softmax,causal --json"
    assert run(line.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rests_on"] == "bound"
    assert document["notion"] == "attention-matching"
    assert run(["certify", "sharing", "-H", "2", "-L", "2", "-d", "2", "--d-in", "3", "-o", "unused.json"]) == 4
    assert "docs/proofs/all-targets.md, Theorem P" in capsys.readouterr().err
