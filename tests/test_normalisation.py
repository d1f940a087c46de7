"""Normalised models: exact square roots, the hosts of docs/proofs/normalisation.md, and the steps of its proofs."""

import itertools
import random
from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from utfproof.attention import GivenAttention
from utfproof.claims import plain
from utfproof.claims.decisions import ExactKernel
from utfproof.claims.small_models import array, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KAPPA,
    KINDS,
    Norm,
    TwoLayers,
    embed_one_layer,
    embed_two_layers,
    normalised_forward,
    shared_scale,
    two_layer_host,
    unit_norm,
)
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, NotDefined, OutsideClass
from utfproof.exact.symbolic.normalisation import Surd, four_squares, root_parts, square_factor
from utfproof.shapes import Shape
from utfproof.systems import Universal

pytestmark = pytest.mark.numerical


def res(*entry):
    return Shape(*entry, residual=True)


def one_hots(tokens, d_in):
    return array([[int(j == token) for j in range(d_in)] for token in tokens])


def largest(target):
    return max(abs(int(v)) for name in ("W_Q", "W_K", "W_V", "W_O") for v in np.ravel(getattr(target, name)))


# --- exact numbers ---------------------------------------------------------------------------------------


@given(st.one_of(st.integers(0, 10**13), st.fractions(0, 10**6)))
def test_roots_are_squarefree_and_squares_add_up(value):
    c, r = root_parts(value)
    assert c * c * r == value
    assert r == 1 or all(power == 1 for power in sympy.factorint(r).values())
    assert sum(x * x for x in four_squares(value)) == value


SURDS = st.dictionaries(st.sampled_from([1, 2, 3, 6, 10, 15]), st.fractions(-5, 5, max_denominator=4), max_size=3)


def as_sympy(terms):
    return sum((sympy.Rational(str(c)) * sympy.sqrt(r) for r, c in terms.items()), sympy.Integer(0))


@given(SURDS, SURDS)
def test_surds_against_sympy(left, right):
    a, b, x, y = Surd(left), Surd(right), as_sympy(left), as_sympy(right)
    pairs = ((a + b, x + y), (a - b, x - y), (a * b, x * y), (3 - a, 3 - x), (Fraction(1, 2) * b, y / 2))
    for ours, theirs in pairs:
        assert sympy.expand(as_sympy(Surd.of(ours).terms) - theirs) == 0
    assert (a == b) == (sympy.expand(x - y) == 0)


def test_square_factor():
    rng = random.Random(3)
    for k in (1, 2, 3):
        B = array([[Fraction(rng.randint(-3, 3), 2) for _ in range(4)] for _ in range(k)])
        C = square_factor(B @ B.T)
        assert C.shape == (k, 4 * k)
        assert (C @ C.T == B @ B.T).all()
    for bad in ([[1, 2], [2, 1]], [[0, 1], [1, 0]], [[-1]]):
        with pytest.raises(NotDefined, match="positive definite"):
            square_factor(array(bad))
    for function in (root_parts, four_squares):
        with pytest.raises(NotDefined, match="negative"):
            function(Fraction(-1, 3))
    with pytest.raises(NotDefined, match="not rational"):
        _ = Surd({2: 1}).rational


# --- the norm and the forward pass -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_norm_is_that_of_torch(kind):
    torch = pytest.importorskip("torch")
    rows = array([[1, -2, 4], [0, 5, 7], [3, 3, 1]])
    found = Norm(kind, Fraction(1, 8))(rows)
    x = torch.tensor(rows.astype(float))
    function = torch.nn.functional.rms_norm if kind == "rms" else torch.nn.functional.layer_norm
    values = [[sum(float(c) * r**0.5 for r, c in Surd.of(v).terms.items()) for v in row] for row in found]
    assert np.allclose(values, function(x, (3,), eps=0.125), atol=1e-14)


def test_what_is_refused():
    shape = res(1, 1, 1, 2)
    target, x, attention = (
        integer_target(shape, 1),
        one_hots((0, 1), 2),
        GivenAttention(array(stochastic_grid(shape, 2))),
    )
    with pytest.raises(MalformedInput, match="rms, layer"):
        Norm("batch")
    with pytest.raises(MalformedInput, match="negative"):
        Norm("rms", Fraction(-1))
    with pytest.raises(NotDefined, match="eps = 0"):
        Norm("rms")(array([[0, 0]]))
    with pytest.raises(MalformedInput, match="stands at"):
        normalised_forward(target, x, attention, Norm("rms"), "inside")
    with pytest.raises(NotDefined, match="first layer of a residual stream only"):
        embed_one_layer(integer_target(res(1, 2, 1, 2), 1), Norm("rms"))
    with pytest.raises(NotDefined, match="residual stream"):
        embed_one_layer(integer_target(Shape(1, 1, 1, 2), 1), Norm("rms"))
    with pytest.raises(NotDefined, match="two layers"):
        TwoLayers(res(1, 3, 1, 2), 1, unit_norm("rms", 2))
    with pytest.raises(NotDefined, match="eps > 0"):
        TwoLayers(res(1, 2, 1, 2), 1, Norm("rms"))
    with pytest.raises(NotDefined, match="and RMS"):
        TwoLayers(res(1, 2, 1, 2), 1, unit_norm("layer", 2))


