"""Biases absorbed through a constant coordinate: exactly, with and without a residual stream, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from utfproof.attention import ChunkedAttention, GivenAttention, RationalAttention, SeededAttention, SoftmaxAttention
from utfproof.constructions import build_host
from utfproof.errors import CannotCarry, MalformedInput, OutsideClass
from utfproof.exact import rational
from utfproof.matching import embed, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import AugmentedTarget, Universal, run_layers
from utfproof.systems.biases import BiasedTarget, require_row_stochastic
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion
from utfproof.weights import write_target

pytestmark = pytest.mark.numerical

BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U")
CASES = [  # (H, L, d, V, P, D, d_out), residual
    ((2, 2, 1, 2, 0, 2, 2), False),
    ((2, 2, 1, 2, 0, 2, 2), True),
    ((1, 3, 2, 3, 0, 2, 1), False),
    ((3, 1, 1, 2, 2, 3, 2), True),
    ((2, 1, 2, 2, 3, 3, 2), False),
    ((1, 2, 1, 3, 2, 2, 3), True),
    ((2, 3, 1, 2, 0, 1, 2), True),
]


def integers(rng, *shape):
    return exact(rng.integers(-3, 4, size=shape))


def biased(case, residual, seed=0, *, floats=False):
    """A target of V tokens and P positions with biases everywhere."""
    H, L, d, V, P, D, d_out = case
    rng = np.random.default_rng(seed)
    shape = Shape(H, L, d, V + P, d_out, residual=residual)
    sizes = {
        "W_Q": (L, H, D, d),
        "W_K": (L, H, D, d),
        "W_V": (L, H, D, d),
        "W_O": (L, H, d, D),
        "W_E": (V + P, D),
        "W_U": (D, d_out),
        "b_Q": (L, H, d),
        "b_K": (L, H, d),
        "b_V": (L, H, d),
        "b_O": (L, D),
        "b_E": (D,),
        "b_U": (d_out,),
    }
    draw = (lambda *s: rng.normal(size=s) / np.sqrt(s[-1])) if floats else (lambda *s: integers(rng, *s))
    arrays = {name: draw(*size) for name, size in sizes.items()}
    ones = np.concatenate([np.ones(V), np.zeros(P)])
    return BiasedTarget(shape, **arrays, constant=ones if floats else exact(ones.astype(int)))


def sentence(case, n, seed=0, *, floats=False):
    """One-hot tokens, and one-hot positions beside them where there are any (then n is at most P)."""
    _, _, _, V, P, _, _ = case
    n = min(n, P) if P else n
    tokens = np.random.default_rng(seed).integers(0, V, n)
    x = np.concatenate([np.eye(V)[tokens], np.eye(P)[:n]], axis=1) if P else np.eye(V)[tokens]
    return x if floats else exact(x.astype(int))


def written_out(target, x, kernel):
    """The biased target by its definition, entry by entry."""
    shape, n = target.shape, len(x)
    add = lambda rows, bias: [[a + b for a, b in zip(row, bias, strict=True)] for row in rows]  # noqa: E731
    times = lambda a, b: [[sum(p * q for p, q in zip(r, c, strict=True)) for c in zip(*b, strict=True)] for r in a]  # noqa: E731
    stream = add(times(x.tolist(), target.W_E.tolist()), target.b_E)
    for layer in range(shape.layers):
        out = [list(row) for row in stream] if shape.residual else [[0] * target.width for _ in range(n)]
        for head in range(shape.heads):
            q = add(times(stream, target.W_Q[layer, head].tolist()), target.b_Q[layer, head])
            k = add(times(stream, target.W_K[layer, head].tolist()), target.b_K[layer, head])
            v = add(times(stream, target.W_V[layer, head].tolist()), target.b_V[layer, head])
            pattern = kernel(np.array(q, dtype=object), np.array(k, dtype=object), np.arange(n), layer=layer, head=head)
            mixed = times(times(pattern.tolist(), v), target.W_O[layer, head].tolist())
            out = [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(out, mixed, strict=True)]
        stream = add(out, target.b_O[layer])
    return np.array(add(times(stream, target.W_U.tolist()), target.b_U), dtype=object)


@pytest.mark.parametrize(("case", "residual"), CASES)
@pytest.mark.parametrize("causal", [False, True])
def test_three_definitions_agree_exactly(case, residual, causal):
    target, x, kernel = biased(case, residual), sentence(case, 3), RationalAttention(causal)
    expected = written_out(target, x, kernel)
    assert (target.forward(x, kernel) == expected).all()
    assert (target.augmented().forward(x, kernel) == expected).all()
    # the outputs are not what the biases' absence gives
    assert (target.without_biases().forward(x, kernel) != expected).any()


@pytest.mark.parametrize(("case", "residual"), CASES)
@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_hosts_carry_biases_exactly(case, residual, name):
    target, x, kernel = biased(case, residual, 1), sentence(case, 3, 1), RationalAttention()
    if residual and name == "tied" and target.shape.layers > 1:
        with pytest.raises(CannotCarry):
            embed(build_host(name, target.shape), target.augmented())
        return
    host = build_host(name, target.shape)
    found = embed(host, target.augmented())
    assert found.notion is Notion.MATCHING
    assert (host.forward(x, found.E, kernel) == target.forward(x, kernel)).all()


@pytest.mark.parametrize("residual", [False, True])
def test_a_dense_host_carries_biases_exactly(residual):
    case = (2, 1, 1, 2, 1, 2, 2)
    target, rng = biased(case, residual, 2), np.random.default_rng(5)
    shape, m = target.shape, matching_dimension(target.shape)
    host = Universal(shape, m, *(integers(rng, 1, 2, m, w) for w in (1, 1, m)), integers(rng, m, 2))
    found = embed(host, target.augmented())
    assert (found.method, found.rank) == ("rational solve", m)
    x = sentence(case, 1)
    assert (host.forward(x, found.E, RationalAttention()) == target.forward(x, RationalAttention())).all()


@pytest.mark.parametrize(("case", "residual"), CASES)
def test_softmax_in_float64(case, residual):
    target, x = biased(case, residual, 3, floats=True), sentence(case, 9, 3, floats=True)
    host = build_host("random", target.shape)
    E = embed(host, target.augmented()).E
    for kernel in (
        SoftmaxAttention(),
        SoftmaxAttention(causal=True, window=2),
        SeededAttention(),
        ChunkedAttention(SoftmaxAttention(), 2),
    ):
        expected = target.forward(x, kernel)
        scale = np.abs(expected).max()
        assert np.abs(target.augmented().forward(x, kernel) - expected).max() < 1e-13 * scale
        assert np.abs(host.forward(x, E, kernel) - expected).max() < 1e-9 * scale


@pytest.mark.parametrize(("case", "residual"), CASES)
def test_the_constant_coordinate_stays_one(case, residual):
    target, x = biased(case, residual, 4).augmented(), sentence(case, 3, 4)
    assert isinstance(target, AugmentedTarget)

    def maps(layer, head):
        from utfproof.systems import HeadMaps

        w_q, w_k, w_v, w_o = target.parameters(layer, head)
        return HeadMaps(w_q, w_k, (w_v, w_o))

    stream = run_layers(x @ target.W_E, target.shape, maps, RationalAttention())
    assert (stream[:, -1] == 1).all()
    carried = sum(target.value_form(0, head)[-1, -1] for head in range(target.shape.heads))
    assert carried == (0 if residual else 1)


def test_rank_is_one_more_and_it_is_never_written(tmp_path):
    target = biased((2, 2, 1, 3, 0, 3, 3), False, 6).augmented()
    assert rational.rank(target.value_form(0, 0)) == 2
    with pytest.raises(MalformedInput, match="absorbed biases"):
        write_target(tmp_path / "t.safetensors", target)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("residual", [False, True])
def test_every_bias_counts(name, residual):
    """Leaving one out changes the outputs and W_all (softmax would forgive the keys' biases, which shift whole rows)."""
    case = (2, 2, 2, 3, 0, 3, 3)
    target, x = biased(case, residual, 7), sentence(case, 4)
    without = replace(target, **{name: None})
    kernel = RationalAttention()  # not invariant under a shift of the logits, so that b_K counts
    assert (without.augmented().forward(x, kernel) != target.forward(x, kernel)).any()
    assert (without.augmented().forward(x, kernel) == without.forward(x, kernel)).all()
    assert not np.array_equal(w_all(without.augmented()), w_all(target.augmented()))


def test_no_biases_is_a_plain_target():
    target, x = biased((2, 2, 1, 3, 0, 2, 2), True, 8), sentence((2, 2, 1, 3, 0, 2, 2), 4)
    bare = replace(target, **dict.fromkeys(BIASES), constant=None)
    expected = target.without_biases().forward(x, RationalAttention())
    assert (bare.forward(x, RationalAttention()) == expected).all()
    assert (bare.augmented().forward(x, RationalAttention()) == expected).all()


def test_identity_ends_and_mixed_numbers():
    """No W_E and W_U; integer weights beside rational biases keep the biases as they are."""
    rng = np.random.default_rng(0)
    shape = Shape(2, 2, 1, 2)
    W = {
        name: rng.integers(-2, 3, (2, 2, *s))
        for name, s in zip(("W_Q", "W_K", "W_V", "W_O"), [(2, 1)] * 3 + [(1, 2)], strict=True)
    }
    half = np.full((2, 2), Fraction(1, 2), dtype=object)
    target = BiasedTarget(shape, **W, b_O=half, b_V=np.full((2, 2, 1), Fraction(1, 3), dtype=object))
    x = exact(np.eye(2, dtype=int)[[0, 1, 1]])
    assert (target.augmented().forward(x, RationalAttention()) == target.forward(x, RationalAttention())).all()
    assert target.augmented().W_O[0, 0, -1, 0] == Fraction(1, 2)


def test_torch():
    torch = pytest.importorskip("torch")
    case = (2, 2, 1, 3, 2, 2, 2)
    target, x = biased(case, False, 10, floats=True), sentence(case, 2, floats=True)
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U", *BIASES, "constant")
    held = replace(target, **{name: torch.from_numpy(getattr(target, name)) for name in names})
    expected = target.forward(x, SoftmaxAttention())
    for found in (held, held.augmented()):
        assert np.abs(found.forward(torch.from_numpy(x), SoftmaxAttention()).numpy() - expected).max() < 1e-13


# --- refusals ----------------------------------------------------------------------------------------------


def leaky(L, H, n):
    """Matrices whose rows sum to 1/2."""
    return GivenAttention(exact(np.ones((L, H, n, n), dtype=int)) * Fraction(1, 2 * n))


def test_attention_that_loses_mass_is_refused_because_biases_would_be_wrong():
    case = (2, 2, 1, 2, 0, 2, 2)
    target, x, kernel = biased(case, False, 11), sentence(case, 3), leaky(2, 2, 3)
    with pytest.raises(MalformedInput, match="not known to have rows that sum to 1"):
        target.forward(x, kernel)
    with pytest.raises(MalformedInput, match="not known to have rows that sum to 1"):
        require_row_stochastic(ChunkedAttention(kernel))
    assert (target.augmented().forward(x, kernel) != written_out(target, x, kernel)).any()
    require_row_stochastic(SeededAttention())


def test_a_float_kernel_from_outside_is_measured():
    require_row_stochastic(GivenAttention(np.full((1, 1, 3, 3), 1 / 3)))
    with pytest.raises(MalformedInput, match="sum to 1"):
        require_row_stochastic(GivenAttention(np.full((1, 1, 3, 3), 0.33)))


class Sigmoid:
    logits_only = True

    def __call__(self, queries, keys, positions, *, layer, head):
        return 1 / (1 + np.exp(-queries @ keys.T))


def test_unknown_kernels_have_to_say_so():
    with pytest.raises(MalformedInput, match="Sigmoid is not known"):
        require_row_stochastic(Sigmoid())
    kernel = Sigmoid()
    kernel.row_stochastic = True
    require_row_stochastic(kernel)


def test_inputs_without_a_constant_are_refused():
    case = (1, 1, 1, 2, 2, 2, 2)
    target, x = biased(case, True), sentence(case, 2)
    with pytest.raises(MalformedInput, match="constant coordinate"):
        target.forward(x * 2, RationalAttention())
    # ones on all rows would count a token and its position
    with pytest.raises(MalformedInput, match="constant coordinate"):
        replace(target, constant=None).forward(x, RationalAttention())


@pytest.mark.parametrize("name", [*BIASES, "constant"])
def test_shapes_are_checked_by_name(name):
    target = biased((2, 2, 1, 3, 0, 2, 4), True)
    with pytest.raises(MalformedInput, match=f"{name} has shape"):
        replace(target, **{name: np.zeros((7, 7))})


def test_inner_width_is_checked():
    target = biased((2, 2, 1, 3, 0, 2, 2), True).augmented()
    with pytest.raises(MalformedInput, match="W_O has shape"):
        replace(target, W_O=target.W_O[:, :, :-1])
    with pytest.raises(MalformedInput, match="W_K has shape"):
        replace(target, W_K=target.W_K[..., :0])
    with pytest.raises(MalformedInput, match="W_U"):
        replace(target, W_U=None)


@pytest.mark.parametrize("name", ["shared-key", "shared-query"])
def test_hosts_below_m_say_that_the_width_is_one_more(name):
    case = (2, 2, 3, 3, 0, 3, 3)
    target = biased(case, False, 12, floats=True).augmented()
    with pytest.raises(OutsideClass, match="width 4"):
        embed(build_host(name, target.shape), target)
    narrow = biased((2, 2, 3, 3, 0, 2, 3), False, 12, floats=True)
    host = build_host(name, narrow.shape)
    x = sentence(case, 4, floats=True)
    found = host.forward(x, embed(host, narrow.augmented()).E, SoftmaxAttention())
    assert np.abs(found - narrow.forward(x, SoftmaxAttention())).max() < 1e-9
