"""Attention kernels against plain loops, in NumPy, torch and exact arithmetic."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import second_checker
from hypothesis import given
from hypothesis import strategies as st

from utfproof.attention import KERNEL_NAMES, GivenAttention, RationalAttention, SoftmaxAttention, parse_kernel
from utfproof.certificates import checker
from utfproof.errors import MalformedInput

pytestmark = pytest.mark.numerical

NAMES = [name.replace(":W", ":3") for name in KERNEL_NAMES[1:]]
EVERY_PART = "+".join(NAMES)
KERNELS = ["softmax", *NAMES, "window:64", "window:2", EVERY_PART]


def sample(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d))


def by_hand(text, q, k, head, heads):
    """The kernel of that name, entry by entry: what the second checker makes of the format's page, its intervals' middles."""
    exact = ([[second_checker.interval(x) for x in row] for row in rows] for rows in (q, k))
    found = second_checker.softmaxed(*exact, second_checker.attention_parts(text, q.shape[1]), head, heads, q.shape[1])
    return np.array([[float(x.mid) for x in row] for row in found])


@pytest.mark.parametrize("text", KERNELS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_kernels_by_hand(text, n):
    q, k = sample(n, 4)
    positions = np.arange(n)
    kernel = parse_kernel(text, heads=3, head_dim=4)
    expected = by_hand(text, q, k, head=1, heads=3)
    found = kernel(q, k, positions, layer=0, head=1)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert np.allclose(found.sum(axis=1), 1)
    torch = pytest.importorskip("torch")
    on_torch = kernel(torch.from_numpy(q), torch.from_numpy(k), positions, layer=0, head=1)
    assert np.allclose(on_torch.numpy(), found, rtol=1e-13, atol=1e-15)


def test_only_rope_looks_beyond_logits():
    assert all(parse_kernel(text, 2, 4).logits_only == ("rope" not in text) for text in KERNELS)


@given(st.integers(1, 4), st.integers(1, 3))
def test_rope_keeps_relative_positions(n, shift):
    q, k = sample(n, 4, seed=n)
    kernel = SoftmaxAttention(rope_base=10000.0)
    here = kernel(q, k, np.arange(n), layer=0, head=0)
    assert np.allclose(here, kernel(q, k, np.arange(n) + shift, layer=0, head=0))


def test_softmax_survives_large_logits():
    q = np.array([[1e4], [-1e4]])
    assert np.array_equal(SoftmaxAttention()(q, q, np.arange(2), layer=0, head=0), np.eye(2))


def test_rational_attention_is_exact():
    q = np.array([[Fraction(1, 3)], [Fraction(2)]], dtype=object)
    k = np.array([[Fraction(3)], [Fraction(1, 2)]], dtype=object)
    found = RationalAttention()(q, k, np.arange(2), layer=0, head=0)
    assert found.tolist() == [
        [Fraction(3) / Fraction(151, 36), Fraction(43, 36) / Fraction(151, 36)],
        [Fraction(43, 46), Fraction(3, 46)],
    ]
    causal = RationalAttention(causal=True)(q, k, np.arange(2), layer=0, head=0)
    assert causal.tolist()[0] == [1, 0]
    floats = RationalAttention()(q.astype(float), k.astype(float), np.arange(2), layer=0, head=0)
    assert np.allclose(floats, found.astype(float))


def test_given_attention_is_what_was_given():
    matrices = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    x = np.zeros((2, 1))
    assert GivenAttention(matrices)(x, x, np.arange(2), layer=1, head=2).tolist() == matrices[1, 2].tolist()
    with pytest.raises(MalformedInput, match="for 2 tokens, the input has 3"):
        GivenAttention(matrices)(np.zeros((3, 1)), x, np.arange(3), layer=0, head=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parse_kernel("rope", 2, 3), "even head dimension, got 3"),
        (lambda: SoftmaxAttention(rope_base=10.0).turned(np.zeros((2, 5)), np.arange(2)), "even head dimension, got 5"),
        (lambda: parse_kernel("relu", 2, 4), "'relu' is unknown"),
        (lambda: parse_kernel("causal+", 2, 4), "unknown at ''"),
        (lambda: parse_kernel("window:0", 2, 4), "window must be a positive integer"),
        (lambda: parse_kernel("window:-1", 2, 4), "is unknown"),
        (lambda: SoftmaxAttention(window=True), "window must be a positive integer"),
        (lambda: SoftmaxAttention(window=1.5), "window must be a positive integer"),
        (lambda: SoftmaxAttention(rope_base=0), "base of rotary positions must be a positive number"),
        (lambda: SoftmaxAttention(rope_base=float("inf")), "base of rotary positions must be a positive number"),
        (lambda: SoftmaxAttention(scale="sqrt"), "scale must be a number"),
        (lambda: SoftmaxAttention(scale=math.inf), "scale must be finite"),
        (
            lambda: SoftmaxAttention()(
                np.array([[1]], dtype=object), np.array([[1]], dtype=object), [0], layer=0, head=0
            ),
            "softmax has no exact values",
        ),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(MalformedInput, match=message):
        call()


@pytest.mark.parametrize("name", KERNEL_NAMES[1:])
def test_the_checkers_and_the_format_know_every_part(name):
    assert name.split(":")[0] in checker.PARTS
    assert name.split(":")[0] in second_checker.PARTS
    assert f"\n* `{name}`: " in (Path(__file__).parents[1] / "docs" / "certificate-format.md").read_text()