def test_no_place_is_the_package_s_own_forward_pass():
    shape = res(2, 2, 1, 2)
    target, host = integer_target(shape, 2), build_host("sparse", shape)
    x, attention = one_hots((0, 1, 0), 2), GivenAttention(array(stochastic_grid(shape, 3)))
    E = array([[i + j for j in range(host.m)] for i in range(2)])
    assert (normalised_forward(target, x, attention, Norm("rms"), "none") == target.forward(x, attention)).all()
    assert (normalised_forward(host, x, attention, Norm("rms"), "none", E) == host.forward(x, E, attention)).all()


# --- hosts -----------------------------------------------------------------------------------------------


def test_any_map_of_rows_is_served_in_one_layer():
    """No property of a norm is used: a map that squares, shifts and exchanges coordinates does as well."""

    class Odd(Norm):
        def __call__(self, x):
            return array([[v * v - 3 for v in reversed(row)] for row in x.tolist()])

    shape, odd = res(2, 1, 1, 3), Odd("rms")
    target, host = integer_target(shape, 5), build_host("sparse", shape)
    x, attention = one_hots((0, 2, 1), 3), GivenAttention(array(stochastic_grid(shape, 3, 4)))
    E = embed_one_layer(target, odd)
    assert (host.forward(x, E, attention) == normalised_forward(target, x, attention, odd)).all()
    assert (
        host.forward(x, E, attention) != normalised_forward(target, x, attention, Norm("layer", Fraction(7, 9)))
    ).any()


def agrees(host, E, target, norm, place="pre", seed=1):
    """Queries, keys and outputs under attention from outside."""
    shape, x = target.shape, one_hots([i % target.shape.d_in for i in range(3)], target.shape.d_in)
    attention = plain.given(stochastic_grid(shape, 3, seed))
    ours, theirs = ExactKernel(attention), ExactKernel(attention)
    out = normalised_forward(host, x, ours, norm, place, E)
    return bool((out == normalised_forward(target, x, theirs, norm, place)).all()) and ours.seen == theirs.seen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_host_for_many_targets(seed):
    """The host is fixed first, for a bound; then targets within it come."""
    shape, norm = res(1, 2, 1, 2), unit_norm("rms", 2)
    target, plan = integer_target(shape, seed, bound=3), TwoLayers(shape, 3, norm)
    assert agrees(two_layer_host(plan), embed_two_layers(plan, target), target, norm, seed=seed)


def test_two_layer_host_in_torch_with_softmax():
    """The same host and target written again with torch's own norms and softmax, in float64."""
    torch = pytest.importorskip("torch")
    shape, norm = res(2, 2, 1, 2), unit_norm("rms", 2)
    target, plan = integer_target(shape, 9, bound=2), TwoLayers(shape, 2, norm)
    host, E = two_layer_host(plan), embed_two_layers(plan, target)

    def tensor(matrix):
        return torch.tensor(np.array(plain.rows(matrix), dtype=float))

    def read(system, layer, head):
        return plain.maps(system, layer, head)

    def forward(system, x, output, eps):
        for layer in range(2):
            inner = torch.nn.functional.rms_norm(x, x.shape[-1:], eps=eps)
            terms = []
            for head in range(2):
                query, key, value = (tensor(m) for m in read(system, layer, head))
                terms.append(torch.softmax((inner @ query) @ (inner @ key).T, dim=-1) @ inner @ value)
            x = x + sum(terms)
        return x @ output

    x = tensor(one_hots((0, 1, 1, 0, 1), 2))
    ours = forward(host, x @ tensor(E), tensor(host.U), float(norm.eps))
    theirs = forward(target, x, torch.eye(2, dtype=torch.float64), float(norm.eps))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
    assert theirs.std() > 0.1
    # with another eps in the host alone they differ: the agreement is not a matter of size
    assert not torch.allclose(
        forward(host, x @ tensor(E), tensor(host.U), float(norm.eps) / 2), theirs, rtol=0, atol=1e-4
    )


def test_another_norm_is_not_served():
    shape, norm = res(1, 2, 1, 2), unit_norm("rms", 2)
    target = integer_target(shape, 3, bound=2)
    plan = TwoLayers(shape, 2, norm)
    E = embed_two_layers(plan, target)
    assert agrees(two_layer_host(plan), E, target, norm)
    E[0, 0] += 1
    with pytest.raises(NotDefined):  # its norm is not even rational any more
        agrees(two_layer_host(plan), E, target, norm)


