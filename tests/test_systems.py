"""The five systems: forward passes against loops over words, in floats and exact arithmetic."""

import itertools

import numpy as np
import pytest
from cases import SMALL_SHAPES, stochastic
from hypothesis import given
from hypothesis import strategies as st

from utfproof.attention import GivenAttention, RationalAttention, SoftmaxAttention
from utfproof.constructions import build_host, random_target
from utfproof.errors import MalformedInput
from utfproof.matching import embed, exact_target
from utfproof.shapes import Shape
from utfproof.systems import (
    SharedAttentionUniversal,
    Target,
    Universal,
)
from utfproof.util.arrays import exact

pytestmark = pytest.mark.numerical


def integers(rng, *shape):
    return exact(rng.integers(-3, 4, size=shape))


def unrolled(x, A, value, L, H):
    """lem:multiunroll: the sum over head words of A^{L,h_L} ... A^{1,h_1} X V^{1,h_1} ... V^{L,h_L}."""
    total = 0
    for word in itertools.product(range(H), repeat=L):
        left, right = x, None
        for layer, h in enumerate(word):
            left = A[layer][h] @ left
            step = value(layer, h)
            right = step if right is None else right @ step
        total = total + left @ right
    return total


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_all_systems_unroll_exactly(H, L, seed, tied):
    rng = np.random.default_rng(seed)
    d, D, m, n = 2, 3, 4, 3
    shape = Shape(H, L, d, D)
    lead = (H,) if tied else (L, H)
    x = integers(rng, n, D)
    A = stochastic(rng, L, H, n)
    target = Target(shape, *(integers(rng, *lead, D, d) for _ in range(3)), integers(rng, *lead, d, D))
    expected = unrolled(x, A, target.value_form, L, H)
    assert np.array_equal(target.forward(x, GivenAttention(A)), expected)

    E, U, R_V = integers(rng, D, m), integers(rng, m, D), integers(rng, *lead, m, m)
    host = Universal(shape, m, integers(rng, *lead, m, d), integers(rng, *lead, m, d), R_V, U)
    expected = unrolled(x @ E, A, lambda layer, h: host.maps(layer, h).value[0], L, H) @ U
    assert np.array_equal(host.forward(x, E, GivenAttention(A)), expected)
    shared = SharedAttentionUniversal(shape, m, R_V)
    assert np.array_equal(shared.forward(x, E, U, A), expected)


def test_factored_values_are_a_product():
    rng = np.random.default_rng(1)
    shape, m, d_v = Shape(2, 2, 1, 2), 4, 3
    R_Q, R_K, U = integers(rng, 2, 2, m, 1), integers(rng, 2, 2, m, 1), integers(rng, m, 2)
    V, O_ = integers(rng, 2, 2, m, d_v), integers(rng, 2, 2, d_v, m)
    factored = Universal(shape, m, R_Q, R_K, V, U, R_Vo=O_)
    product = Universal(shape, m, R_Q, R_K, V @ O_, U)
    x, E = integers(rng, 3, 2), integers(rng, 2, m)
    kernel = RationalAttention()
    assert np.array_equal(factored.forward(x, E, kernel), product.forward(x, E, kernel))


@pytest.mark.parametrize("dims", SMALL_SHAPES)
def test_attention_uses_queries_and_keys_of_its_layer(dims):
    """An exact forward pass with logit-dependent attention, spelled out layer by layer."""
    shape = Shape(*dims)
    target = exact_target(random_target(shape, 3))
    x = integers(np.random.default_rng(0), 3, shape.d_in)
    kernel = RationalAttention(causal=True)
    state = x
    for layer in range(shape.layers):
        total = 0
        for h in range(shape.heads):
            w_q, w_k, w_v, w_o = target.parameters(layer, h)
            A = kernel(state @ w_q, state @ w_k, np.arange(3), layer=layer, head=h)
            total = total + A @ state @ w_v @ w_o
        state = total
    assert np.array_equal(target.forward(x, kernel), state)