def test_large_weights_are_refused():
    shape, norm = res(1, 2, 1, 2), unit_norm("rms", 2)
    target = integer_target(shape, 3, bound=3)
    with pytest.raises(OutsideClass, match="exceeds the bound"):
        embed_two_layers(TwoLayers(shape, largest(target) - 1, norm), target)


def test_stream_of_the_two_layer_host():
    """Section 6: the host's root mean square is kappa times the target's after one layer, whatever the attention."""
    shape, norm = res(2, 2, 1, 2), unit_norm("rms", 2)
    target = integer_target(shape, 4, bound=2)
    plan = TwoLayers(shape, 2, norm)
    host, E = two_layer_host(plan), embed_two_layers(plan, target)

    for seed in range(3):
        attention = stochastic_grid(shape, 2, seed)
        x = one_hots((0, 1), 2)
        after = []
        for system, start in ((target, x), (host, x @ E)):
            state, inner = start, norm(start)
            for head in range(2):
                value = plain.maps(system, 0, head)[2]
                state = state + array(attention[0][head]) @ inner @ array(value)
            after.append([norm.mean_square(row) for row in state])
        assert after[1] == [KAPPA**2 * v for v in after[0]]


# --- steps of the proofs ---------------------------------------------------------------------------------


def test_an_isometric_copy_of_one_target_is_a_host_for_it():
    """The converse of section 7 for one target: T R_V = kappa M T with an isometry T into 8 coordinates, kappa = 1/2."""
    shape, norm = res(2, 2, 1, 2), unit_norm("rms", 2)
    target = integer_target(shape, 6, bound=3)
    turn = array([[Fraction(3, 5), Fraction(4, 5)] + [0] * 6, [Fraction(-4, 5), Fraction(3, 5)] + [0] * 6])
    maps = [[target.parameters(layer, h) for h in range(2)] for layer in range(2)]
    half = Fraction(1, 2)
    host = Universal(
        shape,
        8,
        [[half * turn.T @ h[0] for h in row] for row in maps],
        [[half * turn.T @ h[1] for h in row] for row in maps],
        [[half * turn.T @ h[2] @ h[3] @ turn for h in row] for row in maps],
        turn.T,
    )
    x, attention = one_hots((0, 1, 0), 2), GivenAttention(array(stochastic_grid(shape, 3)))
    out = normalised_forward(host, x, attention, Norm("rms", norm.eps / 4), E=turn)
    assert (out == normalised_forward(target, x, attention, norm)).all()
    # kappa = 1/2 is a root of the common factor; other targets have none
    found = shared_scale(host, target)
    assert found.degree() > 0
    assert found(flint.fmpq(1, 2)) == 0
    assert shared_scale(host, integer_target(shape, 7, bound=5)).degree() <= 0


def test_lemma_of_section_seven_needs_the_norms_to_be_proportional():
    """p^2 q_x = yhat^2 q_y with p irreducible and not a factor of q_y: only yhat = kappa p, q_x = kappa^2 q_y."""
    a, b = sympy.symbols("a b")
    coefficients = sympy.symbols("c0:3 d0:6")
    p, q = a + 2 * b - 1, sympy.expand((a**2 + (b - 1) ** 2) / 2 + sympy.Rational(1, 3))
    other = coefficients[0] + coefficients[1] * a + coefficients[2] * b
    q_x = sum(c * m for c, m in zip(coefficients[3:], (1, a, b, a * a, a * b, b * b), strict=True))
    equations = sympy.Poly(sympy.expand(p**2 * q_x - other**2 * q), a, b).coeffs()
    solved = sympy.solve(equations, coefficients[3:] + coefficients[:2], dict=True)
    for solution in solved:
        ratio = [sympy.simplify(c.subs(solution)) for c in coefficients[:3]]
        assert sympy.simplify(ratio[0] * 2 + ratio[2]) == 0
        assert sympy.simplify(ratio[1] * 2 - ratio[2]) == 0
        assert sympy.simplify(q_x.subs(solution) - (ratio[2] / 2) ** 2 * q) == 0
    assert solved


@pytest.mark.parametrize(("D", "d"), [(3, 1), (3, 2), (4, 1), (4, 3), (5, 2)])
def test_stacked_operators_without_epsilon(D, d):
    """Section 9: k = ceil(D/e) heads make F -> (P Lambda^-1 F R^h - P M^h F)_h injective; k - 1 do not at R = 0."""
    generator, prime, m = random.Random(10 * D + d), 1_000_003, D + 2

    def drawn(rows, columns):
        return [[generator.randrange(prime) for _ in range(columns)] for _ in range(rows)]

    def table(rows):
        return flint.nmod_mat(len(rows), len(rows[0]), [v for row in rows for v in row], prime)

    def annihilator(columns):
        """Independent rows that annihilate the given columns."""
        found, nullity = table(columns).nullspace()
        return table([[int(found[i, j]) for i in range(D)] for j in range(nullity)])

    def kernel(P, scale, values, readers):
        """dim {F : P Lambda^-1 F R^h = P M^h F for all h}."""
        rows = []
        for i, j in itertools.product(range(D), range(m)):
            F = table([[int((a, b) == (i, j)) for b in range(m)] for a in range(D)])
            images = [p * scale * F * R - p * M * F for p, M, R in zip(P, values, readers, strict=True)]
            rows.append([int(v) for image in images for v in image.entries()])
        return D * m - table(rows).rank()

    e = min(d, D - 2)
    k = -(-D // e)
    values = [table(drawn(D, d)) * table(drawn(d, D)) for _ in range(k)]
    inverse = [generator.randrange(1, prime) for _ in range(D)]
    scale = table([[inverse[i] * (i == j) for j in range(D)] for i in range(D)])
    P = annihilator([[1] * D, inverse])
    assert (P.nrows(), P.rank()) == (D - 2, D - 2)
    stacked = table([[int(v) for v in row] for M in values for row in (P * M).tolist()])
    assert stacked.rank() == D
    readers = [table(drawn(m, m)) for _ in range(k)]
    nothing = [table([[0] * m for _ in range(m)])] * k
    assert kernel([P] * k, scale, values, readers) == kernel([P] * k, scale, values, nothing) == 0
    assert kernel([P] * (k - 1), scale, values[1:], nothing[1:]) > 0
    # annihilating 1 and M^h 1 instead leaves solutions for nilpotent readers, however many heads there are
    nilpotent = [
        table([[int(i > 0 and j == 0) * generator.randrange(prime) for j in range(m)] for i in range(m)])
        for _ in range(4 * k)
    ]
    many = [table(drawn(D, d)) * table(drawn(d, D)) for _ in range(4 * k)]
    other = [annihilator([[1] * D, [int(v) for v in (M * table([[1]] * D)).entries()]]) for M in many]
    one = table([[int(i == j) for j in range(D)] for i in range(D)])
    assert kernel(other, one, many, nilpotent) > 0
    assert kernel([P] * 4 * k, scale, many, nilpotent) == 0


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("D", [3, 5])
def test_layer_norm_is_rms_of_one_coordinate_fewer(D, final):
    """Section 7: the centred stream of a LayerNorm target is the stream of an RMS target of width D - 1, in floats."""
    rng = np.random.default_rng(D)
    H, L, d, n, eps = 2, 3, 2, 4, 0.3
    draw = rng.normal
    W_Q, W_K, W_V, W_O = (
        draw(size=(L, H, D, d)),
        draw(size=(L, H, D, d)),
        draw(size=(L, H, D, d)),
        draw(size=(L, H, d, D)),
    )
    W_U = draw(size=(D, 3))
    Pi = np.eye(D) - 1 / D
    B = np.linalg.svd(Pi)[2][: D - 1]
    g = np.sqrt(D / (D - 1))
    assert np.allclose(B.T @ B, Pi)

    def run(stream, norm, Q, K, V, out, U):
        rows = []
        for layer in range(L):
            inner, after = norm(stream), stream
            for h in range(H):
                logits = inner @ Q[layer, h] @ (inner @ K[layer, h]).T
                weights = np.exp(logits)
                after = after + weights / weights.sum(axis=1, keepdims=True) @ inner @ V[layer, h] @ out[layer, h]
            rows.append(inner @ Q[layer, 0])
            stream = after
        return rows, stream, norm(stream) @ U

    def rms(e):
        return lambda x: x / np.sqrt((x**2).mean(axis=1, keepdims=True) + e)

    y = draw(size=(n, D))
    layer = run(y, lambda x: rms(eps)(x @ Pi), W_Q, W_K, W_V, W_O, W_U)
    reduced = (g * np.einsum("ij,lhjk->lhik", B, W) for W in (W_Q, W_K, W_V))
    small = run(y @ B.T, rms(eps * D / (D - 1)), *reduced, W_O @ B.T, g * B @ W_U)
    assert all(np.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(layer[0], small[0], strict=True))
    assert np.allclose(layer[1] @ B.T, small[1], rtol=0, atol=1e-11)
    if final:
        assert np.allclose(layer[2], small[2], rtol=0, atol=1e-11)
    wrong = rms(eps)(y @ B.T) @ (g * B @ W_Q[0, 0])
    assert not np.allclose(layer[0][0], wrong)