def test_width_embeds_and_unembeds():
    shape = Shape(2, 2, 2, 3, 4)
    target = random_target(shape, 1, width=5)
    assert (target.W_E.shape, target.W_U.shape, target.width) == ((3, 5), (5, 4), 5)
    inner = Target(Shape(2, 2, 2, 5), target.W_Q, target.W_K, target.W_V, target.W_O)
    x = np.random.default_rng(0).normal(size=(4, 3))
    kernel = SoftmaxAttention(causal=True)
    assert np.allclose(target.forward(x, kernel), inner.forward(x @ target.W_E, kernel) @ target.W_U, rtol=1e-14)


def test_torch_runs_the_same_pass():
    torch = pytest.importorskip("torch")
    from utfproof.emulation.engines import changed

    shape = Shape(2, 2, 2, 3)
    to_torch = torch.from_numpy
    x, kernel = np.random.default_rng(0).normal(size=(6, 3)), SoftmaxAttention(scale="1/sqrt(d)", causal=True)
    target = random_target(shape, 0, width=4)
    assert np.allclose(
        changed(target, to_torch).forward(to_torch(x), kernel).numpy(), target.forward(x, kernel), rtol=1e-13
    )
    for name in ("tied", "random"):
        host = build_host(name, shape)
        E = np.random.default_rng(2).normal(size=(3, host.m))
        found = changed(host, to_torch).forward(to_torch(x), to_torch(E), kernel)
        assert np.allclose(found.numpy(), host.forward(x, E, kernel), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W_K": np.zeros((2, 2, 3, 1))}, r"W_K has shape \[2, 2, 3, 1\], expected \[2, 2, 3, 2\]"),
        ({"W_O": np.zeros((2, 2, 3, 2))}, "W_O has shape"),
        ({"W_U": np.zeros((3, 4))}, r"W_U has shape \[3, 4\], expected \[3, 3\]"),
        ({"W_Q": np.zeros((1, 2, 3, 2))}, "W_Q has shape"),
        ({"W_Q": np.zeros((2, 2, 5, 2))}, "W_K has shape"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change, message):
    shape = Shape(2, 2, 2, 3)
    parts = {name: np.zeros((2, 2, 3, 2)) for name in ("W_Q", "W_K", "W_V")} | {"W_O": np.zeros((2, 2, 2, 3))}
    with pytest.raises(MalformedInput, match=message):
        Target(shape, **(parts | change))


def test_missing_embedding_is_named():
    parts = {name: np.zeros((1, 1, 5, 2)) for name in ("W_Q", "W_K", "W_V")} | {"W_O": np.zeros((1, 1, 2, 5))}
    with pytest.raises(MalformedInput, match="W_E is missing: width D = 5"):
        Target(Shape(1, 1, 2, 3), **parts)


def test_host_shapes_that_do_not_fit_are_named():
    with pytest.raises(MalformedInput, match=r"R_V\[0\] has shape"):
        Universal(
            Shape(1, 2, 1, 1),
            3,
            np.zeros((1, 3, 1)),
            np.zeros((1, 3, 1)),
            np.zeros((1, 3, 2)),
            np.zeros((3, 1)),
        )
    with pytest.raises(MalformedInput, match="U has shape"):
        Universal(
            Shape(1, 1, 1, 1),
            3,
            np.zeros((1, 1, 3, 1)),
            np.zeros((1, 1, 3, 1)),
            np.zeros((1, 1, 3, 3)),
            np.zeros((2, 1)),
        )
    with pytest.raises(MalformedInput, match="R_V\\[0, 0\\]"):
        SharedAttentionUniversal(Shape(1, 1, 1, 1), 3, np.zeros((1, 1, 2, 2)))


def test_what_a_host_would_leave_out_is_refused():
    """More layers or heads than the shape has, and numbers that are not real."""
    shape, host = Shape(2, 2, 1, 2), build_host("random", Shape(2, 2, 1, 2))
    tied = build_host("random-tied", shape)
    parts = {name: getattr(host, name) for name in ("R_Q", "R_K", "R_V", "U")}
    for axis, word in ((0, "layers"), (1, "heads")):
        more = {n: np.concatenate([array, array], axis) for n, array in parts.items() if n != "U"}
        with pytest.raises(MalformedInput, match=f"R_Q has 4 {word}, expected 2"):
            Universal(shape, host.m, **(parts | more))
    with pytest.raises(MalformedInput, match="R_V has 1 layers, expected 2"):
        Universal(shape, host.m, **(parts | {"R_V": host.R_V[:1]}))
    with pytest.raises(MalformedInput, match="R_K has 3 heads"):
        Universal(shape, tied.m, tied.R_Q, np.concatenate([tied.R_K, tied.R_K[:1]]), tied.R_V, tied.U)
    with pytest.raises(MalformedInput, match="R_V has 3 layers"):
        SharedAttentionUniversal(shape, host.m, np.concatenate([host.R_V, host.R_V[:1]]))
    for wrong, message in (
        (1j * host.R_Q, "complex128, expected real"),
        (host.R_Q.tolist(), "type list"),
        (None, "type None"),
    ):
        with pytest.raises(MalformedInput, match=message):
            Universal(shape, host.m, **(parts | {"R_Q": wrong}))
    target = random_target(shape, seed=1)
    with pytest.raises(MalformedInput, match="W_Q is of type list, expected an array"):
        Target(shape, target.W_Q.tolist(), target.W_K, target.W_V, target.W_O)
    with pytest.raises(MalformedInput, match="W_Q holds complex128"):
        Target(shape, 1j * target.W_Q, target.W_K, target.W_V, target.W_O)
    with pytest.raises(MalformedInput, match="W_Q is a masked array"):
        Target(shape, np.ma.masked_less(target.W_Q, 0), target.W_K, target.W_V, target.W_O)


_EXPECTED = r"\[\.\.\., n >= 1, 2\]"
MISFITS = {
    "a list": ([[1.0, 2.0]], f"x is of type list, expected an array {_EXPECTED}"),
    "nothing": (None, f"x is of type NoneType, expected an array {_EXPECTED}"),
    "no token": (np.zeros((0, 2)), rf"x has shape \[0, 2\], expected {_EXPECTED}"),
    "one axis": (np.zeros(2), rf"x has shape \[2\], expected {_EXPECTED}"),
    "wider": (np.zeros((3, 3)), rf"x has shape \[3, 3\], expected {_EXPECTED}"),
    "masked": (np.ma.masked_less(np.ones((3, 2)), 2), "x is a masked array"),
    "complex": (1j * np.ones((3, 2)), "x holds complex128, expected real numbers"),
}


@pytest.mark.parametrize(("x", "message"), MISFITS.values(), ids=MISFITS)
def test_tokens_that_do_not_fit_are_named(x, message):
    shape = Shape(2, 2, 1, 2)
    host, target, kernel = build_host("sparse", shape), random_target(shape, seed=1), SoftmaxAttention()
    E, shared = embed(host, target).E, SharedAttentionUniversal(shape, 1, np.zeros((2, 2, 1, 1)))
    with pytest.raises(MalformedInput, match=message):
        target.forward(x, kernel)
    with pytest.raises(MalformedInput, match=message):
        host.forward(x, E, kernel)
    with pytest.raises(MalformedInput, match=message):
        shared.forward(x, np.zeros((2, 1)), np.zeros((1, 2)), np.ones((2, 2, 1, 1)))
    with pytest.raises(MalformedInput, match="E has shape"):
        host.forward(np.ones((1, 2)), E.T, kernel)
    with pytest.raises(MalformedInput, match="U has shape"):
        shared.forward(np.ones((1, 2)), np.zeros((2, 1)), np.zeros((2, 1)), np.ones((2, 2, 1, 1)))


def test_integers_of_few_bits_do_not_overflow():
    shape = Shape(2, 2, 1, 2)
    drawn = np.random.default_rng(3).integers(-100, 100, size=(4, 2, 2, 2, 1))
    exactly, short = (
        Target(shape, *(part(drawn[i]) for i in range(3)), part(drawn[3].swapaxes(-1, -2)))
        for part in (exact, lambda array: array.astype(np.int8))
    )
    A, x = np.ones((2, 2, 3, 3), dtype=np.int8), np.array([[1, 2], [-3, 1], [2, 2]], dtype=np.int8)
    expected = exactly.forward(exact(x), GivenAttention(exact(A)))
    assert abs(expected).max() > 2**15
    assert np.array_equal(short.forward(x, GivenAttention(A)), expected)
    plain = [np.array(part, dtype=float) for part in (short.W_Q, short.W_K, short.W_V, short.W_O)]
    softmax = Target(shape, *plain).forward(x.astype(float), SoftmaxAttention())
    for target in (short, Target(shape, *plain)):  # integers stand beside floats, and are floats under softmax
        assert np.allclose(target.forward(x, SoftmaxAttention()), softmax, rtol=1e-12)


def test_what_is_no_kernel_is_named():
    shape = Shape(2, 2, 1, 2)
    host, target, x = build_host("sparse", shape), random_target(shape, seed=1), np.ones((3, 2))
    E, whole = embed(host, target).E, np.ones((2, 2, 3, 3))
    for kernel, message in (
        ("softmax", "attention is 'softmax', expected a kernel such as"),
        (None, "attention is None"),
        (SoftmaxAttention, "attention is <class"),
        (GivenAttention(whole[0, 0]), "attention has 3 layers, expected 2"),  # one matrix for all
        (GivenAttention(whole[:1]), "attention has 1 layers, expected 2"),
        (GivenAttention(whole[[0, 1, 0]]), "attention has 3 layers, expected 2"),  # the third would be left out
        (GivenAttention(whole.tolist()), "attention\\[0, 0\\] is of type list"),
    ):
        for run in (target.forward, lambda x, kernel: host.forward(x, E, kernel)):
            with pytest.raises(MalformedInput, match=message):
                run(x, kernel)
    for positions in (np.arange(2), np.zeros((3, 1))):  # a column would be spread over the keys
        with pytest.raises(MalformedInput, match=r"positions has shape .* expected \[3\]"):
            target.forward(x, SoftmaxAttention(causal=True), positions)


def test_tensors_beside_arrays_are_named():
    torch = pytest.importorskip("torch")
    from utfproof.emulation.engines import changed

    shape, kernel, x = Shape(2, 2, 1, 2), SoftmaxAttention(), np.eye(2)
    target, host = random_target(shape, seed=1), build_host("random", shape)
    tensor, E = torch.from_numpy(x), embed(host, target).E
    with pytest.raises(MalformedInput, match=r"x is a torch tensor of .*, W_Q a NumPy array"):
        target.forward(tensor, kernel)
    with pytest.raises(MalformedInput, match="x is a NumPy array, E a torch tensor"):
        host.forward(x, torch.from_numpy(E), kernel)
    with pytest.raises(MalformedInput, match="x is a NumPy array, attention a torch tensor"):
        target.forward(x, GivenAttention(torch.ones(2, 2, 2, 2)))
    with pytest.raises(
        MalformedInput, match=r"x is a torch tensor of torch.float32 on cpu, W_Q a torch tensor of torch.f"
    ):
        changed(target, torch.from_numpy).forward(tensor.float(), kernel)
    whole = changed(target, lambda array: torch.from_numpy(100 * array).to(torch.int8))
    with pytest.raises(MalformedInput, match=r"x is a torch tensor of torch.int8 on cpu, whose products may overflow"):
        whole.forward(tensor.to(torch.int8), GivenAttention(torch.ones(2, 2, 2, 2, dtype=torch.int8)))
